"""What the winner of a private search holds, saves and sends states the whole search."""

import gc
import math
import pickle
import sys
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    PrivateSearchCV,
    PrivateSWAutoencoder,
    SlicedSketch,
    TableEncoder,
    TableSchema,
)
from skdpot.federated.messages import SketchMessage
from skdpot.preprocessing import NumericColumn
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.ledger import Ledger
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import TrialLaw
from skdpot.privacy.spent import PrivacySpent, total_spent
from skdpot.release.sketch_record import SketchRecord
from skdpot.tables.record import TableRecord
from tests.estimators.reachable import reachable
from tests.estimators.search_cases import LOG, NoisyThreshold
from tests.flat_options import (
    flow_sampler,
    made,
    private_distance,
    sliced_generator,
    trajectory_sampler,
)

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0.1).astype(int)
TABLE = pd.DataFrame({"a": np.arange(400) % 50 * 1.0, "b": np.arange(400) % 7 * 1.0})
SCHEMA = TableSchema([NumericColumn(name, lower=0, upper=50, dtype="float64") for name in "ab"])
FLOW = {"bounds": (-1, 1), "n_projections": 3, "n_steps": 3, "n_particles": 50}
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
    "paths by gradients": trajectory_sampler("mfld", sampling_rate=0.1, **PATHS),
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
LABELS = {
    "regressor": X[:, 1],
    "paths": np.arange(400) % 3,
    "paths by gradients": np.arange(400) % 3,
}


def nothing(estimator, rows, y):
    return np.zeros(len(rows))


def fitted(name, **options):
    given = {"scoring": nothing, "epsilon": 4.0, "n_trials": 2} | options
    search = PrivateSearchCV(WINNERS[name], {}, **given)
    return search.fit(ROWS.get(name, X), LABELS.get(name, Y))


@pytest.mark.parametrize("name", WINNERS)
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
def test_everything_that_the_winner_holds_states_the_search(name):
    found = fitted(name)
    held = list(reachable(found.best_estimator_).values())
    stated = [one for one in held if isinstance(one, PrivacySpent)]
    assert stated
    assert all(one is found.privacy_spent_ for one in stated)
    assert not [one for one in held if isinstance(one, PrivacyBudget | Ledger)]
    promised = {(one.epsilon, one.delta) for one in held if hasattr(one, "privacy_spent_")}
    assert promised == {(4.0, 1e-5)}
    assert b"ledger" not in pickle.dumps(found.best_estimator_)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"refit": True},
        {"cv": 3, "refit": True},
        {"distribution": "poisson"},
        {"score_on": "release", "scoring": None},
        {"epsilon": math.inf},
    ],
    ids=str,
)
def test_sketches_of_winners_are_saved_and_sent_with_the_statement_of_the_search(options, tmp_path):
    found = fitted("flow", **options)
    sketch = found.best_estimator_.sketch_
    sketch.save(tmp_path / "sketch.safetensors")
    loaded = SlicedSketch.load(tmp_path / "sketch.safetensors")
    message = SketchMessage.from_bytes(SketchMessage(sketch).to_bytes())
    for one in (loaded, message.sketch):
        assert one.privacy_spent_ == found.privacy_spent_
        assert (one.epsilon, one.delta) == (found.epsilon, found.delta)
        assert np.array_equal(one.statistic_, sketch.statistic_)
        assert total_spent(one).epsilon == pytest.approx(found.epsilon, rel=0.02)


def test_sketches_of_winners_can_be_merged(tmp_path):
    both = []
    for rows, epsilon in ((X[:200], 2.0), (X[200:], 3.0)):
        sketch = SlicedSketch(projections=np.eye(3), bounds=(-1, 1), n_bins=8)
        search = PrivateSearchCV(sketch, {}, epsilon=epsilon, scoring=nothing, n_trials=2)
        both.append(search.fit(rows, Y[:200]).best_estimator_)
    merged = both[0].merge(both[1])
    assert merged.n_samples_ == both[0].n_samples_ + both[1].n_samples_
    assert merged.privacy_spent_.epsilon == 3.0
    merged.save(tmp_path / "both.safetensors")
    assert SlicedSketch.load(tmp_path / "both.safetensors").privacy_spent_ == merged.privacy_spent_


@pytest.mark.parametrize("options", [{}, {"refit": True}, {"epsilon": math.inf}], ids=str)
def test_tables_of_winners_are_saved_with_the_statement_of_the_search(options, tmp_path):
    found = fitted("tables", **options)
    found.best_estimator_.save(tmp_path / "table.safetensors")
    loaded = DPTableSynthesizer.load(tmp_path / "table.safetensors")
    assert loaded.privacy_spent_ == found.privacy_spent_
    assert loaded.sample(3).shape == (3, 2)


def test_a_statement_of_a_search_that_its_noise_does_not_bear_is_refused():
    """A trial of which the sketch, or the counts of a table, tell more than was charged."""
    for name, record, message in (
        ("flow", lambda fit: SketchRecord.of(fit.sketch_), "noise of the sketch is less"),
        ("tables", TableRecord.of, "less noise than its statement says"),
    ):
        found = fitted(name)
        spent = found.privacy_spent_
        less = replace(spent, event=replace(spent.event, mu=spent.event.mu / 3))
        winner = found.best_estimator_
        winner._restate(less)
        with pytest.raises(ValueError, match=message):
            record(winner).restore()
        winner._restate(replace(spent, epsilon=2.0))
        with pytest.raises(ValueError, match="smaller epsilon than its own events"):
            record(winner).restore()


def test_a_statement_of_a_search_names_no_other_events():
    """Their account would be computed for whoever sends the file: hours, for some events."""
    more = SampledGaussianEvent(
        sampling="poisson", sigma=1e4, sensitivity=1.0, sampling_rate=0.5, n_steps=1
    )
    for name, record in (
        ("flow", lambda fit: SketchRecord.of(fit.sketch_)),
        ("tables", TableRecord.of),
    ):
        found = fitted(name)
        event = ComposedEvent(events=(more, found.privacy_spent_.event))
        found.best_estimator_._restate(replace(found.privacy_spent_, event=event))
        with pytest.raises(ValueError, match="event of type SampledGaussianEvent"):
            record(found.best_estimator_).restore()


def test_no_registry_of_the_process_counts_trials(monkeypatch):
    def sizes():
        gc.collect()
        modules = {name: vars(module) for name, module in sys.modules.items() if "skdpot" in name}
        held = {
            f"{module}.{name}": value
            for module, names in modules.items()
            for name, value in names.items()
        }
        kinds = dict | list | set | WeakValueDictionary
        found = {name: len(one) for name, one in held.items() if isinstance(one, kinds)}
        return found | {
            name: one.cache_info().currsize
            for name, one in held.items()
            if hasattr(one, "cache_info")
        }

    def run(number):
        monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: number)
        PrivateSearchCV(NoisyThreshold(), {"shift": [0.0]}, n_trials=3).fit(X, Y)
        LOG.clear()
        return sizes()

    run(1)
    assert run(1) == run(9)


def test_estimators_that_do_not_declare_the_hook_are_refused():
    class Foreign(BaseEstimator):
        """Has the parameters of a private estimator, and keeps its statement who knows where."""

        def __init__(self, epsilon=1.0, delta=1e-5, budget=None):
            self.epsilon, self.delta, self.budget = epsilon, delta, budget

        def fit(self, X, y=None):
            return self

    budget = PrivacyBudget(3.0)
    with pytest.raises(ValueError, match="Foreign.*PrivateEstimatorMixin"):
        PrivateSearchCV(Foreign(), {}, scoring=nothing, budget=budget).fit(X, Y)
    assert len(budget.history()) == 0
