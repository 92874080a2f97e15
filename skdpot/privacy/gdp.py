"""Gaussian differential privacy: the closed form, its two inverses, and its composition.

A release is mu-GDP when telling neighbouring data sets apart from it is no easier than
telling N(0, 1) from N(mu, 1). Its privacy profile is

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - exp(epsilon) * Phi(-epsilon/mu - mu/2).

Floating-point results differ in their last digits from one machine to another. Everything that
inverts a profile, here and for sampled steps, therefore first raises it by the relative
`ROUNDING`, far above any such error and far below any noise that anyone would notice.

The whole units in which a ledger adds up costs: squared mu in 1e-12, leaks in 1e-18.

Every conversion rounds to the private side: costs up, caps down, and what is read back up again.
So "exactly fills" is an exact statement. Infinity stands for no cap, and for no noise.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.special import erfc, erfcx

ROUNDING = 1e-9
_SQRT2 = math.sqrt(2.0)


_Real = TypeVar("_Real", float, npt.NDArray[np.float64])


def gdp_delta(epsilon: _Real, mu: float) -> _Real:
    """Smallest delta for which a mu-GDP release is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float or ndarray
        Any real numbers; infinity is allowed.
    mu : float
        At least 0; infinity means no privacy.

    Returns
    -------
    float or ndarray
        The profile. Its relative error stays near 1e-15 / min(mu, 1), also where the profile
        is far below 1e-16.

    Raises
    ------
    ValueError
        If `mu` is negative, or something is NaN.

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

    The error of mu itself, a few units in the last place, counts ``epsilon / mu + mu`` times at
    most, and the difference of the two terms of a tiny mu loses 2e-15 / mu.
    """
    if not 0.0 < mu < math.inf:
        return gdp_delta(epsilon, mu)
    lost = 4e-15 * (1.0 / mu + epsilon / mu + mu) * (1.0 + epsilon / mu)
    return gdp_delta(epsilon, mu) * (1.0 + ROUNDING + min(lost, 1e300))


def _upper_profile(epsilon: npt.NDArray[np.float64], mu: float) -> npt.NDArray[np.float64]:
    """Evaluate the profile for epsilon >= 0 without cancelling large exponentials.

    With a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2, b^2/2 - a^2/2 = epsilon, so that both
    terms share the factor exp(-a^2/2) / 2 and only scaled error functions are subtracted.
    """
    with np.errstate(over="ignore"):  # of a tiny mu: infinity is the right limit
        a = (epsilon / mu - mu / 2.0) / _SQRT2
        b = (epsilon / mu + mu / 2.0) / _SQRT2
    common = 0.5 * np.exp(-(np.minimum(np.abs(a), 1e150) ** 2))
    tail = common * (erfcx(np.maximum(a, 0.0)) - erfcx(b))
    body = 0.5 * erfc(np.minimum(a, 0.0)) - common * erfcx(b)
    return np.clip(np.where(a > 0.0, tail, body), 0.0, 1.0)


@lru_cache(maxsize=4096)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a mu-GDP release at `delta`, rounded up.

    Parameters
    ----------
    mu : float
        At least 0; infinity gives infinity.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        A number of at least 0 whose recomputed ``gdp_delta(epsilon, mu)``, raised by the relative
        `ROUNDING`, is at most `delta`; the next smaller float fails that check.

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
    """Largest mu for which mu-GDP implies (epsilon, delta)-privacy, rounded down."""
    check_delta(delta)
    if not epsilon >= 0.0:
        raise ValueError(f"`epsilon` must be >= 0, got {epsilon!r}.")
    if math.isinf(epsilon):
        return math.inf
    return bisected(lambda mu: raised_gdp_delta(epsilon, mu) > delta)[0]


def check_delta(delta: float) -> None:
    """Refuse a delta that is out of range."""
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must lie in (0, 1), got {delta!r}.")


def bisected(holds: Callable[[float], bool], tolerance: float = 0.0) -> tuple[float, float]:
    """Return positive numbers, at the upper of which `holds` has become true.

    They are neighbouring floats, or as near to each other as the relative tolerance.
    """
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
    """With probability `leak` everything is told, otherwise one draw of N(mu * b, 1).

    By Blackwell's theorem a release is a post-processing of this experiment on the bit b
    exactly when its privacy profile H satisfies, for all epsilon >= 0 and in both orders of
    the neighbours, ``H(epsilon) <= leak + (1 - leak) * gdp_delta(epsilon, mu)``.
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

    def compose(self, other: "ApproximateGDP") -> "ApproximateGDP":
        """Return both together; the second may depend on the first."""
        leak = self.leak + (1.0 - self.leak) * other.leak
        return ApproximateGDP(math.hypot(self.mu, other.mu), leak)

    def to_gdp(self, leak: float) -> "ApproximateGDP":
        """Return itself: nothing is left that `leak` could pay for."""
        return self


# A whole number of units, or math.inf.
Units: TypeAlias = int | float

MU_SQUARED_UNITS = 10**12
_LEAK_UNITS = 10**18

# The noise sampler's own error in one release is one unit of leak.
SAMPLER_LEAK = 1 / _LEAK_UNITS


def mu_squared_cost(mu: float) -> Units:
    """Return the squared mu in units, rounded up."""
    return math.inf if math.isinf(mu) else math.ceil(Fraction(mu) ** 2 * MU_SQUARED_UNITS)


def mu_squared_cap(mu: float) -> Units:
    """Return the squared mu in units, rounded down."""
    return math.inf if math.isinf(mu) else math.floor(Fraction(mu) ** 2 * MU_SQUARED_UNITS)


def mu_of(mu_squared_units: Units) -> float:
    """Return a mu whose square is at least that many units."""
    if isinstance(mu_squared_units, float):
        return mu_squared_units  # math.inf
    if mu_squared_units == 0:
        return 0.0
    scale = 2**64
    root = math.isqrt(mu_squared_units * scale**2) + 1
    return math.nextafter(root / (math.isqrt(MU_SQUARED_UNITS) * scale), math.inf)


def leak_cost(leak: float) -> int:
    """Return a probability in units, rounded up."""
    return math.ceil(Fraction(leak) * _LEAK_UNITS)


def leak_cap(leak: float) -> int:
    """Return a probability in units, rounded down."""
    return math.floor(Fraction(leak) * _LEAK_UNITS)


def leak_of(leak_units: Units) -> float:
    """Return the probability that stands for that many units."""
    return min(leak_units / _LEAK_UNITS, 1.0)


def exact_leak(leak_units: int) -> Fraction:
    """Return the same without rounding."""
    return Fraction(leak_units, _LEAK_UNITS)


CountedSteps: TypeAlias = Iterable[tuple[Any, int]]


@dataclass(frozen=True)
class Step:
    """One release that tells everything with probability `leak`, and is mu-GDP otherwise."""

    mu: float
    leak: float = 0.0


def step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return mu of one Gaussian release on all the records that it sees.

    On a lattice the ratio ``sensitivity / sigma`` grows by 1 + 1 / (20 s^2), s = sigma / g: a
    discrete Gaussian is not dominated by the continuous one, its excess is about 1 / (24 s^2).
    """
    mu = sensitivity / sigma
    return mu if lattice is None else mu * (1.0 + (lattice / sigma) ** 2 / 20.0)


def mu_of_steps(steps: CountedSteps) -> float:
    """Return the mu of all steps together had each touched all records and none leaked."""
    return math.sqrt(math.fsum(count * step.mu * step.mu for step, count in steps))


def leak_of_steps(steps: CountedSteps) -> float:
    """Return the probability that one of the steps tells everything."""
    leaks = [count * math.log1p(-s.leak) for s, count in steps if isinstance(s, Step) and s.leak]
    return -math.expm1(math.fsum(leaks)) if leaks else 0.0
