r"""Predictions of groups moved to their Wasserstein barycentre, with the share chosen afterwards.

Let :math:`\nu_s` be the distribution of the predictions f in group s, with distribution function
:math:`F_s`, and :math:`p_s` the share of the group. The best prediction of which the distribution
is the same in all groups is :math:`T_s(f) = \sum_b p_b F_b^{-1}(F_s(f))`, the quantile of the
barycentre [1]_, and :math:`(1 - \lambda) f + \lambda T_s(f)` leaves the share
:math:`1 - \lambda` of the distances between groups, at the least risk [2]_.

Where a prediction must not use the group, the best one moves along the posterior [3]_:
:math:`f - \sum_s c_s(\cdot) \pi_s(x)`, with :math:`\pi_s(x) = P(s \mid x)` and functions that make
the distributions equal. If :math:`M_{sa}` is the mean of :math:`\pi_a` in group s, moving by
:math:`\sum_a \pi_a(x) c_a(f)` with :math:`c = M^{-1} (T - \mathrm{id})` moves group s by about what
it should, and what is left is moved again. M and each round's distributions are measured with noise
and the true groups, so that the posterior need not be calibrated. The last round decides how alike
groups become; errors of the ones before are part of what it measures. Both cases are the same
composition of one-dimensional maps, with the group's indicators in the place of the posterior and
M = 1 in the first. Several outputs are moved along the directions of an orthogonal basis, another
one in each round.

References
----------
.. [1] E. Chzhen, C. Denis, M. Hebiri, L. Oneto, M. Pontil, "Fair regression with Wasserstein
   barycenters", NeurIPS 2020.
.. [2] E. Chzhen, N. Schreuder, "A minimax framework for quantifying risk-fairness trade-off in
   regression", Annals of Statistics 50 (2022).
.. [3] V. Divol, S. Gaucher, "Demographic parity in regression and classification within the
   unawareness framework", 2024.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Real
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import pandas as pd

from skdpot._utils.validation import Interval, SecretStream
from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.exceptions import told_safely
from skdpot.fair.penalties import FairMechanism, FairTask
from skdpot.fair.recalibration import (
    Affine,
    plan_recalibration,
    plan_spread,
    release_recalibration,
    release_spread,
)
from skdpot.fair.scores import GroupScorePlan, GroupScores, plan_group_scores
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.ot.slices import CDFTable, orthogonal_directions
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.release.bounds import BoundsPlan, DataBounds, bounds_share
from skdpot.release.moments import SumNoise, as_finite_rows, plan_sums, release_sums

# From rows and groups to predictions in a ball, (n, q), and to the weights of the moves, (n, k).
ScoresOf: TypeAlias = Callable[[Any, np.ndarray], tuple[np.ndarray, np.ndarray]]

# Of the squared mu.
_SHARES = {
    "rounds": 0.12,
    "weights": 0.03,
    "slope": 0.02,
    "curve": 0.04,
    "sizes": 0.015,
    "moments": 0.025,
}
_SPREAD = 0.02  # of the squared mu of the networks, for the spread of the targets
_GRID = 257
_LEVELS = (np.arange(256) + 0.5) / 256
_RIDGE = 1e-3
_UNRESOLVED = 0.1  # error of a distribution function at which half of a move is left out
_TOLD_APART = 0.03  # error at which moved groups were still told apart
_HIDDEN, _LARGEST_TAIL = 3.0, 0.2  # of a distribution: errors that hide its ends, and the most
_MEASURED = np.array([0.0, 0.5, 1.0])  # shares whose predictions are measured at the end
_SHOWN = np.linspace(0.0, 1.0, 21)
_REPLICATES = 60
_LONGEST = math.sqrt(0.5**2 + 1.0 + 0.5**2 + 0.5**2)  # vector of `_moments`


class BallScores(GroupScores):
    """Predictions, shortened to a ball, and the weight of each group's moves."""

    def __call__(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return them of rows, the groups of which are `codes` if they are known."""
        outputs, weights = super().__call__(rows, codes)
        return _in_ball(as_finite_rows(outputs)), weights


@dataclass(frozen=True, eq=False)
class Round:
    """Moves along the directions of a basis."""

    basis: np.ndarray  # (q, q)
    grid: np.ndarray  # (q, n_points)
    moves: np.ndarray  # (q, k, n_points), of which each record takes a weighted sum

    def __call__(self, outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return moved outputs."""
        along = outputs @ self.basis.T
        for j, (points, moves) in enumerate(zip(self.grid, self.moves, strict=True)):
            shifts = [np.interp(along[:, j], points, move) for move in moves]
            along[:, j] += np.einsum("nk,kn->n", weights, shifts)
        return _in_ball(along @ self.basis)


@dataclass(frozen=True, eq=False)
class Transport:
    """The map of predictions to one distribution for all groups."""

    rounds: tuple[Round, ...] = ()
    last: Affine | None = None
    within: tuple[np.ndarray, np.ndarray] | None = None  # centre and half widths of predictions

    def __call__(self, outputs: np.ndarray, weights: np.ndarray, level: float = 1.0) -> np.ndarray:
        """Move predictions by a share of the way."""
        moved = outputs
        for one in self.rounds:
            moved = one(moved, weights)
        if self.last is not None:
            moved = _in_ball(self.last(moved))
        return (1.0 - level) * outputs + level * moved


@dataclass(frozen=True, kw_only=True)
class RoundsPlan:
    """The noise of what moves are made of."""

    tables: TableNoise
    weights: SumNoise | None  # None where the weights are the groups
    bases: np.ndarray  # (n_rounds, q, q)

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        return (self.tables.event, *(() if self.weights is None else (self.weights.event,)))


def plan_rounds(
    mu: float,
    cells: Cells,
    n_outputs: int,
    n_rounds: int,
    rng: np.random.Generator,
    label: str = "Predictions of each group, to be moved",
    *,
    of_weights: float = 0.0,
) -> RoundsPlan:
    """Plan the rounds, and where the group is hidden, with what privacy weights are known."""
    bases = orthogonal_directions(n_rounds * n_outputs, n_outputs, rng, axes_first=True)
    radius = _radius_of_weights(cells)
    return RoundsPlan(
        tables=plan_output_tables(mu, n_rounds, n_outputs, max(1, min(cells.sizes)), label),
        weights=plan_sums(of_weights, radius, "Posteriors of each group") if of_weights else None,
        bases=bases.reshape(n_rounds, n_outputs, n_outputs),
    )


@dataclass(frozen=True, kw_only=True)
class TransportPlan:
    """The noise of what a transport is made of, and of its frontier."""

    rounds: RoundsPlan
    slope: SumNoise
    curve: TableNoise
    sizes: SumNoise
    moments: SumNoise
    slices: np.ndarray  # (n_slices, q), directions of the frontier

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        last = (self.slope, self.curve, self.sizes, self.moments)
        return (*self.rounds.events, *(noise.event for noise in last))


def plan_transport(
    mu: float,
    cells: Cells,
    n_outputs: int,
    n_rounds: int,
    *,
    blind: bool,
    rng: np.random.Generator,
) -> TransportPlan:
    """Divide a privacy parameter between the releases of a transport."""
    shares = _SHARES | ({} if blind else {"weights": 0.0})
    mus = {name: mu * math.sqrt(share / sum(shares.values())) for name, share in shares.items()}
    given = (cells, n_outputs, n_rounds, rng)
    rounds = plan_rounds(mus["rounds"], *given, of_weights=mus["weights"] if blind else 0.0)
    n_slices = 1 if n_outputs == 1 else 2 * n_outputs
    return TransportPlan(
        rounds=rounds,
        slope=plan_recalibration(mus["slope"]),
        curve=plan_output_tables(
            mus["curve"],
            1,
            len(_MEASURED) * n_slices,
            max(1, min(cells.sizes)),
            "Predictions of each group, before and after they are moved",
        ),
        sizes=plan_sums(mus["sizes"], math.sqrt(2.0), "Sizes of errors and moves"),
        moments=plan_sums(mus["moments"], _LONGEST, "Squared errors and moves"),
        slices=orthogonal_directions(n_slices, n_outputs, rng, axes_first=True),
    )


def release_rounds(
    scores: tuple[np.ndarray, np.ndarray],
    scores_of: ScoresOf,
    cells: Cells,
    plan: RoundsPlan,
    stream: SecretStream,
) -> Transport:
    """Measure and move until groups are alike. The caller has charged the plan."""
    outputs, weights = scores
    mixing, transport = _mixing(weights, scores_of, cells, plan.weights, stream), Transport()
    limits = np.full(outputs.shape[1], math.sqrt(outputs.shape[1]))
    within: tuple[np.ndarray, np.ndarray] | None = None
    for basis in plan.bases:
        around = None if within is None else (basis @ within[0], np.abs(basis) @ within[1])
        tables = release_tables(
            transport(outputs, weights),
            cells.codes,
            cells.sizes,
            basis,
            limits,
            plan.tables,
            stream,
            within=around,
            values_of=partial(_moved, scores_of, transport),
        )
        if within is None:
            within = tables.range_of_interest(limits)
        moves = _round(tables, cells.sizes, mixing, plan.tables)
        transport = Transport((*transport.rounds, moves), within=within)
    return transport


def release_transport(
    scores: tuple[np.ndarray, np.ndarray],
    targets: np.ndarray,
    scores_of: ScoresOf,
    cells: Cells,
    plan: TransportPlan,
    stream: SecretStream,
) -> Transport:
    """Make predictions alike, and set their mean and slope right after that."""
    transport = release_rounds(scores, scores_of, cells, plan.rounds, stream)
    given = (transport(*scores), targets, cells.codes, plan.slope, stream)
    last = release_recalibration(*given, partial(_moved, scores_of, transport))
    return replace(transport, last=last)


def _moved(scores_of: ScoresOf, transport: Transport, rows: Any, codes: np.ndarray) -> np.ndarray:
    return transport(*scores_of(rows, codes))


def _mixing(
    weights: np.ndarray,
    scores_of: ScoresOf,
    cells: Cells,
    noise: SumNoise | None,
    stream: SecretStream,
) -> np.ndarray:
    """Return the map from moves of groups to moves by weights: a regularised inverse of M."""
    n_groups = len(cells.sizes)
    if noise is None:
        return np.eye(n_groups)
    centre = 1.0 / n_groups

    def vectors_of(rows: Any, _: Any, codes: np.ndarray) -> np.ndarray:
        return scores_of(rows, codes)[1] - centre

    sums = release_sums(weights - centre, cells.codes, n_groups, noise, stream, vectors_of)
    sizes = np.array(cells.sizes, dtype=np.float64)[:, None]
    means = np.clip(sums / sizes + centre, 0.0, 1.0)
    ridge = _RIDGE + float(np.mean((noise.sigma / sizes) ** 2)) * n_groups
    return np.linalg.solve(means.T @ means + ridge * np.eye(n_groups), means.T)


def _radius_of_weights(cells: Cells) -> float:
    """Return how far a posterior can be from the one of equal probabilities."""
    return math.sqrt(1.0 - 1.0 / len(cells.sizes))


def _round(
    tables: OutputTables, sizes: Sequence[int], mixing: np.ndarray, noise: TableNoise
) -> Round:
    """Return the moves to the barycentre of noisy distributions."""
    of_group, error = np.array(sizes, dtype=np.float64), _errors(noise, sizes)
    ends = np.minimum(_HIDDEN * error, _LARGEST_TAIL)[:, None]
    inside = np.clip(_LEVELS, ends, 1.0 - ends)
    pairs = zip(tables.tables, inside, strict=True)
    own = np.stack([table.quantiles(levels) for table, levels in pairs])  # (K, q, levels)
    moves = np.einsum("k,kql->ql", of_group / sum(sizes), own) - own
    moves *= (1.0 / (1.0 + (error / _UNRESOLVED) ** 2))[:, None, None]
    own = own + tables.centres[:, None]
    half = tables.tables[0].half_widths
    grid = tables.centres[:, None] + np.linspace(-1.0, 1.0, _GRID) * half[:, None]
    on_grid = [
        [np.interp(points, *pair) for pair in zip(own[:, j], moves[:, j], strict=True)]
        for j, points in enumerate(grid)
    ]
    return Round(tables.directions, grid, mixing @ np.array(on_grid))


def _errors(noise: TableNoise, sizes: Sequence[int]) -> np.ndarray:
    """Return the typical error of the distribution function of each group."""
    return noise.sigma * noise.strategy.typical_deviation / np.array(sizes, dtype=np.float64)


def unresolved_groups(noise: TableNoise, cells: Cells) -> list[str]:
    """Return the groups of which the noise hides the distribution; all public."""
    hidden = _errors(noise, cells.sizes) > _TOLD_APART
    return [f"{name} ({cells.sizes[k]} records)" for k, name in enumerate(cells.names) if hidden[k]]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Released figures from which risk and unfairness of every share follow."""

    moments: np.ndarray  # means of |r|², r·d, |d|², |r|⁴; r: residuals, d: moves
    deviations: np.ndarray  # of their noise
    n_samples: int
    tables: OutputTables
    sizes: tuple[int, ...]
    noise: TableNoise
    scales: np.ndarray
    slices: np.ndarray

    def table(self) -> pd.DataFrame:
        """Return mean squared error and distance between groups with their standard errors."""
        risk, risk_error = self._risk(_SHOWN)
        distance, distance_error = self._distance(_SHOWN)
        return pd.DataFrame(
            {
                "level": _SHOWN,
                "mean_squared_error": risk,
                "mean_squared_error_se": risk_error,
                "wasserstein": distance,
                "wasserstein_se": distance_error,
            }
        )

    def _risk(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean squares of the residuals r + level d, with standard errors."""
        terms = np.stack([np.ones_like(levels), 2.0 * levels, levels**2])
        unit = _LARGEST_ERROR**2 * float(self.scales @ self.scales) / len(self.scales)
        spread = max(0.0, self.moments[3] - self.moments[0] ** 2) / self.n_samples
        noise = self.deviations[:3] ** 2 @ terms**2
        risk = np.maximum(self.moments[:3] @ terms, 0.0)
        return unit * risk, unit * np.sqrt(noise + spread)

    def _distance(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean distances of two groups, each corrected for noise and sampling."""
        rng, noise = np.random.default_rng(0), self.noise
        own = [table.cdf for table in self.tables.tables]
        found, again = self._squared(own), []
        for _ in range(_REPLICATES):
            copies = []
            for cdf, size in zip(own, self.sizes, strict=True):
                counts = rng.multinomial(size, np.maximum(np.diff(cdf), 0.0))
                noisy = counts @ noise.strategy.matrix.T
                noisy = noisy + noise.sigma * rng.standard_normal(noisy.shape)
                copies.append(noise.strategy.decoded(noisy, size))
            again.append(self._squared(copies))
        bias = np.mean(again, axis=0) - found
        squared = np.maximum(_curve(found - bias, levels), 0.0)
        spread = np.std([_curve(one, levels) for one in again], axis=0)
        distance = np.sqrt(squared)
        # A root near 0 has no derivative to scale errors with.
        above = np.sqrt(squared + spread) - distance
        below = distance - np.sqrt(np.maximum(squared - spread, 0.0))
        return distance.mean(axis=0), np.maximum(above, below).mean(axis=0)

    def _squared(self, cdfs: Sequence[np.ndarray]) -> np.ndarray:
        """Return squared distances, (n_pairs, measured shares), in units of the targets."""
        first = self.tables.tables[0]
        tables = [CDFTable(first.directions, first.half_widths, cdf) for cdf in cdfs]
        lengths = np.linalg.norm(self.slices * self.scales, axis=1)
        return np.array(
            [
                (one.squared_distances(other).reshape(len(_MEASURED), -1) * lengths**2).mean(axis=1)
                for one, other in combinations(tables, 2)
            ]
        )


def _curve(measured: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the quadratic functions of the level through what was measured at 0, 1/2 and 1."""
    start, middle, end = measured.T[..., None]
    bend = 2.0 * start - 4.0 * middle + 2.0 * end
    return np.asarray(start + (end - start - bend) * levels + bend * levels**2)


def release_frontier(
    scores: tuple[np.ndarray, np.ndarray],
    targets: np.ndarray,
    scores_of: ScoresOf,
    cells: Cells,
    plan: TransportPlan,
    transport: Transport,
    scales: np.ndarray,
    stream: SecretStream,
) -> Frontier:
    """Measure the errors and distances of predictions that are moved, or not, or half."""
    slices = plan.slices * scales
    slices = slices / np.linalg.norm(slices, axis=1, keepdims=True)

    def values(outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        moved = transport(outputs, weights) - outputs
        return np.hstack([(outputs + share * moved) @ slices.T for share in _MEASURED])

    def errors_and_moves(
        outputs: np.ndarray, weights: np.ndarray, targets: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        unit = scales / np.linalg.norm(scales) / _LARGEST_ERROR
        moves = transport(outputs, weights) - outputs
        return (outputs - np.asarray(targets)) * unit, moves * unit

    def summed(vectors: Callable[..., np.ndarray], noise: SumNoise) -> np.ndarray:
        of_audit = lambda rows, targets, codes: vectors(  # noqa: E731
            *errors_and_moves(*scores_of(rows, codes), targets)
        )
        given = (vectors(*errors_and_moves(*scores, targets)), cells.codes, 1, noise, stream)
        return release_sums(*given, of_audit)[0]

    limits = np.full(len(_MEASURED) * len(slices), math.sqrt(slices.shape[1]))
    within = None
    if transport.within is not None:
        along = (slices @ transport.within[0], np.abs(slices) @ transport.within[1])
        within = (np.tile(along[0], len(_MEASURED)), np.tile(along[1], len(_MEASURED)))
    tables = release_tables(
        values(*scores),
        cells.codes,
        cells.sizes,
        np.eye(len(limits)),
        limits,
        plan.curve,
        stream,
        within=within,
        values_of=lambda rows, codes: values(*scores_of(rows, codes)),
    )
    n = len(targets)
    radii = _radii(summed(_sizes, plan.sizes), plan.sizes.sigma, n)
    sums = summed(partial(_moments, radii=radii), plan.moments)
    units = np.array([radii[0] ** 2, radii[0] * radii[1], radii[1] ** 2, radii[0] ** 4])
    return Frontier(
        moments=(sums / n + _CENTRE) * units,
        deviations=plan.moments.sigma / n * units,
        n_samples=n,
        tables=tables,
        sizes=cells.sizes,
        noise=plan.curve,
        scales=scales,
        slices=plan.slices,
    )


_LARGEST_ERROR = math.sqrt(2.0)  # in half ranges of the targets
_CENTRE = np.array([0.5, 0.0, 0.5, 0.5])
_OCTAVES = 12  # of sizes
_BEYOND = 0.01, 0.05  # share of the errors that may be beyond, by what the noise hides


def _sizes(*vectors: np.ndarray) -> np.ndarray:
    """Return in which octave below 1 the norm of each vector is, as indicators."""
    norms = [np.linalg.norm(_in_ball(one, 1.0), axis=1) for one in vectors]
    octaves = [np.clip(-np.frexp(norm)[1], 0, _OCTAVES - 1) for norm in norms]
    return np.hstack([np.eye(_OCTAVES)[octave] for octave in octaves])


def _radii(counts: np.ndarray, sigma: float, n: int) -> np.ndarray:
    """Return lengths that few errors and few moves exceed, whatever the noise may hide."""
    beyond = np.cumsum(counts.reshape(2, _OCTAVES), axis=1)  # norms of 2^-k and more
    least = beyond + sigma * np.sqrt(np.arange(1, _OCTAVES + 1))
    allowed = min(_BEYOND[1] * n, max(_BEYOND[0] * n, 2.5 * sigma))
    k = np.minimum.accumulate(least <= allowed, axis=1).sum(axis=1)
    return np.minimum(math.sqrt(2.0) * 2.0**-k, 1.0)


def _moments(errors: np.ndarray, moves: np.ndarray, *, radii: np.ndarray) -> np.ndarray:
    r"""Return |r|², r·d, |d|² and |r|⁴ of vectors that are shortened to 1, around the middle.

    Each entry but the second lies within 1/2 of the middle, so that all have a norm of at most
    `_LONGEST`. Errors and moves beyond their radius count as that.
    """
    r, d = (_in_ball(v / radius, 1.0) for v, radius in zip((errors, moves), radii, strict=True))
    own, both, moved = ((a * b).sum(axis=1) for a, b in ((r, r), (r, d), (d, d)))
    return np.stack([own, both, moved, own**2], axis=1) - _CENTRE


def _in_ball(outputs: np.ndarray, radius: float | None = None) -> np.ndarray:
    """Shorten to a ball, by default one that holds the cube [-1, 1]^q."""
    radius = math.sqrt(outputs.shape[1]) if radius is None else radius
    norms = np.linalg.norm(outputs, axis=1, keepdims=True) / radius
    return outputs / np.maximum(norms, 1.0)


@dataclass(eq=False, repr=False)
class Barycenter(FairMechanism):
    r"""Predictions moved to the barycentre of the groups: the default of the fair regressor.

    A network is trained for its loss alone. Then the distributions of its predictions in each group
    are released, and with them maps to one distribution that all groups share. Which share of the
    way predictions are moved is chosen afterwards, at no cost. Where the group may not be used, a
    second network learns the probability of each group given the features, with privacy too.

    Parameters
    ----------
    share : float, default=0.25
        Share of the squared mu for distributions and errors of the predictions.
    posterior_share : float, default=0.2
        Share of the rest for the probabilities of the groups, where predictions may not use them.
    n_rounds : int, optional
        Number of times that predictions are measured and moved; by default 1 for one target where
        the group is used, and 2 otherwise.

    References
    ----------
    As in `skdpot.FairPrivateRegressor`.
    """

    share: float = 0.25
    _: KW_ONLY
    posterior_share: float = 0.2
    n_rounds: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "share": [Interval(Real, 0, 1, closed="neither")],
        "posterior_share": [Interval(Real, 0, 1, closed="neither")],
        "n_rounds": [COUNT, None],
    }

    def release(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        public: Sequence[str],
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        streams, bounds, q = context.streams, task.bounds, task.compared.n_outputs
        plan = self._plan(context, task, *rows.shape)
        facts = context.assumptions(declared_bounds=isinstance(bounds, DataBounds))
        spent = context.charge_event(
            plan.event,
            len(rows),
            (*facts, *public, "the network's initial weights"),
            "noisy sums of clipped gradients of all records"
            + ", and noisy distributions and errors of predictions" * (plan.transport is not None),
        )
        settled = cast(DataBounds | BoundsPlan, bounds).settled(targets, streams)
        found: dict[str, Any] = {"target_bounds_": settled}
        units = settled.to_units(targets)
        spread = release_spread(units, task.cells.codes, plan.spread, streams.secret)
        given = (context, task, rows, spread.before(units), callbacks)
        of = BallScores(**vars(plan.networks.train(*given)))
        of = replace(of, network=spread.after(of.network))
        found |= {"_spread": spread}
        found |= {"posterior_": of.posterior, "transport_": Transport(), "frontier_": None}
        if (transport := plan.transport) is not None:
            scales = settled.scale * settled.radius / math.sqrt(q)  # of units in the ball
            # A network of the caller's own may quote rows in its errors.
            told = (of, task.cells, transport, rows, units, scales, streams.secret)
            moved = told_safely(context.caller, _moved_and_measured, *told)
            found["transport_"], found["frontier_"] = moved
        return MechanismResult(of.network, None, spent, attributes=found)

    def _plan(self, context: FitContext, task: FairTask, n: int, d: int) -> "_Plan":
        """Divide the budget between bounds, networks and what is measured of predictions."""
        target, cells, q = context.target, task.cells, task.compared.n_outputs
        mu, events = context.divisible_mu, list[Event]()
        if isinstance(task.bounds, BoundsPlan):
            mu *= math.sqrt(1.0 - bounds_share(n, q, target.mu_cap))
            events.append(task.bounds.event)
        transport = None
        if cells.strata:
            n_rounds = self.n_rounds or (1 if task.group_aware and q == 1 else 2)
            given = (mu * math.sqrt(self.share), cells, q, n_rounds)
            blind, rng = not task.group_aware, context.streams.public
            transport = plan_transport(*given, blind=blind, rng=rng)
            mu *= math.sqrt(1.0 - self.share)
        spread = plan_spread(mu * math.sqrt(_SPREAD))
        mu *= math.sqrt(1.0 - _SPREAD)
        networks = plan_group_scores(mu, self.posterior_share, task, d, "squared")
        events += [spread.event, *networks.events, *(transport.events if transport else ())]
        private = math.isfinite(target.epsilon)
        event = ComposedEvent(events=tuple(events)) if private else NonPrivateEvent()
        return _Plan(event, spread, networks, transport)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a fit releases, and its cost."""

    event: Event
    spread: SumNoise
    networks: GroupScorePlan
    transport: TransportPlan | None


def _moved_and_measured(
    of: BallScores,
    cells: Cells,
    plan: TransportPlan,
    rows: np.ndarray,
    units: np.ndarray,
    scales: np.ndarray,
    secret: SecretStream,
) -> tuple[Transport, pd.DataFrame]:
    """Release the transport and its frontier."""
    scores = of(rows, cells.codes)
    transport = release_transport(scores, units, of, cells, plan, secret)
    frontier = release_frontier(scores, units, of, cells, plan, transport, scales, secret)
    return transport, frontier.table()
