"""The drift of particles: the sum over directions of ``z - T(z)``, on the CPU or a device.

The optimal map along a direction is ``T = F_ν^{-1} ∘ F_μ``. A step does not sort: particles are
counted in cells of their range, the cumulative counts are F_μ at the cell edges, and the map is
linear between edges. So each particle needs one multiplication and two table look-ups.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.ot.flow_problems import DirectionBatch

if TYPE_CHECKING:
    import torch

_N_CELLS = 512
_INSIDE = 1 - 2.0**-20  # keeps the largest projection inside the last cell


class NumpyDrift:
    """Buffers and arithmetic for the drift of a fixed number of particles."""

    def __init__(self, n_particles: int, n_projections_per_step: int) -> None:
        shape = (n_projections_per_step, n_particles)
        self._position = np.empty(shape, dtype=np.float32)
        self._moved = np.empty(shape, dtype=np.float32)
        self._cell = np.empty(shape, dtype=np.intp)

    def residual(
        self, particles: np.ndarray, batch: DirectionBatch, noise: np.ndarray | None = None
    ) -> np.ndarray:
        """Return Σ_j (z_j - T_j(z_j)) θ_j for each particle x, with z_j = ⟨x, θ_j⟩ + noise."""
        n_projections = len(batch.directions)
        position, moved = self._position[:n_projections], self._moved[:n_projections]
        cell = self._cell[:n_projections]
        with one_blas_thread():
            np.matmul(batch.directions, particles.T, out=position)
        if noise is not None:
            position += noise
        low = position.min(axis=1, keepdims=True)
        width = (position.max(axis=1, keepdims=True) - low) / np.float32(_N_CELLS * _INSIDE)
        width = np.maximum(width, np.finfo(np.float32).tiny)
        position -= low
        position *= 1 / width
        cell[...] = position
        cell += np.arange(0, n_projections * _N_CELLS, _N_CELLS)[:, None]
        target = _interpolate(batch.quantiles, _counts_below(cell) / particles.shape[0])
        edges = low + width * np.arange(_N_CELLS + 1, dtype=np.float32)
        # In each cell the residual is ``offset + slope u``, u the position in units of cells.
        values = edges - target
        slope = np.diff(values, axis=1)
        offset = values[:, :-1] - slope * np.arange(_N_CELLS, dtype=np.float32)
        np.take(slope, cell, out=moved, mode="clip")
        moved *= position
        np.take(offset, cell, out=position, mode="clip")
        moved += position
        with one_blas_thread():
            return moved.T @ batch.directions


def _counts_below(cell: np.ndarray) -> np.ndarray:
    """Count the particles below each edge; every particle is in one of the cells."""
    n_projections = len(cell)
    counts = np.bincount(cell.ravel(), minlength=n_projections * _N_CELLS)
    below = np.zeros((n_projections, _N_CELLS + 1))
    np.cumsum(counts.reshape(n_projections, _N_CELLS), axis=1, out=below[:, 1:])
    return below


def _interpolate(quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Interpolate each row's quantiles, given at the midpoints of equal levels, at `levels`."""
    n_projections, n_levels = quantiles.shape
    at = np.clip(levels * n_levels - 0.5, 0, n_levels - 1)
    left = np.minimum(at.astype(np.intp), n_levels - 2)
    share = (at - left).astype(np.float32)
    left += np.arange(0, n_projections * n_levels, n_levels)[:, None]
    flat = quantiles.ravel()
    below = flat[left]
    return below + share * (flat[left + 1] - below)


class TorchDrift:
    """Drift of particles that stay on a device; loads torch."""

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        # Weak keys: a batch that is used in one step only is released after it.
        self._on_device: WeakKeyDictionary[DirectionBatch, list[torch.Tensor]]
        self._on_device = WeakKeyDictionary()

    def residual(
        self, particles: "torch.Tensor", batch: DirectionBatch, noise: "torch.Tensor | None" = None
    ) -> "torch.Tensor":
        """Return what `NumpyDrift.residual` returns, as a tensor on the device."""
        if batch not in self._on_device:  # each batch is copied once
            arrays = map(np.ascontiguousarray, (batch.directions, batch.quantiles))
            self._on_device[batch] = [on_device(array, self._device) for array in arrays]
        directions, quantiles = self._on_device[batch]
        position = directions @ particles.T
        if noise is not None:
            position += noise
        low, high = position.amin(dim=1, keepdim=True), position.amax(dim=1, keepdim=True)
        width = (high - low) / (_N_CELLS * _INSIDE)
        width = width.clamp_min(float(np.finfo(np.float32).tiny))
        position.sub_(low).div_(width)
        cell = position.long()
        below = self._counts_below(cell)
        cells = on_device(np.arange(_N_CELLS + 1), self._device)
        values = low + width * cells - self._interpolate(quantiles, below.double() / len(particles))
        slope = values.diff(dim=1)
        offset = values[:, :-1] - slope * cells[:-1]
        moved = offset.gather(1, cell).addcmul_(slope.gather(1, cell), position)
        return moved.T @ directions

    def _counts_below(self, cell: "torch.Tensor") -> "torch.Tensor":
        """Count the particles below each edge; every particle is in one of the cells."""
        n_projections = len(cell)
        bins = cell + on_device(np.arange(n_projections)[:, None] * _N_CELLS, self._device)
        counts = bins.flatten().bincount(minlength=n_projections * _N_CELLS)
        below = counts.new_zeros((n_projections, _N_CELLS + 1))
        below[:, 1:] = counts.reshape(n_projections, _N_CELLS).cumsum(dim=1)
        return below

    def _interpolate(self, quantiles: "torch.Tensor", levels: "torch.Tensor") -> "torch.Tensor":
        """Interpolate each row's quantiles, given at the midpoints of equal levels, at `levels`."""
        n_levels = quantiles.shape[1]
        at = (levels * n_levels - 0.5).clamp(0, n_levels - 1)
        left = at.long().clamp_max(n_levels - 2)
        share = (at - left).float()
        below = quantiles.gather(1, left)
        return below + share * (quantiles.gather(1, left + 1) - below)


def on_device(array: np.ndarray, device: "torch.device") -> "torch.Tensor":
    """Return an array as a tensor of a device."""
    import torch

    return torch.from_numpy(array).to(device)
