r"""Gaussian noise on a lattice, and the scales with which it reaches a privacy target.

Private statistics are integer multiples of a *data lattice* (1 for counts). The noise lattice
contains the data lattice, so the noisy statistic is always a multiple of the noise lattice ``g``.
This prevents the floating-point attacks on continuous noise. A discrete Gaussian of scale ``sigma``
costs

.. math:: \mu = \frac{\Delta}{\sigma} \left(1 + \frac{1}{20 s^2}\right),
          \qquad s = \sigma / g \ge 1,

as proved below. Other statistics are first rounded to a lattice. In each of two neighbouring data
sets, rounding moves each of the ``dim`` coordinates that a record can change by at most ``g/2``, so
the L2 sensitivity grows by at most :math:`g \sqrt{dim}`. Exact discrete Gaussian integers are drawn
by table look-up.

Privacy of the discrete Gaussian
--------------------------------
Let ``X`` follow :math:`N_{\mathbb Z}(0, s^2)`, :math:`P(X=k) \propto e^{-k^2/2s^2}`, and
let :math:`q(m) = \Phi^{-1}(P[X < m])`.

1. *One coordinate.* The likelihood ratio of ``X + k`` to ``X`` is monotone, so the best
   tests between the two are half-lines :math:`\{X \ge m\}` and randomised mixtures of
   two neighbouring half-lines. A half-line has the errors of a test between :math:`N(0, 1)`
   and :math:`N(q(m) - q(m-k), 1)`. Hence :math:`G_\mu`, two Gaussians at distance
   :math:`\mu`, dominates a shift of ``X`` by ``k`` if no :math:`q(m) - q(m-k)` exceeds
   :math:`\mu`. The increments add up, so the single inequality

   .. math:: q(m+1) - q(m) \le (1 + c)/s \quad \text{for all } m

   gives :math:`\mu = |k|(1+c)/s`.
2. *The constant.* Euler-Maclaurin gives :math:`q'(x) = (1 + 1/(24 s^2) + \dots)/s` in the
   bulk. In the tail, with :math:`y = m/s^2`, the factor 1/24 becomes
   :math:`\log(y/(1-e^{-y}))/y^2 - 1/y^2 + 1/(y(e^y-1))`, up to terms that vanish with
   ``s``; it falls from 1/24 to 0. So :math:`c = 1/(20 s^2)` holds with a margin for
   s >= 1. The tests verify the inequality in high precision over a grid of ``s`` from 1
   to 64, for every ``m`` up to 17 s if s <= 16 and up to 13.4 s above. The margin (1/20
   instead of 1/24) also covers the rounding of floating-point ``sigma``.
   :math:`c = 0` is false: a discrete Gaussian is *not* as good as a continuous one.
3. *Many coordinates.* A product of dominating pairs dominates the product, and
   :math:`G_{\mu_1} \otimes G_{\mu_2} = G_{\sqrt{\mu_1^2 + \mu_2^2}}`. A shift by the
   integer vector ``k`` is therefore dominated by :math:`G_\mu` with
   :math:`\mu = \|k\|_2 (1 + c)/s`.

Privacy of the sampler
----------------------
The table rounds probabilities to multiples of :math:`2^{-b}`. With ``N`` table entries
and ``D`` draws the joint law moves by at most :math:`D N 2^{1-b}` in total variation, so
the privacy profile moves by at most :math:`(1 + e^\varepsilon) D N 2^{1-b}`. Choose ``E``
with :math:`\delta_{G_\mu}(E) \le 10^{-19}`. `required_bits` chooses ``b`` so that the
profile moves by at most :math:`10^{-19}` for every :math:`\varepsilon \le E`; beyond ``E``
profiles only fall. The sampler therefore adds at most :math:`2 \cdot 10^{-19}` to
:math:`\delta` at every :math:`\varepsilon`, and far less where the profile is near one,
because :math:`e^{\varepsilon - E}` is tiny there. So the noise is dominated by
:math:`G_\mu` with a leak of probability :math:`10^{-18}`, which is charged.

For `s` above `MAX_TABLE_S` the draw is :math:`X_1 + Q X_2` with two narrower discrete
Gaussians, :math:`s_1^2 + Q^2 s_2^2 = s^2`. By Poisson summation each probability is the
exact one times :math:`1 \pm 2.1 e^{-2\pi^2 t^2}`, :math:`t = s_1 s_2 / s`, and ``t`` is
chosen so that this relative error is also below :math:`2^{1-b}`.

Sums of records in a secret sample
----------------------------------
Items 1 and 3 compare *pairs* of data sets. This suffices for samples of a fixed size [1]_, whose
profile follows from the profiles of all pairs of batches. The account of a Poisson sample compares
*three* laws: the releases of a batch without the record, with it, and with the record that replaces
it. No statement about pairs covers that, so the following one is about any number of laws. Let
:math:`Y \sim N(x, \tau^2 I)` be the continuous Gaussian release of an integer vector ``x``, with
:math:`\tau^2 = s^2 - \rho^2`. Round it at random: draw each coordinate of ``X`` with probability
proportional to :math:`e^{-(k - Y_j)^2 / 2 \rho^2}` over the integers ``k``. By Poisson summation
the divisor :math:`\sum_k e^{-(k - y)^2 / 2 \rho^2}` is :math:`\sqrt{2 \pi} \rho` times
:math:`1 \pm 2.01 e^{-2 \pi^2 \rho^2}` for every ``y``, and the convolution of the two Gaussian
densities has variance :math:`s^2`. So ``X`` is ``x`` plus discrete Gaussian noise of scale ``s``,
up to a factor :math:`1 \pm 2.1 e^{-2 \pi^2 \rho^2}` in the probability of each value of a
coordinate. The map from ``Y`` to ``X`` does not depend on the data. So *every* statement about the
continuous release with :math:`\tau` instead of ``s`` holds for the discrete one, including mixtures
over samples, vectors in any directions and compositions. `rounding_width` is the :math:`\rho` at
which the factor differs from 1 by less than :math:`2^{-b}`, which `required_bits` takes into
account. At s = 1000 this costs 2 to 5 parts in a million of the noise.

Shares of several parties
-------------------------
Given the sum of two independent discrete Gaussians of scales ``s`` and ``t``, one of them is a
Gaussian on shifted integers of scale :math:`\tau = s t / \sqrt{s^2 + t^2}`. By Poisson summation,
the sum has the law of scale :math:`\sqrt{s^2 + t^2}` up to a factor
:math:`1 \pm 4.1 e^{-2 \pi^2 \tau^2}` in each probability: half of the error comes from the sum over
shifted integers, and half from the divisor, which is a mean of such sums. For ``m`` shares of scale
``s`` each, the sum of the first ``j`` shares and the next one have
:math:`\tau^2 = s^2 j / (j + 1) \ge s^2 / 2`, and adding further shares keeps the earlier factors.
So the sum of all shares is discrete Gaussian noise of scale :math:`s \sqrt m` up to ``m - 1`` such
factors [2]_. `check_shares` requires :math:`s \ge \sqrt 2 \rho`, so that each factor is within
:math:`1 \pm 2^{1-b}`. The draws of all ``m`` shares count as draws of one event, so the charged
leak covers these factors and all samplers. A party that knows some of the shares sees noise from
the sum of the others. If these are more than ``m``, the additional shares only add noise.

The time of a look-up depends on the value: timing attacks are out of scope.

References
----------
Canonne, Kamath, Steinke (2020), "The Discrete Gaussian for Differential Privacy".
Dong, Roth, Su (2022), "Gaussian Differential Privacy".

.. [1] B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling", 2018, theorem 9.
.. [2] P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
   Learning with Secure Aggregation", ICML 2021.
"""

import bisect
import decimal
import itertools
import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError

_Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64] | npt.NDArray[np.uint16]

MAX_TABLE_S = 1024.0
MAX_S = 2.0**40
_MAX_BITS = 2**14
_WORD = 64
NOISE_REACH = 20.0  # standard deviations; larger noise has a probability of 1e-88
_LOG2_DRAWS = 32  # of the number of draws that one event may use, over all calls
_MAX_LEAVES = 8  # tables that one draw may use if s is large
MIN_LATTICE_STEPS = 16.0
_ROUNDING_SHARE = 1 / 64
_SUM_ROUNDING_SHARE = 1 / 512
_FEWEST_SUM_STEPS, _MOST_SUM_STEPS = 64.0, 2.0**39
_LARGEST_UNIT = 2.0**52


@dataclass(frozen=True)
class _Table:
    """Cumulative probabilities ``P[X <= k] * 2**bits`` for k = -offset, -offset + 1, ...

    The first 16 bits decide most draws. For each of their values, `guide` is the number of smaller
    thresholds, and `crowd` the number of thresholds that begin with these bits, cut at 2.
    """

    offset: int
    bits: int
    thresholds: list[int] = field(repr=False)
    first_words: npt.NDArray[np.uint64] = field(repr=False)
    guide: npt.NDArray[np.int32] = field(repr=False)
    crowd: npt.NDArray[np.uint8] = field(repr=False)


def required_bits(s: float, mu: float) -> int:
    """Return the table precision at which the error of the sampler is negligible."""
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
    """Return K such that both tails beyond K have a probability below ``2**-bits``."""
    return math.ceil(s * math.sqrt(2 * math.log(2) * (bits + 1))) + 1


def _unnormalised(s: float, half_width: int, precision: int) -> list[int]:
    """Return ``exp(-k**2 / 2s**2) * 2**precision`` for k = 0, ..., half_width.

    The ratios of successive values, exp(-(2k+1)/2s**2), are a geometric sequence, so each value
    takes two multiplications. The error of the k-th value is at most ``2 * (k + 1)**2`` units.
    """
    with decimal.localcontext() as context:
        context.prec = math.ceil(precision * math.log10(2)) + 10
        ratio = (decimal.Decimal(-1) / (2 * decimal.Decimal(s) ** 2)).exp()
        unit = decimal.Decimal(1 << precision)
        step, ratio_step = int(ratio * unit), int(ratio * ratio * unit)
    value = 1 << precision
    values = [value]
    for _ in range(half_width):
        value = value * step >> precision
        step = step * ratio_step >> precision
        values.append(value)
    return values


@lru_cache(maxsize=32)  # one for each size of a contingency table, up to 2 MB each
def _table(s: float, bits: int) -> _Table:
    """Return the cumulative table, whose probabilities have an error below ``2**(1 - bits)``."""
    half_width = _half_width(s, bits)
    precision = bits + 3 * half_width.bit_length() + 16
    half = _unnormalised(s, half_width, precision)
    total = 2 * sum(half) - half[0]
    # Rounding `normaliser` moves a threshold by total / 2**scale < 2600 / 2**64 units.
    scale = precision + _WORD
    normaliser = (1 << (bits + scale)) // total
    mass = itertools.chain(reversed(half), half[1:-1])  # the last one is 1 minus the others
    thresholds = [c * normaliser >> scale for c in itertools.accumulate(mass)]
    shift = bits - _WORD
    first_words = np.array([t >> shift for t in thresholds], dtype=np.uint64)
    lowest = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    guide = np.searchsorted(first_words, lowest, side="left").astype(np.int32)
    crowd = np.minimum(np.diff(guide, append=len(first_words)), 2).astype(np.uint8)
    for array in (first_words, guide, crowd):
        array.setflags(write=False)
    return _Table(half_width, bits, thresholds, first_words, guide, crowd)


def _draw_from_table(table: _Table, words: _Words, stream: SecretStream) -> _Integers:
    """Draw by inverting the cumulative table; more random bits are read for undecided draws.

    `words` are the first 64 or the first 16 bits of each draw.
    """
    whole = words.dtype == np.uint64
    cells = words >> np.uint64(48) if whole else words
    index: _Integers = table.guide[cells].astype(np.int64)
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
    lowest: _Integers,
    is_crowded: npt.NDArray[np.bool_],
    stream: SecretStream,
) -> _Integers:
    """Return the number of thresholds at or below each 64-bit word; ties read further bits."""
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


def check_shares(s: float, mu: float, n_shares: int, size: int) -> None:
    """Refuse noise of scale `s` that the tables cannot draw precisely in this number of shares."""
    share = s / math.sqrt(n_shares)
    bits = required_bits(share, mu)
    if n_shares > 1 and math.sqrt(2) * rounding_width(bits) > share:
        raise CalibrationError(
            f"Noise for mu = {mu:.4g} cannot be the sum of {n_shares} shares. Lower epsilon."
        )
    if n_shares * size > 2**_LOG2_DRAWS:
        raise CalibrationError(
            f"The noise of {n_shares} shares of {size} entries takes more than 2^32 draws. Make "
            "the table smaller."
        )


def _split(s: float, bits: int) -> tuple[float, int, float]:
    """Return ``s1, Q, s2`` with ``s1**2 + (Q * s2)**2`` slightly above ``s**2``."""
    t = rounding_width(bits)
    factor = min(math.isqrt(int(s / (2 * t))), int(MAX_TABLE_S / (2 * t)))
    narrow = 2 * t * factor
    return narrow, factor, math.sqrt((s - narrow) * (s + narrow)) / factor * (1 + 2e-15)


def discrete_gaussian(
    s: float, size: int | tuple[int, ...], stream: SecretStream, *, mu: float = 1.0
) -> _Integers:
    """Draw integers with probability proportional to ``exp(-k**2 / (2 * s**2))``."""
    if not 1 <= s <= MAX_S:
        raise CalibrationError(
            f"The scale of the noise is {s:.3g} steps of the noise lattice; between 1 and 2**40 "
            "are needed."
        )
    shape = (size,) if isinstance(size, int) else tuple(size)
    bits, count = required_bits(s, mu), math.prod(shape)
    if s <= MAX_TABLE_S:
        words = stream.random_uint64(count)
        return _draw_from_table(_table(float(s), bits), words, stream).reshape(shape)
    parts, factor, wide = [], 1, float(s)
    while wide > MAX_TABLE_S:
        narrow, step, wide = _split(wide, bits)
        parts.append((factor, narrow))
        factor *= step
    total = np.zeros(count, dtype=np.int64)
    for step, part_s in (*parts, (factor, wide)):
        words16 = np.frombuffer(stream.random_bytes(2 * count), dtype=np.uint16)
        total += step * _draw_from_table(_table(part_s, bits), words16, stream)
    return total.reshape(shape)


@dataclass(frozen=True, kw_only=True)
class LatticeNoise:
    """Discrete Gaussian noise that reaches a privacy target."""

    sigma: float
    sensitivity: float
    lattice: float

    @property
    def mu(self) -> float:
        """Privacy parameter of one release, ``sensitivity / sigma * (1 + 1 / 20 s**2)``."""
        s = self.sigma / self.lattice
        return self.sensitivity / self.sigma * (1 + 1 / (20 * s * s))


def check_positive(**values: float) -> None:
    """Raise an error that names the first number that is not positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")


def check_counts(**counts: object) -> None:
    """Raise an error that names the first number that is not an integer of at least 1."""
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"`{name}` must be an integer >= 1, got {count!r}.")


def gaussian_noise(
    sigma: float, size: int | tuple[int, ...], stream: SecretStream
) -> npt.NDArray[np.float64]:
    """Draw continuous Gaussian noise in double precision.

    For ``noise="float"`` only: the bits of a floating-point sum can leak more about the data than
    the Gaussian mechanism allows, and this function does not prevent it.
    """
    check_positive(sigma=sigma)
    return stream.generator().normal(0.0, sigma, size)


def noise_lattice(sigma: float, data_lattice: float = 1.0) -> float:
    """Return the coarsest ``g = data_lattice / 2**k``, k >= 0, with ``sigma / g >= 16``.

    At 16 lattice steps a discrete Gaussian costs 0.02 % more than a continuous one.
    """
    lattice = data_lattice
    while sigma / lattice < MIN_LATTICE_STEPS:
        lattice /= 2
        if lattice < 1e-290:
            raise CalibrationError(f"No noise lattice resolves sigma = {sigma:.3g}.")
    return lattice


def lattice_noise(
    sigma: float, shape: int | tuple[int, ...], stream: SecretStream, *, lattice: float, mu: float
) -> _Integers:
    """Draw discrete Gaussian noise in units of `lattice`."""
    return discrete_gaussian(sigma / lattice, shape, stream, mu=mu)


def noise_for_sums(sigma: float, sensitivity: float, dim: int) -> LatticeNoise:
    r"""Return noise of a given scale for sums of clipped vectors that are rounded once.

    If a record moves a sum by :math:`v`, it moves the rounded sum by at most
    :math:`\|v\| + g \sqrt{dim}`. A replaced record has :math:`\|v\| \le \Delta`. A record that
    joins or leaves a secret sample has :math:`\|v\| \le \Delta / 2`, and twice its bound is the
    larger one. So the sensitivity is :math:`\Delta + 2 g \sqrt{dim}`, and the presence of a record
    changes the rounded sum by at most half of that.
    """
    check_positive(sigma=sigma, sensitivity=sensitivity, dim=dim)
    finest = sensitivity * _SUM_ROUNDING_SHARE / (2.0 * math.sqrt(dim))
    bounded = min(max(finest, sigma / _MOST_SUM_STEPS), sigma / _FEWEST_SUM_STEPS)
    lattice = 2.0 ** math.floor(math.log2(bounded))
    delta = rounded_sensitivity(sensitivity, 2.0 * lattice, dim)
    return LatticeNoise(sigma=sigma, sensitivity=delta, lattice=lattice)


def noisy_sum(
    values: npt.NDArray[np.float64], noise: LatticeNoise, stream: SecretStream
) -> npt.NDArray[np.float64]:
    """Round a private sum to the lattice and add noise, both in integers."""
    units = lattice_noise(noise.sigma, values.shape, stream, lattice=noise.lattice, mu=noise.mu)
    units += round_to_lattice(values, noise.lattice)
    return units.astype(np.float64) * noise.lattice


def round_to_lattice(x: npt.ArrayLike, lattice: float) -> _Integers:
    """Return the nearest multiples of `lattice`, as integers in units of it.

    Values beyond 2**52 units are clipped, which does not increase the distance between neighbours.
    No value raises an error, because errors are outputs.
    """
    if math.frexp(lattice)[0] != 0.5:
        raise ValueError(
            f"`lattice` must be a power of two, so that dividing by it is exact; got {lattice!r}."
        )
    units = np.asarray(x, dtype=np.float64) / lattice
    return np.rint(np.clip(units, -_LARGEST_UNIT, _LARGEST_UNIT)).astype(np.int64)


def rounded_sensitivity(sensitivity: float, lattice: float, dim: int) -> float:
    """Return an upper bound of the L2 sensitivity after rounding to the lattice."""
    return (sensitivity + lattice * math.sqrt(dim)) * (1 + 1e-15)


def calibrate_lattice(mu: float, sensitivity: float, *, data_lattice: float = 1.0) -> LatticeNoise:
    """Return noise of privacy `mu` for a statistic that lies on `data_lattice`."""
    check_positive(mu=mu, sensitivity=sensitivity)
    return _calibrated(mu, sensitivity, noise_lattice(sensitivity / mu, data_lattice))


def calibrate_rounded(mu: float, sensitivity: float, dim: int) -> LatticeNoise:
    """Return noise of privacy `mu`, and its lattice, for a statistic that must be rounded."""
    check_positive(mu=mu, sensitivity=sensitivity, dim=dim)
    finest = min(
        sensitivity * _ROUNDING_SHARE / math.sqrt(dim), sensitivity / mu / MIN_LATTICE_STEPS
    )
    lattice = 2.0 ** math.floor(math.log2(finest))
    return _calibrated(mu, rounded_sensitivity(sensitivity, lattice, dim), lattice)


def _calibrated(mu: float, sensitivity: float, lattice: float) -> LatticeNoise:
    """Return the least noise, up to rounding, with ``noise.mu <= mu``, if it can be drawn.

    Its sigma is the fixed point of ``sigma = continuous * (1 + 1 / (20 s**2))``. The right side
    falls in sigma, so the iterates alternate around the fixed point, and an odd number of steps
    ends above it, on the private side.
    """
    sigma = continuous = sensitivity / mu
    for _ in range(5):
        s = sigma / lattice
        sigma = continuous * (1 + 1 / (20 * s * s))
    noise = LatticeNoise(sigma=sigma * (1 + 1e-15), sensitivity=sensitivity, lattice=lattice)
    steps = noise.sigma / lattice
    if not (1 <= steps <= MAX_S and noise.mu <= mu):
        raise CalibrationError(
            f"Noise on the lattice {lattice:.4g} cannot reach mu = {mu:.4g} for a sensitivity of "
            f"{sensitivity:.4g}: sigma would be {steps:.3g} lattice steps, and between 1 and 2**40 "
            "are needed. Choose another lattice or epsilon."
        )
    required_bits(steps, noise.mu)  # refuses noise that protects nothing, before any charge
    return noise
