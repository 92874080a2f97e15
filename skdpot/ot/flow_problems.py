"""Targets of particle flows: tables of quantiles, noisy projections of rows, or Gaussians.

For smoothed targets the distribution function of the particles is that of their noisy projections
and is evaluated at them: the gradient of the smoothed distance at a particle is the mean of
``z - T(z)`` over its noisy projections z.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.special import ndtr, ndtri

from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.slices import CDFTable

_N_LEVELS = 1024
_LEVELS = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
_PREFERRED_BATCH = 64  # directions per step


def direction_blocks(
    n_projections: int, n_features: int, size: int | None = None
) -> tuple[slice, ...]:
    """Divide directions into steps; by default about 64 per step, in whole bases."""
    size = size or n_features * max(1, round(_PREFERRED_BATCH / n_features))
    return tuple(slice(start, start + size) for start in range(0, n_projections, size))


def rounds(items: Sequence[Any], rng: np.random.Generator) -> Iterator[Any]:
    """Yield items without end, each once per round, in random order."""
    while True:
        for index in rng.permutation(len(items)):
            yield items[index]


@dataclass(frozen=True, eq=False)
class DirectionBatch:
    """Directions of one step with the quantiles of the target, and the length of a full step."""

    directions: np.ndarray
    quantiles: np.ndarray
    sigma: float = 0.0

    @cached_property
    def full_step(self) -> np.ndarray:
        """Step by which the summed drift is multiplied, one float32 per coordinate."""
        return longest_step(self.directions)

    @property
    def drift_step(self) -> np.ndarray:
        """The same step in units of the mean drift, h: M times `full_step`."""
        return self.full_step * np.float32(len(self.directions))


@dataclass(frozen=True, eq=False)
class SlicedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of particles to a table of quantiles."""

    table: CDFTable
    n_projections_per_step: int | None = None
    n_turns: ClassVar[None] = None  # batches are used again and again

    @cached_property
    def batches(self) -> tuple[DirectionBatch, ...]:
        """Consecutive directions, M at a time."""
        directions = self.table.directions.astype(np.float32)
        quantiles = self.table.quantiles(_LEVELS).astype(np.float32)
        n_projections, n_features = directions.shape
        blocks = direction_blocks(n_projections, n_features, self.n_projections_per_step)
        return tuple(DirectionBatch(directions[block], quantiles[block]) for block in blocks)

    @property
    def largest_batch(self) -> int:
        """Number of directions of the largest batch; only the last one can be smaller."""
        return len(self.batches[0].directions)

    @property
    def is_partial(self) -> bool:
        """Whether there are several batches, none of which spans the space."""
        return len(self.batches) > 1 and self.largest_batch < self.table.directions.shape[1]

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian of the target's location and spread."""
        noise = rng.standard_normal((n_particles, len(self.location)))
        return (self.location + self.spread * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield batches without end, each once per round in random order."""
        return rounds(self.batches, rng)

    def distance(self, particles: np.ndarray) -> float:
        """Return SW₂ to the target along its directions, which the flow minimises."""
        projections = np.sort(self.table.directions @ particles.T.astype(np.float64), axis=1)
        reached = projections[:, (_LEVELS * len(particles)).astype(int)]
        return float(np.sqrt(np.mean((reached - self._levels) ** 2)))

    @cached_property
    def location(self) -> np.ndarray:
        """Least-squares mean of the target from its mean along each direction."""
        means = self._levels.mean(axis=1)
        return np.linalg.lstsq(self.table.directions, means, rcond=None)[0]

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the target along an average direction."""
        return float(np.sqrt(max(self._levels.var(axis=1).mean(), np.finfo(float).tiny)))

    @cached_property
    def _levels(self) -> np.ndarray:
        return np.concatenate([batch.quantiles for batch in self.batches]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ProjectedRows:
    """Noisy projections of one batch of rows."""

    directions: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class SmoothedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of smoothed particles to noisy projections.

    The values along a direction are a sample of ``P_θ ν * N(0, σ²)``. Noise of the same size is
    added to the projections of the particles, so that at the minimum the particles match the rows
    rather than the noisy rows. The noise of the particles protects nothing and is drawn anew in
    each step; the released noise is frozen.

    References
    ----------
    "Differentially private sliced Wasserstein flows", Algorithms 1 and 2. Both omit ``X +`` in the
    update of the particles. Equation 21 prints the inverse map, and equation 20 evaluates it at
    clean projections; the code of the authors evaluates the map at noisy ones, as we do.
    """

    batches: tuple[ProjectedRows, ...]
    sigma: float
    radius: float
    n_projections_per_step: int | None = None
    location: np.ndarray | float = 0.0
    spread: float | None = None

    @property
    def largest_batch(self) -> int:
        """Number of directions of a step."""
        n_projections = len(self.batches[0].directions)
        return min(self.n_projections_per_step or n_projections, n_projections)

    @property
    def n_turns(self) -> int | None:
        """Number of steps, one per release; None (no limit) for a single release."""
        n_batches = len(self.batches)
        return None if n_batches == 1 else n_batches

    @property
    def is_partial(self) -> bool:
        """Whether there are several batches, none of which spans the space."""
        n_projections, n_features = self.batches[0].directions.shape
        takes_turns = self.n_turns is not None or self.largest_batch < n_projections
        return takes_turns and self.largest_batch < n_features

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian, by default as wide as the ball: ``N(0, R² / d)`` in each coordinate."""
        n_features = self.batches[0].directions.shape[1]
        spread = self.radius / math.sqrt(n_features) if self.spread is None else self.spread
        noise = rng.standard_normal((n_particles, n_features))
        return (self.location + spread * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield the releases in order, or parts of the single release without end."""
        for batch in self.batches if len(self.batches) > 1 else repeat(self.batches[0]):
            yield self._part(batch, rng)

    def _part(self, release: ProjectedRows, rng: np.random.Generator) -> DirectionBatch:
        """Return M of the directions of a release with their values as quantiles."""
        directions, values = release.directions, release.values
        if self.largest_batch < len(directions):
            chosen = rng.choice(len(directions), self.largest_batch, replace=False)
            directions, values = directions[chosen], values[chosen]
        if values.shape[1] == 1:  # interpolation needs two quantiles
            values = np.repeat(values, 2, axis=1)
        return DirectionBatch(directions, values, self.sigma)


@dataclass(frozen=True, eq=False)
class GaussianFlowProblem:
    """Minimise the sliced distance of particles to a mixture of Gaussians, their start."""

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    n_turns: ClassVar[None] = None
    is_partial: ClassVar[bool] = False

    @property
    def largest_batch(self) -> int:
        """Number of directions of a batch: a basis."""
        return self.means.shape[1]

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the mixture."""
        sizes = rng.multinomial(n_particles, self.shares)
        parts = [
            rng.multivariate_normal(mean, covariance, size, method="eigh")
            for mean, covariance, size in zip(self.means, self.covariances, sizes, strict=True)
        ]
        return rng.permutation(np.concatenate(parts)).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield random bases without end, with the quantiles of the mixture along them."""
        d = self.largest_batch
        while True:
            directions = orthogonal_directions(d, d, rng)
            means = directions @ self.means.T
            spreads = np.sqrt(
                np.einsum("ij,kjl,il->ik", directions, self.covariances, directions, optimize=True)
            )
            quantiles = np.stack(list(map(self._quantiles, means, spreads)))
            yield DirectionBatch(directions.astype(np.float32), quantiles.astype(np.float32))

    def _quantiles(self, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
        """Return the quantiles of a mixture on a line."""
        normal = ndtri(np.linspace(_LEVELS[0], _LEVELS[-1], _N_LEVELS // 4))
        nodes = np.sort((means + spreads * normal[:, None]).ravel())
        levels = self.shares @ ndtr((nodes - means[:, None]) / spreads[:, None])
        return np.interp(_LEVELS, levels, nodes)


FlowProblem: TypeAlias = SlicedFlowProblem | SmoothedFlowProblem | GaussianFlowProblem


def longest_step(directions: np.ndarray) -> np.ndarray:
    """Return the step by which a summed drift is multiplied, per coordinate.

    Where the maps are locally translations, the sum over directions of the one-dimensional
    residuals has the Jacobian ΘᵀΘ. The inverse of its largest eigenvalue is the longest step that
    never overshoots; for orthogonal rows it gives the exact solution. For sparse directions one
    coordinate may determine this eigenvalue, so each coordinate gets the inverse of its row sum of
    ``|Θ|ᵀ|Θ|`` instead (Gershgorin), which is stable too.
    """
    magnitudes = np.abs(directions.astype(np.float64))
    n_features = magnitudes.shape[1]
    if n_features > 1 and np.mean(magnitudes > 0) < 0.5:
        sums = magnitudes.T @ magnitudes.sum(axis=1)
        seen = sums > 0
        steps: np.ndarray = np.divide(1.0, sums, out=np.zeros(n_features), where=seen)
        return steps.astype(np.float32)
    largest = np.linalg.norm(directions.astype(np.float64), ord=2) ** 2
    return np.full(n_features, 1.0 / largest, dtype=np.float32)
