"""From the released statistic to cumulative distributions: post-processing, free.

The released table is ``S = A h + σ·noise`` for every class and slice. ``D = T A^{-1}``
turns it into noisy cumulative counts with covariance ``σ² D Dᵀ``; what is known for
certain (how many rows there are, that a distribution function increases) is then imposed.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from skdpot.slicing.posterior import posterior_mean, posterior_mean_by_class
from skdpot.slicing.strategy import SquareRootStrategy

__all__ = [
    "class_totals",
    "decode",
    "decode_by_class",
    "decode_cumulative",
    "increasing",
    "known_total",
]


def decode(
    statistic: np.ndarray,
    strategy: SquareRootStrategy,
    n_samples: int,
    sigma: float,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Decode a released table into distribution functions at the bin edges.

    Parameters
    ----------
    statistic : ndarray of shape (n_classes, n_slices, n_bins)
        The released, noisy statistic S.
    strategy : SquareRootStrategy
        The strategy it was measured with.
    n_samples : int
        Public number of rows n.
    sigma : float
        Standard deviation of the noise of each entry.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.

    Returns
    -------
    cdf : ndarray of shape (n_classes, n_slices, n_bins + 1)
        Non-decreasing, from 0 to 1.
    totals : ndarray of shape (n_classes,)
        Estimated rows a class; they sum to n. With one class exactly n.

    Notes
    -----
    Knowing the total means conditioning a Gaussian vector on its last entry:
    ``c_j <- c_j - (C_jB / C_BB) (c_B - n)`` with ``C = D Dᵀ``. A linear bridge, j / B in
    place of the ratio, is right for white noise only. Isotonic regression is the
    projection on the increasing functions, hence never moves away from the true one.
    Between the two, noisy functions are replaced by their `posterior_mean`.
    """
    cumulative = statistic @ strategy.decoder.T
    totals = class_totals(cumulative[:, :, -1].mean(axis=1), n_samples)
    inner = known_total(cumulative, strategy, totals[:, None, None])
    if sigma > 0:
        covariance = strategy.known_total_covariance
        weights = totals / totals.sum()
        noise = sigma / totals
        inner = posterior_mean(inner, covariance, noise, weights, directions, half_widths)
    return increasing(inner), totals


def decode_by_class(
    statistic: np.ndarray,
    strategy: SquareRootStrategy,
    class_counts: np.ndarray,
    sigma: float,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> np.ndarray:
    """Decode a released table whose class sizes are public.

    A known size is one noisy number less in every class. And classes that are public, such as
    time stamps, need not be alike, as `decode` has it a priori: see `posterior_mean_by_class`.

    Parameters
    ----------
    statistic : ndarray of shape (n_classes, n_slices, n_bins)
        The released, noisy statistic S.
    strategy : SquareRootStrategy
        The strategy it was measured with.
    class_counts : ndarray of shape (n_classes,), int
        Public number of rows of each class.
    sigma : float
        Standard deviation of the noise of each entry.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.

    Returns
    -------
    ndarray of shape (n_classes, n_slices, n_bins + 1)
        Non-decreasing, from 0 to 1. For a class without rows, whose table is noise alone, uniform
        over the binned range.
    """
    cdf = np.empty((*statistic.shape[:2], strategy.n_bins + 1))
    cdf[...] = np.linspace(0.0, 1.0, strategy.n_bins + 1)
    present = np.flatnonzero(class_counts)
    totals = class_counts[present].astype(np.float64)
    cumulative = statistic[present] @ strategy.decoder.T
    inner = known_total(cumulative, strategy, totals[:, None, None])
    if sigma > 0:
        covariance = strategy.known_total_covariance
        weights, noise = totals / totals.sum(), sigma / totals
        measured = (noise, weights, directions, half_widths)
        inner = posterior_mean_by_class(inner, covariance, *measured)
    cdf[present] = increasing(inner)
    return cdf


def decode_cumulative(
    statistic: np.ndarray, strategy: SquareRootStrategy, n_samples: int
) -> np.ndarray:
    """Decode a table of known total without any prior on its functions.

    For functions of which little is known beforehand, and few of them: outputs of a network that
    is being trained, for example.

    Parameters
    ----------
    statistic : ndarray of shape (n_slices, n_bins)
        The released, noisy statistic.
    strategy : SquareRootStrategy
        The strategy it was measured with.
    n_samples : int
        Public number of rows that were counted.

    Returns
    -------
    ndarray of shape (n_slices, n_bins + 1)
        Distribution functions at the bin edges, non-decreasing from 0 to 1.
    """
    total = np.full((1, 1), float(n_samples))
    return increasing(known_total(statistic @ strategy.decoder.T, strategy, total))


def class_totals(noisy: np.ndarray, n_samples: int) -> np.ndarray:
    """Project noisy class totals on the totals that are at least 1 and sum to n.

    Parameters
    ----------
    noisy : ndarray of shape (n_classes,)
        Noisy number of rows a class.
    n_samples : int
        Public number of rows. With fewer rows than classes the floor is their ratio, not 1.

    Returns
    -------
    ndarray of shape (n_classes,)
        The nearest point, in Euclidean distance, of ``{t : t >= 1, sum(t) = n}``.
    """
    floor = min(1.0, n_samples / len(noisy))
    free = n_samples - floor * len(noisy)
    ordered = np.sort(noisy - floor)[::-1]
    shifts = (np.cumsum(ordered) - free) / np.arange(1, len(noisy) + 1)
    shift = shifts[np.flatnonzero(ordered >= shifts)[-1]]
    totals: np.ndarray = floor + np.maximum(noisy - floor - shift, 0)
    return totals


def known_total(
    cumulative: np.ndarray, strategy: SquareRootStrategy, totals: np.ndarray | float
) -> np.ndarray:
    """Return distribution functions at the inner edges, given that they end at 1.

    Parameters
    ----------
    cumulative : ndarray of shape (..., n_bins)
        Noisy cumulative counts.
    strategy : SquareRootStrategy
        The strategy that was measured with.
    totals : float or ndarray
        What the last count is known to be.

    Returns
    -------
    ndarray of shape (..., n_bins - 1)
        Linear in the counts; neither monotone nor within [0, 1].
    """
    last = strategy.covariance[:, -1]
    excess = cumulative[..., -1:] - totals
    inner: np.ndarray = (cumulative - excess * last / last[-1])[..., :-1] / totals
    return inner


def increasing(inner: np.ndarray) -> np.ndarray:
    """Return the nearest non-decreasing functions, from 0 to 1.

    Parameters
    ----------
    inner : ndarray of shape (..., n_bins - 1)
        Values at the inner bin edges.

    Returns
    -------
    ndarray of shape (..., n_bins + 1)
        Values at all bin edges.
    """
    cdf = np.zeros((*inner.shape[:-1], inner.shape[-1] + 2))
    cdf[..., -1] = 1.0
    for row, values in zip(
        cdf.reshape(-1, cdf.shape[-1]), inner.reshape(-1, inner.shape[-1]), strict=True
    ):
        row[1:-1] = np.clip(isotonic_regression(values).x, 0.0, 1.0)
    return cdf
