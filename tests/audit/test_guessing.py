"""The tail bound of the one-run audit, against its definition and against randomized response."""

import bisect
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import binom, norm

from skdpot.audit.guessing import epsilon_lower_bound, guessing_p_value, mu_lower_bound


def counted(n_canaries, n_guesses, n_correct):
    return {"n_canaries": n_canaries, "n_guesses": n_guesses, "n_correct": n_correct}


@pytest.mark.parametrize(("m", "r", "v"), [(7, 7, 6), (12, 5, 4), (3, 3, 3), (9, 6, 1)])
@pytest.mark.parametrize("odds", [1, 3])
@pytest.mark.parametrize("delta", [0, Fraction(1, 1000)])
def test_formula_in_exact_arithmetic(m, r, v, odds, delta):
    right = Fraction(odds, 1 + odds)
    mass = {k: math.comb(r, k) * right**k * (1 - right) ** (r - k) for k in range(r + 1)}
    tail = sum(mass[k] for k in range(v, r + 1))
    near = max(
        sum(p for k, p in mass.items() if v - i <= k < v) / Fraction(i) for i in range(1, m + 1)
    )
    expected = min(1, tail + 2 * m * delta * near)
    found = guessing_p_value(math.log(odds), float(delta), **counted(m, r, v))
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_trivial_guesses_refute_nothing_and_delta_pays_for_a_leak():
    assert guessing_p_value(1.0, 0.0, **counted(10, 5, 0)) == 1.0
    assert guessing_p_value(math.inf, 0.0, **counted(10, 5, 5)) == 1.0
    assert epsilon_lower_bound(0.0, 0.95, **counted(10, 5, 3)) == 0.0
    # (0, δ)-private: with probability δ all coins are told. The hypothesis must survive that.
    assert guessing_p_value(0.0, 0.01, **counted(50, 50, 50)) >= 0.01
    assert guessing_p_value(0.0, 0.0, **counted(50, 50, 50)) < 1e-14


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-4])
def test_lower_bound_is_where_the_p_value_crosses(delta):
    counts = counted(1000, 500, 430)
    found = epsilon_lower_bound(delta, 0.95, **counts)
    assert guessing_p_value(found, delta, **counts) <= 0.05
    assert guessing_p_value(found + 1e-5, delta, **counts) > 0.05


def test_golden_ceiling():
    """All 500 guesses of 1000 canaries right, at 95 %."""
    counts = counted(1000, 500, 500)
    assert epsilon_lower_bound(1e-5, 0.95, **counts) == pytest.approx(5.09, abs=0.005)
    assert epsilon_lower_bound(0.0, 0.95, **counts) == pytest.approx(
        -math.log(0.05 ** (-1 / 500) - 1), abs=1e-5
    )


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_randomized_response_is_the_worst_case(epsilon):
    """Each coin told truly with e^ε / (1 + e^ε): the bound is nearly reached, seldom exceeded."""
    rng = np.random.default_rng(3)
    correct = rng.binomial(2000, 1 / (1 + math.exp(-epsilon)), size=2000)
    values, counts = np.unique(correct, return_counts=True)
    bounds = [epsilon_lower_bound(0.0, 0.95, **counted(2000, 2000, int(v))) for v in values]
    assert 0.03 < counts[np.array(bounds) > epsilon].sum() / 2000 < 0.06
    assert np.average(bounds, weights=counts) > epsilon - 0.15


@pytest.mark.parametrize(("m", "r", "v"), [(4, 4, 3), (7, 4, 4), (5, 5, 5), (9, 3, 3)])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_gaussian_bound_is_where_the_inequalities_end(m, r, v, mu):
    """The largest P[W ≥ v] under a_j ≤ F(b_{j-1}), j ≤ v, by a general solver."""
    w = np.arange(r + 1)

    def slack(p):
        above = w[:, None] <= w  # row j: w ≥ j
        a, b = above @ (w * p) / m, above @ ((r - w) * p) / m
        return norm.cdf(norm.ppf(np.maximum(b[:v], 1e-12)) + mu) - a[1 : v + 1]

    best = minimize(
        lambda p: -p[v:].sum(),
        binom.pmf(w, r, 0.5),
        bounds=[(0, 1)] * (r + 1),
        constraints=[{"type": "ineq", "fun": slack}, {"type": "eq", "fun": lambda p: p.sum() - 1}],
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert best.success
    assert mu_lower_bound(1 + best.fun, **counted(m, r, v)) == pytest.approx(mu, abs=2e-3)


@pytest.mark.parametrize("mu", [0.27, 0.72, 1.67])
def test_gaussian_bound_is_attained(mu):
    """With probability 5 % each coin is told, truly with q, otherwise none: μ-GDP, and the worst.

    No event can be more probable than by the straight lines of that mechanism, through (0, 0),
    (0.05 (1 - q), 0.05 q), its mirror image and (1, 1), all on or below F.
    """
    q = brentq(lambda q: 0.05 * q - norm.cdf(norm.ppf(0.05 * (1 - q)) + mu), 0.5, 1 - 1e-9)
    found = mu_lower_bound(0.95, **counted(10_000, 10_000, round(10_000 * q)))
    assert found == pytest.approx(mu, abs=5e-3)
    for m in (100, 1000):
        # The bound grows with the right guesses; `least` of them refute the truth.
        least = bisect.bisect(
            range(m + 1), mu, key=lambda v, m=m: mu_lower_bound(0.95, **counted(m, m, v))
        )
        chance = 0.05 * binom.sf(least - 1, m, q) + 0.95 * binom.sf(least - 1, m, 0.5)
        assert 0.009 < chance < 0.05  # exact, no simulation


def test_bounds_are_monotone_and_that_of_gaussian_noise_is_tighter():
    def bounds(rights, delta=1e-5, confidence=0.95, **options):
        given = [counted(400, 200, right) for right in rights]
        return [epsilon_lower_bound(delta, confidence, **c, **options) for c in given]

    for options in ({}, {"gaussian": True}):
        by_right = bounds(range(100, 201, 5), **options)
        assert by_right == sorted(by_right)
        by_delta = [bounds([190], delta, **options)[0] for delta in (1e-2, 1e-4, 1e-6)]
        assert by_delta == sorted(set(by_delta))
        assert bounds([190], confidence=0.999, **options) < bounds([190], **options)
    assert 1.5 * bounds([184])[0] < bounds([184], gaussian=True)[0] < 8.0
    assert mu_lower_bound(0.95, **counted(200, 100, 50)) == 0.0
    assert mu_lower_bound(0.95, **counted(1, 1, 1)) == 0.0
    # One coin of one, for whatever it proves: P[right] = Φ(μ / 2) is what μ allows.
    assert norm.cdf(mu_lower_bound(0.1, **counted(1, 1, 1)) / 2) == pytest.approx(0.9, abs=1e-6)
