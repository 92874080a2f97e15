"""The privacy statement of a fit, and the sum over several fits."""

import math
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpot.exceptions import BudgetExceededError, CalibrationError, PrivacyWarning
from skdpot.privacy import accounting, gdp, loss_distribution, sampling
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.charges import ROWS_GIVEN, charge
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent, Relation
from skdpot.privacy.gdp import gdp_delta
from skdpot.privacy.rounding import epsilon_text, rounded_down, rounded_up
from skdpot.privacy.spent import silent_parts, total_spent
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import PrivacyTarget, SingleFitTarget
from tests.contract.accountant_suite import exact_gdp_delta
from tests.core.privacy.cases import gaussian, subsets
from tests.payer import Payer

TRAINING = subsets(3.0, 60, 300, 40)


def fit_of(epsilon, delta=1e-5):
    return calibrate(PrivacyTarget(epsilon, delta), gaussian)


def spent_on(event, *, epsilon=1.0, delta=1e-5, budget=None, label="Sketch", **other):
    arguments = {
        "n_samples": 900,
        "assumptions": ["the number of rows, 900"],
        "scales": (4.0, 1.0),
        "mechanism": "sketch",
        "noise_given": epsilon is None,
    }
    return charge(Payer(budget, epsilon, delta, label), event, **arguments | other)


def exact_epsilon(mu, delta):
    """The epsilon of mu-GDP, by another route than the package's."""
    return brentq(lambda epsilon: exact_gdp_delta(epsilon, mu) - delta, 0.0, 100.0, xtol=1e-12)


@pytest.fixture
def other_machine(monkeypatch):
    """Make every profile wrong by a random relative 2e-10, far more than machines differ by."""

    def become(seed):
        rng = np.random.default_rng(seed)

        def computed(epsilon, mu):
            exact = gdp_delta(epsilon, mu)
            return exact * (1 + 2e-10 * rng.uniform(-1, 1, np.shape(epsilon)))

        for module in (gdp, loss_distribution, sampling):
            monkeypatch.setattr(module, "gdp_delta", computed)
        forget()

    def forget():
        for cached in (gdp.gdp_epsilon, gdp.gdp_mu, accounting._composed):
            cached.cache_clear()
        accounting._epsilon.cache_clear()

    yield become
    monkeypatch.undo()
    forget()


@pytest.mark.slow
@pytest.mark.parametrize("event", [gaussian(0.7), TRAINING, gaussian(1e-3, n_steps=10)])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_a_statement_bounds_what_any_machine_computes(event, delta, other_machine):
    """Of an event whose noise was given, and of calibrated ones."""
    stated = spent_on(event, epsilon=None, delta=delta).epsilon
    assert stated <= (1 + 1e-6) * compose(event).epsilon(delta)
    alone, shared = SingleFitTarget(1.0, delta), PrivacyTarget(1.0, delta)
    fits = [calibrate(target, lambda s: replace(event, sigma=s)) for target in (alone, shared)]
    for seed in range(3):
        other_machine(seed)
        assert compose(event).epsilon(delta) <= stated
        assert all(compose(one).epsilon(delta) <= 1.0 for one in fits)
        assert alone.admits(fits[0])


class Release(TransformerMixin, BaseEstimator):
    """A private transformer."""

    def __init__(self, epsilon=1.0, event=None, delta=1e-5):
        self.epsilon = epsilon
        self.event = event
        self.delta = delta

    def fit(self, X, y=None):
        event = self.event or fit_of(self.epsilon, self.delta)
        self.privacy_spent_ = spent_on(event, epsilon=self.epsilon, delta=self.delta)
        return self

    def transform(self, X):
        return X


X = np.arange(12.0).reshape(6, 2)


# charge


def test_a_charge_returns_the_statement_and_goes_to_the_budget_under_its_label():
    budget, event = PrivacyBudget(2.0), fit_of(1.0)
    spent = spent_on(event, budget=budget)
    facts = event, 4.0, 1.0, ("the number of rows, 900", ROWS_GIVEN), "sketch"
    assert spent == PrivacySpent(1.0, 1e-5, Relation.REPLACE_ONE, *facts)
    assert pickle.loads(pickle.dumps(spent)) == spent
    with pytest.raises(FrozenInstanceError):
        spent.epsilon = 0.1
    assert budget.epsilon_spent() == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError, match="'Sketch' asks for"):
        spent_on(fit_of(1.8), epsilon=1.8, budget=budget)
    assert budget.history()["label"].tolist() == ["Sketch"]


def test_noise_that_was_given_is_stated_with_what_it_costs():
    exact = exact_epsilon(1 / 40, 1e-5)
    assert exact <= spent_on(gaussian(40.0), epsilon=None).epsilon <= exact * (1 + 1e-6)
    for epsilon in (None, math.inf):
        assert spent_on(NonPrivateEvent(), epsilon=epsilon).epsilon == math.inf
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    spent_on(gaussian(2.0), epsilon=None, budget=budget)
    assert len(budget.history()) == 1
    with pytest.raises(BudgetExceededError):
        spent_on(gaussian(0.3), epsilon=None, budget=budget)


@pytest.mark.parametrize(
    ("event", "options", "kind", "message"),
    [
        (gaussian(3.7), {}, CalibrationError, "Sketch: the noise is too small for epsilon=1 at"),
        (NonPrivateEvent(), {"epsilon": 1e6}, CalibrationError, "too small"),
        (NonPrivateEvent(), {"epsilon": math.inf}, BudgetExceededError, "epsilon=inf"),
        (gaussian(9.0), {"epsilon": -1.0}, ValueError, "`epsilon` must be > 0"),
        (gaussian(9.0), {"epsilon": None, "delta": 0.0}, ValueError, "`delta` must lie in"),
        (gaussian(9.0), {"budget": 5.0}, TypeError, "a PrivacyBudget or None, got float"),
        (gaussian(9.0, relation="add_or_remove_one"), {}, ValueError, "budget holds relation="),
        (gaussian(9.0), {"assumptions": None}, TypeError, "not iterable"),
    ],
)
def test_what_cannot_be_charged_is_refused_before_the_charge(event, options, kind, message):
    budget = PrivacyBudget(5.0)
    with pytest.raises(kind, match=message):
        spent_on(event, **{"budget": budget} | options)
    assert budget.history().empty


# the statement


def test_the_statement_reads_well():
    assumptions = ("n", "the classes 0 to 9", "a < b")
    spent = spent_on(fit_of(1.0), assumptions=assumptions, mechanism="<i>")
    for text in ("ε = 1, δ = 1e-05", "one record replaced by another", *assumptions, "<i>"):
        assert text in str(spent)
    html = spent._repr_html_()
    assert all(text in html for text in ("ε = 1", "δ = 1e-05", "&lt;i&gt;", "a &lt; b"))
    assert "<i>" not in html
    phases = spent_on(fit_of(1.0), scales=((1.0, 2.5), None), mechanism="")
    assert "1, 2.5" in str(phases)
    assert not {"sensitivity", "mechanism"} & set(str(phases).split())
    assert "nothing (epsilon is inf" in str(spent_on(NonPrivateEvent(), epsilon=math.inf))
    frame = pd.concat([spent.to_frame(), phases.to_frame()], ignore_index=True)
    assert frame["epsilon"].tolist() == [1.0, 1.0]
    assert frame["sigma"].tolist() == [4.0, (1.0, 2.5)]
    assert frame["relation"].tolist() == ["replace_one"] * 2
    assert frame["event"][0].startswith("GaussianEvent(sigma=")


# total_spent


def test_two_fits_compose_as_gaussians():
    first, second = Release(event=gaussian(5.0)).fit(X), Release(event=gaussian(4.0)).fit(X)
    total = total_spent(first, second)
    assert total.epsilon == pytest.approx(exact_epsilon(math.hypot(1 / 5, 1 / 4), 1e-5), rel=1e-9)
    assert total.event == ComposedEvent(events=(gaussian(5.0), gaussian(4.0)))
    assert (total.mechanism, total.delta) == ("sketch + sketch", 1e-5)
    assert total.assumptions == ("the number of rows, 900", ROWS_GIVEN)
    assert (total.sigma, total.sensitivity) == (None, None)
    assert total_spent(second, first).epsilon == total.epsilon
    parts = [Release(epsilon=e).fit(X) for e in (0.5, 1.0, 2.0)]
    assert 2.0 < total_spent(*parts).epsilon < 3.5  # of basic composition
    assert 0.98 < total_spent(parts[1]).epsilon <= 1.0
    assert total_spent(parts[1].privacy_spent_) == total_spent(parts[1])


def test_the_delta_of_the_total():
    parts = [Release(delta=1e-7).fit(X), Release(delta=1e-5).fit(X)]
    total, stricter = total_spent(*parts), total_spent(*parts, delta=1e-8)
    assert (total.delta, stricter.delta) == (1e-5, 1e-8)
    assert stricter.epsilon > total.epsilon
    with pytest.raises(ValueError, match="`delta` must lie in"):
        total_spent(*parts, delta=2.0)
    assert total_spent(*parts, delta=1e-18).epsilon == math.inf  # below the sampler's own error


def test_a_pipeline_is_the_sum_of_its_steps():
    pipeline = make_pipeline(Release(0.5), "passthrough", FunctionTransformer(), Release(1.0))
    pipeline.fit(X)
    total = total_spent(pipeline)
    assert total == total_spent(pipeline[0], pipeline[-1])
    assert len(total.event.events) == 2
    assert total_spent(pipeline, pipeline[0]) == total  # the same fit again
    nested = Pipeline([("inner", pipeline), ("last", None)]).fit(X)
    assert total_spent(nested).epsilon == total.epsilon


def test_other_composites_are_searched_and_silent_steps_named():
    union = FeatureUnion([("a", Release(0.5)), ("b", Release(1.0)), ("c", "drop")]).fit(X)
    columns = ColumnTransformer([("a", Release(0.5), [0]), ("b", Release(1.0), [1])]).fit(X)
    for composite in (union, columns):
        assert len(total_spent(composite).event.events) == 2
    (*_, note) = total_spent(make_pipeline(StandardScaler(), Release(1.0)).fit(X)).assumptions
    assert note.startswith("StandardScaler (it has no event) learned nothing")
    bare = Release(epsilon=math.inf, event=NonPrivateEvent()).fit(X)
    assert total_spent(bare, Release(1.0).fit(X)).epsilon == math.inf


class Free(Release):
    """A fit that released nothing, as that of an encoder whose schema is public."""

    def fit(self, X, y=None):
        self.privacy_spent_ = None
        return self


def test_a_step_that_released_nothing_is_no_silent_one():
    pipeline = make_pipeline(Free(), Release(1.0)).fit(X)
    total = total_spent(pipeline)
    assert total == total_spent(pipeline[-1]) == total_spent(*pipeline)
    assert silent_parts(pipeline) == silent_parts(pipeline[0]) == ()
    with pytest.raises(TypeError, match="Free spent nothing: the fit released nothing"):
        total_spent(pipeline[0])
    silent = make_pipeline(Free(), StandardScaler()).fit(X)
    with pytest.raises(TypeError, match="Pipeline has no `privacy_spent_`"):
        total_spent(silent)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(TypeError, match="Release has no `privacy_spent_`: fit it first"):
        total_spent(Release(1.0))
    with pytest.raises(TypeError, match="StandardScaler has no `privacy_spent_`"):
        total_spent(Release(1.0).fit(X), StandardScaler().fit(X))
    with pytest.raises(ValueError, match="at least one"):
        total_spent()
    search = GridSearchCV(Release(), {"epsilon": [0.5, 1.0]}, cv=2, scoring=lambda *_: 0.0)
    with pytest.raises(TypeError, match="GridSearchCV made many fits"):
        total_spent(search.fit(X))
    other = Release(event=gaussian(9.0, relation="add_or_remove_one")).fit(X)
    with pytest.raises(ValueError, match="must share one relation"):
        total_spent(Release(1.0).fit(X), other)


def test_delta_is_compared_with_what_is_public_only():
    """Under add/remove the number of rows is protected, and nothing may be said of it."""
    kept = gaussian(9.0, relation=Relation.ADD_REMOVE)
    spent_on(kept, epsilon=None, delta=0.01)
    budget = PrivacyBudget(1.0, delta=0.01)
    with pytest.warns(PrivacyWarning, match=r"the budget's delta = 0.01 .* \(900\)"):
        spent_on(gaussian(9.0), delta=1e-5, budget=budget)
    for bare in (None, PrivacyBudget(math.inf, delta=0.01)):  # nobody is protected anyway
        spent_on(NonPrivateEvent(), epsilon=math.inf, delta=0.01, budget=bare)


def test_epsilon_is_printed_as_it_was_typed_or_rounded_up():
    shown = {0.1: "0.1", 0.3: "0.3", 1 / 3: "0.3334", 1.0: "1", 2.7: "2.7", 0.1 + 0.2: "0.3001"}
    assert {value: rounded_up(value) for value in shown} == shown
    assert rounded_down(0.7) == "0.7"
    assert rounded_down(2 / 3) == "0.6666"
    assert epsilon_text(0.1) == "ε = 0.1"
