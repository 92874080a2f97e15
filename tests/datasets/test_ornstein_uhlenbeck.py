"""The Ornstein-Uhlenbeck law against moment equations, fine Euler steps and samples."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
from skdpot.datasets.trajectories import OrnsteinUhlenbeck

FALSE_ALARM = 1e-7  # of one comparison; there are fewer than 100 in this file, and all are seeded
N = 20_000
LAW = OrnsteinUhlenbeck.of(
    mean_reversion=[2.0, 0.0, 0.5],
    mean=[0.0, 5.0, -1.0],
    diffusivity=0.3,
    initial_mean=[1.0, 0.0, 2.0],
    initial_covariance=[[0.2, 0.1, 0.0], [0.1, 0.3, 0.05], [0.0, 0.05, 0.1]],
)


def assert_moments(sample, mean, covariance):
    """Means and covariances of normal rows; a covariance's variance is s_ii·s_jj + s_ij²."""
    z = stats.norm.isf(FALSE_ALARM / (2 * covariance.size))
    variances = np.diag(covariance)
    assert np.all(np.abs(sample.mean(axis=0) - mean) < z * np.sqrt(variances / len(sample)))
    found = (sample - mean).T @ (sample - mean) / len(sample)
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / len(sample))
    assert np.all(np.abs(found - covariance) < z * spread)


def test_moments_solve_their_differential_equations():
    """m' = −θ(m − c) and S' = −θS − Sθ + τI, by a Runge-Kutta solver."""
    theta, level = np.diag(LAW.mean_reversion), LAW.mean_level

    def change(_, state):
        mean, covariance = state[:3], state[3:].reshape(3, 3)
        growth = -theta @ covariance - covariance @ theta + 0.3 * np.eye(3)
        return np.concatenate([-theta @ (mean - level), growth.ravel()])

    start = np.concatenate([LAW.initial_mean, LAW.initial_covariance.ravel()])
    times = [0.0, 0.3, 1.0, 2.5]
    solution = integrate.solve_ivp(change, (0, 3), start, t_eval=times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(LAW.mean(times), solution.y[:3].T, atol=1e-8)
    np.testing.assert_allclose(LAW.covariance(times), solution.y[3:].T.reshape(4, 3, 3), atol=1e-8)


def test_whole_paths_have_the_law():
    times = np.array([1.5, 0.0, 0.4, 0.4])
    paths = LAW.sample_paths(N, times, np.random.default_rng(0))
    assert paths.shape == (N, 4, 3)
    np.testing.assert_array_equal(paths[:, 2], paths[:, 3])
    blocks = LAW.cross_covariance(times[:3, np.newaxis], times[:3])
    covariance = blocks.transpose(0, 2, 1, 3).reshape(9, 9)
    assert_moments(paths[:, :3].reshape(N, 9), LAW.mean(times[:3]).ravel(), covariance)


def test_density_is_that_of_the_marginal():
    points = np.random.default_rng(0).normal(size=(5, 3))
    expected = stats.multivariate_normal(LAW.mean(0.7), LAW.covariance(0.7)).pdf(points)
    np.testing.assert_allclose(LAW.density(points, 0.7), expected)
    line = OrnsteinUhlenbeck.of()
    grid = np.linspace(-5, 6, 4001)
    assert np.trapezoid(line.density(grid[:, np.newaxis], 0.5), grid) == pytest.approx(1.0)
    assert line.density([[0.3]], 0.5).shape == (1,)


def test_degenerate_start_has_no_density_but_paths():
    law = OrnsteinUhlenbeck.of(n_features=2, initial_covariance=0.0, initial_mean=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"marginal at time 0\.0 is degenerate"):
        law.density([[1.0, 2.0]], 0.0)
    paths = law.sample_paths(4, [0.0, 1.0], np.random.default_rng(0))
    np.testing.assert_array_equal(paths[:, 0], np.tile([1.0, 2.0], (4, 1)))
    assert len(np.unique(paths[:, 1, 0])) == 4


def test_data_have_the_marginals_of_their_law():
    X, t, law = make_ornstein_uhlenbeck_trajectories(
        N,
        3,
        duration=2.0,
        mean_reversion=[1.0, 3.0],
        initial_mean=[2.0, -1.0],
        initial_covariance=[0.1, 0.4],
        random_state=0,
    )
    assert np.unique(t).tolist() == [0.0, 1.0, 2.0]
    for time in (0.0, 1.0, 2.0):
        assert_moments(X[t == time], law.mean(time), law.covariance(time))
    # Nobody is seen twice: rows of one position at two times are independent.
    correlation = np.corrcoef(X[t == 0.0, 0], X[t == 1.0, 0])[0, 1]
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM) / math.sqrt(N)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean_reversion": -1.0}, "mean_reversion must be at least 0"),
        ({"mean": math.nan}, "mean must be finite"),
        ({"initial_mean": np.zeros((2, 2))}, "initial_mean must be a number or have shape"),
        ({"diffusivity": -0.1}, "diffusivity=-0.1 must be finite"),
        (
            {"initial_covariance": [[1.0, 2.0], [2.0, 1.0]]},
            "initial_covariance must be finite, symmetric",
        ),
        ({"initial_covariance": np.eye(3)}, "initial_covariance must be a number"),
        ({"duration": 0.0}, "duration=0.0 must be finite, above 0"),
        ({"n_features": 0}, "n_features == 0, must be >= 1"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_ornstein_uhlenbeck_trajectories(10, 2, **options)


def test_times_and_points_that_are_refused():
    rng = np.random.default_rng(0)
    for call in (LAW.mean, LAW.covariance, lambda t: LAW.sample_paths(2, [t], rng)):
        with pytest.raises(ValueError, match="times must be finite and at least 0"):
            call(-0.1)
        with pytest.raises(ValueError, match="times must be finite and at least 0"):
            call(math.nan)
    with pytest.raises(ValueError, match="n_paths == 0, must be >= 1"):
        LAW.sample_paths(0, [0.5], rng)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
        LAW.density([[1.0, 2.0]], 0.5)
