r"""Gaussian differential privacy: the privacy profile of a release, and its inverses.

A release is :math:`\mu`-GDP if it makes neighbouring data sets no easier to tell apart than
:math:`N(0, 1)` and :math:`N(\mu, 1)`. Its privacy profile is at most

.. math:: \delta(\epsilon) = \Phi(-\epsilon/\mu + \mu/2)
          - e^\epsilon \Phi(-\epsilon/\mu - \mu/2).

Floating-point results differ between machines in their last digits. Every function that inverts a
profile, also for sampled steps, first raises it by the relative `ROUNDING`, which is much larger
than these errors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.special import erfc, erfcx

ROUNDING = 1e-9
_SQRT2 = math.sqrt(2.0)

_Real = TypeVar("_Real", float, npt.NDArray[np.float64])


def gdp_delta(epsilon: _Real, mu: float) -> _Real:
    """Compute the smallest delta for which a mu-GDP release is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float or ndarray
        Real numbers or infinity.
    mu : float
        At least 0; infinity means no privacy.

    Returns
    -------
    float or ndarray
        The delta of each epsilon, with a relative error near 1e-15 / min(mu, 1).

    Raises
    ------
    ValueError
        If `mu` is negative, or an argument is NaN.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022, corollary 2.13.
    """
    if not mu >= 0.0:
        raise ValueError(f"`mu` must be >= 0, got {mu!r}.")
    mu = float(mu)
    eps = np.asarray(epsilon, dtype=np.float64)
    if np.isnan(eps).any():
        raise ValueError("`epsilon` must hold real numbers, without NaN.")
    if mu == 0.0:
        delta = -np.expm1(np.minimum(eps, 0.0))
    elif math.isinf(mu):
        delta = np.ones_like(eps)
    else:
        size = np.abs(eps)
        delta = _upper_profile(size, mu)
        # The pair is symmetric: H(-e) = 1 - exp(-e) + exp(-e) H(e).
        delta = np.where(eps < 0.0, -np.expm1(-size) + np.exp(-size) * delta, delta)
    return cast(_Real, float(delta) if eps.ndim == 0 else delta)


def raised_gdp_delta(epsilon: float, mu: float) -> float:
    """Evaluate the profile and raise it by more than its rounding error on any machine.

    A relative error of mu of a few units in the last place is multiplied by at most
    ``epsilon / mu + mu``, and for a tiny mu the difference of the two terms loses 2e-15 / mu.
    """
    if not 0.0 < mu < math.inf:
        return gdp_delta(epsilon, mu)
    lost = 4e-15 * (1.0 / mu + epsilon / mu + mu) * (1.0 + epsilon / mu)
    return gdp_delta(epsilon, mu) * (1.0 + ROUNDING + min(lost, 1e300))


def _upper_profile(epsilon: npt.NDArray[np.float64], mu: float) -> npt.NDArray[np.float64]:
    """Evaluate the profile for epsilon >= 0 without cancelling large exponentials.

    With a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2, b^2/2 - a^2/2 = epsilon. So both terms
    share the factor exp(-a^2/2) / 2, and only scaled error functions are subtracted.
    """
    with np.errstate(over="ignore"):  # infinity is the correct limit for a tiny mu
        a = (epsilon / mu - mu / 2.0) / _SQRT2
        b = (epsilon / mu + mu / 2.0) / _SQRT2
    common = 0.5 * np.exp(-(np.minimum(np.abs(a), 1e150) ** 2))
    tail = common * (erfcx(np.maximum(a, 0.0)) - erfcx(b))
    body = 0.5 * erfc(np.minimum(a, 0.0)) - common * erfcx(b)
    return np.clip(np.where(a > 0.0, tail, body), 0.0, 1.0)


@lru_cache(maxsize=4096)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Compute the epsilon of a mu-GDP release at `delta`, rounded up.

    Parameters
    ----------
    mu : float
        At least 0; infinity gives infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The smallest float of at least 0 whose ``gdp_delta(epsilon, mu)``, raised by a relative
        1e-9 to cover rounding on any machine, is at most `delta`.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    check_delta(delta)
    if raised_gdp_delta(0.0, mu) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    return bisected(lambda epsilon: raised_gdp_delta(epsilon, mu) <= delta)[1]


@lru_cache(maxsize=4096)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Compute the largest mu for which mu-GDP implies (epsilon, delta)-privacy, rounded down.

    Parameters
    ----------
    epsilon : float
        At least 0; infinity gives infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The inverse of `gdp_epsilon`, with the same margin for rounding.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    check_delta(delta)
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be >= 0, got {epsilon!r}.")
    if math.isinf(epsilon):
        return math.inf
    return bisected(lambda mu: raised_gdp_delta(epsilon, mu) > delta)[0]


def check_delta(delta: float) -> None:
    """Refuse a delta outside of (0, 1)."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must lie in (0, 1), got {delta!r}.")


def bisected(holds: Callable[[float], bool], tolerance: float = 0.0) -> tuple[float, float]:
    """Return two numbers within the relative tolerance; `holds` is true for the upper one only."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2.0 * high
    while high - low > tolerance * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


@dataclass(frozen=True)
class ApproximateGDP:
    """An experiment on a bit b: it reveals b with probability `leak`, and else draws N(mu b, 1).

    By Blackwell's theorem a release is a post-processing of this experiment if and only if its
    privacy profile H satisfies ``H(epsilon) <= leak + (1 - leak) * gdp_delta(epsilon, mu)`` for all
    epsilon >= 0 and in both orders of the neighbours.
    """

    mu: float
    leak: float

    def delta(self, epsilon: float) -> float:
        """Return the delta that holds at `epsilon`, which must be at least 0."""
        return self.leak + (1.0 - self.leak) * gdp_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that holds at `delta`, infinity if the leak alone exceeds it."""
        remaining = (delta - self.leak) / (1.0 - self.leak)
        return gdp_epsilon(self.mu, remaining) if remaining > 0.0 else math.inf

    def compose(self, other: "ApproximateGDP") -> "ApproximateGDP":
        """Return the composition of both; the second may depend on the first."""
        leak = self.leak + (1.0 - self.leak) * other.leak
        return ApproximateGDP(math.hypot(self.mu, other.mu), leak)

    def to_gdp(self, leak: float) -> "ApproximateGDP":
        """Return itself: it has no losses to which `leak` could be applied."""
        return self
