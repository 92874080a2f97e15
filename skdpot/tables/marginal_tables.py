"""Noisy contingency tables as data frames, and models of published ones.

Everything here is computed from released counts.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.privacy.events import Event
from skdpot.tables.bins import ColumnBins, bins_in_order, coarsen
from skdpot.tables.candidates import TARGET_IMPORTANCE, sampling_misfit
from skdpot.tables.cells import combined
from skdpot.tables.conditions import parse_conditions
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import release_of, tables_of
from skdpot.tables.model import TableModel
from skdpot.tables.plan import MOST_GROUPS
from skdpot.tables.schema import TableSchema
from skdpot.tables.tree import fit_tree, spanning_tree

PUBLISHED = "given"  # kind of the releases of a model of published tables
_COUNT, _ERROR, _RELEASES = "count", "standard_error", "n_releases"
# The counts of a table may miss the number of rows by this many standard deviations, or this share.
_SURE, _AMISS = 10.0, 0.1


def frames_of(model: TableModel) -> tuple[pd.DataFrame, ...]:
    """Return the tables of each column, then of several columns, with one row per cell."""
    frames = []
    for place, (noisy, grid) in enumerate(zip(model.columns, model.grids, strict=True)):
        rounds = [
            table
            for release in model.releases[: model.n_rounds]
            for table in tables_of(release)
            if table.marginal.columns == (place,) and table.marginal.levels != (0,)
        ]
        counts, errors = combined(rounds) if noisy.sigma > 0.0 else (noisy.counts, noisy.sigma)
        frames.append(_counts_frame(noisy.marginal, [grid], [np.arange(grid.size)], counts, errors))
        frames[-1][_RELEASES] = len(rounds)
    for noisy in model.marginals:
        places, groups = noisy.marginal.columns, noisy.marginal.groups
        parts = [part[model.bins[c].bins] for c, part in zip(places, groups, strict=True)]
        grids = [model.grids[c] for c in places]
        frames.append(_counts_frame(noisy.marginal, grids, parts, noisy.counts, noisy.sigma))
        frames[-1][_RELEASES] = noisy.n_releases
    return tuple(frames)


def _counts_frame(
    marginal: Marginal,
    grids: Sequence[ColumnGrid],
    parts: Sequence[IntArray],
    counts: FloatArray,
    errors: FloatArray | float,
) -> pd.DataFrame:
    cells = np.indices(marginal.shape).reshape(len(grids), -1)
    frame = {
        grid.column.name: labels_of(grid, groups).take(axis).array
        for grid, groups, axis in zip(grids, parts, cells, strict=True)
    }
    return pd.DataFrame(frame | {_COUNT: counts, _ERROR: errors})


def labels_of(grid: ColumnGrid, parts: IntArray) -> pd.Series:
    """Return the label of each part of the cells: a value, a tuple of categories, an interval."""
    column, cells = grid.column, parts[: grid.n_cells]
    n_parts = int(cells.max()) + 1
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], np.arange(n_parts))
    if grid.on_scale:
        lows, highs = grid.ends()
        low, high = lows[order[starts]], highs[order[np.append(starts[1:], len(order)) - 1]]
        between = pd.arrays.IntervalArray.from_arrays(low, high, closed="both")
        labels = pd.Series(low if (low == high).all() else between)
    elif n_parts == len(cells):
        labels = column.from_codes(order)
    else:
        members = np.split(column.from_codes(order).astype(object).to_numpy(), starts[1:])
        labels = pd.Series(list(map(tuple, members)), dtype=object)
    if n_parts > parts.max():
        return labels
    if labels.dtype.kind in "ib":
        labels = labels.convert_dtypes()  # nullable, for the part of missing values
    return labels.reindex(range(n_parts + 1))


@dataclass(frozen=True, eq=False)
class _PublishedTable:
    """A published table: the labels of its axes and its counts."""

    name: str
    columns: tuple[int, ...]
    labels: tuple[list[Any], ...]
    counts: FloatArray
    sigma: float

    def summed(self, axes: Sequence[int]) -> tuple[FloatArray, float]:
        """Return the counts by some of the axes, and their noise."""
        others = tuple(axis for axis in range(self.counts.ndim) if axis not in axes)
        size = math.prod(self.counts.shape[axis] for axis in others)
        return self.counts.sum(axis=others), self.sigma * math.sqrt(size)


def fit_published(
    marginals: Iterable[pd.DataFrame],
    schema: TableSchema,
    n_rows: int,
    target: int | None,
    n_particles: int,
    rng: np.random.Generator,
    event: Event,
) -> TableModel:
    """Fit a model to published tables; no private row is read."""
    published = [
        _read_published(f"marginals[{place}]", table, schema, n_rows)
        for place, table in enumerate(marginals)
    ]
    columns = [
        _publish_column(column, place, published, n_rows) for place, column in enumerate(schema)
    ]
    grids, bins = tuple(column.grid for column in columns), tuple(c.bins for c in columns)
    tables: list[NoisyMarginal] = []
    pairs: list[NoisyMarginal] = []
    for table in (table for table in published if len(table.columns) > 1):
        groups = [
            columns[place].parts[table.name][np.unique(bins[place].bins, return_index=True)[1]]
            for place in table.columns
        ]
        numbered = (len(tables),) * len(groups)  # two tables of the same columns are both kept
        whole = Marginal(table.columns, tuple(groups), numbered)
        tables.append(NoisyMarginal(whole, table.counts.ravel(), table.sigma))
        for axes in itertools.combinations(range(len(groups)), 2):
            counts, sigma = table.summed(axes)
            pair = Marginal(
                tuple(table.columns[axis] for axis in axes), tuple(groups[axis] for axis in axes)
            )
            pairs.append(NoisyMarginal(pair, counts.ravel(), sigma))
    nodes, chosen = _strongest_tree(pairs, bins, n_rows, target)
    shares, in_order = [column.shares for column in bins], bins_in_order(bins, grids)
    tree = fit_tree(nodes, shares, chosen, n_rows, target, in_order)
    single = [column.counts for column in columns]
    releases = [replace(release_of(p, event), kind=PUBLISHED) for p in (single, tables) if p]
    model = TableModel(n_rows, tuple(releases[:1]), bins, tree, (), grids)
    particles = model.particles(n_particles, rng)
    return replace(model, releases=tuple(releases)).fitted(particles)


@dataclass(frozen=True, eq=False)
class _PublishedColumn:
    """Cells of a column, their counts, their bins, and the label of each table per cell."""

    grid: ColumnGrid
    counts: NoisyMarginal
    bins: ColumnBins
    parts: dict[str, IntArray]


def _publish_column(
    column: Any, place: int, published: Sequence[_PublishedTable], n_rows: int
) -> _PublishedColumn:
    """Return the counts of a column from its finest table, or the least noisy of several."""
    axes = {t.name: (t, t.columns.index(place)) for t in published if place in t.columns}
    if not axes:
        raise ValueError(f"marginals has no table with the column {column.name!r}.")
    grid = grid_within(column, [label for t, axis in axes.values() for label in t.labels[axis]])
    parts = {name: labelled_parts(grid, t.labels[axis], name) for name, (t, axis) in axes.items()}
    best, axis = min(
        axes.values(), key=lambda t: (-t[0].counts.shape[t[1]], t[0].summed([t[1]])[1])
    )
    counts, sigma = best.summed([axis])
    cells = parts[best.name]
    shares = grid.weights / np.bincount(cells, grid.weights)[cells]
    noisy = NoisyMarginal(
        Marginal((place,), (np.arange(grid.size),)), counts[cells] * shares, sigma
    )
    single = coarsen([noisy], grid, n_rows, MOST_GROUPS)
    joint = [parts[name] for name, (t, _) in axes.items() if len(t.columns) > 1]
    _, bins = np.unique([single.bins, *joint], axis=1, return_inverse=True)
    joined = ColumnBins(bins.reshape(-1), single.cell_shares, np.arange(int(bins.max()) + 1))
    return _PublishedColumn(grid, noisy, joined, parts)


def _strongest_tree(
    pairs: Sequence[NoisyMarginal], bins: Sequence[ColumnBins], n_rows: int, target: int | None
) -> tuple[Any, dict[tuple[int, ...], NoisyMarginal]]:
    """Return the tree of the pairs farthest from independence, beyond chance and noise."""
    n_columns = len(bins)
    possible: Iterable[tuple[int, ...]] = itertools.combinations(range(n_columns), 2)
    gains = dict.fromkeys(possible, 0.0)
    best: dict[tuple[int, ...], NoisyMarginal] = {}
    for noisy in pairs:
        pair = noisy.marginal.columns
        independent = noisy.marginal.joined(n_rows * np.outer(*(bins[c].shares for c in pair)))
        chance = sampling_misfit(independent, n_rows)
        noise = math.sqrt(2.0 / math.pi) * noisy.sigma * len(noisy.counts)
        gain = float(np.abs(noisy.counts - independent).sum()) - chance - noise
        gain *= TARGET_IMPORTANCE if target in pair else 1.0
        if gain > gains[pair]:
            gains[pair], best[pair] = gain, noisy
    columns = [column for column in range(n_columns) if column != target]
    return spanning_tree(gains, columns), best


def _read_published(name: str, table: Any, schema: TableSchema, n_rows: int) -> _PublishedTable:
    """Read one table; its cells must be all combinations of the labels of its columns."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{name} must be a DataFrame, got {type(table).__name__}.")
    names = [column for column in schema.names if column in table]
    if not names or not {_COUNT, _ERROR} <= set(table.columns):
        raise ValueError(
            f"{name} must have columns of the schema, and the columns {_COUNT!r} and {_ERROR!r}, "
            "the standard deviation of the noise on each count."
        )
    counts, errors = (table[column].to_numpy(dtype=np.float64) for column in (_COUNT, _ERROR))
    if not (np.isfinite(counts).all() and np.isfinite(errors).all() and (errors >= 0.0).all()):
        raise ValueError(f"{name} must have finite counts and standard errors of at least 0.")
    codes, labels = [], []
    for column in names:
        values = [plain_label(value) for value in table[column].astype(object)]
        first = {value: place for place, value in enumerate(dict.fromkeys(values))}
        codes.append([first[value] for value in values])
        labels.append(list(first))
    shape = tuple(map(len, labels))
    cells: IntArray = np.ravel_multi_index(tuple(np.array(codes, dtype=np.int64)), shape)
    if not np.array_equal(np.sort(cells), np.arange(math.prod(shape))):
        raise ValueError(
            f"{name} must have one row for each of the {' × '.join(map(str, shape))} combinations "
            f"of {', '.join(names)}; it has {len(cells)} rows. Empty cells have noisy counts too."
        )
    # All cells of a table are fitted with its mean noise.
    sigma = math.sqrt(float(np.mean(errors**2)))
    if abs(counts.sum() - n_rows) > max(_SURE * sigma * math.sqrt(len(cells)), _AMISS * n_rows):
        raise ValueError(f"The counts of {name} add up to {counts.sum():,.0f}, not to n_samples.")
    ordered = counts[np.argsort(cells)].reshape(shape)
    return _PublishedTable(
        name, tuple(map(schema.names.index, names)), tuple(labels), ordered, sigma
    )


def plain_label(label: Any) -> Any:
    """Return a label as a hashable value, None for missing."""
    if isinstance(label, list | tuple | set | frozenset | np.ndarray):
        return tuple(label)
    return None if pd.isna(label) else label


def _condition_of_label(label: Any) -> Any:
    """Return the condition that the values of a label satisfy."""
    if isinstance(label, tuple):
        return list(label)
    if not isinstance(label, pd.Interval):
        return label
    low, high = label.left, label.right
    if isinstance(low, pd.Timestamp | pd.Timedelta):
        step = pd.Timedelta(1, "us")
        return low if label.closed_left else low + step, high if label.closed_right else high - step
    return (
        low if label.closed_left else math.nextafter(low, math.inf),
        high if label.closed_right else math.nextafter(high, -math.inf),
    )


def grid_within(column: Any, labels: Sequence[Any]) -> ColumnGrid:
    """Return cells that lie inside the labels of all tables of a column."""
    grid: ColumnGrid = column.grid()
    if grid.is_final:
        return grid
    wanted = [_condition_of_label(label) for label in labels if label is not None]
    pairs = [label if isinstance(label, tuple) else (label, label) for label in wanted]
    first, last = np.array([column.limits(low, high)[2:] for low, high in pairs]).T
    before, stops = column.ends(last)
    if column.n_values is None:
        stops = np.where(first < last, before, stops)
    known = np.asarray(grid.edges)
    alone = known[:-1][grid.alone], known[1:][grid.alone]
    edges = np.unique(np.concatenate((column.ends(first)[0], stops, *alone)))
    return replace(grid, edges=edges, n_cells=len(edges) - 1)


def labelled_parts(grid: ColumnGrid, labels: Sequence[Any], name: str) -> IntArray:
    """Return the label of a table that holds each cell, the narrowest of several."""
    column = grid.column.name
    inside = [
        parse_conditions({column: _condition_of_label(label)}, (grid,))[0].kept > 0.5
        for label in labels
    ]
    parts = np.full(grid.size, -1)
    for place in sorted(range(len(labels)), key=lambda place: -int(inside[place].sum())):
        parts[inside[place]] = place
    if (parts < 0).any() or len(np.unique(parts)) < len(labels):
        raise ValueError(
            f"What {name} lists of {column!r} must be all that the schema allows, each once: "
            f"{grid.column.describe()}{', and missing values' * grid.column.missing}."
        )
    return parts
