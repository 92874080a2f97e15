"""Cells of a column, how round its values are, and which cells satisfy a condition.

*Rounding.* People write numbers that are round, and times at full hours or days. On which multiples
of 1, 5, 10, 50 ... the values of a table lie is seen in few counts, those of values by order of
magnitude and by the coarsest step of a chain that they are multiples of; values are then drawn as
round as these.

*Conditions* are shares of the cells that satisfy them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray, IntArray

_OFF_LATTICE = 1e-2  # of a step
_SEEN_STEP = 3.0  # standard deviations of noise
_POWERS = 10.0 ** np.arange(1, 16)


@dataclass(frozen=True, eq=False)
class Rounding:
    """Which values are round, on a lattice of whole numbers: multiples of each step in a chain."""

    steps: tuple[int, ...]
    phases: tuple[int, ...]  # the first number that is a multiple of each step
    origin: float | None = None  # of orders of magnitude

    @property
    def n_codes(self) -> int:
        """Number of combinations of an order of magnitude and a step, and one for what is alone."""
        return 1 + self._n_orders * len(self.steps)

    @property
    def _n_orders(self) -> int:
        return 1 if self.origin is None else len(_POWERS) + 1

    @property
    def unknown(self) -> FloatArray:
        """The shares of rows that were rounded to each step when nothing is known of them."""
        return np.eye(1, len(self.steps)).repeat(self._n_orders, axis=0)

    def _order(self, numbers: FloatArray) -> IntArray:
        """Return the order of magnitude."""
        if self.origin is None:
            return np.zeros(numbers.shape, dtype=np.int64)
        return np.searchsorted(_POWERS, np.abs(numbers + self.origin), side="right")

    def codes(self, numbers: FloatArray) -> IntArray:
        """Return how round numbers are; 0 for zero, and for NaN."""
        whole = np.rint(numbers)
        round_ones = np.flatnonzero(np.abs(numbers - whole) < _OFF_LATTICE)
        levels = np.zeros(len(numbers), dtype=np.int64)
        for level, (step, phase) in enumerate(zip(self.steps, self.phases, strict=True)):
            if level:  # quotients of numbers below 2^53 are whole only if nothing is left
                quotients = (whole[round_ones] - phase) / step
                round_ones = round_ones[quotients == np.rint(quotients)]
                levels[round_ones] = level
        codes = 1 + self._order(whole) * len(self.steps) + levels
        return np.where(np.isnan(numbers) | (whole + (self.origin or 0.0) == 0.0), 0, codes)

    def shares(self, counts: FloatArray, sigma: float) -> FloatArray:
        """Estimate how many rows of each order were rounded to each step, by noisy counts."""
        table = counts[1:].reshape(self._n_orders, len(self.steps))
        every = self._unmixed(table.sum(axis=0), sigma * math.sqrt(len(table)))
        if not every.any():
            every[0] = 1.0
        found = [self._unmixed(row, sigma) for row in table]
        found = [row if row.any() else every for row in found]
        return np.stack([row / row.sum() for row in found])

    def _unmixed(self, counts: FloatArray, sigma: float) -> FloatArray:
        """Take off what finer steps, seen above the noise, have of multiples of coarser ones."""
        sizes = np.array([*self.steps, math.inf])
        left, found = counts.copy(), np.zeros(len(counts))
        for level, step in enumerate(self.steps):
            multiples = step / sizes[level:-1] - step / sizes[level + 1 :] if step else np.ones(1)
            if left[level] > _SEEN_STEP * sigma:
                found[level] = left[level] / multiples[0]
                left[level : level + len(multiples)] -= found[level] * multiples
        return found

    def multiples(
        self, lowest: FloatArray, highest: FloatArray, shares: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the first multiple of each step between two numbers, counts and weights."""
        sizes = np.maximum(np.array(self.steps, dtype=np.float64), 1.0)
        phases = np.array(self.phases, dtype=np.float64)
        # An end of floats may be moved by rounding, or have nothing but itself up to the other.
        last = np.maximum(highest, lowest + 2 * _OFF_LATTICE)
        ends = [np.ceil((np.round(end, 2)[:, None] - phases) / sizes) for end in (lowest, last)]
        numbers = ends[1] - ends[0]
        if self.steps[0] == 0:
            numbers[:, 0] = highest - lowest
        weights = shares[self._order((lowest + highest) / 2)] * sizes * np.maximum(numbers, 0.0)
        finest = np.maximum(numbers[:, 0], _OFF_LATTICE**2)
        weights[:, 0] = np.where(weights.any(axis=1), weights[:, 0], finest)
        return ends[0] * sizes + phases, numbers, weights


@dataclass(frozen=True, eq=False)
class ColumnGrid:
    """Cells of one column: its categories, its possible values, or parts of its scale.

    Parts of a scale lie between `edges`, places in [0, 1] or half a value beyond; `rounded` has
    the shares of values that are multiples of the steps of ``column.rounding``.
    """

    column: Any
    n_cells: int
    ordered: bool
    edges: FloatArray | None = None
    rounded: FloatArray | None = None

    @property
    def size(self) -> int:
        """Number of codes, that of missing values included."""
        return self.n_cells + int(self.column.missing)

    @property
    def on_scale(self) -> bool:
        """Whether cells are places on a scale rather than categories."""
        return self.edges is not None

    @property
    def has_intervals(self) -> bool:
        """Whether a cell may hold several values."""
        n_values = 1 if self.column.lower == self.column.upper else self.column.n_values
        return n_values != self.n_cells

    @property
    def is_final(self) -> bool:
        """Whether every value has its cell, so that none is left to be found."""
        return not self.on_scale or not self.has_intervals

    @property
    def is_doubtful(self) -> npt.NDArray[np.bool_]:
        """Whether each cell may well be empty: that of missing values, and of all others."""
        doubtful = np.zeros(self.size, dtype=np.bool_)
        doubtful[self.n_cells :] = True
        if not self.on_scale and self.column.likely_empty is not None:
            doubtful[self.column.likely_empty] = True
        return doubtful

    @property
    def alone(self) -> npt.NDArray[np.bool_]:
        """Whether each cell of intervals is a single value that many rows may share."""
        starts = self.column.ends(self.column._alone())[0]
        return np.isin(np.asarray(self.edges)[:-1], starts)

    @property
    def weights(self) -> FloatArray:
        """How much of the rows each cell has if its neighbours have as many on as long a part."""
        if self.edges is None or not self.has_intervals:
            return np.ones(self.size)
        weights = self._multiples(self.edges)[2].sum(axis=1)
        weights[self.alone] = weights.min()
        weights /= weights.max()
        return np.append(weights, 1.0) if self.column.missing else weights

    @property
    def finest(self) -> IntArray:
        """The finest step that values of each cell are rounded to."""
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
        """Return how round the values at places are; 0 where one is alone in a cell."""
        alone = np.isin(unit, self.column._alone())
        return np.where(alone, 0, self.column.rounding.codes(self.column.lattice(unit)))

    def rounding_of(self, counts: FloatArray, sigma: float) -> "ColumnGrid":
        """Return the cells with values as round as noisy counts say."""
        return replace(self, rounded=self.column.rounding.shares(counts, sigma))

    def cells(self, unit: FloatArray) -> IntArray:
        """Return the cell of each place on a scale, int32 of shape (n_rows,)."""
        cells = _cuts_below(np.asarray(self.edges)[1:-1], unit)
        return np.where(np.isnan(unit), self.n_cells, cells).astype(np.int32)

    def values(
        self, codes: IntArray, rng: np.random.Generator, within: tuple[float, float] | None = None
    ) -> pd.Series:
        """Draw a value in each cell, on a scale as round as others and inside the part `within`."""
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
        unit = column._places(places[cells] + (places[cells + 1] - places[cells]) * shares)
        unit = np.clip(unit, edges[cells], np.nextafter(edges[cells + 1], -1.0))
        steps = np.array(column.rounding.steps, dtype=np.float64)[levels]
        whole = first[cells, levels] + steps * np.floor(shares * numbers[cells, levels])
        return column.from_lattice(np.where(missing, np.nan, unit), whole, steps > 0.0)

    def ends(self) -> tuple[Any, Any]:
        """Return arrays of the smallest and the largest value of each cell of a scale."""
        column, edges = self.column, np.asarray(self.edges)
        if column.n_values is None:
            edges = edges - column.ends(np.zeros(1))[0]  # those of short floats lie beside values
            low, high = edges[:-1].copy(), np.where(self.alone, edges[:-1], edges[1:])
            low[1:] = np.where(self.alone[:-1], low[:-1], low[1:])  # begins with what is alone
        else:  # edges lie half a step beside values
            steps = np.rint(column.steps_at(edges) + 0.5)
            low, high = column._places(steps[:-1]), column._places(steps[1:] - 1.0)
        if column.is_numbered:
            column = column.replace(dtype=None, missing=False)  # with all digits
        return column.from_unit(low).array, column.from_unit(high).array

    def kept(self, start: float, stop: float) -> FloatArray:
        """Return which part of the values of each cell lies between two places."""
        edges = np.asarray(self.edges)
        inside = self._multiples(edges.clip(start, stop))[2].sum(axis=1)
        return inside / np.maximum(self._multiples(edges)[2].sum(axis=1), inside)

    @property
    def middles(self) -> pd.Series:
        """The mean value of each cell, if values are as round in it as elsewhere."""
        edges, steps = np.asarray(self.edges), np.array(self.column.rounding.steps)
        first, numbers, weights = self._multiples(edges)
        ends, places = ((part[:-1] + part[1:]) / 2 for part in (self.column.lattice(edges), edges))
        means = np.where(steps > 0, first + steps * (numbers - 1) / 2, ends[:, None])
        middle = (means * weights).sum(axis=1) / weights.sum(axis=1)
        return self.column.from_lattice(places, middle, np.ones(len(middle), dtype=np.bool_))

    def _multiples(self, edges: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what `Rounding.multiples` does of each cell, here between given edges."""
        rounding, numbers = self.column.rounding, self.column.lattice(edges)
        rounded = rounding.unknown if self.rounded is None else self.rounded
        return rounding.multiples(numbers[:-1], numbers[1:], rounded)


_FINEST, _PER_OCTAVE, _MANY = 30, 10, 2**14  # of slots, as powers of 2; places worth a table


def _cuts_below(cuts: FloatArray, places: FloatArray) -> IntArray:
    """Return how many cuts are not above each place, as `numpy.searchsorted` does, but faster."""
    if len(places) < _MANY:
        return np.searchsorted(cuts, places, side="right")
    n_slots = (_FINEST << _PER_OCTAVE) + 2

    def slots(numbers: FloatArray) -> IntArray:
        found = np.ascontiguousarray(numbers).view(np.int64) >> (52 - _PER_OCTAVE)
        found -= (1023 - _FINEST) << _PER_OCTAVE
        return np.clip(found, 0, n_slots - 1, out=found)

    before = np.searchsorted(slots(cuts), np.arange(n_slots + 1))
    own = slots(places)
    cells = before[own]
    cells += np.append(cuts, np.inf)[cells] <= places
    several = np.flatnonzero((np.diff(before) > 1)[own])
    cells[several] = np.searchsorted(cuts, places[several], side="right")
    return cells


_POINT = 1e-9  # share of an interval that a single value of a scale takes


@dataclass(frozen=True, eq=False)
class Condition:
    """What one column must satisfy."""

    kept: FloatArray
    limits: tuple[Any, Any] | None = None
    within: tuple[float, float] | None = None

    def satisfied(self, grid: ColumnGrid, values: Any) -> npt.NDArray[np.bool_]:
        """Return which values satisfy the condition."""
        held: npt.NDArray[np.bool_] = self.kept[grid.codes(values)] > 0.0
        if self.within is not None:
            unit = grid.column.to_unit(values)
            held &= (self.within[0] <= unit) & (unit < self.within[1])
        return held

    def enforce(self, values: Any) -> Any:
        """Return drawn values without what rounding moved beyond the limits."""
        if self.limits is None:
            return values
        series = pd.Series(values)
        if series.dtype.kind != "f":
            return series.clip(*self.limits).astype(series.dtype)
        lowest, highest = _inside(np.dtype(series.dtype.name.lower()), *self.limits)
        return series.clip(lowest, highest)


def _inside(dtype: np.dtype[Any], lowest: float, highest: float) -> tuple[Any, Any]:
    """Return limits that the data type can hold and that are inside, where there are such."""
    first, last = dtype.type(lowest), dtype.type(highest)
    inward = (
        np.nextafter(first, dtype.type(math.inf)) if float(first) < lowest else first,
        np.nextafter(last, dtype.type(-math.inf)) if float(last) > highest else last,
    )
    return inward if inward[0] <= inward[1] else (first, last)


def parse_conditions(
    conditions: Mapping[str, Any] | None, grids: tuple[ColumnGrid, ...]
) -> dict[int, Condition]:
    """Read the conditions of a call."""
    if conditions is None:
        return {}
    if not isinstance(conditions, Mapping):
        kind = type(conditions).__name__
        raise TypeError(
            f"conditions must be a mapping from names of columns to values, got {kind}."
        )
    places = {grid.column.name: place for place, grid in enumerate(grids)}
    found = {}
    for name, wanted in conditions.items():
        if name not in places:
            known = ", ".join(map(repr, places))
            raise ValueError(f"conditions names {name!r}; the columns are {known}.")
        found[places[name]] = _condition(grids[places[name]], wanted)
    return found


def _condition(grid: ColumnGrid, wanted: Any) -> Condition:
    """Return what a value, an interval or several values ask for."""
    name = grid.column.name
    if isinstance(wanted, np.ndarray) and wanted.ndim == 0:
        wanted = wanted.item()
    if isinstance(wanted, tuple) and grid.ordered:
        if len(wanted) != 2:
            raise ValueError(
                f"The condition on {name!r} must be one value or a tuple (smallest, largest), of "
                "which None is no limit."
            )
        return (_interval if grid.on_scale else _between)(grid, *wanted)
    several = isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes, Mapping))
    if not several:
        return _one(grid, wanted)
    values = list(wanted)
    if not values:
        raise ValueError(f"The condition on {name!r} lists no value.")
    if grid.on_scale and grid.has_intervals:
        raise ValueError(
            f"{name!r} is a scale with too many values for a list: give one value or a tuple "
            "(smallest, largest)."
        )
    if grid.on_scale:
        return Condition(np.max([_one(grid, value).kept for value in values], axis=0))
    kept = np.zeros(grid.size)
    kept[[_place(grid, value) for value in values]] = 1.0
    return Condition(kept)


def _one(grid: ColumnGrid, value: Any) -> Condition:
    """Return what one value asks for."""
    if grid.on_scale and not _is_missing(value):
        return _interval(grid, value, value)
    return Condition(np.eye(1, grid.size, _place(grid, value))[0])


def _is_missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, NaT and the NA of pandas."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _place(grid: ColumnGrid, value: Any) -> int:
    """Return the cell of a category, or of missing values."""
    if not _is_missing(value):
        return _level(grid, value)
    if not grid.column.missing:
        raise ValueError(f"Values of {grid.column.name!r} are never missing (see its schema).")
    return grid.n_cells


def _between(grid: ColumnGrid, first: Any, last: Any) -> Condition:
    """Return what an interval of categories asks for."""
    column: Any = grid.column
    start = 0 if first is None else _level(grid, first)
    # Without a limit it ends with the categories: what takes all others is not above them.
    stop = len(column.categories) - 1 if last is None else _level(grid, last)
    if start > stop:
        raise ValueError(
            f"No category of {column.name!r} lies in the interval that conditions asks for: the "
            "first comes after the last in the order of its categories."
        )
    places = np.arange(grid.size)
    return Condition(((start <= places) & (places <= stop)).astype(np.float64))


def _level(grid: ColumnGrid, value: Any) -> int:
    """Return the place of a category."""
    place: int | None = grid.column.level(value)
    if place is None:
        levels = grid.column.levels
        raise ValueError(
            f"{grid.column.name!r} cannot be {value!r}; its categories are "
            f"{', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}."
        )
    return place


def _interval(grid: Any, lowest: Any, highest: Any) -> Condition:
    lowest, highest, first, last = grid.column.limits(lowest, highest)
    within = grid.column.ends(np.array([first, last]))
    start, stop = float(within[0][0]), float(within[1][1])
    overlap = np.minimum(stop, grid.edges[1:]) - np.maximum(start, grid.edges[:-1])
    shares = grid.kept(start, stop)
    kept = np.where(overlap > 0.0, np.clip(shares, _POINT, 1.0), 0.0)
    kept = np.append(kept, 0.0) if grid.column.missing else kept
    return Condition(kept, (lowest, highest), (start, stop))
