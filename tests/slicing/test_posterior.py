"""The posterior mean: right where noise is small, better than isotonic where it is large."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.isotonic import isotonic_regression

from skdpot.slicing import posterior
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.strategy import square_root_strategy

N_BINS = 16


def noise_covariance() -> np.ndarray:
    """Covariance of the inner values of a released function, given the total."""
    full = square_root_strategy(N_BINS).covariance
    return (full - np.outer(full[:, -1], full[-1]) / full[-1, -1])[:-1, :-1]


def noisy_functions(
    truth: np.ndarray, level: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Add noise of the mechanism's covariance to functions (n_classes, n_slices, n_inner)."""
    covariance = noise_covariance()
    white = rng.standard_normal(truth.shape)
    return truth + level * white @ np.linalg.cholesky(covariance).T, covariance


def class_functions(points: np.ndarray, directions: np.ndarray, spread: float) -> np.ndarray:
    """Gaussian classes at `points`, of equal spread."""
    edges = np.linspace(-1, 1, N_BINS + 1)[1:-1]
    return norm.cdf((edges - (points @ directions.T)[:, :, None]) / spread)


def estimate(noisy, covariance, level, directions):
    n_classes = len(noisy)
    return posterior.posterior_mean(
        noisy,
        covariance,
        np.full(n_classes, level),
        np.full(n_classes, 1 / n_classes),
        directions,
        np.ones(len(directions)),
    )


def rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.mean(difference**2)))


@pytest.mark.parametrize("n_classes", [1, 6])
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_it_beats_isotonic_regression_on_noisy_gaussian_classes(n_classes, level):
    rng = np.random.default_rng(0)
    directions = orthogonal_directions(8, 8, rng)
    points = 0.12 * rng.standard_normal((n_classes, 8))
    truth = class_functions(points, directions, 0.15)
    noisy, covariance = noisy_functions(truth, level, rng)
    isotonic = np.array(
        [isotonic_regression(row, y_min=0, y_max=1) for row in noisy.reshape(-1, N_BINS - 1)]
    ).reshape(noisy.shape)
    shrunk = estimate(noisy, covariance, level, directions)
    assert rms(shrunk - truth) < 0.7 * rms(isotonic - truth)


@pytest.mark.parametrize("level", [1e-4, 1e-3, 1e-2])
def test_what_is_not_gaussian_survives_small_noise(level):
    rng = np.random.default_rng(1)
    directions = orthogonal_directions(32, 4, rng)
    edges = np.linspace(-1, 1, N_BINS + 1)[1:-1]
    # Two narrow bumps: as far from a Gaussian as distribution functions get.
    centres = 0.5 * directions[:, 0]
    truth = 0.5 * sum(norm.cdf((edges - s * centres[:, None]) / 0.05) for s in (-1, 1))[None]
    noisy, covariance = noisy_functions(truth, level, rng)
    shrunk = estimate(noisy, covariance, level, directions)
    assert rms(shrunk - truth) < 1.05 * rms(noisy - truth)


def test_it_tends_to_the_release_as_noise_vanishes():
    rng = np.random.default_rng(2)
    directions = orthogonal_directions(8, 4, rng)
    truth = np.sort(rng.uniform(size=(2, 8, N_BINS - 1)), axis=2)
    distances = [
        rms(estimate(truth, noise_covariance(), level, directions) - truth)
        for level in (1e-2, 1e-4, 1e-6)
    ]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


def test_the_prior_is_the_covariance_of_a_dirichlet_process():
    # 200,000 draws: the standard error of each covariance is below 0.4 % of the largest.
    rng = np.random.default_rng(3)
    masses = np.array([0.1, 0.3, 0.4, 0.2])
    mass = 9.0
    draws = np.cumsum(rng.dirichlet(mass * masses, size=200_000), axis=1)[:, :-1]
    gaussian = np.cumsum(masses)[None, :-1]
    stated = posterior._bridges(gaussian, np.eye(3))[0] / (mass + 1)
    np.testing.assert_allclose(np.cov(draws.T), stated, atol=0.02 * stated.max())


def test_concentration_is_recovered_from_released_functions():
    rng = np.random.default_rng(4)
    covariance = noise_covariance()
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    gaussian = np.tile(norm.cdf(np.linspace(-2, 2, N_BINS - 1)), (400, 1))
    low, high = (f(gaussian[0][:, None], gaussian[0]) for f in (np.minimum, np.maximum))
    root = np.linalg.cholesky(low * (1 - high))
    level, tau = 0.01, 0.01
    difference = np.sqrt(tau) * rng.standard_normal(gaussian.shape) @ root.T
    noisy, _ = noisy_functions(gaussian + difference, level, rng)
    found = posterior._concentration(
        (noisy - gaussian) @ whiten.T, gaussian, np.full(400, level), whiten
    )
    assert tau / 1.5 < found < tau * 1.5


def test_blocks_give_the_same_as_one_pass(monkeypatch):
    rng = np.random.default_rng(5)
    directions = orthogonal_directions(24, 4, rng)
    truth = class_functions(0.1 * rng.standard_normal((3, 4)), directions, 0.2)
    noisy, covariance = noisy_functions(truth, 0.05, rng)
    whole = estimate(noisy, covariance, 0.05, directions)
    monkeypatch.setattr(posterior, "_BLOCK_ELEMENTS", 1)
    np.testing.assert_allclose(estimate(noisy, covariance, 0.05, directions), whole, atol=1e-12)
