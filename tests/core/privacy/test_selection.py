"""Private selection: of the best of several trials, and of counts above a threshold."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import stats
from scipy.special import ndtr, ndtri

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import BudgetExceededError, CalibrationError
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Relation
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.selection import LARGEST_MU, BudgetedEvent, TrialLaw, worst_profile
from skdpot.privacy.targets import LEAK_SHARE, PrivacyTarget, SingleFitTarget, event_cost
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from tests.core.privacy.cases import gaussian, hockey_stick, subsets

LAWS = [(10, 1.0), (10, 0.0), (10, math.inf), (4, 0.5), (30, -0.5)]


# ------------------------------------------------------------------ the number of trials


def masses_of(law, n=4000):
    return np.array([mass for _, (_, mass) in zip(range(n), law._masses(), strict=False)])


def given_one(law, k):
    """Return the probabilities of a law of scipy, given at least one."""
    return law.pmf(k) / law.sf(0)


@pytest.mark.parametrize(
    ("shape", "theirs"),
    [
        (1.0, stats.geom),
        (0.0, lambda parameter: stats.logser(1.0 - parameter)),
        (math.inf, stats.poisson),
        (0.5, lambda parameter: stats.nbinom(0.5, parameter)),
        (3.0, lambda parameter: stats.nbinom(3.0, parameter)),
    ],
)
@pytest.mark.parametrize("mean", [1.5, 10.0, 40.0])
def test_the_law_is_the_one_that_its_name_says(mean, shape, theirs):
    law = TrialLaw.with_mean(mean, shape)
    k = np.arange(1, 4001)
    masses = masses_of(law)
    assert law.mean == pytest.approx(mean, rel=1e-9)
    assert masses @ k == pytest.approx(mean, rel=1e-7)
    assert masses == pytest.approx(given_one(theirs(law.parameter), k), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_slopes_are_derivatives_of_the_generating_function(mean, shape):
    law = TrialLaw.with_mean(mean, shape)
    masses, k = masses_of(law), np.arange(1, 4001)
    for x in (0.0, 0.3, 0.9, 0.99):
        above = np.array([1.0 - x])
        terms = [masses * k, masses * k * (k - 1), masses * k * (k - 1) * (k - 2)]
        powers = [x ** np.maximum(k - order, 0.0) for order in (1, 2, 3)]
        exact = [float(a @ b) for a, b in zip(terms, powers, strict=True)]
        ours = [law.slope(above, order)[0] for order in (1, 2, 3)]
        assert ours == pytest.approx(exact, rel=1e-6)
        assert law.misses(1.0 - x) == pytest.approx(float(masses @ x**k), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("shape", [1.0, math.inf])
def test_one_trial_is_no_choice(shape):
    assert TrialLaw.with_mean(1.0, shape).quantile(0.999) == 1
    ours = compose(BudgetedEvent(mu=0.7, mean_trials=1.0, shape=shape)).epsilon(1e-6)
    assert 0.0 <= ours / gdp_epsilon(0.7, 1e-6) - 1.0 <= 5e-3


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_draws_follow_the_law(mean, shape):
    law, stream = TrialLaw.with_mean(mean, shape), SecretStream(5)
    drawn = np.array([law.draw(stream) for _ in range(20_000)])
    counts = np.histogram(drawn, [1, 2, 3, 5, 9, 17, 33, np.inf])[0]
    exact = np.add.reduceat(masses_of(law), [0, 1, 2, 4, 8, 16, 32]) * len(drawn)
    kept = exact > 5
    assert np.sum((counts - exact)[kept] ** 2 / exact[kept]) < stats.chi2.isf(1e-6, kept.sum())
    assert abs(law.quantile(0.5) - np.median(drawn)) <= 1


@pytest.mark.parametrize(("mean", "shape"), LAWS)
def test_without_leaks_the_law_is_thinned(mean, shape):
    law, leak = TrialLaw.with_mean(mean, shape), 0.03
    tilted = masses_of(law) * (1 - leak) ** np.arange(1, 4001)
    assert masses_of(law.thinned(leak)) == pytest.approx(tilted / tilted.sum(), abs=1e-9)
    assert 1 - tilted.sum() <= mean * leak


# ------------------------------------------------------------------ the worst case


def generating_function(law):
    return lambda x: np.array([law.misses(1.0 - v) for v in np.clip(x, 0.0, 1.0)])


def selected(generate, p):
    """The law of the best of K draws from p, whose outcomes come in increasing order."""
    return np.diff(generate(np.append(0.0, np.cumsum(p)).clip(0.0, 1.0)))


def selection_profile(generate, p, q, epsilon):
    return hockey_stick(selected(generate, p), selected(generate, q), epsilon)


def badly_ordered(*laws):
    """Put the outcomes in the middle last: an order that is bad already."""
    n = len(laws[0])
    order = np.argsort(-np.abs(np.arange(n) - n / 2), kind="stable")
    return [law[order] for law in laws]


def worst_order(generate, p, q, epsilon):
    """Climb from a bad order: move one outcome at a time to where it hurts."""
    p, q = badly_ordered(p, q)
    best, improves = selection_profile(generate, p, q, epsilon), True
    while improves:
        improves = False
        for i in range(len(p)):
            for j in range(len(p)):
                moved = [np.insert(np.delete(law, i), j, law[i]) for law in (p, q)]
                value = selection_profile(generate, *moved, epsilon)
                if value > best * (1.0 + 1e-12):
                    best, (p, q), improves = value, moved, True
    return best


def binned_gaussians(mu, n=17):
    """What one learns of N(mu, 1) or N(0, 1) from the bin that it falls in: mu-GDP."""
    edges = np.concatenate([[-np.inf], np.linspace(-3.6, 3.6, n - 1) + mu / 2, [np.inf]])
    return np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "shape"), LAWS[:4])
@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.0), (0.3, 0.4), (1.0, 0.5), (1.0, 1.5)])
def test_the_worst_case_is_a_bound_and_nearly_attained(mean, shape, mu, epsilon):
    law = TrialLaw.with_mean(mean, shape)
    attained = worst_order(generating_function(law), *binned_gaussians(mu), epsilon)
    bound = worst_profile(mu, law, epsilon)[0]
    assert 0.9 * bound < attained <= bound
    # What is charged is what the mechanism attains, nearly.
    charged = compose(BudgetedEvent(mu=mu, mean_trials=mean, shape=shape)).epsilon(attained)
    assert epsilon <= charged <= epsilon + 0.3 * mu


def test_no_random_mechanism_exceeds_the_bound():
    rng = np.random.default_rng(7)
    for mean, shape in LAWS:
        law = TrialLaw.with_mean(mean, shape)
        generate = generating_function(law)
        for mu in (0.2, 1.5):
            epsilons = np.array([0.0, 0.1, 0.5, 1.0, 2.5])
            bounds = worst_profile(mu, law, epsilons)
            for _ in range(15):
                p, q = binned_gaussians(mu, int(rng.integers(2, 40)))
                channel = rng.dirichlet(np.full(int(rng.integers(2, 9)), 0.2), len(p))
                for first, second in ((p @ channel, q @ channel), (q @ channel, p @ channel)):
                    found = [selection_profile(generate, first, second, e) for e in epsilons]
                    assert np.all(found <= bounds)


# ------------------------------------------------------------------ against Renyi


@pytest.mark.slow
@pytest.mark.parametrize("shape", [1.0, 0.0, math.inf])
@pytest.mark.parametrize(("mean", "mu"), [(3, 1.0), (30, 0.2)])
def test_the_exact_account_is_below_that_by_renyi_and_above_one_trial(mean, mu, shape):
    orders = np.concatenate([np.linspace(1.05, 12, 120), np.arange(13, 300)])
    accountant, base = RdpAccountant(orders), dp_event.GaussianDpEvent(1 / mu)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(base, mean, shape))
    loss = compose(BudgetedEvent(mu=mu, mean_trials=mean, shape=shape))
    for delta in (1e-4, 1e-7):
        assert gdp_epsilon(mu, delta) < loss.epsilon(delta) < accountant.get_epsilon(delta)


# ------------------------------------------------------------------ accounts and ledgers


def test_leaks_of_trials_add_up():
    """An output of its own, best of all, that a trial shows with probability `leak`."""
    mu, leak = 0.4, 0.004
    generate = generating_function(TrialLaw.with_mean(6.0, 1.0))
    p, q = badly_ordered(*binned_gaussians(mu))
    first = np.concatenate([(1 - leak) * p, [leak, 0.0]])
    second = np.concatenate([(1 - leak) * q, [0.0, leak]])
    loss = compose(BudgetedEvent(mu=mu, mean_trials=6.0, leak=leak))
    for epsilon in (0.2, 1.0, 5.0):
        found = selection_profile(generate, first, second, epsilon)
        assert 0.75 * 6.0 * leak < found <= loss.delta(epsilon)
    assert loss.leak == pytest.approx(6.0 * leak)


def test_more_trials_cost_more_and_composition_holds():
    epsilons = [
        compose(BudgetedEvent(mu=0.3, mean_trials=mean)).epsilon(1e-6) for mean in (1, 2, 5, 20)
    ]
    assert all(np.diff(epsilons) > 0)
    selection = BudgetedEvent(mu=0.3, mean_trials=5)
    rest = compose(ComposedEvent(events=(selection, gaussian(2.5))))
    assert compose(selection).epsilon(1e-6) < rest.epsilon(1e-6)
    assert rest.epsilon(2e-6) < compose(selection).epsilon(1e-6) + gdp_epsilon(0.4, 1e-6)


def test_a_budget_of_its_own_costs_its_caps():
    target = PrivacyTarget(1.0, 1e-5)
    event = BudgetedEvent(mu=target.mu_cap, leak=target.leak_cap)
    assert compose(event).delta(50.0) == pytest.approx(1e-6)
    assert compose(event).epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    cost = event_cost(event, target.leak_cap)
    assert target.mu_squared_units <= cost.mu_squared_units <= target.mu_squared_units + 1
    assert cost.leak_units >= target.leak_units


def test_a_trial_without_privacy_has_no_bound():
    event = BudgetedEvent(mu=1.01 * LARGEST_MU, mean_trials=2.0)
    assert compose(event).epsilon(1e-5) == math.inf
    assert math.isfinite(compose(replace(event, mu=LARGEST_MU)).epsilon(1e-5))


# ------------------------------------------------------------------ counts above a threshold
#
# The mechanism of one column is computed for a discrete Gaussian of few steps, outcome by outcome,
# on all kinds of neighbours. Nothing is simulated.

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
    assert fine.delta_tail == pytest.approx(ndtr(-6.5 / 2.0), rel=1e-9)


@pytest.mark.parametrize("k", [1, 5])
def test_continuous_noise_has_the_tail_of_a_normal_number(k):
    event = thresholded(3.0, 16.0, n_columns=k)
    assert event.delta_tail == pytest.approx(1 - (1 - ndtr(-5.0)) ** k, rel=1e-9)
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
