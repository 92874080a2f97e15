"""Input validation; the only place that touches scikit-learn's private names.

Errors raised here go to people who may not see the data, so a message never quotes a
value: scikit-learn's own texts are kept where they speak of shapes and types only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.multiclass import type_of_target
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

_NOT_NUMERIC = (
    "X cannot be read as numbers: every argument must be a string or a number in a numeric "
    "array, and strings must be encoded first, for instance with OrdinalEncoder or "
    "OneHotEncoder. The offending value is not shown because it may be private."
)


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
        rows: np.ndarray = validate_data(
            estimator, X, reset=reset, dtype=list(dtype), ensure_min_samples=min_samples
        )
    except (ValueError, TypeError) as error:
        if any(phrase in str(error) for phrase in ("could not convert", "must be a string")):
            raise type(error)(_NOT_NUMERIC) from None
        raise
    return rows


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
        If y is missing, continuous, of another length, holds a missing value or a label
        outside `classes`, or there are more classes than rows. No label is quoted.
    """
    if y is None:
        raise ValueError(
            "conditional=True requires y to be passed, but the target y is None: "
            "pass the class label of each row."
        )
    labels = column_or_1d(y, warn=True)
    if len(labels) != n_samples:
        raise ValueError(
            f"y has {len(labels)} labels for {n_samples} rows of X; pass one label a row."
        )
    target = type_of_target(labels)
    if target not in ("binary", "multiclass"):
        raise ValueError(
            f"Unknown label type: {target}. conditional=True needs class labels (integers, "
            "strings or booleans) in y; to model a continuous target, make it a column of X."
        )
    known, codes = np.unique(labels, return_inverse=True)
    if classes is not None:
        public = np.unique(np.asarray(classes))
        codes = np.searchsorted(public, known)[codes]
        codes = np.minimum(codes, len(public) - 1)
        if not np.array_equal(public[codes], labels):
            raise ValueError(
                f"y holds a label that is not among the {len(public)} declared classes."
            )
        known = public
    if len(known) > n_samples:
        raise ValueError(
            f"There are {len(known)} classes for {n_samples} rows; a class-conditional fit needs "
            "at least one row a class."
        )
    return codes, known
