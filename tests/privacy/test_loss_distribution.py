"""Discretised losses, and their conversion to approximate GDP."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from skdpot.privacy.approximate_gdp import ApproximateGDP, smallest_mu
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.loss_distribution import LossDistribution, LossPair
from skdpot.privacy.poisson import PoissonAddRemoveStep, PoissonClippedSumStep
from skdpot.privacy.without_replacement import SubsetStep


def two_point_losses(loss_in_intervals, infinity_mass=0.0):
    """Randomised response on a grid: loss +l or -l, with an optional infinite loss."""
    interval = 0.1
    odds = math.exp(loss_in_intervals * interval)
    masses = np.zeros(2 * loss_in_intervals + 1)
    masses[0], masses[-1] = 1 / (1 + odds), odds / (1 + odds)
    masses *= 1 - infinity_mass
    return LossDistribution(interval, -loss_in_intervals, masses, infinity_mass)


def test_an_infinite_loss_counts_fully_with_and_without_a_gaussian():
    plain, leaky = two_point_losses(10), two_point_losses(10, infinity_mass=0.25)
    for epsilon, mu in itertools.product((0.0, 0.5, 50.0), (0.0, 0.8)):
        expected = 0.25 + 0.75 * plain.delta(epsilon, mu)
        assert leaky.delta(epsilon, mu) == pytest.approx(expected, rel=1e-12)
        assert leaky.epsilon(0.2, mu) == math.inf
    assert leaky.self_compose(2).infinity_mass == pytest.approx(1 - 0.75**2, rel=1e-12)
    assert leaky.compose(plain).infinity_mass == pytest.approx(0.25, rel=1e-12)


def test_the_larger_order_counts_whichever_it_is():
    small, large = two_point_losses(3), two_point_losses(9)
    both = large.compose(large)
    for first in (LossPair(small, large), LossPair(large, small)):
        assert first.delta(0.2) == large.delta(0.2)
        assert first.epsilon(0.1) == large.epsilon(0.1)
        assert smallest_mu(first, 1e-3) == smallest_mu(LossPair(large), 1e-3)
        assert first.self_compose(2).delta(0.2) == pytest.approx(both.delta(0.2))
        for second in (first, LossPair(large)):
            assert first.compose(second).delta(0.2) == pytest.approx(both.delta(0.2))
            assert second.compose(first).delta(0.2) == pytest.approx(both.delta(0.2))


def test_two_point_losses_compose_to_a_binomial():
    """Eight randomised responses of loss 1: exact by summation."""
    composed = two_point_losses(10).self_compose(8)
    p = math.e / (1 + math.e)
    for epsilon in (0.0, 1.5, 4.0):
        exact = sum(
            binom.pmf(k, 8, p) * max(0.0, 1 - math.exp(epsilon - (2 * k - 8))) for k in range(9)
        )
        assert composed.delta(epsilon) == pytest.approx(exact, rel=1e-12)
        nodes, profile = composed.profile()
        node = round(epsilon / 0.1)
        assert nodes[node] == pytest.approx(epsilon)
        assert profile[node] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("leak", [1e-11, 1e-9, 1e-4])
@pytest.mark.parametrize(
    "losses",
    [
        SubsetStep(0.2, 0.2).losses(2e-4).self_compose(100),
        SubsetStep(1.0, 0.1).losses(1e-2).self_compose(3),
        PoissonAddRemoveStep(1 / 1.1, 0.02).losses(1e-3).self_compose(50),
        PoissonClippedSumStep(1 / 1.1, 0.02).losses(1e-3).self_compose(50),
    ],
    ids=["subset", "coarse", "add_remove", "clipped_sum"],
)
def test_conversion_is_a_bound_between_the_nodes_and_no_smaller_mu_is(losses, leak):
    """Checked on points that are no nodes, in both orders; 0.5 % less mu must fail."""
    mu = smallest_mu(losses, leak)
    interval, width = losses.forward.interval, losses.epsilon(max(2 * leak, 1e-12))
    points = np.unique(np.append(np.linspace(0.0, width, 250), np.arange(30) * interval / 7))
    gap = np.full(points.shape, np.inf)
    smaller = gap.copy()
    for order in losses.orders:
        profile = np.array([order.delta(float(e)) for e in points])
        gap = np.minimum(gap, leak + (1 - leak) * gdp_delta(points, mu) - profile)
        smaller = np.minimum(smaller, leak + (1 - leak) * gdp_delta(points, 0.995 * mu) - profile)
    assert gap.min() >= -1e-14
    assert smaller.min() < 0.0


def test_conversion_charges_infinite_losses_to_the_leak():
    losses = SubsetStep(1.0, 0.5).losses(1e-2)
    with_leak = type(losses)(
        type(losses.forward)(
            losses.forward.interval,
            losses.forward.lowest,
            losses.forward.probabilities * (1 - 1e-6),
            1e-6,
        )
    )
    assert smallest_mu(with_leak, 0.99e-6) == math.inf
    assert math.isfinite(smallest_mu(with_leak, 1.01e-6))


def test_conversion_of_next_to_nothing_is_nothing():
    assert smallest_mu(SubsetStep(1e-3, 1e-3).losses(1e-8), 1e-5) == 0.0


def test_approximate_gdp_reads_both_ways():
    private = ApproximateGDP(mu=0.5, leak=1e-6)
    assert private.delta(1.0) == pytest.approx(1e-6 + (1 - 1e-6) * gdp_delta(1.0, 0.5))
    assert private.delta(private.epsilon(1e-5)) <= 1e-5
    assert private.epsilon(1e-5) == pytest.approx(gdp_epsilon(0.5, 9e-6), rel=1e-6)
    assert private.epsilon(1e-6) == math.inf
