"""Trajectories: what is charged, when, for what, and that nothing else is let out."""

import math
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot.exceptions import ReliabilityWarning
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.strategy import Energy
from skdpot.trajectories.timed_rows import divide_by_time
from tests.flat_options import trajectory_sampler
from tests.trajectories.trajectory_examples import MFLD, SKETCH, quiet_fit

RNG = np.random.default_rng(8841)
N_TIMES, N_ROWS = 4, 840
X = RNG.uniform(-1, 1, (N_ROWS, 2))
T = np.repeat(np.arange(4.0), [270, 170, 190, 210])
QUICK = {"sketch": SKETCH, "mfld": MFLD}


def sampler(mechanism="sketch", **changes):
    return trajectory_sampler(**(QUICK[mechanism] | changes))


def used_rows(estimator, rows, t, groups, rng):
    limits = {name: getattr(estimator, name) for name in ("n_times", "n_time_subsample")}
    return divide_by_time(
        rows, t, **limits, group_size=estimator.group_size, groups=groups, rng=rng
    )


# The account, on another route --------------------------------------------------------------


def delta_of_gaussians(mus, epsilon):
    """Balle and Wang's closed form for releases of mu each."""
    mu = math.sqrt(sum(m**2 for m in mus))
    return stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * stats.norm.cdf(
        -epsilon / mu - mu / 2
    )


def epsilon_by_dp_accounting(steps, mus, delta):
    """Under replace-one it measures noise in clipping norms, half of the sensitivity."""
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    for multiplier, rate, count in steps:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        accountant.compose(step, count)
    for mu in mus:
        accountant.compose(dp_event.GaussianDpEvent(2.0 / mu))
    return accountant.get_epsilon(delta)


def sensitivity_of_a_table(fitted):
    """One row replaced, as in a sketch without classes."""
    sketch = fitted.sketch_
    energy = Energy.of(sketch.bounds_, sketch.directions_, sketch.half_widths_)
    return sketch.strategy_.sensitivity(energy)


def mus_of_bounds(events):
    """Of one row: in rounds of histograms of two features, and in one of norms."""
    tables = [2 * e.n_steps if e.label == "Histograms of values" else 1 for e in events]
    return [math.sqrt(2 * n) / e.sigma for n, e in zip(tables, events, strict=True)]


@pytest.mark.parametrize("group_size", [1, 3])
@pytest.mark.parametrize("bounds", [(-1, 1), "private"])
def test_epsilon_of_a_sketch_is_that_of_its_noise(bounds, group_size):
    options = {"bounds": bounds, "group_size": group_size, "epsilon": 2.0, "delta": 1e-4}
    fitted = quiet_fit(sampler(**options), X, T)
    mus = [math.sqrt(group_size) * sensitivity_of_a_table(fitted) / fitted.sketch_.noise_scale_]
    events = fitted.privacy_spent_.event.phases
    if bounds == "private":
        *of_bounds, _ = events
        assert len(of_bounds) in (1, 2)
        mus += [group_size * mu for mu in mus_of_bounds(of_bounds)]
    assert len(events) == len(mus)
    assert events[-1].sigma == fitted.sketch_.noise_scale_
    spent = delta_of_gaussians(mus, 2.0)
    assert 0.97e-4 < spent <= 1e-4 * (1 + 1e-6)


CASES = [
    ({}, 3, []),
    ({"warm_start": "mean"}, 2, ["mean"]),
    ({"warm_start": "mean", "bounds": "private"}, 1, ["mean"]),
    ({"warm_start": "kmeans", "bounds": "private"}, 2, ["kmeans"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "k", "warm"), CASES)
def test_epsilon_of_mfld_is_that_of_its_noise(options, k, warm):
    options = options | {"noise_multiplier": None, "group_size": k, "epsilon": 1.5, "delta": 1e-4}
    fitted = quiet_fit(sampler("mfld", **options), X, T)
    first, again = fitted.noise_multiplier_
    assert first == again
    gaussians = [e for e in fitted.privacy_spent_.event.phases if isinstance(e, GaussianEvent)]
    mus = []
    if warm:
        start = gaussians.pop()
        distance = 2 * math.sqrt(2) + math.sqrt(2) * start.lattice  # of rows of norm sqrt(d)
        n_steps = k * (4 if warm == ["kmeans"] else 1)
        mus.append(math.sqrt(n_steps) * distance / start.sigma)
    mus += [k * mu for mu in mus_of_bounds(gaussians)]
    assert bool(gaussians) == (options.get("bounds") == "private")
    epsilon = epsilon_by_dp_accounting([(first, 0.3, 5 * k)], mus, 1e-4)
    assert 0.98 * 1.5 < epsilon < 1.5 * 1.001
    assert fitted.privacy_spent_.epsilon == 1.5


def test_given_noise_is_stated_with_what_it_costs():
    spent = sampler("mfld", noise_multiplier=[2.0, 4.0], delta=1e-4).fit(X, T).privacy_spent_
    expected = epsilon_by_dp_accounting([(2.0, 0.3, 3), (4.0, 0.3, 2)], [], 1e-4)
    assert expected < spent.epsilon < expected * (1 + 1 / 128)
    assert spent.sigma == pytest.approx((1.6, 3.2))
    assert all(1.6 < sensitivity <= 1.6 * (1 + 1 / 511) for sensitivity in spent.sensitivity)
    assert all(e.clipped_sum for e in spent.event.phases if isinstance(e, SampledGaussianEvent))


def test_the_number_of_times_and_of_rows_costs_nothing():
    one, many = (
        sampler("mfld", schedule=[(0.001, None, 3)]).fit(X, t).privacy_spent_.event
        for t in (np.zeros(N_ROWS), np.arange(N_ROWS) % 20)
    )
    assert one == many


# What a row touches -------------------------------------------------------------------------


def neighbours(time):
    """Another row at this time, far outside of the bounds."""
    other = X.copy()
    other[np.flatnonzero(time == T)[5]] = [1e6, -1e6]
    return X, other


@pytest.mark.parametrize("time", [0, 2])
@pytest.mark.parametrize(
    ("options", "released"),
    [
        (SKETCH, lambda fitted: fitted.sketch_.statistic_),
        # After one step the other times answer to what was released.
        (
            MFLD | {"schedule": [(0.01, None, 1)], "batch_fraction": 1.0},
            lambda fitted: fitted.path_.particles,
        ),
        (MFLD | {"warm_start": "mean"}, lambda fitted: fitted.centers_),
    ],
    ids=["table", "sums", "mean"],
)
def test_a_row_touches_the_releases_of_its_time_only(options, released, time):
    first, second = (
        quiet_fit(trajectory_sampler(**options, random_state=1), rows, T)
        for rows in neighbours(time)
    )
    pairs = zip(released(first), released(second), strict=True)
    assert [not np.array_equal(a, b) for a, b in pairs] == [i == time for i in range(N_TIMES)]
    if "n_bins" in options:
        moved = np.linalg.norm(released(first) - released(second))
        assert 0 < moved <= first.privacy_spent_.sensitivity


# Persons with several rows ------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), min_size=2, max_size=60),
    st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(2, 4),
    st.integers(0, 1000),
)
def test_nobody_has_more_rows_than_allowed(pairs, group_size, n_times, n_kept, seed):
    persons, t = np.array(pairs).T
    rows = np.column_stack([np.arange(len(t)), persons, t]).astype(float)
    estimator = trajectory_sampler(group_size=group_size, n_times=n_times, n_time_subsample=n_kept)
    data = used_rows(estimator, rows, t, persons, np.random.default_rng(seed))
    of_person = data.rows[:, 1]
    table = np.column_stack([of_person, data.positions])
    assert len(np.unique(table, axis=0)) == len(table)
    assert np.unique(of_person, return_counts=True)[1].max() <= data.group_size <= group_size
    assert data.counts.min() >= 1
    assert data.axis.n_times <= (n_kept or 6)
    if n_kept is None:
        assert set(of_person) == set(persons)
    # What is kept does not depend on the rows.
    other = used_rows(estimator, rows[:, [0, 0, 0]] * -7, t, persons, np.random.default_rng(seed))
    np.testing.assert_array_equal(other.positions, data.positions)
    np.testing.assert_array_equal(other.rows[:, 0], -7 * data.rows[:, 0])


def test_a_random_choice_of_times_and_rows_is_used():
    """Of a person's four rows each is kept as often: 400 persons, seven standard errors."""
    chosen = set()
    for seed in range(40):
        limited = trajectory_sampler(n_time_subsample=3)
        data = used_rows(limited, X, T, None, np.random.default_rng(seed))
        times = tuple(data.axis.stamps)
        chosen.add(times)
        np.testing.assert_array_equal(data.rows, X[np.isin(T, times)])
        np.testing.assert_array_equal(data.axis.stamps[data.positions], T[np.isin(T, times)])
    assert chosen == {(0.0, 1.0, 3.0), (0.0, 2.0, 3.0)}  # the first and the last are
    persons, t = np.repeat(np.arange(400), 4), np.tile(np.arange(4), 400)
    data = used_rows(trajectory_sampler(), np.ones((1600, 1)), t, persons, np.random.default_rng())
    assert data.counts.sum() == 400
    assert np.abs(data.counts - 100).max() < 7 * math.sqrt(400 * 3 / 16)


@pytest.mark.parametrize("mechanism", QUICK)
def test_bins_without_persons_are_refused_only_where_they_mix_times(mechanism):
    assert sampler(mechanism, group_size=2).fit(X, T).n_samples_ == N_ROWS
    assert sampler(mechanism, group_size=1, n_times=2).fit(X, T).n_samples_ == N_ROWS
    persons = np.arange(N_ROWS) % 100
    fitted = sampler(mechanism, group_size=2, n_times=2).fit(X, T, groups=persons)
    assert fitted.n_samples_ <= 200
    assert np.all(fitted.time_counts_ <= 100)


# What is let out ----------------------------------------------------------------------------


def test_the_bar_of_secret_batches_shows_no_speed(capsys):
    sampler("mfld", verbose=1).fit(X, T)
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "it/s" not in shown


# Stamps that rounding could make one ---------------------------------------------------------


def near_stamps(offset, step):
    return offset + step * np.repeat(np.arange(4), N_ROWS // 4)


@pytest.mark.parametrize("t", [near_stamps(1e9, 2.0**-23), near_stamps(1.0, np.spacing(1.0))])
def test_rows_of_a_person_at_neighbouring_stamps_are_at_different_times(t):
    """Two rows of one person at one time would cost twice as much, not the root of it."""
    fitted = sampler("sketch", group_size=2).fit(X, t)
    np.testing.assert_array_equal(fitted.time_counts_, [N_ROWS // 4] * 4)


@pytest.mark.parametrize("changes", [{}, {"bandwidth": 1e-6}, {"diffusivity": 1e-12}])
def test_times_of_few_rows_end_in_the_ball_like_the_others(changes):
    t = np.repeat(np.arange(4.0), [2, 3, 430, 405])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ReliabilityWarning)
        fitted = sampler("mfld", **{"noise_multiplier": 20.0, "schedule": None} | changes).fit(X, t)
    assert np.abs(fitted.particles_).max() <= 1 + 1e-9
    assert np.isfinite(fitted.displacements_).all()
