"""Privacy targets of fits and costs of events, as a privacy loss or in the units of a ledger.

A fit without a budget is measured by its privacy loss. A fit with a budget is measured in the units
of the ledger, which add up over fits: `LEAK_SHARE` of delta pays for leaks (infinite losses of
sampled steps, counts of one above a threshold, errors of the noise sampler), and the rest of delta
caps the sum of squared mu. Costs are rounded up and caps are rounded down to whole units.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import Event
from skdpot.privacy.gdp import ROUNDING, gdp_mu
from skdpot.privacy.units import (
    MU_SQUARED_UNITS,
    Units,
    exact_leak,
    leak_of,
    leak_units_of,
    squared_mu_units,
)

LEAK_SHARE = 0.1
_SHARING_FITS = 1000  # fits with sampled steps or thresholds that the leaks of a ledger pay for
_SAMPLER_ROOM = 1e-14  # part of delta for errors of the noise sampler in ten thousand releases
HOPELESS = 200.0  # logarithm of cost over cap if no noise helps
_HUGE = 10**300


@dataclass(frozen=True)
class PrivacyTarget:
    """The (epsilon, delta) that a budget, or a fit with a budget, must not exceed."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        if isinstance(self.epsilon, bool) or not self.epsilon > 0.0:
            raise ValueError(f"`epsilon` must be > 0 (or infinity), got {self.epsilon!r}.")
        if isinstance(self.delta, bool) or not 0.0 < self.delta < 1.0:
            raise ValueError(f"`delta` must lie in (0, 1), got {self.delta!r}.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def leak_cap(self) -> float:
        """The part of delta that pays for leaks."""
        return LEAK_SHARE * self.delta

    @property
    def tail_delta(self) -> float:
        """The part of delta that pays for the thresholds of one fit: a thousandth of all leaks."""
        return self.leak_cap / _SHARING_FITS

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` is at most the rest of `delta`."""
        return gdp_mu(self.epsilon, (1.0 - LEAK_SHARE) * self.delta)

    @property
    def mu_squared_units(self) -> Units:
        """The cap on the sum of squared mu, in units of 1e-12, or ``math.inf``."""
        return squared_mu_units(self.mu_cap, math.floor)

    @property
    def leak_units(self) -> Units:
        """The cap on the sum of leaks, in units of 1e-18, or ``math.inf``."""
        return math.inf if math.isinf(self.epsilon) else leak_units_of(self.leak_cap, math.floor)

    def admits(self, event: Event) -> bool:
        """Whether `event` alone fits in the whole target."""
        cost = event_cost(event, self.leak_cap)
        return cost.mu_squared_units <= self.mu_squared_units and cost.leak_units <= self.leak_units

    def log_excess(self, event: Event) -> float:
        """Return ``log(cost / cap)`` of `event`, which is positive if it does not fit."""
        cost = event_cost(event, self.leak_cap)
        return self._log_ratio(cost.mu_squared_units, cost.leak_units)

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same in closed form, as if every step used all records."""
        loss = compose(event)
        mu_squared = loss.mu_without_sampling * loss.mu_without_sampling * MU_SQUARED_UNITS
        leak = _certain_leak_units(loss) if math.isfinite(mu_squared) else math.inf
        return self._log_ratio(mu_squared, leak)

    def _log_ratio(self, mu_squared: float, leak: float) -> float:
        """Return the logarithm of a squared mu over its cap, if the leak is within its cap."""
        cap = self.mu_squared_units
        if leak > self.leak_units or cap == 0 or math.isinf(mu_squared):
            return HOPELESS
        # The cap is an integer that may exceed all floats; its logarithm does not.
        if mu_squared > 0.0:
            huge = cap > _HUGE
            return math.log(mu_squared) - math.log(cap) if huge else math.log(mu_squared / cap)
        return -HOPELESS


@dataclass(frozen=True)
class SingleFitTarget(PrivacyTarget):
    """The (epsilon, delta) of one fit without a budget, compared with its privacy loss.

    The units of a ledger would need 0.2 to 1 % more noise for Gaussian releases, and up to 17 % for
    sampled steps.
    """

    @property
    def tail_delta(self) -> float:
        """The part of delta that pays for thresholds: a tenth, for 0.2 to 1 % more noise."""
        return LEAK_SHARE * self.delta

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon`, with the sampler's error, is at most `delta`."""
        return gdp_mu(self.epsilon, self._delta_of_losses)

    def admits(self, event: Event) -> bool:
        """Whether `event` is (epsilon, delta)-private, even with rounding on another machine."""
        if math.isinf(self.epsilon):
            return True
        loss = compose(event)
        raised = (1.0 + 2.0 * ROUNDING) * loss.delta(self.epsilon)
        return Fraction(raised) + exact_leak(loss.n_steps) <= Fraction(self.delta)

    def log_excess(self, event: Event) -> float:
        """Return the logarithm of the event's epsilon over the target's."""
        epsilon = compose(event).epsilon(self._delta_of_losses)
        if math.isinf(epsilon):
            return HOPELESS
        return math.log(epsilon / self.epsilon) if epsilon > 0.0 else -HOPELESS

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same in closed form, as if every step used all records."""
        loss = compose(event)
        left = (self._delta_of_losses - loss.leak) / (1.0 - loss.leak)
        hopeless = left <= 0.0 or math.isinf(loss.mu_without_sampling)
        if hopeless or loss.n_steps > self.leak_units:
            return HOPELESS
        mu, cap = loss.mu_without_sampling, gdp_mu(self.epsilon, left)
        return 2.0 * (math.log(mu) - math.log(cap)) if mu > 0.0 else -HOPELESS

    @property
    def _delta_of_losses(self) -> float:
        """The part of delta that pays for privacy losses, without rounding and sampler errors."""
        rounded = (1.0 - 4.0 * ROUNDING) * self.delta
        return max((1.0 - LEAK_SHARE) * self.delta, rounded - _SAMPLER_ROOM)


def privacy_target(epsilon: float, delta: float, budget: Any) -> PrivacyTarget:
    """Return the target of a fit, in the units of a ledger if it has a budget and no plan."""
    alone = budget is None or budget.plans(epsilon, delta)
    return (SingleFitTarget if alone else PrivacyTarget)(epsilon, delta)


@dataclass(frozen=True)
class EventCost:
    """The cost of an event in the units of a ledger, infinite for a release without noise."""

    mu_squared_units: Units
    leak_units: Units


def event_cost(event: Event, max_leak: float) -> EventCost:
    """Convert an event to the units of a ledger.

    Every release is charged one unit of leak (1e-18) for the error of the noise sampler, and the
    leak of its threshold. Sampled steps are converted with a thousandth of `max_leak`, including
    the sampler's error, or with twice the mass that rounding leaves unresolved if that is more.
    """
    loss = compose(event)
    if math.isinf(loss.mu_without_sampling):
        return EventCost(math.inf, math.inf)
    certain, leak_units = _certain_leak_units(loss), 0
    if loss.is_sampled:
        total = leak_units_of(max_leak, math.floor)
        unresolved = leak_units_of(2.0 * loss.infinity_mass, math.ceil)
        leak_units = max(total // _SHARING_FITS - loss.n_steps, unresolved)
        if leak_units > total - certain:  # the gain of sampling cannot be used
            leak_units = 0
    private = loss.to_gdp(leak_of(leak_units))
    spent = leak_units if private.mu < loss.mu_without_sampling else 0
    return EventCost(squared_mu_units(private.mu, math.ceil), spent + certain)


def _certain_leak_units(loss: PrivacyLoss) -> int:
    """Return the leak that does not come from sampling: thresholds and the noise sampler."""
    return leak_units_of(loss.leak, math.ceil) + loss.n_steps
