r"""Checks that no private value decides which rows the fits of a search use.

*Claim.* A search, a cross-validation or an ensemble makes fits on parts of one table. Let the
positions of the rows in every part depend on public facts only, such as the number of rows, and let
no part contain a position twice. Neighbours differ at one position, so the same part of two
neighbours has the same size and differs in at most one row. Every fit is then as private as its
charge says, and a budget, which is a privacy filter, adds up the fits, however their parts overlap.

*Where it fails.* A stratified split deals the rows of each class to the folds in turn. A row that
changes its class shifts all later rows of both classes by one place. With ten folds and two classes
up to nine training rows of one fold change with one label, and a charge of :math:`\mu` then pays
for a release of up to :math:`9\mu`. A bootstrap contains a position several times, and k copies of
a row are a group of k. An ensemble that weights or selects rows by the errors of earlier fits reads
these errors without noise.

A splitter is called with rows that have a number and no values, so it can use public facts only. A
splitter that needs groups cannot be checked in this way and needs a proof of its own, like
`skdpot.model_selection.PersonKFold`.
"""

import copy
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from numbers import Integral, Real
from types import FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np
from scipy.stats._distn_infrastructure import rv_frozen
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    ParameterGrid,
    TunedThresholdClassifierCV,
    check_cv,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.semi_supervised import SelfTrainingClassifier

from skdpot.privacy.pipelines import (
    COMPOSITES,
    PrivateEstimatorMixin,
    check_pipeline,
    is_shared,
    private_parts_of,
)

_Search = TypeVar("_Search")

_MOST_SPLITS = 1000  # that are checked
_MOST_CANDIDATES = 1000  # of a search that are checked; all numbers count as one value
_N_DRAWS = 10  # from a distribution of a parameter
_USE = (
    "Use KFold(shuffle=True, random_state=...), ShuffleSplit or another splitter that needs only "
    "the number of rows; for persons with several rows skdpot.model_selection.PersonKFold; or a "
    "list of public positions"
)
_ITSELF = "itself learns from private rows without noise:"

# The wrappers of scikit-learn, each with the parameter values for which public facts alone decide
# the rows of each fit and nothing else is learned, or with the reason why no values do.
_KNOWN: dict[type, dict[str, Any] | str] = {
    GridSearchCV.__mro__[1]: {},  # the base of all searches over parameters
    StackingClassifier: {},
    StackingRegressor: {},
    VotingClassifier: {},
    VotingRegressor: {},
    FixedThresholdClassifier: {},
    OneVsRestClassifier: {},
    MultiOutputClassifier: {},
    MultiOutputRegressor: {},
    BaggingClassifier: {"bootstrap": False, "oob_score": False},
    BaggingRegressor: {"bootstrap": False, "oob_score": False},
    AdaBoostClassifier: f"{_ITSELF} it weighs them by the errors of earlier fits.",
    AdaBoostRegressor: f"{_ITSELF} it draws them by the errors of earlier fits.",
    RANSACRegressor: f"{_ITSELF} it picks them by their residuals.",
    SelfTrainingClassifier: f"{_ITSELF} it picks them by their predictions.",
    OneVsOneClassifier: "fits on the rows of two classes at a time, whose number is private. Use "
    "OneVsRestClassifier, or an estimator that takes several classes.",
    CalibratedClassifierCV: f"{_ITSELF} it fits the calibration to them.",
    TunedThresholdClassifierCV: f"{_ITSELF} it fits the threshold to them. Use "
    "FixedThresholdClassifier.",
    RFECV: f"{_ITSELF} it chooses features by scores of them.",
    SequentialFeatureSelector: f"{_ITSELF} it chooses features by scores of them.",
}
_BECAUSE = {
    "bootstrap": "draws a row several times for one fit, which is charged for one. Pass "
    "bootstrap=False, with max_samples as a share of the rows.",
    "oob_score": "scores private rows without noise. Pass oob_score=False.",
}
_ROWS = {"cv", "budget", "max_samples", *_BECAUSE}  # parameters of which all values are checked


class _Unread:
    """A number of rows without values, which records whether a splitter reads a value."""

    def __init__(self, n_rows: int) -> None:
        self.shape = (n_rows, 1)
        self.was_read = False

    def __len__(self) -> int:
        return self.shape[0]

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.was_read = True
        raise ValueError("It reads values of rows.")

    __getitem__ = __iter__ = __array__ = _refuse


def check_search(search: _Search, X: Any, y: Any = None) -> _Search:
    """Raise an error if private values would decide which rows the fits of a search use.

    Such a fit is charged for one row although one person changes several: a split that is
    stratified by the labels also moves the rows of other people, and a bootstrap repeats rows. Call
    this function before the search; it does not read the values of rows.

    Parameters
    ----------
    search : estimator or splitter
        A search such as `GridSearchCV`, or an ensemble, of private estimators or pipelines; or the
        `cv` of `cross_val_score` and similar functions.
    X : array-like, DataFrame
        The rows of the search. Only their number is read.
    y : object, default=None
        Not read. It is accepted as in ``fit``.

    Returns
    -------
    estimator or splitter
        The same object, so that ``check_search(search, X, y).fit(X, y)`` is one line.

    Raises
    ------
    TypeError
        If `search` is neither a search or ensemble nor a splitter.
    ValueError
        If the splitter reads rows, labels or groups; if a fit may use a row twice; if the estimator
        is not private or has no noise; if the fits do not share a `PrivacyBudget`; or if it is not
        known how the search uses rows. The error lists all problems and what to do.

    Privacy
    -------
    No value of a row is read. No fit is made or charged.

    Notes
    -----
    scikit-learn stratifies the folds of an integer `cv` for classifiers. Lists of positions and
    `PredefinedSplit` are public, as all parameters are. A splitter is called with rows and labels
    that have a number and no values, and is refused if it reads values. Splitters that read
    `groups` are refused, except for `skdpot.model_selection.PersonKFold`: the folds of `GroupKFold`
    depend on the number of rows of each person, and with ``shuffle=True`` on the identity of the
    other persons. If the group of every row is public, pass
    ``list(splitter.split(X, groups=groups))``.

    Every private fit also warns of such a splitter or ensemble if scikit-learn calls the fit in the
    same thread. The warning misses rows that were divided in a worker process (``n_jobs``) or
    earlier, for example by ``train_test_split(stratify=y)``.

    The rows of the scores are not checked: scores on private rows, and a choice by such scores, are
    not private. `PrivateSearchCV` chooses privately and needs no check.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV, KFold
    >>> from skdpot import FairPrivateClassifier, PrivacyBudget, check_search
    >>> X, y = np.zeros((100, 2)), np.arange(100) % 2
    >>> model = FairPrivateClassifier(budget=PrivacyBudget(epsilon=8.0))
    >>> grid = {"epsilon": [0.5, 1.0]}
    >>> check_search(GridSearchCV(model, grid, cv=3), X, y)
    Traceback (most recent call last):
    ...
    ValueError: This search is not private: StratifiedKFold reads the labels: ...
    >>> search = GridSearchCV(model, grid, cv=KFold(3, shuffle=True, random_state=0))
    >>> check_search(search, X, y) is search
    True
    """
    n_rows = _n_rows(X)
    if hasattr(search, "split") and not hasattr(search, "fit"):
        faults = list(_of_splitter(search, n_rows))
    elif isinstance(search, PrivateEstimatorMixin):
        faults = []  # such as PrivateSearchCV, which guarantees its own splits
    elif is_wrapper(search):
        faults = [*_of_wrapper(search, n_rows), *_of_budgets(list(parts_within(search)))]
    else:
        raise TypeError(
            "check_search takes a search, an ensemble or a splitter, an object and not a class or "
            f"number; got {type(search).__name__}. For pipelines there is check_pipeline."
        )
    if faults:
        raise ValueError(f"This search is not private: {' '.join(dict.fromkeys(faults))}")
    return search


def _n_rows(X: Any) -> int:
    """Return the number of rows of an array or a sequence."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def is_wrapper(part: object) -> bool:
    """Whether a meta-estimator fits other estimators and is not private itself."""
    excluded = (PrivateEstimatorMixin, FrozenEstimator, *COMPOSITES)
    return isinstance(part, MetaEstimatorMixin) and not isinstance(part, excluded)


def _wrapped(search: object) -> Iterator[Any]:
    """Yield the estimators that a search or ensemble fits."""
    for name in ("estimator", "final_estimator"):
        if hasattr(search, name):
            yield getattr(search, name)
    yield from (part for _, part in getattr(search, "estimators", None) or () if part != "drop")


def _candidates(search: Any) -> Iterator[Any]:
    """Yield the candidates of a search: its estimator with each choice of parameters."""
    grids = getattr(search, "param_grid", getattr(search, "param_distributions", None))
    if grids is None or search.estimator is None:
        return
    grids = [grids] if isinstance(grids, Mapping) else grids
    checked = [{key: _values(key, values) for key, values in grid.items()} for grid in grids]
    if len(ParameterGrid(checked)) > _MOST_CANDIDATES:
        raise ValueError(
            f"there are more than {_MOST_CANDIDATES} candidates besides numbers. Search in parts."
        )
    for parameters in ParameterGrid(checked):
        yield clone(search.estimator, safe=False).set_params(**clone(parameters, safe=False))


def _values(key: str, choices: Any) -> list[Any]:
    """Return the values of a parameter to check: one number, because numbers select no rows."""
    if isinstance(choices, rv_frozen):
        choices = choices.rvs(_N_DRAWS, random_state=0)
    elif hasattr(choices, "rvs"):
        raise ValueError(f"{key!r} has a distribution that is not known: pass a list.")
    values = list(choices)
    if key.rpartition("__")[2] in _ROWS:
        return values
    is_number = [isinstance(value, Real) and not isinstance(value, bool) for value in values]
    first = is_number.index(True) if True in is_number else None
    return [value for k, value in enumerate(values) if k == first or not is_number[k]]


def parts_within(search: object) -> Iterator[PrivateEstimatorMixin]:
    """Yield the private estimators that a wrapper fits."""
    for part in _wrapped(search):
        yield from _parts(part)


def _of_budgets(parts: Sequence[PrivateEstimatorMixin]) -> Iterator[str]:
    """Report private estimators that do not share a budget."""
    if parts and not is_shared([part.budget for part in parts]):
        yield (
            "Its fits add up, and nothing counts them: pass one PrivacyBudget as `budget` to every "
            "private estimator in it."
        )


def _of_wrapper(search: Any, n_rows: int) -> Iterator[str]:
    """List the faults of a search or ensemble, of its rows and of its estimators."""
    name = type(search).__name__
    is_sklearn = type(search).__module__.startswith("sklearn.")  # a subclass may divide rows itself
    if not (is_sklearn and isinstance(search, tuple(_KNOWN))):
        yield (
            f"{name} fits its estimators in a way that is not known here: fit them yourself, each "
            "on rows that are selected by public facts only."
        )
    yield from _of_kind(search)
    if hasattr(search, "cv"):
        yield from _of_cv(search, n_rows)
    try:
        candidates = list(_candidates(search))
    except (TypeError, ValueError) as error:
        yield f"The candidates of {name} cannot be checked: {error}"
        return
    for part in candidates or _wrapped(search):
        if is_wrapper(part):
            yield from _of_wrapper(part, n_rows)
        elif part is None:
            yield f"{name} has a default estimator that is not private: pass one."
        else:
            yield from _of_pipeline(part)
    budgets = list(chain.from_iterable(map(_parts, candidates)))
    yield from _of_budgets([*parts_within(search), *budgets] if budgets else [])
    splitter = getattr(search, "cv", None)
    if getattr(splitter, "keeps_persons_apart", False) and any(
        map(_draws_rows, [search, *candidates, *_wrapped(search)])
    ):
        yield (
            f"{name} draws rows within the folds of {type(splitter).__name__}, so the number of "
            "rows of one person decides which rows of others are used. Fit on all rows of a fold."
        )


def _parts(part: object) -> Iterator[PrivateEstimatorMixin]:
    """Yield the private estimators in an estimator, a pipeline or a wrapper."""
    yield from parts_within(part) if is_wrapper(part) else private_parts_of(part)


def _draws_rows(part: object) -> bool:
    """Whether a wrapper, or one inside it, fits on a random part of its rows."""
    if not is_wrapper(part):
        return False
    halves = getattr(part, "resource", None) == "n_samples"
    bags = getattr(part, "max_samples", 1.0) != 1.0
    return halves or bags or any(map(_draws_rows, _wrapped(part)))


def _of_pipeline(part: object) -> Iterator[str]:
    """Report the error of `check_pipeline` for an estimator that is fitted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `_of_budgets` reports budgets that are not shared
            check_pipeline(part)
    except ValueError as error:
        yield str(error)


def _of_kind(search: Any) -> Iterator[str]:
    """List the known faults of a wrapper of scikit-learn."""
    name = type(search).__name__
    for known, required in _KNOWN.items():
        if isinstance(search, known):
            if isinstance(required, str):
                yield f"{name} {required}"
                continue
            for parameter, value in required.items():
                if getattr(search, parameter) != value:
                    yield f"{name} {_BECAUSE[parameter]}"
    if getattr(search, "resource", None) == "n_samples":  # successive halving
        least, most = search.min_resources, search.max_resources
        if not isinstance(least, Integral) or not (most == "auto" or isinstance(most, Integral)):
            yield (
                f"{name} lets the number of classes in y decide how many rows a fit uses: pass "
                "min_resources as an integer."
            )


def _of_cv(search: Any, n_rows: int) -> Iterator[str]:
    """List the faults of the splitter that the fit of a search makes from its `cv`."""
    cv = search.cv
    if isinstance(cv, str):  # "prefit"
        return
    if isinstance(cv, Iterator):
        yield f"`cv` is a {type(cv).__name__}, which can be read once: pass a list of its splits."
        return
    model = getattr(search, "estimator", search)
    classifier = model is not None and is_classifier(model)
    yield from _of_splitter(check_cv(cv, [0, 1], classifier=classifier), n_rows)


def _of_splitter(splitter: object, n_rows: int) -> Iterator[str]:
    """List the faults of a splitter."""
    if getattr(splitter, "keeps_persons_apart", False):
        return
    read, error, twice = _tried(splitter, n_rows, _MOST_SPLITS)
    if read:
        yield _reads(splitter, read)
    elif error is not None:
        name = type(splitter).__name__
        yield f"{name} gives no split from the number of rows alone: {error} {_USE}."
    elif twice:
        yield f"{type(splitter).__name__} names a row twice for one fit. {_USE}."


def _reads(splitter: object, read: Sequence[str]) -> str:
    """Report the private data that a splitter reads."""
    return (
        f"{type(splitter).__name__} reads {' and '.join(read)}: one person then moves the rows of "
        f"others as well, and each fit is charged for one row. {_USE}."
    )


def _tried(splitter: Any, n_rows: int, most: int) -> tuple[list[str], Exception | None, bool]:
    """Call a splitter without values; return what it reads, its error, and if a row repeats."""
    copied, stopped, twice = copy.copy(splitter), None, False
    if hasattr(copied, "random_state"):  # no random generator may advance, not even the global one
        with suppress(AttributeError):
            copied.random_state = 0
    rows, labels, groups = (_Unread(n_rows) for _ in range(3))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of groups that are not needed
            for train, _ in islice(copied.split(rows, labels, groups=groups), most):
                train = np.arange(n_rows)[train]  # resolves masks and negative positions
                twice |= len(np.unique(train)) < len(train)
    except Exception as error:
        stopped = error
    parts = {"the rows": rows, "the labels": labels, "the groups": groups}
    return [name for name, part in parts.items() if part.was_read], stopped, twice


def faults_of_callers() -> tuple[str, ...]:
    """List the faults of the scikit-learn searches that call this function, in this thread."""
    faults: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "sklearn":
            faults += _in_frame(frame.f_locals)
        frame = frame.f_back
    return tuple(dict.fromkeys(faults))


def _in_frame(names: Mapping[str, Any]) -> Iterator[str]:
    """List the faults of the search and the splitter among the local names of a caller."""
    owner, splitter = names.get("self"), names.get("cv")
    splitter = getattr(splitter, "base_cv", splitter)  # of a halving search
    if is_wrapper(owner):
        yield from _of_kind(owner)
    if hasattr(splitter, "split") and not isinstance(splitter, str):
        n_rows = 1000
        with suppress(Exception):  # the number of rows may be unknown
            n_rows = _n_rows(names["X"])
        read, _, _ = _tried(splitter, n_rows, 1)
        read = [name for name in read if name != "the groups"]  # groups may be public
        yield from [_reads(splitter, read)] if read else []
