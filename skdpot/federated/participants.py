"""What protocols check and draw before anybody is asked."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.exchange import SERVER
from skdpot.federated.measures import DiscreteMeasure, gaussian_reference
from skdpot.federated.party import Party
from skdpot.federated.plain_messages import Message

__all__ = ["as_reference", "check_participants", "symmetric"]

T = TypeVar("T")


def check_participants(parties: Sequence[Party]) -> tuple[str, ...]:
    """Return the names of the parties."""
    names = tuple(party.name for party in parties)
    if len(names) < 2:
        raise ValueError(f"A protocol is played by two parties or more, got {len(names)}.")
    if len(set(names)) < len(names) or SERVER in names:
        raise ValueError(f"Parties need different names, and none is {SERVER!r}; got {names}.")
    return names


def as_reference(
    reference: DiscreteMeasure | ArrayLike | None,
    parties: Sequence[Party],
    *,
    n_support: int | None,
    mean: ArrayLike,
    scale: float,
    rng: np.random.Generator | None,
) -> DiscreteMeasure:
    """Return the reference that is given, or draw one."""
    features = {party.name: party.n_dimensions for party in parties}
    if len(set(features.values())) > 1:
        raise ValueError(f"Parties must compare the same features; they have {features}.")
    n_features = parties[0].n_dimensions
    if reference is None:
        smallest = min(party.n_samples for party in parties)
        return gaussian_reference(
            smallest if n_support is None else n_support,
            n_features,
            mean=mean,
            scale=scale,
            rng=np.random.default_rng() if rng is None else rng,
        )
    if isinstance(reference, Message):
        raise MessageError(
            "reference must be a DiscreteMeasure or points, and no message, got "
            f"{type(reference).__name__}."
        )
    measure = reference
    if not isinstance(measure, DiscreteMeasure):
        measure = DiscreteMeasure(np.asarray(measure))
    if measure.n_features != n_features:
        raise ValueError(
            f"The reference has {measure.n_features} features and the parties have {n_features}."
        )
    return measure


def symmetric(
    names: Sequence[str], compare: Callable[[int, int], tuple[float, T]]
) -> tuple[np.ndarray, Mapping[tuple[str, str], T]]:
    """Compare all pairs."""
    squared = np.zeros((len(names), len(names)))
    details: dict[tuple[str, str], T] = {}
    for i, j in combinations(range(len(names)), 2):
        squared[i, j], details[names[i], names[j]] = compare(i, j)
        squared[j, i] = squared[i, j]
    return squared, details
