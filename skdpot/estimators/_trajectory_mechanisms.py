"""How the trajectory sampler touches private data, and what particles follow from it.

Particles live in units in which the ball that holds all rows has the radius sqrt(d): a box of
public bounds is [-1, 1]^d. Parameters such as the diffusivity have these units.
"""

import math
from dataclasses import replace
from inspect import signature
from numbers import Real
from typing import Any, Protocol, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.rng import Streams
from skdpot.estimators._trajectory_rows import TimedRows
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget, privacy_target
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.private_bounds import release_private_bounds
from skdpot.privacy.provenance import warn_of_composition
from skdpot.privacy.spent import charge
from skdpot.slicing.declarations import assumptions
from skdpot.slicing.plan import bounds_or_plan
from skdpot.slicing.rules import public_bounds
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy
from skdpot.slicing.table import CDFTable
from skdpot.trajectories.coupled_flow import CoupledFlowProblem, coupled_flow
from skdpot.trajectories.langevin import (
    LangevinPhase,
    LangevinPlan,
    check_steps,
    longest_stable_step,
    mean_field_langevin,
    plan_langevin,
    time_weights,
)
from skdpot.trajectories.sinkhorn import WarmCoupling
from skdpot.trajectories.warm_start import (
    WarmStartPlan,
    plan_kmeans_start,
    plan_mean_start,
    release_kmeans_start,
    release_mean_start,
    start_particles,
)

__all__ = ["TRAJECTORY_MECHANISMS", "TrajectoryMechanism"]

_Schedule: TypeAlias = tuple[tuple[float, float | None, int], ...]

_CLIP_A_PARTICLE = 35.0
_NEIGHBOURHOOD = 2.0  # over which noisy gradients are averaged, in bandwidths
_WIDEST_MOVE = 1e6  # of all particles together in one iteration, in units of length
_MEAN_SPREAD = 0.2  # of particles around a mean
_START_SPREAD = 0.5  # of particles that no warm start has placed
_OF_STABLE = 0.9  # of the longest stable step, where times are near to each other


class TrajectoryMechanism(Protocol):
    """What the sampler asks of a mechanism."""

    def release(
        self, sampler: BaseEstimator, streams: Streams, data: TimedRows, X: Any
    ) -> dict[str, Any]:
        """Charge, publish, and return the fitted attributes that follow."""

    def particles(
        self, sampler: BaseEstimator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return particles (T, m, d) in units of the ball, and how far each step moved them."""


class SketchTrajectories:
    """Publish distribution functions at each time, once."""

    default_schedule = ((1.0, None, 60), (0.5, None, 60), (0.15, None, 60))
    default_regularization = 1e-4
    default_particles = 500

    def release(
        self, sampler: BaseEstimator, streams: Streams, data: TimedRows, X: Any
    ) -> dict[str, Any]:
        """Publish a `SlicedSketch` with a table for each time."""
        _refuse(sampler, "sketch", ("warm_start", "sampling_rate", "noise_multiplier", "clip"))
        _refuse(sampler, "sketch", ("bandwidth", "warm_start_share"))
        self._steps(sampler)  # what cannot be done is refused before any charge
        sketch = SlicedSketch(
            epsilon=sampler.epsilon,
            delta=sampler.delta,
            budget=sampler.budget,
            bounds=sampler.bounds,
            norm_bound=sampler.norm_bound,
            n_slices=sampler.n_slices,
            n_bins=sampler.n_bins,
            slices=sampler.slices,
            device=sampler.device,
            conditional=True,
            classes=np.arange(data.axis.n_times),
            public_labels=True,
            group_size=data.group_size,
        )
        label = type(sampler).__name__
        sketch._release(label, streams, data.rows, data.positions, origin=X)
        spent = replace(
            sketch.privacy_spent_,
            assumptions=(*sketch.privacy_spent_.assumptions, *data.assumptions),
            mechanism=f"{sketch.privacy_spent_.mechanism}, at each of {data.axis.n_times} times",
        )
        return {"sketch_": sketch, "bounds_": sketch.bounds_, "privacy_spent_": spent}

    def particles(
        self, sampler: BaseEstimator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run the flow towards the tables of all times."""
        sketch = sampler.sketch_
        unit = sketch.bounds_.radius / math.sqrt(sketch.bounds_.n_features)
        tables = [
            CDFTable(sketch.directions_, sketch.half_widths_ / unit, cdf) for cdf in sketch.cdf_
        ]
        problem = CoupledFlowProblem(
            tables,
            sampler._axis.unit_knots,
            sampler.n_particles or self.default_particles,
            regularization(sampler, self.default_regularization),
            error_variances(sketch) if sampler.smooth else None,
        )
        result = coupled_flow(
            problem,
            self._steps(sampler),
            rng,
            WarmCoupling(),
            progress="flow of all times" if sampler.verbose else None,
        )
        return result.particles, result.displacements

    def _steps(self, sampler: BaseEstimator) -> tuple[LangevinPhase, ...]:
        """Read the schedule; a flow takes no steps that are longer than stable ones."""
        steps = phases(sampler, self.default_schedule)
        if max(phase.step_size for phase in steps) > 1:
            raise ValueError(
                'With mechanism="sketch" the steps of schedule are shares of the longest stable '
                "one, so at most 1."
            )
        return steps


class LangevinTrajectories:
    """Publish noisy sums of clipped gradients, step by step."""

    default_schedule = ((0.0006, None, 40),)
    default_regularization = 0.01
    default_particles = 300

    def release(
        self, sampler: BaseEstimator, streams: Streams, data: TimedRows, X: Any
    ) -> dict[str, Any]:
        """Warm-start and run the particles; every step sees private rows."""
        _refuse(sampler, "mfld", ("n_slices", "n_bins", "slices"))
        n_features = data.rows.shape[1]
        strength = self._regularization(sampler, data)
        plan, warm = self._plan(sampler, data)
        check_steps(plan.phases, data.axis.spacings)
        public = plan.bounds if isinstance(plan.bounds, DataBounds) else None
        label = type(sampler).__name__
        spent = charge(
            sampler.budget,
            plan.event,
            epsilon=None if sampler.noise_multiplier is not None else sampler.epsilon,
            delta=sampler.delta,
            n_samples=len(data.rows),
            label=label,
            assumptions=(
                *assumptions(None, public, streams, public_labels=True, group_size=data.group_size),
                *data.assumptions,
            ),
            sigma=plan.sigmas,
            sensitivity=tuple(
                2.0 * plan.clip if noise is None else noise.sensitivity for noise in plan.noises
            ),
            mechanism=(
                f"{plan.n_iter} noisy sums of clipped gradients of {self._size(sampler)} particles "
                f"at each of {data.axis.n_times} times"
            ),
        )
        warn_of_composition(X, spent, sampler.budget, label)
        bounds = (
            release_private_bounds(data.rows, plan.bounds, streams)[0]
            if isinstance(plan.bounds, BoundsPlan)
            else plan.bounds
        )
        mapped = _in_unit(bounds, data.rows)
        rows = [mapped[data.positions == i] for i in range(data.axis.n_times)]
        released, start = self._start(sampler, warm, rows, streams)
        result = mean_field_langevin(
            rows,
            start,
            data.axis.spacings,
            plan,
            bandwidth=sampler.bandwidth,
            regularization=strength,
            secret=streams.secret,
            coupling=WarmCoupling(),
            smoothing=_NEIGHBOURHOOD * sampler.bandwidth if sampler.smooth else None,
            radius=math.sqrt(n_features),
            progress="steps" if sampler.verbose else None,
        )
        return {
            "bounds_": bounds,
            "privacy_spent_": spent,
            "noise_multiplier_": plan.noise_multipliers,
            "_released_particles": (result.particles, result.displacements),
            **released,
        }

    def particles(
        self, sampler: BaseEstimator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what was released."""
        released: tuple[np.ndarray, np.ndarray] = sampler._released_particles
        return released

    def _size(self, sampler: BaseEstimator) -> int:
        """Return the number of particles at each time."""
        return int(sampler.n_particles or self.default_particles)

    def _plan(
        self, sampler: BaseEstimator, data: TimedRows
    ) -> tuple[LangevinPlan, WarmStartPlan | None]:
        """Fix what every phase does and costs, from public facts."""
        longest = _OF_STABLE * longest_stable_step(data.axis.spacings)
        default = tuple((min(s, longest), tau, n) for s, tau, n in self.default_schedule)
        target = privacy_target(sampler.epsilon, sampler.delta, sampler.budget)
        n_samples, n_features = data.rows.shape
        given = public_bounds(sampler.bounds, sampler.norm_bound, n_features)
        bounds = bounds_or_plan(given or n_samples, n_features, target.mu_cap, data.group_size)
        warm = _warm_plan(sampler, target, n_features, data.group_size)
        plan = plan_langevin(
            target,
            phases(sampler, default),
            clip=sampler.clip or _CLIP_A_PARTICLE * math.sqrt(self._size(sampler)),
            dim=self._size(sampler) * n_features,
            sampling_rate=sampler.sampling_rate,
            bounds=bounds,
            noise_multiplier=sampler.noise_multiplier,
            warm=warm,
            group_size=data.group_size,
        )
        _refuse_wild_steps(plan, int(data.counts.min()), self._size(sampler) * n_features)
        return plan, warm

    def _regularization(self, sampler: BaseEstimator, data: TimedRows) -> float:
        """Return the divisor of the data fit; refuse, before any charge, what is none."""
        strength = regularization(sampler, self.default_regularization)
        with np.errstate(divide="ignore", over="ignore"):
            weights = time_weights(data.axis.spacings) / strength
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f'With mechanism="mfld" the data fit is divided by regularization={strength:g}, '
                "which must be above 0 and of ordinary size, such as 1."
            )
        return strength

    def _start(
        self,
        sampler: BaseEstimator,
        warm: WarmStartPlan | None,
        rows: list[np.ndarray],
        streams: Streams,
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Return what a warm start releases, and the particles that follow."""
        m, rng = self._size(sampler), streams.solver
        if warm is None:
            center = np.zeros((len(rows), rows[0].shape[1]))
            return {}, start_particles(center, None, m, _START_SPREAD, rng)
        shares = None
        if sampler.warm_start == "mean":
            centers = release_mean_start(rows, warm, streams.secret)
        else:
            centers, shares = release_kmeans_start(rows, warm, streams.secret, streams.public)
        released = {"_centers": centers} | ({} if shares is None else {"cluster_shares_": shares})
        spread = _MEAN_SPREAD if shares is None else sampler.bandwidth
        return released, start_particles(centers, shares, m, spread, rng)


TRAJECTORY_MECHANISMS: dict[str, Any] = {
    "sketch": SketchTrajectories(),
    "mfld": LangevinTrajectories(),
}


def phases(sampler: BaseEstimator, default: _Schedule) -> tuple[LangevinPhase, ...]:
    """Read the schedule: the given one, or the mechanism's own."""
    given = default if sampler.schedule is None else sampler.schedule
    try:
        read = tuple(_phase(sampler, step, tau, n_iter) for step, tau, n_iter in given)
        if not read:
            raise ValueError("There must be at least one.")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            "schedule must be a list of phases (step, tau, n_iter): a step above 0, a diffusivity "
            f"above 0 (or None for the parameter), and a number of iterations. {error}"
        ) from error
    return read


def _phase(sampler: BaseEstimator, step: Any, tau: Any, n_iter: Any) -> LangevinPhase:
    diffusivity = sampler.diffusivity if tau is None else tau
    if int(n_iter) != n_iter:
        raise ValueError("The number of iterations must be an integer.")
    return LangevinPhase(float(step), float(diffusivity), int(n_iter))


def regularization(sampler: BaseEstimator, default: float) -> float:
    """Read the divisor of the data fit: the given one, or the mechanism's own."""
    return default if sampler.regularization is None else float(sampler.regularization)


def error_variances(sketch: SlicedSketch) -> np.ndarray:
    """Return the variances of the errors of each time's distribution functions, roughly.

    The noise of a released function is that of the table over the number of rows; the rows
    themselves are a sample, whose distribution function has a mean variance near 1 / (6 n).
    """
    strategy = square_root_strategy(sketch.statistic_.shape[-1])
    counts = np.maximum(sketch.class_counts_, 1.0)
    noise = float(np.diag(strategy.known_total_covariance).mean()) * sketch.noise_scale_**2
    variances: np.ndarray = noise / counts**2 + 1.0 / (6.0 * counts)
    return variances


def _warm_plan(
    sampler: BaseEstimator, target: PrivacyTarget, n_features: int, group_size: int
) -> WarmStartPlan | None:
    """Plan the warm start, for its share of the squared mu."""
    if not sampler.warm_start:
        return None
    mu = target.mu_cap * math.sqrt(sampler.warm_start_share)
    radius = math.sqrt(n_features)
    if sampler.warm_start == "mean":
        plan = plan_mean_start(mu, radius, n_features, group_size=group_size)
    else:
        clusters = sampler.n_clusters
        plan = plan_kmeans_start(mu, radius, n_features, clusters, group_size=group_size)
    if plan.noise is not None:  # what cannot be drawn is refused here, before any charge
        required_bits(plan.noise.sigma / plan.noise.lattice, plan.noise.mu)
    return plan


def _refuse_wild_steps(plan: LangevinPlan, n_rows: int, n_numbers: int) -> None:
    """Refuse, before any charge, noise and clipping that would throw particles out of range."""
    widest = max(
        phase.step_size * (plan.clip + 10.0 * sigma * math.sqrt(n_numbers) / n_rows)
        for phase, sigma in zip(plan.phases, plan.sigmas, strict=True)
    )
    if not widest / plan.sampling_rate <= _WIDEST_MOVE:
        raise ValueError(
            "The steps of schedule, times clip or the noise that belongs to it, would throw "
            f"particles {widest / plan.sampling_rate:.3g} units of length away in one iteration. "
            "Take shorter steps, a smaller clip or noise_multiplier, or a higher sampling_rate."
        )


def _in_unit(bounds: DataBounds, rows: np.ndarray) -> np.ndarray:
    """Map rows to the ball of radius sqrt(d)."""
    mapped: np.ndarray = bounds.to_ball(rows) * (math.sqrt(bounds.n_features) / bounds.radius)
    return mapped


def _refuse(sampler: BaseEstimator, mechanism: str, names: tuple[str, ...]) -> None:
    """Refuse parameters that a mechanism cannot follow, before any charge."""
    defaults = {
        name: parameter.default for name, parameter in signature(type(sampler)).parameters.items()
    }
    given = {name: getattr(sampler, name) for name in names}
    # Arrays do not compare to one truth value, and no default is one. False is no warm start.
    changed = [
        name
        for name, value in given.items()
        if not (value is None or value is False)
        and not (isinstance(value, str | Real) and value == defaults[name])
    ]
    if changed:
        raise ValueError(
            f'mechanism="{mechanism}" has no use for {", ".join(changed)}: leave the default, or '
            "choose the other mechanism."
        )
