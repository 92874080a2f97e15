"""Flows reach what a table or noisy rows describe, in any shape, and repeat when told to."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from skdpot import SlicedSketch
from skdpot.ot.directions import orthogonal_directions, uniform_directions
from skdpot.ot.flow import FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import ProjectedRows, SlicedFlowProblem, SmoothedFlowProblem
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import sliced_distance

RNG = np.random.default_rng(8841)
START = RNG.bit_generator.state
CENTERS = 0.6 * np.array([[0, 1.2], [1.14, 0.37], [0.7, -0.97], [-0.7, -0.97], [-1.14, 0.37]])
DEVICES = pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])
PAPER = {"step_size": 0.375, "momentum": 0.0, "decay": False}


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same, whatever ran before."""
    RNG.bit_generator.state = START


def of_sketch(X, directions, n_bins=128, n_projections_per_step=None):
    sketch = SlicedSketch(epsilon=np.inf, bounds=(-1, 1), projections=directions, n_bins=n_bins)
    return SlicedFlowProblem(sketch.fit(X).table(), n_projections_per_step)


def of_rows(batches, sigma=0.0, n_projections_per_step=None):
    """Sorted projections of batches of rows with noise; pairs of rows and directions."""
    released = []
    for rows, directions in batches:
        values = directions @ rows.T + sigma * RNG.normal(size=(len(directions), len(rows)))
        arrays = (directions, np.sort(values))
        released.append(ProjectedRows(*(array.astype(np.float32) for array in arrays)))
    return SmoothedFlowProblem(tuple(released), sigma, 1.0, n_projections_per_step)


def resampled(rows, n_steps, n_projections, batch_size, **options):
    drawn = [
        (rows[RNG.choice(len(rows), batch_size, replace=False)],
         orthogonal_directions(n_projections, rows.shape[1], RNG))
        for _ in range(n_steps)
    ]  # fmt: skip
    return of_rows(drawn, **options)


def flow(problem, n_particles=2000, *, seed=0, device=None, **schedule):
    rng = np.random.default_rng(seed)
    return sliced_flow(problem, n_particles, FlowSchedule(**schedule), rng, device=device)


def five_gaussians(n):
    return np.clip(CENTERS[RNG.integers(0, 5, n)] + 0.08 * RNG.normal(size=(n, 2)), -1, 1)


def two_clusters(n, n_features):
    centers = np.where(RNG.random((n, 1)) < 0.7, 0.35, -0.35)
    return np.clip(centers + 0.1 * RNG.normal(size=(n, n_features)), -1, 1)


# A problem, how it is solved, and how near particles come. Without noise: the flow paper's
# Algorithm 2 freezes 100 directions and takes 20 a step; in its Algorithm 1 each step sees other
# directions and another tenth of the rows, of which the last ones are still to be seen.
MIXTURES = {
    "sketch": (
        lambda rows: of_sketch(rows, orthogonal_directions(30, 2, RNG), 256),
        {"momentum": 0.0},
        0.03,
    ),
    "sketch, momentum": (
        lambda rows: of_sketch(rows, orthogonal_directions(30, 2, RNG), 256),
        {"momentum": 0.9},
        0.03,
    ),
    "all rows": (
        lambda rows: of_rows(
            [(rows, orthogonal_directions(100, 2, RNG))], n_projections_per_step=20
        ),
        PAPER | {"n_steps": 80},
        0.03,
    ),
    "batches": (lambda rows: resampled(rows, 60, 10, 300), PAPER | {"n_steps": 60}, 0.08),
}


@pytest.mark.slow
@DEVICES
@pytest.mark.parametrize("kind", MIXTURES)
def test_five_gaussians_are_found(kind, device):
    """SW2 on directions that the flow has not seen, and a fifth of the particles at each."""
    make, schedule, tolerance = MIXTURES[kind]
    rows = five_gaussians(3000)
    particles = flow(make(rows), device=device, **schedule).particles
    held_out = uniform_directions(200, 2, np.random.default_rng(1))
    assert sliced_distance(rows, particles, held_out) < tolerance
    nearest = np.argmin(np.linalg.norm(particles[:, None] - CENTERS, axis=2), axis=1)
    np.testing.assert_allclose(np.bincount(nearest, minlength=5) / len(particles), 0.2, atol=0.05)
    assert np.median(np.linalg.norm(particles - CENTERS[nearest], axis=1)) < 0.16


def sparse_directions(n_projections, n_features, *, always=None):
    """Draw directions with random weights on two columns each, one of them `always`."""
    others = [k for k in range(n_features) if k != always]
    rows = np.zeros((n_projections, n_features))
    for row in rows:
        support = list(RNG.choice(others, 2 - (always is not None), replace=False))
        support += [] if always is None else [always]
        row[support] = RNG.standard_normal(2)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def gaussian_problem(directions, n_projections_per_step=None, *, spread=0.2, n_bins=256):
    """Projections of a centred Gaussian of standard deviation `spread`."""
    cdf = norm.cdf(np.linspace(-1, 1, n_bins + 1) / spread)
    cdf[[0, -1]] = 0, 1
    table = CDFTable(directions, np.ones(len(directions)), np.tile(cdf, (len(directions), 1)))
    return SlicedFlowProblem(table, n_projections_per_step)


SHAPES = {
    "cut block": (orthogonal_directions(16, 64, RNG), None),
    "cut block, few at a time": (orthogonal_directions(16, 64, RNG), 5),
    "block and a rest": (orthogonal_directions(80, 64, RNG, axes_first=True), None),
    "less than a block at a time": (orthogonal_directions(128, 64, RNG, axes_first=True), 16),
    "two at a time": (orthogonal_directions(64, 8, RNG), 2),
    "one at a time": (uniform_directions(60, 6, RNG), 1),
    "sparse": (sparse_directions(60, 10), None),
    "sparse, few at a time": (sparse_directions(60, 10), 4),
    "sparse with a target": (sparse_directions(90, 12, always=0), None),
    "equal directions": (np.full((20, 3), math.sqrt(1 / 3)), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("step_size", "diffusion"), [(0.5, 0.0), (1.0, 0.0), (0.5, 1e-3)])
def test_no_shape_diverges(shape, step_size, diffusion):
    """A fixed step of d, and momentum with partial batches, went to 1e7 within 200 steps."""
    directions, at_once = SHAPES[shape]
    X = two_clusters(2000, directions.shape[1])
    options = {"diffusion": diffusion, "momentum": 0.0} if diffusion else {}
    problem = of_sketch(X, directions, n_projections_per_step=at_once)
    result = flow(problem, 1000, step_size=step_size, **options)
    if diffusion:
        assert np.abs(result.particles).max() < 12
        return
    assert sliced_distance(X, result.particles, directions) < 0.08
    # Where no direction looks, nothing pulls; elsewhere they are as far out as the data.
    seen = np.linalg.pinv(directions) @ directions
    assert np.abs(result.particles @ seen).max() < 2.5
    assert result.displacements[-1] < 0.05 * result.displacements.max()


def test_momentum_is_left_out_where_turns_do_not_span():
    rows = RNG.normal(size=(20, 3))
    for n_projections, at_once, n_batches, partial in (
        *((4, None, 1, False), (4, 2, 1, True), (4, 3, 1, False)),
        *((2, None, 1, False), (2, None, 3, True)),
    ):
        made = resampled(rows, n_batches, n_projections, 10, n_projections_per_step=at_once)
        assert made.is_partial == partial


@pytest.mark.parametrize(("n_features", "n_projections"), [(1, 1), (2, 8), (3, 12)])
@pytest.mark.parametrize("diffusion", [0.0, 0.002, 0.01])
def test_diffusion_widens_a_gaussian_as_theory_says(n_features, n_projections, diffusion):
    """Stationary spread s of dx = -(1 - σ/s) x / d dt + sqrt(2 λ) dw: s² - σ s = λ d."""
    spread, directions = 0.15, orthogonal_directions(n_projections, n_features, RNG)
    problem = gaussian_problem(directions, spread=spread, n_bins=512)
    options = {"n_steps": 250, "step_size": 0.3, "momentum": 0.0}
    particles = flow(problem, 4000, diffusion=diffusion, **options).particles
    expected = (spread + math.sqrt(spread**2 + 4 * diffusion * n_features)) / 2
    assert particles.std(axis=0).mean() == pytest.approx(expected, rel=0.05)
    assert np.abs(particles.mean(axis=0)).max() < 0.03
    if n_features == 1:
        assert kstest(particles[::4, 0] / particles.std(), "norm").pvalue > 1e-5


@DEVICES
def test_noise_of_rows_does_not_widen_a_gaussian(device):
    """Along one direction noisy and clean variances fit: s² + σ² of both sides agree."""
    spread, sigma = 0.3, 0.6
    levels = (np.arange(4000) + 0.5) / 4000
    values = (math.hypot(spread, sigma) * norm.ppf(levels))[None].astype(np.float32)
    batch = ProjectedRows(np.ones((1, 1), dtype=np.float32), values)
    problem = SmoothedFlowProblem((batch,), sigma, 1.0)
    particles = flow(problem, 20_000, n_steps=60, device=device, **PAPER).particles
    assert particles.std() == pytest.approx(spread, rel=0.05)
    assert abs(particles.mean()) < 0.03


@pytest.mark.parametrize("n_particles", [1, 2, 3, 50])
def test_few_particles_reach_a_point_mass(n_particles):
    rows, directions = np.full((100, 2), 0.25), orthogonal_directions(8, 2, RNG)
    for problem, schedule, tolerance in (
        (of_sketch(rows, directions), {}, 0.05),
        (of_rows([(rows[:1], np.eye(2))]), PAPER | {"n_steps": 60}, 1e-4),
    ):
        found = flow(problem, n_particles, **schedule).particles
        np.testing.assert_allclose(found, 0.25, atol=tolerance)


def test_releases_are_taken_in_their_sequence_and_once():
    problem = resampled(five_gaussians(50), 6, 4, 10, sigma=0.1)
    turns = list(problem.turns(np.random.default_rng(0)))
    assert problem.n_turns == len(turns) == 6
    for turn, release in zip(turns, problem.batches, strict=True):
        assert turn.directions is release.directions
        assert turn.quantiles is release.values
        assert turn.sigma == 0.1
    with pytest.raises(ValueError, match="n_steps=7 is more than the 6 released batches"):
        flow(problem, 5, n_steps=7)


def test_each_step_uses_other_directions_of_the_frozen_release():
    """M_θ of N_θ without repetition, all of them in time, and always with their own values."""
    drawn = [(five_gaussians(20), uniform_directions(9, 2, RNG))]
    problem = of_rows(drawn, 2.0, n_projections_per_step=4)
    (release,), seen = problem.batches, []
    turns = problem.turns(np.random.default_rng(0))
    for turn in (next(turns) for _ in range(60)):
        where = np.flatnonzero(np.isin(release.directions, turn.directions).all(axis=1))
        assert len(where) == len(turn.directions) == problem.largest_batch == 4
        order = np.argsort(turn.directions[:, 0])
        where = where[np.argsort(release.directions[where, 0])]
        np.testing.assert_array_equal(turn.quantiles[order], release.values[where])
        seen.append(tuple(where))
    assert problem.n_turns is None
    assert len(set(seen)) > 40
    assert set(np.ravel(seen)) == set(range(9))


CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("kind", MIXTURES)
def test_equal_seeds_give_equal_flows_on_all_devices(kind, device):
    """Without noise on the particles, which each device draws with a generator of its own.

    Only a few steps: where a flow parts clusters, the last bit of a position decides the way.
    """
    problem = MIXTURES[kind][0](five_gaussians(500))
    runs = [
        flow(problem, 400, n_steps=3, seed=seed, device=place)
        for place in (None, torch.device(device))
        for seed in (3, 3, 4)
    ]
    for k in (0, 3):
        np.testing.assert_array_equal(runs[k].particles, runs[k + 1].particles)
        np.testing.assert_array_equal(runs[k].displacements, runs[k + 1].displacements)
        assert np.abs(runs[k].particles - runs[k + 2].particles).max() > 0.01
    gaps = np.abs(runs[0].particles - runs[3].particles)
    assert np.median(gaps) < 1e-5
    assert np.quantile(gaps, 0.9) < 1e-3
