"""Noisy rows: directions, exact projections, their sensitivity, plans and releases."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import PrivacyBudget
from skdpot.exceptions import BudgetExceededError, CalibrationError
from skdpot.mechanisms import FitContext, Resample
from skdpot.ot.directions import orthogonal_directions, uniform_directions
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent, GaussianEvent
from skdpot.privacy.noise import round_to_lattice
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import SingleFitTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.private_bounds import ball_radius
from skdpot.sampling import row_releases as noisy_rows
from skdpot.sampling.row_releases import (
    StepDirections,
    lemma1_sensitivity,
    on_direction_grid,
    plan_rows,
    project_rows,
    projection_sensitivity,
    spectral_norm,
)
from tests.core.privacy.cases import composed_epsilon
from tests.core.release.exact import streams

TARGET, FREE = SingleFitTarget(2.0, 1e-5), SingleFitTarget(math.inf, 0.1)
KINDS = {"orthogonal": orthogonal_directions, "uniform": uniform_directions}
each_kind = pytest.mark.parametrize("projections", KINDS)
each_noise = pytest.mark.parametrize("noise", ["discrete", "float"])
each_sampling = pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])


def on_sphere(rng, n, d, radius=1.0):
    rows = rng.standard_normal((n, d))
    return radius * rows / np.linalg.norm(rows, axis=1, keepdims=True)


# Projections in fixed point are exact, and the same for a row in any company.


@given(
    d=st.integers(1, 9),
    n_projections=st.integers(1, 6),
    radius=st.sampled_from([1e-20, 0.3, 1.0, 2.0, 3.7, 1e20]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_is_rational_arithmetic_on_the_cut_row(d, n_projections, radius, dtype, seed):
    rng = np.random.default_rng(seed)
    rows = on_sphere(rng, 3, d, 0.999 * radius).astype(dtype)
    theta = on_direction_grid(uniform_directions(n_projections, d, rng))
    found = project_rows(rows, theta, radius)
    for i, row in enumerate(rows.astype(np.float64) / radius):
        cut = [Fraction(int(x * 2.0**28), 2**28) for x in row]
        for j, direction in enumerate(theta):
            exact = sum(a * Fraction(float(b)) for a, b in zip(cut, direction, strict=True))
            assert Fraction(float(found[j, i])) == exact
    plain = rows.astype(np.float64) @ theta.T.astype(np.float64) / radius
    assert np.abs(found - plain.T).max() < 1e-8 * np.sqrt(d)


@pytest.mark.parametrize("d", [3, 64, 784])
def test_company_order_and_device_change_no_bit(d):
    rng = np.random.default_rng(1)
    rows = on_sphere(rng, 200, d, 2.5)
    theta = on_direction_grid(orthogonal_directions(20, d, rng))
    whole = project_rows(rows, theta, 2.5)
    for kept in (rng.permutation(200), np.arange(7, 150), np.array([3])):
        assert np.array_equal(project_rows(rows[kept], theta, 2.5), whole[:, kept])
    assert np.array_equal(project_rows(np.asfortranarray(rows), theta, 2.5), whole)
    shuffled = rng.permutation(d)  # another order of additions
    assert np.array_equal(project_rows(rows[:, shuffled], theta[:, shuffled], 2.5), whole)
    cut = torch.from_numpy(np.trunc(rows / 2.5 * 2**28))
    other = torch.from_numpy(theta.astype(np.float64) * 2**23) @ cut.T
    assert np.array_equal(other.numpy() / 2**51, whole)


@pytest.mark.parametrize("d", [1, 8, 784, 4096])
def test_sums_stay_where_doubles_are_integers(d):
    # The worst row is the direction itself; its sum is the largest that there is.
    theta = on_direction_grid(np.full((1, d), 1 / np.sqrt(d)))
    rows = np.vstack([theta, -theta, np.eye(1, d)]).astype(np.float64)
    assert np.abs(project_rows(rows, theta, 1.0)).max() * 2**51 < 2**52
    whole = np.rint(project_rows(rows, theta, 1.0) * 2**51)
    assert np.array_equal(whole, project_rows(rows, theta, 1.0) * 2**51)


def test_cut_rows_stay_in_the_ball():
    rng = np.random.default_rng(2)
    for radius in (1.0, np.sqrt(5.0), 0.1):
        rows = on_sphere(rng, 500, 5, radius)
        axes = on_direction_grid(np.eye(5))
        kept = np.linalg.norm(project_rows(rows, axes, radius), axis=0)
        assert np.all(kept <= np.linalg.norm(rows, axis=1) / radius * (1 + 1e-15))
        assert np.all(np.abs(project_rows(rows, axes, radius)) <= np.abs(rows.T) / radius)


@each_kind
def test_step_directions_replay_and_differ_by_step(projections):
    steps = StepDirections(projections, 4, 7, 3, np.random.default_rng(5))
    first, second = list(steps), list(steps)
    assert len(steps) == len(first) == 4
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(theta.shape == (7, 3) for theta in first)
    assert not any(np.array_equal(first[0], other) for other in first[1:])
    others = list(StepDirections(projections, 4, 7, 3, np.random.default_rng(6)))
    assert not np.array_equal(first[0], others[0])


@each_kind
@pytest.mark.parametrize(("n_projections", "d"), [(70, 8), (31, 8), (5, 8), (1, 1), (50, 40)])
def test_largest_norm_is_one(projections, n_projections, d):
    steps = StepDirections(projections, 30, n_projections, d, np.random.default_rng(7))
    norms = [np.linalg.svd(theta.astype(float), compute_uv=False)[0] for theta in steps]
    assert max(norms) <= steps.largest_norm <= max(norms) * (1 + 1e-5)


# The exact sensitivity of projections: attained, never exceeded; Lemma 1 beside it.


@given(
    kind=st.sampled_from(sorted(KINDS)),
    n_projections=st.integers(1, 40),
    n_features=st.integers(1, 12),
    log_radius=st.floats(-20, 20),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_attained_by_antipodal_rows_and_never_exceeded(
    kind, n_projections, n_features, log_radius, seed
):
    rng = np.random.default_rng(seed)
    radius = math.exp(log_radius)
    theta = KINDS[kind](n_projections, n_features, rng)
    bound = projection_sensitivity(theta, radius)
    worst = np.linalg.svd(theta)[2][0] * radius
    attained = float(np.linalg.norm(theta @ (worst - -worst)))
    assert attained <= bound <= attained * (1 + 1e-9)
    # A table of rows, one replaced by another of the ball: at random, and to the antipode.
    inside = on_sphere(rng, 10, n_features, radius) * rng.uniform(size=(10, 1)) ** (1 / n_features)
    rows, others = inside[:6], inside[6:]
    for new in (*others, -rows[2], worst, -worst):
        other = rows.copy()
        other[2] = new
        moved = np.linalg.norm(rows @ theta.T - other @ theta.T)
        assert moved <= bound * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(70, 8), (8, 70), (1, 1), (40, 40), (300, 120)])
def test_norm_is_rounded_up_from_the_singular_value(shape):
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e-160, 1e160):
        theta = scale * rng.standard_normal(shape)
        exact = np.linalg.svd(theta, compute_uv=False)[0]
        assert exact * (1 - 1e-13) <= spectral_norm(theta) <= exact * (1 + 1e-9)


def test_lemma_1_by_hand():
    # w(70, 1e-5) in d = 8: 8.75 + 4.2649/8 * sqrt(140 * 7 / 10); the quantile from tables.
    w = 70 / 8 + 4.264890793922825 / 8 * math.sqrt(2 * 70 * 7 / 10)
    assert lemma1_sensitivity(70, 8, 1e-5) == pytest.approx(2 * math.sqrt(w), rel=1e-9)
    assert lemma1_sensitivity(70, 8, 1e-5, radius=3.0) == pytest.approx(6 * math.sqrt(w), rel=1e-9)
    assert lemma1_sensitivity(5, 1, 0.1) == pytest.approx(2 * math.sqrt(5))  # nothing is random


def test_lemma_1_is_exceeded_by_the_worst_pair():
    # One fixed pair exceeds it as rarely as it says; the pair chosen after Θ is seen often does.
    rng = np.random.default_rng(0)
    delta, n_draws = 0.02, 400
    bound = lemma1_sensitivity(40, 8, delta)
    draws = [uniform_directions(40, 8, rng) for _ in range(n_draws)]
    fixed = sum(2 * np.linalg.norm(theta[:, 0]) > bound for theta in draws)
    worst = sum(projection_sensitivity(theta, 1.0) > bound for theta in draws)
    assert fixed <= 20  # 8 expected; a binomial exceeds 20 with probability 1e-4
    assert worst > 0.9 * n_draws


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: projection_sensitivity(np.eye(2), math.nan), "`radius` must be positive"),
        (lambda: projection_sensitivity(np.ones(3), 1.0), "`directions` must be a finite matrix"),
        (lambda: projection_sensitivity([[np.nan]], 1.0), "`directions` must be a finite matrix"),
        (lambda: lemma1_sensitivity(40, 8, 0.1, radius=0.0), "`radius` must be positive"),
        (lambda: lemma1_sensitivity(0, 8, 0.1), "`n_projections` must be an integer >= 1, got 0"),
        (lambda: lemma1_sensitivity(40, 8, 1.0), r"`delta` must lie in \(0, 1\)"),
    ],
)
def test_arguments_are_checked(call, text):
    with pytest.raises(ValueError, match=text):
        call()


# Plans.


def planned(target=TARGET, n=1000, radius=1.0, norm=3.0, n_steps=50, n_projections=70, **options):
    directions = StepDirections("orthogonal", n_steps, n_projections, 8, np.random.default_rng(0))
    directions.largest_norm = norm
    given = {"bounds": DataBounds.from_norm(radius, 8), "batch_size": 20} | options
    return plan_rows(target, directions, n, **given)


def test_events_say_how_rows_are_drawn():
    fixed, poisson = planned(sigma=9).event, planned(sigma=9, sampling="poisson").event
    assert isinstance(fixed, SampledGaussianEvent)
    assert (fixed.batch_sizes, fixed.group_sizes, fixed.n_steps) == ((20,), (1000,), 50)
    assert isinstance(poisson, SampledGaussianEvent)
    assert (poisson.sampling_rate, poisson.n_samples, poisson.n_steps) == (0.02, 1000, 50)
    for size in (None, 1000, 5000):
        for sampling in ("poisson", "without_replacement"):
            whole = planned(batch_size=size, n_steps=3, sampling=sampling, sigma=9).event
            assert isinstance(whole, GaussianEvent)
            assert whole.n_steps == 3


@pytest.mark.slow
@each_noise
@each_sampling
def test_noise_is_just_enough(noise, sampling):
    plan = planned(noise=noise, sampling=sampling)
    assert TARGET.admits(plan.event)
    less = planned(noise=noise, sampling=sampling, sigma=plan.sigma * 0.999)
    assert not TARGET.admits(less.event)


def test_rounded_projections_of_neighbours_stay_within_the_sensitivity():
    # 3000 pairs in every direction, antipodal ones and the worst pair among them.
    rng = np.random.default_rng(0)
    theta = on_direction_grid(orthogonal_directions(70, 8, rng))
    plan = planned(norm=np.linalg.norm(theta.astype(float), 2), batch_size=None)
    assert math.frexp(plan.lattice)[0] == 0.5
    assert plan.sensitivity <= 6.0 * (1 + 1 / 1024 + 1e-5)
    rows = on_sphere(rng, 3000, 8)
    rows[0] = np.linalg.svd(theta.astype(float))[2][0]
    units = round_to_lattice(project_rows(rows, theta, 1.0), plan.lattice)
    opposite = round_to_lattice(project_rows(-rows, theta, 1.0), plan.lattice)
    moved = np.linalg.norm(units - opposite, axis=0)
    others = np.linalg.norm(units - np.roll(units, 1, axis=1), axis=0)
    assert max(moved.max(), others.max()) * plan.lattice <= plan.sensitivity
    assert moved.max() * plan.lattice > 0.999 * plan.sensitivity


@each_noise
def test_units_are_those_of_the_mapped_rows(noise):
    options = {"noise": noise, "batch_size": None}
    small, large = (planned(radius=radius, **options) for radius in (1.0, 7.3))
    assert large.sigma / 7.3 == pytest.approx(small.sigma, rel=2e-4)
    assert large.sensitivity / 7.3 == pytest.approx(small.sensitivity, rel=2e-4)
    assert large.lattice == small.lattice
    if noise == "discrete":
        assert large.event.lattice == pytest.approx(7.3 * large.lattice)
    else:
        assert (small.lattice, small.sensitivity) == (None, pytest.approx(6.0, rel=1e-12))


def test_private_bounds_take_a_tenth():
    plan = planned(bounds=1000, batch_size=None, n_steps=1)
    assert isinstance(plan.event, ComposedEvent)
    mus = [compose(event).mu_without_sampling ** 2 for event in (*plan.event.events, plan.event)]
    assert np.array(mus) / TARGET.mu_cap**2 == pytest.approx([0.1, 0.9, 1.0], rel=1e-5)
    assert plan.unit == 1.0
    sampled = planned(bounds=1000, n_steps=5)
    assert TARGET.admits(sampled.event)
    assert isinstance(sampled.event.events[-1], SampledGaussianEvent)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"sigma": 1.0, "bounds": 1000}, ValueError, "sigma= is in the units of the mapped rows"),
        ({"sigma": 1e-3}, CalibrationError, r'protects nothing.*noise="float"'),
        ({"sigma": 1e12}, CalibrationError, r"more than 2\*\*40 times the lattice"),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_before_any_charge(options, error, text):
    with pytest.raises(error, match=text):
        planned(**options)


# The paper prints epsilon = 10 and 5 for noise multipliers of 0.67 and 0.8, which its code
# multiplies by its sensitivity for 70 directions at d = 8. Batches of 250 of 30,000; 35 and 20
# epochs. Of orthogonal directions the sensitivity is 6, exactly.
PAPER = lemma1_sensitivity(70, 8, 1e-5 / 2)


@pytest.mark.parametrize(
    ("sigma", "n_steps", "sensitivity", "epsilon"),
    [
        (3.0, 500, 6.0, None),
        (0.67 * PAPER, 4200, PAPER, 10.32),
        (0.67 * PAPER, 4200, 6.0, 5.698),
        (0.8 * PAPER, 2400, PAPER, 4.725),
        (0.8 * PAPER, 2400, 6.0, 2.857),
    ],
    ids="sampled paper paper-exact second second-exact".split(),
)
def test_cost_of_given_noise_by_another_route(sigma, n_steps, sensitivity, epsilon):
    options = {"sigma": sigma, "n_steps": n_steps, "batch_size": 250, "noise": "float"}
    plan = planned(n=30_000, norm=sensitivity / 2, **options)
    found, grid = compose(plan.event).epsilon(1e-5), (1e-3, 2**17) if epsilon else (2e-4, 2**18)
    other = composed_epsilon(sensitivity / sigma, 1 / 120, n_steps, 1e-5, *grid)
    assert found == pytest.approx(other, rel=2e-3)
    assert epsilon is None or found == pytest.approx(epsilon, rel=1e-3)
    assert pytest.approx((5.05, 6.03), abs=0.005) == (0.67 * PAPER, 0.8 * PAPER)


# Releases: charged first, noised once, in no row's order.


def release_of(rows=None, *, epsilon=None, budget=None, bounds="private", norm_bound=1.0, **shape):
    given = {"epsilon": epsilon or 1.0, "delta": 1e-5, "budget": budget, "source": None}
    given |= {"bounds": bounds, "norm_bound": norm_bound, "caller": "flow"}
    if epsilon is None:  # a given sigma saves the time of a calibration
        shape = {"sigma": 2.0} | shape
    shape = {"n_steps": 4, "n_projections": 6, "batch_size": 20} | shape
    own = {name: shape.pop(name) for name in ("projections", "sigma", "noise") if name in shape}
    rows = on_sphere(np.random.default_rng(0), 300, 3) if rows is None else rows
    return Resample(**own)._noisy_rows(FitContext(streams=streams(), **given), rows, **shape)


@each_noise
@each_kind
def test_shapes_types_and_order(projections, noise):
    release = release_of(projections=projections, noise=noise)
    assert len(release.value.batches) == 4
    for batch in release.value.batches:
        assert batch.directions.shape == (6, 3)
        assert batch.values.shape == (6, 20)
        assert batch.directions.dtype == batch.values.dtype == np.float32
        assert np.all(np.diff(batch.values, axis=1) >= 0)
        assert np.linalg.norm(batch.directions, axis=1) == pytest.approx(np.ones(6), abs=1e-6)
    assert release.value.sigma == release.privacy_spent.sigma
    first, second = release.value.batches[:2]
    assert not np.array_equal(first.directions, second.directions)


def test_without_noise_the_values_are_projections_of_a_batch():
    rows = on_sphere(np.random.default_rng(0), 50, 3)
    options = {"sigma": 0, "projections": "uniform", "n_steps": 20, "batch_size": 7}
    release = release_of(rows, norm_bound=2.0, **options)
    members = []
    for batch in release.value.batches:
        projected = (2 * project_rows(rows, batch.directions, 2.0)).astype(np.float32)
        held = [np.flatnonzero(np.isin(p, v)) for p, v in zip(projected, batch.values, strict=True)]
        assert all(np.array_equal(held[0], other) for other in held)  # the same rows everywhere
        assert len(held[0]) == 7
        members.append(tuple(held[0]))
    assert len(set(members)) > 15  # fresh at every step
    assert release.value.sigma == 0.0


def test_private_bounds_scale_the_noise():
    rows = 7.0 + 2.0 * np.random.default_rng(1).standard_normal((5000, 3))
    release = release_of(rows, norm_bound=None, batch_size=None, n_steps=1, epsilon=5.0)
    spent = release.privacy_spent
    assert ball_radius(3) / 2 < release.bounds.radius < ball_radius(3) * 1.2
    assert release.value.sigma == pytest.approx(spent.sigma * release.bounds.radius)
    assert "shares of the radius" in spent.mechanism
    assert np.abs(release.bounds.center - 7.0).max() < 1.5
    # The mean projection is that of the mapped rows, which are centred.
    (batch,) = release.value.batches
    error = release.value.sigma / math.sqrt(5000)
    mapped = release.bounds.to_ball(rows) @ batch.directions.T
    assert np.abs(batch.values.mean(axis=1) - mapped.mean(axis=0)).max() < 5 * error


def test_given_sigma_is_stated_with_its_cost():
    release = release_of(sigma=2.5)
    spent = release.privacy_spent
    assert release.value.sigma == spent.sigma == 2.5
    exact = compose(spent.event).epsilon(1e-5)
    assert exact <= spent.epsilon <= exact * (1 + 1e-6)
    assert spent.epsilon > 1.5  # the target's epsilon of 1 has no say
    assert release_of(sigma=0).privacy_spent.epsilon == math.inf
    with pytest.raises(BudgetExceededError):
        release_of(sigma=0, budget=PrivacyBudget(epsilon=100.0, delta=1e-5))


@each_sampling
def test_batches_are_as_large_as_is_charged(sampling):
    """Of 400 Poisson samples the mean size is within 5.5 standard deviations: one in 10^7."""
    release = release_of(sampling=sampling, n_steps=400, n_projections=1, noise="float")
    event = release.privacy_spent.event
    sizes = np.array([batch.values.shape[1] for batch in release.value.batches])
    assert len(sizes) == event.n_steps
    if sampling == "without_replacement":
        assert (set(sizes.tolist()), event.group_sizes) == ({event.batch_sizes[0]}, (300,))
    else:
        expected = event.sampling_rate * event.n_samples
        assert abs(sizes.mean() - expected) < 5.5 * math.sqrt(expected / len(sizes))


def test_empty_samples_are_left_out_unless_all_are_empty(monkeypatch):
    batches = release_of(sampling="poisson", batch_size=1, n_steps=60).value.batches
    assert all(batch.values.shape[1] > 0 for batch in batches)
    assert 25 <= len(batches) <= 50  # 38 expected, standard deviation 3.7
    empty = np.empty(0, dtype=np.intp)
    monkeypatch.setattr(noisy_rows, "poisson_batches", lambda *args: iter([empty] * 4))
    with pytest.raises(ValueError, match="All Poisson samples were empty"):
        release_of(sampling="poisson")


def test_rows_outside_the_ball_are_shortened():
    rows = np.full((40, 3), 1e30)
    (batch,) = release_of(rows, epsilon=math.inf, batch_size=None, n_steps=1).value.batches
    assert np.abs(batch.values).max() <= 1.0


@each_noise
def test_the_worst_record_moves_a_truncated_block_by_the_sensitivity(noise):
    """20 directions in 8 dimensions are two blocks and a half: the half counts as a whole.

    One row, so that sorting moves nothing; it lies in the span of the half block.
    """
    options = {"batch_size": None, "n_steps": 1, "n_projections": 20, "noise": noise, "sigma": 20.0}
    (batch,) = release_of(np.eye(1, 8), **options).value.batches
    worst = np.linalg.svd(batch.directions.astype(float))[2][:1]
    one, two = (release_of(sign * worst, **options) for sign in (1, -1))
    first, second = (r.value.batches[0].values.astype(float) for r in (one, two))
    stated = one.privacy_spent.sensitivity
    assert 0.99 * stated < np.linalg.norm(first - second) <= stated * (1 + 1e-6)
