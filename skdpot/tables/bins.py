"""Bins of the cells of one column, which noisy counts can tell apart, and groups of bins.

Bins are cells joined until their counts stand out of the noise. Groups are bins joined until the
counts of pairs of columns do. Both are computed from released counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.tables.cells import counts_with_total, covariance_of
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.grids import ColumnGrid

MAX_BINS = 24  # bins of a column with a scale or an order
_MAX_CATEGORIES = 64  # bins of a column of categories
# Standard deviations of noise at which a bin of its own pays: for a category, for an interval, and
# for a part of a tail (its error only shifts the end of the tail).
_SEEN_CATEGORY, _SEEN_INTERVAL, _SEEN_TAIL = 3.0, 4.0, 3.0
# The outermost visible cell is isolated if it stands out and the cells beside it, up to so many, do
# not exceed so many standard deviations of noise.
_BESIDE, _HIDDEN = 9, 2.0
_MOST_HIDDEN = 0.9  # share of the rows that hidden tails may have
# The mass of a hidden tail falls by this power of the distance from the visible part. Its usual
# scale is a share of the distance to the median; others are less probable by so much per octave
# (natural logarithm), longer ones because they move the mean.
_TAIL_POWER, _USUAL_TAIL, _LONGER, _SHORTER = 3.0, 0.5, 1.0, 0.25
FEW_GROUPS = 4  # groups of a column in triples
POSSIBLE = 1e-9  # smallest share of a cell: values that noise hides may occur


@dataclass(frozen=True, eq=False)
class ColumnBins:
    """Bins of one column."""

    bins: IntArray  # bin of each cell
    cell_shares: FloatArray  # estimated share of the rows in each cell
    coarse: IntArray  # group of each bin

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
        """Return the group of each bin at a level: the bin (0), its group (1) or one of few (2)."""
        return self._groups[level]

    def satisfied(self, kept: FloatArray) -> FloatArray:
        """Return the share of each bin that satisfies a condition, from shares of cells."""
        return np.bincount(self.bins, weights=self.cell_shares * kept) / self.shares


def bins_in_order(bins: Sequence[ColumnBins], grids: Sequence[ColumnGrid]) -> list[int]:
    """Return the number of leading bins of each column that have an order."""
    return [
        (column.n_bins - grid.column.missing) * grid.ordered
        for column, grid in zip(bins, grids, strict=True)
    ]


def bin_codes(codes: IntArray, bins: Sequence[ColumnBins]) -> IntArray:
    """Return the bins of the cells of rows; both of shape (n_rows, n_columns)."""
    binned = np.empty(codes.shape, dtype=np.int32, order="F")
    for place, column in enumerate(bins):
        binned[:, place] = column.bins[codes[:, place]]
    return binned


def coarsen(
    tables: Sequence[NoisyMarginal], grid: ColumnGrid, n_rows: int, n_groups: int
) -> ColumnBins:
    """Choose bins from noisy counts of a column, in tables from coarse to fine.

    Neighbouring cells of a scale are joined until a bin stands out of the noise and holds about an
    equal share of the rows; rare categories share one bin. Missing values have a bin of their own.
    """
    sigma = tables[-1].sigma
    counts = counts_with_total(tables, n_rows)
    ordered, missing = grid.ordered, grid.column.missing
    weights = grid.weights
    empty = grid.is_doubtful & (counts <= _SEEN_CATEGORY * sigma)
    tails = np.zeros(len(counts))
    if ordered and sigma > 0.0:
        last = len(counts) - missing
        hidden, tails[:last] = _tails(tables, counts[:last], weights[:last], n_rows, grid.sides)
        empty[:last] |= hidden
    if empty.all():
        empty[:], tails[:] = False, 0.0
    tails *= min(_MOST_HIDDEN * n_rows / max(tails.sum(), 1e-300), 1.0)
    left = n_rows - tails.sum()
    nearest = project_to_total(np.where(empty, -math.inf, counts), left)
    n_bins, seen = (MAX_BINS, _SEEN_INTERVAL) if ordered else (_MAX_CATEGORIES, _SEEN_CATEGORY)
    bins = _join_cells(nearest + tails, n_bins, seen * sigma, ordered=ordered, missing=missing)
    cells = _shrink_cells(counts, nearest, bins, sigma, np.where(empty, 0.0, weights)) + tails
    cells = np.maximum(cells / n_rows, POSSIBLE)
    cells /= cells.sum()
    shares = np.bincount(bins, weights=cells).astype(np.float64)
    groups: IntArray = np.arange(len(shares))
    if len(shares) - missing > n_groups:  # cells of more would drown in noise
        groups = _join_cells(shares, n_groups, 0.0, ordered=ordered, missing=missing)
    return ColumnBins(bins, cells, groups)


def _tails(
    tables: Sequence[NoisyMarginal],
    counts: FloatArray,
    weights: FloatArray,
    n_rows: int,
    sides: tuple[int, int],
) -> tuple[BoolArray, FloatArray]:
    """Return the cells at both ends that noise hides one by one, and estimates of their counts.

    Clipped noise on many empty cells would look like a long tail, and the rows of a true tail must
    not vanish: the best-fitting tail that falls outwards takes their place. There is none beyond an
    isolated cell, and none that crosses zero.
    """
    covariance = covariance_of(tables, n_rows)[: len(counts), : len(counts)]
    sums = np.pad(covariance.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    variances = np.diagonal(sums)[:, None] + np.diagonal(sums) - 2 * sums
    noise = np.sqrt(np.maximum(variances, 0.0))
    single = np.sqrt(np.diagonal(covariance))
    starts = [
        _first_visible(counts, noise, single),
        _first_visible(counts[::-1], noise[::-1, ::-1], single[::-1]),
    ]
    hidden, tails = np.zeros(len(counts), dtype=np.bool_), np.zeros(len(counts))
    visible = np.arange(starts[0], len(counts) - starts[1])
    if not len(visible):  # nothing stands out
        return hidden, tails
    ends = np.append(0.0, np.cumsum(weights))
    below = np.cumsum(np.maximum(counts[visible], 0.0))
    middle = ends[visible[np.searchsorted(below, below[-1] / 2)]]
    for start, turned in zip(starts, (slice(None), slice(None, None, -1)), strict=True):
        run = np.arange(len(counts))[turned][:start][::-1]  # outwards
        hidden[run] = True
        if turned.step is None and sides[0] <= visible[0]:
            run = run[run >= sides[0]]
        elif turned.step and sides[1] > visible[-1]:
            run = run[run < sides[1]]
        edge_cell, *beside = visible[turned][:_BESIDE]
        first, after = min(beside, default=0), max(beside, default=-1) + 1
        alone = counts[edge_cell] > _SEEN_INTERVAL * single[edge_cell] and (
            counts[first:after].sum() <= _HIDDEN * noise[first, after]
        )
        if len(run) and not alone:
            edge = ends[run[0] + (turned.step is None)]
            inverse = np.asarray(np.linalg.inv(covariance[np.ix_(run, run)]), dtype=np.float64)
            usual = abs(edge - middle) * _USUAL_TAIL
            tails[run] = _fit_tail(counts[run], inverse, weights[run], usual)
    return hidden, tails


def _first_visible(counts: FloatArray, noise: FloatArray, single: FloatArray) -> int:
    """Return the start of the first half, quarter and so on that stands out of the noise."""
    start, stop = 0, len(counts)
    while stop - start > 1:
        middle = (start + stop) // 2
        half = counts[start:middle]
        large = (half > _SEEN_INTERVAL * single[start:middle]).any()
        if half.sum() > _SEEN_TAIL * noise[start, middle] or large:
            stop = middle
        else:
            start = middle
    return start


def _fit_tail(
    counts: FloatArray, precision: FloatArray, widths: FloatArray, usual: float
) -> FloatArray:
    """Return the expected counts of a run of cells, outwards, that follow a power law.

    This is the mean over scales of the law, weighted by how well each fits and is probable before.
    """
    ends = np.append(0.0, np.cumsum(np.maximum(widths, POSSIBLE)))
    usual = max(usual, ends[1])
    octaves = np.arange(math.log2(ends[1] / usual), math.log2(4 * ends[-1] / usual) + 1)
    scales = usual * 2.0**octaves
    laws = -np.diff((1 + ends / scales[:, None]) ** -_TAIL_POWER, axis=1)
    laws /= laws.sum(axis=1, keepdims=True)
    weighted = laws @ precision
    information = (weighted * laws).sum(axis=1)
    sizes = np.maximum(weighted @ counts / information, 0.0)
    unusual = np.where(octaves > 0, _LONGER, -_SHORTER) * octaves
    return softmax(sizes**2 * information / 2 - unusual) * sizes @ laws


def _join_cells(
    counts: FloatArray, n_groups: int, least: float, *, ordered: bool, missing: bool
) -> IntArray:
    """Join cells to groups; missing values have a group of their own."""
    present = counts[:-1] if missing else counts
    groups = (_group_intervals if ordered else _group_categories)(present, n_groups, least)
    return np.append(groups, groups.max() + 1) if missing else groups


def project_to_total(counts: FloatArray, total: float) -> FloatArray:
    """Return the nearest counts (L2) that are non-negative and have the given sum."""
    falling = np.sort(counts)[::-1]
    excess = np.cumsum(falling) - total
    last = np.flatnonzero(falling * np.arange(1, len(counts) + 1) > excess)[-1]
    return np.maximum(counts - excess[last] / (last + 1), 0.0)


def _group_intervals(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Join neighbouring cells; a cell with more than an equal share stays alone.

    Whatever the noise, there are at most ``3 * n_groups`` groups. Each of the k large cells is one.
    Between them are k + 1 runs of other cells, which hold ``n_groups - k`` steps together; two
    groups in a row hold more than 1.25 steps. This gives at most ``2.6 * n_groups``.
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
    # A small last group joins its neighbour, unless that is a large cell.
    if group and held < 0.3 * step and not is_large[groups == group - 1].any():
        groups[groups == group] = group - 1
    return groups


def _group_categories(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Keep frequent categories and join the others to the last group."""
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
    """Shrink the cells of a bin towards their weights, as far as noise explains the difference.

    Cells far above the noise stay unchanged. A bin keeps the sum of its raw counts, which have no
    bias, unlike clipped ones.
    """
    n_bins = int(bins.max()) + 1

    def added(values: FloatArray) -> FloatArray:
        return np.bincount(bins, values, n_bins).astype(np.float64)

    raw = np.where(weights > 0.0, counts, 0.0)
    sums = project_to_total(added(raw), float(nearest.sum()))
    plain = weights > 0.0
    for _ in range(2):  # the second time without cells that stand out
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
    totals = added(shrunk)[bins]
    # In a bin without rows, cells are as likely as their weights.
    flat = weights / np.maximum(added(weights), 1e-300)[bins]
    within = np.where(totals > 0.0, shrunk / np.maximum(totals, 1e-300), flat)
    return sums[bins] * within
