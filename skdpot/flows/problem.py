"""What a sliced flow moves particles towards, and how long its steps are."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from skdpot.slicing.directions import longest_step
from skdpot.slicing.smoothed import ProjectedRows, SmoothedProjections
from skdpot.slicing.table import CDFTable

__all__ = [
    "DirectionBatch",
    "FlowProblem",
    "FlowSchedule",
    "SlicedFlowProblem",
    "SmoothedFlowProblem",
]

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


@dataclass(frozen=True, eq=False)
class SmoothedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of smoothed particles to noisy projections.

    The values along a direction are a sample of ``P_θ ν * N(0, σ²)``, of which only the noise
    made them private. Particles are compared with them after noise of the same size was added
    to their projections too: the minimum is where particles and rows agree, not where the
    particles have taken up the noise. The particles' noise protects nothing and is drawn anew
    in each step; the released noise is frozen.

    Parameters
    ----------
    projections : SmoothedProjections
        The release. Several batches are taken in their sequence, one a step (Algorithm 1,
        DPSWflow-r); a single one is used in every step (Algorithm 2, DPSWflow).
    radius : float
        Radius R of the ball that the rows were mapped to.
    n_subslices : int, optional
        Directions M of a step, drawn from those of the batch; by default all of them.

    References
    ----------
    "Differentially private sliced Wasserstein flows", Algorithms 1 and 2. Both omit ``X +``
    in the update of the particles.
    """

    projections: SmoothedProjections
    radius: float
    n_subslices: int | None = None

    @property
    def largest_batch(self) -> int:
        """Number of directions of a step."""
        n_slices = len(self.projections.batches[0].directions)
        return min(self.n_subslices or n_slices, n_slices)

    @property
    def n_turns(self) -> int | None:
        """One step a release (one without rows says nothing); any number with a single one."""
        return None if self._is_frozen else len(self._releases)

    @property
    def is_partial(self) -> bool:
        """Whether batches take turns and none of them spans the space."""
        n_slices, n_features = self.projections.batches[0].directions.shape
        takes_turns = not self._is_frozen or self.largest_batch < n_slices
        return takes_turns and self.largest_batch < n_features

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian as wide as the ball: ``N(0, R² / d)`` in each coordinate."""
        n_features = self.projections.batches[0].directions.shape[1]
        noise = rng.standard_normal((n_particles, n_features))
        return (self.radius / math.sqrt(n_features) * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield the releases in their sequence, or parts of the single one for ever."""
        while self._is_frozen:
            yield self._part(self._releases[0], rng)
        for release in self._releases:
            yield self._part(release, rng)

    @cached_property
    def _releases(self) -> tuple[ProjectedRows, ...]:
        return tuple(batch for batch in self.projections.batches if batch.values.shape[1] > 0)

    @property
    def _is_frozen(self) -> bool:
        return len(self.projections.batches) == 1 and len(self._releases) == 1

    def _part(self, release: ProjectedRows, rng: np.random.Generator) -> DirectionBatch:
        """Take M of the directions of a release, and their values as quantiles."""
        directions, values = release.directions, release.values
        if self.largest_batch < len(directions):
            chosen = rng.choice(len(directions), self.largest_batch, replace=False)
            directions, values = directions[chosen], values[chosen]
        if values.shape[1] == 1:  # between two equal quantiles there is something to interpolate
            values = np.repeat(values, 2, axis=1)
        return DirectionBatch(directions, values, self.projections.sigma)


@dataclass(frozen=True)
class FlowSchedule:
    """Lengths of the steps, as shares of a full step.

    Parameters
    ----------
    n_steps : int
        Number of steps.
    step_size : float
        Share of a full step at the start, in (0, 1].
    diffusion : float
        Entropic regularisation λ; each step adds ``sqrt(2 λ h)`` standard normal noise.
    momentum : float
        Share of the last displacement that is carried on, in [0, 1) (Nesterov's method).
        With 0 the iteration is the Euler-Maruyama scheme of the flow, and so it is when
        batches of fewer directions than there are features take turns.
    decay : bool
        Whether steps become shorter in the second half; otherwise all are of equal length.
    """

    n_steps: int = 200
    step_size: float = 1.0
    diffusion: float = 0.0
    momentum: float = 0.9
    decay: bool = True

    def share(self, step: int) -> float:
        """Return the share of a full step taken at `step`.

        With `decay` constant for the first half, then falling linearly to a twentieth:
        particles first find their place, then average over the directions that do not agree,
        because of the noise of the release.
        """
        if not self.decay:
            return self.step_size
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))
