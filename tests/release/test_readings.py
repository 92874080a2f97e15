"""What a closed sketch tells: distribution functions, quantiles, distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import SlicedSketch
from skdpot.ot.slices import CDFTable, uniform_directions
from skdpot.ot.transport import wasserstein_1d

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (400, 2)) ** 3
Y = np.repeat(["a", "b"], 200)
DIRECTIONS = uniform_directions(6, 2, RNG)


def sketch(rows=X, labels=None, **changes):
    parameters = {"epsilon": np.inf, "bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 32}
    return SlicedSketch(**(parameters | changes)).fit(rows, labels)


def table(masses, half_width=1.0):
    """One slice whose mass is spread evenly over each bin."""
    cdf = np.concatenate([[0.0], np.cumsum(masses) / np.sum(masses)])[None]
    cdf[:, -1] = 1.0
    return CDFTable(np.ones((1, 1)), np.array([half_width]), cdf)


def dense(one, n_points=20_001):
    levels = (np.arange(n_points) + 0.5) / n_points
    return one.quantiles(levels)


masses = st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(any)
widths = st.floats(0.1, 10)


@given(masses=masses, half_width=widths)
@settings(max_examples=60, deadline=None)
def test_quantiles_and_cdf_are_inverse(masses, half_width):
    """Where there is mass; elsewhere a quantile is the first point that reaches the level."""
    one = table(masses, half_width)
    levels = np.linspace(0, 1, 101)
    positions = one.quantiles(levels)[0]
    assert np.all(np.diff(positions) >= 0)
    np.testing.assert_allclose(one.evaluate(positions)[0], levels, atol=1e-12)
    points = np.linspace(-half_width, half_width, 10 * len(masses) + 1)[:-1] + half_width / 50
    back = one.quantiles(one.evaluate(points)[0])[0]
    assert np.all(back <= points + 1e-9 * half_width)
    solid = np.repeat(np.array(masses) > 0, 10)
    np.testing.assert_allclose(back[solid], points[solid], atol=1e-9 * half_width)
    np.testing.assert_array_equal(one.evaluate(np.array([-1e9, 1e9])), [[0, 1]])


def test_cdf_and_quantiles_are_those_of_the_rows():
    fitted = sketch(n_bins=512)
    projections = X @ DIRECTIONS.T
    for quantiles, column in zip(fitted.quantiles([0.1, 0.5, 0.9]), projections.T, strict=True):
        np.testing.assert_allclose(quantiles, np.quantile(column, [0.1, 0.5, 0.9]), atol=0.02)
    for values, column in zip(fitted.cdf([-0.3, 0.2]), projections.T, strict=True):
        np.testing.assert_allclose(values, [np.mean(column <= x) for x in (-0.3, 0.2)], atol=0.01)


def test_a_class_has_its_own_table_and_the_mixture_is_weighted():
    labels = np.repeat(["a", "b"], [100, 300])
    fitted = sketch(labels=labels, conditional=True)
    mixture = sum(
        weight * fitted.cdf([0.1], label=label) for weight, label in ((0.25, "a"), (0.75, "b"))
    )
    np.testing.assert_allclose(fitted.cdf([0.1]), mixture)
    np.testing.assert_allclose(fitted.cdf([0.1]), sketch().cdf([0.1]))
    alone = sketch(X[:100])
    np.testing.assert_allclose(fitted.quantiles([0.5], label="a"), alone.quantiles([0.5]))


@pytest.mark.parametrize("label", ["c", 7, "", 0.5])
def test_an_unknown_class_is_refused(label):
    with pytest.raises(ValueError, match="not a class of this sketch"):
        sketch(labels=Y, conditional=True).quantiles([0.5], label=label)
    with pytest.raises(ValueError, match="not a class of this sketch"):
        sketch().cdf([0.5], label=label)


@pytest.mark.parametrize("q", [[-0.1], [1.1], [np.nan]])
def test_levels_outside_the_unit_interval_are_refused(q):
    with pytest.raises(ValueError, match=r"levels in \[0, 1\]"):
        sketch().quantiles(q)
    with pytest.raises(ValueError, match="x must hold numbers along one axis"):
        sketch().cdf([[0.5]])


@given(
    first=masses, second=masses, a=widths, b=widths,
    rows=st.lists(st.floats(-12, 12), min_size=1, max_size=9),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_distances_of_tables_and_to_samples_agree_with_dense_samples(first, second, a, b, rows):
    one, two, sample = table(first, a), table(second, b), np.array([rows])
    exact = np.sqrt(one.squared_distances(two))
    np.testing.assert_allclose(exact, wasserstein_1d(dense(one), dense(two)), atol=2e-2 * max(a, b))
    np.testing.assert_allclose(exact, np.sqrt(two.squared_distances(one)), rtol=1e-9, atol=1e-9)
    exact = np.sqrt(one.squared_distances_to_sample(sample))
    np.testing.assert_allclose(exact, wasserstein_1d(dense(one), sample), atol=2e-2 * max(a, 12))


def test_distance_of_sketches_is_symmetric_and_near_that_of_the_rows():
    moved = np.clip(X + np.array([0.2, -0.1]), -1, 1)
    first, second = sketch(n_bins=256), sketch(moved, n_bins=256)
    assert first.distance(second) == pytest.approx(second.distance(first), rel=1e-12)
    assert first.distance(first) == 0
    rows = np.sqrt(np.mean(wasserstein_1d(DIRECTIONS @ X.T, DIRECTIONS @ moved.T) ** 2))
    assert first.distance(second) == pytest.approx(rows, rel=0.05)
    assert first.distance(moved) == pytest.approx(rows, rel=0.05)


def test_rows_are_mapped_like_the_private_ones():
    fitted = sketch(100 * X + 7, bounds=(-93, 107), n_bins=512)
    assert fitted.distance(100 * X + 7) < 0.01
    assert fitted.distance(np.full((3, 2), 1e9)) == fitted.distance(np.full((3, 2), 107.0))


def test_an_unfitted_sketch_says_so():
    for read in (lambda s: s.quantiles([0.5]), lambda s: s.distance(X), lambda s: s.save("x")):
        with pytest.raises(AttributeError, match="not fitted yet"):
            read(SlicedSketch())
