"""Streams by purpose, devices, and where warnings point."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpot import PrivateScaler, SlicedSketch
from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import InvalidParameterError
from skdpot._utils.streams import SecretStream, solver_generator, spawn_streams
from skdpot.exceptions import PrivacyWarning


def test_a_secret_stream_reads_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr("os.urandom", lambda n: asked.append(n) or bytes(n))
    stream = SecretStream()
    np.testing.assert_array_equal(stream.random_uint64(5), np.zeros(5))
    assert stream.random_bits(70) == 0
    assert sum(asked) >= 5 * 8 + 9
    assert not stream.reproducible


def test_streams_without_a_seed_differ_and_do_not_warn():
    one, two = spawn_streams(None, "X"), spawn_streams(None, "X")
    assert not one.secret.reproducible
    assert one.public.random() != two.public.random()
    assert one.solver.random() != one.public.random()


@pytest.mark.parametrize("make", [lambda: 3, lambda: np.random.RandomState(3)])
def test_a_seed_repeats_all_streams_and_warns(make):
    with pytest.warns(PrivacyWarning, match="MyEstimator.*reproducible") as shown:
        streams = [spawn_streams(make(), "MyEstimator") for _ in range(2)]
    assert len(shown) == 2
    draws = [(s.secret.random_bits(64), s.public.random(), s.solver.random()) for s in streams]
    assert all(s.secret.reproducible for s in streams)
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 3


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
def test_published_streams_do_not_reveal_the_secret_one():
    """Directions are published: the noise must not be drawn from the same numbers."""
    streams = spawn_streams(11, "X")
    secret = streams.secret.random_uint64(2000)
    public = streams.public.integers(0, 2**64, 2000, dtype=np.uint64)
    assert not np.intersect1d(secret, public).size


def test_a_random_state_moves_on():
    state = np.random.RandomState(5)
    assert solver_generator(state).random() != solver_generator(state).random()
    assert solver_generator(5).random() == solver_generator(5).random()
    assert solver_generator(None).random() != solver_generator(None).random()


@pytest.mark.parametrize("count", [0, 2])
def test_devices(count, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert resolve_device("cpu") is resolve_device(torch.device("cpu")) is None
    assert resolve_device("auto") == (torch.device("cuda") if count else None)
    for device in ("cuda", "cuda:1", torch.device("cuda", 1)):
        if count:
            assert resolve_device(device) == torch.device(device)
        else:
            with pytest.raises(ValueError, match=f'device="{device}" needs a GPU'):
                resolve_device(device)
    with pytest.raises(ValueError, match="torch finds"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("device", ["mps", "cuda:x", "cuda:-1", 0, torch.device("mps")])
def test_other_devices_are_refused(device):
    with pytest.raises(InvalidParameterError, match='"cuda:0"'):
        SlicedSketch(bounds=(0, 1), device=device).fit(np.zeros((9, 1)))


def test_warnings_point_at_the_line_that_called_the_library():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    sketch = SlicedSketch(epsilon=0.01, random_state=0)
    for estimator in (sketch, PrivateScaler(epsilon=0.01, random_state=0), make_pipeline(sketch)):
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            clone(estimator).fit(rows)
        assert len(records) >= 2  # the seed, and bounds that fell back
        assert {record.filename for record in records} == {__file__}
