"""Which values of a column are round.

People write round numbers, and times at full hours or days. Counts of values by order of magnitude
and by the coarsest step (1, 5, 10, 50, ...) that divides them show how round the values of a table
are. Synthetic values are drawn equally round.
"""

import math
from dataclasses import dataclass

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray

_OFF_LATTICE = 1e-2  # share of a step; numbers within are on the lattice
_SEEN_STEP = 3.0  # standard deviations of noise at which multiples of a step are seen
_POWERS = 10.0 ** np.arange(1, 16)  # limits of orders of magnitude


@dataclass(frozen=True, eq=False)
class Rounding:
    """A chain of steps on a lattice of integers, each dividing the next; multiples are round."""

    steps: tuple[int, ...]
    phases: tuple[int, ...]  # first multiple of each step
    origin: float | None = None  # orders of magnitude count from -origin; None: a single order

    @property
    def n_codes(self) -> int:
        """Number of orders of magnitude times steps, and one for zero and single values."""
        return 1 + self._n_orders * len(self.steps)

    @property
    def _n_orders(self) -> int:
        return 1 if self.origin is None else len(_POWERS) + 1

    @property
    def unknown(self) -> FloatArray:
        """Shares of rows rounded to each step, without any counts; shape (n_orders, n_steps)."""
        return np.eye(1, len(self.steps)).repeat(self._n_orders, axis=0)

    def _order(self, numbers: FloatArray) -> IntArray:
        """Return the order of magnitude."""
        if self.origin is None:
            return np.zeros(numbers.shape, dtype=np.int64)
        return np.searchsorted(_POWERS, np.abs(numbers + self.origin), side="right")

    def codes(self, numbers: FloatArray) -> IntArray:
        """Return the code of order and coarsest step per number; 0 for zero and NaN."""
        whole = np.rint(numbers)
        round_ones = np.flatnonzero(np.abs(numbers - whole) < _OFF_LATTICE)
        levels = np.zeros(len(numbers), dtype=np.int64)
        for level, (step, phase) in enumerate(zip(self.steps, self.phases, strict=True)):
            if level:  # below 2^53 a quotient is whole only if the step divides the number
                quotients = (whole[round_ones] - phase) / step
                round_ones = round_ones[quotients == np.rint(quotients)]
                levels[round_ones] = level
        codes = 1 + self._order(whole) * len(self.steps) + levels
        return np.where(np.isnan(numbers) | (whole + (self.origin or 0.0) == 0.0), 0, codes)

    def shares(self, counts: FloatArray, sigma: float) -> FloatArray:
        """Estimate the share of rows of each order rounded to each step, from noisy counts."""
        table = counts[1:].reshape(self._n_orders, len(self.steps))
        every = self._unmixed(table.sum(axis=0), sigma * math.sqrt(len(table)))
        if not every.any():
            every[0] = 1.0
        rows = [self._unmixed(row, sigma) for row in table]
        rows = [row if row.any() else every for row in rows]
        return np.stack([row / row.sum() for row in rows])

    def _unmixed(self, counts: FloatArray, sigma: float) -> FloatArray:
        """Subtract the multiples of coarser steps that finer steps, above the noise, explain."""
        sizes = np.array([*self.steps, math.inf])
        left, rounded = counts.copy(), np.zeros(len(counts))
        for level, step in enumerate(self.steps):
            multiples = step / sizes[level:-1] - step / sizes[level + 1 :] if step else np.ones(1)
            if left[level] > _SEEN_STEP * sigma:
                rounded[level] = left[level] / multiples[0]
                left[level : level + len(multiples)] -= rounded[level] * multiples
        return rounded

    def multiples(
        self, lowest: FloatArray, highest: FloatArray, shares: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the first multiple, the number and the weight of multiples of each step in cells.

        Cells lie between `lowest` and `highest`; `shares` are those of `unknown` or `shares`. All
        results have shape (n_cells, n_steps).
        """
        sizes = np.maximum(np.array(self.steps, dtype=np.float64), 1.0)
        phases = np.array(self.phases, dtype=np.float64)
        # Rounding may move an end of floats, or leave a cell with a single value.
        last = np.maximum(highest, lowest + 2 * _OFF_LATTICE)
        ends = [np.ceil((np.round(end, 2)[:, None] - phases) / sizes) for end in (lowest, last)]
        numbers = ends[1] - ends[0]
        if self.steps[0] == 0:
            numbers[:, 0] = highest - lowest
        weights = shares[self._order((lowest + highest) / 2)] * sizes * np.maximum(numbers, 0.0)
        finest = np.maximum(numbers[:, 0], _OFF_LATTICE**2)
        weights[:, 0] = np.where(weights.any(axis=1), weights[:, 0], finest)
        return ends[0] * sizes + phases, numbers, weights
