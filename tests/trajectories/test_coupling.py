"""Gradients of the coupling in time, from one call to the next."""

import numpy as np
import pytest

from skdpot.ot.sinkhorn import WarmCoupling, schrodinger_potentials

SPACINGS = np.array([0.3, 0.7])


def clouds(seed=0, n_times=3, m=30):
    return np.random.default_rng(seed).normal(size=(n_times, m, 2))


def exact(particles, spacings, diffusivity):
    """Gradients of converged potentials, without any start."""
    solved = schrodinger_potentials(
        particles[:-1], particles[1:], diffusivity * spacings, tol=1e-10, max_iter=20_000
    )
    return solved.gradients()


def test_a_call_gives_the_gradients_of_the_pairs():
    found = WarmCoupling(tol=1e-9, max_iter=20_000)(clouds(), SPACINGS, 0.4)
    for gradient, expected in zip(found, exact(clouds(), SPACINGS, 0.4), strict=True):
        assert gradient.shape == (2, 30, 2)
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_the_regularisation_of_a_pair_is_diffusivity_times_spacing():
    particles = clouds(1)
    both = WarmCoupling(tol=1e-9, max_iter=20_000)(particles, SPACINGS, 0.4)
    for i in range(2):
        one = WarmCoupling(tol=1e-9, max_iter=20_000)(
            particles[i : i + 2], np.array([1.0]), 0.4 * SPACINGS[i]
        )
        for pair, gradient in zip(both, one, strict=True):
            np.testing.assert_allclose(pair[i], gradient[0], atol=1e-5)


def test_later_calls_start_from_earlier_ones():
    """Few iterations a call are enough in the end: what is left is taken up by the next."""
    particles, expected = clouds(2), exact(clouds(2), SPACINGS, 0.05)
    coupling = WarmCoupling(tol=1e-9, max_iter=10)
    errors = [np.abs(coupling(particles, SPACINGS, 0.05)[1] - expected[1]).max() for _ in range(60)]
    assert errors[-1] < 1e-3
    assert errors[-1] < 0.05 * errors[0]


@pytest.mark.parametrize("diffusivity", [1e-8, 1e6])
def test_extreme_diffusivities_give_finite_gradients(diffusivity):
    coupling = WarmCoupling()
    for seed in range(3):
        for gradient in coupling(100 * clouds(seed), SPACINGS, diffusivity):
            assert np.isfinite(gradient).all()


def test_a_translation_pulls_every_particle_by_its_length():
    particles = np.stack([clouds()[0], clouds()[0] + [0.7, -0.2]])
    forward, backward = WarmCoupling(tol=1e-9, max_iter=20_000)(particles, np.ones(1), 0.3)
    np.testing.assert_allclose(forward[0].mean(axis=0), [-0.7, 0.2], atol=1e-4)
    np.testing.assert_allclose(backward[0].mean(axis=0), [0.7, -0.2], atol=1e-4)
