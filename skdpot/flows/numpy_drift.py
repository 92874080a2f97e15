"""The drift of one step on the CPU, without sorting.

The optimal map along a direction is ``F_ν^{-1} ∘ F_μ``. Particles are counted in cells of
their own range; the cumulative counts are F_μ at the cell edges, and between edges the map
is taken to be linear. Each particle then needs one multiplication and two table look-ups
in place of a sort, a scatter and an interpolation.

With smoothed targets F_μ is that of noisy projections, read at the clean ones: the cells still
span the clean range, with one more below and one above for the noisy ones that fall outside.
"""

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.flows.problem import DirectionBatch

__all__ = ["NumpyDrift"]

_N_CELLS = 512
_INSIDE = 1 - 2.0**-20  # keeps the largest projection inside the last cell
_NARROWEST = 2.0**-20  # of a cell, in units of the noise: a quotient of the two stays finite


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

    def residual(
        self, particles: np.ndarray, batch: DirectionBatch, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Return Σ_j (⟨x, θ_j⟩ - T_j(⟨x, θ_j⟩)) θ_j for each particle x.

        Parameters
        ----------
        particles : ndarray of shape (n_particles, n_features), float32
            Positions.
        batch : DirectionBatch
            Directions θ_j and target quantiles, which define the maps T_j.
        noise : ndarray of shape (n_subslices, n_particles), float32, optional
            Added to the projections whose distribution function is F_μ, and to nothing else.

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
        narrowest = max(float(np.finfo(np.float32).tiny), _NARROWEST * batch.sigma)
        width = np.maximum(width, np.float32(narrowest))
        position -= low
        position *= 1 / width
        if noise is not None:
            np.multiply(noise, 1 / width, out=moved)
            moved += position
            below = _noisy_counts_below(moved, cell)
        cell[...] = position
        cell += np.arange(0, n_slices * _N_CELLS, _N_CELLS)[:, None]
        if noise is None:
            below = _counts_below(cell)
        target = _interpolate(batch.quantiles, below / particles.shape[0])
        edges = low + width * np.arange(_N_CELLS + 1, dtype=np.float32)
        offset, slope = _lines(edges - target)
        np.take(slope, cell, out=moved, mode="clip")
        moved *= position
        np.take(offset, cell, out=position, mode="clip")
        moved += position
        with one_blas_thread():
            residual: np.ndarray = moved.T @ batch.directions
        return residual


def _counts_below(cell: np.ndarray) -> np.ndarray:
    """Count the particles below each edge, all of which are in one of the cells."""
    n_slices = len(cell)
    counts = np.bincount(cell.ravel(), minlength=n_slices * _N_CELLS)
    below = np.zeros((n_slices, _N_CELLS + 1))
    np.cumsum(counts.reshape(n_slices, _N_CELLS), axis=1, out=below[:, 1:])
    return below


def _noisy_counts_below(position: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Count the positions below each edge, when some lie outside of the cells."""
    n_slices, n_bins = len(cell), _N_CELLS + 2
    position += 1  # the first bin is what lies below: truncation is then rounding down
    cell[...] = np.clip(position, 0, n_bins - 1, out=position)
    cell += np.arange(0, n_slices * n_bins, n_bins)[:, None]
    counts = np.bincount(cell.ravel(), minlength=n_slices * n_bins).reshape(n_slices, n_bins)
    below: np.ndarray = np.cumsum(counts, axis=1)[:, :-1]
    return below


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
