"""TriangleWad between parties: everybody meets at a common reference. Not private."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.participants import as_reference, check_participants, symmetric
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import (
    DistanceMessage,
    DistancesAtFractions,
    ReferenceMeasure,
    as_fraction,
)
from skdpot.federated.plans import TransportPlan, optimal_plan
from skdpot.federated.results import PairwiseResult, ProtocolResult
from skdpot.federated.triangle import FRACTIONS, rescaled
from skdpot.federated.triangle_steps import (
    announce,
    asked,
    check_fractions,
    from_parabola,
    moved,
    parabola_fractions,
)

__all__ = ["pairwise_triangle", "triangle"]


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
