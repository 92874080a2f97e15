"""How tables vary because their rows are a sample: the same rows show in every direction.

A sketch shows the distribution along each direction and nothing of how a row's places along
different directions go together, and that decides how much an average over directions varies.
Here rows are Gaussian in that respect (a Gaussian copula): their covariance matrix follows
from the variances along enough directions. Along fewer than d (d + 1) / 2 directions it does
not, and then rows are taken to be as extreme in every direction as they are in one, which is
the worst case.
"""

import numpy as np
from scipy.special import ndtr

from skdpot.slicing.table import CDFTable

__all__ = ["binned_rows", "copula_rows", "sampling_deviations"]

_PSEUDO_ROWS = 2048
_CELLS_AT_ONCE = 2**22


def copula_rows(table: CDFTable, towards: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw rows whose places along each direction follow a table.

    Parameters
    ----------
    table : CDFTable
        Distribution functions that the places follow.
    towards : ndarray of shape (n_slices,)
        Where the other party is along each direction; its sign decides which end of one
        direction goes with which end of another in the worst case.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_rows, n_slices), int
        The bin of each row along each direction.
    """
    covariance = _fitted_covariance(table)
    if covariance is None:
        level = rng.random((_PSEUDO_ROWS, 1))
        levels = np.where(towards >= 0, level, 1 - level)
    else:
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


def binned_rows(projections: np.ndarray, half_widths: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the bin of each row along each direction.

    Parameters
    ----------
    projections : ndarray of shape (n_slices, n_rows)
        Positions; those beyond the binned range belong to the end bins.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.
    n_bins : int
        Number of bins B.

    Returns
    -------
    ndarray of shape (n_rows, n_slices), int
    """
    positions = (projections / half_widths[:, None] + 1) * (n_bins / 2)
    bins: np.ndarray = np.clip(positions, 0, n_bins - 1).astype(np.intp).T
    return bins


def sampling_deviations(
    bins: np.ndarray, n_samples: int, n_bins: int, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw how far the shares in each bin are from their mean in samples of given rows.

    Parameters
    ----------
    bins : ndarray of shape (n_rows, n_slices), int
        The rows that are sampled from.
    n_samples : int
        Size of each sample.
    n_bins, n_draws : int
        Number of bins B and of samples.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_draws, n_slices, n_bins)
        Deviations; they sum to zero along the bins.
    """
    n_rows, n_slices = bins.shape
    copies = rng.multinomial(n_samples, np.full(n_rows, 1 / n_rows), size=n_draws)
    weights = (copies / n_samples - 1 / n_rows).astype(np.float32)
    deviations = np.empty((n_draws, n_slices, n_bins))
    block = max(1, _CELLS_AT_ONCE // (n_rows * n_bins))
    for first in range(0, n_slices, block):
        some = bins[:, first : first + block, None] == np.arange(n_bins)
        cells = some.reshape(n_rows, -1).astype(np.float32)
        deviations[:, first : first + block] = (weights @ cells).reshape(n_draws, -1, n_bins)
    return deviations


def _fitted_covariance(table: CDFTable) -> np.ndarray | None:
    """Return the covariance matrix that fits the variances; None where they do not tell it."""
    directions, edges = table.directions, table.edges
    n_slices, n_features = directions.shape
    if n_slices < n_features * (n_features + 1) // 2:
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
