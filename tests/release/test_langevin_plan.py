"""What mean-field Langevin dynamics is charged, recomputed with dp-accounting alone."""

import math
from dataclasses import FrozenInstanceError
from functools import cache

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import PrivacyTarget, SingleFitTarget, compose
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.bounds import DataBounds
from skdpot.release.langevin import LangevinPhase, plan_langevin
from skdpot.release.private_bounds import plan_private_bounds
from skdpot.release.warm_start import plan_warm_start

DELTA = 5e-4
TARGET = SingleFitTarget(1.0, DELTA)
BOX = DataBounds.from_box(0.0, 1.0, 2)
PHASES = (LangevinPhase(0.01, 0.5, 30), LangevinPhase(0.005, 0.1, 20))
RATE = 20 / 650


def plan(target=TARGET, phases=PHASES, *, clip=0.8, sampling_rate=RATE, bounds=BOX, **options):
    return plan_langevin(
        target, phases, clip=clip, dim=100, sampling_rate=sampling_rate, bounds=bounds, **options
    )


@cache
def calibrated():
    return plan()


def by_dp_accounting(phases, *, multipliers, rate, group_size=1, mus=()):
    """Epsilon of phases and Gaussian releases.

    Under replace-one this accountant measures noise in clipping norms, of which the sensitivity
    is two: a release of privacy mu has a noise of 2 / mu.
    """
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    for multiplier in sorted(set(multipliers)):
        counts = [p.n_iter for p, z in zip(phases, multipliers, strict=True) if z == multiplier]
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        accountant.compose(step, group_size * sum(counts))
    for mu in mus:
        accountant.compose(dp_event.GaussianDpEvent(2.0 / mu))
    return accountant.get_epsilon(DELTA)


def test_epsilon_is_met_and_not_undercut():
    made = calibrated()
    (multiplier, again) = made.noise_multipliers
    assert multiplier == again
    epsilon = by_dp_accounting(PHASES, multipliers=(multiplier, multiplier), rate=RATE)
    assert 0.995 <= epsilon <= 1.0005
    assert compose(made.event).epsilon(DELTA) <= 1.0


def test_steps_are_sums_of_clipped_vectors_with_twice_the_clip():
    made = plan(noise_multiplier=(2.0, 3.0))
    assert made.event == ComposedEvent(
        events=tuple(
            SampledGaussianEvent(
                sampling="poisson",
                sigma=sigma,
                sensitivity=noise_for_sums(sigma, 1.6, 100).sensitivity,
                sampling_rate=RATE,
                n_steps=phase.n_iter,
                clipped_sum=True,
                lattice=noise_for_sums(sigma, 1.6, 100).lattice,
            )
            for phase, sigma in zip(PHASES, (1.6, 3.0 * 0.8), strict=True)
        )
    )
    assert made.sigmas == pytest.approx((1.6, 2.4))
    assert made.noise_multipliers == pytest.approx((2.0, 3.0))
    assert made.n_iter == 50


def test_noise_of_the_steps_is_the_noise_of_the_event():
    """The one number that is drawn is the one that is charged."""
    made = calibrated()
    charged = [e.sigma for e in made.event.events if isinstance(e, SampledGaussianEvent)]
    assert list(made.sigmas) == charged


def test_given_noise_is_accounted_for_whatever_the_target():
    made = plan(noise_multiplier=0.7)
    ours = compose(made.event).epsilon(DELTA)
    theirs = by_dp_accounting(PHASES, multipliers=(0.7, 0.7), rate=RATE)
    assert theirs * (1 - 1e-4) < ours < theirs * (1 + 1 / 128)
    assert ours > 1.5


def test_warm_start_and_phases_share_the_target():
    warm = plan_warm_start("kmeans", 0.2, 1.0, 2, 3, n_iter=4)
    made = plan(warm=warm)
    assert made.event.events[0] == warm.event
    mus = [0.2]
    epsilon = by_dp_accounting(PHASES, multipliers=made.noise_multipliers, rate=RATE, mus=mus)
    assert 0.99 <= epsilon <= 1.0005
    assert made.noise_multipliers[0] > calibrated().noise_multipliers[0]


def test_private_bounds_are_charged_first():
    bounds = plan_private_bounds(6500, 2, 0.1)
    made = plan(bounds=bounds, noise_multiplier=1.0)
    assert made.event.events[0] == bounds.event
    assert made.event.events[1:] == plan(noise_multiplier=1.0).event.events
    assert made.bounds is bounds


def test_one_time_is_charged_whatever_the_number_of_times():
    """Neither rows nor times enter: the arguments are all that there is to know."""
    assert plan(noise_multiplier=1.0).event == plan(noise_multiplier=1.0).event
    assert sum(e.n_steps for e in plan(noise_multiplier=1.0).event.events) == 50


# Persons with several rows ------------------------------------------------------------------


def test_rows_at_different_times_compose():
    k = 3
    warm = plan_warm_start("mean", 0.2, 1.0, 2, group_size=k)
    bounds = plan_private_bounds(6500, 2, 0.1, group_size=k)
    made = plan(warm=warm, bounds=bounds, group_size=k)
    assert bounds.noises[0].sensitivity == pytest.approx(k * 2.0)  # k counts in two histograms
    mus = [noise.mu for noise in bounds.noises] + [0.2]
    epsilon = by_dp_accounting(
        PHASES, multipliers=made.noise_multipliers, rate=RATE, group_size=k, mus=mus
    )
    assert 0.99 <= epsilon <= 1.0005
    assert made.noise_multipliers[0] > calibrated().noise_multipliers[0]


# No noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("multiplier", [None, 0.0])
def test_infinite_epsilon_is_no_noise_and_no_privacy(multiplier):
    bounds = plan_private_bounds(6500, 2, math.inf)
    made = plan(
        PrivacyTarget(math.inf, DELTA),
        noise_multiplier=multiplier,
        warm=plan_warm_start("mean", math.inf, 1.0, 2),
        bounds=bounds,
    )
    assert made.sigmas == (0.0, 0.0)
    assert made.event == NonPrivateEvent()


def test_a_phase_without_noise_is_no_privacy():
    made = plan(noise_multiplier=(1.0, 0.0))
    assert made.event == NonPrivateEvent()
    assert made.sigmas == (0.8, 0.0)
    assert not TARGET.admits(made.event)


def test_a_warm_start_without_noise_leaves_nothing_to_calibrate():
    with pytest.raises(CalibrationError, match="No noise reaches"):
        plan(warm=plan_warm_start("mean", math.inf, 1.0, 2))


def test_a_warm_start_above_the_target_is_refused():
    with pytest.raises(CalibrationError, match="what does not depend on sigma already costs"):
        plan(warm=plan_warm_start("mean", 3.0, 1.0, 2))


# Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": -1.0}, "`noise_multiplier` must be finite and >= 0"),
        ({"noise_multiplier": (1.0, math.nan)}, "`noise_multiplier` must be finite and >= 0"),
        ({"noise_multiplier": (1.0,)}, "one a phase, of which there are 2; got 1"),
    ],
)
def test_refuses_what_is_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)


def test_noise_and_no_noise_are_not_asked_for_together():
    target = PrivacyTarget(math.inf, 1e-5)
    with pytest.raises(ValueError, match="asks for noise and epsilon=inf for none"):
        plan(target=target, noise_multiplier=5.0)
    assert plan(target=target, noise_multiplier=0.0).sigmas == (0.0,) * len(PHASES)


def test_is_frozen():
    with pytest.raises(FrozenInstanceError):
        plan(noise_multiplier=1.0).clip = 3.0
