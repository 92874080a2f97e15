"""Fairness metrics against Fairlearn, definitions written out, and hand-made cases."""

import pickle
import warnings
from itertools import combinations

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

from skdpot.datasets import make_biased_classification
from skdpot.fair.rates import equalized_odds_ratios
from skdpot.metrics import (
    demographic_parity_difference,
    disparate_impact,
    equalized_odds_difference,
    make_parity_scorer,
    wasserstein_parity,
)

quick = settings(max_examples=25, deadline=None)
GROUP_NAMES = st.sampled_from([(0, 1, 2, 3), ("a", "b", "c", "d"), (5, -1, 7, 2), (True, False)])


@st.composite
def decisions(draw, max_groups=4):
    """True classes, decisions and groups; every group occurs, and not every class in each."""
    names = draw(GROUP_NAMES)
    k = draw(st.integers(2, min(max_groups, len(names))))
    rows = draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, k - 1)), min_size=8)
    )
    y_true, y_pred, group = np.array([*rows, *((0, 0, a) for a in range(k))]).T
    order = draw(st.permutations(range(len(group))))
    kind = np.array(draw(st.sampled_from([(0, 1), (-1, 1)])))
    return kind[y_true][order], kind[y_pred][order], np.array(names)[group][order]


@given(rows=decisions())
@settings(max_examples=15, deadline=None)
def test_differences_and_ratios_equal_fairlearn(rows):
    y_true, y_pred, group = rows
    by_group = {"sensitive_features": group}
    difference = fl.demographic_parity_difference(*rows[:2], **by_group)
    assert demographic_parity_difference(y_pred, **by_group) == pytest.approx(difference)
    cells = pd.crosstab(group, y_true).reindex(columns=[y_true.min(), 1], fill_value=0)
    assume((cells > 0).to_numpy().all() and (y_pred == 1).any())
    ratio = fl.demographic_parity_ratio(*rows[:2], **by_group)
    assert disparate_impact(y_pred, **by_group) == pytest.approx(ratio)
    rates = {1: fl.true_positive_rate, y_true.min(): fl.false_positive_rate}
    frame = fl.MetricFrame(metrics=rates, y_true=y_true, y_pred=y_pred, **by_group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        ratios = equalized_odds_ratios(*rows[:2], **by_group)
    assert ratios.to_dict() == pytest.approx(frame.ratio().to_dict(), nan_ok=True)
    difference = fl.equalized_odds_difference(*rows[:2], **by_group)
    assert equalized_odds_difference(*rows[:2], **by_group) == pytest.approx(difference)


@given(rows=decisions(max_groups=2))
@quick
def test_directed_ratios_are_the_equations(rows):
    """Equations (17), (19) and (20) word for word: P(G=1 | A=0 [, Y=y]) / P(G=1 | A=1 [, Y=y])."""
    y_true, y_pred, group = rows
    first, second = np.unique(group)
    assume(pd.crosstab(group, y_true).to_numpy().all())

    def ratio(condition):
        p = [np.mean(y_pred[(group == a) & condition] == 1) for a in (first, second)]
        return np.nan if p == [0, 0] else np.inf if p[1] == 0 else p[0] / p[1]

    options = {"sensitive_features": group, "reference": second}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        assert disparate_impact(y_pred, **options) == pytest.approx(ratio(True), nan_ok=True)
        odds = equalized_odds_ratios(y_true, y_pred, **options).to_dict()
    due = {y: ratio(y_true == y) for y in np.unique(y_true)}
    assert odds == pytest.approx(due, nan_ok=True)


HAND = {
    "y_true": ["yes", "yes", "no", "no", "yes", "yes", "no", "no"],
    "y_pred": ["yes", "no", "no", "yes", "yes", "yes", "no", "yes"],
    "sex": ["f", "f", "f", "f", "m", "m", "m", "m"],
}
CONTAINERS = {
    "list": lambda column: column,
    "column": lambda column: np.array(column)[:, np.newaxis],
    "pandas": lambda column: pd.Series(column, index=range(7, -1, -1)),
    "frame": lambda column: pd.DataFrame({"column": column}),
    "polars": pl.Series,
    "polars category": lambda column: pl.Series(column, dtype=pl.Categorical),
    "polars frame": lambda column: pl.DataFrame({"column": column}),
}


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_by_hand_in_any_container(container):
    y_true, y_pred, sex = map(container, HAND.values())
    options = {"sensitive_features": sex, "pos_label": "yes"}
    assert disparate_impact(y_pred, **options) == pytest.approx(2 / 3)
    assert disparate_impact(y_pred, reference="f", **options) == pytest.approx(1.5)
    assert demographic_parity_difference(y_pred, **options) == 0.25
    assert equalized_odds_ratios(y_true, y_pred, **options).to_dict() == {"no": 1.0, "yes": 0.5}
    assert equalized_odds_difference(y_true, y_pred, **options) == 0.5


NOBODY, TRUE, BOTH = [0, 0, 0, 0], [0, 1, 0, 1], {"sensitive_features": ["a", "a", "b", "b"]}


def test_what_is_not_defined_is_nan_with_a_warning():
    """Nobody is selected, or a group has no row in a class (Fairlearn counts its rate as 0)."""
    alone = [0, 1, 0, 0]
    for call, message in (
        (lambda: disparate_impact(NOBODY, **BOTH), "the disparate impact is 0/0"),
        (lambda: equalized_odds_ratios(TRUE, NOBODY, **BOTH)[1], r"not defined, in classes \[0, 1"),
        (lambda: equalized_odds_difference(alone, TRUE, **BOTH), "nan for group 'b' in class 1"),
        (lambda: wasserstein_parity(TRUE, y_true=alone, **BOTH), "no row of some class"),
    ):
        with pytest.warns(UndefinedMetricWarning, match=message):
            assert np.isnan(call())
    assert demographic_parity_difference(NOBODY, **BOTH) == 0.0
    assert demographic_parity_difference(["no"] * 4, pos_label="yes", **BOTH) == 0.0
    assert equalized_odds_difference(TRUE, NOBODY, **BOTH) == 0.0


NO_LABELS = r"sensitive_features holds .* \("
BAD_GROUPS = [
    (["a", "a", "a", "a"], "two or more groups to compare"),
    (["a", "b", "a"], "inconsistent numbers of samples"),
    (["a", None, "a", "b"], NO_LABELS + "(mixed or missing|NaN)"),
    (pl.Series(["a", None, "a", "b"]), NO_LABELS + "(mixed or missing|NaN)"),
    (pd.array(["a", pd.NA, "a", "b"]), NO_LABELS + "(mixed or missing|NaN)"),
    ([0.5, 1.5, 0.5, 1.5], NO_LABELS + "continuous"),
    (np.zeros((4, 2)), r"sensitive_features should be a 1d .* \(4, 2\) .* Join several columns"),
    (None, r"sensitive_features should be a 1d array, got an array of shape \(\)"),
]
ODDS, PARITY = equalized_odds_ratios, wasserstein_parity
BAD_DECISIONS = [
    (disparate_impact, ([0.2, 0.7, 0.1, 0.9],), {}, r"y_pred holds .* \(continuous\)"),
    (disparate_impact, ([0, 1, 2, 2],), {}, "Without pos_label, y_pred must hold 0 and 1"),
    (ODDS, (list("abab"), list("abba")), {}, "Without pos_label, y_true and y_pred"),
    (disparate_impact, (list("abab"),), {"pos_label": "A"}, "pos_label='A' is not among the"),
    (ODDS, (["0", "1", "0", "1"], TRUE), {}, "labels of different kinds"),
    (disparate_impact, (TRUE,), {"reference": "c"}, "reference='c' is not among the gr"),
    (
        *(ODDS, ([1, 1, 1, 1], [0, 1, 1, 1])),
        *({"sensitive_features": list("abcc"), "reference": "a"}, "is for two groups"),
    ),
    (PARITY, (range(4),), {"y_true": [0.1, 0.2, 0.3, 0.4]}, r"y_true .*continuous"),
    (PARITY, ([0, 1, 0, np.nan],), {}, "scores must hold finite numbers, without NaN"),
    (PARITY, (np.eye(4),), {"n_projections": 0}, "n_projections == 0, must be >= 1"),
]
REFUSED = BAD_DECISIONS + [
    (metric, (TRUE,), {"sensitive_features": group}, message)
    for metric in (disparate_impact, PARITY)
    for group, message in BAD_GROUPS
]


@pytest.mark.parametrize(("metric", "columns", "options", "message"), REFUSED)
def test_what_is_refused(metric, columns, options, message):
    with pytest.raises(ValueError, match=message):
        metric(*columns, **(BOTH | options))


@given(
    scores=st.lists(st.integers(0, 4).map(lambda k: k / 4), min_size=6, max_size=12),
    n_groups=st.integers(2, 4),
    seed=st.integers(0, 99),
)
@quick
def test_wasserstein_parity_is_the_mean_over_pairs(scores, n_groups, seed):
    """Against quantile functions on a common grid: sizes 1-11 divide 27720 (or 1-12)."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.arange(len(scores)) % n_groups)
    values = np.array(scores)
    quantiles = [
        np.repeat(np.sort(values[group == a]), 27720 // np.sum(group == a)) for a in range(n_groups)
    ]
    expected = np.mean([np.sqrt(np.mean((u - v) ** 2)) for u, v in combinations(quantiles, 2)])
    assert wasserstein_parity(values, sensitive_features=group) == pytest.approx(expected)
    assert wasserstein_parity(values[:, None], sensitive_features=group) == pytest.approx(expected)
    # With classes the mean over these: here of the values and of twice the values.
    twice = {"sensitive_features": np.tile(group, 2), "y_true": np.repeat([0, 1], len(group))}
    found = wasserstein_parity(np.concatenate([values, 2 * values]), **twice)
    assert found == pytest.approx(1.5 * expected)


# Scores of searches -------------------------------------------------------------------------

X, Y, SEX = make_biased_classification(600, random_state=0)


@pytest.mark.parametrize(
    ("metric", "sign", "method"),
    [
        (disparate_impact, 1, "predict"),
        (demographic_parity_difference, -1, "predict"),
        (wasserstein_parity, -1, "predict_proba"),
    ],
)
def test_a_score_is_the_metric_of_the_predictions(metric, sign, method):
    """In a search too, which copies and pickles it."""
    scorer = make_parity_scorer(metric, greater_is_better=sign > 0, response_method=method)
    scorer = pickle.loads(pickle.dumps(scorer))
    model = LogisticRegression().fit(X, Y)
    predicted = model.predict(X) if method == "predict" else model.predict_proba(X)[:, 1]
    expected = sign * metric(predicted, sensitive_features=SEX)
    with config_context(enable_metadata_routing=True):
        assert scorer(model, X, Y, sensitive_features=SEX) == pytest.approx(expected)
        scores = cross_validate(model, X, Y, scoring=scorer, params={"sensitive_features": SEX})
    assert np.isfinite(scores["test_score"]).all()
