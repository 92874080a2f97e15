"""The private distance protocol: each party publishes a sketch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.validation import Interval, StrOptions, spawn_streams
from skdpot.exceptions import warn_of_privacy
from skdpot.federated.exchange import (
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
from skdpot.mechanisms.base import COUNT, FitContext, Mechanism
from skdpot.metrics.debiased_distance import DROWNING_NOISE, debiased_squared_distance
from skdpot.ot.slices import make_directions
from skdpot.privacy.budget import PrivacyBudget
from skdpot.release.bounds import public_bounds
from skdpot.release.sketch import SlicedSketch
from skdpot.sources import Source, head_of

_LEAST_SLICES = 64


@dataclass(eq=False, repr=False, kw_only=True)
class Sliced(Mechanism):
    """Each party publishes a private sketch, and SW₂ is estimated from two sketches.

    The estimate is corrected for the noise of the sketches.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions. "auto" depends on the number of features alone, so that all parties
        use the same number.
    n_bins : int, default=64
        Number of bins along each direction, at most 512.
    projections : {"orthogonal", "axes+orthogonal", "uniform"} or array of shape (n_projections, \
n_features), default="orthogonal"
        How directions are drawn, or public directions. Unlike in `SlicedSketch`, the axes do not
        come first: along the axes alone, data with equal marginals cannot be told apart.
    target : {"population", "data"}, default="population"
        What is compared. "population": the distributions that the rows were sampled from; the
        distance is zero if they are equal. "data": the rows themselves.
    shared_seed : int, default=0
        Seed of the directions, which are public. Sketches are comparable only if they have the
        same seed.

    Privacy
    -------
    One Gaussian event per sketch under replace-one, as for `SlicedSketch`. Everything else is
    post-processing.

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
        "n_projections": [StrOptions({"auto"}), COUNT],
        "n_bins": [Interval(Integral, 2, 512, closed="both")],
        "projections": [StrOptions({"axes+orthogonal", "orthogonal", "uniform"}), "array-like"],
        "target": [StrOptions({"population", "data"})],
        "shared_seed": [Interval(Integral, 0, None, closed="left")],
    }

    def release(self, context: FitContext, rows: np.ndarray, y: Any, masses: Any) -> SlicedSketch:
        """Charge, and publish the sketch of this party."""
        if masses is not None:
            raise ValueError('protocol="sliced" counts every row once: leave masses=None.')
        n_features = (head_of(rows) if isinstance(rows, Source) else rows).shape[1]
        directions = self._directions(n_features)
        public = public_bounds(context.bounds, context.norm_bound, n_features)
        if public is not None:
            # Refused before any charge: what no request can carry could never be compared.
            SketchRequest(directions, self.n_bins, public)
        options = {"projections": directions, "n_bins": self.n_bins, "device": context.device}
        given = rows if isinstance(rows, Source) else context.source  # some are read once
        return context.sketch(given, None, **options)

    def advise(self, sketch: SlicedSketch) -> None:
        """Warn if noise drowns the table; it uses public facts only."""
        noise = sketch.noise_scale_ / sketch.n_samples_ * sketch.strategy_.typical_deviation
        if noise > DROWNING_NOISE:
            warn_of_privacy(
                f"Noise moves every distribution function by {noise:.2f} (of 1) for "
                f"{sketch.n_samples_} rows along {len(sketch.directions_)} directions at this "
                "epsilon, so distances can hardly be told apart. Use more rows, a larger epsilon, "
                "or fewer features (and n_projections)."
            )

    def compare(self, own: SlicedSketch, other: Any, y: Any, masses: Any) -> DistanceEstimate:
        """Compare sketches, or the sketch with public rows."""
        if masses is not None:
            raise ValueError('protocol="sliced" counts every row once: leave masses=None.')
        exchange = Exchange()
        exchange.send(0, "this party", SketchMessage(own), SketchMessage)
        found = self._found(own, other, exchange)
        debiased = debiased_squared_distance(own, found, target=self.target)
        estimate = DistanceEstimate(self.name, debiased.squared, exchange.transcript, debiased)
        return estimate.in_features(own.bounds_, own._is_declared)

    def publish(self, context: FitContext, own: SlicedSketch, X: Any, y: Any) -> SketchMessage:
        """Return the published sketch, or publish that of other rows."""
        # X has the fitted columns: if this message can be sent, so can the one to come.
        published = SketchMessage(own)
        if X is None:
            return published
        request = self._request(own)
        seed = release_seed(context.random_state, "other party", request)
        streams = spawn_streams(seed, context.caller)
        terms = replace(context, streams=streams, bounds=own.bounds_, norm_bound=None)
        options = {"projections": request.directions, "n_bins": self.n_bins}
        return SketchMessage(terms.sketch(X, None, device=context.device, **options))

    def numbers(self, message: SketchMessage) -> np.ndarray:
        """Return the noisy distribution functions."""
        return message.sketch.table().cdf

    def values(self, own: SlicedSketch, rows: np.ndarray, y: Any) -> np.ndarray:
        """Return the values of public rows against the sketch."""
        # Not clipped: how far a row lies outside is what tells noise, and these are public.
        with np.errstate(over="ignore"):
            mapped = (rows.astype(np.float64) - own.bounds_.center) / own.bounds_.scale
        unit = common_scale(own.bounds_, own._is_declared) or 1.0
        return unit**2 * sliced_values(mapped, own.table())

    def matrix(self, context: FitContext, own: SlicedSketch | None, parties: Any) -> PairwiseResult:
        """Let every party publish one sketch; the budget pays once for all given rows."""
        budget = context.budget if isinstance(parties, Mapping) else None
        members = as_parties(
            parties,
            self.name,
            lambda: None if budget is None else PrivacyBudget(context.epsilon, context.delta),
            epsilon=context.epsilon,
            delta=context.delta,
            random_state=context.random_state,
        )
        if own is None:
            n_features = members[0].n_features
            bounds = public_bounds(context.bounds, context.norm_bound, n_features)
            if bounds is None:
                raise ValueError(
                    "pairwise_distances requires public bounds that all parties share: pass "
                    "bounds=(low, high) or norm_bound=, or call fit first to share the bounds that "
                    "it publishes."
                )
            request = SketchRequest(self._directions(n_features), self.n_bins, bounds)
        else:
            request = self._request(own)
        result = pairwise_sliced(members, request, target=self.target, budget=budget)
        declared = own is None or own._is_declared
        estimates = {
            pair: estimate.in_features(request.bounds, declared)
            for pair, estimate in result.estimates.items()
        }
        return replace(result, estimates=estimates)

    def _found(self, own: SlicedSketch, other: Any, exchange: Exchange) -> Any:
        """Return the sketch of the other side, or its public rows."""
        if isinstance(other, tuple):
            sides = [self._found(own, part, exchange) for part in other]
            if not all(isinstance(side, SlicedSketch) for side in sides):
                raise ValueError("A union must consist of sketches, not of public rows.")
            return sides[0].merge(*sides[1:])
        request = self._request(own)
        if isinstance(other, Party):
            publish = partial(other.publish_sketch, request)
            return exchange.send(0, other.name, publish, SketchMessage, read=request.read)
        if isinstance(other, SketchMessage):
            return exchange.send(0, "other party", other, SketchMessage, read=request.read)
        if isinstance(other, SlicedSketch):
            exchange.send(0, "other party", SketchMessage(other), SketchMessage)
        return other

    def _request(self, own: SlicedSketch) -> SketchRequest:
        return SketchRequest(own.directions_, self.n_bins, own.bounds_)

    def _directions(self, n_features: int) -> np.ndarray:
        """Return the directions that all parties share: whole blocks, whatever the party's size."""
        n_projections = self.n_projections
        if n_projections == "auto":
            n_projections = n_features * -(-_LEAST_SLICES // n_features)
        rng = np.random.default_rng(self.shared_seed)
        return make_directions(self.projections, int(n_projections), n_features, rng)
