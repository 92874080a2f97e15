"""Conditions on values, as shares of the cells that satisfy them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot.preprocessing.column_base import ColumnGrid
from skdpot.slicing.marginals import FloatArray

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
    lowest, highest, start, stop = grid.column.limits(lowest, highest)
    starts, stops = grid.starts, grid.stops
    overlap = np.minimum(stop + _ROUNDING, stops) - np.maximum(start - _ROUNDING, starts)
    lengths = stops - starts  # 0 for single values, which are in or out
    shares = np.where(lengths > 0.0, overlap / np.maximum(lengths, _ROUNDING), 1.0)
    kept = np.where(overlap >= 0.0, np.clip(shares, _POINT, 1.0), 0.0)
    kept = np.append(kept, 0.0) if grid.column.missing else kept
    return Condition(kept, (lowest, highest), (start, stop))
