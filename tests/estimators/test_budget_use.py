"""Samplers and budgets: what is charged, when, for what, and what a refusal leaves as it was."""

import gc
import math
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skdpot import PrivacyBudget, SlicedSketch
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy.events import NonPrivateEvent, gdp_epsilon
from skdpot.release import bounds as plan
from skdpot.release.bounds import DataBounds
from tests.estimators.trajectory_examples import MFLD, SKETCH
from tests.flat_options import flow_sampler, trajectory_sampler

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (400, 2))
Y = np.arange(400) % 4  # classes, or times
SMALL = {"bounds": (-1, 1), "n_projections": 2, "n_bins": 8}
FLOW = SMALL | {"n_steps": 2, "n_particles": 20}


class Stream(SlicedSketch):
    """A sketch that takes its rows as a stream."""

    def fit(self, X, y=None):
        return self.partial_fit(X, n_samples=len(X))


KINDS = {
    "sketch": partial(SlicedSketch, **SMALL),
    "stream": partial(Stream, **SMALL),
    "flow": partial(flow_sampler, **FLOW),
    "flow, classes": partial(flow_sampler, **FLOW, conditional=True),
    "paths": partial(trajectory_sampler, **SKETCH),
    "mfld": partial(trajectory_sampler, **MFLD),
    "mfld, mean": partial(trajectory_sampler, **MFLD, warm_start="mean"),
    "mfld, kmeans": partial(trajectory_sampler, **MFLD, warm_start="kmeans"),
}
BOUNDS = pytest.mark.parametrize("bounds", [(-1, 1), "private"], ids=["box", "private"])


def calibrated(kind, **options):
    """An estimator whose noise follows from epsilon."""
    given = {"noise_multiplier": None} if kind.startswith("mfld") else {}
    return KINDS[kind](**given, **options)


@BOUNDS
@pytest.mark.parametrize("kind", KINDS)
def test_the_charge_is_on_the_disk_before_noise_and_data(kind, bounds, tmp_path, monkeypatch):
    """Rule 6: charge, then draw the noise, then touch rows."""
    budget = PrivacyBudget(50.0, ledger=tmp_path / "ledger.sqlite")
    seen = {"noise": [], "rows": []}

    def watched(name, function):
        def spy(*args):
            seen[name].append(len(budget.history()))
            return function(*args)

        return spy

    noise, to_ball = SecretStream.random_bytes, DataBounds.to_ball
    monkeypatch.setattr(SecretStream, "random_bytes", watched("noise", noise))
    monkeypatch.setattr(DataBounds, "to_ball", watched("rows", to_ball))
    released = watched("rows", plan.release_private_bounds)
    monkeypatch.setattr(plan, "release_private_bounds", released)
    KINDS[kind](bounds=bounds, budget=budget).fit(X, Y)
    for calls in seen.values():
        assert calls
        assert set(calls) == {1}


@BOUNDS
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
def test_the_whole_budget_pays_for_one_fit_and_refuses_another(kind, bounds, monkeypatch):
    """What is refused changes nothing and draws nothing; what was paid for stays of use."""
    budget = PrivacyBudget(1.0, 1e-4)
    options = {"delta": 1e-4, "bounds": bounds, "budget": budget}
    fitted = calibrated(kind, epsilon=1.0, **options).fit(X, Y)
    assert fitted.privacy_spent_.epsilon == 1.0
    assert budget.remaining() < 0.02
    with monkeypatch.context() as patch:
        patch.setattr(SecretStream, "random_bytes", lambda *_: pytest.fail("noise was drawn"))
        patch.setattr(DataBounds, "to_ball", lambda *_: pytest.fail("rows were read"))
        for refused in (fitted, calibrated(kind, epsilon=0.1, **options)):
            before = dict(vars(refused))
            with pytest.raises(BudgetExceededError, match="left"):
                refused.fit(X + 1, Y)
            assert vars(refused) == before
    if kind != "sketch":
        fitted.sample(5)
        fitted.score(X, Y)
    assert len(budget.history()) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "stream"])
def test_no_noise_needs_a_budget_without_a_cap(kind):
    with pytest.raises(BudgetExceededError, match="left"):
        calibrated(kind, epsilon=math.inf, budget=PrivacyBudget(1e6)).fit(X, Y)
    spent = calibrated(kind, epsilon=math.inf, budget=PrivacyBudget(math.inf)).fit(X, Y)
    assert spent.privacy_spent_.epsilon == math.inf
    assert spent.privacy_spent_.event == NonPrivateEvent()
    assert set(getattr(spent, "noise_multiplier_", [0.0])) == {0.0}


CALLER = "bounds given by the caller"
TIMES = ("the time stamp of every row", "at each of 4 times")
PERSONS = ("which rows belong to one person", "at most 2 rows")
BALL = {"bounds": "private", "norm_bound": 2.0}


@pytest.mark.parametrize(
    ("kind", "options", "facts"),
    [
        ("flow, classes", BALL, ("set of classes", CALLER)),
        ("flow", {"bounds": "private"}, ()),
        *[(kind, {"group_size": 2}, (*TIMES, *PERSONS, CALLER)) for kind in ("paths", "mfld")],
    ],
)
def test_the_statement_names_what_is_public(kind, options, facts):
    persons = {"groups": np.arange(400)} if "group_size" in options else {}
    spent = KINDS[kind](**options).fit(X, Y, **persons).privacy_spent_
    stated = " ".join(spent.assumptions)
    assert all(fact in stated for fact in facts)
    assert (CALLER in stated) == (CALLER in facts)
    assert str(spent.relation) == "replace_one"


def test_a_search_that_runs_out_says_so():
    """The budget admits four fits of epsilon 1, and not one more."""
    one = PrivacyBudget(1.0)
    KINDS["flow"](budget=one).fit(X)
    budget = PrivacyBudget(gdp_epsilon(one.history()["mu"][0] * math.sqrt(4.5), 0.9e-5))
    sampler = KINDS["flow"](budget=budget)
    search = GridSearchCV(sampler, {"mechanism__n_bins": [4, 8]}, cv=3, error_score="raise")
    with pytest.raises(BudgetExceededError, match="left"):
        search.fit(X)
    assert len(budget.history()) == 4


@pytest.mark.parametrize("kind", ["flow, classes", "paths"])
def test_a_fitted_sampler_outlives_its_ledger(kind, tmp_path):
    path = tmp_path / "ledger.sqlite"
    budget = PrivacyBudget(5.0, ledger=path)
    fitted = KINDS[kind](budget=budget).fit(X, Y)
    stored, rows = pickle.dumps(fitted), fitted.sample(5, random_state=1)
    Path(path).unlink()
    del budget, fitted
    gc.collect()
    loaded = pickle.loads(stored)
    np.testing.assert_array_equal(loaded.sample(5, random_state=1), rows)
    assert loaded.score(X, Y) < 0
    assert loaded.privacy_spent_.epsilon == 1.0
    assert "Sampler" in repr(loaded)
    with pytest.raises(LedgerError, match="ledger"):
        loaded.fit(X, Y)
