"""What the trajectory sampler gives back: paths, marginals, frames, scores."""

import numpy as np
import pandas as pd
import pytest

from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
from skdpot.metrics import wasserstein_distance
from tests.flat_options import trajectory_sampler
from tests.trajectories.trajectory_examples import MFLD, SKETCH, quiet_fit

RNG = np.random.default_rng(8841)
T = RNG.integers(0, 5, 800) * 2.5 + 10  # 10, 12.5 ... 20
X = np.column_stack([(T - 15) / 8, np.zeros(800)]) + RNG.uniform(-0.3, 0.3, (800, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"])
LARGER = {"n_projections": 8, "n_bins": 32, "n_particles": 60, "schedule": [(1.0, None, 20)]}
SHORT = {
    "clip_gradient": None,
    "batch_fraction": 0.5,
    "n_particles": 30,
    "schedule": [(0.01, None, 5)],
}
QUICK = {"sketch": SKETCH | LARGER, "mfld": MFLD | SHORT}


def sampler(mechanism="sketch", **changes):
    return trajectory_sampler(**(QUICK[mechanism] | changes))


@pytest.fixture(scope="module")
def fitted():
    return sampler(epsilon=np.inf).fit(X, T)


# Paths --------------------------------------------------------------------------------------


def test_paths_pass_the_times(fitted):
    np.testing.assert_array_equal(fitted.times_, [10, 12.5, 15, 17.5, 20])
    np.testing.assert_array_equal(fitted.time_counts_, np.unique(T, return_counts=True)[1])
    paths = fitted.sample(60, random_state=0)
    assert paths.shape == (60, 5, 2)
    held = {point.tobytes() for cloud in fitted.particles_ for point in cloud}
    assert all(point.tobytes() in held for path in paths for point in path)
    np.testing.assert_allclose(paths.mean(axis=0)[:, 0], (fitted.times_ - 15) / 8, atol=0.15)


def test_paths_at_any_times_in_any_order(fitted):
    at = [20, 11, 15, 11, 10]
    paths = fitted.sample(40, times=at, random_state=1)
    assert paths.shape == (40, 5, 2)
    np.testing.assert_array_equal(paths[:, 1], paths[:, 3])
    again = fitted.sample(40, random_state=1)
    np.testing.assert_allclose(paths[:, [4, 2, 0]], again[:, [0, 2, 4]])


@pytest.mark.parametrize("times", [[9.9], [15, 20.1]])
def test_times_outside_are_refused(fitted, times):
    with pytest.raises(ValueError, match="process is unknown before and after"):
        fitted.sample(3, times=times)
    with pytest.raises(ValueError, match="process is unknown"):
        fitted.sample_marginal(times[-1], 3)


def test_a_marginal_has_one_time(fitted):
    rows = fitted.sample_marginal(12.5, 60)
    held = {point.tobytes() for point in fitted.particles_[1]}
    assert {row.tobytes() for row in rows} == held
    assert fitted.sample_marginal(13.1, 7).shape == (7, 2)
    with pytest.raises(ValueError, match="must be a single time; for several at once use sample"):
        fitted.sample_marginal([12.5, 13.0], 3)


def test_a_frame_has_a_row_per_path_and_time(fitted):
    named = sampler(epsilon=np.inf).fit(FRAME, pd.Series(T))
    table = named.sample_frame(3, times=[10, 14, 20], random_state=2)
    assert list(table.columns) == ["path", "time", "a", "b"]
    assert table["path"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert table["time"].tolist() == [10, 14, 20] * 3
    paths = named.sample(3, times=[10, 14, 20], random_state=2)
    np.testing.assert_array_equal(table[["a", "b"]].to_numpy().reshape(3, 3, 2), paths)
    assert list(fitted.sample_frame(2).columns) == ["path", "time", "x0", "x1"]
    assert len(fitted.sample_frame(2)) == 10
    clash = sampler(epsilon=np.inf).fit(FRAME.rename(columns={"a": "time"}), T)
    with pytest.raises(ValueError, match='named "path" or "time"'):
        clash.sample_frame()


def test_the_score_is_the_mean_distance_over_the_times(fitted):
    score = fitted.score(X, T)
    by_hand = [
        wasserstein_distance(X[i == T], p)
        for i, p in zip(fitted.times_, fitted.particles_, strict=True)
    ]
    assert score == pytest.approx(-np.mean(by_hand), rel=1e-6)
    assert fitted.score(X, t=T) == score
    early = T == 10
    assert fitted.score(X[early], T[early]) == pytest.approx(-by_hand[0], rel=1e-6)
    # A mistaken time is a distance too.
    assert fitted.score(X, 30 - T) < 3 * score
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(X, T[1:])
    with pytest.raises(ValueError, match="target y is None"):
        fitted.score(X)


# Times --------------------------------------------------------------------------------------


def test_dates_in_dates_out():
    days = pd.Series(pd.Timestamp("2021-03-01") + pd.to_timedelta((T - 10) * 4, unit="D"))
    for stamps in (days, days.dt.tz_localize("UTC"), days.dt.tz_localize("UTC").to_numpy()):
        dated = sampler(epsilon=np.inf).fit(X, stamps)
        assert dated.times_.dtype == np.dtype("datetime64[ns]")
        np.testing.assert_array_equal(dated.times_, np.unique(days))
        assert dated.sample(3, times=[stamps[0]]).shape == (3, 1, 2)
        assert dated.sample(3, times=dated.times_).shape == (3, 5, 2)
        assert dated.sample_marginal(pd.Timestamp("2021-03-08 12:00"), 3).shape == (3, 2)
        np.testing.assert_array_equal(dated.sample_frame(1)["time"], dated.times_)
        assert dated.score(X, stamps) > -0.3
        with pytest.raises(ValueError, match="2021-03-01.*2021-04-10"):
            dated.sample(3, times=[pd.Timestamp("2021-02-01")])
        with pytest.raises(ValueError, match="times must hold dates"):
            dated.sample(3, times=[3.0])


@pytest.mark.parametrize("mechanism", QUICK)
@pytest.mark.parametrize("coupling", ["entropic", "exact"])
def test_one_time(mechanism, coupling):
    one = sampler(mechanism, coupling=coupling).fit(X, np.full(800, 3.0))
    assert one.particles_.shape[0] == 1
    assert one.sample(4).shape == (4, 1, 2)
    assert one.sample(4, times=[3.0, 3.0]).shape == (4, 2, 2)
    assert one.sample_marginal(3.0, 5).shape == (5, 2)
    assert np.isfinite(one.score(X, np.full(800, 3.0)))
    with pytest.raises(ValueError, match="process is unknown"):
        one.sample(1, times=[3.1])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", QUICK)
def test_many_times_need_no_other_parameters(mechanism):
    """Default steps shrink where times are near to each other."""
    t = np.concatenate([np.arange(400) / 10, [3.04] * 400])
    changes = {"schedule": None, "n_particles": 5, "n_times": 30}
    if mechanism == "mfld":
        changes["noise_multiplier"] = 3.0
    many = sampler(mechanism, **changes).fit(X, t)
    assert np.isfinite(many.particles_).all()


# Shapes and mechanisms -----------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", QUICK)
def test_norm_bound_keeps_points_in_the_ball(mechanism):
    # Noise of "mfld" at this size throws particles far away.
    inside = sampler(mechanism, bounds="private", norm_bound=0.5).fit(X, T)
    for points in (inside.particles_, inside.sample(50, times=[11, 13.3, 19])):
        assert np.linalg.norm(points, axis=-1).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("warm_start", ["mean", "kmeans"])
def test_warm_starts_are_where_the_rows_are(warm_start):
    options = {"epsilon": np.inf, "noise_multiplier": None}
    warm = sampler("mfld", warm_start=warm_start, n_clusters=2, **options).fit(X, T)
    if warm_start == "mean":
        assert warm.centers_.shape == (5, 1, 2) or warm.centers_.shape == (5, 2)
        assert not hasattr(warm, "cluster_shares_")
        means = [X[time == T].mean(axis=0) for time in warm.times_]
        np.testing.assert_allclose(warm.centers_.reshape(5, 2), means, atol=1e-6)
    else:
        assert warm.centers_.shape == (5, 2, 2)
        np.testing.assert_allclose(warm.cluster_shares_.sum(axis=1), 1)
        for i, time in enumerate(warm.times_):
            mean = warm.cluster_shares_[i] @ warm.centers_[i]
            np.testing.assert_allclose(mean, X[time == T].mean(axis=0), atol=0.1)
    cold = warm.set_params(mechanism__warm_start=None).fit(X, T)
    for name in ("centers_", "cluster_shares_"):
        assert not hasattr(cold, name)


# Known truth --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def diffusion():
    """A process with a known law, seen at eleven times, and what is recovered without noise."""
    rows, t, law = make_ornstein_uhlenbeck_trajectories(
        2000, 11, initial_covariance=0.1, diffusivity=0.3, random_state=1
    )
    options = {"bounds": (-2.5, 2.5), "diffusivity": 0.3 / 2.5**2, "n_particles": 200}
    estimator = trajectory_sampler(epsilon=np.inf, random_state=0, **options)
    return quiet_fit(estimator, rows, t), law


@pytest.mark.slow
def test_marginals_are_those_of_the_law_between_the_times_too(diffusion):
    recovered, law = diffusion
    between = [0.05, 0.33, 0.77]
    paths = recovered.sample(20_000, times=between, random_state=1)
    clouds = [*zip(recovered.times_, recovered.particles_, strict=True)]
    clouds += [(t, recovered.sample_marginal(t, 20_000, random_state=0)) for t in between]
    clouds += [(t, paths[:, i]) for i, t in enumerate(between)]
    for time, cloud in clouds:
        np.testing.assert_allclose(cloud.mean(axis=0), law.mean(time), atol=0.04)
        np.testing.assert_allclose(np.cov(cloud.T), law.covariance(time), atol=0.03)


@pytest.mark.slow
def test_paths_remember_where_they_came_from(diffusion):
    """Cross-covariances of neighbouring times, up to what one point per person cannot tell.

    The reference process is a Brownian motion, without the drift back of the truth.
    """
    recovered, law = diffusion
    paths = recovered.sample(20_000, random_state=2)
    for i in (0, 4, 9):
        s, t = recovered.times_[[i, i + 1]]
        around = paths[:, [i, i + 1]] - paths[:, [i, i + 1]].mean(axis=0)
        found = np.einsum("na,nb->ab", around[:, 0], around[:, 1]) / len(paths)
        np.testing.assert_allclose(found, law.cross_covariance(s, t), atol=0.03)


@pytest.mark.slow
def test_mfld_moves_from_the_center_towards_the_rows():
    """Without a warm start it takes long: the clip lets rows far away pull little."""
    rows = 0.1 * RNG.standard_normal((800, 2)) + np.column_stack([(T - 15) / 8, 0 * T + 0.6])
    options = {"epsilon": np.inf, "bounds": (-1, 1), "n_particles": 60, "random_state": 0}
    options["schedule"] = [(0.0006, None, 400)]
    means = quiet_fit(trajectory_sampler("mfld", **options), rows, T).particles_.mean(axis=1)
    assert means[-1, 0] - means[0, 0] > 0.15
    assert means[:, 1].mean() > 0.05


def test_times_help_each_other_without_noise_too():
    """What differs from one time to the next is then the chance of who was seen."""
    rows, t, law = make_ornstein_uhlenbeck_trajectories(64, 9, diffusivity=0.1, random_state=0)
    options = {"epsilon": np.inf, "bounds": (-1, 2), "n_particles": 80, "random_state": 0}
    options |= {"n_projections": 16, "n_bins": 64}
    fitted = quiet_fit(trajectory_sampler(**options), rows, t)
    truth = law.sample_paths(600, fitted.times_, np.random.default_rng(1))
    together, apart = (
        np.mean([wasserstein_distance(truth[:, i], at) ** 2 for i, at in enumerate(one.particles_)])
        for one in (fitted, fitted.with_params(mechanism__smooth=False, random_state=0))
    )
    assert together < 0.75 * apart


def test_with_entropy_particles_follow_the_reduced_objective():
    """Less of F = G + τH, and more of G, than without: no noise, one schedule."""
    options = {"epsilon": np.inf, "bounds": (-1, 1), "n_particles": 80, "random_state": 0}
    options |= {"warm_start": "mean", "diffusivity": 0.5, "schedule": [(0.001, None, 80)]}
    options |= {"regularization": 0.3}
    rows = 0.1 * RNG.standard_normal((800, 2))
    plain, wide = (
        quiet_fit(trajectory_sampler("mfld", entropy=entropy, **options), rows, T).path_.objective
        for entropy in (False, True)
    )
    assert wide.total < plain.total
    assert wide.fit + wide.transport > plain.fit + plain.transport


# Errors, and other paths from the same release ----------------------------------------------


def test_standard_errors_are_those_of_noise_and_sampling():
    """Without smoothing and ties the error of a mean has a closed form, for noise and rows."""
    rows, t = RNG.normal(0, 0.25, (1200, 2)), np.repeat([0.0, 1.0], 600)
    apart = {"smooth": False, "regularization": 0, "schedule": [(1.0, None, 40)]}
    fitted = sampler(epsilon=3.0, **apart).fit(rows, t)
    found = fitted.estimate(n_simulations=96)
    assert found.value.shape == found.standard_error.shape == (2, 2)
    np.testing.assert_allclose(found.value + found.bias, fitted.particles_.mean(axis=1))
    sketch = fitted.sketch_
    noise = 1 / 16**2 * sketch.strategy_.known_total_covariance.sum() * sketch.noise_scale_**2
    by_direction = noise * sketch.half_widths_**2 / 600**2
    inverse = np.linalg.pinv(sketch.directions_)
    variance = inverse**2 @ by_direction + 0.25**2 / 600
    assert 0.7 < np.sqrt(np.mean(found.standard_error**2 / variance)) < 1.5
    narrow, wide = (np.ptp(found.interval(confidence), axis=0) for confidence in (0.9, 0.99))
    assert (narrow < wide).all()


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """Means of a known law, by 3 independent releases: 30 numbers of which 95 % should be in."""
    inside = []
    for seed in range(3):
        rows, t, law = make_ornstein_uhlenbeck_trajectories(200, 5, random_state=seed)
        fitted = quiet_fit(sampler(epsilon=1.0, bounds=(-2, 2), random_state=seed), rows, t)
        low, high = fitted.estimate(n_simulations=8).interval(0.95)
        truth = law.mean(fitted.times_)
        inside.append((low < truth) & (truth < high))
    assert np.mean(inside) > 0.85


def test_any_statistic_has_an_error(fitted):
    share = fitted.estimate(lambda one: (one.particles_[..., 0] > 0).mean(axis=1), n_simulations=8)
    assert share.value.shape == (5,)
    score = fitted.estimate(lambda one: one.score(X, T), n_simulations=8)
    assert score.bias < 0 < score.standard_error
    assert score.value + score.bias == pytest.approx(fitted.score(X, T))
    between = fitted.estimate(
        lambda one: one.sample(50, [11.0], random_state=0).mean(axis=0), n_simulations=8
    )
    assert between.standard_error.shape == (1, 2)
    again = fitted.estimate(lambda one: one.score(X, T), n_simulations=8)
    assert again.standard_error == score.standard_error
    with pytest.raises(ValueError, match="The statistic must return finite numbers"):
        fitted.estimate(lambda one: np.nan, n_simulations=8)
    with pytest.raises(ValueError, match="n_simulations == 7, must be >= 8"):
        fitted.estimate(n_simulations=7)
    with pytest.raises(ValueError, match=r"confidence=1.0 must be in \(0, 1\)"):
        score.interval(1.0)


def test_a_new_fit_forgets_the_simulations():
    one = sampler(epsilon=np.inf).fit(X, T)
    first = one.estimate(n_simulations=8).value
    assert not np.array_equal(one.fit(X + 0.1, T).estimate(n_simulations=8).value, first)


def test_other_paths_cost_nothing(fitted):
    other = fitted.with_params(
        diffusivity=0.5, coupling="exact", n_particles=30, mechanism__smooth=False
    )
    assert other.path_.particles.shape == (5, 30, 2)
    assert other.path_.diffusivity == 0.5
    assert not other.mechanism_.smooth
    assert fitted.mechanism_.smooth
    assert fitted.particles_.shape == (5, 60, 2)
    assert other.sketch_ is fitted.sketch_
    assert other.privacy_spent_ is fitted.privacy_spent_
    joined = fitted.with_params(coupling="exact")
    np.testing.assert_array_equal(joined.particles_, fitted.particles_)
    assert (joined.path_.plans[0] - fitted.path_.plans[0]).count_nonzero() > 0
    with pytest.raises(ValueError, match="epsilon, mechanism__n_bins cannot change after fit"):
        fitted.with_params(epsilon=2.0, mechanism__n_bins=64)
    with pytest.raises(ValueError, match="'diffusivity' parameter"):
        fitted.with_params(diffusivity=-1.0)


def test_left_out_times_tell_how_much_paths_wander():
    """Brownian motion of known diffusivity: too little and too much predict times worse."""
    brownian = {"mean_reversion": 0.0, "initial_mean": 0.0, "initial_covariance": 0.01}
    rows, t, _ = make_ornstein_uhlenbeck_trajectories(
        1500, 5, diffusivity=0.4, **brownian, random_state=0
    )
    fitted = sampler(epsilon=np.inf, bounds=(-2, 2)).fit(rows, t)
    right = 0.4 / 2**2
    best = fitted.select({"diffusivity": [right / 100, right, 30 * right]})
    assert best.diffusivity == right
    assert list(best.search_results_["rank"])[1] == 1
    assert best.privacy_spent_ is fitted.privacy_spent_
    with pytest.raises(ValueError, match="needs at least three times"):
        sampler(epsilon=np.inf).fit(X[T < 15], T[T < 15]).select({"coupling": ["exact"]})


def test_gradients_have_no_known_error():
    langevin = sampler("mfld").fit(X, T)
    for method in (langevin.estimate, lambda: langevin.select({"diffusivity": [0.1]})):
        with pytest.raises(ValueError, match='needs mechanism="sketch"'):
            method()
    other = langevin.with_params(diffusivity=0.5)
    np.testing.assert_array_equal(other.particles_, langevin.particles_)
    assert other.path_.diffusivity == 0.5
    with pytest.raises(ValueError, match="n_particles cannot change after fit"):
        langevin.with_params(n_particles=5)
