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
    """Return the names of the parties.

    Parameters
    ----------
    parties : sequence of Party
        At least two.

    Returns
    -------
    tuple of str
        Names.

    Raises
    ------
    ValueError
        If two have one name, or one is called like the server.
    """
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
    """Return the reference that is given, or draw one.

    Parameters
    ----------
    reference : DiscreteMeasure, array-like of shape (n_support, n_features) or None
        A measure that was made without looking at anybody's rows; None draws a Gaussian one.
    parties : sequence of Party
        Who will use it.
    n_support : int or None
        Number of points to draw; None is the number of rows of the smallest party.
    mean, scale : float
        Of the Gaussian.
    rng : numpy.random.Generator or None
        Draws the points; None is the operating system's entropy.

    Returns
    -------
    DiscreteMeasure

    Raises
    ------
    ValueError
        If the parties, or the measure, have different numbers of features.
    MessageError
        If the reference is a message.
    """
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
    """Compare all pairs.

    Parameters
    ----------
    names : sequence of str
        Names of the parties.
    compare : callable
        Maps two positions to a squared distance and its details.

    Returns
    -------
    squared_distances : ndarray of shape (n_parties, n_parties)
        Symmetric, zero on the diagonal.
    details : dict
        By pair of names.
    """
    squared = np.zeros((len(names), len(names)))
    details: dict[tuple[str, str], T] = {}
    for i, j in combinations(range(len(names)), 2):
        squared[i, j], details[names[i], names[j]] = compare(i, j)
        squared[j, i] = squared[i, j]
    return squared, details
