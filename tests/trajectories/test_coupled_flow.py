"""Particles that fit tables at all times: where they end, and what ties do."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.exceptions import PrivacyWarning
from skdpot.ot.directions import make_directions
from skdpot.ot.sinkhorn import WarmCoupling
from skdpot.ot.slices import CDFTable, bin_edges
from skdpot.trajectories.coupled_flow import CoupledFlowProblem, along_paths, coupled_flow
from skdpot.trajectories.followed_flow import followed_paths, smoothed_along_the_flow
from skdpot.trajectories.schedule import Phase
from tests.flat_options import trajectory_sampler

STEPS = (Phase(1.0, 0.05, 60), Phase(0.3, 0.05, 60))


def table_of(rows, directions, n_bins=256, width=2.0):
    """The distribution functions of rows, without noise."""
    half_widths = np.full(len(directions), width)
    edges = bin_edges(half_widths, n_bins)
    projections = np.sort(directions @ rows.T, axis=1)
    cdf = [np.searchsorted(p, e) / len(rows) for p, e in zip(projections, edges, strict=True)]
    cdf = np.array(cdf)
    cdf[:, -1] = 1.0
    return CDFTable(directions, half_widths, cdf)


def problem(clouds, *, regularization=0.0, n_particles=150, n_projections=32, times=None):
    rng = np.random.default_rng(0)
    directions = make_directions("axes+orthogonal", n_projections, clouds[0].shape[1], rng)
    times = np.linspace(0, len(clouds) > 1, len(clouds)) if times is None else times
    tables = [table_of(rows, directions) for rows in clouds]
    return CoupledFlowProblem(tables, times, n_particles, regularization)


def no_coupling(*_):
    raise AssertionError("there is nothing to couple")


def solve(task, steps=STEPS, coupling=None, seed=0):
    return coupled_flow(task, steps, np.random.default_rng(seed), coupling or WarmCoupling())


def squared_distance(particles, table):
    """SW₂² of particles to a table, by quantiles."""
    projections = np.sort(table.directions @ particles.T, axis=1)
    levels = (np.arange(len(particles)) + 0.5) / len(particles)
    return float(np.mean((projections - table.quantiles(levels)) ** 2))


def moving_clouds(n_times=5, n=2000, seed=3):
    """Two clusters that part."""
    rng = np.random.default_rng(seed)
    sides = np.where(rng.random((n_times, n, 1)) < 0.5, -1.0, 1.0)
    t = np.linspace(0, 1, n_times)[:, None, None]
    means = np.concatenate([np.broadcast_to(t - 0.5, sides.shape), 0.6 * sides * t], axis=2)
    return means + 0.1 * rng.standard_normal((n_times, n, 2))


CLOUDS = moving_clouds()


def test_particles_come_to_their_tables_and_ties_pull_neighbours_together():
    """More of what changes from time to time is lost the stronger ties are; means stay."""
    ways = []
    for regularization in (1e-4, 1e-2, 1.0):
        task = problem(CLOUDS, regularization=regularization)
        found = solve(task)
        around = found.particles - found.particles.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(found.particles.mean(axis=1), CLOUDS.mean(axis=1), atol=0.03)
        ways.append(np.abs(np.diff(around.std(axis=(1, 2)))).sum())
        if len(ways) == 1:
            for particles, table in zip(found.particles, task.tables, strict=True):
                assert squared_distance(particles, table) < 2e-4  # the start has .005 to .07
            assert found.displacements.shape == (120,)
            assert found.displacements[-1] < 0.02 * found.displacements[0]
    assert ways[0] > ways[1] > ways[2]
    assert ways[2] < 0.8 * ways[0]


def test_without_ties_every_time_is_a_flow_of_its_own():
    """The other times have no influence, and the coupling is never asked for."""
    together = solve(problem(CLOUDS), coupling=no_coupling)
    changed = CLOUDS.copy()
    changed[3] += 0.3
    other = solve(problem(changed), coupling=no_coupling)
    same = [np.array_equal(together.particles[i], other.particles[i]) for i in range(5)]
    assert same == [True, True, True, False, True]
    alone = solve(problem(CLOUDS[2:3]), coupling=no_coupling)
    np.testing.assert_allclose(alone.particles[0], together.particles[2], atol=1e-5)


@pytest.mark.parametrize("spacing", [0.25, 1e-3])
@pytest.mark.parametrize("regularization", [1e-300, 1.0, 1e2, 1e5, 1e30, 1.7e308])
@pytest.mark.filterwarnings("error")
def test_no_regularisation_makes_it_diverge(regularization, spacing):
    times = np.array([0, spacing, 0.5, 0.75, 1.0])
    steps = (Phase(1.0, 0.05, 80),)
    task = problem(CLOUDS, regularization=regularization, times=times, n_particles=60)
    found = solve(task, steps)
    assert np.isfinite(found.particles).all()
    assert np.abs(found.particles).max() < 3
    assert found.displacements[-1] < 0.5 * found.displacements[0]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 12), st.integers(0, 10**6))
def test_any_shape(n_times, n_features, n_particles, seed):
    rng = np.random.default_rng(seed)
    clouds = rng.uniform(-1, 1, (n_times, 40, n_features))
    task = problem(clouds, n_particles=n_particles, n_projections=4, regularization=1e-3)
    found = solve(task, (Phase(0.5, 0.1, 4),), seed=seed)
    assert found.particles.shape == (n_times, n_particles, n_features)
    assert np.isfinite(found.particles).all()
    again = solve(task, (Phase(0.5, 0.1, 4),), seed=seed)
    np.testing.assert_array_equal(found.particles, again.particles)


# Tables that are smoothed first -------------------------------------------------------------


def turning(n, n_times=10, seed=0):
    """Two clusters that circle the origin, as rows of each time."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, n_times)
    centers = 0.7 * np.stack([np.cos(5 * t), np.sin(5 * t)], axis=1)
    sides = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    return np.stack([c * sides + 0.1 * rng.standard_normal((n, 2)) for c in centers])


def test_paths_that_are_followed_stay_in_their_cluster_and_outliers_are_not_followed():
    clouds = turning(200)
    clouds[4, :6] = clouds[4, 6:12]  # three of each cluster are somewhere else for once
    clouds[4, :6] *= -1
    paths = followed_paths(clouds)
    assert paths.shape == (10, 10, 200, 2)
    np.testing.assert_array_equal(paths[np.arange(10), np.arange(10)], clouds)
    centers = clouds[:, 1::2].mean(axis=1)
    sides = np.einsum("stkd,td->stk", paths, centers) > 0
    assert np.mean(sides == sides[:, :1]) > 0.99


def test_smoothing_along_the_flow_takes_errors_off_clusters_that_pass_each_other():
    """Quantiles along directions do not follow clusters; smoothed as such they got worse."""
    rng, n = np.random.default_rng(5), 40
    task = problem(turning(n), n_particles=200, n_projections=12)
    exact = problem(turning(20_000, seed=1), n_particles=200, n_projections=12)
    noise = 0.02 * rng.standard_normal((10, 12, 257))
    noise[..., [0, -1]] = 0.0
    measured = np.stack([table.cdf for table in task.tables]) + noise
    tables = [
        CDFTable(table.directions, table.half_widths, np.clip(np.maximum.accumulate(cdf, 1), 0, 1))
        for table, cdf in zip(task.tables, measured, strict=True)
    ]
    variances = np.full(10, 0.02**2 + 1 / (6 * n))
    noisy = CoupledFlowProblem(tables, task.times, 200, 0.0)
    particles = solve(noisy).particles
    smooth, start = smoothed_along_the_flow(
        particles, tables, task.times, variances, measured, 0.02
    )
    found = CoupledFlowProblem(smooth, task.times, 200, 0.0, start)
    assert start.shape == (10, 200, 2)
    assert all((np.diff(table.cdf) >= 0).all() for table in smooth)
    assert all((table.cdf[:, [0, -1]] == [0.0, 1.0]).all() for table in smooth)
    before, after, moved = (
        np.mean((quantiles - exact.quantiles) ** 2)
        for quantiles in (
            noisy.quantiles,
            found.quantiles,
            np.sort(solve(found).particles @ task.directions.T, axis=1).swapaxes(1, 2),
        )
    )
    assert after < 0.4 * before
    assert moved < 0.4 * before
    sides = np.einsum("tkd,td->tk", start, turning(2)[:, 1]) > 0
    assert np.mean((sides == sides[0]).all(axis=0)) > 0.85


def test_ties_along_the_flow_hold_noise_back_and_not_the_flow():
    """However strong, they leave a turn as it is; what jumps at one time comes from its table."""
    clouds = turning(200)
    clouds = np.cumsum(np.concatenate([clouds[:1] - clouds[:1].mean(axis=1), 0 * clouds[1:]]), 0)
    angle = 0.5 * np.arange(10)
    turn = np.stack([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    clouds = np.einsum("ijt,tkj->tki", turn, clouds)
    noisy = clouds.copy()
    noisy[4] *= 1.3
    found = {}
    for name, rows, regularization in (("flow", clouds, 0.1), ("jump", noisy, 0.1)):
        task = problem(rows, n_particles=200, regularization=regularization)
        task = replace(task, followed=clouds)
        found[name] = solve(task, coupling=along_paths(clouds)).particles
    assert np.sqrt(np.mean((found["flow"] - clouds) ** 2)) < 0.02
    radii = np.linalg.norm(found["jump"], axis=2).mean(axis=1)
    assert radii[4] < 1.15 * np.delete(radii, 4).mean()


def test_quantiles_stay_within_the_bins():
    clouds = np.random.default_rng(0).normal(0, 3, (5, 100, 2))
    assert np.abs(problem(clouds).quantiles).max() <= 2


@pytest.mark.parametrize(
    "kind",
    [
        "one jump",
        pytest.param("back and forth", marks=pytest.mark.slow),
        pytest.param("breathing", marks=pytest.mark.slow),
    ],
)
def test_smoothing_in_time_spares_what_does_not_change_smoothly(kind):
    """Only as much is averaged as the errors of the tables can explain."""
    knot = np.repeat(np.arange(10), 1000)
    place, spread = {
        "one jump": (np.where(knot >= 5, 0.5, -0.5), 0.2),
        "back and forth": (np.where(knot % 2, 0.3, -0.3), 0.2),
        "breathing": (0.0, np.where(knot % 3, 0.07, 0.3)),
    }[kind]
    noise = np.random.default_rng(0).normal(size=(2, len(knot)))
    X = (place + spread * noise).T
    sampler = trajectory_sampler(
        epsilon=0.5, delta=1e-5, bounds=(-1, 1), n_particles=200, regularization=0, random_state=0
    )
    scores = []
    for smooth in (True, False):
        with pytest.warns(PrivacyWarning, match="random_state"):
            sampler.set_params(mechanism__smooth=smooth).fit(X, knot)
        scores.append(sampler.score(X, knot))
    assert scores[0] > 1.2 * scores[1]  # they are negative distances
