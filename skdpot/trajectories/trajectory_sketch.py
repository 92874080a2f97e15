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
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from tqdm.auto import tqdm

from skdpot._utils.validation import Interval, one_blas_thread, resolve_device
from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.ot.flow import direction_blocks, longest_step, rounds
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.ot.slices import CDFTable
from skdpot.release.decoding import measured_cdf
from skdpot.release.histogram import count_projections
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.langevin import (
    LangevinPhase,
    MovedParticles,
    PairGradients,
    read_phases,
    time_weights,
)
from skdpot.trajectories.paths import TimeAxis, TimedRows, exact_plans

_FEWEST_TIMES = 4  # below there is no telling signal from noise
_LONGEST = 3.0  # range of correlation, in units of the whole time
_N_RANGES, _N_RATIOS = 16, 36
_LEAST_RATIO, _LARGEST_RATIO = 1e-5, 1e2
_SURE = 3.0  # standard deviations


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
_ALONG = 100.0  # times as strong are ties to the smooth flow, which they do not hold back
_LARGEST = 1e100  # regularisation; beyond, nothing is left of the data fit anyway


@dataclass(frozen=True, eq=False)
class CoupledFlowProblem:
    """Released distributions of T times, and how strongly neighbours are tied."""

    tables: Sequence[CDFTable]
    times: np.ndarray
    n_particles: int
    regularization: float
    followed: np.ndarray | None = None  # where to start, (T, m, d)

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions, shape (L, d), float32."""
        return self.tables[0].directions.astype(np.float32)

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Where each rank belongs along each direction, shape (T, L, m), float32."""
        levels = (np.arange(self.n_particles) + 0.5) / self.n_particles
        quantiles = np.stack([table.quantiles(levels) for table in self.tables])
        limits = self.tables[0].half_widths[:, None]
        return np.clip(quantiles, -limits, limits).astype(np.float32)

    def fit(self, particles: np.ndarray) -> float | None:
        """Return the weighted distance to the tables, where it is a part of the objective."""
        if self.regularization == 0:
            return None
        projections = np.sort(self.directions @ np.swapaxes(particles, 1, 2), axis=2)
        squared = np.mean((projections - self.quantiles) ** 2, axis=(1, 2), dtype=np.float64)
        spacings = np.diff(self.times)
        weights = time_weights(spacings) / min(self.regularization, _LARGEST)
        return float(weights @ squared) * particles.shape[2] / 2

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Return paths that were followed, or Gaussians of each time's location and spread."""
        if self.followed is not None:
            return self.followed.astype(np.float32)
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
    moved = particles.astype(np.float64)
    return MovedParticles(moved, displacements, problem.fit(moved))


class _Ties:
    """The pull between neighbouring times, and the shares of data and ties in a stable step."""

    def __init__(self, problem: CoupledFlowProblem, coupling: PairGradients) -> None:
        self._spacings, self._coupling = np.diff(problem.times), coupling
        n_times = len(problem.times)
        strengths = np.zeros((n_times, 2))
        if problem.regularization > 0 and n_times > 1:
            scale = min(problem.regularization, _LARGEST) / time_weights(self._spacings)
            scale *= 1.0 if problem.followed is None else _ALONG
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
        """Return the ties' share of the gradient at particles (T, m, d), float32."""
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


def along_paths(followed: np.ndarray) -> PairGradients:
    """Return a pull of each particle towards moving as the path of its number did."""

    def pull(particles: np.ndarray, *_: Any) -> tuple[np.ndarray, np.ndarray]:
        moves = np.diff(particles - followed, axis=0)
        return -moves, moves

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


_NEIGHBOURS, _NEAREST = 25, 3  # particles whose moves are averaged, and that are read in between
_OUTLIER = 2.5  # times the median distance from the median of neighbours' moves
_MOST_FOLLOWED = 6000  # particles, over all times that they come from
_TOO_FAR = 0.1  # of the variance of a distribution function
_FAINT = (0.0, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)  # masses of a bin that may be noise


def followed_paths(particles: np.ndarray) -> np.ndarray:
    """Follow the particles of each time to all others; shape (T from, T, n_followed, d).

    Neighbouring times are joined by optimal transport. Each particle moves on with the mean of what
    its neighbours do, without those that do something else: mass that noise has put elsewhere at
    one time is not followed, and groups of particles stay together.
    """
    n_times, m, _ = particles.shape
    n_followed = min(m, max(_MOST_FOLLOWED // n_times, 1))
    paths = np.empty((n_times, n_times, n_followed, particles.shape[2]))
    for s in range(n_times):
        paths[s, s] = particles[s, :n_followed]
    trees = [cKDTree(cloud) for cloud in particles]
    partners = [plan.tocsr().indices for plan in exact_plans(particles)]
    for t in range(n_times - 1):
        moves = particles[t + 1, partners[t]] - particles[t]
        paths[: t + 1, t + 1] = _carried(paths[: t + 1, t], trees[t], moves)
    for t in range(n_times - 1, 0, -1):
        moves = particles[t - 1, np.argsort(partners[t - 1])] - particles[t]
        paths[t:, t - 1] = _carried(paths[t:, t], trees[t], moves)
    return paths


def _carried(points: np.ndarray, tree: cKDTree, moves: np.ndarray) -> np.ndarray:
    """Move points with the mean moves of the particles near them."""
    m = len(moves)
    around = moves[tree.query(tree.data, k=range(1, min(_NEIGHBOURS, m) + 1))[1]]
    apart = np.linalg.norm(around - np.median(around, axis=1, keepdims=True), axis=2)
    usual = apart <= _OUTLIER * np.median(apart, axis=1, keepdims=True)
    means = (around * usual[..., None]).sum(axis=1) / usual.sum(axis=1)[:, None]
    flat = points.reshape(-1, points.shape[-1])
    near = tree.query(flat, k=range(1, min(_NEAREST, m) + 1))[1]
    carried: np.ndarray = points + means[near].mean(axis=1).reshape(points.shape)
    return carried


def smoothed_along_the_flow(
    particles: np.ndarray,
    tables: Sequence[CDFTable],
    times: np.ndarray,
    variances: np.ndarray,
    measured: np.ndarray,
    deviations: np.ndarray | float = 0.0,
) -> tuple[list[CDFTable], np.ndarray]:
    """Return tables that borrow from other times, and paths of particles, shape (T, m, d).

    Masses and places are smoothed apart. Places: the paths of particles that are followed through
    all times are smoothed in time. Masses: what was at other times, followed to a time, is
    averaged with what is there. Both averages have the weights of `smoothing_weights`. Noise
    that is cut at zero leaves faint mass where nobody is. How faint mass must be to be taken for
    noise is chosen by the error of prediction of the measured, unbiased distribution functions of a
    time, shape (T, L, n_bins + 1), from the masses of other times. Where the smooth tables are
    further from the measured ones than their deviations explain, the flow is not what the
    population does, and the tables stay as they are.
    """
    n_times, m, d = particles.shape
    paths = followed_paths(particles)
    flat = np.swapaxes(paths, 0, 1).reshape(n_times, -1)
    error = _squared_error(tables, variances)
    flat = smoothing_weights(flat @ flat.T, times, variances, error * flat.shape[1]) @ flat
    paths = np.swapaxes(flat.reshape(n_times, n_times, -1, d), 0, 1)
    shares = _shares(tables[0], paths)
    series = shares.reshape(n_times, -1)
    noise = variances.mean() * series.shape[1]
    weights = smoothing_weights(series @ series.T, times, variances, noise)
    others = weights - np.diag(np.diag(weights))
    total = others.sum(axis=1, keepdims=True)
    known = np.abs(total[:, 0]) > 1e-3  # where other times say anything
    faint = 0.0
    if known.any():
        mixed = np.einsum("ts,st...->t...", others[known] / total[known], shares[:, known])
        misfits = [np.mean((_without(mixed, faint) - measured[known]) ** 2) for faint in _FAINT]
        faint = _FAINT[int(np.argmin(misfits))]
    smooth = _without(np.einsum("ts,st...->t...", weights, shares), faint)
    chosen = np.linspace(0, n_times * paths.shape[2], m, endpoint=False).astype(np.intp)
    sources, number = chosen % n_times, chosen // n_times
    start = np.swapaxes(paths[sources, :, number], 0, 1)
    excess = np.mean((smooth - measured) ** 2) - np.mean(np.square(deviations))
    if excess > _TOO_FAR * variances.mean():
        return list(tables), start
    return [replace(tables[0], cdf=cdf) for cdf in smooth], start


def _squared_error(tables: Sequence[CDFTable], variances: np.ndarray) -> float:
    """Return about the mean square error of the quantiles of tables.

    An error of a distribution function by its standard deviation up or down moves a quantile to
    where the level is higher or lower by as much; this holds across gaps too. Levels that are as
    near to 0 or 1 as the noise tell nothing: there the table ends, where it may.
    """
    errors = []
    levels = (np.arange(500) + 0.5) / 500
    for table, deviation in zip(tables, variances**0.5, strict=True):
        inner = levels[np.abs(levels - 0.5) < 0.5 - _SURE * deviation]
        above, below = table.quantiles(inner + deviation), table.quantiles(inner - deviation)
        errors.append(np.mean((above - below) ** 2) / 4 if len(inner) else np.inf)
    return float(np.mean(errors))


def _shares(table: CDFTable, paths: np.ndarray) -> np.ndarray:
    """Return distribution functions of points (T from, T, n, d) at the edges of a table."""
    n_from, n_times, n, d = paths.shape
    counts = count_projections(
        paths.reshape(-1, d),
        table.directions,
        table.half_widths,
        table.cdf.shape[1] - 1,
        codes=np.repeat(np.arange(n_from * n_times), n),
        n_classes=n_from * n_times,
    )
    masses = counts.reshape(n_from, n_times, len(table.directions), -1) / n
    return np.cumsum(np.pad(masses, ((0, 0),) * 3 + ((1, 0),)), axis=-1)


def _without(cdf: np.ndarray, faint: float) -> np.ndarray:
    """Return increasing functions from 0 to 1 less the mass of bins that is faint."""
    masses = np.maximum(np.diff(np.clip(np.sort(cdf, axis=-1), 0.0, 1.0)) - faint, 0.0)
    totals = masses.sum(axis=-1, keepdims=True)
    kept = np.where(totals > 0, masses / np.where(totals > 0, totals, 1.0), 1 / masses.shape[-1])
    sums = np.minimum(np.cumsum(kept, axis=-1), 1.0)
    cleared = np.concatenate([np.zeros_like(totals), sums], axis=-1)
    cleared[..., -1] = 1.0
    return cleared


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
        leaves them uncoupled. With `smooth`, particles are drawn to moving as the smooth flow does,
        without transport, and a hundred times as strongly: this does not hold back the flow.
    smooth : bool, default=True
        Whether tables are smoothed over times, along the flow of the population from one time to
        the next, by amounts estimated from the released tables. For at least four times.
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
        return MechanismResult(sketch, sketch.bounds_, spent)

    def move(
        self,
        sketch: SlicedSketch,
        axis: TimeAxis,
        n_particles: int,
        diffusivity: float,
        rng: np.random.Generator,
        progress: bool,
    ) -> MovedParticles:
        """Run the flow towards the tables of all times: post-processing.

        To smooth them, each time first gets particles of its own, which are then followed.
        """
        unit = sketch.bounds_.radius / math.sqrt(sketch.bounds_.n_features)
        tables = [
            CDFTable(sketch.directions_, sketch.half_widths_ / unit, cdf) for cdf in sketch.cdf_
        ]
        steps, times = self._steps(diffusivity), axis.unit_knots
        problem = CoupledFlowProblem(tables, times, n_particles, float(self.regularization))
        if self.follows(axis):
            found = [measured_cdf(sketch, label) for label in sketch.classes_]
            measured, deviations = (np.stack(values) for values in zip(*found, strict=True))
            # Beside the noise, the rows of each time are a sample.
            sampled = np.clip(measured * (1 - measured), 0.0, 0.25)
            sampled /= np.maximum(sketch.class_counts_, 1.0)[:, None, None]
            deviations = np.sqrt(deviations**2 + sampled)
            particles = coupled_flow(
                replace(problem, regularization=0.0), steps, rng, WarmCoupling()
            ).particles
            steps, known = (
                steps[1:] or steps,
                (times, _error_variances(sketch), measured, deviations),
            )
            smooth, paths = smoothed_along_the_flow(particles, tables, *known)
            problem = replace(problem, tables=smooth, followed=paths)
            # Less noise is in the way of those who follow particles a second time.
            loose = replace(problem, regularization=0.0)
            particles = coupled_flow(loose, steps, rng, WarmCoupling()).particles
            _, paths = smoothed_along_the_flow(particles, tables, *known)
            problem = replace(problem, followed=paths)
        label = "flow of all times" if progress else None
        followed = problem.followed
        coupling = WarmCoupling() if followed is None else along_paths(followed)
        return coupled_flow(problem, steps, rng, coupling, progress=label)

    def follows(self, axis: TimeAxis) -> bool:
        """Whether particles of one number at all times are those of one path."""
        return bool(self.smooth) and axis.n_times >= _FEWEST_TIMES

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
        return sketch._with_statistic(
            exact + sketch.noise_scale_ * rng.standard_normal(exact.shape)
        )

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
    """Return the variances of the errors of each time's distribution functions, roughly."""
    counts = np.maximum(sketch.class_counts_, 1.0)
    noise = float(np.diag(sketch.strategy_.known_total_covariance).mean()) * sketch.noise_scale_**2
    return noise / counts**2 + 1.0 / (6.0 * counts)
