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

from skdpot._utils.validation import SecretStream
from skdpot.privacy.sampling import fixed_size_batches, poisson_batches

LEVEL = 1e-4


def _p_value(counts: np.ndarray, probabilities: np.ndarray | None = None) -> float:
    expected = None if probabilities is None else probabilities * counts.sum()
    return float(stats.chisquare(counts, expected).pvalue)


def _tally(batches, outcomes) -> np.ndarray:
    found = Counter(tuple(int(i) for i in batch) for batch in batches)
    assert set(found) <= set(outcomes)
    return np.array([found[outcome] for outcome in outcomes])


@pytest.mark.parametrize(("n", "size"), [(7, 2), (7, 3), (5, 4), (4, 4)])
def test_ordered_fixed_size_batches_are_uniform(n, size):
    # Every ordered subset alike: members and order at once. 24,000 batches, level 1e-4.
    outcomes = list(itertools.permutations(range(n), size))
    batches = fixed_size_batches(n, size, 24_000, SecretStream(0))
    assert _p_value(_tally(batches, outcomes)) > LEVEL


def test_every_record_is_drawn_equally_often():
    # 300 batches of 50 of 1000, and of 700 (the other branch); level 1e-4. Counts within a
    # batch repel each other, so that the chi-square of independent draws is an upper bound.
    for size in (50, 700):
        drawn = np.concatenate(list(fixed_size_batches(1000, size, 300, SecretStream(1))))
        assert _p_value(np.bincount(drawn, minlength=1000)) > LEVEL


def test_batches_hold_distinct_valid_indices():
    for n, size in [(1, 1), (2, 1), (9, 9), (1000, 1), (1000, 499), (1000, 501), (1000, 1000)]:
        for batch in fixed_size_batches(n, size, 5, SecretStream(2)):
            assert batch.dtype == np.intp
            assert batch.shape == (size,)
            assert len(np.unique(batch)) == size
            assert batch.min() >= 0
            assert batch.max() < n


def test_steps_are_independent():
    # Overlap of successive batches is hypergeometric (n=60, 20 and 20), not that of an epoch,
    # whose batches are disjoint. 6000 pairs, level 1e-4.
    batches = [set(b.tolist()) for b in fixed_size_batches(60, 20, 12_000, SecretStream(3))]
    overlaps = [len(a & b) for a, b in zip(batches[::2], batches[1::2], strict=True)]
    support = np.arange(2, 12)
    law = stats.hypergeom(60, 20, 20)
    clipped = np.clip(overlaps, support[0], support[-1])
    probabilities = law.pmf(support)
    probabilities[0] = law.cdf(support[0])
    probabilities[-1] = law.sf(support[-1] - 1)
    assert _p_value(np.bincount(clipped)[support[0] :], probabilities) > LEVEL


def test_successive_pairs_of_batches_are_uniform():
    # The pair (step k, step k + 1) over all 9 combinations of one of three; level 1e-4.
    batches = [int(b[0]) for b in fixed_size_batches(3, 1, 18_000, SecretStream(4))]
    pairs = np.bincount([3 * a + b for a, b in zip(batches[::2], batches[1::2], strict=True)])
    assert _p_value(pairs) > LEVEL


def test_poisson_subsets_have_their_probabilities():
    # All 16 subsets of four records, 20,000 samples, level 1e-4.
    rate, n = 0.3, 4
    outcomes = [tuple(i for i in range(n) if mask >> i & 1) for mask in range(2**n)]
    batches = [np.sort(b) for b in poisson_batches(n, rate, 20_000, SecretStream(5))]
    probabilities = [rate ** len(o) * (1 - rate) ** (n - len(o)) for o in outcomes]
    assert _p_value(_tally(batches, outcomes), np.array(probabilities)) > LEVEL


def test_poisson_order_is_uniform():
    # The orders of the samples that hold exactly records 0, 1 and 2 of three; level 1e-4.
    batches = [b for b in poisson_batches(3, 0.7, 15_000, SecretStream(6)) if len(b) == 3]
    assert len(batches) > 4000
    outcomes = list(itertools.permutations(range(3)))
    assert _p_value(_tally(batches, outcomes)) > LEVEL


def test_poisson_sizes_are_binomial_and_fresh():
    # Sizes over 4000 samples of 500 at 0.02; successive sizes uncorrelated. Levels 1e-4.
    sizes = np.array([len(b) for b in poisson_batches(500, 0.02, 4000, SecretStream(7))])
    law = stats.binom(500, 0.02)
    support = np.arange(3, 19)
    probabilities = law.pmf(support)
    probabilities[0], probabilities[-1] = law.cdf(3), law.sf(17)
    counts = np.bincount(np.clip(sizes, 3, 18), minlength=19)[3:]
    assert _p_value(counts, probabilities) > LEVEL
    assert stats.pearsonr(sizes[:-1], sizes[1:]).pvalue > LEVEL


def test_poisson_rate_one_takes_everyone():
    batches = list(poisson_batches(40, 1.0, 3, SecretStream(8)))
    assert all(sorted(batch) == list(range(40)) for batch in batches)
    assert not np.array_equal(batches[0], batches[1])


def test_poisson_rate_is_never_exceeded():
    class Words:
        """The largest word that may be let through, and the first that may not."""

        def __init__(self, rate):
            self.first_refused = math.floor(Fraction(rate) * 2**64)
            self.calls = 0

        def random_uint64(self, size):
            self.calls += 1
            if self.calls > 1:  # the order
                return np.arange(size, dtype=np.uint64)
            return np.array([self.first_refused - 1, self.first_refused], dtype=np.uint64)

    for rate in (0.1, 1 / 3, 2.0**-60, np.nextafter(1.0, 0.0)):
        words = Words(rate)
        assert Fraction(words.first_refused, 2**64) <= Fraction(rate)
        assert list(next(poisson_batches(2, rate, 1, words))) == [0]


def test_uniform_indices_drop_the_words_that_would_favour_some():
    class Words:
        """First the words that no multiple of 10 reaches, then usable ones."""

        def __init__(self):
            self.calls = 0

        def random_uint64(self, size):
            self.calls += 1
            words = np.arange(size, dtype=np.uint64)
            if self.calls > 1:
                return words
            beyond = 2**64 % 10  # 6 words, with the remainders 0 to 5
            return np.uint64(2**64 - 1) - words % np.uint64(beyond)

    words = Words()
    batch = next(fixed_size_batches(10, 3, 1, words))
    assert words.calls > 1
    assert list(batch) == [0, 1, 2]


def test_equal_words_do_not_decide_an_order():
    class Words:
        def __init__(self):
            self.calls = 0

        def random_uint64(self, size):
            self.calls += 1
            words = np.arange(size, dtype=np.uint64)[::-1].copy()
            return np.zeros_like(words) if self.calls == 1 else words

    words = Words()
    assert list(next(fixed_size_batches(4, 4, 1, words))) == [3, 2, 1, 0]
    assert words.calls == 2


def test_words_come_from_the_secret_stream_only(monkeypatch):
    def refuse(self):
        raise AssertionError("a numerical generator must not decide on batches")

    monkeypatch.setattr(SecretStream, "generator", refuse)
    assert len(list(fixed_size_batches(50, 5, 3, SecretStream()))) == 3
    assert len(list(poisson_batches(50, 0.1, 3, SecretStream()))) == 3


def test_unseeded_batches_differ():
    first, second = (
        [b.tolist() for b in fixed_size_batches(1000, 10, 3, SecretStream())] for _ in range(2)
    )
    assert first != second


@pytest.mark.parametrize("value", [0, -1, 2.5, True, None, "3"])
@pytest.mark.parametrize("name", ["n", "size", "n_steps"])
def test_fixed_size_refuses_at_once(name, value):
    counts = {"n": 10, "size": 3, "n_steps": 2} | {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be an integer >= 1"):
        fixed_size_batches(**counts, stream=SecretStream())


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="`size` must not exceed the 3 records, got 4"):
        fixed_size_batches(3, 4, 1, SecretStream())


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, math.nan, math.inf, True])
def test_poisson_refuses_rates_at_once(rate):
    with pytest.raises(ValueError, match=r"`rate` must lie in \(0, 1\]"):
        poisson_batches(10, rate, 1, SecretStream())
