"""Every estimator with every mechanism: what a fit is charged, when, and what failed ones leave."""

import gc
import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    FairPrivatePostProcessor,
    PrivacyBudget,
    PrivateSearchCV,
    SlicedSketch,
)
from skdpot._utils.streams import SecretStream
from skdpot.distance.party import Party
from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.fair.bayes_rule import PlacedScores
from skdpot.fair.group_scores import GroupScores
from skdpot.fair.training_rows import TrainingRows
from skdpot.mechanisms import Gradient, LatentNetwork, Resample, Sketch
from skdpot.privacy.accounting import compose
from skdpot.release.bounds import DataBounds
from skdpot.release.value_histogram import Histograms
from skdpot.tables.contingency import CountedRows
from tests.contract.fits import BOX, FITS, GROUPS, ROWS, TABLES, N, X, swept
from tests.contract.test_draws_are_charged import ONE_EACH

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
    pytest.mark.usefixtures("few_synthetic_rows"),
]

# An estimator that spends epsilon = 1, its rows, and what `fit` is given beside them.
NAMES = [name for name in ONE_EACH if name in ROWS | TABLES and name != "contribution"]
NAMES += ["paths, mfld, kmeans", "search", "search, folds and refit"]
CASES = {name: (FITS[name].estimator, FITS[name].rows, FITS[name].given) for name in NAMES}


def watched(patch, budget):
    """Note how many charges were on the disk whenever noise was drawn or rows were read."""
    seen = {"drawn": set(), "read": set()}

    def spied(kind, method):
        def spy(*args):
            seen[kind].add(len(budget.history()))
            return method(*args)

        return spy

    for kind, owner, name in (
        ("drawn", SecretStream, "random_bytes"),
        ("read", DataBounds, "to_ball"),
        ("read", CountedRows, "counts"),
        ("read", Histograms, "count"),
        ("read", TrainingRows, "take"),
        ("read", TrainingRows, "of"),
        ("read", GroupScores, "__call__"),
        ("read", PlacedScores, "counted"),
    ):
        patch.setattr(owner, name, spied(kind, getattr(owner, name)))
    return seen


@pytest.fixture(scope="module", params=swept(CASES))
def charged(request, tmp_path_factory):
    """A fit, and how many charges were on the disk whenever it drew noise or read rows."""
    estimator, rows, given = CASES[request.param]
    budget = PrivacyBudget(1.0, ledger=tmp_path_factory.mktemp("charges") / "ledger.sqlite")
    with pytest.MonkeyPatch.context() as patch:
        seen = watched(patch, budget)
        fitted = clone(estimator).set_params(budget=budget).fit(rows, **given)
    # Sums of a search are counted by code that is not watched.
    counted = request.param.startswith("search")
    return SimpleNamespace(
        fitted=fitted, rows=rows, given=given, budget=budget, counted=counted, **seen
    )


def test_the_charge_is_on_the_disk_before_noise_and_rows(charged):
    assert charged.drawn == {1}
    assert charged.read == (set() if charged.counted else {1})


DISTANCE = FITS["distance"].estimator
PUBLISHING = {
    "stream": lambda budget, _: SlicedSketch(budget=budget).partial_fit(X, n_samples=N),
    "transform": lambda budget, fitted: fitted.set_params(budget=budget).transform(-X),
    "party": lambda budget, fitted: fitted.distance(Party("there", -X, budget=budget)),
}


@pytest.mark.parametrize("way", PUBLISHING)
def test_whoever_publishes_charges_first(way, tmp_path, monkeypatch):
    budget = PrivacyBudget(5.0, ledger=tmp_path / "ledger.sqlite")
    fitted = clone(DISTANCE).set_params(**BOX).fit(X)
    seen = watched(monkeypatch, budget)
    PUBLISHING[way](budget, fitted)
    assert seen == {"drawn": {1}, "read": {1}}


def test_one_charge_pays_for_all_of_epsilon_and_for_later_use(charged):
    fitted, spent = charged.fitted, charged.fitted.privacy_spent_
    assert (spent.epsilon, spent.delta) == (1.0, 1e-5)
    least = 0.85 if isinstance(fitted, PrivateSearchCV) else 0.97  # its selection has no one mu
    assert least <= compose(spent.event).epsilon(1e-5) <= 1.0
    score = charged.rows, charged.given.get("y")
    more = {"sensitive_features": GROUPS} if isinstance(fitted, FairPrivatePostProcessor) else {}
    for use, given in (("sample", (3,)), ("predict", (charged.rows,)), ("score", score)):
        if hasattr(fitted, use):
            getattr(fitted, use)(*given, **({} if use == "sample" else more))
    assert list(charged.budget.history()["label"]) == [type(fitted).__name__]


def test_a_fit_that_the_budget_refuses_changes_nothing(charged, monkeypatch):
    seen = watched(monkeypatch, charged.budget)
    few = {name: value[:200] for name, value in charged.given.items()}
    for unchanged in (charged.fitted, clone(charged.fitted).set_params(budget=charged.budget)):
        before = dict(vars(unchanged))
        with pytest.raises(BudgetExceededError, match="left"):
            unchanged.fit(charged.rows[:200], **few)
        assert vars(unchanged) == before
    assert len(charged.budget.history()) == 1
    assert not seen["drawn"] | seen["read"]


@pytest.mark.parametrize("case", swept(CASES))
def test_no_noise_needs_a_budget_without_a_cap(case):
    estimator, rows, given = CASES[case]
    free = clone(estimator).set_params(epsilon=math.inf, budget=PrivacyBudget(1e6))
    with pytest.raises(BudgetExceededError, match="left"):
        free.fit(rows, **given)
    spent = free.set_params(budget=PrivacyBudget(math.inf)).fit(rows, **given).privacy_spent_
    assert spent.epsilon == compose(spent.event).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("case", swept(CASES))
def test_a_fit_interrupted_at_its_first_noise_leaves_only_its_charge(case, monkeypatch):
    estimator, rows, given = CASES[case]
    budget = PrivacyBudget(1.0)
    interrupted = clone(estimator).set_params(budget=budget)
    before = dict(vars(interrupted))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SecretStream, "random_bytes", stop)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(rows, **given)
    assert vars(interrupted) == before
    assert len(budget.history()) == 1


# Batches of all rows have a cost in closed form.
SMALL = {"bounds": (-2, 2), "n_steps": 2}
SEARCHES = {
    "flow": (
        DPSlicedFlowSampler(Resample(len(X)), **SMALL),
        [
            {"last__mechanism__n_projections": [5, 6]},
            {"last__mechanism": [Sketch(n_bins=16), Resample(len(X), noise="float")]},
        ],
        {},
    ),
    "generator": (
        DPSlicedGenerator(Gradient(len(X)), module=LatentNetwork(latent_dim=2), **SMALL),
        {"last__mechanism__clip_jacobian": [0.5, 1.0], "last__module__latent_dim": [1, 3]},
        {},
    ),
    "autoencoder": (
        FITS["autoencoder, parity"].estimator,
        [{"last__penalty": [None]}, {"last__penalty__alpha": [0.0, 0.5]}],
        {"sensitive_features": GROUPS},
    ),
    "classifier": (
        FITS["classifier"].estimator,
        {"last__mechanism__clip_gradient": [0.1, 3.0]},
        FITS["classifier"].given,
    ),
}


@pytest.mark.parametrize("case", SEARCHES)
def test_a_search_in_a_pipeline_charges_every_fit(case):
    """Folds times candidates and the refit; it reaches parameters of mechanisms, and mechanisms."""
    estimator, grid, given = SEARCHES[case]
    budget = PrivacyBudget(100.0)
    last = clone(estimator).set_params(budget=budget)
    with sklearn.config_context(enable_metadata_routing=bool(given)):
        if given:
            last.set_fit_request(sensitive_features=True)
        pipeline = Pipeline([("same", FunctionTransformer()), ("last", last)])
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
        search.fit(X, **given)
    n_fits = 2 * len(search.cv_results_["params"]) + 1
    assert list(budget.history()["label"]) == [type(estimator).__name__] * n_fits
    best = search.best_estimator_[-1]
    assert best.budget is budget
    for name, value in search.best_params_.items():
        assert repr(search.best_estimator_.get_params()[name]) == repr(value)
    assert repr(best.mechanism_) == repr(best.mechanism)
    assert best.mechanism_ is not best.mechanism
    assert repr(last.mechanism) == repr(estimator.mechanism)


CALLER = "bounds given by the caller"
BOUND = {"norm_bound": 2.0}
OF_PERSONS = {"group_size": 2} | BOX
PERSONS = (
    "the time stamp of every row",
    "at each of 4 times",
    "which rows belong to one person",
    "at most 2 rows",
    CALLER,
)


@pytest.mark.parametrize(
    ("case", "options", "facts"),
    [
        ("flow, classes", BOUND, ("set of classes", CALLER)),
        ("flow", {}, ()),
        ("paths", OF_PERSONS, PERSONS),
        ("paths, mfld", OF_PERSONS, PERSONS),
    ],
)
def test_the_statement_names_what_is_public(case, options, facts):
    estimator, rows, given = CASES[case]
    persons = {"groups": np.arange(N)} if "group_size" in options else {}
    fitted = clone(estimator).set_params(**options).fit(rows, **given, **persons)
    stated = " ".join(fitted.privacy_spent_.assumptions)
    assert all(fact in stated for fact in facts)
    assert (CALLER in stated) == (CALLER in facts)
    assert str(fitted.privacy_spent_.relation) == "replace_one"


@pytest.mark.parametrize("case", ["flow, classes", "paths"])
def test_a_fitted_sampler_outlives_its_ledger(case, tmp_path):
    estimator, rows, given = CASES[case]
    path = tmp_path / "ledger.sqlite"
    fitted = clone(estimator).set_params(budget=PrivacyBudget(5.0, ledger=path))
    stored, drawn = pickle.dumps(fitted.fit(rows, **given)), fitted.sample(5, random_state=1)
    Path(path).unlink()
    del fitted
    gc.collect()
    loaded = pickle.loads(stored)
    np.testing.assert_array_equal(loaded.sample(5, random_state=1), drawn)
    assert loaded.score(rows, given["y"]) < 0
    assert loaded.privacy_spent_.epsilon == 1.0
    assert "Sampler" in repr(loaded)
    with pytest.raises(LedgerError, match="ledger"):
        loaded.fit(rows, **given)
