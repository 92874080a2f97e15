r"""Exact discrete Gaussian integers by table look-up.

Privacy of the discrete Gaussian
--------------------------------
Let ``X`` follow :math:`N_{\mathbb Z}(0, s^2)`, :math:`P(X=k) \propto e^{-k^2/2s^2}`, and
let :math:`q(m) = \Phi^{-1}(P[X < m])`.

1. *One coordinate.* The likelihood ratio of ``X + k`` to ``X`` is monotone, so the best
   tests between the two are half-lines :math:`\{X \ge m\}`, and randomised mixtures of
   two neighbouring ones. A half-line has the errors of a test between :math:`N(0, 1)`
   and :math:`N(q(m) - q(m-k), 1)`. Hence ``X`` shifted by ``k`` is dominated by
   :math:`G_\mu`, Gaussians at distance :math:`\mu`, as soon as no :math:`q(m) - q(m-k)`
   exceeds :math:`\mu`. The increments add up, so the single inequality

   .. math:: q(m+1) - q(m) \le (1 + c)/s \quad \text{for all } m

   gives :math:`\mu = |k|(1+c)/s`.
2. *The constant.* Euler-Maclaurin gives :math:`q'(x) = (1 + 1/(24 s^2) + \dots)/s` in the
   bulk. In the tail, with :math:`y = m/s^2`, the factor 1/24 becomes
   :math:`\log(y/(1-e^{-y}))/y^2 - 1/y^2 + 1/(y(e^y-1))`, up to terms that vanish with
   ``s``; it falls from 1/24 to 0. So :math:`c = 1/(20 s^2)` holds with room to spare for
   s >= 1. The tests verify the inequality in high precision over a grid of ``s`` from 1
   to 64, for every ``m`` up to 17 s where s <= 16 and up to 13.4 s above; the room (1/20
   against 1/24) also covers the rounding of floating-point ``sigma``.
   A plain :math:`c = 0` is false: a discrete Gaussian is *not* as good as a continuous one.
3. *Many coordinates.* A product of dominated pairs is dominated by the product, and
   :math:`G_{\mu_1} \otimes G_{\mu_2} = G_{\sqrt{\mu_1^2 + \mu_2^2}}`. A shift by the
   integer vector ``k`` is therefore dominated by :math:`G_\mu` with
   :math:`\mu = \|k\|_2 (1 + c)/s`.

Privacy of the sampler
----------------------
The table rounds probabilities to multiples of :math:`2^{-b}`. With ``N`` table entries
and ``D`` draws the joint law moves by at most :math:`D N 2^{1-b}` in total variation, so
the privacy profile moves by at most :math:`(1 + e^\varepsilon) D N 2^{1-b}`. Let ``E`` be
such that :math:`\delta_{G_\mu}(E) \le 10^{-19}`. `required_bits` picks ``b`` so that the
displacement is at most :math:`10^{-19}` for every :math:`\varepsilon \le E`; beyond ``E``
profiles only fall. The sampler therefore adds at most :math:`2 \cdot 10^{-19}` to
:math:`\delta` at every :math:`\varepsilon`, and far less where the profile is near one
(there :math:`e^{\varepsilon - E}` is tiny): the noise is covered by a leak of probability
:math:`10^{-18}`, which is charged, and otherwise :math:`G_\mu`.

For `s` above `MAX_TABLE_S` the draw is :math:`X_1 + Q X_2` with two narrower discrete
Gaussians, :math:`s_1^2 + Q^2 s_2^2 = s^2`. By Poisson summation each probability is the
wanted one times :math:`1 \pm 2.1 e^{-2\pi^2 t^2}`, :math:`t = s_1 s_2 / s`, and ``t`` is
chosen so that this, too, is below :math:`2^{1-b}`.

Sums of records in a secret sample
----------------------------------
Items 1 and 3 are about *pairs* of data sets, and that is all that the account of samples of a
fixed size asks for [1]_: its profile follows from those of all pairs of batches. The account of a
Poisson sample is about *three* laws: the release of a batch without the record, with it, and with
the one that replaces it, which no statement about pairs covers. So here is one about any number of
laws at once. Take the continuous Gaussian release :math:`Y \sim N(x, \tau^2 I)` of an integer
vector ``x``, with :math:`\tau^2 = s^2 - \rho^2`, and round it at random: draw each coordinate of
``X`` with probability proportional to :math:`e^{-(k - Y_j)^2 / 2 \rho^2}` over the integers ``k``.
By Poisson summation the divisor :math:`\sum_k e^{-(k - y)^2 / 2 \rho^2}` is
:math:`\sqrt{2 \pi} \rho` times :math:`1 \pm 2.01 e^{-2 \pi^2 \rho^2}` for every ``y``, and the
convolution of both Gaussian densities is that of variance :math:`s^2`. So ``X`` is, up to a factor
:math:`1 \pm 2.1 e^{-2 \pi^2 \rho^2}` in the probability of each value of a coordinate, ``x`` plus
discrete Gaussian noise of scale ``s``. The map from ``Y`` to ``X`` knows nothing of the data:
*whatever* holds for the continuous release with :math:`\tau` in the place of ``s`` holds for the
discrete one, mixtures over samples and vectors in any directions included, and so do compositions.
`rounding_width` is the :math:`\rho` at which the factor differs from 1 by less than
:math:`2^{-b}`, which is in what `required_bits` counts. At s = 1000 this costs 2 to 5 parts in a
million of the noise.

Look-ups take a time that depends on the value: timing attacks are out of scope.

References
----------
Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy".
Dong, Roth, Su (2022), "Gaussian Differential Privacy".

.. [1] B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling", 2018, theorem 9.
"""

import bisect
import decimal
import itertools
import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from skdpot._utils.rng import SecretStream
from skdpot.exceptions import CalibrationError

__all__ = ["MAX_S", "MAX_TABLE_S", "discrete_gaussian", "required_bits", "rounding_width"]

IntArray = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64] | npt.NDArray[np.uint16]

MAX_TABLE_S = 1024.0
MAX_S = 2.0**40
_MAX_BITS = 2**14
_WORD = 64
_LOG2_DRAWS = 32  # draws that one event may use, over all calls
_MAX_LEAVES = 8  # tables that one draw may consult when s is wide


@dataclass(frozen=True)
class _Table:
    """Cumulative probabilities ``P[X <= k] * 2**bits`` for k = -offset, -offset + 1, ...

    Most draws are settled by their first 16 bits: for each of these `guide` has the number of
    thresholds below, and `crowd` how many there are with the same bits (at most 2 are told).
    """

    offset: int
    bits: int
    thresholds: list[int] = field(repr=False)
    first_words: npt.NDArray[np.uint64] = field(repr=False)
    guide: npt.NDArray[np.int32] = field(repr=False)
    crowd: npt.NDArray[np.uint8] = field(repr=False)


def required_bits(s: float, mu: float) -> int:
    """Return the table precision at which the sampler's own error is negligible.

    Parameters
    ----------
    s : float
        Standard deviation in lattice units.
    mu : float
        Privacy parameter of the whole event that uses the noise. The precision grows
        with it, because ``exp(epsilon)`` multiplies the error.

    Returns
    -------
    int
        A multiple of 64.

    Raises
    ------
    CalibrationError
        If `mu` is so large (an epsilon of about ten thousand) that noise protects
        nothing.
    """
    if not (math.isfinite(mu) and mu > 0):
        raise ValueError(f"`mu` must be positive and finite, got {mu!r}.")
    largest_epsilon = mu * mu / 2 + 9.1 * mu  # delta there is at most Phi(-9.1) < 1e-19
    fixed = math.log2(1e19) + _LOG2_DRAWS + math.log2(_MAX_LEAVES) + 1
    fixed += (largest_epsilon + 1) / math.log(2)
    bits = _WORD
    while bits < fixed + math.log2(2 * _half_width(min(s, MAX_TABLE_S), bits) + 1):
        bits += _WORD
        if bits > _MAX_BITS:
            raise CalibrationError(
                f"Noise for mu = {mu:.4g} (an epsilon above {mu * mu / 2:.3g}) protects "
                "nothing. Lower epsilon, or pass epsilon=inf for a fit that is openly "
                "not private."
            )
    return bits


def _half_width(s: float, bits: int) -> int:
    """Return K such that both tails beyond K hold less than ``2**-bits``."""
    return math.ceil(s * math.sqrt(2 * math.log(2) * (bits + 1))) + 1


def _unnormalised(s: float, half_width: int, precision: int) -> list[int]:
    """Return ``exp(-k**2 / 2s**2) * 2**precision`` for k = 0, ..., half_width.

    The ratio of neighbours, exp(-(2k+1)/2s**2), is itself a geometric sequence: two
    multiplications an entry. The k-th value is off by at most ``2 * (k + 1)**2`` units.
    """
    with decimal.localcontext() as context:
        context.prec = math.ceil(precision * math.log10(2)) + 10
        ratio = (decimal.Decimal(-1) / (2 * decimal.Decimal(s) ** 2)).exp()
        one = decimal.Decimal(1 << precision)
        step, ratio_step = int(ratio * one), int(ratio * ratio * one)
    value = 1 << precision
    values = [value]
    for _ in range(half_width):
        value = value * step >> precision
        step = step * ratio_step >> precision
        values.append(value)
    return values


@lru_cache(maxsize=16)
def _table(s: float, bits: int) -> _Table:
    """Return the cumulative table; its probabilities are right to ``2**(1 - bits)``."""
    half_width = _half_width(s, bits)
    precision = bits + 3 * half_width.bit_length() + 16
    half = _unnormalised(s, half_width, precision)
    total = 2 * sum(half) - half[0]
    # Rounding `normaliser` moves a threshold by total / 2**scale < 2600 / 2**64 units.
    scale = precision + _WORD
    normaliser = (1 << (bits + scale)) // total
    mass = itertools.chain(reversed(half), half[1:-1])  # the last one is 1 - the others
    thresholds = [c * normaliser >> scale for c in itertools.accumulate(mass)]
    shift = bits - _WORD
    first_words = np.array([t >> shift for t in thresholds], dtype=np.uint64)
    lowest = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    guide = np.searchsorted(first_words, lowest, side="left").astype(np.int32)
    crowd = np.minimum(np.diff(guide, append=len(first_words)), 2).astype(np.uint8)
    for array in (first_words, guide, crowd):
        array.setflags(write=False)
    return _Table(half_width, bits, thresholds, first_words, guide, crowd)


def _draw_from_table(table: _Table, words: _Words, stream: SecretStream) -> IntArray:
    """Draw by inverting the cumulative table; bits beyond the given ones are read if they matter.

    `words` are the first 64 bits of each draw, or the first 16.
    """
    whole = words.dtype == np.uint64
    cells = words >> np.uint64(48) if whole else words
    index: IntArray = table.guide[cells].astype(np.int64)
    crowd = table.crowd[cells]
    places = np.flatnonzero(crowd)
    if len(places):
        open_words = words[places].astype(np.uint64)
        if not whole:
            open_words <<= np.uint64(48)
            open_words |= stream.random_uint64(len(places)) >> np.uint64(16)
        index[places] = _searched(table, open_words, index[places], crowd[places] > 1, stream)
    index -= table.offset
    return index


def _searched(
    table: _Table,
    words: npt.NDArray[np.uint64],
    lowest: IntArray,
    is_crowded: npt.NDArray[np.bool_],
    stream: SecretStream,
) -> IntArray:
    """Return how many thresholds are not above 64-bit words; later words are read for ties."""
    index = lowest + (words >= table.first_words[lowest])
    index[is_crowded] = np.searchsorted(table.first_words, words[is_crowded], side="right")
    below = table.first_words[np.maximum(index - 1, 0)]
    for i in np.flatnonzero(below == words):  # ~1e-15 of the draws
        rest = table.bits - _WORD
        word = (int(words[i]) << rest) | (stream.random_bits(rest) if rest else 0)
        index[i] = bisect.bisect_right(table.thresholds, word)
    return index


def rounding_width(bits: int) -> float:
    """Return the scale ``t`` with ``2.1 exp(-2 pi^2 t^2) < 2**-bits``."""
    return math.sqrt((bits * math.log(2) + 1) / 2) / math.pi


def _split(s: float, bits: int) -> tuple[float, int, float]:
    """Return ``s1, Q, s2`` with ``s1**2 + (Q * s2)**2`` at least, and nearly, ``s**2``."""
    t = rounding_width(bits)
    factor = min(math.isqrt(int(s / (2 * t))), int(MAX_TABLE_S / (2 * t)))
    narrow = 2 * t * factor
    return narrow, factor, math.sqrt((s - narrow) * (s + narrow)) / factor * (1 + 2e-15)


def _draw(s: float, bits: int, count: int, stream: SecretStream) -> IntArray:
    if s <= MAX_TABLE_S:
        return _draw_from_table(_table(s, bits), stream.random_uint64(count), stream)
    parts, factor, wide = [], 1, s
    while wide > MAX_TABLE_S:
        narrow, step, wide = _split(wide, bits)
        parts.append((factor, narrow))
        factor *= step
    drawn = np.zeros(count, dtype=np.int64)
    for step, of_part in (*parts, (factor, wide)):
        words = np.frombuffer(stream.random_bytes(2 * count), dtype=np.uint16)
        drawn += step * _draw_from_table(_table(of_part, bits), words, stream)
    return drawn


def discrete_gaussian(
    s: float,
    size: int | tuple[int, ...],
    stream: SecretStream,
    *,
    mu: float = 1.0,
) -> IntArray:
    """Draw integers with probability proportional to ``exp(-k**2 / (2 * s**2))``.

    Parameters
    ----------
    s : float
        Scale in lattice units, from 1 to 2**40. The standard deviation equals `s` to
        one part in a million at s = 1 and to machine precision from s = 1.5 on.
    size : int or tuple of int
        Shape of the result.
    stream : SecretStream
        Source of the random words.
    mu : float, default=1.0
        Privacy parameter of the event that the noise is for; sets the precision.

    Returns
    -------
    ndarray of int64, shape `size`

    Raises
    ------
    ValueError
        If `s` is outside [1, 2**40] or `mu` is not positive.
    CalibrationError
        If `mu` is too large for any noise to protect.
    """
    if not 1 <= s <= MAX_S:
        raise ValueError(f"`s` must be between 1 and 2**40 lattice units, got {s!r}.")
    shape = (size,) if isinstance(size, int) else tuple(size)
    return _draw(float(s), required_bits(s, mu), math.prod(shape), stream).reshape(shape)
