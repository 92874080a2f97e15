r"""Discretised privacy losses, their composition and their profiles.

Composition multiplies Fourier transforms, whose rounding errors would exceed small masses. By the
following analysis, every returned mass is therefore an upper bound. Let :math:`p_i` be the masses
of the steps, repeated :math:`T_i` times, :math:`n = \sum T_i`, and :math:`u = 2^{-53}`.

1. *Tilting.* For any :math:`\theta`, with :math:`K_i = \log \sum_l p_i(l) e^{\theta l}` and
   :math:`K = \sum T_i K_i`, the composition is :math:`q(l) = e^{K - \theta l} q_\theta(l)`, where
   :math:`q_\theta` composes the probabilities :math:`x_i(l) = p_i(l) e^{\theta l - K_i}`.
2. *Transform.* A transform of length :math:`N = 2^m` adds every input along one path of :math:`m`
   butterflies with weights of modulus one. The rounding error of each butterfly is below
   :math:`8u` relative to the moduli that it adds. So
   :math:`|\Delta\hat x_i| \le e := 8 m u \sum |x_i| = 8 m u`.
3. *Powers.* The rounding error of a complex product is below :math:`\sqrt 5 u`, so the error of
   :math:`\hat y = \prod \hat x_i^{T_i}` is at most :math:`3 n u |\hat y|` plus
   :math:`\prod (|\hat x_i| + e)^{T_i} - \prod |\hat x_i|^{T_i}`.
4. *Inverse transform.* By point 2 for the inverse, the error of every mass of :math:`q_\theta` is
   at most :math:`s`, the mean over the spectrum of the error of point 3 plus
   :math:`8 m u |\hat y|`. So :math:`q(l) \le (y(l) + s)\, e^{K - \theta l}`, up to a factor for the
   relative errors of the exponentials.
5. *Wrapping.* A transform of finite length adds the masses outside of its window to those inside,
   which remain upper bounds. The mass above the window must also be counted as infinite.
   Chernoff's bound limits this mass.

Of three such bounds, without a tilt and with two tilts towards the tail, the smallest is used. It
is within 1e-4 of every mass down to 1e-22, and mostly within 1e-8.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from skdpot.privacy.gdp import ROUNDING, ApproximateGDP, bisected, gdp_delta, gdp_epsilon

_UNIT = 2.0**-53
_LOG_TAIL = -48.0  # logarithm of the mass above the window
_LOG_TILTS = (-8.0, -30.0)  # logarithms of the mass above the mean of a tilted composition

_TAIL_MASS = 1e-20
_MAX_NODES = 4000  # at which a profile is compared with a Gaussian one
# Much larger than the rounding errors of profiles (1e-13), and a negligible amount of noise.
_RELATIVE_MARGIN = 1e-9

_Counted: TypeAlias = Sequence[tuple["LossDistribution", int]]
_Floats: TypeAlias = npt.NDArray[np.float64]
Profile: TypeAlias = Callable[[_Floats], _Floats]


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """Privacy loss in one order of the neighbours, on a grid, rounded to the private side."""

    interval: float
    lowest: int
    probabilities: _Floats
    infinity_mass: float

    @cached_property
    def values(self) -> _Floats:
        """The finite losses in increasing order."""
        return (np.arange(len(self.probabilities), dtype=np.float64) + self.lowest) * self.interval

    @cached_property
    def _log_probabilities(self) -> _Floats:
        with np.errstate(divide="ignore"):
            logs: _Floats = np.log(self.probabilities)
        return logs

    def self_compose(self, count: int) -> "LossDistribution":
        """Return the loss of `count` independent repetitions."""
        return self if count == 1 else _composed([(self, count)])

    def compose(self, other: "LossDistribution") -> "LossDistribution":
        """Return the loss of both mechanisms together; the grids must be equal."""
        return _composed([(self, 1), (other, 1)])

    def log_mgf(self, t: float) -> float:
        """Return the logarithm of the sum of exp(t * loss) over the finite losses."""
        return float(logsumexp(t * self.values + self._log_probabilities))

    def profile(self) -> tuple[_Floats, _Floats]:
        """Return the nonnegative losses and delta at each; the last node exceeds all losses.

        From node i to the next one, delta falls by 1 - exp(-interval) times the sum of
        exp(-(j - i - 1) * interval) * P_j over j > i. No term is subtracted.
        """
        from scipy.signal import lfilter  # loading it takes a second

        n_below = max(0, -self.lowest)
        start = max(0, self.lowest)
        losses = np.arange(start, max(start, self.lowest + len(self.probabilities)) + 1.0)
        epsilon = losses * self.interval
        masses = np.append(self.probabilities[n_below:], 0.0)[: len(losses)]
        falls = lfilter([1.0], [1.0, -math.exp(-self.interval)], masses[:0:-1])
        rises = np.append(0.0, np.cumsum(falls))[::-1] * -math.expm1(-self.interval)
        delta = self.infinity_mass + rises * (1.0 + ROUNDING + 8.0 * len(masses) * _UNIT)
        if start > 0:  # all losses are positive, so the profile needs an extra node at 0
            epsilon = np.append(0.0, epsilon)
            delta = np.append(self.delta(0.0), delta)
        return epsilon, np.minimum(delta, 1.0)

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """Return delta at `epsilon` of this loss composed with a mu-GDP release.

        The Gaussian needs no grid: the composition is the mean of its closed form at
        ``epsilon - loss``. The mass of infinite losses is added in full.
        """
        gains = gdp_delta(epsilon - self.values, mu)
        # The error of pairwise summation does not grow with the number of losses. For a tiny mu the
        # closed form has an error of 2e-15 / mu.
        raised = 1.0 + ROUNDING + (4e-15 / mu if mu > 0.0 else 0.0)
        return min(1.0, self.infinity_mass + float(np.sum(gains * self.probabilities)) * raised)

    def epsilon(self, delta: float, mu: float = 0.0) -> float:
        """Return an epsilon whose ``self.delta(epsilon, mu)`` is at most and close to `delta`."""
        from scipy.optimize import brentq  # loading it takes half a second

        if self.delta(0.0, mu) <= delta:
            return 0.0
        share = 0.5 * (delta - self.infinity_mass)
        if share <= 0.0:
            return math.inf
        nodes, profile = self.profile()
        first = np.argmax(profile <= self.infinity_mass + share)
        high = float(nodes[first]) + gdp_epsilon(mu, share)

        def log_excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon, mu), 1e-300) / delta)

        epsilon = high
        if log_excess(high) < 0.0:
            epsilon = float(brentq(log_excess, 0.0, high, xtol=1e-300, rtol=1e-15))
        nudge = 2.0 * _UNIT
        while self.delta(epsilon, mu) > delta:
            epsilon *= 1.0 + nudge
            nudge *= 2.0
        return epsilon


@dataclass(frozen=True, eq=False)
class LossPair:
    """The privacy losses in both orders of the neighbours; `backward` is None if equal."""

    forward: LossDistribution
    backward: LossDistribution | None = None

    @property
    def orders(self) -> tuple[LossDistribution, ...]:
        """The distributions, one or two, whose larger value is the bound."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    @property
    def infinity_mass(self) -> float:
        """Probability of an infinite loss: tails that were cut off, and rounding errors."""
        return max(order.infinity_mass for order in self.orders)

    def self_compose(self, count: int) -> "LossPair":
        """Return the losses of `count` independent repetitions."""
        return LossPair(*(order.self_compose(count) for order in self.orders))

    def compose(self, other: "LossPair") -> "LossPair":
        """Return the losses of both mechanisms together."""
        n_orders = max(len(self.orders), len(other.orders))
        both = zip((self.orders * 2)[:n_orders], (other.orders * 2)[:n_orders], strict=True)
        return LossPair(*(first.compose(second) for first, second in both))

    def to_gdp(self, leak: float) -> ApproximateGDP:
        """Return the smallest mu, rounded up, with which mu and `leak` cover the losses.

        The leak pays for infinite losses; if it is too small for them, mu is infinite.
        """
        return ApproximateGDP(max(_smallest_mu(order, leak) for order in self.orders), leak)

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """Return delta at `epsilon` of the losses composed with a mu-GDP release."""
        return max(order.delta(epsilon, mu) for order in self.orders)

    def epsilon(self, delta: float, mu: float = 0.0) -> float:
        """Return epsilon at `delta` of the losses composed with a mu-GDP release."""
        return max(order.epsilon(delta, mu) for order in self.orders)


def losses_of_profiles(profiles: Sequence[Profile], interval: float) -> LossPair:
    """Discretise one step, given by its privacy profile for epsilon >= 0, by connecting the dots.

    Two profiles are given if they differ between the two orders of the neighbours. Each must be an
    upper bound up to the relative `ROUNDING`.

    Notes
    -----
    Between grid points the profile of the discretised pair is a chord of the given one. The given
    profile is convex in exp(epsilon), so the chord is an upper bound. The masses at negative losses
    are those of the other order: P(-l) = exp(-l) P'(l). Masses are differences, but the errors of
    adjacent masses cancel in the resulting profile. Its error is a few units in the last place
    times the width of the loss in grid steps, at most 1e-12 of its value, and the profile is raised
    by more than that.

    References
    ----------
    .. [1] V. Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of
       Privacy Loss Distributions", 2022, algorithm 1.
    """
    masses = [_joined_dots(profile, interval) for profile in profiles]
    orders = zip(masses, masses[::-1], strict=True)
    return LossPair(*(_both_signs(ahead, back, interval) for ahead, back in orders))


def _joined_dots(profile: Profile, interval: float) -> tuple[_Floats, float]:
    """Return the masses at the positive losses, and the mass at an infinite loss."""
    # The profile is below 1e-20 beyond the largest loss.
    largest = bisected(lambda e: bool(profile(np.asarray([e]))[0] <= _TAIL_MASS), 0.01)[1]
    n = max(2, math.ceil(largest / interval))
    epsilon = np.arange(n + 1, dtype=np.float64) * interval
    raised = profile(epsilon) * (1.0 + ROUNDING)
    delta = np.minimum.accumulate(np.minimum(raised, 1.0))
    drop = np.diff(delta)
    positive = np.empty(n)
    positive[:-1] = (drop[1:] - drop[:-1] * math.exp(interval)) / math.expm1(interval)
    positive[-1] = drop[-1] / math.expm1(-interval)
    return np.maximum(positive, 0.0), float(delta[-1])


def _both_signs(
    ahead: tuple[_Floats, float], back: tuple[_Floats, float], interval: float
) -> LossDistribution:
    """Return the distribution in the order of `ahead`; the other order has the masses `back`."""
    positive, infinity_mass = ahead
    n = len(back[0])
    negative = back[0] * np.exp(-interval * np.arange(1.0, n + 1.0))
    # The rest of the mass is at 0. If rounding makes it negative, 0 is more mass and thus safe.
    rest = 1.0 - math.fsum((float(positive.sum()), float(negative.sum()), infinity_mass))
    probabilities = np.concatenate([negative[::-1], [max(0.0, rest)], positive])
    return LossDistribution(interval, -n, probabilities, infinity_mass)


def _smallest_mu(losses: LossDistribution, leak: float) -> float:
    """Return the smallest mu with H <= leak + (1 - leak) G_mu everywhere, rounded up."""
    return math.inf if losses.infinity_mass > leak else least_mu(*losses.profile(), leak)


def least_mu(epsilon: _Floats, profile: _Floats, leak: float) -> float:
    """Return the smallest mu with profile <= leak + (1 - leak) G_mu everywhere, rounded up.

    The profile is convex in exp(epsilon) and at most these values at these increasing epsilons. The
    first epsilon is 0, and the last value is at most `leak`.
    """
    # Only nodes up to the first one where the leak alone covers the profile need a check. Thinning
    # the grid is safe: the profile is convex in exp(epsilon), so its chords lie above it.
    last = int(np.argmax(profile <= leak))
    kept = np.append(np.arange(0, last, max(1, math.ceil(last / _MAX_NODES))), last)
    epsilon, profile = epsilon[kept], profile[kept]
    if profile[0] <= leak:
        return 0.0
    mu = bisected(lambda mu: _dominates(mu, leak, epsilon, profile), _RELATIVE_MARGIN)[1]
    return mu * (1.0 + _RELATIVE_MARGIN)


def _dominates(mu: float, leak: float, epsilon: _Floats, profile: _Floats) -> bool:
    """Whether leak + (1 - leak) * G_mu >= profile at the nodes and between them.

    As functions of x = exp(epsilon) the Gaussian profile is convex and the chord of `profile` is
    linear, so their gap is convex on each interval and lies above its tangents at both ends.
    If both tangents fall inwards, their crossing is therefore a lower bound on the gap.
    """
    gaussian = gdp_delta(epsilon, mu)
    gap = (gaussian - profile) + leak * (1.0 - gaussian)
    if np.any(gap < 0.0):
        return False
    # On interval k, x is measured in units of exp(epsilon_k), so it runs from 1 to 1 + width.
    with np.errstate(over="ignore"):
        width = np.expm1(np.diff(epsilon))
    chord = np.diff(profile) / width
    tail = log_ndtr(-epsilon / mu - mu / 2.0)
    left = -(1.0 - leak) * np.exp(epsilon[:-1] + tail[:-1]) - chord
    right = -(1.0 - leak) * np.exp(epsilon[:-1] + tail[1:]) - chord
    inwards = (left < 0.0) & (right > 0.0)
    start, end, width = gap[:-1][inwards], gap[1:][inwards], width[inwards]
    left, right = left[inwards], right[inwards]
    crossing = (start * right - end * left + left * right * width) / (right - left)
    return bool(np.all(crossing >= 0.0))


def _composed(parts: _Counted) -> LossDistribution:
    """Compose repeated, independent losses on one grid (proof in the module docstring)."""
    interval = parts[0][0].interval
    lowest = sum(count * part.lowest for part, count in parts)
    highest = lowest + sum(count * (len(part.probabilities) - 1) for part, count in parts)
    top = min(highest, math.ceil(_chernoff(parts, _LOG_TAIL, 1.0)[1] / interval))
    bottom = max(lowest, math.floor(-_chernoff(parts, _LOG_TAIL, -1.0)[1] / interval))
    losses = np.arange(bottom, top + 1)
    tilts = (0.0, *(_chernoff(parts, log_mass, 1.0)[0] for log_mass in _LOG_TILTS))
    masses = reduce(np.minimum, (_upper_masses(parts, losses, tilt) for tilt in tilts))
    lost = -math.expm1(math.fsum(count * math.log1p(-part.infinity_mass) for part, count in parts))
    tail = math.exp(_LOG_TAIL) if top < highest else 0.0
    return LossDistribution(interval, bottom, masses, min(1.0, lost * (1.0 + ROUNDING) + tail))


def _chernoff(parts: _Counted, log_mass: float, sign: float) -> tuple[float, float]:
    """Return t and nearly the smallest x such that ``sign * loss > x`` has at most that mass.

    Every t > 0 gives a bound, ``x = (K(sign * t) - log_mass) / t``.
    """
    from scipy.optimize import minimize_scalar  # loading it takes half a second

    def bound(log_t: float) -> float:
        t = math.exp(log_t)
        mgf = math.fsum(count * part.log_mgf(sign * t) for part, count in parts)
        return (mgf - log_mass) / t

    widest = max(len(part.probabilities) * part.interval for part, _ in parts)
    centre = -math.log(widest)
    least = minimize_scalar(bound, bounds=(centre - 7.0, centre + 12.0), method="bounded")
    return math.exp(least.x), bound(least.x)


def _upper_masses(parts: _Counted, losses: npt.NDArray[np.int64], tilt: float) -> _Floats:
    """Bound the composed masses at `losses` by Fourier transforms of the tilted steps."""
    log_n = max(1, math.ceil(math.log2(len(losses))))
    n = 2**log_n
    rounding = 8.0 * log_n * _UNIT
    n_steps = sum(count for _, count in parts)
    spectrum: npt.NDArray[np.complex128] = np.ones(n // 2 + 1, dtype=np.complex128)
    log_size, log_larger = np.zeros(n // 2 + 1), np.zeros(n // 2 + 1)
    log_scale, reach = 0.0, 0.0
    for part, count in parts:
        log_mgf = part.log_mgf(tilt)
        tilted = part.probabilities * np.exp(np.minimum(tilt * part.values - log_mgf, 700.0))
        cells = (np.arange(len(tilted)) + part.lowest) % n
        transform = np.fft.rfft(np.bincount(cells, tilted, n))
        spectrum *= _power(transform, count)
        size = np.abs(transform)
        with np.errstate(divide="ignore"):
            log_size += count * np.log(size)
        log_larger += count * np.log(size + rounding)
        log_scale += count * log_mgf
        reach = max(reach, abs(log_mgf) + tilt * float(np.abs(part.values[[0, -1]]).max()))
    larger = np.exp(log_larger)
    wrong = larger * (-np.expm1(log_size - log_larger) + 3.0 * n_steps * _UNIT + rounding)
    error = 2.0 * float(np.sum(wrong)) / n
    masses = np.maximum(np.fft.irfft(spectrum, n)[losses % n] + error, 0.0)
    interval = parts[0][0].interval
    scale = np.exp(np.minimum(log_scale - tilt * interval * losses, 690.0))
    return masses * scale * (1.0 + ROUNDING + 64.0 * n_steps * (1.0 + reach) * _UNIT)


def _power(values: npt.NDArray[np.complex128], count: int) -> npt.NDArray[np.complex128]:
    """Compute powers by products only, because the rounding errors of products are known."""
    result = np.ones_like(values)
    while count:
        if count & 1:
            result = result * values
        count >>= 1
        if count:
            values = values * values
    return result
