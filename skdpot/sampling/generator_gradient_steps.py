"""Steps that train a generator on noisy gradients, and their linear map for audits."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.gradient_release import Gradients, expected_batch, release_gradient
from skdpot.nets.gradients import (
    by_jacobians,
    pulled_back_sum,
    shares_of_jacobians,
    trained_parameters,
)
from skdpot.nets.per_sample import record_jacobians, record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.ot.transport import pulls_between, ranked_projections
from skdpot.release.releases import Records, candidates

# Outputs count as shortened to this norm, in radii of the rows: rounding errors of distant outputs
# would not be small compared with the noise.
_REACH = 4.0
_INPUTS_AT_ONCE = 2048
_SLICES_AT_ONCE = 16
_N_SIMULATIONS = 3  # of the error of the linear map; each averages thousands of numbers


def noisy_gradient_steps(
    rows: np.ndarray,
    radius: float,
    plan: TrainingPlan,
    directions: Iterator[np.ndarray],
    draw_inputs: Callable[[], np.ndarray],
    clip_jacobian: float,
    secret: SecretStream,
) -> GradientStep:
    """Make training steps from noisy gradients of secret batches."""
    batches, reach = plan.batches(secret), _REACH * radius

    def step(network: nn.Module, number: int) -> None:
        inputs = torch.from_numpy(draw_inputs()).to(next(network.parameters()).device)
        along = next(directions)
        total = clipped_gradient(network, inputs, rows[next(batches)], along, clip_jacobian, reach)
        facts = {"inputs": inputs, "directions": along, "clip_jacobian": clip_jacobian}
        summed = {parameter: plan.batch_size * value for parameter, value in total.items()}
        linear = partial(_contributions, plan=plan, reach=reach)
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

    Not private by itself: `skdpot.nets.parity_penalty.fixed_side_sensitivity` bounds how far a row
    moves the gradient times the number of rows. Outputs are shortened to the norm `reach`.
    """
    outputs = [record_outputs(network, chunk) for chunk in inputs.split(_INPUTS_AT_ONCE)]
    points = ClippedOutputs(rows.shape[1], reach).values(torch.cat(outputs).cpu().double()).numpy()
    (pulls,) = pulls_between([points, rows.astype(np.float64)], directions, n_moving=1)
    vectors = by_jacobians(clip_jacobian, torch.from_numpy(pulls).to(inputs.device))
    return pulled_back_sum(network, inputs, vectors)


def _contributions(
    network: nn.Module,
    records: Records,
    codes: np.ndarray,
    shares: np.ndarray,
    *,
    plan: TrainingPlan,
    inputs: np.ndarray,
    **options: Any,
) -> dict[str, Any]:
    """Return the contributions of rows to a step, to first order in the share of each."""
    rows, latents = records[0], torch.from_numpy(inputs)

    def exact(batch: np.ndarray) -> np.ndarray:
        total = clipped_gradient(network, latents, batch, **options)
        return plan.batch_size * torch.cat([v.flatten() for v in total.values()]).numpy()

    order, _, _ = expected_batch(codes, shares)
    center = exact(rows[order])
    derivative = _derivative(network, latents, rows, order, **options)
    linear = {"rows": derivative, "center": center, "exact": False}
    if not np.any(shares < 1.0):
        return linear
    rng, squares = np.random.default_rng(0), []
    for _ in range(_N_SIMULATIONS):
        first, second = candidates(shares)
        present = np.where(rng.random(len(first)) < 0.5, first, second)
        batch = rng.choice(present, size=plan.batch_size, replace=False)
        weights = np.bincount(batch, minlength=len(rows)) - plan.rates(codes) * shares
        squares.append(np.mean((exact(rows[batch]) - center - derivative.sum(weights)) ** 2))
    return linear | {"missed": math.sqrt(float(np.mean(squares)))}


def _derivative(
    network: nn.Module,
    inputs: torch.Tensor,
    rows: np.ndarray,
    order: np.ndarray,
    directions: np.ndarray,
    clip_jacobian: float,
    reach: float,
) -> Gradients:
    """Return the derivative of the gradient by the weight of each row, times the number of rows."""
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
            low, high = lower[start + k], upper[start + k]
            reached[:, places, k] = np.clip(projections[start + k][:, None], low, high)
        pulls -= reached @ along[block]
    pulls *= shares[:, None] * (2.0 / len(along))
    weights = torch.from_numpy(pulls)
    parts = tuple(part.of_all(weights) for part in jacobians.parts)
    return Gradients(parts, trained_parameters(network))
