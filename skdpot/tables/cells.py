"""Counts of single columns, in cells that get finer where the rows are.

Every round counts the rows of a column in cells that refine those of the round before, and the next
round splits the cells with large counts. A round is one contingency table per column. Which cells
are split follows from released counts and public facts, so rounds compose adaptively.

A column with a cell for each of many values is counted in public blocks of cells first. The noise
of a sum over a range is then that of a few blocks, and not that of all cells in the range.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.releases import Release
from skdpot.sources import Rows
from skdpot.tables.contingency import CountedRows, Marginal, NoisyMarginal, exact_counts
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import tables_of

# Shares of the budget of single columns, for rounds of columns with too many values for cells, and
# for the round that counts blocks of a column with a cell for each of many values.
ROUNDS = {"roundness": 0.1, "magnitudes": 0.2, "cells": 0.25}
BLOCKS = 0.4
MAX_CELLS = 512  # like the number of values up to which each has a cell
_NEW_CELLS = 128  # new cells of a column per round
_SEEN = 4.0  # standard deviations of noise at which a count stands out
_WORTH = 3.5  # expected count of a new cell, in standard deviations
_FEWEST = 2  # cells that a split must give
# Cells this many times as dense as both beside them are split in so many parts, at most so many.
_DENSER, _ATOM_PARTS, _MOST_ATOMS = 8.0, 20, 4
_EXACT = 1e-3  # noise of a known total, as a share of that of a count


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Final cells, rows in these cells, the tables of each column from coarse to fine, releases."""

    grids: tuple[ColumnGrid, ...]
    rows: Rows
    tables: tuple[tuple[NoisyMarginal, ...], ...]
    releases: tuple[Release, ...]


def rounds_of(grids: Sequence[ColumnGrid]) -> dict[str, list[int]]:
    """Return the columns that each round before the last one counts; no round is empty."""
    wide = [c for c, grid in enumerate(grids) if not grid.is_final]
    coarse = [c for c, grid in enumerate(grids) if not grid.is_final or grid.is_long]
    rounds = {name: coarse if name == "magnitudes" else wide for name in ROUNDS}
    return {name: columns for name, columns in rounds.items() if columns}


def count_cells(
    rows: Rows, first: Sequence[ColumnGrid], release: Callable[..., Release]
) -> CellCounts:
    """Count rows in public cells, and again in cells that earlier counts suggest.

    Privacy
    -------
    ``release(rows, marginals, weights, name)`` draws the noise of one round; its event is charged
    already. Nothing else here reads private rows.
    """
    grids = list(first)
    rounds = rounds_of(grids)
    wide = set(rounds.get("cells", ()))
    rows = rows.map(partial(_places_on_scales, columns={c: grids[c].column for c in wide}))
    known: list[list[NoisyMarginal]] = [[] for _ in grids]
    releases: list[tuple[Release, list[tuple[int, int]]]] = []  # and the tables that they hold

    def of_round(name: str) -> list[Marginal]:
        level = [*ROUNDS].index(name)
        groups = {
            c: np.arange(grids[c].size if level else grids[c].column.rounding.n_codes)
            if c in wide
            else grids[c].blocks
            for c in rounds[name]
        }
        first_place = 0 if level else len(grids)
        return [Marginal((first_place + c,), (g,), (level,)) for c, g in groups.items()]

    coded = None
    for name, columns in rounds.items():
        if name != "magnitudes" or coded is None:
            # One pass for the first two rounds: roundness does not move cells.
            names = [name] if name != "roundness" else [name, "magnitudes"]
            among = sorted({c for each in names for c in rounds[each]})
            step = partial(_cell_codes, grids={c: grids[c] for c in among}, twice=len(names) > 1)
            coded = CountedRows(rows.map(step))
            exact_counts(coded, [marginal for each in names for marginal in of_round(each)])
        weights = [ROUNDS[name] if c in wide else BLOCKS for c in columns]
        counted = release(coded, of_round(name), np.array(weights), name)
        pairs = zip(of_round(name), columns, strict=True)
        marginals = tuple(replace(marginal, columns=(c,)) for marginal, c in pairs)
        counted = replace(counted, facts={"marginals": marginals})
        for c, noisy in zip(columns, tables_of(counted), strict=True):
            if name == "roundness":
                grids[c] = grids[c].rounding_of(noisy.counts, noisy.sigma)
                continue
            known[c].append(noisy)
            if c in wide:
                fine = split_cells(grids[c], *combined(known[c]))
                above = parents(grids[c], fine)
                known[c] = [finer(table, above) for table in known[c]]
                grids[c] = fine
        places = [] if name == "roundness" else [(c, len(known[c]) - 1) for c in columns]
        releases.append((counted, places))
    rows = rows.map(partial(_cell_codes, grids=dict(enumerate(grids))))
    singles = [Marginal((c,), (np.arange(grid.size),)) for c, grid in enumerate(grids)]
    last = release(rows, singles, np.ones(len(grids)), "columns")
    for tables, noisy in zip(known, tables_of(last), strict=True):
        tables.append(noisy)
    stored = [  # in groups of the final cells
        replace(done, facts={"marginals": tuple(known[c][at].marginal for c, at in places)})
        if places
        else done
        for done, places in releases
    ]
    return CellCounts(tuple(grids), rows, tuple(map(tuple, known)), (*stored, last))


def _places_on_scales(batch: tuple[Any, Any], columns: Mapping[int, Any]) -> tuple[Any, ...]:
    """Return values, the places of columns on a scale, and weights."""
    values, weights = batch
    return values, {c: column.to_unit(values[c]) for c, column in columns.items()}, weights


def _cell_codes(
    batch: tuple[Any, ...], grids: Mapping[int, ColumnGrid], twice: bool = False
) -> tuple[IntArray, Any]:
    """Return the cells of rows and weights; `twice` appends the roundness codes per column."""
    values, places, weights = batch
    n_columns = len(values)
    codes = np.zeros((len(values[0]), n_columns * (1 + twice)), dtype=np.int32, order="F")
    for c, grid in grids.items():
        codes[:, c] = grid.cells(places[c]) if c in places else grid.codes(values[c])
        if twice and c in places:
            codes[:, n_columns + c] = grid.roundness(places[c])
    return codes, weights


def split_cells(grid: ColumnGrid, counts: FloatArray, noise: FloatArray) -> ColumnGrid:
    """Split intervals whose counts stand out of the noise, into parts by their counts."""
    column = grid.column
    numbers = np.where(counts > _SEEN * noise, counts, 0.0)[: grid.n_cells]
    numbers[grid.alone] = 0.0
    edges = np.asarray(grid.edges)
    budget = min(_NEW_CELLS, MAX_CELLS - grid.n_cells)
    worth = numbers / np.maximum(_WORTH * noise, 1e-9)[: grid.n_cells]
    shares = np.minimum(budget * numbers / max(numbers.sum(), 1.0), worth)
    shares[_isolated(grid, counts, noise)] = _ATOM_PARTS
    cuts = [
        column.cuts(*edges[cell : cell + 2], int(shares[cell]), grid.finest[cell])
        for cell in np.flatnonzero(shares >= _FEWEST)
    ]
    starts = column.ends(np.concatenate([*cuts, np.zeros(0)]))[0]
    edges = np.union1d(edges, starts)
    return replace(grid, edges=edges, n_cells=len(edges) - 1)


def _isolated(grid: ColumnGrid, counts: FloatArray, noise: FloatArray) -> IntArray:
    """Return the few largest cells that stand out, are far denser than both cells beside them.

    One value is likely to hold their rows, and narrow cells find it.
    """
    cells = np.flatnonzero(~grid.alone)
    counts, noise = counts[cells], noise[cells]
    widths = grid.widths[cells]
    possible = np.pad(np.maximum(counts, 0.0) / widths, 1)
    beside = np.maximum(possible[:-2], possible[2:])
    far_denser = (counts > _SEEN * noise) & (counts / widths > _DENSER * beside)
    found = np.flatnonzero(far_denser)
    return cells[found[np.argsort(-counts[found])][:_MOST_ATOMS]]


def parents(coarse: ColumnGrid, fine: ColumnGrid) -> IntArray:
    """Return the cell of a coarse grid that holds each cell of a finer one."""
    edges = [np.asarray(grid.edges) for grid in (coarse, fine)]
    cells = np.searchsorted(edges[0], edges[1][:-1], side="right") - 1
    return np.append(cells, coarse.n_cells) if fine.column.missing else cells


def finer(noisy: NoisyMarginal, above: IntArray) -> NoisyMarginal:
    """Return a table of coarse cells as one of groups of finer cells."""
    groups = noisy.marginal.groups[0][above]
    return replace(noisy, marginal=replace(noisy.marginal, groups=(groups,)))


def combined(rounds: Sequence[NoisyMarginal]) -> tuple[FloatArray, FloatArray]:
    """Return the best linear estimate of the last counts, and the noise of each.

    All tables are of one column, in groups of the cells of the last. On the way up the tree each
    node averages its count with the sum of its children; on the way down differences are shared
    (Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms
    through consistency", 2010, with unequal noise).
    """
    last = rounds[-1]
    if last.sigma == 0.0:
        return last.counts, np.zeros(len(last.counts))
    cells = [noisy.marginal.groups[0] for noisy in rounds]
    known = [(last.counts, np.full(len(last.counts), last.sigma**2))]
    above = []
    for noisy, fine, coarse in zip(rounds[-2::-1], cells[:0:-1], cells[-2::-1], strict=True):
        parent = coarse[np.unique(fine, return_index=True)[1]]
        below, variances = (np.bincount(parent, part) for part in known[-1])
        weights = variances / (variances + noisy.sigma**2)
        known.append((weights * noisy.counts + (1 - weights) * below, weights * noisy.sigma**2))
        above.append(parent)
    counts, variances = known.pop()
    for parent in above[::-1]:
        children, variances = known.pop()
        sums, whole = (np.bincount(parent, part) for part in (children, variances))
        counts = children + ((counts - sums) / whole)[parent] * variances
    return counts, np.sqrt(variances)


def counts_with_total(rounds: Sequence[NoisyMarginal], n_rows: int) -> FloatArray:
    """Return the best linear estimate of the last counts, given the number of rows."""
    last = rounds[-1]
    if last.sigma == 0.0:
        return last.counts + (n_rows - last.counts.sum()) / len(last.counts)
    return combined([_total(last, n_rows), *rounds])[0]


def covariance_of(rounds: Sequence[NoisyMarginal], n_rows: int) -> FloatArray:
    """Return the covariance of these estimates."""
    precision = np.zeros((len(rounds[-1].counts),) * 2)
    for noisy in (_total(rounds[-1], n_rows), *rounds):
        groups = noisy.marginal.groups[0]
        precision += (groups[:, None] == groups) / noisy.sigma**2
    return np.asarray(np.linalg.inv(precision), dtype=np.float64)


def _total(last: NoisyMarginal, n_rows: int) -> NoisyMarginal:
    """Return the number of rows as a table of one cell, exact beside the noise of the others."""
    groups = np.zeros(len(last.counts), dtype=np.int64)
    marginal = replace(last.marginal, groups=(groups,))
    return NoisyMarginal(marginal, np.array([float(n_rows)]), last.sigma * _EXACT)
