"""Training a generator: on released one-dimensional quantiles, or on noisy gradients.

The loss of a batch of generated points is the mean, over some directions, of the squared
Wasserstein-2 distance between their projections and quantiles. On the line the optimal plan matches
ranks, so that its gradient is a sort and a difference; torch differentiates the network only.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.gradients import (
    Gradients,
    TrainingPlan,
    by_jacobians,
    expected_batch,
    pulled_back_sum,
    release_gradient,
    shares_of_jacobians,
)
from skdpot.nets.networks import draw_latents
from skdpot.nets.per_sample import record_jacobians, record_outputs
from skdpot.nets.training import GradientStep
from skdpot.ot.flow import DirectionBatch
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import matched_means, pulls_between, ranked_projections
from skdpot.release.bounds import DataBounds
from skdpot.release.decoding import measured_cdf
from skdpot.release.gate import Records, candidates
from skdpot.release.sketch import SlicedSketch
from skdpot.sampling.row_releases import SmoothedProjections

_N_LEVELS = 256
_NARROWEST = 1e-3


@dataclass(frozen=True, eq=False)
class OutputUnits:
    """An affine map from a network's outputs to the mapped rows: ``location + scale * y``."""

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


_PREFERRED_SLICES, _SLICES_OF_IMAGES = 64, 1024


def table_batches(
    tables: Sequence[CDFTable],
    group_size: int,
    units: OutputUnits,
    rng: np.random.Generator,
    n_projections_per_step: int | None = None,
) -> Iterator[DirectionBatch]:
    """Yield batches of the directions of a sketch for ever, in whole orthogonal blocks."""
    levels = (np.arange(group_size) + 0.5) / group_size
    directions = tables[0].directions
    quantiles = np.stack([table.quantiles(levels) for table in tables], axis=1)
    quantiles = _in_units(quantiles, directions, units)
    directions = directions.astype(np.float32)
    n_projections, n_features = directions.shape
    blocks = np.split(np.arange(n_projections), range(n_features, n_projections, n_features))
    together = max(1, round((n_projections_per_step or _PREFERRED_SLICES) / n_features))
    while True:
        order = rng.permutation(len(blocks))
        for start in range(0, len(blocks), together):
            rows = np.concatenate([blocks[k] for k in order[start : start + together]])
            yield DirectionBatch(directions[rows], quantiles[rows])


def distribution_steps(
    sketch: SlicedSketch,
    labels: Sequence[Any],
    units: OutputUnits,
    draw_inputs: Callable[[int], np.ndarray],
    group_size: int,
    rng: np.random.Generator,
    n_projections_per_step: int | None = None,
) -> GradientStep:
    """Make steps down the sliced Cramér distance to measured distribution functions.

    The distance is the integral of ``(F - G)²`` along each direction, whose gradient at a point x
    is ``G(x) - F(x)``: linear in what was measured, so that noise in it averages out, and zero
    beyond what was measured. F is read without the point itself, which makes the gradient of a
    small group unbiased.
    """
    table, sizes = sketch.table(), sketch.class_counts_
    n_bins, n_projections = table.cdf.shape[1] - 1, len(table.directions)
    together = min(n_projections_per_step or _SLICES_OF_IMAGES, n_projections)
    functions = [
        measured_cdf(sketch, label)[0] if size > 0 else sketch.table(label).cdf
        for label, size in zip(labels, sizes, strict=True)
    ]
    values = np.stack(functions, axis=1)
    bins = n_bins / (2 * table.half_widths)
    centres = bins * (table.directions @ units.location) + n_bins / 2
    along = (bins * units.scale)[:, None] * table.directions
    given = [torch.from_numpy(x.astype(np.float32)) for x in (values, along, centres)]

    def step(network: nn.Module, number: int) -> None:
        device = next(network.parameters()).device
        chosen = torch.from_numpy(rng.choice(n_projections, together, replace=False))
        cdf, weights, starts = (part[chosen].to(device) for part in given)
        points = network(torch.from_numpy(draw_inputs(group_size)).to(device))
        place = (weights @ points.detach().T + starts[:, None]).unflatten(1, (-1, group_size))
        ranks = place.argsort(dim=2).argsort(dim=2) / (group_size - 1)
        inside = place.clamp(0, n_bins)
        left = inside.long().clamp(max=n_bins - 1)
        low, high = cdf.gather(2, left), cdf.gather(2, left + 1)
        pull = low + (high - low) * (inside - left) - ranks
        scale = 2.0 / (n_bins * pull.numel())
        points.backward(scale * pull.flatten(1).T @ weights)

    return step


def release_batches(
    projections: SmoothedProjections, group_size: int, units: OutputUnits
) -> Iterator[DirectionBatch]:
    """Yield the released batches of noisy projections, one per step."""
    for batch in projections.batches:
        matched = matched_means(batch.values.astype(np.float64), group_size)[:, None]
        quantiles = _in_units(matched, batch.directions, units)
        yield DirectionBatch(batch.directions, quantiles, projections.sigma / units.scale)


def draw_groups(
    latent_dim: int, n_classes: int, group_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the inputs of a group of points for each class, group by group."""
    if n_classes == 0:
        return draw_latents(group_size, latent_dim, rng)
    classes = (np.tile(of_class, (group_size, 1)) for of_class in np.eye(n_classes))
    groups = [draw_latents(group_size, latent_dim, rng, of_class) for of_class in classes]
    return np.concatenate(groups)


def generator_steps(
    batches: Iterator[DirectionBatch],
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
    points: torch.Tensor, batch: DirectionBatch, noise: np.ndarray | None = None
) -> torch.Tensor:
    """Return the gradient of the sliced loss with respect to each generated point.

    On the CPU by numpy, of which the sort is faster; points on a GPU stay there.
    """
    if points.device.type != "cpu":
        return _pull_by_torch(points, batch, noise)
    quantiles = batch.quantiles
    projected = (batch.directions @ points.numpy().T).reshape(quantiles.shape)
    if noise is not None:
        projected += noise
    order = np.argsort(projected, axis=2)
    matched = np.empty_like(projected)
    np.put_along_axis(matched, order, quantiles, axis=2)
    projected -= matched
    projected *= np.float32(2.0 / quantiles.size)
    pull = projected.reshape(len(quantiles), -1).T @ batch.directions
    return torch.from_numpy(pull)


def _pull_by_torch(
    points: torch.Tensor, batch: DirectionBatch, noise: np.ndarray | None
) -> torch.Tensor:
    given = (batch.directions, batch.quantiles, 0.0 if noise is None else noise)
    theta, quantiles, added = (torch.as_tensor(part, device=points.device) for part in given)
    projected = (theta @ points.T).reshape(quantiles.shape) + added
    gaps = projected.scatter_add(2, projected.argsort(dim=2), -quantiles)
    return (gaps * (2.0 / quantiles.numel())).reshape(len(quantiles), -1).T @ theta


def _in_units(quantiles: np.ndarray, directions: np.ndarray, units: OutputUnits) -> np.ndarray:
    """Express quantiles of shape (n_projections, n_groups, group_size) in the network's units."""
    centers = (directions @ units.location)[:, None, None]
    return ((quantiles - centers) / units.scale).astype(np.float32)


# In radii of the rows: no output has to be further away. Outputs may be anywhere, but rounding
# errors of far ones would not be small beside the noise.
_REACH = 4.0
_INPUTS_AT_ONCE = 2048
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
    """Make training steps from noisy gradients of batches."""
    batches, reach = plan.batches(secret), _REACH * radius

    def step(network: nn.Module, number: int) -> None:
        inputs = torch.from_numpy(draw_inputs()).to(next(network.parameters()).device)
        along = next(directions)
        total = clipped_gradient(network, inputs, rows[next(batches)], along, clip_jacobian, reach)
        facts = {"inputs": inputs, "directions": along, "clip_jacobian": clip_jacobian}
        summed = {parameter: plan.batch_size * value for parameter, value in total.items()}
        linear = partial(_step_part, plan=plan, reach=reach)
        release_gradient(network, summed, plan, secret, facts, linear)

    return step


def clipped_gradient(
    network: nn.Module,
    inputs: torch.Tensor,
    rows: np.ndarray,
    directions: np.ndarray,
    clip_jacobian: float,
    reach: float,
) -> dict[nn.Parameter, torch.Tensor]:
    """Return the clipped gradient of the squared sliced Wasserstein distance of points to rows.

    Not private by itself: `skdpot.nets.compared_outputs.fixed_side_sensitivity` bounds how far
    one of the rows moves it, times their number. Outputs are shortened to a ball of radius `reach`.
    """
    outputs = [record_outputs(network, chunk) for chunk in inputs.split(_INPUTS_AT_ONCE)]
    points = ClippedOutputs(rows.shape[1], reach).values(torch.cat(outputs).cpu().double()).numpy()
    (pulls,) = pulls_between([points, rows.astype(np.float64)], directions, n_moving=1)
    vectors = by_jacobians(clip_jacobian, torch.from_numpy(pulls).to(inputs.device))
    return pulled_back_sum(network, inputs, vectors)


def _step_part(
    network: nn.Module,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    plan: TrainingPlan,
    inputs: np.ndarray,
    **options: Any,
) -> dict[str, Any]:
    """Return what rows add to a step, to first order in the share of each."""
    rows, latents = records[0], torch.from_numpy(inputs)

    def exact(batch: np.ndarray) -> np.ndarray:
        total = clipped_gradient(network, latents, batch, **options)
        return plan.batch_size * torch.cat([v.flatten() for v in total.values()]).numpy()

    order, _, _ = expected_batch(codes, shares)
    center = exact(rows[order])
    own = _derivative(network, latents, rows, order, **options)
    found = {"rows": own, "center": center, "exact": False}
    if not np.any(shares < 1.0):
        return found
    rng, squares = np.random.default_rng(0), []
    for _ in range(_SIMULATIONS):
        first, second = candidates(shares)
        present = np.where(rng.random(len(first)) < 0.5, first, second)
        batch = rng.choice(present, size=plan.batch_size, replace=False)
        weights = np.bincount(batch, minlength=len(rows)) - plan.rates(codes) * shares
        squares.append(np.mean((exact(rows[batch]) - center - own.sum(weights)) ** 2))
    return found | {"missed": math.sqrt(float(np.mean(squares)))}


def _derivative(
    network: nn.Module,
    inputs: torch.Tensor,
    rows: np.ndarray,
    order: np.ndarray,
    directions: np.ndarray,
    clip_jacobian: float,
    reach: float,
) -> Gradients:
    """Return the derivative of the gradient by the weight of each row, times their number."""
    along = directions.astype(np.float64)
    jacobians = record_jacobians(network, inputs)
    shares = shares_of_jacobians(jacobians.gram(), clip_jacobian).numpy()
    points = ClippedOutputs(rows.shape[1], reach).values(jacobians.outputs).numpy()
    projections = along @ rows.T
    ordered = np.sort(projections[:, order], axis=1)
    n = ordered.shape[1]
    inner = ordered[:, (np.arange(1, len(points)) * n) // len(points)]
    lower = np.column_stack([ordered[:, 0], inner])
    upper = np.column_stack([inner, ordered[:, -1]])
    pulls = np.zeros((len(rows), *points.shape))
    ranked = ranked_projections(points, along)[1]
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
