"""Bins of the cells of one column, which noisy counts can tell apart, and groups of bins.

Bins are cells joined until their counts stand out of the noise. Groups are bins joined until the
counts of pairs of columns do. Both are computed from released counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.grids import ColumnGrid

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
        empty[: _first_visible(counts[:last], sigma)] = True
        empty[last - _first_visible(counts[:last][::-1], sigma) : last] = True
    if empty.all():
        empty[:] = False
    nearest = project_to_total(np.where(empty, -math.inf, counts), n_rows)
    n_bins, seen = (MAX_BINS, _SEEN_INTERVAL) if ordered else (_MAX_CATEGORIES, _SEEN_CATEGORY)
    bins = _join_cells(nearest, n_bins, seen * sigma, ordered=ordered, missing=missing)
    weights = np.where(empty, 0.0, grid.weights)
    cells = np.maximum(_shrink_cells(counts, nearest, bins, sigma, weights) / n_rows, POSSIBLE)
    cells /= cells.sum()
    shares = np.bincount(bins, weights=cells).astype(np.float64)
    groups: IntArray = np.arange(len(shares))
    if len(shares) - missing > n_groups:  # cells of more would drown in noise
        groups = _join_cells(shares, n_groups, 0.0, ordered=ordered, missing=missing)
    return ColumnBins(bins, cells, groups)


def _first_visible(counts: FloatArray, sigma: float) -> int:
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


def _join_cells(
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


def _shrink_cells(
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
