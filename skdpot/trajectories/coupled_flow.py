r"""Particles at all times that fit released distributions and move little from time to time.

What is minimised, over particles at every knot, is the objective of mean-field Langevin dynamics
with another data fit, the sliced Wasserstein distance to what a sketch has released:

.. math:: \sum_i \frac{\Delta t_i}{\lambda} \frac{d}{2} SW_2^2(\mu_i, \hat\mu_i) +
          \sum_i \frac{1}{\Delta t_i} T_{\tau \Delta t_i}(\mu_i, \mu_{i+1}).

The reference process of the transport cost T is a Brownian motion that drifts with the mean of
the particles: a common translation costs nothing. Without the drift the cost would shorten the way
of the whole cloud. All of this is post-processing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tqdm.auto import tqdm

from skdpot._utils.threads import one_blas_thread
from skdpot.slicing.step_length import longest_step
from skdpot.slicing.table import CDFTable
from skdpot.trajectories.langevin import Coupling, time_weights
from skdpot.trajectories.langevin_plan import LangevinPhase
from skdpot.trajectories.smoothing import smoothed_in_time

__all__ = ["CoupledFlowProblem", "CoupledFlowResult", "coupled_flow"]

_PREFERRED_BATCH = 64  # directions a step, as in a flow without time
_MOMENTUM = 0.9
_PULLS_EVERY = 3  # iterations; particles move little in between
_LOOSE = 0.1  # ties, beside a data fit of 1
_SURE = 3.0  # standard deviations
_LARGEST = 1e100  # regularisation; beyond, nothing is left of the data fit anyway


@dataclass(frozen=True, eq=False)
class CoupledFlowProblem:
    """Released distributions of T times, and how strongly neighbours are tied.

    Parameters
    ----------
    tables : sequence of T CDFTable
        Distribution functions along the same L directions.
    times : ndarray of shape (T,)
        Increasing, on the axis from 0 to 1.
    n_particles : int
        Particles m at each time.
    regularization : float
        Divisor λ of the data fit; 0 ties nothing.
    variances : ndarray of shape (T,) or None
        Variances of the errors of the tables, with which they are smoothed in time first. None
        leaves them as they are.
    """

    tables: Sequence[CDFTable]
    times: np.ndarray
    n_particles: int
    regularization: float
    variances: np.ndarray | None

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions, shape (L, d), float32."""
        directions: np.ndarray = self.tables[0].directions.astype(np.float32)
        return directions

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Where each rank belongs along each direction, shape (T, L, m), float32."""
        levels = (np.arange(self.n_particles) + 0.5) / self.n_particles
        quantiles = np.stack([table.quantiles(levels) for table in self.tables])
        if self.variances is not None:
            error = self._squared_error(levels)
            quantiles = smoothed_in_time(quantiles, self.times, self.variances, error)
        limits = self.tables[0].half_widths[:, None]
        clipped: np.ndarray = np.clip(quantiles, -limits, limits).astype(np.float32)
        return clipped

    def _squared_error(self, levels: np.ndarray) -> float:
        """Return about the mean square error of the quantiles before they are smoothed.

        An error of a distribution function by its standard deviation up or down moves a quantile to
        where the level is higher or lower by as much; this holds across gaps too. Levels that are
        as near to 0 or 1 as the noise tell nothing: there the table ends, where it may.
        """
        deviations = np.zeros(len(self.tables)) if self.variances is None else self.variances**0.5
        errors = []
        for table, deviation in zip(self.tables, deviations, strict=True):
            inner = levels[np.abs(levels - 0.5) < 0.5 - _SURE * deviation]
            above, below = table.quantiles(inner + deviation), table.quantiles(inner - deviation)
            errors.append(np.mean((above - below) ** 2) / 4 if len(inner) else np.inf)
        return float(np.mean(errors))

    @property
    def spacings(self) -> np.ndarray:
        """Time between neighbouring knots, shape (T - 1,)."""
        return np.diff(self.times)

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

    def batches(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield slice numbers for ever, in whole blocks, every one once a round."""
        n_slices, n_features = self.directions.shape
        size = n_features * max(1, round(_PREFERRED_BATCH / n_features))
        starts = np.arange(0, n_slices, size)
        while True:
            for first in rng.permutation(starts):
                yield np.arange(first, min(first + size, n_slices))


@dataclass(frozen=True, eq=False)
class CoupledFlowResult:
    """Where the particles ended.

    Parameters
    ----------
    problem : CoupledFlowProblem
        What was solved.
    particles : ndarray of shape (T, m, d)
        Final positions.
    displacements : ndarray of shape (n_iter,)
        Root mean square distance that particles moved in each iteration.
    """

    problem: CoupledFlowProblem
    particles: np.ndarray
    displacements: np.ndarray


def coupled_flow(
    problem: CoupledFlowProblem,
    phases: Sequence[LangevinPhase],
    rng: np.random.Generator,
    coupling: Coupling,
    *,
    progress: str | None = None,
) -> CoupledFlowResult:
    """Move the particles of all times towards their tables and towards each other.

    Parameters
    ----------
    problem : CoupledFlowProblem
        Targets and ties.
    phases : sequence of LangevinPhase
        Shares of the longest stable step, diffusivities of the reference process, and numbers
        of iterations.
    rng : numpy.random.Generator
        Solver's stream.
    coupling : callable
        ``coupling(particles, spacings, diffusivity)`` returns the gradients of the Schrödinger
        potentials at the earlier and the later particles of each pair.
    progress : str, optional
        Shows a progress bar with this label.

    Returns
    -------
    CoupledFlowResult
        Particles and how far they moved.

    Notes
    -----
    A step is preconditioned: residuals along directions with the longest stable step, and the ties
    with the sum of their largest stiffnesses, so that no regularisation makes it diverge.

    References
    ----------
    Objective: Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin
    in path space", NeurIPS 2022, with the sliced distance of this package in place of its fit.
    """
    particles = problem.start(rng)
    step = np.zeros_like(particles)
    momentum = 0.0 if problem.directions.shape[0] < problem.directions.shape[1] else _MOMENTUM
    ties = _Ties(problem, coupling)
    iterations = [phase for phase in phases for _ in range(phase.n_iter)]
    displacements = np.empty(len(iterations))
    batches = problem.batches(rng)
    bar = tqdm(iterations, desc=progress, disable=progress is None)
    with one_blas_thread():
        for number, phase in enumerate(bar):
            chosen = next(batches)
            ahead = particles + momentum * step
            gradient = _residual(ahead, problem.directions[chosen], problem.quantiles[:, chosen])
            gradient = ties.share_of_fit * gradient + ties.gradient(ahead, phase.diffusivity)
            step = momentum * step - np.float32(phase.step_size) * gradient
            particles += step
            displacements[number] = np.sqrt(np.mean(np.sum(step**2, axis=-1)))
    return CoupledFlowResult(problem, particles.astype(np.float64), displacements)


class _Ties:
    """The pull between neighbouring times, and the shares of data and ties in a stable step."""

    def __init__(self, problem: CoupledFlowProblem, coupling: Coupling) -> None:
        self._spacings, self._coupling = problem.spacings, coupling
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
    relative: np.ndarray = gradient - gradient.mean(axis=1, keepdims=True)
    return relative


def _residual(particles: np.ndarray, directions: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Return the gradient of the data fit: the mean way from each projection to its place."""
    projections = np.ascontiguousarray((particles @ directions.T).transpose(0, 2, 1))
    places = np.empty_like(projections)
    np.put_along_axis(places, projections.argsort(axis=2), quantiles, axis=2)
    residual: np.ndarray = (projections - places).transpose(0, 2, 1) @ directions
    residual *= longest_step(directions)
    return residual
