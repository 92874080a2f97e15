"""Saved sketches: bit for bit, and nothing in a foreign file is trusted."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.slices import uniform_directions
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from tests.contract.hostile_files import deep_change, facts_of, forged

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
    for key in (learned | {"statistic_", "noise_scale_"}) - {
        "bounds_",
        "privacy_spent_",
        "release_",
    }:
        np.testing.assert_array_equal(getattr(loaded, key), getattr(sketch, key))
    assert loaded.bounds_ == sketch.bounds_
    assert loaded.privacy_spent_ == sketch.privacy_spent_
    assert str(loaded.privacy_spent_) == str(sketch.privacy_spent_)
    label = None if not hasattr(sketch, "classes_") else sketch.classes_[0]
    np.testing.assert_array_equal(
        loaded.quantiles([0.1, 0.5], label=label), sketch.quantiles([0.1, 0.5], label=label)
    )
    assert loaded.distance(X) == sketch.distance(X) if name != "classes and names" else True
    # Equal sketches are equal bytes, and can be written to like any other.
    written = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == written
    loaded.statistic_[:] = 0
    loaded = SlicedSketch.load(path)
    # A loaded sketch is an estimator like any other.
    assert loaded.get_params()["epsilon"] == sketch.epsilon
    again = path.with_name("again.safetensors")
    loaded.save(again)
    np.testing.assert_array_equal(SlicedSketch.load(again).statistic_, sketch.statistic_)


def test_composed_events_survive(path):
    sketch = fitted("private bounds")
    sketch.save(path)
    event = SlicedSketch.load(path).privacy_spent_.event
    assert isinstance(event, ComposedEvent)
    assert all(isinstance(part, GaussianEvent) for part in event.events)
    assert event == sketch.privacy_spent_.event


def test_names_are_checked_after_loading(path):
    fitted("classes and names").save(path)
    loaded = SlicedSketch.load(path)
    assert list(loaded.feature_names_in_) == ["one", "two", "three"]
    assert np.isfinite(loaded.distance(FRAME))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.distance(FRAME.rename(columns={"one": "uno"}))


def test_a_loaded_sketch_is_closed_and_merges(path):
    sketch = fitted("plain")
    sketch.save(path)
    merged = SlicedSketch.load(path).merge(fitted("plain"))
    assert merged.n_samples_ == 400


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


class Trap:
    """Raises an alarm when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def with_array(name, value):
    return lambda good: forged(good, arrays={name: value})


def with_fact(*where, value):
    return lambda good: forged(good, deep_change(facts_of(good), where, value))


TAMPERED = {
    "other kind": (lambda good: forged(good, kind="other"), "holds 'other' version 1; expected"),
    "newer version": (lambda good: forged(good, version=99), "version 99; expected"),
    "facts that are a list": (lambda good: forged(good, [1]), "wrong one"),
    "no directions": (with_array("directions", ...), "lacks an entry"),
    "no word of directions": (with_fact("directions", value=...), r"lacks \['directions'\]"),
    "no bounds": (with_fact("bounds", value={}), r"lacks \['box', 'center', 'radius', 'scale'\]"),
    "no spending": (with_fact("spent", value={}), "lacks"),
    "foreign array": (with_array("fit", np.zeros(3)), "unknown arrays"),
    "unknown event": (
        with_fact("spent", "event", value={"type": "Path"}),
        "names an unknown event",
    ),
    "other shape": (with_array("directions", np.eye(3)), "inconsistent shapes"),
    "one axis less": (with_array("statistic", np.zeros(3)), "inconsistent shapes"),
    "more classes": (
        lambda good: with_array("classes", np.arange(5))(with_fact("classes", value="@")(good)),
        "inconsistent shapes",
    ),
    "NaN": (with_array("statistic", np.full((1, 6, 8), np.nan)), "non-finite"),
    "integers": (with_array("statistic", np.ones((1, 6, 8), np.int64)), "wrong one"),
    "infinite widths": (with_array("half_widths", np.full(6, np.inf)), "non-finite"),
    "negative scale": (with_array("bounds.scale", -np.ones(3)), "scale"),
    "infinite noise": (with_fact("noise_scale", value=float("inf")), "noise_scale"),
    "no rows": (with_fact("n_samples", value=0), "n_samples"),
}


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_files_are_refused(change, path):
    tamper, text = TAMPERED[change]
    fitted("plain").save(path)
    path.write_bytes(tamper(path.read_bytes()))
    with pytest.raises(ValueError, match=text):
        SlicedSketch.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", pickle.dumps(Trap()), b"PK\x03\x04 but not really"],
    ids=["empty", "text", "pickle", "broken archive"],
)
def test_other_files_are_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a sketch, or it is damaged"):
        SlicedSketch.load(path)


def test_a_truncated_file_is_refused(path):
    fitted("plain").save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="not a sketch, or it is damaged"):
        SlicedSketch.load(path)


def test_a_damaged_array_is_refused(path):
    fitted("plain").save(path)
    content = bytearray(path.read_bytes())
    content[-100:-80] = bytes(20)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="is damaged: its checksum does not match"):
        SlicedSketch.load(path)


def test_a_plain_array_file_is_refused(path):
    with path.open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(ValueError, match="not a sketch"):
        SlicedSketch.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SlicedSketch.load(tmp_path / "nowhere.safetensors")
