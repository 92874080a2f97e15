"""Where a party's rows are kept, out of reach of everything that walks over the party."""

import threading
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from skdpot.exceptions import MessageError, ProtocolRefusedError
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plans import TransportPlan, optimal_plan
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import NonPrivateEvent

__all__ = ["Terms", "Vault", "lock_away", "vault_of"]


@dataclass(frozen=True)
class Terms:
    """What the owner of a party has agreed to.

    Parameters
    ----------
    allows : tuple of str
        Protocols.
    epsilon, delta : float
        Privacy parameters of each sketch.
    budget : PrivacyBudget or None
        What is charged.
    solver : str
        How plans are computed.
    random_state : int, RandomState or None
        Makes noise reproducible, in tests.
    """

    allows: tuple[str, ...]
    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    solver: str
    random_state: Any


@dataclass(eq=False, repr=False)
class Vault:
    """Everything that a party has.

    Parameters
    ----------
    name : str
        Name of the party.
    rows : ndarray of shape (n_samples, n_features)
        Its rows.
    feature_names : tuple of str or None
        Names of the columns.
    terms : Terms
        What its owner has agreed to.
    given_measure : DiscreteMeasure or None
        Rows with labels or weights; None when these are the rows alone.
    weighted : bool
        Whether rows have weights.
    """

    name: str
    rows: np.ndarray
    feature_names: tuple[str, ...] | None
    terms: Terms
    given_measure: DiscreteMeasure | None = None
    weighted: bool = False
    releases: dict[bytes, Any] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    _last_plan: TransportPlan | None = None

    @property
    def n_dimensions(self) -> int:
        """Dimension of the measure that is compared without privacy."""
        given = self.given_measure
        return int(self.rows.shape[1]) if given is None else given.n_features

    @property
    def measure(self) -> DiscreteMeasure:
        """What the protocols that are not private compare."""
        with self.lock:
            if self.given_measure is None:
                self.given_measure = DiscreteMeasure(self.rows)
            return self.given_measure

    def check_agreed(self, protocol: str) -> None:
        """Refuse what the owner has not agreed to; the first thing in every answer."""
        if protocol not in self.terms.allows:
            raise ProtocolRefusedError(
                f"Party {self.name!r} does not take part in {protocol!r}: it allows "
                f"{self.terms.allows}. Only its owner can allow more, with Party(..., allows=)."
            )

    def check_features(self, asked: int, due: int) -> None:
        """Refuse a question about other features."""
        if asked != due:
            raise MessageError(
                f"Party {self.name!r} compares {due} features, and was asked about {asked}."
            )

    def plan_to(self, target: DiscreteMeasure, protocol: str, release: str) -> TransportPlan:
        """Return the optimal plan to a measure, for a release without noise.

        Parameters
        ----------
        target : DiscreteMeasure
            The measure.
        protocol : str
            What the owner must have agreed to.
        release : str
            What is released, for the budget's history.

        Returns
        -------
        TransportPlan
            The last one is kept, for a second question about the same measure.

        Privacy
        -------
        Charges a `NonPrivateEvent` first, which no budget with a finite epsilon admits.
        """
        self.check_agreed(protocol)
        self.check_features(target.n_features, self.n_dimensions)
        if self.terms.budget is not None:
            self.terms.budget.spend(NonPrivateEvent(), label=f"{protocol}: {release}")
        with self.lock:
            last = self._last_plan
            if last is None or not _equal(last.target, target):
                last = optimal_plan(self.measure, target, solver=self.terms.solver)
                self._last_plan = last
            return last


# Vaults are no attributes of parties. So no pickle, copy, repr or debugger's table of fields,
# and no code that looks through all attributes of an object, comes across rows.
_VAULTS: WeakKeyDictionary[object, Vault] = WeakKeyDictionary()


def lock_away(owner: object, vault: Vault) -> None:
    """Keep the vault of a party as long as the party lives."""
    _VAULTS[owner] = vault


def vault_of(owner: object) -> Vault:
    """Return the vault of a party, for its own methods."""
    return _VAULTS[owner]


def _equal(first: DiscreteMeasure, second: DiscreteMeasure) -> bool:
    return np.array_equal(first.points, second.points) and np.array_equal(
        first.weights, second.weights
    )
