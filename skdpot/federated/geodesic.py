"""A measure moved, round by round, onto a geodesic between two others (FedWad)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plans import interpolate, optimal_plan

__all__ = [
    "Approach",
    "GeodesicPath",
    "approach",
    "drawn_fractions",
    "follow_geodesic",
    "next_reference",
]


@dataclass(frozen=True, eq=False)
class Approach:
    """What one party computes in one round."""

    measure: DiscreteMeasure
    distance: float


@dataclass(frozen=True, eq=False)
class GeodesicPath:
    """The course of the iteration."""

    distances: np.ndarray
    reference: DiscreteMeasure

    @property
    def distance(self) -> float:
        """The smallest of `distances`: each of them is an upper bound of W₂(μ, ν)."""
        return float(self.distances.min())


def approach(
    measure: DiscreteMeasure,
    reference: DiscreteMeasure,
    t: float,
    *,
    kind: str = "barycentric",
    solver: str = "auto",
) -> Approach:
    """Move one party's measure towards the reference; the party's part of a round."""
    plan = optimal_plan(measure, reference, solver=solver)
    return Approach(interpolate(plan, t, kind=kind), plan.distance)


def next_reference(
    eta_mu: DiscreteMeasure,
    eta_nu: DiscreteMeasure,
    t: float,
    *,
    kind: str = "barycentric",
    solver: str = "auto",
) -> DiscreteMeasure:
    """Return the next ξ, between the measures of both parties; the server's part of a round."""
    return interpolate(optimal_plan(eta_mu, eta_nu, solver=solver), t, kind=kind)


def follow_geodesic(
    mu: DiscreteMeasure,
    nu: DiscreteMeasure,
    reference: DiscreteMeasure,
    fractions: Iterable[float],
    *,
    kind: str = "barycentric",
    solver: str = "auto",
) -> GeodesicPath:
    """Play all rounds of FedWad in one place.

    In each round both measures are moved towards ξ by a fraction t of the way, and the next ξ
    is taken at fraction t between the two results.

    Parameters
    ----------
    mu, nu : DiscreteMeasure
        The measures whose distance is sought.
    reference : DiscreteMeasure
        The first ξ.
    fractions : iterable of float
        One t a round, in [0, 1].
    kind : {"barycentric", "exact"}, default="barycentric"
        As in `interpolate`.
    solver : {"auto", "exact", "entropic"}, default="auto"
        As in `optimal_plan`.

    Returns
    -------
    GeodesicPath
        Distances by round and the last reference. Three plans a round, and two for the last
        reference.

    Notes
    -----
    ``W(μ, ξ) + W(ξ, ν) ≥ W(μ, ν)`` by the triangle inequality, whatever ξ. With exact
    interpolating measures the sum never grows, whatever the fractions: a new ξ' on a geodesic
    between η_μ and η_ν gives::

        W(μ, ξ) + W(ξ, ν) = W(μ, η_μ) + W(η_μ, ξ) + W(ξ, η_ν) + W(η_ν, ν)
                          ≥ W(μ, η_μ) + W(η_μ, η_ν) + W(η_ν, ν)
                          = W(μ, η_μ) + W(η_μ, ξ') + W(ξ', η_ν) + W(η_ν, ν)
                          ≥ W(μ, ξ') + W(ξ', ν)

    The same holds for barycentric ones while plans are maps, as between equally many points of
    equal mass. Otherwise a barycentric round can make the sum larger, and
    `GeodesicPath.distance` takes the best round.

    Nothing here says that the limit is W(μ, ν), and with one fixed fraction it is not: see
    `drawn_fractions`.

    References
    ----------
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024.
    """
    distances = []
    for t in fractions:
        first = approach(mu, reference, t, kind=kind, solver=solver)
        second = approach(nu, reference, t, kind=kind, solver=solver)
        distances.append(first.distance + second.distance)
        reference = next_reference(first.measure, second.measure, t, kind=kind, solver=solver)
    ends = [optimal_plan(end, reference, solver=solver).distance for end in (mu, nu)]
    return GeodesicPath(np.array([*distances, math.fsum(ends)]), reference)


def drawn_fractions(n_rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one fraction a round, uniformly.

    A fixed fraction stalls: the three plans of a round agree with the pairing that the first ξ
    suggested, and nothing changes any more. Rounds with a small t break such agreements,
    because η_μ and η_ν are then almost the data (which is also what they show). For MNIST in
    [−1, 1], a first ξ of scale 1 and 30 rounds, the distance was too large by 25 to 30 % (100
    rows a side) and by 30 to 33 % (300 rows) with t = 1/2, and by 0.02 to 0.22 % and 0.001 to
    0.07 % with drawn fractions. That they always get there is not proved.
    """
    if n_rounds < 1:
        raise ValueError(f"n_rounds={n_rounds!r} must be at least 1.")
    return 1.0 - rng.random(n_rounds)
