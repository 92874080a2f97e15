"""The suite that every accountant inherits."""

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest

from skdpot.privacy.gdp import ROUNDING

EPSILONS = (0.0, 0.05, 0.3, 1.0, 2.5, 6.0)
DELTAS = (0.05, 1e-3, 1e-5, 1e-8)
# What two roundings of the same figure may differ by.
TWICE = 1.0 + 4.0 * ROUNDING


def exact_gdp_delta(epsilon: float, mu: float) -> float:
    """Evaluate the profile of N(0, 1) against N(mu, 1) with forty digits."""
    with mpmath.workdps(40):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        first, second = mpmath.ncdf(-e / m + m / 2), mpmath.ncdf(-e / m - m / 2)
        return float(first - mpmath.exp(e) * second)


class AccountantSuite:
    """Inherit, and say how the accountant of some releases is made.

    The releases are numbered by how much they tell: ``make(2.0)`` tells more than ``make(1.0)``.
    """

    def make(self, size: float) -> Any:
        """Return the accountant of a release."""
        raise NotImplementedError

    def at_least(self, size: float, epsilon: float) -> float:
        """Return what somebody attains who sees ``make(size)``, by a route of its own."""
        raise NotImplementedError

    def leak(self, accountant: Any) -> float:
        """Return the probability that is told for certain."""
        return float(getattr(accountant, "leak", getattr(accountant, "infinity_mass", 0.0)))

    @pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
    def test_delta_is_never_below_what_is_attained(self, size: float) -> None:
        for epsilon in EPSILONS:
            attained, claimed = self.at_least(size, epsilon), self.make(size).delta(epsilon)
            assert attained * (1.0 - 1e-12) <= claimed <= attained * 1.01 + 1e-13

    @pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
    def test_delta_falls_with_epsilon(self, size: float) -> None:
        deltas = [self.make(size).delta(epsilon) for epsilon in EPSILONS]
        assert all(0.0 <= delta <= 1.0 for delta in deltas)
        assert all(np.diff(deltas) <= 0.0)
        assert deltas[0] > deltas[2]

    def test_more_is_told_by_more(self) -> None:
        small, large = self.make(0.5), self.make(1.0)
        for epsilon in EPSILONS[:4]:
            less, more = small.delta(epsilon), large.delta(epsilon)
            assert less < more or less == more == 0.0
        assert all(small.epsilon(delta) <= large.epsilon(delta) for delta in DELTAS)

    @pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
    def test_epsilon_inverts_delta_to_the_private_side(self, size: float) -> None:
        accountant = self.make(size)
        for delta in DELTAS:
            epsilon = accountant.epsilon(delta)
            if math.isinf(epsilon):
                assert delta <= self.leak(accountant) * TWICE
                continue
            assert accountant.delta(epsilon) <= delta * TWICE
            assert epsilon == 0.0 or accountant.delta(epsilon * (1.0 - 1e-5)) > delta

    def test_a_delta_below_the_leak_has_no_epsilon(self) -> None:
        accountant = self.make(1.0)
        if self.leak(accountant) > 0.0:
            assert accountant.epsilon(0.5 * self.leak(accountant)) == math.inf

    def test_both_cost_more_than_each_and_their_order_does_not_matter(self) -> None:
        first, second = self.make(0.5), self.make(1.0)
        both, other = first.compose(second), second.compose(first)
        for epsilon in EPSILONS[:4]:
            assert both.delta(epsilon) >= max(first.delta(epsilon), second.delta(epsilon))
            assert both.delta(epsilon) == pytest.approx(other.delta(epsilon), rel=1e-7)
            parts = first.delta(epsilon / 2.0) + second.delta(epsilon / 2.0)
            assert both.delta(epsilon) <= parts * math.exp(epsilon / 2.0) + 1e-12

    @pytest.mark.parametrize("leak", [1e-9, 1e-4])
    def test_conversion_is_a_bound(self, leak: float) -> None:
        accountant = self.make(1.0)
        private = accountant.to_gdp(leak)
        assert math.isfinite(private.mu)
        smaller = replace(private, mu=0.99 * private.mu)
        points = np.linspace(0.0, accountant.epsilon(1.1 * leak + self.leak(accountant)), 100)
        profile = np.array([accountant.delta(float(epsilon)) for epsilon in points])
        assert np.all(profile <= [private.delta(float(e)) * TWICE for e in points])
        assert np.any(profile > [smaller.delta(float(e)) for e in points])  # no smaller mu is

    def test_composed_conversions_bound_the_composition(self) -> None:
        """What a ledger does: it converts each release by itself, and adds up."""
        first, second = self.make(0.5), self.make(1.0)
        both = first.compose(second)
        added = first.to_gdp(1e-9).compose(second.to_gdp(1e-9))
        for epsilon in EPSILONS:
            assert both.delta(epsilon) <= added.delta(epsilon) * TWICE
