"""One record's pull on all particles: the formula, its norm, and what a neighbour can change."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from skdpot.release.langevin import averaged_over_neighbours, clipped_fit_gradient

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


def fit_loss(particles, rows, *, bandwidth):
    """Minus the mean logarithm of the likelihood, up to a constant."""
    squares = ((particles - rows[:, None]) ** 2).sum(axis=2)
    logarithms = logsumexp(-squares / (2 * bandwidth**2), axis=1) - math.log(len(particles))
    return -np.mean(logarithms)


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
    step = 1e-6
    numeric = np.empty_like(particles)
    for k, j in np.ndindex(particles.shape):
        moved = []
        for sign in (1, -1):
            other = particles.copy()
            other[k, j] += sign * step
            moved.append(fit_loss(other, rows, bandwidth=0.4))
        numeric[k, j] = (moved[0] - moved[1]) / (2 * step)
    expected = 1.3 * len(rows) * len(particles) * numeric
    np.testing.assert_allclose(gradient(particles, rows), expected, rtol=1e-6, atol=1e-6)


# What the account rests on ------------------------------------------------------------------

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


# Averages over neighbouring particles --------------------------------------------------------


def test_smoothing_is_the_kernel_average():
    rng = np.random.default_rng(0)
    gradients, particles = rng.normal(size=(2, 3, 20, 4))
    width = 0.7
    expected = np.empty_like(gradients)
    for i in range(3):
        for k in range(20):
            squares = ((particles[i] - particles[i, k]) ** 2).sum(axis=1)
            weights = np.exp(-squares / 2 / width**2)
            expected[i, k] = weights @ gradients[i] / weights.sum()
    averages = averaged_over_neighbours(gradients, particles, width)
    np.testing.assert_allclose(averages, expected, atol=1e-12)


@pytest.mark.parametrize("size", [1e-300, 1e6, 1e10, 1e150])
def test_particles_far_apart_keep_their_own(size):
    rng = np.random.default_rng(2)
    gradients, particles = rng.normal(size=(2, 1, 50, 2))
    averages = averaged_over_neighbours(gradients, size * particles, 1.0)
    assert np.isfinite(averages).all()
    if size == 1e6:
        np.testing.assert_allclose(averages, gradients)
