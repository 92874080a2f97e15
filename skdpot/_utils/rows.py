"""Validation of private rows with errors and warnings that quote no value.

The reader of an error may not be allowed to see the data. Messages of scikit-learn are kept only
where they name shapes and types.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

_NOT_NUMERIC = (
    "X cannot be read as numbers: every argument must be a string or a number in a numeric array. "
    "Encode text with TableEncoder first. The value is not shown because it may be private."
)
_TIMES = (
    "X holds dates, times or durations, which are not read as numbers. Convert them first, for "
    "example to days, or encode the table with TableEncoder."
)
_ELSEWHERE = (
    "{} needs X in memory here, not a {} that leads to its rows. Read or collect them first, for "
    "example by pandas.read_parquet(path), relation.df() or frame.collect()."
)

# Replacements of errors of scikit-learn by a phrase in their text. None keeps a text that begins
# with the phrase and states only shapes, types and names. Other texts may quote values, which may
# contain such a phrase, so they are not repeated.
_PUBLIC_TEXTS: dict[str, str | None] = {
    "Expected 2D array, got": "Expected 2D array, got one with fewer dimensions. Reshape your data "
    "either using array.reshape(-1, 1) for a single feature or array.reshape(1, -1) for a single "
    "sample.",
    "Complex data not supported": "Complex data not supported: X must hold real numbers.",
    "X holds dates, times or durations": None,
    "Found array with dim": "Found array with dim > 2, but rows are required. Reshape images by "
    "X.reshape(len(X), -1), or code them by skdpot.preprocessing.ImageCodes.",
    "Found array with": None,
    "Input X contains NaN": "Input X contains NaN. Replace missing values by a constant known in "
    "advance, or encode the table with TableEncoder; an imputer that learns from rows would not be "
    "private.",
    "Input X contains": None,
    "Expected a 2-dimensional container": None,
    "but dense data is required": "Sparse data was passed for X, but dense data is required. Use "
    "OneHotEncoder(sparse_output=False), or X.toarray() if it fits into memory.",
    "X has ": None,
    "The feature names": None,
    "Feature names": None,
    "setting an array element with a sequence": None,
}


def validate_rows(
    estimator: BaseEstimator,
    X: Any,
    *,
    reset: bool,
    min_samples: int = 1,
    dtype: tuple[type, ...] = (np.float64, np.float32),
    allow_nan: bool = False,
    not_numeric: str | None = None,
) -> np.ndarray:
    """Validate X as finite numeric rows and record its features on `estimator`."""
    several = isinstance(X, list | tuple)
    first = X[0] if several and len(X) else X
    held = several or hasattr(X, "__array__") or hasattr(X, "toarray")
    held |= type(X).__module__ == "builtins"
    if isinstance(first, str | bytes | os.PathLike) or not held:
        raise TypeError(_ELSEWHERE.format(type(estimator).__name__, type(first).__name__))
    options: dict[str, Any] = {"dtype": list(dtype), "ensure_min_samples": min_samples}
    options |= {"reset": reset, "ensure_all_finite": "allow-nan" if allow_nan else True}
    return _quiet(lambda: validate_data(estimator, without_times(X), **options), not_numeric)


def validate_frame(estimator: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Record or check the columns of a DataFrame on `estimator`, without reading a value."""
    for size, what in zip(X.shape, ("sample", "feature"), strict=True):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required."
            )
    record_features(estimator, X, reset=reset)


def record_features(estimator: BaseEstimator, X: Any, *, reset: bool = True) -> None:
    """Record or check the number of columns and their names on `estimator`; X may have no rows."""
    like: Any = np.zeros((1, X.shape[1]))
    if hasattr(X, "columns"):  # older scikit-learn cannot read the names of new polars
        import pandas as pd

        like = pd.DataFrame(columns=X.columns, index=[0])
    _quiet(lambda: validate_data(estimator, like, reset=reset, skip_check_array=True))


def without_groups(estimator: Any, X: Any, groups: Any, *, reset: bool = False) -> tuple[Any, Any]:
    """Return X without its column of groups, if it has one, and the groups.

    With `reset`, as in a fit, `groups` may be the name of the column. Afterwards X need not have
    the column.
    """
    if reset:
        estimator._group_column = groups if isinstance(groups, str) else None
    columns = list(getattr(X, "columns", ()))
    name = groups if isinstance(groups, str) else getattr(estimator, "_group_column", None)
    if isinstance(groups, str) and name not in columns:
        raise ValueError(
            "sensitive_features is a str and X has no column of that name (not shown: it may be "
            "private). Pass a DataFrame that has it, or groups of shape (n_samples,)."
        )
    if name not in columns:
        return X, groups
    of_rows = X[name] if groups is None or isinstance(groups, str) else groups
    return X[[column for column in columns if column != name]], of_rows


def image_rows(X: Any, image_shape: Sequence[int] | None = None) -> Any:
    """Return an array of images as flat rows; rows are returned unchanged."""
    if getattr(X, "ndim", 2) <= 2:
        return X
    shape = tuple(X.shape[1:])
    if image_shape is not None and shape not in (tuple(image_shape), (1, *image_shape)):
        raise ValueError(
            f"X has images of shape {shape}, but image_shape={tuple(image_shape)}. Channels come "
            "first, as in torch."
        )
    return X.reshape(len(X), -1)


def read_rows(X: Any, *, dtype: tuple[type, ...] = (np.float64, np.float32)) -> np.ndarray:
    """Validate finite numeric rows that are not the rows of a fit, for example codes."""
    return _quiet(lambda: check_array(without_times(X), dtype=list(dtype), input_name="X"))


def without_times(X: Any) -> Any:
    """Return X; refuse columns whose data type is one of dates or durations.

    As numbers they would be ticks since 1970, and a missing value would become -9.2e18.
    """
    typed = hasattr(X, "dtypes") or hasattr(X, "dtype") or not hasattr(X, "__array__")
    table: Any = X if typed else np.asarray(X)
    for dtype in table.dtypes if hasattr(table, "columns") else [getattr(table, "dtype", None)]:
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        if getattr(dtype, "kind", "") in ("m", "M") or (temporal is not None and temporal()):
            raise TypeError(_TIMES)
    return X


def _quiet(validate: Callable[[], np.ndarray], not_numeric: str | None = None) -> np.ndarray:
    """Validate without a warning, and without an error that quotes values."""
    try:
        # Sums of huge values would warn, and a warning that depends on values is an output.
        with np.errstate(all="ignore"):
            return validate()
    # Tables of other libraries may raise any exception in a conversion.
    except Exception as error:
        refusal = _refusal(error, not_numeric or _NOT_NUMERIC)
    # Raised outside of the handler, so that the original error is not attached as its context.
    raise refusal


def _refusal(error: Exception, not_numeric: str) -> Exception:
    """Return the error of scikit-learn in a form that quotes no value."""
    text = str(error)
    for phrase, replacement in _PUBLIC_TEXTS.items():
        if text.startswith(phrase) or (replacement and phrase in text):
            text = replacement or text
            break
    else:
        text = not_numeric
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)
