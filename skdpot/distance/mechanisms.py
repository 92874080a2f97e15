"""Distance protocols: a sketch of each party, which is private, and two that are not private."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.validation import Interval, StrOptions, spawn_streams
from skdpot.base import COUNT, FitContext, Mechanism, MechanismResult
from skdpot.distance.debiased import DROWNING_NOISE, debiased_squared_distance
from skdpot.distance.exchange import (
    DistanceEstimate,
    Exchange,
    PairwiseResult,
    as_parties,
    common_scale,
    pairwise_sliced,
)
from skdpot.distance.messages import (
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.distance.party import Party, release_seed
from skdpot.distance.protocols import (
    barycenter,
    fedwad,
    fractions_of_rounds,
    pairwise_fedwad,
    pairwise_triangle,
    rescaled,
    triangle,
    triangle_to_union,
)
from skdpot.exceptions import warn_not_private, warn_of_privacy
from skdpot.ot.flow import FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.ot.measures import (
    DiscreteMeasure,
    calibrated_values,
    cost_of_plan,
    gaussian_reference,
    optimal_plan,
    sliced_values,
    weights_of,
)
from skdpot.ot.slices import CDFTable, make_directions
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import PrivacySpent, charge
from skdpot.release.bounds import public_bounds
from skdpot.release.contributions import read_persons
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_record import check_overlap, counts_persons
from skdpot.sources import Source, count_rows, head_of

_MOST_SLICES, _FEWEST_SLICES = 64, 16  # but for whole blocks
_ROWS_OVER_NOISE = 32.0  # so many of n mu for the root of the number of directions
_LEVELS = (np.arange(2048) + 0.5) / 2048  # of the quantiles of a barycenter
_FEWEST_PARTICLES = 256  # in a flow: a handful would sit at the quantiles of their ranks alone
_LONG = 2000**2  # pairs of points of a plan that takes seconds


@dataclass(eq=False, repr=False, kw_only=True)
class Sliced(Mechanism):
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

    def release(
        self, context: FitContext, rows: np.ndarray, y: Any, masses: Any
    ) -> MechanismResult:
        """Charge, and publish the sketch of this party."""
        if masses is not None:
            raise ValueError('protocol="sliced" counts every row once: leave masses=None.')
        n_features = (head_of(rows) if isinstance(rows, Source) else rows).shape[1]
        if isinstance(rows, Source):
            n_samples = count_rows(rows)
        elif context.groups is None:
            n_samples = len(rows)
        else:
            n_samples = int(read_persons(context.groups, "groups", len(rows)).max()) + 1
        directions = self.directions(n_features, n_samples * context.mu_share(1.0))
        public = public_bounds(context.bounds, context.norm_bound, n_features)
        if public is not None:
            # Refused before any charge: what no request can carry could never be compared.
            SketchRequest(directions, self.n_bins, public)
        options = {"projections": directions, "n_bins": self.n_bins, "device": context.device}
        given = rows if isinstance(rows, Source) else context.source  # some are read once
        sketch = context.sketch(given, None, **options)
        return MechanismResult(sketch, sketch.bounds_, sketch.privacy_spent_)

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
        if counts_persons(own):
            warn_of_privacy(
                f"{context.caller}: the sketch of fit has one record for each person, and this one "
                "has one for each row. Pass one row of each person, or fit another estimator with "
                "groups=."
            )
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

    def barycenter(self, own: SlicedSketch, others: Any, weights: Any, n_points: int) -> np.ndarray:
        """Draw points whose quantiles along each direction are the means of the sketches'."""
        shares = weights_of(weights, 1 + len(others), "weights")
        sketches = [own, *self._sketches(own, others, Exchange())]
        n_shared = check_overlap(sketches)
        tables = [sketch.table() for sketch in sketches]
        means = np.tensordot(shares, [table.quantiles(_LEVELS) for table in tables], axes=1)
        whole = tables[0]
        reached = [
            np.interp(edges, mean, _LEVELS, left=0.0, right=1.0)
            for edges, mean in zip(whole.edges[:n_shared], means[:n_shared], strict=True)
        ]
        table = CDFTable(
            whole.directions[:n_shared], whole.half_widths[:n_shared], np.array(reached)
        )
        flow = sliced_flow(
            SlicedFlowProblem(table),
            max(n_points, _FEWEST_PARTICLES),
            FlowSchedule(),
            np.random.default_rng(self.shared_seed),
        )
        bounds = own.bounds_
        points: np.ndarray = bounds.from_ball(flow.particles[:n_points].astype(np.float64))
        return points

    def matrix(self, context: FitContext, own: SlicedSketch | None, parties: Any) -> PairwiseResult:
        """Let every party publish one sketch; the budget pays once for all given rows."""
        listed = isinstance(parties, list | tuple) and len(parties) > 0
        budget = None if listed and isinstance(parties[0], Party) else context.budget
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
            weakest = min(_rows_times_mu(member, context) for member in members)
            directions = self.directions(n_features, weakest)
            request = SketchRequest(directions, self.n_bins, bounds)
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
            sides = self._sketches(own, other, exchange)
            return sides[0].merge(*sides[1:])
        request = self._request(own)
        if isinstance(other, Party):
            publish = partial(other.publish_sketch, request)
            return exchange.send(0, other.name, publish, SketchMessage, read=request.read)
        if isinstance(other, SketchMessage):
            read = partial(request.read, overlapping=True)
            return exchange.send(0, "other party", other, SketchMessage, read=read)
        if isinstance(other, SlicedSketch):
            exchange.send(0, "other party", SketchMessage(other), SketchMessage)
        return other

    def _sketches(self, own: SlicedSketch, others: Any, exchange: Exchange) -> list[SlicedSketch]:
        """Return the sketches of others; what is refused is refused before a party publishes."""
        if not all(isinstance(other, Party | SketchMessage | SlicedSketch) for other in others):
            raise ValueError("Unions and barycenters are of sketches, not of public rows.")
        found = [o if isinstance(o, Party) else self._found(own, o, exchange) for o in others]
        check_overlap([own, *(side for side in found if not isinstance(side, Party))])
        return [self._found(own, s, exchange) if isinstance(s, Party) else s for s in found]

    def _request(self, own: SlicedSketch) -> SketchRequest:
        return SketchRequest(own.directions_, self.n_bins, own.bounds_)

    def directions(self, n_features: int, rows_times_mu: float) -> np.ndarray:
        """Return the first of the shared directions: as many as the noise of a party allows."""
        rng = np.random.default_rng(self.shared_seed)
        if self.n_projections != "auto" or not isinstance(self.projections, str):
            n_given = 0 if isinstance(self.n_projections, str) else int(self.n_projections)
            return make_directions(self.projections, n_given, n_features, rng)
        most = n_features * -(-_MOST_SLICES // n_features) if n_features > 1 else 1
        allowed = min((rows_times_mu / _ROWS_OVER_NOISE) ** 2, most)
        n_shown = min(max(int(allowed), _FEWEST_SLICES), most)
        if n_shown > n_features:  # whole blocks
            n_shown -= n_shown % n_features
        return make_directions(self.projections, most, n_features, rng)[:n_shown]


def _rows_times_mu(party: Any, context: FitContext) -> float:
    """Return what a party's noise depends on; those elsewhere do not say their epsilon."""
    own = {name: getattr(party, name, getattr(context, name)) for name in ("epsilon", "delta")}
    return float(party.n_samples * replace(context, budget=None, **own).mu_share(1.0))


_numbers = count(1)  # parties that meet need different names


@dataclass(frozen=True, eq=False)
class PlainSide:
    """A party with its rows, and the measure that all parties move towards."""

    party: Party
    reference: ReferenceMeasure | GeodesicMeasure
    privacy_spent_: PrivacySpent


@dataclass(eq=False, repr=False, kw_only=True)
class PlainProtocol(Mechanism):
    """Base class of the two protocols that are not private."""

    t: float = 0.5
    gamma_scale: float = 1.0
    gamma_mean: float = 0.0
    n_support: int | None = None
    interpolation: str = "barycentric"
    labeled: bool = False
    shared_seed: int = 0

    name: ClassVar[str]
    warning: ClassVar[str]
    is_private = False
    fewest_rows = 2
    messages: ClassVar[tuple[type[Message], ...]] = ()
    _sent: ClassVar[type[ReferenceMeasure | GeodesicMeasure]]
    _pairwise: ClassVar[Callable[..., PairwiseResult]]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "t": [Interval(Real, 0, 1, closed="neither")],
        "gamma_scale": [Interval(Real, 0, None, closed="left")],
        "gamma_mean": [Interval(Real, None, None, closed="neither")],
        "n_support": [COUNT, None],
        "interpolation": [StrOptions({"barycentric", "exact"})],
        "labeled": ["boolean"],
        "shared_seed": [Interval(Integral, 0, None, closed="left")],
    }

    def release(
        self, context: FitContext, rows: np.ndarray, y: Any, masses: Any
    ) -> MechanismResult:
        """Keep the rows, and draw the shared sample."""
        own = self._party(context.source, y, masses, name=f"fitted party {next(_numbers)}")
        reference = self._drawn([own], self._rng())
        spent = charge(
            context,
            NonPrivateEvent(),
            n_samples=None,
            assumptions=(),
            mechanism=f"{self.name}: an interpolation of every row, without noise",
            noise_given=True,
        )
        return MechanismResult(
            PlainSide(own, self._announced(reference.points), spent), None, spent
        )

    def advise(self, *sides: Any) -> None:
        """Say that nothing is private, and what long transport will take."""
        sizes = [getattr(side, "party", side).n_samples for side in sides]
        n, m = max(sizes), self.n_support or min(sizes)
        cost = f" It solves exact transport between {cost_of_plan(n, m)}; verbose=1 shows progress."
        warn_not_private(self.warning + cost * (n * m >= _LONG))

    def numbers(self, message: InterpolatingMeasure) -> np.ndarray:
        """Return the interpolated rows."""
        return message.points

    def publish(self, context: FitContext, own: PlainSide, X: Any, y: Any) -> InterpolatingMeasure:
        """Return what a party sends, which reveals its rows."""
        party = own.party if X is None else self._party(X, y)
        return self._moved(own.reference, party)

    def matrix(self, context: FitContext, own: PlainSide | None, parties: Any) -> PairwiseResult:
        """Play the protocol between all parties."""
        if self.labeled and isinstance(parties, Mapping):
            raise ValueError(
                "labeled=True requires Party objects with classes: Party(name, X, y, allows=...)."
            )
        members, rng = as_parties(parties, self.name, lambda: context.budget), self._rng()
        self.advise(*members)
        reference = self._drawn(members, rng) if own is None else own.reference.measure
        return self._pairwise(members, reference=reference, rng=rng, **self._options)

    def barycenter(self, own: PlainSide, others: Any, weights: Any, n_points: int) -> np.ndarray:
        """Move a shared sample to the barycenter, round by round."""
        if self.labeled:
            raise ValueError("A barycenter is of rows without classes: set labeled=False.")
        parties = [own.party]
        parties += [self._party(o, None, name=f"other party {k}") for k, o in enumerate(others)]
        found = barycenter(
            parties,
            self._sent,
            weights=weights,
            t=self.t,
            n_rounds=getattr(self, "n_rounds", 1),  # TriangleWad has one
            reference=self._drawn(parties, self._rng(), n_points),
        )
        points: np.ndarray = found.points
        return points

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.shared_seed)

    def _drawn(
        self, parties: list[Party], rng: np.random.Generator, n_points: int | None = None
    ) -> DiscreteMeasure:
        return gaussian_reference(
            n_points or self.n_support or min(party.n_samples for party in parties),
            parties[0].n_dimensions,
            mean=self.gamma_mean,
            scale=self.gamma_scale,
            rng=rng,
        )

    def _moved(self, reference: Any, party: Party) -> InterpolatingMeasure:
        return party.interpolate(reference, self.t if reference.t is None else None)

    def _party(self, X: Any, y: Any, masses: Any = None, name: str = "other party") -> Party:
        if isinstance(X, Party | PlainSide):
            return X if isinstance(X, Party) else X.party
        if self.labeled and y is None:
            raise ValueError("labeled=True requires y to be passed, but the target y is None.")
        labels = y if self.labeled else None
        return Party(name, X, labels, masses=masses, allows=(self.name, "values"))

    def _announced(self, points: np.ndarray) -> Any:
        raise NotImplementedError

    @property
    def _options(self) -> dict[str, Any]:
        return {"t": self.t, "interpolation": self.interpolation}


@dataclass(eq=False, repr=False, kw_only=True)
class Triangle(PlainProtocol):
    """TriangleWad: each party publishes an interpolation with a shared sample. Not private.

    The distance between two interpolations is scaled up. Anyone who sees a party's message and
    knows the sample and t, as the server does, recovers every row exactly
    (`skdpot.distance.reconstruction`).

    Parameters
    ----------
    t : float, default=0.5
        Position of a message between the party's rows (0) and the shared sample (1), in (0, 1).
    gamma_scale : float, default=1.0
        Standard deviation of the shared Gaussian sample. If it is as large as the spread of the
        data or larger, the result is the distance *linearised* through the sample, far above W₂.
    gamma_mean : float, default=0.0
        Mean of the shared Gaussian sample.
    n_support : int, optional
        Number of rows of the shared sample. By default, the number of fitted rows.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        How to treat a row that the plan splits: move it to the mean of its targets, or split it.
    labeled : bool, default=False
        Whether rows are compared together with the mean and the covariance of their class
        (section 3.4.1 of the paper). Requires `y`.
    shared_seed : int, default=0
        Seed of the shared sample. Messages are comparable only if all parameters are equal.
    disclose_t : bool, default=True
        Whether both parties use the public `t`. If False, the fitted party keeps `t` secret, the
        other party answers for three values, and a parabola through the answers is read at `t`.
        This is approximate: Theorem 3.5 of the paper is an inequality.

    Privacy
    -------
    None. A budget with a finite epsilon refuses it.

    References
    ----------
    W. Li, Y. Pang, "Private Wasserstein distance", with the corrections of the user guide.

    Examples
    --------
    >>> from skdpot import PrivateWassersteinDistance
    >>> from skdpot.mechanisms import Triangle
    >>> distance = PrivateWassersteinDistance(protocol=Triangle(t=0.3))
    """

    disclose_t: bool = True

    name = "triangle"
    warning = (
        'protocol="triangle" is not private: anyone who sees a party\'s message and knows the '
        "shared reference and t, as the server does, recovers every row exactly, in the time of "
        "one optimal transport (see skdpot.distance.reconstruction). "
        'protocol="sliced" is differentially private.'
    )
    messages = (InterpolatingMeasure,)
    _sent = ReferenceMeasure
    _pairwise = staticmethod(pairwise_triangle)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PlainProtocol._parameter_constraints,
        "disclose_t": ["boolean"],
    }

    def compare(self, own: PlainSide, other: Any, y: Any, masses: Any) -> DistanceEstimate:
        """Play the protocol with another party, with several, or with a message."""
        if isinstance(other, InterpolatingMeasure):
            exchange, gone = Exchange(), self._moved(own.reference, own.party)
            exchange.send(0, own.party.name, gone, InterpolatingMeasure)
            come = exchange.send(0, "other party", other, InterpolatingMeasure)
            squared = rescaled(optimal_plan(gone.measure, come.measure).squared_distance, self.t)
            return DistanceEstimate(self.name, squared, exchange.transcript)
        shared: dict[str, Any] = {"disclose_t": self.disclose_t, "reference": own.reference.measure}
        if isinstance(other, tuple):
            sellers = [self._party(part, None) for part in other]
            return triangle_to_union(own.party, sellers, **shared, **self._options)
        return triangle(own.party, self._party(other, y, masses), **shared, **self._options)

    def values(self, own: PlainSide, rows: Any, y: Any) -> np.ndarray:
        """Return the values from the potentials between the two messages."""
        other, gamma = self._party(rows, y), own.reference.measure
        plan = triangle(own.party, other, t=self.t, reference=gamma).details
        values = calibrated_values(plan.target_potential, plan.target.masses)
        return values / (1 - self.t) ** 2

    def matrix(self, context: FitContext, own: PlainSide | None, parties: Any) -> PairwiseResult:
        """Play the protocol between all parties, at a public t."""
        if not self.disclose_t:
            raise ValueError("pairwise_distances requires a public t: set disclose_t=True.")
        return super().matrix(context, own, parties)

    def _announced(self, points: np.ndarray) -> ReferenceMeasure:
        t = self.t if self.disclose_t else None
        return ReferenceMeasure(points, None, t, self.interpolation)


@dataclass(eq=False, repr=False, kw_only=True)
class FedWad(PlainProtocol):
    """FedWad: two parties approach a measure between them, in rounds. Not private.

    The server recovers every row of both parties from the first round, and each party the rows of
    the other from the last (`skdpot.distance.reconstruction`).

    Parameters
    ----------
    t : float, default=0.5
        Fraction of the way that parties move in each round, in (0, 1), if `draw_t` is False.
    gamma_scale, gamma_mean : float, default=1.0, 0.0
        Standard deviation and mean of the Gaussian sample of the first round.
    n_support : int, optional
        Number of rows of that sample. By default, the number of fitted rows.
    interpolation : {"barycentric", "exact"}, default="barycentric"
        How to treat a row that the plan splits: move it to the mean of its targets, or split it.
    labeled : bool, default=False
        Whether rows are compared together with the mean and the covariance of their class.
        Requires `y`.
    shared_seed : int, default=0
        Seed of the sample and of the t of each round.
    n_rounds : int, default=30
        Number of rounds.
    draw_t : bool, default=True
        Whether each round draws its t uniformly. With a fixed t the rounds stall far from the
        distance.

    Privacy
    -------
    None. A budget with a finite epsilon refuses it.

    References
    ----------
    A. Rakotomamonjy, K. Nadjahi, L. Ralaivola, "Federated Wasserstein distance", ICLR 2024.

    Examples
    --------
    >>> from skdpot import PrivateWassersteinDistance
    >>> from skdpot.mechanisms import FedWad
    >>> distance = PrivateWassersteinDistance(protocol=FedWad(n_rounds=10))
    """

    n_rounds: int = 30
    draw_t: bool = True

    name = "fedwad"
    warning = (
        'protocol="fedwad" is not private: the server recovers every row of both parties from '
        "the first round, and each party the rows of the other from the last "
        '(see skdpot.distance.reconstruction). protocol="sliced" is differentially private.'
    )
    _sent = GeodesicMeasure
    _pairwise = staticmethod(pairwise_fedwad)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PlainProtocol._parameter_constraints,
        "n_rounds": [COUNT],
        "draw_t": ["boolean"],
    }

    def compare(self, own: PlainSide, other: Any, y: Any, masses: Any) -> DistanceEstimate:
        """Play all rounds with another party."""
        if isinstance(other, tuple):
            raise ValueError(
                'protocol="fedwad" takes two parties; use "triangle" or "sliced" for a union.'
            )
        return self._play(own, self._party(other, y, masses))

    def values(self, own: PlainSide, rows: Any, y: Any) -> np.ndarray:
        """Return the values of FedBary, against the last ξ, as the owner of the rows does."""
        party = self._party(rows, y)
        return party.values_against(self._play(own, party).details.reference).values

    def _play(self, own: PlainSide, other: Party) -> DistanceEstimate:
        gamma = own.reference.measure
        return fedwad(own.party, other, reference=gamma, rng=self._rng(), **self._options)

    def _announced(self, points: np.ndarray) -> GeodesicMeasure:
        t = self._options["t"]
        first = float(fractions_of_rounds(t, self.n_rounds, self._rng())[0])
        return GeodesicMeasure(points, None, first, self.interpolation)

    @property
    def _options(self) -> dict[str, Any]:
        t = "drawn" if self.draw_t else self.t
        return {"n_rounds": self.n_rounds, "t": t, "interpolation": self.interpolation}
