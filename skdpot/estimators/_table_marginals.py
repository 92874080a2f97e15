"""Noisy counts of a column, joined to as many bars or intervals as a picture can show."""

from typing import Any

import numpy as np
import pandas as pd

from skdpot.metrics.marginals import Marginal, column_numbers
from skdpot.preprocessing.table_columns import DatetimeColumn, NumericColumn
from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal
from skdpot.tables.coarsening import project_to_total
from skdpot.tables.column_grid import ColumnGrid

__all__ = ["drawn_marginal"]

_TAIL = 0.005  # of the rows, on each side, that end intervals take in
_MOST_TICKS = 4


def drawn_marginal(
    grid: ColumnGrid, noisy: NoisyMarginal, synthetic: FloatArray, n_rows: int, n_bins: int
) -> tuple[Marginal, IntArray]:
    """Return the noisy and the synthetic shares of one column.

    Parameters
    ----------
    grid : ColumnGrid
        Cells of the column.
    noisy : NoisyMarginal
        Their noisy counts.
    synthetic : ndarray of shape (n_cells,)
        Shares of the synthetic rows in them.
    n_rows : int
        Number of rows that were counted.
    n_bins : int
        Largest number of intervals of numbers and dates.

    Returns
    -------
    marginal : Marginal
        With the standard deviations of the noise. Noisy counts are moved to the nearest ones that
        are not negative and add up.
    joined : ndarray of int, shape (n_cells,)
        Interval or category of each cell, the last one for missing values.
    """
    if grid.on_scale:
        places, n_places = _places(grid)
        first, width, n_groups = _intervals(places, synthetic[: grid.n_cells], n_bins)
        joined = np.clip((places - first) // width, 0, n_groups - 1)
        edges = first + width * np.arange(n_groups + 1.0)
        values, ticks = _axis(grid, edges, n_places)
    else:
        n_groups, ticks = grid.n_cells, ()
        joined = np.arange(grid.n_cells)
        values = np.array(list(map(str, _levels(grid))), dtype=object)
    if grid.column.missing:
        joined = np.append(joined, n_groups)
    sizes = np.bincount(joined)
    counts = np.bincount(joined, weights=noisy.counts).astype(np.float64)
    real = project_to_total(counts, n_rows) / n_rows
    drawn = np.bincount(joined, weights=synthetic)
    noise = noisy.sigma * np.sqrt(sizes) / n_rows
    order = np.arange(n_groups)
    if not grid.ordered:  # neither a scale nor categories in an order: the frequent ones first
        order = np.argsort(-real[:n_groups], kind="stable")
        values = values[order]
    missing = grid.column.missing
    marginal = Marginal(
        grid.column.name,
        _kind(grid),
        values,
        real[order],
        drawn[order],
        float(real[-1]) if missing else 0.0,
        float(drawn[-1]) if missing else 0.0,
        noise[order],
        float(noise[-1]) if missing else 0.0,
        ticks,
    )
    return marginal, joined


def _kind(grid: ColumnGrid) -> str:
    if not grid.on_scale:
        return "category"
    return "date" if isinstance(grid.column, DatetimeColumn) else "number"


def _levels(grid: ColumnGrid) -> tuple[Any, ...]:
    return tuple(getattr(grid.column, "levels", (False, True)))


def _places(grid: ColumnGrid) -> tuple[IntArray, int]:
    """Return which step of the scale each cell lies in, and the number of steps.

    A step is one value where each possible one has a cell, and otherwise one of the intervals of
    equal length; single values with a cell of their own are joined to the interval around them.
    """
    starts, stops = np.asarray(grid.starts), np.asarray(grid.stops)
    n_intervals = int((stops > starts).sum())
    if n_intervals == 0:
        return np.arange(grid.n_cells), 0
    steps = np.floor((starts + stops) / 2 * n_intervals).astype(np.int64)
    return np.clip(steps, 0, n_intervals - 1), n_intervals


def _intervals(places: IntArray, synthetic: FloatArray, n_bins: int) -> tuple[int, int, int]:
    """Return the first step, the number of steps in an interval that is drawn, and of intervals.

    The noisy counts themselves would not do: the noise of many empty cells is no tail.
    """
    below = np.cumsum(np.bincount(places, weights=synthetic))
    first = int(np.searchsorted(below, _TAIL * below[-1]))
    last = int(np.searchsorted(below, (1.0 - _TAIL) * below[-1]))
    last = min(max(last, first), len(below) - 1)
    width = -(-(last - first + 1) // n_bins)
    return first, width, -(-(last - first + 1) // width)


def _axis(
    grid: ColumnGrid, steps: FloatArray, n_places: int
) -> tuple[FloatArray, tuple[tuple[float, str], ...]]:
    """Return where steps of the scale begin on the axis, and ticks where it needs some."""
    column: Any = grid.column
    if n_places:
        unit = steps / n_places
    else:  # a cell is one value, in the middle of its interval
        unit = (steps - 0.5) / max(grid.n_cells - 1, 1)
    if isinstance(column, NumericColumn) and column.log_scale:
        return unit, _log_ticks(column, unit)
    ends = column.from_unit([0.0, 1.0])
    low, high = column_numbers(ends, "date" if isinstance(column, DatetimeColumn) else "number")
    if low == high:
        high = low + 1.0
    return low + unit * (high - low), ()


def _log_ticks(column: NumericColumn, unit: FloatArray) -> tuple[tuple[float, str], ...]:
    """Return some round distances from the lower bound that lie between the edges."""
    lower, upper = float(column.lower or 0.0), float(column.upper or 0.0)
    powers = 10.0 ** np.arange(0, 16)
    steps = np.concatenate(([0.0], powers[powers < upper - lower]))
    values = lower + steps
    places = column.to_unit(pd.Series(values))
    kept = np.flatnonzero((places >= unit[0]) & (places <= unit[-1]))
    kept = kept[:: -(-len(kept) // _MOST_TICKS) or 1]
    return tuple((float(places[k]), f"{values[k]:,.4g}") for k in kept)
