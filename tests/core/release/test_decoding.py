"""From released statistics to distribution functions: exact, unbiased, monotone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import SlicedSketch
from skdpot.ot.directions import uniform_directions
from skdpot.release.decoding import class_totals, decode
from skdpot.release.strategy import strategy_of

RNG = np.random.default_rng(8841)


def decode_quiet(statistic, strategy, n_samples):
    """Decode without shrinking, which is for tables of few slices and loud noise."""
    n_projections = statistic.shape[1]
    directions = np.repeat(np.eye(1), n_projections, axis=0)
    return decode(statistic, strategy, n_samples, 0.0, directions, np.ones(n_projections))


def conditioned(noisy, covariance, total):
    """Mean of a Gaussian vector given its last entry, by the textbook formula with matrices."""
    keep = np.eye(len(noisy))[-1:]
    gain = covariance @ keep.T @ np.linalg.inv(keep @ covariance @ keep.T)
    return noisy - gain @ (keep @ noisy - total)


def bridged(statistic, strategy, n_samples):
    """Decode row by row up to the projection on monotone functions."""
    decoder = np.tril(np.ones((strategy.n_bins,) * 2)) @ np.linalg.inv(strategy.matrix)
    covariance = decoder @ decoder.T
    return np.stack(
        [conditioned(decoder @ row, covariance, n_samples)[:-1] / n_samples for row in statistic]
    )


@pytest.mark.parametrize("n_bins", [2, 16, 256])
@pytest.mark.parametrize("conditional", [False, True])
def test_exact_without_noise(n_bins, conditional):
    X, y = RNG.uniform(-1, 1, (500, 2)), RNG.integers(0, 3, 500)
    sketch = SlicedSketch(
        epsilon=np.inf,
        bounds=(-1, 1),
        projections=np.eye(2),
        n_bins=n_bins,
        conditional=conditional,
    ).fit(X, y)
    edges = np.linspace(-1, 1, n_bins + 1)
    groups = [X[y == k] for k in range(3)] if conditional else [X]
    for group, cdf, count in zip(groups, sketch.cdf_, sketch.class_counts_, strict=True):
        assert count == pytest.approx(len(group))
        for column, values in zip(group.T, cdf, strict=True):
            exact = np.searchsorted(np.sort(column), edges) / len(group)
            # Single precision may put a row that is on an edge on its other side.
            np.testing.assert_allclose(values, exact, atol=1.5 / len(group))
            assert np.mean(np.abs(values - exact) < 1e-9) > 0.98


@given(n_bins=st.integers(3, 40), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_knowing_the_total_is_gaussian_conditioning(n_bins, seed):
    """So little noise that the result is increasing and the projection does nothing."""
    rng, strategy = np.random.default_rng(seed), strategy_of(n_bins)
    counts = rng.uniform(1, 3, (1, 4, n_bins))
    n_samples = 1000
    counts *= n_samples / counts.sum(axis=2, keepdims=True)
    statistic = counts @ strategy.matrix.T + rng.standard_normal(counts.shape)
    cdf, totals = decode_quiet(statistic, strategy, n_samples)
    np.testing.assert_allclose(cdf[0, :, 1:-1], bridged(statistic[0], strategy, n_samples))
    np.testing.assert_allclose(totals, [n_samples])


@given(n_bins=st.integers(3, 30), level=st.floats(0.1, 100), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_monotone_values_are_never_further_from_the_truth(n_bins, level, seed):
    """The truth is in the convex set that is projected on."""
    rng, strategy = np.random.default_rng(seed), strategy_of(n_bins)
    counts = rng.multinomial(200, rng.dirichlet(np.full(n_bins, 0.3)), size=(1, 5))
    truth = np.cumsum(counts[0], axis=1)[:, :-1] / 200
    statistic = counts @ strategy.matrix.T + level * rng.standard_normal(counts.shape)
    raw = bridged(statistic[0], strategy, 200)
    cdf, _ = decode_quiet(statistic, strategy, 200)
    errors = [np.sum((values - truth) ** 2, axis=1) for values in (cdf[0, :, 1:-1], raw)]
    assert np.all(errors[0] <= errors[1] * (1 + 1e-9) + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [1, 10])
@pytest.mark.parametrize("n_projections", [1, 40])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e3])
def test_any_noise_is_decoded_without_complaint(n_classes, n_projections, epsilon):
    """After the charge nothing may fail: few rows, equal rows, absent classes, any noise."""
    directions = uniform_directions(n_projections, 8, RNG)
    for n_samples, n_bins, power in ((12, 16, 5), (300, 2, 5), (12, 3, 5), (400, 32, 0)):
        X, y = RNG.uniform(-1, 1, (n_samples, 8)) ** power, RNG.integers(0, n_classes, n_samples)
        options = {"projections": directions, "n_bins": n_bins, "classes": range(n_classes)}
        sketch = SlicedSketch(epsilon, bounds=(-1, 1), conditional=True, **options).fit(X, y)
        assert np.all(np.diff(sketch.cdf_, axis=-1) >= 0)
        assert np.all(sketch.cdf_[..., [0, -1]] == [0, 1])
        assert sketch.class_counts_.sum() == pytest.approx(n_samples)


@given(
    noisy=st.lists(st.floats(-50, 150), min_size=1, max_size=6).map(np.array),
    spare=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_class_totals_are_the_nearest_possible_ones(noisy, spare):
    """By the conditions of Karush, Kuhn and Tucker."""
    n_samples = len(noisy) + spare
    totals = class_totals(noisy, n_samples)
    assert totals.sum() == pytest.approx(n_samples)
    assert totals.min() >= 1 - 1e-9
    moved = totals - noisy  # by one shift, and more where the floor is
    free = totals > 1 + 1e-9
    np.testing.assert_allclose(moved[free], moved[free].max(initial=-np.inf), atol=1e-9)
    assert moved[~free].min(initial=np.inf) >= moved[free].max(initial=-np.inf) - 1e-9
