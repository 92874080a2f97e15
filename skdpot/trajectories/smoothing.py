"""Smoothing of many series in time by one covariance, chosen by restricted likelihood."""

import numpy as np
from scipy.linalg import eigh

from skdpot._utils.arrays import FloatArray

# With fewer times, signal and noise cannot be told apart.
FEWEST_TIMES = 4
# The grid of covariances: ranges up to this multiple of the whole time, and ratios of noise.
_LONGEST_RANGE = 3.0
_N_RANGES = 16
_N_RATIOS = 36
_LEAST_RATIO = 1e-5
_LARGEST_RATIO = 1e2


def smoothing_weights(
    products: FloatArray, times: FloatArray, variances: FloatArray, largest_noise: float = np.inf
) -> FloatArray:
    r"""Return the matrix (T, T) that smooths many series, by their likeliest covariance.

    The series have unknown constant means and the covariance :math:`a(K_\ell + r V)`, with a Matérn
    kernel K of order 5/2 and range :math:`\ell`, and the diagonal matrix V of the variances (T,).
    `products` (T, T) are the inner products of the values at two times.

    References
    ----------
    Patterson and Thompson, "Recovery of inter-block information when block sizes are unequal",
    Biometrika 1971 (restricted likelihood). Chernozhukov, Fernández-Val and Galichon, "Improving
    point and interval estimators of monotone functions by rearrangement", Biometrika 2009.
    """
    n_times = len(times)
    if n_times < FEWEST_TIMES:
        return np.eye(n_times)
    noise = np.diag(variances / variances.mean())
    contrasts = np.linalg.svd(np.ones((1, n_times)))[2][1:]
    observed = contrasts @ products @ contrasts.T
    span = times[-1] - times[0]
    shortest = span / (n_times - 1)  # shorter ranges look like noise
    ranges = np.geomspace(shortest, _LONGEST_RANGE * span, _N_RANGES)
    ratios = np.geomspace(_LEAST_RATIO, _LARGEST_RATIO, _N_RATIOS)
    likeliest = (np.inf, 0.0, 0.0)
    for reach in ranges:
        of_signal = contrasts @ _matern(times, reach) @ contrasts.T
        masses, vectors = eigh(of_signal, contrasts @ noise @ contrasts.T)
        squares = np.maximum(np.einsum("ki,kl,li->i", vectors, observed, vectors), 0.0)
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
    return np.eye(n_times) - ratio * noise @ precision


def _matern(times: FloatArray, reach: float) -> FloatArray:
    """Return the Matérn kernel of order 5/2 between times, (T, T)."""
    scaled = np.sqrt(5.0) * np.abs(times[:, None] - times) / reach
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
