"""Numbers as text."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

__all__ = ["epsilon_text", "rounded_down", "rounded_up"]


def epsilon_text(epsilon: float) -> str:
    """Write an epsilon that was asked for or spent, rounded up."""
    return "ε = ∞" if math.isinf(epsilon) else f"ε = {rounded_up(epsilon)}"


def rounded_down(value: float) -> str:
    """Write a number with four digits and never more than it is."""
    return _rounded(value, ROUND_FLOOR)


def rounded_up(value: float) -> str:
    """Write a number with four digits and never less than it is."""
    return _rounded(value, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> str:
    """Round the shortest decimal number that a float prints as, so that 0.1 stays 0.1."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(float(value)))):.4g}"
