"""The drift of one step with torch, for GPUs; the same arithmetic as in numpy."""

import numpy as np
import torch

from skdpot.flows.problem import DirectionBatch

__all__ = ["TorchDrift"]

_N_CELLS = 512
_INSIDE = 1 - 2.0**-20


class TorchDrift:
    """Drift of particles that stay on a device.

    Parameters
    ----------
    device : torch.device
        Where the particles are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_device: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def residual(self, particles: torch.Tensor, batch: DirectionBatch) -> torch.Tensor:
        """Return what `NumpyDrift.residual` returns, as a tensor on the device."""
        directions, quantiles = self._tensors(batch)
        position = directions @ particles.T
        low, high = position.amin(dim=1, keepdim=True), position.amax(dim=1, keepdim=True)
        width = ((high - low) / (_N_CELLS * _INSIDE)).clamp_min(torch.finfo(torch.float32).tiny)
        position.sub_(low).div_(width)
        cell = position.long()
        first = torch.arange(len(directions), device=self._device)[:, None] * _N_CELLS
        counts = torch.bincount((cell + first).flatten(), minlength=len(directions) * _N_CELLS)
        cumulative = counts.reshape(len(directions), _N_CELLS).cumsum(dim=1)
        levels = torch.nn.functional.pad(cumulative, (1, 0)).double() / len(particles)
        cells = torch.arange(_N_CELLS + 1, device=self._device)
        values = low + width * cells - _interpolate(quantiles, levels)
        slope = values.diff(dim=1)
        offset = values[:, :-1] - slope * cells[:-1]
        moved = offset.gather(1, cell).addcmul_(slope.gather(1, cell), position)
        return moved.T @ directions

    def _tensors(self, batch: DirectionBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Copy a batch to the device once."""
        if id(batch) not in self._on_device:
            arrays = (np.ascontiguousarray(a) for a in (batch.directions, batch.quantiles))
            directions, quantiles = (torch.from_numpy(a).to(self._device) for a in arrays)
            self._on_device[id(batch)] = (directions, quantiles)
        return self._on_device[id(batch)]


def _interpolate(quantiles: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """Read each row's quantiles, known at the middles of equal levels, at `levels`."""
    n_levels = quantiles.shape[1]
    at = (levels * n_levels - 0.5).clamp(0, n_levels - 1)
    left = at.long().clamp_max(n_levels - 2)
    share = (at - left).float()
    below = quantiles.gather(1, left)
    return below + share * (quantiles.gather(1, left + 1) - below)
