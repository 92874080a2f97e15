"""Privacy statements as plain facts, and whether one can be true."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from skdpot.privacy.accounting import compose
from skdpot.privacy.events import BudgetedEvent, PrivateSelectionEvent
from skdpot.privacy.spent import PrivacySpent, Scale
from skdpot.slicing.event_record import as_mapping, event_from_dict, event_to_dict, leaves

__all__ = [
    "LARGEST_COUNT",
    "as_plain",
    "check_cost",
    "check_epsilon_delta",
    "is_number",
    "mu_of_choice",
    "restoring",
    "statement_from_dict",
    "statement_to_dict",
]

LARGEST_COUNT = 2**53
_ROUNDING = 1e-6  # of delta, between machines


def statement_to_dict(spent: PrivacySpent) -> dict[str, Any]:
    """Return a privacy statement as what JSON can hold."""
    return {
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "sigma": _as_list(spent.sigma),
        "sensitivity": _as_list(spent.sensitivity),
        "assumptions": list(spent.assumptions),
        "mechanism": spent.mechanism,
        "event": event_to_dict(spent.event),
    }


def statement_from_dict(fields: dict[str, Any], noun: str) -> PrivacySpent:
    """Rebuild a privacy statement that somebody else may have written.

    Parameters
    ----------
    fields : dict
        What `statement_to_dict` returned.
    noun : str
        What errors call the thing that the statement is about.

    Returns
    -------
    PrivacySpent
        Every field has the right type; whether it is true, `check_cost` says.

    Raises
    ------
    ValueError, TypeError, KeyError
        If a field is missing or cannot be.
    """
    fields = as_mapping(fields)
    event = event_from_dict(fields.pop("event"), noun)
    if not isinstance(fields["assumptions"], list):
        raise TypeError("a list is due")
    fields["assumptions"] = tuple(fields["assumptions"])
    check_epsilon_delta(fields["epsilon"], fields["delta"], noun)
    texts = (fields["mechanism"], *fields["assumptions"])
    try:
        for name in ("sigma", "sensitivity"):
            fields[name] = _scale(fields[name])
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("text is due")
    except TypeError:
        raise ValueError(
            f"The privacy statement of the {noun} has entries of wrong types."
        ) from None
    return PrivacySpent(relation=event.relation, event=event, **fields)


def check_epsilon_delta(epsilon: Any, delta: Any, noun: str) -> None:
    """Refuse parameters that no mechanism has."""
    if not (is_number(epsilon) and is_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"The {noun} states an epsilon that is not > 0, or a delta not in (0, 1).")


def check_cost(spent: PrivacySpent, noun: str) -> None:
    """Refuse a statement that promises more than its own events give."""
    if not compose(spent.event).delta(spent.epsilon) <= spent.delta * (1 + _ROUNDING):
        raise ValueError(f"The {noun} states a smaller epsilon than its own events cost.")


def mu_of_choice(spent: PrivacySpent) -> float | None:
    """Return the mu that was charged for what is stated, if it is the best of a private search.

    The release itself is a part of one trial, or of the refit, and tells no more than these. A
    search charges nothing else: other events are none, and not accounted for here.
    """
    events = leaves(spent.event)
    kinds = (PrivateSelectionEvent, BudgetedEvent)
    return getattr(events[-1], "mu", None) if all(type(e) in kinds for e in events) else None


@contextmanager
def restoring(noun: str) -> Iterator[None]:
    """Refuse what is no record as a ValueError, without a warning.

    Parameters
    ----------
    noun : str
        What errors call the thing that is restored.
    """
    try:
        # Absurd numbers overflow on the way to their refusal; warnings would come first.
        with np.errstate(all="ignore"):
            yield
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"The {noun} lacks an entry, or has a wrong one.") from error


def is_number(value: Any) -> bool:
    """Whether it is a number that arithmetic in double precision can use."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)


def as_plain(value: Any) -> Any:
    """Return a parameter as the built-in type that JSON writes."""
    return value.item() if isinstance(value, np.generic) else value


def _as_list(scale: Scale) -> Any:
    return list(scale) if isinstance(scale, tuple) else scale


def _scale(value: Any) -> Scale:
    """Return a scale of noise or a sensitivity, several, or None."""
    numbers = value if isinstance(value, list) else [] if value is None else [value]
    if not all(is_number(number) and 0 <= number < math.inf for number in numbers):
        raise TypeError("positive numbers are due")
    return tuple(map(float, numbers)) if isinstance(value, list) else value
