"""Schrödinger potentials against POT, closed forms, finite differences, and extremes."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.sinkhorn import schrodinger_potentials

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


def test_cross_covariance_of_gaussian_clouds_is_the_closed_form():
    # Janati et al. 2020: ½ (4 A^½ B A^½ + ε² I)^½ A^-½ ... in one dimension √(ab + ε²/4) − ε/2.
    # Normal quantiles stand for the laws: no sampling error.
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(3000) + 0.5) / 3000)[None, :, None]
    first, second = 0.5 * quantiles, 1.5 * quantiles + 2.0
    epsilon = 0.6
    solved = schrodinger_potentials(first, second, np.array([epsilon]), tol=1e-6)
    a, b = first.var(), second.var()
    covariance = np.mean((first - first.mean()) * (solved.source_barycentres - second.mean()))
    assert covariance == pytest.approx(np.sqrt(a * b + epsilon**2 / 4) - epsilon / 2, rel=2e-3)


def test_many_gaussian_points_in_two_dimensions_have_the_closed_form_slope():
    m, epsilon = 1500, 0.5
    rng = np.random.default_rng(4)
    first = rng.normal(size=(m, 2)) @ np.array([[1.0, 0.4], [0.0, 0.6]])
    second = rng.normal(size=(m, 2)) @ np.array([[0.5, -0.2], [0.0, 1.2]])
    solved = schrodinger_potentials(first[None], second[None], np.array([epsilon]), tol=1e-5)
    x, images = first - first.mean(axis=0), solved.source_barycentres[0]
    cross = x.T @ (images - images.mean(axis=0)) / m
    A, B = np.cov(first.T, bias=True), np.cov(second.T, bias=True)
    root = np.linalg.cholesky(A)
    values, vectors = np.linalg.eigh(root.T @ B @ root + epsilon**2 / 4 * np.eye(2))
    middle = vectors @ np.diag(np.sqrt(values) - epsilon / 2) @ vectors.T
    expected = root @ middle @ np.linalg.inv(root)
    assert np.linalg.norm(cross - expected) < 0.05 * np.linalg.norm(expected)


def test_potentials_solve_the_schrodinger_system_on_a_quadrature():
    # Uniform laws on [0, 1] and [0, 1]: midpoints are a quadrature of the integral equations,
    # solved here by iterating them in plain floating point, without any of the package's code.
    x = (np.arange(400) + 0.5) / 400
    epsilon = 0.05
    kernel = np.exp(-((x[:, None] - x) ** 2) / 2 / epsilon)
    u = np.ones(400)
    for _ in range(2000):
        u = np.sqrt(u / (kernel @ u / 400))  # symmetric, so both potentials are the same
    phi = epsilon * np.log(u)
    solved = schrodinger_potentials(
        x[None, :, None], x[None, :, None], np.array([epsilon]), **TIGHT
    )
    shift = (solved.source - solved.target).mean() / 2
    np.testing.assert_allclose(solved.source[0] - shift, phi, atol=1e-8)
    np.testing.assert_allclose(solved.target[0] + shift, phi, atol=1e-8)


def extended(points, others, potential, regularization):
    """Softmin formula, by definition."""
    exponent = (potential - half_squared(points, others)) / regularization
    return -regularization * np.log(np.exp(exponent).mean(axis=1))


def test_gradients_are_those_of_the_extended_potentials():
    first, second = clouds(5, (1, 25, 3)), clouds(6, (1, 20, 3))
    epsilon = 0.4
    solved = schrodinger_potentials(first, second, np.array([epsilon]), tol=1e-7)
    step = 1e-5
    for gradients, points, others, potential in [
        (solved.gradients()[0], first[0], second[0], solved.target[0]),
        (solved.gradients()[1], second[0], first[0], solved.source[0]),
    ]:
        for feature in range(3):
            moved = step * np.eye(3)[feature]
            difference = extended(points + moved, others, potential, epsilon)
            difference -= extended(points - moved, others, potential, epsilon)
            np.testing.assert_allclose(gradients[0][:, feature], difference / (2 * step), atol=1e-7)


def test_gradients_are_those_of_the_value_with_respect_to_the_particles():
    # The envelope theorem: m ∂/∂x_i of the minimal value is ∇φ(x_i).
    first, second = clouds(7, (1, 8, 2)), clouds(8, (1, 9, 2))
    epsilon = np.array([0.3])

    def value(x):
        solved = schrodinger_potentials(x, second, epsilon, **TIGHT)
        return solved.source.mean() + solved.target.mean()

    gradients = schrodinger_potentials(first, second, epsilon, **TIGHT).gradients()[0]
    for index in [(0, 0, 0), (0, 3, 1), (0, 7, 0)]:
        moved = np.zeros(first.shape)
        moved[index] = 1e-4
        slope = (value(first + moved) - value(first - moved)) / 2e-4
        assert gradients[index] == pytest.approx(8 * slope, abs=1e-5)


@given(
    seed=st.integers(0, 2**32),
    m=st.integers(1, 12),
    k=st.integers(1, 12),
    d=st.integers(1, 3),
    exponent=st.floats(-2, 3),
    far=st.floats(0, 30),
)
@settings(max_examples=40, deadline=None)
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


def test_small_regularization_approaches_the_exact_plan():
    first, second = clouds(11, (1, 40, 2)), clouds(12, (1, 40, 2))
    solved = schrodinger_potentials(first, second, np.array([3e-4]), tol=1e-4, max_iter=20_000)
    exact = ot.emd2([], [], half_squared(first[0], second[0]))
    cost = (solved.plans()[0] * half_squared(first[0], second[0])).sum()
    assert solved.marginal_error[0] <= 1e-4
    assert cost == pytest.approx(exact, rel=5e-3)


def test_an_early_stop_tells_its_error():
    first, second = clouds(13, (1, 50, 2)), clouds(14, (1, 50, 2))
    solved = schrodinger_potentials(first, second, np.array([0.01]), tol=1e-8, max_iter=3)
    rows = solved.plans()[0].sum(axis=1)
    assert solved.n_iter == 3
    assert solved.marginal_error[0] > 1e-4
    assert solved.marginal_error[0] == pytest.approx(np.abs(rows - 1 / 50).sum(), rel=1e-4)


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


def test_a_start_may_have_had_another_regularization():
    first, second = clouds(18, (2, 40, 2)), clouds(19, (2, 40, 2))
    start = schrodinger_potentials(first, second, np.full(2, 1.0))
    warm = schrodinger_potentials(first, second, np.full(2, 0.05), start=start, **TIGHT)
    cold = schrodinger_potentials(first, second, np.full(2, 0.05), **TIGHT)
    np.testing.assert_allclose(warm.plans(), cold.plans(), atol=1e-8)


def test_mass_that_must_pass_between_clusters_takes_few_iterations():
    # Plain iterations move a cluster's potential by about ε each: thousands of them.
    first, second = branches(np.random.default_rng(20), 200)
    epsilon = 0.02
    solved = schrodinger_potentials(first, second, np.array([epsilon]), max_iter=30)
    assert solved.marginal_error[0] <= 1e-3
    density = np.exp(-half_squared(first[0], second[0]) / epsilon)
    u = np.ones(200)
    for _ in range(300):
        v = 200 / (u @ density)
        sums = density @ v / 200
        error = np.abs(u * sums - 1).mean()
        u = 1 / sums
    assert error > 3e-3


def test_potentials_move_with_their_clouds():
    first, second = clouds(21, (1, 300, 2)), clouds(22, (1, 300, 2))
    solved = schrodinger_potentials(first, second, np.array([0.3]), tol=1e-6)
    shifts = []
    for step in (1e-2, 1e-3):
        moved = first + step * clouds(23, first.shape), second + step
        source, target = solved.moved_to(*moved)
        true = extended(moved[0][0], second[0], solved.target[0], 0.3)
        shifts.append(np.abs(source[0] - true).max())
        assert target.shape == (1, 300)
    assert shifts[0] < 1e-3
    assert shifts[1] < 2e-2 * shifts[0]  # an error of second order


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


def test_the_given_arrays_are_left_alone():
    first, second = clouds(26, (1, 10, 2)), clouds(27, (1, 10, 2))
    copies = first.copy(), second.copy()
    start = schrodinger_potentials(first, second, np.array([0.1]))
    kept = start.source.copy()
    schrodinger_potentials(first, second + 0.1, np.array([0.1]), start=start)
    np.testing.assert_array_equal(first, copies[0])
    np.testing.assert_array_equal(second, copies[1])
    np.testing.assert_array_equal(start.source, kept)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"second": np.full((2, 4, 2), np.nan)}, "finite"),
        ({"regularization": np.array([1.0, 0.0])}, "one positive finite number"),
        ({"regularization": np.array([1.0, np.inf])}, "one positive finite number"),
    ],
)
def test_unusable_input_is_refused(changes, message):
    given = {
        "first": np.zeros((2, 4, 2)),
        "second": np.ones((2, 4, 2)),
        "regularization": np.ones(2),
        "tol": 1e-3,
        "max_iter": 10,
    } | changes
    with pytest.raises(ValueError, match=message):
        schrodinger_potentials(
            given["first"],
            given["second"],
            given["regularization"],
            tol=given["tol"],
            max_iter=given["max_iter"],
        )


def test_a_point_that_no_other_is_near_has_a_finite_partner():
    # Warm starts of clouds that are thrown about leave rows of the kernel that underflow.
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 1, 40, 2))
    last = None
    for _ in range(20):
        last = schrodinger_potentials(
            first, second, np.array([1e-3]), start=last, tol=1e-2, max_iter=1
        )
        assert np.isfinite(last.gradients()[0]).all()
        assert np.isfinite(last.gradients()[1]).all()
        # Barycentres are means of the other cloud's points.
        nearest = first - last.gradients()[0]
        assert (nearest <= second.max(axis=1) + 1e-3).all()  # single precision
        assert (nearest >= second.min(axis=1) - 1e-3).all()
        first, second = (
            first + 30 * rng.normal(size=first.shape),
            second + 30 * rng.normal(size=second.shape),
        )
