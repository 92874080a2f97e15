"""Private means and k-means: the distance between neighbours, the noise, and what they find."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.cluster import KMeans

from skdpot._utils.validation import SecretStream
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent, gdp_epsilon, gdp_mu
from skdpot.release import warm_start
from skdpot.release.warm_start import (
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
    sphere_packed_centers,
    start_particles,
)

EXTREMES = (0.0, 1.0, -1.0, 1e-8, 1e5, -1e200, 1e308)


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


# Sensitivity --------------------------------------------------------------------------------


@pytest.fixture
def tables(monkeypatch):
    """Release without noise and look at the integers that noise would have been added to."""
    seen = []

    def no_noise(sigma, shape, stream, *, lattice, mu):
        table = np.zeros(shape, dtype=np.int64)
        seen.append(table)
        return table

    def add_in_place(rows, clusters, plan, secret):
        # `table += noise` copies: the table is read back from what is returned instead.
        sums, counts = released(rows, clusters, plan, secret)
        weighted = counts[:, None] * plan.count_weight * plan.lattice
        seen[-1] = np.hstack([sums, weighted])
        return sums, counts

    released = warm_start._noisy_sums
    monkeypatch.setattr(warm_start, "lattice_noise", no_noise)
    monkeypatch.setattr(warm_start, "_noisy_sums", add_in_place)
    return seen


def one_step(tables, rows, plan, seed=0):
    """The table of the first release."""
    tables.clear()
    if plan.method == "mean":
        release_mean_start([rows], plan, SecretStream(seed))
    else:
        kmeans([rows], plan, seed)
    assert len(tables) == plan.n_iter
    return tables[0]


def charged_part(table, plan):
    """All of the table; the count of a mean is public and stays."""
    return table[:, :-1] if plan.method == "mean" else table


@pytest.mark.parametrize("method", ["mean", "kmeans"])
@pytest.mark.parametrize("n_features", [1, 2, 7])
@pytest.mark.parametrize("mu", [0.05, 3.0, 100.0])
def test_no_neighbour_moves_a_release_further_than_the_sensitivity(tables, method, n_features, mu):
    """Wild rows too; whether the record changes its cluster or not."""
    rng = np.random.default_rng(8)
    make = {
        "mean": lambda r: plan_warm_start("mean", mu, r, n_features),
        "kmeans": lambda r: plan_warm_start("kmeans", mu, r, n_features, 4, 1),
    }[method]
    for _ in range(25):
        radius = 10.0 ** rng.uniform(-6, 6)
        plan = make(radius)
        rows = radius * rng.normal(size=(15, n_features))
        rows[0] = rng.choice(EXTREMES, n_features)
        other = rows.copy()
        other[3] = rng.choice(EXTREMES, n_features) * min(radius, 1.0)
        ends = [charged_part(one_step(tables, r, plan), plan) for r in (rows, other)]
        moved = float(np.linalg.norm(ends[0] - ends[1]))
        assert moved <= plan.noise.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("clusters", [1, 3])
def test_a_search_attains_the_sensitivity_of_a_lloyd_step(tables, clusters):
    """With one cluster by opposite records, with several by a record that changes its cluster."""
    rng = np.random.default_rng(9)
    plan = plan_warm_start("kmeans", 0.5, 1.0, 2, clusters, 1)
    rows = rng.uniform(-0.5, 0.5, (9, 2))
    best, changed = 0.0, 0.0
    for angle in np.linspace(0, np.pi, 16, endpoint=False):
        for turn in (np.pi, np.pi / 2, 2.0):
            ends = []
            for a in (angle, angle + turn):
                rows[0] = np.cos(a), np.sin(a)
                ends.append(one_step(tables, rows, plan))
            moved = float(np.linalg.norm(ends[0] - ends[1]))
            best = max(best, moved)
            if np.any(ends[0][:, -1] != ends[1][:, -1]):
                changed = max(changed, moved)
    assert 0.95 * plan.noise.sensitivity <= best <= plan.noise.sensitivity
    if clusters > 1:
        assert changed >= 0.95 * plan.noise.sensitivity


def test_sums_are_exact_and_know_no_order(tables):
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(500, 3)) * 10.0 ** rng.uniform(-9, 9, (500, 1))
    plan = plan_warm_start("kmeans", 0.3, 1.5, 3, 4, 1)
    one, two = (one_step(tables, r, plan) for r in (rows, rows[::-1]))
    np.testing.assert_array_equal(one, two)
    units = one / plan.lattice
    np.testing.assert_array_equal(units, np.rint(units))


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1e-3, 100.0), st.integers(1, 200))
def test_a_count_weighs_no_more_than_the_radius(radius, mu, n_features):
    """Or a change of cluster would move the table further than opposite records do."""
    plan = plan_warm_start("kmeans", mu, radius, n_features, 3)
    assert 0.9 * radius <= plan.count_weight * plan.lattice <= radius
    reach = radius + plan.lattice / 2 * math.sqrt(n_features)
    assert plan.noise.sensitivity >= 2 * reach


# Noise and account --------------------------------------------------------------------------


def test_the_event_counts_each_lloyd_step_and_each_row_of_a_person():
    plan = plan_warm_start("kmeans", 0.4, 2.0, 3, 5, 4, group_size=3)
    assert plan.event == GaussianEvent(
        sigma=plan.noise.sigma,
        sensitivity=plan.noise.sensitivity,
        lattice=plan.noise.lattice,
        n_steps=12,
    )
    assert plan.noise.sensitivity == pytest.approx(4.0, rel=0.02)
    assert plan.noise.sensitivity > 4.0
    for same in (plan, plan_warm_start("mean", 0.4, 2.0, 3, group_size=3)):
        assert 0.4 * (1 - 1e-9) <= same.event.mu <= 0.4
        assert compose(same.event).epsilon(1e-5) <= gdp_epsilon(0.4, 1e-5) * (1 + 1e-12)


@pytest.mark.parametrize("n_iter", [1, 3])
def test_each_time_has_as_many_releases_as_are_charged(monkeypatch, n_iter):
    drawn = []
    real = warm_start.lattice_noise

    def counting(sigma, shape, stream, **options):
        drawn.append((sigma, shape))
        return real(sigma, shape, stream, **options)

    monkeypatch.setattr(warm_start, "lattice_noise", counting)
    plan = plan_warm_start("kmeans", 0.4, 2.0, 2, 5, n_iter)
    kmeans(branches(n=60, n_times=4), plan)
    assert drawn == [(plan.event.sigma, (5, 3))] * (4 * plan.event.n_steps)
    drawn.clear()
    plan = plan_warm_start("mean", 0.4, 2.0, 2)
    release_mean_start(branches(n=60, n_times=4), plan, SecretStream(0))
    assert drawn == [(plan.event.sigma, (1, 3))] * 4


def test_noise_of_means_has_the_standard_deviation_of_the_event():
    """Of 4000 times with the same rows; either side misses a true one once in 2e8."""
    plan = plan_warm_start("mean", 0.8, 3.0, 2)
    rows = np.full((200, 2), 0.25)
    means = release_mean_start([rows] * 4000, plan, SecretStream(3))
    noise = (means - 0.25).ravel() * 200 / plan.event.sigma
    squares = float((noise**2).sum())
    assert stats.chi2.sf(squares, noise.size) > 5e-9
    assert stats.chi2.cdf(squares, noise.size) > 5e-9
    assert stats.kstest(noise, "norm").pvalue > 1e-8


def test_noise_of_clusters_has_the_standard_deviation_of_the_event():
    plan = plan_warm_start("kmeans", 0.8, 3.0, 1, 2, 1)
    rows, clusters = np.tile([[-1.0], [2.0]], (50, 1)), np.tile([0, 1], 50)
    tables = []
    for seed in range(1500):
        sums, counts = warm_start._noisy_sums(rows, clusters, plan, SecretStream(seed))
        weight = plan.count_weight * plan.lattice
        exact = np.array([[-50.0, 50 * weight], [100.0, 50 * weight]])
        tables.append(np.hstack([sums, counts[:, None] * weight]) - exact)
    noise = np.array(tables).reshape(1500, 4) / plan.event.sigma
    squares = (noise**2).sum(axis=0)
    assert np.all(stats.chi2.sf(squares, 1500) > 1e-8)
    assert np.all(stats.chi2.cdf(squares, 1500) > 1e-8)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 6 / math.sqrt(1500)
    assert plan.count_sigma == pytest.approx(plan.event.sigma / weight)


def test_infinite_mu_is_no_noise_and_no_privacy():
    rows = branches()
    plan = plan_warm_start("mean", math.inf, 2.0, 2)
    assert plan.event == NonPrivateEvent()
    exact = [of_time.mean(axis=0) for of_time in rows]
    np.testing.assert_allclose(release_mean_start(rows, plan, SecretStream(0)), exact, atol=1e-9)
    plan = plan_warm_start("kmeans", math.inf, 2.0, 2, 3)
    assert plan.event == NonPrivateEvent()
    assert plan.count_sigma == 0.0


# What is found ------------------------------------------------------------------------------


def test_lloyd_steps_are_those_of_scikit_learn():
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(400, 2)) * 0.2 + rng.choice([-0.8, 0.0, 0.8], (400, 1))
    centers = np.array([[-0.5, 0.0], [0.1, 0.0], [0.4, 0.2]])
    plan = plan_warm_start("kmeans", math.inf, 3.0, 2, 3)
    secret, public = SecretStream(0), np.random.default_rng(0)
    ours = centers
    for _ in range(50):
        ours, shares = warm_start._lloyd_step(rows, ours, plan, secret, public)
    theirs = KMeans(3, init=centers, n_init=1, max_iter=50, tol=0.0).fit(rows)
    np.testing.assert_allclose(ours, theirs.cluster_centers_, atol=1e-8)
    np.testing.assert_allclose(shares, np.bincount(theirs.labels_) / 400)


@pytest.mark.parametrize("seed", range(2))
def test_three_branches_are_found_at_epsilon_one_third(seed):
    """Centres of all three branches, and their shares, where they are apart."""
    rows = branches(seed)
    mu = gdp_mu(1 / 3, 1e-2 / 3)
    centers, shares = kmeans(rows, plan_warm_start("kmeans", mu, 1.6, 2, 3), seed)
    for i in range(2, 8):
        s = i / 9
        x, y = -math.cos(math.pi * s), math.sin(math.pi * s)
        truth = np.array([[x, y], [2 * s - 1, 0.0], [x, -y]])
        distances = np.linalg.norm(truth[:, None] - centers[i], axis=2)
        assert sorted(distances.argmin(axis=1)) == [0, 1, 2]
        assert distances.min(axis=1).max() < 0.25
        np.testing.assert_allclose(shares[i], 1 / 3, atol=0.05)


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


# Particles ----------------------------------------------------------------------------------


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
