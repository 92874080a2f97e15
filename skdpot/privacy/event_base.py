r"""What all events share: how they are checked, accounted for, described, written and read.

Several rows of one person
--------------------------
Neighbouring data sets then differ in all rows of one person, up to :math:`k` of them. Two cases
are different and must not be confused with each other.

*Rows in different parts* (`Event.grouped`). The records are divided by something public, for
example by time, every part has releases of its own, and a person has at most one row in each part.
Fix two neighbours and the (at most :math:`k`) parts in which they differ. Every release of another
part is the same function of the past under both. Every release of one of the :math:`k` parts is,
given the past, a release of which the event bounds the loss when one row is replaced. The losses of
an adaptive sequence of releases are bounded by those of the composition of the bounds, in whatever
order they come [1]_, so that :math:`k` times the steps of one part is an upper bound. For Gaussian
releases this is :math:`\sqrt k \mu`. Fewer rows cost less.

*Rows in one statistic.* All :math:`k` rows enter the same sum or histogram. Then the distances add
up: the sensitivity is :math:`k\Delta`, by the triangle inequality along a chain of data sets that
differ in one row each. For a Gaussian release this is :math:`k\mu`; the plan of such a release has
to know of it. It does not carry over to secret samples, where the rows of a group enter by coins of
their own.

Multiplying :math:`(\epsilon, \delta)` by :math:`k` is right in neither case: delta of a group of
:math:`k` grows by about :math:`k e^{(k-1)\epsilon}`.

References
----------
.. [1] Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function",
   AISTATS 2022 (dominating pairs compose adaptively).
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, SupportsIndex

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.gdp import ApproximateGDP
from skdpot.privacy.relation import Relation
from skdpot.privacy.steps import SampledStep, Step, leak_of_steps, mu_of_steps

__all__ = [
    "EVENTS",
    "Check",
    "Event",
    "Steps",
    "check_group_size",
    "count",
    "counts",
    "or_none",
    "positive",
    "probability",
    "rate_of_sampling",
    "shape_of_law",
]

Check = Callable[[Any], Any]
Steps = Iterator[tuple[Step | SampledStep, int]]

# By name, as files name them; `skdpot.privacy.events` fills it.
EVENTS: dict[str, "type[Event]"] = {}
_DEEPEST = 8  # composed events that a file may nest


def _number(value: Any) -> float:
    if isinstance(value, bool | str):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def positive(value: Any) -> float:
    """Return a finite float above 0."""
    number = _number(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError("must be a finite number > 0")
    return number


def rate_of_sampling(value: Any) -> float:
    """Return a float in (0, 1]."""
    if not 0.0 < _number(value) <= 1.0:
        raise ValueError("must lie in (0, 1]")
    return float(value)


def count(value: Any) -> int:
    """Return an integer of at least 1."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError("must be an integer >= 1")
    return number


def counts(values: Any) -> tuple[int, ...]:
    """Return a non-empty tuple of integers of at least 1."""
    try:
        numbers = tuple(map(count, values))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers:
        raise ValueError("must hold one or more integers >= 1")
    return numbers


def probability(value: Any) -> float:
    """Return a float in [0, 1)."""
    number = _number(value)
    if not 0.0 <= number < 1.0:
        raise ValueError("must lie in [0, 1)")
    return number


def shape_of_law(value: Any) -> float:
    """Return a float of at least -0.5."""
    number = _number(value)
    if not number >= -0.5:
        raise ValueError("must be at least -0.5, or infinity")
    return number


def _relation(value: Any) -> Relation:
    try:
        return Relation(value)
    except ValueError:
        allowed = ", ".join(repr(str(relation)) for relation in Relation)
        raise ValueError(f"must be one of {allowed}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a str")
    return value


def or_none(check: Check) -> Check:
    """Return a check that lets None pass."""
    return lambda value: None if value is None else check(value)


def check_group_size(group_size: SupportsIndex) -> int:
    """Return `group_size` as an integer of at least one, or say what is wrong with it."""
    try:
        return count(group_size)
    except ValueError:
        raise ValueError(
            f"`group_size` must be an integer >= 1, got {group_size!r}: the largest number of "
            "rows that one person has."
        ) from None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of the events.

    A new event defines `_steps` and `_words`, and `_grouped` if it is known what a person with
    several rows costs. A subclass of an event must do so too: it may mean something else.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation under which `sensitivity` was derived.
    label : str, default=""
        What is released, in a few words, for reports. It is public, and does not count when
        events are compared.

    Raises
    ------
    ValueError
        If a field is out of range; the message names the field.
    """

    relation: Relation = Relation.REPLACE_ONE
    label: str = field(default="", compare=False)

    _checks: ClassVar[dict[str, Check]] = {}

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        for name, check in ({"relation": _relation, "label": _text} | self._checks).items():
            self._store(name, check)

    def _store(self, name: str, check: Check) -> None:
        """Check a field of the frozen instance while it is being made."""
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, check(value))
        except ValueError as error:
            raise self._error(name, f"{error}, got {value!r}") from None

    def _error(self, name: str, problem: str) -> ValueError:
        return ValueError(f"{type(self).__name__}: `{name}` {problem}.")

    def _own(self, name: str) -> Any:
        """Return a method that this very class defines, or None."""
        return getattr(self, name) if name in vars(type(self)) else None

    @property
    def phases(self) -> tuple[Any, ...]:
        """The single events that this one consists of, however they are nested."""
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
        """Split the event into single releases, each with the number of its repetitions.

        Raises
        ------
        UnknownEventError
            If the class, or that of a phase, does not define what its steps are.
        """
        own = self._own("_steps")
        if own is None:
            raise UnknownEventError(
                f"No accountant is known for {type(self).__name__}: an event must define its own "
                "steps, since a subclass may mean something else than its base class."
            )
        steps: Steps = own()
        return steps

    def to_gdp(self) -> ApproximateGDP:
        """Return a bound in closed form, tight where no step is on a secret sample."""
        steps = tuple(self.steps())
        return ApproximateGDP(mu_of_steps(steps), leak_of_steps(steps))

    def describe(self) -> str:
        """Return a sentence on each phase: what it releases, with which noise."""
        words = self._own("_words")
        text = words() if words else f"A release that is accounted for as {type(self).__name__}."
        return f"{self.label}: {text}" if self.label else text

    def grouped(self, group_size: SupportsIndex) -> "Event":
        r"""Return the event of a person with up to `group_size` rows, each in another part.

        Parameters
        ----------
        group_size : int
            Largest number :math:`k` of rows that a person has, at most one in a part.

        Returns
        -------
        Event
            The same releases, each :math:`k` times.

        Raises
        ------
        UnknownEventError
            If the event is none of which this is proved.
        ValueError
            If `group_size` is not an integer of at least one, or the relation is not replace-one.

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
        own = self._own("_grouped")
        if own is None:
            raise UnknownEventError(
                f"It is not known what {type(self).__name__} costs a person with {size} rows; use "
                "group_size=1, with one row a person."
            )
        event: Event = own(size)
        return event

    def group_leak(self, group_size: int) -> float:
        """Bound the probability that everything of a group is told; 1 where no bound is known.

        Otherwise the release is k mu-GDP, for the mu of one record without sampling.
        """
        return 0.0 if self.to_gdp().leak == 0.0 else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the event as what JSON can hold."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"type": type(self).__name__} | values

    @staticmethod
    def from_dict(stored: Mapping[str, Any], *, depth: int = 0) -> "Event":
        """Rebuild an event that somebody else may have written.

        Raises
        ------
        TypeError
            If `stored` is no mapping, or has other fields.
        ValueError
            If it names no event, its fields are out of range, or it is nested too deeply.
        """
        if not isinstance(stored, dict):
            raise TypeError("An event is stored as a mapping.")
        values = dict(stored)
        name = values.pop("type", None)
        kind = EVENTS.get(name) if isinstance(name, str) else None
        if kind is None or depth > _DEEPEST:
            problem = "name an event that is not known" if kind is None else "are nested too deeply"
            raise ValueError(f"The stored events {problem}.")
        if "events" in values:
            parts = values["events"]
            values["events"] = [Event.from_dict(part, depth=depth + 1) for part in parts]
        return kind(**values)

    def __str__(self) -> str:
        """Return the fields that were chosen, without the relation and the label."""
        chosen = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if item.name not in ("relation", "label") and getattr(self, item.name) != item.default
        ]
        return f"{type(self).__name__}({', '.join(chosen)})"

    def _of_one_record(self, text: str) -> str:
        """Say a sentence about the replacement of a record for the relation of this event."""
        replaced = self.relation is Relation.REPLACE_ONE
        return text if replaced else text.replace("replacing", "adding or removing")

    def _check_lattice(self, sigma: float, lattice: float | None) -> None:
        if lattice is not None and sigma < lattice:
            raise self._error(
                "lattice",
                f"must not exceed sigma, got lattice={lattice!r} and sigma={sigma!r}; use a finer "
                "lattice or more noise",
            )
