"""Particle flows down the sliced Wasserstein distance: post-processing of a release."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from tqdm.auto import tqdm

from skdpot.flows.numpy_drift import NumpyDrift
from skdpot.flows.problem import DirectionBatch, FlowProblem
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
        batches of fewer directions than there are features take turns.
    decay : bool
        Whether steps become shorter in the second half; otherwise all are of equal length.
    """

    n_steps: int = 200
    step_size: float = 1.0
    diffusion: float = 0.0
    momentum: float = 0.9
    decay: bool = True

    def share(self, step: int) -> float:
        """Return the share of a full step taken at `step`.

        With `decay` constant for the first half, then falling linearly to a twentieth:
        particles first find their place, then average over the directions that do not agree,
        because of the noise of the release.
        """
        if not self.decay:
            return self.step_size
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))


@dataclass(frozen=True, eq=False)
class FlowResult:
    """Where the particles ended.

    Parameters
    ----------
    problem : FlowProblem
        What was solved.
    particles : ndarray of shape (n_particles, n_features), float32
        Final positions.
    displacements : ndarray of shape (n_steps,)
        Root mean square distance that particles moved in each step.
    """

    problem: FlowProblem
    particles: np.ndarray
    displacements: np.ndarray


def sliced_flow(
    problem: FlowProblem,
    n_particles: int,
    schedule: FlowSchedule,
    rng: np.random.Generator,
    *,
    device: torch.device | None = None,
    progress: str | None = None,
) -> FlowResult:
    """Move particles towards the distribution that a release describes.

    Steps ``x <- x + h v(x) + sqrt(2 λ h) z`` with the drift
    ``v(x) = -(1/M) Σ_j (⟨x, θ_j⟩ - F_ν^{-1}(F_μ(⟨x, θ_j⟩))) θ_j`` over M of the directions,
    μ being the particles and ν the target, both smoothed where the release is noisy rows.
    Features that only many directions together determine are approached slowly by plain
    steps, so the drift is by default read ahead of the particles and accumulated
    (Nesterov); at the end point, where the drift vanishes, both schemes agree.

    Parameters
    ----------
    problem : FlowProblem
        Target: where particles start, and the directions of each step.
    n_particles : int
        Number of particles.
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

    Raises
    ------
    ValueError
        If the schedule has more steps than the problem has batches to take.

    References
    ----------
    Liutkus et al., "Sliced-Wasserstein flows", ICML 2019; the update of the private flow
    paper (its equations 17, 18 and 24 omit ``X_k +``).
    """
    if problem.n_turns is not None and schedule.n_steps > problem.n_turns:
        raise ValueError(
            f"n_steps={schedule.n_steps} is more than the {problem.n_turns} released batches "
            "that hold rows; each is used in one step."
        )
    if problem.is_partial:
        # Batches that see a part of the space in turns would not damp the momentum.
        schedule = replace(schedule, momentum=0.0)
    state = _state(problem, n_particles, rng, device)
    displacements = np.empty(schedule.n_steps)
    turns = problem.turns(rng)
    bar = tqdm(range(schedule.n_steps), desc=progress, disable=progress is None, leave=True)
    for step in bar:
        displacements[step] = state.move(next(turns), schedule, step)
    return FlowResult(problem, state.result(), displacements)


def _state(
    problem: FlowProblem, n_particles: int, rng: np.random.Generator, device: torch.device | None
) -> "_NumpyState | _TorchState":
    start = problem.start(n_particles, rng)
    # Noise has a generator of its own, so that start and turns are the same on all devices.
    seed = int(rng.integers(2**63 - 1))
    if device is not None:
        return _TorchState(start, seed, device)
    return _NumpyState(start, seed, NumpyDrift(n_particles, problem.largest_batch))


class _NumpyState:
    """Particles in memory."""

    def __init__(self, start: np.ndarray, seed: int, drift: NumpyDrift) -> None:
        self._particles, self._drift = start, drift
        self._rng = np.random.default_rng(seed)
        self._step = np.zeros_like(start)

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Take one step; return the root mean square displacement."""
        share = np.float32(schedule.share(step))
        self._step *= np.float32(schedule.momentum)
        ahead = self._particles + self._step if schedule.momentum else self._particles
        residual = self._drift.residual(ahead, batch, self._noise(batch))
        self._step -= share * batch.full_step * residual
        if schedule.diffusion > 0:
            scale = np.sqrt(2 * schedule.diffusion * share * batch.drift_step)
            self._step += scale * self._rng.standard_normal(self._step.shape, dtype=np.float32)
        self._particles += self._step
        return float(np.sqrt(np.vdot(self._step, self._step) / len(self._step)))

    def _noise(self, batch: DirectionBatch) -> np.ndarray | None:
        """Draw the noise that smooths the particles' projections like the target."""
        if batch.sigma == 0:
            return None
        shape = (len(batch.directions), len(self._particles))
        return np.float32(batch.sigma) * self._rng.standard_normal(shape, dtype=np.float32)

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles


class _TorchState:
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
