"""Noisy gradients of the distance to private rows."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.generator_training import clipped_gradient, noisy_gradient_steps
from skdpot.ot.slices import orthogonal_directions
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.gradients import plan_training
from skdpot.release.output_tables import fixed_side_sensitivity
from tests.release.jacobian_sums import wasserstein_vectors

D, N, BATCH = 3, 40, 10
RADIUS = math.sqrt(D)
RNG = np.random.default_rng(90)
DIRECTIONS = orthogonal_directions(6, D, RNG).astype(np.float32)


def plan(sigma=0.0, n_steps=3, batch_size=BATCH, clip=1.0):
    return plan_training(
        PrivacyTarget(1.0, 1e-5),
        n_samples=N,
        batch_size=batch_size,
        n_steps=n_steps,
        sampling="without_replacement",
        sensitivity=fixed_side_sensitivity(RADIUS, clip, 6, math.sqrt(2)),
        n_parameters=100,
        bounds=DataBounds.from_norm(1.0, D),
        sigma=sigma,
    )


def network():
    torch.manual_seed(0)  # noqa: TID251
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, D))


def gradients(rows, seed=0, latents=None, *, module=None, clip=1.0, **options):
    """Summed gradients of all steps, a vector a step."""
    asked = plan(clip=clip, **options)
    latents = RNG.normal(size=(BATCH, 2)).astype(np.float32) if latents is None else latents
    module = network() if module is None else module
    directions = iter([DIRECTIONS] * asked.n_steps)
    step = noisy_gradient_steps(
        rows, RADIUS, asked, directions, lambda: latents, clip, SecretStream(seed)
    )
    found = []
    for number in range(asked.n_steps):
        step(module, number)
        flat = torch.cat([p.grad.flatten() for p in module.parameters()])
        found.append(asked.batch_size * flat.double().numpy())
    return np.array(found)


def rows_in_ball(n=N):
    rows = RNG.normal(size=(n, D))
    return RADIUS * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_without_noise_and_clipping_it_is_the_gradient():
    rows, latents = rows_in_ball(), RNG.normal(size=(7, 2)).astype(np.float32)
    module = network()
    (found,) = gradients(rows, latents=latents, module=module, n_steps=1, batch_size=N, clip=1e6)
    outputs = module(torch.from_numpy(latents))
    pull = wasserstein_vectors(outputs.detach().double().numpy(), rows, DIRECTIONS)
    module.zero_grad()
    outputs.backward(torch.from_numpy(pull).float())
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])
    np.testing.assert_allclose(found / N, expected.numpy(), atol=1e-5)


def test_noise_has_its_sigma_and_comes_from_the_secret_stream():
    """12 steps of 51 coordinates: five standard errors of the spread are 14 %."""
    rows, sigma = rows_in_ball(), 1000.0
    latents = np.ones((BATCH, 2), dtype=np.float32)
    noisy = gradients(rows, 5, latents, sigma=sigma, n_steps=12)
    assert noisy.std() == pytest.approx(sigma, rel=0.15)
    again, other = (gradients(rows, s, latents, sigma=sigma, n_steps=12) for s in (5, 6))
    np.testing.assert_array_equal(noisy, again)
    assert np.abs(noisy - other).min() > 0


@pytest.mark.parametrize("clip", [0.3, 1.0])
def test_no_neighbour_exceeds_the_sensitivity(clip):
    """Whole steps with one replaced record, to the opposite side of the ball."""
    latents = RNG.normal(size=(BATCH, 2)).astype(np.float32)
    bound, worst = plan(clip=clip).sensitivity, 0.0
    for seed in range(20):
        rows = rows_in_ball() if seed % 2 else np.tile(rows_in_ball(1), (N, 1))
        neighbour = rows.copy()
        neighbour[seed] *= -1
        moved = gradients(rows, seed, latents, clip=clip, batch_size=N) - gradients(
            neighbour, seed, latents, clip=clip, batch_size=N
        )
        worst = max(worst, np.linalg.norm(moved, axis=1).max())
    assert 0.2 * bound < worst <= bound


def test_the_jacobian_of_an_output_is_clipped():
    """A network with steep outputs moves no more than one whose Jacobians are short."""
    steep = network()
    with torch.no_grad():
        for parameter in steep.parameters():
            parameter *= 30
    rows = np.tile(RADIUS * np.eye(D)[:1], (N, 1))
    neighbour = rows.copy()
    neighbour[0] *= -1
    latents = RNG.normal(size=(BATCH, 2)).astype(np.float32)
    options = {"module": steep, "batch_size": N}
    moved = gradients(rows, 0, latents, **options) - gradients(neighbour, 0, latents, **options)
    assert 0 < np.linalg.norm(moved, axis=1).max() <= plan().sensitivity


def test_outputs_that_are_not_finite_break_nothing():
    module = network()
    with torch.no_grad():
        module[2].weight[0] = float("nan")
        module[2].bias[1] = float("inf")
    assert np.isfinite(gradients(rows_in_ball(), module=module)).all()


def test_outputs_and_jacobians_are_clipped_apart():
    """As in the paper: (clip(g) - h) times the clipped Jacobian, whether g was clipped."""
    module = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        module.weight.fill_(5.0)
    inputs, points = torch.tensor([[7.0]]).double(), np.array([[-1.0]])
    (total,) = clipped_gradient(module, inputs, points, np.ones((1, 1)), 2.0, 0.5).values()
    assert total.item() == pytest.approx(2 * 1.5 * 2.0, rel=2e-6)
