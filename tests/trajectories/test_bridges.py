"""Brownian bridges: exact ends, means and covariances; all times of one and the same bridge."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.trajectories.paths import brownian_bridge


def test_means_and_covariances_are_those_of_the_bridge():
    n, spacing, diffusivity = 100_000, 0.5, 0.3
    at = np.array([0.4, 0.1, 0.25])
    start, end = np.tile([1.0, -2.0], (n, 1)), np.tile([3.0, 0.5], (n, 1))
    points = brownian_bridge(start, end, at, spacing, diffusivity, np.random.default_rng(0))
    share = (at / spacing)[:, None]
    means = (1 - share) * start[0] + share * end[0]
    early, late = np.minimum.outer(at, at), np.maximum.outer(at, at)
    covariance = diffusivity * early * (spacing - late) / spacing
    # Seeded; six standard errors of a mean, and of a covariance of normal numbers.
    slack = 6 * np.sqrt(covariance.max() / n)
    np.testing.assert_allclose(points.mean(axis=0), means, atol=slack)
    expected = np.kron(covariance, np.eye(2))  # features are independent
    measured = np.cov(points.reshape(n, -1).T)
    np.testing.assert_allclose(measured, expected, atol=6 * np.sqrt(2 / n) * covariance.max())


def test_bridges_are_a_brownian_motion_whose_end_is_drawn():
    # With an end at distance √(τΔ) Z the joint law is that of the free Brownian motion.
    n, spacing, diffusivity = 100_000, 2.0, 0.7
    rng = np.random.default_rng(1)
    start = np.zeros((n, 1))
    end = np.sqrt(diffusivity * spacing) * rng.standard_normal((n, 1))
    at = np.array([0.5, 1.5, 2.0])
    points = brownian_bridge(start, end, at, spacing, diffusivity, rng)[:, :, 0]
    expected = diffusivity * np.minimum.outer(at, at)
    np.testing.assert_allclose(np.cov(points.T), expected, atol=6 * np.sqrt(2 / n) * 1.4)


@given(
    seed=st.integers(0, 2**32),
    spacing=st.floats(1e-3, 1e3),
    shares=st.lists(st.floats(0, 1), max_size=6),
    diffusivity=st.floats(0, 10),
)
@settings(max_examples=60, deadline=None)
def test_ends_are_exact_and_equal_times_give_equal_points(seed, spacing, shares, diffusivity):
    rng = np.random.default_rng(seed)
    start, end = rng.normal(size=(2, 5, 3))
    inside = np.minimum(spacing * np.array(shares, dtype=float), spacing)
    at = np.concatenate([[spacing], inside, [0.0], inside, [spacing]])
    points = brownian_bridge(start, end, at, spacing, diffusivity, rng)
    assert points.shape == (5, len(at), 3)
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points[:, 0], end)
    np.testing.assert_array_equal(points[:, -1], end)
    np.testing.assert_array_equal(points[:, 1 + len(inside)], start)
    first, second = points[:, 1 : 1 + len(inside)], points[:, 2 + len(inside) : -1]
    np.testing.assert_array_equal(first, second)


def test_no_diffusivity_gives_straight_lines_and_draws_nothing():
    rng = np.random.default_rng(2)
    before = rng.bit_generator.state
    start, end = np.zeros((3, 2)), np.array([[1.0, 2.0]] * 3)
    points = brownian_bridge(start, end, np.array([0.3]), 1.2, 0.0, rng)
    np.testing.assert_allclose(points[:, 0], end / 4)
    assert rng.bit_generator.state == before


def test_no_times_give_no_points():
    nothing = brownian_bridge(
        np.zeros((3, 2)), np.ones((3, 2)), np.empty(0), 1.0, 1.0, np.random.default_rng(0)
    )
    assert nothing.shape == (3, 0, 2)
