"""The law of whole paths that couplings and Brownian bridges define.

References
----------
Léonard, "A survey of the Schrödinger problem and some of its connections with optimal transport",
Discrete and Continuous Dynamical Systems 2014; Karatzas, Shreve, "Brownian Motion and Stochastic
Calculus", 2nd edition, section 5.6.B.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.ot.transport import exact_plan

_TOLERANCE, _MAX_ITERATIONS = 1e-6, 2000  # of entropic plans; their margins are mended after
_NEGLIGIBLE = 1e-6  # density with respect to the independent coupling
_ROUNDING = 1e-9  # share of a particle's mass that the simplex may leave behind by rounding


def coupling_of(matrix: np.ndarray) -> sparse.csr_array:
    """Return the coupling with these masses, scaled to sum to one, by its entries."""
    plan = sparse.csr_array(matrix)
    plan.data /= plan.data.sum()
    return plan


def sample_next(plan: sparse.csr_array, index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the partner of each particle of the first cloud."""
    cumulated = np.concatenate([[0.0], np.cumsum(plan.data)])
    first, last = plan.indptr[index], plan.indptr[index + 1]
    low, high = cumulated[first], cumulated[last]
    level = low + rng.random(len(index)) * (high - low)
    entry = np.searchsorted(cumulated, level, side="right") - 1
    return plan.indices[np.clip(entry, first, last - 1)]


def exact_plans(particles: np.ndarray) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by optimal transport with the squared Euclidean cost.

    This is the limit of `entropic_plans` for small diffusivities.
    """
    plans = []
    for first, second in zip(particles[:-1], particles[1:], strict=True):
        costs = cdist(first, second, metric="sqeuclidean")
        costs /= costs.max() or 1.0  # the solver's tolerances are absolute
        plan, _ = exact_plan(costs)
        plan[plan < _ROUNDING / max(plan.shape)] = 0.0
        plans.append(coupling_of(plan))
    return tuple(plans)


def entropic_plans(
    particles: np.ndarray, spacings: np.ndarray, diffusivity: float
) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by the Schrödinger bridges of a Brownian motion."""
    if len(particles) < 2:
        return ()
    solved = schrodinger_potentials(
        particles[:-1],
        particles[1:],
        diffusivity * np.asarray(spacings, dtype=np.float64),
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
    )
    return tuple(coupling_of(_rounded(plan)) for plan in solved.plans())


def _rounded(plan: np.ndarray) -> np.ndarray:
    """Return a coupling of the uniform masses near an approximate one, with fewer entries.

    Negligible entries are dropped and rows and columns that have too much are scaled down
    (Altschuler, Weed, Rigollet, NeurIPS 2017). The margins that are then missing are coupled in
    the order of the particles, which adds few entries.
    """
    m, k = plan.shape
    plan = np.where(plan < _NEGLIGIBLE / (m * k), 0.0, plan)
    with np.errstate(divide="ignore"):
        plan *= np.minimum(1 / (m * plan.sum(axis=1, keepdims=True)), 1.0)
        plan *= np.minimum(1 / (k * plan.sum(axis=0)), 1.0)
    sent = np.cumsum(np.maximum(1 / m - plan.sum(axis=1), 0.0))
    received = np.cumsum(np.maximum(1 / k - plan.sum(axis=0), 0.0))
    levels = np.unique(np.concatenate([sent, received]))
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    rows = np.minimum(np.searchsorted(sent, middles), m - 1)
    columns = np.minimum(np.searchsorted(received, middles), k - 1)
    np.add.at(plan, (rows, columns), masses)
    return plan


@dataclass(frozen=True, eq=False)
class PathMeasure:
    """Particles at knots, couplings of neighbours, and Brownian bridges in between.

    A path is a Markov chain over the particles: its particle at a knot is drawn from the
    coupling with the knot before, given the particle there and nothing else. Given its
    particles, the path between neighbouring knots is a Brownian bridge.
    """

    times: np.ndarray
    particles: np.ndarray
    plans: tuple[sparse.csr_array, ...]
    diffusivity: float

    def sample(self, n: int, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw paths."""
        chain = [_evenly_drawn(n, self.particles.shape[1], rng)]
        for plan in self.plans:
            chain.append(sample_next(plan, chain[-1], rng))
        paths = np.empty((n, len(times), self.particles.shape[2]))
        interval = self._interval(times)
        for left in np.unique(interval):
            inside = interval == left
            paths[:, inside] = self._between(left, chain[left : left + 2], times[inside], rng)
        return paths

    def sample_marginal(self, time: float, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw points of the law at one time."""
        index = _evenly_drawn(n, self.particles.shape[1], rng)
        knots = np.flatnonzero(self.times == time)
        if len(knots):
            return self.particles[knots[0], index]
        at = np.array([time])
        left = int(self._interval(at)[0])
        pair = [index, sample_next(self.plans[left], index, rng)]
        return self._between(left, pair, at, rng)[:, 0]

    def _between(
        self, left: int, index: list[np.ndarray], at: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw Brownian bridges from the particles of one knot to those of the next.

        A bridge from x to y over the time Δ is a Brownian motion of variance τ per unit time and
        feature, conditioned on its two ends: at time s its mean is ``x + (s/Δ)(y − x)``, and the
        covariance between the times s ≤ t is ``τ s (Δ − t) / Δ`` in each feature.
        """
        position = self.particles[left, index[0]]
        if len(self.times) == 1:
            return np.repeat(position[:, None], len(at), axis=1)
        end = self.particles[left + 1, index[1]]
        spacing = float(self.times[left + 1] - self.times[left])
        since = np.where(at == self.times[left + 1], spacing, at - self.times[left])
        distinct, where = np.unique(since, return_inverse=True)
        points = np.empty((len(end), len(distinct), end.shape[1]))
        passed = 0.0
        for step, time in enumerate(distinct):
            # The bridge is Markov: what is left of it is a bridge from where it stands.
            rest = spacing - passed
            share = (time - passed) / rest if rest > 0 else 1.0
            position = (1 - share) * position + share * end
            deviation = np.sqrt(self.diffusivity * (time - passed) * (1 - share))
            if deviation > 0:
                position = position + deviation * rng.standard_normal(end.shape)
            points[:, step], passed = position, time
        return points[:, where]

    def _interval(self, at: np.ndarray) -> np.ndarray:
        """Return the knot before each time; before the last knot, the one before it."""
        last = max(len(self.times) - 2, 0)
        return np.clip(np.searchsorted(self.times, at, side="right") - 1, 0, last)


def _evenly_drawn(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n of m particles, each n // m times or once more, in random order."""
    every = np.repeat(np.arange(m), n // m)
    return rng.permutation(np.concatenate([every, rng.permutation(m)[: n % m]]))
