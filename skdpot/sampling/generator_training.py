"""Steps that train a generator on a release: on quantiles, or on distribution functions.

The loss of a batch of generated points is the mean, over some directions, of the squared
Wasserstein-2 distance between their projections and quantiles. On the line the optimal plan matches
ranks, so the gradient by the points is a sort and a difference. torch differentiates the network
only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot.nets.training import GradientStep
from skdpot.ot.flow_problems import DirectionBatch
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import matched_means
from skdpot.release.decoding import measured_cdf
from skdpot.release.sketch import SlicedSketch
from skdpot.sampling.generator_network import draw_latents
from skdpot.sampling.output_units import OutputUnits
from skdpot.sampling.row_releases import SmoothedProjections

_PREFERRED_SLICES = 64  # per step, for quantiles
_SLICES_OF_IMAGES = 1024  # per step, for distribution functions


def table_batches(
    tables: Sequence[CDFTable],
    group_size: int,
    units: OutputUnits,
    rng: np.random.Generator,
    n_projections_per_step: int | None = None,
) -> Iterator[DirectionBatch]:
    """Yield batches of the directions of a sketch endlessly, in whole orthogonal blocks."""
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

    The distance is the integral of ``(F - G)²`` along each direction, for the distribution function
    F of the points and the measured G. The gradient at a point x is ``G(x) - F(x)``. It is linear
    in the measurement, so the noise averages out, and zero beyond the measured range. F leaves out
    the point itself, which makes the gradient of a small group unbiased.
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
    tensors = [torch.from_numpy(x.astype(np.float32)) for x in (values, along, centres)]

    def step(network: nn.Module, number: int) -> None:
        device = next(network.parameters()).device
        chosen = torch.from_numpy(rng.choice(n_projections, together, replace=False))
        cdf, weights, starts = (part[chosen].to(device) for part in tensors)
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
    """Yield the released batches of noisy projections, one per step, as matched quantiles."""
    for batch in projections.batches:
        matched = matched_means(batch.values.astype(np.float64), group_size)[:, None]
        quantiles = _in_units(matched, batch.directions, units)
        yield DirectionBatch(batch.directions, quantiles, projections.sigma / units.scale)


def draw_groups(
    latent_dim: int, n_classes: int, group_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the inputs of one group of points per class, group after group."""
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
    """Make training steps that move the outputs of a network to the quantiles of a batch."""

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
    """Return the gradient of the sliced loss by each generated point.

    On the CPU numpy is used, whose sort is faster; points on a GPU stay there.
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
    arrays = (batch.directions, batch.quantiles, 0.0 if noise is None else noise)
    theta, quantiles, added = (torch.as_tensor(array, device=points.device) for array in arrays)
    projected = (theta @ points.T).reshape(quantiles.shape) + added
    gaps = projected.scatter_add(2, projected.argsort(dim=2), -quantiles)
    return (gaps * (2.0 / quantiles.numel())).reshape(len(quantiles), -1).T @ theta


def _in_units(quantiles: np.ndarray, directions: np.ndarray, units: OutputUnits) -> np.ndarray:
    """Express quantiles of shape (n_projections, n_groups, group_size) in the network's units."""
    centers = (directions @ units.location)[:, None, None]
    return ((quantiles - centers) / units.scale).astype(np.float32)
