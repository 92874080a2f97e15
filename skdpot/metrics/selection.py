"""The rates at which groups get the favourable decision."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import UndefinedMetricWarning

from skdpot.metrics._groups import as_labels, check_same_length, find_positive, group_codes

__all__ = ["class_rates", "group_rates", "selection_rates", "warn_of_undefined"]


def selection_rates(
    y_pred: Any, *, sensitive_features: Any, y_true: Any = None, pos_label: Any = None
) -> pd.Series | pd.DataFrame:
    """Share of each group that gets the favourable decision.

    ``P(G = positive | A = a)`` for every group a or, when `y_true` is given,
    ``P(G = positive | A = a, Y = y)`` for every group and true class. All other functions here
    but `wasserstein_parity` compare these rates.

    Parameters
    ----------
    y_pred : array-like of shape (n,)
        Decisions G: booleans, integers or strings, in any container (pandas and polars too).
    sensitive_features : array-like of shape (n,)
        Group A of each row: booleans, integers or strings. Two or more groups must occur.
    y_true : array-like of shape (n,), optional
        True classes Y.
    pos_label : label, optional
        The favourable decision. May be left out when the labels are 0 and 1 or −1 and 1 (it is
        1 then) or booleans, and must be given otherwise, also when there are three or more.

    Returns
    -------
    Series indexed by group, or DataFrame of shape (n_groups, n_classes)
        The rates, in [0, 1]; NaN, with a warning, for a group that has no row in a class.

    Raises
    ------
    ValueError
        If labels are missing, continuous or of mixed kinds, columns differ in length, only one
        group occurs, or `pos_label` is needed or unknown.

    Warns
    -----
    UndefinedMetricWarning
        If a group has no row in some class.

    Privacy
    -------
    All rows are treated as public: the rates are computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import selection_rates
    >>> rates = selection_rates(
    ...     [1, 1, 0, 0, 1], sensitive_features=["man", "man", "man", "woman", "woman"]
    ... )
    >>> rates.round(2).to_dict()
    {'man': 0.67, 'woman': 0.5}
    """
    if y_true is None:
        return group_rates(y_pred, sensitive_features, pos_label)
    return class_rates(y_true, y_pred, sensitive_features, pos_label)


def group_rates(y_pred: Any, sensitive_features: Any, pos_label: Any) -> pd.Series:
    """Return the selection rate of each group; see `selection_rates`."""
    decisions = as_labels(y_pred, "y_pred")
    groups = as_labels(sensitive_features, "sensitive_features")
    check_same_length(y_pred=decisions, sensitive_features=groups)
    selected = decisions == find_positive(pos_label, y_pred=decisions)
    names, codes = group_codes(groups)
    rates = np.bincount(codes, selected) / np.bincount(codes)
    return pd.Series(rates, pd.Index(names, name="group"))


def class_rates(y_true: Any, y_pred: Any, sensitive_features: Any, pos_label: Any) -> pd.DataFrame:
    """Return the selection rate of each group in each true class; see `selection_rates`."""
    labels = {"y_true": as_labels(y_true, "y_true"), "y_pred": as_labels(y_pred, "y_pred")}
    groups = as_labels(sensitive_features, "sensitive_features")
    check_same_length(**labels, sensitive_features=groups)
    selected = labels["y_pred"] == find_positive(pos_label, **labels)
    names, codes = group_codes(groups)
    classes, class_codes = np.unique(labels["y_true"], return_inverse=True)
    shape = (len(names), len(classes))
    cells = np.ravel_multi_index((codes, class_codes), shape)
    totals = np.bincount(cells, minlength=len(names) * len(classes)).reshape(shape)
    chosen = np.bincount(cells, selected, minlength=totals.size).reshape(shape)
    rates = np.divide(chosen, totals, out=np.full(shape, np.nan), where=totals > 0)
    if (totals == 0).any():
        empty = "; ".join(
            f"group {names.tolist()[i]!r} in class {classes.tolist()[j]!r}"
            for i, j in np.argwhere(totals == 0)
        )
        warn_of_undefined(f"Without rows a rate is not defined: nan for {empty}.")
    return pd.DataFrame(rates, pd.Index(names, name="group"), pd.Index(classes, name="y_true"))


def warn_of_undefined(reason: str) -> None:
    """Warn that a figure is NaN, as scikit-learn's metrics do."""
    warnings.warn(reason, UndefinedMetricWarning, stacklevel=3)
