"""Counts of single columns, in cells that get finer where the rows are.

Every round counts the rows of a column in cells that refine those of the round before, and the next
round splits the cells with large counts. A round is one contingency table per column. Which cells
are split follows from released counts and public facts, so rounds compose adaptively.
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

# Shares of the budget of single columns, for rounds of columns with too many values for cells.
ROUNDS = {"roundness": 0.1, "magnitudes": 0.2, "cells": 0.25}
MAX_CELLS = 512  # like the number of values up to which each has a cell
_NEW_CELLS = 128  # new cells of a column per round
_SEEN = 4.0  # standard deviations of noise at which a count stands out
_WORTH = 3.5  # expected count of a new cell, in standard deviations
_FEWEST = 2  # cells that a split must give


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Final cells, rows in these cells, the best estimates of their counts, and all releases."""

    grids: tuple[ColumnGrid, ...]
    rows: Rows
    counts: tuple[NoisyMarginal, ...]
    releases: tuple[Release, ...]


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
    wide = [c for c, grid in enumerate(grids) if not grid.is_final]
    rows = rows.map(partial(_places_on_scales, columns={c: grids[c].column for c in wide}))
    known: list[list[NoisyMarginal]] = [[] for _ in grids]
    releases: list[Release] = []

    def of_round(level: int) -> list[Marginal]:
        sizes = [grids[c].size if level else grids[c].column.rounding.n_codes for c in wide]
        places = [c if level else len(grids) + c for c in wide]
        each = zip(places, sizes, strict=True)
        return [Marginal((place,), (np.arange(size),), (level,)) for place, size in each]

    for level, name in enumerate(ROUNDS if wide else ()):
        if level != 1:  # one pass for the first two rounds: roundness does not move cells
            step = partial(_cell_codes, grids={c: grids[c] for c in wide}, twice=level == 0)
            coded = CountedRows(rows.map(step))
            exact_counts(coded, [*of_round(level), *of_round(max(level, 1))])
        counted = release(coded, of_round(level), np.ones(len(wide)), name)
        tables = [replace(m, columns=(c,)) for m, c in zip(of_round(level), wide, strict=True)]
        releases.append(replace(counted, facts={"marginals": tuple(tables)}))
        for c, noisy in zip(wide, tables_of(releases[-1]), strict=True):
            if level:
                fine = split_cells(grids[c], *combined([*known[c], noisy]))
                above = parents(grids[c], fine)
                known[c] = [finer(table, above) for table in (*known[c], noisy)]
            else:
                fine = grids[c].rounding_of(noisy.counts, noisy.sigma)
            grids[c] = fine
    rows = rows.map(partial(_cell_codes, grids=dict(enumerate(grids))))
    marginals = [Marginal((c,), (np.arange(grid.size),)) for c, grid in enumerate(grids)]
    last = release(rows, marginals, np.ones(len(grids)), "columns")
    best = (
        replace(noisy, counts=combined([*tables, noisy])[0])
        for tables, noisy in zip(known, tables_of(last), strict=True)
    )
    stored = [
        replace(done, facts={"marginals": tuple(known[c][level].marginal for c in wide)})
        for level, done in enumerate(releases[1:])
    ]
    return CellCounts(tuple(grids), rows, tuple(best), (*releases[:1], *stored, last))


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
        if twice:
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
    cuts = [
        column.cuts(*edges[cell : cell + 2], int(shares[cell]), grid.finest[cell])
        for cell in np.flatnonzero(shares >= _FEWEST)
    ]
    starts = column.ends(np.concatenate([*cuts, np.zeros(0)]))[0]
    edges = np.union1d(edges, starts)
    return replace(grid, edges=edges, n_cells=len(edges) - 1)


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
