"""What crossed the line in a protocol: who sent what to whom."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.federated.plain_messages import Message

__all__ = ["Entry", "Transcript"]

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Entry:
    """One message on its way.

    Parameters
    ----------
    round : int
        Round of the protocol, from 0.
    sender, recipient : str
        Names of the participants.
    message : Message
        What arrived: read from the bytes, not the sender's object.
    """

    round: int
    sender: str
    recipient: str
    message: Message


class Transcript:
    """Messages in the order in which they were sent. Entries are added and never changed.

    It is everything that an observer of the whole protocol has seen; `seen_by` is what one
    participant has seen. What somebody can find out about others' rows is a question about these
    messages alone, and the attacks in `skdpot.audit` read nothing else.

    Examples
    --------
    >>> from skdpot.federated.messages import DistanceMessage
    >>> from skdpot.federated.transcript import Transcript
    >>> transcript = Transcript()
    >>> transcript.record(0, "hospital", "server", DistanceMessage(2.5))
    >>> len(transcript.seen_by("server")), len(transcript.seen_by("registry"))
    (1, 0)
    """

    def __init__(self) -> None:
        self._entries: tuple[Entry, ...] = ()

    def record(self, round: int, sender: str, recipient: str, message: Message) -> None:
        """Add a message.

        Parameters
        ----------
        round : int
            Round of the protocol, from 0.
        sender, recipient : str
            Names of the participants.
        message : Message
            What arrived.
        """
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
        """Return what one participant has sent or received.

        Parameters
        ----------
        name : str
            The participant. Somebody who took no part has seen nothing.

        Returns
        -------
        Transcript
            With the entries of this participant only.
        """
        seen = Transcript()
        seen._entries = tuple(e for e in self._entries if name in (e.sender, e.recipient))
        return seen

    def messages(self, kind: type[M], *, sender: str | None = None) -> list[M]:
        """Return the messages of one class, in order.

        Parameters
        ----------
        kind : type
            A class of messages; `Message` for all.
        sender : str, optional
            Only those that this participant has sent.

        Returns
        -------
        list of Message
            A message that went to several recipients occurs several times.
        """
        return [
            entry.message
            for entry in self._entries
            if isinstance(entry.message, kind) and sender in (None, entry.sender)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row a message.

        Returns
        -------
        DataFrame
            Columns round, sender, recipient, kind, n_bytes and reveals; no contents.
        """
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
        """Return the flow of messages as a card for notebooks."""
        flows: dict[tuple[str, str, str], tuple[int, int]] = {}
        for entry in self._entries:
            key = (entry.sender, entry.recipient, entry.message.kind)
            count, n_bytes = flows.get(key, (0, 0))
            flows[key] = (count + 1, n_bytes + entry.message.n_bytes)
        rows = [
            (f"{sender} → {recipient}: {count} × {kind}", f"{n_bytes:,} bytes")
            for (sender, recipient, kind), (count, n_bytes) in flows.items()
        ]
        revealed = [(text, "") for text in dict.fromkeys(e.message.reveals for e in self._entries)]
        aside = f"{len(self)} messages · {self.n_bytes:,} bytes"
        rankings = [("Sent", rows), ("What the messages reveal", revealed)]
        return html_card("Transcript", aside, rankings=rankings)
