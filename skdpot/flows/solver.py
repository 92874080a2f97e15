"""Particle flows down the sliced Wasserstein distance: post-processing of a release."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from tqdm.auto import tqdm

from skdpot.flows.numpy_drift import NumpyDrift
from skdpot.flows.problem import DirectionBatch, FlowProblem, FlowSchedule

if TYPE_CHECKING:
    import torch

    from skdpot.flows.torch_state import TorchState

__all__ = ["FlowResult", "sliced_flow"]


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
    recorded : dict of int to ndarray of shape (n_particles, n_features), float32
        Copies of the particles after the numbers of steps that were asked for; a row is the same
        particle in all of them.
    """

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
    record_at : sequence of int, default=()
        Numbers of steps after which the particles are copied; 0 is the start. They move in the
        same way whether or not they are recorded.

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
    recorded = {0: state.result().copy()} if 0 in record_at else {}
    turns = problem.turns(rng)
    bar = tqdm(range(schedule.n_steps), desc=progress, disable=progress is None, leave=True)
    for step in bar:
        displacements[step] = state.move(next(turns), schedule, step)
        if step + 1 in record_at:
            recorded[step + 1] = state.result().copy()
    return FlowResult(problem, state.result(), displacements, recorded)


def _state(
    problem: FlowProblem, n_particles: int, rng: np.random.Generator, device: "torch.device | None"
) -> "_NumpyState | TorchState":
    start = problem.start(n_particles, rng)
    # Noise has a generator of its own, so that start and turns are the same on all devices.
    seed = int(rng.integers(2**63 - 1))
    if device is not None:
        from skdpot.flows.torch_state import TorchState

        return TorchState(start, seed, device)
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
