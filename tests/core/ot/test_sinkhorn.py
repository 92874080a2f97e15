"""Schrödinger potentials against POT, closed forms, autograd, and extremes."""

import numpy as np
import ot
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdpot.ot.sinkhorn import AndersonMixing, WarmCoupling, schrodinger_potentials

TIGHT = {"tol": 1e-9, "max_iter": 20_000}


def half_squared(first, second):
    return ((first[:, None] - second[None]) ** 2).sum(axis=-1) / 2


def clouds(seed, shape, spread=1.0):
    return spread * np.random.default_rng(seed).normal(size=shape)


def branches(rng, m):
    """Two clouds in two clusters of unequal sizes: mass must pass from one to the other."""
    first = np.where(np.arange(m)[:, None] < m // 2, [0.0, 1.0], [0.0, -1.0])
    second = np.where(np.arange(m)[:, None] < m // 2 - m // 10, [0.3, 1.0], [0.3, -1.0])
    noise = 0.1 * rng.normal(size=(2, m, 2))
    return (first + noise[0])[None], (second + noise[1])[None]


@pytest.mark.parametrize("regularization", [3.0, 0.3, 0.05])
def test_plan_and_value_are_those_of_pot(regularization):
    first, second = clouds(0, (2, 30, 3)), clouds(1, (2, 40, 3)) + 0.5
    solved = schrodinger_potentials(first, second, np.full(2, regularization), **TIGHT)
    a, b = np.full(30, 1 / 30), np.full(40, 1 / 40)
    for pair, plan in enumerate(solved.plans()):
        costs = half_squared(first[pair], second[pair])
        other = ot.bregman.sinkhorn_log(
            a, b, costs, regularization, numItermax=50_000, stopThr=1e-10
        )
        np.testing.assert_allclose(plan, other, atol=1e-9)
        independent = np.outer(a, b)
        value = (plan * costs).sum() + regularization * (plan * np.log(plan / independent)).sum()
        dual = solved.source[pair].mean() + solved.target[pair].mean()
        assert dual == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.01])
def test_single_precision_reaches_the_tolerance_that_it_is_chosen_for(regularization):
    first, second = clouds(2, (3, 200, 2)), clouds(3, (3, 150, 2)) + 5.0
    loose = schrodinger_potentials(first, second, np.full(3, regularization), tol=1e-4)
    plans = loose.plans()
    assert np.abs(plans.sum(axis=2) - 1 / 200).sum(axis=1).max() < 1.2e-4
    assert np.abs(plans.sum(axis=1) - 1 / 150).sum(axis=1).max() < 2e-5
    conditional = plans / plans.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(loose.source_barycentres, conditional @ second, atol=1e-4)
    conditional = (plans / plans.sum(axis=1, keepdims=True)).swapaxes(1, 2)
    np.testing.assert_allclose(loose.target_barycentres, conditional @ first, atol=1e-4)


def test_gradients_are_those_of_the_extended_potentials():
    """The softmin formula, by definition, and its gradients by autograd."""
    first, second, epsilon = clouds(5, (1, 25, 3)), clouds(6, (1, 20, 3)), 0.4
    solved = schrodinger_potentials(first, second, np.array([epsilon]), tol=1e-7)
    sides = (first[0], second[0], solved.target[0]), (second[0], first[0], solved.source[0])
    for found, side in zip(solved.gradients(), sides, strict=True):
        points, others, potential = map(torch.from_numpy, side)
        exponents = (potential - half_squared(points.requires_grad_(), others)) / epsilon
        (-epsilon * torch.logsumexp(exponents, dim=1).sum()).backward()
        np.testing.assert_allclose(found[0], points.grad, atol=1e-7)


@given(
    seed=st.integers(0, 2**32),
    m=st.integers(1, 12),
    k=st.integers(1, 12),
    d=st.integers(1, 3),
    exponent=st.floats(-2, 3),
    far=st.floats(0, 30),
)
@settings(max_examples=40, deadline=None)
# Combinations that went round in circles, and a long way without a change of the error.
@example(seed=2, m=2, k=6, d=2, exponent=-1.09375, far=0.0)
@example(seed=151, m=5, k=6, d=1, exponent=-1.8648527242280726, far=0.0)
def test_both_margins_hold_for_any_clouds(seed, m, k, d, exponent, far):
    first, second = clouds(seed, (2, m, d)), clouds(seed + 1, (2, k, d)) + far
    solved = schrodinger_potentials(
        first, second, np.full(2, 10.0**exponent), tol=1e-7, max_iter=20_000
    )
    plans = solved.plans()
    np.testing.assert_allclose(plans.sum(axis=1), 1 / k, atol=1e-10)
    assert np.abs(plans.sum(axis=2) - 1 / m).sum(axis=1).max() <= 1.01e-7
    # Mean displacements agree from both sides: Σ_i ∇φ(x_i) / m = −Σ_j ∇ψ(y_j) / k.
    np.testing.assert_allclose(
        solved.gradients()[0].mean(axis=1),
        -solved.gradients()[1].mean(axis=1),
        atol=1e-5 * (1 + far),
    )


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
@pytest.mark.parametrize("regularization", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("distance", [0.0, 1.0, 1e3])
def test_extremes_leave_finite_numbers(tol, regularization, distance):
    first, second = clouds(9, (2, 20, 2)), clouds(10, (2, 20, 2), 0.1) + distance
    for start in (None, schrodinger_potentials(second, first, np.ones(2), tol=tol)):
        solved = schrodinger_potentials(
            first, second, np.full(2, regularization), start=start, tol=tol, max_iter=200
        )
        assert np.isfinite(solved.source).all()
        assert np.isfinite(solved.target).all()
        assert np.isfinite(solved.gradients()[0]).all()
        assert np.isfinite(solved.gradients()[1]).all()
        plans = solved.plans()
        np.testing.assert_allclose(plans.sum(axis=1), 1 / 20, rtol=1e-3)
        errors = np.abs(plans.sum(axis=2) - 1 / 20).sum(axis=1)
        np.testing.assert_allclose(solved.marginal_error, errors, rtol=1e-2, atol=1e-4)
        # A mean partner is a mean of partners.
        assert solved.source_barycentres.max() <= second.max() + 1e-6 * (1 + distance)
        assert solved.source_barycentres.min() >= second.min() - 1e-6 * (1 + distance)


def test_a_batch_is_its_pairs_one_by_one():
    first, second = clouds(15, (4, 60, 2)), clouds(16, (4, 50, 2))
    regularization = np.array([0.05, 0.2, 0.01, 1.0])
    together = schrodinger_potentials(first, second, regularization)
    for pair in range(4):
        one = slice(pair, pair + 1)
        alone = schrodinger_potentials(first[one], second[one], regularization[one])
        np.testing.assert_array_equal(together.source[one], alone.source)
        np.testing.assert_array_equal(together.gradients()[1][one], alone.gradients()[1])


def test_a_warm_start_gives_the_same_plan_in_fewer_iterations():
    rng = np.random.default_rng(17)
    first, second = branches(rng, 200)
    regularization = np.array([0.02])
    start = schrodinger_potentials(first, second, regularization, tol=1e-6)
    first, second = first + 0.003 * rng.normal(size=first.shape), second + 0.002
    cold = schrodinger_potentials(first, second, regularization, tol=1e-6)
    warm = schrodinger_potentials(first, second, regularization, start=start, tol=1e-6)
    assert np.abs(cold.plans() - warm.plans()).sum() < 1e-4
    assert warm.n_iter < cold.n_iter / 2
    same = schrodinger_potentials(first, second, regularization, start=warm, tol=1e-6)
    assert same.n_iter == 1


def test_coinciding_points_and_single_particles():
    same = np.tile(np.array([[1.0, 2.0]]), (1, 6, 1))
    solved = schrodinger_potentials(same, same, np.array([1e-3]))
    np.testing.assert_allclose(solved.plans(), 1 / 36, rtol=1e-5)
    np.testing.assert_allclose(solved.gradients()[0], 0.0, atol=1e-6)
    twice = np.concatenate([same, same + 1.0], axis=1)
    solved = schrodinger_potentials(twice, twice, np.array([0.5]), tol=1e-6)
    np.testing.assert_allclose(solved.plans()[0][:6, :6], solved.plans()[0][0, 0], rtol=1e-5)
    point, cloud = clouds(24, (1, 1, 3)), clouds(25, (1, 5, 3))
    solved = schrodinger_potentials(point, cloud, np.array([0.1]))
    np.testing.assert_allclose(solved.plans(), 0.2, rtol=1e-5)
    np.testing.assert_allclose(solved.gradients()[0][0], point[0] - cloud.mean(axis=1), atol=1e-6)


def test_no_pairs_are_no_work():
    nothing = np.empty((0, 5, 2))
    solved = schrodinger_potentials(nothing, nothing, np.empty(0))
    assert solved.n_iter == 0
    assert solved.plans().shape == (0, 5, 5)
    assert solved.gradients()[0].shape == (0, 5, 2)
    again = schrodinger_potentials(nothing, nothing, np.empty(0), start=solved)
    assert again.marginal_error.shape == (0,)


@pytest.mark.parametrize(
    ("value", "regularization", "message"),
    [(np.nan, 1.0, "finite"), (1.0, 0.0, "one positive"), (1.0, np.inf, "one positive")],
)
def test_unusable_input_is_refused(value, regularization, message):
    cloud = np.zeros((2, 4, 2))
    with pytest.raises(ValueError, match=message):
        schrodinger_potentials(cloud, cloud + value, np.array([1.0, regularization]))


# The search ---------------------------------------------------------------------------------


def test_combinations_save_nine_iterations_of_ten(monkeypatch):
    first, second = branches(np.random.default_rng(17), 200)
    combined = schrodinger_potentials(first, second, np.array([0.02]), tol=1e-6)
    monkeypatch.setattr(AndersonMixing, "next_point", lambda self: self._last[1])
    plain = schrodinger_potentials(first, second, np.array([0.02]), tol=1e-6)
    assert combined.n_iter < plain.n_iter / 10  # 17 and 290


def test_combinations_that_fail_are_given_up(monkeypatch):
    # Nonsense in place of combinations slows the search; it must not lead it astray.
    rng = np.random.default_rng(6)

    def nonsense(self):
        return self._last[0] + self._last[1] + 100.0 * rng.normal(size=len(self._last[0]))

    monkeypatch.setattr(AndersonMixing, "next_point", nonsense)
    first, second = rng.normal(size=(2, 1, 50, 2))
    solved = schrodinger_potentials(first, second, np.array([0.3]), tol=1e-4, max_iter=2000)
    assert solved.marginal_error[0] <= 1e-4


# Calls that start where the last one ended --------------------------------------------------


def test_warm_calls_come_to_the_gradients_of_the_pairs():
    """Few iterations a call are enough in the end: what is left is taken up by the next."""
    particles, spacings = clouds(2, (3, 30, 2)), np.array([0.3, 0.7])
    exact = schrodinger_potentials(particles[:-1], particles[1:], 0.05 * spacings, **TIGHT)
    coupling = WarmCoupling(tol=1e-9, max_iter=10)
    errors = [
        np.abs(np.subtract(coupling(particles, spacings, 0.05), exact.gradients())).max()
        for _ in range(60)
    ]
    assert errors[-1] < 1e-3
    assert errors[-1] < 0.05 * errors[0]
