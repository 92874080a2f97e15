"""What a protocol is to the estimator of distances: the declared interface of its mechanisms."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.distance.estimates import DistanceEstimate, PairwiseResult
from skdpot.distance.messages import Message
from skdpot.distance.party import Party
from skdpot.privacy.budget import PrivacyBudget
from skdpot.sources import Source

Side = TypeVar("Side")


class DistanceProtocol(Mechanism, ABC, Generic[Side]):
    """Abstract base class of the protocols of `PrivateWassersteinDistance`.

    `fit` calls `release` once and keeps its value, the *side* of the fitted party. It stores the
    attributes of the result and calls `advise`. All other methods are called afterwards, any number
    of times, and get the side as their first argument; `matrix` also works without a fit. The other
    side of a comparison is public rows, a `Party`, a published message, or the side of another
    fitted estimator.

    A private protocol reads private rows in `release`, `publish` and `matrix` only, each time after
    a charge; what the other methods return follows from releases and public rows. A protocol that
    is not private charges a `NonPrivateEvent`, which no budget with a finite epsilon admits.

    Attributes
    ----------
    name : str
        Name of the protocol, which a `Party` must allow.
    is_private : bool
        Whether what parties send is differentially private.
    fewest_rows : int
        Number of rows that a side must have.
    messages : tuple of type
        Classes of published messages that `compare` takes.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool]
    fewest_rows: ClassVar[int]
    messages: ClassVar[tuple[type[Message], ...]]

    @abstractmethod
    def release(
        self,
        context: FitContext,
        rows: np.ndarray | Source,
        y: ArrayLike | None,
        masses: ArrayLike | None,
    ) -> MechanismResult:
        """Charge, and make the side of the fitted party, the `value` of the result.

        `rows` of shape (n_samples, n_features), classes `y` and weights `masses` of shape
        (n_samples,) are private. The estimator stores the `attributes` of the result.
        """

    @abstractmethod
    def advise(self, side: Side, /) -> None:
        """Warn of what the user should know about a fit; only public facts are read."""

    @abstractmethod
    def compare(
        self, side: Side, /, other: Any, y: ArrayLike | None, masses: ArrayLike | None
    ) -> DistanceEstimate:
        """Estimate the distance to the other side, or to the union of a tuple of sides.

        `y` and `masses`, of shape (n_rows,), belong to `other` if it is rows.
        """

    @abstractmethod
    def publish(self, context: FitContext, side: Side, /, X: Any, y: ArrayLike | None) -> Message:
        """Return the message of the fitted party, or of the rows X (n_rows, n_features)."""

    @abstractmethod
    def numbers(self, message: Any) -> np.ndarray:
        """Return the numbers of a message of `publish` as an array of two dimensions."""

    @abstractmethod
    def values(self, side: Side, /, rows: np.ndarray, y: ArrayLike | None) -> np.ndarray:
        """Return the data value of each of n public rows, of shape (n,)."""

    @abstractmethod
    def barycenter(
        self, side: Side, /, others: list[Any], weights: ArrayLike | None, n_points: int
    ) -> np.ndarray:
        """Return points (n_points, n_features) of the barycenter; the side has the first weight."""

    @abstractmethod
    def matrix(self, context: FitContext, side: Side | None, /, parties: Any) -> PairwiseResult:
        """Estimate the distances between all parties, which `parties_of` reads."""


def holds_parties(parties: Any) -> bool:
    """Whether the parties of a matrix are `Party` objects, which pay for themselves."""
    return isinstance(parties, list | tuple) and len(parties) > 0 and isinstance(parties[0], Party)


def parties_of(
    parties: Any, protocol: str, new_budget: Callable[[], PrivacyBudget | None], **terms: Any
) -> list[Party]:
    """Return the parties of a matrix; rows get a party of their own, with a budget."""
    is_sequence = isinstance(parties, list | tuple)
    is_mixed = is_sequence and len({isinstance(party, Party) for party in parties}) > 1
    if is_mixed or not (is_sequence or isinstance(parties, Mapping)):
        raise TypeError(
            "parties must be a list of Party, a list of rows, or a mapping of names to rows."
        )
    if len(parties) < 2:
        raise ValueError(f"parties must hold two parties or more, got {len(parties)}.")
    if holds_parties(parties):
        return list(parties)
    if is_sequence:
        parties = {str(position): rows for position, rows in enumerate(parties)}
    return [
        Party(name, rows, allows=(protocol,), budget=new_budget(), **terms)
        for name, rows in parties.items()
    ]
