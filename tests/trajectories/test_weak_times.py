"""Errors of times, and times whose rows the noise hides."""

import math
import warnings

import numpy as np
import pytest

from skdpot import PrivateTrajectorySampler
from skdpot.exceptions import ReliabilityWarning
from skdpot.mechanisms import MeanFieldLangevin, TrajectorySketch
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.mean_motion import MeanMotion
from skdpot.trajectories.smoothing import smoothed_with_errors
from skdpot.trajectories.weak_times import Knots
from tests.trajectories.test_smoothing import TIMES, VARIANCES, krige, matern

# Seeds are worth a warning that is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore:.*random_state.*:skdpot.exceptions.PrivacyWarning")

SIZES = [2000, 10, 2000, 20, 2000]
BOX = 9.0


def moving(sizes, seed=0, n_features=2):
    """Normal rows around a smooth path, in a box of half side 9; their times and their means."""
    rng = np.random.default_rng(seed)
    positions = np.repeat(np.arange(len(sizes)), sizes)
    phases = np.linspace(0, 2, len(sizes))[:, None] * rng.uniform(0.5, 1.5, n_features)
    centers = rng.uniform(2, 5, n_features) * np.cos(phases + rng.uniform(0, 6, n_features))
    rows = np.clip(centers[positions] + rng.normal(size=(len(positions), n_features)), -BOX, BOX)
    means = np.stack([rows[positions == i].mean(axis=0) for i in range(len(sizes))])
    return rows, positions.astype(float), means


def fitted(mechanism, sizes, seed=0, epsilon=1.0, n_features=2):
    """Return a fit, the means of its rows, and what it warned of."""
    rows, t, means = moving(sizes, seed, n_features)
    sampler = PrivateTrajectorySampler(
        mechanism, epsilon=epsilon, bounds=(-BOX, BOX), n_particles=100, random_state=seed
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(rows, t)
    told = [str(w.message) for w in caught if issubclass(w.category, ReliabilityWarning)]
    return sampler, means, told


@pytest.mark.parametrize("mechanism", [TrajectorySketch(), MeanFieldLangevin(warm_start="mean")])
def test_times_of_few_rows_follow_the_flow_of_the_others_and_are_named(mechanism):
    sampler, means, told = fitted(mechanism, SIZES)
    errors = np.abs(sampler.particles_.mean(axis=1) - means)
    assert errors[[1, 3]].max() < 1.5
    assert errors[[0, 2, 4]].max() < 0.3
    assert sampler.reliability_.unreliable == ("rows at time 1", "rows at time 3")
    (text,) = told
    assert "hides rows at time 1 and rows at time 3; the flow of the other times was put" in text
    assert [item.replaced for item in sampler.reliability_] == [False, True, False, True, False]


def test_a_fit_that_noise_hides_altogether_says_so():
    sampler, _, told = fitted(TrajectorySketch(), [20] * 3, epsilon=0.3)
    assert len(sampler.reliability_.unreliable) == 3
    assert "the mean of all times was put in their place" in told[0]
    assert max(item.standard_error for item in sampler.reliability_) <= 1.0


def test_what_nothing_is_known_of_is_in_the_middle_of_the_bounds():
    sampler, *_ = fitted(TrajectorySketch(), [2, 2, 2], epsilon=0.1)
    assert np.abs(sampler.particles_.mean(axis=1)).max() < 0.1 * BOX


def test_weak_times_are_not_merged_without_smoothing():
    sampler, *_ = fitted(TrajectorySketch(smooth=False), SIZES)
    assert not any(item.replaced for item in sampler.reliability_)
    assert {"rows at time 1", "rows at time 3"} <= set(sampler.reliability_.unreliable)


def test_dates_are_named_as_dates():
    rows, t, _ = moving(SIZES)
    dates = np.datetime64("2024-01-01") + t.astype(int)
    sampler = PrivateTrajectorySampler(bounds=(-BOX, BOX), n_particles=20, random_state=0)
    with pytest.warns(ReliabilityWarning, match="rows at time 2024-01-02"):
        sampler.fit(rows, dates)


def test_langevin_without_a_warm_start_counts_the_way_that_is_left():
    """The default schedule leaves particles at the center of the bounds."""
    sampler, means, told = fitted(MeanFieldLangevin(), [500] * 3)
    assert np.abs(sampler.particles_.mean(axis=1) - means).max() > 1.0
    assert len(sampler.reliability_.unreliable) == 3
    assert 'warm_start="mean"' in told[0]


# The parts -----------------------------------------------------------------------------------


def sketched(sizes, epsilon, seed=0):
    """Sketch rows whose times are the classes."""
    rows, t, means = moving(sizes, seed)
    classes = np.arange(len(sizes))
    sketch = SlicedSketch(
        epsilon=epsilon,
        conditional=True,
        public_labels=True,
        classes=classes,
        bounds=(-BOX, BOX),
        random_state=seed,
    ).fit(rows, t.astype(int))
    spread = math.sqrt(rows.var(axis=0).mean()) / BOX
    return MeanMotion.of(sketch, np.linspace(0, 1, len(sizes))), means / BOX, spread, sketch


def test_means_and_spread_of_a_sketch_without_noise_are_those_of_the_rows():
    motion, means, spread, _ = sketched([300, 200, 400], math.inf)
    np.testing.assert_allclose(motion.measured, means, atol=0.01)
    assert motion.spread == pytest.approx(spread, abs=0.01)
    assert not motion.deviations.any()


@pytest.mark.parametrize(("epsilon", "low", "high"), [(0.1, 0.8, 1.25), (3.0, 0.5, 1.2)])
def test_deviations_of_measured_means_are_those_of_their_noise(epsilon, low, high):
    """Bins beyond the rows have no noise where the noise of the others is small."""
    ratios = []
    for seed in range(20):
        motion, means, *_ = sketched([100, 60], epsilon, seed)
        ratios.append((motion.measured - means) / motion.deviations[:, None])
        assert motion.hidden.all() == (epsilon == 0.1)
    assert low < math.sqrt(np.mean(np.square(ratios))) < high


def motion_of(deviations, spread=1.0):
    n_times = len(deviations)
    return MeanMotion(
        times=np.linspace(0, 1, n_times),
        counts=1.0 / np.array(deviations),
        measured=np.zeros((n_times, 2)),
        deviations=np.array(deviations),
        dimension=2,
        spread=spread,
    )


@pytest.mark.parametrize(
    ("deviations", "members"),
    [
        ([0.1, 0.2, 0.3], [[0], [1], [2]]),
        ([0.1, 9.0, 0.3], [[0], [2]]),
        ([0.6, 0.6, 0.1, 0.6, 9.0], [[0, 1], [2]]),
        ([9.0, 9.0], [[0, 1]]),
    ],
)
def test_runs_of_weak_times_become_knots_or_are_left_out(deviations, members):
    knots = Knots.of(motion_of(deviations))
    assert [list(some) for some in knots.members] == members
    alone = {some[0] for some in members if len(some) == 1}
    assert [not gone for gone in knots.filled] == [i in alone for i in range(len(deviations))]
    assert Knots.of(motion_of(deviations), merge=False).are_all_times


def test_merged_tables_have_the_noise_of_one():
    motion, _, _, sketch = sketched([40, 30, 400], 1.0)
    knots = Knots(motion, [np.array([0, 1]), np.array([2])])
    merged = knots.merged(sketch)
    assert merged.noise_scale_ == sketch.noise_scale_
    np.testing.assert_allclose(
        merged.statistic_[0], (40 * sketch.statistic_[0] + 30 * sketch.statistic_[1]) / 50
    )
    np.testing.assert_allclose(merged.class_counts_, [50, 400])
    np.testing.assert_array_equal(merged.statistic_[1], sketch.statistic_[2])


def test_particles_between_knots_are_interpolated_and_end_at_the_nearest():
    motion = motion_of([9.0, 0.1, 9.0, 0.1])
    knots = Knots.of(motion)
    start = np.array([[-1.0, 0.0], [1.0, 0.0]])
    filled = knots.fill(np.stack([start, start[::-1] * 3.0]), followed=False)
    np.testing.assert_allclose(filled[1], start)
    # Joined by transport, whatever their order; the smooth mean is 0.
    np.testing.assert_allclose(filled[2], 2.0 * start, atol=1e-12)
    np.testing.assert_allclose(filled[0], start, atol=1e-12)


def test_the_posterior_of_a_series_is_the_mean_over_covariances():
    """By dense formulas for each covariance of the grid."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(len(TIMES), 3)) * np.sqrt(VARIANCES)[:, None] + 2 * TIMES[:, None]
    noise, shortest = np.diag(VARIANCES), 0.25 / 9
    ones = np.ones((len(TIMES), 1))
    means, variances, logs = [], [], []
    for reach in np.geomspace(shortest, 3.0, 16):
        for amplitude in np.geomspace(1e-4, 4.0, 30):
            signal = amplitude * matern(TIMES, reach)
            inverse = np.linalg.inv(signal + noise)
            information = ones.T @ inverse @ ones
            P = inverse - inverse @ ones @ np.linalg.solve(information, ones.T @ inverse)
            logs.append(
                -1.5 * (np.linalg.slogdet(signal + noise)[1] + np.linalg.slogdet(information)[1])
                - 0.5 * np.einsum("tj,ts,sj->", values, P, values)
            )
            means.append(krige(signal + noise, signal) @ values)
            variances.append(np.diag(noise - noise @ P @ noise))
    shares = np.exp(np.array(logs) - max(logs))
    shares /= shares.sum()
    mean = np.tensordot(shares, means, 1)
    between = np.tensordot(shares, np.square(np.array(means) - mean).mean(axis=2), 1)
    found, errors = smoothed_with_errors(values, TIMES, VARIANCES, 3)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(errors**2, shares @ variances + between, rtol=1e-5)


@pytest.mark.parametrize("variances", [np.zeros(3), np.array([1.0])])
def test_without_noise_or_other_times_values_stay(variances):
    values = np.arange(2.0 * len(variances)).reshape(-1, 2)
    found, errors = smoothed_with_errors(values, np.linspace(0, 1, len(variances)), variances, 2)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(errors, np.sqrt(variances))


# Over many fits ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "least"),
    [(TrajectorySketch(), 0.92), (MeanFieldLangevin(warm_start="mean"), 0.92)],
)
def test_means_are_within_two_standard_errors(mechanism, least):
    """In 120 fits of known laws; where a time is replaced, by the error of the flow."""
    within = {True: [], False: []}
    for seed in range(120):
        sizes = ([400] * 3, [300, 50, 300, 50, 300, 300], SIZES)[seed % 3]
        epsilon, n_features = (0.3, 1.0)[seed % 2], (2, 5)[seed // 60]
        sampler, means, _ = fitted(mechanism, sizes, seed, epsilon, n_features)
        errors = np.abs(sampler.particles_.mean(axis=1) - means) / BOX
        for item, error in zip(sampler.reliability_, errors, strict=True):
            stated = item.trivial_error if item.replaced else item.standard_error
            within[item.replaced].extend(error < 2 * stated)
    for inside in within.values():
        assert len(inside) > 100
        assert np.mean(inside) > least
