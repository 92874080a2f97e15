"""What a party answers when a question arrives as bytes, whatever has brought it."""

from collections.abc import Callable

from skdpot.exceptions import MessageError, ProtocolRefusedError
from skdpot.federated.messages import Message
from skdpot.federated.party import Party
from skdpot.federated.releases import ReleaseFile

__all__ = ["MAX_REQUEST_BYTES", "QUESTIONS", "answer", "lasting_releases"]

MAX_REQUEST_BYTES = 2**28

QUESTIONS = ("publish_sketch", "interpolate", "squared_distance_to")
"""Methods of a `Party` that a server may call; each takes one message and returns one."""


def answer(
    party: Party,
    question: str,
    data: bytes,
    *,
    review: Callable[[Message], object] | None = None,
) -> bytes:
    """Read a request, let the party answer it, and return the bytes of the answer.

    Parameters
    ----------
    party : Party
        Holds the rows and refuses what its owner has not agreed to.
    question : str
        One of `QUESTIONS`.
    data : bytes
        The request that arrived.
    review : callable, optional
        Is shown each request before the party; raises `MessageError` to refuse it.

    Returns
    -------
    bytes
        A message. A request for a sketch that was answered before, by this process or an
        earlier one, gets the same bytes again, and costs nothing.

    Raises
    ------
    MessageError
        If there is no such question, or the request is damaged or does not fit it.
    ProtocolRefusedError
        If the party does not take part, or its charges would be forgotten.
    BudgetExceededError
        If the party's budget cannot pay.

    Privacy
    -------
    As the method of `Party` that answers.
    """
    if question not in QUESTIONS:
        raise MessageError(f"A party is asked one of {QUESTIONS}, and nothing else.")
    request = Message.from_bytes(data, max_bytes=MAX_REQUEST_BYTES)
    if review is not None:
        review(request)

    def make() -> bytes:
        reply: Message = getattr(party, question)(request)
        return reply.to_bytes()

    if question == "publish_sketch" and "sliced" in party.allows:
        return lasting_releases(party).answer(party.name, data, make)
    return make()


def lasting_releases(party: Party) -> ReleaseFile:
    """Return the file that remembers a party's sketches, beside the ledger of its budget.

    Parameters
    ----------
    party : Party
        Answers over a transport, where each request may meet a new process.

    Returns
    -------
    ReleaseFile
        At the path of the ledger with ``.releases`` appended.

    Raises
    ------
    ProtocolRefusedError
        If charges would be forgotten when this process ends, and be made anew by the next.
    """
    if party.budget is None or not party.budget.is_durable:
        raise ProtocolRefusedError(
            f"Party {party.name!r} answers over a transport, where each request may meet a new "
            "process, so that what it spends must be remembered on its disk. Its owner has to "
            "give it a PrivacyBudget with ledger='<path>'."
        )
    return ReleaseFile(f"{party.budget.ledger}.releases")
