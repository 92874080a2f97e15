"""The drift of one step: both kernels, and a reference that sorts."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skdpot.ot.flow import NumpyDrift, SlicedFlowProblem
from skdpot.ot.slices import CDFTable, orthogonal_directions
from skdpot.ot.torch_flow import TorchDrift
from tests.ot.sparse import sparse_directions

LEVELS = (np.arange(1024) + 0.5) / 1024


def gaussian_problem(directions, *, spread=0.2, n_bins=256, n_projections_per_step=None):
    """Projections of a centred Gaussian of standard deviation `spread`."""
    edges = np.linspace(-1, 1, n_bins + 1)
    cdf = norm.cdf(edges / spread)
    cdf = np.maximum.accumulate((cdf - cdf[0]) / (cdf[-1] - cdf[0]))
    table = CDFTable(directions, np.ones(len(directions)), np.tile(cdf, (len(directions), 1)))
    return SlicedFlowProblem(table, n_projections_per_step)


def numpy_residual(particles, batch):
    return NumpyDrift(len(particles), len(batch.directions)).residual(particles, batch)


def torch_residual(particles, batch):
    drift = TorchDrift(torch.device("cpu"))
    return drift.residual(torch.from_numpy(particles), batch).numpy()


def exact_residual(particles, batch):
    """Sort each projection; the particle of rank r moves to the quantile at (r + 1/2) / N."""
    n_particles = len(particles)
    total = np.zeros(particles.shape)
    for theta, quantiles in zip(
        batch.directions.astype(float), batch.quantiles.astype(float), strict=True
    ):
        projection = particles.astype(float) @ theta
        ranks = np.argsort(np.argsort(projection, kind="stable"), kind="stable")
        moved = np.interp((ranks + 0.5) / n_particles, LEVELS, quantiles)
        total += np.outer(projection - moved, theta)
    return total


KERNELS = {"numpy": numpy_residual, "torch": torch_residual}


@pytest.mark.parametrize("n_features", [1, 3, 8])
@pytest.mark.parametrize("n_particles", [1, 2, 50, 5000])
def test_numpy_and_torch_agree(n_features, n_particles):
    rng = np.random.default_rng(n_features)
    problem = gaussian_problem(orthogonal_directions(3 * n_features, n_features, rng))
    particles = rng.normal(size=(n_particles, n_features)).astype(np.float32)
    first, second = (kernel(particles, problem.batches[0]) for kernel in KERNELS.values())
    # A projection on the edge of a cell may fall on either side: the drift is continuous there.
    np.testing.assert_allclose(first, second, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("law", ["normal", "uniform", "two clusters", "ties"])
def test_agrees_with_sorting(kernel, law):
    """Cells and quantile levels are finite, so that single particles may be off by a cell."""
    rng = np.random.default_rng(8841)
    draws = {
        "normal": lambda: rng.normal(size=(4000, 2)) * 0.3,
        "uniform": lambda: rng.uniform(-1, 1, (4000, 2)),
        "two clusters": lambda: (
            rng.normal(size=(4000, 2)) * 0.05 + rng.choice([-0.5, 0.5], (4000, 1))
        ),
        "ties": lambda: rng.integers(-3, 4, (4000, 2)) / 8 + rng.normal(size=(4000, 2)) * 1e-3,
    }
    particles = draws[law]().astype(np.float32)
    batch = gaussian_problem(orthogonal_directions(6, 2, rng)).batches[0]
    exact = exact_residual(particles, batch)
    # Within a cell ranks are interpolated: ties share the mean of their ranks there.
    tolerance = {"ties": 0.1, "two clusters": 0.02}.get(law, 0.01)
    error = np.sqrt(np.mean((KERNELS[kernel](particles, batch) - exact) ** 2))
    assert error < tolerance * np.sqrt(np.mean(exact**2)) + 0.003


@pytest.mark.parametrize("kernel", KERNELS)
def test_vanishes_at_the_target(kernel):
    particles = (0.2 * norm.ppf((np.arange(3000) + 0.5) / 3000))[:, None].astype(np.float32)
    batch = gaussian_problem(np.ones((1, 1))).batches[0]
    assert np.sqrt(np.mean(KERNELS[kernel](particles, batch) ** 2)) < 0.002


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [0.0, 1e-30, 1e-12, 1e6])
def test_particles_in_one_place_or_far_apart_do_no_harm(kernel, spread):
    rng = np.random.default_rng(0)
    particles = (0.3 + spread * rng.normal(size=(100, 2))).astype(np.float32)
    batch = gaussian_problem(np.eye(2)).batches[0]
    residual = KERNELS[kernel](particles, batch)
    assert np.all(np.isfinite(residual))
    reached = particles - residual
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
        orthogonal_directions(16, 64, np.random.default_rng(0)),
        orthogonal_directions(70, 8, np.random.default_rng(0)),
        np.eye(5),
        sparse_directions([[k] for k in range(12)], 40, 12, np.random.default_rng(0)),
        sparse_directions([[k] for k in range(12)], 40, 12, np.random.default_rng(0), always=3),
        np.repeat(np.eye(3), 7, axis=0),
    ],
    ids=["cut block", "blocks", "axes", "sparse", "sparse with a target", "repeated"],
)
@pytest.mark.parametrize("n_projections_per_step", [None, 1, 5])
def test_full_steps_never_overshoot(directions, n_projections_per_step):
    """The linearised step has eigenvalues in [0, 1]."""
    for batch in gaussian_problem(
        directions, n_projections_per_step=n_projections_per_step
    ).batches:
        theta = batch.directions.astype(float)
        root = np.sqrt(batch.full_step.astype(float))
        eigenvalues = np.linalg.eigvalsh(root[:, None] * (theta.T @ theta) * root)
        assert eigenvalues.min() > -1e-6
        assert eigenvalues.max() <= 1 + 1e-6
        assert eigenvalues.max() > 0.2


def test_coordinates_that_no_direction_sees_stay():
    batch = gaussian_problem(np.eye(6), n_projections_per_step=2).batches[0]
    np.testing.assert_allclose(batch.full_step, [1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize("n_projections_per_step", [None, 1, 7, 100])
def test_batches_use_every_direction_once(n_projections_per_step):
    directions = orthogonal_directions(37, 5, np.random.default_rng(0))
    batches = gaussian_problem(directions, n_projections_per_step=n_projections_per_step).batches
    together = np.concatenate([batch.directions for batch in batches])
    np.testing.assert_allclose(together, directions, atol=1e-6)
    if n_projections_per_step:
        assert max(len(batch.directions) for batch in batches) <= n_projections_per_step
