"""What a fit may cost, and what it costs, in the privacy loss itself or in a ledger's units.

A fit without a budget is measured by its own privacy loss. A fit that draws on a budget is measured
in the ledger's units, which add up over fits: `LEAK_SHARE` of delta pays for leaks (infinite losses
of sampled steps, counts of one above a threshold, the sampler's error), and the rest caps the sum
of squared mu. Costs are rounded up and caps down to whole units.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import Event
from skdpot.privacy.gdp import (
    ROUNDING,
    gdp_mu,
)
from skdpot.privacy.units import (
    MU_SQUARED_UNITS,
    Units,
    exact_leak,
    leak_of,
    leak_units_of,
    squared_mu_units,
)

LEAK_SHARE = 0.1
_SHARING_FITS = 1000  # with sampled steps or thresholds, in one ledger
_SAMPLER_ROOM = 1e-14  # of delta, for the noise sampler's error in ten thousand releases
HOPELESS = 200.0
_HUGE = 10**300


@dataclass(frozen=True)
class PrivacyTarget:
    """The (epsilon, delta) that a budget must not exceed, or a fit that draws on one."""

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
        """The part of delta for the thresholds of one fit: a thousandth of all leaks."""
        return self.leak_cap / _SHARING_FITS

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` fits in the rest of `delta`."""
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
        """Return ``log(cost / cap)`` of `event`: positive when it does not fit."""
        cost = event_cost(event, self.leak_cap)
        return self._log_ratio(cost.mu_squared_units, cost.leak_units)

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same by the closed form that counts every record in every step."""
        loss = compose(event)
        mu_squared = loss.mu_without_sampling * loss.mu_without_sampling * MU_SQUARED_UNITS
        leak = _certain_leak_units(loss) if math.isfinite(mu_squared) else math.inf
        return self._log_ratio(mu_squared, leak)

    def _log_ratio(self, mu_squared: float, leak: float) -> float:
        cap = self.mu_squared_units
        if leak > self.leak_units or cap == 0 or math.isinf(mu_squared):
            return HOPELESS
        # The cap is an integer that may be beyond every float: then its logarithm is taken alone.
        if mu_squared > 0.0:
            huge = cap > _HUGE
            return math.log(mu_squared) - math.log(cap) if huge else math.log(mu_squared / cap)
        return -HOPELESS


@dataclass(frozen=True)
class SingleFitTarget(PrivacyTarget):
    """The (epsilon, delta) of one fit without a budget, compared with the privacy loss itself.

    The ledger's units would cost Gaussian releases 0.2 to 1 %, sampled steps up to 17 % more noise.
    """

    @property
    def tail_delta(self) -> float:
        """The part of delta for what passes thresholds: a tenth, at 0.2 to 1 % more noise."""
        return LEAK_SHARE * self.delta

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` fits in `delta` beside the sampler's error."""
        return gdp_mu(self.epsilon, self._delta_of_losses)

    def admits(self, event: Event) -> bool:
        """Whether `event` is (epsilon, delta)-private, whatever machine computes that."""
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
        """Return the same by the closed form that counts every record in every step."""
        loss = compose(event)
        left = (self._delta_of_losses - loss.leak) / (1.0 - loss.leak)
        hopeless = left <= 0.0 or math.isinf(loss.mu_without_sampling)
        if hopeless or loss.n_steps > self.leak_units:
            return HOPELESS
        mu, cap = loss.mu_without_sampling, gdp_mu(self.epsilon, left)
        return 2.0 * (math.log(mu) - math.log(cap)) if mu > 0.0 else -HOPELESS

    @property
    def _delta_of_losses(self) -> float:
        rounded = (1.0 - 4.0 * ROUNDING) * self.delta
        return max((1.0 - LEAK_SHARE) * self.delta, rounded - _SAMPLER_ROOM)


def privacy_target(epsilon: float, delta: float, budget: Any) -> PrivacyTarget:
    """Return what a fit is calibrated to: in a ledger's units if it draws on one without a plan."""
    alone = budget is None or budget.plans(epsilon, delta)
    return (SingleFitTarget if alone else PrivacyTarget)(epsilon, delta)


@dataclass(frozen=True)
class EventCost:
    """What an event takes from a ledger; infinity for a release without noise."""

    mu_squared_units: Units
    leak_units: Units


def event_cost(event: Event, max_leak: float) -> EventCost:
    """Convert an event to ledger units.

    Every release is charged one unit of leak (1e-18) for the error of the noise sampler, and what
    its threshold may let through. Sampled steps are converted with a thousandth of `max_leak`,
    sampler included, or with twice what rounding leaves unresolved if that is more.
    """
    loss = compose(event)
    if math.isinf(loss.mu_without_sampling):
        return EventCost(math.inf, math.inf)
    certain, leak_units = _certain_leak_units(loss), 0
    if loss.is_sampled:
        total = leak_units_of(max_leak, math.floor)
        unresolved = leak_units_of(2.0 * loss.infinity_mass, math.ceil)
        leak_units = max(total // _SHARING_FITS - loss.n_steps, unresolved)
        if leak_units > total - certain:  # then sampling cannot be counted on
            leak_units = 0
    private = loss.to_gdp(leak_of(leak_units))
    spent = leak_units if private.mu < loss.mu_without_sampling else 0
    return EventCost(squared_mu_units(private.mu, math.ceil), spent + certain)


def _certain_leak_units(loss: PrivacyLoss) -> int:
    """Return what leaks whatever becomes of samples: past thresholds, and from the sampler."""
    return leak_units_of(loss.leak, math.ceil) + loss.n_steps
