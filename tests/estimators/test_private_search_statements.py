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
import torch
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

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
from skdpot.federated.messages import SketchMessage
from skdpot.preprocessing import NumericColumn
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.ledger import Ledger
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.spent import PrivacySpent, total_spent
from skdpot.release.sketch_record import SketchRecord
from skdpot.tables.record import TableRecord
from tests.estimators.reachable import reachable
from tests.estimators.search_cases import LOG, search, with_trials
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
    return search(WINNERS[name], {}, **given).fit(ROWS.get(name, X), LABELS.get(name, Y))


@pytest.mark.parametrize("name", WINNERS)
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
def test_everything_that_the_winner_holds_states_the_search(name):
    """And no trial moves a generator of the process, which would show how many there were."""
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
