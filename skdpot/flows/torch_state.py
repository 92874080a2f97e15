"""Particles that stay on a device; loaded only where one is used, for torch takes seconds."""

import numpy as np
import torch

from skdpot.flows.problem import DirectionBatch
from skdpot.flows.schedule import FlowSchedule
from skdpot.flows.torch_drift import TorchDrift

__all__ = ["TorchState"]


class TorchState:
    """Particles on a device."""

    def __init__(self, start: np.ndarray, seed: int, device: torch.device) -> None:
        self._particles = torch.from_numpy(start).to(device)
        self._step = torch.zeros_like(self._particles)
        self._drift = TorchDrift(device)
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(seed)

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Take one step; return the root mean square displacement."""
        share = schedule.share(step)
        full_step = torch.from_numpy(batch.full_step).to(self._particles.device)
        self._step *= schedule.momentum
        ahead = self._particles + self._step
        residual = self._drift.residual(ahead, batch, self._noise(batch))
        self._step -= share * full_step * residual
        if schedule.diffusion > 0:
            drift_step = torch.from_numpy(batch.drift_step).to(self._particles.device)
            noise = torch.empty_like(self._step).normal_(generator=self._generator)
            self._step += (2 * schedule.diffusion * share * drift_step).sqrt() * noise
        self._particles += self._step
        return float(self._step.square().sum(dim=1).mean().sqrt())

    def _noise(self, batch: DirectionBatch) -> torch.Tensor | None:
        """Draw the noise that smooths the particles' projections like the target."""
        if batch.sigma == 0:
            return None
        shape = (len(batch.directions), len(self._particles))
        noise = torch.empty(shape, device=self._particles.device)
        return noise.normal_(0.0, batch.sigma, generator=self._generator)

    def result(self) -> np.ndarray:
        """Return the particles."""
        particles: np.ndarray = self._particles.cpu().numpy()
        return particles
