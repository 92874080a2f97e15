"""Discretised losses, and their conversion to approximate GDP."""

import itertools
import math
import warnings
from dataclasses import replace
from functools import reduce

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from skdpot.privacy.events import ROUNDING, gdp_delta
from skdpot.privacy.loss_distribution import LossDistribution, LossPair
from skdpot.privacy.sampling import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    SubsetStep,
    absent_delta,
    clipped_sum_delta,
)


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
        assert leaky.delta(epsilon, mu) == pytest.approx(expected, rel=2e-9)
        assert leaky.epsilon(0.2, mu) == math.inf
    assert leaky.self_compose(2).infinity_mass == pytest.approx(1 - 0.75**2, rel=2e-9)
    assert leaky.compose(plain).infinity_mass == pytest.approx(0.25, rel=2e-9)


def test_the_larger_order_counts_whichever_it_is():
    small, large = two_point_losses(3), two_point_losses(9)
    both = large.compose(large)
    for first in (LossPair(small, large), LossPair(large, small)):
        assert first.delta(0.2) == large.delta(0.2)
        assert first.epsilon(0.1) == large.epsilon(0.1)
        assert first.to_gdp(1e-3).mu == LossPair(large).to_gdp(1e-3).mu
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
        assert 1e-9 < composed.delta(epsilon) / exact - 1 < 4e-9
        nodes, profile = composed.profile()
        node = round(epsilon / 0.1)
        assert nodes[node] == pytest.approx(epsilon)
        assert 1e-9 < profile[node] / exact - 1 < 4e-9


def test_losses_beyond_the_window_count_as_infinite():
    """Of 400 randomised responses, whose own losses are all finite."""
    composed = two_point_losses(10).self_compose(400)
    last = composed.values[-1]
    assert last < 390.0
    beyond = binom.sf(math.floor((last + 400) / 2), 400, math.e / (1 + math.e))
    assert 0.0 < beyond <= composed.infinity_mass <= 2e-21


def exact_masses(parts):
    """Convolve directly in extended precision: every term is positive, nothing cancels."""
    masses, lowest = np.ones(1, dtype=np.longdouble), 0
    for losses, count in parts:
        step = losses.probabilities.astype(np.longdouble)
        for _ in range(count):
            masses = np.convolve(masses, step)
        lowest += count * losses.lowest
    return masses, lowest


@pytest.mark.parametrize(
    "parts",
    [
        [(SubsetStep(1.0, 0.1).losses(5e-2), 16)],
        [(SubsetStep(0.2, 0.2).losses(1e-2), 32)],
        [(SubsetStep(2.5, 0.02).losses(0.1), 12)],
        [(PoissonAddRemoveStep(1.0, 0.05).losses(5e-2), 24)],
        [(SubsetStep(1.0, 0.1).losses(5e-2), 5), (PoissonClippedSumStep(0.7, 0.2).losses(5e-2), 7)],
    ],
    ids=["subset", "small", "heavy", "add_remove", "two"],
)
def test_composed_masses_bound_the_exact_ones_far_into_the_tail(parts):
    """From 1 down to 1e-22, and never by much: transforms alone stop being right at 1e-17."""
    orders = zip(*(p.orders * (2 // len(p.orders)) for p, _ in parts), strict=True)
    for order in orders:
        counted = [(losses, count) for losses, (_, count) in zip(order, parts, strict=True)]
        exact, lowest = exact_masses(counted)
        steps = [losses.self_compose(count) for losses, count in counted]
        composed = reduce(LossDistribution.compose, steps)
        start = composed.lowest - lowest
        seen = exact[start : start + len(composed.probabilities)]
        above = (composed.probabilities / seen).astype(float) - 1
        assert above[seen > 1e-17].min() >= 1e-9  # of two parts the first one has lost its end
        assert above[(seen > 1e-22) & (composed.values > 0)].max() <= 3e-5
        beyond = float(exact[start + len(seen) :].sum())
        lost = sum(count * losses.infinity_mass for losses, count in counted)
        assert beyond <= composed.infinity_mass <= 1.01 * lost + 1e-20
        losses = (np.arange(len(exact)) + lowest) * composed.interval
        for epsilon in composed.values[composed.values > 0][::20]:
            delta = float((-np.expm1(np.minimum(epsilon - losses, 0.0)) * exact).sum())
            ours = composed.delta(epsilon)
            assert ours >= (1 + 1e-9) * delta
            assert ours - composed.infinity_mass <= (1 + 3e-5) * delta + 1e-22


@pytest.mark.parametrize(("rate", "mu"), [(0.1, 0.9), (0.3, 3.0), (0.9, 12.0)])
def test_what_cancels_near_the_largest_loss_is_added(rate, mu):
    """One order has no loss above -log(1 - rate), before which the closed form has no digits."""
    epsilons = -math.log1p(-rate) * (1.0 - 10.0 ** -np.arange(1.0, 16.5, 0.1))
    exact = [float(exact_absent_delta(float(e), mu, rate)) for e in epsilons]
    ours = absent_delta(epsilons, mu, rate) * (1.0 + ROUNDING)
    assert np.all(ours >= exact)
    assert np.all(ours <= (1.0 + 2.0 * ROUNDING) * np.array(exact) + 1e-14)


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 1e-3, 0.7, 9.0])
def test_what_cancels_in_a_sum_of_clipped_vectors_is_added(mu):
    rate = 0.3
    epsilons = np.append(0.0, min(mu, 1.0) * rate * np.geomspace(1e-4, 30.0, 40))
    exact = np.array([float(exact_clipped_delta(float(e), mu, rate)) for e in epsilons])
    ours = clipped_sum_delta(epsilons, mu, rate) * (1.0 + ROUNDING)
    assert np.all(ours >= exact)
    assert np.all(ours <= (1.0 + 2.0 * ROUNDING) * exact + 1e-14)


def exact_clipped_delta(epsilon, mu, rate):
    """H between (1 - p) N(0, 1) + p N(-m, 1) and its mirror image, where the loss is epsilon."""
    with mpmath.workdps(50):
        e, m, p = mpmath.mpf(epsilon), mpmath.mpf(mu) / 2, mpmath.mpf(rate)
        c, b = p * mpmath.exp(-m * m / 2), (1 - p) * (1 - mpmath.exp(-e))
        x = mpmath.log(2 * c / (b + mpmath.sqrt(b * b + 4 * c * c * mpmath.exp(-e)))) - e
        plain, left, right = (mpmath.ncdf(x / m + shift) for shift in (0, m, -m))
        return p * left + (1 - p) * plain - mpmath.exp(e) * (p * right + (1 - p) * plain)


def exact_absent_delta(epsilon, mu, rate):
    """H between N(0, 1) and (1 - p) N(0, 1) + p N(mu, 1): the loss is monotone in x."""
    with mpmath.workdps(50):
        e, m, p = mpmath.mpf(epsilon), mpmath.mpf(mu), mpmath.mpf(rate)
        inner = (mpmath.exp(-e) - 1 + p) / p  # where the loss is epsilon
        if inner <= 0:  # it never rises so high
            return mpmath.mpf(0)
        x = mpmath.log(inner) / m + m / 2
        plain, moved = mpmath.ncdf(x), mpmath.ncdf(x - m)
        return plain - mpmath.exp(e) * ((1 - p) * plain + p * moved)


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
    mu = losses.to_gdp(leak).mu
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
    losses = SubsetStep(1.0, 0.5).losses(1e-2).forward
    kept = losses.probabilities * (1 - 1e-6)
    leaky = LossPair(replace(losses, probabilities=kept, infinity_mass=1e-6))
    assert leaky.to_gdp(0.99e-6).mu == math.inf
    assert math.isfinite(leaky.to_gdp(1.01e-6).mu)
    assert SubsetStep(1e-3, 1e-3).losses(1e-8).to_gdp(1e-5).mu == 0.0  # of next to nothing


def test_tiny_masses_far_out_are_no_overflow():
    """A mass of 1e-310 at the largest loss was divided by: warnings, and an infinite bound."""
    loss = LossDistribution(1.0, 0, np.array([1.0 - 1e-9, 1e-9, 1e-310]), 0.0)
    for t in (1e-3, 1.0, 710.0):
        exact = max(2.0 * t + math.log(1e-310), t + math.log(1e-9), 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert exact <= loss.log_mgf(t) + 1e-9 <= exact + 1.2
