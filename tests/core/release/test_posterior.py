"""The posterior mean: right where noise is small, better than isotonic where it is large."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.isotonic import isotonic_regression

from skdpot.ot.directions import orthogonal_directions
from skdpot.release import decoding
from skdpot.release.strategy import strategy_of

N_BINS = 16


def noise_covariance(n_bins: int = N_BINS) -> np.ndarray:
    """Covariance of the inner values of a released function, given the total."""
    full = strategy_of(n_bins).covariance
    return (full - np.outer(full[:, -1], full[-1]) / full[-1, -1])[:-1, :-1]


def noisy_functions(
    truth: np.ndarray, level: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Add noise of the mechanism's covariance to functions (n_classes, n_projections, n_inner)."""
    covariance = noise_covariance(truth.shape[2] + 1)
    white = rng.standard_normal(truth.shape)
    return truth + level * white @ np.linalg.cholesky(covariance).T, covariance


def inner_edges(n_bins: int = N_BINS) -> np.ndarray:
    return np.linspace(-1, 1, n_bins + 1)[1:-1]


def class_functions(points: np.ndarray, directions: np.ndarray, spread: float) -> np.ndarray:
    """Gaussian classes at `points`, of equal spread."""
    return norm.cdf((inner_edges() - (points @ directions.T)[:, :, None]) / spread)


def estimate(noisy, covariance, level, directions):
    n_classes = len(noisy)
    return decoding.posterior_mean(
        noisy,
        covariance,
        np.full(n_classes, level),
        np.full(n_classes, 1 / n_classes),
        directions,
        np.ones(len(directions)),
    )


def isotonic(noisy: np.ndarray) -> np.ndarray:
    rows = noisy.reshape(-1, noisy.shape[-1])
    return np.array([isotonic_regression(r, y_min=0, y_max=1) for r in rows]).reshape(noisy.shape)


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
    shrunk = estimate(noisy, covariance, level, directions)
    assert rms(shrunk - truth) < 0.7 * rms(isotonic(noisy) - truth)
