"""Particle flows down the sliced Wasserstein distance: post-processing of a release.

The optimal map along a direction is ``F_ν^{-1} ∘ F_μ``. A step on the CPU needs no sort: particles
are counted in cells of their own range, the cumulative counts are F_μ at the cell edges, and the
map is linear between edges. Each particle then needs one multiplication and two table look-ups.

With smoothed targets F_μ is that of noisy projections of the particles, and is read at them: the
gradient of the smoothed distance at a particle is the mean of ``z - T(z)`` over its noisy places.

A map of points that moves one released measure to another (`sliced_map`) takes the same steps from
any point as particles do that flow from the first measure to the second (iterative distribution
transfer [1]_, [2]_).

References
----------
.. [1] F. Pitié, A. Kokaram, R. Dahyot, "N-dimensional probability density function transfer and
   its application to colour transfer", ICCV 2005.
.. [2] N. Bonneel, J. Rabin, G. Peyré, H. Pfister, "Sliced and Radon Wasserstein barycenters of
   measures", JMIV 2015.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import ndtr, ndtri
from tqdm.auto import tqdm

from skdpot._utils.threads import one_blas_thread
from skdpot.ot.slices import CDFTable, orthogonal_directions

if TYPE_CHECKING:
    import torch


_N_LEVELS = 1024
_LEVELS = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
_PREFERRED_BATCH = 64


def direction_blocks(
    n_projections: int, n_features: int, size: int | None = None
) -> tuple[slice, ...]:
    """Divide directions into steps; by default about 64 per step, in whole bases."""
    size = size or n_features * max(1, round(_PREFERRED_BATCH / n_features))
    return tuple(slice(start, start + size) for start in range(0, n_projections, size))


def rounds(items: Sequence[Any], rng: np.random.Generator) -> Iterator[Any]:
    """Yield items for ever, every one once per round, in random order."""
    while True:
        for index in rng.permutation(len(items)):
            yield items[index]


@dataclass(frozen=True, eq=False)
class DirectionBatch:
    """Directions that are used together in one step, and the length of a full step."""

    directions: np.ndarray
    quantiles: np.ndarray
    sigma: float = 0.0

    @cached_property
    def full_step(self) -> np.ndarray:
        """Step by which the summed drift is multiplied, per coordinate, float32."""
        return longest_step(self.directions)

    @property
    def drift_step(self) -> np.ndarray:
        """The same step in units of the mean drift, h: M times `full_step`."""
        return self.full_step * np.float32(len(self.directions))


@dataclass(frozen=True, eq=False)
class SlicedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of particles to a table of quantiles."""

    table: CDFTable
    n_projections_per_step: int | None = None
    n_turns: ClassVar[None] = None  # batches are used again and again

    @cached_property
    def batches(self) -> tuple[DirectionBatch, ...]:
        """Consecutive directions, M at a time."""
        directions = self.table.directions.astype(np.float32)
        quantiles = self.table.quantiles(_LEVELS).astype(np.float32)
        n_projections, n_features = directions.shape
        blocks = direction_blocks(n_projections, n_features, self.n_projections_per_step)
        return tuple(DirectionBatch(directions[block], quantiles[block]) for block in blocks)

    @property
    def largest_batch(self) -> int:
        """Number of directions of the largest batch; only the last one can be smaller."""
        return len(self.batches[0].directions)

    @property
    def is_partial(self) -> bool:
        """Whether batches take turns and none of them spans the space."""
        return len(self.batches) > 1 and self.largest_batch < self.table.directions.shape[1]

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian of the target's location and spread."""
        noise = rng.standard_normal((n_particles, len(self.location)))
        return (self.location + self.spread * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield batches for ever, each once per round in random order."""
        return rounds(self.batches, rng)

    def distance(self, particles: np.ndarray) -> float:
        """Return SW₂ to the target along its directions, which the flow minimises."""
        projections = np.sort(self.table.directions @ particles.T.astype(np.float64), axis=1)
        reached = projections[:, (_LEVELS * len(particles)).astype(int)]
        return float(np.sqrt(np.mean((reached - self._levels) ** 2)))

    @cached_property
    def location(self) -> np.ndarray:
        """Least-squares mean of the target from its mean along each direction."""
        means = self._levels.mean(axis=1)
        return np.linalg.lstsq(self.table.directions, means, rcond=None)[0]

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the target along an average direction."""
        return float(np.sqrt(max(self._levels.var(axis=1).mean(), np.finfo(float).tiny)))

    @cached_property
    def _levels(self) -> np.ndarray:
        return np.concatenate([batch.quantiles for batch in self.batches]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ProjectedRows:
    """Noisy projections of one batch of rows."""

    directions: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class SmoothedFlowProblem:
    """Minimise the sliced Wasserstein-2 distance of smoothed particles to noisy projections.

    The values along a direction are a sample of ``P_θ ν * N(0, σ²)``. Noise of the same size is
    added to the particles' projections, so that the minimum is where particles and rows agree,
    rather than where the particles have absorbed the noise. The particles' noise protects nothing
    and is drawn anew in each step; the released noise is frozen.

    References
    ----------
    "Differentially private sliced Wasserstein flows", Algorithms 1 and 2. Both omit ``X +`` in the
    update of the particles. Equation 21 prints the inverse map, and equation 20 reads it at clean
    projections; the code of its authors reads the map at noisy ones, as we do.
    """

    batches: tuple[ProjectedRows, ...]
    sigma: float
    radius: float
    n_projections_per_step: int | None = None

    @property
    def largest_batch(self) -> int:
        """Number of directions of a step."""
        n_projections = len(self.batches[0].directions)
        return min(self.n_projections_per_step or n_projections, n_projections)

    @property
    def n_turns(self) -> int | None:
        """One step per release; any number with a single one."""
        n_batches = len(self.batches)
        return None if n_batches == 1 else n_batches

    @property
    def is_partial(self) -> bool:
        """Whether batches take turns and none of them spans the space."""
        n_projections, n_features = self.batches[0].directions.shape
        takes_turns = self.n_turns is not None or self.largest_batch < n_projections
        return takes_turns and self.largest_batch < n_features

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a Gaussian as wide as the ball: ``N(0, R² / d)`` in each coordinate."""
        n_features = self.batches[0].directions.shape[1]
        noise = rng.standard_normal((n_particles, n_features))
        return (self.radius / math.sqrt(n_features) * noise).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield the releases in sequence, or parts of the single one for ever."""
        for batch in self.batches if len(self.batches) > 1 else repeat(self.batches[0]):
            yield self._part(batch, rng)

    def _part(self, release: ProjectedRows, rng: np.random.Generator) -> DirectionBatch:
        """Take M of the directions of a release, and their values as quantiles."""
        directions, values = release.directions, release.values
        if self.largest_batch < len(directions):
            chosen = rng.choice(len(directions), self.largest_batch, replace=False)
            directions, values = directions[chosen], values[chosen]
        if values.shape[1] == 1:  # between two equal quantiles there is something to interpolate
            values = np.repeat(values, 2, axis=1)
        return DirectionBatch(directions, values, self.sigma)


@dataclass(frozen=True, eq=False)
class GaussianFlowProblem:
    """Minimise the sliced distance of particles to a mixture of Gaussians, which they start as."""

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    n_turns: ClassVar[None] = None
    is_partial: ClassVar[bool] = False

    @property
    def largest_batch(self) -> int:
        """Number of directions of a batch: a basis."""
        return self.means.shape[1]

    def start(self, n_particles: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the mixture."""
        sizes = rng.multinomial(n_particles, self.shares)
        parts = [
            rng.multivariate_normal(mean, covariance, size, method="eigh")
            for mean, covariance, size in zip(self.means, self.covariances, sizes, strict=True)
        ]
        return rng.permutation(np.concatenate(parts)).astype(np.float32)

    def turns(self, rng: np.random.Generator) -> Iterator[DirectionBatch]:
        """Yield random bases for ever, with the quantiles of the mixture along them."""
        d = self.largest_batch
        while True:
            directions = orthogonal_directions(d, d, rng)
            means = directions @ self.means.T
            spreads = np.sqrt(
                np.einsum("ij,kjl,il->ik", directions, self.covariances, directions, optimize=True)
            )
            quantiles = np.stack(list(map(self._quantiles, means, spreads)))
            yield DirectionBatch(directions.astype(np.float32), quantiles.astype(np.float32))

    def _quantiles(self, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
        """Return the quantiles of a mixture on a line."""
        normal = ndtri(np.linspace(_LEVELS[0], _LEVELS[-1], _N_LEVELS // 4))
        nodes = np.sort((means + spreads * normal[:, None]).ravel())
        levels = self.shares @ ndtr((nodes - means[:, None]) / spreads[:, None])
        return np.interp(_LEVELS, levels, nodes)


FlowProblem: TypeAlias = SlicedFlowProblem | SmoothedFlowProblem | GaussianFlowProblem


@dataclass(frozen=True)
class FlowSchedule:
    """Step lengths, as shares of a full step."""

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
        """Return the share of a full step, which `decay` lowers in the second half."""
        if not self.decay:
            return self.step_size
        progress = step / self.n_steps
        return self.step_size * min(1.0, max(0.05, 2.0 * (1.0 - progress)))


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
        # With k the cell and u the position in units of cells, a line is ``offset + slope u``.
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
    """Count the particles below each edge, all of which are in one of the cells."""
    n_projections = len(cell)
    counts = np.bincount(cell.ravel(), minlength=n_projections * _N_CELLS)
    below = np.zeros((n_projections, _N_CELLS + 1))
    np.cumsum(counts.reshape(n_projections, _N_CELLS), axis=1, out=below[:, 1:])
    return below


def _interpolate(quantiles: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Read each row's quantiles, known at the middles of equal levels, at `levels`."""
    n_projections, n_levels = quantiles.shape
    at = np.clip(levels * n_levels - 0.5, 0, n_levels - 1)
    left = np.minimum(at.astype(np.intp), n_levels - 2)
    share = (at - left).astype(np.float32)
    left += np.arange(0, n_projections * n_levels, n_levels)[:, None]
    flat = quantiles.ravel()
    below = flat[left]
    return below + share * (flat[left + 1] - below)


class TorchDrift:
    """Drift of particles that stay on a device; torch is loaded only where one is used."""

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        # Weak: batches of a single step are forgotten after it.
        self._on_device: WeakKeyDictionary[DirectionBatch, list[torch.Tensor]]
        self._on_device = WeakKeyDictionary()

    def residual(
        self, particles: "torch.Tensor", batch: DirectionBatch, noise: "torch.Tensor | None" = None
    ) -> "torch.Tensor":
        """Return what `NumpyDrift.residual` returns, as a tensor on the device."""
        if batch not in self._on_device:  # copied once
            arrays = map(np.ascontiguousarray, (batch.directions, batch.quantiles))
            self._on_device[batch] = [_placed(array, self._device) for array in arrays]
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
        cells = _placed(np.arange(_N_CELLS + 1), self._device)
        values = low + width * cells - self._interpolate(quantiles, below.double() / len(particles))
        slope = values.diff(dim=1)
        offset = values[:, :-1] - slope * cells[:-1]
        moved = offset.gather(1, cell).addcmul_(slope.gather(1, cell), position)
        return moved.T @ directions

    def _counts_below(self, cell: "torch.Tensor") -> "torch.Tensor":
        """Count the particles below each edge, all of which are in one of the cells."""
        n_projections = len(cell)
        bins = cell + _placed(np.arange(n_projections)[:, None] * _N_CELLS, self._device)
        counts = bins.flatten().bincount(minlength=n_projections * _N_CELLS)
        below = counts.new_zeros((n_projections, _N_CELLS + 1))
        below[:, 1:] = counts.reshape(n_projections, _N_CELLS).cumsum(dim=1)
        return below

    def _interpolate(self, quantiles: "torch.Tensor", levels: "torch.Tensor") -> "torch.Tensor":
        """Read each row's quantiles, known at the middles of equal levels, at `levels`."""
        n_levels = quantiles.shape[1]
        at = (levels * n_levels - 0.5).clamp(0, n_levels - 1)
        left = at.long().clamp_max(n_levels - 2)
        share = (at - left).float()
        below = quantiles.gather(1, left)
        return below + share * (quantiles.gather(1, left + 1) - below)


def _placed(array: np.ndarray, device: "torch.device") -> "torch.Tensor":
    import torch

    return torch.from_numpy(array).to(device)


@dataclass(frozen=True, eq=False)
class FlowResult:
    """Where the particles ended."""

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
    approach features slowly that only many directions together determine, so by default the drift
    is read ahead of the particles and accumulated (Nesterov); both schemes have the same end point,
    where the drift vanishes.

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
        # Batches that see a part of the space in turns would not damp the momentum.
        schedule = replace(schedule, momentum=0.0)
    start = problem.start(n_particles, rng)
    # Noise has a generator of its own, so that start and turns are the same on all devices.
    seed = int(rng.integers(2**63 - 1))
    if device is None:
        state = FlowState(start, seed, NumpyDrift(len(start), problem.largest_batch))
    else:
        state = TorchState(start, seed, device)
    displacements = np.empty(schedule.n_steps)
    recorded = {0: state.result().copy()} if 0 in record_at else {}
    turns = problem.turns(rng)
    steps = range(schedule.n_steps)
    # No bar, no lock of tqdm, which forked processes share: one that is killed would keep it.
    for step in steps if progress is None else tqdm(steps, desc=progress, leave=True):
        displacements[step] = state.move(next(turns), schedule, step)
        if step + 1 in record_at:
            recorded[step + 1] = state.result().copy()
    return FlowResult(problem, state.result(), displacements, recorded)


class FlowState:
    """Particles and the Euler-Maruyama step that moves them; arrays, or tensors of a device."""

    def __init__(self, start: np.ndarray, seed: int, drift: Any) -> None:
        self._particles: Any = start
        self._step: Any = np.zeros_like(start)
        self._rng: Any = np.random.default_rng(seed)
        self._drift = drift

    def move(self, batch: DirectionBatch, schedule: FlowSchedule, step: int) -> float:
        """Take one step; return the root mean square displacement."""
        share, noise = np.float32(schedule.share(step)), None
        self._step *= schedule.momentum
        ahead = self._particles + self._step if schedule.momentum else self._particles
        if batch.sigma > 0:  # smooths the particles' projections like the target
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
        self._particles = _placed(start, device)
        self._step = torch.zeros_like(self._particles)
        self._rng = torch.Generator(device=device).manual_seed(seed)

    def result(self) -> np.ndarray:
        """Return the particles."""
        return self._particles.cpu().numpy()

    def _placed(self, array: np.ndarray) -> "torch.Tensor":
        return _placed(array, self._particles.device)

    def _normal(self, *shape: int) -> "torch.Tensor":
        return self._particles.new_empty(shape).normal_(generator=self._rng)


def longest_step(directions: np.ndarray) -> np.ndarray:
    """Return the step by which a summed drift is multiplied, per coordinate.

    Where maps are locally translations, the sum over directions of the one-dimensional residuals
    has the Jacobian ΘᵀΘ. One over its largest eigenvalue is the longest step that never overshoots,
    and an exact solution for orthogonal rows. For sparse directions the busiest coordinate
    determines the eigenvalue, so each coordinate is scaled by the row sum of ``|Θ|ᵀ|Θ|`` that
    bounds it (Gershgorin), which is never longer than stable.
    """
    magnitudes = np.abs(directions.astype(np.float64))
    n_features = magnitudes.shape[1]
    if n_features > 1 and np.mean(magnitudes > 0) < 0.5:
        sums = magnitudes.T @ magnitudes.sum(axis=1)
        seen = sums > 0
        steps: np.ndarray = np.divide(1.0, sums, out=np.zeros(n_features), where=seen)
        return steps.astype(np.float32)
    largest = np.linalg.norm(directions.astype(np.float64), ord=2) ** 2
    return np.full(n_features, 1.0 / largest, dtype=np.float32)


_N_PARTICLES = 4000
_N_STEPS = 20

_MAP_LEVELS = (np.arange(256) + 0.5) / 256
_SCHEDULE = FlowSchedule(n_steps=_N_STEPS)
_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class SliceStep:
    """A shift along each of some directions, linear between levels of the projection."""

    directions: np.ndarray
    levels: np.ndarray  # (n_projections, n_levels), increasing
    shifts: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Move points."""
        along = zip(self.directions @ points.T, self.levels, self.shifts, strict=True)
        return points + np.stack([np.interp(u, at, by) for u, at, by in along], 1) @ self.directions


@dataclass(frozen=True, eq=False)
class SlicedMap:
    """Steps that are taken one after the other, each from where the last one ended."""

    steps: tuple[SliceStep, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Move points, each by itself."""
        parts = [points[k : k + _AT_ONCE] for k in range(0, max(1, len(points)), _AT_ONCE)]
        return np.concatenate([reduce(lambda p, step: step(p), self.steps, part) for part in parts])


def sliced_map(source: CDFTable, target: CDFTable, rng: np.random.Generator) -> SlicedMap:
    """Return a map that moves the measure of one table to that of another."""
    start = sliced_flow(SlicedFlowProblem(source), _N_PARTICLES, FlowSchedule(), rng)
    points, problem = start.particles.astype(np.float64), SlicedFlowProblem(target)
    turns, steps = problem.turns(rng), list[SliceStep]()
    for number in range(_N_STEPS):
        batch = next(turns)
        theta, share = batch.directions.astype(np.float64), _SCHEDULE.share(number)
        ordered = np.sort(theta @ points.T, axis=1)
        reached = ordered[:, (_MAP_LEVELS * _N_PARTICLES).astype(int)]
        wanted = batch.quantiles[:, (_MAP_LEVELS * batch.quantiles.shape[1]).astype(int)]
        steps.append(SliceStep(theta, reached, share * batch.full_step[0] * (wanted - reached)))
        points = steps[-1](points)
    return SlicedMap(tuple(steps))
