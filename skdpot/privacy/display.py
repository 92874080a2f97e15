"""Numbers and events as text."""

import math
from dataclasses import fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from skdpot.privacy.events import Event

__all__ = ["describe_event", "epsilon_text", "rounded_down", "rounded_up"]


def describe_event(event: Event) -> str:
    """Write an event with the fields that were chosen, without its relation."""
    chosen: list[str] = []
    for item in fields(event):
        value = getattr(event, item.name)
        if item.name == "relation" or value == item.default:
            continue
        if item.name == "events":
            chosen.extend(map(describe_event, value))
        else:
            chosen.append(f"{item.name}={value!r}")
    return f"{type(event).__name__}({', '.join(chosen)})"


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
