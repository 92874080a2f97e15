"""The tail bound of the one-run audit, against its definition and against randomized response."""

import bisect
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import binom, norm

from skdpot.audit.one_run import epsilon_lower_bound, guessing_p_value, mu_lower_bound
from skdpot.privacy.events import gdp_epsilon, gdp_mu


def probability(n, k, right):
    return math.comb(n, k) * right**k * (1 - right) ** (n - k)


@pytest.mark.parametrize(("m", "r", "v"), [(7, 7, 6), (12, 5, 4), (3, 3, 3), (9, 6, 1)])
@pytest.mark.parametrize("odds", [1, 3])
@pytest.mark.parametrize("delta", [0, Fraction(1, 1000)])
def test_formula_in_exact_arithmetic(m, r, v, odds, delta):
    right = Fraction(odds, 1 + odds)
    mass = {k: probability(r, k, right) for k in range(r + 1)}
    tail = sum(mass[k] for k in range(v, r + 1))
    near = max(
        sum(p for k, p in mass.items() if v - i <= k < v) / Fraction(i) for i in range(1, m + 1)
    )
    expected = min(1, tail + 2 * m * delta * near)
    found = guessing_p_value(math.log(odds), float(delta), n_canaries=m, n_guesses=r, n_correct=v)
    assert found == pytest.approx(float(expected), rel=1e-12)


def test_trivial_guesses_refute_nothing():
    counts = {"n_canaries": 10, "n_guesses": 5}
    assert guessing_p_value(1.0, 0.0, **counts, n_correct=0) == 1.0
    assert guessing_p_value(math.inf, 0.0, **counts, n_correct=5) == 1.0
    assert epsilon_lower_bound(0.0, 0.95, **counts, n_correct=3) == 0.0


def test_lower_bound_is_where_the_p_value_crosses():
    counts = {"n_canaries": 1000, "n_guesses": 500, "n_correct": 430}
    for delta in (0.0, 1e-5, 1e-4):
        found = epsilon_lower_bound(delta, 0.95, **counts)
        assert guessing_p_value(found, delta, **counts) <= 0.05
        assert guessing_p_value(found + 1e-5, delta, **counts) > 0.05


def test_golden_ceiling():
    """All 500 guesses of 1000 canaries right, at 95 %."""
    counts = {"n_canaries": 1000, "n_guesses": 500, "n_correct": 500}
    assert epsilon_lower_bound(1e-5, 0.95, **counts) == pytest.approx(5.09, abs=0.005)
    assert epsilon_lower_bound(0.0, 0.95, **counts) == pytest.approx(
        -math.log(0.05 ** (-1 / 500) - 1), abs=1e-5
    )


def test_more_right_guesses_and_less_delta_prove_more():
    bounds = [
        epsilon_lower_bound(1e-5, 0.95, n_canaries=400, n_guesses=200, n_correct=v)
        for v in range(100, 201, 5)
    ]
    assert bounds == sorted(bounds)
    by_delta = [
        epsilon_lower_bound(d, 0.95, n_canaries=400, n_guesses=200, n_correct=190)
        for d in (0.0, 1e-6, 1e-4, 1e-2)
    ]
    assert by_delta == sorted(by_delta, reverse=True)
    assert by_delta[0] > by_delta[-1]


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_randomized_response_is_the_worst_case(epsilon):
    """Each coin told truly with e^ε / (1 + e^ε): the bound is nearly reached, seldom exceeded."""
    rng = np.random.default_rng(3)
    correct = rng.binomial(2000, 1 / (1 + math.exp(-epsilon)), size=2000)
    values, counts = np.unique(correct, return_counts=True)
    bounds = [
        epsilon_lower_bound(0.0, 0.95, n_canaries=2000, n_guesses=2000, n_correct=int(v))
        for v in values
    ]
    exceeded = counts[np.array(bounds) > epsilon].sum() / 2000
    assert 0.03 < exceeded < 0.06
    assert np.average(bounds, weights=counts) > epsilon - 0.15


def test_delta_pays_for_a_leak():
    """(0, δ)-private: with probability δ all coins are told. The hypothesis must survive that."""
    delta, m = 0.01, 50
    p = guessing_p_value(0.0, delta, n_canaries=m, n_guesses=m, n_correct=m)
    assert p >= delta
    assert guessing_p_value(0.0, 0.0, n_canaries=m, n_guesses=m, n_correct=m) < 1e-14


@pytest.mark.parametrize(("m", "r", "v"), [(4, 4, 3), (7, 4, 4), (5, 5, 5), (9, 3, 3)])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_gaussian_bound_is_where_the_inequalities_end(m, r, v, mu):
    """The largest P[W ≥ v] under a_j ≤ F(b_{j-1}), j ≤ v, by a general solver."""
    w = np.arange(r + 1)

    def slack(p):
        above = w[:, None] <= w  # row j: w ≥ j
        a, b = above @ (w * p) / m, above @ ((r - w) * p) / m
        return norm.cdf(norm.ppf(np.maximum(b[:v], 1e-12)) + mu) - a[1 : v + 1]

    sums = [{"type": "ineq", "fun": slack}, {"type": "eq", "fun": lambda p: p.sum() - 1}]
    best = minimize(
        lambda p: -p[v:].sum(),
        binom.pmf(w, r, 0.5),
        bounds=[(0, 1)] * (r + 1),
        constraints=sums,
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert best.success
    counts = {"n_canaries": m, "n_guesses": r, "n_correct": v}
    assert mu_lower_bound(1 + best.fun, **counts) == pytest.approx(mu, abs=2e-3)


@pytest.mark.parametrize(("mu", "r"), [(0.27, 100), (0.72, 200), (1.67, 100), (3.0, 50)])
def test_gaussian_bound_holds_for_gaussian_noise(mu, r):
    """200 pairs μ apart, each in noise of its own, and the r surest guessed, 2,000 times.

    If the bound exceeds μ with a probability of 5 %, more than `most` runs do with one of 1e-6.
    """
    shown = np.random.default_rng(5).normal(mu / 2, size=(2000, 200))
    surest = np.argsort(-np.abs(shown), axis=1)[:, :r]
    right = (np.take_along_axis(shown, surest, axis=1) > 0).sum(axis=1)
    most = binom.isf(1e-6, 2000, 0.05)
    counts = {"n_canaries": 200, "n_guesses": r}
    exceeded = sum(
        times
        for v, times in zip(*np.unique(right, return_counts=True), strict=True)
        if mu_lower_bound(0.95, **counts, n_correct=int(v)) > mu
    )
    assert exceeded <= most


@pytest.mark.parametrize("mu", [0.27, 0.72, 1.67])
def test_gaussian_bound_is_attained(mu):
    """With probability 5 % each coin is told, truly with q, otherwise none: μ-GDP, and the worst.

    No event can be more probable than by the straight lines of that mechanism, through (0, 0),
    (0.05 (1 - q), 0.05 q), its mirror image and (1, 1), all on or below F.
    """
    q = brentq(lambda q: 0.05 * q - norm.cdf(norm.ppf(0.05 * (1 - q)) + mu), 0.5, 1 - 1e-9)
    counts = {"n_canaries": 10_000, "n_guesses": 10_000}
    found = mu_lower_bound(0.95, **counts, n_correct=round(10_000 * q))
    assert found == pytest.approx(mu, abs=5e-3)
    for m in (100, 1000):
        counts = {"n_canaries": m, "n_guesses": m}
        # The bound grows with the right guesses; `least` of them refute the truth.
        least = bisect.bisect(
            range(m + 1), mu, key=lambda v: mu_lower_bound(0.95, **counts, n_correct=v)
        )
        chance = 0.05 * binom.sf(least - 1, m, q) + 0.95 * binom.sf(least - 1, m, 0.5)
        assert 0.009 < chance < 0.05  # exact, no simulation


def test_gaussian_bound_is_monotone_and_tighter():
    for m, least in ((100, 1.5), (1000, 1.5)):
        counts = {"n_canaries": m, "n_guesses": m // 2, "n_correct": round(0.461 * m)}
        normal = [epsilon_lower_bound(1e-5, c, **counts, gaussian=True) for c in (0.999, 0.95)]
        found = epsilon_lower_bound(1e-5, 0.95, **counts)
        assert least * found < normal[1] < gdp_epsilon(gdp_mu(8.0, 1e-5), 1e-5)
        assert normal[0] < normal[1]
    by_right = [
        mu_lower_bound(0.95, n_canaries=200, n_guesses=100, n_correct=v) for v in range(101)
    ]
    assert by_right == sorted(by_right)
    assert by_right[0] == by_right[50] == 0.0 < by_right[100]
    assert mu_lower_bound(0.95, n_canaries=1, n_guesses=1, n_correct=1) == 0.0
    # One coin of one, for whatever it proves: P[right] = Φ(μ / 2) is what μ allows.
    only = mu_lower_bound(0.1, n_canaries=1, n_guesses=1, n_correct=1)
    assert norm.cdf(only / 2) == pytest.approx(0.9, abs=1e-6)
