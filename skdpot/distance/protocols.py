"""TriangleWad and FedWad, the protocols of the literature, as baselines. **Not private**.

`skdpot.distance.reconstruction` recovers the rows of every party from their messages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike

from skdpot._utils.validation import check_count
from skdpot.distance.exchange import (
    SERVER,
    DistanceEstimate,
    Exchange,
    PairwiseResult,
    check_participants,
    matching,
)
from skdpot.distance.messages import (
    FRACTIONS,
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    as_fraction,
)
from skdpot.distance.party import Party
from skdpot.exceptions import MessageError
from skdpot.ot.measures import (
    DiscreteMeasure,
    gaussian_reference,
    interpolate,
    optimal_plan,
    plan_from_costs,
    weights_of,
)


def rescaled(squared_distance: float, t: float) -> float:
    """Estimate W₂² between μ and ν from W₂² between measures on the way to a common γ.

    ``W²(η_μ, η_ν) / (1 − t)²``, by the intercept theorem: in a plane the two segments to γ,
    cut at the same fraction, span a third one that is ``1 − t`` times as long.

    *Lower bound.* ``W²(μ, ν) ≤ estimate``, for both kinds of interpolating measures, any
    sizes and any masses. Let Π couple η_μ and η_ν optimally, and write their points as
    ``(1−t) x + t z`` and ``(1−t) y + t z'``, where z and z' are points of γ, or means of such.
    With ``s = 1 − t``::

        ‖s (x − y) + t (z − z')‖² ≥ s² ‖x − y‖² + 2 s t ⟨x − y, z − z'⟩

    Under Π the first term is at least ``s² W²(μ, ν)`` and the second is not negative:
    ``E⟨x, z⟩`` is the largest that a coupling of μ and γ allows, because the plan is optimal,
    so it is at least ``E⟨x, z'⟩``; likewise ``E⟨y, z'⟩ ≥ E⟨y, z⟩``.

    *Upper bound.* Glue the plans at γ. Rows x and y that share a point z of γ have images
    ``s ‖x − y‖`` apart if these are exact, hence ``estimate ≤ linearised``, the cost of
    the glued plans. Barycentric images add the distances from z to the two means:
    ``√estimate ≤ √linearised + t / (1 − t) · (r_μ + r_ν)``, where r_μ is the root mean square
    distance between the points of γ and the mean that stands for them: 0 when the plan is a map, as
    from n to k points of equal masses when k divides n. Otherwise a distant γ or a large t ruins
    barycentric estimates: for 300 and 100 rows of MNIST in [−1, 1], 60 points of scale 1 and
    t = 0.9 the estimate is eight times the distance. Use exact interpolating measures there.

    *Equality* holds when all of γ is in one place (``k = 1`` or scale 0): the interpolating
    measures are then ``s μ`` and ``s ν``, moved by the same vector. Equal sizes alone do not give
    equality, contrary to Corollary 3.2 (4) of the paper: on 300 rows of MNIST in [−1, 1] and a γ of
    300 points of scale 1 the estimate is 33 % above the distance at t = 0.5.

    *Several sources.* The union of the interpolating measures of several sources is no
    interpolating measure of the union of their data, because each source was coupled with all of γ.
    Neither bound holds for it (Li, Pang, "Private Wasserstein distance", 2024, section 3.2).
    """
    if not 0 <= t < 1:
        raise ValueError(f"t={t!r} must be a fraction in [0, 1).")
    return squared_distance / (1 - t) ** 2


def triangle(
    first: Party, second: Party, *, t: float = 0.5, disclose_t: bool = True, **options: Any
) -> DistanceEstimate:
    """Estimate W₂ between two parties from one message of each. **Not private**.

    With a known t each party moves its rows a fraction t of the way to a shared reference and
    sends them to the server, which measures the distance and tells both. With a secret t the second
    party answers the first one's moved rows with distances at a few fractions, and the first fits a
    parabola (Li, Pang, 2024, sections 3.2 and 3.3). Options: `reference`, `interpolation`, `rng`.
    """
    if disclose_t:
        return _told(pairwise_triangle((first, second), t=t, **options), 2)
    fraction = as_fraction("t", t)
    exchange, sent = _announced((first, second), None, **options)
    request = _asked(exchange, first, (second,), sent, fraction, FRACTIONS)
    due, fits = {"distances_at": DistancesAtFractions}, matching(fractions=request.fractions)
    (found,) = exchange.ask(2, (second,), request, due, fits, to=(first.name,), also=(sent,))
    return _from_parabola(exchange, request, found[second.name].squared_distances, fraction)


def pairwise_triangle(
    parties: Sequence[Party], *, t: float = 0.5, **options: Any
) -> PairwiseResult:
    """Estimate W₂ between all parties; each sends one message. **Not private**."""
    fraction = as_fraction("t", t)
    exchange, sent = _announced(parties, fraction, **options)
    due = {"interpolate": InterpolatingMeasure}
    (etas,) = exchange.ask(1, parties, sent, due, matching(n_features=sent.n_features))
    estimates = {}
    for pair in combinations(etas, 2):
        plan = optimal_plan(*(etas[name].measure for name in pair))
        squared = rescaled(plan.squared_distance, fraction)
        estimates[pair] = DistanceEstimate("triangle", squared, exchange.transcript, plan)
    return PairwiseResult("triangle", tuple(etas), estimates, exchange.transcript)


def triangle_to_union(
    buyer: Party,
    sellers: Sequence[Party],
    *,
    t: float = 0.5,
    disclose_t: bool = False,
    shares: ArrayLike | None = None,
    **options: Any,
) -> DistanceEstimate:
    """Estimate W₂ between one party and the union of several. **Not private**.

    Each seller answers the buyer's moved rows with their squared distances from its own, and the
    buyer stacks these matrices and solves one transport problem (Li, Pang, 2024, section 3.4.3).
    """
    fraction = as_fraction("t", t)
    exchange, sent = _announced((buyer, *sellers), None, **options)
    given = [seller.n_samples for seller in sellers] if shares is None else shares
    weights = weights_of(given, len(sellers), "shares")
    request = _asked(
        exchange, buyer, sellers, sent, fraction, [fraction] if disclose_t else FRACTIONS
    )
    fits = matching(fractions=request.fractions, n_targets=request.n_points)
    due = {"cost_matrices": CostMatrices}
    (found,) = exchange.ask(2, sellers, request, due, fits, to=(buyer.name,), also=(sent,))
    matrices = list(found.values())
    masses = np.concatenate(
        [w * weights_of(m.masses, m.n_points) for w, m in zip(weights, matrices, strict=True)]
    )
    stacked = np.concatenate([matrix.costs for matrix in matrices], axis=1)
    couplings = [plan_from_costs(costs, masses, request.masses) for costs in stacked]
    distances = [coupling.squared_distance for coupling in couplings]
    if not disclose_t:
        return _from_parabola(exchange, request, distances, fraction)
    squared = rescaled(distances[0], fraction)
    return DistanceEstimate("triangle", squared, exchange.transcript, couplings[0])


@dataclass(frozen=True, eq=False)
class GeodesicPath:
    """The sums of both distances from ξ, by round, and the last ξ."""

    distances: np.ndarray
    reference: DiscreteMeasure

    @property
    def distance(self) -> float:
        """The smallest of `distances`: each of them is an upper bound of W₂(μ, ν)."""
        return float(self.distances.min())


def fedwad(first: Party, second: Party, **options: Any) -> DistanceEstimate:
    """Bound W₂ between two parties from above, round by round. **Not private**.

    In each round both parties send their rows, moved a fraction of the way to the server's ξ, and
    their distance from it, and the server makes the next ξ between the two (Rakotomamonjy, Nadjahi,
    Ralaivola, ICLR 2024).

    ``W(μ, ξ) + W(ξ, ν) ≥ W(μ, ν)`` by the triangle inequality, whatever ξ. With exact
    interpolating measures the sum never grows, whatever the fractions: a new ξ' on a geodesic
    between η_μ and η_ν gives::

        W(μ, ξ) + W(ξ, ν) = W(μ, η_μ) + W(η_μ, ξ) + W(ξ, η_ν) + W(η_ν, ν)
                          ≥ W(μ, η_μ) + W(η_μ, η_ν) + W(η_ν, ν)
                          = W(μ, η_μ) + W(η_μ, ξ') + W(ξ', η_ν) + W(η_ν, ν)
                          ≥ W(μ, ξ') + W(ξ', ν)

    The same holds for barycentric ones while plans are maps, as between equally many points of
    equal mass. Otherwise a barycentric round can make the sum larger, and the best round counts.

    The limit need not be W(μ, ν). With one fixed fraction the three plans of a round agree with the
    pairing that the first ξ suggested, and nothing changes any more. Rounds with a small t break
    such agreements, because η_μ and η_ν are then almost the data. For MNIST in [−1, 1], a first ξ
    of scale 1 and 30 rounds, the distance was too large by 25 to 30 % (100 rows per side) and by 30
    to 33 % (300 rows) with t = 1/2, and by 0.02 to 0.22 % and 0.001 to 0.07 % with drawn fractions.
    That these always converge is not proved.
    """
    result = pairwise_fedwad((first, second), **options)
    rounds = result.transcript.entries[-1].round
    return _told(result, rounds)


def pairwise_fedwad(
    parties: Sequence[Party],
    *,
    n_rounds: int = 30,
    t: float | str = "drawn",
    reference: DiscreteMeasure | ArrayLike | None = None,
    interpolation: str = "barycentric",
    rng: np.random.Generator | None = None,
) -> PairwiseResult:
    """Bound W₂ between all parties, pair by pair. **Not private**."""
    rng = np.random.default_rng() if rng is None else rng
    names, xi = check_participants(parties), _reference(reference, parties, rng)
    fractions = fractions_of_rounds(t, n_rounds, rng)
    exchange, estimates = Exchange(), {}
    for first, second in combinations(parties, 2):
        path = _rounds(exchange, (first, second), xi, fractions, interpolation)
        estimates[first.name, second.name] = DistanceEstimate(
            "fedwad", path.distance**2, exchange.transcript, path
        )
    return PairwiseResult("fedwad", names, estimates, exchange.transcript)


def fractions_of_rounds(t: float | str, n_rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Return one fraction per round, uniformly drawn in (0, 1) or fixed."""
    n_rounds = check_count(n_rounds, "n_rounds")
    if t == "drawn":
        return np.minimum(1.0 - rng.random(n_rounds), np.nextafter(1.0, 0.0))
    if isinstance(t, str):
        raise ValueError(f't={t!r} must be "drawn" or a number strictly between 0 and 1.')
    return np.full(n_rounds, as_fraction("t", t))


def _rounds(
    exchange: Exchange,
    pair: Sequence[Party],
    xi: DiscreteMeasure,
    fractions: np.ndarray,
    interpolation: str,
) -> GeodesicPath:
    names, distances = [party.name for party in pair], []
    for number, t in enumerate([*map(float, fractions), None]):
        message = GeodesicMeasure(xi.points, xi.masses, t, interpolation)
        sent = exchange.send(number, SERVER, message, GeodesicMeasure, to=names)
        due: dict[str, type[Message]] = {"squared_distance_to": DistanceMessage}
        if t is not None:
            due["interpolate"] = InterpolatingMeasure
        fits = matching(n_features=xi.n_features)
        lengths, *moved = exchange.ask(number, pair, sent, due, fits)
        roots = (math.sqrt(length.squared_distance) for length in lengths.values())
        distances.append(math.fsum(roots))
        if t is not None:
            plan = optimal_plan(*(eta.measure for eta in moved[0].values()))
            xi = interpolate(plan, t, kind=interpolation)
    return GeodesicPath(np.array(distances), xi)


def barycenter(
    parties: Sequence[Party],
    message: type[ReferenceMeasure | GeodesicMeasure],
    *,
    weights: ArrayLike | None = None,
    t: float,
    n_rounds: int,
    reference: DiscreteMeasure,
) -> DiscreteMeasure:
    """Move a reference to the Wasserstein barycentre of parties. **Not private**.

    In each round the parties send their rows, moved a fraction t of the way to ξ along the exact
    plan. The plan between ξ and such a message is the plan between ξ and the rows, so the mean of
    the rows that belong to a point of ξ is ``(mean of the message's points - t ξ) / (1 - t)``. The
    next ξ is the mean of these over parties: the fixed-point iteration of Álvarez-Esteban et al.
    (J. Math. Anal. Appl. 2016), as in POT's ``free_support_barycenter``.
    """
    names, exchange, xi = check_participants(parties), Exchange(), reference
    shares = weights_of(weights, len(parties), "weights")
    for number in range(n_rounds):
        given = message(xi.points, xi.masses, t, "exact")
        sent = exchange.send(number, SERVER, given, message, to=names)
        due, fits = {"interpolate": InterpolatingMeasure}, matching(n_features=sent.n_features)
        (moved,) = exchange.ask(number, parties, sent, due, fits)
        means = [optimal_plan(xi, eta.measure).barycenters() for eta in moved.values()]
        points = (np.tensordot(shares, means, axes=1) - t * xi.points) / (1 - t)
        xi = DiscreteMeasure(points, xi.masses)
    return xi


def _reference(
    reference: DiscreteMeasure | ArrayLike | None,
    parties: Sequence[Party],
    rng: np.random.Generator | None,
) -> DiscreteMeasure:
    features = {party.name: party.n_dimensions for party in parties}
    n_features = parties[0].n_dimensions
    if len(set(features.values())) > 1:
        raise ValueError(f"Parties must compare the same features; they have {features}.")
    if reference is None:
        smallest = min(party.n_samples for party in parties)
        rng = np.random.default_rng() if rng is None else rng
        return gaussian_reference(smallest, n_features, rng=rng)
    if isinstance(reference, Message):
        raise MessageError("reference must be a DiscreteMeasure or points, not a message.")
    measure = reference
    if not isinstance(measure, DiscreteMeasure):
        measure = DiscreteMeasure(np.asarray(measure))
    if measure.n_features != n_features:
        raise ValueError(
            f"The reference has {measure.n_features} features and the parties have {n_features}."
        )
    return measure


def _announced(
    parties: Sequence[Party],
    t: float | None,
    *,
    reference: DiscreteMeasure | ArrayLike | None = None,
    interpolation: str = "barycentric",
    rng: np.random.Generator | None = None,
) -> tuple[Exchange, ReferenceMeasure]:
    """Begin TriangleWad: send the reference to everybody."""
    names, exchange = check_participants(parties), Exchange()
    gamma = _reference(reference, parties, rng)
    message = ReferenceMeasure(gamma.points, gamma.masses, t, interpolation)
    return exchange, exchange.send(0, SERVER, message, ReferenceMeasure, to=names)


def _asked(
    exchange: Exchange,
    asker: Party,
    others: Sequence[Party],
    sent: ReferenceMeasure,
    t: float,
    fractions: Sequence[float],
) -> FractionRequest:
    """Let a party that keeps t send its interpolating measure and its question to others."""
    fits = matching(n_features=sent.n_features, fractions=fractions)
    due, names = {"fraction_request": FractionRequest}, [party.name for party in others]
    (found,) = exchange.ask(1, (asker,), sent, due, fits, to=names, also=(t, fractions))
    return found[asker.name]


def _from_parabola(
    exchange: Exchange, request: FractionRequest, squared_distances: ArrayLike, t: float
) -> DistanceEstimate:
    """Read the distance at a secret fraction t₀ off those at others.

    ``W²(η_μ(t₀), η_ν(s))`` is taken for a quadratic function of s, as in section 3.3 of Li and
    Pang; contrary to their theorem 3.5 it is not one. With exact interpolating measures every
    pairing of the points costs a quadratic in s with the leading coefficient W²(ν, γ); the function
    is the smallest of them, a parabola minus something convex and piecewise linear. So the fit is
    exact where one pairing is optimal at all fractions, and otherwise its error has either sign.

    With the fractions 1/4, 1/2 and 3/4 the distance was within 0.5 % of that for a known t₀ from
    0.3 to 0.7 (MNIST and Gaussian clouds of 100 to 150 rows, scales of γ from 0.1 to 5), and within
    3 % at 0.1 and 0.2. At 0.9 the error was up to 21 % when γ is narrow.
    """
    parabola = Polynomial.fit(request.fractions, np.asarray(squared_distances), 2)
    squared = rescaled(max(float(parabola(t)), 0.0), t)
    return DistanceEstimate("triangle", squared, exchange.transcript, parabola)


def _told(result: PairwiseResult, number: int) -> DistanceEstimate:
    (estimate,) = result.estimates.values()
    message = DistanceMessage(estimate.squared_distance)
    Exchange(result.transcript).send(number, SERVER, message, DistanceMessage, to=result.names)
    return estimate
