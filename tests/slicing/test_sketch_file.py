"""Saved sketches: bit for bit, and nothing in a foreign file is trusted."""

import io
import json
import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.slicing import uniform_directions

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
        return SlicedSketch(**parameters, slices=DIRECTIONS, n_bins=8).fit(rows, labels)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sketch.npz"


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_exact(name, path):
    sketch = fitted(name)
    sketch.save(path)
    loaded = SlicedSketch.load(path)
    learned = {key for key in vars(sketch) if key.endswith("_")}
    assert learned == {key for key in vars(loaded) if key.endswith("_")}
    for key in learned - {"bounds_", "privacy_spent_"}:
        np.testing.assert_array_equal(getattr(loaded, key), getattr(sketch, key))
    assert loaded.bounds_ == sketch.bounds_
    assert loaded.privacy_spent_ == sketch.privacy_spent_
    assert str(loaded.privacy_spent_) == str(sketch.privacy_spent_)
    label = None if not hasattr(sketch, "classes_") else sketch.classes_[0]
    np.testing.assert_array_equal(
        loaded.quantiles([0.1, 0.5], label=label), sketch.quantiles([0.1, 0.5], label=label)
    )
    assert loaded.distance(X) == sketch.distance(X) if name != "classes and names" else True
    # A loaded sketch is an estimator like any other.
    assert loaded.get_params()["epsilon"] == sketch.epsilon
    again = path.with_name("again.npz")
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


def test_the_file_holds_no_pickle(path):
    fitted("classes and names").save(path)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            array = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            assert array.dtype != object


def test_private_rows_are_not_in_the_file(path):
    fitted("plain").save(path)
    with np.load(path) as file:
        content = b"".join(file[name].tobytes() for name in file.files)
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


def rewrite(path, **changes):
    """Save again with some entries replaced; None removes one."""
    with np.load(path) as file:
        entries = {name: file[name] for name in file.files} | changes
    kept = {name: value for name, value in entries.items() if value is not None}
    np.savez(path, **kept)


def with_facts(path, **changes):
    with np.load(path) as file:
        facts = json.loads(str(file["facts"])) | changes
    rewrite(path, facts=np.array(json.dumps(facts)))


TAMPERED = {
    "pickled array": (
        lambda p: rewrite(p, statistic_=np.array([Trap()])),
        "'statistic_' is no array",
    ),
    "pickled facts": (lambda p: rewrite(p, facts=np.array([Trap()])), "'facts' is no array"),
    "other format": (lambda p: with_facts(p, format="other"), "has format 'other'"),
    "newer version": (lambda p: with_facts(p, version=99), "version 99"),
    "facts that are a list": (lambda p: rewrite(p, facts=np.array("[1]")), "another kind"),
    "facts that are not JSON": (lambda p: rewrite(p, facts=np.array("{")), "Expecting"),
    "no facts": (lambda p: rewrite(p, facts=None), "no entry 'facts'"),
    "no directions": (lambda p: rewrite(p, directions_=None), r"lacks \['directions_'\]"),
    "no bounds": (lambda p: rewrite(p, bounds_radius=None), "lacks an entry"),
    "no spending": (lambda p: with_facts(p, spent={}), "lacks an entry"),
    "foreign entry": (lambda p: rewrite(p, fit=np.zeros(3)), r"unknown \['fit'\]"),
    "unknown event": (
        lambda p: with_facts(p, spent={"event": {"type": "Path"}}),
        "names an event that is not known",
    ),
    "other shape": (lambda p: rewrite(p, directions_=np.eye(3)), "inconsistent shapes"),
    "one axis less": (lambda p: rewrite(p, statistic_=np.zeros(3)), "inconsistent shapes"),
    "more classes": (lambda p: rewrite(p, classes_=np.arange(5)), "inconsistent shapes"),
    "NaN": (lambda p: rewrite(p, statistic_=np.full((1, 6, 8), np.nan)), "non-finite"),
    "text": (lambda p: rewrite(p, statistic_=np.full((1, 6, 8), "x")), "wrong one"),
    "infinite widths": (lambda p: rewrite(p, half_widths_=np.full(6, np.inf)), "non-finite"),
    "negative scale": (lambda p: rewrite(p, bounds_scale=-np.ones(3)), "scale"),
    "infinite noise": (lambda p: with_facts(p, noise_scale=float("inf")), "noise_scale"),
    "no rows": (lambda p: with_facts(p, n_samples=0), "n_samples"),
}


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_files_are_refused(change, path):
    tamper, text = TAMPERED[change]
    fitted("plain").save(path)
    tamper(path)
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


def test_a_damaged_entry_is_refused(path):
    fitted("plain").save(path)
    content = bytearray(path.read_bytes())
    start = content.find(b"statistic_.npy") + 60
    content[start : start + 20] = bytes(20)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged"):
        SlicedSketch.load(path)


def test_a_plain_array_file_and_a_raw_entry_are_refused(path):
    with path.open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(ValueError, match="not a sketch"):
        SlicedSketch.load(path)
    fitted("plain").save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("extra.pkl", pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="unknown"):
        SlicedSketch.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SlicedSketch.load(tmp_path / "nowhere.npz")
