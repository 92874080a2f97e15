r"""The posterior mean of distribution functions that were released with Gaussian noise.

Isotonic regression alone turns noise into mass: where a distribution function is 0 or 1, noise
can only be clipped to one side, so every class looks wider than it is. This module estimates
each function under a prior instead, all of it post-processing of the release (empirical Bayes):

- along each direction a class is a priori a Dirichlet process around a Gaussian, so that its
  distribution function F has mean G and covariance ``τ G(s) (1 - G(t))`` for s <= t: no mass
  far away where G has none, freedom where it has much. In the covariance G has a small
  uniform part: with none, no table however exact could show a second cluster in a tail of G;
- the Gaussians' locations and spreads, and τ, are estimated from the released table.

Units: positions along a direction are divided by the half width of its binned range.
"""

import numpy as np
from scipy.special import ndtr

from skdpot._utils.threads import one_blas_thread

__all__ = ["posterior_mean"]

_LOCATIONS = np.linspace(-1.0, 1.0, 129)
_SPREADS = np.geomspace(0.03, 1.0, 24)
_CLASS_SHARES = np.linspace(0.35, 1.0, 14)
_SPREAD_LOG_DEVIATION = 0.35  # how much spreads differ between directions, a priori
_CONCENTRATIONS = np.geomspace(1e-5, 1.0, 31)
_UNIFORM_SHARE = 0.02  # of the base measure: mass may be anywhere, if the table insists
_ROWS_FOR_CONCENTRATION = 256
_BLOCK_ELEMENTS = 2**22


@one_blas_thread()  # many small products: threads would only wait for each other
def posterior_mean(
    cdf: np.ndarray,
    covariance: np.ndarray,
    noise: np.ndarray,
    weights: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
) -> np.ndarray:
    """Return the empirical-Bayes posterior mean of noisy distribution functions.

    Parameters
    ----------
    cdf : ndarray of shape (n_classes, n_slices, n_inner)
        Noisy values at the inner bin edges.
    covariance : ndarray of shape (n_inner, n_inner)
        Covariance of their noise, up to its level.
    noise : ndarray of shape (n_classes,)
        Level of the noise: the covariance of a row of class c is ``noise[c]**2 * covariance``.
    weights : ndarray of shape (n_classes,)
        Shares of the classes; they sum to one.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.

    Returns
    -------
    ndarray of shape (n_classes, n_slices, n_inner)
        Estimates; not necessarily monotone.

    Notes
    -----
    The spread of all classes together has, along each direction, a posterior under a
    log-normal prior around the spread that fits all directions best. Within a class it is a
    common fraction of that, chosen by marginal likelihood, and the location of a class has a
    posterior under a normal prior around the common location. Locations of one class along
    all directions are projected on the projections of one point. τ maximises the marginal
    likelihood of the differences. Noise that differs between the L / d orthogonal blocks of
    directions averages out in what is computed from all of them, so it is counted with
    variance d / L when the differences are shrunk.

    References
    ----------
    T. S. Ferguson, "A Bayesian analysis of some nonparametric problems", Annals of Statistics
    1 (1973): mean and covariance of a Dirichlet process.
    """
    root = np.linalg.cholesky(covariance)
    whiten = np.linalg.inv(root)
    n_classes, n_slices, n_inner = cdf.shape
    edges = np.linspace(-1.0, 1.0, n_inner + 2)[1:-1]
    white = cdf @ whiten.T
    pooled = np.tensordot(weights, white, axes=1)
    pooled_noise = float(np.sqrt(np.sum((weights * noise) ** 2)))
    centers, spreads = _pooled_fit(pooled, pooled_noise, edges, whiten)
    shares = _CLASS_SHARES if n_classes > 1 else np.ones(1)
    width = 1.0 if n_classes > 1 else np.inf
    fits = [
        _class_locations(white, noise, edges, whiten, centers, spreads, share, width)
        for share in shares
    ]
    best = int(np.argmax([evidence for _, evidence in fits]))
    locations = fits[best][0] * half_widths
    points = np.linalg.lstsq(directions, locations.T, rcond=None)[0]
    locations = (points.T @ directions.T) / half_widths
    gaussian = ndtr((edges - locations[:, :, None]) / (shares[best] * spreads)[None, :, None])
    averaged = min(1.0, directions.shape[1] / n_slices)
    rows = gaussian.reshape(-1, n_inner)
    levels = np.repeat(noise, n_slices)
    base = (1 - _UNIFORM_SHARE) * rows + _UNIFORM_SHARE * (edges + 1) / 2
    kept = _shrunk(white.reshape(rows.shape) - rows @ whiten.T, base, levels, whiten, averaged)
    estimate: np.ndarray = (rows + kept @ root.T).reshape(cdf.shape)
    return estimate


def _misfits(white: np.ndarray, edges: np.ndarray, whiten: np.ndarray, spread: float) -> np.ndarray:
    """Return half the squared whitened misfit of each row to a Gaussian at each location."""
    models = ndtr((edges - _LOCATIONS[:, None]) / spread) @ whiten.T
    squares = np.sum(white**2, axis=-1)[..., None] + np.sum(models**2, axis=1)
    misfits: np.ndarray = 0.5 * squares - white @ models.T
    return misfits


def _pooled_fit(
    white: np.ndarray, noise: float, edges: np.ndarray, whiten: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return location and spread of all classes together along each direction."""
    misfits = np.stack([_misfits(white, edges, whiten, s) for s in _SPREADS]) / noise**2
    profile = -misfits.min(axis=2)  # (n_spreads, n_slices)
    common = _SPREADS[profile.sum(axis=1).argmax()]
    prior = -0.5 * (np.log(_SPREADS / common) / _SPREAD_LOG_DEVIATION) ** 2
    posterior = _normalised(profile + prior[:, None])
    spreads = np.exp(np.log(_SPREADS) @ posterior)
    nearest = np.abs(np.log(_SPREADS[:, None] / spreads)).argmin(axis=0)
    at = misfits[nearest, np.arange(len(white))].argmin(axis=1)
    return _LOCATIONS[at], spreads


def _class_locations(
    white: np.ndarray,
    noise: np.ndarray,
    edges: np.ndarray,
    whiten: np.ndarray,
    centers: np.ndarray,
    spreads: np.ndarray,
    share: float,
    width: float,
) -> tuple[np.ndarray, float]:
    """Return posterior mean locations (n_classes, n_slices) and their log evidence."""
    locations = np.empty(white.shape[:2])
    evidence = 0.0
    for j, (center, spread) in enumerate(zip(centers, spreads, strict=True)):
        log_likelihood = -_misfits(white[:, j], edges, whiten, share * spread)
        log_likelihood /= noise[:, None] ** 2
        prior = _normalised(-0.5 * ((_LOCATIONS - center) / (width * spread)) ** 2)
        highest = log_likelihood.max(axis=1, keepdims=True)
        joint = np.exp(log_likelihood - highest) * prior
        total = joint.sum(axis=1)
        locations[:, j] = joint @ _LOCATIONS / total
        evidence += float(np.sum(np.log(total) + highest[:, 0]))
    return locations, evidence


def _normalised(log_values: np.ndarray) -> np.ndarray:
    """Exponentiate and scale to sum to one along the first axis."""
    values = np.exp(log_values - log_values.max(axis=0))
    scaled: np.ndarray = values / values.sum(axis=0)
    return scaled


def _shrunk(
    residual: np.ndarray,
    gaussian: np.ndarray,
    levels: np.ndarray,
    whiten: np.ndarray,
    averaged: float,
) -> np.ndarray:
    """Return the posterior mean of whitened differences from the Gaussians."""
    n_rows, n_inner = residual.shape
    chosen = slice(None, None, -(-n_rows // _ROWS_FOR_CONCENTRATION))
    kept = np.empty_like(residual)
    block = max(1, _BLOCK_ELEMENTS // n_inner**2)
    tau = _concentration(residual[chosen], gaussian[chosen], levels[chosen], whiten)
    for start in range(0, n_rows, block):
        part = slice(start, start + block)
        prior = tau * _bridges(gaussian[part], whiten)
        noise = averaged * levels[part, None, None] ** 2 * np.eye(n_inner)
        solved = np.linalg.solve(prior + noise, residual[part, :, None])
        kept[part] = (prior @ solved)[:, :, 0]
    return kept


def _concentration(
    residual: np.ndarray, gaussian: np.ndarray, levels: np.ndarray, whiten: np.ndarray
) -> float:
    """Return the τ of the largest marginal likelihood."""
    values, vectors = np.linalg.eigh(_bridges(gaussian, whiten))
    squares = np.einsum("kij,ki->kj", vectors, residual) ** 2
    variances = _CONCENTRATIONS[:, None, None] * np.maximum(values, 0) + levels[:, None] ** 2
    misfit = np.sum(squares / variances + np.log(variances), axis=(1, 2))
    return float(_CONCENTRATIONS[misfit.argmin()])


def _bridges(gaussian: np.ndarray, whiten: np.ndarray) -> np.ndarray:
    """Return the whitened covariances ``G(s) (1 - G(t))``, s <= t, of each row."""
    low = np.minimum(gaussian[:, :, None], gaussian[:, None, :])
    high = np.maximum(gaussian[:, :, None], gaussian[:, None, :])
    whitened: np.ndarray = whiten @ (low * (1 - high)) @ whiten.T
    return whitened
