r"""A flow of the particles of all times towards released tables, coupled in time.

The objective, over particles at every knot, is that of mean-field Langevin dynamics with another
data fit, the sliced Wasserstein distance to the released sketch:

.. math:: \sum_i \frac{\Delta t_i}{\lambda} \frac{d}{2} SW_2^2(\mu_i, \hat\mu_i) +
          \sum_i \frac{1}{\Delta t_i} T_{\tau \Delta t_i}(\mu_i, \mu_{i+1}).

The reference process of the transport cost T is a Brownian motion that drifts with the mean of the
particles, so that a common translation costs nothing. Without the drift the cost would shorten the
path of the whole cloud. All of this is post-processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from skdpot._utils.threads import one_blas_thread
from skdpot.ot.flow_problems import direction_blocks, longest_step, rounds
from skdpot.ot.slices import CDFTable
from skdpot.trajectories.mechanism import MovedParticles
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.time_coupling import PairGradients, time_weights

_MOMENTUM = 0.9
# The pull between neighbouring times is computed once in this many iterations, since particles move
# little in between; in every iteration if ties are stronger than _LOOSE times the data fit.
_PULLS_EVERY = 3
_LOOSE = 0.1
# Ties to a smooth flow do not hold back the flow, and are stronger by this factor.
_FLOW_TIE_FACTOR = 100.0
# Largest regularisation; above it nothing is left of the data fit.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class CoupledFlowProblem:
    """Tables of T times, the times (T,), and the strength of the ties between neighbours.

    If paths of particles (T, m, d) are `followed`, the flow starts from them.
    """

    tables: Sequence[CDFTable]
    times: np.ndarray
    n_particles: int
    regularization: float
    followed: np.ndarray | None = None

    @cached_property
    def directions(self) -> np.ndarray:
        """Directions, shape (L, d), float32."""
        return self.tables[0].directions.astype(np.float32)

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Positions of the ranks along each direction, shape (T, L, m), float32."""
        levels = (np.arange(self.n_particles) + 0.5) / self.n_particles
        quantiles = np.stack([table.quantiles(levels) for table in self.tables])
        limits = self.tables[0].half_widths[:, None]
        return np.clip(quantiles, -limits, limits).astype(np.float32)

    def fit(self, particles: np.ndarray) -> float | None:
        """Return the weighted distance to the tables; None if it is the whole objective."""
        if self.regularization == 0:
            return None
        projections = np.sort(self.directions @ np.swapaxes(particles, 1, 2), axis=2)
        squared = np.mean((projections - self.quantiles) ** 2, axis=(1, 2), dtype=np.float64)
        spacings = np.diff(self.times)
        weights = time_weights(spacings) / min(self.regularization, _LARGEST)
        return float(weights @ squared) * particles.shape[2] / 2

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Return the followed paths, or Gaussian particles of each time's location and spread."""
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
    phases: Sequence[Phase],
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
            gradient = _misfit_gradient(
                ahead, problem.directions[chosen], problem.quantiles[:, chosen]
            )
            gradient = ties.share_of_fit * gradient + ties.gradient(ahead, phase.diffusivity)
            step = momentum * step - np.float32(phase.step_size) * gradient
            particles += step
            displacements[number] = np.sqrt(np.mean(np.sum(step**2, axis=-1)))
    moved = particles.astype(np.float64)
    followed = problem.followed is not None
    return MovedParticles(moved, displacements, problem.fit(moved), followed)


class _Ties:
    """The pull between neighbouring times, and the shares of data fit and ties in a stable step."""

    def __init__(self, problem: CoupledFlowProblem, coupling: PairGradients) -> None:
        self._spacings, self._coupling = np.diff(problem.times), coupling
        n_times = len(problem.times)
        strengths = np.zeros((n_times, 2))
        if problem.regularization > 0 and n_times > 1:
            scale = min(problem.regularization, _LARGEST) / time_weights(self._spacings)
            scale *= 1.0 if problem.followed is None else _FLOW_TIE_FACTOR
            strengths[:-1, 0] = scale[:-1] / self._spacings
            strengths[1:, 1] = scale[1:] / self._spacings
        # Neighbours that move towards each other make a tie twice as stiff as a single one does.
        # Shares are divided in double precision before they are rounded to single precision.
        stiffness = 1.0 + 2.0 * strengths.sum(axis=1)
        self.share_of_fit = (1.0 / stiffness)[:, None, None].astype(np.float32)
        self._shares = (strengths / stiffness[:, None]).astype(np.float32)
        # With tight ties, particles would chase earlier positions of their neighbours.
        self._every = _PULLS_EVERY if strengths.sum(axis=1).max() <= _LOOSE else 1
        self._calls = 0
        self._partners: tuple[np.ndarray, np.ndarray] | None = None

    def gradient(self, particles: np.ndarray, diffusivity: float) -> np.ndarray:
        """Return the part of the gradient due to ties at particles (T, m, d), float32."""
        pull = np.zeros_like(particles)
        if not self._shares.any():
            return pull
        if self._partners is None or self._calls % self._every == 0:
            current = particles.astype(np.float64)
            forward, backward = self._coupling(current, self._spacings, diffusivity)
            self._partners = current[:-1] - forward, current[1:] - backward
        self._calls += 1
        after, before = self._partners
        pull[:-1] += self._shares[:-1, 0, None, None] * _without_drift(particles[:-1] - after)
        pull[1:] += self._shares[1:, 1, None, None] * _without_drift(particles[1:] - before)
        return pull


def along_paths(followed: np.ndarray) -> PairGradients:
    """Return a pull of each particle towards the moves of the followed path of its index."""

    def pull(particles: np.ndarray, *_: Any) -> tuple[np.ndarray, np.ndarray]:
        moves = np.diff(particles - followed, axis=0)
        return -moves, moves

    return pull


def _without_drift(gradient: np.ndarray) -> np.ndarray:
    """Remove the drift of the reference process, which is the motion of the mean."""
    return gradient - gradient.mean(axis=1, keepdims=True)


def _misfit_gradient(
    particles: np.ndarray, directions: np.ndarray, quantiles: np.ndarray
) -> np.ndarray:
    """Return the mean offset of projections from the quantiles of their ranks, (T, m, d)."""
    projections = np.ascontiguousarray((particles @ directions.T).transpose(0, 2, 1))
    targets = np.empty_like(projections)
    np.put_along_axis(targets, projections.argsort(axis=2), quantiles, axis=2)
    gradient: np.ndarray = (projections - targets).transpose(0, 2, 1) @ directions
    gradient *= longest_step(directions)
    return gradient
