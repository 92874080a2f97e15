r"""A mechanism for trajectories: a sketch with a table for each time, released once.

Particles of all times follow from it. What is minimised, over particles at every knot, is the
objective of mean-field Langevin dynamics with another data fit, the sliced Wasserstein distance to
what the sketch has released:

.. math:: \sum_i \frac{\Delta t_i}{\lambda} \frac{d}{2} SW_2^2(\mu_i, \hat\mu_i) +
          \sum_i \frac{1}{\Delta t_i} T_{\tau \Delta t_i}(\mu_i, \mu_{i+1}).

The reference process of the transport cost T is a Brownian motion that drifts with the mean of the
particles: a common translation costs nothing. Without the drift the cost would shorten the way of
the whole cloud. All of this is post-processing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from tqdm.auto import tqdm

from skdpot._utils.validation import Interval, one_blas_thread, resolve_device
from skdpot.mechanisms.base import FitContext, Mechanism, Released
from skdpot.ot.flow import direction_blocks, longest_step, rounds
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.ot.slices import CDFTable
from skdpot.release.histogram import count_projections
from skdpot.release.langevin import (
    LangevinPhase,
    MovedParticles,
    PairGradients,
    read_phases,
    time_weights,
)
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories import TimeAxis, TimedRows

_FEWEST_TIMES = 4  # below there is no telling signal from noise
_LONGEST = 3.0  # range of correlation, in units of the whole time
_N_RANGES, _N_RATIOS = 16, 36
_LEAST_RATIO, _LARGEST_RATIO = 1e-5, 1e2


def smoothed_in_time(
    values: np.ndarray, times: np.ndarray, variances: np.ndarray, largest_noise: float = np.inf
) -> np.ndarray:
    """Return estimates of quantile functions (T, ..., n_levels) that borrow from other times.

    Quantile functions along a direction change little from one time to the next, and the errors of
    different times are independent: the records are others, and so is the noise. Each quantile is
    taken for a Gaussian process in time, seen with noise. How fast it changes, and how strong the
    noise is, are the same for all quantiles along all directions, and maximise their restricted
    likelihood. What changes without any order from one time to the next looks like noise, so that
    noise is believed only up to a level that is known beforehand: where nothing is common to
    neighbouring times, and more happens than that, next to nothing is smoothed.

    Averages of quantile functions are quantile functions of Wasserstein barycentres, so that clouds
    that move are smoothed along their way and not smeared.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    weights = smoothing_weights(flat @ flat.T, times, variances, largest_noise * flat.shape[1])
    smooth = (weights @ flat).reshape(values.shape)
    # Weights below zero can make two neighbouring quantiles change places; their
    # rearrangement is nearer to every increasing function than they are.
    smooth.sort(axis=-1)
    return smooth


def smoothing_weights(
    products: np.ndarray, times: np.ndarray, variances: np.ndarray, largest_noise: float = np.inf
) -> np.ndarray:
    r"""Return the matrix that smooths many series with one likeliest covariance.

    The series have unknown constant means, covariance :math:`a(K_\ell + r V)`, a Matérn kernel K
    of order 5/2 and range :math:`\ell`, and V the diagonal of the variances. `products` are inner
    products of the values at two times, shape (T, T).

    References
    ----------
    Patterson and Thompson, "Recovery of inter-block information when block sizes are unequal",
    Biometrika 1971 (restricted likelihood). Chernozhukov, Fernández-Val and Galichon, "Improving
    point and interval estimators of monotone functions by rearrangement", Biometrika 2009.
    """
    n_times = len(times)
    if n_times < _FEWEST_TIMES:
        return np.eye(n_times)
    noise = np.diag(variances / variances.mean())
    contrasts = np.linalg.svd(np.ones((1, n_times)))[2][1:]
    seen = contrasts @ products @ contrasts.T
    span = times[-1] - times[0]
    shortest = span / (n_times - 1)  # shorter ranges cannot be told from noise
    ranges = np.geomspace(shortest, _LONGEST * span, _N_RANGES)
    ratios = np.geomspace(_LEAST_RATIO, _LARGEST_RATIO, _N_RATIOS)
    likeliest = (np.inf, 0.0, 0.0)
    for reach in ranges:
        of_signal = contrasts @ _matern(times, reach) @ contrasts.T
        masses, vectors = eigh(of_signal, contrasts @ noise @ contrasts.T)
        squares = np.maximum(np.einsum("ki,kl,li->i", vectors, seen, vectors), 0.0)
        spread = np.maximum(masses, 0.0) + ratios[:, None]
        best_amplitudes = np.maximum((squares / spread).mean(axis=1), np.finfo(float).tiny)
        amplitudes = np.minimum(best_amplitudes, largest_noise / ratios)
        misfits = np.log(spread).sum(axis=1) + (n_times - 1) * (
            np.log(amplitudes) + best_amplitudes / amplitudes
        )
        best = int(misfits.argmin())
        likeliest = min(likeliest, (float(misfits[best]), float(reach), float(ratios[best])))
    _, reach, ratio = likeliest
    covariance = _matern(times, reach) + ratio * noise
    precision = contrasts.T @ np.linalg.solve(contrasts @ covariance @ contrasts.T, contrasts)
    return np.eye(n_times) - ratio * noise @ precision


def _matern(times: np.ndarray, reach: float) -> np.ndarray:
    scaled = np.sqrt(5.0) * np.abs(times[:, None] - times) / reach
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)


_MOMENTUM = 0.9
_PULLS_EVERY = 3  # iterations; particles move little in between
_LOOSE = 0.1  # ties, beside a data fit of 1
_SURE = 3.0  # standard deviations
_LARGEST = 1e100  # regularisation; beyond, nothing is left of the data fit anyway


@dataclass(frozen=True, eq=False)
class CoupledFlowProblem:
    """Released distributions of T times, and how strongly neighbours are tied."""

    tables: Sequence[CDFTable]
    times: np.ndarray
    n_particles: int
    regularization: float
    variances: np.ndarray | None

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions, shape (L, d), float32."""
        return self.tables[0].directions.astype(np.float32)

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Where each rank belongs along each direction, shape (T, L, m), float32."""
        levels = (np.arange(self.n_particles) + 0.5) / self.n_particles
        quantiles = np.stack([table.quantiles(levels) for table in self.tables])
        if self.variances is not None:
            error = self._squared_error(levels, self.variances)
            quantiles = smoothed_in_time(quantiles, self.times, self.variances, error)
        limits = self.tables[0].half_widths[:, None]
        return np.clip(quantiles, -limits, limits).astype(np.float32)

    def _squared_error(self, levels: np.ndarray, variances: np.ndarray) -> float:
        """Return about the mean square error of the quantiles before they are smoothed.

        An error of a distribution function by its standard deviation up or down moves a quantile to
        where the level is higher or lower by as much; this holds across gaps too. Levels that are
        as near to 0 or 1 as the noise tell nothing: there the table ends, where it may.
        """
        errors = []
        for table, deviation in zip(self.tables, variances**0.5, strict=True):
            inner = levels[np.abs(levels - 0.5) < 0.5 - _SURE * deviation]
            above, below = table.quantiles(inner + deviation), table.quantiles(inner - deviation)
            errors.append(np.mean((above - below) ** 2) / 4 if len(inner) else np.inf)
        return float(np.mean(errors))

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Draw Gaussians of each time's location and spread, shape (T, m, d), float32.

        The same normal numbers at all times, so that particles are nearly coupled from the start.
        """
        means = self.quantiles.mean(axis=2, dtype=np.float64)
        locations = np.linalg.lstsq(self.directions.astype(np.float64), means.T, rcond=None)[0].T
        spreads = np.sqrt(self.quantiles.var(axis=2, dtype=np.float64).mean(axis=1))
        noise = rng.standard_normal((self.n_particles, locations.shape[1]))
        start: np.ndarray = locations[:, None] + spreads[:, None, None] * noise
        return start.astype(np.float32)


def coupled_flow(
    problem: CoupledFlowProblem,
    phases: Sequence[LangevinPhase],
    rng: np.random.Generator,
    coupling: PairGradients,
    *,
    progress: str | None = None,
) -> MovedParticles:
    """Move the particles of all times towards their tables and towards each other."""
    particles = problem.start(rng)
    step = np.zeros_like(particles)
    momentum = 0.0 if problem.directions.shape[0] < problem.directions.shape[1] else _MOMENTUM
    ties = _Ties(problem, coupling)
    iterations = [phase for phase in phases for _ in range(phase.n_iter)]
    displacements = np.empty(len(iterations))
    blocks = rounds(direction_blocks(*problem.directions.shape), rng)
    bar = tqdm(iterations, desc=progress, disable=progress is None)
    with one_blas_thread():
        for number, phase in enumerate(bar):
            chosen = next(blocks)
            ahead = particles + momentum * step
            gradient = _residual(ahead, problem.directions[chosen], problem.quantiles[:, chosen])
            gradient = ties.share_of_fit * gradient + ties.gradient(ahead, phase.diffusivity)
            step = momentum * step - np.float32(phase.step_size) * gradient
            particles += step
            displacements[number] = np.sqrt(np.mean(np.sum(step**2, axis=-1)))
    return MovedParticles(particles.astype(np.float64), displacements)


class _Ties:
    """The pull between neighbouring times, and the shares of data and ties in a stable step."""

    def __init__(self, problem: CoupledFlowProblem, coupling: PairGradients) -> None:
        self._spacings, self._coupling = np.diff(problem.times), coupling
        n_times = len(problem.times)
        strengths = np.zeros((n_times, 2))
        if problem.regularization > 0 and n_times > 1:
            scale = min(problem.regularization, _LARGEST) / time_weights(self._spacings)
            strengths[:-1, 0] = scale[:-1] / self._spacings
            strengths[1:, 1] = scale[1:] / self._spacings
        # Where neighbours move towards each other a tie is twice as stiff as where one stands.
        # What it is divided by comes first, before anything is rounded to single precision.
        stiffness = 1.0 + 2.0 * strengths.sum(axis=1)
        self.share_of_fit = (1.0 / stiffness)[:, None, None].astype(np.float32)
        self._shares = (strengths / stiffness[:, None]).astype(np.float32)
        # Loose ties may look back; with tight ones particles would chase where others have been.
        self._every = _PULLS_EVERY if strengths.sum(axis=1).max() <= _LOOSE else 1
        self._calls = 0
        self._partners: tuple[np.ndarray, np.ndarray] | None = None

    def gradient(self, particles: np.ndarray, diffusivity: float) -> np.ndarray:
        """Return the ties' share of the gradient at particles (T, m, d), float32.

        Where loose ties lead to is looked up again in every third call.
        """
        pull = np.zeros_like(particles)
        if not self._shares.any():
            return pull
        if self._partners is None or self._calls % self._every == 0:
            places = particles.astype(np.float64)
            forward, backward = self._coupling(places, self._spacings, diffusivity)
            self._partners = places[:-1] - forward, places[1:] - backward
        self._calls += 1
        after, before = self._partners
        pull[:-1] += self._shares[:-1, 0, None, None] * _relative(particles[:-1] - after)
        pull[1:] += self._shares[1:, 1, None, None] * _relative(particles[1:] - before)
        return pull


def _relative(gradient: np.ndarray) -> np.ndarray:
    """Take out what the drift of the reference process explains: the motion of the mean."""
    return gradient - gradient.mean(axis=1, keepdims=True)


def _residual(particles: np.ndarray, directions: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Return the gradient of the data fit: the mean way from each projection to its place."""
    projections = np.ascontiguousarray((particles @ directions.T).transpose(0, 2, 1))
    places = np.empty_like(projections)
    np.put_along_axis(places, projections.argsort(axis=2), quantiles, axis=2)
    residual: np.ndarray = (projections - places).transpose(0, 2, 1) @ directions
    residual *= longest_step(directions)
    return residual


_SCHEDULE = ((1.0, None, 60), (0.5, None, 60), (0.15, None, 60))
_OF_SKETCH = ("n_projections", "n_bins", "projections", "device")


@dataclass(eq=False, repr=False)
class TrajectorySketch(Mechanism):
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
        leaves them uncoupled.
    smooth : bool, default=True
        Whether tables are smoothed over neighbouring times, by an amount estimated from the
        released tables.
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
    ) -> Released:
        """Charge, then release a closed `SlicedSketch` whose classes are the times."""
        resolve_device(self.device)
        self._steps(diffusivity)  # what cannot be done is refused before any charge
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
        return Released(sketch, sketch.bounds_, spent)

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

    def simulate(
        self, sketch: SlicedSketch, particles: np.ndarray, rng: np.random.Generator
    ) -> SlicedSketch:
        """Sketch as many people, drawn from the particles of each time, with noise of the same law.

        Particles have shape (T, m, d) and the units of the data. This is post-processing: the
        people are synthetic.
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
        return sketch.with_statistic(exact + sketch.noise_scale_ * rng.standard_normal(exact.shape))

    def _steps(self, diffusivity: float) -> tuple[LangevinPhase, ...]:
        """Read the schedule; a flow takes no steps that are longer than stable ones."""
        steps = read_phases(_SCHEDULE if self.schedule is None else self.schedule, diffusivity)
        if max(phase.step_size for phase in steps) > 1:
            raise ValueError(
                "Step sizes in the schedule of a TrajectorySketch are shares of the longest stable "
                "step and must be at most 1."
            )
        return steps


def _error_variances(sketch: SlicedSketch) -> np.ndarray:
    """Return the variances of the errors of each time's distribution functions, roughly.

    The noise of a released function is that of the table over the number of rows; the rows
    themselves are a sample, whose distribution function has a mean variance near 1 / (6 n).
    """
    counts = np.maximum(sketch.class_counts_, 1.0)
    noise = float(np.diag(sketch.strategy_.known_total_covariance).mean()) * sketch.noise_scale_**2
    return noise / counts**2 + 1.0 / (6.0 * counts)
