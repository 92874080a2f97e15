"""Training a generator on one-dimensional quantiles, whoever released them.

The loss of a batch of generated points is the mean, over some directions, of the squared
Wasserstein-2 distance between their projections and quantiles along each direction. On the
line the optimal plan matches ranks, so that its gradient is a sort and a difference: it is
computed here directly, and only the network is differentiated by torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpot.nets.output_units import OutputUnits
from skdpot.nets.training import GradientStep
from skdpot.nets.wasserstein_gradient import matched_means
from skdpot.slicing.smoothed import SmoothedProjections
from skdpot.slicing.table import CDFTable

__all__ = ["LossBatch", "generator_steps", "release_batches", "sliced_pull", "table_batches"]

_PREFERRED_SLICES = 64


@dataclass(frozen=True, eq=False)
class LossBatch:
    """Directions of one step, and where the generated points should be along each.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features), float32
        Unit rows.
    quantiles : ndarray of shape (n_slices, n_groups, group_size), float32
        Increasing along the last axis, one group of generated points a class.
    sigma : float, default=0
        Standard deviation of the noise that is in the quantiles, and which generated points
        need too before the two are compared.
    """

    directions: np.ndarray
    quantiles: np.ndarray
    sigma: float = 0.0


def table_batches(
    tables: Sequence[CDFTable],
    group_size: int,
    units: OutputUnits,
    rng: np.random.Generator,
) -> Iterator[LossBatch]:
    """Yield batches of the directions of a sketch for ever, about 64 at a time.

    Parameters
    ----------
    tables : sequence of CDFTable
        One a class, along the same directions.
    group_size : int
        Generated points a class and step.
    units : OutputUnits
        Those of the network.
    rng : numpy.random.Generator
        Solver's stream. Blocks of d directions, which are orthogonal by default, stay together
        and take turns in random order.

    Yields
    ------
    LossBatch
        Without noise.
    """
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
    """Yield the released batches of noisy projections, one a step.

    Parameters
    ----------
    projections : SmoothedProjections
        The release.
    group_size : int
        Generated points a step.
    units : OutputUnits
        Those of the network.

    Yields
    ------
    LossBatch
        With the noise of the release.
    """
    for batch in projections.batches:
        matched = matched_means(batch.values.astype(np.float64), group_size)[:, None]
        quantiles = _in_units(matched, batch.directions, units)
        yield LossBatch(batch.directions, quantiles, projections.sigma / units.scale)


def generator_steps(
    batches: Iterator[LossBatch],
    draw_inputs: Callable[[int], np.ndarray],
    rng: np.random.Generator,
) -> GradientStep:
    """Make training steps of a network that moves its outputs to the quantiles of a batch.

    Parameters
    ----------
    batches : iterator of LossBatch
        At least one a step.
    draw_inputs : callable
        Maps a group size to the network's inputs, of shape (n_groups * group_size, n_inputs)
        and group by group.
    rng : numpy.random.Generator
        Solver's stream, for the noise of generated points. It buys no privacy.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`. All it uses was released: it is free.
    """

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
    """Return the gradient of the sliced loss with respect to each generated point.

    Parameters
    ----------
    points : tensor of shape (n_groups * group_size, n_features)
        Group by group.
    batch : LossBatch
        Directions and quantiles.
    noise : ndarray of the shape of the quantiles, optional
        Added to the projections of the points.

    Returns
    -------
    tensor of shape (n_groups * group_size, n_features)
        Gradient of the mean over directions and groups of W₂². On the CPU it is computed by
        numpy, which sorts faster.
    """
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
