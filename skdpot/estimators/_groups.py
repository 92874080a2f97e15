"""Sensitive features: which group each record belongs to, and how many a batch takes of each.

The groups, their sizes and who belongs to which are public facts, so that messages may name a
group and its size. They never say which rows it holds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.labels import LabelWords, encode_labels

__all__ = ["SAME_CLASS", "SAME_GROUP", "Groups", "batch_sizes", "read_groups"]

# What a statement of privacy says of the neighbours that it protects among.
SAME_GROUP = (
    "the group of each record and the sizes of the groups are public: the record that replaces "
    "another has the same group"
)
SAME_CLASS = (
    "the class of each record is public: the record that replaces another has the same class"
)

_ADVICE = (
    "drop the rows whose group is missing or give them a group of their own, and cut continuous "
    "values into intervals first, for example with pandas.cut"
)
_SEVERAL_COLUMNS = (
    "To compare the groups that several columns form, join them into one column of labels."
)
_ROUNDING = 1.0 + 1e-12  # 0.29 * 100 is a little less than 29


@dataclass(frozen=True, eq=False)
class Groups:
    """The public groups that records belong to.

    Parameters
    ----------
    labels : ndarray of shape (n_groups,)
        The groups, sorted; each has at least one record.
    codes : ndarray of shape (n_samples,), intp
        Position of each record's group in `labels`.
    """

    labels: np.ndarray
    codes: np.ndarray

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of records of each group."""
        return tuple(np.bincount(self.codes, minlength=len(self.labels)).tolist())

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each group, increasing."""
        return tuple(np.flatnonzero(self.codes == code) for code in range(len(self.labels)))


def read_groups(
    sensitive_features: Any, n_samples: int, *, needed_by: str = "Fairness between groups"
) -> Groups:
    """Read the group of each record.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, 1)
        Strings, integers, booleans or categories, none missing: a list, an array, or a column
        of pandas or polars.
    n_samples : int
        Number of rows of X.
    needed_by : str, default="Fairness between groups"
        What cannot do without groups; begins some messages.

    Returns
    -------
    Groups
        At least two groups.

    Raises
    ------
    ValueError
        If `sensitive_features` is None, of another length or shape, continuous or of mixed
        kinds, has a missing value, or holds one group alone. No row's value is quoted.
    """
    words = LabelWords(
        argument="sensitive_features",
        meaning="group label",
        needed_by=needed_by,
        advice=_ADVICE,
        warns_of_column=False,
    )
    try:
        codes, labels = encode_labels(sensitive_features, n_samples, words=words)
    except ValueError as error:
        text = str(error)
    else:
        if len(labels) > 1:
            return Groups(labels, codes.astype(np.intp, copy=False))
        text = (
            f"{needed_by} needs at least two groups, but sensitive_features holds the group "
            f"{_name(labels[0])} alone, which there is nothing to compare with. Pass a column "
            "with two or more groups."
        )
    if "should be a 1d array" in text:
        text = f"{text} {_SEVERAL_COLUMNS}"
    raise ValueError(text)


def batch_sizes(
    sizes: Sequence[int],
    fraction: float,
    names: Sequence[Any],
    *,
    parameter: str = "batch_fraction",
) -> tuple[int, ...]:
    """Return how many records a batch takes of each cell.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each cell: a group, or the members of a group with one class.
    fraction : float
        Share of each cell in a batch, in (0, 1].
    names : sequence
        Public names of the cells, for the message.
    parameter : str, default="batch_fraction"
        Name of the parameter that makes batches larger, for the message.

    Returns
    -------
    tuple of int
        ``floor(fraction * size)`` for each cell.

    Raises
    ------
    ValueError
        If a batch would take no record of a cell.
    """
    taken = tuple(min(size, math.floor(fraction * size * _ROUNDING)) for size in sizes)
    for name, size, count in zip(names, sizes, taken, strict=True):
        if count < 1:
            raise ValueError(
                f"sensitive_features: {_name(name)} has {size} "
                f"{'row' if size == 1 else 'rows'}, of which a batch takes {fraction:.3g}, which "
                f"is less than one row. Choose a larger {parameter} (at least "
                f"{1.0 / max(size, 1):.3g} of the rows), or merge small groups."
            )
    return taken


def _name(label: Any) -> str:
    """Write a label like Python does, without numpy's type."""
    return repr(label.item() if isinstance(label, np.generic) else label)
