"""Labels of classes, groups and times: read, checked and coded without ever being quoted."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

__all__ = ["LabelWords", "encode_labels"]


@dataclass(frozen=True)
class LabelWords:
    """How messages speak of a column of labels.

    Parameters
    ----------
    argument : str, default="y"
        Name of the argument.
    meaning : str, default="class label"
        What one label is.
    needed_by : str, default="conditional=True"
        What cannot do without the labels.
    advice : str
        What to do with values that cannot be labels.
    warns_of_column : bool, default=True
        Whether a table of one column is worth a warning, as it is for y in scikit-learn.
    """

    argument: str = "y"
    meaning: str = "class label"
    needed_by: str = "conditional=True"
    advice: str = "to model a continuous target, make it a column of X"
    warns_of_column: bool = True


def encode_labels(
    y: Any, n_samples: int, classes: Any | None = None, *, words: LabelWords | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Encode class labels as positions in the sorted set of classes.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    n_samples : int
        Number of rows that y must have.
    classes : array-like, optional
        The public set of classes; by default the labels that occur in y.
    words : LabelWords, optional
        How messages speak of y.

    Returns
    -------
    codes : ndarray of shape (n_samples,), intp
        Position of each label in `classes`.
    classes : ndarray of shape (n_classes,)
        Sorted classes.

    Raises
    ------
    ValueError
        If y is missing, continuous, of another length, or holds a missing value or a label
        outside `classes`. No label is quoted.
    """
    words = words or LabelWords()
    name = words.argument
    if y is None:
        raise ValueError(
            f"{words.needed_by} requires {name} to be passed, but "
            f"{'the target y' if name == 'y' else name} is None: pass the {words.meaning} of "
            "each row."
        )
    labels = _label_column(y, words)
    if len(labels) != n_samples:
        raise ValueError(
            f"{name} has {len(labels)} labels for {n_samples} rows of X; pass one label a row."
        )
    known, codes = np.unique(labels, return_inverse=True)
    if classes is not None:
        public = np.unique(np.asarray(classes))
        if len(public) == 0 or _label_fault(public):
            raise ValueError("classes must hold integers, strings or booleans, and none missing.")
        codes = np.searchsorted(public, known)[codes]
        codes = np.minimum(codes, len(public) - 1)
        if not np.array_equal(public[codes], labels):
            raise ValueError(
                f"{name} holds a label that is not among the {len(public)} declared classes."
            )
        known = public
    return codes, known


def _label_column(y: Any, words: LabelWords) -> np.ndarray:
    """Return y as one column of discrete labels, or say what kind of values it holds.

    `sklearn.utils.multiclass.type_of_target` is not used: it quotes values, and some
    releases warn when many different labels occur, which would publish a private fact.
    """
    refusal: ValueError | None = None
    try:
        labels = _one_kind(column_or_1d(_as_given(y), warn=words.warns_of_column))
        found = _label_fault(labels)
    except Exception as error:  # a column of another library may raise anything
        found = "unknown"
        if "should be a 1d array" in str(error):  # speaks of the shape
            refusal = ValueError(str(error).replace("y should", f"{words.argument} should", 1))
    if refusal is not None:
        raise refusal
    if not found:
        return labels
    raise ValueError(
        f"Unknown label type: {found}. {words.needed_by} needs {words.meaning}s (integers, "
        f"strings or booleans, and none missing) in {words.argument}; {words.advice}."
    )


def _as_given(y: Any) -> Any:
    """Keep a list of text and something else, which numpy would make text of, NaN included."""
    is_text = [isinstance(label, str) for label in y] if isinstance(y, list | tuple) else []
    return np.array(y, dtype=object) if any(is_text) and not all(is_text) else y


def _one_kind(labels: np.ndarray) -> np.ndarray:
    """Give integers and booleans that are stored as Python objects a dtype that sorts."""
    if labels.dtype.kind != "O":
        return labels
    for kinds, excluded in (((bool, np.bool_), ()), ((Integral,), (bool,))):
        if all(isinstance(label, kinds) and not isinstance(label, excluded) for label in labels):
            return np.array(labels.tolist())
    return labels


def _label_fault(labels: np.ndarray) -> str:
    """Return why values cannot be class labels; empty if they can."""
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
