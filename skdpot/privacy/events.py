r"""Events: frozen descriptions of all accesses to private data, made of public facts only.

`sigma` and `sensitivity` are separate fields, because a "noise multiplier" alone does not say
whether it multiplies the clipping norm or the distance between neighbours.

Several rows of one person
--------------------------
If a person has up to :math:`k` rows, neighbouring data sets differ in all rows of one person.

*Rows in different parts* (`Event.grouped`). The records are divided by a public fact, such as time.
Each part has its own releases, and a person has at most one row per part, so two neighbours differ
in at most :math:`k` parts. A release of any other part is the same function of the past under both
neighbours. The event bounds the loss of a release of one of the :math:`k` parts, given the past.
The composition of the bounds, in any order, bounds the losses of an adaptive sequence of releases
[1]_, so :math:`k` times the steps of one part is an upper bound. For Gaussian releases it is
:math:`\sqrt k \mu`.

*Rows in one statistic.* All :math:`k` rows enter the same sum or histogram. By the triangle
inequality along a chain of data sets that differ in one row each, the sensitivity is
:math:`k\Delta`. A Gaussian release then costs :math:`k\mu`, and its plan must account for this. It
does not hold for secret samples, where each row of a group is sampled independently.

Multiplying :math:`(\epsilon, \delta)` by :math:`k` is wrong in both cases: the delta of a group of
:math:`k` rows grows by a factor of about :math:`k e^{(k-1)\epsilon}`.

References
----------
.. [1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function",
   AISTATS 2022 (dominating pairs compose adaptively).
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, SupportsIndex, TypeAlias

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.gdp import ApproximateGDP
from skdpot.privacy.loss_distribution import LossPair


@dataclass(frozen=True)
class Step:
    """One release that reveals everything with probability `leak` and is mu-GDP otherwise."""

    mu: float
    leak: float = 0.0


class LossStep(Protocol):
    """One release without a closed form, such as one on a secret sample."""

    @property
    def mu(self) -> float:
        """The step is mu-GDP if it reads all records."""

    @property
    def rate(self) -> float:
        """Probability that the step reads a given record."""

    def losses(self, interval: float) -> LossPair:
        """Discretise the privacy loss of the step on the multiples of `interval`."""


CountedStep: TypeAlias = tuple[Step | LossStep, int]  # a release and how often it is made


def step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return the mu of one Gaussian release of all records.

    On a lattice of spacing g, mu is ``sensitivity / sigma`` times 1 + 1 / (20 s^2), s = sigma / g:
    the discrete Gaussian costs about 1 / (24 s^2) more than the continuous one.
    """
    mu = sensitivity / sigma
    return mu if lattice is None else mu * (1.0 + (lattice / sigma) ** 2 / 20.0)


def mu_of_steps(steps: Iterable[CountedStep]) -> float:
    """Return the mu of the composed steps if each used all records and none leaked."""
    return math.sqrt(math.fsum(count * step.mu * step.mu for step, count in steps))


def leak_of_steps(steps: Iterable[CountedStep]) -> float:
    """Return the probability that at least one of the steps leaks."""
    leaks = [count * math.log1p(-s.leak) for s, count in steps if isinstance(s, Step) and s.leak]
    return -math.expm1(math.fsum(leaks)) if leaks else 0.0


class Relation(StrEnum):
    """The neighbouring relation: how two data sets differ in one record."""

    REPLACE_ONE = "replace_one"
    ADD_REMOVE = "add_or_remove_one"


Check = Callable[[Any], Any]
Steps = Iterator[CountedStep]


def check_field(convert: Check, holds: Callable[[Any], bool], text: str) -> Check:
    """Return a check that converts a value, and raises `text` unless `holds` is then true."""

    def check(value: Any) -> Any:
        with suppress(TypeError, ValueError):
            if not isinstance(value, bool) and holds(converted := convert(value)):
                return converted
        raise ValueError(text)

    return check


def real(value: Any) -> float:
    """Convert a number to float; text becomes NaN, which fails every check."""
    return math.nan if isinstance(value, str) else float(value)


positive = check_field(real, lambda x: 0.0 < x < math.inf, "must be a finite number > 0")
count = check_field(operator.index, lambda n: n >= 1, "must be an integer >= 1")
_relation = check_field(
    Relation, bool, f"must be one of {', '.join(repr(str(r)) for r in Relation)}"
)
_text = check_field(lambda v: v, lambda v: isinstance(v, str), "must be a str")


def or_none(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda value: None if value is None else check(value)


def check_group_size(group_size: SupportsIndex) -> int:
    """Return `group_size` as an integer of at least 1, or raise an error that explains it."""
    try:
        return int(count(group_size))
    except ValueError:
        raise ValueError(
            f"`group_size` must be an integer >= 1, got {group_size!r}: the largest number of "
            "rows per person."
        ) from None


@dataclass(frozen=True, kw_only=True)
class Event(ABC):
    """Abstract base class of the events.

    An event is a frozen dataclass of public facts. `_checks` maps each of its fields to a check.
    A subclass defines `_steps`, its account, and `_words`, its sentence in a report. It defines
    `_grouped` if its cost for several rows per person is known. None of the three is inherited: a
    subclass of an event may describe a different release than its base class, so it has no account
    unless it defines its own.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        Neighbouring relation under which `sensitivity` was derived.
    label : str, default=""
        Short public description for reports. Ignored when events are compared.

    Raises
    ------
    ValueError
        If a field is out of range; the message names the field.
    """

    relation: Relation = Relation.REPLACE_ONE
    label: str = field(default="", compare=False)

    _checks: ClassVar[dict[str, Check]] = {}
    # Whether a file may state the event. Its account must be fast for all values of its fields.
    in_files: ClassVar[bool] = False
    is_budget: ClassVar[bool] = False  # whether the event stands for everything within its mu

    @abstractmethod
    def _steps(self) -> Steps:
        """Split the event into single releases, using its fields only.

        Yields
        ------
        tuple of (Step or LossStep, int)
            A release and how often it is made. Later releases may depend on earlier ones.
        """

    def _words(self) -> str:
        """Return a sentence in the present tense that names the release and its noise."""
        return f"A release that is accounted for as {type(self).__name__}."

    def _grouped(self, group_size: int) -> "Event | None":
        """Return the event for persons with `group_size` rows, at least 2; None if not known."""
        return None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        for name, check in ({"relation": _relation, "label": _text} | self._checks).items():
            self._store(name, check)
        sigma, lattice = getattr(self, "sigma", None), getattr(self, "lattice", None)
        if lattice is not None and sigma < lattice:
            raise self._error(
                "lattice",
                f"must not exceed sigma, got lattice={lattice!r} and sigma={sigma!r}; use a finer "
                "lattice or more noise",
            )

    def _store(self, name: str, check: Check) -> None:
        """Check and convert a field of the frozen instance during its construction."""
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, check(value))
        except ValueError as error:
            raise self._error(name, f"{error}, got {value!r}") from None

    def _error(self, name: str, problem: str) -> ValueError:
        return ValueError(f"{type(self).__name__}: `{name}` {problem}.")

    def _not_inherited(self, name: str) -> Any:
        """Return a method that the class itself defines; None for an inherited one."""
        return getattr(self, name) if name in vars(type(self)) else None

    @property
    def phases(self) -> tuple[Any, ...]:
        """The single events in this one, at any depth of nesting."""
        return (self,)

    @property
    def is_private(self) -> bool:
        """Whether everything that is released has noise."""
        return True

    @property
    def n_records(self) -> int | None:
        """Public number of records, if the event depends on it."""
        return None

    def steps(self) -> Steps:
        """Split the event into single releases with their numbers of repetitions.

        Yields
        ------
        tuple of (Step or LossStep, int)
            A release and how often it is made.

        Raises
        ------
        UnknownEventError
            If the class of the event, or of a phase, does not define its steps.
        """
        steps = self._not_inherited("_steps")
        if steps is None:
            raise UnknownEventError(
                f"No accountant is known for {type(self).__name__}: an event must define its own "
                "steps, since a subclass may mean something else than its base class."
            )
        return steps()

    def to_gdp(self) -> ApproximateGDP:
        """Return a bound in closed form, which is tight if no step uses a secret sample."""
        steps = tuple(self.steps())
        return ApproximateGDP(mu_of_steps(steps), leak_of_steps(steps))

    def describe(self) -> str:
        """Return a sentence on each phase: what it releases, with which noise."""
        words = self._not_inherited("_words")
        text = words() if words else Event._words(self)
        return f"{self.label}: {text}" if self.label else text

    def grouped(self, group_size: SupportsIndex) -> "Event":
        """Return the event for persons with up to `group_size` rows, each in a different part.

        Parameters
        ----------
        group_size : int
            Largest number of rows per person, at most one per part.

        Returns
        -------
        Event
            The same releases, each `group_size` times.

        Raises
        ------
        UnknownEventError
            If the cost is not known for this event.
        ValueError
            If `group_size` is not an integer of at least 1, or the relation is not replace-one.

        Examples
        --------
        >>> from skdpot.privacy.events import GaussianEvent
        >>> once = GaussianEvent(sigma=2.0, sensitivity=1.0)
        >>> once.mu, once.grouped(4).mu
        (0.5, 1.0)
        """
        if self.relation is not Relation.REPLACE_ONE:
            raise ValueError(
                "Groups of rows are accounted for under replace-one only, got an event under "
                f"{str(self.relation)!r}."
            )
        size = check_group_size(group_size)
        if size == 1:
            return self
        grouped = self._not_inherited("_grouped")
        event: Event | None = grouped and grouped(size)
        if event is None:
            raise UnknownEventError(
                f"The cost of {self} for a person with {size} rows is not known; use "
                "group_size=1, with one row per person."
            )
        return event

    def group_leak(self, group_size: int) -> float:
        """Bound the leak of a group, 1 if unknown; without a leak the group is k mu-GDP."""
        return 0.0 if self.to_gdp().leak == 0.0 else 1.0

    def __str__(self) -> str:
        """Return the fields that differ from their defaults, without relation and label."""
        chosen = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if item.name not in ("relation", "label") and getattr(self, item.name) != item.default
        ]
        return f"{type(self).__name__}({', '.join(chosen)})"

    def _of_one_record(self, text: str) -> str:
        """Adapt a sentence about replacing a record to the relation of this event."""
        replaced = self.relation is Relation.REPLACE_ONE
        return text if replaced else text.replace("replacing", "adding or removing")


def noisy_releases(event: Any, of_what: str) -> str:
    """Return a sentence on the number of Gaussian releases, their statistic and their noise."""
    n = event.n_steps
    how_many = f"{n:,} releases, one after the other" if n > 1 else "1 release"
    return event._of_one_record(
        f"{how_many}, {of_what}: every number has Gaussian noise of standard deviation "
        f"{event.sigma:.4g}, and replacing one record moves all numbers of a release together by "
        f"at most {event.sensitivity:.4g}."
    )


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """Release of `n_steps` statistics of all records with Gaussian noise.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate.
    sensitivity : float
        Largest L2 distance between the statistics of neighbouring data sets.
    n_steps : int, default=1
        Number of such releases; later ones may depend on earlier ones.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise, which must contain the statistic. If
        None, the noise is continuous.
    relation : Relation, default=Relation.REPLACE_ONE
        Neighbouring relation of `sensitivity`.
    label : str, default=""
        Short public description for reports.

    Raises
    ------
    ValueError
        If a field is out of range, or `sigma` is smaller than `lattice`.
    """

    sigma: float
    sensitivity: float
    n_steps: int = 1
    lattice: float | None = None

    in_files = True
    _checks = {
        "sigma": positive,
        "sensitivity": positive,
        "n_steps": count,
        "lattice": or_none(positive),
    }

    @property
    def mu(self) -> float:
        """Neighbours are at least as hard to tell apart as N(0, 1) and N(mu, 1): mu-GDP."""
        return math.sqrt(self.n_steps) * step_mu(self.sigma, self.sensitivity, self.lattice)

    def _steps(self) -> Steps:
        yield Step(step_mu(self.sigma, self.sensitivity, self.lattice)), self.n_steps

    def _grouped(self, group_size: int) -> Event:
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        return noisy_releases(self, "of numbers computed from all records")


@dataclass(frozen=True, kw_only=True)
class ComposedEvent(Event):
    """Several events on the same records under one relation, all fixed before the first starts."""

    relation: Relation = field(init=False)
    label: str = field(default="", init=False, compare=False)
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check that the phases exist and can be composed."""
        events = tuple(self.events)
        if not events or not all(isinstance(event, Event) for event in events):
            raise ValueError("ComposedEvent: `events` must hold one or more Event objects.")
        relations = {event.relation for event in events}
        if len(relations) > 1:
            raise ValueError(
                "ComposedEvent: `events` must share one relation, got "
                f"{', '.join(sorted(relations))}; derive every sensitivity under the same one."
            )
        object.__setattr__(self, "events", events)
        object.__setattr__(self, "relation", relations.pop())

    @property
    def phases(self) -> tuple[Any, ...]:
        """The single events in this one, at any depth of nesting."""
        return tuple(phase for event in self.events for phase in event.phases)

    @property
    def sigma(self) -> tuple[float, ...]:
        """Standard deviation of the noise of each phase that adds noise."""
        return tuple(phase.sigma for phase in self.phases if hasattr(phase, "sigma"))

    @property
    def sensitivity(self) -> tuple[float, ...]:
        """L2 sensitivity of each phase that adds noise."""
        return tuple(phase.sensitivity for phase in self.phases if hasattr(phase, "sigma"))

    @property
    def is_private(self) -> bool:
        """Whether everything that is released has noise."""
        return all(event.is_private for event in self.events)

    def group_leak(self, group_size: int) -> float:
        """Bound the probability, at most 1, that a phase reveals everything of a group."""
        return min(1.0, math.fsum(event.group_leak(group_size) for event in self.events))

    def describe(self) -> str:
        """Return a sentence on each phase: what it releases, with which noise."""
        return " ".join(phase.describe() for phase in self.phases)

    def __str__(self) -> str:
        """Return the events, each with the fields that differ from their defaults."""
        return f"{type(self).__name__}({', '.join(map(str, self.events))})"

    def _steps(self) -> Steps:
        for event in self.events:
            yield from event.steps()

    def _grouped(self, group_size: int) -> Event:
        return ComposedEvent(events=tuple(event.grouped(group_size) for event in self.events))


@dataclass(frozen=True, kw_only=True)
class NonPrivateEvent(Event):
    """A release without noise: epsilon is infinite and no finite budget admits it."""

    in_files = True

    @property
    def is_private(self) -> bool:
        """Whether everything that is released has noise."""
        return False

    def _steps(self) -> Steps:
        yield Step(math.inf), 1

    def _grouped(self, group_size: int) -> Event:
        return self

    def _words(self) -> str:
        return "Something was released without any noise."
