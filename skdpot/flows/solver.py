"""Particle flows down the sliced Wasserstein distance: post-processing of a sketch."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from skdpot.flows.numpy_drift import NumpyDrift
from skdpot.flows.problem import DirectionBatch, SlicedFlowProblem
from skdpot.flows.torch_drift import TorchDrift

__all__ = ["FlowResult", "FlowSchedule", "sliced_flow"]


@dataclass(frozen=True)
class FlowSchedule:
    """Lengths of the steps, as shares of a full step.

    Parameters
    ----------
    n_steps : int
        Number of steps.
    step_size : float
        Share of a full step at the start, in (0, 1].
    diffusion : float
        Entropic regularisation λ; each step adds ``sqrt(2 λ h)`` standard normal noise.
    momentum : float
        Share of the last displacement that is carried on, in [0, 1) (Nesterov's method).
        With 0 the iteration is the Euler-Maruyama scheme of the flow, and so it is when
        a step uses fewer directions than there are features.
    """

    n_steps: int = 200
    step_size: float = 1.0
    diffusion: float = 0.0
    momentum: float = 0.9

    def share(self, step: int) -> float:
        """Return the share of a full step taken at `step`.

        Constant for the first half, then falling linearly to a twentieth: particles first
        find their place, then average over the directions that do not agree, because of
        the sketch's noise.
        """
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))


@dataclass(frozen=True, eq=False)
class FlowResult:
    """Where the particles ended.

    Parameters
    ----------
    problem : SlicedFlowProblem
        What was solved.
    particles : ndarray of shape (n_particles, n_features), float32
        Final positions.
    displacements : ndarray of shape (n_steps,)
        Root mean square distance that particles moved in each step.
    """

    problem: SlicedFlowProblem
    particles: np.ndarray
    displacements: np.ndarray


def sliced_flow(
    problem: SlicedFlowProblem,
    n_particles: int,
    schedule: FlowSchedule,
    rng: np.random.Generator,
    *,
    device: torch.device | None = None,
    progress: str | None = None,
) -> FlowResult:
    """Move particles towards the distribution that a table describes.

    Steps ``x <- x + h v(x) + sqrt(2 λ h) z`` with the drift
    ``v(x) = -(1/M) Σ_j (⟨x, θ_j⟩ - F_ν^{-1}(F_μ(⟨x, θ_j⟩))) θ_j`` over M of the directions,
    μ being the particles and ν the target; batches of directions take turns in random order.
    Features that only many directions together determine are approached slowly by plain
    steps, so the drift is by default read ahead of the particles and accumulated
    (Nesterov); at the end point, where the drift vanishes, both schemes agree.

    Parameters
    ----------
    problem : SlicedFlowProblem
        Target.
    n_particles : int
        Number of particles; they start as a Gaussian of the target's location and spread.
    schedule : FlowSchedule
        Step lengths and diffusion.
    rng : numpy.random.Generator
        Solver's stream.
    device : torch.device, optional
        A device runs torch there; None runs numpy on the CPU.
    progress : str, optional
        Shows a progress bar with this label.

    Returns
    -------
    FlowResult
        Particles and how far they moved.

    References
    ----------
    Liutkus et al., "Sliced-Wasserstein flows", ICML 2019; the update of the private flow
    paper (its equations 17, 18 and 24 omit ``X_k +``).
    """
    start = problem.location + problem.spread * rng.standard_normal(
        (n_particles, len(problem.location))
    )
    if problem.is_partial:
        # Batches that see a part of the space in turns would not damp the momentum.
        schedule = replace(schedule, momentum=0.0)
    state = _state(start.astype(np.float32), problem, rng, device)
    displacements = np.empty(schedule.n_steps)
    order = _shuffled_turns(problem.batches, rng)
    bar = tqdm(range(schedule.n_steps), desc=progress, disable=progress is None, leave=True)
    for step in bar:
        batch = next(order)
        displacements[step] = state.move(batch, schedule, step)
    return FlowResult(problem, state.result(), displacements)


def _shuffled_turns(batches: tuple[DirectionBatch, ...], rng: np.random.Generator) -> Any:
    """Yield batches for ever, every one once a round in random order."""
    while True:
        for index in rng.permutation(len(batches)):
            yield batches[index]


def _state(
    start: np.ndarray,
    problem: SlicedFlowProblem,
    rng: np.random.Generator,
    device: torch.device | None,
) -> "_NumpyState | _TorchState":
    if device is not None:
        return _TorchState(start, rng, device)
    size = max(len(batch.directions) for batch in problem.batches)
    return _NumpyState(start, rng, NumpyDrift(len(start), size))


class _NumpyState:
    """Particles in memory."""

    def __init__(self, start: np.ndarray, rng: np.random.Generator, drift: NumpyDrift) -> None:
        self._particles, self._rng, self._drift = start, rng, drift
        self._step = np.zeros_like(start)

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Take one step; return the root mean square displacement."""
        share = np.float32(schedule.share(step))
        self._step *= np.float32(schedule.momentum)
        ahead = self._particles + self._step if schedule.momentum else self._particles
        self._step -= share * batch.full_step * self._drift.residual(ahead, batch)
        if schedule.diffusion > 0:
            scale = np.sqrt(2 * schedule.diffusion * share * batch.drift_step)
            self._step += scale * self._rng.standard_normal(self._step.shape, dtype=np.float32)
        self._particles += self._step
        return float(np.sqrt(np.vdot(self._step, self._step) / len(self._step)))

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles


class _TorchState:
    """Particles on a device."""

    def __init__(self, start: np.ndarray, rng: np.random.Generator, device: torch.device) -> None:
        self._particles = torch.from_numpy(start).to(device)
        self._step = torch.zeros_like(self._particles)
        self._drift = TorchDrift(device)
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(int(rng.integers(2**63 - 1)))

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Take one step; return the root mean square displacement."""
        share = schedule.share(step)
        full_step = torch.from_numpy(batch.full_step).to(self._particles.device)
        self._step *= schedule.momentum
        ahead = self._particles + self._step
        self._step -= share * full_step * self._drift.residual(ahead, batch)
        if schedule.diffusion > 0:
            drift_step = torch.from_numpy(batch.drift_step).to(self._particles.device)
            noise = torch.empty_like(self._step).normal_(generator=self._generator)
            self._step += (2 * schedule.diffusion * share * drift_step).sqrt() * noise
        self._particles += self._step
        return float(self._step.square().sum(dim=1).mean().sqrt())

    def result(self) -> np.ndarray:
        """Return the particles."""
        particles: np.ndarray = self._particles.cpu().numpy()
        return particles
