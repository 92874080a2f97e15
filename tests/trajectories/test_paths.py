"""Laws of whole paths: margins, Markov composition, bridges, single knots."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.trajectories.paths import PathMeasure, entropic_plans, exact_plans

TIMES = np.array([0.0, 0.2, 0.7, 1.0])


def measure(seed=0, m=6, d=2, diffusivity=0.5, times=TIMES, exact=False):
    particles = np.random.default_rng(seed).normal(size=(len(times), m, d))
    if exact:
        plans = exact_plans(particles)
    else:
        plans = entropic_plans(particles, np.diff(times), max(diffusivity, 0.1))
    return PathMeasure(times, particles, plans, diffusivity)


def particle_indices(law, knot, points):
    """Which particle each point is; every point must be one, to the last bit."""
    same = (points[:, None] == law.particles[knot][None]).all(axis=2)
    assert np.all(same.sum(axis=1) == 1)
    return same.argmax(axis=1)


def test_paths_compose_the_plans_as_a_markov_chain():
    n, m = 60_000, 6
    law = measure(m=m)
    paths = law.sample(n, TIMES, np.random.default_rng(1))
    index = [particle_indices(law, knot, paths[:, knot]) for knot in range(4)]
    matrices = [plan.toarray() for plan in law.plans]
    joint = [np.zeros((m, m)) for _ in range(2)]
    np.add.at(joint[0], (index[0], index[1]), 1 / n)
    np.add.at(joint[1], (index[0], index[3]), 1 / n)
    composed = m**2 * matrices[0] @ matrices[1] @ matrices[2]
    slack = 6 * np.sqrt(0.25 / m / n)  # seeded; six standard errors of a share below 1/m
    np.testing.assert_allclose(joint[0], matrices[0], atol=slack)
    np.testing.assert_allclose(joint[1], composed, atol=slack)
    # Given the particle in the middle, what came before says nothing about what comes after.
    for middle in range(m):
        there = index[1] == middle
        table = np.zeros((m, m))
        np.add.at(table, (index[0][there], index[2][there]), 1 / there.sum())
        independent = np.outer(table.sum(axis=1), table.sum(axis=0))
        np.testing.assert_allclose(table, independent, atol=6 * np.sqrt(0.25 / there.sum()))


def test_between_knots_the_path_is_the_bridge_between_its_particles():
    n = 40_000
    law = measure(diffusivity=0.3)
    at = np.array([0.2, 0.3, 0.6, 0.7])
    paths = law.sample(n, at, np.random.default_rng(2))
    shares = ((at - 0.2) / 0.5)[:, None]
    lines = (1 - shares) * paths[:, [0]] + shares * paths[:, [3]]
    beyond = (paths - lines)[:, 1:3]
    covariance = 0.3 * np.array([[0.1 * 0.4, 0.1 * 0.1], [0.1 * 0.1, 0.4 * 0.1]]) / 0.5
    for feature in range(2):
        measured = np.cov(beyond[:, :, feature].T)
        np.testing.assert_allclose(measured, covariance, atol=6 * np.sqrt(2 / n) * 0.024)
    correlation = np.corrcoef(beyond[:, 0, 0], paths[:, 3, 0])[0, 1]
    assert abs(correlation) < 6 / np.sqrt(n)


@pytest.mark.parametrize("exact", [True, False])
def test_as_many_paths_as_particles_start_from_every_particle(exact):
    law = measure(m=20, exact=exact)
    paths = law.sample(20, TIMES, np.random.default_rng(3))
    assert len(set(particle_indices(law, 0, paths[:, 0]))) == 20
    if exact:  # permutations pass it on
        assert len(set(particle_indices(law, 3, paths[:, 3]))) == 20


@given(n=st.integers(1, 40), knot=st.integers(0, 3), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_at_a_knot_the_marginal_repeats_particles_as_little_as_it_can(n, knot, seed):
    law = measure(m=7)
    points = law.sample_marginal(TIMES[knot], n, np.random.default_rng(seed))
    counts = np.bincount(particle_indices(law, knot, points), minlength=7)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == n


@pytest.mark.parametrize("n", [3, 6])
def test_every_start_is_as_likely_at_every_place(n):
    law, rng = measure(m=4), np.random.default_rng(4)
    counts = np.zeros((n, 4))
    for _ in range(4000):
        index = particle_indices(law, 1, law.sample_marginal(TIMES[1], n, rng))
        counts[np.arange(n), index] += 1
    np.testing.assert_allclose(counts / 4000, 0.25, atol=6 * np.sqrt(0.1875 / 4000))


@pytest.mark.parametrize("time", [0.1, 0.45, 0.7, 1.0])
def test_marginals_of_paths_and_points_agree(time):
    n = 40_000
    law = measure(seed=5, m=10)
    paths = law.sample(n, np.array([time]), np.random.default_rng(6))[:, 0]
    points = law.sample_marginal(time, n, np.random.default_rng(7))
    assert points.shape == (n, 2)
    slack = 6 * np.sqrt(2 / n)
    np.testing.assert_allclose(paths.mean(axis=0), points.mean(axis=0), atol=slack * 1.5)
    np.testing.assert_allclose(np.cov(paths.T), np.cov(points.T), atol=slack * 5)


@given(
    seed=st.integers(0, 2**32),
    order=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    n=st.integers(1, 9),
)
@settings(max_examples=40, deadline=None)
def test_times_come_in_any_order_and_equal_times_give_equal_points(seed, order, n):
    law = measure()
    times = np.array(order + order[::-1])
    paths = law.sample(n, times, np.random.default_rng(seed))
    assert paths.shape == (n, len(times), 2)
    np.testing.assert_array_equal(paths, paths[:, ::-1])
    sorted_paths = law.sample(n, np.sort(times), np.random.default_rng(seed))
    np.testing.assert_array_equal(sorted_paths, paths[:, np.argsort(times, kind="stable")])


def test_no_diffusivity_gives_straight_lines_between_particles():
    law = measure(diffusivity=0.0, exact=True)
    paths = law.sample(6, np.array([0.2, 0.45, 0.7]), np.random.default_rng(8))
    np.testing.assert_allclose(paths[:, 1], (paths[:, 0] + paths[:, 2]) / 2)


def test_a_single_time_is_its_particles():
    law = measure(times=np.array([0.0]))
    assert law.plans == ()
    paths = law.sample(6, np.zeros(3), np.random.default_rng(9))
    assert paths.shape == (6, 3, 2)
    np.testing.assert_array_equal(paths[:, 0], paths[:, 2])
    assert len(set(particle_indices(law, 0, paths[:, 0]))) == 6
    assert law.sample_marginal(0.0, 2, np.random.default_rng(9)).shape == (2, 2)
