"""Estimators and budgets: what is charged, when, and how often."""

import gc
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skdpot import PrivacyBudget, SlicedSketch
from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy.events import gdp_epsilon
from skdpot.release.bounds import DataBounds
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (60, 2))
Y = RNG.integers(0, 2, 60)
QUICK = {"bounds": (-1, 1), "n_projections": 2, "n_bins": 8, "n_steps": 2, "n_particles": 20}


def sampler(budget=None, **changes):
    return flow_sampler(budget=budget, **(QUICK | changes))


def budget_for(n_fits, epsilon=1.0):
    """A budget that admits `n_fits` fits of `epsilon` and not one more."""
    one = PrivacyBudget(epsilon)
    sampler(one, epsilon=epsilon).fit(X)
    mu = one.history()["mu"][0]
    return PrivacyBudget(gdp_epsilon(mu * math.sqrt(n_fits + 0.5), 0.9e-5))


def test_a_search_that_runs_out_says_so():
    budget = budget_for(4)
    search = GridSearchCV(sampler(budget), {"mechanism__n_bins": [4, 8]}, cv=3, error_score="raise")
    with pytest.raises(BudgetExceededError, match="left"):
        search.fit(X)
    assert len(budget.history()) == 4


def test_the_whole_budget_pays_for_one_fit_exactly():
    for conditional in (False, True):
        for bounds in ((-1, 1), "private"):
            budget = PrivacyBudget(2.0, 1e-6)
            fit = sampler(budget, epsilon=2.0, delta=1e-6, bounds=bounds, conditional=conditional)
            if bounds == "private":
                with pytest.warns(UserWarning, match="Private bounds"):
                    fit.fit(X, Y)
            else:
                fit.fit(X, Y)
            assert budget.remaining() < 0.02
            with pytest.raises(BudgetExceededError, match="left"):
                sampler(budget, epsilon=0.1, delta=1e-6).fit(X)


def test_a_refused_fit_changes_nothing():
    budget = budget_for(1)
    fitted = sampler(budget).fit(X)
    before = dict(vars(fitted))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(X + 1)
    assert vars(fitted) == before
    assert len(budget.history()) == 1
    fresh = sampler(budget)
    untouched = dict(vars(fresh))
    with pytest.raises(BudgetExceededError, match="left"):
        fresh.fit(X)
    assert vars(fresh) == untouched


def test_no_noise_needs_a_budget_without_a_cap():
    with pytest.raises(BudgetExceededError, match="left"):
        sampler(PrivacyBudget(1e6), epsilon=np.inf).fit(X)
    unlimited = PrivacyBudget(np.inf)
    assert sampler(unlimited, epsilon=np.inf).fit(X).privacy_spent_.epsilon == np.inf
    assert len(unlimited.history()) == 1


def test_the_statement_names_what_is_public():
    options = {"bounds": "private", "norm_bound": 2.0, "conditional": True}
    stated = " ".join(sampler(**options).fit(X, Y).privacy_spent_.assumptions)
    assert "set of classes" in stated
    assert "bounds given by the caller" in stated
    with pytest.warns(UserWarning, match="Private bounds"):
        private = sampler(bounds="private").fit(X).privacy_spent_
    assert "bounds given by the caller" not in " ".join(private.assumptions)


@pytest.mark.parametrize("bounds", [(-1, 1), "private"])
@pytest.mark.parametrize("estimator", ["fit", "partial_fit", "sampler"])
def test_the_charge_is_on_the_disk_before_noise_and_data(estimator, bounds, tmp_path, monkeypatch):
    """Rule 6: charge, then draw the noise, then touch rows."""
    budget = PrivacyBudget(5.0, ledger=tmp_path / "ledger.sqlite")
    seen = {"noise": [], "rows": []}

    def watched(name, method):
        def spy(self, *args):
            seen[name].append(len(budget.history()))
            return method(self, *args)

        return spy

    monkeypatch.setattr(SecretStream, "random_bytes", watched("noise", SecretStream.random_bytes))
    monkeypatch.setattr(DataBounds, "to_ball", watched("rows", DataBounds.to_ball))
    options = {"budget": budget, "bounds": bounds, "n_projections": 2, "n_bins": 8}
    rows = np.tile(X, (50, 1))  # enough for private bounds to be found without a warning
    if estimator == "sampler":
        flow_sampler(**options, n_steps=2, n_particles=20).fit(rows)
    elif estimator == "fit":
        SlicedSketch(**options).fit(rows)
    else:
        SlicedSketch(**options).partial_fit(rows, n_samples=len(rows))
    for calls in seen.values():
        assert calls
        assert set(calls) == {1}


def test_a_refused_charge_draws_nothing(monkeypatch):
    drawn = []
    monkeypatch.setattr(SecretStream, "random_bytes", lambda self, n: drawn.append(n) or bytes(n))
    monkeypatch.setattr(DataBounds, "to_ball", lambda self, X: drawn.append(X) or X)
    budget = PrivacyBudget(0.1)
    for estimator in (sampler(budget), SlicedSketch(budget=budget, bounds=(-1, 1))):
        with pytest.raises(BudgetExceededError, match="left"):
            estimator.fit(X)
    assert not drawn


def test_sampling_and_scoring_are_free():
    budget = PrivacyBudget(5.0)
    fitted = sampler(budget, conditional=True).fit(X, Y)
    fitted.sample(100)
    fitted.sample_labeled(100)
    fitted.score(X)
    fitted.sketch_.distance(X)
    fitted.sketch_.quantiles([0.5], label=1)
    assert len(budget.history()) == 1


def test_a_fitted_sampler_outlives_its_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite"
    budget = PrivacyBudget(5.0, ledger=path)
    stored = pickle.dumps(sampler(budget, conditional=True).fit(X, Y))
    Path(path).unlink()
    del budget
    gc.collect()
    loaded = pickle.loads(stored)
    assert loaded.sample(5).shape == (5, 2)
    assert loaded.score(X) < 0
    assert loaded.privacy_spent_.epsilon == 1.0
    assert "DPSlicedFlowSampler" in repr(loaded)
    with pytest.raises(LedgerError, match="ledger"):
        loaded.fit(X, Y)
