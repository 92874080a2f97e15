"""The protocol of distances that is private: each party publishes a sketch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import spawn_streams
from skdpot._utils.validation import Interval, StrOptions
from skdpot.federated.exchange import (
    SERVER,
    DistanceEstimate,
    Exchange,
    PairwiseResult,
    as_parties,
    common_scale,
)
from skdpot.federated.messages import Message, SketchMessage, SketchRequest
from skdpot.federated.party import Party, release_seed
from skdpot.federated.sliced_protocol import pairwise_sliced
from skdpot.federated.valuation import sliced_values
from skdpot.mechanisms.base import FitContext, Mechanism
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.debiased_distance import DROWNING_NOISE, debiased_squared_distance
from skdpot.slicing.plan import make_directions, public_bounds, square_root_strategy
from skdpot.slicing.sketch import SlicedSketch

_LEAST_SLICES = 64


@dataclass(frozen=True, eq=False)
class SlicedSide:
    """What a party has published, and whether its bounds were known before."""

    sketch: SlicedSketch
    declared: bool

    @property
    def privacy_spent(self) -> PrivacySpent:
        """What the sketch cost."""
        return self.sketch.privacy_spent_

    @property
    def bounds(self) -> DataBounds:
        """Map from the data to the ball of the sketch."""
        return self.sketch.bounds_


@dataclass(eq=False, repr=False, kw_only=True)
class Sliced(Mechanism):
    """Each party publishes a private sketch, and SW₂ is estimated from two of them.

    The estimate is debiased: what the noise of the sketches adds is taken off.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions. "auto" depends on the number of features alone, so that parties
        of all sizes take the same.
    n_bins : int, default=64
        Number of bins along each direction, 512 at most.
    projections : {"orthogonal", "axes+orthogonal", "uniform"} or array of shape (n_projections, \
n_features), default="orthogonal"
        How directions are drawn, or public directions. Not the axes first, as in `SlicedSketch`:
        along them alone, data with equal marginals cannot be told apart.
    target : {"population", "data"}, default="population"
        Between what the distance is estimated. "population": the laws that the rows were
        sampled from; zero if both parties sample from one law. "data": the rows themselves.
    shared_seed : int, default=0
        Draws the directions, which are public and which all parties must share. Sketches are only
        comparable if they were made with one seed.

    Privacy
    -------
    One Gaussian event per sketch under replace-one, as for `SlicedSketch`. Everything else is
    computed from released sketches.

    See Also
    --------
    Triangle, FedWad : Protocols that are not private.

    Examples
    --------
    >>> from skdpot import PrivateWassersteinDistance
    >>> from skdpot.mechanisms import Sliced
    >>> distance = PrivateWassersteinDistance(protocol=Sliced(n_bins=32), bounds=(-1, 1))
    """

    n_projections: int | str = "auto"
    n_bins: int = 64
    projections: Any = "orthogonal"
    target: str = "population"
    shared_seed: int = 0

    name = "sliced"
    is_private = True
    fewest_rows = 1
    messages: ClassVar[tuple[type[Message], ...]] = (SketchMessage,)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_projections": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_bins": [Interval(Integral, 2, 512, closed="both")],
        "projections": [StrOptions({"axes+orthogonal", "orthogonal", "uniform"}), "array-like"],
        "target": [StrOptions({"population", "data"})],
        "shared_seed": [Interval(Integral, 0, None, closed="left")],
    }

    def release(self, context: FitContext, rows: np.ndarray, y: Any, masses: Any) -> SlicedSide:
        """Charge, and publish the sketch of this party."""
        if masses is not None:
            raise ValueError('protocol="sliced" counts every row once: leave masses=None.')
        n_features = rows.shape[1]
        directions = self._directions(n_features)
        public = public_bounds(context.bounds, context.norm_bound, n_features)
        if public is not None:
            # Refused before any charge: what no request can carry could never be compared.
            SketchRequest(directions, self.n_bins, public)
        parameters = {
            "bounds": context.bounds,
            "norm_bound": context.norm_bound,
            "projections": directions,
            "n_bins": self.n_bins,
        }
        sketch = _sketch(context, parameters)
        return SlicedSide(sketch, _declared(context))

    def advise(self, side: SlicedSide) -> None:
        """Say it when noise drowns the table: of public facts, the rows have no part in it."""
        sketch = side.sketch
        strategy = square_root_strategy(sketch.statistic_.shape[-1])
        noise = sketch.noise_scale_ / sketch.n_samples_ * strategy.typical_deviation
        if noise > DROWNING_NOISE:
            warn_of_privacy(
                f"{sketch.n_samples_} rows at this epsilon along {len(sketch.directions_)} "
                f"directions: noise moves every distribution function by {noise:.2f}, of 1, so "
                "that distances can hardly be told. More rows, a larger epsilon, or fewer "
                "features (and n_projections) help."
            )

    def compare(self, own: SlicedSide, other: Any, y: Any, masses: Any) -> DistanceEstimate:
        """Compare sketches, or the sketch with public rows."""
        if masses is not None:
            raise ValueError('protocol="sliced" counts every row once: leave masses=None.')
        exchange = Exchange()
        exchange.send(0, "this party", (SERVER,), SketchMessage(own.sketch), SketchMessage)
        found = self._found(own, other, exchange)
        debiased = debiased_squared_distance(own.sketch, found, target=self.target)
        estimate = DistanceEstimate(self.name, debiased.squared, exchange.transcript, debiased)
        return estimate.in_features(own.bounds, own.declared)

    def publish(self, context: FitContext, own: SlicedSide, X: Any, y: Any) -> SketchMessage:
        """Return the published sketch, or publish that of other rows."""
        if X is None:
            return SketchMessage(own.sketch)
        # X has the fitted columns: if this message can be sent, so can the one to come.
        SketchMessage(own.sketch)
        request = self._request(own)
        seed = release_seed(context.random_state, "other party", request)
        context = replace(context, streams=spawn_streams(seed, context.caller))
        return SketchMessage(_sketch(context, request.sketch_parameters))

    def numbers(self, message: SketchMessage) -> np.ndarray:
        """Return the noisy distribution functions."""
        return message.sketch.table().cdf

    def values(self, own: SlicedSide, rows: np.ndarray, y: Any) -> np.ndarray:
        """Return the values of public rows against the sketch."""
        # Not clipped: how far a row lies outside is what tells noise, and these are public.
        with np.errstate(over="ignore"):
            mapped = (rows.astype(np.float64) - own.bounds.center) / own.bounds.scale
        unit = common_scale(own.bounds, own.declared) or 1.0
        return unit**2 * sliced_values(mapped, own.sketch.table())

    def matrix(self, context: FitContext, own: SlicedSide | None, parties: Any) -> PairwiseResult:
        """Let every party publish one sketch; the budget pays once for all rows that are given."""
        budget = context.budget if isinstance(parties, Mapping) else None
        members = as_parties(
            parties,
            self.name,
            lambda: None if budget is None else PrivacyBudget(context.epsilon, context.delta),
            epsilon=context.epsilon,
            delta=context.delta,
            random_state=context.random_state,
        )
        request = self._request(own, context, members[0].n_features)
        result = pairwise_sliced(members, request, target=self.target, budget=budget)
        declared = _declared(context) if own is None else own.declared
        estimates = {
            pair: estimate.in_features(request.bounds, declared)
            for pair, estimate in result.estimates.items()
        }
        return replace(result, estimates=estimates)

    def _found(self, own: SlicedSide, other: Any, exchange: Exchange) -> Any:
        """Return the sketch of the other side, or its public rows."""
        if isinstance(other, tuple):
            sides = [self._found(own, part, exchange) for part in other]
            if not all(isinstance(side, SlicedSketch) for side in sides):
                raise ValueError("A union of parties must consist of sketches; rows are public.")
            return sides[0].merge(*sides[1:])
        to, request = (SERVER,), self._request(own)
        if isinstance(other, Party):
            publish = partial(other.publish_sketch, request)
            return exchange.ask(0, other.name, publish, SketchMessage, read=request.read)
        if isinstance(other, SketchMessage):
            return exchange.send(0, "other party", to, other, SketchMessage, request.read)
        if isinstance(other, SlicedSide | SlicedSketch):
            sketch = other.sketch if isinstance(other, SlicedSide) else other
            exchange.send(0, "other party", to, SketchMessage(sketch), SketchMessage)
            return sketch
        return other

    def _request(
        self, own: SlicedSide | None, context: FitContext | None = None, n_features: int = 0
    ) -> SketchRequest:
        """Return what all parties measure: as the fitted sketch, or with declared bounds."""
        if own is not None:
            return SketchRequest(own.sketch.directions_, self.n_bins, own.bounds)
        bounds = None
        if context is not None:
            bounds = public_bounds(context.bounds, context.norm_bound, n_features)
        if bounds is None:
            raise ValueError(
                "Parties must have bounds that are the same for all and public: pass bounds=(low, "
                "high) or norm_bound=, or fit first, and all take the bounds that it published."
            )
        return SketchRequest(self._directions(n_features), self.n_bins, bounds)

    def _directions(self, n_features: int) -> np.ndarray:
        """Return the directions that all parties share: whole blocks, whatever the party's size."""
        n_projections = self.n_projections
        if n_projections == "auto":
            n_projections = n_features * -(-_LEAST_SLICES // n_features)
        rng = np.random.default_rng(self.shared_seed)
        return make_directions(self.projections, int(n_projections), n_features, rng)


def _declared(context: FitContext) -> bool:
    """Whether bounds were declared rather than found: only then is their unit known before."""
    return not isinstance(context.bounds, str) or context.norm_bound is not None


def _sketch(context: FitContext, parameters: Mapping[str, Any]) -> SlicedSketch:
    """Publish a sketch with the privacy parameters of the fit."""
    sketch = SlicedSketch(
        context.epsilon,
        context.delta,
        budget=context.budget,
        device=context.device,
        **parameters,
    )
    return sketch._release(context.caller, context.streams, context.source, None)
