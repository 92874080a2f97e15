"""TriangleWad and FedWad behind the estimator. Not private."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.notices import warn_not_private
from skdpot._utils.validation import validate_rows
from skdpot.estimators._distance_estimate import DistanceEstimate
from skdpot.estimators._distance_parts import (
    OTHER,
    Frames,
    as_parties,
    check_other,
    check_rows,
    is_union,
    square,
)
from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.geodesic import drawn_fractions
from skdpot.federated.measures import gaussian_reference
from skdpot.federated.messages import (
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
)
from skdpot.federated.party import Party
from skdpot.federated.plans import optimal_plan
from skdpot.federated.protocols import (
    PairwiseResult,
    fedwad,
    pairwise_fedwad,
    pairwise_triangle,
    triangle,
    triangle_to_union,
)
from skdpot.federated.triangle import rescaled
from skdpot.federated.valuation import calibrated_values
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import charge

__all__ = ["NOT_PRIVATE", "FedwadProtocol", "TriangleProtocol"]

NOT_PRIVATE = {
    "triangle": (
        'protocol="triangle" is not private: whoever sees the message of a party and knows the '
        "shared reference and t, as the server does, recovers every row of it exactly, in the "
        "time of one optimal transport (skdpot.audit.reconstruction shows it). "
        'protocol="sliced" is differentially private.'
    ),
    "fedwad": (
        'protocol="fedwad" is not private: the server recovers every row of both parties from '
        "the first round, and each party those of the other from the last "
        '(skdpot.audit.reconstruction shows it). protocol="sliced" is differentially private.'
    ),
}

_numbers = count(1)  # parties that meet need different names


class PlainProtocol:
    """What the two protocols that are not private have in common."""

    name: str

    def fit(self, estimator: BaseEstimator, X: Any, y: Any, masses: Any) -> None:
        """Keep the rows, and draw what the parties share."""
        n_samples = len(validate_rows(estimator, X, reset=True, min_samples=2))
        own = self._party(estimator, f"fitted party {next(_numbers)}", X, y, masses)
        reference = gaussian_reference(
            estimator.n_support or n_samples,
            own.n_dimensions,
            mean=estimator.gamma_mean,
            scale=estimator.gamma_scale,
            rng=np.random.default_rng(estimator.shared_seed),
        )
        estimator.privacy_spent_ = charge(
            estimator.budget,
            NonPrivateEvent(),
            epsilon=np.inf,
            delta=estimator.delta,
            n_samples=n_samples,
            label=type(estimator).__name__,
            assumptions=(),
            sigma=None,
            sensitivity=None,
            mechanism=f"{self.name}: an interpolation of every row, without noise",
        )
        estimator.n_samples_ = n_samples
        estimator.reference_ = self._announced(estimator, reference.points)
        estimator._own = own

    def advise(self, estimator: BaseEstimator) -> None:
        """Say that nothing is private."""
        warn_not_private(NOT_PRIVATE[self.name])

    def numbers(self, message: Any) -> np.ndarray:
        """Return the interpolated rows."""
        points: np.ndarray = message.points
        return points

    def publish(self, estimator: BaseEstimator, X: Any, y: Any) -> InterpolatingMeasure:
        """Return what a party sends, which reveals its rows."""
        if X is None:
            return self._moved(estimator, estimator._own)
        check_rows(X)
        return self._moved(estimator, self._other(estimator, X, y, None))

    def _moved(self, estimator: BaseEstimator, party: Party) -> InterpolatingMeasure:
        """Return the message of a party."""
        reference = estimator.reference_
        return party.interpolate(reference, estimator.t if reference.t is None else None)

    def matrix(self, estimator: BaseEstimator, parties: Any) -> Frames:
        """Play the protocol between all parties."""
        if not estimator.disclose_t or (estimator.labeled and isinstance(parties, Mapping)):
            raise ValueError(
                "pairwise_distances is played at a t that all parties know (disclose_t=True), and "
                "with classes by Party objects that hold them: Party(name, X, y, allows=...)."
            )
        members = as_parties(parties, self.name, lambda: estimator.budget)
        if hasattr(estimator, "reference_"):
            shared = {"reference": estimator.reference_.measure}
        else:
            shared = {
                "n_support": estimator.n_support,
                "gamma_mean": estimator.gamma_mean,
                "gamma_scale": estimator.gamma_scale,
            }
        result = self._pairwise(
            estimator,
            members,
            interpolation=estimator.interpolation,
            rng=np.random.default_rng(estimator.shared_seed),
            **shared,
        )
        errors = dict.fromkeys(result.details, 0.0)
        return result.to_frame(), square(result.names, errors)

    def _announced(self, estimator: BaseEstimator, points: np.ndarray) -> Message:
        """Return the message that tells the parties where to go."""
        raise NotImplementedError

    def _pairwise(
        self, estimator: BaseEstimator, parties: Sequence[Party], **shared: Any
    ) -> PairwiseResult:
        """Play the protocol between all parties."""
        raise NotImplementedError

    def _party(self, estimator: BaseEstimator, name: str, X: Any, y: Any, masses: Any) -> Party:
        """Return rows as a party that takes part."""
        if estimator.labeled and y is None:
            raise ValueError(
                "labeled=True requires y to be passed, but the target y is None: pass the class "
                "of each row."
            )
        labels = y if estimator.labeled else None
        return Party(name, X, labels, masses=masses, allows=(self.name, "values"))

    def _other(self, estimator: BaseEstimator, other: Any, y: Any, masses: Any) -> Party:
        """Return the other side as a party."""
        if isinstance(other, Party):
            return other
        if hasattr(other, "_own"):
            own: Party = other._own
            return own
        validate_rows(estimator, other, reset=False, min_samples=2)
        return self._party(estimator, OTHER, other, y, masses)


class TriangleProtocol(PlainProtocol):
    """TriangleWad: everybody moves towards a shared sample."""

    name = "triangle"

    def compare(
        self, estimator: BaseEstimator, other: Any, y: Any, masses: Any
    ) -> DistanceEstimate:
        """Play the protocol with another party, with several, or with a message."""
        check_other(other, estimator)
        own, reference = estimator._own, estimator.reference_.measure
        if isinstance(other, InterpolatingMeasure):
            return self._compare_message(estimator, other)
        options = {
            "t": estimator.t,
            "disclose_t": estimator.disclose_t,
            "reference": reference,
            "interpolation": estimator.interpolation,
        }
        if is_union(other):
            sellers = [self._other(estimator, part, None, None) for part in other]
            result = triangle_to_union(own, sellers, **options)
        else:
            result = triangle(own, self._other(estimator, other, y, masses), **options)
        return DistanceEstimate(result.squared_distance, self.name, result.transcript)

    def values(self, estimator: BaseEstimator, X: Any, y: Any) -> np.ndarray:
        """Return what the potentials between the two messages say of the rows."""
        check_rows(X)
        plan = triangle(
            estimator._own,
            self._other(estimator, X, y, None),
            t=estimator.t,
            reference=estimator.reference_.measure,
        ).details
        values = calibrated_values(plan.target_potential, plan.target.masses)
        return values / (1 - estimator.t) ** 2

    def _announced(self, estimator: BaseEstimator, points: np.ndarray) -> ReferenceMeasure:
        t = estimator.t if estimator.disclose_t else None
        return ReferenceMeasure(points, None, t, estimator.interpolation)

    def _pairwise(
        self, estimator: BaseEstimator, parties: Sequence[Party], **shared: Any
    ) -> PairwiseResult:
        return pairwise_triangle(parties, t=estimator.t, **shared)

    def _compare_message(
        self, estimator: BaseEstimator, message: InterpolatingMeasure
    ) -> DistanceEstimate:
        """Compare this party's message with one that came from elsewhere."""
        own = self._moved(estimator, estimator._own)
        exchange = Exchange()
        exchange.send(0, estimator._own.name, (SERVER,), own, InterpolatingMeasure)
        arrived = exchange.send(0, OTHER, (SERVER,), message, InterpolatingMeasure)
        squared = rescaled(optimal_plan(own.measure, arrived.measure).squared_distance, estimator.t)
        return DistanceEstimate(squared, self.name, exchange.transcript)


class FedwadProtocol(PlainProtocol):
    """FedWad: two parties close in on a measure between them."""

    name = "fedwad"

    def compare(
        self, estimator: BaseEstimator, other: Any, y: Any, masses: Any
    ) -> DistanceEstimate:
        """Play all rounds with another party."""
        check_other(other, estimator)
        if is_union(other):
            raise ValueError(
                'protocol="fedwad" is played by two parties; protocol="triangle" and "sliced" '
                "compare with the union of several."
            )
        result = self._play(estimator, self._other(estimator, other, y, masses))
        return DistanceEstimate(result.squared_distance, self.name, result.transcript)

    def values(self, estimator: BaseEstimator, X: Any, y: Any) -> np.ndarray:
        """Return the values that the rows' owner computes in FedBary, against the last ξ."""
        check_rows(X)
        party = self._other(estimator, X, y, None)
        between = self._play(estimator, party).details.reference
        values: np.ndarray = party.values_against(between).values
        return values

    def _play(self, estimator: BaseEstimator, other: Party) -> Any:
        return fedwad(
            estimator._own,
            other,
            n_rounds=estimator.n_rounds,
            t="drawn" if estimator.draw_t else estimator.t,
            reference=estimator.reference_.measure,
            interpolation=estimator.interpolation,
            rng=np.random.default_rng(estimator.shared_seed),
        )

    def _announced(self, estimator: BaseEstimator, points: np.ndarray) -> GeodesicMeasure:
        t = estimator.t
        if estimator.draw_t:
            rng = np.random.default_rng(estimator.shared_seed)
            t = float(drawn_fractions(estimator.n_rounds, rng)[0])
        return GeodesicMeasure(points, None, t, estimator.interpolation)

    def _pairwise(
        self, estimator: BaseEstimator, parties: Sequence[Party], **shared: Any
    ) -> PairwiseResult:
        t = "drawn" if estimator.draw_t else estimator.t
        return pairwise_fedwad(parties, n_rounds=estimator.n_rounds, t=t, **shared)
