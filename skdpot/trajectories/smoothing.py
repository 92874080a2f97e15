r"""Smoothing in time of what is estimated at each time apart.

Quantile functions along a direction change little from one time to the next, and the errors of
different times are independent: the records are others, and so is the noise. Each quantile is
taken for a Gaussian process in time, seen with noise. How fast it changes, and how strong the noise
is, are the same for all quantiles along all directions, and maximise their restricted likelihood.
What changes without any order from one time to the next looks like noise, so that noise is believed
only up to a level that is known beforehand: where nothing is common to neighbouring times, and more
happens than that, next to nothing is smoothed.

Averages of quantile functions are quantile functions of Wasserstein barycentres, so that clouds
that move are smoothed along their way and not smeared.
"""

import numpy as np
from scipy.linalg import eigh

__all__ = ["smoothed_in_time", "smoothing_weights"]

_FEWEST_TIMES = 4  # below there is no telling signal from noise
_LONGEST = 3.0  # range of correlation, in units of the whole time
_N_RANGES, _N_RATIOS = 16, 36
_LEAST_RATIO, _LARGEST_RATIO = 1e-5, 1e2


def smoothed_in_time(
    values: np.ndarray, times: np.ndarray, variances: np.ndarray, largest_noise: float = np.inf
) -> np.ndarray:
    """Return estimates of quantile functions that borrow from neighbouring times.

    Parameters
    ----------
    values : ndarray of shape (T, ..., n_levels)
        Quantiles, increasing along the last axis, estimated at each time apart.
    times : ndarray of shape (T,)
        Increasing.
    variances : ndarray of shape (T,)
        Variances of their errors, up to a common factor.
    largest_noise : float, default=inf
        Largest mean square of the errors that is believed.

    Returns
    -------
    ndarray of shape (T, ..., n_levels)
        Increasing along the last axis. The values themselves below four times.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    weights = smoothing_weights(flat @ flat.T, times, variances, largest_noise * flat.shape[1])
    smooth = (weights @ flat).reshape(values.shape)
    # Weights below zero can make two neighbouring quantiles change places; their
    # rearrangement is nearer to every increasing function than they are.
    smooth.sort(axis=-1)
    return smooth


def smoothing_weights(
    products: np.ndarray, times: np.ndarray, variances: np.ndarray, largest_noise: float = np.inf
) -> np.ndarray:
    r"""Return the matrix that smooths many series with one likeliest covariance.

    The series have unknown constant means, covariance :math:`a(K_\ell + r V)`, a Matérn kernel K
    of order 5/2 and range :math:`\ell`, and V the diagonal of the variances.

    Parameters
    ----------
    products : ndarray of shape (T, T)
        Inner products of the values at two times, ``Y @ Y.T`` for series in the columns of Y.
    times : ndarray of shape (T,)
        Increasing.
    variances : ndarray of shape (T,)
        Variances of the noise, up to a common factor.
    largest_noise : float, default=inf
        Largest mean variance of the noise that is believed, summed over the series. Without it,
        series that change from one time to the next in no recognisable way are all noise, and are
        averaged.

    Returns
    -------
    ndarray of shape (T, T)
        Rows sum to one.

    References
    ----------
    Patterson and Thompson, "Recovery of inter-block information when block sizes are unequal",
    Biometrika 1971 (restricted likelihood). Chernozhukov, Fernández-Val and Galichon, "Improving
    point and interval estimators of monotone functions by rearrangement", Biometrika 2009.
    """
    n_times = len(times)
    if n_times < _FEWEST_TIMES:
        return np.eye(n_times)
    noise = np.diag(variances / variances.mean())
    contrasts = np.linalg.svd(np.ones((1, n_times)))[2][1:]
    seen = contrasts @ products @ contrasts.T
    span = times[-1] - times[0]
    shortest = span / (n_times - 1)  # shorter ranges cannot be told from noise
    ranges = np.geomspace(shortest, _LONGEST * span, _N_RANGES)
    ratios = np.geomspace(_LEAST_RATIO, _LARGEST_RATIO, _N_RATIOS)
    likeliest = (np.inf, 0.0, 0.0)
    for reach in ranges:
        of_signal = contrasts @ _matern(times, reach) @ contrasts.T
        masses, vectors = eigh(of_signal, contrasts @ noise @ contrasts.T)
        squares = np.maximum(np.einsum("ki,kl,li->i", vectors, seen, vectors), 0.0)
        spread = np.maximum(masses, 0.0) + ratios[:, None]
        best_amplitudes = np.maximum((squares / spread).mean(axis=1), np.finfo(float).tiny)
        amplitudes = np.minimum(best_amplitudes, largest_noise / ratios)
        misfits = np.log(spread).sum(axis=1) + (n_times - 1) * (
            np.log(amplitudes) + best_amplitudes / amplitudes
        )
        best = int(misfits.argmin())
        likeliest = min(likeliest, (float(misfits[best]), float(reach), float(ratios[best])))
    _, reach, ratio = likeliest
    covariance = _matern(times, reach) + ratio * noise
    precision = contrasts.T @ np.linalg.solve(contrasts @ covariance @ contrasts.T, contrasts)
    weights: np.ndarray = np.eye(n_times) - ratio * noise @ precision
    return weights


def _matern(times: np.ndarray, reach: float) -> np.ndarray:
    scaled = np.sqrt(5.0) * np.abs(times[:, None] - times) / reach
    kernel: np.ndarray = (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    return kernel
