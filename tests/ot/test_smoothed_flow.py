"""The flow paper's two algorithms: smoothed drift, frozen noise, order of the releases."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from skdpot.ot.flow import (
    DirectionBatch,
    FlowSchedule,
    NumpyDrift,
    SlicedFlowProblem,
    SmoothedFlowProblem,
    sliced_flow,
)
from skdpot.ot.slices import orthogonal_directions, uniform_directions
from skdpot.ot.torch_flow import TorchDrift
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.release import Release
from skdpot.release.rows import SmoothedProjections
from skdpot.release.sketch import SlicedSketch

RNG = np.random.default_rng(8841)
CENTERS = 0.6 * np.array([[0, 1.2], [1.14, 0.37], [0.7, -0.97], [-0.7, -0.97], [-1.14, 0.37]])
DEVICES = pytest.mark.parametrize("device", [None, torch.device("cpu")], ids=["numpy", "torch"])
PAPER = {"step_size": 0.375, "momentum": 0.0, "decay": False}


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


def numpy_residual(particles, batch, noise):
    return NumpyDrift(len(particles), len(batch.directions)).residual(particles, batch, noise)


def torch_residual(particles, batch, noise):
    drift = TorchDrift(torch.device("cpu"))
    tensors = (torch.from_numpy(particles), batch, torch.from_numpy(noise))
    return drift.residual(*tensors).numpy()


def exact_residual(particles, batch, noise):
    """Equation 21, direction by direction: F of the noisy projections at the clean ones."""
    n_particles, n_levels = len(particles), batch.quantiles.shape[1]
    levels = (np.arange(n_levels) + 0.5) / n_levels
    total = np.zeros(particles.shape)
    for theta, quantiles, shift in zip(batch.directions, batch.quantiles, noise, strict=True):
        clean = particles.astype(float) @ theta.astype(float)
        level = np.searchsorted(np.sort(clean + shift), clean) / n_particles
        total += np.outer(clean - np.interp(level, levels, quantiles), theta)
    return total


KERNELS = {"numpy": numpy_residual, "torch": torch_residual}


def smoothed_batch(n_features, n_projections, n_rows, sigma):
    directions = uniform_directions(n_projections, n_features, RNG)
    release = project(RNG.normal(size=(n_rows, n_features)) * 0.3, directions, sigma)
    return DirectionBatch(release.facts["directions"], release.value, sigma)


def noise_for(batch, n_particles):
    shape = (len(batch.directions), n_particles)
    return np.float32(batch.sigma) * RNG.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("sigma", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize(("n_features", "n_particles"), [(1, 1), (3, 2), (2, 50), (8, 4000)])
def test_numpy_and_torch_agree(n_features, n_particles, sigma):
    batch = smoothed_batch(n_features, 12, 40, sigma)
    particles = RNG.normal(size=(n_particles, n_features)).astype(np.float32)
    noise = noise_for(batch, n_particles)
    first, second = (kernel(particles, batch, noise) for kernel in KERNELS.values())
    # A noisy projection on an edge may be counted on either side of it: one in n particles.
    steepest = np.diff(batch.quantiles).max() * batch.quantiles.shape[1]
    np.testing.assert_allclose(first, second, atol=1e-4 + 2 * steepest / n_particles)
    assert np.sqrt(np.mean((first - second) ** 2)) < 1e-3 * max(1, sigma)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sigma", [0.05, 0.3, 5.0])
def test_agrees_with_the_papers_equation(kernel, sigma):
    """Between edges the map is linear: single particles may be off by what a cell holds."""
    batch = smoothed_batch(2, 8, 300, sigma)
    particles = (0.3 * RNG.normal(size=(4000, 2)) + 0.2).astype(np.float32)
    noise = noise_for(batch, 4000)
    exact = exact_residual(particles, batch, noise)
    error = np.sqrt(np.mean((KERNELS[kernel](particles, batch, noise) - exact) ** 2))
    assert error < 0.01 * np.sqrt(np.mean(exact**2)) + 1e-3


@pytest.mark.parametrize("kernel", KERNELS)
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


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [0.0, 1e-30, 1e6])
def test_particles_in_one_place_or_far_apart_do_no_harm(kernel, spread):
    batch = smoothed_batch(2, 6, 50, 0.5)
    particles = (0.3 + spread * RNG.normal(size=(100, 2))).astype(np.float32)
    assert np.all(np.isfinite(KERNELS[kernel](particles, batch, noise_for(batch, 100))))


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


def test_noise_is_seen_through():
    """σ = 0.5 on a spread of 0.35: the noise itself is not taken over, but details are."""
    rows = np.sign(RNG.random((20_000, 1)) - 0.3) * 0.5 + 0.1 * RNG.normal(size=(20_000, 2))
    problem = smoothed(frozen(rows, orthogonal_directions(20, 2, RNG), 0.5), 1.0)
    schedule = FlowSchedule(40, **PAPER)
    particles = sliced_flow(problem, 4000, schedule, np.random.default_rng(0)).particles
    np.testing.assert_allclose(particles.mean(axis=0), rows.mean(axis=0), atol=0.04)
    np.testing.assert_allclose(np.cov(particles.T), np.cov(rows.T), atol=0.1)


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


@pytest.mark.parametrize("n_features", [1, 2, 8])
def test_starts_as_wide_as_the_ball(n_features):
    projections = frozen(np.zeros((3, n_features)), np.eye(n_features))
    start = smoothed(projections, 3.0).start(50_000, np.random.default_rng(0))
    assert start.dtype == np.float32
    assert np.mean(np.sum(start**2, axis=1)) == pytest.approx(9.0, rel=0.03)
    np.testing.assert_allclose(start.std(axis=0), 3 / math.sqrt(n_features), rtol=0.02)


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


def test_the_released_noise_is_not_drawn_again(monkeypatch):
    """What the drift sees in 30 steps are values of the release: there is no second draw."""
    problem = smoothed(frozen(five_gaussians(40), np.eye(2), 3.0), 1.0)
    released = problem.batches[0].values.copy()
    seen, residual = [], NumpyDrift.residual

    def watched(self, particles, batch, noise):
        seen.append((batch.quantiles.copy(), noise.copy()))
        return residual(self, particles, batch, noise)

    monkeypatch.setattr(NumpyDrift, "residual", watched)
    sliced_flow(problem, 100, FlowSchedule(30, **PAPER), np.random.default_rng(0))
    assert len(seen) == 30
    for values, _ in seen:
        np.testing.assert_array_equal(values, released)
    # The particles' noise is of the same size and new in each step.
    assert np.std([noise for _, noise in seen]) == pytest.approx(3.0, rel=0.1)
    assert len({noise.tobytes() for _, noise in seen}) == 30


def test_without_noise_none_is_added(monkeypatch):
    drawn, residual = [], NumpyDrift.residual

    def watched(self, particles, batch, noise):
        drawn.append(noise)
        return residual(self, particles, batch, noise)

    monkeypatch.setattr(NumpyDrift, "residual", watched)
    problem = smoothed(frozen(five_gaussians(40), np.eye(2)), 1.0)
    sliced_flow(problem, 10, FlowSchedule(3), np.random.default_rng(0))
    assert drawn == [None] * 3


def test_a_batch_can_be_a_single_row():
    full = resampled(five_gaussians(50), 3, 4, 10)
    batches = (full.releases[0], project(five_gaussians(1), np.eye(2)), full.releases[1])
    problem = smoothed(SmoothedProjections(batches), 1.0)
    assert problem.n_turns == 3
    result = sliced_flow(problem, 20, FlowSchedule(3), np.random.default_rng(0))
    assert np.all(np.isfinite(result.particles))


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


@DEVICES
def test_reproducible_with_a_generator(device):
    problem = smoothed(resampled(five_gaussians(200), 10, 6, 50, 0.7), 1.0, 4)
    schedule = FlowSchedule(10, **PAPER, diffusion=1e-4)

    def run(seed):
        return sliced_flow(problem, 60, schedule, np.random.default_rng(seed), device=device)

    np.testing.assert_array_equal(run(0).particles, run(0).particles)
    assert np.abs(run(0).particles - run(1).particles).max() > 0.01


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


def test_steps_of_equal_length():
    schedule = FlowSchedule(n_steps=10, step_size=0.375, decay=False)
    assert [schedule.share(step) for step in range(10)] == [0.375] * 10


def test_the_papers_step_is_three_eighths_of_a_full_one():
    """h = 3 in dimension 8 with whole blocks of directions, and h = 1 in the plane."""
    for n_features, n_projections, share, h in ((8, 72, 0.375, 3.0), (2, 200, 0.5, 1.0)):
        directions = orthogonal_directions(n_projections, n_features, RNG)
        (turn,) = [next(smoothed(frozen(np.zeros((3, n_features)), directions), 1.0).turns(RNG))]
        np.testing.assert_allclose(share * turn.drift_step, h, rtol=1e-5)


def test_torch_forgets_batches_that_were_used():
    drift = TorchDrift(torch.device("cpu"))
    particles = torch.zeros((5, 2))
    for _ in range(50):
        drift.residual(particles, smoothed_batch(2, 3, 4, 0.0))
    assert len(drift._on_device) <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_agrees_with_the_cpu():
    batch = smoothed_batch(8, 70, 250, 0.7)
    particles = RNG.normal(size=(6000, 8)).astype(np.float32)
    noise = noise_for(batch, 6000)
    device = torch.device("cuda")
    tensors = (torch.from_numpy(particles).to(device), batch, torch.from_numpy(noise).to(device))
    there = TorchDrift(device).residual(*tensors).cpu().numpy()
    np.testing.assert_allclose(there, numpy_residual(particles, batch, noise), atol=0.05)
