"""What the displays draw, attribute by attribute."""

from itertools import combinations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot.datasets import make_biased_classification
from skdpot.metrics import FairnessDisplay, FairnessFrontierDisplay, disparate_impact
from skdpot.metrics._panels import COLORS
from skdpot.metrics.fairness import equalized_odds_ratios

X, y, group = make_biased_classification(900, random_state=0)
names = np.where(y == 1, "yes", "no")
sex = pd.Series(np.where(group == 1, "women", "men"), name="sex")
model = LogisticRegression().fit(X, names)
probability = model.predict_proba(X)[:, 1]
OPTIONS = {"sensitive_features": sex, "pos_label": "yes"}


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def legend_texts(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def bar_heights(artists):
    """The heights of a stepped histogram, from the vertices of its outline."""
    vertices = artists[0].get_xy()
    return vertices[1 : 2 * ((len(vertices) - 1) // 4) + 1 : 2, 1]


def test_demographic_parity_picture():
    display = FairnessDisplay.from_estimator(model, X, names, sensitive_features=sex)
    predicted = model.predict(X)
    assert display.metrics == {
        "accuracy": pytest.approx(accuracy_score(names, predicted)),
        "disparate impact": pytest.approx(disparate_impact(predicted, **OPTIONS)),
    }
    assert display.figure_ is display.ax_.figure
    assert list(display.histograms_) == ["men", "women"]
    for name, artists in display.histograms_.items():
        expected, _ = np.histogram(
            probability[(sex == name).to_numpy()], 40, range=(0, 1), density=True
        )
        np.testing.assert_allclose(bar_heights(artists), expected)
    assert list(display.line_.get_xdata()) == [0.5, 0.5]
    assert legend_texts(display) == ["men", "women", "threshold"]
    assert display.ax_.get_legend().get_title().get_text() == "sex"
    assert display.ax_.get_xlabel() == "predicted probability of class yes"
    title = display.ax_.get_title()
    assert title.startswith("LogisticRegression\naccuracy = 0.8")
    assert f"disparate impact = {display.metrics['disparate impact']:.2f}" in title


def test_equalized_odds_picture():
    display = FairnessDisplay.from_estimator(
        model, X, names, sensitive_features=sex, fairness="equalized_odds", reference="women"
    )
    ratios = equalized_odds_ratios(names, model.predict(X), reference="women", **OPTIONS)
    assert display.metrics == {
        "accuracy": pytest.approx(model.score(X, names)),
        "EO ratio (no)": pytest.approx(ratios["no"]),
        "EO ratio (yes)": pytest.approx(ratios["yes"]),
    }
    cells = [(a, b) for a in ("men", "women") for b in ("no", "yes")]
    assert list(display.histograms_) == cells
    assert legend_texts(display) == [f"{a}, class {b}" for a, b in cells] + ["threshold"]
    for a, b in cells:
        artists = display.histograms_[a, b]
        rows = (sex == a).to_numpy() & (names == b)
        expected, _ = np.histogram(probability[rows], 40, range=(0, 1), density=True)
        np.testing.assert_allclose(bar_heights(artists), expected)
        # Classes differ in the fill and the outline, groups in the colour.
        assert artists[0].get_fill() == (b == "yes")
        assert (artists[0].get_linestyle() in ("-", "solid")) == (b == "yes")
    edges = {cell: display.histograms_[cell][0].get_edgecolor() for cell in cells}
    assert edges["men", "no"] == edges["men", "yes"] != edges["women", "yes"]


def test_other_class_and_decision_function():
    pipeline = make_pipeline(StandardScaler(), RidgeClassifier()).fit(X, names)
    options = {"sensitive_features": sex}
    display = FairnessDisplay.from_estimator(pipeline, X, names, **options)
    assert display.threshold == 0.0
    assert display.score_name == "decision function for class yes"
    predicted = pipeline.predict(X)
    assert display.metrics["accuracy"] == accuracy_score(names, predicted)
    for estimator in (pipeline, model):
        other = FairnessDisplay.from_estimator(estimator, X, names, pos_label="no", **options)
        assert other.score_name.endswith("class no")
        expected = disparate_impact(estimator.predict(X), pos_label="no", **options)
        assert other.metrics["disparate impact"] == pytest.approx(expected)
        assert other.metrics["accuracy"] == pytest.approx(estimator.score(X, names))
    strict = FairnessDisplay.from_estimator(model, X, names, threshold=0.9, **options)
    assert strict.metrics["disparate impact"] == pytest.approx(
        disparate_impact(probability > 0.9, **options)
    )
    method = "decision_function"
    assert FairnessDisplay.from_estimator(
        model, X, names, response_method=method, **options
    ).scores == pytest.approx(model.decision_function(X))


def test_predictions_and_plot_options():
    _, ax = plt.subplots()
    display = FairnessDisplay.from_predictions(
        y,
        10 * probability,
        sensitive_features=pl.Series("gender", sex.to_list()),
        threshold=5.0,
        name="mine",
        ax=ax,
        bins=[0, 2, 4, 10],
        legend=False,
        density=False,
    )
    assert display.ax_ is ax
    assert display.group_name == "gender"
    assert ax.get_legend() is None
    assert ax.get_title().startswith("mine\n")
    expected, _ = np.histogram(10 * probability[group == 0], [0, 2, 4, 10])
    np.testing.assert_allclose(bar_heights(display.histograms_["men"]), expected)
    again = display.plot(name="yours")
    assert again is display
    assert display.ax_ is not ax
    assert display.ax_.get_title().startswith("yours\n")


def test_rows_in_the_order_given():
    """The index of a pandas column is not a reason to shuffle."""
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = FairnessDisplay.from_predictions(
        pd.Series(y).iloc[order], probability[order], sensitive_features=sex.iloc[order]
    )
    straight = FairnessDisplay.from_predictions(y, probability, sensitive_features=sex)
    assert shuffled.metrics == straight.metrics


@pytest.mark.parametrize("size", [(2.5, 2.5), (4, 3), (6.4, 4.8), (10, 3)])
@pytest.mark.parametrize("n_groups", [2, 5])
def test_text_hides_nothing(size, n_groups):
    """The legend is above the highest bar, and the title no wider than the axes."""
    _, ax = plt.subplots(figsize=size)
    display = FairnessDisplay.from_predictions(
        y, probability, sensitive_features=np.arange(len(y)) % n_groups, ax=ax
    )
    display.figure_.canvas.draw()
    box = ax.get_legend().get_window_extent()
    bars = [artists[0].get_window_extent() for artists in display.histograms_.values()]
    assert max(bar.y1 for bar in bars) < box.y0
    assert box.width <= ax.get_window_extent().width
    assert ax.title.get_window_extent().width <= max(ax.get_window_extent().width, 160)


def closest_colours(colors, matrix):
    """Distance of the two most similar colours, in RGB as seen by the kind of eye."""
    rgb = np.array([mpl.colors.to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(matrix), 0, 1) ** (1 / 2.2)
    return min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    ],
    ids=["protanopia", "deuteranopia", "tritanopia"],
)
def test_colours_differ_for_colour_blind_readers(matrix):
    """Simulated by Machado, Oliveira and Fernandes (2009); matplotlib's own cycle would fail."""
    assert closest_colours(COLORS, matrix) > 0.11
    assert closest_colours(COLORS[:2], matrix) > 0.4
    assert closest_colours([f"C{i}" for i in range(7)], matrix) < 0.11


def test_what_histograms_refuse():
    options = {"sensitive_features": sex}
    with pytest.raises(NotFittedError):
        FairnessDisplay.from_estimator(LogisticRegression(), X, names, **options)
    with pytest.raises(ValueError, match="binary classifier. Got LinearRegression"):
        FairnessDisplay.from_estimator(LinearRegression().fit(X, y), X, y, **options)
    three = LogisticRegression().fit(X, y + (X[:, 0] > 1))
    with pytest.raises(ValueError, match="Got 3 classes instead"):
        FairnessDisplay.from_estimator(three, X, y, **options)
    with pytest.raises(ValueError, match="three or more classes"):
        FairnessDisplay.from_predictions(three.predict(X), probability, pos_label=1, **options)
    with pytest.raises(ValueError, match="pos_label=maybe is not a valid label"):
        FairnessDisplay.from_estimator(model, X, names, pos_label="maybe", **options)
    with pytest.raises(ValueError, match="response_method='predict' must be"):
        FairnessDisplay.from_estimator(model, X, names, response_method="predict", **options)
    with pytest.raises(AttributeError, match="RidgeClassifier has none .* predict_proba"):
        FairnessDisplay.from_estimator(
            RidgeClassifier().fit(X, y), X, y, response_method="predict_proba", **options
        )
    with pytest.raises(ValueError, match="fairness='parity' must be"):
        FairnessDisplay.from_predictions(y, probability, fairness="parity", **options)
    with pytest.raises(ValueError, match="y_score must hold finite numbers"):
        FairnessDisplay.from_predictions(y, np.full(len(y), np.nan), **options)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FairnessDisplay.from_predictions(y, probability[1:], **options)
    with pytest.raises(ValueError, match="8 groups occur and 7 colours can be told apart"):
        FairnessDisplay.from_predictions(y, probability, sensitive_features=np.arange(len(y)) % 8)


def test_a_cell_without_rows_is_not_drawn():
    rows = (group == 0) | (y == 1)
    with pytest.warns(UndefinedMetricWarning):
        display = FairnessDisplay.from_predictions(
            y[rows], probability[rows], sensitive_features=sex[rows], fairness="equalized_odds"
        )
    assert list(display.histograms_) == [("men", 0), ("men", 1), ("women", 1)]
    assert "EO ratio (0) = nan" in display.ax_.get_title()


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
FRONTIER = {"method": "model", "settings": "alpha"}


def test_repeats_become_one_point_with_bars():
    points = FairnessFrontierDisplay.from_results(RESULTS, **FRONTIER).points
    assert points["method"].tolist() == ["plain", "fair", "fair", "worse", "twin"]
    assert points["alpha"].tolist() == [0.0, 0.9, 0.5, 0.0, 0.0]
    np.testing.assert_allclose(points["parity"], [0.3, 0.93, 0.5, 0.5, 0.3])
    np.testing.assert_allclose(points["accuracy"], [0.84, 0.81, 0.83, 0.8, 0.84])
    np.testing.assert_allclose(points.loc[1, "parity_std"], np.std([0.95, 0.91], ddof=1))
    np.testing.assert_allclose(points.loc[1, "accuracy_std"], np.std([0.82, 0.80], ddof=1))
    assert points["parity_std"].isna().tolist() == [True, False, True, True, True]
    # Equal points are both on the front: neither beats the other.
    assert points["on_front"].tolist() == [True, True, True, False, True]
    pooled = FairnessFrontierDisplay.from_results(RESULTS, method="model").points
    assert pooled["method"].tolist() == ["plain", "fair", "worse", "twin"]


def test_frontier_picture():
    display = FairnessFrontierDisplay.from_results(RESULTS, **FRONTIER)
    assert list(display.errorbars_) == ["plain", "fair", "worse", "twin"]
    line, _, bars = display.errorbars_["fair"].lines
    np.testing.assert_allclose(line.get_xydata(), [[0.93, 0.81], [0.5, 0.83]])
    horizontal = bars[0].get_segments()[0]
    np.testing.assert_allclose(
        horizontal[:, 0], 0.93 + np.array([-1, 1]) * np.std([0.91, 0.95], ddof=1)
    )
    front = np.unique(display.front_.get_xydata(), axis=0)
    np.testing.assert_allclose(front, [[0.3, 0.84], [0.5, 0.83], [0.93, 0.81]])
    assert display.ax_.get_xlabel() == "disparate impact"
    assert display.ax_.get_ylabel() == "accuracy"
    assert sorted(legend_texts(display)) == ["Pareto front", "fair", "plain", "twin", "worse"]
    looks = [(e.lines[0].get_color(), e.lines[0].get_marker()) for e in display.errorbars_.values()]
    assert len(set(looks)) == 4
    display.figure_.canvas.draw()
    legend, axes = (a.get_window_extent() for a in (display.ax_.get_legend(), display.ax_))
    assert legend.x0 >= axes.x1  # beside the points, not on them
    assert legend.x1 <= display.figure_.bbox.x1


@pytest.mark.parametrize("higher_is_fairer", [True, False])
def test_front_against_the_definition(higher_is_fairer):
    """The drawn steps are the best accuracy among the points at least as fair."""
    rng = np.random.default_rng(0)
    results = pd.DataFrame(rng.integers(0, 12, (40, 2)) / 12, columns=["gap", "accuracy"])
    results["method"] = rng.choice(list("abc"), 40)
    results["run"] = np.arange(40)
    display = FairnessFrontierDisplay.from_results(
        results, settings=["run"], parity="gap", higher_is_fairer=higher_is_fairer
    )
    sign = 1 if higher_is_fairer else -1
    for _, point in display.points.iterrows():
        fairer = sign * display.points["parity"] >= sign * point["parity"]
        rivals = display.points[fairer]
        beaten = (rivals["accuracy"] > point["accuracy"]).any() or (
            (rivals["accuracy"] == point["accuracy"]) & (rivals["parity"] != point["parity"])
        ).any()
        assert point["on_front"] == (not beaten)
    x, height = display.front_.get_data()
    for parity in rng.uniform(x.min(), x.max(), 50):
        fairer = sign * results["gap"] >= sign * parity
        best = results.loc[fairer, "accuracy"].max()
        steps = display.front_.get_drawstyle()
        side = np.searchsorted(x, parity) - (steps == "steps-post")
        assert height[side] == best


def test_frontier_options():
    _, ax = plt.subplots()
    display = FairnessFrontierDisplay.from_results(RESULTS, ax=ax, connect=False, **FRONTIER)
    assert display.ax_ is ax
    assert display.errorbars_["fair"].lines[0].get_linestyle() == "None"
    assert ax.get_legend() is not None
    assert display.plot(legend=False).ax_.get_legend() is None


def test_what_the_frontier_refuses():
    with pytest.raises(ValueError, match=r"no columns \['method', 'eps'\]; it has \['model'"):
        FairnessFrontierDisplay.from_results(RESULTS, settings="eps")
    with pytest.raises(ValueError, match="must have rows"):
        FairnessFrontierDisplay.from_results(RESULTS[:0], **FRONTIER)
    with pytest.raises(ValueError, match="finite numbers in 'disparate_impact'"):
        FairnessFrontierDisplay.from_results(RESULTS.assign(disparate_impact=np.nan), **FRONTIER)
