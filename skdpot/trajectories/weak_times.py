"""Times whose rows the noise hides: neighbours are merged, and the flow fills in the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.couplings import exact_plans
from skdpot.trajectories.mean_motion import MeanMotion

# The mean of a knot has at most this error, in units of the spread of the population.
_MOST_ERROR = 0.5


@dataclass(frozen=True, eq=False)
class Knots:
    """Times between which the flow of a population is followed, each of one or more weak times.

    Each of the `members` is the indices of the times that are merged. Their tables are added with
    the numbers of rows as weights, which is best for noise that is the same in all tables.
    """

    motion: MeanMotion
    members: Sequence[IntArray]

    @classmethod
    def of(cls, motion: MeanMotion, *, merge: bool = True) -> "Knots":
        """Merge runs of weak times until the mean of each knot is known well enough.

        Without `merge` each time is a knot. Times that are strong by themselves stay as they are.
        Weak ones that remain of a run are left out, unless this leaves no knot at all.
        """
        limit = _MOST_ERROR * motion.spread
        weak = (motion.deviations > limit) & merge
        members: list[list[int]] = []
        run: list[int] = []
        for i in range(len(weak)):
            if not weak[i]:
                members.append([i])
                run = []
                continue
            run.append(i)
            if _error(motion.deviations[run]) <= limit:
                members.append(run)
                run = []
        every: list[list[int]] = members or [list(range(len(weak)))]
        return cls(motion, [np.array(indices) for indices in every])

    @classmethod
    def of_visible(cls, motion: MeanMotion) -> "Knots":
        """Make a knot of each time that is not hidden; of each time if all are."""
        visible = np.flatnonzero(~motion.hidden)
        return cls(
            motion,
            [np.array([i]) for i in (visible if len(visible) else np.arange(len(motion.times)))],
        )

    @property
    def are_all_times(self) -> bool:
        """Whether each time is a knot of its own."""
        return len(self.members) == len(self.motion.times)

    @cached_property
    def filled(self) -> BoolArray:
        """Whether a time is no knot of its own, (T,)."""
        alone = [some[0] for some in self.members if len(some) == 1]
        return ~np.isin(np.arange(len(self.motion.times)), alone)

    @cached_property
    def times(self) -> FloatArray:
        """Mean times (K,) of the merged rows, with the weights of the tables."""
        m = self.motion
        return np.array(
            [np.average(m.times[some], weights=m.counts[some] ** 2) for some in self.members]
        )

    def merged(self, sketch: SlicedSketch) -> SlicedSketch:
        r"""Return the sketch whose classes are the knots, with the same noise in each table.

        Sums of tables with weights :math:`N_t / \sqrt{\sum N_t^2}` have the noise of one table,
        and count :math:`\sqrt{\sum N_t^2}` rows.
        """
        counts = self.motion.counts
        sizes = [math.sqrt(np.square(counts[some]).sum()) for some in self.members]
        tables = [
            np.tensordot(counts[some] / size, sketch.statistic_[some], 1)
            for some, size in zip(self.members, sizes, strict=True)
        ]
        return sketch._with_statistic(np.stack(tables), np.arange(len(sizes)), np.array(sizes))

    def fill(self, particles: FloatArray, followed: bool) -> FloatArray:
        """Return particles of all times (T, m, d) from those of the knots (K, m, d).

        Between knots particles of the same index, or joined by optimal transport, are interpolated;
        before and after them the nearest knot is taken. The mean of each filled time is moved to
        the one that all times together tell.
        """
        if not self.filled.any():
            return particles
        clouds = list(particles if followed else _joined(particles))
        filled = np.empty((len(self.motion.times), *particles.shape[1:]))
        for cloud, some in zip(clouds, self.members, strict=True):
            filled[some] = cloud  # merged times are filled below
        for i in np.flatnonzero(self.filled):
            time = self.motion.times[i]
            after = int(np.searchsorted(self.times, time))
            first, last = max(after - 1, 0), min(after, len(clouds) - 1)
            share = 0.0
            if last > first:
                share = (time - self.times[first]) / (self.times[last] - self.times[first])
            filled[i] = (1.0 - share) * clouds[first] + share * clouds[last]
            filled[i] += self.motion.means[i] - filled[i].mean(axis=0)
        return filled


def _error(deviations: FloatArray) -> float:
    """Return the deviation of the best mean of independent values."""
    return float(1.0 / np.sqrt(np.sum(deviations**-2.0)))


def _joined(particles: FloatArray) -> FloatArray:
    """Order particles (K, m, d) so that those of an index are joined by optimal transport."""
    chain: list[IntArray] = [np.arange(particles.shape[1])]
    for plan in exact_plans(particles):
        chain.append(plan.tocsr().indices[chain[-1]])
    return np.stack([cloud[order] for cloud, order in zip(particles, chain, strict=True)])
