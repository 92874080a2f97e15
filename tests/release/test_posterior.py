"""The posterior mean: right where noise is small, better than isotonic where it is large."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.isotonic import isotonic_regression

from skdpot.ot.slices import orthogonal_directions
from skdpot.release import decoding
from skdpot.release.decoding import square_root_strategy

N_BINS = 16


def noise_covariance(n_bins: int = N_BINS) -> np.ndarray:
    """Covariance of the inner values of a released function, given the total."""
    full = square_root_strategy(n_bins).covariance
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


def two_bumps(directions: np.ndarray, n_bins: int = N_BINS, share: float = 0.5) -> np.ndarray:
    """Two narrow clusters on the first axis: as far from a Gaussian as functions get."""
    centres = 0.5 * directions[:, 0]
    bumps = [norm.cdf((inner_edges(n_bins) - s * centres[:, None]) / 0.05) for s in (-1, 1)]
    return ((1 - share) * bumps[0] + share * bumps[1])[None]


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


def test_many_slices_of_a_gaussian_stay_gaussian():
    """No freedom for what is not there: far less error than by monotonicity alone."""
    rng = np.random.default_rng(9)
    directions = orthogonal_directions(256, 16, rng)
    truth = class_functions(np.zeros((1, 16)), directions, 0.2)
    noisy, covariance = noisy_functions(truth, 0.05, rng)
    shrunk = estimate(noisy, covariance, 0.05, directions)
    assert rms(shrunk - truth) < 0.4 * rms(isotonic(noisy) - truth)


@pytest.mark.parametrize("level", [1e-4, 1e-3, 1e-2])
def test_what_is_not_gaussian_survives_small_noise(level):
    rng = np.random.default_rng(1)
    directions = orthogonal_directions(32, 4, rng)
    truth = two_bumps(directions)
    noisy, covariance = noisy_functions(truth, level, rng)
    shrunk = estimate(noisy, covariance, level, directions)
    assert rms(shrunk - truth) < 1.05 * rms(noisy - truth)


@pytest.mark.parametrize("share", [0.05, 0.25])
def test_a_cluster_in_the_tail_is_not_lost(share):
    rng = np.random.default_rng(6)
    directions = orthogonal_directions(40, 2, rng)
    truth = two_bumps(directions, 32, share)
    noisy, covariance = noisy_functions(truth, 0.001, rng)
    shrunk = np.clip(isotonic(estimate(noisy, covariance, 0.001, directions)), 0, 1)
    assert np.abs(shrunk - truth).max() < 0.01


def test_neighbouring_directions_share_what_they_show():
    """In the plane 128 directions are close together; alone, each would keep its noise."""
    rng = np.random.default_rng(7)
    directions = orthogonal_directions(128, 2, rng)
    truth = two_bumps(directions)
    noisy, covariance = noisy_functions(truth, 0.03, rng)
    together = rms(estimate(noisy, covariance, 0.03, directions) - truth)
    alone = [
        estimate(noisy[:, [j]], covariance, 0.03, directions[[j]]) - truth[:, [j]]
        for j in range(0, 128, 4)
    ]
    assert together < 0.75 * rms(np.array(alone))


def test_directions_that_are_not_alike_are_not_made_alike():
    rng = np.random.default_rng(8)
    directions = orthogonal_directions(64, 32, rng)
    truth = np.cumsum(rng.dirichlet(np.full(N_BINS, 0.3), size=(1, 64)), axis=2)[..., :-1]
    noisy, covariance = noisy_functions(truth, 0.01, rng)
    shrunk = estimate(noisy, covariance, 0.01, directions)
    assert rms(shrunk - truth) < 1.05 * rms(noisy - truth)


def test_axes_have_their_own_prior_where_they_differ():
    """Single features that are two-valued, mixtures that are Gaussian, as pixels are."""
    rng = np.random.default_rng(10)
    others = orthogonal_directions(96, 32, rng)
    directions = np.vstack([np.eye(32), others])
    truth = class_functions(np.zeros((1, 32)), directions, 0.2)
    truth[:, :32] = np.select([inner_edges() < -0.6, inner_edges() < 0.6], [0.0, 0.5], 1.0)
    noisy, covariance = noisy_functions(truth, 0.03, rng)
    shrunk = estimate(noisy, covariance, 0.03, directions)
    alone = estimate(noisy[:, 32:], covariance, 0.03, others)
    assert rms((shrunk - truth)[:, 32:]) < 1.5 * rms(alone - truth[:, 32:])
    assert rms((shrunk - truth)[:, :32]) < 0.85 * rms((noisy - truth)[:, :32])


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
    masses = np.array([[0.1, 0.3, 0.4, 0.2], [0.5, 0.2, 0.2, 0.1]])
    mass = 9.0
    covariances = [
        np.cov(np.cumsum(rng.dirichlet(mass * m, size=200_000), axis=1)[:, :-1].T) for m in masses
    ]
    stated = decoding._bridge(np.cumsum(masses, axis=1)[:, :-1]) / (mass + 1)
    np.testing.assert_allclose(np.mean(covariances, axis=0), stated, atol=0.02 * stated.max())


def test_the_prior_is_recovered_from_functions_drawn_from_it():
    rng = np.random.default_rng(4)
    directions = orthogonal_directions(192, 3, rng)
    covariance, edges = noise_covariance(), inner_edges()
    z = np.tile(4 * edges, (1, 192, 1))
    tau, length, nugget, level = 0.01, 0.5, 0.1, 0.005
    kernel = (1 - nugget) * decoding._kernel(directions, length) + nugget * np.eye(192)
    shapes = np.linalg.cholesky(decoding._bridge(norm.cdf(z[0])) + 1e-12 * np.eye(N_BINS - 1))
    draws = rng.standard_normal((192, N_BINS - 1))
    difference = np.sqrt(tau) * np.linalg.cholesky(kernel) @ draws @ shapes.T
    noisy, _ = noisy_functions(difference[None], level, rng)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    found = decoding._fitted(
        decoding._Whitened(noisy @ whiten.T, np.array([level]), whiten), z, directions
    )
    assert tau / 1.6 < found.tau < tau * 1.6
    assert 0.03 <= found.nugget <= 0.3
    assert 0.15 <= found.length <= 1.5


def test_gain_is_gaussian_conditioning():
    """Against the textbook formula with the whole covariance, slices times edges."""
    rng = np.random.default_rng(11)
    directions = orthogonal_directions(6, 6, rng)  # one block: noise counts in full
    covariance, edges = noise_covariance(), inner_edges()
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    z, noise = np.tile(3 * edges, (1, 6, 1)), np.array([0.05])
    difference = 0.1 * rng.standard_normal((1, 6, N_BINS - 1))
    residual = decoding._Whitened(difference @ whiten.T, noise, whiten)
    kept, deviations = decoding._smoothed(residual, z, directions)
    ((_, prior),) = decoding._priors(residual, z, directions)
    (values, vectors) = prior.bases[0]
    kernel = decoding._kernel(directions, prior.length)
    kernel = (1 - prior.nugget) * kernel + prior.nugget * np.eye(6)
    root = np.linalg.cholesky(covariance)
    shapes = root @ (vectors * values) @ vectors.T @ root.T
    joint = prior.tau * np.kron(kernel, shapes)
    gain = joint @ np.linalg.inv(joint + 0.05**2 * np.kron(np.eye(6), covariance))
    np.testing.assert_allclose((kept @ root.T).ravel(), gain @ difference.ravel(), atol=1e-8)
    variances = np.diag(joint - gain @ joint)
    np.testing.assert_allclose(deviations.ravel(), np.sqrt(variances), atol=1e-8)


def test_only_doubtful_excess_of_mass_in_tails_is_trimmed():
    """One deviation, less where the excess is larger, nothing from five deviations on."""
    gaussian = np.array([0.0, 0.0, 0.0, 0.0, 0.3, 1.0, 1.0, 0.005])
    differences = np.array([0.01, 0.006, 0.001, -0.001, 0.002, -0.006, 0.001, 0.006])
    trimmed = decoding._trimmed(differences, np.full(8, 0.002), gaussian)
    expected = [0.01, 0.005, 0, -0.001, 0.002, -0.005, 0.001, 0.006 - 0.001 * (1 - 0.24875)]
    np.testing.assert_allclose(trimmed, expected, atol=1e-12)


def test_too_many_directions_are_estimated_in_blocks(monkeypatch):
    rng = np.random.default_rng(5)
    directions = orthogonal_directions(48, 4, rng)
    truth = class_functions(0.1 * rng.standard_normal((3, 4)), directions, 0.2)
    noisy, covariance = noisy_functions(truth, 0.05, rng)
    whole = estimate(noisy, covariance, 0.05, directions)
    monkeypatch.setattr(decoding, "_MOST_TOGETHER", 20)
    in_blocks = estimate(noisy, covariance, 0.05, directions)
    assert rms(in_blocks - truth) < 1.2 * rms(whole - truth)
    monkeypatch.setattr(decoding, "_MOST_TOGETHER", 48)
    np.testing.assert_array_equal(estimate(noisy, covariance, 0.05, directions), whole)


def test_the_slices_that_show_the_evidence_are_spread_over_all():
    rows = decoding._spaced(np.arange(5, 1005), 64)
    assert (len(np.unique(rows)), rows[0], rows[-1]) == (64, 5, 1004)
    np.testing.assert_array_equal(decoding._spaced(np.arange(9), 64), np.arange(9))
