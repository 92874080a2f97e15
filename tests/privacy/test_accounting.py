"""The accountants against independent routes: other grids, closed forms, dp-accounting."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy.special import ndtr
from scipy.stats import norm

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import PrivacyTarget, compose
from skdpot.privacy.events import ComposedEvent, Relation, gdp_delta, gdp_epsilon, raised_gdp_delta
from skdpot.privacy.loss_distribution import losses_of_profiles
from skdpot.privacy.sampling import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    SubsetStep,
    amplified_delta,
)
from tests.privacy.cases import gaussian, poisson, subsets

DELTA = 1 / 300_000
RATE, STEPS = 0.2, 500
GOLDEN = {1.0: "46.99", 2.0: "14.83", 5.0: "4.391", 10.0: "1.944"}
ADD_REMOVE = Relation.ADD_REMOVE


def fair_training(z, n_steps=STEPS):
    """The setting of the golden values: batches of a fifth of 30,000 records."""
    return subsets(2 * z, 6000, 30_000, n_steps, sensitivity=2.0)


def samples(z=1.1, rate=0.02, n_steps=200, **options):
    return poisson(3 * z, rate, n_steps, sensitivity=3.0, **options)


def composed_on_own_grid(mu, rate, n_steps, spacing, half_width):
    """Compose the C_p losses, each rounded to the nearest grid point, by one FFT power."""
    n = int(half_width / spacing)
    # P[L > loss] of the C_p pair for loss >= 0, and P[L < -loss]: the two terms of H - H'.
    base = np.log1p(np.expm1((np.arange(n) + 0.5) * spacing) / rate) / mu
    below = ndtr(-base - mu / 2)
    above = rate * ndtr(-base + mu / 2) + (1 - rate) * below
    masses = np.zeros(2 * n)
    masses[1:n] = above[:-1] - above[1:]
    masses[-1:n:-1] = below[:-1] - below[1:]
    masses[0] = 1 - above[0] - below[0]
    composed = np.fft.irfft(np.fft.rfft(masses) ** n_steps, 2 * n)
    return np.fft.fftshift(composed), np.arange(-n, n) * spacing


def epsilon_of(masses, losses, delta):
    low, high = 0.0, float(losses[-1])
    for _ in range(40):
        middle = (low + high) / 2
        above = losses > middle
        exceeds = masses[above] @ -np.expm1(middle - losses[above]) > delta
        low, high = (middle, high) if exceeds else (low, middle)
    return high


@pytest.mark.parametrize("z", GOLDEN)
def test_golden_values(z):
    """Also by closed-form tails instead of connected dots, another grid, numpy's FFT."""
    ours = compose(fair_training(z)).epsilon(DELTA)
    assert f"{ours:.4g}" == GOLDEN[z]
    spacing, half_width = (2.3e-4, 200.0) if z == 1.0 else (7e-5, 60.0)
    own = epsilon_of(*composed_on_own_grid(1 / z, RATE, STEPS, spacing, half_width), DELTA)
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


def test_subset_losses_join_the_dots_of_the_profile():
    for mu, rate, interval in [(0.2, 0.2, 1e-4), (1.0, 0.01, 1e-3), (3.0, 0.5, 1e-2)]:
        losses = SubsetStep(mu, rate).losses(interval).forward
        assert losses.probabilities.sum() + losses.infinity_mass == pytest.approx(1.0, abs=1e-12)
        nodes = np.arange(0, 40, 7) * interval
        above = [losses.delta(e) for e in nodes] / amplified_delta(nodes, mu, rate) - 1
        assert np.all((above > 1e-9) & (above < 3e-9))
        between = nodes + 0.4 * interval
        exact = amplified_delta(between, mu, rate)
        assert np.all([losses.delta(e) for e in between] >= exact * (1 - 1e-12))


def test_samples_of_everything_are_plain_gaussians():
    groups = {"batch_sizes": (3, 8), "group_sizes": (10, 8)}
    everyone = [poisson(4.0, 1.0, 50, clipped_sum=sums) for sums in (False, True)]
    for event in (subsets(4.0, n_steps=50, **groups), *everyone):
        assert compose(event) == compose(gaussian(4.0, n_steps=50))


@pytest.mark.parametrize("kind", [SubsetStep, PoissonAddRemoveStep, PoissonClippedSumStep])
@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_losses_tend_to_the_gaussian_ones_as_the_rate_tends_to_one(kind, mu):
    """For the clipped sum: mu = 2C / sigma, half of it would halve epsilon here."""
    for losses in (kind(mu, 1.0).losses(1e-3), kind(mu, 1 - 1e-7).losses(1e-3)):
        deltas = [losses.delta(epsilon) for epsilon in (0.0, 0.5, 1.5)]
        exact = [gdp_delta(epsilon, mu) for epsilon in (0.0, 0.5, 1.5)]
        assert deltas == pytest.approx(exact, rel=1e-4, abs=1e-10)
        nine = losses.self_compose(9).epsilon(1e-5)
        assert nine == pytest.approx(gdp_epsilon(3 * mu, 1e-5), rel=1e-4)


def by_dp_accounting(relation, *steps):
    accountant = pld_privacy_accountant.PLDAccountant(relation, 1e-4)
    for rate, z, n_steps in steps:
        event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z))
        accountant.compose(event, n_steps)
    return accountant


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


@pytest.mark.parametrize("event", [fair_training(5.0), gaussian(1.0)])
def test_refuses_arguments_out_of_range(event):
    with pytest.raises(UnknownEventError, match="No accountant is known for float"):
        compose(1.0)
    with pytest.raises(TypeError):
        compose(event, 1.5)
    for call, name, values in (
        (compose(event).delta, "epsilon", (-0.1, math.nan)),
        (compose(event).epsilon, "delta", (0.0, 1.0, -1.0, math.nan)),
        (compose(event).to_gdp, "leak", (-1e-9, 1.0, math.nan)),
    ):
        for value in values:
            with pytest.raises(ValueError, match=f"`{name}` must"):
                call(value)


def test_golden_cost_of_the_conversion():
    """4.391 becomes 4.416 in a ledger: leaks take a tenth of delta, Gaussian tails the rest."""
    target = PrivacyTarget(1.0, DELTA)
    private = compose(fair_training(5.0)).to_gdp(target.leak_cap / 1000)
    assert f"{gdp_epsilon(private.mu, DELTA - target.leak_cap):.4g}" == "4.416"
    assert private.leak == target.leak_cap / 1000
