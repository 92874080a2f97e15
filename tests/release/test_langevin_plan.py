"""What mean-field Langevin dynamics is charged, recomputed with dp-accounting alone."""

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import PrivacyTarget, SingleFitTarget, compose
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.bounds import DataBounds, plan_private_bounds
from skdpot.release.langevin import LangevinPhase, plan_langevin
from skdpot.release.warm_start import plan_warm_start

DELTA = 5e-4
TARGET = SingleFitTarget(1.0, DELTA)
BOX = DataBounds.from_box(0.0, 1.0, 2)
PHASES = (LangevinPhase(0.01, 0.5, 30), LangevinPhase(0.005, 0.1, 20))
RATE = 20 / 650


def plan(target=TARGET, phases=PHASES, *, clip=0.8, sampling_rate=RATE, bounds=BOX, **options):
    return plan_langevin(
        target,
        phases,
        clip=clip,
        dim=100,
        sampling_rate=sampling_rate,
        bounds=bounds,
        n_samples=100,
        **options,
    )


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
    assert made.sigma == pytest.approx((1.6, 2.4))
    assert made.noise_multipliers == pytest.approx((2.0, 3.0))
    assert made.n_iter == 50


def test_given_noise_is_accounted_for_whatever_the_target():
    made = plan(noise_multiplier=0.7)
    ours = compose(made.event).epsilon(DELTA)
    theirs = by_dp_accounting(PHASES, multipliers=(0.7, 0.7), rate=RATE)
    assert theirs * (1 - 1e-4) < ours < theirs * (1 + 1 / 128)
    assert ours > 1.5


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
    assert compose(made.event).epsilon(DELTA) <= 1.0
    assert made.bounds is bounds
    assert made.event.events[:2] == (bounds.event, warm.event)


# No noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "multiplier", "sigmas"),
    [
        (PrivacyTarget(math.inf, DELTA), None, (0.0, 0.0)),
        (PrivacyTarget(math.inf, DELTA), 0.0, (0.0, 0.0)),
        (TARGET, (1.0, 0.0), (0.8, 0.0)),
    ],
)
def test_a_phase_without_noise_is_no_privacy(target, multiplier, sigmas):
    made = plan(target, noise_multiplier=multiplier)
    assert made.sigma == sigmas
    assert made.event == NonPrivateEvent()


@pytest.mark.parametrize(
    ("mu", "message"),
    [(math.inf, "No noise reaches"), (3.0, "what does not depend on sigma already costs")],
)
def test_a_warm_start_that_costs_too_much_is_refused(mu, message):
    with pytest.raises(CalibrationError, match=message):
        plan(warm=plan_warm_start("mean", mu, 1.0, 2))


# Arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": -1.0}, "`noise_multiplier` must be finite and >= 0"),
        ({"noise_multiplier": (1.0, math.nan)}, "`noise_multiplier` must be finite and >= 0"),
        ({"noise_multiplier": (1.0,)}, "2 numbers; got 1"),
        ({"noise_multiplier": 5.0, "target": PrivacyTarget(math.inf, 1e-5)}, "epsilon=inf"),
    ],
)
def test_refuses_what_is_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)
