"""Synthetic rows beside the noisy counts they were fitted to, or beside public rows.

Also what a reader of such a comparison must be warned of, from released facts alone.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import isotonic_regression

from skdpot.metrics.marginals import (
    PAIR_BINS,
    CodedTables,
    Marginal,
    as_columns,
    column_numbers,
    distance_by_chance,
    marginal_of,
    normalized_wasserstein_distance,
)
from skdpot.preprocessing.column_base import ColumnGrid, TableColumn
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal
from skdpot.tables.coarsening import ColumnBins, project_to_total
from skdpot.tables.model import TableModel

__all__ = [
    "NUMBERS",
    "OF_ROWS",
    "TableComparison",
    "cautions_of",
    "compare_with_releases",
    "compare_with_rows",
]

_N_DRAWS = 100  # of noise, for what it explains
_SURE = 5.0  # standard deviations above what noise explains
_ROUNDING = 1e-12
_DRAWN_BINS = 24
_FIGURES = ("total_variation", "expected", "limit", "beyond_noise")
NUMBERS = ("mean", "std", "quantile_99")
_HIGH = 0.99
_TAIL = 0.005  # of the rows, on each side, that end intervals take in
_MOST_TICKS = 4

OF_ROWS = (
    "This report was computed, without noise, from rows that were handed to it. They count as "
    "public. If they are not, this report is as confidential as they are: make another one "
    "without rows for everybody else."
)
_FEWEST_VALUES = 16  # of a scale, for its ends to be compared with their neighbours
_NEAR = 8  # cells beside a bound
_PILE_SHARE = 0.01  # of the rows in the cell of a bound,
_PILE_SEEN = 5.0  # standard deviations of its noise,
_PILE_RATIO = 2.0  # and times the largest of the neighbours: such is a pile
_SEED = "nobody knows random_state"


@dataclass(frozen=True, eq=False)
class TableComparison:
    """How far synthetic rows are from what they are compared with."""

    columns: pd.DataFrame
    pairs: pd.DataFrame
    marginals: tuple[Marginal, ...]


def compare_with_releases(
    model: TableModel,
    grids: Sequence[ColumnGrid],
    synthetic: Table,
    rng: np.random.Generator,
) -> TableComparison:
    """Compare synthetic rows with the noisy counts that the model was fitted to."""
    parts = {grid.column.name: synthetic.read(grid.column) for grid in grids}
    cells = np.stack([grid.codes(parts[grid.column.name]) for grid in grids], axis=1)
    drawn = []
    figures = []
    for place, (grid, noisy) in enumerate(zip(grids, model.columns, strict=True)):
        shares = np.bincount(cells[:, place], minlength=grid.size) / len(cells)
        marginal, joined = drawn_marginal(grid, noisy, shares, model.n_rows, _DRAWN_BINS)
        drawn.append(marginal)
        figures.append(_misfit(noisy, shares, joined, model.n_rows, len(cells), rng))
    columns = [grid.column for grid in grids]
    frame = _columns_frame(columns, figures)
    released = {
        grid.column.name: numbers_of_counts(grid, noisy)
        for grid, noisy in zip(grids, model.columns, strict=True)
        if grid.column.figure == "number"
    }
    drawn_numbers = {
        name: _numbers_of_values(grid.column.numbers(parts[name]))
        for grid in grids
        if (name := grid.column.name) in released
    }
    frame = frame.join(_numbers_beside(columns, released, drawn_numbers))
    binned = np.empty(cells.shape, dtype=np.int64)
    for place, bins in enumerate(model.bins):
        binned[:, place] = bins.bins[cells[:, place]]
    rows = []
    for noisy in model.marginals:
        shares = noisy.marginal.counts(binned) / len(cells)
        joined = np.arange(len(shares))
        names = [grids[place].column.name for place in noisy.marginal.columns]
        found = _misfit(noisy, shares, joined, model.n_rows, len(cells), rng)
        rows.append((*names, len(shares), *found))
    return TableComparison(frame, _pairs_frame(rows), tuple(drawn))


def compare_with_rows(schema: TableSchema, rows: Table, synthetic: Table) -> TableComparison:
    """Compare synthetic rows with public ones."""
    real, drawn = (_compared(table, schema) for table in (rows, synthetic))
    tables = CodedTables.of(real, drawn, PAIR_BINS)
    figures = [_difference(tables, (place,))[1:] for place in range(len(schema))]
    frame = _columns_frame(schema.columns, figures)
    distances = normalized_wasserstein_distance(pd.DataFrame(real), pd.DataFrame(drawn))
    frame["normalized_wasserstein"] = distances.reindex(frame.index)
    numbers = (
        {
            column.name: _numbers_of_values(column_numbers(side[column.name], "number"))
            for column in schema
            if column.figure == "number"
        }
        for side in (real, drawn)
    )
    frame = frame.join(_numbers_beside(schema.columns, *numbers))
    pairs = [
        (*(schema.columns[place].name for place in pair), *_difference(tables, pair))
        for pair in itertools.combinations(range(len(schema)), 2)
    ]
    marginals = tuple(marginal_of(name, real[name], drawn[name], _DRAWN_BINS) for name in real)
    return TableComparison(frame, _pairs_frame(pairs), marginals)


def _compared(table: Table, schema: TableSchema) -> dict[str, pd.Series]:
    """Return the columns of the schema, each of the kind that it states."""
    found = dict(zip(table.names, as_columns(table.data, "X").values(), strict=True))
    return {column.name: column.compared(found[column.name]) for column in schema}


def _misfit(
    noisy: NoisyMarginal,
    synthetic: FloatArray,
    joined: IntArray,
    n_rows: int,
    n_samples: int,
    rng: np.random.Generator,
) -> tuple[float, float, float, bool]:
    """Return the distance to noisy counts, and what the noise alone would make of it.

    If the synthetic shares are those of the private rows, then noisy counts of them are the
    private ones plus noise, and the synthetic rows at hand a sample: both are drawn anew.
    """
    n_cells = int(joined.max()) + 1
    counts, truth = (_join(part, joined, n_cells) for part in (noisy.counts, synthetic))
    sizes = np.bincount(joined, minlength=n_cells)
    scales = noisy.sigma * np.sqrt(sizes)
    found = _distance(counts, truth, n_rows)
    draws = np.empty(_N_DRAWS)
    for draw in range(_N_DRAWS):
        sample = rng.multinomial(n_samples, truth / truth.sum()) / n_samples
        noise = scales * rng.standard_normal(n_cells)
        draws[draw] = _distance(n_rows * truth + noise, sample, n_rows)
    expected = float(draws.mean())
    limit = expected + _SURE * float(draws.std(ddof=1))
    return found, expected, limit, found > limit + _ROUNDING


def _distance(counts: FloatArray, shares: FloatArray, n_rows: int) -> float:
    possible = project_to_total(counts, n_rows) / n_rows
    return float(np.abs(possible - shares).sum() / 2)


def _join(values: npt.ArrayLike, groups: IntArray, n_groups: int) -> FloatArray:
    return np.bincount(groups, weights=np.asarray(values), minlength=n_groups).astype(np.float64)


def _difference(
    tables: CodedTables, columns: tuple[int, ...]
) -> tuple[int, float, float, float, bool]:
    real, synthetic = tables.shares(columns)
    found = float(np.abs(real - synthetic).sum() / 2)
    expected, limit = distance_by_chance(real, synthetic, tables.n_real, tables.n_synthetic)
    return len(real), found, expected, limit, found > limit + _ROUNDING


def _columns_frame(columns: Sequence[TableColumn], figures: Sequence[tuple[Any, ...]]) -> Any:
    index = pd.Index([column.name for column in columns], name="column")
    frame = pd.DataFrame(figures, index, columns=list(_FIGURES))
    frame.insert(0, "kind", [column.kind for column in columns])
    return frame


def _pairs_frame(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["first", "second", "cells", *_FIGURES])
    types = {"cells": "int64", "beyond_noise": "bool"} | dict.fromkeys(_FIGURES[:3], "float64")
    return frame.astype(types).set_index(["first", "second"])


def drawn_marginal(
    grid: ColumnGrid, noisy: NoisyMarginal, synthetic: FloatArray, n_rows: int, n_bins: int
) -> tuple[Marginal, IntArray]:
    """Return the noisy and the synthetic shares of one column."""
    if grid.on_scale:
        places, n_places = _places(grid)
        first, width, n_groups = _intervals(places, synthetic[: grid.n_cells], n_bins)
        joined = np.clip((places - first) // width, 0, n_groups - 1)
        edges = first + width * np.arange(n_groups + 1.0)
        values, ticks = _axis(grid, edges, n_places)
    else:
        n_groups, ticks = grid.n_cells, ()
        joined = np.arange(grid.n_cells)
        values = np.array(list(map(str, grid.column.levels)), dtype=object)
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
        grid.column.figure,
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
    if column.log_scale:
        return unit, _log_ticks(column, unit)
    ends = column.compared(column.from_unit([0.0, 1.0]))
    low, high = column_numbers(ends, column.figure)
    if low == high:
        high = low + 1.0
    return low + unit * (high - low), ()


def _log_ticks(column: Any, unit: FloatArray) -> tuple[tuple[float, str], ...]:
    """Return some round distances from the lower bound that lie between the edges."""
    lower, upper = float(column.lower or 0.0), float(column.upper or 0.0)
    powers = 10.0 ** np.arange(0, 16)
    steps = np.concatenate(([0.0], powers[powers < upper - lower]))
    values = lower + steps
    places = column.to_unit(pd.Series(values))
    kept = np.flatnonzero((places >= unit[0]) & (places <= unit[-1]))
    kept = kept[:: -(-len(kept) // _MOST_TICKS) or 1]
    return tuple((float(places[k]), f"{values[k]:,.4g}") for k in kept)


def _numbers_of_values(values: FloatArray) -> dict[str, float]:
    """Return the figures of a column of rows, NaN where a value is missing."""
    present = values[~np.isnan(values)]
    if not present.size:
        return dict.fromkeys(NUMBERS, np.nan)
    high = np.quantile(present, _HIGH, method="inverted_cdf")
    figures = (present.mean(), present.std(), high)
    return dict(zip(NUMBERS, map(float, figures), strict=True))


def numbers_of_counts(grid: ColumnGrid, noisy: NoisyMarginal) -> dict[str, float]:
    """Return the figures that noisy counts of cells give, each value in the middle of its cell.

    Counts are taken as they are: cut off below zero, the noise of empty cells would become a tail.
    """
    middle = (np.asarray(grid.starts) + np.asarray(grid.stops)) / 2
    column: Any = grid.column
    values = column_numbers(column.compared(column.from_unit(middle)), "number")
    order = np.argsort(values, kind="stable")
    values, counts = values[order], noisy.counts[: grid.n_cells][order]
    total = counts.sum()
    if total <= noisy.sigma * np.sqrt(len(counts)):
        return dict.fromkeys((*NUMBERS, "mean_noise"), np.nan)
    mean = float(counts @ values / total)
    variance = float(counts @ (values - mean) ** 2 / total)
    below: FloatArray = isotonic_regression(np.cumsum(counts)).x
    place = int(np.searchsorted(below, _HIGH * below[-1]))
    return {
        "mean": mean,
        "std": float(np.sqrt(variance)) if variance >= 0.0 else np.nan,
        "quantile_99": float(values[place]),
        "mean_noise": float(noisy.sigma * np.sqrt(((values - mean) ** 2).sum()) / total),
    }


def _numbers_beside(
    columns: Sequence[TableColumn],
    compared: Mapping[str, Mapping[str, float]],
    synthetic: Mapping[str, Mapping[str, float]],
) -> pd.DataFrame:
    """Return the figures of both sides, a row for each column, NaN for what is no number."""
    names = [column.name for column in columns]
    sides = [pd.DataFrame.from_dict(dict(side), orient="index") for side in (compared, synthetic)]
    noise = ["mean_noise"] if "mean_noise" in sides[0].columns else []
    found = sides[0].reindex(index=names, columns=[*NUMBERS, *noise])
    drawn = sides[1].reindex(index=names, columns=list(NUMBERS)).add_prefix("synthetic_")
    return found.join(drawn).astype(np.float64).rename_axis("column")


def cautions_of(
    schema: TableSchema,
    spent: PrivacySpent,
    model: TableModel,
    grids: Sequence[ColumnGrid],
    *,
    of_rows: bool,
) -> tuple[str, ...]:
    """Return all warnings, the gravest first."""
    general = _of_the_fit(schema, spent, of_rows)
    return (*general, *_of_columns(model, grids))


def _of_the_fit(schema: TableSchema, spent: PrivacySpent, of_rows: bool) -> Iterator[str]:
    if of_rows:
        yield OF_ROWS
    if math.isinf(spent.epsilon):
        yield (
            "The synthesizer was fitted without noise: ε is infinite, and neither its rows nor "
            "this report are private."
        )
    if _SEED in spent.assumptions:
        yield (
            "The synthesizer was fitted with a random_state. Whoever knows it can remove the "
            "noise; for a release leave it None."
        )
    if schema.guessed:
        yield (
            "The schema was guessed from the values and never confirmed: what stands in it is not "
            "protected. Check it, and call confirm()."
        )


def _of_columns(model: TableModel, grids: Sequence[ColumnGrid]) -> Iterator[str]:
    blank: list[str] = []
    alone: list[str] = []
    lumped: list[str] = []
    clipped: list[str] = []
    for grid, noisy, bins in zip(grids, model.columns, model.bins, strict=True):
        if grid.n_cells == 1:
            alone.append(grid.column.name)
        elif _is_blank(grid, noisy, bins, model.n_rows):
            blank.append(grid.column.name)
        else:
            lumped.extend(_lumped(grid, bins))
            clipped.extend(_clipped(grid, noisy, model.n_rows))
    if alone:
        yield f"A single value is possible, and every synthetic row has it, in {_listed(alone)}."
    if blank:
        yield (
            f"Nothing stands out of the noise in {_listed(blank)}: the synthetic values say "
            "hardly more than the schema does. Use more rows, a larger ε, fewer columns, or "
            "narrower bounds and fewer categories."
        )
    yield from clipped
    yield from lumped


def _is_blank(grid: ColumnGrid, noisy: NoisyMarginal, bins: ColumnBins, n_rows: int) -> bool:
    """Whether nothing is known of the values of a column: no bin stands out of the noise."""
    counts = noisy.counts[: grid.n_cells]
    groups = bins.bins[: grid.n_cells]
    if len(np.unique(groups)) == 1:  # one value, perhaps, that nearly all rows have
        groups = np.arange(grid.n_cells)
    sums, sizes = np.bincount(groups, weights=counts), np.bincount(groups)
    # The largest of k noises is hardly ever larger than this many standard deviations.
    seen = math.sqrt(2 * math.log(2 * len(sums))) + 1
    visible = seen * noisy.sigma * np.sqrt(sizes)
    return bool((np.minimum(sums, n_rows) <= visible).all())


def _clipped(grid: ColumnGrid, noisy: NoisyMarginal, n_rows: int) -> Iterator[str]:
    """Say where rows pile up at a bound, as clipped values do.

    A few possible values may well pile up at an end, and amounts at zero: these are left out.
    """
    if not grid.on_scale or grid.n_cells < _FEWEST_VALUES:
        return
    column: Any = grid.column
    counts = noisy.counts[: grid.n_cells]
    for side, bound, inwards in (
        ("lower", column.lower, counts),
        ("upper", column.upper, counts[::-1]),
    ):
        at, near = inwards[0], inwards[1 : 1 + _NEAR]
        least = max(_PILE_SHARE * n_rows, _PILE_SEEN * noisy.sigma)
        if bound == 0 or at < least or at < _PILE_RATIO * near.max():
            continue
        beyond = "smaller" if side == "lower" else "larger"
        shown = f"{bound:,.12g}" if isinstance(bound, Real) else bound
        yield (
            f"About {100 * min(at / n_rows, 1.0):.2g} % of the rows are at the {side} bound of "
            f"{column.name!r}, {shown}: {beyond} values, if there were any, were clipped to it. "
            "Widen the bound in the schema if there can be such."
        )


def _lumped(grid: ColumnGrid, bins: ColumnBins) -> Iterator[str]:
    """Say which categories share a bin."""
    if grid.on_scale:
        return
    present = bins.bins[: grid.n_cells]
    for group in np.flatnonzero(np.bincount(present) > 1):
        members = np.flatnonzero(present == group)
        share = 100 * float(bins.cell_shares[members].sum())
        size = f"about {share:.2g} %" if share >= 0.1 else "less than 0.1 %"
        column = grid.column
        levels = column.levels
        yield (
            f"{column.name!r}: {len(members)} of {grid.n_cells} categories are too rare to be told "
            f"apart, with {size} of the rows together: "
            f"{_listed([str(levels[member]) for member in members])}. How they relate to other "
            "columns is known of all of them together only."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
