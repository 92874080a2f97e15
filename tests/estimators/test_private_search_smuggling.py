"""Ways in which learning without noise, or rows, could come out of a private search."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateScaler, PrivateSWAutoencoder
from skdpot.estimators import private_search
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import Presample
from skdpot.privacy.spent import PrivacySpent
from tests.estimators.reachable import reachable
from tests.estimators.search_cases import NoisyThreshold, search, with_trials
from tests.flat_options import flow_sampler, made, private_distance

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0.1).astype(int)
QUICK = made(FairPrivateClassifier, alpha=0.0, batch_fraction=1.0, n_steps=2)
FLOW = flow_sampler(bounds=(-1, 1), n_projections=3, n_steps=3, n_particles=50)
SHIFTS = {"m__shift": [0.0, 0.2]}


def before(step):
    return Pipeline([("s", step), ("m", NoisyThreshold())])


def columns(part, *, remainder="drop"):
    return ColumnTransformer([("c", part, [0])], remainder=remainder)


class Keeps(TransformerMixin, BaseEstimator):
    """Says that it learns nothing, and keeps the rows that it is handed."""

    def __init__(self, when="fit"):
        self.when = when

    def fit(self, X, y=None):
        if self.when == "fit":
            self.rows_ = np.asarray(X)
        return self

    def transform(self, X):
        if self.when == "transform":
            self.rows_ = np.asarray(X)
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


# ------------------------------------------------------------------ learning without noise

MEMORY = make_pipeline(FunctionTransformer(), memory="/tmp/nowhere")
TWO = FeatureUnion([("a", "passthrough"), ("b", StandardScaler())])
VOTE = VotingClassifier([("a", NoisyThreshold())])
LARGE = {"s": ["passthrough"] * 30 + [StandardScaler()], "m__shift": list(np.linspace(0, 1, 50))}
REFUSED = {
    "a step": (before(StandardScaler()), SHIFTS, "StandardScaler would learn from private rows"),
    "nothing private": (FunctionTransformer(), {}, "has no private part"),
    "a budget": (NoisyThreshold(budget=PrivacyBudget(1.0)), {}, "must be None"),
    "another private part": (before("passthrough"), {"m": [NoisyThreshold()]}, "private part"),
    "a step in place of passthrough": (before("passthrough"), {"s": [StandardScaler()]}, "learn"),
    "one of many values": (before("passthrough"), LARGE | {"m__fault": [None] * 2}, "would learn"),
    "all steps": (
        before("passthrough"),
        {"steps": [[("s", StandardScaler()), ("m", NoisyThreshold())]]},
        "`steps` cannot be searched",
    ),
    "a pipeline with memory": (make_pipeline(NoisyThreshold(), memory="x"), {}, "`memory`"),
    "a memory": (before("passthrough"), {"memory": ["/tmp/nowhere"]}, "`memory` cannot"),
    "a step with memory": (before("passthrough"), {"s": [MEMORY]}, "a pipeline with `memory`"),
    "transformers": (
        before(columns("passthrough")),
        {"s__transformers": [[("c", StandardScaler(), [0])]]},
        "`s__transformers` cannot",
    ),
    "a transformer": (before(columns("passthrough")), {"s__c": [StandardScaler()]}, "would learn"),
    "a remainder to try": (
        before(columns("passthrough")), {"s__remainder": [StandardScaler()]}, "`s__remainder` can",
    ),
    "a union that is put in": (before("passthrough"), {"s": [TWO]}, "would learn"),
    "a private part more": (
        before("passthrough"), {"s": ["passthrough", PrivateScaler()]}, "the same private parts",
    ),
    "a vote": (VOTE, {}, "would learn"),
    "a search in a search": (search(candidates={}), {}, "in a search would"),
    "the set of classes": (QUICK, {"classes": [[0, 1], [0, 1, 2]]}, "`classes` cannot"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_learn_is_refused_before_any_charge(case, log):
    estimator, candidates, message = REFUSED[case]
    budget = PrivacyBudget(5.0)
    options = {"budget": budget, "score_bounds": (-1, 1), "scoring": nothing}
    with pytest.raises(ValueError, match=message):
        search(estimator, candidates, **options).fit(X, Y)
    assert len(budget.history()) == 0
    assert not log


def nothing(estimator, rows, y):
    return np.zeros(len(rows))


@pytest.mark.parametrize(
    ("value", "message"),
    [(StandardScaler(), "StandardScaler would learn"), (PrivateScaler(), "same private parts")],
)
def test_every_candidate_that_is_drawn_is_checked(log, monkeypatch, value, message):
    """Where the check before the charge did not see it."""
    monkeypatch.setattr(private_search, "check_candidates", lambda *given: False)
    with pytest.raises(ValueError, match=message):
        search(before("passthrough"), {"s": [value]}).fit(X, Y)
    assert not log


@pytest.mark.parametrize("when", ["fit", "transform"])
def test_a_part_that_keeps_rows_is_refused(when):
    budget = PrivacyBudget(5.0)
    with pytest.raises(RuntimeError, match="ValueError"):
        search(before(Keeps(when)), SHIFTS, budget=budget).fit(X, Y)
    assert len(budget.history()) == 1


@pytest.mark.parametrize(
    "estimator",
    [
        made(PrivateSWAutoencoder, 2, private=False, n_steps=2),
        private_distance(protocol="triangle"),
        private_distance(protocol="fedwad"),
        clone(FLOW).set_params(mechanism=Presample(sigma=0.0)),
        clone(FLOW).set_params(mechanism=Presample(n_projections=3, sigma=0.05)),
    ],
    ids=["autoencoder", "triangle", "fedwad", "no noise", "little noise"],
)
def test_what_has_no_noise_cannot_pay(estimator):
    with pytest.raises(BudgetExceededError, match="left"):
        search(estimator, {}, scoring=nothing).fit(X)


# ------------------------------------------------------------------ what works

STEPS = ["passthrough", FunctionTransformer(np.abs), Normalizer()]
TEMPLATES = {
    "functions": before(FunctionTransformer(np.abs).set_output(transform="default")),
    "stateless": before(make_pipeline(Binarizer(), Normalizer())),
    "frozen": before(FrozenEstimator(StandardScaler().fit(X[:5] + 1))),
    "union": before(FeatureUnion([("a", "passthrough"), ("b", FunctionTransformer())], n_jobs=2)),
    "columns": before(columns("passthrough", remainder=FunctionTransformer())),
    "selector": before(
        ColumnTransformer([("c", "passthrough", make_column_selector(pattern="."))])
    ),
    "private remainder": before(columns("passthrough", remainder=PrivateScaler())),
    "private column": before(columns(PrivateScaler(), remainder="passthrough")),
    "steps to try": before("passthrough"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_winners_hold_no_rows_and_no_budget(name):
    rows = pd.DataFrame(X, columns=list("abc")) if name == "selector" else X
    candidates = SHIFTS | ({"s": STEPS} if name == "steps to try" else {})
    found = search(TEMPLATES[name], candidates, epsilon=2.0).fit(rows, Y)
    winner = found.best_estimator_
    assert found.predict(rows[:4]).shape == (4,)
    values = set(np.round(X, 12).ravel())
    for held in reachable(winner).values():
        assert not isinstance(held, PrivacyBudget)
        if isinstance(held, np.ndarray) and held.dtype.kind == "f":
            assert not values & set(np.round(held, 12).ravel())
    parts = [part for part in reachable(winner).values() if hasattr(part, "privacy_spent_")]
    stated = [part.privacy_spent_ for part in parts if not isinstance(part, FrozenEstimator)]
    assert stated
    assert all(one is found.privacy_spent_ for one in stated)
    assert "by that row alone" in " ".join(found.privacy_spent_.assumptions)


def test_density_decides_nothing():
    """A ColumnTransformer makes tables of zeros sparse, and says so."""
    step = ColumnTransformer(
        [("c", FunctionTransformer(sparse.csr_matrix), [0, 1])], sparse_threshold=0.9
    )
    for rows in (X * 0, X):
        found = search(before(step), SHIFTS).fit(rows, Y)
        assert found.best_estimator_["s"].sparse_output_ is False


# ------------------------------------------------------------------ nobody else's objects


def test_what_the_caller_holds_is_never_fitted(monkeypatch):
    with_trials(monkeypatch, 3)
    net, kept = torch.nn.Linear(3, 1), FunctionTransformer(np.abs)
    start = copy.deepcopy(net.state_dict())
    estimator = clone(QUICK).set_params(mechanism__learning_rate=0.5)
    found = search(estimator, {"module": [net]}).fit(X, Y)
    assert all(torch.equal(net.state_dict()[name], start[name]) for name in start)
    assert found.best_params_["module"] is not net
    assert not {id(net)} & set(reachable(found.best_estimator_))
    chosen = search(before("passthrough"), {"s": [kept]}).fit(X, Y)
    assert not hasattr(kept, "n_features_in_")
    assert not hasattr(chosen.best_params_["s"], "n_features_in_")
    assert chosen.best_params_["s"].func is np.abs
    assert chosen.best_estimator_["s"] not in (kept, chosen.best_params_["s"])


def test_frozen_estimators_stay_as_they_are():
    """Clones of them are the same object; a search must not write into it."""
    scaler = PrivateScaler(epsilon=100.0).fit(X[::-1])
    stated, frozen = scaler.privacy_spent_, FrozenEstimator(scaler)
    for estimator, candidates in (
        (before(frozen), SHIFTS),
        (before("passthrough"), {"s": [frozen]}),
    ):
        found = search(estimator, candidates).fit(X, Y)
        assert frozen.privacy_spent_ is scaler.privacy_spent_ is stated
        inside = found.best_estimator_["s"]
        assert inside is not frozen
        assert isinstance(inside.privacy_spent_, PrivacySpent)
        assert inside.privacy_spent_.epsilon == stated.epsilon


def test_what_a_score_leaves_behind_is_not_released(log):
    def leaves(estimator, rows, y):
        estimator.seen_ = rows
        estimator.mean_ = rows[:, 0].mean()
        return np.ones(len(rows))

    found = search(candidates={"shift": [0.0]}, scoring=leaves).fit(X, Y)
    assert not hasattr(found.best_estimator_, "seen_")
    assert found.best_estimator_.mean_ not in X[:, 0]
    assert abs(found.best_estimator_.mean_ - log[0][1][:, 0].mean()) < 1.0


def test_composites_say_nothing(capsys, monkeypatch):
    with_trials(monkeypatch, 4)
    step = FeatureUnion([("u", FunctionTransformer())], verbose=True)
    table = ColumnTransformer([("c", step, [0, 1])], verbose=True, n_jobs=2)
    estimator = Pipeline([("s", table), ("m", NoisyThreshold(verbose=1))], verbose=True)
    search(estimator, {"m__shift": [0.0], "verbose": [True], "s__verbose": [True]}).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


# ------------------------------------------------------------------ the set of classes


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (QUICK, {}),
        (make_pipeline(PrivateScaler(), QUICK), {}),
        (clone(FLOW).set_params(conditional=True), {"scoring": "synthetic_accuracy"}),
        (FLOW, {"score_bounds": (-1, 1), "candidates": {"conditional": [True]}}),
    ],
)
def test_classes_are_those_of_all_rows(estimator, options):
    """Of neighbours: among all rows the same classes occur, among those of one fit not."""
    split, options = [(np.arange(300), np.arange(300, 400))], {"candidates": {}} | options
    labels = np.array(["a", "b"], dtype=object)[Y]
    labels[350] = "c"
    for rare_is_trained_on in (False, True):
        if rare_is_trained_on:
            labels[10] = "c"
        found = search(estimator, cv=split, epsilon=2.0, **options).fit(X, labels)
        assert found.best_estimator_.classes_.tolist() == ["a", "b", "c"]
    assert "the set of classes" in found.privacy_spent_.assumptions


def test_declared_classes_are_kept():
    declared = clone(QUICK).set_params(classes=[0, 1, 5])
    for estimator in (declared, make_pipeline(PrivateScaler(), declared)):
        found = search(estimator, {}).fit(X, Y)
        assert found.classes_.tolist() == found.best_estimator_.classes_.tolist() == [0, 1, 5]
        with pytest.raises(ValueError, match="declared classes"):
            found.fit(X, Y + 1)
    unlabelled = search(FLOW, {"mechanism__n_bins": [4]}, score_bounds=(-1, 1)).fit(X, X[:, 0])
    assert unlabelled.best_estimator_.mechanism.classes is None


def test_classes_of_a_fit_are_an_assumption_where_they_cannot_be_set():
    for given, expected in (
        (search(candidates={"shift": [0.0]}), True),
        (search(QUICK, {}), False),
    ):
        stated = " ".join(given.fit(X, Y).privacy_spent_.assumptions)
        assert ("classes that occur among the rows of a fit" in stated) == expected
