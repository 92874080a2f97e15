"""The drift of one step: both kernels against a reference that sorts, with and without noise."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skdpot.metrics import sliced_wasserstein_distance
from skdpot.ot.directions import orthogonal_directions, uniform_directions
from skdpot.ot.drift import NumpyDrift, TorchDrift
from skdpot.ot.flow_problems import DirectionBatch
from tests.core.ot.test_flow import SHAPES, gaussian_problem

RNG = np.random.default_rng(8841)


def smoothed_batch(n_features, n_projections, n_rows, sigma):
    """Sorted projections of rows with noise, as a mechanism releases them."""
    directions = uniform_directions(n_projections, n_features, RNG).astype(np.float32)
    values = directions @ (0.3 * RNG.normal(size=(n_features, n_rows)))
    values += sigma * RNG.normal(size=values.shape)
    return DirectionBatch(directions, np.sort(values).astype(np.float32), sigma)


def noise_for(batch, n_particles):
    if not batch.sigma:
        return None
    shape = (len(batch.directions), n_particles)
    return np.float32(batch.sigma) * RNG.standard_normal(shape, dtype=np.float32)


def numpy_residual(particles, batch, noise=None):
    return NumpyDrift(len(particles), len(batch.directions)).residual(particles, batch, noise)


def torch_residual(particles, batch, noise=None):
    noise = None if noise is None else torch.from_numpy(noise)
    drift = TorchDrift(torch.device("cpu"))
    return drift.residual(torch.from_numpy(particles), batch, noise).numpy()


KERNELS = {"numpy": numpy_residual, "torch": torch_residual}
both_kernels = pytest.mark.parametrize("kernel", KERNELS)


def exact_residual(particles, batch, noise=None):
    """Equation 21 of the flow paper with the map the right way round, at noisy projections."""
    n_particles, n_levels = len(particles), batch.quantiles.shape[1]
    levels = (np.arange(n_levels) + 0.5) / n_levels
    total = np.zeros(particles.shape)
    for k, (theta, quantiles) in enumerate(zip(batch.directions, batch.quantiles, strict=True)):
        place = particles.astype(float) @ theta.astype(float)
        place += 0 if noise is None else noise[k]
        level = (np.searchsorted(np.sort(place), place) + 0.5) / n_particles
        total += np.outer(place - np.interp(level, levels, quantiles), theta)
    return total


LAWS = {
    "normal": (lambda: RNG.normal(size=(4000, 2)) * 0.3, 0.01),
    "uniform": (lambda: RNG.uniform(-1, 1, (4000, 2)), 0.01),
    "two clusters": (
        lambda: RNG.normal(size=(4000, 2)) * 0.05 + RNG.choice([-0.5, 0.5], (4000, 1)),
        0.02,
    ),
    # Within a cell ranks are interpolated: ties share the mean of their ranks there.
    "ties": (lambda: RNG.integers(-3, 4, (4000, 2)) / 8 + RNG.normal(size=(4000, 2)) * 1e-3, 0.1),
}


@both_kernels
@pytest.mark.parametrize(
    ("law", "sigma"), [(law, 0.0) for law in LAWS] + [("normal", s) for s in (0.05, 0.3, 5.0)]
)
def test_agrees_with_sorting(kernel, law, sigma):
    """Cells and quantile levels are finite, so that single particles may be off by a cell."""
    draw, tolerance = LAWS[law]
    particles = draw().astype(np.float32)
    batch = smoothed_batch(2, 8, 300, sigma)
    if not sigma:
        batch = gaussian_problem(orthogonal_directions(6, 2, RNG)).batches[0]
    noise = noise_for(batch, 4000)
    exact = exact_residual(particles, batch, noise)
    error = np.sqrt(np.mean((KERNELS[kernel](particles, batch, noise) - exact) ** 2))
    assert error < tolerance * np.sqrt(np.mean(exact**2)) + 0.003 * max(1, 4 * sigma)


@both_kernels
@pytest.mark.parametrize("spread", [0.0, 1e-30, 1e-12, 1e6])
def test_particles_in_one_place_or_far_apart_do_no_harm(kernel, spread):
    particles = (0.3 + spread * RNG.normal(size=(100, 2))).astype(np.float32)
    noisy = smoothed_batch(2, 6, 50, 0.5)
    assert np.all(np.isfinite(KERNELS[kernel](particles, noisy, noise_for(noisy, 100))))
    batch = gaussian_problem(np.eye(2)).batches[0]
    reached = particles - KERNELS[kernel](particles, batch)
    assert np.all(np.abs(reached) <= np.abs(batch.quantiles).max() * 1.01 + spread * 1e-5)


def test_full_step_solves_orthogonal_directions_exactly():
    """A translation of the target is undone in one full step by whole blocks."""
    rng = np.random.default_rng(1)
    problem = gaussian_problem(orthogonal_directions(12, 4, rng))
    (batch,) = problem.batches
    np.testing.assert_allclose(batch.full_step, 4 / 12, rtol=1e-5)
    particles = (0.2 * rng.normal(size=(5000, 4)) + [0.3, -0.2, 0.1, 0]).astype(np.float32)
    moved = particles - batch.full_step * numpy_residual(particles, batch)
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=0.005)


@pytest.mark.parametrize("shape", SHAPES)
def test_full_steps_never_overshoot(shape):
    """The linearised step has eigenvalues in [0, 1]; every direction is used once."""
    directions, at_once = SHAPES[shape]
    problem = gaussian_problem(directions, at_once)
    together = np.concatenate([batch.directions for batch in problem.batches])
    np.testing.assert_allclose(together, directions, atol=1e-6)
    for batch in problem.batches:
        assert len(batch.directions) <= (at_once or len(directions))
        theta = batch.directions.astype(float)
        root = np.sqrt(batch.full_step.astype(float))
        eigenvalues = np.linalg.eigvalsh(root[:, None] * (theta.T @ theta) * root)
        assert eigenvalues.min() > -1e-6
        assert 0.2 < eigenvalues.max() <= 1 + 1e-6


def test_coordinates_that_no_direction_sees_stay():
    batch = gaussian_problem(np.eye(6), 2).batches[0]
    np.testing.assert_allclose(batch.full_step, [1, 1, 0, 0, 0, 0])


@pytest.mark.slow
def test_drift_is_the_gradient_of_the_smoothed_distance_and_the_printed_ones_are_not():
    """Particles near 0 and a target at -1 and 1, moved by ε x: differences of equation 9.

    Equation 20 with 21 as printed, ``-(z - F_μ⁻¹ F_ν z)``, drives particles away. With the map the
    right way round but read at clean projections, as in equation 16, it is 1.7 times the gradient.
    """
    sigma, levels = 0.3, (np.arange(4000) + 0.5) / 4000
    x = np.random.default_rng(0).normal(scale=0.2, size=(2000, 1))
    y = np.repeat([[-1.0], [1.0]], 1000, axis=0)
    grid = np.linspace(-3, 3, 2001)

    def smoothed_cdf(values):
        return norm.cdf((grid[:, None] - values[:, 0]) / sigma).mean(axis=1)

    of_x, of_y = smoothed_cdf(x), smoothed_cdf(y[[0, -1]])
    ahead, behind = (
        sliced_wasserstein_distance((1 + step) * x, y, sigma=sigma) ** 2 for step in (1e-3, -1e-3)
    )
    slope = (ahead - behind) / 4e-3  # of half of the square
    target = np.interp(levels, of_y, grid)[None].astype(np.float32)
    batch = DirectionBatch(np.ones((1, 1), dtype=np.float32), target, sigma)
    copies = np.repeat(x, 50, axis=0).astype(np.float32)
    drawn = numpy_residual(copies, batch, noise_for(batch, len(copies)))
    assert np.mean(drawn * copies) == pytest.approx(slope, rel=0.03)

    at_clean = x[:, 0] - np.interp(np.interp(x[:, 0], grid, of_x), of_y, grid)
    assert np.mean(at_clean * x[:, 0]) == pytest.approx(1.735 * slope, rel=0.02)
    printed = x[:, 0] - np.interp(np.interp(x[:, 0], grid, of_y), of_x, grid)
    assert np.mean(printed * x[:, 0]) * slope < 0
