"""The private protocol: each party publishes one sketch, and sketches are compared.

`pairwise_sliced` asks parties for their sketches; `Sliced` is the mechanism of the estimator.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.parameters import Interval, StrOptions
from skdpot._utils.streams import spawn_streams
from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.distance.compared_tables import table_of
from skdpot.distance.debiased import debiased_pair, debiased_squared_distance
from skdpot.distance.distance_protocol import DistanceProtocol, holds_parties, parties_of
from skdpot.distance.estimates import DistanceEstimate, PairwiseResult, common_scale
from skdpot.distance.exchange import SERVER, Exchange, check_participants
from skdpot.distance.messages import Message, SketchMessage, SketchRequest, check_type
from skdpot.distance.party import Party, data_of, rehearsed, release_seed
from skdpot.distance.reliability import distance_reliability
from skdpot.exceptions import BudgetExceededError, MessageError, warn_of_privacy
from skdpot.ot.data_values import sliced_values
from skdpot.ot.directions import make_directions
from skdpot.ot.flow import FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.ot.measures import weights_of
from skdpot.ot.slices import CDFTable
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import Event
from skdpot.release.bounds import public_bounds
from skdpot.release.contributions import read_persons
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_record import check_comparable, check_overlap, counts_persons
from skdpot.sources import Source, count_rows, head_of

# Many pairs of parties take the smaller number of simulations each.
_PAIRS_IN_DETAIL = 100
_SIMULATIONS_OF_MANY = 32

# n_projections="auto". The noise of a distribution function grows with the root of the number of
# directions. There are so many that n mu is 32 times this root, and always at least 16.
_MOST_SLICES = 64  # rounded up to whole orthogonal blocks
_FEWEST_SLICES = 16
_ROWS_OVER_NOISE = 32.0

# A barycenter is computed at these quantile levels of each direction, by a flow of particles: a
# handful of them would sit at the quantiles of their ranks only.
_LEVELS = (np.arange(2048) + 0.5) / 2048
_FEWEST_PARTICLES = 256


def sliced(first: Party, second: Party, request: SketchRequest, **options: Any) -> DistanceEstimate:
    """Estimate SW₂ between two parties from a private sketch of each, see `pairwise_sliced`."""
    (estimate,) = pairwise_sliced((first, second), request, **options).estimates.values()
    return estimate


def pairwise_sliced(
    parties: Sequence[Party],
    request: SketchRequest,
    *,
    target: str = "population",
    n_simulations: int | None = None,
    budget: PrivacyBudget | None = None,
) -> PairwiseResult:
    """Estimate SW₂ between all parties from one private sketch of each.

    Privacy
    -------
    Each party releases one sketch at its own (epsilon, delta), whatever the number of parties. The
    estimates are post-processing. A person whose row is with two parties spends both.
    `budget` pays once for all (parallel composition): the number of rows of each party is public,
    so a neighbouring data set replaces a row of one party. The sketches of the others have the same
    law and are independent of its sketch: all together are as private as the least private one.
    """
    names = check_participants(parties)
    check_type(request, SketchRequest)
    unfit = {p.name: p.n_features for p in parties if p.n_features != request.n_features}
    if unfit:
        raise MessageError(
            f"The request is about {request.n_features} features; these parties have others: "
            f"{unfit}. Nobody was asked."
        )
    if budget is not None:
        _charge_once(budget, parties, request)
    exchange = Exchange()
    sent = exchange.send(0, SERVER, request, SketchRequest, to=names)
    expected = {"publish_sketch": SketchMessage}
    (sketches,) = exchange.ask(1, parties, sent, expected, read=sent.read)
    for party in parties:
        if (n_rows := sketches[party.name].n_samples_) != party.n_samples:
            raise MessageError(
                f"The sketch of {party.name!r} is of {n_rows} rows, and the party announced "
                f"{party.n_samples}."
            )
    # The errors of a table are simulated once, for all its pairs.
    tables = {name: table_of(sketch) for name, sketch in sketches.items()}
    pairs, estimates = list(combinations(names, 2)), {}
    if n_simulations is None and len(pairs) > _PAIRS_IN_DETAIL:
        n_simulations = _SIMULATIONS_OF_MANY
    for first, second in pairs:
        try:
            check_comparable((sketches[first], sketches[second]))
            debiased = debiased_pair(
                tables[first], tables[second], target=target, n_simulations=n_simulations
            )
        except ValueError as error:
            raise MessageError(
                f"The sketches of {first!r} and {second!r} cannot be compared. {error}"
            ) from error
        estimates[first, second] = DistanceEstimate(
            "sliced", debiased.squared, exchange.transcript, debiased, unit="scaled features"
        )
    return PairwiseResult("sliced", names, estimates, exchange.transcript)


def _charge_once(budget: PrivacyBudget, parties: Sequence[Party], request: SketchRequest) -> None:
    """Charge the least private of the sketches to come, which stands for all of them.

    Everything that a party would refuse is refused before the charge.
    """
    events = []
    for party in parties:
        if not isinstance(party, Party):
            raise ValueError(
                "budget= is for parties of this process; those elsewhere charge their own."
            )
        events.append(rehearsed(party, request).statement.event)
        is_new = request.to_bytes() not in data_of(party).releases
        if party.budget is not None and is_new and not party.budget.can_afford(events[-1]):
            raise BudgetExceededError(
                f"Too little is left in the budget of party {party.name!r} for a sketch at "
                f"epsilon={party.epsilon:g}. Nobody was asked and nothing charged."
            )
    label = f"sketches of {len(parties)} parties with different people"
    budget.spend(_least_private(events), label=label)


def _least_private(events: Sequence[Event]) -> Event:
    """Return the event that covers all: they are Gaussian, so that of the largest mu."""
    return max(events, key=lambda event: compose(event).mu_without_sampling)


@dataclass(eq=False, repr=False, kw_only=True)
class Sliced(DistanceProtocol[SlicedSketch]):
    """Each party publishes a private sketch, and SW₂ is estimated from two sketches.

    The estimate is corrected for the noise of the sketches.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions. "auto" takes 64, or one for each feature if that is more, and fewer
        for few rows: the square of n mu / 32, at least 16. Parties have the same directions in the
        same order, and two sketches are compared along those that both have.
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
    projections: str | np.ndarray = "orthogonal"
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

    def release(
        self,
        context: FitContext,
        rows: np.ndarray | Source,
        y: ArrayLike | None,
        masses: ArrayLike | None,
    ) -> MechanismResult:
        """Charge, and publish the sketch of this party."""
        _refuse_masses(masses)
        n_features = (head_of(rows) if isinstance(rows, Source) else rows).shape[1]
        n_records = _n_records(context, rows)
        directions = self.directions(n_features, n_records * context.mu_share(1.0))
        declared = public_bounds(context.bounds, context.norm_bound, n_features)
        if declared is not None:
            # Refused before any charge: what no request can carry could never be compared.
            SketchRequest(directions, self.n_bins, declared)
        # A source is the checked one: what the caller passed can perhaps be read only once.
        private: Any = rows if isinstance(rows, Source) else context.source
        sketch = context.sketch(
            private, None, projections=directions, n_bins=self.n_bins, device=context.device
        )
        attributes = {"sketch_": sketch, "bounds_": sketch.bounds_, "n_samples_": sketch.n_samples_}
        return MechanismResult(
            sketch,
            sketch.bounds_,
            sketch.privacy_spent_,
            attributes=attributes,
            reliability=distance_reliability(sketch),
        )

    def advise(self, sketch: SlicedSketch, /) -> None:
        """Have no advice: `reliability_` says what noise hides."""

    def compare(
        self, sketch: SlicedSketch, /, other: Any, y: ArrayLike | None, masses: ArrayLike | None
    ) -> DistanceEstimate:
        """Compare sketches, or the sketch with public rows."""
        _refuse_masses(masses)
        exchange = Exchange()
        exchange.send(0, "this party", SketchMessage(sketch), SketchMessage)
        if isinstance(other, tuple):
            first, *rest = self._sketches(sketch, other, exchange)
            other = first.merge(*rest)
        else:
            other = self._sketch_or_rows(sketch, other, exchange)
        debiased = debiased_squared_distance(sketch, other, target=self.target)
        estimate = DistanceEstimate(self.name, debiased.squared, exchange.transcript, debiased)
        return estimate.in_features(sketch.bounds_, sketch._is_declared)

    def publish(
        self, context: FitContext, sketch: SlicedSketch, /, X: Any, y: ArrayLike | None
    ) -> SketchMessage:
        """Return the published sketch, or publish that of other rows."""
        # X has the fitted columns: if this message can be sent, so can the one to come.
        published = SketchMessage(sketch)
        if X is None:
            return published
        if counts_persons(sketch):
            warn_of_privacy(
                f"{context.caller}: the sketch of fit has one record for each person, and this one "
                "has one for each row. Pass one row of each person, or fit another estimator with "
                "groups=."
            )
        request = self._request(sketch)
        seed = release_seed(context.random_state, "other party", request)
        streams = spawn_streams(seed, context.caller)
        terms = replace(context, streams=streams, bounds=sketch.bounds_, norm_bound=None)
        options = {"projections": request.directions, "n_bins": self.n_bins}
        return SketchMessage(terms.sketch(X, None, device=context.device, **options))

    def numbers(self, message: SketchMessage) -> np.ndarray:
        """Return the noisy distribution functions."""
        return message.sketch.table().cdf

    def values(self, sketch: SlicedSketch, /, rows: np.ndarray, y: ArrayLike | None) -> np.ndarray:
        """Return the values of public rows against the sketch."""
        # Rows are not clipped: how far a row lies outside is what marks noise.
        with np.errstate(over="ignore"):
            mapped = (rows.astype(np.float64) - sketch.bounds_.center) / sketch.bounds_.scale
        unit = common_scale(sketch.bounds_, sketch._is_declared) or 1.0
        return unit**2 * sliced_values(mapped, sketch.table())

    def barycenter(
        self, sketch: SlicedSketch, /, others: list[Any], weights: ArrayLike | None, n_points: int
    ) -> np.ndarray:
        """Draw points whose quantiles along each direction are the means of the sketches'."""
        shares = weights_of(weights, 1 + len(others), "weights")
        sketches = [sketch, *self._sketches(sketch, others, Exchange())]
        n_shared = check_overlap(sketches)
        tables = [each.table() for each in sketches]
        means = np.tensordot(shares, [table.quantiles(_LEVELS) for table in tables], axes=1)
        whole = tables[0]
        cdf = [
            np.interp(edges, mean, _LEVELS, left=0.0, right=1.0)
            for edges, mean in zip(whole.edges[:n_shared], means[:n_shared], strict=True)
        ]
        mean_table = CDFTable(
            whole.directions[:n_shared], whole.half_widths[:n_shared], np.array(cdf)
        )
        flow = sliced_flow(
            SlicedFlowProblem(mean_table),
            max(n_points, _FEWEST_PARTICLES),
            FlowSchedule(),
            np.random.default_rng(self.shared_seed),
        )
        particles = flow.particles[:n_points].astype(np.float64)
        points: np.ndarray = sketch.bounds_.from_ball(particles)
        return points

    def matrix(
        self, context: FitContext, sketch: SlicedSketch | None, /, parties: Any
    ) -> PairwiseResult:
        """Let every party publish one sketch; the budget pays once for all rows that are passed."""
        budget = _shared_budget(context, parties)
        members = parties_of(
            parties,
            self.name,
            lambda: None if budget is None else PrivacyBudget(context.epsilon, context.delta),
            epsilon=context.epsilon,
            delta=context.delta,
            random_state=context.random_state,
        )
        if sketch is None:
            n_features = members[0].n_features
            bounds = public_bounds(context.bounds, context.norm_bound, n_features)
            if bounds is None:
                raise ValueError(
                    "pairwise_distances requires public bounds that all parties share: pass "
                    "bounds=(low, high) or norm_bound=, or call fit first to share the bounds that "
                    "it publishes."
                )
            weakest = min(_rows_times_mu(member, context) for member in members)
            directions = self.directions(n_features, weakest)
            request = SketchRequest(directions, self.n_bins, bounds)
        else:
            request = self._request(sketch)
        result = pairwise_sliced(members, request, target=self.target, budget=budget)
        is_declared = sketch is None or sketch._is_declared
        estimates = {
            pair: estimate.in_features(request.bounds, is_declared)
            for pair, estimate in result.estimates.items()
        }
        return replace(result, estimates=estimates)

    def _sketch_or_rows(self, sketch: SlicedSketch, other: Any, exchange: Exchange) -> Any:
        """Return the sketch of the other side, or its public rows."""
        if isinstance(other, Party):
            request = self._request(sketch)
            publish = partial(other.publish_sketch, request)
            return exchange.send(0, other.name, publish, SketchMessage, read=request.read)
        if isinstance(other, SketchMessage):
            read = partial(self._request(sketch).read, overlapping=True)
            return exchange.send(0, "other party", other, SketchMessage, read=read)
        if isinstance(other, SlicedSketch):
            exchange.send(0, "other party", SketchMessage(other), SketchMessage)
        return other

    def _sketches(
        self, sketch: SlicedSketch, others: Sequence[Any], exchange: Exchange
    ) -> list[SlicedSketch]:
        """Return the sketches of others; what is refused is refused before a party publishes."""
        if not all(isinstance(other, Party | SketchMessage | SlicedSketch) for other in others):
            raise ValueError("Unions and barycenters are of sketches, not of public rows.")
        published = [
            other if isinstance(other, Party) else self._sketch_or_rows(sketch, other, exchange)
            for other in others
        ]
        check_overlap([sketch, *(each for each in published if not isinstance(each, Party))])
        return [
            self._sketch_or_rows(sketch, each, exchange) if isinstance(each, Party) else each
            for each in published
        ]

    def _request(self, sketch: SlicedSketch) -> SketchRequest:
        """Return the request for a sketch like the fitted one."""
        return SketchRequest(sketch.directions_, self.n_bins, sketch.bounds_)

    def directions(self, n_features: int, rows_times_mu: float) -> np.ndarray:
        """Return the first of the shared directions: as many as the noise of a party allows."""
        rng = np.random.default_rng(self.shared_seed)
        if self.n_projections != "auto" or not isinstance(self.projections, str):
            n_declared = 0 if isinstance(self.n_projections, str) else int(self.n_projections)
            return make_directions(self.projections, n_declared, n_features, rng)
        most = n_features * -(-_MOST_SLICES // n_features) if n_features > 1 else 1
        allowed = min((rows_times_mu / _ROWS_OVER_NOISE) ** 2, most)
        n_used = min(max(int(allowed), _FEWEST_SLICES), most)
        if n_used > n_features:  # whole blocks
            n_used -= n_used % n_features
        return make_directions(self.projections, most, n_features, rng)[:n_used]


def _refuse_masses(masses: ArrayLike | None) -> None:
    if masses is not None:
        raise ValueError('protocol="sliced" counts every row once: leave masses=None.')


def _shared_budget(context: FitContext, parties: Any) -> PrivacyBudget | None:
    """Return the budget that pays once for all rows; parties pay for themselves."""
    return None if holds_parties(parties) else context.budget


def _n_records(context: FitContext, rows: np.ndarray | Source) -> int:
    """Return the public number of records: of persons, if rows have some."""
    if isinstance(rows, Source):
        return count_rows(rows)
    if context.groups is None:
        return len(rows)
    return int(read_persons(context.groups, "groups", len(rows)).max()) + 1


def _rows_times_mu(party: Party, context: FitContext) -> float:
    """Return what the noise of a party depends on; parties elsewhere do not tell their epsilon."""
    target = {name: getattr(party, name, getattr(context, name)) for name in ("epsilon", "delta")}
    return float(party.n_samples * replace(context, budget=None, **target).mu_share(1.0))
