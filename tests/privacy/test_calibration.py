"""Targets, costs in ledger units, and the least noise that fits."""

import math
import time
from fractions import Fraction

import pytest

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import (
    LEAK_SHARE,
    EventCost,
    PrivacyTarget,
    SingleFitTarget,
    calibrate,
    compose,
    event_cost,
    privacy_target,
)
from skdpot.privacy.events import (
    ROUNDING,
    ComposedEvent,
    GaussianEvent,
    NonPrivateEvent,
    Relation,
    gdp_delta,
    gdp_mu,
)
from skdpot.privacy.sampling import SampledGaussianEvent


def gaussian(sigma):
    return GaussianEvent(sigma=sigma, sensitivity=3.0)


def subsets(sigma, n_steps=100):
    return SampledGaussianEvent(
        sampling="fixed_size",
        sigma=sigma,
        sensitivity=1.0,
        batch_sizes=(50,),
        group_sizes=(1000,),
        n_steps=n_steps,
    )


def add_remove(sigma):
    return SampledGaussianEvent(
        sampling="poisson",
        sigma=sigma,
        sensitivity=1.0,
        sampling_rate=0.02,
        n_steps=100,
        relation=Relation.ADD_REMOVE,
    )


def clipped_sum(sigma):
    return SampledGaussianEvent(
        sampling="poisson",
        sigma=sigma,
        sensitivity=1.0,
        sampling_rate=0.02,
        n_steps=100,
        clipped_sum=True,
    )


def bounds_then_fit(sigma):
    return ComposedEvent(
        events=(GaussianEvent(sigma=20.0, sensitivity=1.0, lattice=1.0), gaussian(sigma))
    )


def bounds_then_subsets(sigma):
    return ComposedEvent(events=(GaussianEvent(sigma=20.0, sensitivity=1.0), subsets(sigma)))


ALL = [gaussian, subsets, add_remove, clipped_sum, bounds_then_fit, bounds_then_subsets]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_target_splits_delta_and_rounds_down(epsilon, delta):
    target = PrivacyTarget(epsilon, delta)
    assert target.leak_cap == pytest.approx(delta / 10)
    assert target.mu_cap == gdp_mu(epsilon, (1 - LEAK_SHARE) * delta)
    assert gdp_delta(epsilon, target.mu_cap) + target.leak_cap <= delta * (1 + 1e-15)
    assert isinstance(target.mu_squared_units, int)
    assert isinstance(target.leak_units, int)
    assert target.mu_squared_units <= Fraction(target.mu_cap) ** 2 * 10**12
    assert target.mu_squared_units + 1 > Fraction(target.mu_cap) ** 2 * 10**12
    assert target.leak_units <= Fraction(target.leak_cap) * 10**18


def test_unbounded_target_admits_everything():
    target = PrivacyTarget(math.inf, 1e-5)
    assert target.mu_squared_units == target.leak_units == math.inf
    assert target.admits(NonPrivateEvent())
    event = calibrate(target, add_remove)
    assert event == NonPrivateEvent(relation=Relation.ADD_REMOVE)
    assert not PrivacyTarget(1e9, 1e-5).admits(event)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, True])
def test_target_refuses_epsilon(epsilon):
    with pytest.raises(ValueError, match="`epsilon` must be > 0"):
        PrivacyTarget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, math.inf, True])
def test_target_refuses_delta(delta):
    with pytest.raises(ValueError, match=r"`delta` must lie in \(0, 1\)"):
        PrivacyTarget(1.0, delta)


def test_cost_of_gaussians_is_mu_squared_and_one_unit_a_release():
    event = GaussianEvent(sigma=3.0, sensitivity=1.0)
    assert event_cost(event, 1e-6) == EventCost(math.ceil(10**12 / 9), 1)
    several = ComposedEvent(events=(event, GaussianEvent(sigma=3.0, sensitivity=1.0, n_steps=4)))
    assert event_cost(several, 1e-6) == EventCost(math.ceil(5 * 10**12 / 9), 5)


def test_cost_of_no_noise_is_infinite():
    assert event_cost(NonPrivateEvent(), 1e-6) == EventCost(math.inf, math.inf)


def test_a_thousand_sampled_fits_share_the_leaks_of_a_ledger():
    target = PrivacyTarget(8.0, 1e-5)
    for event in (subsets(1.0), bounds_then_subsets(1.0)):
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


CASES = [(make, 0.5) for make in ALL] + [(make, 4.0) for make in (gaussian, bounds_then_subsets)]


@pytest.mark.parametrize(("make_event", "epsilon"), CASES)
@pytest.mark.parametrize("kind", [PrivacyTarget, SingleFitTarget])
def test_calibrated_noise_fits_and_less_does_not(kind, make_event, epsilon):
    target = kind(epsilon, 1e-5)
    event = calibrate(target, make_event)
    assert target.admits(event)
    last = event.events[-1] if isinstance(event, ComposedEvent) else event
    assert event == make_event(last.sigma)
    tolerance = 2e-4 if compose(event).is_sampled else 1e-8
    less = make_event(last.sigma * (1 - tolerance))
    assert not target.admits(less)
    assert compose(event).epsilon(1e-5) <= epsilon
    # In a ledger one Gaussian that covers the whole profile costs most where the losses are
    # least Gaussian; a single fit spends what it is given.
    share = 0.75 if kind is PrivacyTarget else 0.9995
    assert compose(event).epsilon(1e-5) >= share * epsilon


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-10, 1e-13])
def test_a_single_fit_leaves_room_for_the_noise_sampler(delta):
    target = SingleFitTarget(1.0, delta)
    event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=1.0, n_steps=100))
    assert gdp_delta(1.0, event.mu) + 100e-18 <= delta
    assert event.sigma <= calibrate(PrivacyTarget(1.0, delta), gaussian).sigma / 3.0 * 10.0


def test_a_single_fit_pays_for_the_noise_sampler_exactly():
    """Fifty releases, of which the sampler may leak one in 10^18 each."""
    event = GaussianEvent(sigma=30.0, sensitivity=1.0, n_steps=50)
    of_gaussians = (1 + 2 * ROUNDING) * compose(event).delta(1.0)
    assert 1e-9 < of_gaussians < 1e-4  # where doubles resolve 1e-18
    assert not SingleFitTarget(1.0, of_gaussians + 49e-18).admits(event)
    assert SingleFitTarget(1.0, of_gaussians + 51e-18).admits(event)


def test_only_a_fit_without_a_budget_stands_alone():
    assert type(privacy_target(1.0, 1e-5, None)) is SingleFitTarget
    assert type(privacy_target(1.0, 1e-5, object())) is PrivacyTarget


def test_a_single_fit_without_a_limit_admits_everything():
    target = SingleFitTarget(math.inf, 1e-5)
    assert target.admits(NonPrivateEvent())
    assert not SingleFitTarget(1e6, 0.5).admits(NonPrivateEvent())
    assert isinstance(calibrate(target, gaussian), NonPrivateEvent)


def test_calibrated_event_fills_a_ledger_exactly_once():
    target = PrivacyTarget(1.0, 1e-5)
    event = calibrate(target, gaussian)
    cost = event_cost(event, target.leak_cap)
    assert 0 <= target.mu_squared_units - cost.mu_squared_units < 100
    assert target.admits(event)
    assert not target.admits(event.grouped(2))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_calibration_does_not_mind_units(scale):
    target = PrivacyTarget(1.0, 1e-5)
    event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=scale))
    assert event.sigma == pytest.approx(scale / target.mu_cap, rel=1e-9)


def test_calibration_of_gaussians_takes_milliseconds():
    calibrate(PrivacyTarget(1.0, 1e-5), bounds_then_fit)
    seconds = []
    for i in range(5):
        target = PrivacyTarget(1.0 + 0.1 * i, 1e-5)
        start = time.perf_counter()
        calibrate(target, bounds_then_fit)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.005


def test_calibration_respects_the_smallest_sigma_that_the_event_accepts():
    target = PrivacyTarget(50.0, 1e-5)
    event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=0.1, lattice=1.0))
    assert event.sigma == pytest.approx(1.0, rel=1e-9)
    assert event.sigma >= 1.0


def test_calibration_follows_a_lattice_that_follows_sigma():
    def on_lattice(sigma):
        spacing = 2.0 ** -max(0, math.ceil(math.log2(16 / sigma)))
        return GaussianEvent(sigma=sigma, sensitivity=1.0, lattice=spacing)

    target = PrivacyTarget(5.0, 1e-5)
    event = calibrate(target, on_lattice)
    assert target.admits(event)
    assert event.mu == pytest.approx(target.mu_cap, rel=1e-9)


def test_calibration_says_when_nothing_fits():
    target = PrivacyTarget(0.01, 1e-5)
    with pytest.raises(CalibrationError, match="what does not depend on sigma already costs"):
        calibrate(target, bounds_then_fit)
    with pytest.raises(CalibrationError, match="what does not depend on sigma already costs"):
        calibrate(PrivacyTarget(1.0, 1e-18), gaussian)
    with pytest.raises(CalibrationError, match="No noise scale is accepted: GaussianEvent: `sens"):
        calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=-1.0))
    with pytest.raises(CalibrationError, match="does not depend on sigma"):
        calibrate(target, lambda s: GaussianEvent(sigma=1e9, sensitivity=1.0))


@pytest.mark.parametrize("share", [1 - 1e-9, 0.99, 0.1])
def test_calibration_uses_what_a_fixed_phase_leaves(share):
    target = PrivacyTarget(1.0, 1e-5)
    fixed = GaussianEvent(sigma=1.0, sensitivity=target.mu_cap * math.sqrt(share))

    tried = []

    def with_fixed(sigma):
        tried.append(sigma)
        return ComposedEvent(events=(fixed, GaussianEvent(sigma=sigma, sensitivity=1e-9)))

    event = calibrate(target, with_fixed)
    assert len(tried) < 150
    left = target.mu_cap * math.sqrt(1 - share)
    assert event.events[1].sigma == pytest.approx(1e-9 / left, rel=0.05 if share > 0.999 else 1e-6)
