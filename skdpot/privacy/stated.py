"""Whether a privacy statement that somebody else may have written can be true."""

import math
from typing import Any

from skdpot._utils.records import LARGEST_COUNT
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import BudgetedEvent, Event, NonPrivateEvent
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent

__all__ = ["check_epsilon_delta", "check_statement", "is_number"]

_ROUNDING = 1e-6  # of delta, between machines


def check_statement(
    spent: PrivacySpent, noun: str, kinds: tuple[type[Event], ...]
) -> tuple[tuple[Any, ...], float | None]:
    """Refuse a statement that promises more than its own events give.

    Returned are the events, none if nothing is private, and the mu that was charged for what is
    stated, if it is the best of a private search. The release itself is then a part of one trial,
    or of the refit, and tells no more than these. A search charges nothing else.
    """
    check_epsilon_delta(spent.epsilon, spent.delta, noun)
    for scale in (spent.sigma, spent.sensitivity):
        numbers = scale if isinstance(scale, tuple) else () if scale is None else (scale,)
        if not all(is_number(number) and 0 <= number < math.inf for number in numbers):
            raise ValueError(f"The {noun} states noise or a sensitivity that cannot be.")
    if spent.relation is not Relation.REPLACE_ONE or spent.event.relation is not spent.relation:
        raise ValueError(f"A {noun} is private under replace-one, and states no other relation.")
    events = spent.event.phases
    chosen = all(type(event) is BudgetedEvent for event in events)
    if not (chosen or all(type(event) in (*kinds, NonPrivateEvent) for event in events)):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"A {noun} is released by events of {names} only.")
    if not spent.event.is_private:
        if math.isfinite(spent.epsilon):
            raise ValueError(f"The {noun} states a finite epsilon for a release without noise.")
        return (), None
    if not compose(spent.event).delta(spent.epsilon) <= spent.delta * (1 + _ROUNDING):
        raise ValueError(f"The {noun} states a smaller epsilon than its own events cost.")
    return events, events[-1].mu if chosen else None


def check_epsilon_delta(epsilon: Any, delta: Any, noun: str) -> None:
    """Refuse parameters that no mechanism has."""
    if not (is_number(epsilon) and is_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"The {noun} states an epsilon that is not > 0, or a delta not in (0, 1).")


def is_number(value: Any) -> bool:
    """Whether it is a number that arithmetic in double precision can use."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)
