"""What the protocols with a common reference have in common."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import (
    FractionRequest,
    InterpolatingMeasure,
    ReferenceMeasure,
    as_fractions,
)
from skdpot.federated.results import ProtocolResult
from skdpot.federated.triangle import FractionQuadratic, rescaled

__all__ = [
    "announce",
    "asked",
    "check_fractions",
    "from_parabola",
    "moved",
    "parabola_fractions",
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
