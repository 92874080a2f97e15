"""Distances between trajectories against translations, single times and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.datasets.trajectories import OrnsteinUhlenbeck
from skdpot.metrics import (
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
    sliced_wasserstein_distance,
    wasserstein_distance,
)
from skdpot.metrics.distances import resample_paths

quick = settings(max_examples=40, deadline=None)
PATHS = np.random.default_rng(0).normal(size=(40, 5, 3)).cumsum(axis=1)
TIMES = np.array([0.0, 0.1, 0.5, 2.0, 2.5])


def origin(time, n):
    """All mass at 0, at any time."""
    return [[0.0]]


def test_resampling_is_linear_interpolation_of_every_coordinate():
    at = np.array([2.5, 0.05, 0.0, 1.3, 0.5, 0.5])
    expected = np.empty((40, 6, 3))
    for i in range(40):
        for k in range(3):
            expected[i, :, k] = np.interp(at, TIMES, PATHS[i, :, k])
    np.testing.assert_allclose(resample_paths(PATHS, TIMES, at), expected, atol=1e-12)


def test_resampling_at_the_knots_changes_nothing():
    np.testing.assert_array_equal(resample_paths(PATHS, TIMES, TIMES), PATHS)
    np.testing.assert_array_equal(
        resample_paths(PATHS[:, :1], [3.0], [3.0, 3.0])[:, 1], PATHS[:, 0]
    )


@given(
    k=st.integers(1, 6),
    d=st.integers(1, 4),
    n_projections=st.integers(1, 40),
    seed=st.integers(0, 100),
)
@quick
def test_a_translation_has_the_scale_of_a_single_time(k, d, n_projections, seed):
    rng = np.random.default_rng(seed)
    paths, v = rng.normal(size=(9, k, d)), rng.normal(size=d)
    moved = rng.permutation(paths) + v
    options = {"n_projections": n_projections, "random_state": seed}
    distance = path_sliced_wasserstein_distance(paths, moved, **options)
    assert distance == pytest.approx(np.linalg.norm(v) / math.sqrt(d))
    single = sliced_wasserstein_distance(paths[:, 0], paths[:, 0] + v, **options)
    assert distance == pytest.approx(single)


@given(d=st.integers(1, 4), seed=st.integers(0, 100))
@quick
def test_one_time_is_the_distance_of_points(d, seed):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(7, 1, d)), rng.normal(size=(11, 1, d)) * 2
    expected = sliced_wasserstein_distance(first[:, 0], second[:, 0])
    assert path_sliced_wasserstein_distance(first, second) == pytest.approx(expected)


def test_repeating_the_times_keeps_the_scale():
    """Standing still twice as long is the same distance, up to the draw of the directions."""
    first, second = PATHS[:20], 1.5 * PATHS[20:]
    once = path_sliced_wasserstein_distance(first, second, n_projections=6000)
    twice = path_sliced_wasserstein_distance(
        first.repeat(2, axis=1), second.repeat(2, axis=1), n_projections=6000
    )
    assert twice == pytest.approx(once, rel=0.05)


def test_paths_differ_where_no_marginal_does():
    """Two crowds that swap sides, and two that stay."""
    sides = np.repeat([-1.0, 1.0], 50)[:, np.newaxis, np.newaxis]
    stay, swap = sides * np.ones((1, 2, 1)), sides * np.array([[[1.0], [-1.0]]])
    for k in range(2):
        assert wasserstein_distance(stay[:, k], swap[:, k]) == 0.0
    assert path_sliced_wasserstein_distance(stay, swap) > 0.3
    assert path_sliced_wasserstein_distance(stay, stay[::-1]) == pytest.approx(0.0, abs=1e-12)


def test_distance_falls_with_the_sample():
    law, rng = OrnsteinUhlenbeck.of(n_features=2), np.random.default_rng(0)
    times = np.linspace(0, 1, 10)
    distances = []
    for n in (100, 400, 1600, 6400):
        pair = law.sample_paths(2 * n, times, rng)
        distances.append(path_sliced_wasserstein_distance(pair[:n], pair[n:]))
    slope = np.polyfit(np.log([100, 400, 1600, 6400]), np.log(distances), 1)[0]
    assert -0.65 < slope < -0.35  # the rate is n^(−1/2) in one dimension


def test_marginal_distances_by_hand():
    t = np.array([3.0, 1.0, 3.0, 1.0, 3.0])
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [4.0, 0.0]])
    asked = []

    def sample_marginal(time, n):
        asked.append((time, n))
        return X[t == time] + [0.0, time]

    table = marginal_wasserstein_distances(X, t, sample_marginal)
    assert asked == [(1.0, 2), (3.0, 3)]
    assert table.index.tolist() == [1.0, 3.0]
    assert table.index.name == "time"
    assert table["n_points"].tolist() == [2, 3]
    np.testing.assert_allclose(table["wasserstein"], [1.0, 3.0])
    np.testing.assert_allclose(table["squared_wasserstein"], [1.0, 9.0])


def test_marginals_may_have_fewer_points_and_rows_are_capped():
    X = np.random.default_rng(0).normal(size=(50, 1))
    table = marginal_wasserstein_distances(X, np.zeros(50), origin, max_points=20)
    assert table.loc[0.0, "n_points"] == 20
    assert 0.5 < table.loc[0.0, "wasserstein"] < 1.6
    again = marginal_wasserstein_distances(X, np.zeros(50), origin, max_points=20)
    assert table.equals(again)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resample_paths(PATHS, TIMES[:4], [0.0]), "paths have 5 times and times has 4"),
        (lambda: resample_paths(PATHS, TIMES[::-1], [0.0]), "times must increase strictly"),
        (lambda: resample_paths(PATHS, [0, 1, 1, 2, 3], [0.0]), "times must increase strictly"),
        (lambda: resample_paths(PATHS, TIMES, [2.6]), r"at must lie in \[0, 2.5\]"),
        (lambda: resample_paths(PATHS, TIMES, [-0.1]), r"at must lie in \[0, 2.5\]"),
        (lambda: resample_paths(PATHS, TIMES, [math.nan]), "at must hold finite numbers"),
        (lambda: resample_paths(PATHS[0], TIMES, [0.0]), "paths must have shape"),
        (lambda: path_sliced_wasserstein_distance(PATHS, PATHS[:, :4]), "first has 5 times and 3"),
        (lambda: path_sliced_wasserstein_distance(PATHS, PATHS[0]), "second must have shape"),
        (
            lambda: path_sliced_wasserstein_distance(PATHS, PATHS, n_projections=0),
            "n_projections == 0, must be >= 1",
        ),
        (
            lambda: marginal_wasserstein_distances([[1.0]], [0.0, 1.0], origin),
            "inconsistent numbers of samples",
        ),
        (
            lambda: marginal_wasserstein_distances([[1.0]], [0.0], lambda time, n: [[0.0, 1.0]]),
            "X has 1 features and Y has 2",
        ),
        (
            lambda: marginal_wasserstein_distances(
                [[1.0]], [0.0], lambda *_: [[0.0]], max_points=0
            ),
            "max_points == 0, must be >= 1",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
