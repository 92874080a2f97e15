"""Averages of noisy gradients over neighbouring particles."""

import numpy as np
import pytest

from skdpot.release.langevin import averaged_over_neighbours


def test_is_the_kernel_average():
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


def test_takes_noise_off_and_keeps_a_smooth_field():
    rng = np.random.default_rng(1)
    particles = rng.normal(size=(1, 2000, 2))
    field = np.sin(particles)
    noisy = field + rng.normal(size=field.shape)
    left = averaged_over_neighbours(noisy, particles, 0.2) - field
    inner = np.linalg.norm(particles, axis=-1) < 1.5
    assert np.mean(left[inner] ** 2) < 0.05


@pytest.mark.parametrize("size", [1e-300, 1e6, 1e10, 1e150])
def test_particles_far_apart_keep_their_own(size):
    rng = np.random.default_rng(2)
    gradients, particles = rng.normal(size=(2, 1, 50, 2))
    averages = averaged_over_neighbours(gradients, size * particles, 1.0)
    assert np.isfinite(averages).all()
    if size == 1e6:
        np.testing.assert_allclose(averages, gradients)
