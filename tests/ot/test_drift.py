"""The drift of one step: both kernels against a reference that sorts, with and without noise."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skdpot.ot.flow import DirectionBatch, NumpyDrift, SlicedFlowProblem, TorchDrift
from skdpot.ot.slices import CDFTable, orthogonal_directions, uniform_directions
from tests.ot.sparse import sparse_directions

RNG = np.random.default_rng(8841)


def gaussian_problem(directions, *, spread=0.2, n_bins=256, n_projections_per_step=None):
    """Projections of a centred Gaussian of standard deviation `spread`."""
    edges = np.linspace(-1, 1, n_bins + 1)
    cdf = norm.cdf(edges / spread)
    cdf = np.maximum.accumulate((cdf - cdf[0]) / (cdf[-1] - cdf[0]))
    table = CDFTable(directions, np.ones(len(directions)), np.tile(cdf, (len(directions), 1)))
    return SlicedFlowProblem(table, n_projections_per_step)


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
    """Equation 21 of the flow paper: F of the noisy projections, read at the clean ones."""
    n_particles, n_levels = len(particles), batch.quantiles.shape[1]
    levels = (np.arange(n_levels) + 0.5) / n_levels
    total = np.zeros(particles.shape)
    for k, (theta, quantiles) in enumerate(zip(batch.directions, batch.quantiles, strict=True)):
        clean = particles.astype(float) @ theta.astype(float)
        noisy = np.sort(clean if noise is None else clean + noise[k])
        level = (np.searchsorted(noisy, clean) + 0.5 * (noise is None)) / n_particles
        total += np.outer(clean - np.interp(level, levels, quantiles), theta)
    return total


LAWS = {
    "normal": (lambda: RNG.normal(size=(4000, 2)) * 0.3, 0.01),
    "uniform": (lambda: RNG.uniform(-1, 1, (4000, 2)), 0.01),
    "two clusters": (
        lambda: RNG.normal(size=(4000, 2)) * 0.05 + RNG.choice([-0.5, 0.5], (4000, 1)),
        0.02,
    ),
    # Within a cell ranks are interpolated: ties share the mean of their ranks there.
    "ties": (
        lambda: RNG.integers(-3, 4, (4000, 2)) / 8 + RNG.normal(size=(4000, 2)) * 1e-3,
        0.1,
    ),
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
    assert error < tolerance * np.sqrt(np.mean(exact**2)) + 0.003


@both_kernels
def test_noise_moves_no_particle_by_itself(kernel):
    """Rows and particles of one law: with the noise on both sides, nothing is left to move.

    5 directions and 20,000 values: the standard error of a quantile near the middle is
    0.5 sqrt(2 pi) / sqrt(20,000), i.e. about 1 % of the total spread; on one side only, the
    spread of 1 would be taken for the particles' own, which is 0.2.
    """
    batch = smoothed_batch(2, 5, 20_000, 1.0)
    particles = (0.3 * RNG.normal(size=(20_000, 2))).astype(np.float32)
    moved = np.sqrt(np.mean(KERNELS[kernel](particles, batch, noise_for(batch, 20_000)) ** 2))
    assert moved / 5 < 0.03
    without = KERNELS[kernel](particles, batch, np.zeros((5, 20_000), np.float32))
    assert np.sqrt(np.mean(without**2)) / 5 > 0.3


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


@pytest.mark.parametrize(
    "directions",
    [
        orthogonal_directions(16, 64, RNG),
        orthogonal_directions(70, 8, RNG),
        sparse_directions([[k] for k in range(12)], 40, 12, RNG),
        sparse_directions([[k] for k in range(12)], 40, 12, RNG, always=3),
        np.repeat(np.eye(3), 7, axis=0),
    ],
    ids=["cut block", "blocks", "sparse", "sparse with a target", "repeated"],
)
@pytest.mark.parametrize("n_projections_per_step", [None, 1, 5])
def test_full_steps_never_overshoot(directions, n_projections_per_step):
    """The linearised step has eigenvalues in [0, 1]; every direction is used once."""
    problem = gaussian_problem(directions, n_projections_per_step=n_projections_per_step)
    together = np.concatenate([batch.directions for batch in problem.batches])
    np.testing.assert_allclose(together, directions, atol=1e-6)
    for batch in problem.batches:
        assert len(batch.directions) <= (n_projections_per_step or len(directions))
        theta = batch.directions.astype(float)
        root = np.sqrt(batch.full_step.astype(float))
        eigenvalues = np.linalg.eigvalsh(root[:, None] * (theta.T @ theta) * root)
        assert eigenvalues.min() > -1e-6
        assert 0.2 < eigenvalues.max() <= 1 + 1e-6


def test_coordinates_that_no_direction_sees_stay():
    batch = gaussian_problem(np.eye(6), n_projections_per_step=2).batches[0]
    np.testing.assert_allclose(batch.full_step, [1, 1, 0, 0, 0, 0])
