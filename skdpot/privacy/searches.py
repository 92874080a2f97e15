r"""Which rows the fits of a search see, and that no private value decides it.

*Claim.* A search, a cross-validation or an ensemble makes fits on parts of one table. Let the
positions of the rows in every part depend on public facts alone, such as the number of rows, and
let no part name a position twice. Neighbours differ at one position, so that each part and that of
the neighbour differ in one row or in none, and have the same size. Every fit is then as private as
its charge says, and a budget, which is a filter, adds the fits up, however their parts overlap.

*Where it fails.* A stratified split deals the rows of each class to the folds in turn. A row that
changes its class shifts all later rows of both classes by one place, so that with ten folds and two
classes up to nine training rows of one fold change with one label: a charge of :math:`\mu` then
stands for a release of up to :math:`9\mu`. A bootstrap names a position several times, and k
copies of a row are a group of k. An ensemble that weighs or picks rows by the errors of earlier
fits reads them without noise.

A splitter is asked for its parts of rows that have a number and no values, so it can only use what
is public. A splitter that needs the groups cannot be judged in this way: it must prove what it
does, as `skdpot.model_selection.PersonKFold` does.
"""

import copy
import sys
import warnings
from collections.abc import Iterator, Mapping
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

_MOST_SPLITS = 1000  # that are looked at
_MOST_CANDIDATES = 1000  # of a search, that are looked at; numbers count once
_N_DRAWS = 10  # of a distribution
_USE = (
    "Use KFold(shuffle=True, random_state=...), ShuffleSplit or another splitter that needs only "
    "the number of rows; for persons with several rows skdpot.model_selection.PersonKFold; or a "
    "list of public positions"
)
_ITSELF = "learns of private rows without noise itself:"

# What is known of the wrappers of scikit-learn: the values of parameters with which each of their
# fits gets rows by public facts alone and nothing else is learned; or why there are none.
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
_ROWS = {"cv", "budget", "max_samples", *_BECAUSE}  # of these parameters all values count


class _Unread:
    """A number of rows without values, which notes whether a splitter reads values."""

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
    """Raise an error if private values would decide which rows the fits of a search see.

    Such a fit is charged for one row while one person changes several: a split that is stratified
    by the labels moves other people's rows as well, and a bootstrap repeats rows. Call it before
    the search; it does not look at the values of rows.

    Parameters
    ----------
    search : estimator or splitter
        A search such as `GridSearchCV`, or an ensemble, of private estimators or pipelines; or the
        `cv` of `cross_val_score` and similar functions.
    X : array-like, DataFrame
        The rows of the search, of which only the number is read.
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
        If the splitter reads rows, labels or groups, a fit may see a row twice, the estimator is
        not private or has no noise, its fits do not share a `PrivacyBudget`, or what the search
        does with rows is not known. The error lists all that is wrong and what to do.

    Privacy
    -------
    No value of a row is read, and no fit is made or charged.

    Notes
    -----
    An integer `cv` with a classifier is stratified by scikit-learn. Lists of positions and
    `PredefinedSplit` are taken as public, as every parameter is. A splitter is called with rows and
    labels that have a number and no values; one that asks for values is refused. Those that read
    `groups` are refused except for `skdpot.model_selection.PersonKFold`: the folds of `GroupKFold`
    depend on how many rows each person has, and with ``shuffle=True`` on who the others are. If
    the group of every row is public, pass ``list(splitter.split(X, groups=groups))``.

    A fit warns of a splitter or ensemble of this kind if scikit-learn calls it in the same thread.
    It cannot see who divided the rows in a worker process (``n_jobs``), or earlier, as with
    ``train_test_split(stratify=y)``.

    It is not checked which rows the scores are computed from: scores of private rows, and a choice
    by them, are not private. `PrivateSearchCV` chooses privately and needs no check.

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
        found = list(_of_splitter(search, n_rows))
    elif isinstance(search, PrivateEstimatorMixin):
        found = []  # such as PrivateSearchCV, which answers for its own splits
    elif is_wrapper(search):
        found = [*_of_wrapper(search, n_rows), *_of_budgets(list(parts_within(search)))]
    else:
        raise TypeError(
            "check_search takes a search, an ensemble or a splitter, an object and not a class or "
            f"number; got {type(search).__name__}. For pipelines there is check_pipeline."
        )
    if found:
        raise ValueError(f"This search is not private: {' '.join(dict.fromkeys(found))}")
    return search


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def is_wrapper(part: Any) -> bool:
    """Whether an object of scikit-learn's kind fits other estimators, and is not private itself."""
    apart = (PrivateEstimatorMixin, FrozenEstimator, *COMPOSITES)
    return isinstance(part, MetaEstimatorMixin) and not isinstance(part, apart)


def _wrapped(search: Any) -> Iterator[Any]:
    """Yield the estimators that a search or ensemble fits, with their alternatives."""
    for name in ("estimator", "final_estimator"):
        if hasattr(search, name):
            yield getattr(search, name)
    yield from (part for _, part in getattr(search, "estimators", None) or () if part != "drop")


def _candidates(search: Any) -> Iterator[Any]:
    """Yield what a search over parameters fits: its estimator with each choice of parameters."""
    grids = getattr(search, "param_grid", getattr(search, "param_distributions", None))
    if grids is None or search.estimator is None:
        return
    grids = [grids] if isinstance(grids, Mapping) else grids
    tried = [{key: _values(key, given) for key, given in grid.items()} for grid in grids]
    if len(ParameterGrid(tried)) > _MOST_CANDIDATES:
        raise ValueError(
            f"has more than {_MOST_CANDIDATES} candidates besides numbers. Search in parts."
        )
    for parameters in ParameterGrid(tried):
        yield clone(search.estimator, safe=False).set_params(**clone(parameters, safe=False))


def _values(key: str, given: Any) -> list[Any]:
    """Return the values of a parameter; of numbers, which decide about no rows, the first."""
    if isinstance(given, rv_frozen):
        given = given.rvs(_N_DRAWS, random_state=0)
    elif hasattr(given, "rvs"):
        raise ValueError(f"draws {key!r} from a distribution that is not known: pass a list.")
    values = list(given)
    if key.rpartition("__")[2] in _ROWS:
        return values
    is_number = [isinstance(value, Real) and not isinstance(value, bool) for value in values]
    first = is_number.index(True) if True in is_number else None
    return [value for k, value in enumerate(values) if k == first or not is_number[k]]


def parts_within(search: Any) -> Iterator[Any]:
    """Yield the private estimators that a wrapper fits."""
    for part in _wrapped(search):
        yield from parts_within(part) if is_wrapper(part) else private_parts_of(part)


def _of_budgets(parts: list[Any]) -> Iterator[str]:
    if parts and not is_shared([part.budget for part in parts]):
        yield (
            "Its fits add up, and nothing counts them: pass one PrivacyBudget as `budget` to every "
            "private estimator in it."
        )


def _of_wrapper(search: Any, n_rows: int) -> Iterator[str]:
    """List the faults of the rows that the fits of a search see, and of its estimators."""
    name = type(search).__name__
    is_own = type(search).__module__.startswith("sklearn.")  # others may divide rows before its fit
    if not (is_own and any(isinstance(search, known) for known in _KNOWN)):
        yield (
            f"{name} fits its estimators in a way that is not known here: fit them yourself, each "
            "on rows that public facts decide."
        )
    yield from _of_kind(search)
    if hasattr(search, "cv"):
        yield from _of_cv(search, n_rows)
    try:
        candidates = list(_candidates(search))
    except (TypeError, ValueError) as error:
        yield f"{name}, of which the candidates cannot be looked at: {error}"
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
            f"{name} draws rows within the folds of {type(splitter).__name__}, so that how many "
            "rows one person has decides about rows of others. Fit on all rows of a fold."
        )


def _parts(candidate: Any) -> Iterator[Any]:
    return parts_within(candidate) if is_wrapper(candidate) else iter(private_parts_of(candidate))


def _draws_rows(part: Any) -> bool:
    """Whether a wrapper, or one in it, fits on some of its rows, drawn by their number."""
    if not is_wrapper(part):
        return False
    halves = getattr(part, "resource", None) == "n_samples"
    return (
        halves or getattr(part, "max_samples", 1.0) != 1.0 or any(map(_draws_rows, _wrapped(part)))
    )


def _of_pipeline(part: Any) -> Iterator[str]:
    """List what `check_pipeline` finds in the estimators that are fitted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of budgets that are not shared: refused by itself
            check_pipeline(part)
    except ValueError as error:
        yield str(error)


def _of_kind(search: Any) -> Iterator[str]:
    """List the known faults of a wrapper of scikit-learn."""
    name = type(search).__name__
    for known, needed in _KNOWN.items():
        if isinstance(search, known):
            if isinstance(needed, str):
                yield f"{name} {needed}"
                continue
            for parameter, value in needed.items():
                if getattr(search, parameter) != value:
                    yield f"{name} {_BECAUSE[parameter]}"
    if getattr(search, "resource", None) == "n_samples":  # halves the candidates
        least, most = search.min_resources, search.max_resources
        if not isinstance(least, Integral) or not (most == "auto" or isinstance(most, Integral)):
            yield (
                f"{name} lets the number of classes in y decide how many rows a fit sees: pass "
                "min_resources as an integer."
            )


def _of_cv(search: Any, n_rows: int) -> Iterator[str]:
    """List the faults of the `cv` of a search, from which its fit makes a splitter."""
    cv = search.cv
    if isinstance(cv, str):  # "prefit"
        return
    if isinstance(cv, Iterator):
        yield f"`cv` is a {type(cv).__name__}, which can be read once: pass a list of its splits."
        return
    model = getattr(search, "estimator", search)
    classifier = model is not None and is_classifier(model)
    yield from _of_splitter(check_cv(cv, [0, 1], classifier=classifier), n_rows)


def _of_splitter(splitter: Any, n_rows: int) -> Iterator[str]:
    """List the faults of a splitter."""
    if getattr(splitter, "keeps_persons_apart", False):
        return
    read, stopped, twice = _tried(splitter, n_rows, _MOST_SPLITS)
    if read:
        yield _reads(splitter, read)
    elif stopped is not None:
        name = type(splitter).__name__
        yield f"{name} gives no split from the number of rows alone: {stopped} {_USE}."
    elif twice:
        yield f"{type(splitter).__name__} names a row twice for one fit. {_USE}."


def _reads(splitter: Any, read: list[str]) -> str:
    return (
        f"{type(splitter).__name__} reads {' and '.join(read)}: one person then moves the rows of "
        f"others as well, and each fit is charged for one row. {_USE}."
    )


def _tried(splitter: Any, n_rows: int, most: int) -> tuple[list[str], Exception | None, bool]:
    """Call a splitter on rows without values; return what it reads, its error, if rows repeat."""
    tried, stopped, twice = copy.copy(splitter), None, False
    if hasattr(tried, "random_state"):  # neither its generator nor the global one may move on
        with suppress(AttributeError):
            tried.random_state = 0
    rows, labels, groups = (_Unread(n_rows) for _ in range(3))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of groups that are not needed
            for train, _ in islice(tried.split(rows, labels, groups=groups), most):
                train = np.arange(n_rows)[train]  # of masks, and of places from the end
                twice |= len(np.unique(train)) < len(train)
    except Exception as error:
        stopped = error
    parts = {"the rows": rows, "the labels": labels, "the groups": groups}
    return [name for name, part in parts.items() if part.was_read], stopped, twice


def faults_of_callers() -> tuple[str, ...]:
    """List the faults of scikit-learn's searches that are calling, in this thread."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "sklearn":
            found += _seen_in(frame.f_locals)
        frame = frame.f_back
    return tuple(dict.fromkeys(found))


def _seen_in(names: Mapping[str, Any]) -> Iterator[str]:
    owner, splitter = names.get("self"), names.get("cv")
    splitter = getattr(splitter, "base_cv", splitter)  # of a halving search
    if is_wrapper(owner):
        yield from _of_kind(owner)
    if hasattr(splitter, "split") and not isinstance(splitter, str):
        n_rows = 1000
        with suppress(Exception):  # of rows without a number
            n_rows = _n_rows(names["X"])
        read, _, _ = _tried(splitter, n_rows, 1)
        read = [name for name in read if name != "the groups"]  # which may be public
        yield from [_reads(splitter, read)] if read else []
