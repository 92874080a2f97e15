"""The tail bound of the one-run audit, against its definition and against randomized response."""

import math
from fractions import Fraction

import numpy as np
import pytest

from skdpot.audit.guessing import epsilon_lower_bound, guessing_p_value


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
