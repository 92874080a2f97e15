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
# The grid of covariances for known noise: the shortest range makes times independent, and the
# amplitudes are variances in squared units of length.
_SHORTEST_RANGE = 0.25
_AMPLITUDES = np.geomspace(1e-4, 4.0, 30)
# Larger ratios of variances are taken for this one: the others decide, and rounding does not.
_LARGEST_CONTRAST = 1e9


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


def smoothed_with_errors(
    values: FloatArray, times: FloatArray, variances: FloatArray, dimension: int
) -> tuple[FloatArray, FloatArray]:
    r"""Return the posterior means (T, d) of a series in time, and the deviation of each time, (T,).

    The values (T, d) are the series plus Gaussian noise of known variances (T,) in each of
    `dimension` orthogonal directions, to which they are confined. The series has an unknown
    constant mean and the covariance :math:`a K_\ell`, with a Matérn kernel of order 5/2. The
    posterior is averaged over a grid of amplitudes and ranges, by their restricted likelihoods; so
    the deviations include what the choice of a covariance is unsure of.

    With the variances V, the contrasts C of times and :math:`P = C^T (C (aK + V) C^T)^{-1} C`, the
    noise has the posterior mean :math:`V P y` and the covariance :math:`V - V P V`.
    """
    n_times = len(times)
    noise = np.maximum(variances, variances.max() / _LARGEST_CONTRAST)
    if n_times == 1 or not noise.any():
        return values, np.sqrt(variances)
    contrasts = np.linalg.svd(np.ones((1, n_times)))[2][1:]
    of_noise = (contrasts * noise) @ contrasts.T
    span = times[-1] - times[0]
    shortest = _SHORTEST_RANGE * span / (n_times - 1)
    misfits, maps = [], []
    for reach in np.geomspace(shortest, _LONGEST_RANGE * span, _N_RANGES):
        masses, vectors = eigh(contrasts @ _matern(times, reach) @ contrasts.T, of_noise)
        back = contrasts.T @ vectors
        spread = 1.0 + _AMPLITUDES[:, None] * np.maximum(masses, 0.0)
        squares = np.square(back.T @ values).sum(axis=1)
        misfits.append(dimension * np.log(spread).sum(axis=1) + (squares / spread).sum(axis=1))
        maps.append((back / spread[:, None, :]) @ back.T)
    likelihoods = np.exp((np.min(misfits) - np.ravel(misfits)) / 2)
    shares = likelihoods / likelihoods.sum()
    errors = noise[:, None] * np.concatenate(maps)  # (n_models, T, T): maps y to its noise
    mean_error = np.tensordot(shares, errors, 1)
    products = values @ values.T / dimension
    apart = errors - mean_error
    between = np.einsum("kts,su,ktu,k->t", apart, products, apart, shares, optimize=True)
    within = noise - np.diag(mean_error) * noise
    return values - mean_error @ values, np.sqrt(np.maximum(within + between, 0.0))


def _matern(times: FloatArray, reach: float) -> FloatArray:
    """Return the Matérn kernel of order 5/2 between times, (T, T)."""
    scaled = np.sqrt(5.0) * np.abs(times[:, None] - times) / reach
    return (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
