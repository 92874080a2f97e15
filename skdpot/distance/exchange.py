"""How messages are exchanged and recorded, and the private protocol: one sketch of each party."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.distance.debiased import DebiasedDistance, debiased_pair, table_of
from skdpot.distance.messages import Message, SketchMessage, SketchRequest, check_type
from skdpot.distance.party import Introduction, Party, data_of, rehearsed
from skdpot.exceptions import BudgetExceededError, MessageError
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.release.bounds import DataBounds
from skdpot.release.sketch_record import check_comparable

SERVER = "server"
M = TypeVar("M", bound=Message)
_ONE_SIGMA = 0.6826894921370859
_PAIRS_IN_DETAIL, _SIMULATIONS_OF_MANY = 100, 32


@dataclass(frozen=True)
class Entry:
    """One message on its way; `message` is read from the bytes, not the sender's object."""

    round: int
    sender: str
    recipient: str
    message: Message


class Transcript:
    """Messages in order; entries are added and never changed. `skdpot.audit` reads nothing else."""

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
        seen = Transcript()
        seen._entries = tuple(e for e in self._entries if name in (e.sender, e.recipient))
        return seen

    def messages(self, kind: type[M], *, sender: str | None = None) -> list[M]:
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


class Question(NamedTuple):
    """A method of `Party` that takes one message and returns one, and the bytes of the message."""

    method: str
    request: bytes


# What comes back from a party: an answer to each question, or what went wrong.
Replies: TypeAlias = list[bytes] | MessageError
Carry: TypeAlias = Callable[[Mapping[str, Sequence[Question]]], Mapping[str, Replies]]


@dataclass(frozen=True, eq=False)
class RemoteParty(Introduction):
    """Stands for a `Party` elsewhere: the protocols that ask all parties alike take both."""

    carry: Carry


class Exchange:
    """Carries the messages of one protocol, as validated bytes, and writes a transcript."""

    def __init__(self, transcript: Transcript | None = None) -> None:
        self.transcript = Transcript() if transcript is None else transcript

    def send(
        self,
        round: int,
        sender: str,
        message: Any,
        due: type[M],
        *,
        to: Iterable[str] = (SERVER,),
        read: Callable[[M], Any] | None = None,
    ) -> Any:
        """Send a message, or what a participant answers; return what `read` makes of it."""
        try:
            given = message() if callable(message) else message
            if isinstance(given, MessageError):
                raise given
            if not isinstance(given, bytes | Message):
                raise MessageError(f"Expected a message, got {type(given).__name__}.")
            arrived = due.from_bytes(given if isinstance(given, bytes) else given.to_bytes())
            found = arrived if read is None else read(arrived)
        except MessageError as error:
            raise MessageError(f"The answer of {sender!r} cannot be used. {error}") from error
        for recipient in to:
            self.transcript.record(round, sender, recipient, arrived)
        return found

    def ask(
        self,
        round: int,
        parties: Sequence[Any],
        request: Message,
        due: Mapping[str, type[Message]],
        read: Callable[[Any], Any] | None = None,
        *,
        to: Iterable[str] = (SERVER,),
        also: Sequence[Any] = (),
    ) -> list[dict[str, Any]]:
        """Ask all parties the same; return what they answer to each method of `due`, by name."""
        carried: dict[str, Replies] = {}
        for carry in dict.fromkeys(p.carry for p in parties if isinstance(p, RemoteParty)):
            names = [p.name for p in parties if getattr(p, "carry", None) == carry]
            questions = [Question(method, request.to_bytes()) for method in due]
            carried |= carry(dict.fromkeys(names, questions))
        found: list[dict[str, Any]] = [{} for _ in due]
        for number, (method, kind) in enumerate(due.items()):
            for party in parties:
                answer: Any
                if party.name in carried:
                    replies = carried[party.name]
                    answer = replies if isinstance(replies, MessageError) else replies[number]
                else:
                    answer = partial(getattr(party, method), request, *also)
                arrived = self.send(round, party.name, answer, kind, to=to, read=read)
                found[number][party.name] = arrived
        return found


def matching(**due: Any) -> Callable[[Any], Any]:
    """Return what refuses an answer that is not about what was asked."""

    def read(answer: Any) -> Any:
        for name, value in due.items():
            if not np.array_equal(given := getattr(answer, name, value), value):
                raise MessageError(f"Its {name} is {given}; expected {value}.")
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


def as_parties(
    parties: Any, protocol: str, new_budget: Callable[[], PrivacyBudget | None], **terms: Any
) -> list[Party]:
    """Return the parties of a matrix; rows get a party of their own, with a budget."""
    listed = isinstance(parties, list | tuple)
    mixed = listed and len({isinstance(party, Party) for party in parties}) > 1
    if mixed or not (listed or isinstance(parties, Mapping)):
        raise TypeError(
            "parties must be a list of Party, a list of rows, or a mapping of names to rows."
        )
    if len(parties) < 2:
        raise ValueError(f"parties must hold two parties or more, got {len(parties)}.")
    if listed and isinstance(parties[0], Party):
        return list(parties)
    if listed:
        parties = {str(position): rows for position, rows in enumerate(parties)}
    return [
        Party(name, rows, allows=(protocol,), budget=new_budget(), **terms)
        for name, rows in parties.items()
    ]


@dataclass(frozen=True, eq=False, repr=False)
class DistanceEstimate:
    """An estimated distance between two parties, with its uncertainty."""

    protocol: str
    squared_distance: float
    transcript: Transcript
    details: Any = None
    scale: float = 1.0
    unit: str = "features"

    def in_features(self, bounds: DataBounds, declared: bool) -> "DistanceEstimate":
        """Return the estimate of two sketches in the unit of the features, where they have one."""
        scale = common_scale(bounds, declared)
        return replace(
            self,
            squared_distance=self.details.squared * (scale or 1.0) ** 2,
            scale=scale or 1.0,
            unit="features" if scale else "scaled features",
        )

    @property
    def distance(self) -> float:
        """Estimate of the distance; 0 when `squared_distance` is negative."""
        return math.sqrt(max(self.squared_distance, 0.0))

    @property
    def squared_standard_error(self) -> float:
        """Standard error of `squared_distance`; 0 for a protocol without noise."""
        return self.scale**2 * getattr(self.details, "standard_error", 0.0)

    @property
    def standard_error(self) -> float:
        """Standard error of `distance`: half the width of its 68 % interval."""
        low, high = self.interval(_ONE_SIGMA)
        return (high - low) / 2

    @property
    def noise_floor(self) -> float:
        """What the noise alone adds to the squared distance; subtracted already."""
        return self.scale**2 * getattr(self.details, "noise_floor", 0.0)

    def interval(
        self, confidence: float = 0.95, *, of: str = "directions", hidden: bool = False
    ) -> tuple[float, float]:
        """Return a confidence interval for the distance of the clipped rows.

        Along the "directions" of the sketches, or over all directions of the "space". It is of the
        mass that stands out of the noise. With `hidden` the upper end also has what noise can
        hide beyond the bulk of the data.
        """
        if not self._is_sketched:
            return self.distance, self.distance
        low, high = self.details.interval(confidence, of=of, hidden=hidden)
        return low * self.scale, high * self.scale

    def __repr__(self) -> str:
        return f"<DistanceEstimate {self._summary()}, protocol={self.protocol!r}>"

    def _repr_html_(self) -> str:
        rows = [
            ("Distance", self._summary()),
            ("Squared", f"{self.squared_distance:.6g}"),
            ("Noise floor of the squared distance", f"{self.noise_floor:.6g}"),
            ("Unit", self.unit),
            ("Of", "rows clipped to the bounds" if self._is_sketched else "rows"),
            ("Sent", f"{len(self.transcript)} messages, {self.transcript.n_bytes:,} bytes"),
        ]
        return html_card("Wasserstein distance", self.protocol, rows)

    @property
    def _is_sketched(self) -> bool:
        return isinstance(self.details, DebiasedDistance)

    def _summary(self) -> str:
        if not self._is_sketched:
            return f"{self.distance:.6g} (an upper bound)"
        low, high = self.interval()
        apart = "" if low > 0 else "; not told apart from 0"
        unit = "" if self.unit == "features" else f", in {self.unit}"
        most = self.interval(hidden=True)[1]
        hides = f"; noise can hide a little mass far away, up to {most:.4g}" if most > high else ""
        ends = f"95 %: {low:.4g} to {high:.4g}{apart}{hides}"
        return f"{self.distance:.4g}{unit}, of clipped rows ({ends})"


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseResult:
    """The distances between all parties."""

    protocol: str
    names: tuple[str, ...]
    estimates: Mapping[tuple[str, str], DistanceEstimate]
    transcript: Transcript

    @property
    def squared_distances(self) -> np.ndarray:
        """Squared distances of shape (n_parties, n_parties): symmetric, zero on the diagonal."""
        return self._frame("squared_distance").to_numpy()

    @property
    def distances(self) -> np.ndarray:
        """The distances; 0 where the estimate of a square is negative."""
        return self.to_frame().to_numpy()

    def to_frame(self) -> pd.DataFrame:
        """Return the distances as a table, with the names of the parties on both sides."""
        return self._frame("distance")

    def standard_errors(self) -> pd.DataFrame:
        """Return the standard errors of the distances as a table."""
        return self._frame("standard_error")

    def _frame(self, attribute: str) -> pd.DataFrame:
        table = pd.DataFrame(0.0, index=list(self.names), columns=list(self.names))
        for (one, other), estimate in self.estimates.items():
            table.loc[one, other] = table.loc[other, one] = getattr(estimate, attribute)
        return table

    def __repr__(self) -> str:
        return (
            f"<PairwiseResult of {self.protocol!r}: {len(self.names)} parties, "
            f"{len(self.transcript)} messages, {self.transcript.n_bytes} bytes>"
        )


def common_scale(bounds: DataBounds, declared: bool) -> float | None:
    """Return the factor by which all features were scaled alike, or None if there is none."""
    as_they_are = not bounds.center.any() and np.all(bounds.scale == 1.0)
    same = as_they_are or (declared and np.all(bounds.scale == bounds.scale[0]))
    return float(bounds.scale[0]) if same else None


def sliced(first: Party, second: Party, request: SketchRequest, **options: Any) -> DistanceEstimate:
    """Estimate SW₂ between two parties from a private sketch of each, see `pairwise_sliced`."""
    (estimate,) = pairwise_sliced((first, second), request, **options).estimates.values()
    return estimate


def pairwise_sliced(
    parties: Sequence[Party],
    request: SketchRequest,
    *,
    target: str = "population",
    n_simulations: int | None = None,
    budget: PrivacyBudget | None = None,
) -> PairwiseResult:
    """Estimate SW₂ between all parties from one private sketch of each.

    Privacy
    -------
    Each party releases one sketch at its own (epsilon, delta), however many others there are. The
    estimates are post-processing. A person whose row is with two parties spends both.
    `budget` pays once for all (parallel composition): the number of rows of each party is public,
    so a neighbouring data set replaces a row of one party. The sketches of the others have the same
    law and are independent of its sketch: all together are as private as the least private one.
    """
    names = check_participants(parties)
    check_type(request, SketchRequest)
    others = {p.name: p.n_features for p in parties if p.n_features != request.n_features}
    if others:
        raise MessageError(
            f"The request is about {request.n_features} features; these parties have others: "
            f"{others}. Nobody was asked."
        )
    if budget is not None:
        _charge_once(budget, parties, request)
    exchange = Exchange()
    sent = exchange.send(0, SERVER, request, SketchRequest, to=names)
    due = {"publish_sketch": SketchMessage}
    (sketches,) = exchange.ask(1, parties, sent, due, read=sent.read)
    for party in parties:
        if (n_rows := sketches[party.name].n_samples_) != party.n_samples:
            raise MessageError(
                f"The sketch of {party.name!r} is of {n_rows} rows, and the party announced "
                f"{party.n_samples}."
            )
    # The errors of a table are simulated once, for all its pairs.
    tables = {name: table_of(sketch) for name, sketch in sketches.items()}
    pairs, estimates = list(combinations(names, 2)), {}
    if n_simulations is None and len(pairs) > _PAIRS_IN_DETAIL:
        n_simulations = _SIMULATIONS_OF_MANY
    for one, other in pairs:
        try:
            check_comparable((sketches[one], sketches[other]))
            found = debiased_pair(
                tables[one], tables[other], target=target, n_simulations=n_simulations
            )
        except ValueError as error:
            raise MessageError(
                f"The sketches of {one!r} and {other!r} cannot be compared. {error}"
            ) from error
        estimates[one, other] = DistanceEstimate(
            "sliced", found.squared, exchange.transcript, found, unit="scaled features"
        )
    return PairwiseResult("sliced", names, estimates, exchange.transcript)


def _charge_once(budget: PrivacyBudget, parties: Sequence[Party], request: SketchRequest) -> None:
    """Charge the least private of the sketches to come: all are Gaussian, so the largest mu.

    Everything that a party would refuse is refused here, before the charge.
    """
    events = []
    for party in parties:
        if not isinstance(party, Party):
            raise ValueError(
                "budget= is for parties of this process; those elsewhere charge their own."
            )
        events.append(rehearsed(party, request).statement.event)
        own = party.budget
        is_new = request.to_bytes() not in data_of(party).releases
        if own is not None and is_new and not own.can_afford(events[-1]):
            raise BudgetExceededError(
                f"Too little is left in the budget of party {party.name!r} for a sketch at "
                f"epsilon={party.epsilon:g}. Nobody was asked and nothing charged."
            )
    event = max(events, key=lambda event: compose(event).mu_without_sampling)
    budget.spend(event, label=f"sketches of {len(parties)} parties with different people")
