"""The generators against the laws they claim; random bounds state their false-alarm rates."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot.datasets import make_branching_trajectories, one_point_per_person
from skdpot.datasets.trajectories import branch_of, branching_paths

FALSE_ALARM = 1e-7  # of one comparison; there are fewer than 100 in this file, and all are seeded


def assert_normal(sample, variance):
    """Independent normal columns with mean zero and one variance."""
    for column in sample.T:
        assert stats.kstest(column / math.sqrt(variance), "norm").pvalue > FALSE_ALARM
    correlation = np.corrcoef(sample, rowvar=False) - np.eye(sample.shape[1])
    bound = stats.norm.isf(FALSE_ALARM / correlation.size) / math.sqrt(len(sample))
    assert np.abs(correlation).max() < bound


def centers(t, branch):
    """The three branches, written out."""
    up = np.select([branch == 0, branch == 2], [1.0, -1.0])
    x = np.where(branch == 1, 2 * t - 1, -np.cos(np.pi * t))
    return np.stack([x, up * np.sin(np.pi * t)], axis=-1)


def test_default_is_the_paper():
    X, t, branch = make_branching_trajectories(random_state=0)
    assert X.shape == (30_000, 2)
    np.testing.assert_allclose(np.unique(t), np.arange(10) / 9)
    for time in np.unique(t):
        np.testing.assert_array_equal(np.bincount(branch[t == time]), [1000, 1000, 1000])
    assert_normal(X - centers(t, branch), 0.005)


@given(n=st.integers(1, 20), seed=st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_branches_are_even(n, seed):
    counts = np.bincount(branching_paths(n, [0.5], random_state=seed)[1], minlength=3)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


def test_unequal_counts():
    X, t, _ = make_branching_trajectories([5, 1, 7], 3, random_state=0)
    assert np.unique(t, return_counts=True)[1].tolist() == [5, 1, 7]
    assert len(X) == 13


def test_paths_have_the_marginals_of_the_data_and_keep_their_displacement():
    times = [0.7, 0.2, 0.2, 1.0]
    paths, branch = branching_paths(3000, times, random_state=1)
    assert paths.shape == (3000, 4, 2)
    displaced = paths - centers(np.array(times), branch[:, np.newaxis])
    np.testing.assert_allclose(displaced, np.repeat(displaced[:, :1], 4, axis=1), atol=1e-12)
    assert_normal(displaced[:, 0], 0.005)
    np.testing.assert_array_equal(paths[:, 1], paths[:, 2])


def test_branch_of_finds_the_branch_again():
    X, t, branch = make_branching_trajectories(900, 11, noise_variance=0.001, random_state=0)
    middle = (t > 0.25) & (t < 0.75)
    np.testing.assert_array_equal(branch_of(X[middle], t[middle]), branch[middle])
    times = np.linspace(0.3, 0.7, 5)
    paths, branch = branching_paths(30, times, noise_variance=0.001, random_state=0)
    found = branch_of(paths, times)
    assert found.shape == (30, 5)
    np.testing.assert_array_equal(found, np.repeat(branch[:, np.newaxis], 5, axis=1))
    assert branch_of([0.0, -1.0], 0.5) == 2


def test_one_point_per_person():
    paths = np.arange(4000 * 3, dtype=float).reshape(4000, 3, 1).repeat(2, axis=2)
    stamps = np.array([2.0, 5.0, 7.0])
    X, t = one_point_per_person(paths, stamps, random_state=0)
    position = np.searchsorted(stamps, t)
    np.testing.assert_array_equal(X, paths[np.arange(4000), position])
    assert stats.chisquare(np.bincount(position, minlength=3)).pvalue > FALSE_ALARM
    dates = stamps.astype("datetime64[D]")
    assert set(one_point_per_person(paths, dates)[1].tolist()) == set(dates.tolist())
    # Nothing hangs on the person: neighbours' times are independent.
    table = np.histogram2d(position[:-1], position[1:], bins=3)[0]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_branching_trajectories(20, 3, random_state=seed),
        lambda seed: branching_paths(20, [0.2, 0.5], random_state=seed),
        lambda seed: one_point_per_person(
            np.arange(80.0).reshape(20, 4, 1), np.arange(4), random_state=seed
        ),
    ],
)
def test_random_state(make):
    for a, b in zip(make(3), make(3), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(make(3)[0], make(4)[0])
    assert not np.array_equal(make(None)[0], make(None)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_branching_trajectories(0), "n_per_time must be at least 1"),
        (lambda: make_branching_trajectories([3, 0], 2), "n_per_time must be at least 1"),
        (lambda: make_branching_trajectories([3, 4], 3), "n_per_time must be at least 1"),
        (lambda: make_branching_trajectories(3, 0), "n_times == 0, must be >= 1"),
        (
            lambda: make_branching_trajectories(noise_variance=-1),
            "noise_variance=-1 must be finite",
        ),
        (lambda: branching_paths(0, [0.5]), "n_paths == 0, must be >= 1"),
        (lambda: branching_paths(2, [0.5, 1.5]), r"times must lie in \[0, 1\]"),
        (lambda: branch_of([[0.0, 0.0]], 2.0), r"times must lie in \[0, 1\]"),
        (lambda: branch_of([[0.0, 0.0, 1.0]], 0.5), r"points must have shape \(..., 2\)"),
        (lambda: one_point_per_person(np.zeros((4, 3)), [0, 1, 2]), "paths must have shape"),
        (lambda: one_point_per_person(np.zeros((4, 3, 1)), [0, 1]), "paths have 3 times, so times"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
