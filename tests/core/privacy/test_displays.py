"""Pictures of privacy: what a budget has spent, and a score against epsilon."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline

from skdpot import PrivacyBudget, PrivateScaler
from skdpot.exceptions import BudgetExceededError
from skdpot.metrics import BudgetDisplay, PrivacyUtilityDisplay
from skdpot.privacy.charges import charge
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.gdp import gdp_epsilon, gdp_mu

# --- a budget ------------------------------------------------------------------------------------


def charged(mus, epsilon=3.0, ledger=None):
    """A budget, and the epsilons that it says are spent after each charge."""
    budget = PrivacyBudget(epsilon, delta=1e-6, ledger=ledger)
    spent = []
    for mu in mus:
        budget.spend(GaussianEvent(sigma=2.0, sensitivity=2.0 * mu))
        spent.append(budget.epsilon_spent())
    return budget, np.array(spent)


@pytest.mark.parametrize("epsilon", [3.0, np.inf])
def test_bars_and_lines_lead_from_epsilon_to_epsilon(epsilon):
    budget, spent = charged([0.2, 0.3, 0.05], epsilon)
    if epsilon < np.inf:  # what is refused is not drawn
        with pytest.raises(BudgetExceededError):
            budget.spend(GaussianEvent(sigma=1.0, sensitivity=5.0))
    else:  # a charge without privacy is, as far as the picture reaches
        budget.spend(NonPrivateEvent(), label="in the open")
    display = BudgetDisplay.from_budget(budget)
    np.testing.assert_allclose(display.history["epsilon_spent"][:3], spent, rtol=1e-12)
    ends = np.array([(bar.get_x(), bar.get_x() + bar.get_width()) for bar in display.bars_])
    np.testing.assert_allclose(ends[:3], np.column_stack([[0.0, *spent[:-1]], spent]))
    line = BudgetDisplay.from_budget(budget, kind="line")
    np.testing.assert_allclose(line.line_.get_ydata()[:4], [0, *spent])
    if epsilon < np.inf:
        assert list(display.cap_.get_xdata()) == list(line.cap_.get_ydata()) == [3.0, 3.0]
    else:
        assert display.cap_ is None
        assert display.history["epsilon_spent"][3] == np.inf
        assert spent[-1] < line.line_.get_ydata()[4] == ends[3, 1] < np.inf
    empty = BudgetDisplay.from_budget(PrivacyBudget(epsilon))
    assert "nothing charged yet" in [text.get_text() for text in empty.ax_.texts]


def test_many_charges_are_a_line_and_a_ledger_is_read_and_stays_as_it_is(tmp_path):
    path = tmp_path / "study.db"
    _, spent = charged([0.01] * 26, epsilon=2.5, ledger=path)
    before = path.read_bytes()
    display = BudgetDisplay.from_ledger(path)
    np.testing.assert_allclose(display.history["epsilon_spent"], spent)
    assert (display.epsilon, display.delta, display.bars_) == (2.5, 1e-6, None)
    assert len(display.plot(kind="bars").bars_) == 26
    assert path.read_bytes() == before


# --- a score against epsilon ---------------------------------------------------------------------

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

    def __init__(self, epsilon=1.0, delta=1e-5, budget=None, silent=False):
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.silent = silent

    def fit(self, X, y, note=None):
        Graded.fits.append((self.epsilon, len(X), note))
        self.classes_ = np.unique(y)
        event = GaussianEvent(sigma=1.0, sensitivity=gdp_mu(self.epsilon, 0.8 * self.delta))
        spent = charge(self, event, n_samples=len(X), assumptions=())
        if not self.silent:
            self.privacy_spent_ = spent
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def score(self, X, y):
        return min(self.epsilon, 1.0) - 0.01 * (len(Graded.fits) % 2)


def sweep(estimator=None, **options):
    Graded.fits.clear()
    given = {"X_test": X_TEST, "y_test": Y_TEST, "epsilons": [0.8, 0.2], "n_repeats": 2} | options
    return PrivacyUtilityDisplay.from_estimator(estimator or Graded(), X, Y, **given)


def test_points_are_means_and_deviations_and_infinite_epsilons_are_lines():
    options = {"epsilon": "eps", "score": "auc", "method": "who", "floor": 0.5}
    display = PrivacyUtilityDisplay.from_frame(RESULTS, **options)
    spread = 0.1 / 2**0.5
    rows = [("b", 0.1, 0.55, spread, 2), ("b", 1.0, 0.85, spread, 2), ("a", 1.0, 0.7, np.nan, 1)]
    expected = pd.DataFrame(rows, columns=["method", "epsilon", "mean", "std", "n_runs"])
    pd.testing.assert_frame_equal(display.points_, expected, check_dtype=False)
    line, _, (bars,) = display.errorbars_["b"]
    np.testing.assert_allclose(line.get_xydata(), [[0.1, 0.55], [1.0, 0.85]])
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * spread)
    assert len(display.dots_["b"].get_offsets()) == 4
    assert display.references == {"b": 0.95, "a": 0.75}
    assert list(display.reference_lines_["b"].get_ydata()) == [0.95, 0.95]
    assert list(display.floor_line_.get_ydata()) == [0.5, 0.5]


def test_a_sweep_fits_each_epsilon_several_times_and_states_what_it_costs():
    estimator = Graded()
    display = sweep(estimator, fit_params={"note": "so"})
    assert Graded.fits == [(0.2, 20, "so")] * 2 + [(0.8, 20, "so")] * 2
    assert (estimator.epsilon, hasattr(estimator, "classes_")) == (1.0, False)
    assert display.runs["epsilon"].tolist() == [0.2, 0.2, 0.8, 0.8]
    np.testing.assert_allclose(display.runs["score"], [0.19, 0.2, 0.79, 0.8])
    # A constant guess of the public rows.
    assert (display.floor, display.references) == (12 / 20, {})
    mus = [gdp_mu(e, 0.8e-5) for e in (0.2, 0.2, 0.8, 0.8)]
    expected = gdp_epsilon(float(np.linalg.norm(mus)), 1e-5)
    assert display.spent.epsilon == pytest.approx(expected, rel=1e-3)
    assert sweep(Graded(silent=True)).spent is None


def test_a_budget_pays_for_every_fit_or_refuses_before_the_first():
    budget = PrivacyBudget(epsilon=2.0)
    sweep(Graded(budget=budget))
    assert len(budget.history()) == 4
    exact = PrivacyBudget(epsilon=0.8)
    sweep(Graded(budget=exact), epsilons=[0.799], n_repeats=1)
    assert len(exact.history()) == 1
    small = PrivacyBudget(epsilon=1.0)
    for estimator, parameter in (
        (Graded(budget=small), "epsilon"),
        (make_pipeline(PrivateScaler(), Graded(budget=small)), "graded__epsilon"),
    ):
        with pytest.raises(BudgetExceededError, match="4 fits.*Nothing was charged"):
            sweep(estimator, parameter=parameter)
        assert Graded.fits == []
    assert small.history().empty


def test_references_floors_and_scores_are_what_was_asked_for():
    assert sweep(reference=0.97, floor=0.1).references == {"Graded": 0.97}
    display = sweep(reference=DummyClassifier(strategy="most_frequent"), scoring="accuracy")
    assert (display.references, display.floor) == ({"Graded": 12 / 20}, 12 / 20)
    np.testing.assert_allclose(display.runs["score"], 12 / 20)
    assert sweep(floor=None).floor is None
