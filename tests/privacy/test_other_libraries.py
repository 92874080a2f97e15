"""What other libraries release is charged with at least what it costs."""

from types import SimpleNamespace

import numpy as np
import opendp.prelude as dp
import pytest

from skdpot import PrivacyBudget
from skdpot.exceptions import UnknownEventError
from skdpot.privacy import GaussianEvent, SampledGaussianEvent, compose, other_libraries
from skdpot.privacy.events import Relation

ADDED = Relation.ADD_REMOVE


def event_of(spent, relation=Relation.REPLACE_ONE):
    return other_libraries.event_of(spent, relation)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_worst_release_of_an_epsilon_is_covered_and_nothing_smaller_covers_it(epsilon, delta):
    loss = compose(event_of((epsilon, delta)))
    truth = 1.0 / (1.0 + np.exp(-epsilon))
    for x in np.linspace(0.0, 1.2 * epsilon, 25):
        worst = delta + (1.0 - delta) * max(0.0, truth - np.exp(x) * (1.0 - truth))
        assert loss.delta(x) >= worst
    at_zero = delta + (1.0 - delta) * (2.0 * truth - 1.0)
    assert loss.delta(0.0) == pytest.approx(at_zero, rel=1e-8)


def test_clipped_sums_of_opacus():
    history = [(1.5, 0.01, 1000), (2.0, 0.05, 10)]
    given = {"sampling": "poisson", "sampling_rate": 0.01, "sigma": 1.5, "n_steps": 1000}
    first = SampledGaussianEvent(sensitivity=2.0, clipped_sum=True, **given)
    assert event_of(history[:1]) == first
    assert event_of(history[:1], relation=ADDED) == SampledGaussianEvent(
        sensitivity=1.0, relation=ADDED, **given
    )
    accountant = SimpleNamespace(history=history)
    assert event_of(accountant).events[0] == first
    assert compose(event_of(accountant)).n_steps == 1010


def test_an_accountant_of_diffprivlib_is_charged_its_limit_or_what_it_has_spent():
    limited = SimpleNamespace(epsilon=0.5, delta=1e-6, spent_budget=[(0.1, 0.0)])
    assert event_of(limited, ADDED) == event_of((0.5, 1e-6), ADDED)
    # A record that is replaced is removed, and another is added.
    assert event_of(limited) == event_of((1.0, (1 + np.exp(0.5)) * 1e-6))
    limited.epsilon = np.inf
    assert event_of(limited) == event_of((0.2, 0.0))
    limited.spent_budget = []
    with pytest.raises(ValueError, match="recorded nothing yet"):
        event_of(limited)


@pytest.fixture
def sums():
    dp.enable_features("contrib")
    bounded = dp.vector_domain(dp.atom_domain(T=float, bounds=(0.0, 10.0)))
    return (bounded, dp.symmetric_distance()) >> dp.t.then_sum()


def test_measurements_of_opendp(sums):
    gaussian = sums >> dp.m.then_gaussian(scale=20.0)
    for relation, moved in ((Relation.REPLACE_ONE, 2 * 10.0), (ADDED, 10.0)):
        cost = compose(event_of(gaussian, relation=relation)).epsilon(1e-5)
        due = compose(GaussianEvent(sigma=20.0, sensitivity=moved)).epsilon(1e-5)
        assert 1.0001 * due <= cost <= 1.0005 * due  # as much as a discrete Gaussian
        laplace = event_of(sums >> dp.m.then_laplace(scale=20.0), relation=relation)
        assert laplace.mu == pytest.approx(event_of((moved / 20.0, 0.0)).mu, rel=1e-6)
        mixed = event_of(dp.c.make_approximate(gaussian), relation=relation)  # of zCDP and a delta
        assert mixed.mu == pytest.approx(event_of(gaussian, relation).mu, rel=1e-6)
    fixed = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian), 1e-6)
    assert event_of(fixed).leak == 1e-6
    for relation in Relation:
        budget = PrivacyBudget(epsilon=5.0, relation=relation)
        budget.spend(gaussian, label="sums, OpenDP")
        assert budget.history()["event"].tolist() == [str(event_of(gaussian, relation))]
        assert not budget.can_afford([(0.1, 1.0, 9)])


def test_what_cannot_be_told_is_refused(sums):
    with pytest.raises(ValueError, match="make_fix_delta"):
        event_of(dp.c.make_zCDP_to_approxDP(sums >> dp.m.then_gaussian(scale=20.0)))
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    with pytest.raises(ValueError, match="apart in AbsoluteDistance is not known"):
        event_of(space >> dp.m.then_laplace(scale=2.0))
    with pytest.raises(UnknownEventError, match="known for float: it is no Event"):
        event_of(0.5)
    with pytest.raises(ValueError, match="must be > 0"):
        event_of((-0.5, 0.0))
