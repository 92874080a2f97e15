"""A mechanism for trajectories: private mean-field Langevin dynamics."""

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from skdpot._utils.validation import Interval, StrOptions
from skdpot.base import COUNT, LENGTH, FitContext, Mechanism, MechanismResult
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.release.bounds import planned_bounds, public_bounds
from skdpot.trajectories.langevin import (
    LangevinPlan,
    check_steps,
    longest_stable_step,
    mean_field_langevin,
    plan_langevin,
    read_phases,
    time_weights,
)
from skdpot.trajectories.paths import TimedRows
from skdpot.trajectories.warm_start import (
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
    start_particles,
)

_STEP, _N_ITER = 0.0006, 40
_CLIP_PER_PARTICLE = 35.0
_NEIGHBOURHOOD = 2.0  # over which noisy gradients are averaged, in bandwidths
_WIDEST_MOVE = 1e6  # of all particles together in one iteration, in units of length
_MEAN_SPREAD = 0.2  # of particles around a mean
_START_SPREAD = 0.5  # of particles that no warm start has placed
_OF_STABLE = 0.9  # of the longest stable step, where times are near to each other


@dataclass(eq=False, repr=False)
class MeanFieldLangevin(Mechanism):
    """Release noisy sums of clipped gradients: Algorithm 1 of Gu, Chien and Greenewald.

    Particles of all times follow noisy gradients of the likelihood of the rows, while neighbouring
    times are coupled by entropic optimal transport.

    Parameters
    ----------
    schedule : list of (step, tau, n_iter), optional
        Phases: step size η, diffusivity of the reference process (None: that of the sampler),
        and number of iterations. By default 40 steps of 0.0006; shorter where times are close.
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
    see the proof in `skdpot.trajectories.langevin`.

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
        """Charge, warm-start and run the particles; every step sees private rows."""
        n_features = data.rows.shape[1]
        self._check_regularization(data)
        plan = self._plan(context, data, n_particles, diffusivity)
        check_steps(plan.phases, data.axis.spacings)
        streams = context.streams
        spent = context.charge(
            plan,
            data.assumptions,
            f"{plan.n_iter} noisy sums of clipped gradients of {n_particles} particles "
            f"at each of {data.axis.n_times} times",
            sigma_given=self.noise_multiplier is not None,
            public_labels=True,
            group_size=data.group_size,
        )
        bounds = plan.bounds.settled(data.rows, streams)
        mapped = bounds.to_ball(data.rows) * (math.sqrt(n_features) / bounds.radius)
        rows = [mapped[data.positions == i] for i in range(data.axis.n_times)]
        found: dict[str, Any] = {"noise_multiplier_": plan.noise_multipliers}
        centers, shares = np.zeros((data.axis.n_times, n_features)), None
        spread = _START_SPREAD
        if plan.warm is not None and plan.warm.method == "mean":
            centers, spread = release_mean_start(rows, plan.warm, streams.secret), _MEAN_SPREAD
            found["centers_"] = centers
        elif plan.warm is not None:
            spread = self.bandwidth
            centers, shares = release_kmeans_start(rows, plan.warm, streams.secret, streams.public)
            found |= {"centers_": centers, "cluster_shares_": shares}
        start = start_particles(centers, shares, n_particles, spread, streams.solver)
        moved = mean_field_langevin(
            rows,
            start,
            data.axis.spacings,
            plan,
            bandwidth=self.bandwidth,
            regularization=float(self.regularization),
            secret=streams.secret,
            coupling=WarmCoupling(),
            smoothing=_NEIGHBOURHOOD * self.bandwidth if self.smooth else None,
            radius=math.sqrt(n_features),
            wander=streams.solver if self.entropy else None,
            progress=context.progress("steps"),
        )
        return MechanismResult(moved, bounds, spent, attributes=found)

    def _plan(
        self, context: FitContext, data: TimedRows, n_particles: int, diffusivity: float
    ) -> LangevinPlan:
        """Fix what every phase does and costs, from public facts."""
        longest = _OF_STABLE * longest_stable_step(data.axis.spacings)
        default = ((min(_STEP, longest), None, _N_ITER),)
        phases = read_phases(default if self.schedule is None else self.schedule, diffusivity)
        target = context.target
        n_samples, n_features = data.rows.shape
        given = public_bounds(context.bounds, context.norm_bound, n_features)
        warm = None
        if self.warm_start is not None:
            warm = plan_warm_start(
                self.warm_start,
                target.mu_cap * math.sqrt(self.warm_start_share),
                math.sqrt(n_features),
                n_features,
                self.n_clusters,
                group_size=data.group_size,
            )
        plan = plan_langevin(
            target,
            phases,
            clip=self.clip_gradient or _CLIP_PER_PARTICLE * math.sqrt(n_particles),
            dim=n_particles * n_features,
            sampling_rate=self.batch_fraction,
            bounds=planned_bounds(given or n_samples, n_features, target.mu_cap, data.group_size),
            n_samples=n_samples,
            noise_multiplier=self.noise_multiplier,
            warm=warm,
            group_size=data.group_size,
        )
        _refuse_wild_steps(plan, int(data.counts.min()), n_particles * n_features)
        return plan

    def _check_regularization(self, data: TimedRows) -> None:
        """Refuse, before any charge, a divisor that gives no finite positive weight."""
        with np.errstate(divide="ignore", over="ignore"):
            weights = time_weights(data.axis.spacings) / self.regularization
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f"regularization={self.regularization:g} must be above 0, and not tiny or huge: "
                "MeanFieldLangevin divides the data fit by it. Use 1, for example."
            )


def _refuse_wild_steps(plan: LangevinPlan, n_rows: int, n_numbers: int) -> None:
    """Refuse, before any charge, noise and clipping that would move particles out of range."""
    widest = max(
        phase.step_size * (plan.clip + 10.0 * sigma * math.sqrt(n_numbers) / n_rows)
        for phase, sigma in zip(plan.phases, plan.sigma, strict=True)
    )
    if not widest / plan.sampling_rate <= _WIDEST_MOVE:
        raise ValueError(
            "The steps of schedule would move particles by up to "
            f"{widest / plan.sampling_rate:.3g} units of length in one iteration, because of "
            "clip_gradient and its noise. Use shorter steps, a smaller clip_gradient or "
            "noise_multiplier, or a higher batch_fraction."
        )
