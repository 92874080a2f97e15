"""Particles that stay on a device and their drift; loaded only where one is used."""

from weakref import WeakKeyDictionary

import numpy as np
import torch

from skdpot.ot.flow import _INSIDE, _N_CELLS, _NARROWEST, DirectionBatch, FlowState


class TorchDrift:
    """Drift of particles that stay on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Weak: batches of a single step are forgotten after it.
        self._on_device: WeakKeyDictionary[DirectionBatch, tuple[torch.Tensor, torch.Tensor]]
        self._on_device = WeakKeyDictionary()

    def residual(
        self, particles: torch.Tensor, batch: DirectionBatch, noise: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return what `NumpyDrift.residual` returns, as a tensor on the device."""
        directions, quantiles = self._tensors(batch)
        position = directions @ particles.T
        low, high = position.amin(dim=1, keepdim=True), position.amax(dim=1, keepdim=True)
        narrowest = max(torch.finfo(torch.float32).tiny, _NARROWEST * batch.sigma)
        width = ((high - low) / (_N_CELLS * _INSIDE)).clamp_min(narrowest)
        position.sub_(low).div_(width)
        cell = position.long()
        below = _counts_below(position if noise is None else position + noise / width)
        cells = torch.arange(_N_CELLS + 1, device=self._device)
        values = low + width * cells - _interpolate(quantiles, below.double() / len(particles))
        slope = values.diff(dim=1)
        offset = values[:, :-1] - slope * cells[:-1]
        moved = offset.gather(1, cell).addcmul_(slope.gather(1, cell), position)
        return moved.T @ directions

    def _tensors(self, batch: DirectionBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Copy a batch to the device once."""
        if batch not in self._on_device:
            arrays = (np.ascontiguousarray(a) for a in (batch.directions, batch.quantiles))
            directions, quantiles = (torch.from_numpy(a).to(self._device) for a in arrays)
            self._on_device[batch] = (directions, quantiles)
        return self._on_device[batch]


def _counts_below(position: torch.Tensor) -> torch.Tensor:
    """Count the positions below each edge; bins below and above hold what is outside."""
    n_projections, n_bins = len(position), _N_CELLS + 2
    bins = (position + 1).clamp(0, n_bins - 1).long()
    bins += torch.arange(n_projections, device=position.device)[:, None] * n_bins
    counts = torch.bincount(bins.flatten(), minlength=n_projections * n_bins)
    return counts.reshape(n_projections, n_bins).cumsum(dim=1)[:, :-1]


def _interpolate(quantiles: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """Read each row's quantiles, known at the middles of equal levels, at `levels`."""
    n_levels = quantiles.shape[1]
    at = (levels * n_levels - 0.5).clamp(0, n_levels - 1)
    left = at.long().clamp_max(n_levels - 2)
    share = (at - left).float()
    below = quantiles.gather(1, left)
    return below + share * (quantiles.gather(1, left + 1) - below)


class TorchState(FlowState):
    """Particles on a device."""

    def __init__(self, start: np.ndarray, seed: int, device: torch.device) -> None:
        super().__init__(start, seed, TorchDrift(device))
        self._particles = torch.from_numpy(start).to(device)
        self._step = torch.zeros_like(self._particles)
        self._rng = torch.Generator(device=device).manual_seed(seed)

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles.cpu().numpy()

    def _placed(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._particles.device)

    def _normal(self, *shape: int) -> torch.Tensor:
        device = self._particles.device
        return torch.empty(shape, device=device).normal_(generator=self._rng)
