"""Validation of the parameters of estimators, and private names of scikit-learn.

An error quotes no table: its reader may not be allowed to see the data. Other files import private
names of scikit-learn from here.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods as HasMethods
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils._response import _get_response_values_binary
from sklearn.utils.validation import _num_samples
from sklearn.utils.validation import check_is_fitted as check_is_fitted

from skdpot._utils.arguments import MOST
from skdpot._utils.calls import calling

binary_responses = _get_response_values_binary
num_samples = _num_samples
safe_indexing = _safe_indexing

# Newer releases of scikit-learn read the docstring to show an estimator in a notebook, and would
# warn of the section on privacy.
with suppress(ImportError, AttributeError):
    from sklearn.externals._numpydoc.docscrape import NumpyDocString

    NumpyDocString.sections.setdefault("Privacy", [])

_WIDE = (np.int64, np.float32, np.float64)  # NumPy types with enough precision


class Interval(_Interval):
    """Numbers in an interval, of types with enough precision.

    Booleans are refused, although Python counts them as integers. Of NumPy's types only int64,
    float32 and float64 are accepted: products of narrow integers wrap around, and half precision
    loses digits that a sensitivity needs. A count without an upper limit is limited to less than
    2^31, because no array could hold more.
    """

    def __init__(self, type: type, left: float | None, right: float | None, *, closed: str) -> None:
        counts = type is Integral and right is None and left is not None and left >= 1
        right, closed = (MOST, "both") if counts else (right, closed)
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val: object) -> bool:
        """Whether `val` is allowed."""
        if isinstance(val, bool | np.generic) and not isinstance(val, _WIDE):
            return False
        try:
            return bool(super().is_satisfied_by(val))
        except TypeError:  # NumPy cannot compare a Fraction
            return False


class Described(StrOptions):
    """Values that a function accepts, described in words for an error."""

    def __init__(self, text: str, accepts: Callable[[Any], bool]) -> None:
        super().__init__({text})
        self._text, self._accepts = text, accepts

    def is_satisfied_by(self, val: object) -> bool:
        """Whether `val` is allowed."""
        return self._accepts(val)

    def __str__(self) -> str:
        return self._text


def _is_device(value: Any) -> bool:
    named = isinstance(value, str) or type(value).__module__ == "torch"
    return named and re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(value)) is not None


DEVICE = Described(
    '"auto", "cpu", "cuda", "cuda:0" (or another index), or such a torch.device, but not "mps": '
    "exact sums need double precision",
    _is_device,
)


def fit_context(
    *, prefer_skip_nested_validation: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Validate the parameters before ``fit``, as scikit-learn does, without quoting tables.

    Otherwise the error of ``Estimator(X)``, written instead of ``Estimator().fit(X)``, would quote
    rows. The fit also runs with NumPy's default settings for floating-point errors: with the
    settings of the caller, the tiny value of one person could raise an error after the charge.
    """
    validated = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        inner = validated(fit)

        @wraps(fit)
        def checked(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
            errors = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
            with calling(), errors:
                return _without_tables_shown(estimator, lambda: inner(estimator, *args, **kwargs))

        return checked

    return decorate


def check_parameters(owner: BaseEstimator) -> None:
    """Check `owner._parameter_constraints`, without quoting tables."""
    _without_tables_shown(owner, owner._validate_params)


def _without_tables_shown(owner: BaseEstimator, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidParameterError as error:
        refusal = InvalidParameterError(_without_tables(str(error), owner))
    # Raised outside of the handler, so that the original error is not attached as its context.
    raise refusal


def _without_tables(text: str, estimator: BaseEstimator) -> str:
    """Return scikit-learn's message with the type in place of the value of an object."""
    name = text.split("'", 2)[1] if text.startswith("The '") else ""
    value = estimator.get_params(deep=False).get(name)
    if isinstance(value, np.number) and not isinstance(value, _WIDE):
        return f"{text} Use int() or float(); NumPy numbers must be int64, float32 or float64."
    plain = value is None or isinstance(value, str | bytes | bool | int | float)
    if plain or not name:
        return text
    return f"{text.partition('. Got ')[0]}. Got an object of type {type(value).__name__} instead."


@contextmanager
def all_or_nothing(estimator: BaseEstimator, *, forget: bool = False) -> Iterator[None]:
    """Restore the attributes of `estimator` if the block raises."""
    before = dict(vars(estimator))
    try:
        for name in before:
            if forget and name.endswith("_"):
                delattr(estimator, name)
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
