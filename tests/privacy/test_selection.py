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
from skdpot.privacy.accounting import PrivacyTarget, compose, event_cost
from skdpot.privacy.events import ComposedEvent, gdp_epsilon
from skdpot.privacy.selection import (
    LARGEST_MU,
    BudgetedEvent,
    TrialLaw,
    worst_profile,
)
from tests.privacy.cases import gaussian
from tests.privacy.cases import hockey_stick as difference

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
