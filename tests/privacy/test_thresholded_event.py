"""Counts above a threshold: the proof by exact sums, the account by dp-accounting and the ledger.

The mechanism of one column is computed for a discrete Gaussian of few steps, outcome by outcome,
on all kinds of neighbours. Nothing is simulated.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtri

from skdpot.exceptions import BudgetExceededError, CalibrationError
from skdpot.privacy.accounting import (
    LEAK_SHARE,
    PrivacyTarget,
    SingleFitTarget,
    calibrate,
    compose,
    event_cost,
)
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent, Relation, gdp_delta
from skdpot.privacy.selection import ThresholdedCountsEvent
from tests.privacy.cases import gaussian, hockey_stick, subsets

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
# Sigma and threshold in steps of a lattice that has so many steps to a count.
GRIDS = [(2.0, 5, 1), (2.0, 9, 1), (4.0, 16, 2), (16.0, 64, 16)]


def thresholded(sigma, threshold, **more):
    return ThresholdedCountsEvent(sigma=sigma, threshold=threshold, **more)


def on_grid(s, threshold, units, **more):
    return thresholded(s / units, threshold / units, lattice=1 / units, **more)


def discrete_gaussian(s, reach=8):
    steps = np.arange(-math.ceil(reach * s), math.ceil(reach * s) + 1)
    masses = np.exp(-(steps**2) / (2 * s * s))
    return steps, masses / masses.sum()


def outcomes(counts, s, threshold, units):
    """Law of what a category shows for each count: row 0 is nothing, others are noisy counts."""
    steps, masses = discrete_gaussian(s)
    width = max(counts) * units + steps[-1] - threshold
    laws = np.zeros((len(counts), max(width, 0) + 1))
    for law, count in zip(laws, counts, strict=True):
        shown = np.maximum(count * units + steps - threshold, 0)
        np.add.at(law, shown if count else np.zeros_like(steps), masses)
    return laws


def column(s, threshold, units, before, after):
    """Both laws of what two categories show whose counts change by minus and plus one."""
    first = outcomes((before, before - 1), s, threshold, units)
    second = outcomes((after, after + 1), s, threshold, units)
    p, q = (np.outer(a, b).ravel() for a, b in zip(first, second, strict=True))
    possible = p + q > 0
    return p[possible], q[possible]


def profile(p, q, epsilon):
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def assert_charged(p, q, event, epsilons=EPSILONS):
    for epsilon in epsilons:
        assert profile(p, q, epsilon) <= compose(event).delta(epsilon) + 1e-12


@pytest.mark.parametrize("grid", GRIDS)
def test_no_neighbours_exceed_what_is_charged(grid):
    """Every kind: both counts large, near the threshold, of two and one, of one and none."""
    edge = grid[1] // grid[2]
    counts = (1, 2, 3, edge, edge + 1, 4 * edge)
    for before, after in itertools.product(counts, (0, *counts)):
        assert_charged(*column(*grid, before, after), on_grid(*grid))
    added = on_grid(*grid, relation=Relation.ADD_REMOVE)
    assert added.sensitivity == 1.0
    for count in (1, 2, 3, 20):
        assert_charged(*outcomes((count, count - 1), *grid), added)


def test_no_neighbours_of_two_columns_exceed_what_is_charged():
    grid = (2.0, 7, 1)
    event = on_grid(*grid, n_columns=2)
    kinds = [(30, 30), (1, 30), (30, 0), (1, 0), (2, 1)]
    columns = {kind: column(*grid, *kind) for kind in kinds}
    for one, other in itertools.combinations_with_replacement(kinds, 2):
        p, q = (np.outer(a, b).ravel() for a, b in zip(columns[one], columns[other], strict=True))
        assert_charged(p, q, event, (0.0, 0.5, 2.0, 4.0))
    alone = profile(*(np.outer(c, c).ravel() for c in columns[1, 30]), 6.0)
    q = outcomes((1,), *grid)[0, 1:].sum()
    assert alone == pytest.approx(1 - (1 - q) ** 2, rel=1e-3)  # which is what the charge bounds
    assert alone <= event.delta_tail <= 1.25 * alone


@pytest.mark.parametrize("s", [1.0, 2.5, 16.0, 31.9, 400.0])
@pytest.mark.parametrize("z", [1.0, 3.0, 5.2, 6.4])
def test_the_tail_is_a_close_bound(s, z):
    threshold = 1 + math.ceil(z * s) + 1
    steps, masses = discrete_gaussian(s, reach=12)
    exact = masses[1 + steps > threshold].sum()
    bound = on_grid(s, threshold, 1).delta_tail
    assert exact <= bound
    if s >= 16:
        assert bound <= exact * (1 + (z + 2) ** 2 / (20 * s * s) + 1e-9)


def test_a_threshold_between_two_steps_is_rounded_down():
    above, on_step = (thresholded(2.0, t, lattice=0.5).delta_tail for t in (9.499, 9.0))
    assert above == on_step
    # In floating point (3.3 - 1) / 0.1 is not 23, and (1.3 - 1) / 0.1 is more than 3 - 1e-15.
    fine = thresholded(0.2, 1.7, lattice=0.1)
    assert fine.delta_tail == pytest.approx(_normal_tail(6.5 / 2.0), rel=1e-9)


def _normal_tail(z):
    return 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize("k", [1, 5])
def test_continuous_noise_has_the_tail_of_a_normal_number(k):
    event = thresholded(3.0, 16.0, n_columns=k)
    assert event.delta_tail == pytest.approx(1 - (1 - _normal_tail(5.0)) ** k, rel=1e-9)
    assert event.mu == pytest.approx(math.sqrt(2 * k) / 3)


# The account.

COLUMNS = thresholded(20.0, 105.0, n_columns=3)
PLAIN = gaussian(4.0, n_steps=2)
SAMPLED = subsets(4.0)


@pytest.mark.parametrize("events", [(COLUMNS,), (COLUMNS, PLAIN), (COLUMNS, PLAIN, COLUMNS)])
def test_the_account_is_a_gaussian_unless_something_leaks(events):
    ours, mu = compose(ComposedEvent(events=events)), math.hypot(*(event.mu for event in events))
    kept = math.prod(1 - event.delta_tail for event in events if event is COLUMNS)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        closed = 1 - kept * (1 - gdp_delta(epsilon, mu))
        assert -1e-9 < ours.delta(epsilon) / closed - 1 < 2e-9
    for delta in (1e-2, 1e-4, 1e-5):
        closed = 1 - kept * (1 - gdp_delta(ours.epsilon(delta), mu))
        assert closed == pytest.approx(delta, rel=1e-6) or ours.epsilon(delta) == 0.0
    assert ours.leak == pytest.approx(1 - kept, rel=1e-10)
    assert ours.epsilon(0.99 * ours.leak) == ours.epsilon(ours.leak) == math.inf
    assert ours.epsilon(1.01 * ours.leak) < math.inf


def test_sampled_steps_join_leaks():
    leaky = compose(ComposedEvent(events=(COLUMNS, SAMPLED)))
    tight = compose(ComposedEvent(events=(gaussian(1.0, COLUMNS.mu), SAMPLED)))
    tail = COLUMNS.delta_tail
    for epsilon in (0.0, 0.5, 2.0):
        expected = tail + (1 - tail) * tight.delta(epsilon)
        assert leaky.delta(epsilon) == pytest.approx(expected, rel=1e-9)
    assert leaky.epsilon(1e-4) == pytest.approx(tight.epsilon((1e-4 - tail) / (1 - tail)), rel=1e-6)
    assert leaky.to_gdp(1e-9).mu == pytest.approx(tight.to_gdp(1e-9).mu, rel=1e-9)
    assert leaky.to_gdp(1e-9).leak == pytest.approx(1e-9 + tail, rel=1e-6)


# The ledger.


def test_a_budget_remembers_the_tail_and_admits_as_many_as_fit():
    budget = PrivacyBudget(50.0, 1e-5)
    tail = 0.3 * LEAK_SHARE * 1e-5
    low = thresholded(100.0, 1 - 100 * float(ndtri(tail)))
    for _ in range(3):
        budget.spend(low, label="categories")
    assert not budget.can_afford(low)
    with pytest.raises(BudgetExceededError, match=r"random batches and thresholds is used up.*"):
        budget.spend(low)
    budget.spend(PLAIN)  # which leaks nothing
    assert budget.history()["leak"][0] == pytest.approx(tail, rel=1e-6)


def test_a_threshold_that_leaks_too_much_is_refused():
    leaky = thresholded(100.0, 401.0)
    assert leaky.delta_tail > 1e-5
    assert not PrivacyBudget(50.0, 1e-5).can_afford(leaky)
    assert compose(leaky).epsilon(1e-5) == math.inf
    assert PrivacyTarget(math.inf, 1e-5).admits(leaky)
    for kind in (SingleFitTarget, PrivacyTarget):
        assert not kind(50.0, 1e-5).admits(leaky)
        with pytest.raises(CalibrationError, match="what does not depend on sigma already costs"):
            calibrate(kind(1.0, 1e-5), lambda s: ComposedEvent(events=(leaky, gaussian(s))))


# Calibration of a fit that selects categories and does something else.


def selection_for(target, n_columns=3, share=0.1):
    mu, tail = target.mu_cap * math.sqrt(share / n_columns), target.tail_delta
    sigma = math.sqrt(2) / mu * (1 + 1e-9)
    return thresholded(sigma, 1 - sigma * float(ndtri(tail / n_columns)), n_columns=n_columns)


@pytest.mark.parametrize("kind", [SingleFitTarget, PrivacyTarget])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-9)])
def test_the_rest_is_calibrated_beside_the_categories(kind, epsilon, delta):
    target = kind(epsilon, delta)
    selection = selection_for(target)
    assert selection.delta_tail <= target.tail_delta * (1 + 1e-9)

    def fit(sigma):
        return ComposedEvent(events=(selection, gaussian(sigma, 3.0)))

    event = calibrate(target, fit)
    sigma = event.events[1].sigma
    assert target.admits(event)
    assert not target.admits(fit(sigma * (1 - 3e-6)))  # what the sampler's error gets of 1e-9
    assert compose(event).epsilon(target.delta) <= target.epsilon
    # A tenth of the squared mu went to the categories; the tail costs a percent or two on top.
    plain = 3.0 / (target.mu_cap * math.sqrt(0.9))
    assert plain * (1 - 1e-8) <= sigma <= 1.02 * plain


def test_the_rest_may_draw_batches_and_a_thousand_fits_share_a_ledger():
    target = SingleFitTarget(1.0, 1e-5)
    selection = selection_for(target)
    event = calibrate(target, lambda s: ComposedEvent(events=(selection, subsets(s))))
    assert target.admits(event)
    assert compose(event).epsilon(1e-5) == pytest.approx(1.0, rel=3e-4)
    shared = PrivacyTarget(1.0, 1e-5)
    assert 900 * event_cost(selection_for(shared), shared.leak_cap).leak_units <= shared.leak_units
