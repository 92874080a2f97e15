"""What the two protocols of the literature share, TriangleWad and FedWad. **Not private**.

`skdpot.distance.reconstruction` recovers the rows of every party from their messages.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.distance.distance_protocol import DistanceProtocol, parties_of
from skdpot.distance.estimates import DistanceEstimate, PairwiseResult
from skdpot.distance.exchange import SERVER, Exchange, check_participants, matching
from skdpot.distance.messages import (
    DistanceMessage,
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
)
from skdpot.distance.party import Party
from skdpot.distance.reliability import OUTPUT
from skdpot.exceptions import MessageError, warn_not_private
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, weights_of
from skdpot.ot.plans import cost_of_plan, optimal_plan
from skdpot.privacy.charges import charge
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.sources import Source

_LONG = 2000**2  # pairs of points; a plan of so many takes seconds

_WITHOUT_NOISE = Reliability(
    (OutputError(output=OUTPUT, standard_error=0.0, trivial="no distance", trivial_error=math.inf),)
)
_WITHOUT_NOISE = Reliability(
    (OutputError(output=OUTPUT, standard_error=0.0, trivial="no distance", trivial_error=math.inf),)
)
_numbers = count(1)  # of fitted parties: parties of one protocol need different names


@dataclass(frozen=True, eq=False)
class FittedParty:
    """A party with its rows, and the measure that all parties move towards."""

    party: Party
    reference: ReferenceMeasure | GeodesicMeasure


@dataclass(eq=False, repr=False, kw_only=True)
class NotPrivateProtocol(DistanceProtocol[FittedParty]):
    """Abstract base class of the two protocols that are not private.

    Parties move their rows towards a Gaussian sample that all of them know. A subclass says how it
    sends the sample (`_reference_message`) and plays with one party or with several (`compare`,
    `_pairwise`).
    """

    t: float = 0.5
    gamma_scale: float = 1.0
    gamma_mean: float = 0.0
    n_support: int | None = None
    interpolation: str = "barycentric"
    labeled: bool = False
    shared_seed: int = 0

    is_private = False
    fewest_rows = 2
    messages: ClassVar[tuple[type[Message], ...]] = ()
    warning: ClassVar[str]
    _sent: ClassVar[type[ReferenceMeasure | GeodesicMeasure]]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "t": [Interval(Real, 0, 1, closed="neither")],
        "gamma_scale": [Interval(Real, 0, None, closed="left")],
        "gamma_mean": [Interval(Real, None, None, closed="neither")],
        "n_support": [COUNT, None],
        "interpolation": [StrOptions({"barycentric", "exact"})],
        "labeled": ["boolean"],
        "shared_seed": [Interval(Integral, 0, None, closed="left")],
    }

    @abstractmethod
    def _reference_message(self, points: np.ndarray) -> ReferenceMeasure | GeodesicMeasure:
        """Return the shared sample (n_support, n_features) as the message that announces it."""

    @abstractmethod
    def _pairwise(
        self, parties: Sequence[Party], reference: DiscreteMeasure, rng: np.random.Generator
    ) -> PairwiseResult:
        """Play the protocol between all parties."""

    def release(
        self,
        context: FitContext,
        rows: np.ndarray | Source,
        y: ArrayLike | None,
        masses: ArrayLike | None,
    ) -> MechanismResult:
        """Keep the rows, and draw the shared sample."""
        party = self._party(context.source, y, masses, name=f"fitted party {next(_numbers)}")
        sample = self._sample([party], self._rng())
        spent = charge(
            context,
            NonPrivateEvent(),
            n_samples=None,
            assumptions=(),
            mechanism=f"{self.name}: an interpolation of every row, without noise",
            noise_given=True,
        )
        fitted = FittedParty(party, self._reference_message(sample.points))
        attributes = {"reference_": fitted.reference, "n_samples_": party.n_samples}
        return MechanismResult(
            fitted, None, spent, attributes=attributes, reliability=_WITHOUT_NOISE
        )

    def advise(self, fitted: FittedParty, /) -> None:
        """Say that nothing is private, and how long exact transport will take."""
        self._warn([fitted.party])

    def numbers(self, message: InterpolatingMeasure) -> np.ndarray:
        """Return the interpolated rows."""
        return message.points

    def publish(
        self, context: FitContext, fitted: FittedParty, /, X: Any, y: ArrayLike | None
    ) -> InterpolatingMeasure:
        """Return what a party sends, which reveals its rows."""
        return self._moved(fitted.party if X is None else self._party(X, y), fitted.reference)

    def matrix(
        self, context: FitContext, fitted: FittedParty | None, /, parties: Any
    ) -> PairwiseResult:
        """Play the protocol between all parties."""
        if self.labeled and isinstance(parties, Mapping):
            raise ValueError(
                "labeled=True requires Party objects with classes: Party(name, X, y, allows=...)."
            )
        members, rng = parties_of(parties, self.name, lambda: context.budget), self._rng()
        self._warn(members)
        reference = self._sample(members, rng) if fitted is None else fitted.reference.measure
        return self._pairwise(members, reference, rng)

    def barycenter(
        self, fitted: FittedParty, /, others: list[Any], weights: ArrayLike | None, n_points: int
    ) -> np.ndarray:
        """Move a shared sample to the barycenter, round by round."""
        if self.labeled:
            raise ValueError("A barycenter is of rows without classes: set labeled=False.")
        parties = [fitted.party]
        for number, other in enumerate(others):
            parties.append(self._party(other, None, name=f"other party {number}"))
        moved = barycenter(
            parties,
            self._sent,
            weights=weights,
            t=self.t,
            n_rounds=getattr(self, "n_rounds", 1),  # TriangleWad has one
            reference=self._sample(parties, self._rng(), n_points),
        )
        points: np.ndarray = moved.points
        return points

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.shared_seed)

    def _sample(
        self, parties: list[Party], rng: np.random.Generator, n_points: int | None = None
    ) -> DiscreteMeasure:
        """Draw the Gaussian sample that all parties know."""
        return gaussian_reference(
            n_points or self.n_support or min(party.n_samples for party in parties),
            parties[0].n_dimensions,
            mean=self.gamma_mean,
            scale=self.gamma_scale,
            rng=rng,
        )

    def _moved(
        self, party: Party, reference: ReferenceMeasure | GeodesicMeasure
    ) -> InterpolatingMeasure:
        return party.interpolate(reference, self.t if reference.t is None else None)

    def _party(
        self,
        X: Any,
        y: ArrayLike | None,
        masses: ArrayLike | None = None,
        name: str = "other party",
    ) -> Party:
        """Return the party on the other side; rows get one that allows this protocol."""
        if isinstance(X, Party | FittedParty):
            return X if isinstance(X, Party) else X.party
        if self.labeled and y is None:
            raise ValueError("labeled=True requires y to be passed, but the target y is None.")
        labels = y if self.labeled else None
        return Party(name, X, labels, masses=masses, allows=(self.name, "values"))

    def _warn(self, parties: Sequence[Party]) -> None:
        """Say that nothing is private, and what long transport between parties will take."""
        sizes = [party.n_samples for party in parties]
        n_rows, n_targets = max(sizes), self.n_support or min(sizes)
        cost = cost_of_plan(n_rows, n_targets)
        advice = f" It solves exact transport between {cost}; verbose=1 shows progress."
        warn_not_private(self.warning + advice * (n_rows * n_targets >= _LONG))


def barycenter(
    parties: Sequence[Party],
    message: type[ReferenceMeasure | GeodesicMeasure],
    *,
    weights: ArrayLike | None = None,
    t: float,
    n_rounds: int,
    reference: DiscreteMeasure,
) -> DiscreteMeasure:
    """Move a reference to the Wasserstein barycentre of parties. **Not private**.

    In each round the parties send their rows, moved a fraction t of the way to ξ along the exact
    plan. The plan between ξ and such a message is the plan between ξ and the rows, so the mean of
    the rows that belong to a point of ξ is ``(mean of the message's points - t ξ) / (1 - t)``. The
    next ξ is the mean of these over parties: the fixed-point iteration of Álvarez-Esteban et al.
    (J. Math. Anal. Appl. 2016), as in POT's ``free_support_barycenter``.
    """
    names, exchange, xi = check_participants(parties), Exchange(), reference
    shares = weights_of(weights, len(parties), "weights")
    for number in range(n_rounds):
        announced = message(xi.points, xi.masses, t, "exact")
        sent = exchange.send(number, SERVER, announced, message, to=names)
        read = matching(n_features=sent.n_features)
        (moved,) = exchange.ask(number, parties, sent, {"interpolate": InterpolatingMeasure}, read)
        means = [optimal_plan(xi, eta.measure).barycenters() for eta in moved.values()]
        points = (np.tensordot(shares, means, axes=1) - t * xi.points) / (1 - t)
        xi = DiscreteMeasure(points, xi.masses)
    return xi


def reference_for(
    parties: Sequence[Party],
    reference: DiscreteMeasure | ArrayLike | None,
    rng: np.random.Generator | None,
) -> DiscreteMeasure:
    """Return the measure that parties move towards, by default a Gaussian sample."""
    n_dimensions = {party.name: party.n_dimensions for party in parties}
    n_features = parties[0].n_dimensions
    if len(set(n_dimensions.values())) > 1:
        raise ValueError(f"Parties must compare the same features; they have {n_dimensions}.")
    if reference is None:
        smallest = min(party.n_samples for party in parties)
        rng = np.random.default_rng() if rng is None else rng
        return gaussian_reference(smallest, n_features, rng=rng)
    if isinstance(reference, Message):
        raise MessageError("reference must be a DiscreteMeasure or points, not a message.")
    measure = reference
    if not isinstance(measure, DiscreteMeasure):
        measure = DiscreteMeasure(np.asarray(measure))
    if measure.n_features != n_features:
        raise ValueError(
            f"The reference has {measure.n_features} features and the parties have {n_features}."
        )
    return measure


def of_two_parties(result: PairwiseResult, round: int) -> DistanceEstimate:
    """Return the only estimate of a result, after the server has sent it to both parties."""
    (estimate,) = result.estimates.values()
    message = DistanceMessage(estimate.squared_distance)
    Exchange(result.transcript).send(round, SERVER, message, DistanceMessage, to=result.names)
    return estimate
