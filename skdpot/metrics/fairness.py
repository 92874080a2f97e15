"""How differently a model treats groups of people."""

from typing import Any

import numpy as np
import pandas as pd

from skdpot.metrics.score_parity import wasserstein_parity
from skdpot.metrics.selection import (
    class_rates,
    group_rates,
    selection_rates,
    warn_of_undefined,
)

__all__ = [
    "demographic_parity_difference",
    "disparate_impact",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_ratios",
    "selection_rates",
    "wasserstein_parity",
]


def disparate_impact(
    y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, reference: Any = None
) -> float:
    """Ratio of the selection rates of the worst and the best treated group.

    1 is parity; the "four-fifths rule" asks for 0.8. With `reference` it is the directed ratio
    of [1]_, which exceeds 1 when the reference group is the one that is treated
    worse: ``P(G = positive | A = other) / P(G = positive | A = reference)``.

    Parameters
    ----------
    y_pred : array-like of shape (n,)
        Decisions G: booleans, integers or strings.
    sensitive_features : array-like of shape (n,)
        Group A of each row. Two or more groups must occur.
    pos_label : label, optional
        The favourable decision; 1 when the labels are 0 and 1 or −1 and 1.
    reference : label, optional
        The group whose rate is the denominator, where there are two groups. Equation (17) of
        [1]_ is ``reference=1`` with groups 0 and 1. By default the largest rate is, among any
        number of groups.

    Returns
    -------
    float
        The ratio: in [0, 1] without a reference, where it equals
        ``fairlearn.metrics.demographic_parity_ratio``. NaN, with a warning, if no group is
        ever selected; infinity if the reference group alone never is.

    Raises
    ------
    ValueError
        If the labels are not usable (see `selection_rates`), `reference` does not occur, or it
        is given for more than two groups.

    Warns
    -----
    UndefinedMetricWarning
        If no group is ever selected.

    See Also
    --------
    wasserstein_parity : The distance between score distributions, for no threshold at all.

    Privacy
    -------
    All rows are treated as public: the ratio is computed from them without noise.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", Appendix B.

    Examples
    --------
    >>> from skdpot.metrics import disparate_impact
    >>> y_pred, group = [1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1]
    >>> disparate_impact(y_pred, sensitive_features=group)
    0.5
    >>> disparate_impact(y_pred, sensitive_features=group, reference=0)
    2.0
    """
    rates = group_rates(y_pred, sensitive_features, pos_label)
    ratio = float(_ratios(rates.to_frame(), reference).iloc[0])
    if np.isnan(ratio):
        warn_of_undefined(
            "No group gets the favourable decision: the disparate impact is 0/0, nan."
        )
    return ratio


def demographic_parity_difference(
    y_pred: Any, *, sensitive_features: Any, pos_label: Any = None
) -> float:
    """Largest difference between the selection rates of two groups.

    Parameters
    ----------
    y_pred : array-like of shape (n,)
        Decisions: booleans, integers or strings.
    sensitive_features : array-like of shape (n,)
        Group of each row. Two or more groups must occur.
    pos_label : label, optional
        The favourable decision; 1 when the labels are 0 and 1 or −1 and 1.

    Returns
    -------
    float
        The difference, in [0, 1]; 0 is parity. Equals
        ``fairlearn.metrics.demographic_parity_difference``, which takes `y_true` as well and
        does not use it.

    Raises
    ------
    ValueError
        If the labels are not usable (see `selection_rates`).

    Privacy
    -------
    All rows are treated as public: the difference is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import demographic_parity_difference
    >>> demographic_parity_difference([1, 0, 1, 1], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    rates = group_rates(y_pred, sensitive_features, pos_label)
    return float(rates.max() - rates.min())


def equalized_odds_ratios(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    reference: Any = None,
) -> pd.Series:
    """Disparate impact among the rows of each true class.

    For class y, ``P(G = positive | A = a, Y = y)`` of the worst treated group over the best
    treated one or, with `reference`, of the other group over the reference.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True classes Y: booleans, integers or strings; two or more.
    y_pred : array-like of shape (n,)
        Decisions G, in the same labels.
    sensitive_features : array-like of shape (n,)
        Group A of each row. Two or more groups must occur.
    pos_label : label, optional
        The favourable decision; 1 when the labels are 0 and 1 or −1 and 1.
    reference : label, optional
        The group whose rate is the denominator, where there are two groups. With groups 0 and
        1, ``reference=1`` gives EO_1 and EO_0 of equations (19) and (20) of [1]_ under the
        indices 1 and 0.

    Returns
    -------
    Series indexed by true class
        One ratio a class; 1 is parity. NaN where no group is ever selected (0/0) or some group
        has no row.

    Raises
    ------
    ValueError
        If the labels are not usable (see `selection_rates`), `reference` does not occur, or it
        is given for more than two groups.

    Warns
    -----
    UndefinedMetricWarning
        If some ratio is not defined.

    See Also
    --------
    equalized_odds_ratio : The smallest of them.

    Privacy
    -------
    All rows are treated as public: the ratios are computed from them without noise.

    References
    ----------
    .. [1] D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
       (sliced) Wasserstein gradients", Appendix B.

    Examples
    --------
    >>> from skdpot.metrics import equalized_odds_ratios
    >>> y_true = [1, 1, 1, 1, 0, 0, 0, 0]
    >>> y_pred = [1, 0, 1, 1, 1, 0, 1, 0]
    >>> group = [0, 0, 1, 1, 0, 0, 1, 1]
    >>> equalized_odds_ratios(y_true, y_pred, sensitive_features=group, reference=1).to_dict()
    {0: 1.0, 1: 0.5}
    """
    ratios = _ratios(class_rates(y_true, y_pred, sensitive_features, pos_label), reference)
    undefined = ratios.index[ratios.isna()].tolist()
    if undefined:
        warn_of_undefined(f"The ratio is nan, for it is not defined, in classes {undefined}.")
    return ratios


def equalized_odds_ratio(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None
) -> float:
    """Smallest of the `equalized_odds_ratios` of the true classes.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True classes: booleans, integers or strings.
    y_pred : array-like of shape (n,)
        Decisions, in the same labels.
    sensitive_features : array-like of shape (n,)
        Group of each row. Two or more groups must occur.
    pos_label : label, optional
        The favourable decision; 1 when the labels are 0 and 1 or −1 and 1.

    Returns
    -------
    float
        The ratio, in [0, 1]; 1 is parity. A class in which no group is ever selected treats
        all groups alike and is left out; NaN, with a warning, if none is left. NaN also if some
        group has no row of a class. Otherwise equals ``fairlearn.metrics.equalized_odds_ratio``
        with its default ``agg="worst_case"``, which counts such a group as never selected.

    Raises
    ------
    ValueError
        If the labels are not usable (see `selection_rates`).

    Warns
    -----
    UndefinedMetricWarning
        If the ratio is not defined.

    Privacy
    -------
    All rows are treated as public: the ratio is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import equalized_odds_ratio
    >>> equalized_odds_ratio(
    ...     [1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1], sensitive_features=[0, 0, 1, 1, 0, 1]
    ... )
    0.5
    """
    rates = class_rates(y_true, y_pred, sensitive_features, pos_label)
    if rates.isna().to_numpy().any():
        return float("nan")
    ratio = float(_ratios(rates, None).min())
    if np.isnan(ratio):
        warn_of_undefined("No group gets the favourable decision: the odds ratio is 0/0, nan.")
    return ratio


def equalized_odds_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None
) -> float:
    """Largest difference between the selection rates of two groups within one true class.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        True classes: booleans, integers or strings.
    y_pred : array-like of shape (n,)
        Decisions, in the same labels.
    sensitive_features : array-like of shape (n,)
        Group of each row. Two or more groups must occur.
    pos_label : label, optional
        The favourable decision; 1 when the labels are 0 and 1 or −1 and 1.

    Returns
    -------
    float
        The difference, in [0, 1]; 0 is parity. NaN, with a warning, if some group has no row
        of a class. Otherwise equals ``fairlearn.metrics.equalized_odds_difference`` with its
        default ``agg="worst_case"``.

    Raises
    ------
    ValueError
        If the labels are not usable (see `selection_rates`).

    Warns
    -----
    UndefinedMetricWarning
        If the difference is not defined.

    Privacy
    -------
    All rows are treated as public: the difference is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import equalized_odds_difference
    >>> equalized_odds_difference(
    ...     [1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 1], sensitive_features=[0, 0, 1, 1, 0, 1]
    ... )
    0.5
    """
    rates = class_rates(y_true, y_pred, sensitive_features, pos_label)
    return float((rates.max(skipna=False) - rates.min(skipna=False)).max(skipna=False))


def _ratios(rates: pd.DataFrame, reference: Any) -> pd.Series:
    """Divide the smallest rate of each column by the largest, or the other by the reference."""
    if reference is None:
        return rates.min(skipna=False) / rates.max(skipna=False)
    groups = rates.index.tolist()
    if reference not in groups:
        raise ValueError(f"reference={reference!r} is not among the groups {groups}.")
    if len(groups) > 2:
        raise ValueError(
            f"reference= is for two groups and {len(groups)} occur; leave it out to compare the "
            "smallest rate with the largest."
        )
    at = groups.index(reference)  # by position: to pandas True is no label of 1
    return rates.iloc[1 - at] / rates.iloc[at]
