"""How far particles may move along several directions at once."""

import numpy as np

__all__ = ["longest_step"]

_SPARSE = 0.5


def longest_step(directions: np.ndarray) -> np.ndarray:
    """Return the step by which a summed drift is multiplied, per coordinate.

    The sum over directions of the one-dimensional residuals has the Jacobian ΘᵀΘ where maps are
    locally translations; one over its largest eigenvalue is the longest step that overshoots
    nowhere, and an exact solution when the rows are orthogonal. For sparse directions the
    eigenvalue is ruled by the busiest coordinate, so each coordinate is scaled by the row sum of
    ``|Θ|ᵀ|Θ|`` that bounds it (Gershgorin), which is never longer than stable.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features)
        Unit rows Θ.

    Returns
    -------
    ndarray of shape (n_features,), float32
        0 for a coordinate that no direction sees.
    """
    magnitudes = np.abs(directions.astype(np.float64))
    n_features = magnitudes.shape[1]
    if n_features > 1 and np.mean(magnitudes > 0) < _SPARSE:
        sums = magnitudes.T @ magnitudes.sum(axis=1)
        seen = sums > 0
        steps: np.ndarray = np.divide(1.0, sums, out=np.zeros(n_features), where=seen)
        return steps.astype(np.float32)
    largest = np.linalg.norm(directions.astype(np.float64), ord=2) ** 2
    return np.full(n_features, 1.0 / largest, dtype=np.float32)
