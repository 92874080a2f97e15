"""Couplings: margins, optimality, and partners drawn from the right conditional law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import chisquare

from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.trajectories import paths
from skdpot.trajectories.paths import coupling_of, entropic_plans, exact_plans, sample_next


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


def test_entropic_plans_are_mended_when_the_solver_stops_early(monkeypatch):
    monkeypatch.setattr(paths, "_MAX_ITERATIONS", 2)
    (plan,) = entropic_plans(particles(1, (2, 50, 2)), np.ones(1), 0.01)
    np.testing.assert_allclose(plan.toarray().sum(axis=0), 1 / 50, rtol=1e-9)
    np.testing.assert_allclose(plan.toarray().sum(axis=1), 1 / 50, rtol=1e-9)


def test_negligible_entries_are_not_stored():
    (plan,) = entropic_plans(particles(2, (2, 200, 2)), np.ones(1), 0.01)
    assert plan.nnz < 200**2 / 4


def test_small_diffusivities_approach_the_exact_plan():
    clouds = particles(3, (2, 30, 2))
    (exact,), (entropic,) = exact_plans(clouds), entropic_plans(clouds, np.ones(1), 2e-4)
    assert np.abs(exact.toarray() - entropic.toarray()).sum() < 0.05


def test_one_time_needs_no_plan():
    assert exact_plans(particles(4, (1, 5, 2))) == ()
    assert entropic_plans(particles(4, (1, 5, 2)), np.empty(0), 0.1) == ()


@pytest.mark.parametrize("wide", [True, False])
def test_partners_follow_the_conditional_law(wide):
    rng = np.random.default_rng(5)
    matrix = rng.random((4, 6)) * (rng.random((4, 6)) < 0.7)
    matrix[:, 0] += 0.1
    matrix[0] += 0.05
    conditionals = matrix if wide else matrix.T
    plan = coupling_of(conditionals)
    n = 20_000
    index = rng.permutation(np.repeat(np.arange(len(conditionals)), n))
    drawn = sample_next(plan, index, rng)
    for given_index, masses in enumerate(conditionals):
        counts = np.bincount(drawn[index == given_index], minlength=len(masses))
        assert np.all(counts[masses == 0] == 0)
        expected = n * masses[masses > 0] / masses.sum()
        assert chisquare(counts[masses > 0], expected).pvalue > 1e-4  # seeded


def test_a_permutation_leaves_no_choice():
    order = np.random.default_rng(6).permutation(50)
    plan = coupling_of(np.eye(50)[:, order])
    rng, index = np.random.default_rng(7), np.arange(50)
    there = sample_next(plan, index, rng)
    np.testing.assert_array_equal(order[there], index)


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


def test_a_solver_that_gives_up_is_reported(monkeypatch):
    def gives_up(a, b, costs, **_):
        return np.full(costs.shape, 1.0), {"warning": "too many pivots"}

    monkeypatch.setattr("ot.emd", gives_up)
    with pytest.raises(RuntimeError, match="too many pivots"):
        exact_plans(particles(9, (2, 3, 1)))
