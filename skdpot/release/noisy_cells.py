"""Estimates from noisy counts of cells: cells that stand out, quantiles, expected counts."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, softmax, stdtr

from skdpot._utils.arrays import FloatArray, IntArray

FALSE_ALARM = 1e-4  # probability that noise alone stands out in any window
_WINDOWS = (1, 2, 4, 8, 16)  # widths in cells
_heavy_tailed = partial(stdtr, 1.5)  # Student's t with 1.5 degrees of freedom
_N_SPREADS = 17  # of bells
_DOUBT = 0.5  # prior standard deviation of a count, as a share of its expectation
STANDS_OUT = 4.0  # standard deviations of the noise


def threshold(n_cells: int) -> float:
    """Return the z-score that noise alone exceeds in some window with probability `FALSE_ALARM`."""
    return float(-ndtri(FALSE_ALARM / (n_cells * len(_WINDOWS))))


def cells_seen(table: FloatArray, sigma: float, z: float) -> IntArray:
    """Return the cells of windows that stand out from the noise, with margins of half a window.

    Wider windows are searched in the cells that narrower ones have left. So a single value does not
    bring empty neighbours along, whose summed noise would hide the other counts.
    """
    left, seen = table.copy(), np.zeros(table.size, dtype=np.bool_)
    for window in (w for w in _WINDOWS if w <= table.size):
        totals = np.convolve(left, np.ones(window), mode="valid")
        hits = np.flatnonzero(totals > max(z * sigma * np.sqrt(window), 0.5))
        steps = np.zeros(table.size + 1, dtype=np.int64)
        np.add.at(steps, np.maximum(hits - window // 2, 0), 1)
        np.add.at(steps, np.minimum(hits + window + window // 2, table.size), -1)
        inside = np.cumsum(steps[:-1]) > 0
        seen |= inside
        left[inside] = 0.0
    return np.flatnonzero(seen)


def noisy_quantiles(counts: FloatArray, cells: IntArray, levels: npt.ArrayLike) -> FloatArray:
    """Return quantiles of the expected counts of some cells, in units of cells."""
    cumulative = np.concatenate([[0.0], np.cumsum(counts)])
    rising = np.maximum.accumulate(cumulative)
    falling = np.minimum.accumulate(cumulative[::-1])[::-1]
    monotone = (rising + falling) / 2
    targets = monotone[0] + np.asarray(levels) * (monotone[-1] - monotone[0])
    after = np.clip(np.searchsorted(monotone, targets, side="right"), 1, cells.size)
    low, high = monotone[after - 1], monotone[after]
    share = np.divide(targets - low, high - low, out=np.full(after.shape, 0.5), where=high > low)
    return np.asarray(cells[after - 1] + share, dtype=np.float64)


@lru_cache(maxsize=4)
def _bells(n_cells: int, n_samples: int, sigma: float) -> tuple[FloatArray, ...]:
    """Return counts of bell-shaped laws, log spreads, and the terms of their likelihoods."""
    middles, spreads = np.arange(0.0, n_cells, 0.5), np.geomspace(0.125, n_cells / 6, _N_SPREADS)
    # Ends of cells minus middles of laws are multiples of 1/2, so many pairs share few values.
    places = np.arange(-n_cells, n_cells + 0.5, 0.5) / spreads[:, None]
    pairs = 2 * (np.arange(1, n_cells) + n_cells) - np.arange(2 * n_cells)[:, None]
    cumulative = np.empty((2, middles.size, spreads.size, n_cells + 1))
    laws: list[Callable[..., Any]] = [ndtr, _heavy_tailed]
    for law, of_law in zip(laws, cumulative, strict=True):
        of_law[..., 1:-1] = law(places)[:, pairs].swapaxes(0, 1)
        of_law[..., 0], of_law[..., -1] = law(np.array([-np.inf, np.inf]))
    bells = n_samples * np.diff(cumulative).reshape(-1, n_cells)
    variances = sigma**2 + np.square(_DOUBT * bells)
    constants = (np.square(bells) / variances + np.log(variances)).sum(axis=1)
    logs = np.tile(np.log(spreads), 2 * middles.size)
    return bells, logs, 1 / variances, bells / variances, constants


def _bell_misfits(table: FloatArray, sigma: float, n_samples: int) -> FloatArray:
    _, _, precisions, filters, constants = _bells(table.size, n_samples, sigma)
    return np.asarray(precisions @ table**2 - 2 * (filters @ table) + constants)


def bell_posterior(
    table: FloatArray, sigma: float, n_samples: int, log_spread: float, deviation: float
) -> tuple[float, float, float, float]:
    """Return middle and log spread of a bell-shaped law in cells, each with its standard error.

    `log_spread` and `deviation` are those of the prior of the log spread.
    """
    logs = _bells(table.size, n_samples, sigma)[1]
    middles = np.tile(
        np.repeat(np.arange(0.0, table.size, 0.5), _N_SPREADS),
        len(logs) // (2 * table.size * _N_SPREADS),
    )
    prior = ((logs - log_spread) / deviation) ** 2
    weights = softmax(-0.5 * (_bell_misfits(table, sigma, n_samples) + prior))
    means = [float(weights @ values) for values in (middles, logs)]
    variances = [
        float(weights @ np.square(values - mean))
        for values, mean in zip((middles, logs), means, strict=True)
    ]
    return means[0], math.sqrt(variances[0]), means[1], math.sqrt(variances[1])


def expected_counts(table: FloatArray, sigma: float, n_samples: int) -> FloatArray:
    """Return the expected counts of cells given noisy ones, for at most `n_samples` rows.

    The prior is a smooth Gaussian process around a mixture of bell-shaped laws, weighted by their
    likelihoods. Counts that stand out from it, such as ties, are kept.
    """
    if not sigma:
        return table
    bells, logs = _bells(table.size, n_samples, sigma)[:2]
    weights = softmax(-0.5 * _bell_misfits(table, sigma, n_samples))
    expected = weights @ bells
    places = np.arange(table.size) / np.exp(weights @ logs)
    correlations = np.exp(-0.5 * np.square(places[:, None] - places))
    correlations += _DOUBT**2 * (1 + np.eye(table.size))
    rest = table - expected
    covariance = correlations * np.outer(expected, expected)
    covariance += np.diag(np.where(np.abs(rest) > STANDS_OUT * sigma, rest**2, 0.0))
    noisy = covariance + sigma**2 * np.eye(table.size)
    return np.asarray(expected + covariance @ np.linalg.solve(noisy, rest))
