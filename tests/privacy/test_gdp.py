"""The Gaussian closed form, against mpmath, dp-accounting and itself."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skdpot.privacy.events import gdp_delta, gdp_epsilon, gdp_mu, raised_gdp_delta

EPS = float(np.finfo(float).eps)
EPSILONS = (-30.0, -1.0, -1e-4, 0.0, 1e-6, 0.01, 0.3, 1.0, 5.0, 40.0, 300.0, 2000.0)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 4.0, 30.0])
def test_delta_is_exact_far_into_the_tail(mu):
    for epsilon in EPSILONS:
        exact = exact_delta(epsilon, mu)
        if exact < 1e-280:
            assert gdp_delta(epsilon, mu) < 1e-270
        else:
            assert abs(gdp_delta(epsilon, mu) / exact - 1) < 2e-13 * max(1.0, 1.0 / mu)


def test_values_at_the_ends_and_arrays():
    deltas = gdp_delta(np.array(EPSILONS).reshape(3, 4), 0.7)
    assert deltas.shape == (3, 4)
    assert deltas.ravel().tolist() == [gdp_delta(e, 0.7) for e in EPSILONS]
    assert gdp_delta(0.0, 0.0) == gdp_delta(math.inf, 3.0) == 0.0
    assert gdp_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert gdp_delta(1e9, math.inf) == 1.0
    assert gdp_epsilon(0.0, 1e-5) == gdp_epsilon(0.1, 0.5) == 0.0
    assert gdp_epsilon(math.inf, 1e-5) == gdp_mu(math.inf, 1e-5) == math.inf
    assert gdp_mu(0.0, 0.1) == pytest.approx(2 * 0.12566134685507416, rel=2e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(-3.0, 1.5), st.floats(-14.0, -0.05))
def test_epsilon_rounds_up_by_one_float(log_mu, log_delta):
    mu, delta = 10.0**log_mu, 10.0**log_delta
    epsilon = gdp_epsilon(mu, delta)
    assert raised_gdp_delta(epsilon, mu) <= delta
    assert epsilon == 0.0 or raised_gdp_delta(math.nextafter(epsilon, 0.0), mu) > delta


@settings(max_examples=100, deadline=None)
@given(st.floats(-4.0, 3.0), st.floats(-14.0, -0.05))
def test_mu_rounds_down_by_one_float(log_epsilon, log_delta):
    epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
    mu = gdp_mu(epsilon, delta)
    next_mu = math.nextafter(mu, math.inf)
    assert raised_gdp_delta(epsilon, mu) <= delta < raised_gdp_delta(epsilon, next_mu)


@settings(max_examples=200, deadline=None)
@given(st.floats(-7.0, 3.0), st.floats(-8.0, 1.0))
def test_the_raised_profile_is_a_bound_with_room_for_other_machines(log_mu, log_ratio):
    """At least 5e-10 above the exact one, even with mu a few units in the last place too small."""
    mu = 10.0**log_mu
    epsilon = mu * 10.0**log_ratio
    exact = exact_delta(epsilon, mu * (1 + 4 * EPS))
    assume(exact > 1e-250)
    raised = raised_gdp_delta(epsilon, mu)
    assert 5e-10 <= raised / exact - 1 <= 2e-9 + 1e-13 * (10 + mu + 1 / mu)


def test_known_value():
    """mu = 1: delta(1) = Phi(-1/2) - e Phi(-3/2) = 0.12693673750664397."""
    assert gdp_delta(1.0, 1.0) == pytest.approx(0.12693673750664397, rel=1e-14)
    assert 1e-10 < gdp_epsilon(1.0, 0.12693673750664397) - 1.0 < 1e-9
    assert 1e-10 < 1.0 - gdp_mu(1.0, 0.12693673750664397) < 1e-9


@pytest.mark.parametrize(
    ("call", "name", "values"),
    [
        (lambda mu: gdp_delta(1.0, mu), "mu", (-1.0, math.nan)),
        (lambda epsilon: gdp_delta(epsilon, 1.0), "epsilon", (math.nan,)),
        (lambda epsilon: gdp_mu(epsilon, 1e-5), "epsilon", (-1.0, math.nan)),
        (lambda delta: gdp_mu(1.0, delta), "delta", (0.0, 1.0, -0.1, math.nan)),
        (lambda delta: gdp_epsilon(1.0, delta), "delta", (0.0, 1.0, -0.1, math.nan)),
    ],
)
def test_values_out_of_range_are_refused(call, name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"`{name}` must"):
            call(value)
