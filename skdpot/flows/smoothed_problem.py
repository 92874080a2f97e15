"""Noisy projections of rows as the target of a flow: the two algorithms of the flow paper."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot.flows.problem import DirectionBatch
from skdpot.slicing.smoothed import ProjectedRows, SmoothedProjections

__all__ = ["SmoothedFlowProblem"]


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
