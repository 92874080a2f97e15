"""What a private search is given, checked before anything is charged."""

from typing import Any

import numpy as np
import sklearn
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import process_routing

from skdpot._utils.labels import LabelWords, encode_labels
from skdpot._utils.validation import validate_rows, validate_targets
from skdpot.privacy.provenance import parts_of

__all__ = ["count_rows", "read_options", "read_rows_and_targets"]

_LABELS = LabelWords(needed_by="A classifier")


def count_rows(X: Any) -> int:
    """Return the number of rows of an array or a table."""
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) > 0:
        return int(shape[0])
    try:
        return len(X)
    except TypeError:
        raise TypeError(f"X must be an array or a table, got {type(X).__name__}.") from None


def read_rows_and_targets(
    search: Any, X: Any, y: Any, by_class: bool
) -> tuple[int, Any, np.ndarray | None]:
    """Refuse what no candidate could be fitted to.

    Parameters
    ----------
    search : PrivateSearchCV
        Receives ``n_features_in_``, ``feature_names_in_`` and ``classes_``.
    X, y : array-like
        Private rows and their targets.
    by_class : bool
        Whether a candidate takes the set of classes from the labels.

    Returns
    -------
    n_samples : int
        Number of rows.
    y : ndarray, object or None
        Targets, as a column for classifiers and as numbers for regressors.
    classes : ndarray or None
        The public set of classes: those that are declared, or all that occur.

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
        declared = _declared_classes(search.estimator)
        codes, search.classes_ = encode_labels(y, n_samples, declared, words=_LABELS)
        return n_samples, search.classes_[codes], search.classes_
    if is_regressor(search.estimator):
        return n_samples, validate_targets(y, n_samples), None
    if y is not None and count_rows(y) != n_samples:
        raise ValueError(
            f"y has {count_rows(y)} values for {n_samples} rows of X; inconsistent numbers of "
            "samples. Pass one a row."
        )
    return n_samples, y, encode_labels(y, n_samples)[1] if by_class else None


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


def _declared_classes(estimator: Any) -> Any:
    """Return the classes that a private part declares, None if none does."""
    declared = (getattr(part, "classes", None) for part in parts_of(estimator))
    return next((classes for classes in declared if classes is not None), None)
