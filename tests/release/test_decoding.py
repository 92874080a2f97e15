"""From released statistics to distribution functions: exact, unbiased, monotone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from skdpot import SlicedSketch
from skdpot.ot.slices import uniform_directions
from skdpot.release.decoding import class_totals, decode, square_root_strategy

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
    rng, strategy = np.random.default_rng(seed), square_root_strategy(n_bins)
    counts = rng.uniform(1, 3, (1, 4, n_bins))
    n_samples = 1000
    counts *= n_samples / counts.sum(axis=2, keepdims=True)
    statistic = counts @ strategy.matrix.T + rng.standard_normal(counts.shape)
    cdf, totals = decode_quiet(statistic, strategy, n_samples)
    np.testing.assert_allclose(cdf[0, :, 1:-1], bridged(statistic[0], strategy, n_samples))
    np.testing.assert_allclose(totals, [n_samples])


def test_conditioning_is_better_than_a_linear_bridge():
    """The reason for the covariance: B = 256, 400 noise draws, worst value along the bins."""
    strategy = square_root_strategy(256)
    noise = RNG.standard_normal((400, 256)) @ strategy.decoder.T
    share = strategy.covariance[:, -1] / strategy.covariance[-1, -1]
    right = noise - noise[:, -1:] * share
    linear = noise - noise[:, -1:] * np.linspace(0, 1, 257)[1:]
    assert right.std(axis=0).max() < 0.97 * linear.std(axis=0).max()


@given(
    n_bins=st.integers(2, 30),
    scale=st.floats(0.1, 1000),
    n_classes=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_always_a_distribution_function(n_bins, scale, n_classes, seed):
    rng, strategy = np.random.default_rng(seed), square_root_strategy(n_bins)
    statistic = scale * rng.standard_normal((n_classes, 3, n_bins))
    cdf, totals = decode_quiet(statistic, strategy, 50)
    assert cdf.shape == (n_classes, 3, n_bins + 1)
    np.testing.assert_array_equal(cdf[..., 0], 0.0)
    np.testing.assert_array_equal(cdf[..., -1], 1.0)
    assert np.all(np.diff(cdf, axis=-1) >= 0)
    assert totals.sum() == pytest.approx(50)


@given(n_bins=st.integers(3, 30), level=st.floats(0.1, 100), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_monotone_values_are_never_further_from_the_truth(n_bins, level, seed):
    """The truth is in the convex set that is projected on."""
    rng, strategy = np.random.default_rng(seed), square_root_strategy(n_bins)
    counts = rng.multinomial(200, rng.dirichlet(np.full(n_bins, 0.3)), size=(1, 5))
    truth = np.cumsum(counts[0], axis=1)[:, :-1] / 200
    statistic = counts @ strategy.matrix.T + level * rng.standard_normal(counts.shape)
    raw = bridged(statistic[0], strategy, 200)
    cdf, _ = decode_quiet(statistic, strategy, 200)
    errors = [np.sum((values - truth) ** 2, axis=1) for values in (cdf[0, :, 1:-1], raw)]
    assert np.all(errors[0] <= errors[1] * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("n_classes", [1, 2, 10])
@pytest.mark.parametrize("n_projections", [1, 8, 40])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 1e3])
def test_any_noise_is_decoded_without_complaint(n_classes, n_projections, epsilon):
    """After the charge nothing may fail: few rows, absent classes, any noise."""
    for n_samples, n_bins in ((12, 16), (300, 2), (12, 3)):
        X, y = RNG.uniform(-1, 1, (n_samples, 8)) ** 5, RNG.integers(0, n_classes, n_samples)
        sketch = SlicedSketch(
            epsilon=epsilon,
            bounds=(-1, 1),
            projections=uniform_directions(n_projections, 8, RNG),
            n_bins=n_bins,
            conditional=True,
            classes=range(n_classes),
        ).fit(X, y)
        assert np.all(np.isfinite(sketch.cdf_))
        assert np.all(np.diff(sketch.cdf_, axis=-1) >= 0)
        assert np.all(sketch.cdf_[..., 0] == 0)
        assert np.all(sketch.cdf_[..., -1] == 1)
        assert sketch.class_counts_.sum() == pytest.approx(n_samples)


def test_equal_rows_are_decoded_without_complaint():
    for epsilon in (0.01, 1.0, 100.0):
        sketch = SlicedSketch(epsilon=epsilon, bounds=(-1, 1), n_projections=6, n_bins=32)
        assert np.all(np.isfinite(sketch.fit(np.zeros((400, 3))).cdf_))


SHAPES = {
    "two clusters": np.where(RNG.random((3000, 1)) < 0.25, -0.4, 0.5)
    + 0.1 * RNG.normal(size=(3000, 2)),
    "far outliers": 0.05 * RNG.normal(size=(3000, 2)) + 0.8 * (RNG.random((3000, 1)) < 0.05),
    "one-sided": RNG.exponential(0.2, (3000, 2)) - 0.8,
    "normal": 0.25 * RNG.normal(size=(3000, 2)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("epsilon", [2.0, 30.0])
def test_no_shape_is_decoded_worse_than_by_monotonicity_alone(shape, epsilon):
    """A prior may help; it must not overrule a table that is far from it."""
    options = {"bounds": (-1, 1), "n_bins": 32, "projections": uniform_directions(20, 2, RNG)}
    sketch = SlicedSketch(epsilon=epsilon, **options).fit(SHAPES[shape])
    exact = SlicedSketch(epsilon=np.inf, **options).fit(SHAPES[shape])
    plain, _ = decode_quiet(sketch.statistic_, square_root_strategy(32), 3000)
    errors = [np.sqrt(np.mean((cdf - exact.cdf_) ** 2)) for cdf in (sketch.cdf_, plain)]
    assert errors[0] < 1.2 * errors[1]


def test_error_falls_with_the_number_of_rows():
    """Rate: ten times the rows, a tenth of the noise of a distribution function.

    Or less: the more rows, the clearer that all nine directions are one and the same.
    """
    errors = []
    for n_samples in (3000, 30_000):
        X = RNG.uniform(-1, 1, (n_samples, 1))
        sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), projections=np.ones((9, 1)), n_bins=16)
        exact = SlicedSketch(epsilon=np.inf, bounds=(-1, 1), projections=np.ones((9, 1)), n_bins=16)
        errors.append(np.sqrt(np.mean((sketch.fit(X).cdf_ - exact.fit(X).cdf_) ** 2)))
    assert 4 < errors[0] / errors[1] < 60


def test_equal_directions_are_averaged():
    """Nine noisy copies of one function are worth their mean."""
    X = RNG.uniform(-1, 1, (30_000, 1))
    options = {"bounds": (-1, 1), "projections": np.ones((9, 1)), "n_bins": 16}
    sketch = SlicedSketch(epsilon=1.0, **options).fit(X)
    exact = SlicedSketch(epsilon=np.inf, **options).fit(X)
    plain, _ = decode_quiet(sketch.statistic_, square_root_strategy(16), 30_000)
    error, of_mean = (
        np.sqrt(np.mean((cdf - exact.cdf_) ** 2))
        for cdf in (sketch.cdf_, plain.mean(axis=1, keepdims=True))
    )
    assert error < 1.1 * of_mean


@given(
    noisy=st.lists(st.floats(-50, 150), min_size=1, max_size=6).map(np.array),
    spare=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_class_totals_are_the_nearest_possible_ones(noisy, spare):
    """Against a general solver."""
    n_samples = len(noisy) + spare
    totals = class_totals(noisy, n_samples)
    assert totals.sum() == pytest.approx(n_samples)
    assert totals.min() >= 1 - 1e-9
    solved = minimize(
        lambda t: np.sum((t - noisy) ** 2),
        np.full(len(noisy), n_samples / len(noisy)),
        jac=lambda t: 2 * (t - noisy),
        bounds=[(1, None)] * len(noisy),
        constraints={"type": "eq", "fun": lambda t: t.sum() - n_samples},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 300},
    )
    distance = np.sum((totals - noisy) ** 2)
    assert distance <= solved.fun * (1 + 1e-6) + 1e-6
    np.testing.assert_allclose(totals, solved.x, atol=1e-3)


def test_class_totals_of_plain_cases():
    np.testing.assert_allclose(class_totals(np.array([30.0, 70.0]), 100), [30, 70])
    np.testing.assert_allclose(class_totals(np.array([-40.0, 60.0]), 100), [1, 99])
    np.testing.assert_allclose(class_totals(np.array([123.0]), 100), [100])
    np.testing.assert_allclose(
        class_totals(np.array([5.0, 7, 9]), 2), [0.667, 0.667, 0.667], atol=1e-3
    )


def test_class_totals_are_the_mean_over_slices():
    X, y = RNG.uniform(-1, 1, (4000, 2)), np.repeat([0, 1, 2], [1000, 2500, 500])
    sketch = SlicedSketch(
        epsilon=5.0, bounds=(-1, 1), n_projections=20, n_bins=16, conditional=True
    )
    np.testing.assert_allclose(sketch.fit(X, y).class_counts_, [1000, 2500, 500], atol=100)
