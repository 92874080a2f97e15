"""What two messages tell without the reference, and squared distances without the plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits

from skdpot.audit.message_attacks import (
    paired_differences,
    positions_from_distances,
    rows_from_cost_matrices,
)
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, interpolate, optimal_plan

DIGITS = load_digits().data[np.random.default_rng(0).permutation(1797)] / 8 - 1
X, Y = DIGITS[:100], DIGITS[100:200]


def messages(X, Y, gamma, t):
    return [interpolate(optimal_plan(DiscreteMeasure(Z), gamma), t) for Z in (X, Y)]


def gauss(n, d, scale, seed=0):
    return gaussian_reference(n, d, scale=scale, rng=np.random.default_rng(seed))


@pytest.mark.parametrize(("scale", "t"), [(1, 0.9), (2, 0.5), (5, 0.5), (20, 0.1)])
def test_all_differences_where_the_reference_hides_something(scale, t):
    pairs = paired_differences(*messages(X, Y, gauss(100, 64, scale), t), t)
    assert pairs.n_pairs == pairs.n_exact(X, Y) == 100
    assert pairs.errors(X, Y).max() < 1e-12
    np.testing.assert_array_equal(np.sort(pairs.second_rows), np.arange(100))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), t=st.floats(0.1, 0.9), n=st.integers(2, 12))
def test_the_condition_suffices(seed, t, n):
    rng = np.random.default_rng(seed)
    clouds = rng.normal(size=(2, n, 3))
    clouds /= np.linalg.norm(clouds, axis=2).max()  # both in the ball of radius 1
    points = rng.normal(size=(n, 3))
    points *= 1.001 * 2 * (1 - t) / (t * pdist(points).min())
    pairs = paired_differences(*messages(*clouds, DiscreteMeasure(points), t), t)
    assert pairs.n_exact(*clouds, tol=1e-9 * np.abs(points).max()) == n


def test_unknown_fraction_leaves_the_scale_open():
    sent = messages(X, Y, gauss(100, 64, 5), 0.5)
    known, unknown = paired_differences(*sent, 0.5), paired_differences(*sent)
    np.testing.assert_allclose(unknown.differences, known.differences / 2)
    assert repr(known) == "PairedDifferences(100 pairs, 64 features)"
    with pytest.raises(ValueError, match="t=1 must be"):
        paired_differences(*sent, 1)


def test_positions():
    rng = np.random.default_rng(0)
    points, anchors = rng.normal(size=(20, 5)), rng.normal(size=(9, 5)) + 3
    found, n_dimensions = positions_from_distances(cdist(points, anchors, "sqeuclidean"), anchors)
    np.testing.assert_allclose(found, points, atol=1e-12)
    assert n_dimensions == 5
    # Few anchors give the projection on their span.
    few = anchors[:4]
    found, n_dimensions = positions_from_distances(cdist(points, few, "sqeuclidean"), few)
    assert n_dimensions == 3
    np.testing.assert_allclose((found - points) @ (few[1:] - few[0]).T, 0, atol=1e-12)


def test_rows_from_costs():
    rng = np.random.default_rng(0)
    rows, gamma = rng.normal(size=(30, 4)), gauss(25, 4, 2.0)
    points = rng.normal(size=(10, 4))
    plan = optimal_plan(DiscreteMeasure(rows), gamma)
    fractions = [0.25, 0.5, 0.75]
    costs = [cdist(interpolate(plan, s).points, points, "sqeuclidean") for s in fractions]
    found = rows_from_cost_matrices(fractions, costs, points)
    np.testing.assert_allclose(found.rows, rows, atol=1e-12)
    assert found.method == "trilateration in 4 of 4 dimensions"
    two = rows_from_cost_matrices(fractions[1:], costs[1:], points)
    np.testing.assert_allclose(two.rows, rows, atol=1e-12)
    with pytest.raises(ValueError, match="two different values"):
        rows_from_cost_matrices([0.5, 0.5], costs[:2], points)
    with pytest.raises(ValueError, match="squared_distances has shape"):
        rows_from_cost_matrices(fractions, costs, points[:-1])
