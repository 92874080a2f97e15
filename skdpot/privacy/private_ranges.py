"""Private ranges of columns of which some values may be missing.

The release is that of `skdpot.privacy.private_bounds` in mode "features": for each column a noisy
histogram of the differences of random pairs, which gives a unit, and one of the values in cells
of that unit. A row without a value is in no cell, a pair without one neither: replacing a record
still takes at most one count away and adds at most one, in each histogram. Only what is read from
the tables differs: two bounds that hold nearly all values, rather than a centre and a scale. All
of that is post-processing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from skdpot._utils.rng import Streams
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.noisy_histogram import (
    Counting,
    FloatArray,
    IntArray,
    noisy_histogram,
    noisy_quantiles,
)

__all__ = ["ColumnRange", "release_ranges"]

BoolArray = npt.NDArray[np.bool_]

_PAIR_MEDIAN = math.sqrt(2) * float(ndtri(0.75))  # of |x - x'| for two standard normal numbers
_DEVIATIONS = 3.0  # of a normal distribution, to reach beyond its quantiles
_LEAST_UNITS = 1.5
_LEVELS = (0.005, 0.05)
_CELLS_KEPT = 64  # about so many, of which the noise is in a cumulative count
_CELLS_BESIDE_ZERO = 32
_SILENT = 4.0  # standard deviations of the noise that tell nothing from something,
_AT_STAKE = 0.2  # unless so many of the rows could be hidden in them
_FINITE = 1e300


@dataclass(frozen=True)
class ColumnRange:
    """Bounds that hold nearly all values of one column."""

    lower: float
    upper: float
    found: bool


_NOTHING = ColumnRange(-4.0, 4.0, False)


def release_ranges(
    columns: Sequence[FloatArray], plan: BoundsPlan, streams: Streams
) -> tuple[ColumnRange, ...]:
    """Release a range of each column. Charge ``plan.event`` first.

    Privacy
    -------
    Releases two noisy histograms a column. ``plan.event`` under replace-one; the number of rows is
    public, that of missing values is not told.

    Notes
    -----
    The bounds are the quantiles at the level that the noise allows, between 0.5 and 5 %, moved
    outwards to where three standard deviations of a normal distribution would end, and at least to
    one and a half spreads from the median. Where nothing
    below zero stands out from the noise, zero is the lower bound of numbers that are otherwise
    above it, and the same with the signs changed.
    """
    shape = (plan.n_samples, plan.n_features)
    if len(columns) != shape[1] or any(len(column) != shape[0] for column in columns):
        raise ValueError(f"The plan is for {shape[1]} columns of {shape[0]} rows.")
    order = streams.public.permutation(plan.n_samples)[: plan.n_used]
    units = [_unit(column[order], j, order, plan, streams) for j, column in enumerate(columns)]
    return tuple(
        _range(column[order], j, order, unit, plan, streams)
        for j, (column, unit) in enumerate(zip(columns, units, strict=True))
    )


def _unit(
    used: FloatArray, feature: int, order: IntArray, plan: BoundsPlan, streams: Streams
) -> float | None:
    """Return the spread of a column; None if it is constant or nothing stands out."""
    if not plan.noises:
        return None
    grid, noise = plan.spread_grid, plan.noises[0]
    shape = plan.n_samples, plan.n_features
    counting = Counting(grid=grid, order=order, shape=shape, feature=feature, paired=True)
    table = noisy_histogram(used, counting, noise, streams.secret, plan.event)
    smoothing = plan.spread_smoothing
    median = noisy_quantiles(table[1:], grid.log2_edges, (0.5,), noise.sigma, smoothing)
    return None if median is None else float(np.exp2(median[0])) / _PAIR_MEDIAN


def _range(
    used: FloatArray,
    feature: int,
    order: IntArray,
    unit: float | None,
    plan: BoundsPlan,
    streams: Streams,
) -> ColumnRange:
    """Return the range of one column."""
    if not plan.noises:  # nothing is private
        present = used[~np.isnan(used)]
        present = np.clip(present, -_FINITE / 10, _FINITE / 10)
        if present.size:
            return ColumnRange(float(present.min()), float(present.max()), True)
        return _NOTHING
    grid, noise = plan.center_grid, plan.noises[1]
    width = (unit or 1.0) / plan.cells_per_spread
    shape = plan.n_samples, plan.n_features
    counting = Counting(grid=grid, order=order, shape=shape, feature=feature, width=width)
    table = noisy_histogram(used, counting, noise, streams.secret, plan.event)
    level = float(np.clip(3 * noise.sigma * math.sqrt(_CELLS_KEPT) / plan.n_used, *_LEVELS))
    levels = (level, 0.5, 1 - level)
    found = noisy_quantiles(table, grid.edges, levels, noise.sigma, plan.center_smoothing)
    if found is None:
        return _NOTHING
    low, median, high = map(float, found)
    if low > grid.edges[-2] or high < grid.edges[1]:
        return _NOTHING  # in the outermost cell, which has no end
    reach = -float(ndtri(level))
    beyond = (high - low) * (_DEVIATIONS - reach) / (2 * reach)
    # Values that differ at all differ by about a unit, also where most are equal.
    least = 0.0 if unit is None else _LEAST_UNITS * plan.cells_per_spread
    lower, upper = min(low - beyond, median - least), max(high + beyond, median + least)
    zero, beside = grid.n_cells // 2, _CELLS_BESIDE_ZERO
    silent = _SILENT * noise.sigma * math.sqrt(beside)
    if silent <= _AT_STAKE * plan.n_used:
        if lower < 0 <= high and table[zero - beside : zero].sum() < silent:
            lower = 0.0
        if upper > 0 >= low and table[zero + 1 : zero + 1 + beside].sum() < silent:
            upper = 0.0
    return ColumnRange(lower * width, max(upper, lower) * width, True)
