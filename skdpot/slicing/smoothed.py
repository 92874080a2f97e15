"""Noisy projections of rows: what the flow paper releases in the place of a sketch."""

from dataclasses import dataclass

import numpy as np

__all__ = ["ProjectedRows", "SmoothedProjections"]


@dataclass(frozen=True, eq=False)
class ProjectedRows:
    """Noisy projections of one batch of rows.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features), float32
        Unit rows Θ.
    values : ndarray of shape (n_slices, n_rows), float32
        ``ΘBᵀ + noise``, sorted along each direction *after* the noise was added, so that their
        order tells nothing about the order of the rows.
    """

    directions: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class SmoothedProjections:
    """A release of noisy projections, of one batch or of several.

    Parameters
    ----------
    batches : tuple of ProjectedRows
        One a step (Algorithm 1), or a single one of all rows (Algorithm 2).
    sigma : float
        Standard deviation of the noise, in the units of the mapped rows; 0 without privacy.
    """

    batches: tuple[ProjectedRows, ...]
    sigma: float
