"""Plans between knots, Brownian bridges, and the laws of whole paths that they make."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.trajectories.couplings import (
    coupling_of,
    drifting_plans,
    entropic_plans,
    exact_plans,
    kept_plans,
    sample_next,
)
from skdpot.trajectories.path_measure import PathMeasure

TIMES = np.array([0.0, 0.2, 0.7, 1.0])


def particles(seed, shape):
    return np.random.default_rng(seed).normal(size=shape)


@given(seed=st.integers(0, 2**32), m=st.integers(1, 30), d=st.integers(1, 3), unit=st.floats(-6, 6))
@settings(max_examples=30, deadline=None)
def test_exact_plans_are_optimal_in_any_unit(seed, m, d, unit):
    clouds = 10.0**unit * particles(seed, (3, m, d))
    for plan, first, second in zip(exact_plans(clouds), clouds[:-1], clouds[1:], strict=True):
        matrix, costs = plan.toarray(), cdist(first, second, "sqeuclidean")
        np.testing.assert_allclose(matrix.sum(axis=0), 1 / m, rtol=1e-9)
        np.testing.assert_allclose(matrix.sum(axis=1), 1 / m, rtol=1e-9)
        optimum = costs[linear_sum_assignment(costs)].mean()
        assert (matrix * costs).sum() == pytest.approx(optimum, rel=1e-9)


@given(seed=st.integers(0, 2**32), m=st.integers(1, 30), exponent=st.floats(-4, 2))
@settings(max_examples=30, deadline=None)
def test_entropic_plans_have_uniform_margins_whatever_the_solver_leaves(seed, m, exponent):
    clouds, spacings = particles(seed, (3, m, 2)), np.array([0.3, 0.7])
    plans = entropic_plans(clouds, spacings, 10.0**exponent)
    assert len(plans) == 2
    for plan in plans:
        np.testing.assert_allclose(plan.toarray().sum(axis=0), 1 / m, rtol=1e-9)
        np.testing.assert_allclose(plan.toarray().sum(axis=1), 1 / m, rtol=1e-9)


def test_entropic_plans_are_those_of_the_potentials():
    clouds, spacings = particles(0, (3, 40, 2)), np.array([0.25, 0.5])
    solved = schrodinger_potentials(clouds[:-1], clouds[1:], 0.4 * spacings, tol=1e-9)
    for plan, matrix in zip(entropic_plans(clouds, spacings, 0.4), solved.plans(), strict=True):
        assert np.abs(plan.toarray() - matrix).sum() < 1e-5


class _Extreme:
    """Stands for a generator that draws the largest number below one, or zero."""

    def __init__(self, value):
        self.value = value

    def random(self, size):
        return np.full(size, self.value)


@pytest.mark.parametrize("level", [0.0, np.nextafter(1.0, 0.0)])
def test_the_ends_of_the_unit_interval_stay_inside_the_row(level):
    matrix = np.random.default_rng(8).random((30, 30))
    matrix[np.triu_indices(30, 1)] = 0.0
    index = np.arange(30)
    lower, upper = coupling_of(matrix), coupling_of(matrix.T)
    assert np.all(sample_next(lower, index, _Extreme(level)) <= index)
    assert np.all(sample_next(upper, index, _Extreme(level)) >= index)


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


@given(
    seed=st.integers(0, 2**32),
    order=st.lists(st.floats(0, 1) | st.sampled_from(TIMES), min_size=1, max_size=8),
    n=st.integers(1, 9),
    diffusivity=st.floats(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_times_come_in_any_order_and_knots_are_met_exactly(seed, order, n, diffusivity):
    """Equal times give equal points; without diffusivity paths are straight between knots."""
    law, times = measure(diffusivity=diffusivity), np.array([*order, *TIMES, *order[::-1]])
    paths = law.sample(n, times, np.random.default_rng(seed))
    assert paths.shape == (n, len(times), 2)
    assert np.isfinite(paths).all()
    first, knots, again = np.split(paths, [len(order), len(order) + 4], axis=1)
    np.testing.assert_array_equal(first, again[:, ::-1])
    for knot in range(4):
        particle_indices(law, knot, knots[:, knot])
    sorted_paths = law.sample(n, np.sort(times), np.random.default_rng(seed))
    np.testing.assert_array_equal(sorted_paths, paths[:, np.argsort(times, kind="stable")])
    straight = PathMeasure(TIMES, law.particles, law.plans, 0.0).sample(
        n, np.array([0.2, 0.3, 0.7]), np.random.default_rng(seed)
    )
    np.testing.assert_allclose(straight[:, 1], 0.8 * straight[:, 0] + 0.2 * straight[:, 2])


def test_a_single_time_is_its_particles():
    law = measure(times=np.array([0.0]))
    assert law.plans == ()
    paths = law.sample(6, np.zeros(3), np.random.default_rng(9))
    assert paths.shape == (6, 3, 2)
    np.testing.assert_array_equal(paths[:, 0], paths[:, 2])
    assert len(set(particle_indices(law, 0, paths[:, 0]))) == 6
    assert law.sample_marginal(0.0, 2, np.random.default_rng(9)).shape == (2, 2)


def test_a_drift_takes_each_particle_along_before_it_diffuses():
    """The plan is the Schrödinger bridge from where the flow leads, by the general solver too."""
    rng = np.random.default_rng(0)
    clouds = rng.normal(0, 0.3, (2, 60, 2))
    clouds[1] += 5.0
    (plan,) = drifting_plans(clouds, np.array([0.2]), 0.1)
    (general,) = entropic_plans(np.stack([clouds[1], clouds[1]]), np.array([0.2]), 0.1)
    np.testing.assert_allclose(plan.toarray(), general.toarray(), atol=1e-7)
    for axis in (0, 1):
        np.testing.assert_allclose(plan.sum(axis=axis), 1 / 60, rtol=1e-9)
    (still,) = drifting_plans(clouds, np.array([0.2]), 1e-300)
    assert (still - kept_plans(clouds)[0]).count_nonzero() == 0


def test_followed_particles_bend_between_knots():
    """Paths on a circle stay near it, where straight lines would cut it."""
    times = np.linspace(0, 1, 9)
    phases = np.linspace(0, 1, 40, endpoint=False) + times[:, None]
    circle = np.stack([np.cos(np.pi * phases), np.sin(np.pi * phases)], axis=-1)
    middle = (times[1:] + times[:-1]) / 2
    cut = {}
    for followed in (False, True):
        path = PathMeasure(times, circle, kept_plans(circle), 1e-20, followed)
        rng = np.random.default_rng(0)
        radii = np.linalg.norm(path.sample(40, np.sort(np.append(times, middle)), rng), axis=2)
        np.testing.assert_allclose(radii[:, ::2], 1, atol=1e-8)
        cut[followed] = np.abs(radii[:, 1::2] - 1).max()
    assert cut[True] < cut[False] / 5


def test_noise_does_not_bend_paths():
    """Particles that jump about at every knot have speeds, but these predict nothing."""
    times = np.linspace(0, 1, 9)
    noise = 0.1 * particles(1, (9, 400, 2))
    jumping = PathMeasure(times, noise, kept_plans(noise), 0.05, True).bends
    assert np.abs(jumping).mean() < 0.02 * 0.1  # unscaled, about .2


@pytest.mark.parametrize("n_features", [2, 10])
@pytest.mark.parametrize("coupling", ["entropic", "exact"])
def test_a_population_that_stands_still_is_as_wide_between_knots(n_features, coupling):
    """Bridges have the variance that the plan takes away, and no more."""
    times, one = np.linspace(0, 1, 5), 0.3 * particles(2, (1, 300, n_features))
    cloud, tau = np.repeat(one, 5, axis=0), 0.3
    plans = drifting_plans(cloud, np.diff(times), tau) if coupling == "entropic" else None
    path = PathMeasure(times, cloud, plans or kept_plans(cloud), tau, True)
    middle = path.sample_marginal(0.375, 30_000, np.random.default_rng(0))
    np.testing.assert_allclose(middle.var(), one.var(), rtol=0.02)  # with τ for it + .2
    gained = np.diff(path.sample(30_000, times[:2], np.random.default_rng(0)), axis=1)
    due = tau * 0.25 if coupling == "entropic" else 0.0
    # The cloud is not much wider than the step is long, so that not all of it is gained.
    assert 0.6 * due <= np.mean(gained**2) <= 1.02 * due


def test_the_objective_has_known_parts():
    """The entropy of Gaussians, and the cost of moving on by a vector in half of the time."""
    clouds = np.repeat(0.3 * particles(0, (1, 1500, 2)), 2, axis=0)
    times, still = np.array([0.0, 0.5]), kept_plans(clouds)
    before = PathMeasure(times, clouds, still, 0.1).objective
    exact = -2 * np.log(2 * np.pi * np.e * 0.09)  # of two clouds in two dimensions
    assert before.entropy == pytest.approx(exact, abs=0.1)
    assert before.total is None
    clouds[1] += [0.3, 0.4]
    after = PathMeasure(times, clouds, still, 0.1, fit=2.0).objective
    assert after.transport - before.transport == pytest.approx(0.5 * 0.25 / 0.5, rel=1e-2)
    assert after.total == 2.0 + after.transport + 0.1 * after.entropy
