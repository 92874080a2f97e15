"""Saved sketches: complete, bit for bit, and no record that contradicts itself is believed.

`tests/contract/test_hostile_bytes.py` forges and damages files.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.release.bounds import DataBounds
from skdpot.release.sketch_record import SketchRecord
from tests.contract.hostile_files import facts_of, forged
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (300, 3))
FRAME = pd.DataFrame(X, columns=["one", "two", "three"])
NUMBERS = RNG.integers(0, 2, 300)
TEXTS = np.array(["a", "bb", "ccc"])[RNG.integers(0, 3, 300)]
DATES = np.array(["2020-01-01", "2021-03-04"], dtype="datetime64[D]")[NUMBERS]
BALL = DataBounds(np.array([1.0, -1.0, 0.3]), np.array([1.0, 3.0, 0.1]), 2.0)
BOX = {"bounds": (-1, 1), "projections": np.eye(3), "n_bins": 8}
CLASSES = BOX | {"conditional": True}


def made(y=None, rows=X, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return SlicedSketch(**parameters).fit(rows, y)


def public(group_size, epsilon=1.0):
    labels = {"public_labels": True, "classes": [0, 1, 5], "group_size": group_size}
    return made(NUMBERS, epsilon=epsilon, **CLASSES, **labels)


def merged(*epsilons):
    first, *others = (made(epsilon=epsilon, **BOX) for epsilon in epsilons)
    return first.merge(*others)


SKETCHES = {
    "plain": lambda: made(**BOX),
    "names": lambda: made(TEXTS, FRAME, bounds=(-2, [1, 2, 3]), conditional=True),
    "object classes": lambda: made(TEXTS.astype(object), **CLASSES),
    "integer classes": lambda: made(NUMBERS * 7, **CLASSES),
    "dates as classes": lambda: made(DATES, **CLASSES),
    "boolean classes": lambda: made(NUMBERS == 1, **CLASSES),
    "numpy scalars": lambda: made(
        epsilon=np.float32(2), delta=np.float64(1e-6), norm_bound=np.int64(3)
    ),
    "private bounds": lambda: made(epsilon=9.0, n_bins=8),
    "given ball": lambda: made(bounds=BALL, n_bins=8),
    "budget": lambda: made(epsilon=0.7, budget=PrivacyBudget(2.0), norm_bound=2.0),
    "public labels": lambda: public(1),
    "groups": lambda: public(2, epsilon=2.0),
    "merged public labels": lambda: public(2).merge(public(2, epsilon=3.0)),
    "no privacy": lambda: made(epsilon=np.inf),
    "many bins": lambda: made(bounds=(-1, 1), n_bins=300, n_projections=3),
    "two steps": lambda: SlicedSketch(bounds=(-1, 1)).partial_fit(X[:99]).partial_fit(X).close(),
    "sampler": lambda: flow_sampler(bounds=(-1, 1), n_steps=1).fit(X).sketch_,
    "merged": lambda: merged(1.0, 0.3),
    "merged with one without privacy": lambda: merged(1.0, np.inf),
    "merged twice": lambda: merged(0.5, 0.3, 0.8, 0.4),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sketch.safetensors"


@pytest.mark.parametrize("name", SKETCHES)
def test_round_trip_is_exact(name, path):
    sketch = SKETCHES[name]()
    sketch.save(path)
    loaded = SlicedSketch.load(path)
    learned = {key for key in vars(sketch) if key.endswith("_")}
    assert learned == {key for key in vars(loaded) if key.endswith("_")}
    for key in learned | {"statistic_", "noise_scale_"}:
        if key not in ("bounds_", "privacy_spent_", "release_"):
            np.testing.assert_array_equal(getattr(loaded, key), getattr(sketch, key))
    assert (loaded.bounds_, loaded.privacy_spent_) == (sketch.bounds_, sketch.privacy_spent_)
    assert loaded.get_params()["epsilon"] == sketch.epsilon
    assert isinstance(loaded.bounds, DataBounds) == (sketch.bounds is BALL)
    # Equal sketches are equal bytes; private rows are not among them.
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written == SketchRecord.of(sketch).to_bytes()
    assert not any(row.astype(t).tobytes() in written for row in X[:20] for t in "df")
    loaded.statistic_[:] = 0  # can be written to like any other


def test_any_reader_of_safetensors_shows_the_arrays(path):
    sketch = SKETCHES["names"]()
    sketch.save(path)
    arrays = load_file(path)
    assert set(arrays) == {
        *("bounds.center", "bounds.scale", "classes", "directions", "half_widths", "statistic")
    }
    np.testing.assert_array_equal(arrays["statistic"], sketch.statistic_)
    with safe_open(path, "np") as file:
        assert '"kind":"skdpot.SlicedSketch"' in file.metadata()["skdpot"]
    with pytest.raises(ValueError, match="feature names should match"):
        SlicedSketch.load(path).distance(FRAME.rename(columns={"one": "uno"}))


def test_classes_that_are_not_text_are_refused(path):
    sketch = made(**BOX)
    sketch.classes_ = np.array([(1, 2)], dtype=object)
    with pytest.raises(ValueError, match="classes_ holds objects"):
        sketch.save(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SlicedSketch.load(tmp_path / "nowhere.safetensors")


@pytest.fixture(scope="module")
def of_public_labels():
    return SketchRecord.of(public(2, epsilon=1e4)).to_bytes()


SIZES = "numbers of rows of the classes"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"label_counts": [150, 150]}, SIZES),
        ({"label_counts": [150, 151, -1]}, SIZES),
        ({"label_counts": [150, 149, 0]}, SIZES),
        ({"label_counts": [0, 0, 300]}, "its rows and its noise cannot reach"),
        ({"label_counts": None}, "exactly if labels are public"),
        ({"public_labels": False}, "exactly if labels are public"),
        ({"group_size": 0}, "group_size of the sketch"),
        ({"group_size": 4}, "group_size of the sketch"),
        ({"group_size": 3}, "not the noise that its statement"),
    ],
)
def test_a_record_cannot_lie_about_public_labels(facts, text, of_public_labels):
    changed = facts_of(of_public_labels) | facts
    with pytest.raises(ValueError, match=text):
        SketchRecord.from_bytes(forged(of_public_labels, changed)).restore()


def test_private_labels_cannot_pass_for_public_ones():
    """The noise of a table whose labels are public does not hide a change of class."""
    record = replace(SketchRecord.of(public(1)), label_counts=None, public_labels=False)
    with pytest.raises(ValueError, match="not the noise that its statement"):
        record.restore()
