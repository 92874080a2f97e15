"""The arguments of a privacy report, looked at before anything is done with them."""

from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot.audit.membership.synthetic_rows import read_rows
from skdpot.preprocessing.table_frames import Table

__all__ = ["check_options", "check_rows"]


def check_options(audit: Any, n_canaries: Any, confidence: Any, verbose: Any) -> None:
    """Refuse options of a wrong type or out of range.

    Raises
    ------
    TypeError, ValueError
        No value is quoted that is not a number.
    """
    if not isinstance(audit, bool | np.bool_):
        raise TypeError(f"audit must be True or False, not {type(audit).__name__}.")
    if not _is_whole(verbose):
        raise TypeError(f"verbose must be an integer, not {type(verbose).__name__}.")
    if n_canaries is not None and not _is_whole(n_canaries):
        raise TypeError(f"n_canaries must be an integer or None, not {type(n_canaries).__name__}.")
    if n_canaries is not None and n_canaries < 1:
        raise ValueError(f"n_canaries={n_canaries!r} must be at least 1; audit=False makes none.")
    if not isinstance(confidence, Real) or isinstance(confidence, bool):
        raise TypeError(f"confidence must be a number, not {type(confidence).__name__}.")
    if not 0.0 < float(confidence) < 1.0:
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def check_rows(X_holdout: Any, y_holdout: Any, X_members: Any) -> None:
    """Refuse rows and labels that do not belong together.

    Raises
    ------
    ValueError
        No value is quoted.
    """
    for name, given in (("X_members", X_members), ("y_holdout", y_holdout)):
        if given is not None and X_holdout is None:
            raise ValueError(f"{name} needs X_holdout: {_WHY[name]}.")
    if y_holdout is not None:
        n_rows, n_labels = _length(X_holdout, "X_holdout"), _length(y_holdout, "y_holdout")
        if n_rows != n_labels:
            raise ValueError(
                f"y_holdout has {n_labels} labels for {n_rows} rows of X_holdout; pass one a row."
            )
    if X_members is not None and not Table.is_frame(X_members):  # which may hold text
        read_rows(X_members, "X_members")


_WHY = {
    "X_members": "others to tell the members from",
    "y_holdout": "the rows that it labels",
}


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _length(values: Any, name: str) -> int:
    """Return how many rows or labels there are."""
    shape = getattr(values, "shape", None)
    if shape is None and hasattr(values, "__len__"):
        return len(values)
    if not shape:
        raise ValueError(f"{name} must be an array, with one entry a row.")
    return int(shape[0])
