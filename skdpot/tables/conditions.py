"""Conditions on values, as shares of the cells that satisfy them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from skdpot.preprocessing.table_columns import NumericColumn
from skdpot.preprocessing.table_dtypes import datetime_zone
from skdpot.slicing.marginals import FloatArray
from skdpot.tables.column_grid import ColumnGrid

__all__ = ["Condition", "parse_conditions"]

_POINT = 1e-9  # share of an interval that a single value of a scale takes
_ROUNDING = 1e-9  # of the unit interval


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


def _interval(grid: Any, lowest: Any, highest: Any) -> Condition:
    limits = _numbers if isinstance(grid.column, NumericColumn) else _times
    lowest, highest, start, stop = limits(grid.column, lowest, highest)
    if not (start <= stop and lowest <= highest):
        raise ValueError(
            f"No value of {grid.column.name!r} lies in the interval that conditions asks for; its "
            f"schema has bounds {grid.column.lower!r} and {grid.column.upper!r}."
        )
    starts, stops = grid.starts, grid.stops
    overlap = np.minimum(stop + _ROUNDING, stops) - np.maximum(start - _ROUNDING, starts)
    lengths = stops - starts  # 0 for single values, which are in or out
    shares = np.where(lengths > 0.0, overlap / np.maximum(lengths, _ROUNDING), 1.0)
    kept = np.where(overlap >= 0.0, np.clip(shares, _POINT, 1.0), 0.0)
    kept = np.append(kept, 0.0) if grid.column.missing else kept
    return Condition(kept, (lowest, highest), (start, stop))


def _numbers(column: Any, lowest: Any, highest: Any) -> tuple[float, float, float, float]:
    """Return limits of a numeric column inside its bounds, and the same in the unit interval."""
    for limit in (lowest, highest):
        if limit is not None and not (isinstance(limit, Real) and limit == limit):
            raise ValueError(
                f"The condition on {column.name!r} must be a number or a tuple of two, or of a "
                "number and None."
            )
    # Through the bounds first: infinity cannot be rounded.
    lowest = column.lower if lowest is None else max(lowest, column.lower)
    highest = column.upper if highest is None else min(highest, column.upper)
    if lowest > highest:
        return lowest, highest, 1.0, 0.0
    if column.integer:
        lowest, highest = math.ceil(lowest), math.floor(highest)
    start, stop = column.to_unit(pd.Series([lowest, highest])).tolist()
    return lowest, highest, start, stop


def _times(column: Any, lowest: Any, highest: Any) -> tuple[Any, Any, float, float]:
    """Return the first and the last tick that a condition allows, and their places."""
    first, last = _time(column, column.lower), _time(column, column.upper)
    lowest = first if lowest is None else max(_time(column, lowest), first)
    highest = last if highest is None else min(_time(column, highest), last)
    if lowest > highest:
        return lowest, highest, 1.0, 0.0
    start, stop = column.to_unit(pd.Series([lowest, highest])).tolist()
    # Times between two ticks became the earlier.
    if column.from_unit([start])[0] < lowest:
        start += 1.0 / max(column.n_values - 1, 1)
    return (*column.from_unit([start, stop]), start, stop)


def _time(column: Any, value: Any) -> pd.Timestamp:
    """Return a limit as the column's values are; without an offset it is in the column's zone."""
    zone = datetime_zone(column.dtype)
    try:
        stamp = pd.Timestamp(value)
        if zone is not None and stamp.tzinfo is None:
            return stamp.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
        if not pd.isna(stamp) and (stamp.tzinfo is None) == (zone is None):
            return stamp if zone is None else stamp.tz_convert(zone)
    except (ValueError, TypeError, OverflowError):
        pass
    offset = "" if zone else " without an offset from UTC"
    raise ValueError(
        f"The condition on {column.name!r} must be a date or time in ISO format{offset}, or a "
        "tuple of two, or of one and None."
    )
