"""PrivacyBudget in one process: what it admits, what it says, what it shares."""

import copy
import math
import os
import pickle
import stat
import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone

from skdpot.exceptions import BudgetExceededError, LedgerError, UnknownEventError
from skdpot.privacy.accounting import PrivacyTarget, calibrate, compose, event_cost
from skdpot.privacy.budget import BudgetState, PrivacyBudget, make_terms
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.ledger import Totals
from skdpot.privacy.sampling import SampledGaussianEvent


def gaussian(sigma, **other):
    return GaussianEvent(sigma=sigma, sensitivity=1.0, **other)


def fit_of(epsilon, delta=1e-5, **other):
    """The event of an estimator with these parameters."""
    return calibrate(PrivacyTarget(epsilon, delta), lambda sigma: gaussian(sigma, **other))


def gaussian_delta(epsilon, mu):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


# Admission


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_one_estimator_with_the_budgets_values_fills_it_exactly(epsilon, delta):
    budget = PrivacyBudget(epsilon, delta)
    event = fit_of(epsilon, delta, lattice=1e-3)
    assert budget.can_afford(event)
    budget.spend(event)
    assert not budget.can_afford(event)
    with pytest.raises(BudgetExceededError):
        budget.spend(event)
    # The integers are full to within the rounding of sigma, so nothing useful is left.
    assert budget.epsilon_spent() == pytest.approx(epsilon, rel=1e-6)
    assert budget.epsilon_spent() <= epsilon
    assert budget.remaining() < 1e-2 * epsilon


def test_an_estimator_with_random_batches_fills_it_exactly_too():
    target = PrivacyTarget(1.0, 1e-5)
    event = calibrate(
        target,
        lambda sigma: SampledGaussianEvent(
            sampling="fixed_size",
            sigma=sigma,
            sensitivity=1.0,
            batch_sizes=(100,),
            group_sizes=(1000,),
            n_steps=20,
        ),
    )
    budget = PrivacyBudget(1.0, 1e-5)
    budget.spend(event, label="trained")
    with pytest.raises(BudgetExceededError, match="'trained' asks for epsilon=1 at"):
        budget.spend(event, label="trained")
    assert budget.history()["leak"][0] == pytest.approx(1e-6 / 1000)


def test_the_leak_has_a_cap_of_its_own_and_its_own_message():
    event = SampledGaussianEvent(
        sampling="fixed_size",
        sigma=500.0,
        sensitivity=1.0,
        batch_sizes=(1,),
        group_sizes=(10,),
        n_steps=1,
    )
    budget = PrivacyBudget(1.0, 1e-16)  # ten units of leak: too few to share between fits
    cost = event_cost(event, 1e-17).leak_units
    assert cost > 0
    for _ in range(10 // cost):
        budget.spend(event)
    assert budget.epsilon_spent() < 1.0
    assert budget.remaining() == 0.0
    with pytest.raises(BudgetExceededError, match="part of delta that pays for random batches"):
        budget.spend(event)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(1.0, 50.0), min_size=1, max_size=8), st.floats(0.3, 4.0))
def test_the_cap_holds_at_any_time_and_only_what_does_not_fit_is_refused(sigmas, epsilon):
    budget = PrivacyBudget(epsilon, 1e-5)
    target = PrivacyTarget(epsilon, 1e-5)
    spent = 0
    for sigma in sigmas:
        event = gaussian(sigma)
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
    mu = math.sqrt(1 / 9 + 4 / 25 + 3 / 49)
    spent = budget.epsilon_spent()
    assert gaussian_delta(spent, mu) == pytest.approx(0.9e-5, rel=1e-6)
    accountant = compose(ComposedEvent(events=tuple(events))).epsilon(1e-5)
    assert accountant < spent < 1.02 * accountant


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 20.0), st.floats(0.001, 0.999), st.sampled_from([1e-10, 1e-5, 1e-3]))
def test_what_remains_fits_and_a_little_more_does_not(epsilon, share, delta):
    budget = PrivacyBudget(epsilon, delta)
    budget.spend(fit_of(share * epsilon, delta))
    remaining = budget.remaining()
    assert not budget.can_afford(fit_of(remaining * (1 + 1e-3), delta))
    budget.spend(fit_of(remaining, delta))
    assert budget.epsilon_spent() == pytest.approx(epsilon, rel=1e-4)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3, 1e5])
def test_what_remains_is_never_a_unit_too_much(epsilon):
    terms = make_terms(epsilon, 1e-5, "replace_one")
    for k in range(1, 40):
        left = terms.mu_squared_cap * k // 41 + k
        totals = Totals(1, terms.mu_squared_cap - left, 1)
        remaining = BudgetState(terms, totals).remaining
        assert PrivacyTarget(remaining, 1e-5).mu_squared_units <= left


def test_everything_remains_at_first():
    budget = PrivacyBudget(0.7, 1e-6)
    assert budget.remaining() == 0.7
    assert budget.epsilon_spent() == 0.0


def test_an_infinite_budget_admits_everything_and_remembers():
    budget = PrivacyBudget(float("inf"))
    budget.spend(gaussian(1.0), label="noisy")
    assert 0.0 < budget.epsilon_spent() < math.inf
    budget.spend(NonPrivateEvent(), label="bare")
    assert budget.epsilon_spent() == math.inf
    assert budget.remaining() == math.inf
    assert budget.history()["epsilon"].tolist()[1] == math.inf
    assert budget.can_afford(NonPrivateEvent())
    budget.spend(calibrate(PrivacyTarget(math.inf, 1e-5), gaussian))


def test_a_release_without_noise_fits_no_finite_budget():
    budget = PrivacyBudget(1e6, 0.5)
    assert not budget.can_afford(NonPrivateEvent())
    with pytest.raises(BudgetExceededError, match="asks for epsilon=inf"):
        budget.spend(NonPrivateEvent())
    assert budget.remaining() == 1e6


def test_events_of_another_relation_are_refused():
    event = gaussian(10.0, relation=Relation.ADD_REMOVE)
    budget = PrivacyBudget(1.0)
    message = "relation='add_or_remove_one', the budget holds relation='replace_one'"
    with pytest.raises(ValueError, match=message):
        budget.spend(event)
    with pytest.raises(ValueError, match=message):
        budget.can_afford(event)
    assert budget.history().empty
    other = PrivacyBudget(1.0, relation="add_or_remove_one")
    assert other.relation is Relation.ADD_REMOVE
    other.spend(event)


def test_what_is_no_known_event_is_refused():
    class HomemadeEvent(Event):
        pass

    budget = PrivacyBudget(1.0)
    for thing in (HomemadeEvent(), 0.1, "epsilon", None):
        with pytest.raises(UnknownEventError, match="No accountant is known"):
            budget.spend(thing)
    with pytest.raises(TypeError, match="`label` must be a str, got int"):
        budget.spend(gaussian(9.0), label=3)
    assert budget.history().empty


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
    assert text.startswith("'DPSlicedFlowSampler' asks for epsilon=2.5 at delta=1e-05")
    assert "1 charge so far" in text
    assert "error_score='raise'" in text
    assert float(left) == pytest.approx(budget.remaining(), rel=1e-3)
    budget.spend(fit_of(float(left)))  # the advice works
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is BudgetExceededError
    assert str(again) == text


def test_a_full_budget_recommends_reuse():
    budget = PrivacyBudget(1.0)
    budget.spend(fit_of(1.0))
    with pytest.raises(BudgetExceededError, match=r"epsilon=0 is left.*Reuse what was already"):
        budget.spend(fit_of(1.0))


def test_eight_threads_never_overspend():
    budget = PrivacyBudget(1.0)
    unit = PrivacyTarget(1.0, 1e-5).mu_cap / 5
    event = gaussian((1.0 + 1e-9) / unit)  # 25 of them fit
    outcomes = []

    def work():
        for _ in range(5):
            try:
                budget.spend(event)
                outcomes.append(True)
            except BudgetExceededError:
                outcomes.append(False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(outcomes), len(outcomes)) == (25, 40)
    assert len(budget.history()) == 25


# Arguments


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, True])
def test_epsilon_must_be_positive(epsilon):
    with pytest.raises(ValueError, match="`epsilon` must be > 0"):
        PrivacyBudget(epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(delta):
    with pytest.raises(ValueError, match=r"`delta` must lie in \(0, 1\)"):
        PrivacyBudget(1.0, delta)


def test_other_bad_arguments():
    with pytest.raises(TypeError, match="must be numbers, got str"):
        PrivacyBudget("1.0")
    with pytest.raises(ValueError, match="Nothing fits in"):
        PrivacyBudget(1.0, 1e-18)
    with pytest.raises(ValueError, match="Nothing fits in"):
        PrivacyBudget(1e-12, 1e-15)
    with pytest.raises(ValueError, match="`relation` must be one of"):
        PrivacyBudget(1.0, relation="swap")
    with pytest.raises(TypeError, match="`ledger` must be a path or None, got int"):
        PrivacyBudget(1.0, ledger=3)


def test_its_values_cannot_be_changed():
    budget = PrivacyBudget(1.0)
    for name in ("epsilon", "delta", "relation", "ledger"):
        with pytest.raises(AttributeError):
            setattr(budget, name, 99.0)


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
    assert history.columns.tolist() == columns
    assert (history.dtypes == empty.dtypes).all()
    assert history["label"].tolist() == ["scaler", ""]
    assert history["event"][0] == "GaussianEvent(sigma=4.0, sensitivity=1.0)"
    assert "n_steps=2" in history["event"][1]
    assert set(history["relation"]) == {"replace_one"}
    np.testing.assert_allclose(history["mu"], [1 / 4, math.sqrt(1 / 64 + 2 / 81)], rtol=1e-9)
    np.testing.assert_allclose(history["leak"], [1e-18, 3e-18])
    for mu, epsilon in zip(history["mu"], history["epsilon"], strict=True):
        assert gaussian_delta(epsilon, mu) == pytest.approx(0.9e-5, rel=1e-6)
    assert history["time"].is_monotonic_increasing
    assert before - pd.Timedelta("1s") <= history["time"][0] <= pd.Timestamp.now("UTC")


def test_repr_shows_values_and_spending():
    budget = PrivacyBudget(2.0, 1e-6, relation="add_or_remove_one")
    assert repr(budget) == (
        "<PrivacyBudget(epsilon=2.0, delta=1e-06, relation='add_or_remove_one'): "
        "0 spent in 0 charges>"
    )
    other = PrivacyBudget(2.0)
    other.spend(fit_of(2.0))
    assert repr(other) == "<PrivacyBudget(epsilon=2.0, delta=1e-05): 2 spent in 1 charge>"


def test_the_card_has_a_bar_and_escapes_labels():
    budget = PrivacyBudget(2.0)
    assert "ε = 0 spent in 0 charges" in budget._repr_html_()
    for k in range(7):
        budget.spend(gaussian(20.0), label=f"<b>&{k}")
    html = budget._repr_html_()
    share = 7 / 400 / PrivacyTarget(2.0, 1e-5).mu_cap ** 2
    assert f"width:{100 * share:.2f}%" in html
    assert "<b>" not in html
    assert [f"&lt;b&gt;&amp;{k}" in html for k in range(7)] == [False] * 2 + [True] * 5
    for text in ("ε = 2", "δ = 1e-05", "replace one", "7 charges", "left for one more fit"):
        assert text in html


def test_the_card_of_an_infinite_budget():
    budget = PrivacyBudget(float("inf"))
    budget.spend(NonPrivateEvent(), label="bare")
    html = budget._repr_html_()
    assert "ε = ∞ spent in 1 charge" in html
    assert "no cap" in html


# One budget, however it travels


def test_copies_are_the_budget_itself():
    class Estimator(BaseEstimator):
        def __init__(self, budget=None):
            self.budget = budget

    budget = PrivacyBudget(1.0)
    assert copy.copy(budget) is budget
    assert copy.deepcopy([budget])[0] is budget
    assert clone(budget) is budget
    assert clone(Estimator(budget)).budget is budget
    assert pickle.loads(pickle.dumps({"budget": budget}))["budget"] is budget


def test_a_pickle_carries_no_history():
    budget = PrivacyBudget(1.0)
    budget.spend(gaussian(10.0), label="secret plan")
    assert b"secret plan" not in pickle.dumps(budget)


def test_a_lost_ledger_stops_spending_and_nothing_else():
    budget = PrivacyBudget(2.0, 1e-6)
    budget.spend(gaussian(20.0))
    blob = pickle.dumps({"model": "fitted", "budget": budget})
    path = budget.ledger
    del budget
    assert not os.path.exists(path)  # temporary: it went with the object
    lost = pickle.loads(blob)["budget"]
    assert (lost.epsilon, lost.delta, lost.relation) == (2.0, 1e-6, Relation.REPLACE_ONE)
    assert lost.ledger == path
    assert repr(lost) == "<PrivacyBudget(epsilon=2.0, delta=1e-06): ledger not readable>"
    assert "nothing can be spent" in lost._repr_html_()
    assert copy.deepcopy(lost) is clone(lost) is lost
    calls = [
        lambda: lost.spend(gaussian(20.0)),
        lambda: lost.can_afford(gaussian(20.0)),
        lost.remaining,
        lost.epsilon_spent,
        lost.history,
    ]
    for call in calls:
        with pytest.raises(LedgerError, match=r"cannot be reached.*make a new PrivacyBudget"):
            call()
    assert not os.path.exists(path)


def test_a_temporary_ledger_is_private_to_its_owner():
    directory = os.path.dirname(PrivacyBudget(1.0).ledger)
    assert not os.path.exists(directory)
    budget = PrivacyBudget(1.0)
    assert stat.S_IMODE(os.stat(os.path.dirname(budget.ledger)).st_mode) == 0o700


def test_no_temporary_directory_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(LedgerError, match="Set TMPDIR"):
        PrivacyBudget(1.0)


def test_a_durable_ledger_outlives_its_budget(tmp_path, monkeypatch):
    path = tmp_path / "ledger.sqlite"
    first = PrivacyBudget(1.0, ledger=path)
    first.spend(fit_of(0.5), label="monday")
    spent = first.epsilon_spent()
    del first
    monkeypatch.chdir(tmp_path)
    second = PrivacyBudget(1, 1e-5, ledger="ledger.sqlite")
    assert second.ledger == str(path)
    assert second.epsilon_spent() == spent
    assert second.history()["label"].tolist() == ["monday"]
    with pytest.raises(BudgetExceededError):
        second.spend(fit_of(1.0))


@pytest.mark.parametrize(
    "other", [{"epsilon": 2.0}, {"delta": 1e-6}, {"relation": "add_or_remove_one"}]
)
def test_a_durable_ledger_keeps_its_terms(tmp_path, other):
    path = tmp_path / "ledger.sqlite"
    PrivacyBudget(1.0, ledger=path)
    arguments = {"epsilon": 1.0, "delta": 1e-5, "relation": "replace_one"} | other
    with pytest.raises(LedgerError, match=r"made for epsilon=1.0.* but epsilon=.* was asked for"):
        PrivacyBudget(**arguments, ledger=path)


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,income\n")
    with pytest.raises(LedgerError, match="left as it is"):
        PrivacyBudget(1.0, ledger=path)
    assert path.read_text() == "age,income\n"


def test_a_replaced_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    budget = PrivacyBudget(1.0, ledger=path)
    path.unlink()
    replacement = PrivacyBudget(1.0, ledger=path)
    with pytest.raises(LedgerError, match="is now another ledger"):
        budget.spend(gaussian(20.0))
    assert replacement.history().empty
