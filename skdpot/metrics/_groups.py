"""Input of the fairness metrics: columns of labels, all of them public."""

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["as_labels", "check_same_length", "find_positive", "group_codes"]


def as_labels(values: Any, name: str) -> np.ndarray:
    """Return one column of labels: booleans, integers or strings, none of them missing.

    Lists, numpy arrays and the columns of pandas and polars are welcome, and so is a table of
    one column.
    """
    # A list of strings and numbers would silently become one of strings.
    try:
        labels = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    except Exception as error:  # a column of another library may raise anything
        raise ValueError(f"{name} cannot be converted to a column of labels.") from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"{name} has shape {labels.shape}; it must be one column of labels. To look at the "
            "groups that several columns form, join the columns into one first."
        )
    if not len(labels):
        raise ValueError(f"{name} is empty; pass one label a row.")
    if pd.isna(labels).any():
        raise ValueError(
            f"{name} has missing values; drop these rows, or give them a label of their own."
        )
    return _one_kind(labels, name)


def check_same_length(**columns: np.ndarray) -> None:
    """Refuse columns that do not describe the same rows."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise ValueError(f"The columns must have one value a row each; found lengths {lengths}.")


def group_codes(sensitive_features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups that occur, sorted, and the position of each row's group in them."""
    groups, codes = np.unique(sensitive_features, return_inverse=True)
    if len(groups) < 2:
        raise ValueError(
            "sensitive_features holds one group alone, which there is nothing to compare with."
        )
    return groups, codes


def find_positive(pos_label: Any, **columns: np.ndarray) -> Any:
    """Return the label that means "selected", by the rules of scikit-learn's metrics."""
    name = " and ".join(columns)
    kinds = {column.dtype.kind in "US" for column in columns.values()}
    if len(kinds) > 1:
        raise ValueError(f"{name} hold labels of different kinds, strings and numbers.")
    known = np.unique(np.concatenate(list(columns.values()))).tolist()
    if pos_label is None:
        if set(known) <= {0, 1} or set(known) <= {-1, 1}:
            return 1
        raise ValueError(
            f"Without pos_label, {name} must hold 0 and 1, or -1 and 1. Name the label that "
            "stands for the favourable decision, such as pos_label='yes'."
        )
    # One label alone may be a model that decides alike for all; two others are a slip.
    missing = pos_label not in known and len(known) > 1
    if missing or isinstance(pos_label, str) not in kinds:
        raise ValueError(f"pos_label={pos_label!r} is not among the labels of {name}.")
    return pos_label


def _one_kind(labels: np.ndarray, name: str) -> np.ndarray:
    """Return labels with a dtype that sorts and compares, or say why there is none."""
    if labels.dtype == object:
        strings = [isinstance(label, str) for label in labels]
        numbers = [isinstance(label, bool | int | float | np.number | np.bool_) for label in labels]
        if all(strings) or all(numbers):
            labels = np.array(labels.tolist())
    kind = labels.dtype.kind
    # An infinity and what no integer holds are not labels, although they are whole numbers.
    if kind == "f":
        doubles = labels.astype(np.float64)
        if (np.abs(doubles) < 2.0**63).all() and np.array_equal(doubles, np.rint(doubles)):
            return doubles.astype(np.int64)
    if kind not in "biuUS":
        found = "continuous numbers" if kind == "f" else "values of mixed or other kinds"
        raise ValueError(f"{name} holds {found}; it must hold booleans, integers or strings.")
    return labels
