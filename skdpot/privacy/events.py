"""Frozen descriptions of everything that touches private data.

An event holds public facts only: the noise, the sensitivity, how often and on which
sample. It keeps `sigma` and `sensitivity` apart, because a bare "noise multiplier" does not
say what it is a multiple of: the clipping norm, or the distance between neighbours.
"""

import math
from dataclasses import dataclass, field

from skdpot.privacy.event_base import (
    Event,
    lattice_spacing,
    positive_float,
    positive_int,
    step_mu,
)
from skdpot.privacy.relation import Relation
from skdpot.privacy.sampled_events import (
    FixedSizeGaussianEvent,
    PoissonGaussianEvent,
    PoissonRowsGaussianEvent,
)
from skdpot.privacy.selection_event import BudgetedEvent, PrivateSelectionEvent
from skdpot.privacy.thresholded_event import ThresholdedCountsEvent

__all__ = [
    "BudgetedEvent",
    "ComposedEvent",
    "Event",
    "FixedSizeGaussianEvent",
    "GaussianEvent",
    "NonPrivateEvent",
    "PoissonGaussianEvent",
    "PoissonRowsGaussianEvent",
    "PrivateSelectionEvent",
    "ThresholdedCountsEvent",
]


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
        self._store("sigma", positive_float(self, "sigma", self.sigma))
        self._store("sensitivity", positive_float(self, "sensitivity", self.sensitivity))
        self._store("n_steps", positive_int(self, "n_steps", self.n_steps))
        self._store("lattice", lattice_spacing(self, self.lattice, self.sigma))

    @property
    def mu(self) -> float:
        """The event is mu-GDP: at least as private as telling N(0, 1) from N(mu, 1)."""
        return math.sqrt(self.n_steps) * step_mu(self.sigma, self.sensitivity, self.lattice)


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
