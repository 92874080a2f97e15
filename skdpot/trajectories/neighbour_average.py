"""Averages of a noisy gradient over particles that are near to each other."""

import numpy as np

from skdpot._utils.threads import one_blas_thread

__all__ = ["averaged_over_neighbours"]


def averaged_over_neighbours(
    gradients: np.ndarray, particles: np.ndarray, width: float
) -> np.ndarray:
    """Average released gradients with weights that fall with the distance of particles.

    The gradient of the data fit is a smooth function of the place, at the scale of its kernel,
    while every particle has noise of its own. Averages over a neighbourhood keep the one and take
    off the other: the more particles, the more. It is post-processing of what was released.

    Parameters
    ----------
    gradients : ndarray of shape (T, m, d)
        Noisy gradients.
    particles : ndarray of shape (T, m, d)
        Where they were taken.
    width : float
        Standard deviation of the Gaussian weights; positive.

    Returns
    -------
    ndarray of shape (T, m, d)
        Nadaraya-Watson averages.

    References
    ----------
    Watson, "Smooth regression analysis", Sankhya 1964.
    """
    averages = np.empty_like(gradients)
    with one_blas_thread():
        for place, gradient, average in zip(particles, gradients, averages, strict=True):
            scaled = (place - place.mean(axis=0)) / width
            norms = np.sum(scaled**2, axis=1) / 2
            weights = np.exp(np.minimum(scaled @ scaled.T - norms[:, None] - norms, 0.0))
            np.fill_diagonal(weights, 1.0)  # whatever cancellation has made of it
            average[...] = weights @ gradient / weights.sum(axis=1, keepdims=True)
    return averages
