"""PrivacyBudget and its ledger: what they admit, what they say, and how they travel.

Faults of the file and of other processes are in `tests.contract.test_ledger_faults`.
"""

import copy
import math
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

from skdpot.exceptions import BudgetExceededError, LedgerError, UnknownEventError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.ledger import Charge, Ledger, Terms, Totals
from skdpot.privacy.targets import PrivacyTarget, event_cost
from tests.core.privacy.cases import gaussian, subsets


def fit_of(epsilon, delta=1e-5):
    """The event of an estimator with these parameters."""
    return calibrate(PrivacyTarget(epsilon, delta), gaussian)


def gaussian_delta(epsilon, mu):
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


# Admission


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


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 30.0), st.floats(0.001, 0.999), st.sampled_from([1e-10, 1e-5, 1e-2]))
def test_what_remains_fits_and_a_little_more_does_not(epsilon, share, delta):
    budget = PrivacyBudget(epsilon, delta)
    assert (budget.remaining(), budget.epsilon_spent()) == (epsilon, 0.0)
    budget.spend(fit_of(share * epsilon, delta))
    remaining = budget.remaining()
    assume(remaining > 0)  # the least noise that is left may be (0, delta)-private
    assert not budget.can_afford(fit_of(remaining * (1 + 1e-3), delta))
    budget.spend(fit_of(remaining, delta))
    assert epsilon * (1 - 1e-4) <= budget.epsilon_spent() <= epsilon
    assert budget.remaining() < 1e-2 * epsilon  # the integers are full but for roundings
    with pytest.raises(BudgetExceededError, match="is left in this budget"):
        budget.spend(fit_of(0.05 * epsilon, delta))


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


class HomemadeEvent(GaussianEvent):
    """An event without an account of its own."""


HOMEMADE = HomemadeEvent(sigma=9.0, sensitivity=1.0)


def test_an_event_must_define_its_steps():
    class Stepless(Event):
        pass

    with pytest.raises(TypeError, match="abstract method '?_steps"):
        Stepless()


@pytest.mark.parametrize(
    ("event", "kind", "message"),
    [
        (gaussian(10.0, relation=Relation.ADD_REMOVE), ValueError, "the budget holds relation='"),
        *(
            (odd, UnknownEventError, "No acc")
            for odd in (HomemadeEvent(sigma=9.0, sensitivity=1.0), 0.1, "epsilon", None)
        ),
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
    with pytest.raises(
        BudgetExceededError, match=r"'Sampler' asks for epsilon=2.5 at delta=1e-05.*1 charge so far"
    ) as caught:
        budget.spend(fit_of(2.5), label="Sampler")
    left = float(str(caught.value).split("Ask for epsilon=")[1].split(" ")[0])
    assert left == pytest.approx(budget.remaining(), rel=1e-3)
    budget.spend(fit_of(left))  # the advice works
    full = PrivacyBudget(1.0)
    full.spend(fit_of(1.0))
    with pytest.raises(BudgetExceededError, match=r"epsilon=0 is left.*Reuse what was already"):
        full.spend(fit_of(1.0))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (BudgetExceededError, str(caught.value))


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
    columns = "time label event relation mu leak epsilon planned open".split()
    assert empty.columns.tolist() == columns
    assert empty.empty
    before = pd.Timestamp.now("UTC")
    events = gaussian(4.0), ComposedEvent(events=(gaussian(8.0), gaussian(9.0, n_steps=2)))
    budget.spend(events[0], label="scaler")
    budget.spend(events[1])
    history = budget.history()
    assert (history.dtypes == empty.dtypes).all()
    assert history["label"].tolist() == ["scaler", ""]
    assert history["event"].tolist() == [str(event) for event in events]
    assert set(history["relation"]) == {"replace_one"}
    np.testing.assert_allclose(history["mu"], [1 / 4, math.sqrt(1 / 64 + 2 / 81)], rtol=1e-9)
    np.testing.assert_allclose(history["leak"], [1e-18, 3e-18])
    spent = budget.epsilon_spent()
    for mu, epsilon in ((math.hypot(*history["mu"]), spent), *history[["mu", "epsilon"]].values):
        assert gaussian_delta(epsilon, mu) == pytest.approx(0.9e-5, rel=1e-6)
    exact = compose(ComposedEvent(events=events)).epsilon(1e-5)
    assert exact < spent < 1.02 * exact
    assert history["time"].is_monotonic_increasing
    assert before - pd.Timedelta("1s") <= history["time"][0] <= pd.Timestamp.now("UTC")


def test_it_shows_its_values_and_what_is_spent():
    budget = PrivacyBudget(2.0, 1e-6, relation="add_or_remove_one")
    assert "0 spent in 0 charges" in repr(budget)
    budget.spend(gaussian(20.0, relation="add_or_remove_one"), label="<b>&")
    html = budget._repr_html_()
    assert "<b>" not in html
    assert all(t in html for t in ("&lt;b&gt;&amp;", "ε = 2", "δ = 1e-06", "add or remove"))


# One budget, however it travels


def test_copies_are_the_budget_itself():
    budget = PrivacyBudget(1.0)
    budget.spend(gaussian(10.0), label="secret plan")
    assert copy.copy(budget) is copy.deepcopy([budget])[0] is clone(budget) is budget
    assert clone(Spender(budget)).budget is budget
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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_temporary_ledger_goes_with_its_process_but_not_with_a_fork():
    script = """
import os, sys
from skdpot.privacy.budget import PrivacyBudget
from tests.core.privacy.cases import gaussian
budget = PrivacyBudget(1.0)
print(budget.ledger, flush=True)
pid = os.fork()
if pid == 0:
    budget.spend(gaussian(20.0), label="child")
    sys.exit(0)  # runs the child's exit handlers
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(status, os.path.exists(budget.ledger), budget.history()["label"].tolist())
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    path, *lines = done.stdout.splitlines()
    assert lines == ["0 True ['child']"]
    assert not os.path.exists(os.path.dirname(path))


class Spender(BaseEstimator):
    """Spends in every fit."""

    def __init__(self, budget=None, size=1):
        self.budget = budget
        self.size = size

    def fit(self, X, y=None):
        self.budget.spend(gaussian(100.0), label=f"size={self.size}")
        return self

    def score(self, X, y=None):
        return self.size


@pytest.mark.slow
def test_a_search_charges_every_fit_in_other_processes_too():
    budget, rows = PrivacyBudget(1.0), [[float(i)] for i in range(30)]
    search = GridSearchCV(Spender(budget), {"size": [1, 2, 3]}, cv=2, n_jobs=2).fit(rows)
    assert len(budget.history()) == 2 * 3 + 1
    assert search.best_estimator_.budget is budget


# The file


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
    with pytest.raises(
        LedgerError, match=r"was made for epsilon=.*, but epsilon=2.0, .* was asked"
    ):
        PrivacyBudget(2.0, ledger="ledger.sqlite")


def made_of(mu_squared=1, leak=1, label="fit"):
    return Charge(label, "Event()", 0.1, mu_squared, leak)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "50% done? #1 é"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, Terms(1.0, 1e-5, Relation.REPLACE_ONE, 100, 1000))


def test_either_cap_refuses(ledger, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    for refused in (made_of(101, 0), made_of(0, 1001), made_of(math.inf, 0), made_of(0, math.inf)):
        assert not ledger.admit(refused)
    assert ledger.admit(made_of(60, 1000))
    before = path.read_bytes()
    assert not ledger.admit(made_of(41, 0))
    assert path.read_bytes() == before
    assert ledger.admit(made_of(40, 0))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE terms SET leak_cap = 'many'", "damaged"),
        ("DELETE FROM terms", "damaged"),
        ("UPDATE terms SET uid = 'other'", "is now another ledger"),
        ("DELETE FROM charges", "it is an older copy"),
        ("PRAGMA user_version = 99", "format 99"),
        ("BEGIN EXCLUSIVE", "Another process holds it"),
    ],
)
def test_a_file_that_was_changed_or_is_held_is_refused(ledger, path, statement, message):
    """In this process; `tests.contract.ledger_faults` has more."""
    ledger.admit(made_of())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
        with pytest.raises(LedgerError, match=message):
            ledger.totals(patience=0.05)


def test_charges_come_back_in_order_with_any_text_and_any_number(path):
    ledger = Ledger.create(path, Terms(math.inf, 1e-5, Relation.REPLACE_ONE, math.inf, math.inf))
    charges = [
        made_of(2**200, 3, label="ε; 'quoted'\n\x07"),
        made_of(math.inf, math.inf, label=""),
        made_of(),
    ]
    assert all(ledger.admit(charge) for charge in charges)
    records = ledger.records()
    assert records == charges
    assert [r.number for r in records] == [1, 2, 3]
    assert [r.time for r in records] == sorted(r.time for r in records)
    assert ledger.totals() == Totals(3, math.inf, math.inf)


def test_a_failure_inside_the_transaction_charges_nothing(ledger, path, monkeypatch):
    def fail(*args):
        write(*args)
        raise KeyboardInterrupt

    write = ledger_module._append
    monkeypatch.setattr(ledger_module, "_append", fail)
    with pytest.raises(KeyboardInterrupt):
        ledger.admit(made_of())
    assert ledger.totals() == Totals()
    # One while a ledger is made leaves no ledger.
    write = ledger_module._write_terms
    monkeypatch.setattr(ledger_module, "_write_terms", fail)
    with pytest.raises(KeyboardInterrupt):
        Ledger.create(path.with_name("other"), ledger.terms)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_text("my thesis, chapter one\n" * 50), "left unchanged"),
        (lambda p: p.touch(), "not a skdpot ledger"),
        (lambda p: p.mkdir(), "not a regular file"),
        (lambda p: p.symlink_to(p.parent / "nothing"), r"not a regular file.*symbolic link"),
    ],
    ids=["text", "empty", "directory", "link"],
)
def test_what_exists_and_is_no_ledger_is_left_alone(path, ledger, make, message):
    path.unlink()
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(FileExistsError):
        Ledger.create(path, ledger.terms)
    for call in (PrivacyBudget.from_ledger, lambda p: PrivacyBudget(1.0, ledger=p)):
        with pytest.raises(LedgerError, match=message):
            call(path)
    assert before is None or path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_place_without_a_ledger_is_named(tmp_path):
    with pytest.raises(LedgerError, match="cannot be reached"):
        PrivacyBudget.from_ledger(tmp_path / "none")
    assert not list(tmp_path.iterdir())
    with pytest.raises(LedgerError, match=r"'.*/nowhere/ledger' cannot be created .*must exist"):
        PrivacyBudget(1.0, ledger=tmp_path / "nowhere" / "ledger")


def test_a_ledger_can_be_made_without_hard_links(path, monkeypatch):
    def no_links(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    budget = PrivacyBudget(1.0, ledger=path)
    budget.spend(gaussian(20.0))
    with pytest.raises(FileExistsError):
        Ledger.create(path, budget._ledger.terms)
    assert len(budget.history()) == 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]
