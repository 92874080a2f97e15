"""Profiles, losses and accountants against independent routes: mpmath, grids, dp-accounting."""

import itertools
import math
from functools import partial, reduce

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent, Relation
from skdpot.privacy.gdp import ROUNDING, gdp_delta, gdp_epsilon, gdp_mu, raised_gdp_delta
from skdpot.privacy.loss_distribution import LossDistribution, LossPair, losses_of_profiles
from skdpot.privacy.sampling import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    SampledGaussianEvent,
    SubsetStep,
    absent_delta,
    amplified_delta,
    clipped_sum_delta,
    mean_amplified_delta,
)
from skdpot.privacy.targets import PrivacyTarget
from tests.contract.accountant_suite import exact_gdp_delta
from tests.contract.test_accountants import mixture_delta
from tests.core.privacy.cases import composed_epsilon, gaussian, poisson, subsets

EPS = float(np.finfo(float).eps)
EPSILONS = (-30.0, -1.0, -1e-4, 0.0, 1e-6, 0.01, 0.3, 1.0, 5.0, 40.0, 300.0, 2000.0)


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 4.0, 30.0])
def test_delta_is_exact_far_into_the_tail(mu):
    for epsilon in EPSILONS:
        exact = exact_gdp_delta(epsilon, mu)
        if exact < 1e-280:
            assert gdp_delta(epsilon, mu) < 1e-270
        else:
            assert abs(gdp_delta(epsilon, mu) / exact - 1) < 2e-13 * max(1.0, 1.0 / mu)


def test_values_at_the_ends_and_arrays():
    deltas = gdp_delta(np.array(EPSILONS).reshape(3, 4), 0.7)
    assert deltas.shape == (3, 4)
    assert deltas.ravel().tolist() == [gdp_delta(e, 0.7) for e in EPSILONS]
    assert gdp_delta(0.0, 0.0) == gdp_delta(math.inf, 3.0) == 0.0
    assert gdp_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert gdp_delta(1e9, math.inf) == 1.0
    assert gdp_epsilon(0.0, 1e-5) == gdp_epsilon(0.1, 0.5) == 0.0
    assert gdp_epsilon(math.inf, 1e-5) == gdp_mu(math.inf, 1e-5) == math.inf
    assert gdp_mu(0.0, 0.1) == pytest.approx(2 * 0.12566134685507416, rel=2e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(-3.0, 1.5), st.floats(-4.0, 3.0), st.floats(-14.0, -0.05))
def test_inverses_round_to_the_private_side_by_one_float(log_mu, log_epsilon, log_delta):
    mu, epsilon, delta = 10.0**log_mu, 10.0**log_epsilon, 10.0**log_delta
    above, below = gdp_epsilon(mu, delta), gdp_mu(epsilon, delta)
    assert raised_gdp_delta(above, mu) <= delta
    assert above == 0.0 or raised_gdp_delta(math.nextafter(above, 0.0), mu) > delta
    assert raised_gdp_delta(epsilon, below) <= delta
    assert raised_gdp_delta(epsilon, math.nextafter(below, math.inf)) > delta


@settings(max_examples=200, deadline=None)
@given(st.floats(-7.0, 3.0), st.floats(-8.0, 1.0))
def test_the_raised_profile_is_a_bound_with_room_for_other_machines(log_mu, log_ratio):
    """At least 5e-10 above the exact one, even with mu a few units in the last place too small."""
    mu = 10.0**log_mu
    epsilon = mu * 10.0**log_ratio
    exact = exact_gdp_delta(epsilon, mu * (1 + 4 * EPS))
    assume(exact > 1e-250)
    raised = raised_gdp_delta(epsilon, mu)
    assert 5e-10 <= raised / exact - 1 <= 2e-9 + 1e-13 * (10 + mu + 1 / mu)


def test_known_value():
    """mu = 1: delta(1) = Phi(-1/2) - e Phi(-3/2) = 0.12693673750664397."""
    assert gdp_delta(1.0, 1.0) == pytest.approx(0.12693673750664397, rel=1e-14)
    assert 1e-10 < gdp_epsilon(1.0, 0.12693673750664397) - 1.0 < 1e-9
    assert 1e-10 < 1.0 - gdp_mu(1.0, 0.12693673750664397) < 1e-9


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
    assert LossPair(leaky).to_gdp(0.24).mu == math.inf
    assert LossPair(leaky).to_gdp(0.26).mu < math.inf
    assert SubsetStep(1e-3, 1e-3).losses(1e-8).to_gdp(1e-5).mu == 0.0  # of next to nothing


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


@pytest.mark.parametrize("rare", [1e-4, 0.1])
def test_a_coarse_loss_is_dominated_between_its_nodes_too(rare):
    """Of a rare loss of 2 the profile has nodes at 0 and 2 and is a straight line between them."""
    losses = LossDistribution(2.0, 0, np.array([1.0 - rare, rare]), 0.0)
    mu = LossPair(losses).to_gdp(1e-9).mu
    epsilon = np.linspace(0.0, 2.0, 201)
    line = np.array([losses.delta(x) for x in epsilon])
    ratio = line / (1e-9 + (1 - 1e-9) * gdp_delta(epsilon, mu))
    assert ratio.max() <= 1.0
    assert ratio.max() > 1.2 * ratio[[0, -1]].max()  # the nodes do not decide on mu


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
    exact = [mixture_delta(float(e), rate, 0.0, mu) for e in epsilons]
    ours = absent_delta(epsilons, mu, rate) * (1.0 + ROUNDING)
    assert np.all(ours >= exact)
    assert np.all(ours <= (1.0 + 2.0 * ROUNDING) * np.array(exact) + 1e-14)


@pytest.mark.parametrize("mu", [1e-8, 1e-6, 1e-3, 0.7, 9.0])
def test_what_cancels_in_a_sum_of_clipped_vectors_is_added(mu):
    rate = 0.3
    epsilons = np.append(0.0, min(mu, 1.0) * rate * np.geomspace(1e-4, 30.0, 40))
    exact = np.array([mixture_delta(float(e), rate, -mu / 2, mu / 2) for e in epsilons])
    ours = clipped_sum_delta(epsilons, mu, rate) * (1.0 + ROUNDING)
    assert np.all(ours >= exact)
    assert np.all(ours <= (1.0 + 2.0 * ROUNDING) * exact + 1e-14)


DELTA = 1 / 300_000
RATE, STEPS = 0.2, 500
GOLDEN = {1.0: "46.99", 2.0: "14.83", 5.0: "4.391", 10.0: "1.944"}
ADD_REMOVE = Relation.ADD_REMOVE


def fair_training(z, n_steps=STEPS):
    """The setting of the golden values: batches of a fifth of 30,000 records."""
    return subsets(2 * z, 6000, 30_000, n_steps, sensitivity=2.0)


def samples(z=1.1, rate=0.02, n_steps=200, **options):
    return poisson(3 * z, rate, n_steps, sensitivity=3.0, **options)


@pytest.mark.slow
@pytest.mark.parametrize("z", GOLDEN)
def test_golden_values(z):
    """Also by closed-form tails instead of connected dots, another grid, numpy's FFT."""
    ours = compose(fair_training(z)).epsilon(DELTA)
    assert f"{ours:.4g}" == GOLDEN[z]
    spacing, half_width = (2.3e-4, 200.0) if z == 1.0 else (7e-5, 60.0)
    own = composed_epsilon(1 / z, RATE, STEPS, DELTA, spacing, 2 * int(half_width / spacing))
    assert own == pytest.approx(ours, rel=2e-5)


def attained_epsilon(z, rate, n_steps, delta, interval):
    """Let every record be 0 but one that is 0 or the sensitivity.

    A step tells N(0) from (1 - p) N(0) + p N(1 / z) exactly. Composed with losses rounded *down*,
    this pair gives a lower bound of epsilon.
    """
    step = privacy_loss_distribution.from_gaussian_mechanism(
        z,
        sampling_prob=rate,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=interval,
    )
    return step.self_compose(n_steps).get_epsilon_for_delta(delta)


@pytest.mark.slow
def test_limit_for_poisson_samples_lies_below_what_is_attained():
    """Why no formula of the central limit theorem is used, common as they are."""
    z = 5.0
    limit = gdp_epsilon(RATE * math.sqrt(STEPS * math.expm1(z**-2)), DELTA)
    attained = attained_epsilon(z, RATE, STEPS, DELTA, 1e-5)
    assert limit == pytest.approx(4.120, abs=5e-4)
    assert limit < attained - 0.04
    assert attained < 4.173 < compose(fair_training(z)).epsilon(DELTA)
    pair = samples(z, RATE, STEPS, relation=ADD_REMOVE)
    assert attained < compose(pair).epsilon(DELTA) == pytest.approx(4.172, abs=5e-4)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("mu", [0.2, 1.0, 4.0])
def test_one_subset_step_covers_every_mechanism(mu, rate):
    """N(a) without the record; N(b), N(c) with either value; all within mu of each other."""
    for a, b, c in [(0, 1, 0), (0, 0, 1), (0.5, 0, 1), (0.3, 0, 1), (0.9, 1, 0), (1, 0, 0.5)]:
        hidden = [(1 - rate, a * mu), (rate, b * mu)]
        other = [(1 - rate, a * mu), (rate, c * mu)]
        for epsilon in (0.0, 0.05, 0.5, 2.0):
            bound = amplified_delta(np.array([epsilon]), mu, rate)[0]
            assert exact_profile(hidden, other, epsilon) <= bound + 1e-8


def exact_profile(first, second, epsilon):
    """H between two mixtures of unit Gaussians, given as (weight, mean), by quadrature."""
    centres = [mean for _, mean in first + second]
    x = np.linspace(min(centres) - 12, max(centres) + 12, 60_001)
    density = [sum(w * norm.pdf(x - m) for w, m in side) for side in (first, second)]
    return np.trapezoid(np.maximum(density[0] - math.exp(epsilon) * density[1], 0.0), x)


def test_subset_profile_survives_large_epsilon():
    profile = amplified_delta(np.array([0.0, 1.0, 800.0, 1e5]), 30.0, 1e-3)
    assert profile[:2] == pytest.approx([1e-3 * gdp_delta(0.0, 30.0), 1e-3], rel=1e-6)
    assert 0.0 < profile[2] < 1e-30
    assert profile[3] == 0.0


def test_samples_of_everything_are_plain_gaussians():
    groups = {"batch_sizes": (3, 8), "group_sizes": (10, 8)}
    everyone = [poisson(4.0, 1.0, 50, clipped_sum=sums) for sums in (False, True)]
    for event in (subsets(4.0, n_steps=50, **groups), *everyone):
        assert compose(event) == compose(gaussian(4.0, n_steps=50))


def by_dp_accounting(relation, *steps):
    accountant = pld_privacy_accountant.PLDAccountant(relation, 1e-4)
    for rate, z, n_steps in steps:
        event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z))
        accountant.compose(event, n_steps)
    return accountant


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [[(0.02, 1.1, 200)], [(0.3, 4.0, 50)], [(0.02, 1.1, 100), (0.1, 3.0, 20)]]
)
def test_poisson_add_remove_equals_dp_accounting(steps):
    """Both directions of unlike events are composed too."""
    accountant = by_dp_accounting(NeighboringRelation.ADD_OR_REMOVE_ONE, *steps)
    events = tuple(samples(z, rate, n, relation=ADD_REMOVE) for rate, z, n in steps)
    ours = compose(ComposedEvent(events=events))
    assert ours == compose(ComposedEvent(events=events[::-1]))
    for delta in (1e-3, 1e-5, 1e-7):
        assert ours.epsilon(delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)
    for epsilon in (0.1, 1.0):
        assert ours.delta(epsilon) == pytest.approx(accountant.get_delta(epsilon), rel=1e-6)


def test_poisson_clipped_sum_equals_dp_accounting_in_units_of_the_clipping_norm():
    clip, sigma, rate, n_steps = 1.5, 3.3, 0.02, 200
    theirs = by_dp_accounting(NeighboringRelation.REPLACE_ONE, (rate, sigma / clip, n_steps))
    ours = compose(poisson(sigma, rate, n_steps, sensitivity=2 * clip, clipped_sum=True))
    assert ours.epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-6)


@pytest.mark.parametrize("rate", [0.05, 0.6])
def test_opposite_vectors_are_the_worst_case_of_a_clipped_sum(rate):
    """Two records of norm at most C = mu / 2 at an angle, in the plane, by quadrature."""
    mu = 1.2
    grid = np.linspace(-7.0, 7.0, 501)
    x, y = np.meshgrid(grid, grid)
    cell = (grid[1] - grid[0]) ** 2

    def density(norm_of_record, angle):
        a, b = norm_of_record * math.cos(angle), norm_of_record * math.sin(angle)
        return (1 - rate) * norm.pdf(x) * norm.pdf(y) + rate * norm.pdf(x - a) * norm.pdf(y - b)

    worst = PoissonClippedSumStep(mu, rate).losses(1e-3)
    first = density(mu / 2, 0.0)
    for share, angle in itertools.product((0.0, 0.5, 1.0), (1.0, 2.5, math.pi)):
        second = density(share * mu / 2, angle)
        for p, q in ((first, second), (second, first)):
            for epsilon in (0.0, 0.05, 0.4):
                profile = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * cell
                assert profile <= worst.delta(epsilon) + 2e-5


def test_poisson_replace_one_without_clipped_sum_is_accounted_by_subsets():
    event = samples(5.0, RATE, STEPS)
    assert compose(event) == compose(fair_training(5.0))
    tighter = compose(samples(5.0, RATE, STEPS, clipped_sum=True))
    assert tighter.epsilon(DELTA) < compose(event).epsilon(DELTA)


@pytest.mark.parametrize(
    ("kind", "rate", "n_steps"),
    [(SubsetStep, 1e-3, 1), (SubsetStep, 1e-5, 1000), (PoissonAddRemoveStep, 1e-3, 100)],
)
def test_small_rates_stay_resolved(kind, rate, n_steps):
    """The grid follows the size of a step: one that is three times finer gains less than 1 %."""
    relation = ADD_REMOVE if kind is PoissonAddRemoveStep else Relation.REPLACE_ONE
    loss = compose(samples(1.25, rate, n_steps, relation=relation))
    fine = kind(0.8, rate).losses(rate / 60).self_compose(n_steps)
    assert loss.to_gdp(1e-10).mu <= 1.01 * fine.to_gdp(1e-10).mu


def test_gaussians_join_sampled_steps_exactly():
    """The mean of the closed form over the losses, against a Gaussian on the same grid."""
    sampled, plain = fair_training(5.0, n_steps=100), gaussian(4.0, n_steps=3)
    mixed = compose(ComposedEvent(events=(sampled, plain)))
    losses = SubsetStep(1 / 5, RATE).losses(1e-4).self_compose(100).forward
    on_grid = losses.compose(losses_of_profiles([lambda e: gdp_delta(e, plain.mu)], 1e-4).forward)
    for delta in (1e-3, 1e-6):
        assert mixed.epsilon(delta) == pytest.approx(on_grid.epsilon(delta), rel=1e-6)
    assert mixed.delta(1.0) == pytest.approx(on_grid.delta(1.0), rel=1e-6)
    parts = compose(sampled).to_gdp(1e-9).mu, plain.mu
    assert mixed.to_gdp(1e-9).mu == pytest.approx(math.hypot(*parts), rel=1e-12)


def test_the_same_steps_in_other_units_have_one_account():
    """Remembered under what was done, not under the units that it was said in."""
    assert compose(fair_training(4.56)) == compose(subsets(4.56, 60, 300, STEPS))


def test_sampling_never_costs_more_than_no_sampling():
    for event, most in (
        (fair_training(0.02, n_steps=1000), 1.0),
        (fair_training(5.0), 1.0),
        (samples(0.05, 0.9, 5, relation=ADD_REMOVE), 1.0),
        # Large samples cost visibly less than everything, too.
        *((samples(4.0, rate, 10, clipped_sum=c), 0.97) for rate in (0.3, 0.8) for c in (0, 1)),
    ):
        loss = compose(event)
        plain = loss.mu_without_sampling
        assert loss.epsilon(1e-5) <= most * gdp_epsilon(plain, 1e-5)
        assert loss.to_gdp(1e-9).mu <= plain
        assert loss.delta(1.0) <= raised_gdp_delta(1.0, plain)


def test_delta_below_what_the_grid_resolves_is_still_bounded():
    loss = compose(fair_training(5.0))
    assert 0.0 < loss.infinity_mass < 1e-17
    assert loss.epsilon(1e-14) < 0.2 * gdp_epsilon(loss.mu_without_sampling, 1e-14)
    assert loss.epsilon(1e-18) == gdp_epsilon(loss.mu_without_sampling, 1e-18)
    assert loss.to_gdp(1e-18).leak == 0.0


LOSSES = compose(gaussian(1.0)), compose(fair_training(5.0))


@pytest.mark.parametrize(
    ("calls", "name", "values"),
    [
        ([lambda mu: gdp_delta(1.0, mu)], "mu", (-1.0, math.nan)),
        ([lambda epsilon: gdp_delta(epsilon, 1.0)], "epsilon", (math.nan,)),
        (
            [partial(gdp_mu, delta=1e-5), *(loss.delta for loss in LOSSES)],
            "epsilon",
            (-1.0, math.nan),
        ),
        (
            [partial(gdp_mu, 1.0), partial(gdp_epsilon, 1.0), *(loss.epsilon for loss in LOSSES)],
            "delta",
            (0.0, 1.0, -0.1, math.nan),
        ),
        ([loss.to_gdp for loss in LOSSES], "leak", (-1e-9, 1.0, math.nan)),
    ],
)
def test_values_out_of_range_are_refused(calls, name, values):
    for call, value in itertools.product(calls, values):
        with pytest.raises(ValueError, match=f"`{name}` must"):
            call(value)
    with pytest.raises(UnknownEventError, match="No accountant is known for float"):
        compose(1.0)
    with pytest.raises(TypeError):
        compose(gaussian(1.0), 1.5)


def test_golden_cost_of_the_conversion():
    """4.391 becomes 4.416 in a ledger: leaks take a tenth of delta, Gaussian tails the rest."""
    target = PrivacyTarget(1.0, DELTA)
    private = compose(fair_training(5.0)).to_gdp(target.leak_cap / 1000)
    assert f"{gdp_epsilon(private.mu, DELTA - target.leak_cap):.4g}" == "4.416"
    assert private.leak == target.leak_cap / 1000


# Poisson samples whose size shows.


def shown(sampling="poisson_rows", **options):
    return SampledGaussianEvent(sampling=sampling, sigma=1.0, **options)


@pytest.mark.parametrize(
    ("n", "rate"),
    [(31, 0.5), (32, 0.5), (40, 0.01), (250, 0.9), (3000, 0.25), (30_000, 0.01), (30_000, 1e-6)],
)
def test_few_sizes_stand_for_all_on_the_private_side(n, rate):
    sizes = np.arange(1, n + 1)
    weights = binom.pmf(sizes, n, rate)
    kept = weights > 1e-30
    for mu in (0.2, 1.5, 6.0):
        for epsilon in (0.0, 0.01, 0.5, 3.0):
            at = np.array([epsilon])
            exact = sum(
                w * amplified_delta(at, mu, s / n)[0]
                for s, w in zip(sizes[kept], weights[kept], strict=True)
            )
            bound = mean_amplified_delta(at, mu, rate, n)[0]
            assert exact <= bound <= 1.1 * exact + 1e-13


def test_composition_by_monte_carlo():
    # Three releases of the mechanism that attains one; 400,000 draws, five standard errors.
    n, rate, mu, n_steps, n_draws = 3, 0.4, 1.5, 3, 400_000
    rng = np.random.default_rng(0)
    loss = np.zeros(n_draws)
    for _ in range(n_steps):
        share = rng.binomial(n, rate, n_draws) / n
        x = rng.standard_normal(n_draws) + mu * (rng.uniform(size=n_draws) < share)
        loss += np.log1p(share * np.expm1(mu * x - mu**2 / 2))
    options = {"sensitivity": mu, "sampling_rate": rate, "n_steps": n_steps}
    event = shown(n_samples=n, **options)
    for epsilon in (0.5, 1.5, 3.0):
        gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
        error = gains.std() / math.sqrt(n_draws)
        bound = compose(event).delta(epsilon)
        assert gains.mean() - 5 * error <= bound <= 1.2 * (gains.mean() + 5 * error)
    # Where the size of the sample is hidden, less is charged.
    assert gains.mean() - 5 * error > compose(shown("poisson", **options)).delta(3.0)
