"""Where the data of two tables lie along each direction, and what noise may hide beyond.

Noise beyond the data costs most: a little mass far away adds its squared distance. Where a
distribution function is taken to be 0 or 1 the noise is known, and because noise is correlated
along a direction, so is a part of the noise beside it.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from skdpot.distance.compared_tables import ComparedTable

# How far the support reaches beyond a quantile, in distances of this quantile from the median: with
# the common noise once as far, and more for each tenth of this noise.
_WIDER = 1.0
_COMMON_NOISE = 0.006
_WIDER_PER_DECADE = 0.25
_LEAST_WIDER = 0.8
_MOST_WIDER = 2.0

# When mass beyond stands out of the noise: deviations of the noise, and a share of the mass on top.
_TOGETHER = 3.0  # along all directions together
_TOGETHER_MASS = 0.001
_ALONE = 4.5  # along one direction
_ALONE_MASS = 0.01


def common_support(tables: Sequence[ComparedTable]) -> np.ndarray:
    """Find the bins that hold the data of all tables, without the ends of their tails.

    The support reaches from the median to the 5 % and 95 % quantiles and about as far again: 3.3
    standard deviations of a Gaussian if the noise is 0.006, 3 if it is larger, and up to 5 if it is
    smaller. It has all bins along a direction with more mass beyond than noise explains, and along
    all directions if together they have a tenth of a per cent more: a little mass far away can be
    most of a distance.
    """
    n_bins, typical = tables[0].strategy.n_bins, max(table.cdf_noise for table in tables)
    wider = _WIDER + _WIDER_PER_DECADE * np.log10(_COMMON_NOISE / max(typical, 1e-12))
    stretch = 1 + np.clip(wider, _LEAST_WIDER, _MOST_WIDER)
    lows, highs = [], []
    for table in tables:
        middle, below, above = table.reach
        lows.append(middle - stretch * below)
        highs.append(middle + stretch * above)
    first = np.clip(np.floor(np.min(lows, axis=0)), 0, n_bins - 2).astype(np.intp)
    last = np.clip(np.ceil(np.max(highs, axis=0)), first + 2, n_bins).astype(np.intp)
    support = np.stack([first, last], axis=1)
    for table in tables:
        beyond, noise = _mass_beyond(table, support)
        alone = beyond > _ALONE * noise + _ALONE_MASS
        of_mean = np.linalg.norm(noise) / len(noise)
        together = beyond.mean() > _TOGETHER * of_mean + _TOGETHER_MASS
        support = np.where((alone | together)[:, None], (0, n_bins), support)
    return support


def _mass_beyond(table: ComparedTable, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mass beyond the support along each direction, and the noise of this mass."""
    strategy, rows, (first, last) = table.strategy, np.arange(len(support)), support.T
    entries = table.statistic / table.n_samples
    inner = strategy.known_total(entries @ strategy.decoder.T, 1.0)
    cdf = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
    covariance = np.pad(strategy.known_total_covariance, 1)
    variances = covariance[first, first] + covariance[last, last] - 2 * covariance[first, last]
    noise: np.ndarray = table.noise * np.sqrt(np.maximum(variances, 0.0))
    return cdf[rows, first] + 1.0 - cdf[rows, last], noise


def hidden_distance(tables: Sequence[ComparedTable], support: np.ndarray) -> tuple[float, float]:
    """Return what mass beyond the support could add to the squared distance, and its error.

    Mass moves from beyond the support to its middle at most. The mean square of a row along all
    directions is limited by the energy of the strategy. The cost is that of a row at this limit
    whose projections are distributed like a normal variable, for a share of its directions.
    """
    widths, n_bins = tables[0].smooth.half_widths, tables[0].strategy.n_bins
    cut = support[:, 1] - support[:, 0] < n_bins
    if not cut.any():
        return 0.0, 0.0
    limit = float((widths**2).mean()) * max(table.strategy.energy or 1.0 for table in tables)
    ends = ((support[:, 1] - support[:, 0]) * widths / n_bins)[cut] / math.sqrt(limit)
    tails = 2 * ndtr(-ends)
    excess = (1 - ends**2) * tails + 2 * ends * np.exp(-(ends**2) / 2) / math.sqrt(2 * math.pi)
    cost, shares, variances = limit * float(excess.sum() / tails.sum()), [], []
    for table in tables:
        beyond, noise = _mass_beyond(table, support)
        share = max(float(beyond.mean()), 0.0)
        shares.append(share)
        variances.append(float((noise**2).mean()) / len(noise) + share / table.n_samples)
    return cost * sum(shares), cost * math.sqrt(sum(variances))


def restricted(cdf: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Move the mass outside of the support along each direction to its ends."""
    edges = np.arange(cdf.shape[1])
    cut: np.ndarray = np.where(edges <= support[:, :1], 0.0, cdf)
    return np.where(edges >= support[:, 1:], 1.0, cut)
