"""Schrödinger potentials between Gaussian laws with the moments of two clouds."""

import numpy as np

__all__ = ["gaussian_potentials"]

_NARROWEST = 1e-6  # variance that a direction is taken to have, as a share of the largest


def gaussian_potentials(
    first: np.ndarray, second: np.ndarray, regularization: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return where a search for the potentials of two clouds may begin.

    Between two Gaussian laws the potentials for the cost ½‖x − y‖² are quadratic, and known.
    For other clouds with the same means and covariances they are a good start.

    Parameters
    ----------
    first, second : ndarray of shape (m, d), (k, d)
        The clouds.
    regularization : float
        ε.

    Returns
    -------
    source, target : ndarray of shape (m,), (k,)
        φ at the first cloud and ψ at the second, up to a constant.

    Notes
    -----
    With covariances A and B the conditional mean of x given y is affine with the symmetric
    slope ``B^(−½) ((B^½ A B^½ + ε²/4 I)^½ − ε/2 I) B^(−½)``, and the gradient of ψ is y minus
    that mean. At ε = 0 the slope is that of the optimal map.

    References
    ----------
    Janati, Muzellec, Peyré, Cuturi, "Entropic optimal transport between unbalanced Gaussian
    measures has a closed form", NeurIPS 2020 (the plan); Thornton, Cuturi, "Rethinking
    initialization of the Sinkhorn algorithm", AISTATS 2023 (its use).
    """
    x, y = first - first.mean(axis=0), second - second.mean(axis=0)
    shift = second.mean(axis=0) - first.mean(axis=0)
    covariances = x.T @ x / len(x), y.T @ y / len(y)
    source = _quadratic(x, covariances[1], covariances[0], regularization) - x @ shift
    target = _quadratic(y, covariances[0], covariances[1], regularization) + y @ shift
    return source + shift @ shift / 2, target


def _quadratic(
    points: np.ndarray, partner: np.ndarray, own: np.ndarray, regularization: float
) -> np.ndarray:
    """Return ½ zᵀ(I − slope) z for each centred point z."""
    values, vectors = np.linalg.eigh(own)
    if values[-1] <= 0:  # all points are the same one
        return np.zeros(len(points))
    root = np.sqrt(np.maximum(values, _NARROWEST * values[-1]))
    coordinates = points @ vectors
    inner = root[:, None] * (vectors.T @ partner @ vectors) * root
    inner_values, inner_vectors = np.linalg.eigh(inner)
    half = regularization / 2
    gains = np.sqrt(np.maximum(inner_values, 0.0) + half**2) - half
    projected = (coordinates / root) @ inner_vectors
    quadratic: np.ndarray = ((coordinates**2).sum(axis=1) - projected**2 @ gains) / 2
    return quadratic
