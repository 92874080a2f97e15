"""One party's rows from another's and a measure between the two: FedWad against a party."""

import numpy as np

from skdpot.audit.reconstruction.plan import rows_from_interpolation
from skdpot.audit.reconstruction.result import Reconstruction
from skdpot.audit.reconstruction.seen_measure import SeenMeasure, as_measure
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plans import optimal_plan

__all__ = ["fraction_on_geodesic", "rows_along_geodesic", "rows_from_one_round"]


def rows_along_geodesic(
    own: SeenMeasure,
    between: SeenMeasure,
    fraction: float,
    *,
    method: str = "plan",
    max_plans: int = 1000,
) -> Reconstruction:
    """Recover the other party's rows from one's own and a measure on the way to them.

    FedWad moves ξ onto a geodesic between μ and ν and shows it to both. Seen from ν, ξ is an
    interpolating measure with μ as reference: it lies ``1 − fraction`` of the way from ν
    to μ. So `rows_from_interpolation` with one's own rows in place of γ gives ν,
    ``y = (ξ − (1 − fraction) x) / fraction``.

    It needs no convergence either: see `rows_from_one_round`.

    Parameters
    ----------
    own : DiscreteMeasure or message
        The attacker's rows, or its own interpolating measure of the round.
    between : DiscreteMeasure or message
        ξ.
    fraction : float
        How far of the way from `own` to the other measure ξ lies, in (0, 1];
        `fraction_on_geodesic` computes it from distances.
    method : {"plan", "search"}, default="plan"
        As in `rows_from_interpolation`. "plan" needs no more than that the plan between ξ and
        one's own rows pairs them as FedWad did, which is so at its limits, also at those that are
        on no geodesic, where it stalls with a fixed fraction. "search" serves measures whose
        points are means over several rows.
    max_plans : int, default=1000
        End of the search.

    Returns
    -------
    Reconstruction
        The other party's rows, in the order of ξ. They are as exact as ξ is on the geodesic.

    Raises
    ------
    ValueError
        If the measures or the fraction do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import rows_along_geodesic
    >>> from skdpot.federated.interpolation import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure
    >>> from skdpot.federated.plans import optimal_plan
    >>> X, Y = np.random.default_rng(0).normal(size=(2, 30, 3))
    >>> xi = interpolate(optimal_plan(DiscreteMeasure(X), DiscreteMeasure(Y)), 0.3)
    >>> rows_along_geodesic(DiscreteMeasure(X), xi, 0.3).n_exact(Y)
    30
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction={fraction!r} must be in (0, 1].")
    return rows_from_interpolation(between, own, 1 - fraction, method=method, max_plans=max_plans)


def fraction_on_geodesic(own: SeenMeasure, between: SeenMeasure, squared_distance: float) -> float:
    """Tell how far along a geodesic a measure lies, from the length of the geodesic.

    Parameters
    ----------
    own : DiscreteMeasure or message
        The measure at the beginning.
    between : DiscreteMeasure or message
        The measure in question.
    squared_distance : float
        W₂² between both ends, which FedWad tells all parties in the end.

    Returns
    -------
    float
        ``W(own, between) / W``, at most 1.

    Raises
    ------
    ValueError
        If the distance is not positive.
    """
    if not squared_distance > 0:
        raise ValueError("squared_distance must be positive; measures at distance 0 are equal.")
    reached = optimal_plan(as_measure(own), as_measure(between)).squared_distance
    return float(min(1.0, np.sqrt(reached / squared_distance)))


def rows_from_one_round(
    reference: SeenMeasure,
    own_message: SeenMeasure,
    next_reference: SeenMeasure,
    t: float,
    *,
    is_first: bool = True,
    max_plans: int = 1000,
) -> Reconstruction:
    """Recover the other party's rows from one round of FedWad, as one of the two parties.

    A party gets ξ, sends its η and gets the next ξ', which lies between its own η and the
    other's η'. It is an interpolating measure of η' with η as reference, so
    `rows_from_interpolation` gives η', and once more, with ξ as reference, the rows.

    ξ' has a point for each point of the first party's η, t of the way to the second's. So the
    second party recovers the first one's rows exactly for all sizes. The first one recovers
    the second's rows exactly if sizes and masses are equal, otherwise means of neighbours.

    Parameters
    ----------
    reference : DiscreteMeasure or message
        ξ at the beginning of the round.
    own_message : DiscreteMeasure or message
        η that the attacker sent.
    next_reference : DiscreteMeasure or message
        ξ' at the end of the round.
    t : float
        Fraction of the round, in (0, 1), for the parties and the server alike.
    is_first : bool, default=True
        Whether the attacker is the first of the two parties.
    max_plans : int, default=1000
        End of each search where the sizes differ.

    Returns
    -------
    Reconstruction
        The other party's rows. `error_bound` is that of the second step alone.

    Raises
    ------
    ValueError
        If the measures or t do not fit.
    """
    if not 0 < t < 1:
        raise ValueError(f"t={t!r} must be in (0, 1).")
    place = t if is_first else 1 - t
    other = rows_along_geodesic(
        own_message, next_reference, place, method="search", max_plans=max_plans
    )
    return rows_from_interpolation(
        DiscreteMeasure(other.rows, other.masses), reference, t, max_plans=max_plans
    )
