"""The finest cells that values of a column are counted in, and back from a cell to a value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.slicing.marginals import IntArray

__all__ = ["ColumnGrid", "column_grid"]

MAX_CELLS = 256
_MAX_VALUES = 512  # numbers and times with at most so many possible values have a cell for each


@dataclass(frozen=True)
class ColumnGrid:
    """Cells of one column: its categories, its possible values, or intervals of equal length.

    Parameters
    ----------
    column : TableColumn
        Resolved.
    n_cells : int
        Number of cells of values; missing values have one more, the last.
    ordered : bool
        Whether neighbouring cells are alike.
    on_scale : bool
        Whether cells are places on a scale rather than categories.
    """

    column: TableColumn
    n_cells: int
    ordered: bool
    on_scale: bool

    @property
    def size(self) -> int:
        """Number of codes, that of missing values included."""
        return self.n_cells + self.column.missing

    @property
    def single_values(self) -> bool:
        """Whether a cell of the scale is one value and not an interval."""
        return self.on_scale and self.n_cells == _n_values(self.column)

    def codes(self, values: Any) -> IntArray:
        """Return the cell of each value, int32 of shape (n_rows,)."""
        if not self.on_scale:
            codes: IntArray = self.column.to_codes(values)  # type: ignore[attr-defined]
            return np.where(codes < 0, self.n_cells, codes).astype(np.int32)
        unit = self.column.to_unit(values)  # type: ignore[attr-defined]
        gone = np.isnan(unit)
        if self.single_values:
            cells = np.rint(np.where(gone, 0.0, unit) * max(self.n_cells - 1, 1))
        else:
            cells = np.minimum(np.where(gone, 0.0, unit) * self.n_cells, self.n_cells - 1)
        return np.where(gone, self.n_cells, cells.astype(np.int32)).astype(np.int32)

    def values(self, codes: IntArray, rng: np.random.Generator, within: Any = None) -> Any:
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
        Series
            Of the column's data type.
        """
        if not self.on_scale:
            return self.column.from_codes(  # type: ignore[attr-defined]
                np.where(codes == self.n_cells, -1, codes).astype(np.int64)
            )
        if self.single_values:
            unit = codes / max(self.n_cells - 1, 1)
        else:
            lower, upper = codes / self.n_cells, (codes + 1) / self.n_cells
            if within is not None:
                lower, upper = np.clip(lower, *within), np.clip(upper, *within)
            unit = lower + (upper - lower) * rng.random(len(codes))
        return self.column.from_unit(  # type: ignore[attr-defined]
            np.where(codes == self.n_cells, np.nan, unit)
        )


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
        return ColumnGrid(column, column.n_categories, ordered=ordered, on_scale=False)
    n_values = _n_values(column)
    if n_values is None or n_values > _MAX_VALUES:
        n_values = MAX_CELLS
    return ColumnGrid(column, n_values, ordered=True, on_scale=True)


def _n_values(column: TableColumn) -> int | None:
    """Return the number of possible values when a cell each is what the scale asks for."""
    if isinstance(column, NumericColumn) and column.log_scale:
        return None  # its unit interval is not spaced like its values
    if isinstance(column, (NumericColumn, DatetimeColumn)):
        return column.n_values
    return None
