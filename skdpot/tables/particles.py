r"""Rows with weights ("particles") that agree with the noisy marginals.

*Weights.* Among all weights W of given particles the solver finds those that minimise

.. math:: \kappa \, KL(W | W_0) + \sum_T \frac{\|m_T(W) - y_T\|^2}{2 \sigma_T^2},

where :math:`m_T(W)` is the weight of the particles in each cell of marginal T and :math:`y_T` its
noisy counts, with noise :math:`\sigma_T` of at least 5 rows. This is a Schrödinger problem with
one marginal per release, held as tightly as its noise allows. The total weight stays that of
:math:`W_0`. The optimum has the form :math:`\log (W / W_0) = \sum_T \theta_T[cell]` up to a
constant, and Sinkhorn's iteration solves for one :math:`\theta_T` at a time. For marginals that
must be met exactly this is iterative proportional fitting; with noise it is the scaling algorithm
for unbalanced transport (Chizat, Peyré, Schmitzer and Vialard, "Scaling algorithms for unbalanced
optimal transport problems", 2018) with a quadratic penalty.

*Moves.* Many potentials put most of the weight on a few particles. Before that happens particles
are resampled and moved: each column is drawn anew given all others (Gibbs). This leaves the fitted
distribution as it is, and weights are equal again. It is a sequential Monte Carlo sampler (Del
Moral, Doucet and Jasra, "Sequential Monte Carlo samplers", 2006) that adds one potential at a time.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.tables.contingency import Marginal, NoisyMarginal

SMOOTHING = 0.05  # kappa
_LEAST_NOISE = 5.0  # rows; more exact counts are not fitted more tightly
_NEWTON_STEPS = 12  # of at most 1 in a potential: more than the largest step needs
_LARGEST_STEP = 6.0  # of a potential per sweep
_EMPTY = 1e-9  # rows; a cell with less has no particles

_MOST_MERGED = 2**12  # combinations of bins up to which factors of the same columns are merged
_AT_ONCE = 2**13  # particles whose look-ups stay in the cache
_DEGENERATE = 0.2  # effective share of particles below which they are resampled


def scaling_step(
    counts: FloatArray, expected: FloatArray, potentials: FloatArray, sigma: float, smoothing: float
) -> FloatArray:
    """Solve for the potentials of one marginal while all others are fixed."""
    stiffness = smoothing * max(sigma, _LEAST_NOISE) ** 2
    reached = expected > _EMPTY  # without particles a potential is undetermined
    step = np.zeros_like(expected)
    # The equation is monotone and convex in the step; steps of at most 1 keep exp in range.
    for _ in range(_NEWTON_STEPS):
        weights = expected * np.exp(step)
        residual = stiffness * (potentials + step) - counts + weights
        step -= (residual / (stiffness + weights)).clip(-1.0, 1.0)
    return np.where(reached, np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), 0.0)


Factor: TypeAlias = tuple[Marginal, FloatArray]


@dataclass(frozen=True, eq=False)
class Moves:
    """Gibbs moves of particles that follow a product of factors.

    Factors are logarithms per cell of a marginal. Each entry of `impossible` marks bins of some
    columns that do not occur together.
    """

    factors: tuple[Factor, ...]
    impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]]
    n_particles: int
    rng: np.random.Generator

    def apply(self, codes: IntArray) -> None:
        """Draw each column once, given all others, in place."""
        rng = self.rng
        conditionals = self._conditionals()
        columns = rng.permutation(list(conditionals)).tolist()
        for start in range(0, len(codes), _AT_ONCE):
            part = np.array(codes[start : start + _AT_ONCE], order="F")
            for column in columns:
                logs = np.zeros((1, len(part)), dtype=np.float32)
                for others, table in conditionals[column]:
                    logs = logs + table.take(np.atleast_1d(others.cells(part)), axis=1)
                edges = np.exp(logs - logs.max(axis=0))
                for below, edge in itertools.pairwise(edges):  # faster than a cumulative sum
                    edge += below
                level = rng.random(len(part), dtype=np.float32) * edges[-1]
                before = part[:, column].copy()
                part[:, column] = (edges[:-1] <= level).sum(axis=0)
                for marks in self.impossible:
                    if column in marks:  # refuse moves to forbidden rows
                        bad = np.all([mark[part[:, c]] for c, mark in marks.items()], axis=0)
                        part[bad, column] = before[bad]
            codes[start : start + _AT_ONCE] = part

    def _conditionals(self) -> dict[int, list[tuple[Marginal, npt.NDArray[np.float32]]]]:
        """Return per column the marginals it depends on, and its log weights in their cells."""
        merged: dict[tuple[int, ...], Factor] = {}
        kept = []
        for marginal, logs in self.factors:
            whole = marginal.ungrouped
            if whole.n_cells > _MOST_MERGED:
                kept.append((marginal, logs))
                continue
            _, known = merged.get(whole.columns, (whole, 0.0))
            merged[whole.columns] = whole, known + logs.ravel()[marginal.table].ravel()
        conditionals: dict[int, list[tuple[Marginal, npt.NDArray[np.float32]]]] = {}
        for marginal, logs in (*merged.values(), *kept):
            for axis, column in enumerate(marginal.columns):
                others = marginal.columns[:axis] + marginal.columns[axis + 1 :]
                groups = marginal.groups[:axis] + marginal.groups[axis + 1 :]
                cases = np.moveaxis(logs.reshape(marginal.shape), axis, 0)[marginal.groups[axis]]
                table = cases.reshape(len(cases), -1).astype(np.float32)
                conditionals.setdefault(column, []).append((Marginal(others, groups), table))
        return conditionals


class ScaledParticles:
    """Particles whose weights are scaled until their marginals fit."""

    def __init__(self, codes: IntArray, weights: FloatArray, moves: Moves | None = None) -> None:
        self.codes = codes
        self.weights = weights.copy()
        self.potentials: list[FloatArray] = []
        self._total = float(weights.sum())
        self._marginals: list[NoisyMarginal] = []
        self._cells: list[IntArray] = []
        self._moves = moves

    def add(self, noisy: NoisyMarginal, potentials: FloatArray | None = None) -> None:
        """Add a marginal, with initial potentials if known."""
        self._marginals.append(noisy)
        self._cells.append(self._cells_in(noisy.marginal))
        self.potentials.append(np.zeros(noisy.marginal.n_cells))
        if potentials is not None:
            self._move(len(self._cells) - 1, self._expected(len(self._cells) - 1), potentials)

    def sweep(self) -> float:
        """Update the potentials of every marginal once; return the largest moved share."""
        moved = 0.0
        for place, noisy in enumerate(self._marginals):
            expected, known = self._expected(place), self.potentials[place]
            step = scaling_step(noisy.counts, expected, known, noisy.sigma, SMOOTHING)
            self._move(place, expected, step)
            moved = max(moved, float(np.abs(expected * np.expm1(step)).sum()) / self._total)
        return moved

    def run(self, n_sweeps: int, tolerance: float = 1e-4) -> None:
        """Sweep until the moved share of the weight is below the tolerance."""
        for _ in range(n_sweeps):
            if self.sweep() < tolerance:
                return

    def _expected(self, place: int) -> FloatArray:
        """Return the weight of the particles in each cell of a marginal."""
        n_cells = self._marginals[place].marginal.n_cells
        return np.bincount(self._cells[place], self.weights, n_cells).astype(np.float64)

    def _move(self, place: int, expected: FloatArray, step: FloatArray) -> None:
        """Add to the potentials of a marginal; the total weight is unchanged."""
        self.potentials[place] = self.potentials[place] + step
        # A cell without particles may have a huge potential, which moves no weight.
        factors = np.where(expected > 0.0, np.exp(step), 0.0)
        factors *= self._total / (expected * factors).sum()
        self.weights *= factors.take(self._cells[place])
        effective = self.weights.sum() ** 2 / (len(self.weights) * (self.weights**2).sum())
        if self._moves is not None and effective < _DEGENERATE:
            self._renew(self._moves)

    def _cells_in(self, marginal: Marginal) -> IntArray:
        """Return the cell of each particle."""
        cells = marginal.cells(self.codes)  # memory is dominated by these
        return cells.astype(np.uint16) if marginal.n_cells <= 2**16 else cells

    def _renew(self, moves: Moves) -> None:
        """Resample particles by their weights, and move them."""
        self.codes = self.codes[resampled(self.weights, moves.n_particles, moves.rng)]
        known = zip((noisy.marginal for noisy in self._marginals), self.potentials, strict=True)
        replace(moves, factors=(*moves.factors, *known)).apply(self.codes)
        self.weights = np.full(moves.n_particles, self._total / moves.n_particles)
        self._cells = [self._cells_in(noisy.marginal) for noisy in self._marginals]


def resampled(weights: FloatArray, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw places of particles by systematic resampling."""
    edges = np.cumsum(weights)
    even = (np.arange(n_rows) + rng.random()) / n_rows * edges[-1]
    return np.minimum(np.searchsorted(edges, even, side="right"), len(edges) - 1)
