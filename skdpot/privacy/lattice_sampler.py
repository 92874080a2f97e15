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

Look-ups take a time that depends on the value: timing attacks are out of scope.

References
----------
Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy".
Dong, Roth, Su (2022), "Gaussian Differential Privacy".
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

__all__ = ["MAX_S", "MAX_TABLE_S", "discrete_gaussian", "required_bits"]

IntArray = npt.NDArray[np.int64]

MAX_TABLE_S = 1024.0
MAX_S = 2.0**40
_MAX_BITS = 2**14
_WORD = 64
_LOG2_DRAWS = 32  # draws that one event may use, over all calls
_MAX_LEAVES = 8  # tables that one draw may consult when s is wide


@dataclass(frozen=True)
class _Table:
    """Cumulative probabilities ``P[X <= k] * 2**bits`` for k = -offset, -offset + 1, ..."""

    offset: int
    bits: int
    thresholds: list[int] = field(repr=False)
    first_words: npt.NDArray[np.uint64] = field(repr=False)


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
    first_words.setflags(write=False)
    return _Table(half_width, bits, thresholds, first_words)


def _draw_from_table(table: _Table, count: int, stream: SecretStream) -> IntArray:
    """Draw by inverting the cumulative table; later words are read when they matter."""
    words = stream.random_uint64(count)
    index: IntArray = np.searchsorted(table.first_words, words, side="right").astype(np.int64)
    below = table.first_words[np.maximum(index - 1, 0)]
    for i in np.flatnonzero(below == words):  # ~1e-15 of the draws
        rest = table.bits - _WORD
        word = (int(words[i]) << rest) | (stream.random_bits(rest) if rest else 0)
        index[i] = bisect.bisect_right(table.thresholds, word)
    index -= table.offset
    return index


def _split(s: float, bits: int) -> tuple[float, int, float]:
    """Return ``s1, Q, s2`` with ``s1**2 + (Q * s2)**2`` at least, and nearly, ``s**2``."""
    t = math.sqrt((bits * math.log(2) + 1) / 2) / math.pi
    factor = math.isqrt(int(s / (2 * t)))
    narrow = 2 * t * factor
    return narrow, factor, math.sqrt((s - narrow) * (s + narrow)) / factor * (1 + 2e-15)


def _draw(s: float, bits: int, count: int, stream: SecretStream) -> IntArray:
    if s <= MAX_TABLE_S:
        return _draw_from_table(_table(s, bits), count, stream)
    narrow, factor, wide = _split(s, bits)
    return _draw(narrow, bits, count, stream) + factor * _draw(wide, bits, count, stream)


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
