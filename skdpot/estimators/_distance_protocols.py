"""The protocols by name, and what the estimator asks of each."""

from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from skdpot.estimators._distance_estimate import DistanceEstimate
from skdpot.estimators._distance_parts import Frames
from skdpot.estimators._plain_distance import NOT_PRIVATE, FedwadProtocol, TriangleProtocol
from skdpot.estimators._sliced_distance import SlicedProtocol
from skdpot.federated.messages import Message

__all__ = ["NOT_PRIVATE", "PROTOCOLS", "DistanceProtocol"]


class DistanceProtocol(Protocol):
    """What the estimator asks of a protocol."""

    def fit(self, estimator: BaseEstimator, X: Any, y: Any, masses: Any) -> None:
        """Set the fitted attributes, after charging for what will be sent."""

    def advise(self, estimator: BaseEstimator) -> None:
        """Warn of what a fitted estimator's owner should know."""

    def compare(
        self, estimator: BaseEstimator, other: Any, y: Any, masses: Any
    ) -> DistanceEstimate:
        """Estimate the distance to another party, or to the union of several."""

    def publish(self, estimator: BaseEstimator, X: Any, y: Any) -> Message:
        """Return what a party sends; the fitted one if X is None."""

    def numbers(self, message: Any) -> np.ndarray:
        """Return the numbers in what a party sends."""

    def values(self, estimator: BaseEstimator, X: Any, y: Any) -> np.ndarray:
        """Return the data value of each row of X."""

    def matrix(self, estimator: BaseEstimator, parties: Any) -> Frames:
        """Return distances between parties, and their standard errors."""


PROTOCOLS: dict[str, DistanceProtocol] = {
    "sliced": SlicedProtocol(),
    "triangle": TriangleProtocol(),
    "fedwad": FedwadProtocol(),
}
