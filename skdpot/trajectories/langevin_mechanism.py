"""The mechanism of mean-field Langevin dynamics: a release in every step."""

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, LENGTH, FitContext, MechanismResult
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.release.bounds import public_bounds
from skdpot.release.private_bounds import planned_bounds
from skdpot.trajectories.langevin_release import LangevinPlan, mean_field_langevin, plan_langevin
from skdpot.trajectories.mean_motion import MeanMotion
from skdpot.trajectories.mechanism import MovedParticles, TrajectoryMechanism
from skdpot.trajectories.schedule import read_phases
from skdpot.trajectories.time_axis import TimeAxis
from skdpot.trajectories.time_coupling import check_steps, longest_stable_step, time_weights
from skdpot.trajectories.timed_rows import TimedRows
from skdpot.trajectories.warm_start_release import (
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
    start_particles,
)
from skdpot.trajectories.weak_times import Knots

# The default schedule; steps are shorter if times are close to each other: at most this share of
# the longest stable step.
_STEP = 0.0006
_N_ITER = 40
_SHARE_OF_STABLE_STEP = 0.9
_CLIP_PER_PARTICLE = 35.0
# Width, in bandwidths, of the kernel that averages noisy gradients.
_NEIGHBOURHOOD = 2.0
# Longest move of all particles together in one iteration, in units of length.
_LONGEST_MOVE = 1e6
# Spread of particles around a released mean, and around the centre of the bounds.
_SPREAD_AROUND_MEAN = 0.2
_SPREAD_AROUND_ORIGIN = 0.5
# Times whose mean has more noise than this, in units of length, follow their neighbours alone.
_MOST_NOISE = 0.5
# Root mean square distance of the centre from a point anywhere in the box.
_ERROR_OF_ORIGIN = 1 / math.sqrt(3)
_ADVICE = ', a warm start (warm_start="mean") and a schedule of more steps'


@dataclass(eq=False, repr=False)
class MeanFieldLangevin(TrajectoryMechanism):
    """Release noisy sums of clipped gradients: Algorithm 1 of Gu, Chien and Greenewald.

    Particles of all times follow noisy gradients of the likelihood of the rows, while neighbouring
    times are coupled by entropic optimal transport.

    Parameters
    ----------
    schedule : list of (step, tau, n_iter), optional
        Phases: step size η, diffusivity of the reference process (None: that of the sampler),
        and number of iterations. By default 40 steps of 0.0006; shorter if times are close.
    warm_start : {"mean", "kmeans"} or None, default=None
        Where the particles start: at private means, or at private k-means centres with noisy
        counts. With None they start around the centre of the bounds; the default schedule is then
        too short, and hundreds of steps are needed.
    warm_start_share : float, default=0.2
        Share of the squared mu spent on the warm start.
    n_clusters : int, default=3
        Centres of k-means at each time.
    batch_fraction : float, default=1.0
        Probability ρ that a row takes part in a step.
    clip_gradient : float, optional
        Norm C that the gradient of one row on all particles is clipped to, from 1e-30 to 1e30.
        By default 35 times the root of the number of particles: 35 for each particle.
    bandwidth : float, default=0.1
        Width σ of the kernel of the data fit, in the unit of length.
    noise_multiplier : float or list of float, optional
        Noise of a step in units of `clip_gradient`: one number, or one per phase.
        `privacy_spent_` then states the resulting epsilon at `delta`. By default the least
        noise for `epsilon`.
    regularization : float, default=0.01
        Divisor λ of the data fit; larger values couple neighbouring times more strongly.
    smooth : bool, default=True
        Whether noisy gradients are averaged over particles within twice the `bandwidth`; the
        paper's algorithm does not.
    entropy : bool, default=False
        Whether particles also move at random in each step, with the variance 2ητ less that of the
        noise that protects the rows (which counts as 0 if it is averaged). They then follow the
        paper's reduced objective F = G + τH, with the entropy H, in place of G. Costs no privacy.

    Privacy
    -------
    Releases in each step, for each time, the sum over a secret Poisson sample of the rows of their
    gradients on all m particles, each clipped *as one m × d matrix* to C, with Gaussian noise;
    replacing a row moves the sum by at most 2C, and rounding to the lattice of the noise adds at
    most 1/512 of that (`skdpot.privacy.noise.noise_for_sums`). Sums are divided by the expected
    size of the sample. Warm starts are events of their own (Gaussian, on a lattice). One row
    affects the releases of one time only, so these are the whole charge; for the interleaved steps
    see the proof in `skdpot.trajectories.langevin_release`.

    See Also
    --------
    TrajectorySketch : Releases distribution functions, once.

    References
    ----------
    Gu, Chien and Greenewald, "Private continuous-time synthetic trajectory generation via
    mean-field Langevin dynamics", 2025. Chizat, Zhang, Heitz and Schiebinger, "Trajectory
    inference via mean-field Langevin in path space", NeurIPS 2022.

    Examples
    --------
    >>> from skdpot import PrivateTrajectorySampler
    >>> from skdpot.mechanisms import MeanFieldLangevin
    >>> sampler = PrivateTrajectorySampler(mechanism=MeanFieldLangevin(warm_start="mean"))
    """

    schedule: Any = None
    _: KW_ONLY
    warm_start: Literal["mean", "kmeans"] | None = None
    warm_start_share: float = 0.2
    n_clusters: int = 3
    batch_fraction: float = 1.0
    clip_gradient: float | None = None
    bandwidth: float = 0.1
    noise_multiplier: Any = None
    regularization: float = 0.01
    smooth: bool = True
    entropy: bool = False

    default_particles = 300
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "schedule": ["array-like", None],
        "warm_start": [StrOptions({"mean", "kmeans"}), None],
        "warm_start_share": [Interval(Real, 0, 1, closed="neither")],
        "n_clusters": [COUNT],
        "batch_fraction": [Interval(Real, 1e-6, 1, closed="both")],
        "clip_gradient": [LENGTH, None],
        "bandwidth": [Interval(Real, 1e-6, 1e6, closed="both")],
        "noise_multiplier": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "regularization": [Interval(Real, 0, None, closed="left")],
        "smooth": ["boolean"],
        "entropy": ["boolean"],
    }

    def release(
        self, context: FitContext, data: TimedRows, n_particles: int, diffusivity: float
    ) -> MechanismResult:
        """Charge, place the particles, and move them; every step releases a sum over rows."""
        # Validate and plan.
        self._check_regularization(data)
        plan = self._plan(context, data, n_particles=n_particles, diffusivity=diffusivity)
        check_steps(plan.phases, data.axis.spacings)
        # Charge.
        spent = context.charge(
            plan,
            data.assumptions,
            f"{plan.n_iter} noisy sums of clipped gradients of {n_particles} particles "
            f"at each of {data.axis.n_times} times",
            sigma_given=self.noise_multiplier is not None,
            public_labels=True,
            group_size=data.group_size,
        )
        # Release.
        streams, n_features = context.streams, data.rows.shape[1]
        bounds = plan.bounds.settled(data.rows, streams)
        mapped = bounds.to_units(data.rows)
        rows = [mapped[data.positions == i] for i in range(data.axis.n_times)]
        released: dict[str, Any] = {"noise_multiplier_": plan.noise_multipliers}
        centers, shares = np.zeros((data.axis.n_times, n_features)), None
        spread = _SPREAD_AROUND_ORIGIN
        if plan.warm is not None and plan.warm.method == "mean":
            spread = _SPREAD_AROUND_MEAN
            centers = release_mean_start(rows, plan.warm, streams.secret)
            released["centers_"] = centers
        elif plan.warm is not None:
            spread = self.bandwidth
            centers, shares = release_kmeans_start(rows, plan.warm, streams.secret, streams.public)
            released |= {"centers_": centers, "cluster_shares_": shares}
        counts, times = data.counts, data.axis.unit_knots
        deviations = plan.mean_deviations(counts, n_particles)
        steered = deviations <= _MOST_NOISE
        steered |= not steered.any()
        # A time that is not steered starts where the nearest one that is does.
        known = np.flatnonzero(steered)
        nearest = known[np.abs(times[:, None] - times[known]).argmin(axis=1)]
        centers, shares = centers[nearest], None if shares is None else shares[nearest]
        start = start_particles(centers, shares, m=n_particles, spread=spread, rng=streams.solver)
        moved = mean_field_langevin(
            rows,
            start,
            data.axis.spacings,
            plan,
            bandwidth=self.bandwidth,
            regularization=float(self.regularization),
            secret=streams.secret,
            coupling=WarmCoupling(),
            steered=steered,
            smoothing=_NEIGHBOURHOOD * self.bandwidth if self.smooth else None,
            radius=math.sqrt(n_features),
            wander=streams.solver if self.entropy else None,
            progress=context.progress("steps"),
        )
        motion = MeanMotion.of_particles(moved.particles, times, counts, deviations)
        knots = Knots.of_visible(motion)
        errors = np.hypot(deviations, _error_of_start(plan, n_particles))
        return MechanismResult(
            moved._replace(particles=knots.fill(moved.particles[~knots.filled], False)),
            bounds,
            spent,
            attributes=released,
            reliability=motion.reliability(data.axis.stamps, errors, knots.filled, _ADVICE),
        )

    def move(
        self,
        released: MovedParticles,
        axis: TimeAxis,
        n_particles: int,
        diffusivity: float,
        rng: np.random.Generator,
        progress: bool,
    ) -> MovedParticles:
        """Return the released particles, which have been moved already."""
        return released

    def _plan(
        self, context: FitContext, data: TimedRows, *, n_particles: int, diffusivity: float
    ) -> LangevinPlan:
        """Plan phases, bounds, warm start and noise from public facts."""
        longest = _SHARE_OF_STABLE_STEP * longest_stable_step(data.axis.spacings)
        default = ((min(_STEP, longest), None, _N_ITER),)
        phases = read_phases(default if self.schedule is None else self.schedule, diffusivity)
        target = context.target
        n_samples, n_features = data.rows.shape
        declared = public_bounds(context.bounds, context.norm_bound, n_features)
        warm = None
        if self.warm_start is not None:
            warm = plan_warm_start(
                self.warm_start,
                mu=target.mu_cap * math.sqrt(self.warm_start_share),
                radius=math.sqrt(n_features),
                n_features=n_features,
                n_clusters=self.n_clusters,
                group_size=data.group_size,
            )
        plan = plan_langevin(
            target,
            phases,
            clip=self.clip_gradient or _CLIP_PER_PARTICLE * math.sqrt(n_particles),
            dim=n_particles * n_features,
            sampling_rate=self.batch_fraction,
            bounds=planned_bounds(
                declared or n_samples, n_features, target.mu_cap, data.group_size
            ),
            n_samples=n_samples,
            noise_multiplier=self.noise_multiplier,
            warm=warm,
            group_size=data.group_size,
        )
        _refuse_long_moves(plan, n_rows=int(data.counts.min()), n_numbers=n_particles * n_features)
        return plan

    def _check_regularization(self, data: TimedRows) -> None:
        """Refuse a divisor for which weights of times are not finite and positive."""
        with np.errstate(divide="ignore", over="ignore"):
            weights = time_weights(data.axis.spacings) / self.regularization
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f"regularization={self.regularization:g} must be above 0, and not tiny or huge: "
                "MeanFieldLangevin divides the data fit by it. Use 1, for example."
            )


def _error_of_start(plan: LangevinPlan, n_particles: int) -> float:
    """Return the error that is left of a start that knows nothing of the rows.

    Rows far from all particles pull at the nearest of them, with at most the clipped length; the
    mean of all particles moves by as much, divided by their number. Without privacy, errors are 0.
    """
    if plan.warm is not None or not plan.protects_rows:
        return 0.0
    reach = sum(phase.n_iter * phase.step_size for phase in plan.phases) * plan.clip / n_particles
    return _ERROR_OF_ORIGIN * max(0.0, 1.0 - reach)


def _refuse_long_moves(plan: LangevinPlan, *, n_rows: int, n_numbers: int) -> None:
    """Refuse noise and clipping that would move particles out of range in one iteration."""
    longest = max(
        phase.step_size * (plan.clip + 10.0 * sigma * math.sqrt(n_numbers) / n_rows)
        for phase, sigma in zip(plan.phases, plan.sigma, strict=True)
    )
    if not longest / plan.sampling_rate <= _LONGEST_MOVE:
        raise ValueError(
            "The steps of schedule would move particles by up to "
            f"{longest / plan.sampling_rate:.3g} units of length in one iteration, because of "
            "clip_gradient and its noise. Use shorter steps, a smaller clip_gradient or "
            "noise_multiplier, or a higher batch_fraction."
        )
