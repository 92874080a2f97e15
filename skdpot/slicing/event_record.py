"""Events as plain facts, for files and messages."""

from dataclasses import asdict
from typing import Any

from skdpot.privacy import events
from skdpot.privacy.events import ComposedEvent, Event
from skdpot.privacy.relation import Relation

__all__ = ["as_mapping", "event_from_dict", "event_to_dict", "leaves"]

_DEEPEST = 8


def as_mapping(value: Any) -> dict[str, Any]:
    """Return a copy of what must be a mapping."""
    if not isinstance(value, dict):
        raise TypeError("a mapping is due")
    return dict(value)


def leaves(event: Event) -> list[Event]:
    """Return the events of which a composed one consists."""
    if isinstance(event, ComposedEvent):
        return [leaf for part in event.events for leaf in leaves(part)]
    return [event]


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as what JSON can hold."""
    fields: dict[str, Any] = {"type": type(event).__name__}
    if isinstance(event, ComposedEvent):
        return fields | {"events": [event_to_dict(part) for part in event.events]}
    return fields | asdict(event)


def event_from_dict(fields: dict[str, Any], noun: str = "sketch", depth: int = 0) -> Event:
    """Rebuild an event that somebody else may have written; its own class checks the fields."""
    if depth > _DEEPEST:
        raise ValueError(f"The events of the {noun} are nested too deeply.")
    fields = as_mapping(fields)
    name = fields.pop("type")
    kind = getattr(events, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise ValueError(f"The {noun} names an event that is not known.")
    if issubclass(kind, ComposedEvent):
        parts = (event_from_dict(part, noun, depth + 1) for part in fields["events"])
        return kind(events=tuple(parts))
    fields["relation"] = Relation(fields["relation"])
    return kind(**fields)
