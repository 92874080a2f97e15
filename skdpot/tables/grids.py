"""Cells of one column: its categories, its possible values, or intervals of its scale."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray

# Slots of the fast search, by the bits of a double: octaves below 1, slots per octave (powers of
# 2), and the number of places from which on a table of slots pays.
_FINEST, _PER_OCTAVE, _MANY = 30, 10, 2**14
_FEW_CELLS = 32  # one per value, up to which blocks of them tell little more


@dataclass(frozen=True, eq=False)
class ColumnGrid:
    """Cells of one column: its categories, its possible values, or intervals of its scale.

    Intervals lie between `edges`: places in [0, 1], or half a value beyond. `rounded` holds the
    released shares of values that are multiples of the steps of ``column.rounding``.
    """

    column: Any
    n_cells: int
    ordered: bool
    edges: FloatArray | None = None
    rounded: FloatArray | None = None

    @property
    def size(self) -> int:
        """Number of codes, including the one of missing values."""
        return self.n_cells + int(self.column.missing)

    @property
    def on_scale(self) -> bool:
        """Whether cells lie on a scale."""
        return self.edges is not None

    @property
    def has_intervals(self) -> bool:
        """Whether a cell may hold several values."""
        n_values = 1 if self.column.lower == self.column.upper else self.column.n_values
        return n_values != self.n_cells

    @property
    def is_final(self) -> bool:
        """Whether every value has a cell of its own, so that no cell can be split."""
        return not self.on_scale or not self.has_intervals

    @property
    def is_long(self) -> bool:
        """Whether each of many values has a cell, so that blocks of cells are counted as well."""
        return self.on_scale and self.is_final and self.n_cells > _FEW_CELLS

    @property
    def blocks(self) -> IntArray:
        """Block of each cell of a long column, as many blocks as cells in each."""
        length = math.ceil(math.sqrt(self.n_cells))
        blocks = np.arange(self.n_cells) // length
        return np.append(blocks, blocks[-1] + 1) if self.column.missing else blocks

    @property
    def is_doubtful(self) -> BoolArray:
        """Whether each cell may be empty: the one of missing values, and of other categories."""
        doubtful = np.zeros(self.size, dtype=np.bool_)
        doubtful[self.n_cells :] = True
        if not self.on_scale and self.column.likely_empty is not None:
            doubtful[self.column.likely_empty] = True
        return doubtful

    @property
    def alone(self) -> BoolArray:
        """Whether each interval is a single value that many rows may share."""
        starts = self.column.ends(self.column._alone())[0]
        return np.isin(np.asarray(self.edges)[:-1], starts)

    @property
    def sides(self) -> tuple[int, int]:
        """Number of cells below zero, and of those that hold no positive value; else 0 and all."""
        if self.edges is None or not self.column.is_numbered or self.column.lower >= 0:
            return 0, self.n_cells
        if self.column.upper <= 0:
            return 0, self.n_cells
        zero = self.column.to_unit(np.zeros(1))
        starts = np.searchsorted(self.edges, np.concatenate(self.column.ends(zero)))
        return int(starts[0]), int(starts[1])

    @property
    def weights(self) -> FloatArray:
        """Relative share of rows per cell under a uniform distribution of round values."""
        if self.edges is None or not self.has_intervals:
            return np.ones(self.size)
        weights = self._multiples(self.edges)[2].sum(axis=1)
        weights[self.alone] = weights.min()
        weights /= weights.max()
        return np.append(weights, 1.0) if self.column.missing else weights

    @property
    def widths(self) -> FloatArray:
        """Lengths of the intervals, of which none is too small to divide by."""
        return np.maximum(np.diff(self.column.steps_at(np.asarray(self.edges))), 1e-250)

    @property
    def finest(self) -> IntArray:
        """Finest step in use in each cell."""
        weights = self._multiples(np.asarray(self.edges))[2]
        return np.array(self.column.rounding.steps)[np.argmax(weights > 0.0, axis=1)]

    def codes(self, values: Any) -> IntArray:
        """Return the cell of each value, int32 of shape (n_rows,)."""
        if self.edges is None:
            codes: IntArray = self.column.to_codes(values)
            return np.where(codes < 0, self.n_cells, codes).astype(np.int32)
        if self.is_final:  # a cell for each value
            column = self.column.read(values)
            steps = self.column._distances(column).astype(np.int32)
            return np.where(column.missing, self.n_cells, steps) if self.column.missing else steps
        return self.cells(self.column.to_unit(values))

    def roundness(self, unit: FloatArray) -> IntArray:
        """Return the roundness codes of values at places; 0 for a value alone in its cell."""
        alone = np.isin(unit, self.column._alone())
        return np.where(alone, 0, self.column.rounding.codes(self.column.lattice(unit)))

    def rounding_of(self, counts: FloatArray, sigma: float) -> "ColumnGrid":
        """Return the grid with the roundness that noisy counts show."""
        return replace(self, rounded=self.column.rounding.shares(counts, sigma))

    def cells(self, unit: FloatArray) -> IntArray:
        """Return the cell of each place on a scale, int32 of shape (n_rows,)."""
        cells = _cuts_below(np.asarray(self.edges)[1:-1], unit)
        return np.where(np.isnan(unit), self.n_cells, cells).astype(np.int32)

    def tilts(self, shares: FloatArray) -> FloatArray | None:
        """Return how the density of each cell changes from its middle to its ends, from shares.

        It is between -1 and 1, and not zero where densities rise or fall on both sides.
        """
        if self.edges is None or not self.has_intervals:
            return None
        density = shares[: self.n_cells] / self.widths
        density[self.alone] = np.nan
        inner = np.sqrt(density[:-1]) * np.sqrt(density[1:])  # between two cells
        low, high = np.full((2, self.n_cells), np.nan)
        low[1:], high[:-1] = inner, inner
        monotone = (low - density) * (density - high) > 0.0
        return np.where(monotone, (high - low) / np.maximum(high + low, 1e-300), 0.0)

    def values(
        self,
        codes: IntArray,
        rng: np.random.Generator,
        within: tuple[float, float] | None = None,
        tilts: FloatArray | None = None,
    ) -> pd.Series:
        """Draw one value per code; on a scale equally round as others, and in the part `within`.

        The density of a cell is linear, with `tilts`, or even.
        """
        column = self.column
        if self.edges is None:
            return column.from_codes(np.where(codes == self.n_cells, -1, codes))
        edges = self.edges if within is None else np.clip(self.edges, *within)
        missing = codes == self.n_cells
        cells = np.where(missing, 0, codes)
        first, numbers, weights = self._multiples(edges)
        below = np.cumsum(weights, axis=1)
        below = np.arange(self.n_cells)[:, None] + below / below[:, -1:]
        levels = np.searchsorted(below.ravel(), cells + rng.random(len(codes)), side="right")
        levels = np.minimum(levels - cells * below.shape[1], below.shape[1] - 1)
        shares, places = rng.random(len(codes)), column.steps_at(edges)
        if tilts is not None:
            shares = _tilted(shares, tilts[cells])
        unit = column._places(places[cells] + (places[cells + 1] - places[cells]) * shares)
        unit = np.clip(unit, edges[cells], np.nextafter(edges[cells + 1], -1.0))
        steps = np.array(column.rounding.steps, dtype=np.float64)[levels]
        whole = first[cells, levels] + steps * np.floor(shares * numbers[cells, levels])
        return column.from_lattice(np.where(missing, np.nan, unit), whole, steps > 0.0)

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value of each cell of a scale."""
        column, edges = self.column, np.asarray(self.edges)
        if column.n_values is None:
            edges = edges - column.ends(np.zeros(1))[0]  # edges of short floats lie beside values
            low, high = edges[:-1].copy(), np.where(self.alone, edges[:-1], edges[1:])
            low[1:] = np.where(self.alone[:-1], low[:-1], low[1:])  # starts at the single value
        else:  # edges lie half a step beside values
            steps = np.rint(column.steps_at(edges) + 0.5)
            low, high = column._places(steps[:-1]), column._places(steps[1:] - 1.0)
        if column.is_numbered:
            column = column.replace(dtype=None, missing=False)  # with all digits
        return column.from_unit(low).array, column.from_unit(high).array

    def kept(self, start: float, stop: float) -> FloatArray:
        """Return the share of the values of each cell that lies between two places."""
        edges = np.asarray(self.edges)
        inside = self._multiples(edges.clip(start, stop))[2].sum(axis=1)
        return inside / np.maximum(self._multiples(edges)[2].sum(axis=1), inside)

    @property
    def middles(self) -> pd.Series:
        """Mean value of each cell, under the roundness of the column."""
        edges, steps = np.asarray(self.edges), np.array(self.column.rounding.steps)
        first, numbers, weights = self._multiples(edges)
        ends, places = ((part[:-1] + part[1:]) / 2 for part in (self.column.lattice(edges), edges))
        means = np.where(steps > 0, first + steps * (numbers - 1) / 2, ends[:, None])
        middle = (means * weights).sum(axis=1) / weights.sum(axis=1)
        return self.column.from_lattice(places, middle, np.ones(len(middle), dtype=np.bool_))

    def _multiples(self, edges: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return `Rounding.multiples` of cells between edges."""
        rounding, numbers = self.column.rounding, self.column.lattice(edges)
        rounded = rounding.unknown if self.rounded is None else self.rounded
        return rounding.multiples(numbers[:-1], numbers[1:], rounded)


def _tilted(shares: FloatArray, tilts: FloatArray) -> FloatArray:
    """Return where densities ``1 + tilt * (2 * x - 1)`` on [0, 1] have these shares below."""
    # The root of (1 - tilt) x + tilt x^2 = share, in a form that is stable for small tilts.
    start = 1.0 - tilts
    return 2.0 * shares / (start + np.sqrt(start**2 + 4.0 * tilts * shares) + 1e-300)


def _cuts_below(cuts: FloatArray, places: FloatArray) -> IntArray:
    """Return the number of cuts up to each place, like `numpy.searchsorted` but faster."""
    if len(places) < _MANY:
        return np.searchsorted(cuts, places, side="right")
    n_slots = (_FINEST << _PER_OCTAVE) + 2

    def slots(numbers: FloatArray) -> IntArray:
        bits = np.ascontiguousarray(numbers).view(np.int64) >> (52 - _PER_OCTAVE)
        bits -= (1023 - _FINEST) << _PER_OCTAVE
        return np.clip(bits, 0, n_slots - 1, out=bits)

    before = np.searchsorted(slots(cuts), np.arange(n_slots + 1))
    slot = slots(places)
    cells = before[slot]
    cells += np.append(cuts, np.inf)[cells] <= places
    several = np.flatnonzero((np.diff(before) > 1)[slot])
    cells[several] = np.searchsorted(cuts, places[several], side="right")
    return cells
