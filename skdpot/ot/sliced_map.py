"""A map of points that transports one released measure to another.

The map applies the steps of particles that flow from the first measure to the second to any point
(iterative distribution transfer [1]_, [2]_).

References
----------
.. [1] F. Pitié, A. Kokaram, R. Dahyot, "N-dimensional probability density function transfer and
   its application to colour transfer", ICCV 2005.
.. [2] N. Bonneel, J. Rabin, G. Peyré, H. Pfister, "Sliced and Radon Wasserstein barycenters of
   measures", JMIV 2015.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from skdpot.ot.flow import FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.ot.slices import CDFTable

_N_PARTICLES = 4000
_N_STEPS = 20
_MAP_LEVELS = (np.arange(256) + 0.5) / 256
_SCHEDULE = FlowSchedule(n_steps=_N_STEPS)
_AT_ONCE = 8192  # points moved at once


@dataclass(frozen=True, eq=False)
class SliceStep:
    """A shift along each of some directions, linear between levels of the projection."""

    directions: np.ndarray
    levels: np.ndarray  # (n_projections, n_levels), increasing
    shifts: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Move points."""
        along = zip(self.directions @ points.T, self.levels, self.shifts, strict=True)
        return points + np.stack([np.interp(u, at, by) for u, at, by in along], 1) @ self.directions


@dataclass(frozen=True, eq=False)
class SlicedMap:
    """Composition of steps, each applied to the result of the one before."""

    steps: tuple[SliceStep, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Move points, each by itself."""
        parts = [points[k : k + _AT_ONCE] for k in range(0, max(1, len(points)), _AT_ONCE)]
        return np.concatenate([reduce(lambda p, step: step(p), self.steps, part) for part in parts])


def sliced_map(source: CDFTable, target: CDFTable, rng: np.random.Generator) -> SlicedMap:
    """Return a map that moves the measure of one table to that of another."""
    start = sliced_flow(SlicedFlowProblem(source), _N_PARTICLES, FlowSchedule(), rng)
    points, problem = start.particles.astype(np.float64), SlicedFlowProblem(target)
    turns, steps = problem.turns(rng), list[SliceStep]()
    for number in range(_N_STEPS):
        batch = next(turns)
        theta, share = batch.directions.astype(np.float64), _SCHEDULE.share(number)
        ordered = np.sort(theta @ points.T, axis=1)
        reached = ordered[:, (_MAP_LEVELS * _N_PARTICLES).astype(int)]
        wanted = batch.quantiles[:, (_MAP_LEVELS * batch.quantiles.shape[1]).astype(int)]
        steps.append(SliceStep(theta, reached, share * batch.full_step[0] * (wanted - reached)))
        points = steps[-1](points)
    return SlicedMap(tuple(steps))
