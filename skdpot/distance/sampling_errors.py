"""How far the distribution functions of samples are from those of their distribution.

A sketch shows the distribution along each direction, but not how the places of a row along
different directions are related, which decides how much an average over directions varies. The
simulation uses a Gaussian copula, whose covariance matrix follows from the variances along
d (d + 1) / 2 directions or more. With fewer directions, rows are taken to be as extreme in every
direction as in one, which is the worst case.
"""

import math

import numpy as np
from scipy.special import ndtr

from skdpot._utils.threads import one_blas_thread
from skdpot.ot.slices import CDFTable

_PSEUDO_ROWS = 1024  # rows that stand for the distribution
_MANY_COPIES = 25  # per pseudo-row: with so many, their number is as good as normal
_CELLS_AT_ONCE = 2**22  # in memory


def sampling_errors(
    table: CDFTable, n_samples: int, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the errors of distribution functions of samples, at the inner edges of a table."""
    weights = _resampling_weights(n_samples, n_draws, rng)
    covariance = _fitted_covariance(table)
    if covariance is None:
        return np.pad(np.cumsum(weights, axis=1), ((0, 0), (1, 0)))
    bins = _copula_rows(table, covariance, rng)
    n_projections, n_bins = len(table.cdf), table.cdf.shape[1] - 1
    errors = np.empty((n_draws, n_projections, n_bins - 1), dtype=np.float32)
    block = max(1, _CELLS_AT_ONCE // (_PSEUDO_ROWS * n_bins))
    with one_blas_thread():
        for first in range(0, n_projections, block):
            is_below = bins[:, first : first + block, None] <= np.arange(n_bins - 1)
            cells = is_below.reshape(_PSEUDO_ROWS, -1).astype(np.float32)
            errors[:, first : first + block] = (weights @ cells).reshape(n_draws, -1, n_bins - 1)
    return errors


def _resampling_weights(n_samples: int, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw how the shares of equally likely rows in a sample differ from their mean."""
    if n_samples < _MANY_COPIES * _PSEUDO_ROWS:
        drawn = (rng.integers(0, _PSEUDO_ROWS, n_samples) for _ in range(n_draws))
        copies = np.stack([np.bincount(rows, minlength=_PSEUDO_ROWS) for rows in drawn])
        return (copies / n_samples - 1 / _PSEUDO_ROWS).astype(np.float32)
    normal = rng.standard_normal((n_draws, _PSEUDO_ROWS), dtype=np.float32)
    normal -= normal.mean(axis=1, keepdims=True)
    return normal / np.float32(math.sqrt(n_samples * _PSEUDO_ROWS))


def _copula_rows(table: CDFTable, covariance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw rows whose bins along each direction are distributed as in a table."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    loads = table.directions @ root
    deviations = np.linalg.norm(loads, axis=1)
    loads /= np.where(deviations > 0, deviations, 1.0)[:, None]
    levels = ndtr(rng.standard_normal((_PSEUDO_ROWS, len(covariance))) @ loads.T)
    bins = [
        np.searchsorted(inner[1:-1], column, side="right")
        for inner, column in zip(table.cdf, levels.T, strict=True)
    ]
    return np.stack(bins, axis=1)


def _fitted_covariance(table: CDFTable) -> np.ndarray | None:
    """Return the covariance matrix that fits the variances, or None if they do not determine it."""
    directions, edges = table.directions, table.edges
    n_projections, n_features = directions.shape
    if n_projections < n_features * (n_features + 1) // 2:
        return None
    rows, columns = np.triu_indices(n_features)
    design = directions[:, rows] * directions[:, columns] * np.where(rows == columns, 1, 2)
    masses = np.diff(table.cdf, axis=1)
    middles = (edges[:, 1:] + edges[:, :-1]) / 2
    means = np.einsum("ij,ij->i", masses, middles)
    variances = np.einsum("ij,ij->i", masses, (middles - means[:, None]) ** 2)
    entries, _, rank, _ = np.linalg.lstsq(design, variances, rcond=1e-6)
    if rank < len(rows):
        return None
    covariance = np.zeros((n_features, n_features))
    covariance[rows, columns] = covariance[columns, rows] = entries
    return covariance
