"""Distances between trajectories against translations, single times and by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    expected = np.apply_along_axis(lambda values: np.interp(at, TIMES, values), 1, PATHS)
    np.testing.assert_allclose(resample_paths(PATHS, TIMES, at), expected, atol=1e-12)
    np.testing.assert_array_equal(resample_paths(PATHS, TIMES, TIMES), PATHS)
    single = resample_paths(PATHS[:, :1], [3.0], [3.0, 3.0])
    np.testing.assert_array_equal(single, PATHS[:, [0, 0]])


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


def test_paths_differ_where_no_marginal_does():
    """Two crowds that swap sides, and two that stay."""
    sides = np.repeat([-1.0, 1.0], 50)[:, np.newaxis, np.newaxis]
    stay, swap = sides * np.ones((1, 2, 1)), sides * np.array([[[1.0], [-1.0]]])
    for k in range(2):
        assert wasserstein_distance(stay[:, k], swap[:, k]) == 0.0
    assert path_sliced_wasserstein_distance(stay, swap) > 0.3
    assert path_sliced_wasserstein_distance(stay, stay[::-1]) == pytest.approx(0.0, abs=1e-12)


def test_marginal_distances_by_hand():
    t = np.array([3.0, 1.0, 3.0, 1.0, 3.0])
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [4.0, 0.0]])
    asked = []

    def sample_marginal(time, n):
        asked.append((time, n))
        return X[t == time] + [0.0, time]

    found = marginal_wasserstein_distances(X, t, sample_marginal)
    assert asked == [(1.0, 2), (3.0, 3)]
    columns = {"n_points": [2, 3], "wasserstein": [1.0, 3.0], "squared_wasserstein": [1.0, 9.0]}
    due = pd.DataFrame(columns, pd.Index([1.0, 3.0], name="time"))
    pd.testing.assert_frame_equal(found, due, check_dtype=False)


def test_marginals_may_have_fewer_points_and_rows_are_capped():
    X = np.random.default_rng(0).normal(size=(50, 1))
    table = marginal_wasserstein_distances(X, np.zeros(50), origin, max_points=20)
    assert table.loc[0.0, "n_points"] == 20
    assert 0.5 < table.loc[0.0, "wasserstein"] < 1.6
    again = marginal_wasserstein_distances(X, np.zeros(50), origin, max_points=20)
    assert table.equals(again)


SLICED, MARGINAL = path_sliced_wasserstein_distance, marginal_wasserstein_distances


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (resample_paths, (PATHS, TIMES[:4], [0.0]), "paths have 5 times and times has 4"),
        (resample_paths, (PATHS, [0, 1, 1, 2, 3], [0.0]), "times must increase strictly"),
        (resample_paths, (PATHS, TIMES, [2.6]), r"at must lie in \[0, 2.5\]"),
        (resample_paths, (PATHS, TIMES, [math.nan]), "at must hold finite numbers"),
        (resample_paths, (PATHS[0], TIMES, [0.0]), "paths must have shape"),
        (SLICED, (PATHS, PATHS[:, :4]), "first has 5 times and 3"),
        (SLICED, (PATHS, PATHS[0]), "second must have shape"),
        (MARGINAL, ([[1.0]], [0.0, 1.0], origin), "inconsistent numbers of samples"),
        (MARGINAL, ([[1.0, 0.0]], [0.0], origin), "X has 2 features and Y has 1"),
    ],
)
def test_what_is_refused(call, arguments, message):
    with pytest.raises(ValueError, match=message):
        call(*arguments)
    with pytest.raises(ValueError, match="n_projections == 0, must be >= 1"):
        SLICED(PATHS, PATHS, n_projections=0)
    with pytest.raises(ValueError, match="max_points == 0, must be >= 1"):
        MARGINAL([[1.0]], [0.0], origin, max_points=0)
