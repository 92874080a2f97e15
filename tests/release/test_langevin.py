"""Mean-field Langevin dynamics: what it computes, and what it lets out."""

import numpy as np
import pytest
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
