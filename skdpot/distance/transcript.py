"""The record of all messages of a protocol, which is all that its participants can have seen."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.distance.messages import AnyMessage, Message


@dataclass(frozen=True)
class Entry:
    """One delivered message, as the recipient has read it from its bytes."""

    round: int
    sender: str
    recipient: str
    message: Message


class Transcript:
    """Messages in order; entries are added and never changed. Attacks read nothing else."""

    def __init__(self) -> None:
        self._entries: tuple[Entry, ...] = ()

    def record(self, round: int, sender: str, recipient: str, message: Message) -> None:
        """Add a message."""
        if not isinstance(message, Message):
            raise TypeError(f"A transcript holds messages, got {type(message).__name__}.")
        self._entries = (*self._entries, Entry(round, sender, recipient, message))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order."""
        return self._entries

    @property
    def participants(self) -> tuple[str, ...]:
        """Names of all who sent or received something, in order of appearance."""
        names = (name for entry in self._entries for name in (entry.sender, entry.recipient))
        return tuple(dict.fromkeys(names))

    @property
    def n_bytes(self) -> int:
        """Bytes that were sent."""
        return sum(entry.message.n_bytes for entry in self._entries)

    def seen_by(self, name: str) -> "Transcript":
        """Return what one participant has sent or received."""
        part = Transcript()
        part._entries = tuple(e for e in self._entries if name in (e.sender, e.recipient))
        return part

    def messages(self, kind: type[AnyMessage], *, sender: str | None = None) -> list[AnyMessage]:
        """Return the messages of one class, in order."""
        return [
            entry.message
            for entry in self._entries
            if isinstance(entry.message, kind) and sender in (None, entry.sender)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per message."""
        rows = [
            (e.round, e.sender, e.recipient, e.message.kind, e.message.n_bytes, e.message.reveals)
            for e in self._entries
        ]
        columns = ["round", "sender", "recipient", "kind", "n_bytes", "reveals"]
        return pd.DataFrame(rows, columns=columns)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __repr__(self) -> str:
        between = ", ".join(self.participants) or "nobody"
        return f"<Transcript of {len(self)} messages, {self.n_bytes} bytes, between {between}>"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        flows = frame.groupby(["sender", "recipient", "kind"], sort=False)["n_bytes"]
        rows = [
            (f"{sender} → {recipient}: {len(sizes)} × {kind}", f"{sizes.sum():,} bytes")
            for (sender, recipient, kind), sizes in flows
        ]
        revealed = [(text, "") for text in frame["reveals"].unique()]
        aside = f"{len(self)} messages · {self.n_bytes:,} bytes"
        rankings = [("Sent", rows), ("What the messages reveal", revealed)]
        return html_card("Transcript", aside, rankings=rankings)
