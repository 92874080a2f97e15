"""The line between participants: every message becomes bytes, and is read as a stranger's."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from skdpot.exceptions import MessageError
from skdpot.federated.plain_messages import Message
from skdpot.federated.transcript import Transcript

__all__ = ["SERVER", "Exchange", "blaming"]

SERVER = "server"

M = TypeVar("M", bound=Message)


class Exchange:
    """Carries the messages of one protocol and writes its transcript.

    Nobody gets an object of somebody else: what is handed over is read from the bytes that were
    sent, with the same checks as if they had come over a network.
    """

    def __init__(self) -> None:
        self.transcript = Transcript()

    def send(
        self, round: int, sender: str, recipients: Iterable[str], message: M | bytes, due: type[M]
    ) -> M:
        """Send one message to one or more recipients."""
        with blaming(sender):
            data = message if isinstance(message, bytes) else _bytes_of(message)
            arrived = due.from_bytes(data)
        for recipient in recipients:
            self.transcript.record(round, sender, recipient, arrived)
        return arrived

    def ask(
        self,
        round: int,
        name: str,
        recipients: Iterable[str],
        answer: Callable[[], M | bytes],
        due: type[M],
        *,
        check: Callable[[M], object] | None = None,
    ) -> M:
        """Let a participant answer, and send the answer."""
        with blaming(name):
            reply = answer()
        arrived = self.send(round, name, recipients, reply, due)
        if check is not None:
            with blaming(name):
                check(arrived)
        return arrived


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Say in a MessageError whose message or answer it is about."""
    try:
        yield
    except MessageError as error:
        raise MessageError(f"The answer of {name!r} cannot be used. {error}") from error


def _bytes_of(message: object) -> bytes:
    """Return the bytes of what should be a message."""
    if not isinstance(message, Message):
        raise MessageError(f"A message is due, got {type(message).__name__}.")
    return message.to_bytes()
