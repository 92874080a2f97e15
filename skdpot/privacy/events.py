r"""Frozen descriptions of everything that touches private data.

An event holds public facts only: the noise, the sensitivity, how often and on which
sample. It keeps `sigma` and `sensitivity` apart, because a bare "noise multiplier" does not
say what it is a multiple of: the clipping norm, or the distance between neighbours.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, SupportsIndex

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.gdp import ApproximateGDP, Step, leak_of_steps, mu_of_steps, step_mu
from skdpot.privacy.loss_distribution import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    PoissonRowsStep,
    SubsetStep,
    sampled_step_mu,
)


class Relation(StrEnum):
    """The change of one record against which a release must be insensitive."""

    REPLACE_ONE = "replace_one"
    ADD_REMOVE = "add_or_remove_one"


Check = Callable[[Any], Any]
Steps = Iterator[tuple[Any, int]]  # each a `Step`, or one of which there are `losses`


def _check(convert: Check, holds: Callable[[Any], bool], text: str) -> Check:
    """Return a check for what can be converted to something of which `holds` is true."""

    def check(value: Any) -> Any:
        with suppress(TypeError, ValueError):
            if not isinstance(value, bool) and holds(converted := convert(value)):
                return converted
        raise ValueError(text)

    return check


def _real(value: Any) -> float:
    return math.nan if isinstance(value, str) else float(value)  # of NaN nothing holds


positive = _check(_real, lambda x: 0.0 < x < math.inf, "must be a finite number > 0")
rate_of_sampling = _check(_real, lambda x: 0.0 < x <= 1.0, "must lie in (0, 1]")
probability = _check(_real, lambda x: 0.0 <= x < 1.0, "must lie in [0, 1)")
shape_of_law = _check(_real, lambda x: x >= -0.5, "must be at least -0.5, or infinity")
count = _check(operator.index, lambda n: n >= 1, "must be an integer >= 1")
counts = _check(lambda v: tuple(map(count, v)), bool, "must hold one or more integers >= 1")
_relation = _check(Relation, bool, f"must be one of {', '.join(repr(str(r)) for r in Relation)}")
_text = _check(lambda v: v, lambda v: isinstance(v, str), "must be a str")


def or_none(check: Check) -> Check:
    """Return a check that lets None pass."""
    return lambda value: None if value is None else check(value)


def check_group_size(group_size: SupportsIndex) -> int:
    """Return `group_size` as an integer of at least one, or say what is wrong with it."""
    try:
        size: int = count(group_size)
    except ValueError:
        raise ValueError(
            f"`group_size` must be an integer >= 1, got {group_size!r}: the largest number of "
            "rows that one person has."
        ) from None
    return size


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
    # Whether a file may state it: its account takes no time, whoever sends the file.
    in_files: ClassVar[bool] = False
    is_budget: ClassVar[bool] = False  # whatever was done within its mu

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
        return own()

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
        event: Event | None = own and own(size)
        if event is None:
            raise UnknownEventError(
                f"It is not known what {self} costs a person with {size} rows; use group_size=1, "
                "with one row a person."
            )
        return event

    def group_leak(self, group_size: int) -> float:
        """Bound the probability that everything of a group is told; 1 where no bound is known.

        Otherwise the release is k mu-GDP, for the mu of one record without sampling.
        """
        return 0.0 if self.to_gdp().leak == 0.0 else 1.0

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


def _noise_words(event: "GaussianEvent | SampledGaussianEvent") -> str:
    return event._of_one_record(
        f"every number has Gaussian noise of standard deviation {event.sigma:.4g}, and "
        f"replacing one record moves all numbers of a release together by at most "
        f"{event.sensitivity:.4g}"
    )


def _releases(n_steps: int) -> str:
    return f"{n_steps:,} releases, one after the other" if n_steps > 1 else "1 release"


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """`n_steps` statistics, each released once with Gaussian noise.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate.
    sensitivity : float
        Largest L2 distance between the statistics of neighbouring data sets.
    n_steps : int, default=1
        Number of such releases; later ones may depend on earlier ones.
    lattice : float or None, default=None
        Spacing g of the lattice on which discrete Gaussian noise is drawn; the statistic
        must lie on it. ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`.
    label : str, default=""
        What is released, for reports.

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
        """The event is mu-GDP: at least as private as telling N(0, 1) from N(mu, 1)."""
        return math.sqrt(self.n_steps) * step_mu(self.sigma, self.sensitivity, self.lattice)

    def _steps(self) -> Steps:
        yield Step(step_mu(self.sigma, self.sensitivity, self.lattice)), self.n_steps

    def _grouped(self, group_size: int) -> Event:
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        releases = _releases(self.n_steps)
        return f"{releases}, of numbers computed from all records: {_noise_words(self)}."


@dataclass(frozen=True, kw_only=True)
class SampledGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on a fresh, secret sample of the records.

    Nobody learns which records took part in a step, and every step draws its sample independently
    of all others. An epoch of a shuffled data loader is not such a draw.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        L2 sensitivity of the statistic as a function of the *batch*, under `relation`. For a
        Poisson sample under replace-one it is 2C for a sum of vectors clipped to norm C; without
        `clipped_sum` it must bound both what replacing a record of the batch does and what adding
        or removing one does.
    sampling : {"fixed_size", "poisson", "poisson_rows"}
        "fixed_size": from each group j of ``group_sizes[j]`` records a uniformly random subset of
        ``batch_sizes[j]`` is drawn without replacement; the sizes are public. "poisson": each
        record takes part with probability `sampling_rate`, independently of the others, and the
        size of the sample stays hidden. "poisson_rows": the same, but one vector a record of the
        sample is released, in uniformly random order or sorted after the noise, so that anyone can
        count them.
    sampling_rate : float or None, default=None
        Probability in (0, 1] that a record takes part in a step of a Poisson sample.
    n_samples : int or None, default=None
        Number of records, for "poisson_rows".
    batch_sizes : tuple of int or None, default=None
        For "fixed_size": records drawn from each group (one entry when there are no groups).
    group_sizes : tuple of int or None, default=None
        For "fixed_size": records in each group.
    n_steps : int
        Number of steps.
    clipped_sum : bool, default=False
        For "poisson" under replace-one: the statistic is a sum, over the records of the batch, of
        one vector a record, and each moves the sum, rounded if there is a lattice, by at most
        ``sensitivity / 2``. This admits a tighter account.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`; replace-one unless `sampling` is "poisson",
        since sizes of samples reveal the number of records.
    label : str, default=""
        What is released, for reports.

    Raises
    ------
    ValueError
        If a field is out of range, is not for this `sampling`, or the sizes do not match.
    """

    sigma: float
    sensitivity: float
    sampling: str
    sampling_rate: float | None = None
    n_samples: int | None = None
    batch_sizes: tuple[int, ...] | None = None
    group_sizes: tuple[int, ...] | None = None
    n_steps: int
    clipped_sum: bool = False
    lattice: float | None = None

    _checks = GaussianEvent._checks | {"clipped_sum": bool}
    _of_sample: ClassVar[dict[str, Check]] = {
        "sampling_rate": rate_of_sampling,
        "n_samples": count,
        "batch_sizes": counts,
        "group_sizes": counts,
    }
    _read: ClassVar[dict[str, tuple[str, ...]]] = {
        "fixed_size": ("batch_sizes", "group_sizes"),
        "poisson": ("sampling_rate",),
        "poisson_rows": ("sampling_rate", "n_samples"),
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.sampling not in self._read:
            allowed = ", ".join(map(repr, self._read))
            raise self._error("sampling", f"must be one of {allowed}, got {self.sampling!r}")
        for name, check in self._of_sample.items():
            if name in self._read[self.sampling]:
                self._store(name, check)
            elif getattr(self, name) is not None:
                raise self._error(name, f"is not for sampling={self.sampling!r}")
        self._check_sizes()
        self._check_relation()
        if self.sampling == "poisson":
            sampled_step_mu(self.sigma, self.sensitivity, self.lattice)  # refuses coarse lattices

    def _check_sizes(self) -> None:
        drawn, of = self.batch_sizes or (), self.group_sizes or ()
        if len(drawn) != len(of):
            raise ValueError(
                f"{type(self).__name__}: `batch_sizes` and `group_sizes` must have one entry a "
                f"group, got {len(drawn)} and {len(of)} entries."
            )
        if any(b > n for b, n in zip(drawn, of, strict=True)):
            raise self._error("batch_sizes", f"must not exceed `group_sizes`, got {drawn} of {of}")

    def _check_relation(self) -> None:
        if self.clipped_sum and self.sampling != "poisson":
            raise self._error("clipped_sum", f"is not for sampling={self.sampling!r}")
        if self.relation is Relation.REPLACE_ONE:
            return
        if self.clipped_sum:
            raise self._error(
                "clipped_sum",
                "says that the sensitivity is twice the clipping norm, which holds under "
                f"replace-one only, not {str(self.relation)!r}",
            )
        if self.sampling != "poisson":
            raise self._error(
                "relation",
                f"must be 'replace_one', got {str(self.relation)!r}; samples of which the size "
                "shows reveal the number of records",
            )

    @property
    def mu(self) -> float:
        """Privacy of one step on all records."""
        coins = self.sampling == "poisson"
        return (sampled_step_mu if coins else step_mu)(self.sigma, self.sensitivity, self.lattice)

    @property
    def rate(self) -> float:
        """Probability that a record takes part in a step, in the group where it is largest."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        sizes = zip(self.batch_sizes or (), self.group_sizes or (), strict=True)
        return max(b / n for b, n in sizes)

    @property
    def n_records(self) -> int | None:
        """Public number of records, if the event depends on it."""
        return sum(self.group_sizes) if self.group_sizes else self.n_samples

    def _steps(self) -> Steps:
        mu, rate = self.mu, self.rate
        step: Any = SubsetStep(mu, rate)
        if rate == 1.0:  # a sample of everything is no sample
            step = Step(mu)
        elif self.n_samples is not None:
            step = PoissonRowsStep(mu, rate, self.n_samples)
        elif self.relation is Relation.ADD_REMOVE:
            step = PoissonAddRemoveStep(mu, rate)
        elif self.clipped_sum:
            step = PoissonClippedSumStep(mu, rate)
        yield step, self.n_steps

    def _grouped(self, group_size: int) -> Event | None:
        if self.sampling != "poisson":
            return None
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        kind = "one vector a record of" if self.sampling == "poisson_rows" else "from"
        batch = f"a secret sample, in which each record is with probability {self.rate:.4g}"
        if self.sampling == "fixed_size":
            drawn, of = (
                " + ".join(f"{k:,}" for k in n or ()) for n in (self.batch_sizes, self.group_sizes)
            )
            batch = f"{drawn} records drawn afresh and secretly from {of}"
        return f"{_releases(self.n_steps)}, each computed {kind} {batch}: {_noise_words(self)}."


@dataclass(frozen=True, kw_only=True)
class ComposedEvent(Event):
    """Several events on the same records, all fixed before the first one starts.

    Parameters
    ----------
    events : tuple of Event
        The phases, all under one relation, which becomes the relation of the composition.

    Raises
    ------
    ValueError
        If there is no event, or the relations differ.
    """

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
        """The single events that this one consists of, however they are nested."""
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
        """Bound the probability that a phase tells everything of a group; at most 1."""
        return min(1.0, math.fsum(event.group_leak(group_size) for event in self.events))

    def describe(self) -> str:
        """Return a sentence on each phase: what it releases, with which noise."""
        return " ".join(phase.describe() for phase in self.phases)

    def __str__(self) -> str:
        """Return the events, each with the fields that were chosen."""
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
