"""The distance from private sketches: the default protocol."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import Streams, spawn_streams
from skdpot._utils.validation import check_is_fitted, validate_rows
from skdpot.estimators._distance_estimate import DistanceEstimate, common_scale
from skdpot.estimators._distance_parts import (
    OTHER,
    THIS,
    Frames,
    as_parties,
    check_other,
    check_rows,
    is_union,
    square,
)
from skdpot.federated.exchange import SERVER, Exchange
from skdpot.federated.messages import SketchMessage, SketchRequest
from skdpot.federated.party import Party
from skdpot.federated.protocols import pairwise_sliced
from skdpot.federated.publishing import release_seed
from skdpot.federated.valuation import sliced_values
from skdpot.privacy.budget import PrivacyBudget
from skdpot.slicing.debiased_distance import DROWNING_NOISE, debiased_squared_distance
from skdpot.slicing.directions import make_directions
from skdpot.slicing.readings import SketchReadings
from skdpot.slicing.rules import public_bounds
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy

__all__ = ["SlicedProtocol"]

_LEAST_SLICES = 64
_LARGEST = 1e150


class SlicedProtocol:
    """Each party publishes a private sketch."""

    def fit(self, estimator: BaseEstimator, X: Any, y: Any, masses: Any) -> None:
        """Publish the sketch of this party."""
        if estimator.labeled or masses is not None:
            raise ValueError(
                'protocol="sliced" counts every row once and has no classes: leave labeled=False '
                "and masses=None."
            )
        streams = spawn_streams(estimator.random_state, type(estimator).__name__)
        n_features = validate_rows(estimator, X, reset=True, min_samples=2).shape[1]
        directions = _directions(estimator, n_features)
        public = public_bounds(estimator.bounds, estimator.norm_bound, n_features)
        if public is not None:
            # Refused before any charge: what no request can carry could never be compared.
            SketchRequest(directions, estimator.n_bins, public)
        parameters = {
            "bounds": estimator.bounds,
            "norm_bound": estimator.norm_bound,
            "slices": directions,
            "n_bins": estimator.n_bins,
        }
        sketch = _sketch(estimator, parameters, streams, X)
        estimator.sketch_ = sketch
        for name in ("privacy_spent_", "n_samples_", "bounds_"):
            setattr(estimator, name, getattr(sketch, name))

    def advise(self, estimator: BaseEstimator) -> None:
        """Say it when noise drowns the table: of public facts, the rows have no part in it."""
        sketch = estimator.sketch_
        strategy = square_root_strategy(sketch.statistic_.shape[-1])
        noise = sketch.noise_scale_ / sketch.n_samples_ * strategy.typical_deviation
        if noise > DROWNING_NOISE:
            warn_of_privacy(
                f"{sketch.n_samples_} rows at this epsilon along {len(sketch.directions_)} "
                f"directions: noise moves every distribution function by {noise:.2f}, of 1, so "
                "that distances can hardly be told. More rows, a larger epsilon, or fewer "
                "features (and n_slices) help."
            )

    def compare(
        self, estimator: BaseEstimator, other: Any, y: Any, masses: Any
    ) -> DistanceEstimate:
        """Compare sketches, or the sketch with public rows."""
        if y is not None and estimator.labeled or masses is not None:
            raise ValueError('protocol="sliced" has neither classes nor weights of rows.')
        check_other(other, estimator)
        exchange = Exchange()
        exchange.send(0, THIS, (SERVER,), SketchMessage(estimator.sketch_), SketchMessage)
        found = self._side(estimator, other, exchange)
        debiased = debiased_squared_distance(estimator.sketch_, found, target=estimator.target)
        return DistanceEstimate.of_sketches(
            debiased, estimator.bounds_, exchange.transcript, declared=_declared(estimator)
        )

    def publish(self, estimator: BaseEstimator, X: Any, y: Any) -> SketchMessage:
        """Return the published sketch, or publish that of other rows."""
        if X is None:
            return SketchMessage(estimator.sketch_)
        check_rows(X)
        validate_rows(estimator, X, reset=False)
        # X has the fitted columns: if this message can be sent, so can the one to come.
        SketchMessage(estimator.sketch_)
        request = self._request(estimator)
        seed = release_seed(estimator.random_state, OTHER, request)
        streams = spawn_streams(seed, type(estimator).__name__)
        return SketchMessage(_sketch(estimator, request.sketch_parameters, streams, X))

    def numbers(self, message: Any) -> np.ndarray:
        """Return the noisy distribution functions."""
        table: np.ndarray = message.sketch.table().cdf
        return table

    def values(self, estimator: BaseEstimator, X: Any, y: Any) -> np.ndarray:
        """Return the values of public rows against the sketch."""
        check_rows(X)
        bounds = estimator.bounds_
        # Not clipped: how far a row lies outside is what tells noise, and these are public.
        given = validate_rows(estimator, X, reset=False).astype(np.float64)
        with np.errstate(over="ignore"):
            rows = (given - bounds.center) / bounds.scale
        if np.abs(rows).max() > _LARGEST:
            raise ValueError(
                f"X must hold rows of at most {_LARGEST:g} times the bounds, whose squares are "
                "finite."
            )
        unit = common_scale(bounds, _declared(estimator)) or 1.0
        return unit**2 * sliced_values(rows, estimator.sketch_.table())

    def matrix(self, estimator: BaseEstimator, parties: Any) -> Frames:
        """Let every party publish one sketch; the budget pays once for all rows that are given."""
        privacy = {name: getattr(estimator, name) for name in ("epsilon", "delta")}
        budget = estimator.budget if isinstance(parties, Mapping) else None
        members = as_parties(
            parties,
            "sliced",
            lambda: None if budget is None else PrivacyBudget(**privacy),
            random_state=estimator.random_state,
            **privacy,
        )
        request = self._request(estimator, members[0].n_features)
        result = pairwise_sliced(members, request, target=estimator.target, budget=budget)
        estimates = {
            pair: DistanceEstimate.of_sketches(
                debiased, request.bounds, result.transcript, declared=_declared(estimator)
            )
            for pair, debiased in result.details.items()
        }
        distances = {pair: estimate.distance for pair, estimate in estimates.items()}
        errors = {pair: estimate.standard_error for pair, estimate in estimates.items()}
        return square(result.names, distances), square(result.names, errors)

    def _side(self, estimator: BaseEstimator, other: Any, exchange: Exchange) -> Any:
        """Return the sketch of the other side, or its public rows."""
        if is_union(other):
            sides = [self._side(estimator, part, exchange) for part in other]
            if not all(isinstance(side, SketchReadings) for side in sides):
                raise ValueError("A union of parties must consist of sketches; rows are public.")
            return sides[0].merge(*sides[1:])
        to, request = (SERVER,), self._request(estimator)
        if isinstance(other, Party):
            publish = partial(other.publish_sketch, request)
            return request.read(exchange.ask(0, other.name, to, publish, SketchMessage))
        if isinstance(other, SketchMessage):
            return request.read(exchange.send(0, OTHER, to, other, SketchMessage))
        if isinstance(other, BaseEstimator):
            check_is_fitted(other)
            sketch = getattr(other, "sketch_", other)
            exchange.send(0, OTHER, to, SketchMessage(sketch), SketchMessage)
            return sketch
        validate_rows(estimator, other, reset=False)
        return other

    def _request(self, estimator: BaseEstimator, n_features: int = 0) -> SketchRequest:
        """Return what all parties measure: as the fitted sketch, or with declared bounds."""
        if hasattr(estimator, "sketch_"):
            sketch = estimator.sketch_
            return SketchRequest(sketch.directions_, estimator.n_bins, estimator.bounds_)
        bounds = public_bounds(estimator.bounds, estimator.norm_bound, n_features)
        if bounds is None:
            raise ValueError(
                "Parties can only compare sketches with bounds that are the same for all and "
                "public: pass bounds=(low, high) or norm_bound=, known without looking at rows, "
                "or fit first, and the others take the bounds that were published then."
            )
        return SketchRequest(_directions(estimator, n_features), estimator.n_bins, bounds)


def _declared(estimator: BaseEstimator) -> bool:
    """Whether bounds were declared rather than found: only then is their unit known before."""
    return not isinstance(estimator.bounds, str) or estimator.norm_bound is not None


def _directions(estimator: BaseEstimator, n_features: int) -> np.ndarray:
    """Return the directions that all parties share: whole blocks, whatever the party's size."""
    n_slices = estimator.n_slices
    if n_slices == "auto":
        n_slices = n_features * -(-_LEAST_SLICES // n_features)
    rng = np.random.default_rng(estimator.shared_seed)
    return make_directions(estimator.slices, n_slices, n_features, rng)


def _sketch(
    estimator: BaseEstimator, parameters: Mapping[str, Any], streams: Streams, X: Any
) -> SlicedSketch:
    """Publish a sketch with the privacy parameters of the estimator."""
    sketch = SlicedSketch(
        estimator.epsilon,
        estimator.delta,
        budget=estimator.budget,
        device=estimator.device,
        **parameters,
    )
    return sketch._release(type(estimator).__name__, streams, X, None)
