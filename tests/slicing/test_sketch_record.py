"""Records of sketches: what files and messages share, and what neither believes."""

import copy
import json
import warnings

import numpy as np
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import GaussianEvent
from skdpot.slicing.sketch_record import SketchRecord

RNG = np.random.default_rng(9)
X = RNG.uniform(-1, 1, (300, 3))
BALL = DataBounds(np.array([1.0, -1.0, 0.3]), np.array([1.0, 3.0, 0.1]), 2.0)
LABELS = RNG.integers(0, 2, 300)

FITTED = {
    "declared": lambda: SlicedSketch(bounds=(-1, 1), n_bins=8).fit(X),
    "private bounds": lambda: SlicedSketch(epsilon=9.0, n_bins=8).fit(X),
    "given ball": lambda: SlicedSketch(bounds=BALL, n_bins=8).fit(X),
    "budget": lambda: SlicedSketch(0.7, budget=PrivacyBudget(2.0), norm_bound=2.0).fit(X),
    "classes": lambda: SlicedSketch(bounds=(-1, 1), conditional=True).fit(X, LABELS),
    "no privacy": lambda: SlicedSketch(epsilon=np.inf, bounds=(-1, 1)).fit(X),
    "many bins": lambda: SlicedSketch(bounds=(-1, 1), n_bins=300, n_slices=3).fit(X),
    "two steps": lambda: SlicedSketch(bounds=(-1, 1)).partial_fit(X[:99]).partial_fit(X).close(),
    "sampler": lambda: DPSlicedFlowSampler(bounds=(-1, 1), n_steps=1).fit(X).sketch_,
    "merged": lambda: merged(1.0, 0.3),
    "merged with one without privacy": lambda: merged(1.0, np.inf),
    "merged twice": lambda: merged(0.5, 0.3, 0.8, 0.4),
}


def merged(*epsilons):
    directions = np.eye(3)
    first, *others = (
        SlicedSketch(epsilon, bounds=(-1, 1), slices=directions, n_bins=8).fit(X)
        for epsilon in epsilons
    )
    return first.merge(*others)


@pytest.fixture(params=FITTED)
def sketch(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return FITTED[request.param]()


def test_records_of_all_sketches_are_believed_and_complete(sketch):
    record = SketchRecord.of(sketch)
    facts = json.loads(json.dumps(record.facts))
    parameters, fitted = SketchRecord(facts, record.arrays).restore()
    restored = SlicedSketch._restored(parameters, fitted)
    np.testing.assert_array_equal(restored.cdf_, sketch.cdf_)
    assert restored.privacy_spent_ == sketch.privacy_spent_
    assert isinstance(restored.bounds, DataBounds) == (sketch.bounds is BALL)
    again = SketchRecord.of(restored)
    assert json.dumps(again.facts) == json.dumps(record.facts)
    assert set(again.arrays) == set(record.arrays)


def test_reading_a_record_changes_nothing_in_it(sketch):
    record = SketchRecord.of(sketch)
    before = copy.deepcopy((record.facts, record.arrays))
    record.restore()
    assert record.facts == before[0]
    for name, array in before[1].items():
        np.testing.assert_array_equal(record.arrays[name], array)


def test_a_file_cannot_promise_more_than_its_noise_gives(tmp_path):
    path = tmp_path / "sketch.npz"
    made = SlicedSketch(bounds=(-1, 1), n_bins=8).fit(X)
    spent = made.privacy_spent_
    event = spent.event
    lies = {
        "epsilon": (0.1, "smaller epsilon than its own events"),
        "delta": (1e-12, "smaller epsilon than its own events"),
        "sigma": (2 * spent.sigma, "not the one that its statement"),
        "event": (
            GaussianEvent(sigma=99 * event.sigma, sensitivity=event.sensitivity),
            "not the one that its statement",
        ),
    }
    for field, (value, text) in lies.items():
        liar = copy.copy(made)
        liar.privacy_spent_ = type(spent)(
            **{name: getattr(spent, name) for name in spent.__dataclass_fields__} | {field: value}
        )
        liar.save(path)
        with pytest.raises(ValueError, match=text):
            SlicedSketch.load(path)


def test_nested_facts_of_a_file_are_refused(tmp_path):
    path = tmp_path / "sketch.npz"
    np.savez(path, facts=np.array("[" * 200_000))
    with pytest.raises(ValueError, match="nested too deeply"):
        SlicedSketch.load(path)
