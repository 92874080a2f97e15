"""Metrics of fairness between groups."""

import warnings
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import make_scorer
from sklearn.utils import check_consistent_length

from skdpot._utils.finite import FINITE, as_finite, as_points
from skdpot._utils.labels import label_column
from skdpot.fair.notions import DEMOGRAPHIC_PARITY, EQUALIZED_ODDS, FairnessNotion
from skdpot.ot.distances import directions_of
from skdpot.ot.transport import sliced_distance


def as_labels(values: Any, name: str) -> np.ndarray:
    """Return a column of labels, from any container: booleans, integers or strings, all known."""
    labels, fault = label_column(values, name)
    if fault:
        raise ValueError(
            f"{name} holds values that are not labels ({fault}). Labels are integers, strings or "
            "booleans; drop rows without a label, or give them a separate one."
        )
    if labels.dtype.kind == "f":
        doubles = labels.astype(np.float64)
        return doubles.astype(np.int64) if (np.abs(doubles) < 2.0**63).all() else doubles
    return labels


def group_codes(sensitive_features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups that occur, sorted, and the position of each row's group in them."""
    groups, codes = np.unique(sensitive_features, return_inverse=True)
    if len(groups) < 2:
        raise ValueError(
            f"sensitive_features must hold two or more groups to compare; it holds {len(groups)}."
        )
    return groups, codes


def find_positive(pos_label: Any, **columns: np.ndarray) -> Any:
    """Return the label that means "selected", by the rules of scikit-learn's metrics."""
    name = " and ".join(columns)
    kinds = {column.dtype.kind in "UO" for column in columns.values()}
    if len(kinds) > 1:
        raise ValueError(f"{name} hold labels of different kinds, strings and numbers.")
    known = np.unique(np.concatenate(list(columns.values()))).tolist()
    if pos_label is None:
        if set(known) <= {0, 1} or set(known) <= {-1, 1}:
            return 1
        raise ValueError(
            f"Without pos_label, {name} must hold 0 and 1, or -1 and 1. Pass the label of the "
            "favorable decision, such as pos_label='yes'."
        )
    # One label alone may be a model that decides alike for all; two others are a slip.
    missing = pos_label not in known and len(known) > 1
    if missing or isinstance(pos_label, str) not in kinds:
        raise ValueError(f"pos_label={pos_label!r} is not among the labels of {name}.")
    return pos_label


def compared_rates(
    notion: FairnessNotion,
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
) -> pd.DataFrame:
    """Return the selection rates that a notion compares: a row per group, a column per class.

    Where all members of a group are compared, there is one column, and `y_true` is not read.
    """
    columns = {"y_true": y_true, "y_pred": y_pred} if notion.given_class else {"y_pred": y_pred}
    labels = {name: as_labels(values, name) for name, values in columns.items()}
    groups = as_labels(sensitive_features, "sensitive_features")
    check_consistent_length(*labels.values(), groups)
    positive = find_positive(pos_label, **labels)
    group_codes(groups)
    classes = labels.get("y_true", np.zeros(len(groups)))
    selected = labels["y_pred"] == positive
    rows = pd.DataFrame({"group": groups, "y_true": classes, "selected": selected})
    rates = rows.groupby(["group", "y_true"])["selected"].mean().unstack()
    if notion.given_class:
        is_positive = (rates.columns == positive).astype(int)
        rates = rates.loc[:, np.isin(is_positive, notion.compared_classes())]
    names, known = rates.index.tolist(), rates.columns.tolist()
    empty = [
        f"group {names[i]!r} in class {known[j]!r}" for i, j in np.argwhere(rates.isna().to_numpy())
    ]
    if empty:
        warn_of_undefined(f"Without rows a rate is not defined: nan for {'; '.join(empty)}.")
    return rates


def warn_of_undefined(reason: str) -> None:
    """Warn that a figure is NaN, as scikit-learn's metrics do."""
    warnings.warn(reason, UndefinedMetricWarning, stacklevel=3)


def wasserstein_parity(
    scores: ArrayLike,
    *,
    sensitive_features: Any,
    y_true: Any = None,
    n_projections: int = 256,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    """Mean Wasserstein-2 distance between the score distributions of two groups.

    The mean is over all pairs of groups; 0 is demographic parity at every threshold. With `y_true`
    the distances are averaged over the true classes; 0 is then equalized odds at every threshold.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, d)
        Scores, such as the probability of the positive class, predictions of a regressor, or codes
        of an encoder. With several columns the distance is sliced.
    sensitive_features, y_true : array-like of shape (n,)
        Group and, optionally, true class of each row: booleans, integers or strings; two or more
        groups.
    n_projections : int, default=256
        Number of directions for several columns, rounded up to a multiple of d.
    random_state : int, RandomState or None, default=0
        Seed of the directions, shared by all pairs.

    Returns
    -------
    float
        Mean of the distances W_2 (not squared), in the unit of the scores: at most 1 for
        probabilities. Between samples of equal distributions it is of the order of ``1/√n`` for n
        rows per group, not 0. NaN, with a warning, if some group has no row of a class.

    Raises
    ------
    ValueError
        If a column is not usable, or only one group occurs.

    Privacy
    -------
    All rows are treated as public: the distance is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import wasserstein_parity
    >>> wasserstein_parity([0.1, 0.4, 0.3, 0.6], sensitive_features=["a", "a", "b", "b"])
    0.2
    """
    values = as_finite(scores, "scores", FINITE)
    points = as_points(values[:, np.newaxis] if values.ndim == 1 else values, "scores")
    groups = as_labels(sensitive_features, "sensitive_features")
    labels = np.zeros(len(points), dtype=int) if y_true is None else as_labels(y_true, "y_true")
    check_consistent_length(points, groups, labels)
    names, codes = group_codes(groups)
    directions = directions_of(points.shape[1], n_projections, random_state)
    distances = []
    for label in np.unique(labels):
        cells = [points[(codes == code) & (labels == label)] for code in range(len(names))]
        if min(map(len, cells)) == 0:
            warn_of_undefined("Some group has no row of some class of y_true: nan.")
            return float("nan")
        distances += [
            sliced_distance(first, second, directions) for first, second in combinations(cells, 2)
        ]
    return float(np.mean(distances))


def disparate_impact(
    y_pred: Any, *, sensitive_features: Any, pos_label: Any = None, reference: Any = None
) -> float:
    """Ratio of the selection rates of the worst and the best treated group.

    1 is parity; the "four-fifths rule" requires 0.8. With `reference` it is the directed ratio of
    [1]_, which exceeds 1 when the reference group is treated worse:
    ``P(G = positive | A = other) / P(G = positive | A = reference)``.

    Parameters
    ----------
    y_pred, sensitive_features : array-like of shape (n,)
        Decisions G and group A of each row: booleans, integers or strings; two or more groups.
    pos_label : label, optional
        The favorable decision; 1 when the labels are 0 and 1 or −1 and 1.
    reference : label, optional
        Group whose rate is the denominator; for two groups only. Equation (17) of [1]_ is
        ``reference=1`` with groups 0 and 1. By default the denominator is the largest rate.

    Returns
    -------
    float
        The ratio: in [0, 1] without a reference, where it equals
        ``fairlearn.metrics.demographic_parity_ratio``. NaN, with a warning, if no group is
        ever selected; infinity if the reference group alone never is.

    Raises
    ------
    ValueError
        If the labels are not usable, or `reference` does not occur or is given for more than two
        groups.

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
    ratios = rate_ratios(
        DEMOGRAPHIC_PARITY,
        None,
        y_pred,
        sensitive_features=sensitive_features,
        pos_label=pos_label,
        reference=reference,
    )
    return float(ratios.iloc[0])


def demographic_parity_difference(
    y_pred: Any, *, sensitive_features: Any, pos_label: Any = None
) -> float:
    """Largest difference between the selection rates of two groups.

    Parameters
    ----------
    y_pred, sensitive_features : array-like of shape (n,)
        Decision and group of each row: booleans, integers or strings; two or more groups.
    pos_label : label, optional
        The favorable decision; 1 when the labels are 0 and 1 or −1 and 1.

    Returns
    -------
    float
        The difference, in [0, 1]; 0 is parity. Equals
        ``fairlearn.metrics.demographic_parity_difference``.

    Raises
    ------
    ValueError
        If the labels are not usable.

    Privacy
    -------
    All rows are treated as public: the difference is computed from them without noise.

    Examples
    --------
    >>> from skdpot.metrics import demographic_parity_difference
    >>> demographic_parity_difference([1, 0, 1, 1], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    return largest_rate_difference(
        DEMOGRAPHIC_PARITY, None, y_pred, sensitive_features=sensitive_features, pos_label=pos_label
    )


def equalized_odds_ratios(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    pos_label: Any = None,
    reference: Any = None,
) -> pd.Series:
    """Disparate impact among the rows of each true class, which are treated as public."""
    return rate_ratios(
        EQUALIZED_ODDS,
        y_true,
        y_pred,
        sensitive_features=sensitive_features,
        pos_label=pos_label,
        reference=reference,
    )


def equalized_odds_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, pos_label: Any = None
) -> float:
    """Largest difference between the selection rates of two groups within one true class.

    Parameters
    ----------
    y_true, y_pred, sensitive_features : array-like of shape (n,)
        True class, decision in the same labels, and group of each row: booleans, integers or
        strings; two or more groups.
    pos_label : label, optional
        The favorable decision; 1 when the labels are 0 and 1 or −1 and 1.

    Returns
    -------
    float
        The difference, in [0, 1]; 0 is parity. NaN, with a warning, if some group has no row
        of a class. Otherwise equals ``fairlearn.metrics.equalized_odds_difference`` with its
        default ``agg="worst_case"``.

    Raises
    ------
    ValueError
        If the labels are not usable.

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
    return largest_rate_difference(
        EQUALIZED_ODDS, y_true, y_pred, sensitive_features=sensitive_features, pos_label=pos_label
    )


def largest_rate_difference(
    notion: FairnessNotion, y_true: Any, y_pred: Any, **columns: Any
) -> float:
    """Return the largest difference of two groups' rates, with options of `compared_rates`."""
    rates = compared_rates(notion, y_true, y_pred, **columns)
    return float((rates.max(skipna=False) - rates.min(skipna=False)).max(skipna=False))


def rate_ratios(
    notion: FairnessNotion, y_true: Any, y_pred: Any, *, reference: Any = None, **columns: Any
) -> pd.Series:
    """Return the ratio of the smallest to the largest rate, or of the other to the reference.

    There is one for each column of `compared_rates`, with its options.
    """
    rates = compared_rates(notion, y_true, y_pred, **columns)
    ratios = _ratios(rates, reference)
    undefined = ratios.index[ratios.isna()].tolist()
    if undefined and notion.given_class:
        warn_of_undefined(f"The ratio is nan, for it is not defined, in classes {undefined}.")
    elif undefined:
        warn_of_undefined("No group is ever selected: the disparate impact is 0/0, nan.")
    return ratios


def _ratios(rates: pd.DataFrame, reference: Any) -> pd.Series:
    """Divide the smallest rate of each column by the largest, or the other by the reference."""
    if reference is None:
        return rates.min(skipna=False) / rates.max(skipna=False)
    groups = rates.index.tolist()
    if reference not in groups:
        raise ValueError(f"reference={reference!r} is not among the groups {groups}.")
    if len(groups) > 2:
        raise ValueError(
            f"reference= is for two groups, and {len(groups)} occur; omit it to compare the "
            "smallest rate with the largest."
        )
    at = groups.index(reference)  # by position: to pandas True is no label of 1
    return rates.iloc[1 - at] / rates.iloc[at]


def make_parity_scorer(
    metric: Callable[..., float],
    *,
    greater_is_better: bool,
    response_method: str = "predict",
    **options: Any,
) -> Any:
    """Make a scorer from a metric of parity, which depends on predictions and groups only.

    Parameters
    ----------
    metric : callable
        ``metric(predictions, *, sensitive_features, **options)``: `disparate_impact`,
        `demographic_parity_difference` or `wasserstein_parity`.
    greater_is_better : bool
        True for `disparate_impact`; False for the others, whose sign is then flipped.
    response_method : str, default="predict"
        Method that predicts; "predict_proba" or "decision_function" for `wasserstein_parity`.
    **options : dict
        Further arguments of the metric, such as `pos_label`.

    Returns
    -------
    scorer
        Requests `sensitive_features` if metadata routing is enabled:
        ``sklearn.set_config(enable_metadata_routing=True)``.

    Privacy
    -------
    Scored rows are treated as public, and so are the scores and the choice of a search.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import KFold, cross_validate
    >>> from skdpot.datasets import make_biased_classification
    >>> from skdpot.metrics import disparate_impact, make_parity_scorer
    >>> X, y, group = make_biased_classification(1000, random_state=0)
    >>> scorer = make_parity_scorer(disparate_impact, greater_is_better=True)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     scores = cross_validate(
    ...         LogisticRegression(), X, y, cv=KFold(5), scoring=scorer,
    ...         params={"sensitive_features": group},
    ...     )
    >>> scores["test_score"].shape
    (5,)
    """
    scorer = make_scorer(
        _of_predictions,
        metric=metric,
        greater_is_better=greater_is_better,
        response_method=response_method,
        **options,
    )
    with config_context(enable_metadata_routing=True):
        return scorer.set_score_request(sensitive_features=True)


def _of_predictions(
    y_true: Any, y_pred: Any, *, metric: Callable[..., float], **options: Any
) -> float:
    return float(metric(y_pred, **options))
