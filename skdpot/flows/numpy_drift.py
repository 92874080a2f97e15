"""The drift of one step on the CPU, without sorting.

The optimal map along a direction is ``F_ν^{-1} ∘ F_μ``. Particles are counted in cells of
their own range; the cumulative counts are F_μ at the cell edges, and between edges the map
is taken to be linear. Each particle then needs one multiplication and two table look-ups
in place of a sort, a scatter and an interpolation.
"""

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.flows.problem import DirectionBatch

__all__ = ["NumpyDrift"]

_N_CELLS = 512
_INSIDE = 1 - 2.0**-20  # keeps the largest projection inside the last cell


class NumpyDrift:
    """Buffers and arithmetic for the drift of a fixed number of particles.

    Parameters
    ----------
    n_particles : int
        Number of particles N.
    n_subslices : int
        Largest number of directions M of a batch.
    """

    def __init__(self, n_particles: int, n_subslices: int) -> None:
        shape = (n_subslices, n_particles)
        self._position = np.empty(shape, dtype=np.float32)
        self._moved = np.empty(shape, dtype=np.float32)
        self._cell = np.empty(shape, dtype=np.intp)

    def residual(self, particles: np.ndarray, batch: DirectionBatch) -> np.ndarray:
        """Return Σ_j (⟨x, θ_j⟩ - T_j(⟨x, θ_j⟩)) θ_j for each particle x.

        Parameters
        ----------
        particles : ndarray of shape (n_particles, n_features), float32
            Positions.
        batch : DirectionBatch
            Directions θ_j and target quantiles, which define the maps T_j.

        Returns
        -------
        ndarray of shape (n_particles, n_features), float32
            The residual; the drift is its negative over M.
        """
        n_slices = len(batch.directions)
        position, moved = self._position[:n_slices], self._moved[:n_slices]
        cell = self._cell[:n_slices]
        with one_blas_thread():
            np.matmul(batch.directions, particles.T, out=position)
        low = position.min(axis=1, keepdims=True)
        width = (position.max(axis=1, keepdims=True) - low) / np.float32(_N_CELLS * _INSIDE)
        width = np.maximum(width, np.finfo(np.float32).tiny)
        position -= low
        position *= 1 / width
        cell[...] = position
        cell += np.arange(0, n_slices * _N_CELLS, _N_CELLS)[:, None]
        counts = np.bincount(cell.ravel(), minlength=n_slices * _N_CELLS)
        cumulative = np.zeros((n_slices, _N_CELLS + 1))
        np.cumsum(counts.reshape(n_slices, _N_CELLS), axis=1, out=cumulative[:, 1:])
        target = _interpolate(batch.quantiles, cumulative / particles.shape[0])
        edges = low + width * np.arange(_N_CELLS + 1, dtype=np.float32)
        offset, slope = _lines(edges - target)
        np.take(slope, cell, out=moved, mode="clip")
        moved *= position
        np.take(offset, cell, out=position, mode="clip")
        moved += position
        with one_blas_thread():
            residual: np.ndarray = moved.T @ batch.directions
        return residual


def _interpolate(quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Read each row's quantiles, known at the middles of equal levels, at `levels`."""
    n_slices, n_levels = quantiles.shape
    at = np.clip(levels * n_levels - 0.5, 0, n_levels - 1)
    left = np.minimum(at.astype(np.intp), n_levels - 2)
    share = (at - left).astype(np.float32)
    left += np.arange(0, n_slices * n_levels, n_levels)[:, None]
    flat = quantiles.ravel()
    below = flat[left]
    interpolated: np.ndarray = below + share * (flat[left + 1] - below)
    return interpolated


def _lines(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offset and slope of the lines between consecutive values, flattened.

    With k the cell and u the position in units of cells, the line is ``offset + slope u``.
    """
    slope = np.diff(values, axis=1)
    offset = values[:, :-1] - slope * np.arange(slope.shape[1], dtype=np.float32)
    return offset.ravel(), slope.ravel()
