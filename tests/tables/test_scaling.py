"""Weights of particles: the optimum of what is stated, by other routes."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from skdpot.release.contingency import Marginal, NoisyMarginal
from skdpot.tables.model import SMOOTHING, ScaledParticles, scaling_step

SIZES = (3, 4, 2)
PAIRS = tuple(itertools.combinations(range(3), 2))


def marginal_of(columns):
    return Marginal(columns, tuple(np.arange(SIZES[column]) for column in columns))


def every_row():
    """One particle for each combination of values."""
    return np.array(list(itertools.product(*map(range, SIZES))), dtype=np.int32)


def noisy_pairs(rng, total, sigma):
    truth = rng.dirichlet(np.ones(len(every_row()))) * total
    found = []
    for columns in PAIRS:
        marginal = marginal_of(columns)
        counts = marginal.counts(every_row(), truth)
        found.append(NoisyMarginal(marginal, counts + sigma * rng.normal(size=len(counts)), sigma))
    return found


def scaled(marginals, weights, codes=None, n_sweeps=3000):
    particles = ScaledParticles(every_row() if codes is None else codes, weights)
    for noisy in marginals:
        particles.add(noisy)
    particles.run(n_sweeps, tolerance=1e-13)
    return particles


@pytest.mark.parametrize("sigma", [5.0, 20.0, 200.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_weights_are_the_optimum_of_what_is_stated(sigma, seed):
    """By minimisation over the logarithms of the weights."""
    rng = np.random.default_rng(seed)
    total = 1000.0
    marginals = noisy_pairs(rng, total, sigma)
    codes, start = every_row(), rng.dirichlet(np.full(24, 3.0)) * total
    cells = [noisy.marginal.cells(codes) for noisy in marginals]

    def objective(logits):
        weights = np.exp(logits - logits.max())
        weights *= total / weights.sum()
        cost = SMOOTHING * np.sum(weights * np.log(weights / start))
        slopes = SMOOTHING * np.log(weights / start)
        for noisy, cell in zip(marginals, cells, strict=True):
            left = np.bincount(cell, weights, len(noisy.counts)) - noisy.counts
            cost += np.sum(left**2) / (2 * sigma**2)
            slopes = slopes + left[cell] / sigma**2
        centred = slopes - np.sum(weights * slopes) / total
        return cost, weights * centred

    best = minimize(
        objective, np.log(start), jac=True, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    found = scaled(marginals, start).weights
    reached = objective(np.log(found))[0]
    assert reached <= best.fun * (1 + 1e-9) + 1e-9
    expected = np.exp(best.x - best.x.max())
    np.testing.assert_allclose(found, expected * total / expected.sum(), rtol=2e-3, atol=0.02)


def test_exact_counts_give_iterative_proportional_fitting():
    """With many rows the noise of five that is assumed is nothing."""
    rng = np.random.default_rng(2)
    total = 1e8
    marginals = noisy_pairs(rng, total, 0.0)
    start = rng.dirichlet(np.full(24, 3.0)) * total
    fitted, codes = start.copy(), every_row()
    for _ in range(3000):
        for noisy in marginals:
            cells = noisy.marginal.cells(codes)
            fitted *= (noisy.counts / np.bincount(cells, fitted, len(noisy.counts)))[cells]
    found = scaled(marginals, start).weights
    np.testing.assert_allclose(found, fitted, rtol=1e-4)
    for noisy in marginals:
        np.testing.assert_allclose(noisy.marginal.counts(codes, found), noisy.counts, rtol=1e-5)


def test_known_potentials_give_the_same_weights_again():
    rng = np.random.default_rng(4)
    marginals = noisy_pairs(rng, 500.0, 30.0)
    start = rng.dirichlet(np.ones(24)) * 500.0
    first = scaled(marginals, start)
    again = ScaledParticles(every_row(), start)
    for noisy, potentials in zip(marginals, first.potentials, strict=True):
        again.add(noisy, potentials)
    np.testing.assert_allclose(again.weights, first.weights, rtol=1e-9)
    assert again.sweep() < 1e-9


def test_cells_without_particles_do_no_harm():
    """Counts that no particle can meet; and negative ones, which no weight can."""
    codes = every_row()[:5]
    marginal = marginal_of((0, 1))
    counts = np.linspace(-300, 300, marginal.n_cells)
    particles = scaled([NoisyMarginal(marginal, counts, 7.0)], np.full(5, 10.0), codes, 50)
    assert np.isfinite(particles.weights).all()
    assert particles.weights.sum() == pytest.approx(50.0)
    assert all(np.isfinite(potentials).all() for potentials in particles.potentials)


@given(
    counts=st.floats(-1e5, 1e5),
    expected=st.floats(1e-6, 1e5),
    potential=st.floats(-20, 20),
    sigma=st.floats(0, 1e4),
)
def test_a_step_is_the_root_of_its_equation(counts, expected, potential, sigma):
    (step,) = scaling_step(np.array([counts]), np.array([expected]), np.array([potential]), sigma)
    stiffness = SMOOTHING * max(sigma, 5.0) ** 2

    def equation(x):
        return stiffness * (potential + x) - counts + expected * np.exp(x)

    low, high = -6.0, 6.0
    if equation(low) > 0:
        assert step == low
    elif equation(high) < 0:
        assert step == high
    else:
        assert step == pytest.approx(brentq(equation, low, high, xtol=1e-13), abs=1e-6)
