"""What the protocols of `PrivateWassersteinDistance` share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator

from skdpot.federated.messages import InterpolatingMeasure, Message, SketchMessage
from skdpot.federated.party import Party
from skdpot.privacy.budget import PrivacyBudget
from skdpot.slicing.readings import SketchReadings

__all__ = [
    "OTHER",
    "THIS",
    "Frames",
    "as_parties",
    "check_other",
    "check_rows",
    "is_union",
    "square",
]

THIS, OTHER = "this party", "other party"

Frames = tuple[pd.DataFrame, pd.DataFrame]


def is_union(other: Any) -> bool:
    """Whether several parties were given rather than rows."""
    parts = (Party, Message, SketchReadings, BaseEstimator)
    return (
        isinstance(other, Sequence)
        and len(other) > 0
        and all(isinstance(part, parts) for part in other)
    )


def as_parties(
    parties: Any, protocol: str, new_budget: Callable[[], PrivacyBudget | None], **terms: Any
) -> list[Party]:
    """Return the parties of a matrix; rows get a party of their own, with a budget."""
    if not isinstance(parties, Mapping | Sequence) or isinstance(parties, str | bytes):
        raise TypeError("parties must be a sequence of Party, or a mapping of names to rows.")
    if len(parties) < 2:
        raise ValueError(f"parties must hold two parties or more, got {len(parties)}.")
    if isinstance(parties, Mapping):
        return [
            Party(name, rows, allows=(protocol,), budget=new_budget(), **terms)
            for name, rows in parties.items()
        ]
    if not all(isinstance(party, Party) for party in parties):
        raise TypeError("parties must be a sequence of Party, or a mapping of names to rows.")
    return list(parties)


def square(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Return a symmetric table, zero on the diagonal."""
    table = pd.DataFrame(0.0, index=list(names), columns=list(names))
    for (one, other), value in values.items():
        table.loc[one, other] = table.loc[other, one] = value
    return table


def check_rows(X: Any) -> None:
    """Refuse what is no table of rows where rows are due."""
    if isinstance(X, (Party, Message, BaseEstimator, bytes)) or X is None:
        raise TypeError(
            f"X must be a table of rows, got {type(X).__name__}. Parties, messages and fitted "
            "estimators can be given to compare and distance."
        )


def check_other(other: Any, estimator: BaseEstimator) -> None:
    """Refuse what cannot be the other side under this protocol."""
    protocol, due = estimator._fitted_protocol, "rows, a Party, a fitted estimator or a message"
    for part in other if is_union(other) else (other,):
        if isinstance(part, bytes) or part is None:
            raise TypeError(
                f"The other side must be {due}, got {type(part).__name__}. Read bytes with "
                "skdpot.federated.messages.Message.from_bytes."
            )
        theirs = getattr(part, "_fitted_protocol", protocol)
        if theirs != protocol:
            raise ValueError(
                f"This estimator was fitted with protocol={protocol!r} and the other one with "
                f"{theirs!r}; both must play the same."
            )
        if isinstance(part, Message) and not isinstance(part, _MESSAGES[protocol]):
            raise TypeError(
                f"A {type(part).__name__} cannot be compared under protocol={protocol!r}."
            )


_MESSAGES: dict[str, tuple[type[Message], ...]] = {
    "sliced": (SketchMessage,),
    "triangle": (InterpolatingMeasure,),
    "fedwad": (),
}
