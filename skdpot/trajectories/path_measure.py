"""The law of paths: a Markov chain over particles at knots, and Brownian bridges in between.

References
----------
Léonard, "A survey of the Schrödinger problem and some of its connections with optimal transport",
Discrete and Continuous Dynamical Systems 2014; Karatzas, Shreve, "Brownian Motion and Stochastic
Calculus", 2nd edition, section 5.6.B.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.trajectories.couplings import sample_next


class Objective(NamedTuple):
    r"""Parts of the reduced objective F = G + τH of the paper, where G is fit plus transport.

    H is the negative entropy of the particles of all times, estimated from the distances to their
    nearest neighbours (Kozachenko, Leonenko, Problems of Information Transmission 1987).
    """

    total: float | None
    fit: float | None  # None if the release does not determine it
    transport: float
    entropy: float


def _negative_entropy(cloud: FloatArray) -> float:
    """Estimate the negative entropy of a cloud (m, d) from nearest neighbours."""
    m, d = cloud.shape
    if m < 2:
        return 0.0
    nearest = np.asarray(cKDTree(cloud).query(cloud, k=2)[0])[:, 1]
    ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    radii = np.maximum(nearest, np.finfo(np.float64).tiny)  # equal points have distance 0
    return float(digamma(1) - digamma(m) - ball - d * np.log(radii).mean())


@dataclass(frozen=True, eq=False)
class PathMeasure:
    """Particles (T, m, d) at times (T,), T - 1 couplings (m, m), and bridges in between.

    A path is a Markov chain over the particles: its particle at a knot is drawn from the coupling
    with the previous knot, given the particle there and nothing else. Given its particles, the path
    between neighbouring knots is a Brownian bridge. If particles of the same index are `followed`
    along the flow of the population, the bridge bends as the flow does, and has the variance that
    the plan removes, so that the law is as wide between knots as at knots.
    """

    times: FloatArray
    particles: FloatArray
    plans: tuple[sparse.csr_array, ...]
    diffusivity: float
    followed: bool = False
    fit: float | None = None

    @property
    def objective(self) -> Objective:
        """The reduced objective of mean-field Langevin dynamics at the particles."""
        transport = 0.0
        if len(self.times) > 1:
            spacings = np.diff(self.times)
            before, after = self.particles[:-1], self.particles[1:]
            solved = schrodinger_potentials(before, after, self.diffusivity * spacings)
            dual = solved.source.mean(axis=1) + solved.target.mean(axis=1)
            transport = float(np.sum(dual / spacings))
        entropy = sum(map(_negative_entropy, self.particles))
        total = None
        if self.fit is not None:
            total = self.fit + transport + self.diffusivity * entropy
        return Objective(total, self.fit, transport, entropy)

    def bridge_variance(self, left: int) -> float:
        """Return the variance per unit of time and feature of bridges from a knot to the next.

        Interpolation between followed particles and the particles that the plan chooses near them
        removes, at the middle, a quarter of the mean squared distance of the two from the variance.
        A bridge with this mean square in place of τΔ restores it.
        """
        if not self.followed:
            return self.diffusivity
        cloud, plan = self.particles[left + 1], self.plans[left].tocoo()
        rows, columns = plan.coords
        squares = np.mean((cloud[rows] - cloud[columns]) ** 2, axis=1)
        return float(plan.data @ squares / (self.times[left + 1] - self.times[left]))

    def sample(self, n: int, times: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw paths at times in any order, shape (n, n_times, d)."""
        chain = [_evenly_drawn(n, self.particles.shape[1], rng)]
        for plan in self.plans:
            chain.append(sample_next(plan, chain[-1], rng))
        paths = np.empty((n, len(times), self.particles.shape[2]))
        interval = self._interval(times)
        for left in np.unique(interval):
            inside = interval == left
            paths[:, inside] = self._between(left, chain[left : left + 2], times[inside], rng)
        return paths

    def sample_marginal(self, time: float, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw points of the law at one time, shape (n, d)."""
        index = _evenly_drawn(n, self.particles.shape[1], rng)
        knots = np.flatnonzero(self.times == time)
        if len(knots):
            return self.particles[knots[0], index]
        alone = np.array([time])
        left = int(self._interval(alone)[0])
        pair = [index, sample_next(self.plans[left], index, rng)]
        return self._between(left, pair, alone, rng)[:, 0]

    def _between(
        self, left: int, ends: list[IntArray], times: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Draw Brownian bridges from the particles of one knot to those of the next.

        A bridge from x to y over the time Δ is a Brownian motion of variance τ per unit time and
        feature, conditioned on its two ends: at time s its mean is ``x + (s/Δ)(y − x)``, and the
        covariance between the times s ≤ t is ``τ s (Δ − t) / Δ`` in each feature.
        """
        position = self.particles[left, ends[0]]
        if len(self.times) == 1:
            return np.repeat(position[:, None], len(times), axis=1)
        end = self.particles[left + 1, ends[1]]
        spacing = float(self.times[left + 1] - self.times[left])
        since = np.where(times == self.times[left + 1], spacing, times - self.times[left])
        distinct, where = np.unique(since, return_inverse=True)
        points = np.empty((len(end), len(distinct), end.shape[1]))
        passed, variance = 0.0, self.bridge_variance(left)
        for step, time in enumerate(distinct):
            # The bridge is Markov: the rest of it is a bridge from the current position.
            rest = spacing - passed
            share = (time - passed) / rest if rest > 0 else 1.0
            position = (1 - share) * position + share * end
            deviation = np.sqrt(variance * (time - passed) * (1 - share))
            if deviation > 0:
                position = position + deviation * rng.standard_normal(end.shape)
            points[:, step], passed = position, time
        if self.followed:  # a cubic polynomial has the positions and the speeds of both ends
            share = (distinct / spacing)[:, None]
            first, last = (
                bend[left, index][:, None] for bend, index in zip(self.bends, ends, strict=True)
            )
            points += share * (1 - share) * ((1 - share) * first - share * last)
        return points[:, where]

    @cached_property
    def bends(self) -> FloatArray:
        """Distance at the speed of either end of an interval less the real one, (2, T - 1, m, d).

        Noise of the particles bends paths too. The bends computed without a knot predict how far
        the knot lies beside the line between its neighbours. The part of the mean square that is
        predicted is motion and the rest is noise, and the bends are scaled by the share of motion.
        Both are compared as accelerations.
        """
        bends, steps = _unscaled_bends(self.particles, self.times)
        mean_square = np.mean(((bends[1] - bends[0]) / steps**2) ** 2)
        predicted = []
        for first in (0, 1):
            ends, times = self.particles[first::2], self.times[first::2]
            inner = slice(first + 1, len(self.times) - 1, 2)
            bent, spans = _unscaled_bends(ends, times)
            since = (self.times[inner] - times[:-1])[:, None, None]
            beside = self.particles[inner] - ends[:-1] - since / spans * np.diff(ends, axis=0)
            beside *= 2.0 / (since * (since - spans))
            predicted.append(np.mean(beside * (bent[1] - bent[0]) / spans**2, axis=(1, 2)))
        share = np.concatenate(predicted).mean() / max(mean_square, np.finfo(np.float64).tiny)
        scaled: FloatArray = np.clip(share, 0.0, 1.0) * bends
        return scaled

    def _interval(self, times: FloatArray) -> IntArray:
        """Return the index of the interval of each time; the last knot is in the last interval."""
        last = max(len(self.times) - 2, 0)
        return np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, last)


def _unscaled_bends(particles: FloatArray, times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the bends at both ends of each interval, and the lengths of the intervals.

    The speed at a knot is that of the parabola through the knot and its neighbours if there are at
    least three knots.
    """
    parabolas = len(times) > 2
    speeds = np.asarray(np.gradient(particles, times, axis=0, edge_order=2 if parabolas else 1))
    steps = np.diff(times)[:, None, None]
    return np.stack([speeds[:-1], speeds[1:]]) * steps - np.diff(particles, axis=0), steps


def _evenly_drawn(n: int, m: int, rng: np.random.Generator) -> IntArray:
    """Draw n of m indices, each n // m times or once more, in random order."""
    every = np.repeat(np.arange(m), n // m)
    return rng.permutation(np.concatenate([every, rng.permutation(m)[: n % m]]))
