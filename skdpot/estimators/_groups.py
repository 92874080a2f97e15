"""Sensitive features: which group, and which cell of a comparison, each record belongs to.

The groups, their sizes and who belongs to which are public facts, so that messages may name a
group and its size. They never say which rows it holds.
"""

from typing import Any

import numpy as np

from skdpot._utils.labels import LabelWords, encode_labels
from skdpot.nets.parity import Cells

__all__ = ["SAME_CLASS", "SAME_GROUP", "one_cell", "read_groups", "within_classes"]

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


def one_cell(n_samples: int) -> Cells:
    """Return all records as one cell that is compared with none."""
    return Cells(np.zeros(n_samples, dtype=np.intp), (n_samples,), ())


def read_groups(
    sensitive_features: Any, n_samples: int, *, needed_by: str = "Fairness between groups"
) -> tuple[Cells, np.ndarray]:
    """Read the group of each record; return at least two groups to compare, and their labels.

    Groups are strings, integers, booleans or categories, none missing. No row's value is quoted.
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
            codes = codes.astype(np.intp, copy=False)
            sizes = tuple(np.bincount(codes, minlength=len(labels)).tolist())
            names = tuple(map(str, labels))
            return Cells(codes, sizes, (tuple(range(len(labels))),), names), labels
        text = (
            f"{needed_by} needs at least two groups, but sensitive_features holds the group "
            f"{labels.tolist()[0]!r} alone, which there is nothing to compare with. Pass a column "
            "with two or more groups."
        )
    if "should be a 1d array" in text:
        text = f"{text} {_SEVERAL_COLUMNS}"
    raise ValueError(text)


def within_classes(groups: Cells, codes: np.ndarray, labels: np.ndarray) -> Cells:
    """Divide groups by class: what is compared are the members of groups with the same class."""
    n_groups, n_classes = len(groups.sizes), len(labels)
    cells = (codes * n_groups + groups.codes).astype(np.intp)
    sizes = tuple(np.bincount(cells, minlength=n_groups * n_classes).tolist())
    for cell, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f'fairness="equalized_odds" needs records of every class in every group, but class '
                f"{labels[cell // n_groups]!s} has none in group {groups.names[cell % n_groups]}"
                '. Merge groups, or use fairness="statistical_parity".'
            )
    strata = np.arange(n_groups * n_classes).reshape(n_classes, n_groups).tolist()
    names = tuple(f"{group}, class {label}" for label in labels for group in groups.names)
    return Cells(cells, sizes, tuple(tuple(stratum) for stratum in strata), names)
