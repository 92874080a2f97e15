"""Flows reach what the table describes, in any shape, and repeat when told to."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from skdpot import SlicedSketch
from skdpot.ot.flow import FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.ot.slices import CDFTable, orthogonal_directions, uniform_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from tests.ot.sparse import sparse_directions

RNG = np.random.default_rng(8841)


def table_of(X, directions, n_bins=128):
    sketch = SlicedSketch(epsilon=np.inf, bounds=(-1, 1), projections=directions, n_bins=n_bins)
    return sketch.fit(X).table()


def flow(table, n_particles=2000, *, n_projections_per_step=None, seed=0, device=None, **schedule):
    problem = SlicedFlowProblem(table, n_projections_per_step)
    rng = np.random.default_rng(seed)
    return sliced_flow(problem, n_particles, FlowSchedule(**schedule), rng, device=device)


def two_clusters(n, n_features):
    centers = np.where(RNG.random((n, 1)) < 0.7, 0.35, -0.35)
    return np.clip(centers + 0.1 * RNG.normal(size=(n, n_features)), -1, 1)


@pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])
def test_one_dimension_reaches_every_quantile(device):
    X = np.concatenate([RNG.uniform(-0.9, -0.5, 700), RNG.normal(0.4, 0.1, 1300)])[:, None]
    table = table_of(X, np.ones((1, 1)))
    particles = flow(table, device=device).particles
    levels = np.linspace(0.01, 0.99, 99)
    reached = np.quantile(particles[:, 0], levels)
    wanted = table.quantiles(levels)[0]
    gap = (wanted > -0.5) & (wanted < 0.15)  # no mass there: the quantile jumps
    np.testing.assert_allclose(reached[~gap], wanted[~gap], atol=0.01)
    assert sliced_wasserstein_distance(X, particles, np.ones((1, 1))) < 0.015


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_mixture_in_the_plane(momentum):
    """SW2 on directions that the flow has not seen, in units of a spread of 0.35."""
    centers = np.array([[-0.5, -0.5], [0.5, -0.3], [0.0, 0.6]])
    X = centers[RNG.integers(0, 3, 3000)] + 0.08 * RNG.normal(size=(3000, 2))
    table = table_of(X, orthogonal_directions(30, 2, RNG), n_bins=256)
    particles = flow(table, 3000, momentum=momentum).particles
    held_out = uniform_directions(200, 2, np.random.default_rng(1))
    assert sliced_wasserstein_distance(X, particles, held_out) < 0.02
    # The clusters are apart and hold a third each.
    nearest = np.argmin(np.linalg.norm(particles[:, None] - centers, axis=2), axis=1)
    np.testing.assert_allclose(np.bincount(nearest) / 3000, 1 / 3, atol=0.03)
    assert np.median(np.linalg.norm(particles - centers[nearest], axis=1)) < 0.14


SHAPES = {
    "cut block": (64, orthogonal_directions(16, 64, RNG), None),
    "cut block, few at a time": (64, orthogonal_directions(16, 64, RNG), 5),
    "block and a rest": (64, orthogonal_directions(80, 64, RNG, axes_first=True), None),
    "less than a block at a time": (64, orthogonal_directions(128, 64, RNG, axes_first=True), 16),
    "two at a time": (8, orthogonal_directions(64, 8, RNG), 2),
    "one at a time": (6, uniform_directions(60, 6, RNG), 1),
    "sparse": (10, sparse_directions([[k] for k in range(10)], 60, 10, RNG), None),
    "sparse, few at a time": (10, sparse_directions([[k] for k in range(10)], 60, 10, RNG), 4),
    "sparse with a target": (
        12,
        sparse_directions([[k] for k in range(12)], 90, 12, RNG, always=0),
        None,
    ),
    "equal directions": (3, np.full((20, 3), math.sqrt(1 / 3)), None),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("step_size", "diffusion"), [(0.5, 0.0), (1.0, 0.0), (0.5, 1e-3)])
def test_no_shape_diverges(shape, step_size, diffusion):
    """A fixed step of d, and momentum with partial batches, went to 1e7 within 200 steps."""
    n_features, directions, n_projections_per_step = SHAPES[shape]
    X = two_clusters(2000, n_features)
    result = flow(
        table_of(X, directions),
        1000,
        n_projections_per_step=n_projections_per_step,
        step_size=step_size,
        **({"diffusion": diffusion, "momentum": 0.0} if diffusion else {}),
    )
    if diffusion:
        assert np.abs(result.particles).max() < 12
        return
    assert sliced_wasserstein_distance(X, result.particles, directions) < 0.08
    # Where no direction looks, nothing pulls; elsewhere they are as far out as the data.
    seen = np.linalg.pinv(directions) @ directions
    assert np.abs(result.particles @ seen).max() < 2.5
    assert result.displacements[-1] < 0.05 * result.displacements.max()


def gaussian_table(n_projections, n_features, spread):
    edges = np.linspace(-1, 1, 513)
    cdf = norm.cdf(edges / spread)
    cdf[[0, -1]] = 0, 1
    directions = orthogonal_directions(n_projections, n_features, np.random.default_rng(0))
    return CDFTable(directions, np.ones(n_projections), np.tile(cdf, (n_projections, 1)))


@pytest.mark.parametrize(("n_features", "n_projections"), [(1, 1), (2, 8), (3, 12)])
@pytest.mark.parametrize("diffusion", [0.0, 0.002, 0.01])
def test_diffusion_widens_a_gaussian_as_theory_says(n_features, n_projections, diffusion):
    """Stationary spread s of dx = -(1 - σ/s) x / d dt + sqrt(2 λ) dw: s² - σ s = λ d."""
    spread = 0.15
    result = flow(
        gaussian_table(n_projections, n_features, spread),
        4000,
        n_steps=250,
        step_size=0.3,
        diffusion=diffusion,
        momentum=0.0,
    )
    expected = (spread + math.sqrt(spread**2 + 4 * diffusion * n_features)) / 2
    assert result.particles.std(axis=0).mean() == pytest.approx(expected, rel=0.05)
    assert np.abs(result.particles.mean(axis=0)).max() < 0.03
    if n_features == 1:
        assert kstest(result.particles[::4, 0] / result.particles.std(), "norm").pvalue > 1e-5


def test_reproducible_with_a_generator_and_different_without():
    table = table_of(two_clusters(500, 3), orthogonal_directions(9, 3, RNG))
    for device in (None, torch.device("cpu")):
        same = [flow(table, 200, device=device, diffusion=1e-4, n_steps=20) for _ in range(2)]
        np.testing.assert_array_equal(same[0].particles, same[1].particles)
        np.testing.assert_array_equal(same[0].displacements, same[1].displacements)
        other = flow(table, 200, device=device, seed=1, n_steps=20)
        assert np.abs(other.particles - same[0].particles).max() > 0.01


@pytest.mark.parametrize("n_particles", [1, 2, 3])
def test_few_particles_reach_a_point_mass(n_particles):
    table = table_of(np.full((100, 2), 0.25), orthogonal_directions(8, 2, RNG))
    np.testing.assert_allclose(flow(table, n_particles).particles, 0.25, atol=0.05)


def test_shares_of_steps_fall_to_a_twentieth():
    schedule = FlowSchedule(n_steps=100, step_size=0.5)
    shares = [schedule.share(step) for step in range(100)]
    assert shares[0] == shares[49] == 0.5
    assert shares[-1] == pytest.approx(0.025)
    assert all(later <= before for before, later in zip(shares, shares[1:], strict=False))
