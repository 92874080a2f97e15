"""The finest cells that values of a column are counted in, and back from a cell to a value."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.slicing.marginals import FloatArray, IntArray

__all__ = ["ColumnGrid", "column_grid"]

MAX_CELLS = 256
_TRIES = 12
_MAX_VALUES = 512  # numbers and times with at most so many possible values have a cell for each


@dataclass(frozen=True, eq=False)
class ColumnGrid:
    """Cells of one column: its categories, its possible values, or places on its scale.

    A scale with too many values for a cell each is cut into intervals of equal length. Its bounds
    and zero have cells of their own, for many rows may have just these values.

    Parameters
    ----------
    column : TableColumn
        Resolved.
    n_cells : int
        Number of cells of values; missing values have one more, the last.
    ordered : bool
        Whether neighbouring cells are alike.
    starts, stops : ndarray of shape (n_cells,) or None
        Where on the unit interval the cells of a scale lie; None for categories. The two are equal
        for single values.
    """

    column: TableColumn
    n_cells: int
    ordered: bool
    starts: FloatArray | None = None
    stops: FloatArray | None = None

    @property
    def size(self) -> int:
        """Number of codes, that of missing values included."""
        return self.n_cells + self.column.missing

    @property
    def on_scale(self) -> bool:
        """Whether cells are places on a scale rather than categories."""
        return self.starts is not None

    @property
    def is_doubtful(self) -> npt.NDArray[np.bool_]:
        """Whether each cell may well be empty: that of missing values, and of all others."""
        doubtful = np.zeros(self.size, dtype=np.bool_)
        doubtful[self.n_cells :] = True
        if isinstance(self.column, CategoricalColumn) and self.column.other is not None:
            doubtful[list(self.column.levels).index(self.column.other)] = True
        return doubtful

    def codes(self, values: Any) -> IntArray:
        """Return the cell of each value, int32 of shape (n_rows,)."""
        if self.starts is None or self.stops is None:
            codes: IntArray = self.column.to_codes(values)  # type: ignore[attr-defined]
            return np.where(codes < 0, self.n_cells, codes).astype(np.int32)
        unit: FloatArray = self.column.to_unit(values)  # type: ignore[attr-defined]
        if _is_listed(self.column):
            cells = np.rint(np.nan_to_num(unit) * max(self.n_cells - 1, 1)).astype(np.int32)
        else:
            is_interval = self.stops > self.starts
            intervals = np.flatnonzero(is_interval)
            places = np.searchsorted(self.starts[intervals], np.nan_to_num(unit), side="right")
            cells = intervals[np.maximum(places - 1, 0)].astype(np.int32)
            for cell in np.flatnonzero(~is_interval):
                cells[unit == self.starts[cell]] = cell
        return np.where(np.isnan(unit), np.int32(self.n_cells), cells)

    def values(
        self, codes: IntArray, rng: np.random.Generator, within: tuple[float, float] | None = None
    ) -> Any:
        """Draw a value in each cell.

        Parameters
        ----------
        codes : ndarray of int, shape (n_rows,)
            Cells.
        rng : Generator
            Places values inside intervals.
        within : tuple of float, optional
            Part of the unit interval that the values must lie in.

        Returns
        -------
        array of pandas or numpy
            Of the column's data type.
        """
        if self.starts is None or self.stops is None:
            return self.column.from_codes(  # type: ignore[attr-defined]
                np.where(codes == self.n_cells, -1, codes).astype(np.int64)
            )
        lower, upper = (np.append(ends, np.nan)[codes] for ends in (self.starts, self.stops))
        if within is not None:
            lower, upper = np.clip(lower, *within), np.clip(upper, *within)
        unit = lower + (upper - lower) * rng.random(len(codes))
        if getattr(self.column, "n_values", None) is not None:
            # Values that are rounded may leave their cell: such are drawn again.
            wrong = np.flatnonzero(upper > lower)
            for _ in range(_TRIES):
                reached = self.codes(self.column.from_unit(unit[wrong]))  # type: ignore[attr-defined]
                wrong = wrong[reached != codes[wrong]]
                unit[wrong] = (lower + (upper - lower) * rng.random(len(codes)))[wrong]
        return self.column.from_unit(unit)  # type: ignore[attr-defined]


def column_grid(column: TableColumn) -> ColumnGrid:
    """Return the cells of a resolved column.

    Parameters
    ----------
    column : TableColumn
        Resolved.

    Returns
    -------
    ColumnGrid
    """
    if isinstance(column, (CategoricalColumn, BooleanColumn)):
        ordered = isinstance(column, CategoricalColumn) and column.ordered
        return ColumnGrid(column, column.n_categories, ordered)
    if _is_listed(column):
        n_values = getattr(column, "n_values", None) or 1
        places = np.arange(n_values) / max(n_values - 1, 1)
        return ColumnGrid(column, n_values, True, places, places)
    edges = np.arange(MAX_CELLS + 1) / MAX_CELLS
    points = np.unique(_special(column))
    starts, stops = np.append(edges[:-1], points), np.append(edges[1:], points)
    # A single value comes before the interval that begins with it, and after any other.
    order = np.lexsort((stops, starts))
    return ColumnGrid(column, len(starts), True, starts[order], stops[order])


def _special(column: TableColumn) -> FloatArray:
    """Return the places of values that many rows may share: both bounds, and zero."""
    if not isinstance(column, NumericColumn) or column.lower is None or column.upper is None:
        return np.array([0.0, 1.0])
    inside = column.lower < 0.0 < column.upper
    values = [column.lower, column.upper, *([0.0] if inside else [])]
    if column.integer:
        values = [int(value) for value in values]
    places: FloatArray = column.to_unit(np.array(values))
    return places


def _is_listed(column: TableColumn) -> bool:
    """Whether each value that is possible has a cell."""
    if isinstance(column, NumericColumn) and column.lower == column.upper:
        return True
    if isinstance(column, NumericColumn) and column.log_scale:
        return False  # its unit interval is not spaced like its values
    n_values = getattr(column, "n_values", None)
    return n_values is not None and n_values <= _MAX_VALUES
