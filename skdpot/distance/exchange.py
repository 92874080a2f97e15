"""How the messages of a protocol reach their recipients: as validated bytes, and recorded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from skdpot.distance.messages import AnyMessage, Message
from skdpot.distance.party import Introduction, Party
from skdpot.distance.transcript import Transcript
from skdpot.exceptions import MessageError

SERVER = "server"


class Question(NamedTuple):
    """A method of `Party` that takes one message and returns one, and the bytes of the message."""

    method: str
    request: bytes


# What a party returns: an answer to each question, or what went wrong.
Replies: TypeAlias = list[bytes] | MessageError
# What transports the questions for parties, by name, and returns their replies.
Carry: TypeAlias = Callable[[Mapping[str, Sequence[Question]]], Mapping[str, Replies]]


@dataclass(frozen=True, eq=False)
class RemoteParty(Introduction):
    """Stands for a `Party` elsewhere, in the protocols that ask all parties the same."""

    carry: Carry


class Exchange:
    """Carries the messages of one protocol and writes its transcript."""

    def __init__(self, transcript: Transcript | None = None) -> None:
        self.transcript = Transcript() if transcript is None else transcript

    def send(
        self,
        round: int,
        sender: str,
        message: Any,
        expected: type[AnyMessage],
        *,
        to: Iterable[str] = (SERVER,),
        read: Callable[[AnyMessage], Any] | None = None,
    ) -> Any:
        """Deliver a message, and return it as it arrives, or what `read` makes of it.

        The message may be a `Message`, its bytes, a function that returns one of them, or the error
        of the sender. It is always read from bytes, and refused if it is not as `expected`.
        """
        try:
            sent = message() if callable(message) else message
            if isinstance(sent, MessageError):
                raise sent
            if not isinstance(sent, bytes | Message):
                raise MessageError(f"Expected a message, got {type(sent).__name__}.")
            arrived = expected.from_bytes(sent if isinstance(sent, bytes) else sent.to_bytes())
            content = arrived if read is None else read(arrived)
        except MessageError as error:
            raise MessageError(f"The answer of {sender!r} cannot be used. {error}") from error
        for recipient in to:
            self.transcript.record(round, sender, recipient, arrived)
        return content

    def ask(
        self,
        round: int,
        parties: Sequence[Any],
        request: Message,
        expected: Mapping[str, type[Message]],
        read: Callable[[Any], Any] | None = None,
        *,
        to: Iterable[str] = (SERVER,),
        also: Sequence[Any] = (),
    ) -> list[dict[str, Any]]:
        """Ask all parties the same.

        `expected` names the methods of `Party` that are called with the request, and with `also`,
        and the class of their answers. Returns the answers to each method, by name of the party.
        """
        carried: dict[str, Replies] = {}
        for carry in dict.fromkeys(p.carry for p in parties if isinstance(p, RemoteParty)):
            names = [p.name for p in parties if getattr(p, "carry", None) == carry]
            questions = [Question(method, request.to_bytes()) for method in expected]
            carried |= carry(dict.fromkeys(names, questions))
        answers: list[dict[str, Any]] = []
        for number, (method, kind) in enumerate(expected.items()):
            answers.append({})
            for party in parties:
                answer: Any
                if party.name in carried:
                    replies = carried[party.name]
                    answer = replies if isinstance(replies, MessageError) else replies[number]
                else:
                    answer = partial(getattr(party, method), request, *also)
                arrived = self.send(round, party.name, answer, kind, to=to, read=read)
                answers[-1][party.name] = arrived
        return answers


def matching(**expected: Any) -> Callable[[Any], Any]:
    """Return a function that refuses an answer whose attributes differ from what was asked."""

    def read(answer: Any) -> Any:
        for name, value in expected.items():
            if not np.array_equal(answered := getattr(answer, name, value), value):
                raise MessageError(f"Its {name} is {answered}; expected {value}.")
        return answer

    return read


def check_participants(parties: Sequence[Party]) -> tuple[str, ...]:
    """Return the names of the parties."""
    names = tuple(party.name for party in parties)
    if len(names) < 2:
        raise ValueError(f"A protocol needs two parties or more, got {len(names)}.")
    if len(set(names)) < len(names) or SERVER in names:
        raise ValueError(f"Parties must have different names other than {SERVER!r}, got {names}.")
    return names
