"""Protocols with parties that are reached by messages, some of them at once.

A transport brings questions to parties and answers back; this module needs nothing else of it.
`skdpot.federated.flower` is one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias, cast

import numpy as np

from skdpot._utils.notices import warn_not_private
from skdpot.exceptions import MessageError, ProtocolRefusedError
from skdpot.federated.answering import answer
from skdpot.federated.messages import GeodesicMeasure, Message, ReferenceMeasure, SketchRequest
from skdpot.federated.participants import as_reference, check_participants, symmetric
from skdpot.federated.party import Party
from skdpot.federated.protocols import (
    PairwiseResult,
    pairwise_fedwad,
    pairwise_sliced,
    pairwise_triangle,
)
from skdpot.federated.transcript import Transcript

__all__ = ["Carry", "Introduction", "Question", "RemoteParties", "RemoteParty"]

_WARNING = (
    "is not private: from the messages of a party and what all of them share, the server computes "
    "every row of it exactly."
)


class Question(NamedTuple):
    """A method of `Party`, one of `skdpot.federated.answering.QUESTIONS`, and a request."""

    method: str
    request: bytes


# Brings questions to parties by name. What comes back, by name, is an answer to each question
# of a party, or what went wrong with it; the error has the party's name.
Carry: TypeAlias = Callable[
    [Mapping[str, Sequence[Question]]], Mapping[str, list[bytes] | MessageError]
]


@dataclass(frozen=True)
class Introduction:
    """What a party tells about itself before anything is asked; all of it is public.

    Parameters
    ----------
    name : str
        Name of the party.
    n_samples, n_features, n_dimensions : int
        As the attributes of `Party`.
    allows : tuple of str
        Protocols that the party agreed to. It refuses the others by itself.
    """

    name: str
    n_samples: int
    n_features: int
    n_dimensions: int
    allows: tuple[str, ...]

    @classmethod
    def of(cls, party: Party) -> Self:
        """Return the introduction of a party of this process."""
        sizes = (party.n_samples, party.n_features, party.n_dimensions)
        return cls(party.name, *sizes, party.allows)


@dataclass(frozen=True)
class RemoteParty(Introduction):
    """Stands for a `Party` elsewhere: the functions in `skdpot.federated.protocols` take both.

    Its methods return the bytes that came back, unread. Protocols read them as a stranger's.

    Parameters
    ----------
    name, n_samples, n_features, n_dimensions, allows
        As the party has introduced itself.
    ask : callable
        Takes the party's name, a method and a message; returns bytes.
    """

    ask: Callable[[str, str, Message], bytes]

    def publish_sketch(self, request: SketchRequest) -> bytes:
        """Return the bytes of a `SketchMessage`."""
        return self.ask(self.name, "publish_sketch", request)

    def interpolate(self, target: ReferenceMeasure | GeodesicMeasure) -> bytes:
        """Return the bytes of an `InterpolatingMeasure`."""
        return self.ask(self.name, "interpolate", target)

    def squared_distance_to(self, target: GeodesicMeasure) -> bytes:
        """Return the bytes of a `DistanceMessage`."""
        return self.ask(self.name, "squared_distance_to", target)


class RemoteParties:
    """Parties elsewhere, and perhaps parties of this process, between whom distances are sought.

    Parameters
    ----------
    introductions : sequence of Introduction
        The parties elsewhere.
    carry : callable
        The transport. Questions to several parties travel at the same time.
    own : sequence of Party, default=()
        Parties of this process who take part too. They answer by the same rules: to publish a
        sketch they need a budget with a ledger file.

    Attributes
    ----------
    parties : tuple of RemoteParty
        All of them, by name.

    Raises
    ------
    ValueError
        If there are fewer than two parties, or two with one name.
    """

    def __init__(
        self, introductions: Sequence[Introduction], carry: Carry, own: Sequence[Party] = ()
    ) -> None:
        self._carry = carry
        self._own = {party.name: party for party in own}
        self._together: tuple[str, ...] = ()
        self._answers: dict[tuple[str, Question], bytes | MessageError] = {}
        everybody = [
            *(RemoteParty(**vars(party), ask=self._ask_elsewhere) for party in introductions),
            *(RemoteParty(**vars(Introduction.of(party)), ask=self._ask_own) for party in own),
        ]
        self.parties = tuple(sorted(everybody, key=lambda party: party.name))
        check_participants(self._as_parties())

    def pairwise_sliced(self, request: SketchRequest, **options: Any) -> PairwiseResult:
        """Estimate SW₂ between all parties from one private sketch of each.

        Parameters
        ----------
        request : SketchRequest
            What all measure. Who repeats a request gets the releases again and costs the
            parties nothing: draw its directions from a seed that you keep.
        **options
            As in `skdpot.federated.protocols.pairwise_sliced`.

        Returns
        -------
        PairwiseResult
            Estimates and transcript, with a `DebiasedDistance` for each pair.

        Raises
        ------
        ProtocolRefusedError
            If a party does not take part; nobody was asked for anything.
        MessageError
            If a party refuses, fails, stays silent or sends something unusable; the error names
            it. What the others have published is kept on their side and can be had again.

        Privacy
        -------
        Each party releases one sketch, at the (epsilon, delta) that it has set itself.
        """
        self._check_agreed("sliced")
        with self._asked_together(self.parties):
            return pairwise_sliced(self._as_parties(), request, **options)

    def pairwise_triangle(self, **options: Any) -> PairwiseResult:
        """Estimate W₂ between all parties by TriangleWad; **not private**.

        Parameters
        ----------
        **options
            As in `skdpot.federated.protocols.pairwise_triangle`.

        Returns
        -------
        PairwiseResult
            Estimates and transcript.

        Raises
        ------
        ProtocolRefusedError, MessageError
            As in `pairwise_sliced`.

        Warns
        -----
        NotPrivateWarning
            Always.

        Privacy
        -------
        None: see `InterpolatingMeasure`.
        """
        self._check_agreed("triangle")
        warn_not_private(f"TriangleWad {_WARNING}")
        with self._asked_together(self.parties):
            return pairwise_triangle(self._as_parties(), **options)

    def pairwise_fedwad(
        self,
        *,
        n_support: int | None = None,
        gamma_mean: float = 0.0,
        gamma_scale: float = 1.0,
        rng: np.random.Generator | None = None,
        **options: Any,
    ) -> PairwiseResult:
        """Bound W₂ between all parties by FedWad, pair after pair; **not private**.

        Each round of a pair is one round trip of the transport.

        Parameters
        ----------
        n_support, gamma_mean, gamma_scale, rng, **options
            As in `skdpot.federated.protocols.pairwise_fedwad`. All pairs begin with one ξ.

        Returns
        -------
        PairwiseResult
            The lowest bounds, and the transcript.

        Raises
        ------
        ProtocolRefusedError, MessageError
            As in `pairwise_sliced`.

        Warns
        -----
        NotPrivateWarning
            Always.

        Privacy
        -------
        None: see `InterpolatingMeasure` and `GeodesicMeasure`.
        """
        self._check_agreed("fedwad")
        warn_not_private(f"FedWad {_WARNING}")
        rng = np.random.default_rng() if rng is None else rng
        everybody = self._as_parties()
        xi = as_reference(
            None, everybody, n_support=n_support, mean=gamma_mean, scale=gamma_scale, rng=rng
        )
        transcript = Transcript()

        def compare(i: int, j: int) -> tuple[float, Any]:
            pair = (self.parties[i], self.parties[j])
            with self._asked_together(pair):
                result = pairwise_fedwad(
                    (everybody[i], everybody[j]), reference=xi, rng=rng, **options
                )
            for entry in result.transcript:
                transcript.record(entry.round, entry.sender, entry.recipient, entry.message)
            (path,) = result.details.values()
            return float(result.squared_distances[0, 1]), path

        names = tuple(party.name for party in self.parties)
        squared, details = symmetric(names, compare)
        return PairwiseResult("fedwad", names, squared, transcript, details)

    def _as_parties(self) -> tuple[Party, ...]:
        """Return the parties as the protocols call them: they have the methods that are needed."""
        return cast("tuple[Party, ...]", self.parties)

    def _check_agreed(self, protocol: str) -> None:
        """Find out who does not take part before anybody publishes, and pays, in vain."""
        absent = [party.name for party in self.parties if protocol not in party.allows]
        if absent:
            raise ProtocolRefusedError(
                f"{', '.join(map(repr, absent))} did not agree to {protocol!r}; nobody was asked "
                "for anything. Only the owners of the data can agree, each on its own machine."
            )

    @contextmanager
    def _asked_together(self, parties: Sequence[RemoteParty]) -> Iterator[None]:
        """Ask all of them at once as soon as one is asked: each would get the same question."""
        self._together = tuple(party.name for party in parties if party.name not in self._own)
        try:
            yield
        finally:
            self._together, self._answers = (), {}

    def _ask_own(self, name: str, method: str, message: Message) -> bytes:
        return answer(self._own[name], method, message.to_bytes())

    def _ask_elsewhere(self, name: str, method: str, message: Message) -> bytes:
        question = Question(method, message.to_bytes())
        if (name, question) not in self._answers:
            names = self._together if name in self._together else (name,)
            self._fetch(names, self._related(question, message))
        reply = self._answers.pop((name, question))
        if isinstance(reply, MessageError):
            raise reply
        return reply

    def _related(self, question: Question, message: Message) -> list[Question]:
        """Return the questions that go along: a round of FedWad asks two about each ξ."""
        if self._together and isinstance(message, GeodesicMeasure) and message.t is not None:
            both = ("squared_distance_to", "interpolate")
            return [Question(method, question.request) for method in both]
        return [question]

    def _fetch(self, names: Sequence[str], questions: list[Question]) -> None:
        replies = self._carry({name: questions for name in names})
        for name in names:
            reply = replies[name]
            answers: Sequence[bytes | MessageError]
            answers = [reply] * len(questions) if isinstance(reply, MessageError) else reply
            self._answers |= {
                (name, question): content
                for question, content in zip(questions, answers, strict=True)
            }
