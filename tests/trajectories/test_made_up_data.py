"""Made-up trajectories against the laws that they claim."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import integrate, stats

from skdpot.datasets import (
    make_branching_trajectories,
    make_commuting_trajectories,
    make_forking_trajectories,
    make_lineage_trajectories,
    make_ornstein_uhlenbeck_trajectories,
    make_spiral_trajectories,
    one_point_per_person,
)
from skdpot.trajectories.moving_clusters import branch_of, branching_paths
from skdpot.trajectories.ornstein_uhlenbeck import OrnsteinUhlenbeck
from tests.laws import FALSE_ALARM, assert_moments, assert_normal, assert_repeatable

N = 30_000
LAW = OrnsteinUhlenbeck.of(
    mean_reversion=[2.0, 0.0, 0.5],
    mean=[0.0, 5.0, -1.0],
    diffusivity=0.3,
    initial_mean=[1.0, 0.0, 2.0],
    initial_covariance=[[0.2, 0.1, 0.0], [0.1, 0.3, 0.05], [0.0, 0.05, 0.1]],
)


TURNING = OrnsteinUhlenbeck.of(
    mean_reversion=[0.7, 0.7, 2.0],
    rotation=4.0,
    mean=[0.0, 5.0, -1.0],
    diffusivity=0.3,
    initial_mean=[1.0, 0.0, 2.0],
    initial_covariance=LAW.initial_covariance,
)
LAWS = pytest.mark.parametrize("law", [LAW, TURNING], ids=["resting", "turning"])


@LAWS
def test_moments_solve_their_differential_equations(law):
    """m' = (Ω − θ)(m − c) and S' = (Ω − θ)S + S(Ω − θ)ᵀ + τI, by a Runge-Kutta solver."""
    drift, level = -np.diag(law.mean_reversion), law.mean_level
    drift[0, 1], drift[1, 0] = -law.rotation[0], law.rotation[0]

    def change(_, state):
        mean, covariance = state[:3], state[3:].reshape(3, 3)
        growth = drift @ covariance + covariance @ drift.T + 0.3 * np.eye(3)
        return np.concatenate([drift @ (mean - level), growth.ravel()])

    start = np.concatenate([law.initial_mean, law.initial_covariance.ravel()])
    times = [0.0, 0.3, 1.0, 2.5]
    solution = integrate.solve_ivp(change, (0, 3), start, t_eval=times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(law.mean(times), solution.y[:3].T, atol=1e-8)
    np.testing.assert_allclose(law.covariance(times), solution.y[3:].T.reshape(4, 3, 3), atol=1e-8)


@LAWS
def test_whole_paths_have_the_law(law):
    times = np.array([1.5, 0.0, 0.4, 0.4])
    paths = law.sample_paths(N, times, np.random.default_rng(0))
    assert paths.shape == (N, 4, 3)
    np.testing.assert_array_equal(paths[:, 2], paths[:, 3])
    blocks = law.cross_covariance(times[:3, np.newaxis], times[:3])
    covariance = blocks.transpose(0, 2, 1, 3).reshape(9, 9)
    assert_moments(paths[:, :3].reshape(N, 9), law.mean(times[:3]).ravel(), covariance)


def test_density_is_that_of_the_marginal():
    points = np.random.default_rng(0).normal(size=(5, 3))
    expected = stats.multivariate_normal(LAW.mean(0.7), LAW.covariance(0.7)).pdf(points)
    np.testing.assert_allclose(LAW.density(points, 0.7), expected)
    line = OrnsteinUhlenbeck.of()
    grid = np.linspace(-5, 6, 4001)
    assert np.trapezoid(line.density(grid[:, np.newaxis], 0.5), grid) == pytest.approx(1.0)
    assert line.density([[0.3]], 0.5).shape == (1,)


def test_degenerate_start_has_no_density_but_paths():
    law = OrnsteinUhlenbeck.of(n_features=2, initial_covariance=0.0, initial_mean=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"marginal at time 0\.0 is degenerate"):
        law.density([[1.0, 2.0]], 0.0)
    paths = law.sample_paths(4, [0.0, 1.0], np.random.default_rng(0))
    np.testing.assert_array_equal(paths[:, 0], np.tile([1.0, 2.0], (4, 1)))
    assert len(np.unique(paths[:, 1, 0])) == 4


def test_data_have_the_marginals_of_their_law():
    X, t, law = make_ornstein_uhlenbeck_trajectories(
        N,
        3,
        duration=2.0,
        mean_reversion=[1.0, 3.0],
        initial_mean=[2.0, -1.0],
        initial_covariance=[0.1, 0.4],
        random_state=0,
    )
    assert np.unique(t).tolist() == [0.0, 1.0, 2.0]
    for time in (0.0, 1.0, 2.0):
        assert_moments(X[t == time], law.mean(time), law.covariance(time))
    # Nobody is seen twice: rows of one position at two times are independent.
    correlation = np.corrcoef(X[t == 0.0, 0], X[t == 1.0, 0])[0, 1]
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM) / math.sqrt(N)


def centers(t, branch):
    """The three branches, written out."""
    up = np.select([branch == 0, branch == 2], [1.0, -1.0])
    x = np.where(branch == 1, 2 * t - 1, -np.cos(np.pi * t))
    return np.stack([x, up * np.sin(np.pi * t)], axis=-1)


def test_branches_have_the_law_of_the_paper():
    X, t, branch = make_branching_trajectories(random_state=0)
    assert X.shape == (30_000, 2)
    np.testing.assert_allclose(np.unique(t), np.arange(10) / 9)
    for time in np.unique(t):
        np.testing.assert_array_equal(np.bincount(branch[t == time]), [1000, 1000, 1000])
    assert_normal(X - centers(t, branch), 0.005)
    X, t, _ = make_branching_trajectories([5, 1, 7], 3, random_state=0)
    assert np.unique(t, return_counts=True)[1].tolist() == [5, 1, 7]
    times = [0.7, 0.2, 0.2, 1.0]
    paths, branch = branching_paths(3001, times, random_state=1)
    assert sorted(np.bincount(branch)) == [1000, 1000, 1001]  # as even as can be
    assert paths.shape == (3001, 4, 2)
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


MOVING = {
    "spiral": (make_spiral_trajectories, {"turns": 0.5}, [0.35, 0.0], [-1.0, 0.0]),
    "fork": (make_forking_trajectories, {"n_features": 4}, [-0.8, 0.0, 0, 0], [0.8, 0.7, 0, 0]),
}


@pytest.mark.parametrize("case", MOVING)
def test_clusters_move_as_their_law_says(case):
    """Rows and whole paths have one law, whose clusters start and end at known places."""
    make, options, start, end = MOVING[case]
    X, t, cluster, law = make(N // 3, 3, noise_variance=0.02, **options, random_state=0)
    np.testing.assert_allclose(law.centers(np.array([0.0, 1.0]))[:, 0], [start, end], atol=1e-12)
    centers = law.centers(t)[np.arange(N), cluster]
    assert_normal(X - centers, 0.02)
    assert [np.bincount(cluster[t == time]).tolist() for time in np.unique(t)] == 3 * [[N // 6] * 2]
    paths, cluster = law.sample_paths(N, [0.2, 1.0], np.random.default_rng(0))
    displaced = paths - np.moveaxis(law.centers(np.array([0.2, 1.0])), 1, 0)[cluster]
    np.testing.assert_allclose(displaced[:, 0], displaced[:, 1], atol=1e-12)
    assert_normal(displaced[:, 0], 0.02)
    np.testing.assert_array_equal(law.cluster_of(paths, [0.2, 1.0])[:, 1], cluster)


def test_the_arms_of_the_spiral_are_opposite_and_the_branches_of_the_fork_part_late():
    times = np.linspace(0, 1, 7)
    arms = make_spiral_trajectories(2, 2)[3].centers(times)
    np.testing.assert_allclose(arms[:, 0], -arms[:, 1])
    np.testing.assert_allclose(np.linalg.norm(arms[:, 0], axis=1), 0.35 + 0.65 * times)
    turned = np.unwrap(np.arctan2(arms[:, 0, 1], arms[:, 0, 0]))
    np.testing.assert_allclose(turned, 2 * np.pi * times, atol=1e-12)
    gap = np.ptp(make_forking_trajectories(2, 2)[3].centers(times), axis=1)
    np.testing.assert_allclose(gap[:, 1], 2 * np.maximum(times - 0.3, 0), atol=1e-12)
    assert not np.delete(gap, 1, axis=1).any()


def test_cells_of_a_lineage_have_two_fates_which_show_after_the_fork():
    X, t, fate, law = make_lineage_trajectories(1500, 6, random_state=0)
    assert abs(np.mean(fate == 0) - 0.6) < 4 * np.sqrt(0.24 / len(fate))
    ends, spread = law.projection, []
    centers = (np.log1p(law.means * 1200) - ends[0]) @ ends[1]
    for time in np.unique(t):
        here = t == time
        nearest = np.argmin(np.linalg.norm(X[here, None] - centers[None, 2:], axis=2), axis=1)
        spread.append(np.mean(nearest == fate[here]))
    assert spread[0] < 0.65
    assert spread[-1] > 0.97
    np.testing.assert_allclose(law.means.sum(axis=1), 1.0)
    # Another draw has other cells of the same genes, and directions are orthogonal.
    again = make_lineage_trajectories(2, 2, random_state=1)[3]
    np.testing.assert_array_equal(again.means, law.means)
    gram = ends[1].T @ ends[1]
    np.testing.assert_allclose(gram, gram[0, 0] * np.eye(5), atol=1e-12)
    assert np.mean(np.abs(X) > 1) < 1e-3


def test_paths_of_cells_have_the_marginals_of_cells_seen_once():
    """Counts by quantiles along paths, and drawn directly for one time, have one law."""
    X, t, _, law = make_lineage_trajectories(1500, 3, n_genes=40, random_state=0)
    paths, _ = law.sample_paths(1500, [0.0, 0.5, 1.0], np.random.default_rng(1))
    for k, time in enumerate(np.unique(t)):
        for j in range(5):
            assert stats.ks_2samp(X[t == time, j], paths[:, k, j]).pvalue > FALSE_ALARM
    steps = law.sample_paths(30, [0.5, 0.5], np.random.default_rng(1))[0]
    np.testing.assert_array_equal(steps[:, 0], steps[:, 1])


def test_dropout_loses_counts_of_rare_genes():
    law = make_lineage_trajectories(2, 2)[3]
    full, lossy = (type(law)(dropout=dropout) for dropout in (0.0, 5.0))
    origin, directions = law.projection
    one, other = (
        each.sample_paths(300, [0.0], np.random.default_rng(0))[0].mean(axis=0)
        for each in (full, lossy)
    )
    assert np.linalg.norm(one - other) > 0.05
    # Without dropout the mean is near the mean profile at the start.
    start = (np.log1p(law.means[0] * 1200) - origin) @ directions
    assert np.linalg.norm(one - start) < np.linalg.norm(other - start)


def test_commuters_keep_to_roads_and_return_home():
    X, t, group, law = make_commuting_trajectories(800, 17, noise_variance=0.0, random_state=0)
    np.testing.assert_array_equal(np.unique(t), np.arange(5.0, 22.0))
    blocks = (X + 1) * 4
    whole = np.abs(blocks - np.rint(blocks)) < 1e-9
    assert whole.any(axis=1).all()  # on a street or on an avenue
    assert not law.in_river(X).any()
    assert law.in_river([[0.0, 0.0], [0.0, 0.5], [-0.9, 0.0]]).tolist() == [True, False, False]
    assert abs(np.mean(group == 0) - 0.2) < 4 * np.sqrt(0.16 / len(group))
    paths, group = law.sample_paths(500, np.linspace(0, 24, 2401), np.random.default_rng(0))
    np.testing.assert_allclose(paths[:, 0], paths[:, -1], atol=1e-9)
    np.testing.assert_array_equal(paths[group == 0], paths[group == 0][:, :1].repeat(2401, axis=1))
    noon = paths[:, 1200]
    assert (noon[group > 0, 0] > 0.2).all()
    assert (noon[group == 0, 0] < -0.25).all()
    crossing = (np.abs(paths[:, :, 0]) < 0.2) * np.sign(paths[:, :, 1])
    south, north = crossing.min(axis=1), crossing.max(axis=1)
    np.testing.assert_array_equal(south == -1, group == 1)
    np.testing.assert_array_equal(north == 1, group == 2)
    speed = np.abs(np.diff(paths, axis=1)).sum(axis=2).max() * 4 / 0.01
    assert speed == pytest.approx(12.0)


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


STACK = np.arange(240.0).reshape(60, 4, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_branching_trajectories(20, 3, random_state=seed),
        lambda seed: branching_paths(20, [0.2, 0.5], random_state=seed),
        lambda seed: make_ornstein_uhlenbeck_trajectories(20, 3, random_state=seed)[:2],
        lambda seed: make_spiral_trajectories(20, 3, random_state=seed)[:3],
        lambda seed: make_forking_trajectories(20, 3, random_state=seed)[:3],
        lambda seed: make_lineage_trajectories(20, 3, random_state=seed)[:2],
        lambda seed: make_commuting_trajectories(20, 3, random_state=seed)[:2],
        lambda seed: one_point_per_person(STACK, np.arange(4), random_state=seed),
    ],
)
def test_random_state(make):
    assert_repeatable(make)


COVARIANCE = "initial_covariance"
REFUSED = [
    *(
        (partial(make_ornstein_uhlenbeck_trajectories, 10, 2, **options), message)
        for options, message in (
            ({"mean_reversion": -1.0}, "mean_reversion must be at least 0"),
            ({"mean": math.nan}, "mean must be finite"),
            ({"initial_mean": np.zeros((2, 2))}, "initial_mean must be a number or have shape"),
            ({"diffusivity": -0.1}, "diffusivity=-0.1 must be finite"),
            ({COVARIANCE: [[1.0, 2.0], [2.0, 1.0]]}, f"{COVARIANCE} must be finite, symmetric"),
            ({COVARIANCE: np.eye(3)}, f"{COVARIANCE} must be a number"),
            ({"duration": 0.0}, "duration=0.0 must be finite, above 0"),
            ({"n_features": 0}, "n_features == 0, must be >= 1"),
            ({"rotation": [1.0, 2.0]}, "rotation must be a number or have shape"),
            ({"rotation": 1.0, "mean_reversion": [1.0, 2.0]}, "in each plane that rotates"),
        )
    ),
    *(
        (partial(call, time), "times must be finite and at least 0")
        for call in (LAW.mean, LAW.covariance, lambda t: LAW.sample_paths(2, [t], None))
        for time in (-0.1, math.nan)
    ),
    (lambda: LAW.sample_paths(0, [0.5], None), "n_paths == 0, must be >= 1"),
    (lambda: LAW.density([[1.0, 2.0]], 0.5), r"X must have shape \(n, 3\)"),
    *(
        (partial(make_branching_trajectories, *given), message)
        for given, message in (
            ((0,), "n_per_time must be at least 1"),
            (([3, 4], 3), "n_per_time must be at least 1"),
            ((3, 0), "n_times == 0, must be >= 1"),
        )
    ),
    (partial(make_branching_trajectories, noise_variance=-1), "noise_variance=-1 must be finite"),
    (lambda: make_spiral_trajectories(turns=math.inf), "turns=inf must be finite"),
    (lambda: make_forking_trajectories(n_features=2), "n_features == 2, must be >= 3"),
    (lambda: branching_paths(0, [0.5]), "n_paths == 0, must be >= 1"),
    (lambda: branching_paths(2, [0.5, 1.5]), r"times must lie in \[0, 1\]"),
    (lambda: branch_of([[0.0, 0.0]], 2.0), r"times must lie in \[0, 1\]"),
    (lambda: branch_of([[0.0, 0.0, 1.0]], 0.5), r"points must have shape \(..., 2\)"),
    (lambda: one_point_per_person(np.zeros((4, 3)), [0, 1, 2]), "paths must have shape"),
    (lambda: one_point_per_person(STACK, [0, 1]), "paths have 4 times, so times"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
