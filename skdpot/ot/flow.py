"""Particle flows that minimise the sliced Wasserstein distance: post-processing of a release.

`skdpot.ot.flow_problems` defines the targets of the particles, and `skdpot.ot.drift` computes the
drift of all particles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from skdpot.ot.drift import NumpyDrift, TorchDrift, on_device
from skdpot.ot.flow_problems import DirectionBatch, FlowProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FlowSchedule:
    """Lengths of the steps as shares of a full step, momentum and diffusion."""

    n_steps: int = 200
    step_size: float = 1.0
    diffusion: float = 0.0
    momentum: float = 0.9
    decay: bool = True

    @property
    def is_process(self) -> bool:
        """Whether the particles follow a stochastic process, whose law may leave the ball."""
        return self.diffusion > 0 or not self.decay

    def share(self, step: int) -> float:
        """Return the share of a full step; with `decay` it falls in the second half."""
        if not self.decay:
            return self.step_size
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))


@dataclass(frozen=True, eq=False)
class FlowResult:
    """Final particles of a flow, with the displacements and the recorded steps."""

    problem: FlowProblem
    particles: np.ndarray
    displacements: np.ndarray
    recorded: dict[int, np.ndarray] = field(default_factory=dict)


def sliced_flow(
    problem: FlowProblem,
    n_particles: int,
    schedule: FlowSchedule,
    rng: np.random.Generator,
    *,
    device: "torch.device | None" = None,
    progress: str | None = None,
    record_at: Sequence[int] = (),
) -> FlowResult:
    """Move particles towards the distribution that a release describes.

    Steps ``x <- x + h v(x) + sqrt(2 λ h) z`` with the drift ``v(x) = -(1/M) Σ_j (⟨x, θ_j⟩ -
    F_ν^{-1}(F_μ(⟨x, θ_j⟩))) θ_j`` over M of the directions, where μ is the particles and ν the
    target. For noisy rows both are smoothed, and noise is added to each ⟨x, θ_j⟩. Plain steps
    converge slowly in features that only many directions together determine. So by default the
    drift is evaluated ahead of the particles and accumulated (Nesterov); both schemes have the same
    end point, where the drift vanishes.

    References
    ----------
    Liutkus et al., "Sliced-Wasserstein flows", ICML 2019; the update of the private flow paper (its
    equations 17, 18 and 24 omit ``X_k +``).
    """
    if problem.n_turns is not None and schedule.n_steps > problem.n_turns:
        raise ValueError(
            f"n_steps={schedule.n_steps} is more than the {problem.n_turns} released batches "
            "that hold rows; each is used in one step."
        )
    if problem.is_partial:
        # Momentum would not be damped if each batch spans a part of the space only.
        schedule = replace(schedule, momentum=0.0)
    start = problem.start(n_particles, rng)
    # The noise has its own generator, so that start and batches are the same on all devices.
    seed = int(rng.integers(2**63 - 1))
    if device is None:
        state = FlowState(start, seed, NumpyDrift(len(start), problem.largest_batch))
    else:
        state = TorchState(start, seed, device)
    displacements = np.empty(schedule.n_steps)
    recorded = {0: state.result().copy()} if 0 in record_at else {}
    turns = problem.turns(rng)
    steps = range(schedule.n_steps)
    # Without a bar, tqdm is not used: a killed process would keep the lock that forks share.
    for step in steps if progress is None else tqdm(steps, desc=progress, leave=True):
        displacements[step] = state.move(next(turns), schedule, step)
        if step + 1 in record_at:
            recorded[step + 1] = state.result().copy()
    return FlowResult(problem, state.result(), displacements, recorded)


class FlowState:
    """Particles and the Euler-Maruyama step that moves them; arrays, or tensors of a device."""

    def __init__(self, start: np.ndarray, seed: int, drift: NumpyDrift | TorchDrift) -> None:
        self._particles: Any = start
        self._step: Any = np.zeros_like(start)
        self._rng: Any = np.random.default_rng(seed)
        self._drift = drift

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Move the particles by one step; return the root mean square displacement."""
        share, noise = np.float32(schedule.share(step)), None
        self._step *= schedule.momentum
        ahead = self._particles + self._step if schedule.momentum else self._particles
        if batch.sigma > 0:  # smooths the projections of the particles like the target
            noise = float(batch.sigma) * self._normal(len(batch.directions), len(ahead))
        residual = self._drift.residual(ahead, batch, noise)
        self._step -= self._placed(share * batch.full_step) * residual
        if schedule.diffusion > 0:
            scale = np.sqrt(2 * schedule.diffusion * share * batch.drift_step)
            self._step += self._placed(scale) * self._normal(*self._step.shape)
        self._particles += self._step
        flat = self._step.reshape(-1)
        return float(np.sqrt(np.float32(float(flat @ flat) / len(self._step))))

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles

    def _placed(self, array: np.ndarray) -> Any:
        return array

    def _normal(self, *shape: int) -> Any:
        return self._rng.standard_normal(shape, dtype=np.float32)


class TorchState(FlowState):
    """Particles on a device."""

    def __init__(self, start: np.ndarray, seed: int, device: "torch.device") -> None:
        import torch

        super().__init__(start, seed, TorchDrift(device))
        self._particles = on_device(start, device)
        self._step = torch.zeros_like(self._particles)
        self._rng = torch.Generator(device=device).manual_seed(seed)

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles.cpu().numpy()

    def _placed(self, array: np.ndarray) -> "torch.Tensor":
        return on_device(array, self._particles.device)

    def _normal(self, *shape: int) -> "torch.Tensor":
        return self._particles.new_empty(shape).normal_(generator=self._rng)
