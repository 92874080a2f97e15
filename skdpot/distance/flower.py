"""The protocols between machines, carried by Flower: ``pip install ".[flower]"``.

Each party runs a SuperNode with an app made by `client_app`, and sends the same messages, byte for
byte, as a `Party` in one process. The coordinator runs a SuperLink, and its ServerApp reaches the
parties with `remote_parties`. The `load_party` of a node, which reads the configuration of this
node, decides about protocols and spending; no request can change it.

Flower may deliver a request again, and starts a new process for each delivery. So a node keeps
charges in the ledger of its budget, and what it has published in a file beside it.
"""

import logging
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skdpot.distance.exchange import Question, Replies
from skdpot.distance.messages import Message
from skdpot.distance.party import PROTOCOLS, Introduction, Party, is_name
from skdpot.distance.remote import RemoteParties, answer
from skdpot.exceptions import BudgetExceededError, MessageError, ProtocolRefusedError, SkdpotError

try:
    from flwr.app import ConfigRecord, Context, Error, MessageType, RecordDict
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
except ImportError as missing:
    raise ImportError(
        'skdpot.distance.flower needs Flower: pip install ".[flower]" in a checkout of skdpot.'
    ) from missing

_LOGGER = logging.getLogger(__name__)

_RECORD = "skdpot"  # name of our record in a message of Flower
_FORMAT = 1
_INTRODUCE = "introduce"
_MOST_QUESTIONS = 16  # per message
_REFUSED = 1001  # codes of errors; Flower's own are smaller
_FAILED = 1002
_LOOK_AGAIN = 0.25  # seconds between two looks for nodes and answers
_LONGEST_TEXT = 1000  # of what a node says
_LONGEST_NAME = 100


def client_app(
    load_party: Callable[[Context], Party],
    *,
    review: Callable[[Message, Context], object] | None = None,
) -> ClientApp:
    """Make the ClientApp with which a party takes part.

    ``load_party(context)`` makes the party anew for each message; it needs a budget with a ledger
    on disk. ``review(request, context)`` may raise a `MessageError` to refuse a request.

    Privacy
    -------
    The app sends what the methods of the party return, and its introduction, which is public. A
    repeated request is answered with the same release, and charged once. The app does not protect
    against another app: Flower delivers the code of the app together with the run, so whoever may
    start runs at the SuperLink decides what code the nodes execute beside their data, unless each
    node accepts reviewed apps only.
    """
    app = ClientApp()

    @app.query()
    def answer_query(message: FlowerMessage, context: Context) -> FlowerMessage:
        try:
            questions = _read_questions(message.content)
            party = load_party(context)
            reviewed = (lambda request: review(request, context)) if review else None
            reply = _replies(party, questions, reviewed)
        except Exception as error:
            return FlowerMessage(_public_error(error), reply_to=message)
        return FlowerMessage(RecordDict({_RECORD: ConfigRecord(reply)}), reply_to=message)

    return app


def remote_parties(
    grid: Grid,
    *,
    n_nodes: int,
    own: Sequence[Party] = (),
    names: Collection[str] | None = None,
    timeout: float = 600.0,
) -> RemoteParties:
    """Wait for the nodes of the parties and let them introduce themselves; for a ServerApp.

    `own` are parties of this process. With `names`, nodes of other parties are refused. `timeout`
    is the time in seconds to wait for the nodes, and for each answer.
    """
    line = _Line(grid, timeout, {})
    greeting = [Question(_INTRODUCE, b"-")]
    replies = line.exchange(dict.fromkeys(_await_nodes(grid, n_nodes, timeout), greeting))
    introductions = {node: line.introduction(node, reply) for node, reply in replies.items()}
    introduced = sorted(introduction.name for introduction in introductions.values())
    if len({*introduced, *(party.name for party in own)}) < len(introduced) + len(own):
        raise MessageError(
            f"Parties need different names; the nodes say {introduced}. Nobody was asked."
        )
    if names is not None and introduced != sorted(names):
        raise MessageError(
            f"The nodes say {introduced}; expected were {sorted(names)}. Nobody was asked."
        )
    line.nodes.update({party.name: node for node, party in introductions.items()})
    return RemoteParties(list(introductions.values()), line.carry, own)


@dataclass
class _Line:
    """The connection to the nodes of a grid, by name of the party once names are known."""

    grid: Grid
    timeout: float
    nodes: dict[str, int]

    def introduction(self, node: int, reply: Any) -> Introduction:
        """Read the introduction of a party, or raise what went wrong."""
        if isinstance(reply, MessageError):
            raise MessageError(f"Node {node} cannot introduce its party. {reply}") from reply
        sizes = {name: reply.get(name) for name in ("n_samples", "n_features", "n_dimensions")}
        name, allows = reply.get("party"), _listed(reply, "allows", str)
        has_sizes = all(type(size) is int and size >= 1 for size in sizes.values())
        has_name = is_name(name) and len(name) <= _LONGEST_NAME
        if not (has_sizes and has_name and allows and set(allows) <= {*PROTOCOLS}):
            raise MessageError(f"Node {node} does not introduce its party as this release does.")
        return Introduction(name=name, allows=tuple(allows), **sizes)

    def carry(self, questions: Mapping[str, Sequence[Question]]) -> dict[str, Replies]:
        """Deliver questions to parties, and return their replies."""
        replies = self.exchange({self.nodes[name]: asked for name, asked in questions.items()})
        return {
            name: _read_answers(name, len(asked), replies[self.nodes[name]])
            for name, asked in questions.items()
        }

    def exchange(self, questions: Mapping[int, Sequence[Question]]) -> dict[int, Any]:
        """Send to all nodes and wait; return the record of each node, or a MessageError."""
        ids = list(self.grid.push_messages([self._message(*q) for q in questions.items()]))
        ids += [""] * (len(questions) - len(ids))  # Flower returns none when they are too large
        replies: dict[int, Any] = {
            node: MessageError("Flower could not send it what was asked.")
            for sent, node in zip(ids, questions, strict=True)
            if not sent
        }
        waiting = {sent: node for sent, node in zip(ids, questions, strict=True) if sent}
        deadline = time.monotonic() + self.timeout
        while waiting and time.monotonic() < deadline:
            for reply in self.grid.pull_messages(list(waiting)):
                # An answer that arrives twice is dropped the second time.
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = _read_reply(node, reply)
            if waiting:
                time.sleep(_LOOK_AGAIN)
        silence = MessageError(f"There was no answer within {self.timeout:g} s.")
        return {node: replies.get(node, silence) for node in questions}

    def _message(self, node: int, questions: Sequence[Question]) -> FlowerMessage:
        """Return the message of Flower with questions for a node."""
        record = ConfigRecord(
            {
                "format": _FORMAT,
                "methods": [question.method for question in questions],
                "requests": [question.request for question in questions],
            }
        )
        content = RecordDict({_RECORD: record})
        return FlowerMessage(content, node, MessageType.QUERY, ttl=self.timeout)


def _await_nodes(grid: Grid, n_nodes: int, timeout: float) -> list[int]:
    """Wait until so many nodes are connected, and return their numbers."""
    deadline = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) != n_nodes:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(nodes)} nodes are connected after {timeout:g} s; expected {n_nodes}. A "
                "node that was stopped counts until the SuperLink misses it, for a minute or two."
            )
        time.sleep(_LOOK_AGAIN)
    return nodes


def _record(content: Any) -> dict[str, Any]:
    """Return our record in the content of a message."""
    record = content.get(_RECORD)
    if not isinstance(record, ConfigRecord) or record.get("format") != _FORMAT:
        raise MessageError(
            f"This is no record of skdpot of format {_FORMAT}; all parties need the same release."
        )
    return dict(record)


def _read_questions(content: RecordDict) -> list[Question]:
    """Return the questions in the content of a message."""
    record = _record(content)
    methods, requests = _listed(record, "methods", str), _listed(record, "requests", bytes)
    if len(methods) != len(requests) or not 1 <= len(methods) <= _MOST_QUESTIONS:
        raise MessageError(
            f"A query has 1 to {_MOST_QUESTIONS} methods, and as many requests of bytes."
        )
    return [Question(*pair) for pair in zip(methods, requests, strict=True)]


def _replies(
    party: Party, questions: Sequence[Question], review: Callable[[Message], object] | None
) -> dict[str, Any]:
    """Return the record with the answers of a party, or with its introduction."""
    if [question.method for question in questions] == [_INTRODUCE]:
        facts = vars(Introduction.of(party))
        name, allows = facts.pop("name"), facts.pop("allows")
        return {"format": _FORMAT, "party": name, "allows": list(allows), **facts}
    answers = [answer(party, *question, review=review) for question in questions]
    return {"format": _FORMAT, "party": party.name, "answers": answers}


def _read_reply(node: int, reply: FlowerMessage) -> Any:
    """Return the record in the reply of a node, or what went wrong."""
    if reply.has_error():
        reason = "".join(c if c.isprintable() else " " for c in reply.error.reason or "no reason")
        return MessageError(f"It answers: {reason[:_LONGEST_TEXT]} (code {reply.error.code})")
    if reply.metadata.src_node_id != node:
        return MessageError("Another node has answered in its place.")
    try:
        return _record(reply.content)
    except MessageError as error:
        return error


def _read_answers(name: str, n_questions: int, reply: Any) -> Replies:
    """Return the answers of a party, or what went wrong."""
    if isinstance(reply, MessageError):
        return reply
    if reply.get("party") != name:
        return MessageError("Its node answers for another party than before.")
    answers = _listed(reply, "answers", bytes)
    if len(answers) != n_questions:
        asked = f"It was asked {n_questions} questions"
        return MessageError(f"{asked} and sent something else than answers.")
    return answers


def _listed(record: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    """Return a list in a record, or an empty one if it is missing or has other entries."""
    values = record.get(key)
    fits = isinstance(values, list) and all(isinstance(value, kind) for value in values)
    return list(values) if fits and values else []


def _public_error(error: Exception) -> Error:
    """Return what the other side may know of an error, and log the rest.

    The texts of refusals consist of public facts. Those of other errors may contain anything, such
    as a line of a file that could not be read.
    """
    if isinstance(error, BudgetExceededError | MessageError | ProtocolRefusedError):
        _LOGGER.warning("A request was refused: %s", error)
        return Error(_REFUSED, str(error)[:_LONGEST_TEXT])
    kind = type(error).__name__
    place = traceback.extract_tb(error.__traceback__)[-1]
    known = str(error) if isinstance(error, SkdpotError | OSError) else "see this line"
    _LOGGER.error("A request failed: %s at %s:%s: %s", kind, place.filename, place.lineno, known)
    return Error(_FAILED, f"The party's node failed ({kind}); its own log says where.")
