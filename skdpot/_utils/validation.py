"""Input validation; the only place that touches scikit-learn's private names.

Errors raised here go to people who may not see the data, so a message never quotes a
value: scikit-learn's own texts are kept where they speak of shapes and types only.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

__all__ = [
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "all_or_nothing",
    "check_is_fitted",
    "encode_labels",
    "fit_context",
    "validate_rows",
]

# Newer releases of scikit-learn read the docstring to show an estimator in a notebook, and
# would warn there of our section on privacy.
with suppress(ImportError, AttributeError):
    from sklearn.externals._numpydoc.docscrape import NumpyDocString

    NumpyDocString.sections.setdefault("Privacy", [])

_NOT_NUMERIC = (
    "X cannot be read as numbers: every argument must be a string or a number in a numeric "
    "array, and strings must be encoded first, for instance with OrdinalEncoder or "
    "OneHotEncoder. The offending value is not shown because it may be private."
)
_NOT_A_TABLE = (
    "Expected 2D array, got one with fewer dimensions. Reshape your data either using "
    "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
    "contains a single sample."
)
_COMPLEX = "Complex data not supported: X must hold real numbers."

# What is said in place of scikit-learn's error, by a phrase of its text; None keeps a text
# that speaks of shapes, types and names. A text that is not listed is not repeated, because
# it may quote values.
_PUBLIC_TEXTS: dict[str, str | None] = {
    "Expected 2D array, got": _NOT_A_TABLE,
    "Complex data not supported": _COMPLEX,
    "Found array with": None,
    "Input X contains": None,
    "Expected a 2-dimensional container": None,
    "but dense data is required": None,
    "features as input": None,
    "feature names": None,
    "Feature names": None,
    "setting an array element with a sequence": None,
}


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Leave `estimator` as it was when the block raises: a refused call changes nothing."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def validate_rows(
    estimator: BaseEstimator,
    X: Any,
    *,
    reset: bool,
    min_samples: int = 1,
    dtype: tuple[type, ...] = (np.float64, np.float32),
) -> np.ndarray:
    """Validate X as finite numeric rows and record its features on `estimator`.

    Parameters
    ----------
    estimator : BaseEstimator
        Receives ``n_features_in_`` and ``feature_names_in_`` when `reset`.
    X : array-like of shape (n_samples, n_features)
        The rows.
    reset : bool
        True in ``fit``, False afterwards.
    min_samples : int, default=1
        Smallest number of rows allowed.
    dtype : tuple of types
        Accepted floating types; other input becomes the first.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        The rows.

    Raises
    ------
    ValueError, TypeError
        With a message that quotes no value of X.
    """
    try:
        # Sums of huge values would warn, and a warning about values is an output.
        with np.errstate(all="ignore"):
            rows: np.ndarray = validate_data(
                estimator, X, reset=reset, dtype=list(dtype), ensure_min_samples=min_samples
            )
    except (ValueError, TypeError, OverflowError) as error:
        refusal = _refusal(error)
    else:
        return rows
    # Outside of the handler, so that the original is not attached as the context.
    raise refusal


def encode_labels(
    y: Any, n_samples: int, classes: Any | None = None
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
    if y is None:
        raise ValueError(
            "conditional=True requires y to be passed, but the target y is None: "
            "pass the class label of each row."
        )
    labels = _label_column(y)
    if len(labels) != n_samples:
        raise ValueError(
            f"y has {len(labels)} labels for {n_samples} rows of X; pass one label a row."
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
                f"y holds a label that is not among the {len(public)} declared classes."
            )
        known = public
    return codes, known


def _refusal(error: Exception) -> Exception:
    """Return an error like scikit-learn's that quotes no value."""
    text = str(error)
    for phrase, replacement in _PUBLIC_TEXTS.items():
        if phrase in text:
            text = replacement or text
            break
    else:
        text = _NOT_NUMERIC
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def _label_column(y: Any) -> np.ndarray:
    """Return y as one column of discrete labels, or say what kind of values it holds.

    `sklearn.utils.multiclass.type_of_target` is not used: it quotes values, and some
    releases warn when many different labels occur, which would publish a private fact.
    """
    try:
        labels: np.ndarray | None = column_or_1d(y, warn=True)
    except (ValueError, TypeError) as error:
        if "should be a 1d array" in str(error):  # speaks of the shape
            raise
        labels = None
    found = "unknown" if labels is None else _label_fault(labels)
    if labels is not None and not found:
        return labels
    raise ValueError(
        f"Unknown label type: {found}. conditional=True needs class labels (integers, "
        "strings or booleans, and none missing) in y; to model a continuous target, make it a "
        "column of X."
    )


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
