"""Mean-field Langevin dynamics: what it computes, and what it lets out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.trajectories.fit_gradient import averaged_over_neighbours, clipped_fit_gradient
from skdpot.trajectories.langevin_release import mean_field_langevin, plan_langevin
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.time_coupling import check_steps
from skdpot.trajectories.warm_start_release import plan_warm_start

BOX = DataBounds.from_box(-1, 1, 2)
TARGET, FREE = PrivacyTarget(1.0, 1e-3), PrivacyTarget(math.inf, 1e-5)
SPACINGS = np.array([0.2, 0.5, 0.3])
# Of the data fit nothing is left beside the noise; particles stand still without it.
NO_FIT = 1e12


def no_coupling(particles, spacings, diffusivity):
    return np.zeros_like(particles[1:]), np.zeros_like(particles[1:])


def springs(particles, spacings, diffusivity):
    """Particle k of one time pulls particle k of the next one, more so where diffusivity is low."""
    pull = (particles[:-1] - particles[1:]) / (1 + diffusivity)
    return pull, -pull


def plan(*phases, kappa=0.0, rate=1.0, clip=0.5, target=TARGET, **options):
    given = [Phase(*phase) for phase in phases] or [Phase(0.01, 0.3, 1)]
    options |= {"noise_multiplier": kappa, "sampling_rate": rate, "clip": clip}
    return plan_langevin(target, given, dim=12, bounds=BOX, n_samples=100, **options)


def data(seed=0, sizes=(40, 25, 60, 31)):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, (n, 2)) for n in sizes]


def run(rows, made, *, seed=0, m=6, start=None, coupling=no_coupling, spacings=None, **options):
    spacings = SPACINGS[: len(rows) - 1] if spacings is None else spacings
    if start is None:
        start = np.random.default_rng(99).normal(0, 0.5, (len(rows), m, 2))
    options = {"bandwidth": 0.4, "regularization": 2.0} | options
    secret = SecretStream(seed)
    return mean_field_langevin(
        rows, start, spacings, made, secret=secret, coupling=coupling, **options
    )


# What it computes ---------------------------------------------------------------------------


def test_is_algorithm_one_with_the_expected_batch():
    """Step by step as DESIGN writes it: no noise, all records in every batch, two phases."""
    rows, start = data(), np.random.default_rng(1).normal(0, 0.5, (4, 6, 2))
    made = plan((0.02, 0.3, 3), (0.01, 0.1, 2))
    expected = start.copy()
    weights = np.array([0.2, 0.35, 0.4, 0.3]) / 2.0
    for step, diffusivity in [(0.02, 0.3)] * 3 + [(0.01, 0.1)] * 2:
        forward, backward = springs(expected, SPACINGS, diffusivity)
        moved = np.zeros_like(expected)
        for i in range(4):
            moved[i] = clipped_fit_gradient(
                expected[i], rows[i], bandwidth=0.4, weight=weights[i], clip=0.5
            ) / len(rows[i])
            if i < 3:
                moved[i] += forward[i] / SPACINGS[i]
            if i > 0:
                moved[i] += backward[i - 1] / SPACINGS[i - 1]
        expected -= step * moved
    found = run(rows, made, start=start, coupling=springs)
    np.testing.assert_allclose(found.particles, expected, rtol=1e-12)


def test_steps_at_the_limit_are_stable_and_longer_ones_are_refused():
    spacings = np.full(19, 1 / 19)
    start = np.zeros((20, 3, 2))
    start[::2], start[1::2] = 1.0, -1.0  # the stiffest mode
    rows = [np.zeros((1, 2))] * 20

    def pull(particles, *_):
        return particles[:-1] - particles[1:], particles[1:] - particles[:-1]

    longest = 1 / (2 * 19)
    options = {"start": start, "spacings": spacings, "coupling": pull, "regularization": NO_FIT}
    found = run(rows, plan((0.999 * longest, 0.3, 400)), **options)
    assert np.abs(found.particles).max() < 1.01
    with pytest.raises(ValueError, match="Use steps of at most 0.0263158, or fewer times"):
        check_steps(plan((1.01 * longest, 0.3, 1)).phases, spacings)
    check_steps(plan((1e9, 0.3, 1)).phases, [])


def test_particles_wander_by_what_the_noise_lacks():
    """Noise and wandering together have the variance 2ητ of Langevin dynamics, at every time."""
    rows, start, rng = data(), np.zeros((4, 6, 2)), np.random.default_rng(0)
    options = {"start": start, "regularization": NO_FIT}
    for kappa in (0.0, 200.0):
        made = plan((0.02, 0.3, 1), kappa=kappa)
        runs = [run(rows, made, seed=k, wander=rng, **options).particles for k in range(150)]
        np.testing.assert_allclose(np.var(runs, axis=(0, 2, 3)), 0.012, rtol=0.15)
    louder = plan((0.02, 0.3, 1), kappa=2000.0)
    alone = run(rows, louder, **options).particles
    np.testing.assert_array_equal(run(rows, louder, wander=rng, **options).particles, alone)


def test_the_fit_is_told_where_nothing_is_protected_only():
    rows = data()
    found = run(rows, plan(kappa=0.0))
    likelihoods = [
        np.log(np.exp(-((at - y[:, None]) ** 2).sum(axis=2) / 0.32).mean(axis=1)).mean()
        for at, y in zip(found.particles, rows, strict=True)
    ]
    assert found.fit == pytest.approx(-np.dot([0.2, 0.35, 0.4, 0.3], likelihoods) / 2)
    assert run(rows, plan(kappa=1.0)).fit is None


# Batches ------------------------------------------------------------------------------------


def test_every_record_takes_part_at_the_rate_of_the_event():
    """The records themselves, not only their number: each has a particle of its own."""
    n, rate, n_iter = 12, 0.3, 2000
    places = 1000.0 * np.arange(n)[:, None]
    made = plan((1e-9, 0.3, n_iter), rate=rate, clip=1.0)
    start = (places + 5.0)[None]
    found = run([places], made, start=start, bandwidth=1.0)
    moved = (start - found.particles)[0, :, 0] * rate * n / 1e-9
    chance = stats.binom(n_iter, rate)
    assert np.all((chance.ppf(1e-9) <= moved + 0.5) & (moved - 0.5 <= chance.isf(1e-9)))


# What is charged: `tests/trajectories/test_trajectory_privacy.py` has the whole account ----------


def test_steps_are_sums_of_clipped_vectors_with_twice_the_clip():
    made = plan((0.01, 0.5, 30), (0.005, 0.1, 20), kappa=(2.0, 3.0), clip=0.8, rate=0.1)
    for event, n_iter, sigma in zip(made.event.phases, (30, 20), (1.6, 3.0 * 0.8), strict=True):
        assert event == SampledGaussianEvent(
            sampling="poisson",
            sampling_rate=0.1,
            n_steps=n_iter,
            clipped_sum=True,
            **vars(noise_for_sums(sigma, 1.6, 12)),
        )
    assert made.sigma == pytest.approx((1.6, 2.4))
    assert made.noise_multipliers == pytest.approx((2.0, 3.0))
    assert made.n_iter == 50


@pytest.mark.parametrize(
    ("target", "kappa", "sigmas"),
    [(FREE, None, (0.0, 0.0)), (FREE, 0.0, (0.0, 0.0)), (TARGET, (2.0, 0.0), (1.0, 0.0))],
)
def test_a_phase_without_noise_is_no_privacy(target, kappa, sigmas):
    made = plan((0.01, 0.3, 1), (0.01, 0.3, 2), target=target, kappa=kappa)
    assert (made.sigma, made.event) == (sigmas, NonPrivateEvent())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kappa": -1.0}, "`noise_multiplier` must be finite and >= 0"),
        ({"kappa": (math.nan,)}, "`noise_multiplier` must be finite and >= 0"),
        ({"kappa": (1.0, 1.0)}, r"one per phase of schedule \(1\)"),
        ({"kappa": 5.0, "target": FREE}, "epsilon=inf"),
        *(
            ({"kappa": None, "warm": plan_warm_start("mean", mu, 1.0, 2)}, text)
            for mu, text in (
                (math.inf, "No noise reaches"),
                (3.0, "what does not depend on sigma already costs"),
            )
        ),
    ],
)
def test_plans_that_cannot_be_are_refused(options, message):
    with pytest.raises((ValueError, CalibrationError), match=message):
        plan(**options)


# One record's pull on all particles: the formula, its norm, and what a neighbour can change.

NO_CLIP = 1e60
EXTREMES = (0.0, 1.0, -1.0, 1e-9, 1e6, -1e15, 1e80, -1e200, 1e308)


def gradient(particles, rows, *, bandwidth=0.4, weight=1.3, clip=NO_CLIP):
    return clipped_fit_gradient(particles, rows, bandwidth=bandwidth, weight=weight, clip=clip)


def written_out(particles, rows, bandwidth, weight, clip):
    """Record by record, as the definition reads."""
    total = np.zeros_like(particles)
    for y in rows:
        exponents = -((particles - y) ** 2).sum(axis=1) / (2 * bandwidth**2)
        shares = np.exp(exponents - logsumexp(exponents))
        of_record = weight * len(particles) / bandwidth**2 * shares[:, None] * (particles - y)
        total += of_record * min(1.0, clip / np.linalg.norm(of_record))
    return total


def sample(seed=0, m=7, b=5, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, d)), rng.normal(size=(b, d))


@pytest.mark.parametrize("clip", [NO_CLIP, 3.0, 0.2])
@pytest.mark.parametrize(("m", "b", "d"), [(1, 1, 1), (7, 5, 3), (40, 33, 2), (500, 70, 9)])
def test_is_the_sum_of_the_records_clipped_gradients(m, b, d, clip):
    particles, rows = sample(1, m, b, d)
    expected = written_out(particles, rows, 0.4, 1.3, clip)
    np.testing.assert_allclose(
        gradient(particles, rows, clip=clip), expected, rtol=1e-9, atol=2e-6 * b * clip
    )


def test_is_m_times_the_gradient_of_the_loss():
    """The first variation of the loss, moved along with a particle of mass 1/m."""
    particles, rows = sample(3)
    moving = torch.from_numpy(particles).requires_grad_()
    squares = ((moving - torch.from_numpy(rows)[:, None]) ** 2).sum(2)
    (-torch.logsumexp(-squares / (2 * 0.4**2), dim=1).sum()).backward()
    expected = 1.3 * len(particles) * moving.grad.numpy()
    np.testing.assert_allclose(gradient(particles, rows), expected, rtol=1e-9, atol=1e-9)


cases = given(
    m=st.sampled_from([1, 2, 9, 60]),
    d=st.sampled_from([1, 2, 5]),
    bandwidth=st.sampled_from([1e-90, 1e-5, 0.05, 0.5, 30.0, 1e90]),
    weight=st.sampled_from([1e-9, 1.0, 1e9]),
    clip=st.sampled_from([1e-30, 1e-3, 1.0, 50.0, 1e30]),
    scale=st.sampled_from([1e-12, 1e-6, 1.0, 1e5]),
    seed=st.integers(0, 2**32 - 1),
)


def wild(rng, m, d, scale):
    """Particles, some in one place and some away from the origin, and wild records."""
    particles = scale * rng.normal(size=(m, d)) + rng.choice([0.0, 1.0, 1e4])
    particles[rng.random(m) < 0.3] = particles[0]
    records = [
        particles[0] + scale * 10.0 ** rng.uniform(-16, 3) * rng.normal(size=d),
        rng.choice(EXTREMES, d),
        particles[rng.integers(m)],
        rng.normal(size=d),
    ]
    return particles, np.stack(records)


@settings(max_examples=200, deadline=None)
@cases
def test_no_neighbour_moves_a_sum_further_than_twice_the_clip(
    m, d, bandwidth, weight, clip, scale, seed
):
    rng = np.random.default_rng(seed)
    particles, records = wild(rng, m, d, scale)
    rows = np.concatenate([records, rng.normal(size=(6, d))])
    other = rows.copy()
    other[0] = (
        records[rng.integers(len(records))] if rng.random() < 0.5 else rng.choice(EXTREMES, d)
    )
    sums = [
        gradient(particles, batch, bandwidth=bandwidth, weight=weight, clip=clip)
        for batch in (rows, other, rows[1:])
    ]
    for record in records:
        alone = gradient(particles, record[None], bandwidth=bandwidth, weight=weight, clip=clip)
        assert np.isfinite(alone).all()
        assert float(np.linalg.norm(alone)) <= clip
    room = 1 + 1e-11  # ten terms of the sum are rounded
    assert np.linalg.norm(sums[0] - sums[1]) <= 2 * clip * room
    # The form that Poisson sampling needs: a record that joins moves the sum by one clip.
    assert np.linalg.norm(sums[0] - sums[2]) <= clip * room
    assert np.linalg.norm(sums[1] - sums[2]) <= clip * room


# Averages over neighbouring particles.


def test_smoothing_is_the_kernel_average():
    rng = np.random.default_rng(0)
    gradients, particles = rng.normal(size=(2, 3, 20, 4))
    width = 0.7
    squares = ((particles[:, :, None] - particles[:, None]) ** 2).sum(axis=3)
    weights = np.exp(-squares / 2 / width**2)
    expected = weights @ gradients / weights.sum(axis=2, keepdims=True)
    averages = averaged_over_neighbours(gradients, particles, width)
    np.testing.assert_allclose(averages, expected, atol=1e-12)
