"""The units of a ledger: squared mu in 1e-12, leaks in 1e-18.

A cost is rounded up to whole units and a cap down. Infinity stands for no cap, and for no noise.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

# A whole number of units, or math.inf.
Units: TypeAlias = int | float

MU_SQUARED_UNITS = 10**12
_LEAK_UNITS = 10**18

# The noise sampler's own error in one release is one unit of leak.
SAMPLER_LEAK = 1 / _LEAK_UNITS


def squared_mu_units(mu: float, rounded: Callable[[Fraction], int]) -> Units:
    """Return the squared mu in units."""
    return math.inf if math.isinf(mu) else rounded(Fraction(mu) ** 2 * MU_SQUARED_UNITS)


def mu_of(mu_squared_units: Units) -> float:
    """Return a mu whose square is at least that many units."""
    if isinstance(mu_squared_units, float) or mu_squared_units == 0:
        return float(mu_squared_units)
    scale = 2**64
    root = math.isqrt(mu_squared_units * scale**2) + 1
    return math.nextafter(root / (math.isqrt(MU_SQUARED_UNITS) * scale), math.inf)


def leak_units_of(leak: float, rounded: Callable[[Fraction], int]) -> int:
    """Return a probability in units."""
    return rounded(Fraction(leak) * _LEAK_UNITS)


def leak_of(leak_units: Units) -> float:
    """Return the probability that stands for that many units."""
    return min(leak_units / _LEAK_UNITS, 1.0)


def exact_leak(leak_units: int) -> Fraction:
    """Return the same without rounding."""
    return Fraction(leak_units, _LEAK_UNITS)
