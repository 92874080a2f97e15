"""A guess of the joint distribution inside coarse groups: a mixture of Gaussian copulas.

If noise leaves eight groups per column, strongly dependent columns look independent inside a group.
A mixture of Gaussian copulas is fitted to the noisy table by non-negative least squares and spread
over the bins of both columns. Iterative scaling then moves this guess to the counts. Everything is
computed from released counts.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from skdpot._utils.arrays import FloatArray
from skdpot.tables.contingency import NoisyMarginal

_RANKS = 128  # intervals of ranks in which copulas are computed
_CORRELATIONS = (0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99)  # of the mixture, with their negatives
_SINGLE = 2.0  # times the mean share: a larger bin is a single value, such as zero
FEWEST_TIED = 3  # ordered bins from which on a copula says more than independence
_BALANCED = 10  # rescalings of rows and columns


def tied_shares(
    noisy: NoisyMarginal, shares: Sequence[FloatArray], in_order: Sequence[int]
) -> FloatArray:
    """Return joint shares of the bins of a pair under the best mixture of copulas."""
    independent = np.outer(*shares)
    ordered = [np.arange(n) for n in in_order]
    spread = [
        np.flatnonzero(part[:n] < _SINGLE / n) for part, n in zip(shares, in_order, strict=True)
    ]
    mixed = [independent]
    for tied in [ordered] if min(map(len, spread)) < FEWEST_TIED else [ordered, spread]:
        first, second = (_rank_overlaps(s[bins]) for s, bins in zip(shares, tied, strict=True))
        block = np.ix_(*tied)
        for copula in _gaussian_copulas():
            table = independent.copy()
            table[block] = first @ copula @ second.T * independent[block].sum()
            mixed.append(table)
    counted = np.stack([noisy.marginal.joined(table) for table in mixed], axis=1)
    try:
        weights, _ = nnls(counted, noisy.counts)
    except RuntimeError:  # too many steps: keep independence
        weights = np.zeros(1)
    if not weights.any():
        return independent
    return _rescale_margins(np.tensordot(weights, mixed, 1), *shares)


def _rescale_margins(table: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Rescale columns and rows until they sum to the given shares, rows exactly."""
    for _ in range(_BALANCED):
        table = table * (columns / np.maximum(table.sum(axis=0), 1e-300))
        table = table * (rows / np.maximum(table.sum(axis=1), 1e-300))[:, None]
    return table


def _rank_overlaps(shares: FloatArray) -> FloatArray:
    """Return the part of each interval of ranks in each bin; shape (n_bins, n_ranks)."""
    ends = np.append(0.0, np.cumsum(shares)) * (_RANKS / shares.sum())
    below = np.clip(ends[:, None] - np.arange(_RANKS), 0.0, 1.0)
    return np.diff(below, axis=0)


@cache
def _gaussian_copulas() -> tuple[FloatArray, ...]:
    """Return joint shares of intervals of ranks, per correlation and its negative."""
    x = ndtri((np.arange(_RANKS) + 0.5) / _RANKS)
    even = np.full(_RANKS, 1.0 / _RANKS)
    tables = []
    for rho in _CORRELATIONS:
        exponent = rho**2 * np.add.outer(x**2, x**2) - 2.0 * rho * np.outer(x, x)
        density = np.exp(-exponent / (2.0 * (1.0 - rho**2)))
        rising = _rescale_margins(density, even, even)
        tables += [rising, rising[::-1]]
    return tuple(tables)
