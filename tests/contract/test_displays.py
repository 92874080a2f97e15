"""What holds of every display: where it draws, what it leaves out, and what it refuses."""

from functools import partial
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot._utils.panels import COLORS
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


MAKERS = {
    "fairness": partial(
        FairnessDisplay.from_predictions, y_true=Y, y_score=SCORES, sensitive_features=GROUP
    ),
    "classifier": partial(
        FairnessDisplay.from_estimator, estimator=MODEL, X=X, y=Y, sensitive_features=GROUP
    ),
    "frontier": partial(FairnessFrontierDisplay.from_results, results=STUDY),
    "study": partial(PrivacyUtilityDisplay.from_frame, results=STUDY),
    "sweep": partial(  # scored without targets
        PrivacyUtilityDisplay.from_estimator,
        estimator=DPSlicedFlowSampler(bounds=(-1, 1), n_steps=2),
        **{"X": X, "X_test": X, "epsilons": [0.5, 2.0], "n_repeats": 1},
    ),
    "budget": partial(BudgetDisplay.from_budget, budget=BUDGET),
    "flow": partial(FlowDisplay.from_trace, trace=TRACE),
    "traced": FlowDisplay.from_estimator,
    "marginals": partial(MarginalsDisplay.from_frames, real=FRAME, synthetic=FRAME[:90]),
    "sketch": partial(SketchDisplay.from_estimator, estimator=SKETCH),
    "paths": partial(TrajectoryDisplay.from_paths, paths=PATHS, times=TIMES),
    "sampled paths": partial(TrajectoryDisplay.from_estimator, sampler=trajectory_sampler()),
}
SINGLE = ("fairness", "classifier", "frontier", "study", "sweep", "budget")
PANELS = {"flow": 4, "marginals": 3, "sketch": 5, "paths": 2}


def legends(display):
    axes = getattr(display, "axes_", None)
    axes = [display.ax_] if axes is None else axes
    return display.figure_.legends + [ax.get_legend() for ax in axes if ax.get_legend()]


@pytest.mark.parametrize("name", [*SINGLE, *PANELS])
def test_a_display_draws_on_new_axes_and_on_those_given(name):
    make, has_legend = MAKERS[name], name not in ("budget", "paths")
    figure, axes = plt.subplots(1, PANELS.get(name, 1), squeeze=False)
    display = make(ax=axes[0] if name in PANELS else axes[0, 0])
    assert display.figure_ is figure
    assert (display.axes_.tolist() if name in PANELS else [display.ax_]) == axes[0].tolist()
    assert len(plt.get_fignums()) == 1
    # The title and the legend of a figure are its owner's.
    assert figure.get_suptitle() == ""
    assert figure.legends == []
    assert len(legends(display)) == has_legend
    assert display.plot() is display
    assert display.figure_ is not figure
    display.figure_.canvas.draw()
    assert len(legends(display)) == has_legend
    if has_legend:
        assert legends(display.plot(legend=False)) == []
    if name in PANELS:
        with pytest.raises(ValueError, match=f"ax holds {PANELS[name] + 1} Axes and there are"):
            make(ax=[*axes[0], axes[0, 0]])


@pytest.mark.parametrize("name", ["fairness", "study", "budget", *PANELS])
def test_names_are_titles_and_other_options_are_those_of_matplotlib(name):
    named = {} if name in ("study", "budget") else {"name": "mine"}
    styled = {} if name == "paths" else {"alpha": 0.123}
    display = MAKERS[name](**named, **styled)
    title = display.figure_.get_suptitle() if name in PANELS else display.ax_.get_title()
    assert title.startswith(named.get("name", ""))
    assert not styled or display.figure_.findobj(lambda artist: artist.get_alpha() == 0.123)


EIGHT = {"sensitive_features": np.arange(300) % 8}
THREE = LogisticRegression().fit(X, np.arange(300) % 3)
RIDGE = RidgeClassifier().fit(X, Y)
ROWS = flow_sampler("presample", epsilon=2.0, bounds=(-1, 1), n_steps=2)
REFUSED = {
    "fairness": [
        ({"y_true": np.arange(300) % 3, "pos_label": 1}, "three or more classes"),
        ({"fairness": "parity"}, "fairness='parity' must be"),
        ({"y_score": np.full(300, np.nan)}, "y_score must hold finite numbers"),
        ({"y_score": X[1:, 0]}, "inconsistent numbers of samples"),
        (EIGHT, "8 groups occur"),
    ],
    "classifier": [
        ({"estimator": LogisticRegression()}, "not fitted"),
        ({"estimator": LinearRegression().fit(X, Y)}, "binary classifier. Got LinearRegression"),
        ({"estimator": THREE}, "Got 3 classes instead"),
        ({"pos_label": "maybe"}, "pos_label=maybe is not a valid label"),
        ({"response_method": "predict"}, "response_method='predict' must be"),
        ({"estimator": RIDGE, "response_method": "predict_proba"}, "has none"),
    ],
    "frontier": [
        ({"settings": "eps"}, r"no columns \['eps'\]; it has \['method'"),
        ({"results": STUDY[:0]}, "must have rows"),
        ({"results": STUDY.assign(accuracy=np.nan)}, "finite numbers in 'disparate_impact'"),
    ],
    "study": [
        ({"score": "f1"}, r"results has no columns \['f1'\]; it has"),
        ({"results": STUDY.assign(epsilon=-1.0)}, "positive"),
        ({"results": STUDY.assign(score=np.nan)}, "finite"),
        ({"results": STUDY.assign(epsilon=np.inf)}, "no row with a finite epsilon"),
    ],
    "sweep": [
        ({"epsilons": [1.0, np.inf]}, "epsilons must be positive and finite"),
        ({"epsilons": [1.0, 1.0]}, "epsilons must be different"),
        ({"n_repeats": 0}, "n_repeats == 0, must be >= 1"),
        ({"floor": "low"}, "floor='low' must be"),
        ({"parameter": "eps"}, "DPSlicedFlowSampler has no parameter 'eps'"),
    ],
    "budget": [({"kind": "pie"}, "kind='pie'")],
    "flow": [
        ({"kind": "film"}, "kind='film' must be 'panels' or 'paths'"),
        ({"steps": [2]}, r"steps must be among those of the trace, \[0, 1, 5\]"),
        ({"plane": (0, 3)}, r"features=\(0, 3\) must be one or two of the numbers 0 to 2"),
        ({"plane": np.zeros((2, 3))}, "none of them zero"),
        ({"plane": np.eye(3)}, r"plane has shape \(3, 3\)"),
        ({"X": X[:, :2]}, "X has 2 features and the particles have 3"),
    ],
    "traced": [
        ({"sampler": SlicedSketch()}, "SlicedSketch has no method trace"),
        ({"sampler": DPSlicedFlowSampler()}, "not fitted"),
    ],
    "sketch": [
        *[
            ({"projections": given}, "numbers of directions, from 0 to 4")
            for given in ([], [5], [-1], [0.5], [[0, 1]])
        ],
        ({"label": "new"}, "no classes|not a class"),
        ({"X": X[:, :2]}, "X has 2 features"),
        ({"estimator": SlicedSketch()}, "not fitted"),
        ({"estimator": DPSlicedFlowSampler()}, "not fitted"),
        ({"estimator": ROWS.fit(X)}, "DPSlicedFlowSampler has no sketch_"),
        ({"estimator": SlicedSketch(bounds=(-1, 1)).partial_fit(X, n_samples=999)}, "is open"),
    ],
    "marginals": [
        ({"columns": ["age"]}, r"Both tables must have the columns \['age'\]"),
        ({"real": FRAME.assign(new=1)}, r"Both tables must have the columns \['new'\]"),
        ({"columns": []}, "columns must name 1 to 40 different columns, and holds 0"),
        ({"real": FRAME[:0]}, "real is empty"),
        ({"real": X[:, 0]}, r"real has shape \(300,\)"),
        ({"real": pd.concat([FRAME, FRAME], axis=1)}, "real has several columns of one name"),
        ({"pairs": "covariance"}, "pairs='covariance' must be"),
        ({"pairs": "correlation", "columns": ["a"]}, "two columns of numbers"),
    ],
    "paths": [
        ({"points": X}, "points and point_times must be given together"),
        ({"true_paths": PATHS}, "true_paths and true_times must be given together"),
        ({"points": X[:, :2], "point_times": TIMES}, "inconsistent numbers of samples"),
        ({"points": X[:, :1], "point_times": X[:, 0]}, "points have 1 features and the recovered"),
        ({"true_paths": PATHS, "true_times": TIMES[:4]}, "true_paths have 5 times and true_times"),
        ({"true_paths": PATHS, "true_times": -TIMES}, "true_times must increase strictly"),
        ({"features": 2}, "features=2 must be one or two of the numbers 0 to 1"),
        ({"panels": ["seen"]}, r"panels must be among \['means', 'recovered'\]"),
    ],
    "sampled paths": [({}, "not fitted")],
}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [(name, options, message) for name, cases in REFUSED.items() for options, message in cases],
)
def test_what_is_refused(name, options, message):
    errors = (ValueError, TypeError, AttributeError, NotFittedError, OpenSketchError)
    with pytest.raises(errors, match=message):
        MAKERS[name](**options)


def test_a_budget_is_a_budget_or_a_ledger(tmp_path):
    with pytest.raises(TypeError, match="must be a PrivacyBudget, not"):
        BudgetDisplay.from_budget("study.db")
    with pytest.raises(LedgerError, match="cannot be reached"):
        BudgetDisplay.from_ledger(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_the_style_has_the_colours_of_the_displays():
    with plt.style.context("skdpot.pictures"):
        assert (
            tuple(f"#{c.lstrip('#')}" for c in plt.rcParams["axes.prop_cycle"].by_key()["color"])
            == COLORS
        )
