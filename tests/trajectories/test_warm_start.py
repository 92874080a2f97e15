"""Private means and k-means: the distance between neighbours, the noise, and what they find."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from skdpot._utils.streams import SecretStream
from skdpot.release.gate import record_releases
from skdpot.trajectories.warm_start_release import (
    _lloyd_step,
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
    sphere_packed_centers,
    start_particles,
)
from tests.core.release.exact import no_noise


def branches(seed=0, n=3000, n_times=10):
    """Upper semicircle, straight line, lower semicircle, with noise, at each of the times."""
    rng = np.random.default_rng(seed)
    branch = np.arange(n) % 3
    rows = []
    for s in np.linspace(0, 1, n_times):
        x = np.where(branch == 1, 2 * s - 1, -math.cos(math.pi * s))
        y = math.sin(math.pi * s) * np.array([1, 0, -1])[branch]
        rows.append(np.stack([x, y], axis=1) + rng.normal(0, math.sqrt(0.005), (n, 2)))
    return rows


def kmeans(rows, plan, seed=0):
    return release_kmeans_start(rows, plan, SecretStream(seed), np.random.default_rng(seed))


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1e-3, 100.0), st.integers(1, 200))
def test_a_count_weighs_no_more_than_the_radius(radius, mu, n_features):
    """Or a change of cluster would move the table further than opposite records do."""
    plan = plan_warm_start("kmeans", mu, radius, n_features, 3)
    assert 0.9 * radius <= plan.count_weight * plan.lattice <= radius
    reach = radius + plan.lattice / 2 * math.sqrt(n_features)
    assert plan.noise.sensitivity >= 2 * reach


def test_sums_are_exact_and_know_no_order():
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(500, 3)) * 10.0 ** rng.uniform(-9, 9, (500, 1))
    plan, tables = plan_warm_start("kmeans", 0.3, 1.5, 3, 4, 1), []
    for given_rows in (rows, rows[::-1]):
        with no_noise(), record_releases() as releases:
            kmeans([given_rows], plan)
        tables.append(np.column_stack(releases[0].value))
    np.testing.assert_array_equal(*tables)


# What is found ------------------------------------------------------------------------------


def test_lloyd_steps_are_those_of_scikit_learn():
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(400, 2)) * 0.2 + rng.choice([-0.8, 0.0, 0.8], (400, 1))
    centers = np.array([[-0.5, 0.0], [0.1, 0.0], [0.4, 0.2]])
    plan = plan_warm_start("kmeans", math.inf, 3.0, 2, 3)
    secret, public = SecretStream(0), np.random.default_rng(0)
    ours = centers
    for _ in range(50):
        ours, shares = _lloyd_step(rows, ours, plan, secret=secret, public=public)
    theirs = KMeans(3, init=centers, n_init=1, max_iter=50, tol=0.0).fit(rows)
    np.testing.assert_allclose(ours, theirs.cluster_centers_, atol=1e-8)
    np.testing.assert_allclose(shares, np.bincount(theirs.labels_) / 400)


def test_centres_stay_in_the_ball_and_shares_on_the_simplex_at_any_noise():
    for mu in (1e-4, 0.01, 1.0):
        centers, shares = kmeans(branches(n=30), plan_warm_start("kmeans", mu, 1.2, 2, 4))
        assert np.linalg.norm(centers, axis=2).max() <= 1.2
        assert shares.min() >= 0
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        means = release_mean_start(
            branches(n=30), plan_warm_start("mean", mu, 1.2, 2), SecretStream(1)
        )
        assert np.linalg.norm(means, axis=1).max() <= 1.2


@pytest.mark.parametrize(("k", "d"), [(1, 2), (2, 1), (5, 2), (12, 3), (40, 16)])
def test_packed_centres_keep_apart(k, d):
    centers = sphere_packed_centers(k, d, 3.0, np.random.default_rng(0))
    assert centers.shape == (k, d)
    room = 3.0 - np.linalg.norm(centers, axis=1).max()
    assert room > 0
    if k > 1:
        gaps = np.linalg.norm(centers[:, None] - centers, axis=2) + 100 * np.eye(k)
        # A half of the radius that k balls of the whole volume would have, or of the radius.
        assert gaps.min() / 2 > 0.4 * 3.0 * min(k ** (-1 / d), 0.5)


def test_each_centre_gets_its_share_of_the_particles():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 4, 2))
    shares = np.array([[0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]])
    particles = start_particles(centers, shares, 101, 0.0, rng)
    assert particles.shape == (3, 101, 2)
    for i in range(3):
        at = (particles[i][:, None] == centers[i]).all(axis=2)
        assert at.sum() == 101
        assert np.abs(at.sum(axis=0) - 101 * shares[i]).max() <= 1
