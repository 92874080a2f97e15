"""Training a generator: on released one-dimensional quantiles, or on noisy gradients.

The loss of a batch of generated points is the mean, over some directions, of the squared
Wasserstein-2 distance between their projections and quantiles along each direction. On the line
the optimal plan matches ranks, so that its gradient is a sort and a difference: it is computed
directly, and only the network is differentiated by torch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.noisy_step import Gradients, StepPart, expected_batch, release_gradient
from skdpot.nets.output_gradients import shares_of_jacobians
from skdpot.nets.per_sample import full_precision, record_jacobians
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.nets.wasserstein_gradient import (
    Ball,
    Side,
    clipped_wasserstein_gradient,
    matched_means,
    ranked_projections,
)
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.recording import Records, candidates
from skdpot.slicing.smoothed import SmoothedProjections
from skdpot.slicing.table import CDFTable

__all__ = [
    "LossBatch",
    "OutputUnits",
    "generator_steps",
    "noisy_gradient_steps",
    "release_batches",
    "sliced_pull",
    "table_batches",
]

_N_LEVELS = 256
_NARROWEST = 1e-3


@dataclass(frozen=True, eq=False)
class OutputUnits:
    """An affine map from a network's outputs to the mapped rows: ``location + scale * y``.

    A network whose outputs have mean 0 and variance 1 needs few steps to learn the rest.
    """

    location: np.ndarray
    scale: float

    @classmethod
    def of_ball(cls, bounds: DataBounds) -> "OutputUnits":
        """Scale the ball of the mapped rows to the radius √d, for want of anything released."""
        scale = bounds.radius / math.sqrt(bounds.n_features)
        return cls(np.zeros(bounds.n_features), scale)

    @classmethod
    def of_table(cls, table: CDFTable) -> "OutputUnits":
        """Take mean and spread from a table of distribution functions."""
        levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
        quantiles = table.quantiles(levels)
        location = np.linalg.lstsq(table.directions, quantiles.mean(axis=1))[0]
        narrowest = _NARROWEST * float(table.half_widths.max())
        return cls(location, max(math.sqrt(quantiles.var(axis=1).mean()), narrowest))

    @classmethod
    def of_release(cls, projections: SmoothedProjections, radius: float) -> "OutputUnits":
        """Take mean and spread from noisy projections, as far as they lie in the ball."""
        d = projections.batches[0].directions.shape[1]
        gram, moments, variances = np.zeros((d, d)), np.zeros(d), []
        for batch in projections.batches:
            directions, values = (x.astype(np.float64) for x in (batch.directions, batch.values))
            gram += directions.T @ directions
            moments += directions.T @ values.mean(axis=1)
            variances.append(values.var(axis=1).mean())
        location = np.linalg.lstsq(gram, moments)[0]
        location *= radius / max(radius, float(np.linalg.norm(location)))
        largest = radius**2 / d
        variance = float(np.mean(variances)) - projections.sigma**2
        return cls(location, math.sqrt(min(max(variance, 0.01 * largest), largest)))

    def to_mapped(self, outputs: np.ndarray) -> np.ndarray:
        """Map outputs of shape (n_rows, n_features) to the units of the mapped rows."""
        return self.location + self.scale * outputs


_PREFERRED_SLICES = 64


@dataclass(frozen=True, eq=False)
class LossBatch:
    """Directions of one step, and where the generated points should be along each."""

    directions: np.ndarray
    quantiles: np.ndarray
    sigma: float = 0.0


def table_batches(
    tables: Sequence[CDFTable],
    group_size: int,
    units: OutputUnits,
    rng: np.random.Generator,
) -> Iterator[LossBatch]:
    """Yield batches of the directions of a sketch for ever, about 64 at a time."""
    levels = (np.arange(group_size) + 0.5) / group_size
    directions = tables[0].directions
    quantiles = np.stack([table.quantiles(levels) for table in tables], axis=1)
    quantiles = _in_units(quantiles, directions, units)
    directions = directions.astype(np.float32)
    n_slices, n_features = directions.shape
    blocks = [slice(k, k + n_features) for k in range(0, n_slices, n_features)]
    together = max(1, round(_PREFERRED_SLICES / n_features))
    while True:
        order = rng.permutation(len(blocks))
        for start in range(0, len(blocks), together):
            rows = np.concatenate(
                [np.arange(n_slices)[blocks[k]] for k in order[start : start + together]]
            )
            yield LossBatch(directions[rows], quantiles[rows])


def release_batches(
    projections: SmoothedProjections, group_size: int, units: OutputUnits
) -> Iterator[LossBatch]:
    """Yield the released batches of noisy projections, one a step."""
    for batch in projections.batches:
        matched = matched_means(batch.values.astype(np.float64), group_size)[:, None]
        quantiles = _in_units(matched, batch.directions, units)
        yield LossBatch(batch.directions, quantiles, projections.sigma / units.scale)


def generator_steps(
    batches: Iterator[LossBatch],
    draw_inputs: Callable[[int], np.ndarray],
    rng: np.random.Generator,
) -> GradientStep:
    """Make training steps of a network that moves its outputs to the quantiles of a batch."""

    def step(network: nn.Module, number: int) -> None:
        batch = next(batches)
        device = next(network.parameters()).device
        inputs = draw_inputs(batch.quantiles.shape[2])
        points = network(torch.from_numpy(inputs).to(device))
        noise = None
        if batch.sigma > 0:
            noise = rng.standard_normal(batch.quantiles.shape, dtype=np.float32)
            noise *= np.float32(batch.sigma)
        points.backward(sliced_pull(points.detach(), batch, noise))

    return step


def sliced_pull(
    points: torch.Tensor, batch: LossBatch, noise: np.ndarray | None = None
) -> torch.Tensor:
    """Return the gradient of the sliced loss with respect to each generated point."""
    if points.device.type == "cpu":
        pull = _numpy_pull(points.numpy(), batch, noise)
        return torch.from_numpy(pull)
    return _torch_pull(points, batch, noise)


def _numpy_pull(points: np.ndarray, batch: LossBatch, noise: np.ndarray | None) -> np.ndarray:
    quantiles = batch.quantiles
    projected = (batch.directions @ points.T).reshape(quantiles.shape)
    if noise is not None:
        projected += noise
    order = np.argsort(projected, axis=2)
    matched = np.empty_like(projected)
    np.put_along_axis(matched, order, quantiles, axis=2)
    projected -= matched
    projected *= np.float32(2.0 / quantiles.size)
    pull: np.ndarray = projected.reshape(len(quantiles), -1).T @ batch.directions
    return pull


def _torch_pull(points: torch.Tensor, batch: LossBatch, noise: np.ndarray | None) -> torch.Tensor:
    directions, quantiles = (
        torch.from_numpy(array).to(points.device) for array in (batch.directions, batch.quantiles)
    )
    projected = (directions @ points.T).reshape(quantiles.shape)
    if noise is not None:
        projected += torch.from_numpy(noise).to(points.device)
    order = projected.argsort(dim=2)
    matched = torch.empty_like(projected).scatter_(2, order, quantiles)
    residual = (projected - matched) * (2.0 / quantiles.numel())
    return residual.flatten(1).T @ directions


def _in_units(quantiles: np.ndarray, directions: np.ndarray, units: OutputUnits) -> np.ndarray:
    """Express quantiles of shape (n_slices, n_groups, group_size) in the network's units."""
    centers = (directions @ units.location)[:, None, None]
    return ((quantiles - centers) / units.scale).astype(np.float32)


# In radii of the rows: no output has to be further away. Outputs may be anywhere, but rounding
# errors of far ones would not be small beside the noise.
_REACH = 4.0
_SIMULATIONS = 3  # of thousands of numbers each
_SLICES_AT_ONCE = 16


def noisy_gradient_steps(
    rows: np.ndarray,
    radius: float,
    plan: TrainingPlan,
    directions: Iterator[np.ndarray],
    draw_inputs: Callable[[], np.ndarray],
    clip_jacobian: float,
    secret: SecretStream,
) -> GradientStep:
    """Make training steps from noisy gradients of batches.

    Privacy
    -------
    Each step releases the gradient times the batch size, rounded to a lattice, with discrete
    Gaussian noise ``plan.noise``. Batches are secret; nothing of them is kept.
    """
    batches, near = plan.batches(secret), Ball(_REACH * radius)
    data = Side(batch_size=plan.batch_size, private=True)

    def step(network: nn.Module, number: int) -> None:
        inputs = torch.from_numpy(draw_inputs()).to(next(network.parameters()).device)
        along = next(directions)
        made = Side(
            batch_size=len(inputs), private=False, network=network, clip_jacobian=clip_jacobian
        )
        total = clipped_wasserstein_gradient(
            made,
            data,
            inputs,
            torch.from_numpy(rows[next(batches)]),
            along,
            clip_output=near,
        )
        facts = {"inputs": inputs, "directions": along, "clip_jacobian": clip_jacobian}
        summed = {parameter: plan.batch_size * value for parameter, value in total.items()}
        linear = partial(_step_part, plan, inputs.cpu(), along, clip_jacobian, near)
        release_gradient(network, summed, plan, secret, facts, linear)

    return step


def _step_part(
    plan: TrainingPlan,
    inputs: torch.Tensor,
    directions: np.ndarray,
    clip_jacobian: float,
    near: Ball,
    network: nn.Module,
    records: Records,
    shares: np.ndarray,
) -> StepPart:
    """Return what rows add to a step, to first order in the share of each.

    Along a direction the j-th generated point is matched with the j-th part of the sorted rows. A
    row that moves from u' to u shifts the rows between by one rank, and what the j-th point is
    matched with by the length of the j-th part's range that lies between u' and u. What this
    misses, a few per cent, is found by simulation.
    """
    rows, codes = records
    made = Side(batch_size=len(inputs), private=False, network=network, clip_jacobian=clip_jacobian)

    def exact(batch: np.ndarray) -> np.ndarray:
        data = Side(batch_size=len(batch), private=True)
        total = clipped_wasserstein_gradient(
            made, data, inputs, torch.from_numpy(batch), directions, clip_output=near
        )
        flat: np.ndarray = torch.cat([value.flatten() for value in total.values()]).numpy()
        return plan.batch_size * flat

    order, _, _ = expected_batch(codes, shares)
    center = exact(rows[order])
    own = _derivative(network, rows, order, inputs, directions, clip_jacobian, near)
    if not np.any(shares < 1.0):
        return StepPart(rows=own, center=center, exact=False)
    rng, squares = np.random.default_rng(0), []
    for _ in range(_SIMULATIONS):
        first, second = candidates(shares)
        present = np.where(rng.random(len(first)) < 0.5, first, second)
        batch = rng.choice(present, size=plan.batch_size, replace=False)
        weights = np.bincount(batch, minlength=len(rows)) - plan.rates(codes) * shares
        squares.append(np.mean((exact(rows[batch]) - center - own.sum(weights)) ** 2))
    return StepPart(rows=own, center=center, exact=False, missed=math.sqrt(float(np.mean(squares))))


def _derivative(
    network: nn.Module,
    rows: np.ndarray,
    order: np.ndarray,
    inputs: torch.Tensor,
    directions: np.ndarray,
    clip_jacobian: float,
    near: Ball,
) -> Gradients:
    """Return the derivative of the gradient by the weight of each row, times their number."""
    along = directions.astype(np.float64)
    with full_precision(torch.device("cpu")):
        jacobians = record_jacobians(network, inputs)
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    shares = shares_of_jacobians(gram, clip_jacobian).numpy()
    points = near.nearest(jacobians.outputs.double().numpy())
    projections = along @ rows.T
    ordered = np.sort(projections[:, order], axis=1)
    n = ordered.shape[1]
    inner = ordered[:, (np.arange(1, len(points)) * n) // len(points)]
    lower = np.column_stack([ordered[:, 0], inner])
    upper = np.column_stack([inner, ordered[:, -1]])
    pulls = np.zeros((len(rows), *points.shape))
    ranked = ranked_projections(points, along).order
    for start in range(0, len(along), _SLICES_AT_ONCE):
        block = slice(start, start + _SLICES_AT_ONCE)
        reached = np.empty((len(rows), len(points), len(along[block])))
        for k, places in enumerate(ranked[block]):
            ranges = lower[start + k], upper[start + k]
            reached[:, places, k] = np.clip(projections[start + k][:, None], *ranges)
        pulls -= reached @ along[block]
    pulls *= shares[:, None] * (2.0 / len(along))
    weights = torch.from_numpy(pulls)
    parts = tuple(part.of_all(weights) for part in jacobians.parts)
    return Gradients(parts, tuple(p for p in network.parameters() if p.requires_grad))
