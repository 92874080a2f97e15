"""Conditions on values, as shares of the cells that satisfy them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot.preprocessing.table_columns import NumericColumn
from skdpot.slicing.marginals import FloatArray
from skdpot.tables.column_grid import ColumnGrid

__all__ = ["Condition", "parse_conditions"]

_POINT = 1e-9  # share of an interval that a single value of a scale takes


@dataclass(frozen=True, eq=False)
class Condition:
    """What one column must satisfy.

    Parameters
    ----------
    kept : ndarray of shape (n_cells,)
        Share of each cell that satisfies it.
    limits : tuple, optional
        Smallest and largest value, of a column with a scale.
    within : tuple of float, optional
        The same in the unit interval.
    """

    kept: FloatArray
    limits: tuple[Any, Any] | None = None
    within: tuple[float, float] | None = None

    def enforce(self, values: Any) -> Any:
        """Return drawn values without what rounding moved beyond the limits."""
        if self.limits is None:
            return values
        series = pd.Series(values)
        return series.clip(*self.limits).astype(series.dtype)


def parse_conditions(
    conditions: Mapping[str, Any] | None, grids: tuple[ColumnGrid, ...]
) -> dict[int, Condition]:
    """Read the conditions of a call.

    Parameters
    ----------
    conditions : mapping of str to object, or None
        For some columns a value, a list of values, or for numbers and times a tuple of the
        smallest and the largest (None is no limit). None alone is a missing value.
    grids : tuple of ColumnGrid
        All columns.

    Returns
    -------
    dict of int to Condition

    Raises
    ------
    TypeError
        If it is no mapping.
    ValueError
        If a column is not known, or nothing in it satisfies the condition.
    """
    if conditions is None:
        return {}
    if not isinstance(conditions, Mapping):
        raise TypeError(
            "conditions must be a mapping from names of columns to values, got "
            f"{type(conditions).__name__}."
        )
    places = {grid.column.name: place for place, grid in enumerate(grids)}
    found = {}
    for name, wanted in conditions.items():
        if name not in places:
            raise ValueError(
                f"conditions names {name!r}; the columns are {', '.join(map(repr, places))}."
            )
        grid = grids[places[name]]
        found[places[name]] = _condition(grid, wanted)
    return found


def _condition(grid: ColumnGrid, wanted: Any) -> Condition:
    name = grid.column.name
    if wanted is None or wanted is pd.NA:
        if not grid.column.missing:
            raise ValueError(f"Values of {name!r} are never missing (see its schema).")
        return Condition((np.arange(grid.size) == grid.n_cells).astype(np.float64))
    if not grid.on_scale:
        return Condition(_kept_categories(grid, wanted))
    if isinstance(wanted, tuple):
        if len(wanted) != 2:
            raise ValueError(
                f"The condition on {name!r} must be one value or a tuple (smallest, largest)."
            )
        return _interval(grid, *wanted)
    if isinstance(wanted, (list, set, frozenset, np.ndarray)):
        raise ValueError(
            f"{name!r} is a scale: give one value or a tuple (smallest, largest), not a list."
        )
    return _interval(grid, wanted, wanted)


def _kept_categories(grid: ColumnGrid, wanted: Any) -> FloatArray:
    several = isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes))
    values = list(wanted) if several else [wanted]
    levels = list(_levels(grid))
    kept = np.zeros(grid.size)
    for value in values:
        if value not in levels:
            raise ValueError(
                f"{grid.column.name!r} cannot be {value!r}; its categories are "
                f"{', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}."
            )
        kept[levels.index(value)] = 1.0
    if not values:
        raise ValueError(f"The condition on {grid.column.name!r} lists no value.")
    return kept


def _levels(grid: ColumnGrid) -> tuple[Any, ...]:
    return tuple(getattr(grid.column, "levels", (False, True)))


def _interval(grid: ColumnGrid, lowest: Any, highest: Any) -> Condition:
    column: Any = grid.column
    lowest = _whole(column, column.lower if lowest is None else lowest, math.ceil)
    highest = _whole(column, column.upper if highest is None else highest, math.floor)
    lowest, highest = _value(column, lowest), _value(column, highest)
    lower, upper = _value(column, column.lower), _value(column, column.upper)
    if not (lower <= highest and lowest <= upper and lowest <= highest):
        raise ValueError(
            f"No value of {column.name!r} lies in the interval that conditions asks for; its "
            f"schema has bounds {column.lower!r} and {column.upper!r}."
        )
    lowest, highest = max(lowest, lower), min(highest, upper)
    start, stop = column.to_unit(pd.Series([lowest, highest])).tolist()
    edges = np.arange(grid.n_cells + 1) / grid.n_cells
    if grid.single_values:
        positions = np.arange(grid.n_cells) / max(grid.n_cells - 1, 1)
        kept = ((positions >= start - 1e-9) & (positions <= stop + 1e-9)).astype(np.float64)
    else:
        overlap = np.minimum(stop, edges[1:]) - np.maximum(start, edges[:-1])
        kept = np.where(overlap >= 0.0, np.maximum(overlap * grid.n_cells, _POINT), 0.0)
    kept = np.append(kept, 0.0) if column.missing else kept
    return Condition(kept, (lowest, highest), (start, stop))


def _whole(column: Any, value: Any, rounded: Any) -> Any:
    """Return a limit of an integer column as an integer inside the interval."""
    return rounded(value) if isinstance(column, NumericColumn) and column.integer else value


def _value(column: Any, value: Any) -> Any:
    """Return a limit in the type that the column's values are compared in."""
    return value if isinstance(column, NumericColumn) else pd.Timestamp(value)
