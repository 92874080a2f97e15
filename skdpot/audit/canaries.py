"""Canaries: pairs of made-up records of which one is in the data, by the fall of a coin."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["CanaryPairs", "CanaryRequest", "antipodal_pairs"]

_ROOM = 4  # corners are drawn at random where there are 2^4 of them, or more, for each record


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryPairs:
    """Records two by two, that replace each other in one slot of the data.

    Parameters
    ----------
    first, second : array-like of shape (n_pairs, n_features)
        The two records of each slot.
    first_labels, second_labels : ndarray of shape (n_pairs,), optional
        What `fit` takes as `y` for them: classes, targets or time stamps. The two may differ only
        in what the audited estimator protects.
    fit_params : mapping of str to ndarray of shape (n_pairs,), default={}
        Public facts of the slots that `fit` takes by keyword, such as ``sensitive_features``.
    """

    first: np.ndarray
    second: np.ndarray
    first_labels: np.ndarray | None = None
    second_labels: np.ndarray | None = None
    fit_params: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("first", "second", "first_labels", "second_labels"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else np.asarray(value))
        if self.first.ndim != 2 or self.first.shape != self.second.shape or not len(self.first):
            raise ValueError(
                f"first and second must be arrays of one shape (n_pairs, n_features), at least "
                f"one pair; their shapes are {self.first.shape} and {self.second.shape}."
            )
        if (self.first_labels is None) != (self.second_labels is None):
            raise ValueError("first_labels and second_labels must be given both or neither.")
        columns = {"first_labels": self.first_labels, "second_labels": self.second_labels}
        for name, column in {**columns, **self.fit_params}.items():
            if column is not None and np.shape(column)[:1] != (len(self.first),):
                raise ValueError(f"{name} must have one entry for each of {len(self.first)} pairs.")

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.first)

    def choose(self, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the records that are in the data, and their labels.

        Parameters
        ----------
        heads : ndarray of bool of shape (n_pairs,)
            Where the first of the two is in.

        Returns
        -------
        rows : ndarray of shape (n_pairs, n_features)
        labels : ndarray of shape (n_pairs,) or None
        """
        rows = np.where(heads[:, None], self.first, self.second)
        if self.first_labels is None or self.second_labels is None:
            return rows, None
        own = heads.reshape(-1, *[1] * (np.ndim(self.first_labels) - 1))
        return rows, np.where(own, self.first_labels, self.second_labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryRequest:
    """What a maker of canaries is told.

    Parameters
    ----------
    estimator : estimator
        As it is to be audited, not fitted.
    n_pairs : int
        How many pairs.
    X : ndarray of shape (n_samples, n_features)
        Public rows beside them.
    y : ndarray of shape (n_samples,) or None
        Their labels.
    fit_params : mapping of str to ndarray of shape (n_samples,)
        Further public facts of the rows.
    rng : numpy.random.Generator
        Draws the canaries.
    """

    estimator: Any
    n_pairs: int
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    rng: np.random.Generator


def antipodal_pairs(
    n_pairs: int,
    low: ArrayLike,
    high: ArrayLike,
    *,
    rng: np.random.Generator,
    corners: bool = False,
    labels: ArrayLike | None = None,
) -> CanaryPairs:
    """Make pairs of opposite records as far apart as the public bounds let them be.

    A record that is clipped, projected and counted moves a release most if it lies on the
    edge, and its counterpart opposite.

    Parameters
    ----------
    n_pairs : int
        Number of pairs.
    low, high : array-like of shape (n_features,)
        Bounds of each feature, in the units of the data.
    rng : numpy.random.Generator
        Draws the directions.
    corners : bool, default=False
        Whether records are corners of the box, or in few dimensions, where corners would coincide,
        points of its faces, in place of points of the ellipsoid in it: for bounds that clip
        coordinates one by one.
    labels : array-like, optional
        Two or more classes: the two records of a pair get different ones.

    Returns
    -------
    CanaryPairs
    """
    low, high = np.broadcast_arrays(np.atleast_1d(low).astype(float), np.atleast_1d(high))
    directions = rng.normal(size=(n_pairs, len(low)))
    if corners and len(low) > _ROOM + np.log2(n_pairs):
        directions = np.where(directions < 0, -1.0, 1.0)
    elif corners:
        directions /= np.abs(directions).max(axis=1, keepdims=True)
    else:
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle, reach = (low + high) / 2, (high - low) / 2
    pairs: dict[str, Any] = {}
    if labels is not None:
        classes = np.unique(np.asarray(labels))
        if len(classes) < 2:
            raise ValueError("labels must hold at least two classes.")
        own = rng.integers(len(classes), size=n_pairs)
        shift = rng.integers(1, len(classes), size=n_pairs)
        pairs["first_labels"] = classes[own]
        pairs["second_labels"] = classes[(own + shift) % len(classes)]
    return CanaryPairs(
        first=middle + reach * directions, second=middle - reach * directions, **pairs
    )
