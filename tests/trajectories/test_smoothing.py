"""Smoothing in time: the likeliest Gaussian process, found on another route."""

import math

import numpy as np
import pytest

from skdpot.trajectories.smoothing import smoothing_weights

TIMES = np.array([0.0, 0.05, 0.2, 0.3, 0.45, 0.5, 0.7, 0.85, 0.9, 1.0])
VARIANCES = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 4.0, 1.0, 1.0, 0.3, 1.0])


def matern(times, reach):
    """Of order 5/2, written out."""
    steps = np.abs(np.subtract.outer(times, times)) * math.sqrt(5) / reach
    return (1 + steps + steps**2 / 3) * np.exp(-steps)


def series(n, reach, noise, seed=0, times=TIMES, variances=VARIANCES):
    """Smooth random functions with unknown means, and what is seen of them."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(matern(times, reach) + 1e-10 * np.eye(len(times)))
    truth = 3 * rng.standard_normal(n) + root @ rng.standard_normal((len(times), n))
    errors = rng.standard_normal(truth.shape) * np.sqrt(noise * variances)[:, None]
    return truth, truth + errors


def misfit(values, covariance):
    """Minus twice the restricted log-likelihood of Patterson and Thompson, its dense formula.

    The amplitude is at its best value; additive constants are left out.
    """
    n_times, n = values.shape
    ones = np.ones((n_times, 1))
    inverse = np.linalg.inv(covariance)
    information = ones.T @ inverse @ ones
    means = np.linalg.solve(information, ones.T @ inverse @ values)
    rest = values - ones @ means
    amplitude = np.einsum("tn,ts,sn->", rest, inverse, rest) / (n * (n_times - 1))
    determinants = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(information)[1]
    return n * (determinants + (n_times - 1) * math.log(amplitude))


def krige(covariance, signal):
    """Best linear unbiased prediction with an unknown mean, textbook formula."""
    n_times = len(signal)
    ones = np.ones((n_times, 1))
    inverse = np.linalg.inv(covariance)
    mean = np.linalg.solve(ones.T @ inverse @ ones, ones.T @ inverse)
    return ones @ mean + signal @ inverse @ (np.eye(n_times) - ones @ mean)


def test_a_node_of_the_grid_is_found_exactly():
    """The likeliest of all nodes, by dense formulas."""
    _, values = series(60, 0.4, 0.2)
    noise = np.diag(VARIANCES / VARIANCES.mean())
    nodes = [
        (matern(TIMES, reach), ratio)
        for reach in np.geomspace(1 / 9, 3.0, 16)
        for ratio in np.geomspace(1e-5, 1e2, 36)
    ]
    signal, ratio = min(nodes, key=lambda node: misfit(values, node[0] + node[1] * noise))
    weights = smoothing_weights(values @ values.T, TIMES, VARIANCES)
    np.testing.assert_allclose(weights, krige(signal + ratio * noise, signal), atol=1e-8)


def test_units_of_times_values_and_variances_do_not_matter():
    _, values = series(50, 0.5, 0.3)
    weights = smoothing_weights(values @ values.T, TIMES, VARIANCES)
    scaled = 1e4 * values + 7e4 * np.random.default_rng(1).standard_normal(50)
    again = smoothing_weights(scaled @ scaled.T, 365 * TIMES - 20, 1e-7 * VARIANCES)
    np.testing.assert_allclose(again, weights, atol=1e-6)


UNRELATED = {
    "drawn anew each time": np.random.default_rng(2).standard_normal((10, 500)),
    "there and back": np.where(np.arange(10)[:, None] % 2, 1.0, -1.0)
    * np.random.default_rng(3).standard_normal(500),
}


@pytest.mark.parametrize("name", UNRELATED)
def test_times_that_have_nothing_in_common_are_left_alone(name):
    """Whatever changes without order looks like noise; how much noise there is, is known."""
    values, times = UNRELATED[name], np.linspace(0, 1, 10)
    products = values @ values.T
    weights = smoothing_weights(products, times, np.ones(10), largest_noise=1e-4 * 500)
    np.testing.assert_allclose(weights, np.eye(10), atol=0.01)
    # Without that knowledge they are averaged to nothing.
    assert np.diag(smoothing_weights(products, times, np.ones(10))).max() < 0.2


def test_a_level_of_noise_below_the_real_one_is_kept_to():
    _, values = series(300, 0.5, 0.5)
    products = values @ values.T
    traces = [
        np.trace(smoothing_weights(products, TIMES, VARIANCES, largest_noise=level * 300))
        for level in (1e-6, 1e-2, 0.1, np.inf)
    ]
    assert traces[0] > 9.9
    assert traces == sorted(traces, reverse=True)


@pytest.mark.parametrize(("reach", "noise"), [(0.5, 0.05), (0.5, 1.0), (1.5, 0.3), (0.2, 0.05)])
def test_smoothing_comes_nearer_to_the_truth(reach, noise):
    truth, values = series(300, reach, noise, seed=5)
    weights = smoothing_weights(values @ values.T, TIMES, VARIANCES)
    before, after = (np.mean((found - truth) ** 2) for found in (values, weights @ values))
    assert after < 0.97 * before
    # And nearly as near as one who knows the law.
    signal = matern(TIMES, reach)
    known = krige(signal + noise * np.diag(VARIANCES), signal) @ values
    assert after < 1.15 * np.mean((known - truth) ** 2)
