"""What the picture of a budget draws: epsilons after each charge, and the cap."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from skdpot import PrivacyBudget
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.metrics import BudgetDisplay
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def event(mu):
    return GaussianEvent(sigma=2.0, sensitivity=2.0 * mu)


def charged(mus, epsilon=3.0, ledger=None):
    """A budget, and the epsilons that it says are spent after each charge."""
    budget = PrivacyBudget(epsilon, delta=1e-6, ledger=ledger)
    spent = []
    for k, mu in enumerate(mus):
        budget.spend(event(mu), label=f"fit {k}")
        spent.append(budget.epsilon_spent())
    return budget, np.array(spent)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_bars_lead_from_epsilon_to_epsilon():
    budget, spent = charged([0.2, 0.3, 0.05])
    display = BudgetDisplay.from_budget(budget)
    np.testing.assert_allclose(display.history["epsilon_spent"], spent, rtol=1e-12)
    lefts = [bar.get_x() for bar in display.bars_]
    rights = [bar.get_x() + bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(rights, spent)
    np.testing.assert_allclose(lefts, [0.0, *spent[:-1]])
    # What a charge adds is less than what it would cost alone.
    assert (np.diff(spent) < display.history["epsilon"][1:]).all()
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == ["fit 0", "fit 1", "fit 2"]
    assert display.ax_.yaxis_inverted()
    assert list(display.cap_.get_xdata()) == [3.0, 3.0]
    assert "cap: ε = 3" in texts(display.ax_)
    assert display.ax_.get_xlabel() == "ε spent, at δ = 1e-06"
    assert display.line_ is None
    assert display.figure_ is display.ax_.figure


def test_what_was_refused_is_not_drawn():
    budget, spent = charged([0.4])
    with pytest.raises(BudgetExceededError):
        budget.spend(event(5.0), label="too much")
    display = BudgetDisplay.from_budget(budget)
    assert display.history["label"].tolist() == ["fit 0"]
    np.testing.assert_allclose(display.history["epsilon_spent"], spent)


def test_many_charges_are_a_line():
    budget, spent = charged([0.05] * 26)
    display = BudgetDisplay.from_budget(budget)
    np.testing.assert_array_equal(display.line_.get_xdata(), np.arange(27))
    np.testing.assert_allclose(display.line_.get_ydata(), [0, *spent])
    assert display.line_.get_drawstyle() == "steps-post"
    assert list(display.cap_.get_ydata()) == [3.0, 3.0]
    assert display.bars_ is None
    assert len(BudgetDisplay.from_budget(budget, kind="bars").bars_) == 26


def test_a_full_budget_ends_at_its_cap():
    budget = PrivacyBudget(1.0)
    while budget.can_afford(event(0.1)):
        budget.spend(event(0.1))
    display = BudgetDisplay.from_budget(budget, kind="line")
    assert 0.95 < display.line_.get_ydata()[-1] <= 1.0
    labels = BudgetDisplay.from_budget(budget, kind="bars").ax_.get_yticklabels()
    assert {label.get_text() for label in labels} == {"no label"}


def test_a_ledger_is_read_and_stays_as_it_is(tmp_path):
    path = tmp_path / "study.db"
    budget, spent = charged([0.2, 0.3], epsilon=2.5, ledger=path)
    before = path.read_bytes()
    display = BudgetDisplay.from_ledger(path)
    np.testing.assert_allclose(display.history["epsilon_spent"], spent)
    assert (display.epsilon, display.delta) == (2.5, 1e-6)
    assert path.read_bytes() == before
    with pytest.raises(LedgerError, match="cannot be reached"):
        BudgetDisplay.from_ledger(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_without_a_cap_there_is_no_line_for_it():
    budget, spent = charged([0.2, 0.3], epsilon=float("inf"))
    display = BudgetDisplay.from_budget(budget)
    assert display.cap_ is None
    rights = [bar.get_x() + bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(rights, spent)


def test_a_release_without_privacy_runs_to_the_edge():
    budget, spent = charged([0.2], epsilon=float("inf"))
    budget.spend(NonPrivateEvent(), label="in the open")
    display = BudgetDisplay.from_budget(budget)
    assert display.history["epsilon_spent"].tolist() == [pytest.approx(spent[0]), np.inf]
    assert "∞" in texts(display.ax_)
    bar = display.bars_[1]
    assert np.isfinite(bar.get_width())
    assert bar.get_x() + bar.get_width() > 1.2 * spent[0]
    line = BudgetDisplay.from_budget(budget, kind="line").line_
    assert np.isfinite(line.get_ydata()).all()


def test_nothing_charged_yet():
    for kind in ("bars", "line"):
        display = BudgetDisplay.from_budget(PrivacyBudget(1.0), kind=kind)
        assert "nothing charged yet" in texts(display.ax_)
        assert display.cap_ is not None
        display.figure_.canvas.draw()


def test_axes_labels_and_style():
    budget, _ = charged([0.2])
    budget.spend(event(0.1), label="a label with more letters than there is room for in it")
    _, ax = plt.subplots()
    display = BudgetDisplay.from_budget(budget, ax=ax, legend=False, color="red")
    assert display.ax_ is ax
    assert not any("cap" in text for text in texts(ax))
    assert display.bars_[0].get_facecolor()[:3] == (1, 0, 0)
    label = ax.get_yticklabels()[1].get_text()
    assert len(label) == 34
    assert label.endswith("…")


def test_what_is_refused():
    with pytest.raises(TypeError, match="budget must be a PrivacyBudget, not a str"):
        BudgetDisplay.from_budget("study.db")
    with pytest.raises(ValueError, match="kind='pie' must be 'auto', 'bars' or 'line'"):
        BudgetDisplay.from_budget(PrivacyBudget(1.0), kind="pie")
