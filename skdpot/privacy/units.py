"""The whole units in which a ledger adds up costs: squared mu in 1e-12, leaks in 1e-18.

Every conversion rounds to the private side: costs up, caps down, and what is read back up again.
So "exactly fills" is an exact statement. Infinity stands for no cap, and for no noise.
"""

import math
import re
from fractions import Fraction
from typing import Final, TypeAlias

__all__ = [
    "MU_SQUARED_UNITS",
    "SAMPLER_LEAK",
    "Units",
    "exact_leak",
    "leak_cap",
    "leak_cost",
    "leak_of",
    "mu_of",
    "mu_squared_cap",
    "mu_squared_cost",
    "read_units",
]

# A whole number of units, or math.inf.
Units: TypeAlias = int | float

MU_SQUARED_UNITS = 10**12
_LEAK_UNITS = 10**18
_TEXT: Final = re.compile(r"inf|0|[1-9][0-9]*", re.ASCII)
_MOST_DIGITS = 1000  # Python reads up to 4300; no sum of charges comes near

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


def read_units(text: object) -> Units | None:
    """Return what `str` wrote of a number of units; None if the text is something else."""
    if not (isinstance(text, str) and len(text) <= _MOST_DIGITS and _TEXT.fullmatch(text)):
        return None
    return math.inf if text == "inf" else int(text)
