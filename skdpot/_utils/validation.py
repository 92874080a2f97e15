"""Input validation; the only place that touches scikit-learn's private names.

Errors raised here go to people who may not see the data, so a message never quotes a
value: scikit-learn's own texts are kept where they speak of shapes and types only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_array
from sklearn.utils._param_validation import (
    HasMethods,
    InvalidParameterError,
    Options,
    StrOptions,
)
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils.validation import check_is_fitted, validate_data

__all__ = [
    "HasMethods",
    "Interval",
    "Options",
    "StrOptions",
    "all_or_nothing",
    "as_finite",
    "check_is_fitted",
    "check_parameters",
    "fit_context",
    "read_rows",
    "validate_frame",
    "validate_rows",
    "validate_targets",
]

# Newer releases of scikit-learn read the docstring to show an estimator in a notebook, and
# would warn there of our section on privacy.
with suppress(ImportError, AttributeError):
    from sklearn.externals._numpydoc.docscrape import NumpyDocString

    NumpyDocString.sections.setdefault("Privacy", [])

_NOT_NUMERIC = (
    "X cannot be read as numbers: every argument must be a string or a number in a numeric "
    "array, and strings must be encoded first, by TableEncoder or by OneHotEncoder with declared "
    "categories. The offending value is not shown because it may be private."
)
_MISSING = (
    "Input X contains NaN, and missing values are not read. Replace them by a constant that is "
    "known in advance, or encode the table by TableEncoder; an imputer that learns from these rows "
    "would not be private."
)
_NOT_A_TABLE = (
    "Expected 2D array, got one with fewer dimensions. Reshape your data either using "
    "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
    "contains a single sample."
)
_COMPLEX = "Complex data not supported: X must hold real numbers."
_TIMES = (
    "X holds dates, times or durations, which are not read as numbers: a missing one would become "
    "a number. Convert them first, for instance to days, or encode the table by TableEncoder."
)

# What is said in place of scikit-learn's error, by a phrase of its text; None keeps a text
# that speaks of shapes, types and names. A text that is not listed is not repeated, because
# it may quote values.
_PUBLIC_TEXTS: dict[str, str | None] = {
    "Expected 2D array, got": _NOT_A_TABLE,
    "Complex data not supported": _COMPLEX,
    "dates, times or durations": None,
    "Found array with": None,
    "Input X contains NaN": _MISSING,
    "Input X contains": None,
    "Expected a 2-dimensional container": None,
    "but dense data is required": None,
    "features as input": None,
    "feature names": None,
    "Feature names": None,
    "setting an array element with a sequence": None,
}


_MOST = 2**31 - 1
_WIDE = (np.int64, np.float32, np.float64)


class Interval(_Interval):
    """Numbers in an interval, of types that calculate exactly enough.

    A boolean is no number, although Python counts it as one. Of numpy's types only some will do:
    products of narrow integers wrap around, and half precision loses the digits that a
    sensitivity needs. What counts things from 1 on, without another limit, ends below 2^31: no
    array could hold more.
    """

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str) -> None:
        counts = type is Integral and right is None and left is not None and left >= 1
        super().__init__(
            type,
            left,
            _MOST if counts else right,
            closed="both" if counts else closed,
        )

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether `val` is allowed."""
        if isinstance(val, bool | np.generic) and not isinstance(val, _WIDE):
            return False
        try:
            return bool(super().is_satisfied_by(val))
        except TypeError:  # fractions are numbers to Python, not to numpy
            return False


def fit_context(
    *, prefer_skip_nested_validation: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Validate the parameters before ``fit``, as scikit-learn does, without printing tables.

    Whoever writes ``Estimator(X)`` in the place of ``Estimator().fit(X)`` would else find rows in
    the text of the error. And the fit has numpy's own settings for floating-point errors: where
    the caller has others, one person's tiny value could be an error after the charge.

    Parameters
    ----------
    prefer_skip_nested_validation : bool
        Whether estimators inside of this one are not validated again.

    Returns
    -------
    callable
        The decorator.
    """
    validated = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        inner = validated(fit)

        @wraps(fit)
        def checked(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
            with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
                return _without_tables_in_refusals(
                    estimator, lambda: inner(estimator, *args, **kwargs)
                )

        return checked

    return decorate


def check_parameters(owner: BaseEstimator) -> None:
    """Refuse what `owner._parameter_constraints` do not allow, without quoting tables."""
    _without_tables_in_refusals(owner, owner._validate_params)


def _without_tables_in_refusals(owner: BaseEstimator, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidParameterError as error:
        refusal = InvalidParameterError(_without_tables(str(error), owner))
    # Outside of the handler, so that the original is not attached as the context.
    raise refusal


def _without_tables(text: str, estimator: BaseEstimator) -> str:
    """Return scikit-learn's refusal of a parameter; of what is no plain value, its type only."""
    name = text.split("'", 2)[1] if text.startswith("The '") else ""
    value = estimator.get_params(deep=False).get(name)
    if isinstance(value, np.number) and not isinstance(value, _WIDE):
        return (
            f"{text} Of numpy's numbers only int64, float32 and float64 are taken: use int() or "
            "float()."
        )
    plain = value is None or isinstance(value, str | bytes | bool | int | float)
    if plain or not name:
        return text
    return f"{text.partition('. Got ')[0]}. Got an object of type {type(value).__name__} instead."


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
    allow_nan: bool = False,
    not_numeric: str | None = None,
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
    allow_nan : bool, default=False
        Whether NaN stands for a missing value.
    not_numeric : str, optional
        What to say of rows that cannot be read as numbers, in the place of "encode them".

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        The rows.

    Raises
    ------
    ValueError, TypeError
        With a message that quotes no value of X.
    """
    options: dict[str, Any] = {"dtype": list(dtype), "ensure_min_samples": min_samples}
    if allow_nan:
        options["ensure_all_finite"] = "allow-nan"
    return _quiet(
        lambda: validate_data(estimator, _without_times(X), reset=reset, **options), not_numeric
    )


def validate_frame(estimator: BaseEstimator, X: Any, *, reset: bool) -> None:
    """Record or check the columns of a DataFrame on `estimator`, without reading a value.

    Parameters
    ----------
    estimator : BaseEstimator
        Receives ``n_features_in_`` and ``feature_names_in_`` when `reset`.
    X : DataFrame of pandas or polars, of shape (n_samples, n_features)
        The table.
    reset : bool
        True in ``fit``, False afterwards.

    Raises
    ------
    ValueError, TypeError
        If there is no row or no column, or the columns are not those of the fit.
    """
    for size, what in zip(X.shape, ("sample", "feature"), strict=True):
        if size == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required."
            )
    _quiet(lambda: validate_data(estimator, X, reset=reset, skip_check_array=True))


def read_rows(X: Any, *, dtype: tuple[type, ...] = (np.float64, np.float32)) -> np.ndarray:
    """Validate finite numeric rows that are not those of a fit: codes, for example.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_columns)
        The rows.
    dtype : tuple of types
        Accepted floating types; other input becomes the first.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
        The rows.

    Raises
    ------
    ValueError, TypeError
        With a message that quotes no value of X.
    """
    return _quiet(lambda: check_array(_without_times(X), dtype=list(dtype), input_name="X"))


def _without_times(X: Any) -> Any:
    """Return X, refused if the data type of a column says that it holds dates or durations.

    As numbers they are ticks since 1970, of which a missing one is the smallest: -9.2e18.
    """
    typed = hasattr(X, "dtypes") or hasattr(X, "dtype") or not hasattr(X, "__array__")
    given: Any = X if typed else np.asarray(X)
    for dtype in given.dtypes if hasattr(given, "columns") else [getattr(given, "dtype", None)]:
        temporal = getattr(dtype, "is_temporal", None)  # of polars
        if getattr(dtype, "kind", "") in ("m", "M") or (temporal is not None and temporal()):
            raise TypeError(_TIMES)
    return X


def _quiet(validate: Callable[[], np.ndarray], not_numeric: str | None = None) -> np.ndarray:
    """Validate without a warning, and without an error that quotes values."""
    try:
        # Sums of huge values would warn, and a warning about values is an output.
        with np.errstate(all="ignore"):
            return validate()
    # Tables of other libraries may raise anything where they are converted.
    except Exception as error:
        refusal = _refusal(error, not_numeric or _NOT_NUMERIC)
    # Outside of the handler, so that the original is not attached as the context.
    raise refusal


def as_finite(values: Any, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return finite numbers as an array of doubles.

    Parameters
    ----------
    values : float or array-like
        The numbers.
    name : str
        Name of the argument.
    must : str
        What is said of it where it is something else.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    ValueError
        If something is not a finite number. No value is quoted.
    """
    try:
        with np.errstate(all="ignore"):
            given = np.asarray(values)
            real = given.dtype.kind not in "cmMSUV"
            numbers: np.ndarray | None = given.astype(np.float64) if real else None
    except Exception:  # an array of another library may raise anything
        numbers = None
    if numbers is None or not np.isfinite(numbers).all():
        raise ValueError(f"{name} {must}")
    return numbers


def validate_targets(y: Any, n_samples: int) -> np.ndarray:
    """Validate y as finite real targets.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        Targets.
    n_samples : int
        Number of rows that y must have.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_targets), float64
        Targets.

    Raises
    ------
    ValueError
        With a message that quotes no value of y.
    """
    if y is None:
        raise ValueError(
            "A regressor requires y to be passed, but the target y is None: pass the target of "
            "each row."
        )
    try:
        with np.errstate(all="ignore"):
            targets: np.ndarray | None = np.asarray(_without_times(y), dtype=np.float64)
    except Exception:  # a column of another library may raise anything
        targets = None
    if targets is None or targets.ndim not in (1, 2) or 0 in targets.shape:
        raise ValueError(
            "y must hold numbers, in an array of shape (n_samples,) or (n_samples, n_targets)."
        )
    if len(targets) != n_samples:
        raise ValueError(
            f"y has {len(targets)} targets for {n_samples} rows of X; inconsistent numbers of "
            "samples. Pass one target a row."
        )
    if not np.isfinite(targets).all():
        raise ValueError("Input y contains NaN or infinity; every target must be finite.")
    return targets


def _refusal(error: Exception, not_numeric: str) -> Exception:
    """Return an error like scikit-learn's that quotes no value."""
    text = str(error)
    for phrase, replacement in _PUBLIC_TEXTS.items():
        if phrase in text:
            text = replacement or text
            break
    else:
        text = not_numeric
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)
