"""Where the columns of a table are in the unit ball, and back from points of the ball.

With d columns, each has a block of coordinates whose norm is at most s, just below 1 / sqrt(d), so
that every row has norm 1 at most:

- numbers, times, ordered categories and truth values: one coordinate in [-s, s];
- other categories: one coordinate each, of which one is s and the rest 0;
- where values may be missing, one coordinate more, which is s where a value is missing; the
  others are then 0.

Any point is decoded to the value whose place is nearest.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.table_columns import CodedColumn, ScaledColumn
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema

__all__ = ["TableBlocks"]

FloatArray = npt.NDArray[np.float64]

# Rounding in norms must not lead out of the ball.
_INSIDE = 1 - 1e-12


@dataclass(frozen=True)
class TableBlocks:
    """Blocks of coordinates for the columns of a schema.

    Parameters
    ----------
    schema : TableSchema
        Resolved.
    """

    schema: TableSchema

    @property
    def side(self) -> float:
        """Largest norm s of a block."""
        return _INSIDE / math.sqrt(len(self.schema))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Coordinates of each column."""
        found, start = {}, 0
        for column in self.schema.columns:
            found[column.name] = slice(start, start + _width(column))
            start += _width(column)
        return found

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates."""
        return sum(map(_width, self.schema.columns))

    @property
    def names(self) -> list[str]:
        """Names of the coordinates, all different."""
        names: list[str] = []
        taken: set[str] = set()
        for column in self.schema.columns:
            for name in _names(column):
                while name in taken:
                    name += "_"
                taken.add(name)
                names.append(name)
        return names

    @property
    def _columns(self) -> tuple[Any, ...]:
        return self.schema.columns

    def encode(self, table: Table) -> FloatArray:
        """Return the place of each row in the ball.

        Parameters
        ----------
        table : Table
            With the columns of the schema.

        Returns
        -------
        ndarray of shape (n_rows, n_coordinates)

        Raises
        ------
        ValueError
            If a column cannot be read; the message names it and quotes no value.
        """
        places = np.zeros((table.n_rows, self.n_coordinates))
        for column in self._columns:
            block = places[:, self.slices[column.name]]
            values = table.column(column.name)
            if _is_one_hot(column):
                codes = column.to_codes(values)
                codes = np.where(codes < 0, column.n_categories, codes)
                block[np.arange(len(codes)), codes] = self.side
                continue
            unit = _to_unit(column, values)
            missing = np.isnan(unit)
            block[:, 0] = np.where(missing, 0.0, 2 * np.where(missing, 0.0, unit) - 1) * self.side
            if column.missing:
                block[:, 1] = np.where(missing, self.side, 0.0)
        return places

    def decode(self, places: FloatArray) -> dict[str, pd.Series]:
        """Return the values whose places are nearest.

        Parameters
        ----------
        places : ndarray of shape (n_rows, n_coordinates)
            Any finite points.

        Returns
        -------
        dict of str to Series
            Values of each column.
        """
        columns = {}
        for column in self._columns:
            block = places[:, self.slices[column.name]] / self.side
            if _is_one_hot(column):
                codes = np.argmax(block, axis=1)
                codes = np.where(codes == column.n_categories, -1, codes)
                columns[column.name] = column.from_codes(codes)
                continue
            unit = np.clip((block[:, 0] + 1) / 2, 0.0, 1.0)
            if column.missing:
                unit[_is_missing(column, block)] = np.nan
            columns[column.name] = _from_unit(column, unit)
        return columns


def _is_one_hot(column: Any) -> bool:
    return isinstance(column, CodedColumn) and not column.ordered


def _width(column: Any) -> int:
    return (column.n_categories if _is_one_hot(column) else 1) + column.missing


def _names(column: Any) -> list[str]:
    levels = [f"{column.name}={level}" for level in column.levels] if _is_one_hot(column) else []
    missing = [f"{column.name} is missing"] if column.missing else []
    return [*(levels or [column.name]), *missing]


def _is_missing(column: Any, block: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether the place of missing values is nearer than that of any value.

    In units of s, values lie at (p, 0) with abs(p) <= 1, missing ones at (0, 1). The point (x, m)
    is as far from both where 2 m = 1 + 2 x p - p^2, p being the value that is nearest to x.
    """
    position, mask = block[:, 0], block[:, 1]
    nearest = np.clip(position, -1.0, 1.0)
    if (last := _last_step(column)) is not None:
        nearest = np.rint((nearest + 1) / 2 * last) / max(last, 1) * 2 - 1
    return 2 * mask > 1 + 2 * position * nearest - nearest**2


def _last_step(column: Any) -> int | None:
    """Return how many steps the values of a column are apart; None if they are not even steps."""
    if isinstance(column, CodedColumn):
        return column.n_categories - 1
    if getattr(column, "log_scale", False) or column.n_values is None:
        return None
    return column.n_values - 1


def _to_unit(column: Any, values: Any) -> FloatArray:
    if isinstance(column, ScaledColumn):
        return column.to_unit(values)
    codes = column.to_codes(values)
    return np.where(codes < 0, np.nan, codes / max(column.n_categories - 1, 1))


def _from_unit(column: Any, unit: FloatArray) -> pd.Series:
    if isinstance(column, ScaledColumn):
        return column.from_unit(unit)
    missing = np.isnan(unit)
    codes = np.rint(np.where(missing, 0.0, unit) * (column.n_categories - 1))
    return column.from_codes(np.where(missing, -1, codes).astype(np.int64))
