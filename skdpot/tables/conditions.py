"""Conditions on columns, as shares of the cells that satisfy them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray
from skdpot.tables.grids import ColumnGrid

_POINT = 1e-9  # share of a cell that a single value of a continuum gets


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on one column."""

    kept: FloatArray  # share of each cell that satisfies it
    limits: tuple[Any, Any] | None = None  # smallest and largest value of an interval
    within: tuple[float, float] | None = None  # places of its ends

    def satisfied(self, grid: ColumnGrid, values: Any) -> npt.NDArray[np.bool_]:
        """Return which values satisfy the condition."""
        held: npt.NDArray[np.bool_] = self.kept[grid.codes(values)] > 0.0
        if self.within is not None:
            unit = grid.column.to_unit(values)
            held &= (self.within[0] <= unit) & (unit < self.within[1])
        return held

    def enforce(self, values: Any) -> Any:
        """Return drawn values, clipped to limits that rounding may have crossed."""
        if self.limits is None:
            return values
        series = pd.Series(values)
        if series.dtype.kind != "f":
            return series.clip(*self.limits).astype(series.dtype)
        lowest, highest = _limits_inside(np.dtype(series.dtype.name.lower()), *self.limits)
        return series.clip(lowest, highest)


def _limits_inside(dtype: np.dtype[Any], lowest: float, highest: float) -> tuple[Any, Any]:
    """Return limits in the data type, moved inside if possible."""
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
    parsed = {}
    for name, wanted in conditions.items():
        if name not in places:
            known = ", ".join(map(repr, places))
            raise ValueError(f"conditions names {name!r}; the columns are {known}.")
        parsed[places[name]] = _condition_on_column(grids[places[name]], wanted)
    return parsed


def _condition_on_column(grid: ColumnGrid, wanted: Any) -> Condition:
    """Return the condition of a value, an interval or several values."""
    name = grid.column.name
    if isinstance(wanted, np.ndarray) and wanted.ndim == 0:
        wanted = wanted.item()
    if isinstance(wanted, tuple) and grid.ordered:
        if len(wanted) != 2:
            raise ValueError(
                f"The condition on {name!r} must be one value or a tuple (smallest, largest), of "
                "which None is no limit."
            )
        interval = _condition_on_interval if grid.on_scale else _condition_on_categories
        return interval(grid, wanted[0], wanted[1])
    several = isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes, Mapping))
    if not several:
        return _condition_on_value(grid, wanted)
    values = list(wanted)
    if not values:
        raise ValueError(f"The condition on {name!r} lists no value.")
    if grid.on_scale and grid.has_intervals:
        raise ValueError(
            f"{name!r} is a scale with too many values for a list: give one value or a tuple "
            "(smallest, largest)."
        )
    if grid.on_scale:
        return Condition(np.max([_condition_on_value(grid, v).kept for v in values], axis=0))
    kept = np.zeros(grid.size)
    kept[[_cell_of_value(grid, value) for value in values]] = 1.0
    return Condition(kept)


def _condition_on_value(grid: ColumnGrid, value: Any) -> Condition:
    """Return the condition of one value."""
    if grid.on_scale and not _is_missing(value):
        return _condition_on_interval(grid, value, value)
    return Condition(np.eye(1, grid.size, _cell_of_value(grid, value))[0])


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, NaT or NA."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _cell_of_value(grid: ColumnGrid, value: Any) -> int:
    """Return the cell of a category, or of missing values."""
    if not _is_missing(value):
        return _place_of_category(grid, value)
    if not grid.column.missing:
        raise ValueError(f"Values of {grid.column.name!r} are never missing (see its schema).")
    return grid.n_cells


def _condition_on_categories(grid: ColumnGrid, first: Any, last: Any) -> Condition:
    """Return the condition of an interval of categories."""
    column: Any = grid.column
    start = 0 if first is None else _place_of_category(grid, first)
    # Without a limit it ends at the last category; the one for other values is not above.
    stop = len(column.categories) - 1 if last is None else _place_of_category(grid, last)
    if start > stop:
        raise ValueError(
            f"No category of {column.name!r} lies in the interval that conditions asks for: the "
            "first comes after the last in the order of its categories."
        )
    places = np.arange(grid.size)
    return Condition(((start <= places) & (places <= stop)).astype(np.float64))


def _place_of_category(grid: ColumnGrid, value: Any) -> int:
    """Return the place of a category."""
    place: int | None = grid.column.level(value)
    if place is None:
        levels = grid.column.levels
        raise ValueError(
            f"{grid.column.name!r} cannot be {value!r}; its categories are "
            f"{', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}."
        )
    return place


def _condition_on_interval(grid: Any, lowest: Any, highest: Any) -> Condition:
    lowest, highest, first, last = grid.column.limits(lowest, highest)
    within = grid.column.ends(np.array([first, last]))
    start, stop = float(within[0][0]), float(within[1][1])
    overlap = np.minimum(stop, grid.edges[1:]) - np.maximum(start, grid.edges[:-1])
    shares = grid.kept(start, stop)
    kept = np.where(overlap > 0.0, np.clip(shares, _POINT, 1.0), 0.0)
    kept = np.append(kept, 0.0) if grid.column.missing else kept
    return Condition(kept, (lowest, highest), (start, stop))
