"""Secret batches: which records take part in a step, drawn from the secret stream.

The accounts of sampled events rest on what is drawn here. A batch must be uniform among the
subsets of its size (or take every record by a coin of its own), fresh at every step and
independent of all others, and nobody may learn its members. An epoch of a shuffled data loader
is none of that. The words come from the operating system, not from a numerical generator whose
state could be recovered, and become indices without any bias.

Indices come in uniformly random order, so that a released batch does not carry the order of
the data.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot._utils.rng import SecretStream

__all__ = ["fixed_size_batches", "poisson_batches"]

_WORDS = 2**64

_Indices = npt.NDArray[np.intp]


def fixed_size_batches(n: int, size: int, n_steps: int, stream: SecretStream) -> Iterator[_Indices]:
    """Yield uniform subsets of a fixed size, without replacement within a batch.

    Independent uniform indices whose repetitions are dropped are exactly a uniform ordered
    sample without replacement. A small batch costs a few words more than its size, not n.

    Parameters
    ----------
    n : int
        Number of records.
    size : int
        Records in a batch, at most `n`.
    n_steps : int
        Number of batches, independent of each other.
    stream : SecretStream
        Source of the random words.

    Yields
    ------
    ndarray of shape (size,), intp
        Distinct indices below `n` in uniformly random order.

    Raises
    ------
    ValueError
        If a size is not a positive integer, or `size` exceeds `n`.

    Privacy
    -------
    Indices are secret: they must reach no callback, attribute or log. The account is
    `SampledGaussianEvent` with ``sampling="fixed_size"``.
    """
    _check_counts(n=n, size=size, n_steps=n_steps)
    if size > n:
        raise ValueError(f"`size` must not exceed the {n} records, got {size}.")
    return (_ordered_sample(n, size, stream) for _ in range(n_steps))


def poisson_batches(n: int, rate: float, n_steps: int, stream: SecretStream) -> Iterator[_Indices]:
    """Yield Poisson samples: every record takes part by a coin of its own.

    The coin is a 64-bit word below ``floor(2**64 * rate)``, so that the true probability is at
    most `rate` and less by no more than 2**-64.

    Parameters
    ----------
    n : int
        Number of records.
    rate : float
        Probability in (0, 1] that a record takes part in a step.
    n_steps : int
        Number of batches, independent of each other.
    stream : SecretStream
        Source of the random words.

    Yields
    ------
    ndarray of shape (n_taking_part,), intp
        Distinct indices below `n` in uniformly random order; possibly none.

    Raises
    ------
    ValueError
        If a count is not a positive integer, or `rate` is out of range.

    Privacy
    -------
    Indices are secret. Their *number* is as secret as the indices under ``sampling="poisson"``;
    where a release shows it, the account is that of ``sampling="poisson_rows"``.
    """
    _check_counts(n=n, n_steps=n_steps)
    if isinstance(rate, bool) or not 0.0 < rate <= 1.0:
        raise ValueError(f"`rate` must lie in (0, 1], got {rate!r}.")
    threshold = math.floor(Fraction(rate) * _WORDS)
    return (_coin_sample(n, threshold, stream) for _ in range(n_steps))


def _check_counts(**counts: Any) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"`{name}` must be an integer >= 1, got {count!r}.")


def _ordered_sample(n: int, size: int, stream: SecretStream) -> _Indices:
    """Return the first `size` different values of a sequence of uniform indices."""
    if 2 * size > n:  # then repetitions would abound, and a shuffle of all is cheaper
        return _random_order(n, stream)[:size]
    # Expected number of draws until `size` different ones are seen, and a little more.
    expected = n * math.log(n / (n - size)) + 2.0
    drawn = _uniform_indices(n, math.ceil(expected + 3.0 * math.sqrt(expected)), stream)
    while True:
        values, first_seen = np.unique(drawn, return_index=True)
        if len(values) >= size:
            return drawn[np.sort(first_seen)[:size]]
        drawn = np.concatenate([drawn, _uniform_indices(n, n, stream)])


def _uniform_indices(n: int, count: int, stream: SecretStream) -> _Indices:
    """Return nearly `count` independent uniform indices below n."""
    words = stream.random_uint64(count)
    # Words beyond the last multiple of n would favour small remainders; they are dropped.
    words = words[words <= np.uint64(_WORDS - _WORDS % n - 1)]
    return (words % np.uint64(n)).astype(np.intp)


def _coin_sample(n: int, threshold: int, stream: SecretStream) -> _Indices:
    """Return the records whose word is below `threshold`, shuffled."""
    if threshold == _WORDS:
        return _random_order(n, stream)
    taking_part = np.flatnonzero(stream.random_uint64(n) < np.uint64(threshold))
    return taking_part[_random_order(len(taking_part), stream)]


def _random_order(count: int, stream: SecretStream) -> _Indices:
    """Return a uniform permutation: the order of random words, redrawn when two are equal."""
    while True:
        words = stream.random_uint64(count)
        order = np.argsort(words)
        if np.all(np.diff(words[order]) > 0):
            return order
