"""Bins that a noisy histogram can tell apart, and what it says of the cells inside them.

Everything here is computed from released counts.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skdpot.slicing.marginals import FloatArray, IntArray

__all__ = ["ColumnBins", "coarsen", "group_bins", "project_to_total"]

MAX_BINS = 24  # of a column with a scale or an order
_MAX_CATEGORIES = 64
_SEEN_CATEGORY = 3.0  # standard deviations of noise at which a category has a bin of its own,
_SEEN_INTERVAL = 4.0  # and rows of an interval
_SEEN_TAIL = 1.5  # and rows of a part of a tail
_POSSIBLE = 1e-9  # least share of a cell: what the noise hides may occur


@dataclass(frozen=True, eq=False)
class ColumnBins:
    """Bins of one column.

    Parameters
    ----------
    bins : ndarray of int, shape (n_cells,)
        Bin of each cell.
    cell_shares : ndarray of shape (n_cells,)
        Estimated share of the rows in each cell; they add up to 1.
    coarse : ndarray of int, shape (n_bins,)
        Group of each bin where fewer are wanted.
    """

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


def coarsen(
    counts: FloatArray,
    sigma: float,
    n_rows: int,
    *,
    ordered: bool,
    missing: bool,
    doubtful: npt.NDArray[np.bool_],
    n_groups: int,
) -> ColumnBins:
    """Choose bins by a noisy histogram.

    Neighbouring cells of a scale are joined until a bin stands out of the noise and has about its
    share of the rows; rare categories are joined to one bin. Missing values keep their own.

    Parameters
    ----------
    counts : ndarray of shape (n_cells,)
        Noisy numbers of rows.
    sigma : float
        Standard deviation of their noise.
    n_rows : int
        Number of rows.
    ordered : bool
        Whether neighbouring cells are alike.
    missing : bool
        Whether the last cell is that of missing values.
    doubtful : ndarray of bool, shape (n_cells,)
        Cells that count as empty unless they stand out of the noise.
    n_groups : int
        Number of groups that bins are joined to where fewer are wanted.

    Returns
    -------
    ColumnBins
    """
    empty = doubtful & (counts <= _SEEN_CATEGORY * sigma)
    if ordered:
        empty[: len(counts) - missing] |= ~_support(counts[: len(counts) - missing], sigma)
    if empty.all():
        empty[:] = False
    nearest = project_to_total(np.where(empty, -math.inf, counts), n_rows)
    present = nearest[:-1] if missing else nearest
    if ordered:
        bins = group_intervals(present, MAX_BINS, _SEEN_INTERVAL * sigma)
    else:
        bins = _group_categories(present, _MAX_CATEGORIES, _SEEN_CATEGORY * sigma)
    if missing:
        bins = np.append(bins, bins.max() + 1)
    cells = np.maximum(_shrunk(counts, nearest, bins, sigma, ~empty) / n_rows, _POSSIBLE)
    cells /= cells.sum()
    shares = np.bincount(bins, weights=cells).astype(np.float64)
    groups = group_bins(shares, n_groups, ordered=ordered, missing=missing)
    return ColumnBins(bins, cells, groups)


def _support(counts: FloatArray, sigma: float) -> npt.NDArray[np.bool_]:
    """Return which cells lie between the first and the last that rows seem to be in.

    Noise on many empty cells, once negative counts are cut off, would look like a long tail. From
    either end halves are dropped that noise explains, as a whole and in each cell.
    """
    first = _first_seen(counts, sigma)
    last = len(counts) - _first_seen(counts[::-1], sigma)
    inside = np.zeros(len(counts), dtype=np.bool_)
    inside[first:last] = True
    return inside


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


def group_bins(shares: FloatArray, n_groups: int, *, ordered: bool, missing: bool) -> IntArray:
    """Join bins to fewer groups, for marginals whose cells would drown in noise.

    Parameters
    ----------
    shares : ndarray of shape (n_bins,)
        Share of the rows in each bin.
    n_groups : int
        Number of groups aimed at. Cells of a scale that hold more than their share stay alone, so
        that there may be about twice as many.
    ordered, missing : bool
        As for `coarsen`.

    Returns
    -------
    ndarray of int, shape (n_bins,)
    """
    present = shares[:-1] if missing else shares
    if len(present) <= n_groups:
        groups: IntArray = np.arange(len(present))
    elif ordered:
        groups = group_intervals(present, n_groups, 0.0)
    else:
        groups = _group_categories(present, n_groups, 0.0)
    return np.append(groups, groups.max() + 1) if missing else groups


def project_to_total(counts: FloatArray, total: float) -> FloatArray:
    """Return the nearest counts (L2) that are not negative and have the right sum."""
    falling = np.sort(counts)[::-1]
    excess = np.cumsum(falling) - total
    last = np.flatnonzero(falling * np.arange(1, len(counts) + 1) > excess)[-1]
    nearest: FloatArray = np.maximum(counts - excess[last] / (last + 1), 0.0)
    return nearest


def group_intervals(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Join neighbouring cells; one that has more than its share alone stays alone."""
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
    counts: FloatArray,
    nearest: FloatArray,
    bins: IntArray,
    sigma: float,
    taken: npt.NDArray[np.bool_],
) -> FloatArray:
    """Draw the cells of a bin towards their mean by as much as noise explains their spread.

    Cells that stand far out of the noise stay as they are. The sum of a bin is that of its raw
    counts, which unlike those without negative ones have no bias.
    """
    n_bins = int(bins.max()) + 1
    raw = np.where(taken, counts, 0.0)
    sums = np.bincount(bins, weights=raw).astype(np.float64)
    sums = project_to_total(sums, float(nearest.sum()))
    means = np.bincount(bins, weights=raw) / np.maximum(np.bincount(bins, weights=taken), 1.0)
    plain = taken & (raw - means[bins] <= _SEEN_INTERVAL * sigma)
    sizes = np.maximum(np.bincount(bins, weights=plain), 1.0)
    means = np.bincount(bins, weights=np.where(plain, raw, 0.0)) / sizes
    deviations = np.where(plain, raw - means[bins], 0.0)
    spread = np.bincount(bins, weights=deviations**2) / np.maximum(sizes - 1.0, 1.0)
    kept = np.maximum(spread - sigma**2, 0.0) / np.maximum(spread, 1e-300)
    shrunk = np.where(plain, means[bins] + kept[bins] * deviations, raw)
    shrunk = np.where(taken, np.maximum(shrunk, 0.0), 0.0)
    found = np.bincount(bins, weights=shrunk, minlength=n_bins)
    # Of a bin without rows each cell is as likely as another.
    flat = np.where(taken, 1.0, 0.0) / np.maximum(np.bincount(bins, weights=taken), 1.0)[bins]
    within = np.where(found[bins] > 0.0, shrunk / np.maximum(found[bins], 1e-300), flat)
    cells: FloatArray = sums[bins] * within
    return cells
