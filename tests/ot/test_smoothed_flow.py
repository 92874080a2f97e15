"""The flow paper's two algorithms: smoothed drift, frozen noise, order of the releases."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skdpot.ot.flow import (
    FlowSchedule,
    SlicedFlowProblem,
    SmoothedFlowProblem,
    sliced_flow,
)
from skdpot.ot.slices import orthogonal_directions, uniform_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.release import Release
from skdpot.release.rows import SmoothedProjections
from skdpot.release.sketch import SlicedSketch

RNG = np.random.default_rng(8841)
CENTERS = 0.6 * np.array([[0, 1.2], [1.14, 0.37], [0.7, -0.97], [-0.7, -0.97], [-1.14, 0.37]])
DEVICES = pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])
START = RNG.bit_generator.state
PAPER = {"step_size": 0.375, "momentum": 0.0, "decay": False}


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same, whatever ran before."""
    RNG.bit_generator.state = START


def smoothed(projections: SmoothedProjections, *args: object) -> SmoothedFlowProblem:
    return SmoothedFlowProblem(projections.batches, projections.sigma, *args)


def five_gaussians(n):
    return CENTERS[RNG.integers(0, 5, n)] + 0.08 * RNG.normal(size=(n, 2))


def project(rows, directions, sigma=0.0):
    values = directions @ rows.T + sigma * RNG.normal(size=(len(directions), len(rows)))
    return noisy(directions, np.sort(values), sigma)


def noisy(directions, values, sigma=0.0):
    facts = {"directions": directions.astype(np.float32)}
    return Release("rows", values.astype(np.float32), facts, sigma=sigma, event=NonPrivateEvent())


def frozen(rows, directions, sigma=0.0):
    return SmoothedProjections((project(rows, directions, sigma),))


def resampled(rows, n_steps, n_projections, batch_size, sigma=0.0):
    batches = [
        project(
            rows[RNG.choice(len(rows), batch_size, replace=False)],
            orthogonal_directions(n_projections, rows.shape[1], RNG),
            sigma,
        )
        for _ in range(n_steps)
    ]
    return SmoothedProjections(tuple(batches))


def test_five_gaussians_from_all_rows():
    """Algorithm 2 without noise: N_θ = 100 directions frozen, M_θ = 20 of them a step."""
    rows = five_gaussians(3000)
    problem = smoothed(frozen(rows, orthogonal_directions(100, 2, RNG)), 1.0, 20)
    schedule = FlowSchedule(80, **PAPER)
    particles = sliced_flow(problem, 2000, schedule, np.random.default_rng(0)).particles
    check_five_gaussians(rows, particles, 0.03)


@DEVICES
def test_five_gaussians_from_batches(device):
    """Algorithm 1 without noise: each step sees other directions and another tenth of the rows."""
    rows = five_gaussians(3000)
    problem = smoothed(resampled(rows, 60, 10, 300), 1.0)
    rng = np.random.default_rng(0)
    particles = sliced_flow(problem, 1500, FlowSchedule(60, **PAPER), rng, device=device).particles
    # A batch of 300 has SW2 of its own: the last ones are still to be seen in the particles.
    check_five_gaussians(rows, particles, 0.08)


def check_five_gaussians(rows, particles, tolerance):
    held_out = uniform_directions(200, 2, np.random.default_rng(1))
    assert sliced_wasserstein_distance(rows, particles, held_out) < tolerance
    nearest = np.argmin(np.linalg.norm(particles[:, None] - CENTERS, axis=2), axis=1)
    np.testing.assert_allclose(np.bincount(nearest, minlength=5) / len(particles), 0.2, atol=0.05)
    assert np.median(np.linalg.norm(particles - CENTERS[nearest], axis=1)) < 0.16


@DEVICES
def test_a_gaussian_widens_as_theory_says(device):
    """Along one direction noisy and clean variances fit: s² + σ² of both sides agree."""
    spread, sigma = 0.3, 0.6
    levels = (np.arange(4000) + 0.5) / 4000
    values = (math.hypot(spread, sigma) * norm.ppf(levels))[None].astype(np.float32)
    release = noisy(np.ones((1, 1)), values, sigma)
    problem = smoothed(SmoothedProjections((release,)), 1.0)
    rng = np.random.default_rng(0)
    result = sliced_flow(problem, 20_000, FlowSchedule(60, **PAPER), rng, device=device)
    assert result.particles.std() == pytest.approx(spread, rel=0.05)
    assert abs(result.particles.mean()) < 0.03


def test_releases_are_taken_in_their_sequence_and_once():
    releases = resampled(five_gaussians(50), 6, 4, 10)
    problem = smoothed(releases, 1.0)
    turns = list(problem.turns(np.random.default_rng(0)))
    assert problem.n_turns == len(turns) == 6
    for turn, release in zip(turns, releases.batches, strict=True):
        assert turn.directions is release.directions
        assert turn.quantiles is release.values
        assert turn.sigma == releases.sigma
    with pytest.raises(ValueError, match="n_steps=7 is more than the 6 released batches"):
        sliced_flow(problem, 5, FlowSchedule(7), np.random.default_rng(0))


def test_each_step_uses_other_directions_of_the_frozen_release():
    """M_θ of N_θ without repetition, all of them in time, and always with their own values."""
    rows = five_gaussians(20)
    problem = smoothed(frozen(rows, uniform_directions(9, 2, RNG), 2.0), 1.0, 4)
    release = problem.batches[0]
    turns = problem.turns(np.random.default_rng(0))
    seen = []
    for turn in (next(turns) for _ in range(60)):
        where = [
            np.flatnonzero((release.directions == row).all(axis=1))[0] for row in turn.directions
        ]
        assert len(set(where)) == 4
        np.testing.assert_array_equal(turn.quantiles, release.values[where])
        seen.append(tuple(where))
    assert problem.n_turns is None
    assert problem.largest_batch == 4
    assert len(set(seen)) > 40
    assert set(np.ravel(seen)) == set(range(9))


def test_a_single_row_draws_particles_to_itself():
    problem = smoothed(frozen(np.array([[0.25, -0.5]]), np.eye(2)), 1.0)
    result = sliced_flow(problem, 50, FlowSchedule(60, **PAPER), np.random.default_rng(0))
    np.testing.assert_allclose(result.particles, np.tile([0.25, -0.5], (50, 1)), atol=1e-4)


@pytest.mark.parametrize(
    ("n_projections", "n_projections_per_step", "n_batches", "partial"),
    [
        (4, None, 1, False),
        (4, 2, 1, True),
        (4, 3, 1, False),
        (2, None, 1, False),
        (2, None, 3, True),
    ],
)
def test_momentum_is_left_out_where_turns_do_not_span(
    n_projections, n_projections_per_step, n_batches, partial
):
    rows = RNG.normal(size=(20, 3))
    releases = resampled(rows, n_batches, n_projections, 10)
    problem = smoothed(releases, 1.0, n_projections_per_step)
    assert problem.is_partial == partial


CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("kind", ["sketch", "all rows", "batches"])
def test_equal_seeds_give_equal_flows_on_all_devices(kind, device):
    """Without noise on the particles, which each device draws with a generator of its own.

    Only a few steps: where a flow parts clusters, the last bit of a position decides the way.
    """
    rows = np.clip(five_gaussians(500), -1, 1)
    directions = orthogonal_directions(30, 2, RNG)
    problem = {
        "sketch": lambda: SlicedFlowProblem(
            SlicedSketch(epsilon=np.inf, bounds=(-1, 1), projections=directions).fit(rows).table(),
            6,
        ),
        "all rows": lambda: smoothed(frozen(rows, directions), 1.0, 6),
        "batches": lambda: smoothed(resampled(rows, 20, 6, 60), 1.0),
    }[kind]()

    first, second = (
        sliced_flow(problem, 400, FlowSchedule(3), np.random.default_rng(3), device=place)
        for place in (None, torch.device(device))
    )
    gaps = np.abs(first.particles - second.particles)
    assert np.median(gaps) < 1e-5
    assert np.quantile(gaps, 0.9) < 1e-3


@pytest.mark.parametrize(
    ("n_features", "n_projections", "share", "h"), [(8, 72, 0.375, 3.0), (2, 200, 0.5, 1.0)]
)
def test_the_papers_step_is_three_eighths_of_a_full_one(n_features, n_projections, share, h):
    directions = orthogonal_directions(n_projections, n_features, RNG)
    turn = next(smoothed(frozen(np.zeros((3, n_features)), directions), 1.0).turns(RNG))
    np.testing.assert_allclose(share * turn.drift_step, h, rtol=1e-5)
