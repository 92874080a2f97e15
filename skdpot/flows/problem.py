"""What a sliced flow moves particles towards."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from skdpot.slicing.step_length import longest_step
from skdpot.slicing.table import CDFTable

__all__ = ["DirectionBatch", "FlowProblem", "SlicedFlowProblem"]

_N_LEVELS = 1024
_PREFERRED_BATCH = 64


@dataclass(frozen=True, eq=False)
class DirectionBatch:
    """Directions that are used together in one step, and how far a full step goes.

    Parameters
    ----------
    directions : ndarray of shape (n_subslices, n_features), float32
        Unit rows Θ_M.
    quantiles : ndarray of shape (n_subslices, n_levels), float32
        Target quantiles at the levels ``(i + 1/2) / n_levels``.
    sigma : float, default=0
        Standard deviation of the noise that is in the target. Noise of the same size is added
        to the particles' projections before their distribution function is taken, so that
        both sides of the comparison are smoothed alike.
    """

    directions: np.ndarray
    quantiles: np.ndarray
    sigma: float = 0.0

    @cached_property
    def full_step(self) -> np.ndarray:
        """Step by which the summed drift is multiplied, per coordinate, float32."""
        return longest_step(self.directions)

    @property
    def drift_step(self) -> np.ndarray:
        """The same step in units of the mean drift, h: M times `full_step`."""
        return self.full_step * np.float32(len(self.directions))


class FlowProblem(Protocol):
    """What the solver asks of a problem: a start, and batches of directions in some order."""

    @property
    def largest_batch(self) -> int:
        """Number of directions of the largest batch."""

    @property
    def n_turns(self) -> int | None:
        """How many batches there are to take; None when they can be taken for ever."""

    @property
    def is_partial(self) -> bool:
        """Whether batches take turns and none of them spans the space."""

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw particles to start from, shape (n_particles, n_features), float32."""

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield the batch of each step."""


@dataclass(frozen=True, eq=False)
class SlicedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of particles to a table of quantiles.

    Parameters
    ----------
    table : CDFTable
        Distribution functions of the target along L directions.
    n_subslices : int, optional
        Directions M a step; by default about 64, in whole orthogonal blocks.
    """

    table: CDFTable
    n_subslices: int | None = None

    @cached_property
    def batches(self) -> tuple[DirectionBatch, ...]:
        """Consecutive directions, M at a time."""
        n_slices, n_features = self.table.directions.shape
        size = self.n_subslices or n_features * max(1, round(_PREFERRED_BATCH / n_features))
        levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
        directions = self.table.directions.astype(np.float32)
        quantiles = self.table.quantiles(levels).astype(np.float32)
        return tuple(
            DirectionBatch(directions[start : start + size], quantiles[start : start + size])
            for start in range(0, n_slices, size)
        )

    @property
    def largest_batch(self) -> int:
        """Number of directions of the largest batch; only the last one can be smaller."""
        return len(self.batches[0].directions)

    @property
    def n_turns(self) -> None:
        """Batches are used again and again."""
        return None

    @property
    def is_partial(self) -> bool:
        """Whether batches take turns and none of them spans the space."""
        return len(self.batches) > 1 and self.largest_batch < self.table.directions.shape[1]

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian of the target's location and spread."""
        noise = rng.standard_normal((n_particles, len(self.location)))
        return (self.location + self.spread * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield batches for ever, every one once a round in random order."""
        while True:
            for index in rng.permutation(len(self.batches)):
                yield self.batches[index]

    def distance(self, particles: np.ndarray) -> float:
        """Return the root of what the flow minimises: SW₂ to the target along its directions.

        Parameters
        ----------
        particles : ndarray of shape (n_particles, n_features)
            Positions.

        Returns
        -------
        float
            In the unit of the positions, read at the levels that the flow reads.
        """
        projections = np.sort(self.table.directions @ particles.T.astype(np.float64), axis=1)
        levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
        reached = projections[:, (levels * len(particles)).astype(int)]
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
