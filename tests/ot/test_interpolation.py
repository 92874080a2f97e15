"""Measures between measures: geodesics, means, and what the two kinds share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.measures import DiscreteMeasure, interpolate, optimal_plan

FRACTIONS = [0.0, 0.1, 0.5, 0.9, 1.0]


@st.composite
def plans(draw, weighted=True):
    """Plans between clouds; rounded coordinates make ties and duplicates likely."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m, d = (draw(st.integers(1, size)) for size in (9, 9, 3))
    clouds = []
    for size in (n, m):
        points = rng.normal(size=(size, d)).round(draw(st.sampled_from([0, 15])))
        masses = rng.random(size) if weighted and draw(st.booleans()) else None
        clouds.append(DiscreteMeasure(points, masses))
    return optimal_plan(*clouds)


def close(value, scale=1.0):
    # Squared distances are good to rounding, so distances to its root when they are 0.
    return pytest.approx(value, rel=1e-9, abs=3e-8 * scale)


@given(plan=plans(), t=st.sampled_from(FRACTIONS) | st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_exact_interpolation_lies_on_a_geodesic(plan, t):
    middle = interpolate(plan, t, kind="exact")
    scale = max(plan.distance, 1e-9)
    assert optimal_plan(plan.source, middle).distance == close(t * plan.distance, scale)
    assert optimal_plan(middle, plan.target).distance == close((1 - t) * plan.distance, scale)
    assert middle.n_points <= plan.source.n_points + plan.target.n_points - 1


@given(plan=plans(), t=st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_barycentric_interpolation_stays_nearer_to_the_source(plan, t):
    middle = interpolate(plan, t)
    assert middle.n_points == plan.source.n_points
    np.testing.assert_allclose(middle.weights, plan.source.weights)
    distance = optimal_plan(plan.source, middle).distance
    assert distance <= t * plan.distance * (1 + 1e-9) + 1e-7
    # The mean moves all the way, because means of means are means.
    means = [m.weights @ m.points for m in (plan.source, middle, plan.target)]
    np.testing.assert_allclose(means[1], (1 - t) * means[0] + t * means[2], atol=1e-12)


@pytest.mark.parametrize("t", FRACTIONS)
@pytest.mark.parametrize("n_features", [1, 3, 30])
def test_both_kinds_agree_between_equally_many_points(n_features, t):
    rng = np.random.default_rng(n_features)
    clouds = [DiscreteMeasure(rng.normal(size=(40, n_features))) for _ in range(2)]
    plan = optimal_plan(*clouds)
    assert plan.is_map
    exact, barycentric = (interpolate(plan, t, kind=kind) for kind in ("exact", "barycentric"))
    np.testing.assert_array_equal(exact.points, barycentric.points)
    assert exact.masses is None
    expected = (1 - t) * clouds[0].points + t * clouds[1].points[plan.columns]
    np.testing.assert_array_equal(exact.points, expected)


def test_kinds_differ_when_points_are_split():
    plan = optimal_plan(DiscreteMeasure([[0.0]]), DiscreteMeasure([[-1.0], [3.0]], [3, 1]))
    exact = interpolate(plan, 0.5, kind="exact")
    np.testing.assert_array_equal(exact.points, [[-0.5], [1.5]])
    np.testing.assert_allclose(exact.weights, [0.75, 0.25])
    np.testing.assert_allclose(interpolate(plan, 0.5).points, [[0.0]], atol=1e-16)


@pytest.mark.parametrize(
    ("t", "kind", "text"),
    [
        (-0.1, "exact", r"must be a fraction in \[0, 1\]"),
        (1.1, "exact", r"must be a fraction in \[0, 1\]"),
        (np.nan, "exact", r"must be a fraction in \[0, 1\]"),
        (0.5, "linear", "kind='linear'"),
    ],
)
def test_other_fractions_and_kinds_are_refused(t, kind, text):
    plan = optimal_plan(DiscreteMeasure([[0.0]]), DiscreteMeasure([[1.0]]))
    with pytest.raises(ValueError, match=text):
        interpolate(plan, t, kind=kind)
