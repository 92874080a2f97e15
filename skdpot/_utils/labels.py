"""Validation of labels and targets; no error quotes a value."""

from contextlib import suppress
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import column_or_1d

from skdpot._utils.rows import without_times


def validate_targets(y: ArrayLike | None, n_samples: int) -> np.ndarray:
    """Validate y as finite real targets."""
    if y is None:
        raise ValueError("A regressor requires y to be passed, but the target y is None.")
    targets = np.empty(0)
    # A column of another library may raise anything.
    with suppress(Exception), np.errstate(all="ignore"):
        targets = np.asarray(without_times(y), dtype=np.float64)
    if targets.ndim not in (1, 2) or 0 in targets.shape:
        raise ValueError("y must hold numbers: shape (n_samples,) or (n_samples, n_targets).")
    if len(targets) != n_samples:
        raise ValueError(
            f"inconsistent numbers of samples: {len(targets)} targets for {n_samples} rows of X."
        )
    if not np.isfinite(targets).all():
        raise ValueError("Input y contains NaN or infinity; every target must be finite.")
    return targets


def encode_labels(
    y: ArrayLike | None,
    n_samples: int,
    classes: ArrayLike | None = None,
    *,
    argument: str = "y",
    meaning: str = "class label",
    needed_by: str = "conditional=True",
    advice: str = "to model a continuous target, make it a column of X",
    declared: str = "declared classes",
) -> tuple[np.ndarray, np.ndarray]:
    """Encode labels as positions in the sorted set of classes."""
    if y is None:
        missing = "the target y" if argument == "y" else argument
        raise ValueError(f"{needed_by} requires {argument} to be passed, but {missing} is None.")
    labels, fault = label_column(y, argument)
    if fault:
        raise ValueError(
            f"Unknown label type: {fault}. {needed_by} needs {meaning}s (integers, strings or "
            f"booleans, and none missing) in {argument}; {advice}."
        )
    if len(labels) != n_samples:
        raise ValueError(f"{argument} has {len(labels)} labels for {n_samples} rows of X.")
    known, codes = np.unique(labels, return_inverse=True)
    if classes is not None:
        public = np.unique(np.asarray(classes))
        if len(public) == 0 or _label_fault(public):
            raise ValueError("classes must hold integers, strings or booleans, and none missing.")
        codes = np.searchsorted(public, known)[codes]
        codes = np.minimum(codes, len(public) - 1)
        if not np.array_equal(public[codes], labels):
            raise ValueError(f"{argument} holds a label not among the {len(public)} {declared}.")
        known = public
    return codes, known


def label_column(y: ArrayLike, argument: str) -> tuple[np.ndarray, str]:
    """Return y as one column of discrete labels, and the fault of the values, if any.

    `sklearn.utils.multiclass.type_of_target` quotes values, and some of its releases warn when many
    different labels occur, which would publish a private fact; so it is not used.
    """
    text = ""
    try:
        # As in scikit-learn, a table of one column gives a warning for y only.
        labels = _one_kind(column_or_1d(_as_given(y), warn=argument == "y"))
        return labels, _label_fault(labels)
    except Exception as error:  # a column of another library may raise anything
        if "should be a 1d array" in str(error):  # names the shape only
            text = str(error).replace("y should", f"{argument} should", 1)
            text += " Join several columns into one column of labels."
    if text:
        raise ValueError(text)
    return np.empty(0), "unknown"


def _as_given(y: ArrayLike) -> ArrayLike:
    """Return a list of texts and other objects as an array of objects rather than of texts."""
    is_text = [isinstance(label, str) for label in y] if isinstance(y, list | tuple) else []
    return np.array(y, dtype=object) if any(is_text) and not all(is_text) else y


def _one_kind(labels: np.ndarray) -> np.ndarray:
    """Convert integers or booleans that are stored as Python objects to their own dtype."""
    if labels.dtype.kind != "O":
        return labels
    for kinds, excluded in (((bool, np.bool_), ()), ((Integral,), (bool,))):
        if all(isinstance(label, kinds) and not isinstance(label, excluded) for label in labels):
            return np.array(labels.tolist())
    return labels


def _label_fault(labels: np.ndarray) -> str:
    """Return the reason why values cannot be class labels, or an empty string."""
    kind = labels.dtype.kind
    if kind == "f" and not np.isfinite(labels).all():
        return "NaN or infinity"
    if kind in "mM" and np.isnat(labels).any():
        return "NaT"
    if kind == "f":
        return "" if np.array_equal(labels, np.rint(labels)) else "continuous"
    if kind == "O":
        return "" if all(isinstance(label, str) for label in labels) else "mixed or missing"
    return "" if kind in "biuUmM" else "unknown"
