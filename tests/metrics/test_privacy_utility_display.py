"""What the picture of utility against privacy draws, and what a sweep touches and costs."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline

from skdpot import PrivacyBudget, PrivateScaler, SlicedSketch
from skdpot.exceptions import BudgetExceededError
from skdpot.metrics import PrivacyUtilityDisplay
from skdpot.privacy.events import GaussianEvent, gdp_epsilon, gdp_mu
from skdpot.privacy.spent import charge
from tests.flat_options import flow_sampler

RESULTS = pd.DataFrame(
    {
        "eps": [1.0, 0.1, 1.0, 0.1, np.inf, 1.0, np.inf],
        "auc": [0.8, 0.5, 0.9, 0.6, 0.95, 0.7, 0.75],
        "who": ["b", "b", "b", "b", "b", "a", "a"],
    }
)
X, Y = np.arange(40.0).reshape(20, 2), np.array([0] * 15 + [1] * 5)
X_TEST, Y_TEST = X + 0.5, np.array([0] * 12 + [1] * 8)


class Graded(ClassifierMixin, BaseEstimator):
    """A private classifier whose accuracy is known: its epsilon, capped at 1."""

    fits: list = []

    def __init__(self, epsilon=1.0, delta=1e-5, budget=None, spends=1.0):
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.spends = spends

    def fit(self, X, y, note=None):
        Graded.fits.append((self.epsilon, len(X), note))
        mu = gdp_mu(self.spends * self.epsilon, 0.8 * self.delta)
        self.classes_ = np.unique(y)
        event = GaussianEvent(sigma=1.0, sensitivity=mu)
        self.privacy_spent_ = charge(self, event, n_samples=len(X), assumptions=())
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def score(self, X, y):
        return min(self.epsilon, 1.0) - 0.01 * (len(Graded.fits) % 2)


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    Graded.fits.clear()
    yield
    plt.close("all")
    plt.switch_backend(before)


def sweep(estimator=None, **options):
    given = {"X_test": X_TEST, "y_test": Y_TEST, "epsilons": [0.2, 0.8], "n_repeats": 2} | options
    return PrivacyUtilityDisplay.from_estimator(estimator or Graded(), X, Y, **given)


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_points_are_means_and_deviations():
    display = PrivacyUtilityDisplay.from_frame(RESULTS, epsilon="eps", score="auc", method="who")
    assert display.points_["method"].tolist() == ["b", "b", "a"]
    assert display.points_["epsilon"].tolist() == [0.1, 1.0, 1.0]
    np.testing.assert_allclose(display.points_["mean"], [0.55, 0.85, 0.7])
    np.testing.assert_allclose(display.points_["std"], [0.1 / 2**0.5, 0.1 / 2**0.5, np.nan])
    assert display.points_["n_runs"].tolist() == [2, 2, 1]
    line, _, (bars,) = display.errorbars_["b"]
    np.testing.assert_allclose(line.get_xydata(), [[0.1, 0.55], [1.0, 0.85]])
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * 0.1 / 2**0.5)
    dots = np.asarray(display.dots_["b"].get_offsets())
    np.testing.assert_allclose(
        sorted(map(tuple, dots)), [(0.1, 0.5), (0.1, 0.6), (1, 0.8), (1, 0.9)]
    )
    assert display.ax_.get_xscale() == "log"
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["0.1", "1"]
    assert display.ax_.get_ylabel() == "auc"


def test_rows_with_an_infinite_epsilon_are_the_lines_without_privacy():
    display = PrivacyUtilityDisplay.from_frame(
        RESULTS, epsilon="eps", score="auc", method="who", floor=0.5
    )
    assert display.references == {"b": 0.95, "a": 0.75}
    assert list(display.reference_lines_["b"].get_ydata()) == [0.95, 0.95]
    assert list(display.floor_line_.get_ydata()) == [0.5, 0.5]
    assert legend(display) == ["b", "a", "b, without privacy", "a, without privacy", "floor"]
    assert np.isfinite(display.runs["epsilon"]).all()
    single = PrivacyUtilityDisplay.from_frame(RESULTS, epsilon="eps", score="auc")
    assert legend(single) == ["score", "without privacy"]
    assert single.floor_line_ is None


def test_axes_and_style():
    _, ax = plt.subplots()
    display = PrivacyUtilityDisplay.from_frame(
        RESULTS, epsilon="eps", score="auc", ax=ax, color="red", score_name="AUC", legend=False
    )
    assert display.ax_ is ax
    assert display.errorbars_["score"][0].get_color() == "red"
    assert ax.get_ylabel() == "AUC"
    assert ax.get_legend() is None


def test_a_sweep_fits_each_epsilon_several_times():
    estimator = Graded()
    display = sweep(estimator, epsilons=[0.8, 0.2], fit_params={"note": "so"})
    assert Graded.fits == [(0.2, 20, "so")] * 2 + [(0.8, 20, "so")] * 2
    assert estimator.epsilon == 1.0
    assert not hasattr(estimator, "classes_")
    assert display.runs["epsilon"].tolist() == [0.2, 0.2, 0.8, 0.8]
    np.testing.assert_allclose(display.runs["score"], [0.19, 0.2, 0.79, 0.8])
    assert display.points_["method"].unique().tolist() == ["Graded"]
    # A constant guess of the public rows.
    assert display.floor == 12 / 20
    assert display.references == {}


def test_a_sweep_states_what_it_costs():
    display = sweep()
    mus = [gdp_mu(e, 0.8e-5) for e in (0.2, 0.2, 0.8, 0.8)]
    expected = gdp_epsilon(float(np.linalg.norm(mus)), 1e-5)
    assert display.spent.epsilon == pytest.approx(expected, rel=1e-3)
    assert display.spent.epsilon > 0.8


def test_a_budget_pays_for_every_fit():
    budget = PrivacyBudget(epsilon=2.0)
    sweep(Graded(budget=budget))
    assert len(budget.history()) == 4


def test_a_budget_that_is_too_small_refuses_before_the_first_fit():
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(BudgetExceededError, match=r"4 fits, 2 at each .* Nothing was charged"):
        sweep(Graded(budget=budget))
    assert Graded.fits == []
    assert len(budget.history()) == 0
    nested = make_pipeline(PrivateScaler(), Graded(budget=budget))
    with pytest.raises(BudgetExceededError, match="4 fits"):
        sweep(nested, parameter="graded__epsilon")
    assert Graded.fits == []


def test_an_exact_fit_of_the_budget_is_admitted():
    budget = PrivacyBudget(epsilon=0.8)
    sweep(Graded(budget=budget), epsilons=[0.799], n_repeats=1)
    assert len(budget.history()) == 1


def test_the_reference_is_a_score_or_an_estimator():
    assert sweep(reference=0.97).references == {"Graded": 0.97}
    display = sweep(reference=DummyClassifier(strategy="most_frequent"), floor=None)
    assert display.references == {"Graded": 12 / 20}
    assert display.floor is None
    assert sweep(floor=0.1).floor == 0.1


def test_scoring_names_the_axis():
    display = sweep(scoring="balanced_accuracy")
    assert display.ax_.get_ylabel() == "balanced accuracy"
    np.testing.assert_allclose(display.runs["score"], 0.5)
    assert display.floor == 0.5
    assert sweep(scoring="accuracy", score_name="right").ax_.get_ylabel() == "right"


def test_a_sampler_is_scored_without_targets():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    sampler = flow_sampler(bounds=(-1, 1), n_projections=4, n_bins=8, n_steps=5)
    display = PrivacyUtilityDisplay.from_estimator(
        sampler, rows[:200], X_test=rows[200:], epsilons=[0.1, 9.0], n_repeats=2
    )
    assert display.floor is None
    assert (display.runs["score"] < 0).all()
    assert display.spent.epsilon > 9.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilons": [1.0, np.inf]}, "epsilons must be positive and finite; .* pass reference="),
        ({"epsilons": [0.0]}, "epsilons must be positive"),
        ({"epsilons": []}, "epsilons must be positive"),
        ({"epsilons": [1.0, 1.0]}, "epsilons must be different; n_repeats="),
        ({"n_repeats": 0}, "n_repeats == 0, must be >= 1"),
        ({"floor": "low"}, "floor='low' must be 'auto', a number or None"),
        ({"parameter": "eps"}, "Graded has no parameter 'eps'"),
    ],
)
def test_what_a_sweep_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        sweep(**options)
    assert Graded.fits == []


@pytest.mark.parametrize(
    ("results", "options", "message"),
    [
        (RESULTS, {"score": "f1"}, r"results has no columns \['f1'\]; it has"),
        (RESULTS, {"method": "name"}, r"results has no columns \['name'\]"),
        (RESULTS.assign(eps=-1.0), {}, "positive numbers in 'eps'"),
        (RESULTS.assign(auc=np.nan), {}, "finite ones in 'auc'"),
        (RESULTS.assign(eps=np.inf), {}, "no row with a finite epsilon"),
        (RESULTS[:0], {}, "no row with a finite epsilon"),
    ],
)
def test_what_a_frame_must_hold(results, options, message):
    given = {"epsilon": "eps", "score": "auc"} | options
    with pytest.raises(ValueError, match=message):
        PrivacyUtilityDisplay.from_frame(results, **given)


def test_an_estimator_that_makes_no_statement():
    class Silent(SlicedSketch):
        def score(self, X, y=None):
            return 0.5

        def fit(self, X, y=None):
            super().fit(X, y)
            del self.privacy_spent_
            return self

    rows = np.random.default_rng(0).uniform(-1, 1, size=(50, 2))
    display = PrivacyUtilityDisplay.from_estimator(
        Silent(bounds=(-1, 1), n_bins=4), rows, X_test=rows, epsilons=[1.0], n_repeats=1
    )
    assert display.spent is None
