"""The prior penalty: its value, its gradient, and how far one record moves it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot.nets.autoencoder_training import PriorDistance, prior_samples
from skdpot.ot.transport import sliced_wasserstein_distance

RNG = np.random.default_rng(3)


def penalty(prior="sphere", latent_dim=4, batch_size=20, n_projections=10):
    return PriorDistance(
        prior=prior, latent_dim=latent_dim, batch_sizes=(batch_size,), n_projections=n_projections
    )


def movement(term, directions, before, after, position):
    """The most that one record can move the gradient, whatever the Jacobians of norm 1 are.

    Each Jacobian can turn its own vector into any direction: then the lengths add up.
    """
    old, new = (term.vectors(torch.from_numpy(codes), directions) for codes in (before, after))
    moved = (old - new).norm(dim=1)
    moved[position] = old[position].norm() + new[position].norm()
    return float(moved.sum())


@pytest.mark.parametrize("prior", ["sphere", "normal"])
def test_quantiles_are_those_of_samples(prior):
    term = penalty(prior, latent_dim=5, batch_size=40)
    samples = prior_samples(prior, 100_000, 5, np.random.default_rng(0))
    direction = np.array([0.6, 0.0, -0.8, 0.0, 0.0])
    levels = stats.percentileofscore(samples @ direction, term.quantiles) / 100
    # Five standard deviations of an empirical distribution function.
    assert np.abs(levels - (np.arange(40) + 0.5) / 40).max() < 5 * 0.5 / math.sqrt(100_000)


def test_on_a_circle_the_quantiles_have_a_closed_form():
    term = penalty(latent_dim=2, batch_size=11)
    expected = -np.cos(np.pi * (np.arange(11) + 0.5) / 11)
    assert term.quantiles == pytest.approx(expected, abs=1e-12)


def value(term, codes, directions):
    ordered = (torch.from_numpy(directions) @ codes.T).sort(dim=1).values
    return ((ordered - torch.from_numpy(term.quantiles)) ** 2).mean()


@pytest.mark.parametrize("prior", ["sphere", "normal"])
def test_the_vectors_are_the_gradient_of_a_squared_sliced_wasserstein_distance(prior):
    """Which is checked against another solver, on the line spanned by each direction."""
    term = penalty(prior)
    codes = torch.from_numpy(prior_samples(prior, 20, 4, RNG) * 0.9).requires_grad_()
    directions = term.directions(np.random.default_rng(1))
    lines = directions @ codes.detach().numpy().T
    squares = [
        sliced_wasserstein_distance(line[:, None], term.quantiles[:, None], np.eye(1)) ** 2
        for line in lines
    ]
    distance = value(term, codes, directions)
    assert float(distance.detach()) == pytest.approx(np.mean(squares), rel=1e-10)
    (gradient,) = torch.autograd.grad(distance, codes)
    torch.testing.assert_close(term.vectors(codes.detach(), directions), 20 * gradient)


def test_codes_from_the_prior_have_the_smallest_penalty():
    term = penalty(latent_dim=3, batch_size=500)
    directions = term.directions(np.random.default_rng(1))
    good = prior_samples("sphere", 500, 3, RNG)
    poor = np.abs(good)
    values = [float(value(term, torch.from_numpy(codes), directions)) for codes in (good, poor)]
    assert values[0] < 0.02 < values[1]


def test_directions_come_in_whole_blocks():
    term = penalty(latent_dim=4, n_projections=10)
    directions = term.directions(np.random.default_rng(1))
    assert directions.shape == (12, 4)
    assert directions.T @ directions == pytest.approx(3 * np.eye(4), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    prior=st.sampled_from(["sphere", "normal"]),
    latent_dim=st.integers(2, 6),
    batch_size=st.integers(1, 12),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    seed=st.integers(0, 2**16),
)
def test_no_neighbour_moves_the_gradient_further_than_the_sensitivity(
    prior, latent_dim, batch_size, spread, seed
):
    """Random codes, many of them tied or clipped; the new code anywhere."""
    rng = np.random.default_rng(seed)
    term = penalty(prior, latent_dim, batch_size)
    directions = term.directions(rng)
    center = rng.normal(size=latent_dim)
    before = spread * (center + rng.normal(size=(batch_size, latent_dim)).round(1))
    position = int(rng.integers(batch_size))
    after = before.copy()
    after[position] = rng.choice([-100.0, 0.0, 1.0, 100.0]) * rng.choice([-1, 1], latent_dim)
    assert movement(term, directions, before, after, position) <= term.sensitivity(1.0)


def worst_found(term, directions):
    """Neighbours made to be bad: all others in one place, the record on either side of them."""
    n, k = sum(term.batch_sizes), term.latent_dim
    signs = RNG.choice([-1, 1], (40, len(directions)))
    corners = np.concatenate([signs @ directions, directions, RNG.normal(size=(40, k))])
    corners *= term.radius / np.linalg.norm(corners, axis=1, keepdims=True)
    worst = 0.0
    for corner in corners:
        for position in (0, n - 1):
            for share in (1.0, 0.99, 0.0, -0.99, -1.0):
                before = np.tile(share * corner, (n, 1))
                before[position] = corner
                for target in (corner, -corner):
                    after = before.copy()
                    after[position] = target
                    worst = max(worst, movement(term, directions, before, after, position))
    return worst


@pytest.mark.parametrize(
    ("prior", "latent_dim", "attained"),
    [("normal", 1, 0.95), ("sphere", 3, 0.7), ("sphere", 8, 0.68), ("normal", 8, 0.6)],
)
def test_the_sensitivity_is_nearly_attained(prior, latent_dim, attained):
    """Along one direction fully; across several the two worst cases exclude each other."""
    term = penalty(prior, latent_dim, batch_size=50, n_projections=1)
    worst = worst_found(term, term.directions(np.random.default_rng(5)))
    assert attained * term.sensitivity(1.0) <= worst <= term.sensitivity(1.0)


def test_the_sensitivity_uses_that_directions_are_orthogonal():
    """Below 4rL, the bound for directions one by one, of which r = 2 is the width."""
    term = penalty(latent_dim=8, batch_size=250)
    assert term.sensitivity(1.0) < 0.45 * 4 * 2
    assert term.sensitivity(0.3) == pytest.approx(0.3 * term.sensitivity(1.0))


def test_ties_keep_their_order_when_a_record_is_replaced():
    """An unstable sort would let one record exchange the ranks of all others."""
    term = penalty(latent_dim=2, batch_size=300, n_projections=2)
    before = np.zeros((300, 2))
    after = before.copy()
    after[150] = 1e-9
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 150) <= term.sensitivity(1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_codes_that_are_not_finite_are_bounded_too(value):
    term = penalty()
    before = prior_samples("sphere", 20, 4, RNG)
    after = before.copy()
    after[3, 1] = value
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 3) <= term.sensitivity(1.0)
