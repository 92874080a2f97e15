"""The charge of zero-concentrated releases against the worst of them."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtri

from skdpot.privacy.concentrated import LARGEST_RHO, gdp_of_zcdp, zcdp_profile

RHOS = [1e-6, 0.01, 0.5, 2.0, 8.0]
ORDERS = np.concatenate([[1.0], 1.0 + np.geomspace(1e-3, 1e4, 400)])


def concentration(log_p, log_q):
    """Return the smallest rho with which a pair of laws is rho-zCDP, on a fine grid of orders."""
    largest = 0.0
    for one, other in ((log_p, log_q), (log_q, log_p)):
        loss, over = one - other, ORDERS[1:, None] - 1.0
        divergences = logsumexp(one + over * loss, axis=1) / over[:, 0]
        kl = float(np.exp(one) @ loss)
        largest = max(largest, kl, float(np.max(divergences / ORDERS[1:])))
    return largest


def shifted(law, gains, scale):
    """Return the logarithms of a law and of its tilt."""
    log_q = np.log(law)
    log_p = log_q + scale * gains
    return log_p - logsumexp(log_p), log_q


def delta(log_p, log_q, epsilon):
    return float(np.sum(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0.0)))


def two_answers(rho):
    """Return randomised response whose divergence of order 1 is rho."""
    odds = brentq(lambda a: a * math.tanh(a / 2) - rho, 1e-9, rho + 5)
    return 1.0 / (1.0 + math.exp(-odds)), odds


@pytest.mark.parametrize("rho", RHOS)
def test_randomised_response_attains_the_charge(rho):
    truth, odds = two_answers(rho)
    log_p = np.log([truth, 1.0 - truth])
    assert concentration(log_p, log_p[::-1]) == pytest.approx(rho, rel=1e-6)
    charged = gdp_of_zcdp(rho)
    assert 0.0 < charged.mu / (2 * ndtri(truth)) - 1 < 1e-6
    for epsilon in np.linspace(0.0, odds, 9):
        assert delta(log_p, log_p[::-1], epsilon) <= charged.delta(epsilon)
    assert math.tanh(odds / 2) > (1 - 1e-6) * charged.delta(0.0)
    # What a Gaussian release of this rho costs does not cover it.
    assert charged.mu > 1.25 * math.sqrt(2 * rho)


@pytest.mark.parametrize("rho", RHOS)
def test_no_search_finds_a_concentrated_pair_that_costs_more(rho):
    """Pairs on two to five points, scaled until they are rho-zCDP and no better."""
    rng, charged, closest = np.random.default_rng(1), gdp_of_zcdp(rho), 0.0
    nodes, deltas = zcdp_profile(rho)
    for trial in range(45):
        n = 2 + trial % 4
        law = rng.dirichlet(np.full(n, 10.0 ** rng.uniform(-1, 1))) + 1e-9
        law, gains = law / law.sum(), rng.standard_normal(n)
        if trial % 3 == 0:  # a rare event, as in the tail of noise
            law = np.append(law * (1 - 1e-6), 1e-6)
            gains = np.append(0.1 * gains, 3.0)

        def excess(log_scale, law=law, gains=gains):
            found = concentration(*shifted(law, gains, math.exp(log_scale)))
            return math.log(max(found, 1e-300) / rho)

        scale = math.exp(brentq(excess, -25.0, 12.0, xtol=1e-3) - 1e-3)
        log_p, log_q = shifted(law, gains, scale)
        assert concentration(log_p, log_q) <= rho
        for one, other in ((log_p, log_q), (log_q, log_p)):
            for epsilon in np.append(0.0, np.geomspace(0.03, 12.0, 12) * math.sqrt(rho)):
                found = delta(one, other, epsilon)
                # Of the class alone, which a Gaussian release dominates with room in its tail.
                worst = float(np.interp(math.exp(epsilon), np.exp(nodes), deltas))
                assert found <= worst + 1e-14
                closest = max(closest, found / charged.delta(epsilon))
                assert found <= charged.delta(epsilon)
    assert closest > 0.9  # the search is no toy: it comes near


def test_the_charge_grows_with_rho_and_ends_where_nothing_is_protected():
    charges = [gdp_of_zcdp(rho).mu for rho in [0.0, 1e-12, *np.geomspace(1e-7, LARGEST_RHO, 12)]]
    assert charges == sorted(charges)
    for rho in (1.01 * LARGEST_RHO, math.inf, math.nan, -0.1):
        with pytest.raises(ValueError, match=r"must lie in \[0, 20\]"):
            gdp_of_zcdp(rho)
