"""Saved sketches: bit for bit, and nothing in a foreign file is trusted."""

import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.slices import uniform_directions

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (200, 3))
LABELS = np.array(["a", "bb", "ccc"])[RNG.integers(0, 3, 200)]
FRAME = pd.DataFrame(X, columns=["one", "two", "three"])
DIRECTIONS = uniform_directions(6, 3, RNG)

CASES = {
    "plain": ({"bounds": (-1, 1)}, X, None),
    "classes and names": ({"bounds": (-2, [1, 2, 3]), "conditional": True}, FRAME, LABELS),
    "object classes": ({"bounds": (-1, 1), "conditional": True}, X, LABELS.astype(object)),
    "integer classes": ({"bounds": (-1, 1), "conditional": True}, X, (LABELS == "a") * 7),
    "dates as classes": (
        {"bounds": (-1, 1), "conditional": True},
        X,
        np.array(["2020-01-01", "2021-03-04"], dtype="datetime64[D]")[(LABELS == "a") * 1],
    ),
    "boolean classes": ({"bounds": (-1, 1), "conditional": True}, X, LABELS == "a"),
    "norm bound": ({"norm_bound": np.float32(1.5)}, X, None),
    "private bounds": ({"epsilon": 8.0, "conditional": True}, X, LABELS),
    "no privacy": ({"epsilon": np.inf}, X, None),
    "numpy scalars": (
        {"epsilon": np.float32(2), "delta": np.float64(1e-6), "norm_bound": np.int64(3)},
        X,
        None,
    ),
}


def fitted(name):
    parameters, rows, labels = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return SlicedSketch(**parameters, projections=DIRECTIONS, n_bins=8).fit(rows, labels)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sketch.safetensors"


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_exact(name, path):
    sketch = fitted(name)
    sketch.save(path)
    loaded = SlicedSketch.load(path)
    learned = {key for key in vars(sketch) if key.endswith("_")}
    assert learned == {key for key in vars(loaded) if key.endswith("_")}
    compared = (learned | {"statistic_", "noise_scale_"}) - {
        "bounds_",
        "privacy_spent_",
        "release_",
    }
    for key in compared:
        np.testing.assert_array_equal(getattr(loaded, key), getattr(sketch, key))
    assert (loaded.bounds_, loaded.privacy_spent_) == (sketch.bounds_, sketch.privacy_spent_)
    assert loaded.get_params()["epsilon"] == sketch.epsilon
    # Equal sketches are equal bytes, and can be written to like any other.
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written
    loaded.statistic_[:] = 0


def test_names_are_checked_after_loading(path):
    fitted("classes and names").save(path)
    loaded = SlicedSketch.load(path)
    assert list(loaded.feature_names_in_) == ["one", "two", "three"]
    assert np.isfinite(loaded.distance(FRAME))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.distance(FRAME.rename(columns={"one": "uno"}))


def test_any_reader_of_safetensors_shows_the_arrays(path):
    sketch = fitted("classes and names")
    sketch.save(path)
    arrays = load_file(path)
    assert set(arrays) == {
        *("bounds.center", "bounds.scale", "classes", "directions", "half_widths", "statistic")
    }
    np.testing.assert_array_equal(arrays["statistic"], sketch.statistic_)
    with safe_open(path, "np") as file:
        assert '"kind":"skdpot.SlicedSketch"' in file.metadata()["skdpot"]


def test_private_rows_are_not_in_the_file(path):
    fitted("plain").save(path)
    content = path.read_bytes()
    for row in X[:20]:
        assert row.tobytes() not in content
        assert row.astype(np.float32).tobytes() not in content


def test_classes_that_are_not_text_are_refused(path):
    sketch = fitted("plain")
    sketch.classes_ = np.array([(1, 2)], dtype=object)
    with pytest.raises(ValueError, match="classes_ holds objects"):
        sketch.save(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SlicedSketch.load(tmp_path / "nowhere.safetensors")
