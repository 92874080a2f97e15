"""Frozen descriptions of everything that touches private data.

An event holds public facts only: the noise, the sensitivity, how often and on which
sample. It keeps `sigma` and `sensitivity` apart, because a bare "noise multiplier" does not
say what it is a multiple of: the clipping norm, or the distance between neighbours.
"""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import SupportsFloat, SupportsIndex

from skdpot.privacy.relation import Relation

__all__ = [
    "ComposedEvent",
    "Event",
    "FixedSizeGaussianEvent",
    "GaussianEvent",
    "NonPrivateEvent",
    "PoissonGaussianEvent",
]


def _positive_float(owner: object, name: str, value: SupportsFloat) -> float:
    """Return `value` as a finite positive float or name the field that is wrong."""
    if isinstance(value, bool | str):
        number = math.nan
    else:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must be a finite number > 0, got {value!r}."
        )
    return number


def _positive_int(owner: object, name: str, value: SupportsIndex) -> int:
    """Return `value` as an integer of at least one or name the field that is wrong."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must be an integer >= 1, got {value!r}."
        )
    return number


def _positive_ints(owner: object, name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return `values` as a non-empty tuple of integers of at least one."""
    try:
        numbers = tuple(_positive_int(owner, name, value) for value in values)
    except TypeError:
        numbers = ()
    if not numbers:
        raise ValueError(
            f"{type(owner).__name__}: `{name}` must hold one or more integers >= 1, got {values!r}."
        )
    return numbers


def _as_relation(owner: object, value: Relation | str) -> Relation:
    """Return `value` as a `Relation` or say which relations there are."""
    try:
        return Relation(value)
    except ValueError:
        allowed = ", ".join(repr(str(relation)) for relation in Relation)
        raise ValueError(
            f"{type(owner).__name__}: `relation` must be one of {allowed}, got {value!r}."
        ) from None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of the events.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation under which `sensitivity` was derived.

    Raises
    ------
    ValueError
        If a field is out of range; the message names the field.
    """

    relation: Relation = Relation.REPLACE_ONE

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        self._store("relation", _as_relation(self, self.relation))

    def _store(self, name: str, value: object) -> None:
        """Set a field of the frozen instance while it is being made."""
        object.__setattr__(self, name, value)


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

    Raises
    ------
    ValueError
        If a field is out of range, or `sigma` is smaller than `lattice`.
    """

    sigma: float
    sensitivity: float
    n_steps: int = 1
    lattice: float | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", _positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", _positive_float(self, "sensitivity", self.sensitivity))
        self._store("n_steps", _positive_int(self, "n_steps", self.n_steps))
        if self.lattice is None:
            return
        self._store("lattice", _positive_float(self, "lattice", self.lattice))
        if self.sigma < self.lattice:
            raise ValueError(
                f"GaussianEvent: `lattice` must not exceed sigma, got lattice={self.lattice!r} "
                f"and sigma={self.sigma!r}; use a finer lattice or more noise."
            )

    @property
    def mu(self) -> float:
        """The event is mu-GDP: at least as private as telling N(0, 1) from N(mu, 1).

        On a lattice the ratio grows by 1 + 1 / (20 s^2), s = sigma / g: a discrete Gaussian
        is not dominated by the continuous one, its excess is about 1 / (24 s^2).
        """
        mu = math.sqrt(self.n_steps) * self.sensitivity / self.sigma
        if self.lattice is None:
            return mu
        return mu * (1.0 + (self.lattice / self.sigma) ** 2 / 20.0)


@dataclass(frozen=True, kw_only=True)
class PoissonGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on its own secret Poisson sample.

    In every step each record takes part with probability `sampling_rate`, independently of
    the other records and of all other steps, and nobody learns who took part.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        L2 sensitivity of the batch statistic under `relation`. Under replace-one it is 2C for
        a sum of vectors clipped to norm C; without `clipped_sum` it must bound both what
        replacing a record of the batch does and what adding or removing one does.
    sampling_rate : float
        Probability in (0, 1] that a record takes part in a step.
    n_steps : int
        Number of steps.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`.
    clipped_sum : bool, default=False
        Under replace-one: the statistic is a sum, over the records of the batch, of one
        vector a record with norm at most ``sensitivity / 2``. This admits a tighter account.

    Raises
    ------
    ValueError
        If a field is out of range, or `clipped_sum` is set under another relation.
    """

    sigma: float
    sensitivity: float
    sampling_rate: float
    n_steps: int
    clipped_sum: bool = False

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", _positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", _positive_float(self, "sensitivity", self.sensitivity))
        self._store("sampling_rate", _positive_float(self, "sampling_rate", self.sampling_rate))
        self._store("n_steps", _positive_int(self, "n_steps", self.n_steps))
        self._store("clipped_sum", bool(self.clipped_sum))
        if self.sampling_rate > 1.0:
            raise ValueError(
                "PoissonGaussianEvent: `sampling_rate` must lie in (0, 1], "
                f"got {self.sampling_rate!r}."
            )
        if self.clipped_sum and self.relation is not Relation.REPLACE_ONE:
            raise ValueError(
                "PoissonGaussianEvent: `clipped_sum` says that the sensitivity is twice the "
                f"clipping norm, which holds under replace-one only, not {str(self.relation)!r}."
            )


@dataclass(frozen=True, kw_only=True)
class FixedSizeGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on fresh subsets of fixed, public sizes.

    In every step, from each group j of ``group_sizes[j]`` records a uniformly random subset
    of ``batch_sizes[j]`` is drawn without replacement, independently of all other steps, and
    kept secret. An epoch of a shuffled data loader is not such a draw.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        Replace-one L2 sensitivity of the statistic as a function of the *batch*.
    batch_sizes : tuple of int
        Records drawn from each group (one entry when there are no groups).
    group_sizes : tuple of int
        Records in each group.
    n_steps : int
        Number of steps.
    relation : Relation, default=Relation.REPLACE_ONE
        Only replace-one keeps the sizes public.

    Raises
    ------
    ValueError
        If a field is out of range, the sizes do not match, or the relation is another one.
    """

    sigma: float
    sensitivity: float
    batch_sizes: tuple[int, ...]
    group_sizes: tuple[int, ...]
    n_steps: int

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", _positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", _positive_float(self, "sensitivity", self.sensitivity))
        self._store("batch_sizes", _positive_ints(self, "batch_sizes", self.batch_sizes))
        self._store("group_sizes", _positive_ints(self, "group_sizes", self.group_sizes))
        self._store("n_steps", _positive_int(self, "n_steps", self.n_steps))
        if len(self.batch_sizes) != len(self.group_sizes):
            raise ValueError(
                "FixedSizeGaussianEvent: `batch_sizes` and `group_sizes` must have one entry a "
                f"group, got {len(self.batch_sizes)} and {len(self.group_sizes)} entries."
            )
        if any(b > n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True)):
            raise ValueError(
                "FixedSizeGaussianEvent: `batch_sizes` must not exceed `group_sizes`, got "
                f"{self.batch_sizes} of {self.group_sizes}."
            )
        if self.relation is not Relation.REPLACE_ONE:
            raise ValueError(
                "FixedSizeGaussianEvent: `relation` must be 'replace_one', got "
                f"{str(self.relation)!r}; batches of a fixed size make the group sizes public."
            )

    @property
    def sampling_rate(self) -> float:
        """The largest share of a group that one batch holds."""
        return max(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))


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
        self._store("events", events)
        self._store("relation", relations.pop())


@dataclass(frozen=True, kw_only=True)
class NonPrivateEvent(Event):
    """A release without noise: epsilon is infinite and no finite budget admits it.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        The relation of the ledger or composition that it belongs to.
    """
