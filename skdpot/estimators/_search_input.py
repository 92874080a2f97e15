"""What a private search is given, checked before anything is charged."""

from collections.abc import Iterator
from typing import Any

import sklearn
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import process_routing

from skdpot._utils.labels import LabelWords, encode_labels
from skdpot._utils.validation import validate_rows, validate_targets
from skdpot.estimators._search_parts import parts_of

__all__ = ["check_candidates", "count_rows", "read_options", "read_rows_and_targets"]

_LABELS = LabelWords(needed_by="A classifier")
_N_CHECKED = 20  # candidates of which parameters are checked


def check_candidates(estimator: Any, distributions: Any) -> None:
    """Refuse candidates with parameters that their estimator does not take.

    Parameters
    ----------
    estimator : estimator
        What is searched.
    distributions : dict or list of dict
        Of the candidates; of large or infinite ones some are tried.

    Raises
    ------
    ValueError
        If a parameter does not exist or is out of range.
    """
    for parameters in _some_candidates(distributions):
        candidate = sklearn.clone(estimator).set_params(**parameters)
        for part in parts_of(candidate):
            if hasattr(part, "_parameter_constraints"):
                part._validate_params()


def count_rows(X: Any) -> int:
    """Return the number of rows of an array or a table."""
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) > 0:
        return int(shape[0])
    try:
        return len(X)
    except TypeError:
        raise TypeError(f"X must be an array or a table, got {type(X).__name__}.") from None


def read_rows_and_targets(search: Any, X: Any, y: Any) -> tuple[int, Any]:
    """Refuse what no candidate could be fitted to.

    Parameters
    ----------
    search : PrivateSearchCV
        Receives ``n_features_in_``, ``feature_names_in_`` and ``classes_``.
    X, y : array-like
        Private rows and their targets.

    Returns
    -------
    n_samples : int
        Number of rows.
    y : ndarray, object or None
        Targets, as a column for classifiers and as numbers for regressors.

    Raises
    ------
    ValueError, TypeError
        With a message that quotes no value.
    """
    tags = get_tags(search.estimator)
    if tags.input_tags.string or tags.input_tags.categorical:
        n_samples = count_rows(X)
    else:
        n_samples = len(validate_rows(search, X, reset=True, min_samples=2))
    if is_classifier(search.estimator):
        codes, search.classes_ = encode_labels(y, n_samples, words=_LABELS)
        return n_samples, search.classes_[codes]
    if is_regressor(search.estimator):
        return n_samples, validate_targets(y, n_samples)
    if y is not None and count_rows(y) != n_samples:
        raise ValueError(
            f"y has {count_rows(y)} values for {n_samples} rows of X; inconsistent numbers of "
            "samples. Pass one a row."
        )
    return n_samples, y


def read_options(search: Any, fit_params: dict[str, Any], n_samples: int) -> dict[str, Any]:
    """Return what the fits of the candidates take besides, a value a row.

    Parameters
    ----------
    search : PrivateSearchCV
        Routes metadata where that is enabled.
    fit_params : dict
        What `fit` was given.
    n_samples : int
        Number of rows.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        If something has another length: it could not be split.
    """
    given = {name: value for name, value in fit_params.items() if value is not None}
    if given and sklearn.get_config()["enable_metadata_routing"]:
        given = dict(process_routing(search, "fit", **given).estimator.fit)
    for name, value in given.items():
        if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != n_samples:
            raise ValueError(
                f"{type(search).__name__}.fit: `{name}` must hold one value for each of the "
                f"{n_samples} rows, so that it can be split with them. Set other options as "
                "parameters of the estimator."
            )
    return given


def _some_candidates(given: Any) -> Iterator[dict[str, Any]]:
    """Yield the candidates of a small grid, or some of a large one or of a law."""
    lists = given if isinstance(given, list) else [given]
    if any(hasattr(values, "rvs") for one in lists for values in one.values()):
        yield from ParameterSampler(given, _N_CHECKED, random_state=check_random_state(0))
        return
    n_candidates = min(len(ParameterGrid(lists)), _N_CHECKED)
    yield from ParameterSampler(given, n_candidates, random_state=check_random_state(0))
