r"""Secret batches: uniform subsets of a fixed size, and Poisson samples.

A batch must be a uniform subset of its size (or contain each record with an independent coin),
independent of all other batches and secret. A new one is drawn at every step. The random words come
from the operating system, not from a numerical generator whose state could be recovered. They are
converted to indices without bias and in uniformly random order, so that a released batch does not
reveal the order of the data.

The contribution of a record in floating point
----------------------------------------------
The account of clipped sums over Poisson samples assumes that a record x adds one vector of norm at
most C to the sum of *any* other records R, namely :math:`S(R + x) - S(R)`. This is false in
floating point. The rounding of a row in a matrix product depends on the shape of the product and on
the place of the row, and at a kink of the network the last bit of a row decides its whole gradient.
So one more record could move the terms of all others.

`placed_batches` therefore puts a sample at secret places. Their number N is public, vacant places
add exactly zero, and places are uniform: each assignment of different places to R has the same
probability. So the places of three samples can be drawn together: of R, of R and x, and of R and
the record that replaces x. The places of R are drawn first, and then a uniform place among those
left for x or its replacement. All three samples have arrays of the same shape, every record of R
has the same place in them, and its vector is the same to the last bit, provided that the arithmetic
at one place does not read the values at others. This holds for products, convolutions, reductions
and elementwise functions, with any instructions and threads. `check_per_record` of `skdpot.nets`
checks it on made-up records before a charge, and the tests compare bits. Given R and its places,
the three releases are Gaussians around S, S + v and S + v' with norms of v and v' up to C, and the
account holds for mixtures of such triples.

If R has N records or more, which does not depend on x, some records are left out and nothing is
claimed. This has a probability below 1e-19 per step (Bernstein's inequality). Together with the
error of the noise sampler, 2e-19, it is covered by the leak of 1e-18 that is charged per release.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from skdpot._utils.streams import SecretStream
from skdpot.privacy.noise import check_counts

_Indices = npt.NDArray[np.intp]
_OUTGROWN = 1e-19  # probability that a Poisson sample has more records than places
_ROUND_NUMBER = 16  # divides the number of places, because products of odd shapes are slower
_WORDS = 2**64  # number of values of a random word


def fixed_size_batches(n: int, size: int, n_steps: int, stream: SecretStream) -> Iterator[_Indices]:
    """Yield uniform subsets of a fixed size; the account is that of ``sampling="fixed_size"``.

    Independent uniform indices without their repetitions are exactly a uniform ordered sample
    without replacement. The indices are secret and must reach no callback, attribute or log.
    """
    check_counts(n=n, size=size, n_steps=n_steps)
    if size > n:
        raise ValueError(f"`size` must not exceed the {n} records, got {size}.")
    return (_ordered_sample(n, size, stream) for _ in range(n_steps))


def poisson_batches(n: int, rate: float, n_steps: int, stream: SecretStream) -> Iterator[_Indices]:
    """Yield Poisson samples; the account is that of ``sampling="poisson"``.

    A record is drawn if its 64-bit word is below ``floor(2**64 * rate)``, which has a probability
    of at most `rate` and at least ``rate - 2**-64``. The indices and their *number* are secret. If
    a release shows the number, the account is that of ``sampling="poisson_rows"``.
    """
    check_counts(n=n, n_steps=n_steps)
    if isinstance(rate, bool) or not 0.0 < rate <= 1.0:
        raise ValueError(f"`rate` must lie in (0, 1], got {rate!r}.")
    threshold = math.floor(Fraction(rate) * _WORDS)
    return (_coin_sample(n, threshold, stream) for _ in range(n_steps))


def placed_batches(n: int, rate: float, n_steps: int, stream: SecretStream) -> Iterator[_Indices]:
    """Yield Poisson samples at secret places of arrays of one public length; -1 marks a vacancy.

    The account of ``sampling="poisson"`` with ``clipped_sum=True`` holds for vectors that are
    computed place by place in floating point and then summed.
    """
    n_places, apart = places_of(n, rate), stream.apart()
    return (_placed(drawn, n_places, apart) for drawn in poisson_batches(n, rate, n_steps, stream))


def places_of(n: int, rate: float) -> int:
    """Return a public number of places that a Poisson sample almost never exceeds."""
    variance, depth = n * rate * (1.0 - rate), -math.log(_OUTGROWN)
    most = n * rate + depth / 3.0 + math.sqrt(depth**2 / 9.0 + 2.0 * depth * variance)
    return min(n, _ROUND_NUMBER * math.ceil(most / _ROUND_NUMBER))


def _placed(drawn: _Indices, n_places: int, stream: SecretStream) -> _Indices:
    """Put the drawn records at uniformly random places, and -1 at the others."""
    batch = np.full(n_places, -1, dtype=np.intp)
    places = _random_order(n_places, stream)[: len(drawn)]
    batch[places] = drawn[:n_places]
    return batch


def _ordered_sample(n: int, size: int, stream: SecretStream) -> _Indices:
    """Return the first `size` different values of a sequence of uniform indices."""
    if 2 * size > n:  # a shuffle of all records is cheaper than many repetitions
        return _random_order(n, stream)[:size]
    # Slightly more than the expected number of draws until `size` different ones are seen.
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
    # Words beyond the last multiple of n are dropped, because they favour small remainders.
    words = words[words <= np.uint64(_WORDS - _WORDS % n - 1)]
    return (words % np.uint64(n)).astype(np.intp)


def _coin_sample(n: int, threshold: int, stream: SecretStream) -> _Indices:
    """Return the records whose words are below `threshold`, shuffled."""
    if threshold == _WORDS:
        return _random_order(n, stream)
    drawn = np.flatnonzero(stream.random_uint64(n) < np.uint64(threshold))
    return drawn[_random_order(len(drawn), stream)]


def _random_order(count: int, stream: SecretStream) -> _Indices:
    """Return a uniform permutation: the order of random words, redrawn if two are equal."""
    while True:
        words = stream.random_uint64(count)
        order = np.argsort(words)
        if np.all(np.diff(words[order]) > 0):
            return order
