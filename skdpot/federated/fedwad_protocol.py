"""FedWad between parties: they close in on a measure between them. Not private."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.geodesic import GeodesicPath, drawn_fractions, next_reference
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.participants import as_reference, check_participants, symmetric
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import (
    DistanceMessage,
    GeodesicMeasure,
    InterpolatingMeasure,
    as_fraction,
)
from skdpot.federated.results import PairwiseResult, ProtocolResult

__all__ = ["fedwad", "pairwise_fedwad"]


def fedwad(
    first: Party,
    second: Party,
    *,
    n_rounds: int = 30,
    t: float | str = "drawn",
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> ProtocolResult:
    """Bound W₂ between two parties from above, closer with every round. **Not private**.

    In each round the server sends ξ to both parties, both send their rows moved a fraction of
    the way to ξ and their distance from it, and the server makes the next ξ between the two.

    Parameters
    ----------
    first, second : Party
        Both must allow "fedwad".
    n_rounds : int, default=30
        Number of rounds.
    t : float or "drawn", default="drawn"
        Fraction of the way, in (0, 1). A new one is drawn each round by default; with a fixed one
        the bound stops falling far above the distance.
    reference : DiscreteMeasure or array-like of shape (n_support, n_features), optional
        The first ξ; by default it is drawn.
    n_support : int, optional
        Number of points of the first ξ; by default the number of rows of the smaller party.
    gamma_mean, gamma_scale : float, default=0.0, 1.0
        Mean and standard deviation of the first ξ.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        Which interpolating measure parties send.
    solver : {"auto", "exact", "entropic"}, default="auto"
        How the server computes plans; parties choose for themselves.
    rng : numpy.random.Generator, optional
        Draws ξ and the fractions.

    Returns
    -------
    ProtocolResult
        The lowest bound, and the transcript.

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
    None. The server recovers the rows of both parties from the first round
    (`InterpolatingMeasure`), and each party those of the other (`GeodesicMeasure`).

    References
    ----------
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024.
    """
    rng = np.random.default_rng() if rng is None else rng
    check_participants((first, second))
    xi = as_reference(
        reference,
        (first, second),
        n_support=n_support,
        mean=gamma_mean,
        scale=gamma_scale,
        rng=rng,
    )
    fractions = _fractions(t, n_rounds, rng)
    exchange = Exchange()
    path = _rounds(exchange, (first, second), xi, fractions, interpolation, solver)
    squared = path.distance**2
    names = (first.name, second.name)
    exchange.send(len(fractions), SERVER, names, DistanceMessage(squared), DistanceMessage)
    return ProtocolResult("fedwad", squared, exchange.transcript, path)


def pairwise_fedwad(
    parties: Sequence[Party],
    *,
    n_rounds: int = 30,
    t: float | str = "drawn",
    reference: DiscreteMeasure | ArrayLike | None = None,
    n_support: int | None = None,
    gamma_mean: ArrayLike = 0.0,
    gamma_scale: float = 1.0,
    interpolation: str = "barycentric",
    solver: str = "auto",
    rng: np.random.Generator | None = None,
) -> PairwiseResult:
    """Bound W₂ between all parties, pair by pair. **Not private**.

    Parameters
    ----------
    parties : sequence of Party
        At least two, who allow "fedwad".
    n_rounds, t, reference, n_support, gamma_mean, gamma_scale, interpolation, solver, rng
        As in `fedwad`; all pairs begin with one ξ and take the same fractions.

    Returns
    -------
    PairwiseResult
        The lowest bounds, and the transcript; the server keeps the distances.

    Raises
    ------
    ProtocolRefusedError, MessageError, ValueError
        As in `fedwad`.

    Privacy
    -------
    None, as in `fedwad`.
    """
    rng = np.random.default_rng() if rng is None else rng
    names = check_participants(parties)
    xi = as_reference(
        reference, parties, n_support=n_support, mean=gamma_mean, scale=gamma_scale, rng=rng
    )
    fractions = _fractions(t, n_rounds, rng)
    exchange = Exchange()

    def compare(i: int, j: int) -> tuple[float, GeodesicPath]:
        pair = (parties[i], parties[j])
        path = _rounds(exchange, pair, xi, fractions, interpolation, solver)
        return path.distance**2, path

    squared, paths = symmetric(names, compare)
    return PairwiseResult("fedwad", names, squared, exchange.transcript, paths)


def _fractions(t: float | str, n_rounds: int, rng: np.random.Generator) -> np.ndarray:
    drawn = drawn_fractions(n_rounds, rng)  # also checks the number of rounds
    if t == "drawn":
        below_one: np.ndarray = np.minimum(drawn, np.nextafter(1.0, 0.0))
        return below_one
    if isinstance(t, str):
        raise ValueError(f't={t!r} must be "drawn" or a number strictly between 0 and 1.')
    return np.full(n_rounds, as_fraction("t", t))


def _rounds(
    exchange: Exchange,
    pair: Sequence[Party],
    xi: DiscreteMeasure,
    fractions: np.ndarray,
    interpolation: str,
    solver: str,
) -> GeodesicPath:
    """Play all rounds between two parties."""
    distances = []
    for number, fraction in enumerate(fractions):
        t = float(fraction)
        sent = _announce(exchange, number, pair, xi, t, interpolation)
        distances.append(_length(exchange, number, pair, sent))
        eta_mu, eta_nu = (_moved(exchange, number, party, sent) for party in pair)
        xi = next_reference(eta_mu, eta_nu, t, kind=interpolation, solver=solver)
    sent = _announce(exchange, len(fractions), pair, xi, None, interpolation)
    distances.append(_length(exchange, len(fractions), pair, sent))
    return GeodesicPath(np.array(distances), xi)


def _announce(
    exchange: Exchange,
    number: int,
    pair: Sequence[Party],
    xi: DiscreteMeasure,
    t: float | None,
    interpolation: str,
) -> GeodesicMeasure:
    names = [party.name for party in pair]
    message = GeodesicMeasure(xi.points, xi.masses, t, interpolation)
    return exchange.send(number, SERVER, names, message, GeodesicMeasure)


def _length(exchange: Exchange, number: int, pair: Sequence[Party], sent: GeodesicMeasure) -> float:
    """Return the length of the way from one party through ξ to the other."""
    answers = [
        exchange.ask(
            number,
            party.name,
            (SERVER,),
            partial(party.squared_distance_to, sent),
            DistanceMessage,
        )
        for party in pair
    ]
    return math.fsum(math.sqrt(answer.squared_distance) for answer in answers)


def _moved(exchange: Exchange, number: int, party: Party, sent: GeodesicMeasure) -> DiscreteMeasure:
    """Let a party send its interpolating measure to the server."""

    def check(answer: InterpolatingMeasure) -> None:
        due, got = sent.points.shape[1], answer.points.shape[1]
        if got != due:
            raise MessageError(f"Its points have {got} features; {due} are due.")

    arrived = exchange.ask(
        number,
        party.name,
        (SERVER,),
        partial(party.interpolate, sent),
        InterpolatingMeasure,
        check=check,
    )
    return arrived.measure
