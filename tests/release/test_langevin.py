"""Mean-field Langevin dynamics: what it computes, and what it lets out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot._utils.validation import SecretStream
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.langevin import (
    LangevinPhase,
    check_steps,
    clipped_fit_gradient,
    mean_field_langevin,
    plan_langevin,
    time_weights,
)

BOX = DataBounds.from_box(-1, 1, 2)
SPACINGS = np.array([0.2, 0.5, 0.3])
# Of the data fit nothing is left beside the noise; particles stand still without it.
NO_FIT = 1e12


def no_coupling(particles, spacings, diffusivity):
    return np.zeros_like(particles[1:]), np.zeros_like(particles[1:])


def springs(particles, spacings, diffusivity):
    """Particle k of one time pulls particle k of the next one, more so where diffusivity is low."""
    pull = (particles[:-1] - particles[1:]) / (1 + diffusivity)
    return pull, -pull


def plan(*phases, kappa=0.0, rate=1.0, clip=0.5):
    return plan_langevin(
        PrivacyTarget(1.0, 1e-3),
        [LangevinPhase(*phase) for phase in phases] or [LangevinPhase(0.01, 0.3, 1)],
        clip=clip,
        dim=12,
        sampling_rate=rate,
        bounds=BOX,
        n_samples=100,
        noise_multiplier=kappa,
    )


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


@pytest.mark.parametrize(
    ("spacings", "weights"),
    [([], [1.0]), ([0.4], [0.4, 0.4]), ([0.2, 0.6], [0.2, 0.4, 0.6])],
)
def test_weights_are_the_means_of_the_spacings_beside(spacings, weights):
    np.testing.assert_allclose(time_weights(spacings), weights)


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


# Sensitivity, through the whole step --------------------------------------------------------


def batch_sums(rows, made, **options):
    """What one noiseless iteration adds up for each time, from how far particles moved."""
    start = np.random.default_rng(99).normal(0, 0.5, (len(rows), 6, 2))
    moved = start - run(rows, made, start=start, **options).particles
    sizes = np.array([len(of_time) for of_time in rows])
    return moved * (sizes * made.sampling_rate / made.phases[0].step_size)[:, None, None]


@settings(max_examples=60, deadline=None)
@given(
    time=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
    bandwidth=st.sampled_from([0.02, 0.3, 5.0]),
    regularization=st.sampled_from([1e-6, 1.0, 1e3]),
)
def test_a_neighbour_moves_one_time_by_at_most_the_sensitivity(
    time, seed, bandwidth, regularization
):
    rng = np.random.default_rng(seed)
    rows, made = data(seed % 7), plan()
    sensitivity = 2 * made.clip
    others = [of_time.copy() for of_time in rows]
    others[time][rng.integers(len(rows[time]))] = rng.choice([-1.0, 0.0, 1.0, 1e9], 2)
    options = {"bandwidth": bandwidth, "regularization": regularization}
    moved = batch_sums(rows, made, **options) - batch_sums(others, made, **options)
    norms = np.sqrt((moved**2).sum(axis=(1, 2)))
    assert norms[time] <= sensitivity * (1 + 1e-6)
    np.testing.assert_array_equal(np.delete(norms, time), 0.0)


def test_the_sensitivity_is_attained():
    """A record on either side of a particle that stands alone."""
    made, start = plan(), np.array([[[0.0, 0.0], [50.0, 0.0], [99.0, 0.0]]])
    rows = [np.concatenate([data()[0], [[0.9, 0.0]]])]
    others = [rows[0].copy()]
    others[0][-1] *= -1
    options = {"bandwidth": 0.2, "regularization": 1e-3, "start": start}
    ends = [run(r, made, **options).particles for r in (rows, others)]
    moved = np.linalg.norm(ends[0] - ends[1]) * len(rows[0]) / made.phases[0].step_size
    assert 0.999 * 2 * made.clip <= moved <= 2 * made.clip * (1 + 1e-9)


def test_other_times_run_the_same_releases_whichever_the_neighbour():
    """Parallel composition: with the potentials of equal pasts, other times are equal in law.

    With one seed for both, batches and noise of the other times are the same numbers; through
    the coupling a difference comes one time further an iteration, out of released particles.
    """
    rows = data()
    others = [*rows[:3], -rows[3]]
    for n_iter in (1, 2, 3):
        made = plan((0.01, 0.3, n_iter), kappa=1.0, rate=0.4)
        one, two = (run(r, made, coupling=springs).particles for r in (rows, others))
        differs = [not np.array_equal(one[i], two[i]) for i in range(4)]
        assert differs == [i >= 4 - n_iter for i in range(4)]
        made = plan((0.01, 0.3, n_iter), kappa=1.0, rate=0.4)
        one, two = (run(r, made).particles for r in (rows, others))
        np.testing.assert_array_equal(one[:3], two[:3])


# Noise --------------------------------------------------------------------------------------


def test_noise_has_the_standard_deviation_of_the_event():
    """20,000 numbers; either side misses a true one once in 2e8."""
    rows, rate, step = data(sizes=(50, 80)), 0.25, 0.03
    made = plan((step, 0.3, 1), kappa=1.7, rate=rate, clip=0.6)
    start = np.zeros((2, 5000, 2))
    found = run(rows, made, start=start, regularization=NO_FIT, spacings=np.array([1.0]))
    for moved, n in zip(found.particles, (50, 80), strict=True):
        noise = -moved * rate * n / step
        squares = float((noise**2).sum()) / (1.7 * 0.6) ** 2
        assert stats.chi2.sf(squares, noise.size) > 5e-9
        assert stats.chi2.cdf(squares, noise.size) > 5e-9
        assert stats.kstest((noise / (1.7 * 0.6)).ravel(), "norm").pvalue > 1e-8
    assert made.event.events[0].sigma == pytest.approx(1.7 * 0.6)
    assert made.event.events[0].sensitivity == made.noises[0].sensitivity
    assert made.noises[0].sensitivity == pytest.approx(2 * 0.6, rel=1 / 512)


def test_noise_of_phases_is_that_of_each():
    made = plan((0.01, 0.3, 2), (0.01, 0.3, 3), kappa=(1.0, 5.0))
    rows = data(sizes=(10,))
    found = run(rows, made, start=np.zeros((1, 20000, 2)), regularization=NO_FIT)
    scale = 0.01 / 10 * math.sqrt(2) * 0.5
    np.testing.assert_allclose(found.displacements, np.repeat([1, 5], (2, 3)) * scale, rtol=0.03)


def test_noise_is_fresh_for_every_time_iteration_and_run():
    rows = data()
    start = np.zeros((4, 2000, 2))
    runs = []
    for n_iter, seed in ((1, 0), (2, 0), (1, 1)):
        made = plan((0.01, 0.3, n_iter), kappa=1.0)
        runs.append(run(rows, made, start=start, seed=seed, regularization=NO_FIT).particles)
    parts = [*runs[0].reshape(4, -1), *(runs[1] - runs[0]).reshape(4, -1), *runs[2].reshape(4, -1)]
    correlation = np.corrcoef(parts) - np.eye(12)
    assert np.abs(correlation).max() < 6 / math.sqrt(4000)


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


# What is let out ----------------------------------------------------------------------------


# Last bits ----------------------------------------------------------------------------------


def noisy_sums_of(record, made, n_fits):
    """Return what the displacement of a single particle tells of the noisy sums of fits."""
    rows = [np.vstack([np.zeros((1, record.size)), record])]
    start = np.zeros((1, 1, record.size))
    found = np.empty((n_fits, record.size))
    for k in range(n_fits):
        moved = run(rows, made, start=start, seed=None).particles
        found[k] = -2.0 * moved[0, 0]  # two records in a batch, a step of 1
    return found


def test_the_last_bits_of_a_displacement_tell_no_more_than_epsilon():
    """Small sums with a record of size 1/4 in them were multiples of 2**-55; noise alone was not.

    Of 3000 fits each, 80 against 3 before sums were on a lattice: epsilon >= 1.5 for a claimed 1.
    Now both are as frequent, and a false alarm takes a ratio of e among about 80.
    """
    n_fits, d = 3000, 16
    target = PrivacyTarget(1.0, 1e-5)
    phase = LangevinPhase(1.0, 0.3, 1)
    made = plan_langevin(
        target, [phase], clip=1.0, dim=d, sampling_rate=1.0, bounds=BOX, n_samples=2
    )

    def frequency(record):
        sums = noisy_sums_of(record, made, n_fits)
        on_grid = sums * 2.0**55 == np.rint(sums * 2.0**55)
        return int(((np.abs(sums) < 2.0**-6) & on_grid).any(axis=1).sum())

    there, not_there = frequency(np.full(d, 5.0)), frequency(np.zeros(d))
    low = stats.beta.ppf(0.025, there, n_fits - there + 1)
    high = stats.beta.ppf(0.975, not_there + 1, n_fits - not_there)
    assert math.log((low - 1e-5) / high) <= 1.0, (there, not_there)
