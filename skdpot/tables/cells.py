"""Cells of each column where the rows are, bins of cells, and what tables of bins tell.

*Cells.* Each round of noisy counts splits those that hold more than others. Every round counts the
rows of a column in cells that refine those of the round before. That is one contingency table a
column and round. What is split follows from released counts and public facts, so that rounds
compose adaptively.

*Bins* are cells joined so far that noisy counts can tell them apart, and groups of bins those that
the noise of pairs can.

*Ties.* Where noise leaves eight groups per column, columns that are strongly tied look independent
inside a group. A mixture of Gaussian copulas is fitted to the noisy table by non-negative least
squares and spread over the bins of both columns: a guess of the shape, which iterative scaling
then moves to the counts. Everything but the counts of cells is computed from released counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.gate import Release
from skdpot.sources import Rows
from skdpot.tables.contingency import CountedRows, Marginal, NoisyMarginal, exact_counts, tables_of
from skdpot.tables.grids import ColumnGrid

# Shares of what single columns get, for rounds that only columns with too many values need.
ROUNDS = {"roundness": 0.1, "magnitudes": 0.2, "cells": 0.25}
MAX_CELLS = 512  # as many as values that have one each
_NEW_CELLS = 128  # of a column in one round
_SEEN = 4.0  # standard deviations of noise
_WORTH = 3.5  # standard deviations that a new cell is expected to hold
_FEWEST = 2  # cells that one is worth splitting into


@dataclass(frozen=True, eq=False)
class FoundCells:
    """Cells, those of the rows, what is known of their counts, and the releases that it is from."""

    grids: tuple[ColumnGrid, ...]
    rows: Rows
    counts: tuple[NoisyMarginal, ...]
    releases: tuple[Release, ...]


def find_cells(
    rows: Rows, first: Sequence[ColumnGrid], release: Callable[..., Release]
) -> FoundCells:
    """Count rows in public cells, and again in ones that the counts before suggest."""
    grids = list(first)
    wide = [c for c, grid in enumerate(grids) if not grid.is_final]
    rows = rows.map(partial(_placed, columns={c: grids[c].column for c in wide}))
    known: list[list[NoisyMarginal]] = [[] for _ in grids]
    releases: list[Release] = []

    def of_round(level: int) -> list[Marginal]:
        sizes = [grids[c].size if level else grids[c].column.rounding.n_codes for c in wide]
        places = [c if level else len(grids) + c for c in wide]
        each = zip(places, sizes, strict=True)
        return [Marginal((place,), (np.arange(size),), (level,)) for place, size in each]

    for level, name in enumerate(ROUNDS if wide else ()):
        if level != 1:  # the first two need one pass: how round values are moves no cell
            step = partial(_coded, grids={c: grids[c] for c in wide}, twice=level == 0)
            coded = CountedRows(rows.map(step))
            exact_counts(coded, [*of_round(level), *of_round(max(level, 1))])
        found = release(coded, of_round(level), np.ones(len(wide)), name)
        tables = [replace(m, columns=(c,)) for m, c in zip(of_round(level), wide, strict=True)]
        releases.append(replace(found, facts={"marginals": tuple(tables)}))
        for c, noisy in zip(wide, tables_of(releases[-1]), strict=True):
            if level:
                fine = refined(grids[c], *combined([*known[c], noisy]))
                above = parents(grids[c], fine)
                known[c] = [finer(table, above) for table in (*known[c], noisy)]
            else:
                fine = grids[c].rounding_of(noisy.counts, noisy.sigma)
            grids[c] = fine
    rows = rows.map(partial(_coded, grids=dict(enumerate(grids))))
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
    return FoundCells(tuple(grids), rows, tuple(best), (*releases[:1], *stored, last))


def _placed(batch: tuple[Any, Any], columns: Mapping[int, Any]) -> tuple[Any, ...]:
    """Read columns that have a scale once, as places on it."""
    values, weights = batch
    return values, {c: column.to_unit(values[c]) for c, column in columns.items()}, weights


def _coded(
    batch: tuple[Any, ...], grids: Mapping[int, ColumnGrid], twice: bool = False
) -> tuple[IntArray, Any]:
    """Return the cells of rows, and in as many columns again how round their values are."""
    values, places, weights = batch
    n_columns = len(values)
    codes = np.zeros((len(values[0]), n_columns * (1 + twice)), dtype=np.int32, order="F")
    for c, grid in grids.items():
        codes[:, c] = grid.cells(places[c]) if c in places else grid.codes(values[c])
        if twice:
            codes[:, n_columns + c] = grid.roundness(places[c])
    return codes, weights


def refined(grid: ColumnGrid, counts: FloatArray, noise: FloatArray) -> ColumnGrid:
    """Split the intervals whose counts stand out of the noise, by their share of the rows."""
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
    """Return the cell of a coarser grid that each cell of a finer one is in."""
    edges = [np.asarray(grid.edges) for grid in (coarse, fine)]
    cells = np.searchsorted(edges[0], edges[1][:-1], side="right") - 1
    return np.append(cells, coarse.n_cells) if fine.column.missing else cells


def finer(noisy: NoisyMarginal, above: IntArray) -> NoisyMarginal:
    """Return a table of cells as one of groups of cells that are inside them."""
    groups = noisy.marginal.groups[0][above]
    return replace(noisy, marginal=replace(noisy.marginal, groups=(groups,)))


def combined(rounds: Sequence[NoisyMarginal]) -> tuple[FloatArray, FloatArray]:
    """Return the best linear estimate of the last counts, and the noise of each.

    The tables are of one column, in groups of the cells of the last. Counts go up the tree, each
    node weighing its own against the sum of its children, and what differs goes down again (Hay,
    Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms through
    consistency", 2010, with unequal noise).
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
        found, variances = known.pop()
        sums, whole = (np.bincount(parent, part) for part in (found, variances))
        counts = found + ((counts - sums) / whole)[parent] * variances
    return counts, np.sqrt(variances)


MAX_BINS = 24  # of a column with a scale or an order
_MAX_CATEGORIES = 64
_SEEN_CATEGORY = 3.0  # standard deviations of noise at which a category has a bin of its own,
_SEEN_INTERVAL = 4.0  # and rows of an interval
_SEEN_TAIL = 1.5  # and rows of a part of a tail
FEW_GROUPS = 4  # of a column in which triples are counted
POSSIBLE = 1e-9  # least share of a cell: what the noise hides may occur


@dataclass(frozen=True, eq=False)
class ColumnBins:
    """Bins of one column."""

    bins: IntArray
    cell_shares: FloatArray
    coarse: IntArray

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.coarse)

    @property
    def shares(self) -> FloatArray:
        """Estimated share of the rows in each bin."""
        shares = np.bincount(self.bins, weights=self.cell_shares, minlength=self.n_bins)
        return shares.astype(np.float64)

    @cached_property
    def _groups(self) -> tuple[IntArray, IntArray, IntArray]:
        fine, coarse = np.arange(self.n_bins), self.coarse
        if coarse.max() < FEW_GROUPS:
            return fine, coarse, coarse
        shares = np.bincount(coarse, weights=self.shares).astype(np.float64)
        return fine, coarse, _group_intervals(shares, FEW_GROUPS, 0.0)[coarse]

    def groups(self, level: int) -> IntArray:
        """Return the group of each bin: itself (0), a coarse one (1) or one of few (2)."""
        return self._groups[level]

    def satisfied(self, kept: FloatArray) -> FloatArray:
        """Return the share of each bin that satisfies a condition, by shares of cells that do."""
        return np.bincount(self.bins, weights=self.cell_shares * kept) / self.shares


def bins_in_order(bins: Sequence[ColumnBins], grids: Sequence[ColumnGrid]) -> list[int]:
    """Return how many of the first bins of each column are in an order."""
    return [
        (one.n_bins - grid.column.missing) * grid.ordered
        for one, grid in zip(bins, grids, strict=True)
    ]


def bin_codes(codes: IntArray, bins: Sequence[ColumnBins]) -> IntArray:
    """Return the bins that the cells of rows are in."""
    binned = np.empty(codes.shape, dtype=np.int32, order="F")
    for column, found in enumerate(bins):
        binned[:, column] = found.bins[codes[:, column]]
    return binned


def coarsen(noisy: NoisyMarginal, grid: ColumnGrid, n_rows: int, n_groups: int) -> ColumnBins:
    """Choose bins by a noisy histogram.

    Neighbouring cells of a scale are joined until a bin stands out of the noise and has about its
    share of the rows; rare categories are joined to one bin. Missing values keep their own.
    """
    counts, sigma = noisy.counts, noisy.sigma
    counts = counts + (n_rows - counts.sum()) / len(counts)  # the total is known
    ordered, missing = grid.ordered, grid.column.missing
    empty = grid.is_doubtful & (counts <= _SEEN_CATEGORY * sigma)
    if ordered:
        # Noise on many empty cells, once negative counts are cut off, would look like a long tail.
        # From either end halves are dropped that noise explains, as a whole and in each cell.
        last = len(counts) - missing
        empty[: _first_seen(counts[:last], sigma)] = True
        empty[last - _first_seen(counts[:last][::-1], sigma) : last] = True
    if empty.all():
        empty[:] = False
    nearest = project_to_total(np.where(empty, -math.inf, counts), n_rows)
    n_bins, seen = (MAX_BINS, _SEEN_INTERVAL) if ordered else (_MAX_CATEGORIES, _SEEN_CATEGORY)
    bins = _grouped(nearest, n_bins, seen * sigma, ordered=ordered, missing=missing)
    weights = np.where(empty, 0.0, grid.weights)
    cells = np.maximum(_shrunk(counts, nearest, bins, sigma, weights) / n_rows, POSSIBLE)
    cells /= cells.sum()
    shares = np.bincount(bins, weights=cells).astype(np.float64)
    groups: IntArray = np.arange(len(shares))
    if len(shares) - missing > n_groups:  # cells of more would drown in noise
        groups = _grouped(shares, n_groups, 0.0, ordered=ordered, missing=missing)
    return ColumnBins(bins, cells, groups)


def _first_seen(counts: FloatArray, sigma: float) -> int:
    """Return where the first half, quarter and so on begins that stands out of the noise."""
    start, stop = 0, len(counts)
    while stop - start > 1:
        middle = (start + stop) // 2
        half = counts[start:middle]
        limit = _SEEN_TAIL * sigma * math.sqrt(len(half))
        if half.sum() > limit or half.max() > _SEEN_INTERVAL * sigma:
            stop = middle
        else:
            start = middle
    return start


def _grouped(
    counts: FloatArray, n_groups: int, least: float, *, ordered: bool, missing: bool
) -> IntArray:
    """Join cells to groups; missing values keep their own."""
    present = counts[:-1] if missing else counts
    groups = (_group_intervals if ordered else _group_categories)(present, n_groups, least)
    return np.append(groups, groups.max() + 1) if missing else groups


def project_to_total(counts: FloatArray, total: float) -> FloatArray:
    """Return the nearest counts (L2) that are not negative and have the right sum."""
    falling = np.sort(counts)[::-1]
    excess = np.cumsum(falling) - total
    last = np.flatnonzero(falling * np.arange(1, len(counts) + 1) > excess)[-1]
    return np.maximum(counts - excess[last] / (last + 1), 0.0)


def _group_intervals(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Join neighbouring cells; one that has more than its share alone stays alone.

    Whatever the noise, there are at most ``3 * n_groups`` groups. Of the k large cells each has
    one, and between them are k + 1 runs of others, of which two groups in a row hold more than
    1.25 steps of the ``n_groups - k`` that the others have together: ``2.6 * n_groups`` in all.
    """
    is_large = counts > counts.sum() / n_groups
    rest = counts[~is_large].sum() / max(n_groups - int(is_large.sum()), 1)
    step = max(rest, least)
    groups = np.zeros(len(counts), dtype=np.int64)
    group, held, alone = 0, 0.0, False
    for cell, (count, large) in enumerate(zip(counts, is_large, strict=True)):
        if cell and (large or alone or held + count > 1.25 * step or held >= step > 0.0):
            group, held = group + 1, 0.0
        groups[cell], alone = group, bool(large)
        held += count
    # A small rest goes to its neighbour, unless that is one cell.
    if group and held < 0.3 * step and not is_large[groups == group - 1].any():
        groups[groups == group] = group - 1
    return groups


def _group_categories(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Keep the frequent categories and join the others, the last group."""
    order = np.argsort(-counts, kind="stable")
    n_seen = min(int(np.sum(counts > least)), n_groups)
    if n_seen >= len(counts) - 1:
        return np.arange(len(counts))
    groups = np.full(len(counts), n_seen)
    groups[np.sort(order[:n_seen])] = np.arange(n_seen)
    return groups


def _shrunk(
    counts: FloatArray, nearest: FloatArray, bins: IntArray, sigma: float, weights: FloatArray
) -> FloatArray:
    """Draw the cells of a bin towards their weights by as much as noise explains the difference.

    Cells that stand far out of the noise stay as they are. The sum of a bin is that of its raw
    counts, which unlike those without negative ones have no bias.
    """
    n_bins = int(bins.max()) + 1

    def added(values: FloatArray) -> FloatArray:
        return np.bincount(bins, values, n_bins).astype(np.float64)

    raw = np.where(weights > 0.0, counts, 0.0)
    sums = project_to_total(added(raw), float(nearest.sum()))
    plain = weights > 0.0
    for _ in range(2):  # the second time without what stands out
        share = np.where(plain, weights, 0.0)
        share /= np.maximum(added(share), 1e-300)[bins]
        expected = share * added(np.where(plain, raw, 0.0))[bins]
        plain = plain & (raw - expected <= _SEEN_INTERVAL * sigma)
    deviations = np.where(plain, raw - expected, 0.0)
    sizes = added(plain.astype(np.float64))
    spread = added(deviations**2) / np.maximum(sizes - 1.0, 1.0)
    kept = np.maximum(spread - sigma**2, 0.0) / np.maximum(spread, 1e-300)
    shrunk = np.where(plain, expected + kept[bins] * deviations, raw)
    shrunk = np.maximum(shrunk, 0.0)
    found = added(shrunk)
    # Of a bin without rows cells are as likely as their weights.
    flat = weights / np.maximum(added(weights), 1e-300)[bins]
    within = np.where(found[bins] > 0.0, shrunk / np.maximum(found[bins], 1e-300), flat)
    return sums[bins] * within


_RANKS = 128
_CORRELATIONS = (0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99)  # and their negatives
_SINGLE = 2.0  # times the mean share of a bin: what holds more, such as zero, is one value
FEWEST_TIED = 3  # bins in an order
_BALANCED = 10


def tied_shares(
    noisy: NoisyMarginal, shares: Sequence[FloatArray], in_order: Sequence[int]
) -> FloatArray:
    """Return joint shares of the bins of a pair under the copulas of a mixture."""
    independent = np.outer(*shares)
    ordered = [np.arange(n) for n in in_order]
    spread = [
        np.flatnonzero(own[:n] < _SINGLE / n) for own, n in zip(shares, in_order, strict=True)
    ]
    mixed = [independent]
    for tied in [ordered] if min(map(len, spread)) < FEWEST_TIED else [ordered, spread]:
        first, second = (_overlaps(own[part]) for own, part in zip(shares, tied, strict=True))
        block = np.ix_(*tied)
        for copula in _copulas():
            table = independent.copy()
            table[block] = first @ copula @ second.T * independent[block].sum()
            mixed.append(table)
    counted = np.stack([noisy.marginal.joined(table) for table in mixed], axis=1)
    try:
        weights, _ = nnls(counted, noisy.counts)
    except RuntimeError:  # too many steps; the fit goes on with what is known
        weights = np.zeros(1)
    if not weights.any():
        return independent
    return _balanced(np.tensordot(weights, mixed, 1), *shares)


def _balanced(table: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Rescale columns and rows until they add up to shares, the rows exactly."""
    for _ in range(_BALANCED):
        table = table * (columns / np.maximum(table.sum(axis=0), 1e-300))
        table = table * (rows / np.maximum(table.sum(axis=1), 1e-300))[:, None]
    return table


def _overlaps(shares: FloatArray) -> FloatArray:
    """Return which part of each interval of ranks is in which bin."""
    ends = np.append(0.0, np.cumsum(shares)) * (_RANKS / shares.sum())
    below = np.clip(ends[:, None] - np.arange(_RANKS), 0.0, 1.0)
    return np.diff(below, axis=0)


@cache
def _copulas() -> tuple[FloatArray, ...]:
    """Return the joint shares of intervals of ranks, each once for rising and for falling ranks."""
    x = ndtri((np.arange(_RANKS) + 0.5) / _RANKS)
    even = np.full(_RANKS, 1.0 / _RANKS)
    found = []
    for rho in _CORRELATIONS:
        exponent = rho**2 * np.add.outer(x**2, x**2) - 2.0 * rho * np.outer(x, x)
        density = np.exp(-exponent / (2.0 * (1.0 - rho**2)))
        rising = _balanced(density, even, even)
        found += [rising, rising[::-1]]
    return tuple(found)
