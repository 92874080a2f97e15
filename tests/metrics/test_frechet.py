"""Fréchet distance against closed forms, scipy.linalg.sqrtm and exact transport."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.stats import special_ortho_group

from skdpot.metrics import frechet_distance
from skdpot.metrics.distances import GaussianStatistics

quick = settings(max_examples=40, deadline=None)


def random_statistics(n_features, rng):
    factor = rng.normal(size=(n_features, n_features))
    return GaussianStatistics(rng.normal(size=n_features), factor @ factor.T)


def by_sqrtm(first, second):
    """The formula of the FID paper, with the matrix square root of a product."""
    gap = first.mean - second.mean
    root = sqrtm(first.covariance @ second.covariance).real
    return gap @ gap + np.trace(first.covariance + second.covariance - 2 * root)


@given(n_features=st.integers(1, 8), seed=st.integers(0, 10_000))
@quick
def test_equals_scipy(n_features, seed):
    rng = np.random.default_rng(seed)
    first, second = (random_statistics(n_features, rng) for _ in range(2))
    # The reference loses digits where the covariances are nearly singular.
    assert frechet_distance(first, second) == pytest.approx(by_sqrtm(first, second), rel=1e-5)


@given(n_features=st.integers(1, 8), seed=st.integers(0, 10_000))
@quick
def test_commuting_covariances(n_features, seed):
    """With common axes: ‖m − m'‖² + Σ(s_k − s'_k)², zero variances included."""
    rng = np.random.default_rng(seed)
    m, m2 = rng.normal(size=(2, n_features))
    s, s2 = rng.exponential(size=(2, n_features)) * rng.integers(0, 2, size=(2, n_features))
    axes = special_ortho_group.rvs(n_features, random_state=seed) if n_features > 1 else np.eye(1)
    found = frechet_distance(
        GaussianStatistics(m, axes * s**2 @ axes.T), GaussianStatistics(m2, axes * s2**2 @ axes.T)
    )
    expected = np.sum((m - m2) ** 2) + np.sum((s - s2) ** 2)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(n_rows=st.integers(2, 30), n_features=st.integers(1, 20), seed=st.integers(0, 10_000))
@quick
def test_invariances(n_rows, n_features, seed):
    """Also with fewer rows than features and with constant features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) * rng.integers(0, 2, size=n_features)
    Y = 3.0 * rng.normal(size=(n_rows + 3, n_features)) + 1.0
    base = frechet_distance(X, Y)
    assert frechet_distance(Y, X) == pytest.approx(base)
    assert 0.0 <= frechet_distance(X, X) < 1e-10
    assert frechet_distance(rng.permutation(X), Y) == pytest.approx(base)
    assert frechet_distance(1e-8 * X + 5, 1e-8 * Y + 5) == pytest.approx(1e-16 * base, rel=1e-5)
    shift = rng.normal(size=n_features)
    assert frechet_distance(X, X + shift) == pytest.approx(shift @ shift)
    axes, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    assert frechet_distance(X @ axes, Y @ axes) == pytest.approx(base)


def test_statistics_stand_for_the_rows():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(40, 4)) + 100.0, rng.normal(size=(30, 4))
    statistics = GaussianStatistics.of(X.astype(np.float32))
    np.testing.assert_allclose(statistics.mean, X.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.covariance, np.cov(X, rowvar=False), atol=1e-4)
    full = GaussianStatistics.of(X)
    norm = np.sum(X.mean(axis=0) ** 2) + np.trace(np.cov(X, rowvar=False))
    assert full.mean_squared_norm == pytest.approx(norm)
    assert frechet_distance(Y, full) == frechet_distance(Y, X)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: frechet_distance([[1.0, 2.0]], np.eye(2)), "two or more rows; 1 given"),
        (lambda: frechet_distance(np.eye(3), np.eye(2)), "X has 3 features and Y has 2"),
        (lambda: frechet_distance([[np.nan], [0.0]], np.eye(1)), "features must hold finite"),
        (lambda: GaussianStatistics(np.zeros(2), np.eye(3)), r"mean has shape \(2,\)"),
        (lambda: GaussianStatistics(np.zeros(2), [[1, 0.5], [0, 1]]), "must be finite, symmetric"),
        (lambda: GaussianStatistics(np.zeros(2), np.diag([1.0, -0.1])), "negative eigenvalues"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
