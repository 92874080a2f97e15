"""TriangleWad between parties: everybody meets at a common reference. Not private."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.participants import as_reference, check_participants, symmetric
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import (
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    InterpolatingMeasure,
    ReferenceMeasure,
    as_fraction,
    as_fractions,
)
from skdpot.federated.plans import Coupling, TransportPlan, optimal_plan, plan_from_costs
from skdpot.federated.results import PairwiseResult, ProtocolResult
from skdpot.federated.triangle import FRACTIONS, FractionQuadratic, rescaled

__all__ = [
    "announce",
    "asked",
    "check_fractions",
    "from_parabola",
    "moved",
    "pairwise_triangle",
    "parabola_fractions",
    "triangle",
    "triangle_to_union",
]


def announce(
    exchange: Exchange,
    names: Sequence[str],
    gamma: DiscreteMeasure,
    t: float | None,
    interpolation: str,
) -> ReferenceMeasure:
    """Send the reference to everybody."""
    reference = ReferenceMeasure(gamma.points, gamma.masses, t, interpolation)
    return exchange.send(0, SERVER, names, reference, ReferenceMeasure)


def moved(exchange: Exchange, party: Party, sent: ReferenceMeasure) -> DiscreteMeasure:
    """Let a party send its interpolating measure to the server."""
    arrived = exchange.ask(
        1,
        party.name,
        (SERVER,),
        partial(party.interpolate, sent),
        InterpolatingMeasure,
        check=partial(_check_features, sent),
    )
    return arrived.measure


def parabola_fractions(fractions: ArrayLike) -> np.ndarray:
    """Return fractions that are enough for a parabola."""
    due = as_fractions(fractions)
    if len(due) < 3:
        raise ValueError(f"fractions must hold three or more for a secret t, got {len(due)}.")
    return due


def asked(
    exchange: Exchange,
    asker: Party,
    recipients: Sequence[str],
    sent: ReferenceMeasure,
    t: float,
    fractions: np.ndarray,
) -> FractionRequest:
    """Let a party that keeps t send its interpolating measure and its question to others."""

    def check(request: FractionRequest) -> None:
        _check_features(sent, request)
        if not np.array_equal(request.fractions, fractions):
            raise MessageError("It asks about other fractions than those that were agreed on.")

    return exchange.ask(
        1,
        asker.name,
        recipients,
        partial(asker.fraction_request, sent, t, fractions),
        FractionRequest,
        check=check,
    )


def from_parabola(
    exchange: Exchange, request: FractionRequest, squared_distances: ArrayLike, t: float
) -> ProtocolResult:
    """Read the distance at a secret fraction off those at others."""
    parabola = FractionQuadratic.fit(request.fractions, squared_distances)
    squared = rescaled(parabola.at(t), t)
    return ProtocolResult("triangle", squared, exchange.transcript, parabola)


def check_fractions(request: FractionRequest, answer: Any) -> None:
    """Raise MessageError unless an answer is about the fractions of the request."""
    if not np.array_equal(answer.fractions, request.fractions):
        raise MessageError("It answers for other fractions than those that were asked about.")


def _check_features(sent: ReferenceMeasure, answer: Any) -> None:
    due, got = sent.points.shape[1], answer.points.shape[1]
    if got != due:
        raise MessageError(f"Its points have {got} features; {due} are due.")


def triangle(
    first: Party,
    second: Party,
    *,
    t: float = 0.5,
    disclose_t: bool = True,
    fractions: ArrayLike = FRACTIONS,
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> ProtocolResult:
    """Estimate W₂ between two parties from one message of each. **Not private**.

    With a known t each party moves its rows a fraction t of the way to a shared reference and
    sends them to the server, which measures the distance and tells both. With a
    secret t the first party sends its moved rows to the second one, which answers with
    distances at a few fractions, and the first one reads its own off a parabola.

    Parameters
    ----------
    first, second : Party
        Both must allow "triangle".
    t : float, default=0.5
        How far of the way to the reference, in (0, 1).
    disclose_t : bool, default=True
        Whether t is known to all, or the first party's secret.
    fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
        Where the second party answers when t is secret; three or more.
    reference : DiscreteMeasure or array-like of shape (n_support, n_features), optional
        The reference γ, made without looking at anybody's rows. By default it is drawn.
    n_support : int, optional
        Number of points of γ; by default the number of rows of the smaller party.
    gamma_mean, gamma_scale : float, default=0.0, 1.0
        Mean and standard deviation of γ.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        Which interpolating measure parties send.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How the server computes plans; parties choose for themselves.
    rng : numpy.random.Generator, optional
        Draws γ.

    Returns
    -------
    ProtocolResult
        Estimate and transcript.

    Raises
    ------
    ProtocolRefusedError
        If a party does not take part.
    MessageError
        If a party sends something unusable; the error names it.
    ValueError
        If an argument is out of range, before anybody is asked.

    Privacy
    -------
    None. Whoever sees the message of a party and knows γ and t, as the server does, recovers every
    row of it exactly; see `InterpolatingMeasure` and `FractionRequest`.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024, sections 3.2 and 3.3.
    """
    names = check_participants((first, second))
    fraction = as_fraction("t", t)
    gamma = as_reference(
        reference,
        (first, second),
        n_support=n_support,
        mean=gamma_mean,
        scale=gamma_scale,
        rng=rng,
    )
    exchange = Exchange()
    if not disclose_t:
        due = parabola_fractions(fractions)
        sent = announce(exchange, names, gamma, None, interpolation)
        return _with_secret_fraction(exchange, first, second, sent, fraction, due)
    sent = announce(exchange, names, gamma, fraction, interpolation)
    etas = [moved(exchange, party, sent) for party in (first, second)]
    plan = optimal_plan(*etas, solver=solver)
    squared = rescaled(plan.squared_distance, fraction)
    exchange.send(2, SERVER, names, DistanceMessage(squared), DistanceMessage)
    return ProtocolResult("triangle", squared, exchange.transcript, plan)


def pairwise_triangle(
    parties: Sequence[Party],
    *,
    t: float = 0.5,
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> PairwiseResult:
    """Estimate W₂ between all parties; each sends one message. **Not private**.

    Parameters
    ----------
    parties : sequence of Party
        At least two, who allow "triangle".
    t, reference, n_support, gamma_mean, gamma_scale, interpolation, solver, rng
        As in `triangle`.

    Returns
    -------
    PairwiseResult
        Estimates and transcript; the server keeps the distances.

    Raises
    ------
    ProtocolRefusedError, MessageError, ValueError
        As in `triangle`.

    Privacy
    -------
    None, as in `triangle`.
    """
    names = check_participants(parties)
    fraction = as_fraction("t", t)
    gamma = as_reference(
        reference, parties, n_support=n_support, mean=gamma_mean, scale=gamma_scale, rng=rng
    )
    exchange = Exchange()
    sent = announce(exchange, names, gamma, fraction, interpolation)
    etas = [moved(exchange, party, sent) for party in parties]

    def compare(i: int, j: int) -> tuple[float, TransportPlan]:
        plan = optimal_plan(etas[i], etas[j], solver=solver)
        return rescaled(plan.squared_distance, fraction), plan

    squared, plans = symmetric(names, compare)
    return PairwiseResult("triangle", names, squared, exchange.transcript, plans)


def _with_secret_fraction(
    exchange: Exchange,
    first: Party,
    second: Party,
    sent: ReferenceMeasure,
    t: float,
    fractions: np.ndarray,
) -> ProtocolResult:
    """Play the protocol in which the first party keeps t for itself."""
    request = asked(exchange, first, (second.name,), sent, t, fractions)
    answer = exchange.ask(
        2,
        second.name,
        (first.name,),
        partial(second.distances_at, request, sent),
        DistancesAtFractions,
        check=partial(check_fractions, request),
    )
    return from_parabola(exchange, request, answer.squared_distances, t)


def triangle_to_union(
    buyer: Party,
    sellers: Sequence[Party],
    *,
    t: float = 0.5,
    disclose_t: bool = False,
    fractions: ArrayLike = FRACTIONS,
    shares: ArrayLike | None = None,
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> ProtocolResult:
    """Estimate W₂ between one party and the union of several. **Not private**.

    The buyer sends its moved rows to all sellers; each answers with the squared distances
    between their moved rows and its own; the buyer stacks these matrices and solves one transport
    problem for all.

    Parameters
    ----------
    buyer : Party
        Must allow "triangle".
    sellers : sequence of Party
        At least one, who allow "triangle".
    t : float, default=0.5
        How far the buyer moves, in (0, 1).
    disclose_t : bool, default=False
        Whether the buyer asks at t itself, which tells it; otherwise at `fractions`.
    fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
        Where the sellers answer when t is secret; three or more.
    shares : array-like of shape (n_sellers,), optional
        Mass of each seller in the union; by default proportional to its number of rows.
    reference, n_support, gamma_mean, gamma_scale, interpolation, rng
        As in `triangle`.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How the buyer computes plans.

    Returns
    -------
    ProtocolResult
        Estimate and transcript. The details are the `Coupling` with the union when t is
        disclosed, and a `FractionQuadratic` otherwise.

    Raises
    ------
    ProtocolRefusedError, MessageError, ValueError
        As in `triangle`.

    Privacy
    -------
    None: see `FractionRequest` for the buyer's rows and `CostMatrices` for those of the sellers.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024, section 3.4.3.
    """
    parties = (buyer, *sellers)
    names = check_participants(parties)
    fraction = as_fraction("t", t)
    due = as_fractions([fraction]) if disclose_t else parabola_fractions(fractions)
    weights = _union_shares(shares, sellers)
    gamma = as_reference(
        reference, parties, n_support=n_support, mean=gamma_mean, scale=gamma_scale, rng=rng
    )
    exchange = Exchange()
    sent = announce(exchange, names, gamma, None, interpolation)
    request = asked(exchange, buyer, names[1:], sent, fraction, due)
    matrices = [
        exchange.ask(
            2,
            seller.name,
            (buyer.name,),
            partial(seller.cost_matrices, request, sent),
            CostMatrices,
            check=partial(_check_matrices, request),
        )
        for seller in sellers
    ]
    couplings = _union_couplings(request, matrices, weights, solver)
    distances = [coupling.squared_distance for coupling in couplings]
    if disclose_t:
        squared, details = rescaled(distances[0], fraction), couplings[0]
        return ProtocolResult("triangle", squared, exchange.transcript, details)
    return from_parabola(exchange, request, distances, fraction)


def _union_shares(shares: ArrayLike | None, sellers: Sequence[Party]) -> np.ndarray:
    """Return the mass of each seller in the union."""
    if shares is None:
        shares = [seller.n_samples for seller in sellers]
    weights = np.asarray(shares, dtype=np.float64)
    fits = weights.shape == (len(sellers),) and bool((weights >= 0).all())
    total = float(weights.sum())
    if not (fits and 0 < total < np.inf):
        raise ValueError("shares must hold one non-negative number a seller, not all of them 0.")
    shared: np.ndarray = weights / total
    return shared


def _union_couplings(
    request: FractionRequest, matrices: Sequence[CostMatrices], weights: np.ndarray, solver: str
) -> list[Coupling]:
    """Solve, at each fraction, the transport between the buyer and all sellers together."""
    masses = np.concatenate(
        [share * _masses_of(matrix) for share, matrix in zip(weights, matrices, strict=True)]
    )
    return [
        plan_from_costs(
            np.concatenate([matrix.costs[k] for matrix in matrices]),
            masses,
            request.masses,
            solver=solver,
        )
        for k in range(len(request.fractions))
    ]


def _masses_of(matrix: CostMatrices) -> np.ndarray:
    n_rows = matrix.costs.shape[1]
    return np.full(n_rows, 1.0 / n_rows) if matrix.masses is None else matrix.masses


def _check_matrices(request: FractionRequest, answer: CostMatrices) -> None:
    check_fractions(request, answer)
    n_points = answer.costs.shape[2]
    if n_points != len(request.points):
        raise MessageError(f"Its costs are of {n_points} points; {len(request.points)} were sent.")
