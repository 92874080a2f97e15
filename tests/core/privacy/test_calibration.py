"""Targets, costs in ledger units, and the least noise that fits."""

import math
from fractions import Fraction
from functools import partial

import pytest

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.gdp import ROUNDING, gdp_delta, gdp_mu
from skdpot.privacy.targets import (
    LEAK_SHARE,
    EventCost,
    PrivacyTarget,
    SingleFitTarget,
    event_cost,
    privacy_target,
)
from tests.core.privacy.cases import gaussian, poisson, subsets

batches = partial(subsets, batch=50, of=1000, n_steps=100)
add_remove = partial(poisson, rate=0.02, n_steps=100, relation=Relation.ADD_REMOVE)
clipped_sum = partial(poisson, rate=0.02, n_steps=100, clipped_sum=True)


def bounds_then_fit(sigma, fit=gaussian, **options):
    return ComposedEvent(events=(gaussian(20.0, **options), fit(sigma)))


bounds_then_batches = partial(bounds_then_fit, fit=batches)
ALL = [gaussian, batches, add_remove, clipped_sum, bounds_then_batches]
ALL.append(partial(bounds_then_fit, lattice=1.0))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_target_splits_delta_and_rounds_down(epsilon, delta):
    target = PrivacyTarget(epsilon, delta)
    assert target.leak_cap == pytest.approx(delta / 10)
    assert target.mu_cap == gdp_mu(epsilon, (1 - LEAK_SHARE) * delta)
    assert gdp_delta(epsilon, target.mu_cap) + target.leak_cap <= delta * (1 + 1e-15)
    assert isinstance(target.mu_squared_units, int)
    assert isinstance(target.leak_units, int)
    exact = Fraction(target.mu_cap) ** 2 * 10**12
    assert target.mu_squared_units <= exact < target.mu_squared_units + 1
    assert target.leak_units <= Fraction(target.leak_cap) * 10**18


@pytest.mark.parametrize("kind", [PrivacyTarget, SingleFitTarget])
def test_unbounded_target_admits_everything(kind):
    target = privacy_target(math.inf, 1e-5, None if kind is SingleFitTarget else PrivacyBudget(1.0))
    assert type(target) is kind
    assert target.admits(NonPrivateEvent())
    assert calibrate(target, add_remove) == NonPrivateEvent(relation=Relation.ADD_REMOVE)
    assert not kind(1e6, 0.5).admits(NonPrivateEvent())
    assert PrivacyTarget(math.inf, 1e-5).leak_units == math.inf


def test_cost_of_gaussians_is_mu_squared_and_one_unit_a_release():
    assert event_cost(gaussian(3.0), 1e-6) == EventCost(math.ceil(10**12 / 9), 1)
    several = ComposedEvent(events=(gaussian(3.0), gaussian(3.0, n_steps=4)))
    assert event_cost(several, 1e-6) == EventCost(math.ceil(5 * 10**12 / 9), 5)
    assert event_cost(NonPrivateEvent(), 1e-6) == EventCost(math.inf, math.inf)


def test_a_thousand_sampled_fits_share_the_leaks_of_a_ledger():
    target = PrivacyTarget(8.0, 1e-5)
    for event in (batches(1.0), bounds_then_batches(1.0)):
        cost = event_cost(event, target.leak_cap)
        assert 1000 * cost.leak_units <= target.leak_units < 1001 * cost.leak_units


def test_a_tiny_delta_still_counts_on_sampling():
    """A thousandth of the leaks is below the rounding of the losses: twice that is charged."""
    target = PrivacyTarget(4.0, 1e-12)
    event = clipped_sum(1.0)
    cost = event_cost(event, target.leak_cap)
    assert target.leak_units / 1000 < cost.leak_units < target.leak_units / 5
    assert cost.mu_squared_units < 0.02 * compose(event).mu_without_sampling ** 2 * 1e12
    hopeless = event_cost(event, 1e-16)
    assert hopeless.mu_squared_units == pytest.approx(100 * 10**12, abs=1)
    assert hopeless.leak_units == 100


CASES = [(make, 0.5) for make in ALL] + [(make, 4.0) for make in (gaussian, bounds_then_batches)]


@pytest.mark.slow
@pytest.mark.parametrize(("make_event", "epsilon"), CASES)
@pytest.mark.parametrize("kind", [PrivacyTarget, SingleFitTarget])
def test_calibrated_noise_fits_and_less_does_not(kind, make_event, epsilon):
    target = kind(epsilon, 1e-5)
    event = calibrate(target, make_event)
    assert target.admits(event)
    last = event.events[-1] if isinstance(event, ComposedEvent) else event
    assert event == make_event(last.sigma)
    tolerance = 2e-4 if compose(event).is_sampled else 1e-8
    assert not target.admits(make_event(last.sigma * (1 - tolerance)))
    # In a ledger one Gaussian that covers the whole profile costs most where the losses are
    # least Gaussian; a single fit spends what it is given.
    share = 0.75 if kind is PrivacyTarget else 0.9995
    assert share * epsilon <= compose(event).epsilon(1e-5) <= epsilon


def test_a_single_fit_pays_for_the_noise_sampler_exactly():
    """Fifty releases, of which the sampler may leak one in 10^18 each."""
    event = gaussian(30.0, n_steps=50)
    of_gaussians = (1 + 2 * ROUNDING) * compose(event).delta(1.0)
    assert 1e-9 < of_gaussians < 1e-4  # where doubles resolve 1e-18
    assert not SingleFitTarget(1.0, of_gaussians + 49e-18).admits(event)
    assert SingleFitTarget(1.0, of_gaussians + 51e-18).admits(event)


def test_calibration_respects_lattices():
    coarse = calibrate(PrivacyTarget(50.0, 1e-5), lambda s: gaussian(s, 0.1, lattice=1.0))
    assert 1.0 <= coarse.sigma == pytest.approx(1.0, rel=1e-9)  # the least that it accepts
    target = PrivacyTarget(5.0, 1e-5)
    event = calibrate(  # a lattice that follows sigma
        target, lambda s: gaussian(s, lattice=2.0 ** -max(0, math.ceil(math.log2(16 / s))))
    )
    assert target.admits(event)
    assert event.mu == pytest.approx(target.mu_cap, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "make", "message"),
    [
        (0.01, 1e-5, bounds_then_fit, "what does not depend on sigma already costs"),
        (1.0, 1e-18, gaussian, "what does not depend on sigma already costs"),
        (0.01, 1e-5, lambda s: gaussian(s, -1.0), "No noise scale is accepted: GaussianEvent"),
        (0.01, 1e-5, lambda s: gaussian(1e9), "does not depend on sigma"),
    ],
)
def test_calibration_says_when_nothing_fits(epsilon, delta, make, message):
    with pytest.raises(CalibrationError, match=message):
        calibrate(PrivacyTarget(epsilon, delta), make)


@pytest.mark.parametrize("share", [1 - 1e-9, 0.99, 0.1])
def test_calibration_uses_what_a_fixed_phase_leaves(share):
    target = PrivacyTarget(1.0, 1e-5)
    fixed = GaussianEvent(sigma=1.0, sensitivity=target.mu_cap * math.sqrt(share))
    tried = []

    def with_fixed(sigma):
        tried.append(sigma)
        return ComposedEvent(events=(fixed, gaussian(sigma, 1e-9)))

    event = calibrate(target, with_fixed)
    assert len(tried) < 150
    left = target.mu_cap * math.sqrt(1 - share)
    assert event.events[1].sigma == pytest.approx(1e-9 / left, rel=0.05 if share > 0.999 else 1e-6)
