"""What may go into a private search, and what its winner holds, saves and sends."""

import copy
import gc
import math
import pickle
import sys
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSWAutoencoder,
    SlicedSketch,
    TableEncoder,
    TableSchema,
)
from skdpot.distance.messages import SketchMessage
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import Presample
from skdpot.preprocessing import NumericColumn
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.ledger import Ledger
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.spent import total_spent
from skdpot.privacy.statement import PrivacySpent
from skdpot.release.sketch_record import SketchRecord
from skdpot.search import private_search
from skdpot.tables.record import TableRecord
from tests.contract.reachable import reachable
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)
from tests.search.search_cases import FLOW, LOG, NoisyThreshold, search, with_trials

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0.1).astype(int)
TABLE = pd.DataFrame({"a": np.arange(400) % 50 * 1.0, "b": np.arange(400) % 7 * 1.0})
SCHEMA = TableSchema([NumericColumn(name, lower=0, upper=50, dtype="float64") for name in "ab"])
SKETCH = {"bounds": (-1, 1), "n_projections": 3}
QUICK = {"alpha": 0.0, "batch_fraction": 1.0, "n_steps": 2}
PATHS = {"bounds": (-1, 1), "n_particles": 10, "schedule": [(0.001, 0.1, 2)]}
WINNERS = {
    "scaler": PrivateScaler(),
    "sketch": SlicedSketch(**SKETCH),
    "encoder": TableEncoder(),
    "encoder that releases nothing": make_pipeline(TableEncoder(SCHEMA), PrivateScaler()),
    "flow": flow_sampler(conditional=True, **FLOW),
    "flow of batches": flow_sampler("resample", batch_size=20, **FLOW),
    "flow of rows": flow_sampler("presample", **FLOW),
    "generator": sliced_generator(n_steps=2, **SKETCH),
    "generator of rows": sliced_generator("smoothing", n_steps=2, bounds=(-1, 1)),
    "generator by gradients": sliced_generator("gradient", n_steps=2, bounds=(-1, 1)),
    "paths": trajectory_sampler(n_projections=3, **PATHS),
    "paths by gradients": trajectory_sampler("mfld", batch_fraction=0.1, **PATHS),
    "autoencoder": made(PrivateSWAutoencoder, 2, n_steps=2),
    "classifier": made(FairPrivateClassifier, **QUICK),
    "regressor": made(FairPrivateRegressor, target_bounds=(-1, 1), **QUICK),
    "tables": DPTableSynthesizer(SCHEMA, n_particles=200),
    "distance": private_distance(**SKETCH),
    "pipeline": make_pipeline(PrivateScaler(), flow_sampler(**FLOW)),
    "columns": make_pipeline(
        ColumnTransformer([("c", PrivateScaler(), [0])], remainder="passthrough"),
        flow_sampler(**FLOW),
    ),
}
ROWS = {name: TABLE for name in ("encoder", "encoder that releases nothing", "tables")}
ROWS["selector"] = pd.DataFrame(X, columns=list("abc"))
LABELS = {
    "regressor": X[:, 1],
    "paths": np.arange(400) % 3,
    "paths by gradients": np.arange(400) % 3,
}


def nothing(estimator, rows, y):
    return np.zeros(len(rows))


SHIFTS = {"m__shift": [0.0, 0.2]}


def before(step):
    return Pipeline([("s", step), ("m", NoisyThreshold())])


def columns(part, *, remainder="drop"):
    return ColumnTransformer([("c", part, [0])], remainder=remainder)


STEPS = ["passthrough", FunctionTransformer(np.abs), Normalizer()]
WITH_STEPS = {
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


def fitted(name, **options):
    given = {"scoring": nothing, "epsilon": 4.0, "n_trials": 2} | options
    candidates = SHIFTS if name in WITH_STEPS else {}
    candidates = candidates | ({"s": STEPS} if name == "steps to try" else {})
    found = search((WINNERS | WITH_STEPS)[name], candidates, **given)
    return found.fit(ROWS.get(name, X), LABELS.get(name, Y))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WINNERS, *WITH_STEPS])
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
def test_everything_that_the_winner_holds_states_the_search(name):
    """No rows, no budget; and no trial moves a generator of the process, which would be counted."""
    before = np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
    found = fitted(name, **({"scoring": "synthetic_accuracy"} if name == "flow" else {}))
    after = np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
    assert all(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))
    assert torch.equal(before[1], after[1])
    held = list(reachable(found.best_estimator_).values())
    stated = [one for one in held if isinstance(one, PrivacySpent)]
    assert stated
    assert all(one is found.privacy_spent_ for one in stated)
    assert not [one for one in held if isinstance(one, PrivacyBudget | Ledger)]
    promised = {(one.epsilon, one.delta) for one in held if hasattr(one, "privacy_spent_")}
    assert promised == {(4.0, 1e-5)}
    assert b"ledger" not in pickle.dumps(found.best_estimator_)
    values = set(np.round(X, 12).ravel())
    for array in (one for one in held if isinstance(one, np.ndarray) and one.dtype.kind == "f"):
        assert not values & set(np.round(array, 12).ravel())
    if name in WITH_STEPS:
        assert "by that row alone" in " ".join(found.privacy_spent_.assumptions)
        assert found.predict(ROWS.get(name, X)[:4]).shape == (4,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flow", {}),
        ("flow", {"cv": 3, "refit": True}),
        ("flow", {"distribution": "poisson"}),
        ("flow", {"score_on": "release", "scoring": None}),
        ("flow", {"epsilon": math.inf}),
        ("tables", {}),
        ("tables", {"refit": True}),
        ("tables", {"epsilon": math.inf}),
    ],
    ids=str,
)
def test_winners_are_saved_and_sent_with_the_statement_of_the_search(name, options, tmp_path):
    found = fitted(name, **options)
    winner = found.best_estimator_ if name == "tables" else found.best_estimator_.sketch_
    winner.save(tmp_path / "winner.safetensors")
    copies = [type(winner).load(tmp_path / "winner.safetensors")]
    if name == "flow":
        copies.append(SketchMessage.from_bytes(SketchMessage(winner).to_bytes()).sketch)
    for one in copies:
        assert one.privacy_spent_ == found.privacy_spent_
        assert (one.epsilon, one.delta) == (found.epsilon, found.delta)
        assert total_spent(one).epsilon == pytest.approx(found.epsilon, rel=0.02)


@pytest.mark.slow
def test_sketches_of_winners_can_be_merged(tmp_path):
    sketch = SlicedSketch(projections=np.eye(3), bounds=(-1, 1), n_bins=8)
    both = [
        search(sketch, {}, epsilon=epsilon, scoring=nothing).fit(rows, Y[:200]).best_estimator_
        for rows, epsilon in ((X[:200], 2.0), (X[200:], 3.0))
    ]
    merged = both[0].merge(both[1])
    assert merged.n_samples_ == both[0].n_samples_ + both[1].n_samples_
    assert merged.privacy_spent_.epsilon == 3.0
    merged.save(tmp_path / "both.safetensors")
    assert SlicedSketch.load(tmp_path / "both.safetensors").privacy_spent_ == merged.privacy_spent_


RECORDS = (
    ("flow", lambda fit: SketchRecord.of(fit.sketch_), "noise of the sketch is less"),
    ("tables", TableRecord.of, "less noise than its statement says"),
)


def test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused():
    """A trial of which the sketch, or the counts of a table, tell more than was charged.

    Nor does it name other events: their account would be computed for whoever sends the file.
    """
    other = SampledGaussianEvent(
        sampling="poisson", sigma=1e4, sensitivity=1.0, sampling_rate=0.5, n_steps=1
    )
    for name, record, message in RECORDS:
        found = fitted(name)
        spent, winner = found.privacy_spent_, found.best_estimator_
        for changes, refused in (
            ({"event": replace(spent.event, mu=spent.event.mu / 3)}, message),
            ({"epsilon": 2.0}, "smaller epsilon than its own events"),
            ({"event": ComposedEvent(events=(other, spent.event))}, "SampledGaussianEvent"),
        ):
            winner._restate(replace(spent, **changes))
            with pytest.raises(ValueError, match=refused):
                record(winner).restore()


@pytest.mark.slow
def test_no_registry_of_the_process_counts_trials(monkeypatch):
    def sizes():
        gc.collect()
        held = {
            f"{module}.{name}": value
            for module in sys.modules
            if "skdpot" in module
            for name, value in vars(sys.modules[module]).items()
        }
        kinds = dict | list | set | WeakValueDictionary
        found = {name: len(one) for name, one in held.items() if isinstance(one, kinds)}
        caches = {name: one for name, one in held.items() if hasattr(one, "cache_info")}
        return found | {name: one.cache_info().currsize for name, one in caches.items()}

    def run(number):
        with_trials(monkeypatch, number)
        search().fit(X, Y)
        LOG.clear()
        return sizes()

    run(1)
    assert run(1) == run(9)


CLASSIFIER = made(FairPrivateClassifier, alpha=0.0, batch_fraction=1.0, n_steps=2)
SAMPLER = flow_sampler(bounds=(-1, 1), n_projections=3, n_steps=3, n_particles=50)


class Keeps(FunctionTransformer):
    """Says that it learns nothing, and keeps the rows that it is handed."""

    def __init__(self, when="fit"):
        super().__init__()
        self.when = when

    def fit(self, X, y=None):
        return self if self.when == "transform" else self.transform(X, self)

    def transform(self, X, result=None):
        self.rows_ = np.asarray(X)
        return X if result is None else result


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
    "a step with memory": (before("passthrough"), {"s": [MEMORY]}, "Pipeline with `memory`"),
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
    "the set of classes": (CLASSIFIER, {"classes": [[0, 1], [0, 1, 2]]}, "`classes` cannot"),
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
        clone(SAMPLER).set_params(mechanism=Presample(sigma=0.0)),
        clone(SAMPLER).set_params(mechanism=Presample(n_projections=3, sigma=0.05)),
    ],
    ids=["autoencoder", "triangle", "fedwad", "no noise", "little noise"],
)
def test_what_has_no_noise_cannot_pay(estimator):
    with pytest.raises(BudgetExceededError, match="left"):
        search(estimator, {}, scoring=nothing).fit(X)


# ------------------------------------------------------------------ what works
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
    estimator = clone(CLASSIFIER).set_params(mechanism__learning_rate=0.5)
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


# ------------------------------------------------------------------ the set of classes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (CLASSIFIER, {}),
        (make_pipeline(PrivateScaler(), CLASSIFIER), {}),
        (clone(SAMPLER).set_params(conditional=True), {"scoring": "synthetic_accuracy"}),
        (SAMPLER, {"score_bounds": (-1, 1), "candidates": {"conditional": [True]}}),
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
    declared = clone(CLASSIFIER).set_params(classes=[0, 1, 5])
    for estimator in (declared, make_pipeline(PrivateScaler(), declared)):
        found = search(estimator, {}).fit(X, Y)
        assert found.classes_.tolist() == found.best_estimator_.classes_.tolist() == [0, 1, 5]
        with pytest.raises(ValueError, match="declared classes"):
            found.fit(X, Y + 1)
    unlabelled = search(SAMPLER, {"mechanism__n_bins": [4]}, score_bounds=(-1, 1)).fit(X, X[:, 0])
    assert unlabelled.best_estimator_.mechanism.classes is None


def test_classes_of_a_fit_are_an_assumption_where_they_cannot_be_set():
    for given, expected in (
        (search(candidates={"shift": [0.0]}), True),
        (search(CLASSIFIER, {}), False),
    ):
        stated = " ".join(given.fit(X, Y).privacy_spent_.assumptions)
        assert ("classes that occur among the rows of a fit" in stated) == expected
