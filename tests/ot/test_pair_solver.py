"""The parts of the search for potentials: kernel, combination of iterations, Gaussian start."""

import numpy as np
import pytest
from scipy.special import logsumexp

from skdpot.ot.sinkhorn import (
    AndersonMixing,
    Pair,
    PairSolver,
    ScaledKernel,
    gaussian_potentials,
    kernel_type,
)


def half_squared(first, second):
    return ((first[:, None] - second[None]) ** 2).sum(axis=-1) / 2


def by_definition(first, second, regularization, source):
    exponent = source[:, None] - half_squared(first, second) / regularization
    target = np.log(len(first)) - logsumexp(exponent, axis=0)
    excess = logsumexp(exponent + target, axis=1) - np.log(len(second))
    return target, source - excess, np.abs(np.exp(excess) - 1).mean()


def kernel_of(first, second, regularization, tol, source=None, target=None):
    memory = np.empty((len(first), len(second)), kernel_type(tol))
    source = np.zeros(len(first)) if source is None else source
    target = np.zeros(len(second)) if target is None else target
    return ScaledKernel(Pair(first, second, regularization), source, target, tol, memory)


@pytest.mark.parametrize(("tol", "close"), [(1e-3, 1e-4), (1e-5, 1e-6), (1e-8, 1e-11)])
@pytest.mark.parametrize("regularization", [0.5, 0.01])
def test_an_iteration_is_the_one_by_definition(tol, close, regularization):
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(60, 3)) + 7.0, 0.9 * rng.normal(size=(50, 3)) + 7.0
    source, target = (p / regularization for p in gaussian_potentials(Pair(first, second, 0.5)))
    kernel = kernel_of(first, second, regularization, tol, source, target)
    for _ in range(20):
        half = kernel.half_steps(source)
        b, following, error = by_definition(first, second, regularization, source)
        if np.isfinite(half.error):
            np.testing.assert_allclose(half.target, b, atol=close)
            np.testing.assert_allclose(half.source, following, atol=close)
            assert half.error == pytest.approx(error, abs=close)
        source = half.source
    assert np.isfinite(half.error)


def test_a_kernel_without_a_usable_entry_falls_back_to_logarithms():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 100.0
    kernel = kernel_of(first, second, 1e-2, 1e-3)  # every entry is exp(−10⁶)
    half = kernel.half_steps(np.zeros(20))
    b, following, error = by_definition(first, second, 1e-2, np.zeros(20))
    np.testing.assert_allclose(half.target, b, rtol=1e-9)
    np.testing.assert_allclose(half.source, following, rtol=1e-9, atol=1e-6)
    assert half.error == pytest.approx(error)
    again = kernel.half_steps(half.source)  # now around potentials that fit
    assert np.isfinite(again.source).all()


def test_far_scalings_are_absorbed_and_their_error_is_not_believed():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    kernel = kernel_of(first, second, 1.0, 1e-3)
    far = 20.0 * rng.normal(size=30)
    half = kernel.half_steps(far)
    assert half.error == np.inf
    b, following, error = by_definition(first, second, 1.0, half.source)
    again = kernel.half_steps(half.source)
    np.testing.assert_allclose(again.source, following, atol=1e-4)
    assert again.error == pytest.approx(error, abs=1e-4)


def test_combining_iterations_solves_a_linear_map_in_as_many_steps_as_it_has_modes():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    modes = np.zeros(40)
    modes[:4] = [0.9999, 0.99, 0.9, 0.5]
    slope, shift = basis @ np.diag(modes) @ basis.T, rng.normal(size=40)
    solution = np.linalg.solve(np.eye(40) - slope, shift)
    mixing, point = AndersonMixing(40, 6), np.zeros(40)
    for _ in range(8):
        image = slope @ point + shift
        mixing.record(point, image)
        point = mixing.next_point()
    assert np.linalg.norm(point - solution) < 1e-4 * np.linalg.norm(solution)


def test_nothing_to_combine_leaves_the_last_iteration():
    mixing = AndersonMixing(3, 2)
    with pytest.raises(RuntimeError, match="Record an iteration"):
        mixing.next_point()
    mixing.record(np.zeros(3), np.ones(3))
    np.testing.assert_array_equal(mixing.next_point(), np.ones(3))
    mixing.record(np.ones(3), np.full(3, 1.5))
    assert not np.array_equal(mixing.next_point(), np.full(3, 1.5))
    mixing.clear()
    mixing.record(np.zeros(3), np.ones(3))
    np.testing.assert_array_equal(mixing.next_point(), np.ones(3))


def test_a_stalled_iteration_is_combined_without_a_division_by_zero():
    mixing, point = AndersonMixing(3, 2), np.ones(3)
    for _ in range(4):
        mixing.record(point, point)
        assert np.isfinite(mixing.next_point()).all()


@pytest.mark.parametrize("regularization", [1e-3, 0.1, 10.0])
def test_gaussian_potentials_have_gaussian_margins(regularization):
    # exp((φ + ψ − c) / ε) μ ⊗ ν has the margin μ: its log-integral over y does not depend on x.
    rng = np.random.default_rng(4)
    first = rng.normal(size=(30, 2)) @ np.array([[1.0, 0.3], [0.0, 0.5]]) + 1.0
    second = rng.normal(size=(30, 2)) @ np.array([[0.4, 0.0], [0.2, 1.0]]) - 2.0
    source, _ = gaussian_potentials(Pair(first, second, regularization))
    mean, covariance = second.mean(axis=0), np.cov(second.T, bias=True)
    # ψ is a quadratic: read it off its values.
    _, target = gaussian_potentials(Pair(first, second, regularization))
    design = quadratic_features(second)
    coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
    hessian = np.array(
        [[2 * coefficients[3], coefficients[4]], [coefficients[4], 2 * coefficients[5]]]
    )
    linear = coefficients[1:3]
    precision = np.linalg.inv(covariance) + (np.eye(2) - hessian) / regularization
    vector = np.linalg.inv(covariance) @ mean + (first + linear) / regularization
    exponent = np.einsum("ij,jk,ik->i", vector, np.linalg.inv(precision), vector) / 2
    exponent += (source - (first**2).sum(axis=1) / 2) / regularization
    np.testing.assert_allclose(exponent, exponent.mean(), atol=1e-6 * (1 + 1 / regularization))


def quadratic_features(points):
    x, y = points.T
    return np.stack([np.ones(len(x)), x, y, x**2, x * y, y**2], axis=1)


def test_clouds_without_extent_have_gaussian_potentials():
    for first in (np.ones((4, 2)), np.zeros((1, 2)), np.outer(np.arange(4.0), [1.0, 2.0])):
        for second in (np.full((3, 2), 2.0), np.outer(np.arange(3.0), [1.0, 0.0])):
            for potential in gaussian_potentials(Pair(first, second, 1e-3)):
                assert np.isfinite(potential).all()


def test_a_cold_start_between_gaussian_clouds_takes_few_iterations():
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(500, 2)), rng.normal(size=(500, 2)) @ np.diag([0.3, 2.0])
    solution = PairSolver(500, 500, 1e-2, 100).solve(Pair(first, second + 3.0, 1.0))
    assert solution.error <= 1e-2
    assert solution.n_iter <= 2


def test_combinations_that_fail_are_given_up(monkeypatch):
    # Nonsense in place of combinations slows the search; it must not lead it astray.
    rng = np.random.default_rng(6)

    def nonsense(self):
        return self._last[0] + self._last[1] + 100.0 * rng.normal(size=len(self._last[0]))

    monkeypatch.setattr(AndersonMixing, "next_point", nonsense)
    first, second = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    solution = PairSolver(50, 50, 1e-4, 2000).solve(Pair(first, second, 0.3))
    assert solution.error <= 1e-4
