"""Squared Euclidean distances between two sets of points, fast and without cancellation."""

import numpy as np
from scipy.spatial.distance import cdist

__all__ = ["squared_distances"]

_NEAR = 1e-3  # share of the squared radii below which a difference of squares is not trusted
_CHUNK = 2**22  # numbers held at once when distances are computed one by one


def squared_distances(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return ``‖x_i − y_j‖²`` for all pairs.

    Computed as ``‖x‖² + ‖y‖² − 2 x·y`` around the common centre, by one matrix product, which
    for hundreds of features is ten times as fast as subtracting rows. Its error is a few units
    of rounding of ``‖x‖² + ‖y‖²``; distances below a thousandth of that are computed again
    from the difference of the rows (all of them, when there are many). So every entry is good
    to about 1e-12 of itself, whatever the units and wherever the origin, and rows that are
    equal are at distance 0.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        First points.
    Y : ndarray of shape (m, d)
        Second points.

    Returns
    -------
    ndarray of shape (n, m)
        Squared distances.
    """
    centre = (X.mean(axis=0) + Y.mean(axis=0)) / 2
    x, y = X - centre, Y - centre
    x_squared, y_squared = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y)
    x *= -2.0
    costs: np.ndarray = x @ y.T
    costs += x_squared[:, None]
    costs += y_squared
    if costs.min() >= _NEAR * (x_squared.max() + y_squared.max()):
        return costs
    rows, columns = np.nonzero(costs <= _NEAR * (x_squared[:, None] + y_squared))
    if len(rows) > costs.size // 8:
        exact: np.ndarray = cdist(X, Y, "sqeuclidean")
        return exact
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        gaps = X[i] - Y[j]
        costs[i, j] = np.einsum("ij,ij->i", gaps, gaps)
    return costs
