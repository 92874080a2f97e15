"""Approximate Gaussian differential privacy: a leak of small probability, else mu-GDP."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.loss_distribution import LossDistribution, LossPair

__all__ = ["ApproximateGDP", "smallest_mu"]

_MAX_NODES = 4000
# Far above the rounding of the profiles (1e-13), far below any noise that anyone would notice.
_RELATIVE_MARGIN = 1e-9

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ApproximateGDP:
    """With probability `leak` everything is told, otherwise one draw of N(mu * b, 1).

    By Blackwell's theorem a release is a post-processing of this experiment on the bit b
    exactly when its privacy profile H satisfies, for all epsilon >= 0 and in both orders of
    the neighbours, ``H(epsilon) <= leak + (1 - leak) * gdp_delta(epsilon, mu)``.

    Parameters
    ----------
    mu : float
        Privacy of the Gaussian part; infinity when no finite value holds.
    leak : float
        Probability in [0, 1) of telling everything.
    """

    mu: float
    leak: float

    def delta(self, epsilon: float) -> float:
        """Return the delta that holds at `epsilon`, which must be at least 0."""
        return self.leak + (1.0 - self.leak) * gdp_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that holds at `delta`, infinity when the leak alone exceeds it."""
        remaining = (delta - self.leak) / (1.0 - self.leak)
        return gdp_epsilon(self.mu, remaining) if remaining > 0.0 else math.inf


def smallest_mu(losses: LossPair, leak: float) -> float:
    """Smallest mu for which the composed steps are ``ApproximateGDP(mu, leak)``, rounded up.

    Parameters
    ----------
    losses : LossPair
        Distribution of the privacy loss in both orders of the neighbours.
    leak : float
        Probability of the leak; infinite losses are charged to it.

    Returns
    -------
    float
        Infinity when the probability of an infinite loss exceeds `leak`.
    """
    return max(_smallest_mu(order, leak) for order in losses.orders)


def _smallest_mu(losses: LossDistribution, leak: float) -> float:
    if losses.infinity_mass > leak:
        return math.inf
    epsilon, profile = _nodes(losses, leak)
    if profile[0] <= leak:
        return 0.0
    low, high = 0.0, 1.0
    while not _dominates(high, leak, epsilon, profile):
        low, high = high, 2.0 * high
    while high - low > _RELATIVE_MARGIN * high:
        middle = 0.5 * (low + high)
        if _dominates(middle, leak, epsilon, profile):
            high = middle
        else:
            low = middle
    return high * (1.0 + _RELATIVE_MARGIN)


def _nodes(losses: LossDistribution, leak: float) -> tuple[_Floats, _Floats]:
    """Profile at epsilon = 0 and on up to the first node where the leak alone covers it.

    Beyond that node nothing needs a check, because the profile does not increase. Thinning the
    grid is safe: the profile is convex in exp(epsilon), so its chords lie above it.
    """
    epsilon, profile = losses.profile()
    last = int(np.argmax(profile <= leak))
    stride = max(1, math.ceil(last / _MAX_NODES))
    kept = np.append(np.arange(0, last, stride), last)
    return epsilon[kept], profile[kept]


def _dominates(mu: float, leak: float, epsilon: _Floats, profile: _Floats) -> bool:
    """Whether leak + (1 - leak) * G_mu >= profile at the nodes and between them.

    As functions of x = exp(epsilon) the Gaussian profile is convex and the chord of `profile` is
    linear, so their gap is convex on each interval and lies above its tangents at both ends.
    Where the tangents point inwards, their crossing is therefore a lower bound of the gap.
    """
    gaussian = gdp_delta(epsilon, mu)
    gap = (gaussian - profile) + leak * (1.0 - gaussian)
    if np.any(gap < 0.0):
        return False
    # On interval k measure x in units of exp(epsilon_k): it runs from 1 to 1 + width.
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
