"""A Gaussian for each class along each direction, fitted to noisy distribution functions.

Values are whitened, so that their noise is independent, and positions are in units of the half
width of the binned range.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

__all__ = ["ClassGaussians", "fit_gaussians", "inner_edges"]

_LOCATIONS = np.linspace(-1.0, 1.0, 129)
_SPREADS = np.geomspace(0.03, 1.0, 24)
_CLASS_SHARES = np.linspace(0.35, 1.0, 14)
_SCALES = np.geomspace(0.01, 1.0, 161)  # spreads within a class are rounded to these
_SPREAD_LOG_DEVIATION = 0.35  # how much spreads differ between directions, a priori


@dataclass(frozen=True, eq=False)
class ClassGaussians:
    """The Gaussians of classes that are a priori alike, and how likely the release is with them.

    Parameters
    ----------
    locations : ndarray of shape (n_classes, n_slices)
        Posterior means.
    spreads : ndarray of shape (n_slices,)
        Standard deviations, the same for all classes.
    evidence : float
        Logarithm of the marginal likelihood, locations integrated out; up to a constant that
        depends on the release alone.
    """

    locations: np.ndarray
    spreads: np.ndarray
    evidence: float


def fit_gaussians(
    white: np.ndarray, noise: np.ndarray, weights: np.ndarray, whiten: np.ndarray
) -> ClassGaussians:
    """Fit location and spread of classes that are a priori alike.

    Parameters
    ----------
    white : ndarray of shape (n_classes, n_slices, n_inner)
        Whitened noisy values at the inner bin edges.
    noise : ndarray of shape (n_classes,)
        Standard deviation of the noise of whitened values.
    weights : ndarray of shape (n_classes,)
        Shares of the classes; they sum to one.
    whiten : ndarray of shape (n_inner, n_inner)
        What the values were whitened with.

    Returns
    -------
    ClassGaussians
        A single class has no class to be like: its location is free.
    """
    n_classes, _, n_inner = white.shape
    edges = inner_edges(n_inner)
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
    return ClassGaussians(fits[best][0], shares[best] * spreads, fits[best][1])


def inner_edges(n_inner: int) -> np.ndarray:
    """Return the edges between bins, in units of the half width.

    Parameters
    ----------
    n_inner : int
        One less than the number of bins.

    Returns
    -------
    ndarray of shape (n_inner,)
        Equally spaced, without the two ends.
    """
    edges: np.ndarray = np.linspace(-1.0, 1.0, n_inner + 2)[1:-1]
    return edges


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
    nearest = np.abs(np.log(_SCALES[:, None] / (share * spreads))).argmin(axis=0)
    for scale in np.unique(nearest):
        at = np.flatnonzero(nearest == scale)
        log_likelihood = -_misfits(white[:, at], edges, whiten, _SCALES[scale])
        log_likelihood /= noise[:, None, None] ** 2
        steps = (_LOCATIONS[:, None] - centers[at]) / (width * spreads[at])
        prior = _normalised(-0.5 * steps**2).T
        highest = log_likelihood.max(axis=2, keepdims=True)
        joint = np.exp(log_likelihood - highest) * prior
        total = joint.sum(axis=2)
        locations[:, at] = joint @ _LOCATIONS / total
        evidence += float(np.sum(np.log(total) + highest[:, :, 0]))
    return locations, evidence


def _normalised(log_values: np.ndarray) -> np.ndarray:
    """Exponentiate and scale to sum to one along the first axis."""
    values = np.exp(log_values - log_values.max(axis=0))
    scaled: np.ndarray = values / values.sum(axis=0)
    return scaled
