"""What the protocols of `PrivateWassersteinDistance` share."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator

from skdpot.federated.messages import Message
from skdpot.federated.party import Party
from skdpot.federated.transcript import Transcript
from skdpot.slicing.readings import SketchReadings

__all__ = ["OTHER", "THIS", "Frames", "as_parties", "is_union", "record", "square"]

THIS, OTHER = "this party", "other party"

Frames = tuple[pd.DataFrame, pd.DataFrame]


def record(transcript: Transcript, sender: str, message: Message) -> None:
    transcript.record(0, sender, "server", message)


def is_union(other: Any) -> bool:
    """Whether several parties were given rather than rows."""
    parts = (Party, Message, SketchReadings, BaseEstimator)
    return (
        isinstance(other, Sequence)
        and len(other) > 0
        and all(isinstance(part, parts) for part in other)
    )


def as_parties(parties: Any, protocol: str, **privacy: Any) -> list[Party]:
    """Return the parties of a matrix; rows get a party of their own."""
    if len(parties) < 2:
        raise ValueError(f"parties must hold two parties or more, got {len(parties)}.")
    if isinstance(parties, Mapping):
        return [Party(name, rows, allows=(protocol,), **privacy) for name, rows in parties.items()]
    if not all(isinstance(party, Party) for party in parties):
        raise TypeError("parties must be a sequence of Party, or a mapping of names to rows.")
    return list(parties)


def square(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Return a symmetric table, zero on the diagonal."""
    table = pd.DataFrame(0.0, index=list(names), columns=list(names))
    for (one, other), value in values.items():
        table.loc[one, other] = table.loc[other, one] = value
    return table
