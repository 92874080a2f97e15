"""Validation of parameters, rows and labels; random streams; devices and threads.

Errors may reach people who are not allowed to see the data, so no message quotes a value.
scikit-learn's messages are kept only where they concern shapes and types, and its private names are
used only in this file.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from itertools import chain
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import _safe_indexing, check_array, check_random_state, check_scalar
from sklearn.utils._param_validation import HasMethods as HasMethods
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils._param_validation import StrOptions as StrOptions
from sklearn.utils._response import _get_response_values_binary
from sklearn.utils.validation import _num_samples, column_or_1d, validate_data
from sklearn.utils.validation import check_is_fitted as check_is_fitted
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from skdpot._utils.calls import calling, current_call
from skdpot.exceptions import warn_of_privacy

if TYPE_CHECKING:
    import torch


binary_responses = _get_response_values_binary
num_samples = _num_samples
safe_indexing = _safe_indexing

# Newer releases of scikit-learn read the docstring to show an estimator in a notebook, and
# would warn there of our section on privacy.
with suppress(ImportError, AttributeError):
    from sklearn.externals._numpydoc.docscrape import NumpyDocString

    NumpyDocString.sections.setdefault("Privacy", [])

_MOST = 2**31 - 1
_WIDE = (np.int64, np.float32, np.float64)


class Interval(_Interval):
    """Numbers in an interval, of types with enough precision.

    Booleans are refused, although Python counts them as integers. Of NumPy's types only int64,
    float32 and float64 are accepted: products of narrow integers wrap around, and half precision
    loses digits that a sensitivity needs. A count without an upper limit is limited to less than
    2^31, because no array could hold more.
    """

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str) -> None:
        counts = type is Integral and right is None and left is not None and left >= 1
        right, closed = (_MOST, "both") if counts else (right, closed)
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether `val` is allowed."""
        if isinstance(val, bool | np.generic) and not isinstance(val, _WIDE):
            return False
        try:
            return bool(super().is_satisfied_by(val))
        except TypeError:  # fractions are numbers to Python, not to numpy
            return False


class Described(StrOptions):
    """What a function accepts, in words that an error shows."""

    def __init__(self, text: str, accepts: Callable[[Any], bool]) -> None:
        super().__init__({text})
        self._text, self._accepts = text, accepts

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether `val` is allowed."""
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
    """Validate the parameters before ``fit``, as scikit-learn does, without printing tables.

    Otherwise ``Estimator(X)``, written instead of ``Estimator().fit(X)``, would show rows in the
    error. The fit also runs with NumPy's default settings for floating-point errors: with settings
    of the caller, one person's tiny value could raise an error after the charge.
    """
    validated = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)

    def decorate(fit: Callable[..., Any]) -> Callable[..., Any]:
        inner = validated(fit)

        @wraps(fit)
        def checked(estimator: BaseEstimator, *args: Any, **kwargs: Any) -> Any:
            errors = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
            with calling(), errors:
                return _without_tables_in_refusals(
                    estimator, lambda: inner(estimator, *args, **kwargs)
                )

        return checked

    return decorate


def check_parameters(owner: BaseEstimator) -> None:
    """Check `owner._parameter_constraints`, without quoting tables."""
    _without_tables_in_refusals(owner, owner._validate_params)


def _without_tables_in_refusals(owner: BaseEstimator, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidParameterError as error:
        refusal = InvalidParameterError(_without_tables(str(error), owner))
    # Outside of the handler, so that the original is not attached as the context.
    raise refusal


def _without_tables(text: str, estimator: BaseEstimator) -> str:
    """Return scikit-learn's message, with the type instead of the value of an object."""
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


def check_confidence(confidence: Any) -> None:
    """Refuse what is not a probability in (0, 1); messages quote only numbers."""
    if not isinstance(confidence, Real) or isinstance(confidence, bool):
        raise TypeError(f"confidence must be a number, not {type(confidence).__name__}.")
    if not 0 < float(confidence) < 1:
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def check_count(value: Any, name: str, *, least: int = 1, most: int = _MOST) -> int:
    """Check that an integer of any type is in this range, and return it as an int."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an instance of int, not bool.")
    check_scalar(value, name, Integral, min_val=least, max_val=most)
    return int(value)


def check_real(value: Any, name: str, *, most: float = np.inf, positive: bool = False) -> float:
    """Check that a number is finite, nonnegative or positive, and at most `most`."""
    check_scalar(value, name, Real)
    # Written so that a NaN is refused as well.
    if not 0 <= value <= most or value == np.inf or (positive and value == 0):
        least = "above 0" if positive else "at least 0"
        limit = "" if most == np.inf else f" and at most {most:g}"
        raise ValueError(f"{name}={value!r} must be finite, {least}{limit}.")
    return float(value)


def check_covariance(matrix: np.ndarray, name: str) -> None:
    """Check that a matrix is a covariance, up to rounding in single precision."""
    slack = 1e-6 * np.abs(matrix).max(initial=0.0)
    if not (
        np.isfinite(matrix).all()
        and np.abs(matrix - matrix.T).max(initial=0.0) <= slack
        and np.linalg.eigvalsh(matrix).min(initial=0.0) >= -slack * len(matrix)
    ):
        raise ValueError(f"{name} must be finite, symmetric and without negative eigenvalues.")


# ------------------------------------------------------------------------------- rows and targets

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

# The replacement of scikit-learn's error, by a phrase of its text; None keeps a text that speaks of
# shapes, types and names, and begins with the phrase. A text that is not listed may quote values,
# one of which may hold such a phrase, and is not repeated.
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
    return _quiet(lambda: validate_data(estimator, _without_times(X), **options), not_numeric)


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
    if hasattr(X, "columns"):  # older scikit-learn does not know the names of new polars
        import pandas as pd

        like = pd.DataFrame(columns=X.columns, index=[0])
    _quiet(lambda: validate_data(estimator, like, reset=reset, skip_check_array=True))


def without_groups(estimator: Any, X: Any, groups: Any, *, reset: bool = False) -> tuple[Any, Any]:
    """Return X without the column that holds the groups, if they are in one, and the groups.

    A fit (`reset`) is told its name in place of groups. Later the column need not be there.
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
    own = X[name] if groups is None or isinstance(groups, str) else groups
    return X[[column for column in columns if column != name]], own


def image_rows(X: Any, image_shape: Sequence[int] | None = None) -> Any:
    """Return an array of images as flat rows; what has two axes is returned as it is."""
    if getattr(X, "ndim", 2) <= 2:
        return X
    given = tuple(X.shape[1:])
    if image_shape is not None and given not in (tuple(image_shape), (1, *image_shape)):
        raise ValueError(
            f"X has images of shape {given}, but image_shape={tuple(image_shape)}. Channels come "
            "first, as in torch."
        )
    return X.reshape(len(X), -1)


def read_rows(X: Any, *, dtype: tuple[type, ...] = (np.float64, np.float32)) -> np.ndarray:
    """Validate finite numeric rows that are not those of a fit: codes, for example."""
    return _quiet(lambda: check_array(_without_times(X), dtype=list(dtype), input_name="X"))


def _without_times(X: Any) -> Any:
    """Return X unless the data type of a column says that it holds dates or durations.

    As numbers they would be ticks since 1970, and a missing value would become -9.2e18.
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


def _refusal(error: Exception, not_numeric: str) -> Exception:
    """Return an error like scikit-learn's that quotes no value."""
    text = str(error)
    for phrase, replacement in _PUBLIC_TEXTS.items():
        if text.startswith(phrase) or (replacement and phrase in text):
            text = replacement or text
            break
    else:
        text = not_numeric
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def as_finite(values: Any, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return finite numbers as an array of doubles."""
    numbers = np.full(1, np.nan)
    # An array of another library may raise anything.
    with suppress(Exception), np.errstate(all="ignore"):
        given = np.asarray(values)
        if given.dtype.kind not in "cmMSUV":
            numbers = given.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} {must}")
    return numbers


def as_line(values: Any, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return one finite number or several as an array of one axis."""
    numbers = np.atleast_1d(as_finite(values, name, must))
    if numbers.ndim > 1:
        raise ValueError(f"{name} must hold numbers along one axis; got shape {numbers.shape}.")
    return numbers


FINITE = "must hold finite numbers, without NaN or infinity."
_LARGEST = 1e150


def as_points(X: Any, name: str) -> np.ndarray:
    """Return a copy of X as float64 rows whose squares are finite; no error quotes a value."""
    points = as_finite(X, name, FINITE)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(
            f"{name} has shape {points.shape}; it must be a table (n_rows, n_features), not empty."
        )
    if np.abs(points).max() > _LARGEST:
        raise ValueError(
            f"{name} must hold numbers of at most {_LARGEST:g} in absolute value, whose squares "
            "are finite."
        )
    return points


def check_same_features(first: int, second: int) -> None:
    """Check that two samples have the same number of features."""
    if first != second:
        raise ValueError(
            f"X has {first} features and Y has {second}; both must have the same features in the "
            "same order."
        )


def validate_targets(y: Any, n_samples: int) -> np.ndarray:
    """Validate y as finite real targets."""
    if y is None:
        raise ValueError("A regressor requires y to be passed, but the target y is None.")
    targets = np.empty(0)
    # A column of another library may raise anything.
    with suppress(Exception), np.errstate(all="ignore"):
        targets = np.asarray(_without_times(y), dtype=np.float64)
    if targets.ndim not in (1, 2) or 0 in targets.shape:
        raise ValueError("y must hold numbers: shape (n_samples,) or (n_samples, n_targets).")
    if len(targets) != n_samples:
        raise ValueError(
            f"inconsistent numbers of samples: {len(targets)} targets for {n_samples} rows of X."
        )
    if not np.isfinite(targets).all():
        raise ValueError("Input y contains NaN or infinity; every target must be finite.")
    return targets


# ----------------------------------------------------------------------------------------- labels


def encode_labels(
    y: Any,
    n_samples: int,
    classes: Any | None = None,
    *,
    argument: str = "y",
    meaning: str = "class label",
    needed_by: str = "conditional=True",
    advice: str = "to model a continuous target, make it a column of X",
    declared: str = "declared classes",
) -> tuple[np.ndarray, np.ndarray]:
    """Encode labels as positions in the sorted set of classes."""
    if y is None:
        given = "the target y" if argument == "y" else argument
        raise ValueError(f"{needed_by} requires {argument} to be passed, but {given} is None.")
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


def label_column(y: Any, argument: str) -> tuple[np.ndarray, str]:
    """Return y as one column of discrete labels, and what kind of values it holds if not.

    `sklearn.utils.multiclass.type_of_target` is not used: it quotes values, and some
    releases warn when many different labels occur, which would publish a private fact.
    """
    text = ""
    try:
        # A table of one column is worth a warning where scikit-learn gives it: of y.
        labels = _one_kind(column_or_1d(_as_given(y), warn=argument == "y"))
        return labels, _label_fault(labels)
    except Exception as error:  # a column of another library may raise anything
        if "should be a 1d array" in str(error):  # speaks of the shape
            text = str(error).replace("y should", f"{argument} should", 1)
            text += " Join several columns into one column of labels."
    if text:
        raise ValueError(text)
    return np.empty(0), "unknown"


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
    """Return why values cannot be class labels, or an empty string."""
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


# --------------------------------------------------------------------------------- random streams


class SecretStream:
    """Uniform random words from the operating system, or from a seed in tests."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = None if seed is None else np.random.default_rng(seed)

    @property
    def reproducible(self) -> bool:
        """Whether the stream was seeded."""
        return self._generator is not None

    def random_bytes(self, n_bytes: int) -> bytes:
        """Return `n_bytes` uniform random bytes."""
        if self._generator is None:
            return os.urandom(n_bytes)
        return self._generator.bytes(n_bytes)

    def random_uint64(self, size: int) -> np.ndarray:
        """Return `size` uniform random 64-bit words."""
        return np.frombuffer(self.random_bytes(8 * size), dtype=np.uint64).copy()

    def random_bits(self, n_bits: int) -> int:
        """Return a uniform integer in ``[0, 2 ** n_bits)``."""
        n_bytes = -(-n_bits // 8)
        word = int.from_bytes(self.random_bytes(n_bytes), "little")
        return word >> (8 * n_bytes - n_bits)

    def apart(self) -> "SecretStream":
        """Return another stream: drawing from it leaves what this one draws as it is."""
        other = SecretStream()
        other._generator = None if self._generator is None else self._generator.spawn(1)[0]
        return other

    def generator(self) -> np.random.Generator:
        """Return a numpy generator seeded from this stream (not cryptographic)."""
        return np.random.default_rng(self.random_bits(256))


@dataclass(frozen=True)
class Streams:
    """The streams of one fit: secret noise, published directions, solver."""

    secret: SecretStream
    public: np.random.Generator
    solver: np.random.Generator


def spawn_streams(random_state: int | np.random.RandomState | None, caller: str) -> Streams:
    """Split a scikit-learn ``random_state`` by purpose.

    A resumed fit repeats what is public, and its noise is new: with a seed too, since on other rows
    the numbers behind it would be those of noise that is out.
    """
    call = current_call()
    resumed = None if call is None else call.resumed
    if random_state is None:
        public, solver = (None, None) if call is None else call.spawn().spawn(2)
        return Streams(SecretStream(), np.random.default_rng(public), np.random.default_rng(solver))
    warn_of_privacy(
        f"{caller}: `random_state` makes the privacy noise reproducible: anyone who knows it can "
        "remove the noise, and two fits with the same one differ by the data alone. Use it in "
        "tests only; leave random_state=None to publish."
    )
    seed = check_random_state(random_state).randint(0, 2**31, size=4)
    secret, public, solver = np.random.SeedSequence(seed.tolist()).spawn(3)
    if resumed is not None:
        secret = np.random.SeedSequence([*seed.tolist(), resumed])
    return Streams(
        SecretStream(int(secret.generate_state(4, np.uint64)[0])),
        np.random.default_rng(public),
        np.random.default_rng(solver),
    )


def solver_generator(random_state: int | np.random.RandomState | None) -> np.random.Generator:
    """Return a generator for post-processing; no privacy depends on it."""
    if random_state is None:
        call = current_call()
        return np.random.default_rng(None if call is None else call.spawn())
    return np.random.default_rng(check_random_state(random_state).randint(0, 2**31, size=4))


@contextmanager
def torch_randomness(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's global generator from `rng` inside the block; outside it goes on as before."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        yield


# ---------------------------------------------------------------------------- devices and threads

# Device files of the GPU drivers that torch supports: NVIDIA (desktops, and boards as nv*), AMD
# (kfd), and Linux inside Windows (dxg).
_DRIVERS = ("nvidia*", "nvmap", "nvgpu*", "nvhost*", "kfd", "dxg")


def resolve_device(device: Any) -> "torch.device | None":
    """Map a ``device=`` parameter to a torch device, or to None for numpy on the CPU."""
    name = str(device)
    if name.startswith("cpu") or (name == "auto" and not _may_have_gpu()):
        return None
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda") if count else None
    chosen = torch.device(name)
    if (chosen.index or 0) >= count:
        raise ValueError(
            f'device="{name}" needs a GPU that torch can use, and torch finds {count} here. Use '
            'device="auto" to fall back to the CPU.'
        )
    return chosen


def _may_have_gpu() -> bool:
    """Return whether a GPU is possible, without loading torch, which takes seconds."""
    if "torch" in sys.modules or sys.platform != "linux":
        return True
    return any(chain.from_iterable(Path("/dev").glob(name) for name in _DRIVERS))


Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return how many threads a kernel may use: torch's number, or OpenMP's without torch."""
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:
        return int(of_torch())
    counts = [library["num_threads"] for library in _libraries("openmp").info()]
    return max(counts, default=os.cpu_count() or 1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep thin matrix products on this thread: BLAS threads that wait would slow them."""
    with _libraries("blas").limit(limits=1):
        yield


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply `function`, which must release the GIL, to each item in a thread of its own."""
    with one_blas_thread():
        if len(items) == 1:
            return [function(items[0])]
        with ThreadPoolExecutor(len(items)) as pool:
            return list(pool.map(function, items))


@cache
def _libraries(kind: str) -> ThreadpoolController:
    """Find the loaded libraries of a kind, once: looking takes milliseconds."""
    return ThreadpoolController().select(user_api=kind)
