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
from skdpot.tables.tree import fit_tree, spanning_tree

PUBLISHED = "given"  # kind of the releases of a model of tables that somebody else released
_COUNT, _ERROR, _RELEASES = "count", "standard_error", "n_releases"
_SURE = 10.0  # standard deviations by which a table may miss the number of rows,
_AMISS = 0.1  # and share of it


def frames_of(model: TableModel) -> tuple[pd.DataFrame, ...]:
    """Return the tables of each column, then of several, with a row for each cell."""
    frames = []
    for place, (noisy, grid) in enumerate(zip(model.columns, model.grids, strict=True)):
        rounds = [
            table
            for release in model.releases[min(1, model.n_rounds - 1) : model.n_rounds]
            for table in tables_of(release)
            if table.marginal.columns == (place,)
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
    errors: Any,
) -> pd.DataFrame:
    cells = np.indices(marginal.shape).reshape(len(grids), -1)
    frame = {
        grid.column.name: labels_of(grid, own).take(axis).array
        for grid, own, axis in zip(grids, parts, cells, strict=True)
    }
    return pd.DataFrame(frame | {_COUNT: counts, _ERROR: errors})


def labels_of(grid: ColumnGrid, parts: IntArray) -> pd.Series:
    """Return what each part of the cells holds: values, tuples of categories, or intervals."""
    column, cells = grid.column, parts[: grid.n_cells]
    n_parts = int(cells.max()) + 1
    order = np.argsort(cells, kind="stable")
    starts = np.searchsorted(cells[order], np.arange(n_parts))
    if grid.on_scale:
        lows, highs = grid.ends()
        low, high = lows[order[starts]], highs[order[np.append(starts[1:], len(order)) - 1]]
        between = pd.arrays.IntervalArray.from_arrays(low, high, closed="both")
        found = pd.Series(low if (low == high).all() else between)
    elif n_parts == len(cells):
        found = column.from_codes(order)
    else:
        members = np.split(column.from_codes(order).astype(object).to_numpy(), starts[1:])
        found = pd.Series(list(map(tuple, members)), dtype=object)
    if n_parts > parts.max():
        return found
    if found.dtype.kind in "ib":
        found = found.convert_dtypes()  # to what can miss values
    return found.reindex(range(n_parts + 1))


@dataclass(frozen=True, eq=False)
class _PublishedTable:
    """A table that was given: what its axes list, and its counts."""

    name: str
    columns: tuple[int, ...]
    labels: tuple[list[Any], ...]
    counts: FloatArray
    sigma: float

    def summed(self, axes: Sequence[int]) -> tuple[FloatArray, float]:
        """Return the counts by some of the columns, and their noise."""
        others = tuple(axis for axis in range(self.counts.ndim) if axis not in axes)
        size = math.prod(self.counts.shape[axis] for axis in others)
        return self.counts.sum(axis=others), self.sigma * math.sqrt(size)


def fit_published(
    marginals: Iterable[pd.DataFrame],
    schema: Any,
    n_rows: int,
    target: int | None,
    n_particles: int,
    rng: np.random.Generator,
    event: Event,
) -> TableModel:
    """Fit a model to tables that somebody else released."""
    given = [
        _read_published(f"marginals[{k}]", table, schema, n_rows)
        for k, table in enumerate(marginals)
    ]
    known = [_publish_column(column, place, given, n_rows) for place, column in enumerate(schema)]
    grids = tuple(one.grid for one in known)
    bins = tuple(one.bins for one in known)
    tables: list[NoisyMarginal] = []
    pairs: list[NoisyMarginal] = []
    for one in (one for one in given if len(one.columns) > 1):
        groups = [
            known[place].parts[one.name][np.unique(bins[place].bins, return_index=True)[1]]
            for place in one.columns
        ]
        named = (len(tables),) * len(groups)  # two tables of the same columns are both kept
        whole = Marginal(one.columns, tuple(groups), named)
        tables.append(NoisyMarginal(whole, one.counts.ravel(), one.sigma))
        for axes in itertools.combinations(range(len(groups)), 2):
            counts, sigma = one.summed(axes)
            some = Marginal(tuple(one.columns[a] for a in axes), tuple(groups[a] for a in axes))
            pairs.append(NoisyMarginal(some, counts.ravel(), sigma))
    nodes, chosen = _strongest_tree(pairs, bins, n_rows, target)
    shares, in_order = [one.shares for one in bins], bins_in_order(bins, grids)
    tree = fit_tree(nodes, shares, chosen, n_rows, target, in_order)
    alone = [one.counts for one in known]
    releases = [replace(release_of(p, event), kind=PUBLISHED) for p in (alone, tables) if p]
    model = TableModel(n_rows, tuple(releases[:1]), bins, tree, (), grids)
    particles = model.particles(n_particles, rng)
    return replace(model, releases=tuple(releases)).fitted(particles)


@dataclass(frozen=True, eq=False)
class _PublishedColumn:
    """Cells of a column, their counts, the bins, and the part of each table that a cell is in."""

    grid: ColumnGrid
    counts: NoisyMarginal
    bins: ColumnBins
    parts: dict[str, IntArray]


def _publish_column(
    column: Any, place: int, given: Sequence[_PublishedTable], n_rows: int
) -> _PublishedColumn:
    """Find what tables say about a column: by the finest, of equally fine by the least noisy."""
    own = {one.name: (one, one.columns.index(place)) for one in given if place in one.columns}
    if not own:
        raise ValueError(f"marginals has no table with the column {column.name!r}.")
    grid = grid_within(column, [label for one, axis in own.values() for label in one.labels[axis]])
    parts = {name: parts_of(grid, one.labels[axis], name) for name, (one, axis) in own.items()}
    best, axis = min(own.values(), key=lambda o: (-o[0].counts.shape[o[1]], o[0].summed([o[1]])[1]))
    counts, sigma = best.summed([axis])
    cells = parts[best.name]
    shares = grid.weights / np.bincount(cells, grid.weights)[cells]
    noisy = NoisyMarginal(
        Marginal((place,), (np.arange(grid.size),)), counts[cells] * shares, sigma
    )
    single = coarsen(noisy, grid, n_rows, MOST_GROUPS)
    joint = [parts[name] for name, (one, _) in own.items() if len(one.columns) > 1]
    _, bins = np.unique([single.bins, *joint], axis=1, return_inverse=True)
    found = ColumnBins(bins.reshape(-1), single.cell_shares, np.arange(int(bins.max()) + 1))
    return _PublishedColumn(grid, noisy, found, parts)


def _strongest_tree(
    pairs: Sequence[NoisyMarginal], bins: Sequence[ColumnBins], n_rows: int, target: int | None
) -> tuple[Any, dict[tuple[int, ...], NoisyMarginal]]:
    """Join columns by the pairs that are farthest from independent, beyond chance and noise."""
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


def _read_published(name: str, table: Any, schema: Any, n_rows: int) -> _PublishedTable:
    """Read one table; its cells must be all combinations of what its columns list."""
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
    # All cells are fitted as tightly; the noise of the whole table is known.
    sigma = math.sqrt(float(np.mean(errors**2)))
    if abs(counts.sum() - n_rows) > max(_SURE * sigma * math.sqrt(len(cells)), _AMISS * n_rows):
        raise ValueError(f"The counts of {name} add up to {counts.sum():,.0f}, not to n_samples.")
    ordered = counts[np.argsort(cells)].reshape(shape)
    return _PublishedTable(
        name, tuple(map(schema.names.index, names)), tuple(labels), ordered, sigma
    )


def plain_label(label: Any) -> Any:
    """Return what a cell of a table says, so that it can be looked up; None for missing."""
    if isinstance(label, list | tuple | set | frozenset | np.ndarray):
        return tuple(label)
    return None if pd.isna(label) else label


def _condition_of_label(label: Any) -> Any:
    """Return the condition that values in a part of a table satisfy."""
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
    """Return cells that are inside of all parts of a column that tables list."""
    grid: ColumnGrid = column.grid()
    if grid.is_final:
        return grid
    wanted = [_condition_of_label(label) for label in labels if label is not None]
    ends = [column.limits(*(one if isinstance(one, tuple) else (one, one)))[2:] for one in wanted]
    first, last = np.array(ends).T
    before, stops = column.ends(last)
    if column.n_values is None:
        stops = np.where(first < last, before, stops)
    known = np.asarray(grid.edges)
    alone = known[:-1][grid.alone], known[1:][grid.alone]
    edges = np.unique(np.concatenate((column.ends(first)[0], stops, *alone)))
    return replace(grid, edges=edges, n_cells=len(edges) - 1)


def parts_of(grid: ColumnGrid, labels: Sequence[Any], name: str) -> IntArray:
    """Return the part of a table that each cell is in; the narrower one where two hold it."""
    column = grid.column.name
    inside = [
        parse_conditions({column: _condition_of_label(one)}, (grid,))[0].kept > 0.5
        for one in labels
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
