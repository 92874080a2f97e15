"""From a target (epsilon, delta) to the smallest noise that meets it.

A fit that stands alone is measured by its own privacy loss. A fit that draws on a budget is
measured in the ledger's units, in which fits add up: the target is split once, `LEAK_SHARE` of
delta pays for leaks (infinite losses of sampled steps, counts of one that pass a threshold, the
noise sampler's own error), the rest fixes a cap on the sum of the squared mu. Costs and caps are
integers, rounded against the caller, so that "exactly fills" is an exact statement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from scipy.optimize import brentq

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import Event, NonPrivateEvent
from skdpot.privacy.gdp import ROUNDING, gdp_mu
from skdpot.privacy.units import (
    MU_SQUARED_UNITS,
    Units,
    exact_leak,
    leak_cap,
    leak_cost,
    leak_of,
    mu_squared_cap,
    mu_squared_cost,
)

__all__ = [
    "LEAK_SHARE",
    "EventCost",
    "PrivacyTarget",
    "SingleFitTarget",
    "calibrate",
    "event_cost",
    "privacy_target",
]

LEAK_SHARE = 0.1
_SHARING_FITS = 1000  # with sampled steps or thresholds, in one ledger
_SAMPLER_ROOM = 1e-14  # of delta, for the noise sampler's error in ten thousand releases
_HOPELESS = 200.0
_HUGE = 10**300
_LARGEST_LOG_SIGMA = 300.0


@dataclass(frozen=True)
class PrivacyTarget:
    """The (epsilon, delta) that a budget must not exceed, or a fit that draws on one.

    Parameters
    ----------
    epsilon : float
        Greater than 0. Infinity is no limit: both caps in ledger units are then ``math.inf``,
        and everything fits, releases without noise included.
    delta : float
        In (0, 1).

    Raises
    ------
    ValueError
        If an argument is out of range.
    """

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
        """The part of delta that one fit should spend on what passes its thresholds.

        A thousandth of the leaks that a ledger admits, so that a thousand such fits share it.
        Each factor of ten raises a threshold by less than a tenth.
        """
        return self.leak_cap / _SHARING_FITS

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` fits in the rest of `delta`."""
        return gdp_mu(self.epsilon, (1.0 - LEAK_SHARE) * self.delta)

    @property
    def mu_squared_units(self) -> Units:
        """The cap on the sum of squared mu, in units of 1e-12, or ``math.inf``."""
        return mu_squared_cap(self.mu_cap)

    @property
    def leak_units(self) -> Units:
        """The cap on the sum of leaks, in units of 1e-18, or ``math.inf``."""
        return math.inf if math.isinf(self.epsilon) else leak_cap(self.leak_cap)

    def admits(self, event: Event) -> bool:
        """Whether `event` alone fits in the whole target."""
        return self.admits_cost(event_cost(event, self.leak_cap))

    def admits_cost(self, cost: "EventCost") -> bool:
        """Whether `cost` alone fits in the whole target."""
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
        if math.isinf(self.epsilon):
            return -_HOPELESS
        cap = self.mu_squared_units
        if leak > self.leak_units or cap == 0 or math.isinf(mu_squared):
            return _HOPELESS
        # The cap is an integer that may be beyond every float: then its logarithm is taken alone.
        if mu_squared > 0.0:
            huge = cap > _HUGE
            return math.log(mu_squared) - math.log(cap) if huge else math.log(mu_squared / cap)
        return -_HOPELESS


@dataclass(frozen=True)
class SingleFitTarget(PrivacyTarget):
    """The (epsilon, delta) that one fit must not exceed which shares a budget with no other.

    It is compared with the privacy loss itself, which spends the whole of delta; the ledger's
    units, in which fits add up, would cost a Gaussian release 0.2 to 1 % and sampled steps up to
    10 % more noise.

    Parameters
    ----------
    epsilon, delta : float
        As for `PrivacyTarget`.
    """

    @property
    def tail_delta(self) -> float:
        """The part of delta that should be spent on what passes thresholds: a tenth.

        It costs the Gaussian part of the fit 0.2 to 1 % more noise.
        """
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
        if math.isinf(self.epsilon):
            return -_HOPELESS
        epsilon = compose(event).epsilon(self._delta_of_losses)
        if math.isinf(epsilon):
            return _HOPELESS
        return math.log(epsilon / self.epsilon) if epsilon > 0.0 else -_HOPELESS

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same by the closed form that counts every record in every step."""
        if math.isinf(self.epsilon):
            return -_HOPELESS
        loss = compose(event)
        left = (self._delta_of_losses - loss.leak) / (1.0 - loss.leak)
        hopeless = left <= 0.0 or math.isinf(loss.mu_without_sampling)
        if hopeless or loss.n_steps > self.leak_units:
            return _HOPELESS
        mu, cap = loss.mu_without_sampling, gdp_mu(self.epsilon, left)
        return 2.0 * (math.log(mu) - math.log(cap)) if mu > 0.0 else -_HOPELESS

    @property
    def _delta_of_losses(self) -> float:
        rounded = (1.0 - 4.0 * ROUNDING) * self.delta
        return max((1.0 - LEAK_SHARE) * self.delta, rounded - _SAMPLER_ROOM)


def privacy_target(epsilon: float, delta: float, budget: object | None) -> PrivacyTarget:
    """Return what a fit is calibrated to: in a ledger's units if it draws on a budget.

    Parameters
    ----------
    epsilon, delta : float
        What the fit promises.
    budget : PrivacyBudget or None
        What it will be charged to.

    Returns
    -------
    PrivacyTarget
        A `SingleFitTarget` without a budget.
    """
    return SingleFitTarget(epsilon, delta) if budget is None else PrivacyTarget(epsilon, delta)


@dataclass(frozen=True)
class EventCost:
    """What an event takes from a ledger; infinity for a release without noise.

    Parameters
    ----------
    mu_squared_units : int or float
        The squared mu in units of 1e-12, rounded up, or ``math.inf``.
    leak_units : int or float
        The leak in units of 1e-18, rounded up, or ``math.inf``.
    """

    mu_squared_units: Units
    leak_units: Units


def event_cost(event: Event, max_leak: float) -> EventCost:
    """Convert an event to ledger units.

    Every release is charged one unit of leak (1e-18) for the error of the noise sampler, and
    what its threshold may let through. An event with sampled steps is converted with a
    thousandth of `max_leak`, sampler included, so that a thousand such fits share a ledger; where
    that is less than twice what the rounding of its loss distribution leaves open (very small
    delta, very many steps), with the latter.

    Parameters
    ----------
    event : Event
        One whole fit.
    max_leak : float
        The leak that the ledger admits in total, ``PrivacyTarget.leak_cap``.

    Returns
    -------
    EventCost
        Rounded up.

    Raises
    ------
    UnknownEventError
        If there is no accountant for the event.
    """
    loss = compose(event)
    if math.isinf(loss.mu_without_sampling):
        return EventCost(math.inf, math.inf)
    certain, leak_units = _certain_leak_units(loss), 0
    if loss.is_sampled:
        total = leak_cap(max_leak)
        cap, share = total - certain, total // _SHARING_FITS - loss.n_steps
        unresolved = leak_cost(2.0 * loss.infinity_mass)
        leak_units = max(share, unresolved)
        if leak_units > cap:  # then sampling cannot be counted on
            leak_units = 0
    private = loss.to_gdp(leak_of(leak_units))
    spent = leak_units if private.mu < loss.mu_without_sampling else 0
    return EventCost(mu_squared_cost(private.mu), spent + certain)


def calibrate(target: PrivacyTarget, make_event: Callable[[float], Event]) -> Event:
    """Find the least noise for which one event fits in the whole target.

    Parameters
    ----------
    target : PrivacyTarget
        What may be spent. If epsilon is infinite, no noise is needed.
    make_event : callable
        Maps sigma to the event. It may raise ``ValueError`` for a sigma that is too small, for
        example for its lattice. More sigma must not cost more, up to jumps as small as those
        of a lattice that follows sigma.

    Returns
    -------
    Event
        ``make_event(sigma)``, recomputed to fit, for the smallest such sigma up to a relative
        1e-12 (1e-4 with sampled steps); a `NonPrivateEvent` for an infinite epsilon.

    Raises
    ------
    CalibrationError
        If no sigma fits, or every sigma does.

    Examples
    --------
    >>> from skdpot.privacy.events import GaussianEvent
    >>> target = PrivacyTarget(epsilon=1.0, delta=1e-5)
    >>> event = calibrate(target, lambda sigma: GaussianEvent(sigma=sigma, sensitivity=2.0))
    >>> event.sigma
    7.5085
    >>> compose(event).epsilon(1e-5)
    0.9931
    """
    search = _Search(target, make_event)
    high = search.above(0.0, search.bound_excess)
    if math.isinf(target.epsilon):
        return NonPrivateEvent(relation=make_event(math.exp(high)).relation)
    root = _crossing(search.bound_excess, *search.bracket(high, search.bound_excess), 1e-13)
    if not compose(make_event(math.exp(high))).is_sampled:
        return search.first_admitted(root, 1e-13)
    # All records in every step is the costlier event, so that its sigma is an upper end.
    high = search.above(root + 1e-9, search.excess)
    root = _crossing(search.excess, *search.bracket(high, search.excess), 1e-5)
    return search.first_admitted(root, 1e-5)


@dataclass(frozen=True)
class _Search:
    """Excess of an event over the target, ``log(cost / cap)``, as a function of log(sigma)."""

    target: PrivacyTarget
    make_event: Callable[[float], Event]

    def bound_excess(self, log_sigma: float) -> float:
        """Excess by the closed form that ignores sampling."""
        event = self._event(log_sigma)
        return _HOPELESS if event is None else self.target.log_excess_without_sampling(event)

    def excess(self, log_sigma: float) -> float:
        """Excess by the account that is charged."""
        event = self._event(log_sigma)
        return _HOPELESS if event is None else self.target.log_excess(event)

    def above(self, start: float, excess: Callable[[float], float]) -> float:
        """Return a log(sigma) of at least `start` that fits."""
        x = start
        while (value := excess(x)) > 0.0:
            x += max(0.7, 0.5 * value if value < _HOPELESS else 0.0)
            if x > _LARGEST_LOG_SIGMA:
                self._event(_LARGEST_LOG_SIGMA, strict=True)
                raise CalibrationError(
                    f"No noise reaches epsilon={self.target.epsilon:g} at "
                    f"delta={self.target.delta:g}: what does not depend on sigma already costs "
                    "more. Raise epsilon or delta, or release fewer times."
                )
        return x

    def bracket(self, start: float, excess: Callable[[float], float]) -> tuple[float, float]:
        """Walk down from `start`, which fits: return a log(sigma) that does not, one that does."""
        fitting = x = start
        step = 1e-3
        while (value := excess(x)) <= 0.0:
            fitting = x
            step = min(1.4, max(2.0 * step, -0.6 * value))
            x -= step
            if x < -_LARGEST_LOG_SIGMA:
                raise CalibrationError(
                    "Every noise scale fits: the event made for the search does not depend on "
                    "sigma. Check the function that makes it."
                )
        return x, fitting

    def first_admitted(self, log_sigma: float, step: float) -> Event:
        """Walk up from the crossing to the first event whose recomputed cost fits."""
        while True:
            event = self._event(log_sigma)
            if event is not None and self.target.admits(event):
                return event
            log_sigma += step
            step *= 2.0

    def _event(self, log_sigma: float, strict: bool = False) -> Event | None:
        try:
            return self.make_event(math.exp(log_sigma))
        except ValueError as error:
            if strict:
                raise CalibrationError(f"No noise scale is accepted: {error}") from error
            return None


def _crossing(excess: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    return float(brentq(excess, low, high, xtol=tolerance, rtol=1e-15, maxiter=200))


def _certain_leak_units(loss: PrivacyLoss) -> int:
    """Return what leaks whatever becomes of samples: past thresholds, and from the sampler."""
    return leak_cost(loss.leak) + loss.n_steps
