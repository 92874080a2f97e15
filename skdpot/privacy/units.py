"""The units of a ledger: 1e-12 for squared mu and 1e-18 for leaks.

Costs are rounded up and caps are rounded down to whole units. An infinite cap is no cap, and an
infinite cost is a release without noise.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

# A whole number of units, or math.inf.
Units: TypeAlias = int | float

MU_SQUARED_UNITS = 10**12
_LEAK_UNITS = 10**18

# One unit of leak covers the error of the noise sampler in one release.
SAMPLER_LEAK = 1 / _LEAK_UNITS


def squared_mu_units(mu: float, rounded: Callable[[Fraction], int]) -> Units:
    """Return the squared mu in units, rounded up or down."""
    return math.inf if math.isinf(mu) else rounded(Fraction(mu) ** 2 * MU_SQUARED_UNITS)


def mu_of(mu_squared_units: Units) -> float:
    """Return mu, rounded up, from its square in units."""
    if isinstance(mu_squared_units, float) or mu_squared_units == 0:
        return float(mu_squared_units)
    scale = 2**64
    root = math.isqrt(mu_squared_units * scale**2) + 1
    return math.nextafter(root / (math.isqrt(MU_SQUARED_UNITS) * scale), math.inf)


def leak_units_of(leak: float, rounded: Callable[[Fraction], int]) -> int:
    """Return the probability of a leak in units, rounded up or down."""
    return rounded(Fraction(leak) * _LEAK_UNITS)


def leak_of(leak_units: Units) -> float:
    """Return the probability of a leak, at most 1, from its units."""
    return min(leak_units / _LEAK_UNITS, 1.0)


def exact_leak(leak_units: int) -> Fraction:
    """Return the probability of a leak without rounding."""
    return Fraction(leak_units, _LEAK_UNITS)
