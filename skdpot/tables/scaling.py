r"""Weights of particles that agree with noisy marginals: unbalanced Sinkhorn scaling.

Among all weights W of given particles the solver finds those that minimise

.. math:: \kappa \, KL(W | W_0) + \sum_T \frac{\|m_T(W) - y_T\|^2}{2 \sigma_T^2},

where :math:`m_T(W)` is what the particles weigh in the cells of marginal T and :math:`y_T` its
noisy counts, with noise :math:`\sigma_T` of at least 5 rows: a Schrödinger problem with as many
marginals as were released, held as tightly as their noise allows. The total weight stays that of
:math:`W_0`. The optimum has the form :math:`\log (W / W_0) = \sum_T \theta_T[cell]` up to a
constant, and Sinkhorn's iteration solves for one :math:`\theta_T` at a time. For marginals that
must be met exactly that is iterative proportional fitting; with noise it is the scaling algorithm
for unbalanced transport (Chizat, Peyré, Schmitzer and Vialard, "Scaling algorithms for unbalanced
optimal transport problems", 2018) with a quadratic penalty.
"""

import numpy as np

from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal

__all__ = ["SMOOTHING", "ScaledParticles", "scaling_step"]

SMOOTHING = 0.05  # kappa
_LEAST_NOISE = 5.0  # rows; what is known better is not held more tightly
_NEWTON_STEPS = 12
_LARGEST_STEP = 6.0
_EMPTY = 1e-9  # rows


def scaling_step(
    counts: FloatArray, expected: FloatArray, potentials: FloatArray, sigma: float
) -> FloatArray:
    """Solve for the potentials of one marginal while all others stay.

    Parameters
    ----------
    counts : ndarray
        Noisy counts.
    expected : ndarray of the same shape
        Present weight of each cell.
    potentials : ndarray of the same shape
        Present potentials.
    sigma : float
        Standard deviation of the noise.

    Returns
    -------
    ndarray of the same shape
        What to add to the potentials: the root of ``kappa sigma^2 (potential + step) = counts -
        expected exp(step)``, at most 6 in absolute value; 0 for cells that hold nothing.
    """
    stiffness = SMOOTHING * max(sigma, _LEAST_NOISE) ** 2
    reached = expected > _EMPTY  # a cell without particles tells nothing of its potential
    step = np.zeros_like(expected)
    # The equation is monotone and convex in the step; steps of at most 1 keep exp in range.
    for _ in range(_NEWTON_STEPS):
        weights = expected * np.exp(step)
        residual = stiffness * (potentials + step) - counts + weights
        step -= np.clip(residual / (stiffness + weights), -1.0, 1.0)
    return np.where(reached, np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), 0.0)


class ScaledParticles:
    """Particles whose weights are scaled until their marginals fit.

    Parameters
    ----------
    codes : ndarray of int, shape (n_particles, n_columns)
        Particles.
    weights : ndarray of shape (n_particles,)
        Initial weights; their sum is the number of rows that counts refer to.
    """

    def __init__(self, codes: IntArray, weights: FloatArray) -> None:
        self.codes = codes
        self.weights = weights.copy()
        self.potentials: list[FloatArray] = []
        self._total = float(weights.sum())
        self._marginals: list[NoisyMarginal] = []
        self._cells: list[IntArray] = []

    def add(self, noisy: NoisyMarginal, potentials: FloatArray | None = None) -> None:
        """Take a marginal into account, starting from known potentials if there are any."""
        cells = noisy.marginal.cells(self.codes)
        if noisy.marginal.n_cells <= 2**16:  # a cell a particle and marginal is what fills memory
            cells = cells.astype(np.uint16)
        self._marginals.append(noisy)
        self._cells.append(cells)
        self.potentials.append(np.zeros(noisy.marginal.n_cells))
        if potentials is not None:
            self._move(len(self._cells) - 1, self._expected(len(self._cells) - 1), potentials)

    def sweep(self) -> float:
        """Go through all marginals once.

        Returns
        -------
        float
            Share of the total weight that the last steps moved, of the largest mover.
        """
        moved = 0.0
        for place, noisy in enumerate(self._marginals):
            expected = self._expected(place)
            step = scaling_step(noisy.counts, expected, self.potentials[place], noisy.sigma)
            self._move(place, expected, step)
            moved = max(moved, float(np.abs(expected * np.expm1(step)).sum()) / self._total)
        return moved

    def run(self, n_sweeps: int, tolerance: float = 1e-4) -> None:
        """Sweep until little moves."""
        for _ in range(n_sweeps):
            if self.sweep() < tolerance:
                return

    def _expected(self, place: int) -> FloatArray:
        """Return what the particles weigh in the cells of a marginal."""
        n_cells = self._marginals[place].marginal.n_cells
        return np.bincount(self._cells[place], self.weights, n_cells).astype(np.float64)

    def _move(self, place: int, expected: FloatArray, step: FloatArray) -> None:
        """Add to the potentials of a marginal; the total weight stays."""
        self.potentials[place] = self.potentials[place] + step
        factors = np.exp(step)
        factors *= self._total / (expected * factors).sum()
        self.weights *= factors[self._cells[place]]
