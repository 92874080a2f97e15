"""Messages that are distances, without noise. They are not private either."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from skdpot.exceptions import MessageError
from skdpot.federated.message_base import (
    Content,
    Message,
    as_costs,
    as_fractions,
    as_masses,
    as_squared_distance,
    present,
)
from skdpot.federated.wire import Packet

__all__ = ["CostMatrices", "DistanceMessage", "DistancesAtFractions"]


@dataclass(frozen=True, eq=False, repr=False)
class DistancesAtFractions(Message):
    """Squared distances of a party's interpolating measures from the asker's, to the asker.

    Reveals one exact number for each fraction. **That is little for one request, but not
    private.** Every row moves these numbers, and no noise covers it: who knows all rows but one
    can test with certainty whether the last one is a given person. And the asker chooses the
    measure. Asked about one single point p the answer is ``‖p - mean‖² + variance``, so that
    requests about d + 1 points give the mean of the rows exactly; a measure with a little
    mass far away in one direction finds the rows that are outermost there.

    Parameters
    ----------
    fractions : array-like of shape (n_fractions,)
        The fractions that were asked for.
    squared_distances : array-like of shape (n_fractions,)
        W₂² between the two measures at each fraction.

    Raises
    ------
    MessageError
        If a value is out of range.
    """

    fractions: np.ndarray
    squared_distances: np.ndarray

    kind: ClassVar[str] = "distances at fractions"
    _ARRAYS = frozenset({"fractions", "squared_distances"})
    _REVEALS = (
        "A few exact distances to the asker: enough to test with certainty for one row when the "
        "others are known, and to find rows after many requests."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        fractions = as_fractions(self.fractions)
        distances = as_costs("squared_distances", self.squared_distances, fractions.shape)
        object.__setattr__(self, "fractions", fractions)
        object.__setattr__(self, "squared_distances", distances)

    def _content(self) -> Content:
        distances = self.squared_distances
        return {}, {"fractions": self.fractions, "squared_distances": distances}


@dataclass(frozen=True, eq=False, repr=False)
class CostMatrices(Message):
    """Squared distances of each of a party's moved rows from the asker's points, to the asker.

    **Reveals every row exactly to the asker as soon as it has sent more points than there are
    features.** The asker knows its points p_j, and the squared distances ``‖η_i - p_j‖²`` from
    d + 1 of them in general position give η_i by linear equations (trilateration, as in a GPS
    receiver). With fewer points the asker learns the projection of η_i on their span, and its
    distance from it. The rows follow: one plan serves all fractions, so that
    ``x_i = (s' η_i(s) - s η_i(s')) / (s' - s)`` from any two of them, without the plan
    or the reference. The masses are told as they are.

    Parameters
    ----------
    fractions : array-like of shape (n_fractions,)
        The fractions that were asked for.
    costs : array-like of shape (n_fractions, n_rows, n_points)
        Squared Euclidean distances.
    masses : array-like of shape (n_rows,), optional
        Shares of the party's points; None for equal ones.

    Raises
    ------
    MessageError
        If a value is out of range.
    """

    fractions: np.ndarray
    costs: np.ndarray
    masses: np.ndarray | None = None

    kind: ClassVar[str] = "cost matrices"
    _ARRAYS = frozenset({"fractions", "costs", "masses"})
    _OPTIONAL = frozenset({"masses"})
    _REVEALS = (
        "Every row of the sender, exactly, to the asker: squared distances to more known points "
        "than there are features locate each row."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        fractions = as_fractions(self.fractions)
        costs = as_costs("costs", self.costs, (len(fractions), None, None))
        object.__setattr__(self, "fractions", fractions)
        object.__setattr__(self, "costs", costs)
        object.__setattr__(self, "masses", as_masses(self.masses, costs.shape[1]))

    def _content(self) -> Content:
        arrays = present(fractions=self.fractions, costs=self.costs, masses=self.masses)
        return {}, arrays


@dataclass(frozen=True, eq=False, repr=False)
class DistanceMessage(Message):
    """One squared distance: of a party's rows from a measure, to the server, or a result.

    Reveals one exact number to the recipient. **A number is not private because it is one
    number.** It moves with every row, and no noise covers it: who knows all rows but one can
    test with certainty whether the last one is a given person. Who may ask for distances from
    measures of its own choice learns more with each answer: from single points the mean of the
    rows after d + 1 of them, from others single rows.

    As a result, from the server to the parties, it is a function of both parties' rows, and tells
    each of them that much about the other's.

    Parameters
    ----------
    squared_distance : float
        W₂².

    Raises
    ------
    MessageError
        If the number is out of range.
    """

    squared_distance: float

    kind: ClassVar[str] = "distance"
    _ARRAYS = frozenset({"squared_distance"})
    _REVEALS = (
        "One exact distance to the recipient: enough to test with certainty for one row when the "
        "others are known."
    )

    def __post_init__(self) -> None:
        """Check the number."""
        squared = as_squared_distance(self.squared_distance)
        object.__setattr__(self, "squared_distance", squared)

    def _content(self) -> Content:
        return {}, {"squared_distance": np.array(self.squared_distance)}

    @classmethod
    def _from_packet(cls, packet: Packet) -> Self:
        number = packet.arrays["squared_distance"]
        if number.ndim:
            raise MessageError("squared_distance must be one number.")
        return cls(float(number))
