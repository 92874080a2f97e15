"""A mechanism for trajectories: a sketch with a table for each time, released once."""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.devices import resolve_device
from skdpot._utils.validation import Interval
from skdpot.mechanisms.base import FitContext, Mechanism
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy
from skdpot.slicing.table import CDFTable
from skdpot.trajectories.coupled_flow import CoupledFlowProblem, coupled_flow
from skdpot.trajectories.langevin import LangevinPhase, MovedParticles, read_phases
from skdpot.trajectories.sinkhorn import WarmCoupling
from skdpot.trajectories.time_axis import TimeAxis, TimedRows

__all__ = ["TimedRelease", "TrajectorySketch"]

_SCHEDULE = ((1.0, None, 60), (0.5, None, 60), (0.15, None, 60))
_OF_SKETCH = ("n_slices", "n_bins", "slices", "device")


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedRelease:
    """What a mechanism released of rows at several times; centres are in units of particles."""

    bounds: DataBounds
    privacy_spent: PrivacySpent
    sketch: SlicedSketch | None = None
    moved: MovedParticles | None = None
    noise_multiplier: tuple[float, ...] | None = None
    centers: np.ndarray | None = None
    cluster_shares: np.ndarray | None = None


class TrajectorySketch(Mechanism):
    """Release one `SlicedSketch` with a table for each time; particles follow from it for free.

    Particles of all times are moved until their projections have the released distributions, while
    neighbouring times pull at each other as a diffusion would.

    Parameters
    ----------
    n_slices : int or "auto", default="auto"
        Number of directions L.
    n_bins : int or "auto", default="auto"
        Number of bins along each direction.
    slices : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="axes+orthogonal"
        How directions are drawn, or public directions.
    regularization : float, default=1e-4
        Divisor λ of the data fit: the larger, the more neighbouring times pull at each other;
        0 turns the pull off.
    smooth : bool, default=True
        Whether the tables borrow from neighbouring times, as strongly as the released tables
        themselves show to be right.
    schedule : list of (step, tau, n_iter), optional
        Phases of the flow of particles: steps as shares of the longest stable one, diffusivity of
        the reference process (None for that of the sampler), number of iterations.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where projections are counted.

    Privacy
    -------
    One Gaussian event under replace-one of a row given its time stamp, after those of private
    bounds: sensitivity as in `SlicedSketch` with public labels, whatever the number of times. All
    other parameters than those of the table are post-processing.

    See Also
    --------
    MeanFieldLangevin : Releases noisy gradients step by step.

    Examples
    --------
    >>> from skdpot import PrivateTrajectorySampler
    >>> from skdpot.mechanisms import TrajectorySketch
    >>> sampler = PrivateTrajectorySampler(mechanism=TrajectorySketch(n_bins=32))
    """

    default_particles = 500
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: SlicedSketch._parameter_constraints[name] for name in _OF_SKETCH},
        "regularization": [Interval(Real, 0, None, closed="left")],
        "smooth": ["boolean"],
        "schedule": ["array-like", None],
    }

    def __init__(
        self,
        n_slices: int | str = "auto",
        n_bins: int | str = "auto",
        slices: str | ArrayLike = "axes+orthogonal",
        regularization: float = 1e-4,
        smooth: bool = True,
        schedule: Any = None,
        device: str = "auto",
    ) -> None:
        self.n_slices = n_slices
        self.n_bins = n_bins
        self.slices = slices
        self.regularization = regularization
        self.smooth = smooth
        self.schedule = schedule
        self.device = device

    def release(
        self, context: FitContext, data: TimedRows, n_particles: int, diffusivity: float
    ) -> TimedRelease:
        """Charge, then release a closed `SlicedSketch` whose classes are the times."""
        resolve_device(self.device)
        self._steps(diffusivity)  # what cannot be done is refused before any charge
        sketch = SlicedSketch(
            epsilon=context.epsilon,
            delta=context.delta,
            budget=context.budget,
            bounds=context.bounds,
            norm_bound=context.norm_bound,
            conditional=True,
            classes=np.arange(data.axis.n_times),
            public_labels=True,
            group_size=data.group_size,
            **{name: getattr(self, name) for name in _OF_SKETCH},
        )
        sketch._release(
            context.caller, context.streams, data.rows, data.positions, origin=context.source
        )
        spent = sketch.privacy_spent_
        spent = replace(
            spent,
            assumptions=(*spent.assumptions, *data.assumptions),
            mechanism=f"{spent.mechanism}, at each of {data.axis.n_times} times",
        )
        return TimedRelease(bounds=sketch.bounds_, privacy_spent=spent, sketch=sketch)

    def move(
        self,
        sketch: SlicedSketch,
        axis: TimeAxis,
        n_particles: int,
        diffusivity: float,
        rng: np.random.Generator,
        progress: bool,
    ) -> MovedParticles:
        """Run the flow towards the tables of all times: post-processing."""
        unit = sketch.bounds_.radius / math.sqrt(sketch.bounds_.n_features)
        problem = CoupledFlowProblem(
            [CDFTable(sketch.directions_, sketch.half_widths_ / unit, cdf) for cdf in sketch.cdf_],
            axis.unit_knots,
            n_particles,
            float(self.regularization),
            _error_variances(sketch) if self.smooth else None,
        )
        label = "flow of all times" if progress else None
        return coupled_flow(problem, self._steps(diffusivity), rng, WarmCoupling(), progress=label)

    def _steps(self, diffusivity: float) -> tuple[LangevinPhase, ...]:
        """Read the schedule; a flow takes no steps that are longer than stable ones."""
        steps = read_phases(_SCHEDULE if self.schedule is None else self.schedule, diffusivity)
        if max(phase.step_size for phase in steps) > 1:
            raise ValueError(
                "The steps of the schedule of a TrajectorySketch are shares of the longest stable "
                "one, so at most 1."
            )
        return steps


def _error_variances(sketch: SlicedSketch) -> np.ndarray:
    """Return the variances of the errors of each time's distribution functions, roughly.

    The noise of a released function is that of the table over the number of rows; the rows
    themselves are a sample, whose distribution function has a mean variance near 1 / (6 n).
    """
    strategy = square_root_strategy(sketch.statistic_.shape[-1])
    counts = np.maximum(sketch.class_counts_, 1.0)
    noise = float(np.diag(strategy.known_total_covariance).mean()) * sketch.noise_scale_**2
    variances: np.ndarray = noise / counts**2 + 1.0 / (6.0 * counts)
    return variances
