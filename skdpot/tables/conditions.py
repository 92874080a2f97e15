"""Conditions on values, as shares of the cells that satisfy them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Number, Real
from typing import Any

import numpy as np
import pandas as pd

from skdpot.preprocessing.table_columns import BooleanColumn, NumericColumn
from skdpot.preprocessing.table_dtypes import datetime_zone
from skdpot.preprocessing.table_values import category_key
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
        For some columns a value, a list of values, or for scales and categories with an order a
        tuple of the smallest and the largest (None is no limit). A list may hold numbers and
        times only of columns whose possible values have a cell each. None, NaN, NaT and NA are
        missing values.
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
    if isinstance(wanted, np.ndarray) and wanted.ndim == 0:
        wanted = wanted.item()
    if _is_missing(wanted):
        return Condition(_kept_missing(grid))
    if not grid.on_scale:
        return Condition(_kept_categories(grid, wanted))
    if isinstance(wanted, tuple):
        return _interval(grid, *_pair(grid, wanted))
    if _is_several(wanted):
        return _any_of(grid, list(wanted))
    return _interval(grid, wanted, wanted)


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or the NA of pandas."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _is_several(wanted: Any) -> bool:
    return isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes, Mapping))


def _kept_missing(grid: ColumnGrid) -> FloatArray:
    if not grid.column.missing:
        raise ValueError(f"Values of {grid.column.name!r} are never missing (see its schema).")
    kept = np.zeros(grid.size)
    kept[grid.n_cells] = 1.0
    return kept


def _pair(grid: ColumnGrid, wanted: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(wanted) != 2:
        raise ValueError(
            f"The condition on {grid.column.name!r} must be one value or a tuple (smallest, "
            "largest), of which None is no limit."
        )
    return wanted[0], wanted[1]


def _any_of(grid: Any, wanted: list[Any]) -> Condition:
    """Return what satisfies one of several single values of a scale."""
    if not wanted:
        raise ValueError(f"The condition on {grid.column.name!r} lists no value.")
    if (grid.stops > grid.starts).any():
        raise ValueError(
            f"{grid.column.name!r} is a scale with too many values for a list: give one value or "
            "a tuple (smallest, largest)."
        )
    kept = np.zeros(grid.size)
    for value in wanted:
        found = _kept_missing(grid) if _is_missing(value) else _interval(grid, value, value).kept
        kept = np.maximum(kept, found)
    return Condition(kept)


def _kept_categories(grid: ColumnGrid, wanted: Any) -> FloatArray:
    kept = np.zeros(grid.size)
    if grid.ordered and isinstance(wanted, tuple):
        first, last = _ends(grid, *_pair(grid, wanted))
        kept[first : last + 1] = 1.0
        return kept
    values = list(wanted) if _is_several(wanted) else [wanted]
    for value in values:
        kept = np.maximum(kept, _kept_missing(grid)) if _is_missing(value) else kept
        if not _is_missing(value):
            kept[_level(grid, value)] = 1.0
    if not values:
        raise ValueError(f"The condition on {grid.column.name!r} lists no value.")
    return kept


def _ends(grid: ColumnGrid, first: Any, last: Any) -> tuple[int, int]:
    """Return the places of the first and the last category of an interval."""
    column: Any = grid.column
    start = 0 if first is None else _level(grid, first)
    # Without a limit it ends with the categories: what takes all others is not above them.
    stop = len(column.categories) - 1 if last is None else _level(grid, last)
    if start > stop:
        raise ValueError(
            f"No category of {column.name!r} lies in the interval that conditions asks for: the "
            "first comes after the last in the order of its categories."
        )
    return start, stop


def _level(grid: ColumnGrid, value: Any) -> int:
    """Return the place of a category; True is none of the number 1."""
    if isinstance(grid.column, BooleanColumn):
        levels: tuple[Any, ...] = (False, True)
        alike = [pd.api.types.is_scalar(value) and level == value for level in levels]
    else:
        column: Any = grid.column
        levels, key = column.levels, category_key(value)
        alike = [key is not None and category_key(level) == key for level in levels]
    found = [place for place, same in enumerate(alike) if same]
    if not found:
        raise ValueError(
            f"{grid.column.name!r} cannot be {value!r}; its categories are "
            f"{', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}."
        )
    return found[0]


def _interval(grid: Any, lowest: Any, highest: Any) -> Condition:
    limits = _numbers if isinstance(grid.column, NumericColumn) else _times
    lowest, highest, start, stop = limits(grid.column, lowest, highest)
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
        number = isinstance(limit, Real) and not isinstance(limit, bool) and limit == limit
        if limit is not None and not number:
            raise ValueError(
                f"The condition on {column.name!r} must be a number or a tuple of two, or of a "
                "number and None; True and False are no numbers."
            )
    # Through the bounds first: infinity cannot be rounded.
    lowest, highest = _inside_bounds(column, lowest, highest, column.lower, column.upper)
    if column.integer:
        lowest, highest = math.ceil(lowest), math.floor(highest)
        if lowest > highest:
            raise _nothing(column, "no integer lies in it")
    start, stop = column.to_unit(pd.Series([lowest, highest])).tolist()
    return lowest, highest, start, stop


def _times(column: Any, lowest: Any, highest: Any) -> tuple[Any, Any, float, float]:
    """Return the first and the last tick that a condition allows, and their places."""
    first, last = _time(column, column.lower), _time(column, column.upper)
    lowest, highest = (None if end is None else _time(column, end) for end in (lowest, highest))
    lowest, highest = _inside_bounds(column, lowest, highest, first, last)
    start, stop = column.to_unit(pd.Series([lowest, highest])).tolist()
    # Times between two ticks became the earlier.
    if column.from_unit([start])[0] < lowest:
        start += 1.0 / max(column.n_values - 1, 1)
    if start > stop:
        raise _nothing(column, f"it holds no value of the resolution {column.resolution!r}")
    return (*column.from_unit([start, stop]), start, stop)


def _inside_bounds(
    column: Any, lowest: Any, highest: Any, lower: Any, upper: Any
) -> tuple[Any, Any]:
    """Return the part of an interval that lies inside the bounds of a scale."""
    if lowest is not None and highest is not None and lowest > highest:
        raise _nothing(column, "the smallest value that it allows exceeds the largest")
    lowest = lower if lowest is None else max(lowest, lower)
    highest = upper if highest is None else min(highest, upper)
    if lowest > highest:
        raise _nothing(column, f"its schema has bounds {column.lower!r} and {column.upper!r}")
    return lowest, highest


def _nothing(column: Any, why: str) -> ValueError:
    return ValueError(
        f"No value of {column.name!r} lies in the interval that conditions asks for: {why}."
    )


def _time(column: Any, value: Any) -> pd.Timestamp:
    """Return a limit as the column's values are; without an offset it is in the column's zone."""
    zone = datetime_zone(column.dtype)
    try:
        stamp = pd.Timestamp("" if isinstance(value, Number) else value)  # a number is no time
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
