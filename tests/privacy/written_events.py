"""Events as files hold them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from skdpot._utils.records import Record
from skdpot.privacy.events import Event
from tests.contract.hostile_files import facts_of, forged


@dataclass(frozen=True)
class Written(Record):
    event: Event

    kind: ClassVar[str] = "event"


def written_and_read(event: Event, **changes: Any) -> Event:
    """Return what a reader makes of an event, of which some fields were forged."""
    good = Written(event).to_bytes()
    facts = {"event": facts_of(good)["event"] | changes}
    return Written.from_bytes(forged(good, facts)).event
