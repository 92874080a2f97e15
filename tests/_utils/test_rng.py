"""Streams by purpose: secret noise, published directions, solver."""

import numpy as np
import pytest
from scipy.stats import chisquare

from skdpot._utils.validation import SecretStream, solver_generator, spawn_streams
from skdpot.exceptions import PrivacyWarning


def test_a_secret_stream_reads_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr("os.urandom", lambda n: asked.append(n) or bytes(n))
    stream = SecretStream()
    np.testing.assert_array_equal(stream.random_uint64(5), np.zeros(5))
    assert stream.random_bits(70) == 0
    assert sum(asked) >= 5 * 8 + 9
    assert not stream.reproducible


def test_words_and_bits_are_uniform():
    """Chi-square over 256 values of 80,000 bytes; false alarm 1e-6."""
    values = np.frombuffer(SecretStream().random_bytes(80_000), dtype=np.uint8)
    assert chisquare(np.bincount(values, minlength=256)).pvalue > 1e-6
    stream = SecretStream()
    draws = np.array([stream.random_bits(3) for _ in range(8000)])
    assert chisquare(np.bincount(draws, minlength=8)).pvalue > 1e-6
    assert draws.max() == 7


def test_a_seeded_stream_repeats():
    first, second = SecretStream(7), SecretStream(7)
    np.testing.assert_array_equal(first.random_uint64(9), second.random_uint64(9))
    assert first.random_bits(100) == second.random_bits(100)
    assert first.reproducible
    assert first.generator().random() == second.generator().random()


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
