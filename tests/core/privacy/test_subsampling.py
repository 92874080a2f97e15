"""Secret batches: uniform, fresh, in random order, from the secret stream alone.

Chi-square tests run on fixed seeds; the stated level is the chance that a right sampler would
have failed when the seed was chosen.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from skdpot._utils.streams import SecretStream
from skdpot.privacy import batches
from skdpot.privacy.batches import fixed_size_batches, placed_batches, places_of, poisson_batches

LEVEL = 1e-4


def _p_value(counts: np.ndarray, probabilities: np.ndarray | None = None) -> float:
    expected = None if probabilities is None else probabilities * counts.sum()
    return float(stats.chisquare(counts, expected).pvalue)


def _tally(batches, outcomes) -> np.ndarray:
    found = Counter(tuple(int(i) for i in batch) for batch in batches)
    assert set(found) <= set(outcomes)
    return np.array([found[outcome] for outcome in outcomes])


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(7, 2), (7, 3), (5, 4), (4, 4)])
def test_ordered_fixed_size_batches_are_uniform(n, size):
    # Every ordered subset alike: members and order at once. 24,000 batches, level 1e-4.
    outcomes = list(itertools.permutations(range(n), size))
    batches = fixed_size_batches(n, size, 24_000, SecretStream(0))
    assert _p_value(_tally(batches, outcomes)) > LEVEL


def test_batches_hold_distinct_valid_indices():
    for n, size in [(1, 1), (2, 1), (9, 9), (1000, 1), (1000, 499), (1000, 501), (1000, 1000)]:
        for batch in fixed_size_batches(n, size, 5, SecretStream(2)):
            assert (batch.dtype, batch.shape) == (np.intp, (size,))
            assert len(np.unique(batch)) == size
            assert 0 <= batch.min() <= batch.max() < n


@pytest.mark.slow
def test_successive_pairs_of_batches_are_uniform():
    # The pair (step k, step k + 1) over all 9 combinations of one of three; level 1e-4.
    batches = [int(b[0]) for b in fixed_size_batches(3, 1, 18_000, SecretStream(4))]
    pairs = np.bincount([3 * a + b for a, b in zip(batches[::2], batches[1::2], strict=True)])
    assert _p_value(pairs) > LEVEL
    # And of whether a Poisson sample holds one of two records.
    taken = [0 in b for b in poisson_batches(2, 0.5, 18_000, SecretStream(7))]
    pairs = np.bincount([2 * a + b for a, b in zip(taken[::2], taken[1::2], strict=True)])
    assert _p_value(pairs) > LEVEL


def test_ordered_poisson_batches_have_their_probabilities():
    # All 65 ordered subsets of four records, 20,000 samples, level 1e-4: members and order.
    rate, n = 0.6, 4
    outcomes = [o for size in range(n + 1) for o in itertools.permutations(range(n), size)]
    probabilities = [
        rate ** len(o) * (1 - rate) ** (n - len(o)) / math.factorial(len(o)) for o in outcomes
    ]
    found = _tally(poisson_batches(n, rate, 20_000, SecretStream(5)), outcomes)
    assert _p_value(found, np.array(probabilities)) > LEVEL


def test_places_are_uniform_whoever_else_is_drawn():
    # All 34 ways to put some of three records at three places, 20,000 samples, level 1e-4.
    rate, n = 0.6, 3
    ways = [
        tuple(np.array((-1, *members))[np.array(taken)])
        for size in range(n + 1)
        for members in itertools.combinations(range(n), size)
        for taken in set(itertools.permutations((*range(1, size + 1), *[0] * (n - size))))
    ]
    sizes = np.array([n - way.count(-1) for way in ways])
    falling = np.array([math.perm(n, size) for size in range(n + 1)])[sizes]
    probabilities = rate**sizes * (1 - rate) ** (n - sizes) / falling
    assert len(ways) == 34
    found = _tally(placed_batches(n, rate, 20_000, SecretStream(6)), ways)
    assert _p_value(found, probabilities) > LEVEL


def test_a_sample_never_needs_more_places_and_they_are_not_many():
    for n, rate in itertools.product((1, 17, 1000, 10**5, 10**8), (1e-6, 1e-3, 0.02, 0.3, 1.0)):
        places, law = places_of(n, rate), stats.binom(n, rate)
        assert 0 < places <= n
        assert places == n or law.sf(places - 1) < 1e-19
        assert places <= n * rate + 12 * math.sqrt(n * rate * (1 - rate)) + 50


def test_records_beyond_the_places_are_left_out(monkeypatch):
    monkeypatch.setattr(batches, "places_of", lambda *_: 4)
    for batch in placed_batches(9, 1.0, 20, SecretStream()):
        assert len(set(batch)) == 4
        assert 0 <= batch.min() <= batch.max() < 9


def test_places_shift_nothing_in_the_stream_that_draws_the_sample():
    first, second = SecretStream(3), SecretStream(3)
    samples = list(poisson_batches(20, 0.3, 5, first))
    placed = list(placed_batches(20, 0.3, 5, second))
    for sample, batch in zip(samples, placed, strict=True):
        assert sorted(sample) == sorted(batch[batch >= 0])
    assert first.random_bytes(8) == second.random_bytes(8)
    apart = [SecretStream(seed).apart().random_bytes(16) for seed in (3, 3, None, None)]
    assert apart[0] == apart[1] != SecretStream(3).random_bytes(16)
    assert len(set(apart)) == 3


def test_poisson_rate_one_takes_everyone():
    batches = list(poisson_batches(40, 1.0, 3, SecretStream(8)))
    assert all(sorted(batch) == list(range(40)) for batch in batches)
    assert not np.array_equal(batches[0], batches[1])


class Words:
    """Each time the next of these words."""

    def __init__(self, *words):
        self.words = iter(words)

    def random_uint64(self, size):
        return np.resize(np.array(next(self.words), dtype=np.uint64), size)


def test_words_that_would_favour_some_and_equal_ones_are_drawn_again():
    beyond = 2**64 - 1 - np.arange(6, dtype=np.uint64)  # of no multiple of 10: remainders 0 to 5
    batch = next(fixed_size_batches(10, 3, 1, Words(beyond, np.arange(10))))
    assert list(batch) == [0, 1, 2]
    order = next(fixed_size_batches(4, 4, 1, Words([0], [3, 2, 1, 0])))
    assert list(order) == [3, 2, 1, 0]


def test_poisson_rate_is_never_exceeded():
    """The largest word that may be let through, and the first that may not; then the order."""
    for rate in (0.1, 1 / 3, 2.0**-60, np.nextafter(1.0, 0.0)):
        refused = math.floor(Fraction(rate) * 2**64)
        assert Fraction(refused, 2**64) <= Fraction(rate)
        words = Words([refused - 1, refused], [0, 1])
        assert list(next(poisson_batches(2, rate, 1, words))) == [0]


def test_words_come_from_the_secret_stream_only(monkeypatch):
    def refuse(self):
        raise AssertionError("a numerical generator must not decide on batches")

    monkeypatch.setattr(SecretStream, "generator", refuse)
    assert len(list(fixed_size_batches(50, 5, 3, SecretStream()))) == 3
    assert len(list(poisson_batches(50, 0.1, 3, SecretStream()))) == 3
    assert len(list(placed_batches(50, 0.1, 3, SecretStream()))) == 3


def test_unseeded_batches_differ():
    first, second = (np.stack(list(fixed_size_batches(1000, 10, 3, SecretStream()))) for _ in "ab")
    assert (first != second).any()


@pytest.mark.parametrize("name", ["n", "size", "n_steps"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, None, "3"])
def test_counts_that_are_none_are_refused_at_once(name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        fixed_size_batches(**{"n": 10, "size": 3, "n_steps": 2} | {name: value}, stream=None)


def test_samples_that_cannot_be_are_refused_at_once():
    with pytest.raises(ValueError, match="not exceed the 3 records, got 4"):
        fixed_size_batches(3, 4, 1, None)
    for rate in (0.0, -0.1, 1.0000001, math.nan, math.inf, True):
        with pytest.raises(ValueError, match=r"`rate` must lie in \(0, 1\]"):
            poisson_batches(10, rate, 1, None)
