"""Ways in which learning without noise, or rows, could come out of a private search."""

import copy

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from skdpot import (
    FairPrivateClassifier,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
)
from skdpot.estimators import _search_trials as trials
from skdpot.estimators import private_search
from skdpot.estimators._search_trials import make_candidate
from skdpot.estimators.private_search import PrivateSearchCV
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import Presample
from skdpot.privacy.selection import TrialLaw
from skdpot.privacy.spent import PrivacySpent
from tests.estimators.reachable import reachable
from tests.estimators.search_cases import LOG, NoisyThreshold
from tests.flat_options import flow_sampler, made, private_distance

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0.1).astype(int)
SPLIT = [(np.arange(300), np.arange(300, 400))]
QUICK = made(FairPrivateClassifier, alpha=0.0, batch_fraction=1.0, n_steps=2)
FLOW = flow_sampler(bounds=(-1, 1), n_projections=3, n_steps=3, n_particles=50)
SHIFTS = {"m__shift": [0.0, 0.2]}


@pytest.fixture(autouse=True)
def log():
    LOG.clear()
    return LOG


def search(estimator, candidates, **options):
    return PrivateSearchCV(estimator, candidates, **({"n_trials": 3} | options))


def with_trials(monkeypatch, number):
    monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: number)


def before(step, model=None):
    return Pipeline([("s", step), ("m", NoisyThreshold() if model is None else model)])


def columns(part, *, remainder="drop", chosen=(0,)):
    return ColumnTransformer([("c", part, list(chosen))], remainder=remainder)


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


REFUSED = {
    "a step in place of passthrough": (before("passthrough"), {"s": [StandardScaler()]}, "learn"),
    "one of many values": (
        before("passthrough"),
        {"s": ["passthrough", FunctionTransformer(), StandardScaler()], **SHIFTS},
        "StandardScaler would learn",
    ),
    "all steps": (
        before("passthrough"),
        {"steps": [[("s", StandardScaler()), ("m", NoisyThreshold())]]},
        "`steps` cannot be searched",
    ),
    "a memory": (before("passthrough"), {"memory": ["/tmp/nowhere"]}, "`memory` cannot"),
    "a memory within": (
        before(make_pipeline(FunctionTransformer())),
        {"s__memory": ["/tmp/nowhere"]},
        "`s__memory` cannot",
    ),
    "a pipeline with memory": (
        before("passthrough"),
        {"s": [make_pipeline(FunctionTransformer(), memory="/tmp/nowhere")]},
        "a pipeline with `memory`",
    ),
    "transformers": (
        before(columns("passthrough")),
        {"s__transformers": [[("c", StandardScaler(), [0])]]},
        "`s__transformers` cannot",
    ),
    "a transformer": (before(columns("passthrough")), {"s__c": [StandardScaler()]}, "would learn"),
    "a list of a union": (
        before(FeatureUnion([("u", "passthrough")])),
        {"s__transformer_list": [[("u", StandardScaler())]]},
        "`s__transformer_list` cannot",
    ),
    "a part of a union": (
        before(FeatureUnion([("u", "passthrough")])),
        {"s__u": [StandardScaler()]},
        "would learn",
    ),
    "the remainder": (before(columns("passthrough", remainder=StandardScaler())), SHIFTS, "learn"),
    "a remainder to try": (
        before(columns("passthrough")),
        {"s__remainder": [StandardScaler()]},
        "`s__remainder` cannot",
    ),
    "a union that is put in": (
        before("passthrough"),
        {"s": [FeatureUnion([("a", "passthrough"), ("b", StandardScaler())])]},
        "would learn",
    ),
    "a private part more": (
        before("passthrough"),
        {"s": ["passthrough", PrivateScaler()]},
        "must have the same private parts",
    ),
    "a vote": (VotingClassifier([("a", NoisyThreshold())]), {}, "would learn"),
    "a bag": (BaggingClassifier(NoisyThreshold()), {}, "would learn"),
    "a voter in a pipeline": (
        Pipeline([("s", PrivateScaler()), ("m", VotingClassifier([("a", NoisyThreshold())]))]),
        {},
        "would learn",
    ),
    "what predicts without a fit": (
        Pipeline([("s", PrivateScaler()), ("m", GaussianProcessRegressor())]),
        {},
        "GaussianProcessRegressor would learn",
    ),
    "several rows of one": (before(PatchExtractor()), SHIFTS, "several rows of one"),
    "columns chosen by the rows": (
        before(ColumnTransformer([("c", "passthrough", lambda rows: rows[:, 0] > 0)])),
        SHIFTS,
        "function of the private rows",
    ),
    "a search in a search": (search(NoisyThreshold(), {}), {}, "in a search would"),
    "the set of classes": (QUICK, {"classes": [[0, 1], [0, 1, 2]]}, "`classes` cannot"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_learn_is_refused_before_any_charge(case, log):
    estimator, candidates, message = REFUSED[case]
    budget = PrivacyBudget(5.0)
    given = search(estimator, candidates, budget=budget, score_bounds=(-1, 1), scoring=right)
    with pytest.raises(ValueError, match=message):
        given.fit(X, Y)
    assert len(budget.history()) == 0
    assert not log


def right(estimator, X, y):
    return np.asarray(estimator.predict(X) == y, dtype=float)


def test_an_earlier_fit_does_not_vouch_for_other_parts():
    part = columns(FunctionTransformer()).fit(X)
    part.set_params(transformers=[("c", StandardScaler(), [0])])
    with pytest.raises(ValueError, match="would learn"):
        search(before(part), SHIFTS).fit(X, Y)


def test_every_candidate_that_is_drawn_is_checked(log, monkeypatch):
    """Where the check before the charge did not see it."""
    monkeypatch.setattr(private_search, "check_candidates", lambda *given: False)
    for value, message in (
        (StandardScaler(), "StandardScaler would learn"),
        (PrivateScaler(), "the same private parts"),
    ):
        with pytest.raises(ValueError, match=message):
            search(before("passthrough"), {"s": [value]}).fit(X, Y)
    assert not log
    monkeypatch.setattr(trials, "ParameterSampler", lambda *given, **options: [{"m__shift": 0.0}])
    given = search(before("passthrough"), SHIFTS).fit(X, Y)
    task = trials.SearchTask(
        *(given.estimator, ("m__",), SHIFTS, None, None, given.plan_),
    )
    with pytest.raises(ValueError, match="would learn"):
        trials.fit_alone(
            task, {"s": StandardScaler()}, trials.Rows(X, Y, {}), given.plan_.fit, None
        )


def test_every_value_of_a_large_grid_is_checked():
    steps = ["passthrough"] * 30 + [StandardScaler()]
    candidates = {"s": steps, "m__shift": list(np.linspace(0, 1, 50)), "m__fault": [None] * 2}
    with pytest.raises(ValueError, match="would learn"):
        search(before("passthrough"), candidates).plan(X)


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
    def nothing(estimator, rows, y):
        return np.zeros(len(rows))

    with pytest.raises(BudgetExceededError, match="is left in this budget"):
        search(estimator, {}, scoring=nothing).fit(X)


# ------------------------------------------------------------------ what works


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
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_winners_hold_no_rows_and_no_budget(name):
    import pandas as pd

    rows = pd.DataFrame(X, columns=list("abc")) if name == "selector" else X
    estimator = TEMPLATES[name]
    found = search(estimator, SHIFTS, epsilon=2.0).fit(rows, Y)
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


def test_passthrough_and_functions_may_be_tried():
    steps = ["passthrough", FunctionTransformer(np.abs), Normalizer()]
    found = search(before("passthrough"), {"s": steps, **SHIFTS}).fit(X, Y)
    assert found.predict(X[:2]).shape == (2,)


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
    found = search(clone(QUICK).set_params(mechanism__learning_rate=0.5), {"module": [net]}).fit(
        X, Y
    )
    assert all(torch.equal(net.state_dict()[name], start[name]) for name in start)
    assert found.best_params_["module"] is not net
    assert not {id(net)} & set(reachable(found.best_estimator_))
    chosen = search(before("passthrough"), {"s": [kept]}).fit(X, Y)
    assert not hasattr(kept, "n_features_in_")
    assert not hasattr(chosen.best_params_["s"], "n_features_in_")
    assert chosen.best_params_["s"].func is np.abs
    assert chosen.best_estimator_["s"] not in (kept, chosen.best_params_["s"])


def test_candidates_share_nothing_with_each_other():
    value = FunctionTransformer(np.abs)
    one, two = (make_candidate(before("passthrough"), {"s": value}, ("m__",)) for _ in range(2))
    assert one["s"].func is two["s"].func is np.abs
    assert len({id(one["s"]), id(two["s"]), id(value)}) == 3
    assert one["m"] is not two["m"]


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


def test_draws_are_not_counted_by_the_laws_themselves(monkeypatch):
    class Counting:
        def __init__(self):
            self.drawn = 0

        def rvs(self, random_state=None):
            self.drawn += 1
            return 0.1

    counts = []
    for number in (1, 9):
        with_trials(monkeypatch, number)
        law = Counting()
        search(NoisyThreshold(), {"shift": law}).fit(X, Y)
        counts.append(law.drawn)
    assert counts[0] == counts[1]


def test_what_a_score_leaves_behind_is_not_released():
    def leaves(estimator, rows, y):
        estimator.seen_ = rows
        estimator.mean_ = rows[:, 0].mean()
        return np.ones(len(rows))

    found = search(NoisyThreshold(), {"shift": [0.0]}, scoring=leaves).fit(X, Y)
    assert not hasattr(found.best_estimator_, "seen_")
    assert found.best_estimator_.mean_ not in X[:, 0]
    assert abs(found.best_estimator_.mean_ - LOG[0][1][:, 0].mean()) < 1.0


def test_composites_say_nothing(capsys, monkeypatch):
    with_trials(monkeypatch, 4)
    step = FeatureUnion([("u", FunctionTransformer())], verbose=True)
    table = ColumnTransformer([("c", step, [0, 1])], verbose=True, n_jobs=2)
    estimator = Pipeline([("s", table), ("m", NoisyThreshold(verbose=1))], verbose=True)
    search(estimator, {"m__shift": [0.0], "verbose": [True], "s__verbose": [True]}).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


# ------------------------------------------------------------------ the set of classes


def labels(*, rare_is_trained_on):
    """Neighbours: among all rows the same classes occur, among those of the fit not."""
    made = np.array(["a", "b"], dtype=object)[Y]
    made[350] = "c"
    if rare_is_trained_on:
        made[10] = "c"
    return made


def test_classes_are_those_of_all_rows():
    assert set(labels(rare_is_trained_on=False)) == set(labels(rare_is_trained_on=True))
    conditional = clone(FLOW).set_params(conditional=True)
    for estimator, options in (
        (QUICK, {}),
        (Pipeline([("s", PrivateScaler()), ("m", QUICK)]), {}),
        (conditional, {"scoring": "synthetic_accuracy"}),
        (FLOW, {"score_bounds": (-1, 1), "param_distributions": {"conditional": [True]}}),
    ):
        shown = []
        for rare in (False, True):
            found = search(
                estimator, options.get("param_distributions", {}), cv=SPLIT, epsilon=2.0
            ).set_params(**options)
            found.fit(X, labels(rare_is_trained_on=rare))
            shown.append(found.best_estimator_.classes_.tolist())
        assert shown == [["a", "b", "c"]] * 2
        assert "the set of classes" in found.privacy_spent_.assumptions


def test_declared_classes_are_kept():
    for estimator in (
        clone(QUICK).set_params(classes=[0, 1, 5]),
        make_pipeline(PrivateScaler(), clone(QUICK).set_params(classes=[0, 1, 5])),
    ):
        found = search(estimator, {}).fit(X, Y)
        assert found.classes_.tolist() == found.best_estimator_.classes_.tolist() == [0, 1, 5]
        with pytest.raises(ValueError, match="declared classes"):
            found.fit(X, Y + 1)
    unlabelled = search(FLOW, {"mechanism__n_bins": [4]}, score_bounds=(-1, 1)).fit(X, X[:, 0])
    assert unlabelled.best_estimator_.mechanism.classes is None


def test_classes_of_a_fit_are_an_assumption_where_they_cannot_be_set():
    stated = search(NoisyThreshold(), {"shift": [0.0]}).fit(X, Y).privacy_spent_.assumptions
    assert any("classes that occur among the rows of a fit" in one for one in stated)
    stated = search(QUICK, {}).fit(X, Y).privacy_spent_.assumptions
    assert not any("classes that occur among the rows of a fit" in one for one in stated)
