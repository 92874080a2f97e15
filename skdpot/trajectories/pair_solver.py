"""The search for the Schrödinger potentials of one pair of clouds."""

from typing import NamedTuple

import numpy as np

from skdpot.trajectories.anderson import AndersonMixing
from skdpot.trajectories.gaussian_potentials import gaussian_potentials
from skdpot.trajectories.scaled_kernel import HalfSteps, ScaledKernel, kernel_type

__all__ = ["PairSolution", "PairSolver"]

_MEMORY = 6  # iterations that are combined
_PLAIN = 2  # iterations before any are combined, at the start and after a failure
_WORSE = 5.0  # times the smallest error so far: a combination that led there has failed
_FIRST_REACH, _LEAST_REACH, _LARGEST_REACH = 4.0, 0.5, 1e4  # of a combination, in units of ε

_COARSER = 4.0  # ratio of neighbouring regularisations when a search begins from nothing
_COARSEST = 0.04  # as a share of the summed variances: the Gaussian start is near enough
_COARSE_TOLERANCE, _COARSE_ITERATIONS = 0.1, 30


class PairSolution(NamedTuple):
    """Potentials of one pair in units of ε, and the mean partner of each point."""

    source: np.ndarray
    target: np.ndarray
    source_barycentres: np.ndarray
    target_barycentres: np.ndarray
    n_iter: int
    error: float


class PairSolver:
    """Solves one pair after the other in the same memory.

    Parameters
    ----------
    m, k : int
        Numbers of points of the first and of the second clouds.
    tol : float
        Marginal error at which a pair is solved.
    max_iter : int
        Most iterations of a pair.
    """

    def __init__(self, m: int, k: int, tol: float, max_iter: int) -> None:
        self._tol, self._max_iter = tol, max_iter
        self._memory = np.empty((m, k), kernel_type(tol))

    def from_nothing(
        self, first: np.ndarray, second: np.ndarray, regularization: float
    ) -> PairSolution:
        """Solve a pair along decreasing regularisations."""
        spread = float(first.var(axis=0).sum() + second.var(axis=0).sum())
        coarser = [regularization]
        while coarser[-1] < _COARSEST * spread:
            coarser.append(_COARSER * coarser[-1])
        potentials = gaussian_potentials(first, second, coarser[-1])
        tol, max_iter = max(self._tol, _COARSE_TOLERANCE), min(self._max_iter, _COARSE_ITERATIONS)
        for epsilon in coarser[:0:-1]:
            _, source, half, _ = self._search(first, second, epsilon, potentials, tol, max_iter)
            potentials = epsilon * source, epsilon * half.target
        return self.from_potentials(first, second, regularization, potentials)

    def from_potentials(
        self,
        first: np.ndarray,
        second: np.ndarray,
        regularization: float,
        potentials: tuple[np.ndarray, np.ndarray],
    ) -> PairSolution:
        """Solve a pair from a guess."""
        kernel, source, half, n_iter = self._search(
            first, second, regularization, potentials, self._tol, self._max_iter
        )
        return PairSolution(
            source,
            half.target,
            kernel.source_barycentres(half.target),
            kernel.target_barycentres(source),
            n_iter,
            half.error,
        )

    def _search(
        self,
        first: np.ndarray,
        second: np.ndarray,
        regularization: float,
        potentials: tuple[np.ndarray, np.ndarray],
        tol: float,
        max_iter: int,
    ) -> tuple[ScaledKernel, np.ndarray, HalfSteps, int]:
        source, target = potentials[0] / regularization, potentials[1] / regularization
        kernel = ScaledKernel(
            first, second, regularization, source, target, self._tol, self._memory
        )
        search = _Search(len(source))
        for n_iter in range(1, max_iter + 1):
            half = kernel.half_steps(source)
            if half.error <= tol:
                break
            if n_iter < max_iter:
                source = search.next_source(source, half)
        if not np.isfinite(half.error):
            half = kernel.half_steps_in_logarithms(source)
        return kernel, source, half, n_iter


class _Search:
    """Where to iterate from next: Sinkhorn's own next point, or a combination of the last.

    A combination may go no further beyond Sinkhorn's point than a reach that grows with every
    success. When one fails the search goes back to the best point and starts afresh.
    """

    def __init__(self, size: int) -> None:
        self._mixing = AndersonMixing(size, _MEMORY)
        self._best_error, self._after_best = np.inf, np.zeros(size)
        self._reach = _FIRST_REACH
        self._n_plain = _PLAIN
        self._combined = False

    def next_source(self, source: np.ndarray, half: HalfSteps) -> np.ndarray:
        """Return the next potentials a, given what an iteration from the last ones gave."""
        if not np.isfinite(half.error):
            return self._plain(half.source)
        if self._combined and half.error > _WORSE * self._best_error:
            self._reach = max(self._reach / 4, _LEAST_REACH)
            return self._plain(self._after_best)
        if half.error <= self._best_error:
            if self._combined:
                self._reach = min(2 * self._reach, _LARGEST_REACH)
            self._best_error, self._after_best = half.error, half.source
        self._mixing.record(source, half.source)
        self._combined = self._n_plain <= 0 and half.error <= 1
        self._n_plain -= 1
        return self._combination(half.source) if self._combined else half.source

    def _plain(self, following: np.ndarray) -> np.ndarray:
        self._mixing.clear()
        self._n_plain, self._combined = _PLAIN, False
        return following

    def _combination(self, plain: np.ndarray) -> np.ndarray:
        beyond = self._mixing.next_point() - plain
        farthest = float(np.abs(beyond).max())
        if not np.isfinite(farthest):
            return plain
        combined: np.ndarray = plain + self._reach / max(farthest, self._reach) * beyond
        return combined
