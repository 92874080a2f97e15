"""Protocols with parties on other machines, reached by a transport such as Flower.

A transport may deliver a request twice, and start a new process for each delivery. A party keeps
the bytes that it has sent in a file, so that a second delivery makes and charges no new release.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from skdpot.distance.estimates import PairwiseResult
from skdpot.distance.exchange import Carry, Question, RemoteParty, Replies, check_participants
from skdpot.distance.fedwad import pairwise_fedwad
from skdpot.distance.messages import Message, SketchRequest
from skdpot.distance.party import Introduction, Party
from skdpot.distance.sliced import pairwise_sliced
from skdpot.distance.triangle import pairwise_triangle
from skdpot.exceptions import LedgerError, MessageError, ProtocolRefusedError, warn_not_private
from skdpot.privacy.ledger import create_file, transaction

_APPLICATION_ID = 0x736B6472  # "skdr": marks the file as one of ours
_VERSION = 1  # of the schema
_SCHEMA = (
    "CREATE TABLE releases (key BLOB PRIMARY KEY, party TEXT NOT NULL, reply BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)
_PATIENCE = 120.0  # seconds to wait for another process, which may make the release
_LOST = "Nothing was published; if the release was charged, that charge is lost."

MAX_REQUEST_BYTES = 2**28  # of directions of the largest request
QUESTIONS = ("publish_sketch", "interpolate", "squared_distance_to")
"""Methods of a `Party` that a server may call; each takes one message and returns one."""


class ReleaseFile:
    """Releases of parties on disk, by party and request.

    Parameters
    ----------
    path : str or path-like
        The file; created on first use, readable by its owner only. Keep it on a local disk beside
        the ledger of the budget, and as long as the ledger: without it a repeated request is a new
        release, which is charged again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     releases = ReleaseFile(Path(directory, "releases.sqlite"))
    ...     first = releases.answer("north", b"request", lambda: b"noisy table")
    ...     again = releases.answer("north", b"request", lambda: b"other noise")
    >>> first == again
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()

    def answer(self, party: str, request: bytes, make: Callable[[], bytes]) -> bytes:
        """Return what was published for this request, or make, keep and return it.

        The file is locked meanwhile: if two processes have the same request, one makes the release
        and the other waits for it. The release is on disk before it is returned. If it cannot be
        stored, it is discarded and its cost is lost, so there are never two answers to one request.

        Parameters
        ----------
        party : str
            Name of the party: parties can share a file.
        request : bytes
            The whole request.
        make : callable
            Charges, and returns the release as bytes. When it raises, nothing is kept.

        Returns
        -------
        bytes
            The release.

        Raises
        ------
        LedgerError
            If the file cannot be used.
        """
        key = hashlib.sha256(
            b"".join(hashlib.sha256(part).digest() for part in (party.encode(), request))
        ).digest()
        if not self.path.exists():
            with suppress(FileExistsError):  # another process was faster
                create_file(self.path, _lay_out)
        with transaction(str(self.path), "IMMEDIATE", _PATIENCE, _LOST) as connection:
            pragmas = ("application_id", "user_version")
            marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
            is_ours = marks == [_APPLICATION_ID, _VERSION]
            query = "SELECT reply FROM releases WHERE key = ?"
            kept = connection.execute(query, (key,)).fetchone() if is_ours else (None,)
            reply: Any = make() if kept is None else kept[0]
            if not isinstance(reply, bytes):
                raise LedgerError(
                    f"{str(self.path)!r} cannot be used: it is no intact file of releases of this "
                    "version of skdpot, and was left as it is. Nothing was published."
                )
            if kept is None:
                connection.execute("INSERT INTO releases VALUES (?, ?, ?)", (key, party, reply))
        return reply


def _lay_out(path: str) -> None:
    """Create the table of releases."""
    with transaction(path, "IMMEDIATE") as connection:
        for statement in _SCHEMA:
            connection.execute(statement)


def answer(
    party: Party, question: str, data: bytes, *, review: Callable[[Message], object] | None = None
) -> bytes:
    """Read a request, let a party answer it, and return the bytes of the answer."""
    if question not in QUESTIONS:
        raise MessageError(f"A party is asked one of {QUESTIONS}, and nothing else.")
    request = Message.from_bytes(data, max_bytes=MAX_REQUEST_BYTES)
    if review is not None:
        review(request)

    def make() -> bytes:
        return bytes(getattr(party, question)(request).to_bytes())

    if question == "publish_sketch" and "sliced" in party.allows:
        return lasting_releases(party).answer(party.name, data, make)
    return make()


def lasting_releases(party: Party) -> ReleaseFile:
    """Return the file of the published sketches of a party, beside the ledger of its budget."""
    if party.budget is None or not party.budget.is_durable:
        raise ProtocolRefusedError(
            f"Party {party.name!r} answers over a transport, so its spending must be kept on disk: "
            "give it a PrivacyBudget with ledger='<path>'."
        )
    return ReleaseFile(f"{party.budget.ledger}.releases")


class RemoteParties:
    """Parties elsewhere, and perhaps `own` ones of this process, which answer by the same rules."""

    def __init__(
        self, introductions: Sequence[Introduction], carry: Carry, own: Sequence[Party] = ()
    ) -> None:
        ways = [(introduction, carry) for introduction in introductions]
        ways += [(Introduction.of(party), partial(_answers_of, party)) for party in own]
        everybody = [RemoteParty(**vars(introduction), carry=way) for introduction, way in ways]
        # `Any`: the protocols take a `RemoteParty` for a `Party`.
        self.parties: tuple[Any, ...] = tuple(sorted(everybody, key=lambda party: party.name))
        check_participants(self.parties)

    def pairwise_sliced(self, request: SketchRequest, **options: Any) -> PairwiseResult:
        """Estimate SW₂ between all parties from one sketch of each, at its own (ε, δ)."""
        self._check_agreed("sliced")
        return pairwise_sliced(self.parties, request, **options)

    def pairwise_triangle(self, **options: Any) -> PairwiseResult:
        """Estimate W₂ between all parties by TriangleWad; **not private**."""
        self._check_agreed("triangle", "TriangleWad")
        return pairwise_triangle(self.parties, **options)

    def pairwise_fedwad(self, **options: Any) -> PairwiseResult:
        """Bound W₂ by FedWad, with one round trip per round and pair; **not private**."""
        self._check_agreed("fedwad", "FedWad")
        return pairwise_fedwad(self.parties, **options)

    def _check_agreed(self, protocol: str, not_private: str | None = None) -> None:
        """Refuse before anybody publishes, and pays, in vain; warn if a protocol is not private."""
        absent = [party.name for party in self.parties if protocol not in party.allows]
        if absent:
            raise ProtocolRefusedError(
                f"{', '.join(map(repr, absent))} did not agree to {protocol!r}; nobody was asked "
                "for anything. Only the owners of the data can agree, each on its own machine."
            )
        if not_private is not None:
            warn_not_private(
                f"{not_private} is not private: from the messages of a party and what all parties "
                "share, the server computes every row of it exactly."
            )


def _answers_of(party: Party, questions: Mapping[str, Sequence[Question]]) -> dict[str, Replies]:
    """Carry the questions to a party of this process."""
    try:
        return {party.name: [answer(party, *question) for question in questions[party.name]]}
    except MessageError as error:
        return {party.name: error}
