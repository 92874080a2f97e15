r"""Predictions of groups moved to their Wasserstein barycentre; the level is chosen afterwards.

Let :math:`\nu_s` be the distribution of the predictions f in group s, with distribution function
:math:`F_s`, and :math:`p_s` the share of the group. The best prediction with the same distribution
in all groups is :math:`T_s(f) = \sum_b p_b F_b^{-1}(F_s(f))`, the quantile of the barycentre [1]_.
Moving by a share, to :math:`(1 - \lambda) f + \lambda T_s(f)`, leaves the share
:math:`1 - \lambda` of the distances between groups, at the least risk [2]_.

If a prediction must not use the group, the best one moves along the posterior [3]_:
:math:`f - \sum_s c_s(\cdot) \pi_s(x)`, with :math:`\pi_s(x) = P(s \mid x)` and functions that make
the distributions equal. `skdpot.fair.transport` composes both cases of one-dimensional maps.

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
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np

from skdpot._utils.parameters import Interval
from skdpot._utils.streams import SecretStream
from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.exceptions import told_safely
from skdpot.fair.group_scores import GroupScorePlan, plan_group_scores
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.recalibration import (
    error_of_means,
    plan_recalibration,
    plan_spread,
    release_recalibration,
    release_spread,
)
from skdpot.fair.regression_errors import (
    ADVICE,
    PredictionErrors,
    half_ranges,
    settled_range,
)
from skdpot.fair.regression_frontier import (
    Frontier,
    FrontierPlan,
    plan_frontier,
    release_frontier,
)
from skdpot.fair.score_noise import ScoreSpread
from skdpot.fair.transport import (
    BallScores,
    RoundsPlan,
    Transport,
    plan_rounds,
    release_rounds,
)
from skdpot.nets.cells import Cells
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.reliability import Reliability
from skdpot.release.bounds import DataBounds
from skdpot.release.moments import SumNoise
from skdpot.release.private_bounds import BoundsPlan, bounds_share

_SHARES = {  # of the squared mu of what is measured of predictions
    "rounds": 0.12,
    "weights": 0.03,
    "slope": 0.02,
    "curve": 0.04,
    "sizes": 0.015,
    "moments": 0.025,
}
# Predictions stay within the mean of the targets and so many times twice their standard deviation.
_REACH = 2.0
_FURTHEST = 5.0  # that of nearly all predictions, in standard deviations of these
_VARIANCE = 0.25  # of mapped targets
_SPREAD = 0.02  # of the squared mu of the networks, for the spread of the targets


@dataclass(eq=False, repr=False)
class Barycenter(FairMechanism):
    r"""Predictions moved to the barycentre of the groups: the default of the fair regressor.

    A network is trained for its loss alone. Then the distributions of its predictions in each group
    are released, and with them maps to one distribution for all groups. The share of the way that
    predictions are moved is chosen afterwards, at no cost. If the group may not be used, a second
    network learns the probability of each group given the features, also with privacy.

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
        self, context: FitContext, task: FairTask, rows: np.ndarray, targets: np.ndarray
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        plan = self._plan(context, task, *rows.shape)
        assumptions = context.assumptions(declared_bounds=isinstance(task.bounds, DataBounds))
        private = math.isfinite(context.target.epsilon)
        spent = context.charge_event(
            ComposedEvent(events=plan.events) if private else NonPrivateEvent(),
            len(rows),
            (*assumptions, *task.public, "the network's initial weights"),
            "noisy sums of clipped gradients of all records"
            + ", and noisy distributions and errors of predictions" * (plan.moves is not None),
        )
        streams, q = context.streams, task.compared.n_outputs
        limits = cast(DataBounds | BoundsPlan, task.bounds)
        bounds = settled_range(limits, targets, streams)
        units = bounds.to_units(targets)
        spread = release_spread(units, task.cells.codes, plan.spread, streams.secret)
        trained = plan.networks.train(
            context, task, rows, spread.before(units), most_signal=_VARIANCE
        )
        known = cast(ScoreSpread, trained.spread).mapped(spread.slope, spread.shift)
        doubt = math.sqrt(q) * plan.spread.sigma / len(rows)  # of the mean of the targets
        reach = _REACH * spread.slope + 2.0 * doubt
        scores = BallScores(
            spread.after(trained.network), trained.posterior, n_groups=trained.n_groups
        )
        transport, frontier = Transport(), None
        mean_error, moves_error = math.hypot(math.sqrt(known.level), known.left * doubt), 0.0
        if plan.moves is not None:
            deviations = known.kept * np.sqrt(known.whole)
            # A network of the caller may quote rows in its errors.
            transport, measured = told_safely(
                context.caller,
                _moved_and_measured,
                scores,
                task.cells,
                plan.moves,
                rows,
                units,
                half_ranges(bounds),
                (known.mean, _FURTHEST * deviations),
                streams.secret,
            )
            frontier = measured.table(spread.slope**2 / 4.0, reach)
            noise = transport.errors(0.0)
            moves_error = float(np.sqrt(np.average(noise**2, weights=task.cells.sizes)))
            mean_error = math.hypot(mean_error, error_of_means(plan.moves.slope, len(rows), q))
        errors = PredictionErrors(
            bounds=bounds,
            spread=known,
            mean_error=mean_error,
            moves=moves_error,
            deviation=spread.slope / 2.0,
            variance_error=plan.spread.sigma / len(rows),
        )
        attributes = {
            "target_bounds_": bounds,
            "_spread": spread,
            "_reach": (spread.shift - reach, spread.shift + reach),
            "posterior_": scores.posterior,
            "transport_": transport,
            "frontier_": frontier,
        }
        reliability = Reliability(tuple(errors.outputs(limits)), ADVICE)
        return MechanismResult(
            scores.network, None, spent, attributes=attributes, reliability=reliability
        )

    def _plan(
        self, context: FitContext, task: FairTask, n_samples: int, n_features: int
    ) -> "BarycenterPlan":
        """Divide the budget between bounds, networks and what is measured of predictions."""
        target, cells, q = context.target, task.cells, task.compared.n_outputs
        mu, bounds, moves = context.divisible_mu, None, None
        if isinstance(task.bounds, BoundsPlan):
            mu *= math.sqrt(1.0 - bounds_share(n_samples, q, target.mu_cap))
            bounds = task.bounds
        if cells.strata:
            moves = plan_moves(
                mu * math.sqrt(self.share),
                cells,
                n_outputs=q,
                n_rounds=self.n_rounds or (1 if task.group_aware and q == 1 else 2),
                blind=not task.group_aware,
                rng=context.streams.public,
            )
            mu *= math.sqrt(1.0 - self.share)
        spread = plan_spread(mu * math.sqrt(_SPREAD))
        mu *= math.sqrt(1.0 - _SPREAD)
        networks = plan_group_scores(mu, self.posterior_share, task, n_features, "squared")
        return BarycenterPlan(bounds=bounds, spread=spread, networks=networks, moves=moves)


@dataclass(frozen=True, kw_only=True)
class MovesPlan:
    """The noise of what predictions are moved by, and of the frontier."""

    rounds: RoundsPlan
    slope: SumNoise
    frontier: FrontierPlan

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        return (*self.rounds.events, self.slope.event, *self.frontier.events)


@dataclass(frozen=True, eq=False, kw_only=True)
class BarycenterPlan:
    """All releases of a fit."""

    bounds: BoundsPlan | None
    spread: SumNoise
    networks: GroupScorePlan
    moves: MovesPlan | None

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        before = () if self.bounds is None else (self.bounds.event,)
        after = () if self.moves is None else self.moves.events
        return (*before, self.spread.event, *self.networks.events, *after)


def plan_moves(
    mu: float, cells: Cells, *, n_outputs: int, n_rounds: int, blind: bool, rng: np.random.Generator
) -> MovesPlan:
    """Divide a privacy parameter between the releases of predictions."""
    shares = _SHARES | ({} if blind else {"weights": 0.0})
    mus = {name: mu * math.sqrt(share / sum(shares.values())) for name, share in shares.items()}
    rounds = plan_rounds(
        mus["rounds"],
        cells,
        n_outputs,
        n_rounds,
        rng,
        mu_of_weights=mus["weights"] if blind else 0.0,
    )
    frontier = plan_frontier(
        cells,
        n_outputs,
        rng,
        mu_of_curve=mus["curve"],
        mu_of_sizes=mus["sizes"],
        mu_of_moments=mus["moments"],
    )
    return MovesPlan(rounds=rounds, slope=plan_recalibration(mus["slope"]), frontier=frontier)


def _moved_and_measured(
    scores_of: BallScores,
    cells: Cells,
    plan: MovesPlan,
    rows: np.ndarray,
    units: np.ndarray,
    scales: np.ndarray,
    known: tuple[np.ndarray, np.ndarray],
    secret: SecretStream,
) -> tuple[Transport, Frontier]:
    """Release the transport, its mean and slope, and the frontier."""
    outputs, weights = scores = scores_of(rows, cells.codes)
    transport = release_rounds(scores, scores_of, cells, plan.rounds, secret, known)
    last = release_recalibration(
        transport(outputs, weights),
        units,
        cells.codes,
        plan.slope,
        secret,
        partial(transport.of_rows, scores_of),
    )
    transport = replace(transport, last=last)
    frontier = release_frontier(
        scores, units, scores_of, cells, plan.frontier, transport, scales, secret
    )
    return transport, frontier
