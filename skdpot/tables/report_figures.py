"""Figures of a quality report: distances to released counts or to public rows."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.tables.bins import bin_codes, project_to_total
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.frames import Table
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.losses import (
    RangePart,
    Side,
    losses_frame,
    missing_part,
    parts_of_categories,
    parts_of_scale,
)
from skdpot.tables.marginals import (
    PAIR_BINS,
    CodedTables,
    ColumnShares,
    as_columns,
    column_numbers,
    distance_by_chance,
    marginal_of,
    normalized_wasserstein_distance,
)
from skdpot.tables.model import TableModel
from skdpot.tables.reliability import cell_counts
from skdpot.tables.schema import TableSchema

_N_DRAWS = 100  # simulated noises per table
_SURE = 5.0  # standard deviations above the mean that count as more than noise
_ROUNDING = 1e-12  # of a distance
_FIGURES = ("total_variation", "expected", "limit", "beyond_noise")
SUMMARIES = ("mean", "std")
RANGES = ("smallest", "quantile_1", "quantile_99", "largest")
_LEVELS = (0.01, 0.99)  # the reported quantiles
_DRAWN_BINS = 24  # of a plotted column
_TAIL = 0.005  # share of the rows on each side that end intervals include


def compare_with_releases(
    model: TableModel,
    grids: Sequence[ColumnGrid],
    drawn: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Compare synthetic rows with the noisy counts that the model was fitted to."""
    values = [drawn[grid.column.name] for grid in grids]
    codes = np.stack([grid.codes(v) for grid, v in zip(grids, values, strict=True)], axis=1)
    marginals, columns = [], []
    parts: list[tuple[str, RangePart]] = []
    pairs: dict[tuple[str, ...], tuple[int, dict[str, Any]]] = {}  # in the finest table of each
    for place, (grid, noisy, drawn_values, cells) in enumerate(
        zip(grids, model.columns, values, codes.T, strict=True)
    ):
        shares = np.bincount(cells, minlength=grid.size) / len(codes)
        marginal, joined = drawn_marginal(grid, noisy, shares, model.n_rows, _DRAWN_BINS)
        marginals.append(marginal)
        columns.append(compare_counts(noisy, shares, joined, model.n_rows, len(codes), rng))
        name, sizes = grid.column.name, (model.n_rows, len(codes))
        if grid.column.figure == "number":
            columns[-1] |= figures_of_counts(grid, noisy)
            columns[-1] |= _figures_of_values(grid.column.numbers(drawn_values), "synthetic_")
        if grid.on_scale:
            given = Side.of_counts(grid, *cell_counts(model, place), model.n_rows)
            side = Side(given.values, shares[: grid.n_cells], len(codes))
            parts += [(name, part) for part in parts_of_scale(grid.column, given, side)]
        else:
            parts += [(name, part) for part in parts_of_categories(marginal, *sizes)]
        parts.append((name, missing_part(marginal, *sizes)))
    binned = bin_codes(codes, model.bins)
    for noisy in (noisy for noisy in model.marginals if len(noisy.marginal.columns) == 2):
        shares = noisy.marginal.counts(binned) / len(codes)
        names = tuple(grids[place].column.name for place in noisy.marginal.columns)
        if len(shares) > pairs.get(names, (0,))[0]:
            cells = np.arange(len(shares))
            figures = compare_counts(noisy, shares, cells, model.n_rows, len(codes), rng)
            pairs[names] = len(shares), figures
    listed = [(names, *pair) for names, pair in pairs.items()]
    compared = _compared([grid.column for grid in grids], columns, listed, marginals)
    return compared | {"losses": losses_frame(parts, by_noise=True)}


def compare_with_rows(schema: TableSchema, rows: Table, synthetic: Table) -> dict[str, Any]:
    """Compare synthetic rows with public ones."""
    both = [
        dict(zip(t.names, as_columns(t.data, "X").values(), strict=True)) for t in (rows, synthetic)
    ]
    real, drawn = ({c.name: c.compared(side[c.name]) for c in schema} for side in both)
    tables = CodedTables.of(real, drawn, PAIR_BINS)
    distances = normalized_wasserstein_distance(pd.DataFrame(real), pd.DataFrame(drawn))
    columns: list[dict[str, Any]] = []
    for place, column in enumerate(schema):
        columns.append(_compare_rows(tables, (place,))[1])
        columns[-1]["normalized_wasserstein"] = distances.get(column.name, np.nan)
        if column.figure == "number":
            for prefix, side in (("", real), ("synthetic_", drawn)):
                values = column_numbers(side[column.name], "number")
                columns[-1] |= _figures_of_values(values, prefix)
    pairs = [
        (tuple(schema.names[place] for place in pair), *_compare_rows(tables, pair))
        for pair in itertools.combinations(range(len(schema)), 2)
    ]
    marginals = [marginal_of(name, real[name], drawn[name], _DRAWN_BINS) for name in real]
    sizes, parts = (rows.n_rows, synthetic.n_rows), []
    for column, marginal in zip(schema, marginals, strict=True):
        found = [missing_part(marginal, *sizes)]
        if column.on_scale:
            scale: Any = column
            sides = [Side.of_rows(scale.numbers(table[column.name])) for table in both]
            found += parts_of_scale(column, *sides)
        else:
            found += parts_of_categories(marginal, *sizes)
        parts += [(column.name, part) for part in found]
    losses = losses_frame(parts, by_noise=False)
    return _compared(schema.columns, columns, pairs, marginals) | {"losses": losses}


def _compared(
    columns: Sequence[Any],
    figures: Sequence[dict[str, Any]],
    pairs: Sequence[tuple[tuple[str, ...], int, dict[str, Any]]],
    marginals: Iterable[ColumnShares],
) -> dict[str, Any]:
    """Return the tables of columns and of pairs, and the marginals to plot."""
    frame = pd.DataFrame(figures, pd.Index([column.name for column in columns], name="column"))
    figured = [*SUMMARIES, *RANGES]
    numbers = ["normalized_wasserstein", *figured, "mean_noise"]
    numbers = [name for name in numbers if name in frame or name in figured]
    numbers += [f"synthetic_{name}" for name in figured]
    frame = frame.reindex(columns=[*_FIGURES, *numbers]).astype(dict.fromkeys(numbers, "float64"))
    frame.insert(0, "kind", [column.kind for column in columns])
    index = pd.MultiIndex.from_tuples([names for names, *_ in pairs], names=["first", "second"])
    rows = [{"cells": cells} | figures for _, cells, figures in pairs]
    types = dict(zip(("cells", *_FIGURES), ("int64", *["float64"] * 3, "bool"), strict=True))
    table = pd.DataFrame(rows, index, list(types)).astype(types)
    return {"columns": frame, "pairs": table, "marginals": tuple(marginals)}


def _comparison(distance: float, expected: float, limit: float) -> dict[str, Any]:
    beyond = distance > limit + _ROUNDING
    return dict(zip(_FIGURES, (distance, expected, limit, beyond), strict=True))


def compare_counts(
    noisy: NoisyMarginal,
    synthetic: FloatArray,
    joined: IntArray,
    n_rows: int,
    n_samples: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the distance to noisy counts, and the distance that noise alone explains.

    Under the hypothesis that private rows have the synthetic shares, noisy counts and a sample of
    synthetic rows are simulated.
    """
    sizes = np.bincount(joined)
    counts, truth = (_sum_groups(part, joined) for part in (noisy.counts, synthetic))
    scales = noisy.sigma * np.sqrt(sizes)
    distance = _distance_to_counts(counts, truth, n_rows)
    draws = np.empty(_N_DRAWS)
    for draw in range(_N_DRAWS):
        sample = rng.multinomial(n_samples, truth / truth.sum()) / n_samples
        noise = scales * rng.standard_normal(len(sizes))
        draws[draw] = _distance_to_counts(n_rows * truth + noise, sample, n_rows)
    expected = float(draws.mean())
    return _comparison(distance, expected, expected + _SURE * float(draws.std(ddof=1)))


def _sum_groups(values: FloatArray, groups: IntArray) -> FloatArray:
    return np.bincount(groups, weights=values).astype(np.float64)


def _distance_to_counts(counts: FloatArray, shares: FloatArray, n_rows: int) -> float:
    possible = project_to_total(counts, n_rows) / n_rows
    return float(np.abs(possible - shares).sum() / 2)


def _compare_rows(tables: CodedTables, columns: tuple[int, ...]) -> tuple[int, dict[str, Any]]:
    """Return the number of cells of a marginal, and the comparison of two tables in it."""
    real, synthetic = tables.shares(columns)
    distance = float(np.abs(real - synthetic).sum() / 2)
    expected, limit = distance_by_chance(real, synthetic, tables.n_real, tables.n_synthetic)
    return len(real), _comparison(distance, expected, limit)


def _figures_of_values(values: FloatArray, prefix: str) -> dict[str, float]:
    """Return the summaries of the values of a column, NaN if missing."""
    present = values[~np.isnan(values)]
    if not present.size:
        return {}
    low, high = np.quantile(present, _LEVELS, method="inverted_cdf")
    found = (present.mean(), present.std(), present.min(), low, high, present.max())
    return {f"{prefix}{n}": float(f) for n, f in zip((*SUMMARIES, *RANGES), found, strict=True)}


def figures_of_counts(grid: ColumnGrid, noisy: NoisyMarginal) -> dict[str, float]:
    """Return the summaries that noisy counts of cells give, with values at mean values of cells.

    The mean lies within the values that stand out of the noise, so that noise on values that no row
    has does not make it negative. Quantiles beyond these are unknown.
    """
    values = column_numbers(grid.column.compared(grid.middles), "number")
    counts = noisy.counts[: grid.n_cells]
    total = counts.sum()
    if total <= noisy.sigma * np.sqrt(len(counts)):
        return dict.fromkeys((*SUMMARIES, *RANGES, "mean_noise"), np.nan)
    mean = float(counts @ values / total)
    variance = float(counts @ (values - mean) ** 2 / total)
    noise = np.full(len(counts), noisy.sigma**2)
    side = Side(values, counts / total, round(total), noise / total**2)
    least, most = side.ends()
    quantiles = side.quantiles(_LEVELS)
    low, high = np.where((least <= quantiles) & (quantiles <= most), quantiles, np.nan).tolist()
    return {
        "mean": float(np.clip(mean, least, most)),
        "std": float(np.sqrt(variance)) if variance >= 0.0 else np.nan,
        "smallest": least,
        "quantile_1": low,
        "quantile_99": high,
        "largest": most,
        "mean_noise": float(noisy.sigma * np.sqrt(((values - mean) ** 2).sum()) / total),
    }


def drawn_marginal(
    grid: ColumnGrid, noisy: NoisyMarginal, synthetic: FloatArray, n_rows: int, n_bins: int
) -> tuple[ColumnShares, IntArray]:
    """Return the noisy and the synthetic shares of one column, and the plotted bin per cell."""
    column = grid.column
    if grid.on_scale:
        ends = _drawn_edges(grid, synthetic[: grid.n_cells], n_bins)
        n_groups = len(ends) - 1
        joined = np.searchsorted(ends[1:-1], np.arange(grid.n_cells), side="right")
        values = _places_on_axis(grid, ends)
    else:
        n_groups = grid.n_cells
        joined = np.arange(n_groups)
        values = np.array(list(map(str, column.levels)), dtype=object)
    if column.missing:
        joined = np.append(joined, n_groups)
    real = project_to_total(_sum_groups(noisy.counts, joined), n_rows) / n_rows
    noise = noisy.sigma * np.sqrt(np.bincount(joined)) / n_rows
    order = np.arange(n_groups)
    if not grid.ordered:  # frequent categories first
        order = np.argsort(-real[:n_groups], kind="stable")
        values = values[order]
    parts = (real, _sum_groups(synthetic, joined), noise)
    lost = [float(part[-1]) if column.missing else 0.0 for part in parts]
    real, drawn, noise = (part[order] for part in parts)
    shares = ColumnShares(
        column.name,
        column.figure,
        values,
        real=real,
        synthetic=drawn,
        real_missing=lost[0],
        synthetic_missing=lost[1],
        real_deviations=noise,
        real_missing_deviation=lost[2],
    )
    return shares, joined


def _drawn_edges(grid: ColumnGrid, synthetic: FloatArray, n_bins: int) -> IntArray:
    """Return the first cell of each plotted bin, of about equal lengths, and the last end."""
    below = np.cumsum(synthetic)
    first, last = np.searchsorted(below, [_TAIL * below[-1], (1.0 - _TAIL) * below[-1]])
    stop = int(np.clip(last, first, len(below) - 1)) + 1
    if not grid.has_intervals:  # equally many values per bin
        width = -(-(stop - first) // n_bins)
        return np.append(np.arange(first, stop, width), stop)
    steps = grid.column.steps_at(np.asarray(grid.edges))
    even = np.linspace(steps[first], steps[stop], n_bins + 1)
    return np.unique(first + np.abs(steps[first : stop + 1] - even[:, None]).argmin(axis=1))


def _places_on_axis(grid: ColumnGrid, ends: IntArray) -> FloatArray:
    """Return the edges of bins on the axis."""
    column: Any = grid.column
    bounds = column.compared(column.from_unit([0.0, 1.0]))
    low, high = column_numbers(bounds, column.figure)
    places, whole = column.steps_at(np.asarray(grid.edges)[ends]), column.steps_at(np.ones(1))
    return low + places / (whole or 1.0) * ((high - low) or 1.0)
