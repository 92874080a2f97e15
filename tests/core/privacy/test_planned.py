"""Fits that are planned with a budget: their exact account, and that each is made once."""

import math
import sqlite3
from contextlib import closing
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpot import PrivacyBudget, PrivateScaler
from skdpot.exceptions import LedgerError
from skdpot.privacy import PrivacySpent, plan_fit
from skdpot.privacy.accounting import compose
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Relation
from skdpot.privacy.selection import BudgetedEvent
from skdpot.privacy.targets import SingleFitTarget
from tests.contract.fits import FITS, ROWS, TABLES, X, swept
from tests.contract.test_draws_are_charged import ONE_EACH
from tests.core.privacy.cases import gaussian, hockey_stick, subsets

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]
EPSILON, DELTA = 2.0, 1e-5


def search(mu):
    return BudgetedEvent(mu=mu, mean_trials=8.0, leak=1e-9)


PLANS = {
    "all records": [gaussian(6.0), gaussian(9.0)],
    "batches": [subsets(5.0, n_steps=40)],
    "search": [search(0.25)],
    "search and batches": [search(0.2), subsets(6.0), gaussian(20.0)],
}


def stated(event, epsilon=1.0, delta=DELTA):
    """The statement of a fit, as far as a budget needs one."""
    return PrivacySpent(epsilon, delta, event.relation, event, None, None, ())


def planned(*events, **options):
    return PrivacyBudget(EPSILON, DELTA, planned=list(map(stated, events)), **options)


@pytest.mark.parametrize("events", PLANS.values(), ids=PLANS)
def test_the_plan_and_all_that_is_admitted_beside_it_cost_no_more_than_the_budget(events):
    budget = planned(*events)
    for event in events:
        budget.spend(event)
    assert budget.history()["planned"].all()
    assert (budget.history()[["mu", "leak"]] == 0.0).all(axis=None)
    # What is left, in three parts of unequal size.
    rest = budget._ledger.terms.mu_squared_cap * 1e-12
    others = [gaussian(1.0 / math.sqrt(share * rest)) for share in (0.5, 0.3, 0.2 - 1e-9)]
    for event in others:
        assert budget.can_afford(event)
        budget.spend(event)
    assert not budget.can_afford(gaussian(1e4))
    assert budget.remaining() < 0.05
    whole = compose(ComposedEvent(events=(*events, *others)))
    assert 0.85 * DELTA < whole.delta(EPSILON) <= 0.9 * DELTA
    # Beside leaks of everything else, for which a tenth of delta is kept.
    assert Fraction(budget._ledger.terms.leak_cap) <= Fraction(DELTA) / 10 * 10**18


def test_a_plan_of_gaussian_releases_leaves_what_the_squares_leave():
    plain, budget = PrivacyBudget(EPSILON, DELTA), planned(*PLANS["all records"])
    caps = [b._ledger.terms.mu_squared_cap * 1e-12 for b in (plain, budget)]
    assert caps[0] - caps[1] == pytest.approx(1 / 36 + 1 / 81, rel=1e-5)
    assert planned(search(0.25)).remaining() > 1.2 * budget_after(search(0.25)).remaining()


def budget_after(event):
    """A budget that was charged an event in the units of the ledger."""
    budget = PrivacyBudget(EPSILON, DELTA)
    budget.spend(event)
    return budget


def test_a_plan_may_take_all_and_no_more():
    event = calibrate(SingleFitTarget(EPSILON, DELTA), gaussian)
    budget = planned(event)
    assert (budget.remaining(), budget.epsilon_spent()) == (0.0, pytest.approx(EPSILON))
    assert not budget.can_afford(gaussian(1e6))
    budget.spend(event)
    assert "2 spent in 1 charge" in repr(budget)
    assert "width:100" in budget._repr_html_().replace(" ", "")
    with pytest.raises(ValueError, match="`planned` costs more than epsilon=2"):
        planned(event, gaussian(50.0))
    with pytest.raises(ValueError, match="and the two cannot be added"):
        planned(gaussian(50.0, relation=Relation.ADD_REMOVE))
    for odd in (gaussian(50.0), 1.0, None):
        with pytest.raises(TypeError, match="statements of fits"):
            PrivacyBudget(1.0, planned=[odd])


def test_each_planned_fit_is_made_once_by_whichever_budget_asks_first(tmp_path):
    twice, once = gaussian(8.0), gaussian(12.0)
    plan = list(map(stated, (twice, twice, once)))
    first = PrivacyBudget(EPSILON, DELTA, ledger=tmp_path / "l", planned=plan)
    second = PrivacyBudget.from_ledger(tmp_path / "l")
    for budget in (first, second, first, second):
        budget.spend(twice)
    second.spend(gaussian(12.0, label="the same release"))
    third = PrivacyBudget(EPSILON, DELTA, ledger=tmp_path / "l", planned=plan)
    third.spend(once)
    history = third.history()
    assert history["planned"].tolist() == [True, True, False, False, True, False]
    assert (history["mu"] > 0.0).tolist() == (~history["planned"]).tolist()
    assert history["epsilon"].iloc[0] == 1.0


@pytest.mark.parametrize(
    ("event", "dearer", "nearly"),
    [
        (gaussian(8.0), gaussian(7.99), gaussian(8.0 * (1 + 1e-9))),
        (gaussian(8.0), gaussian(16.0, n_steps=4), gaussian(80.0)),
        (subsets(9.0), subsets(8.9), subsets(9.0)),
        (search(0.1), search(0.101), search(0.1)),
    ],
)
def test_only_what_costs_no_more_than_was_planned_is_free(event, dearer, nearly):
    budget = planned(event)
    budget.spend(dearer)
    assert budget.history()["mu"].iloc[0] > 0.0
    budget.spend(nearly)
    budget.spend(event)
    equal = compose(nearly).epsilon(DELTA) == pytest.approx(compose(event).epsilon(DELTA), rel=1e-6)
    assert budget.history()["planned"].tolist() == [False, equal, not equal]


def test_a_plan_is_part_of_the_terms_of_a_ledger(tmp_path):
    path, event = tmp_path / "l", gaussian(8.0)
    budget = planned(event, ledger=path)
    for others in ((), (event, event), (gaussian(9.0),)):
        with pytest.raises(LedgerError, match="was made for"):
            planned(*others, ledger=path)
    for statement in (
        "UPDATE terms SET planned = '[[1.0, 1e-05, 2, 3]'",
        "UPDATE terms SET planned = '[[1.0]]'",
        """UPDATE terms SET planned = '[[1.0, 0.1, "e", "mu", 0.0, 1, "()"]]'""",
        "UPDATE terms SET mu_squared_cap = '999999999999999'",
        "UPDATE terms SET planned = json_set(planned, '$[0][3]', 20.0)",
    ):
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute(statement)
        with pytest.raises(LedgerError, match="damaged"):
            PrivacyBudget.from_ledger(copy)
        copy.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE terms SET planned = '[]'")
    with pytest.raises(LedgerError, match="is now another ledger"):
        budget.spend(event)


NAMES = [name for name in ONE_EACH if name in ROWS | TABLES and name != "contribution"]


@pytest.mark.parametrize("name", swept([*NAMES, "search", "search, folds and refit"]))
def test_the_plan_of_a_fit_is_what_the_fit_charges(name):
    fit = FITS[name]
    statement = plan_fit(fit.estimator, fit.rows, **fit.given)
    assert not hasattr(fit.estimator, "privacy_spent_")
    budget = PrivacyBudget(9.0, 1e-4, planned=[statement])
    fitted = clone(fit.estimator).set_params(budget=budget).fit(fit.rows, **fit.given)
    assert budget.history()[["label", "planned"]].to_numpy().tolist() == [
        [type(fitted).__name__, True]
    ]
    # The estimator may add more to what it states.
    assert fitted.privacy_spent_.sigma == pytest.approx(statement.sigma, rel=1e-6)


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(TypeError, match="of a pipeline, plan each private step"):
        plan_fit(make_pipeline(PrivateScaler()), X)
    with pytest.raises(ValueError, match="releases nothing in this fit"):
        plan_fit(*TABLES["encoder, all known"][:2])


def gains(p, q, pairs, scale):
    """The largest advantage of who chooses the next of some pairs by all earlier results."""
    stop = max(p - scale * q, 0.0)
    rest = [
        sum(
            gains(p * a, q * b, pairs[:i] + pairs[i + 1 :], scale)
            for a, b in zip(*pairs[i], strict=True)
        )
        for i in range(len(pairs))
    ]
    return max([stop, *rest])


def test_no_order_of_planned_events_gains_but_a_choice_of_events_by_one_epsilon_does():
    rng = np.random.default_rng(0)
    for _ in range(20):
        pairs = [rng.dirichlet(np.ones(3), size=2) for _ in range(3)]
        scale = rng.uniform(1.0, 3.0)
        p, q = (
            np.multiply.outer(np.multiply.outer(pairs[0][k], pairs[1][k]), pairs[2][k]).ravel()
            for k in (0, 1)
        )
        assert gains(1.0, 1.0, pairs, scale) == pytest.approx(hockey_stick(p, q, np.log(scale)))
    # Two events of one delta at epsilon, after a first one: choosing by its result gains.
    first = np.array([[0.6, 0.4], [0.4, 0.6]])
    one, other = np.array([[0.7, 0.3], [0.3, 0.7]]), np.array([[0.5, 0.4, 0.1], [0.5, 0.5, 0.0]])
    scale = 1.5

    chosen = sum(
        max(
            sum(max(p * a - scale * q * b, 0.0) for a, b in zip(*second, strict=True))
            for second in (one, other)
        )
        for p, q in zip(*first, strict=True)
    )
    alone = [
        sum(
            max(p * a - scale * q * b, 0.0)
            for p, q in zip(*first, strict=True)
            for a, b in zip(*second, strict=True)
        )
        for second in (one, other)
    ]
    assert chosen > max(alone) + 1e-3
