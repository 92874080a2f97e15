"""Records of sketches: what files and messages share, and what neither believes."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.release.bounds import DataBounds
from skdpot.release.sketch_record import SketchRecord
from tests.contract.hostile_files import facts_of, forged
from tests.flat_options import flow_sampler

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
    "public labels": lambda: public(1),
    "groups": lambda: public(2, epsilon=2.0),
    "merged public labels": lambda: public(2).merge(public(2, epsilon=3.0)),
    "no privacy": lambda: SlicedSketch(epsilon=np.inf, bounds=(-1, 1)).fit(X),
    "many bins": lambda: SlicedSketch(bounds=(-1, 1), n_bins=300, n_projections=3).fit(X),
    "two steps": lambda: SlicedSketch(bounds=(-1, 1)).partial_fit(X[:99]).partial_fit(X).close(),
    "sampler": lambda: flow_sampler(bounds=(-1, 1), n_steps=1).fit(X).sketch_,
    "merged": lambda: merged(1.0, 0.3),
    "merged with one without privacy": lambda: merged(1.0, np.inf),
    "merged twice": lambda: merged(0.5, 0.3, 0.8, 0.4),
}


def public(group_size, epsilon=1.0):
    return SlicedSketch(
        epsilon,
        bounds=(-1, 1),
        projections=np.eye(3),
        n_bins=8,
        conditional=True,
        classes=[0, 1, 5],
        public_labels=True,
        group_size=group_size,
    ).fit(X, LABELS)


def merged(*epsilons):
    directions = np.eye(3)
    first, *others = (
        SlicedSketch(epsilon, bounds=(-1, 1), projections=directions, n_bins=8).fit(X)
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
    written = record.to_bytes()
    restored = SlicedSketch._restored(*SketchRecord.from_bytes(written).restore())
    np.testing.assert_array_equal(restored.cdf_, sketch.cdf_)
    np.testing.assert_array_equal(restored.class_counts_, sketch.class_counts_)
    assert restored.privacy_spent_ == sketch.privacy_spent_
    assert isinstance(restored.bounds, DataBounds) == (sketch.bounds is BALL)
    assert SketchRecord.of(restored).to_bytes() == written
    record.restore()  # changes nothing in it
    assert record.to_bytes() == written


def restored_with(sketch, **facts):
    good = SketchRecord.of(sketch).to_bytes()
    return SketchRecord.from_bytes(forged(good, facts_of(good) | facts)).restore()


SIZES = "numbers of rows of the classes"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"label_counts": [150, 150]}, SIZES),
        ({"label_counts": [150, 151, -1]}, SIZES),
        ({"label_counts": [150, 149, 0]}, SIZES),
        ({"label_counts": [150.0, 150.0, 0.0]}, "wrong one"),
        ({"label_counts": [True, 299, 0]}, "wrong one"),
        ({"label_counts": "300"}, "wrong one"),
        ({"label_counts": [0, 0, 300]}, "its rows and its noise cannot reach"),
        ({"label_counts": None}, "exactly if labels are public"),
        ({"public_labels": False}, "exactly if labels are public"),
        ({"public_labels": 1}, "wrong one"),
        ({"group_size": 0}, "group_size of the sketch"),
        ({"group_size": 4}, "group_size of the sketch"),
        ({"group_size": True}, "wrong one"),
        ({"group_size": 3}, "not the one that its statement"),
    ],
)
def test_a_record_cannot_lie_about_public_labels(facts, text):
    quiet = SlicedSketch(
        1e4, bounds=(-1, 1), projections=np.eye(3), n_bins=8, conditional=True, classes=[0, 1, 5]
    ).set_params(public_labels=True, group_size=2)
    with pytest.raises(ValueError, match=text):
        restored_with(quiet.fit(X, LABELS), **facts)


def test_private_labels_cannot_pass_for_public_ones():
    """The noise of a table whose labels are public does not hide a change of class."""
    record = replace(SketchRecord.of(public(1)), label_counts=None, public_labels=False)
    with pytest.raises(ValueError, match="not the one that its statement"):
        record.restore()
