"""The mechanism of a sketch with a table for each time, released once."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import Interval
from skdpot.base import FitContext, MechanismResult
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.ot.slices import CDFTable
from skdpot.privacy.reliability import Reliability
from skdpot.release.decoding import measured_cdf
from skdpot.release.projection_counts import count_projections
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.coupled_flow import CoupledFlowProblem, along_paths, coupled_flow
from skdpot.trajectories.followed_flow import smoothed_along_the_flow
from skdpot.trajectories.mean_motion import MeanMotion
from skdpot.trajectories.mechanism import MovedParticles, TrajectoryMechanism
from skdpot.trajectories.schedule import Phase, read_phases
from skdpot.trajectories.smoothing import FEWEST_TIMES
from skdpot.trajectories.time_axis import TimeAxis
from skdpot.trajectories.timed_rows import TimedRows
from skdpot.trajectories.weak_times import Knots

# The default phases of the particle flow: share of the longest stable step, the diffusivity of the
# sampler, and number of iterations.
_SCHEDULE = ((1.0, None, 60), (0.5, None, 60), (0.15, None, 60))
# Parameters that are handed to `SlicedSketch`.
_OF_SKETCH = ("n_projections", "n_bins", "projections", "device")


@dataclass(eq=False, repr=False)
class TrajectorySketch(TrajectoryMechanism):
    """Release one `SlicedSketch` with a table per time; particles are post-processing.

    Particles of all times are moved until their projections have the released distributions, while
    neighbouring times are coupled as by a diffusion.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions L.
    n_bins : int or "auto", default="auto"
        Number of bins along each direction.
    projections : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_projections, \
n_features), default="axes+orthogonal"
        How directions are drawn, or public directions.
    regularization : float, default=1e-4
        Divisor λ of the data fit; larger values couple neighbouring times more strongly, and 0
        leaves them uncoupled. With `smooth`, the coupling acts on what differs from the smooth
        flow instead, without transport and 100 times as strongly: it does not hold back the flow.
    smooth : bool, default=True
        Whether tables are smoothed over times, along the flow of the population from one time to
        the next, by amounts estimated from the released tables. For at least four times. Weak
        times, in which the noise of the mean exceeds half the spread of the population, are merged
        with each other; where this does not help, the flow of their neighbours fills them.
    schedule : list of (step, tau, n_iter), optional
        Phases of the particle flow: step size as a share of the longest stable step, diffusivity
        of the reference process (None: that of the sampler), and number of iterations.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where projections are counted.

    Privacy
    -------
    One Gaussian event under replace-one of a row given its time stamp, after those of private
    bounds. The sensitivity is that of a `SlicedSketch` with public labels, for any number of times.
    Only the parameters of the table affect privacy; the others are post-processing.

    See Also
    --------
    MeanFieldLangevin : Releases noisy gradients step by step.

    Examples
    --------
    >>> from skdpot import PrivateTrajectorySampler
    >>> from skdpot.mechanisms import TrajectorySketch
    >>> sampler = PrivateTrajectorySampler(mechanism=TrajectorySketch(n_bins=32))
    """

    n_projections: int | str = "auto"
    _: KW_ONLY
    n_bins: int | str = "auto"
    projections: str | ArrayLike = "axes+orthogonal"
    regularization: float = 1e-4
    smooth: bool = True
    schedule: Any = None
    device: str = "auto"

    default_particles = 500
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: SlicedSketch._parameter_constraints[name] for name in _OF_SKETCH},
        "regularization": [Interval(Real, 0, None, closed="left")],
        "smooth": ["boolean"],
        "schedule": ["array-like", None],
    }

    def release(
        self, context: FitContext, data: TimedRows, n_particles: int, diffusivity: float
    ) -> MechanismResult:
        """Charge, then release a closed `SlicedSketch` whose classes are the times."""
        # Refuse a device or a schedule before the charge.
        resolve_device(self.device)
        self._phases(diffusivity)
        sketch = context.sketch(
            data.rows,
            data.positions,
            conditional=True,
            classes=np.arange(data.axis.n_times),
            public_labels=True,
            group_size=data.group_size,
            **{name: getattr(self, name) for name in _OF_SKETCH},
        )
        spent = sketch.privacy_spent_
        spent = replace(
            spent,
            assumptions=(*spent.assumptions, *data.assumptions),
            mechanism=f"{spent.mechanism}, at each of {data.axis.n_times} times",
        )
        reliability = self.reliability(sketch, data.axis)
        return MechanismResult(sketch, sketch.bounds_, spent, reliability=reliability)

    def reliability(self, sketch: SlicedSketch, axis: TimeAxis) -> Reliability:
        """State the errors of the means of all times, beside those of the mean of all rows."""
        motion = MeanMotion.of(sketch, axis.unit_knots)
        replaced = motion.hidden & Knots.of(motion, merge=self.smooth).filled
        errors = motion.errors if self.smooth else motion.deviations
        return motion.reliability(axis.stamps, errors, replaced)

    def move(
        self,
        released: SlicedSketch,
        axis: TimeAxis,
        n_particles: int,
        diffusivity: float,
        rng: np.random.Generator,
        progress: bool,
    ) -> MovedParticles:
        """Run the flow towards the tables of all times, which are smoothed along it before."""
        knots = Knots.of(MeanMotion.of(released, axis.unit_knots), merge=self.smooth)
        strong = released if knots.are_all_times else knots.merged(released)
        unit = strong.bounds_.radius / math.sqrt(strong.bounds_.n_features)
        widths = strong.half_widths_ / unit
        tables = [CDFTable(strong.directions_, widths, cdf) for cdf in strong.cdf_]
        phases = self._phases(diffusivity)
        problem = CoupledFlowProblem(tables, knots.times, n_particles, float(self.regularization))
        if self.smooth and len(tables) >= FEWEST_TIMES:
            problem, phases = _smoothed(problem, strong, phases, rng)
        label = "flow of all times" if progress else None
        followed = problem.followed
        coupling = WarmCoupling() if followed is None else along_paths(followed)
        moved = coupled_flow(problem, phases, rng, coupling, progress=label)
        return moved._replace(particles=knots.fill(moved.particles, moved.followed))

    def simulate(
        self, sketch: SlicedSketch, particles: np.ndarray, rng: np.random.Generator
    ) -> SlicedSketch:
        """Sketch as many synthetic people, drawn from particles (T, m, d), with the same noise law.

        Particles are in the units of the data. This is post-processing.
        """
        codes = np.repeat(np.arange(len(particles)), sketch.class_counts_.astype(np.intp))
        counts = count_projections(
            particles[codes, rng.integers(particles.shape[1], size=len(codes))],
            sketch.directions_,
            sketch.half_widths_,
            sketch.strategy_.n_bins,
            codes=codes,
            n_classes=len(particles),
            bounds=sketch.bounds_,
        )
        exact = counts.reshape(sketch.statistic_.shape) @ sketch.strategy_.matrix.T
        return sketch._with_statistic(
            exact + sketch.noise_scale_ * rng.standard_normal(exact.shape)
        )

    def _phases(self, diffusivity: float) -> tuple[Phase, ...]:
        """Read the schedule; refuse steps that are longer than stable ones."""
        phases = read_phases(_SCHEDULE if self.schedule is None else self.schedule, diffusivity)
        if max(phase.step_size for phase in phases) > 1:
            raise ValueError(
                "Step sizes in the schedule of a TrajectorySketch are shares of the longest stable "
                "step and must be at most 1."
            )
        return phases


def _error_variances(sketch: SlicedSketch) -> np.ndarray:
    """Return approximate variances, (T,), of the errors of the distribution functions."""
    counts = np.maximum(sketch.class_counts_, 1.0)
    noise = float(np.diag(sketch.strategy_.known_total_covariance).mean()) * sketch.noise_scale_**2
    return noise / counts**2 + 1.0 / (6.0 * counts)


def _smoothed(
    problem: CoupledFlowProblem,
    sketch: SlicedSketch,
    phases: tuple[Phase, ...],
    rng: np.random.Generator,
) -> tuple[CoupledFlowProblem, tuple[Phase, ...]]:
    """Return the problem with smooth tables and followed paths, and the phases that remain.

    Each time first gets particles of its own, which are followed through all times. The tables are
    smoothed along their paths. Particles are then followed a second time through the smooth tables,
    which have less noise.
    """
    measured, deviations = (
        np.stack(values)
        for values in zip(*(measured_cdf(sketch, label) for label in sketch.classes_), strict=True)
    )
    # The rows of each time are a sample, whose error adds to the noise.
    sampling = np.clip(measured * (1 - measured), 0.0, 0.25)
    sampling /= np.maximum(sketch.class_counts_, 1.0)[:, None, None]
    deviations = np.sqrt(deviations**2 + sampling)

    tables = problem.tables

    def smooth(particles: np.ndarray) -> tuple[list[CDFTable], np.ndarray]:
        return smoothed_along_the_flow(
            particles,
            tables=tables,
            times=problem.times,
            variances=_error_variances(sketch),
            measured=measured,
            deviations=deviations,
        )

    uncoupled = replace(problem, regularization=0.0)
    particles = coupled_flow(uncoupled, phases, rng, WarmCoupling()).particles
    smooth_tables, paths = smooth(particles)
    rest = phases[1:] or phases
    uncoupled = replace(uncoupled, tables=smooth_tables, followed=paths)
    particles = coupled_flow(uncoupled, rest, rng, WarmCoupling()).particles
    _, paths = smooth(particles)
    return replace(problem, tables=smooth_tables, followed=paths), rest
