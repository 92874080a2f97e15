"""PrivacyBudget in one process: what it admits, what it says, what it shares."""

import copy
import itertools
import math
import os
import pickle
import stat

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone

from skdpot.exceptions import BudgetExceededError, LedgerError, UnknownEventError
from skdpot.privacy.accounting import PrivacyTarget, calibrate, compose, event_cost
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent, Relation
from tests.privacy.cases import gaussian, subsets


def fit_of(epsilon, delta=1e-5, make=gaussian):
    """The event of an estimator with these parameters."""
    return calibrate(PrivacyTarget(epsilon, delta), make)


def gaussian_delta(epsilon, mu):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def on_lattice(sigma):
    return gaussian(sigma, lattice=1e-3)


# Admission


@pytest.mark.parametrize(
    ("epsilon", "delta", "make"),
    [
        *itertools.product((0.01, 0.2, 1.0, 3.0, 30.0), (1e-9, 1e-5, 1e-2), (on_lattice,)),
        (1.0, 1e-5, subsets),
    ],
)
def test_one_estimator_with_the_budgets_values_fills_it_exactly(epsilon, delta, make):
    budget = PrivacyBudget(epsilon, delta)
    event = fit_of(epsilon, delta, make)
    assert budget.can_afford(event)
    budget.spend(event)
    assert not budget.can_afford(event)
    with pytest.raises(BudgetExceededError, match="is left in this budget"):
        budget.spend(event)
    # The integers are full to within the rounding of sigma, so nothing useful is left.
    assert epsilon * (1 - 1e-4) <= budget.epsilon_spent() <= epsilon
    assert budget.remaining() < 1e-2 * epsilon


def test_the_leak_has_a_cap_of_its_own_and_its_own_message():
    event = subsets(500.0, 1, 10, 1)
    budget = PrivacyBudget(1.0, 1e-16)  # ten units of leak: too few to share between fits
    for _ in range(10 // event_cost(event, 1e-17).leak_units):
        budget.spend(event)
    assert budget.epsilon_spent() < 1.0
    assert budget.remaining() == 0.0
    with pytest.raises(BudgetExceededError, match="part of delta that pays for random batches"):
        budget.spend(event)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(1.0, 50.0), min_size=1, max_size=8), st.floats(0.3, 4.0))
def test_the_cap_holds_at_any_time_and_only_what_does_not_fit_is_refused(sigmas, epsilon):
    budget, target, spent = PrivacyBudget(epsilon, 1e-5), PrivacyTarget(epsilon, 1e-5), 0
    for event in map(gaussian, sigmas):
        cost = event_cost(event, target.leak_cap).mu_squared_units
        fits = spent + cost <= target.mu_squared_units
        assert budget.can_afford(event) is fits
        if fits:
            budget.spend(event)
            spent += cost
        else:
            with pytest.raises(BudgetExceededError):
                budget.spend(event)
        mu = math.sqrt(spent * 1e-12)
        assert mu == 0.0 or gaussian_delta(epsilon, mu) <= 0.9e-5 * (1 + 1e-6)
        assert math.sqrt((budget.history()["mu"] ** 2).sum()) == pytest.approx(mu)


def test_the_spent_epsilon_agrees_with_the_closed_form_and_with_the_accountant():
    budget = PrivacyBudget(5.0, 1e-5)
    events = [gaussian(3.0), gaussian(5.0, n_steps=4), ComposedEvent(events=(gaussian(7.0),) * 3)]
    for event in events:
        budget.spend(event)
    spent = budget.epsilon_spent()
    exact = gaussian_delta(spent, math.sqrt(1 / 9 + 4 / 25 + 3 / 49))
    assert exact == pytest.approx(0.9e-5, rel=1e-6)
    accountant = compose(ComposedEvent(events=tuple(events))).epsilon(1e-5)
    assert accountant < spent < 1.02 * accountant


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 20.0), st.floats(0.001, 0.999), st.sampled_from([1e-10, 1e-5, 1e-3]))
def test_what_remains_fits_and_a_little_more_does_not(epsilon, share, delta):
    budget = PrivacyBudget(epsilon, delta)
    assert (budget.remaining(), budget.epsilon_spent()) == (epsilon, 0.0)
    budget.spend(fit_of(share * epsilon, delta))
    remaining = budget.remaining()
    assert not budget.can_afford(fit_of(remaining * (1 + 1e-3), delta))
    budget.spend(fit_of(remaining, delta))
    assert budget.epsilon_spent() == pytest.approx(epsilon, rel=1e-4)


def test_a_release_without_noise_fits_an_infinite_budget_only():
    finite, infinite = PrivacyBudget(1e6, 0.5), PrivacyBudget(float("inf"))
    assert not finite.can_afford(NonPrivateEvent())
    with pytest.raises(BudgetExceededError, match="asks for epsilon=inf"):
        finite.spend(NonPrivateEvent())
    assert finite.remaining() == 1e6
    infinite.spend(gaussian(1.0), label="noisy")
    assert 0.0 < infinite.epsilon_spent() < math.inf
    infinite.spend(NonPrivateEvent(), label="bare")
    assert infinite.epsilon_spent() == infinite.remaining() == math.inf
    assert infinite.history()["epsilon"].tolist()[1] == math.inf
    assert "no cap" in infinite._repr_html_()


class HomemadeEvent(Event):
    """An event that no accountant knows."""


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (gaussian(10.0, relation=Relation.ADD_REMOVE), ValueError, "the budget holds relation='"),
        *((odd, UnknownEventError, "No acc") for odd in (HomemadeEvent(), 0.1, "epsilon", None)),
    ],
)
def test_what_it_cannot_add_up_is_refused(event, kind, message):
    budget = PrivacyBudget(1.0)
    for call in (budget.spend, budget.can_afford):
        with pytest.raises(kind, match=message):
            call(event)
    with pytest.raises(TypeError, match="`label` must be a str, got int"):
        budget.spend(gaussian(9.0), label=3)
    assert budget.history().empty
    other = PrivacyBudget(1.0, relation="add_or_remove_one")
    assert other.relation is Relation.ADD_REMOVE
    other.spend(gaussian(10.0, relation=Relation.ADD_REMOVE))


def test_a_refused_charge_changes_nothing():
    budget = PrivacyBudget(1.0)
    budget.spend(gaussian(10.0), label="first")
    state = budget.history(), budget.epsilon_spent(), budget.remaining()
    for _ in range(3):
        with pytest.raises(BudgetExceededError):
            budget.spend(gaussian(1.0), label="too much")
    pd.testing.assert_frame_equal(budget.history(), state[0])
    assert (budget.epsilon_spent(), budget.remaining()) == state[1:]


def test_the_refusal_says_what_was_asked_what_is_left_and_what_to_do():
    budget = PrivacyBudget(3.0, 1e-5)
    budget.spend(fit_of(2.0))
    with pytest.raises(BudgetExceededError) as caught:
        budget.spend(fit_of(2.5), label="DPSlicedFlowSampler")
    text = str(caught.value)
    left = text.split("Ask for epsilon=")[1].split(" ")[0]
    for part in ("'DPSlicedFlowSampler' asks for epsilon=2.5 at delta=1e-05", "1 charge so far"):
        assert part in text
    assert float(left) == pytest.approx(budget.remaining(), rel=1e-3)
    budget.spend(fit_of(float(left)))  # the advice works
    full = PrivacyBudget(1.0)
    full.spend(fit_of(1.0))
    with pytest.raises(BudgetExceededError, match=r"epsilon=0 is left.*Reuse what was already"):
        full.spend(fit_of(1.0))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (BudgetExceededError, text)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        *(({"epsilon": e}, ValueError, "`epsilon` must be > 0") for e in (0, -1.0, math.nan, True)),
        *(({"delta": d}, ValueError, "`delta` must lie in") for d in (0.0, 1.0, -1e-5, math.nan)),
        ({"epsilon": "1.0"}, TypeError, "must be numbers, got str"),
        ({"delta": 1e-18}, ValueError, "Nothing fits in"),
        ({"epsilon": 1e-12, "delta": 1e-15}, ValueError, "Nothing fits in"),
        ({"relation": "swap"}, ValueError, "`relation` must be one of"),
        ({"ledger": 3}, TypeError, "`ledger` must be a path or None, got int"),
    ],
)
def test_bad_arguments_are_refused(arguments, kind, message):
    with pytest.raises(kind, match=message):
        PrivacyBudget(**{"epsilon": 1.0} | arguments)


# History and display


def test_the_history_is_a_frame_of_public_facts():
    budget = PrivacyBudget(5.0)
    empty = budget.history()
    columns = ["time", "label", "event", "relation", "mu", "leak", "epsilon"]
    assert empty.columns.tolist() == columns
    assert empty.empty
    before = pd.Timestamp.now("UTC")
    budget.spend(gaussian(4.0), label="scaler")
    budget.spend(ComposedEvent(events=(gaussian(8.0), gaussian(9.0, n_steps=2))))
    history = budget.history()
    assert (history.dtypes == empty.dtypes).all()
    assert history["label"].tolist() == ["scaler", ""]
    assert history["event"][0] == str(gaussian(4.0))
    assert set(history["relation"]) == {"replace_one"}
    np.testing.assert_allclose(history["mu"], [1 / 4, math.sqrt(1 / 64 + 2 / 81)], rtol=1e-9)
    np.testing.assert_allclose(history["leak"], [1e-18, 3e-18])
    for mu, epsilon in zip(history["mu"], history["epsilon"], strict=True):
        assert gaussian_delta(epsilon, mu) == pytest.approx(0.9e-5, rel=1e-6)
    assert history["time"].is_monotonic_increasing
    assert before - pd.Timedelta("1s") <= history["time"][0] <= pd.Timestamp.now("UTC")


def test_it_shows_its_values_and_what_is_spent():
    budget = PrivacyBudget(2.0, 1e-6, relation="add_or_remove_one")
    assert "relation='add_or_remove_one'): 0 spent in 0 charges" in repr(budget)
    budget = PrivacyBudget(2.0)
    for k in range(7):
        budget.spend(gaussian(20.0), label=f"<b>&{k}")
    assert "PrivacyBudget(epsilon=2.0, delta=1e-05)" in repr(budget)
    html = budget._repr_html_()
    share = 7 / 400 / PrivacyTarget(2.0, 1e-5).mu_cap ** 2
    assert f"width:{100 * share:.2f}%" in html
    assert "<b>" not in html
    assert [f"&lt;b&gt;&amp;{k}" in html for k in range(7)] == [False] * 2 + [True] * 5
    for text in ("ε = 2", "δ = 1e-05", "replace one", "7 charges"):
        assert text in html


# One budget, however it travels


class Estimator(BaseEstimator):
    def __init__(self, budget=None):
        self.budget = budget


def test_copies_are_the_budget_itself():
    budget = PrivacyBudget(1.0)
    budget.spend(gaussian(10.0), label="secret plan")
    assert copy.copy(budget) is copy.deepcopy([budget])[0] is clone(budget) is budget
    assert clone(Estimator(budget)).budget is budget
    assert pickle.loads(pickle.dumps({"budget": budget}))["budget"] is budget
    assert b"secret plan" not in pickle.dumps(budget)


def test_a_lost_ledger_stops_spending_and_nothing_else():
    budget = PrivacyBudget(2.0, 1e-6)
    path = budget.ledger
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    blob = pickle.dumps({"model": "fitted", "budget": budget})
    del budget
    assert not os.path.exists(os.path.dirname(path))  # temporary: it went with the object
    lost = pickle.loads(blob)["budget"]
    assert (lost.epsilon, lost.delta, lost.relation) == (2.0, 1e-6, Relation.REPLACE_ONE)
    assert lost.ledger == path
    assert "ledger not readable" in repr(lost)
    assert "nothing can be spent" in lost._repr_html_()
    assert copy.deepcopy(lost) is clone(lost) is lost
    event = gaussian(20.0)
    spending = [lambda: lost.spend(event), lambda: lost.can_afford(event)]
    for call in (*spending, lost.remaining, lost.epsilon_spent, lost.history):
        with pytest.raises(LedgerError, match=r"cannot be reached.*make a new PrivacyBudget"):
            call()
    assert not os.path.exists(path)


def test_no_temporary_directory_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(LedgerError, match="Set TMPDIR"):
        PrivacyBudget(1.0)


@pytest.mark.parametrize(
    "terms", [(1.0, 1e-5, "replace_one"), (math.inf, 1e-7, "add_or_remove_one")]
)
def test_a_durable_ledger_outlives_its_budget(tmp_path, monkeypatch, terms):
    event = gaussian(20.0, relation=terms[2])
    first = PrivacyBudget(*terms[:2], ledger=tmp_path / "ledger.sqlite", relation=terms[2])
    first.spend(event, label="monday")
    spent = first.epsilon_spent()
    del first
    monkeypatch.chdir(tmp_path)
    for again in (
        PrivacyBudget(*terms[:2], ledger="ledger.sqlite", relation=terms[2]),
        PrivacyBudget.from_ledger("ledger.sqlite"),
    ):
        assert (again.epsilon, again.delta, str(again.relation)) == terms
        assert again.ledger == str(tmp_path / "ledger.sqlite")
        assert again.epsilon_spent() == spent
    again.spend(event, label="tuesday")
    assert again.history()["label"].tolist() == ["monday", "tuesday"]


def test_what_is_no_ledger_is_refused_and_left_alone(tmp_path):
    with pytest.raises(LedgerError, match="cannot be reached"):
        PrivacyBudget.from_ledger(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "data.csv"
    path.write_text("age,income\n")
    for call in (PrivacyBudget.from_ledger, lambda ledger: PrivacyBudget(1.0, ledger=ledger)):
        with pytest.raises(LedgerError, match="not an intact skdpot ledger"):
            call(path)
    assert path.read_text() == "age,income\n"
