"""Private selection: the law of the trials, the worst case, the event and its ledger."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import stats
from scipy.special import ndtr

from skdpot._utils.validation import SecretStream
from skdpot.exceptions import BudgetExceededError, UnknownEventError
from skdpot.privacy.accounting import PrivacyTarget, compose, event_cost
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent, gdp_delta, gdp_epsilon
from skdpot.privacy.selection import (
    LARGEST_MU,
    BudgetedEvent,
    ThresholdedCountsEvent,
    TrialLaw,
    worst_profile,
)
from tests.contract.event_suite import DELTA, NOT_POSITIVE, EventSuite
from tests.privacy.cases import gaussian
from tests.privacy.cases import hockey_stick as difference

LAWS = [(10, 1.0), (10, 0.0), (10, math.inf), (4, 0.5), (30, -0.5)]
NOT_PROBABLE = (-1e-9, 1.0, math.nan, "0", None, True)


class LeakySuite(EventSuite):
    kind = BudgetedEvent

    def at_noise(self, factor):
        return self.make(mu=self.parameters["mu"] / factor)

    def test_ledger_cost_is_whole_units_rounded_up(self):
        """As elsewhere, but leaks of its own come on top of the ledger's share."""
        cap = PrivacyTarget(1.0, DELTA).leak_cap
        for event in self.each_relation():
            cost, own = event_cost(event, cap), compose(event).leak
            private = compose(event).to_gdp(max(0.0, cost.leak_units * 1e-18 - own))
            assert private.mu**2 * 1e12 <= cost.mu_squared_units
            assert own * 1e18 <= cost.leak_units <= cap * 1e18 / 1000 + own * 1e18 + 3

    def test_says_what_its_parameters_are(self):
        for event in self.each_relation():
            for words in ("0.3 standard deviations", "1e-12"):
                assert words in event.describe()
            assert ("8 on average" in event.describe()) == ("mean_trials" in self.parameters)
            with pytest.raises((UnknownEventError, ValueError)):
                event.grouped(2)


class TestPrivateSelectionEvent(LeakySuite):
    parameters = {"mu": 0.3, "mean_trials": 8.0, "leak": 1e-12}
    invalid = {
        "mu": NOT_POSITIVE,
        "mean_trials": (*(v for v in NOT_POSITIVE if v is not None), 0.99, 1.1e6),
        "shape": (-0.51, -2.0, math.nan, "geometric", None, True),
        "leak": (*NOT_PROBABLE, 0.126),
        "relation": ("replace", None),
    }

    def test_conversion_to_gdp_is_a_bound(self):
        """And no smaller one: the worst case is far from Gaussian, and lies at epsilon = 0."""
        loss = compose(self.make())
        private = loss.to_gdp(1e-9)
        for epsilon in np.linspace(0.0, 1.5 * loss.epsilon(1e-9), 60):
            assert loss.delta(float(epsilon)) <= private.delta(float(epsilon)) * (1 + 1e-12)
        assert private.delta(0.0) <= 1.002 * loss.delta(0.0)
        assert 1.2 * loss.epsilon(DELTA) < private.epsilon(DELTA)
        assert loss.epsilon(1e-9) < math.inf


class TestBudgetedEvent(LeakySuite):
    parameters = {"mu": 0.3, "leak": 1e-12}
    invalid = {"mu": NOT_POSITIVE, "leak": NOT_PROBABLE, "relation": ("replace", None)}


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


def hockey_stick(generate, p, q, epsilon):
    return difference(selected(generate, p), selected(generate, q), epsilon)


def badly_ordered(*laws):
    """Put the outcomes in the middle last: an order that is bad already."""
    n = len(laws[0])
    order = np.argsort(-np.abs(np.arange(n) - n / 2), kind="stable")
    return [law[order] for law in laws]


def worst_order(generate, p, q, epsilon):
    """Climb from a bad order: move one outcome at a time to where it hurts."""
    p, q = badly_ordered(p, q)
    best, improves = hockey_stick(generate, p, q, epsilon), True
    while improves:
        improves = False
        for i in range(len(p)):
            for j in range(len(p)):
                moved = [np.insert(np.delete(law, i), j, law[i]) for law in (p, q)]
                value = hockey_stick(generate, *moved, epsilon)
                if value > best * (1.0 + 1e-12):
                    best, (p, q), improves = value, moved, True
    return best


def binned_gaussians(mu, n=17):
    """What one learns of N(mu, 1) or N(0, 1) from the bin that it falls in: mu-GDP."""
    edges = np.concatenate([[-np.inf], np.linspace(-3.6, 3.6, n - 1) + mu / 2, [np.inf]])
    return np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))


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
                    found = [hockey_stick(generate, first, second, e) for e in epsilons]
                    assert np.all(found <= bounds)


# ------------------------------------------------------------------ against Renyi


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
        found = hockey_stick(generate, first, second, epsilon)
        assert 0.75 * 6.0 * leak < found <= loss.delta(epsilon)
    assert loss.leak == pytest.approx(6.0 * leak)


def test_more_trials_cost_more_and_composition_holds():
    epsilons = [
        compose(BudgetedEvent(mu=0.3, mean_trials=mean)).epsilon(1e-6) for mean in (1, 2, 5, 20)
    ]
    assert all(np.diff(epsilons) > 0)
    selection, fit = BudgetedEvent(mu=0.3, mean_trials=5), BudgetedEvent(mu=0.4, leak=1e-8)
    both = compose(ComposedEvent(events=(selection, fit)))
    rest = compose(ComposedEvent(events=(selection, gaussian(2.5))))
    assert both.delta(1.5) == pytest.approx(1e-8 + rest.delta(1.5), rel=1e-3)
    assert compose(selection).epsilon(1e-6) < rest.epsilon(1e-6)
    assert rest.epsilon(2e-6) < compose(selection).epsilon(1e-6) + gdp_epsilon(0.4, 1e-6)
    parts = selection, ThresholdedCountsEvent(sigma=40.0, threshold=300.0), gaussian(10.0)
    whole = compose(ComposedEvent(events=parts)).epsilon(1e-5)
    assert all(compose(part).epsilon(1e-5) < whole for part in parts)


def test_a_budget_of_its_own_costs_its_caps():
    target = PrivacyTarget(1.0, 1e-5)
    event = BudgetedEvent(mu=target.mu_cap, leak=target.leak_cap)
    assert compose(event).delta(50.0) == pytest.approx(1e-6)
    assert compose(event).epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    cost = event_cost(event, target.leak_cap)
    assert target.mu_squared_units <= cost.mu_squared_units <= target.mu_squared_units + 1
    assert cost.leak_units >= target.leak_units


def test_the_ledger_takes_the_smallest_gaussian_that_covers_it():
    event = BudgetedEvent(mu=0.3, mean_trials=10.0, leak=1e-11)
    cost = event_cost(event, PrivacyTarget(1.0, 1e-5).leak_cap)
    mu, leak = math.sqrt(cost.mu_squared_units * 1e-12), cost.leak_units * 1e-18
    law = TrialLaw.with_mean(10.0, 1.0)
    epsilons = np.linspace(0.0, 6.0, 50)
    assert np.all(worst_profile(0.3, law, epsilons) <= leak + gdp_delta(epsilons, mu))
    assert gdp_delta(0.0, mu) == pytest.approx(worst_profile(0.3, law, 0.0)[0], rel=0.01)
    assert leak >= 10.0 * 1e-11
    budget = PrivacyBudget(3.0)
    budget.spend(event, label="search")
    assert budget.history()["mu"][0] == pytest.approx(mu, rel=1e-6)
    with pytest.raises(BudgetExceededError, match="left"):
        budget.spend(replace(event, mu=3.0))


def test_a_trial_without_privacy_has_no_bound():
    event = BudgetedEvent(mu=1.01 * LARGEST_MU, mean_trials=2.0)
    assert compose(event).epsilon(1e-5) == math.inf
    assert math.isfinite(compose(replace(event, mu=LARGEST_MU)).epsilon(1e-5))
