"""Texts of numbers that are rounded to the safe side."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def epsilon_text(epsilon: float) -> str:
    """Format an epsilon, rounded up."""
    return "ε = ∞" if math.isinf(epsilon) else f"ε = {rounded_up(epsilon)}"


def rounded_down(value: float) -> str:
    """Format a number with four digits, rounded down."""
    return _rounded(value, ROUND_FLOOR)


def rounded_up(value: float) -> str:
    """Format a number with four digits, rounded up."""
    return _rounded(value, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> str:
    """Round the shortest decimal representation of a float, so that 0.1 stays 0.1."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(float(value)))):.4g}"
