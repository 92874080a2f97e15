"""What the pictures of scores by group, and of accuracy against parity, draw."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from skdpot.datasets import make_biased_classification
from skdpot.fair.rates import equalized_odds_ratios
from skdpot.metrics import FairnessDisplay, FairnessFrontierDisplay, disparate_impact

X, y, group = make_biased_classification(900, random_state=0)
names = np.where(y == 1, "yes", "no")
sex = pd.Series(np.where(group == 1, "women", "men"), name="sex")
model = LogisticRegression().fit(X, names)
ridge = RidgeClassifier().fit(X, names)
probability = model.predict_proba(X)[:, 1]
BY_SEX = {"sensitive_features": sex}


def assert_histograms(display, rows_of, limits=(0, 1)):
    """Heights of stepped histograms, from the vertices of their outlines."""
    for key, artists in display.histograms_.items():
        vertices = artists[0].get_xy()
        heights = vertices[1 : 2 * ((len(vertices) - 1) // 4) + 1 : 2, 1]
        due, _ = np.histogram(display.scores[rows_of(key)], 40, range=limits, density=True)
        np.testing.assert_allclose(heights, due)


@pytest.mark.parametrize("estimator", [model, ridge])
@pytest.mark.parametrize("positive", ["yes", "no"])
def test_demographic_parity_picture(estimator, positive):
    display = FairnessDisplay.from_estimator(estimator, X, names, pos_label=positive, **BY_SEX)
    assert list(display.line_.get_xdata()) == [0.5 if estimator is model else 0.0] * 2
    impact = disparate_impact(estimator.predict(X), pos_label=positive, **BY_SEX)
    expected = {"accuracy": estimator.score(X, names), "disparate impact": impact}
    assert display.metrics == pytest.approx(expected)
    assert display.group_name == "sex"
    scores = display.scores
    limits = (0, 1) if estimator is model else (scores.min(), scores.max())
    assert_histograms(display, lambda group: (sex == group).to_numpy(), limits)


def test_equalized_odds_picture():
    options = {"fairness": "equalized_odds", "reference": "women", **BY_SEX}
    display = FairnessDisplay.from_estimator(model, X, names, **options)
    odds = {"pos_label": "yes", "reference": "women", **BY_SEX}
    ratios = equalized_odds_ratios(names, model.predict(X), **odds)
    due = {"accuracy": model.score(X, names), **ratios.rename("EO ratio ({})".format)}
    assert display.metrics == pytest.approx(due)
    assert list(display.histograms_) == [(a, b) for a in ("men", "women") for b in ("no", "yes")]
    assert_histograms(display, lambda key: (sex == key[0]).to_numpy() & (names == key[1]))
    rows = (group == 0) | (y == 1)  # a cell without rows is not drawn
    with pytest.warns(UndefinedMetricWarning):
        display = FairnessDisplay.from_predictions(
            y[rows], probability[rows], sensitive_features=sex[rows], fairness="equalized_odds"
        )
    assert list(display.histograms_) == [("men", 0), ("men", 1), ("women", 1)]


@pytest.mark.parametrize(
    ("fairness", "figure", "label"),
    [
        ("equal_opportunity", "TPR ratio (yes)", "yes"),
        ("predictive_equality", "FPR ratio (no)", "no"),
    ],
)
def test_every_notion_has_a_picture(fairness, figure, label):
    display = FairnessDisplay.from_estimator(model, X, names, fairness=fairness, **BY_SEX)
    assert list(display.metrics) == ["accuracy", figure]
    of_class = names == label
    ratio = disparate_impact(
        model.predict(X)[of_class], sensitive_features=sex[of_class], pos_label="yes"
    )
    assert display.metrics[figure] == pytest.approx(ratio)
    assert list(display.histograms_) == [(a, b) for a in ("men", "women") for b in ("no", "yes")]


RESULTS = pd.DataFrame(
    [
        ("plain", 0.0, 0.30, 0.84),
        ("fair", 0.9, 0.95, 0.82),
        ("fair", 0.9, 0.91, 0.80),
        ("fair", 0.5, 0.50, 0.83),
        ("worse", 0.0, 0.50, 0.80),
        ("twin", 0.0, 0.30, 0.84),
    ],
    columns=["model", "alpha", "disparate_impact", "accuracy"],
)


def test_repeats_become_one_point_with_bars():
    display = FairnessFrontierDisplay.from_results(RESULTS, method="model", settings="alpha")
    points = display.points.set_index("method")
    spread = np.std([0.95, 0.91], ddof=1)
    assert points.index.tolist() == ["plain", "fair", "fair", "worse", "twin"]
    np.testing.assert_allclose(points["parity"], [0.3, 0.93, 0.5, 0.5, 0.3])
    np.testing.assert_allclose(points["accuracy"], [0.84, 0.81, 0.83, 0.8, 0.84])
    np.testing.assert_allclose(points["parity_std"], [np.nan, spread, np.nan, np.nan, np.nan])
    # Equal points are both on the front: neither beats the other.
    assert points["on_front"].tolist() == [True, True, True, False, True]
    line, _, bars = display.errorbars_["fair"].lines
    np.testing.assert_allclose(line.get_xydata(), [[0.93, 0.81], [0.5, 0.83]])
    horizontal = bars[0].get_segments()[0][:, 0]
    np.testing.assert_allclose(horizontal, [0.93 - spread, 0.93 + spread])


@pytest.mark.parametrize("higher_is_fairer", [True, False])
def test_front_against_the_definition(higher_is_fairer):
    """The drawn steps are the best accuracy among the points at least as fair."""
    rng = np.random.default_rng(0)
    results = pd.DataFrame(rng.integers(0, 12, (40, 2)) / 12, columns=["gap", "accuracy"])
    results["method"], results["run"] = rng.choice(list("abc"), 40), np.arange(40)
    display = FairnessFrontierDisplay.from_results(
        results, settings=["run"], parity="gap", higher_is_fairer=higher_is_fairer
    )
    sign = 1 if higher_is_fairer else -1
    x, height = display.front_.get_data()
    for parity in rng.uniform(x.min(), x.max(), 50):
        fairer = sign * results["gap"] >= sign * parity
        side = np.searchsorted(x, parity) - (display.front_.get_drawstyle() == "steps-post")
        assert height[side] == results.loc[fairer, "accuracy"].max()


@pytest.mark.parametrize(
    ("fairness", "parity", "on_front"),
    [
        ("demographic_parity", "disparate_impact", [False, True, True]),
        ("equalized_odds", "equalized_odds_difference", [True, True, False]),
        ("equal_opportunity", "equalized_odds_difference", [True, True, False]),
        (None, "wasserstein", [True, False, False]),
    ],
)
def test_a_fit_is_drawn_without_data(fairness, parity, on_front):
    """Points that another one beats are not on the front; lower is better but for accuracies."""
    accuracy = "accuracy" if fairness else "mean_squared_error"
    figures = {parity: [0.2, 0.2, 0.6], accuracy: [0.7, 0.8, 0.75]}
    if parity == "equalized_odds_difference":
        figures = {parity: [0.1, 0.2, 0.6], accuracy: [0.7, 0.8, 0.75]}
    errors = {f"{name}_se": [0.01, 0.02, 0.03] for name in figures}
    fitted = SimpleNamespace(frontier_=pd.DataFrame(figures | errors))
    fitted.fairness = fairness or "demographic_parity"  # regressors have one too
    display = FairnessFrontierDisplay.from_estimator(fitted, name="ours")
    assert display.points["on_front"].tolist() == on_front
    assert display.points["accuracy_std"].tolist() == [0.01, 0.02, 0.03]
    assert set(display.errorbars_) == {"ours"}
    assert display.ax_.get_xlabel() == parity.replace("_", " ")
