"""The law of whole paths that couplings and Brownian bridges define."""

from dataclasses import dataclass

import numpy as np

from skdpot.trajectories.bridges import brownian_bridge
from skdpot.trajectories.plans import CouplingPlan

__all__ = ["PathMeasure"]

_SLACK = 1e-9  # by which rounding may carry a time beyond the end knots


@dataclass(frozen=True, eq=False)
class PathMeasure:
    """Particles at knots, couplings of neighbours, and Brownian bridges in between.

    A path is a Markov chain over the particles: its particle at a knot is drawn from the
    coupling with the knot before, given the particle there and nothing else. Given its
    particles, the path between neighbouring knots is a Brownian bridge.

    Parameters
    ----------
    times : ndarray of shape (T,)
        Increasing times of the knots, T ≥ 1.
    particles : ndarray of shape (T, m, d)
        Particles of equal mass at each knot.
    plans : tuple of CouplingPlan
        T − 1 couplings of neighbouring knots, with uniform margins.
    diffusivity : float
        τ, the variance of the bridges per unit time and feature; 0 gives straight lines.

    Raises
    ------
    ValueError
        If the parts do not fit together.

    References
    ----------
    Chizat, Zhang, Heitz, Schiebinger, "Trajectory inference via mean-field Langevin in path
    space", NeurIPS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.paths import PathMeasure
    >>> from skdpot.trajectories.plans import exact_plans
    >>> particles = np.array([[[0.0], [4.0]], [[1.0], [5.0]]])
    >>> law = PathMeasure(np.array([0.0, 1.0]), particles, exact_plans(particles), 0.0)
    >>> paths = law.sample(2, np.array([0.0, 0.25, 1.0]), np.random.default_rng(0))
    >>> np.sort(paths[:, :, 0], axis=0)
    array([[0.  , 0.25, 1.  ],
           [4.  , 4.25, 5.  ]])
    """

    times: np.ndarray
    particles: np.ndarray
    plans: tuple[CouplingPlan, ...]
    diffusivity: float

    def __post_init__(self) -> None:
        n_times = len(self.times)
        if n_times < 1 or np.ndim(self.times) != 1 or not np.all(np.diff(self.times) > 0):
            raise ValueError("times must be a vector of at least one time, increasing.")
        if self.particles.ndim != 3 or len(self.particles) != n_times:
            raise ValueError(
                f"particles must have shape ({n_times}, m, d), a cloud for each time; got "
                f"{self.particles.shape}."
            )
        m = self.particles.shape[1]
        if [plan.shape for plan in self.plans] != [(m, m)] * (n_times - 1):
            raise ValueError(f"plans must be {n_times - 1} couplings of {m} particles with {m}.")
        if not 0 <= self.diffusivity < np.inf:
            raise ValueError(f"diffusivity={self.diffusivity!r} must be finite and at least 0.")

    def sample(self, n: int, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw paths.

        Parameters
        ----------
        n : int
            Number of paths. They start from different particles as far as there are any, and
            from all of them equally often up to one: each path has the law above, together they
            represent the first knot better than independent ones.
        times : ndarray of shape (k,)
            Times between the end knots, in any order. Equal times give equal points.
        rng : numpy Generator
            Draws the paths.

        Returns
        -------
        ndarray of shape (n, k, d)
            Positions.

        Raises
        ------
        ValueError
            If n < 1 or a time lies beyond the end knots.
        """
        index = _evenly_drawn(n, self.particles.shape[1], rng)
        at = self._checked(times)
        chain = [index]
        for plan in self.plans:
            chain.append(plan.sample_next(chain[-1], rng))
        paths = np.empty((n, len(at), self.particles.shape[2]))
        interval = self._interval(at)
        for left in np.unique(interval):
            inside = interval == left
            paths[:, inside] = self._between(left, chain[left : left + 2], at[inside], rng)
        return paths

    def sample_marginal(self, time: float, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw points of the law at one time.

        Parameters
        ----------
        time : float
            A time between the end knots.
        n : int
            Number of points. At a knot they are its particles, without repetition as far as
            there are any.
        rng : numpy Generator
            Draws the points.

        Returns
        -------
        ndarray of shape (n, d)
            Positions.

        Raises
        ------
        ValueError
            If n < 1 or the time lies beyond the end knots.
        """
        index = _evenly_drawn(n, self.particles.shape[1], rng)
        at = self._checked(np.array([time]))
        knots = np.flatnonzero(self.times == at[0])
        if len(knots):
            points: np.ndarray = self.particles[knots[0], index]
            return points
        left = int(self._interval(at)[0])
        pair = [index, self.plans[left].sample_next(index, rng)]
        return self._between(left, pair, at, rng)[:, 0]

    def _between(
        self, left: int, index: list[np.ndarray], at: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw bridges from the particles of one knot to those of the next."""
        start = self.particles[left, index[0]]
        if len(self.times) == 1:
            return np.repeat(start[:, None], len(at), axis=1)
        end = self.particles[left + 1, index[1]]
        spacing = float(self.times[left + 1] - self.times[left])
        since = np.where(at == self.times[left + 1], spacing, at - self.times[left])
        return brownian_bridge(start, end, since, spacing, self.diffusivity, rng)

    def _interval(self, at: np.ndarray) -> np.ndarray:
        """Return the knot before each time; before the last knot, the one before it."""
        last = max(len(self.times) - 2, 0)
        interval: np.ndarray = np.clip(np.searchsorted(self.times, at, side="right") - 1, 0, last)
        return interval

    def _checked(self, times: np.ndarray) -> np.ndarray:
        at = np.asarray(times, dtype=np.float64)
        first, last = float(self.times[0]), float(self.times[-1])
        if at.ndim != 1 or not np.all((at >= first - _SLACK) & (at <= last + _SLACK)):
            raise ValueError(
                f"times must be a vector of times between the end knots, {first!r} and {last!r}: "
                "nothing is known before and after."
            )
        return np.clip(at, first, last)


def _evenly_drawn(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n of m particles, each n // m times or once more, in random order."""
    if n < 1:
        raise ValueError(f"n={n!r} must be at least 1.")
    every = np.repeat(np.arange(m), n // m)
    drawn: np.ndarray = rng.permutation(np.concatenate([every, rng.permutation(m)[: n % m]]))
    return drawn
