"""From a symmetric privacy profile to a discretised loss."""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from skdpot.privacy.gdp import ROUNDING
from skdpot.privacy.loss_distribution import LossDistribution, LossPair

__all__ = ["symmetric_losses"]

_TAIL_MASS = 1e-20

_Floats = npt.NDArray[np.float64]
Profile: TypeAlias = Callable[[_Floats], _Floats]


def symmetric_losses(profile: Profile, interval: float) -> LossPair:
    """Discretise a profile that is the same in both orders: the masses join its dots.

    Between grid points the profile of the discretised pair is a chord of the given one, which
    is convex as a function of exp(epsilon), hence an upper bound. Symmetry gives the mass at
    the negative losses: P(-l) = exp(-l) P(l). Masses are differences, but those of neighbours
    cancel in the profile that they make: it is wrong by a few units in the last place times the
    width of the loss in grid steps, at most 1e-12 of its value, and raised by more than that.

    Parameters
    ----------
    profile : callable
        Maps an array of epsilon >= 0 to delta; convex and decreasing in exp(epsilon).
    interval : float
        Spacing of the grid.

    Returns
    -------
    LossPair

    References
    ----------
    .. [1] V. Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of
       Privacy Loss Distributions", 2022, algorithm 1.
    """
    n = max(2, math.ceil(_largest_loss(profile) / interval))
    epsilon = np.arange(n + 1, dtype=np.float64) * interval
    delta = np.minimum.accumulate(np.minimum(profile(epsilon) * (1.0 + ROUNDING), 1.0))
    drop = np.diff(delta)
    positive = np.empty(n)
    positive[:-1] = (drop[1:] - drop[:-1] * math.exp(interval)) / math.expm1(interval)
    positive[-1] = drop[-1] / math.expm1(-interval)
    positive = np.maximum(positive, 0.0)
    negative = positive * np.exp(-epsilon[1:])
    infinity_mass = float(delta[-1])
    # 0 takes what is left; were rounding to leave less than nothing, more mass is safe.
    rest = 1.0 - math.fsum((float(positive.sum()), float(negative.sum()), infinity_mass))
    probabilities = np.concatenate([negative[::-1], [max(0.0, rest)], positive])
    return LossPair(LossDistribution(interval, -n, probabilities, infinity_mass))


def _largest_loss(profile: Profile) -> float:
    """Return a loss beyond which the profile is below 1e-20."""

    def is_beyond(epsilon: float) -> bool:
        return bool(profile(np.asarray([epsilon]))[0] <= _TAIL_MASS)

    low, high = 0.0, 1.0
    while not is_beyond(high):
        low, high = high, 2.0 * high
    while high - low > 0.01 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high
