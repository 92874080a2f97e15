"""What other libraries release is charged with at least what it costs."""

from types import SimpleNamespace

import numpy as np
import opendp.prelude as dp
import pytest

from skdpot import PrivacyBudget
from skdpot.exceptions import UnknownEventError
from skdpot.privacy import SampledGaussianEvent, compose, other_libraries
from skdpot.privacy.concentrated import gdp_of_zcdp
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
    # A record that is replaced is removed, and another is added.
    assert event_of(limited) == event_of((1.0, (1 + np.exp(0.5)) * 1e-6))
    limited.epsilon = np.inf
    assert event_of(limited) == event_of((0.2, 0.0))
    limited.spent_budget = [(800.0, 0.0)]
    assert event_of(limited) == event_of((1600.0, 0.0))
    # Its mean has noise for the number of rows that there are.
    with pytest.raises(ValueError, match="depends on the number of rows.*under 'replace_one'"):
        event_of(limited, ADDED)
    limited.spent_budget = []
    with pytest.raises(ValueError, match="recorded nothing yet"):
        event_of(limited)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_tools_of_diffprivlib_that_count_and_that_average_are_both_covered(epsilon):
    """Exact laws of three rows of 0 or 1: Laplace noise for the rows that there are, cut off."""

    def cut_off(center, scale, high):
        """Return masses of fine cells; the first and the last have the tails too."""
        edges = np.linspace(0.0, high, 61)[1:-1]
        below = np.where(edges < center, np.exp(np.minimum(edges - center, 0) / scale) / 2, 0)
        below += np.where(edges < center, 0, 1 - np.exp(-np.abs(edges - center) / scale) / 2)
        return np.diff(np.concatenate([[0.0], below, [1.0]]))

    loss = compose(event_of(SimpleNamespace(epsilon=epsilon, delta=0.0, spent_budget=[])))
    # Of two cells of a histogram, between which one record moves.
    counts = [cut_off(count, 1 / epsilon, 3.0) for count in (2, 1)]
    counts = [np.outer(one, other).ravel() for one, other in (counts, counts[::-1])]
    means = [cut_off(mean, 1 / (3 * epsilon), 1.0) for mean in (0.0, 1 / 3)]
    for P, Q in (counts, means):
        for x in np.linspace(0.0, 2 * epsilon, 9):
            assert np.maximum(P - np.exp(x) * Q, 0).sum() <= loss.delta(x)


@pytest.fixture
def sums():
    dp.enable_features("contrib")
    bounded = dp.vector_domain(dp.atom_domain(T=float, bounds=(0.0, 10.0)))
    return (bounded, dp.symmetric_distance()) >> dp.t.then_sum()


def test_measurements_of_opendp(sums):
    gaussian = sums >> dp.m.then_gaussian(scale=20.0)
    for relation, moved in ((Relation.REPLACE_ONE, 2 * 10.0), (ADDED, 10.0)):
        worst = gdp_of_zcdp((moved / 20.0) ** 2 / 2)
        assert event_of(gaussian, relation=relation).mu == pytest.approx(worst.mu, rel=1e-6)
        laplace = event_of(sums >> dp.m.then_laplace(scale=20.0), relation=relation)
        assert laplace.mu == pytest.approx(event_of((moved / 20.0, 0.0)).mu, rel=1e-6)
        mixed = event_of(dp.c.make_approximate(gaussian), relation=relation)  # of zCDP and a delta
        assert mixed == event_of(gaussian, relation)
    fixed = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian), 1e-6)
    assert event_of(fixed).leak == 1e-6
    for relation in Relation:
        budget = PrivacyBudget(epsilon=9.0, relation=relation)
        budget.spend(gaussian, label="sums, OpenDP")
        assert budget.history()["event"].tolist() == [str(event_of(gaussian, relation))]
        assert not budget.can_afford([(0.1, 1.0, 9)])


def concentrated_counts():
    """Yield measurements of counts with exact laws of noise on integers: named, and their law."""
    dp.enable_features("contrib")
    counts = (dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()) >> dp.t.then_count()
    k = np.arange(-250.0, 251.0)
    for scale in (0.35, 0.5, 0.7, 1.0, 2.0, 5.0):
        law = np.exp(-(k**2) / (2 * scale**2))
        yield f"Gaussian, {scale}", counts >> dp.m.then_gaussian(scale=scale), law
        pure = counts >> dp.m.then_laplace(scale=scale)
        yield f"Laplace, {scale}", dp.c.make_pureDP_to_zCDP(pure), np.exp(-np.abs(k) / scale)


@pytest.mark.parametrize(
    ("measurement", "law"), [pytest.param(*rest, id=name) for name, *rest in concentrated_counts()]
)
@pytest.mark.parametrize("relation", Relation)
def test_zero_concentrated_counts_cost_no_more_than_is_charged(measurement, law, relation):
    """They were charged as Gaussian noise of any scale: up to 7 times the charged delta."""
    loss = compose(event_of(measurement, relation))
    moved = 1 if relation is ADDED else 2  # as far as the map of symmetric distances allows
    law = law / law.sum()
    P, Q = np.append(law, np.zeros(moved)), np.append(np.zeros(moved), law)
    largest = min(1.2 * measurement.map(moved) + 3.0, 30.0)
    for x in np.linspace(0.0, largest, 200):
        assert np.maximum(P - np.exp(x) * Q, 0).sum() <= loss.delta(x) + 1e-14


@pytest.mark.parametrize("relation", Relation)
def test_concentrated_but_for_a_delta(relation):
    """The worst: with probability delta it tells the bit, and else it is randomised response."""
    metric = SimpleNamespace(type="SymmetricDistance")
    measure = SimpleNamespace(type="Approximate<ZeroConcentratedDivergence>")
    stated = SimpleNamespace(input_metric=metric, output_measure=measure)
    stated.map = lambda d_in: (0.5 * d_in**2, 1e-3)
    distance = {ADDED: 1, Relation.REPLACE_ONE: 2}[relation]
    event, worst = event_of(stated, relation), gdp_of_zcdp(0.5 * distance**2)
    assert event.mu == worst.mu
    assert event.leak == pytest.approx(1e-3, rel=1e-9)
    assert event.leak >= 1e-3
    stated.map = lambda _: (0.5, 1.0)
    with pytest.raises(ValueError, match=r"delta=1.0 must be in \[0, 1\)"):
        event_of(stated)


def test_what_cannot_be_told_is_refused(sums):
    dp.enable_features("honest-but-curious")
    with pytest.raises(ValueError, match="make_fix_delta"):
        event_of(dp.c.make_zCDP_to_approxDP(sums >> dp.m.then_gaussian(scale=20.0)))
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    with pytest.raises(ValueError, match="apart in AbsoluteDistance.* is not known"):
        event_of(space >> dp.m.then_laplace(scale=2.0))
    counts = (dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()) >> dp.t.then_count()
    space = counts.input_domain, counts.input_metric
    queries = dp.c.make_adaptive_composition(
        *space, dp.zero_concentrated_divergence(), d_in=1, d_mids=[0.1, 0.2]
    )
    assert event_of(queries, ADDED).mu == gdp_of_zcdp(queries.map(1)).mu
    with pytest.raises(ValueError, match="states no cost of neighbours 2 apart"):
        event_of(queries)
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.zero_concentrated_divergence())
    with pytest.raises(UnknownEventError, match="known for Odometer"):
        event_of(odometer)
    alike = dp.user_distance("SymmetricDistance"), dp.user_divergence("MaxDivergence")
    for metric, measure in ((alike[0], dp.max_divergence()), (space[1], alike[1])):
        stranger = dp.m.make_user_measurement(
            space[0], metric, measure, function=len, privacy_map=lambda _: 1e-3
        )
        with pytest.raises(ValueError, match="is not"):
            event_of(stranger)
    with pytest.raises(ValueError, match="must lie in"):
        event_of(counts >> dp.m.then_gaussian(scale=0.05))
    for history in ([(1.5, 0.01)], [1.5, 0.01, 10], ["abcd"]):
        with pytest.raises(ValueError, match="holds tuples .noise multiplier, sample rate, steps"):
            event_of(history)
    with pytest.raises(UnknownEventError, match="known for float: it is no Event"):
        event_of(0.5)
    with pytest.raises(ValueError, match="must be > 0"):
        event_of((-0.5, 0.0))
