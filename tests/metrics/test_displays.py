"""What holds of every display: where it draws, what it leaves out, and what it refuses."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.exceptions import LedgerError, OpenSketchError
from skdpot.metrics import (
    BudgetDisplay,
    FairnessDisplay,
    FairnessFrontierDisplay,
    FlowDisplay,
    MarginalsDisplay,
    PrivacyUtilityDisplay,
    SketchDisplay,
    TrajectoryDisplay,
)
from skdpot.privacy.events import GaussianEvent
from tests.flat_options import flow_sampler, trajectory_sampler

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)
GROUP = np.arange(300) % 2
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
TIMES = np.linspace(0, 1, 5)
PATHS = RNG.normal(size=(20, 5, 2))
SKETCH = SlicedSketch(epsilon=2.0, bounds=(-1, 1), n_projections=5, n_bins=8).fit(X)
MODEL = LogisticRegression().fit(X, Y)
SCORES = MODEL.predict_proba(X)[:, 1]
STUDY = pd.DataFrame(
    {
        "method": list("aab"),
        "epsilon": [1.0, 0.1, 1.0],
        "disparate_impact": [0.3, 0.5, 0.9],
        "accuracy": [0.8, 0.7, 0.6],
        "score": [0.8, 0.7, 0.6],
    }
)
TRACE = SimpleNamespace(
    steps=np.array([0, 1, 5]),
    particles=RNG.normal(size=(3, 40, 3)),
    labels=np.repeat(["left", "right"], 20),
    distances=RNG.random((2, 3)),
    classes=np.array(["left", "right"]),
)
BUDGET = PrivacyBudget(3.0)
BUDGET.spend(GaussianEvent(sigma=9.0, sensitivity=1.0), label="a fit")


def fairness(scores=None, classes=Y, **options):
    scores = MODEL.predict_proba(X)[:, 1] if scores is None else scores
    return FairnessDisplay.from_predictions(
        classes, scores, **{"sensitive_features": GROUP} | options
    )


def classifier(model=MODEL, **options):
    return FairnessDisplay.from_estimator(model, X, Y, sensitive_features=GROUP, **options)


def frontier(results=STUDY, **options):
    return FairnessFrontierDisplay.from_results(results, **options)


def study(results=STUDY, **options):
    return PrivacyUtilityDisplay.from_frame(results, **options)


def sweep(**options):
    """Fits of a sampler, which is scored without targets."""
    sampler = DPSlicedFlowSampler(bounds=(-1, 1), n_steps=2)
    given = {"X_test": X, "epsilons": [0.5, 2.0], "n_repeats": 1} | options
    return PrivacyUtilityDisplay.from_estimator(sampler, X, **given)


def flow(trace=TRACE, **options):
    return FlowDisplay.from_trace(trace, **options)


def traced(estimator, **options):
    return FlowDisplay.from_estimator(estimator, **options)


def marginals(real=FRAME, synthetic=FRAME[:90], **options):
    return MarginalsDisplay.from_frames(real, synthetic, **options)


def sketch(estimator=SKETCH, **options):
    return SketchDisplay.from_estimator(estimator, **options)


def paths(*given, **options):
    return TrajectoryDisplay.from_paths(*(given or (PATHS, TIMES)), **options)


def sampled_paths(**options):
    return TrajectoryDisplay.from_estimator(trajectory_sampler(), **options)


def budget(**options):
    return BudgetDisplay.from_budget(BUDGET, **options)


# Makers, and their numbers of panels.
SINGLE = {
    make.__name__: (make, 1) for make in (fairness, classifier, frontier, study, sweep, budget)
}
SEVERAL = {"flow": (flow, 4), "marginals": (marginals, 3), "sketch": (sketch, 5)}
SEVERAL["paths"] = (paths, 2)
LEGENDS = [name for name in SINGLE | SEVERAL if name not in ("budget", "paths")]


@pytest.mark.parametrize("name", SINGLE | SEVERAL)
def test_a_display_draws_on_new_axes_and_on_those_given(name):
    make, n_panels = (SINGLE | SEVERAL)[name]
    figure, axes = plt.subplots(1, n_panels, squeeze=False)
    given = axes[0] if name in SEVERAL else axes[0, 0]
    display = make(ax=given)
    assert display.figure_ is figure
    drawn = display.axes_.tolist() if name in SEVERAL else [display.ax_]
    assert drawn == axes[0].tolist()
    assert len(plt.get_fignums()) == 1
    assert figure.get_suptitle() == ""  # the title of a figure is its owner's
    assert figure.legends == []
    again = display.plot()
    assert again is display
    assert display.figure_ is not figure
    display.figure_.canvas.draw()
    if name in SEVERAL:
        with pytest.raises(ValueError, match=f"ax holds {n_panels + 1} Axes and there are"):
            make(ax=[*axes[0], axes[0, 0]])


@pytest.mark.parametrize("name", LEGENDS)
def test_a_legend_names_what_is_drawn_unless_it_is_not_wanted(name):
    def legends(display):
        axes = getattr(display, "axes_", None)
        axes = [display.ax_] if axes is None else axes
        return display.figure_.legends + [ax.get_legend() for ax in axes if ax.get_legend()]

    make, n_panels = (SINGLE | SEVERAL)[name]
    (legend,) = legends(make())
    assert len(legend.get_texts()) >= 1
    assert legends(make(legend=False)) == []
    _, axes = plt.subplots(1, n_panels, squeeze=False)
    assert len(legends(make(ax=axes[0] if name in SEVERAL else axes[0, 0]))) == 1


@pytest.mark.parametrize("name", ["fairness", *SEVERAL])
def test_a_name_is_the_title(name):
    make, _ = (SINGLE | SEVERAL)[name]
    display = make(name="mine")
    title = display.figure_.get_suptitle() if name in SEVERAL else display.ax_.get_title()
    assert title.startswith("mine")


@pytest.mark.parametrize("name", ["fairness", "study", "budget", "flow", "marginals", "sketch"])
def test_other_options_are_those_of_matplotlib(name):
    make, _ = (SINGLE | SEVERAL)[name]
    assert make(alpha=0.123).figure_.findobj(lambda artist: artist.get_alpha() == 0.123)


EIGHT = {"sensitive_features": np.arange(300) % 8}
THREE = LogisticRegression().fit(X, np.arange(300) % 3)
RIDGE = RidgeClassifier().fit(X, Y)
ROWS = flow_sampler("presample", epsilon=2.0, bounds=(-1, 1), n_steps=2)
REFUSED = {
    fairness: [
        ({"classes": np.arange(300) % 3, "pos_label": 1}, "three or more classes"),
        ({"fairness": "parity"}, "fairness='parity' must be"),
        ({"scores": np.full(300, np.nan)}, "y_score must hold finite numbers"),
        ({"scores": X[1:, 0]}, "inconsistent numbers of samples"),
        (EIGHT, "8 groups occur"),
    ],
    classifier: [
        ({"model": LogisticRegression()}, "not fitted"),
        ({"model": LinearRegression().fit(X, Y)}, "binary classifier. Got LinearRegression"),
        ({"model": THREE}, "Got 3 classes instead"),
        ({"pos_label": "maybe"}, "pos_label=maybe is not a valid label"),
        ({"response_method": "predict"}, "response_method='predict' must be"),
        ({"model": RIDGE, "response_method": "predict_proba"}, "has none"),
    ],
    frontier: [
        ({"settings": "eps"}, r"no columns \['eps'\]; it has \['method'"),
        ({"results": STUDY[:0]}, "must have rows"),
        ({"results": STUDY.assign(accuracy=np.nan)}, "finite numbers in 'disparate_impact'"),
    ],
    study: [
        ({"score": "f1"}, r"results has no columns \['f1'\]; it has"),
        ({"results": STUDY.assign(epsilon=-1.0)}, "positive"),
        ({"results": STUDY.assign(score=np.nan)}, "finite"),
        ({"results": STUDY.assign(epsilon=np.inf)}, "no row with a finite epsilon"),
        ({"results": STUDY[:0]}, "no row with a finite epsilon"),
    ],
    sweep: [
        ({"epsilons": [1.0, np.inf]}, "epsilons must be positive and finite"),
        ({"epsilons": [0.0]}, "epsilons must be positive"),
        ({"epsilons": []}, "epsilons must be positive"),
        ({"epsilons": [1.0, 1.0]}, "epsilons must be different"),
        ({"n_repeats": 0}, "n_repeats == 0, must be >= 1"),
        ({"floor": "low"}, "floor='low' must be"),
        ({"parameter": "eps"}, "DPSlicedFlowSampler has no parameter 'eps'"),
    ],
    budget: [({"kind": "pie"}, "kind='pie'")],
    flow: [
        ({"kind": "film"}, "kind='film' must be 'panels' or 'paths'"),
        ({"steps": [2]}, r"steps must be among those of the trace, \[0, 1, 5\]"),
        ({"plane": (0, 3)}, r"features=\(0, 3\) must be one or two of the numbers 0 to 2"),
        ({"plane": np.zeros((2, 3))}, "none of them zero"),
        ({"plane": np.eye(3)}, r"plane has shape \(3, 3\)"),
        ({"X": X[:, :2]}, "X has 2 features and the particles have 3"),
    ],
    traced: [
        ({"estimator": SlicedSketch()}, "SlicedSketch has no method trace"),
        ({"estimator": DPSlicedFlowSampler()}, "not fitted"),
    ],
    sketch: [
        *[
            ({"projections": given}, "numbers of directions, from 0 to 4")
            for given in ([], [5], [-1], [0.5], "first", [[0, 1]])
        ],
        ({"label": "new"}, "no classes|not a class"),
        ({"X": X[:, :2]}, "X has 2 features"),
        ({"estimator": SlicedSketch()}, "not fitted"),
        ({"estimator": DPSlicedFlowSampler()}, "not fitted"),
        ({"estimator": ROWS.fit(X)}, "DPSlicedFlowSampler has no sketch_"),
        ({"estimator": SlicedSketch(bounds=(-1, 1)).partial_fit(X, n_samples=999)}, "is open"),
    ],
    marginals: [
        ({"columns": ["age"]}, r"Both tables must have the columns \['age'\]"),
        ({"real": FRAME.assign(new=1)}, r"Both tables must have the columns \['new'\]"),
        ({"columns": []}, "columns must name 1 to 40 different columns, and holds 0"),
        ({"columns": ["a", "a"]}, "different columns"),
        ({"real": FRAME[:0]}, "real is empty"),
        ({"real": X[:, 0]}, r"real has shape \(300,\)"),
        ({"real": pd.concat([FRAME, FRAME], axis=1)}, "real has several columns of one name"),
        ({"pairs": "covariance"}, "pairs='covariance' must be None or one of"),
        ({"pairs": "correlation", "columns": ["a"]}, "two columns of numbers"),
    ],
    paths: [
        ({"points": X}, "points and point_times must be given together"),
        ({"true_paths": PATHS}, "true_paths and true_times must be given together"),
        ({"means": X}, "means and mean_times must be given together"),
        ({"points": X[:, :2], "point_times": TIMES}, "inconsistent numbers of samples"),
        ({"points": X[:, :1], "point_times": X[:, 0]}, "points have 1 features and the recovered"),
        ({"true_paths": PATHS, "true_times": TIMES[:4]}, "true_paths have 5 times and true_times"),
        ({"true_paths": PATHS, "true_times": -TIMES}, "true_times must increase strictly"),
        ({"features": 2}, "features=2 must be one or two of the numbers 0 to 1"),
        ({"panels": ["seen"]}, r"panels must be among \['means', 'recovered'\]"),
    ],
    sampled_paths: [({}, "not fitted")],
}


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [(make, options, message) for make, cases in REFUSED.items() for options, message in cases],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_is_refused(make, options, message):
    errors = (ValueError, TypeError, AttributeError, NotFittedError, OpenSketchError)
    with pytest.raises(errors, match=message):
        make(**options)


def test_a_budget_is_a_budget_or_a_ledger(tmp_path):
    with pytest.raises(TypeError, match="must be a PrivacyBudget, not"):
        BudgetDisplay.from_budget("study.db")
    with pytest.raises(LedgerError, match="cannot be reached"):
        BudgetDisplay.from_ledger(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
