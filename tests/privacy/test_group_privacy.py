"""What a person with several rows is charged, against closed forms and dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy.stats import hypergeom, norm

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import PrivacyLoss, SingleFitTarget, calibrate, compose
from skdpot.privacy.events import (
    ComposedEvent,
    GaussianEvent,
    NonPrivateEvent,
    Relation,
    check_group_size,
    gdp_delta,
    gdp_epsilon,
)
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent, ThresholdedCountsEvent
from skdpot.privacy.spent import PrivacySpent

GAUSSIAN = GaussianEvent(sigma=3.0, sensitivity=1.5, n_steps=2, lattice=0.25)
POISSON = SampledGaussianEvent(
    sampling="poisson", sigma=1.2, sensitivity=2.0, sampling_rate=0.04, n_steps=30, clipped_sum=True
)
SUBSETS = SampledGaussianEvent(
    sampling="fixed_size",
    sigma=1.0,
    sensitivity=1.0,
    batch_sizes=(5,),
    group_sizes=(50,),
    n_steps=3,
)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_gaussian_releases_of_different_parts_cost_the_root_of_their_number(k):
    assert GAUSSIAN.grouped(k).mu == pytest.approx(math.sqrt(k) * GAUSSIAN.mu)


def test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number():
    """The same figure from the distance between whole releases: three tables, one row in each."""
    rng = np.random.default_rng(0)
    parts = rng.uniform(-1, 1, (3, 20, 2))
    others = parts.copy()
    parts[:, 0], others[:, 0] = [1.0, 0.0], [-1.0, 0.0]
    moved = np.linalg.norm(parts.sum(axis=1) - others.sum(axis=1))
    one_row = GaussianEvent(sigma=5.0, sensitivity=2.0)
    assert one_row.grouped(3).mu == pytest.approx(moved / 5.0)


def test_sampled_steps_of_different_parts_compose():
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    step = dp_event.PoissonSampledDpEvent(0.04, dp_event.GaussianDpEvent(1.2))
    accountant.compose(step, 30 * 3)
    ours = compose(POISSON.grouped(3)).epsilon(1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)


def test_one_row_changes_nothing():
    for event in (GAUSSIAN, POISSON, SUBSETS, NonPrivateEvent()):
        assert event.grouped(1) is event


def test_no_noise_stays_no_noise():
    assert NonPrivateEvent().grouped(3) == NonPrivateEvent()


def test_phases_are_changed_one_by_one():
    nested = ComposedEvent(events=(POISSON, ComposedEvent(events=(GAUSSIAN,))))
    changed = POISSON.grouped(3), GAUSSIAN.grouped(3)
    assert nested.grouped(3).events == (
        changed[0],
        ComposedEvent(events=(changed[1],)),
    )


def test_what_is_not_proved_is_refused():
    lookalike = type("Lookalike", (GaussianEvent,), {})(sigma=1.0, sensitivity=1.0)
    for event in (SUBSETS, ComposedEvent(events=(GAUSSIAN, SUBSETS)), lookalike):
        with pytest.raises(UnknownEventError, match="a person with 2 rows"):
            event.grouped(2)


def test_other_relations_are_refused():
    event = GaussianEvent(sigma=1.0, sensitivity=1.0, relation=Relation.ADD_REMOVE)
    with pytest.raises(ValueError, match="under replace-one only"):
        event.grouped(2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_sizes_are_integers_of_at_least_one(size):
    with pytest.raises(ValueError, match="`group_size` must be an integer >= 1"):
        GAUSSIAN.grouped(size)


def test_a_multiple_of_epsilon_and_delta_is_no_bound_for_a_group():
    """Of rows in one Gaussian sum: the group's true delta at k epsilon is far above k delta."""
    mu, k, delta = 1.0, 5, 1e-6
    assert gdp_delta(k * gdp_epsilon(mu, delta), k * mu) > 20 * k * delta


def test_numpy_integers_are_sizes():
    assert check_group_size(np.int64(3)) == 3


# Several rows that change together, whatever was released


def spent_on(event, epsilon=1.0, delta=1e-5):
    return PrivacySpent(epsilon, delta, event.relation, event, None, None, ())


def calibrated(epsilon, delta=1e-5):
    make = lambda sigma: GaussianEvent(sigma=sigma, sensitivity=1.0)  # noqa: E731
    return spent_on(calibrate(SingleFitTarget(epsilon, delta), make), epsilon, delta)


@pytest.mark.parametrize(("k", "three"), [(5, 3.583), (10, 3.826)])
def test_epsilon_over_k_is_more_than_epsilon_for_k_rows(k, three):
    """The closed form of k times mu, at the same delta."""
    spent = calibrated(3.0 / k)
    assert spent.for_group(k) == pytest.approx(three, abs=5e-4)
    exact = gdp_epsilon(k * spent.event.mu, 1e-5)
    assert exact <= spent.for_group(k) <= (1 + 1e-8) * exact
    assert spent.for_group(1) == spent.epsilon


def test_k_rows_in_one_gaussian_sum_attain_it():
    """By quadrature: the sum moves by k times the sensitivity."""
    event = GaussianEvent(sigma=8.0, sensitivity=1.0)
    epsilon = spent_on(event, delta=1e-4).for_group(4)
    x = np.linspace(-16, 16, 400_001)
    gap = norm.pdf(x, 0.5) - math.exp(epsilon) * norm.pdf(x)
    assert np.trapezoid(np.maximum(gap, 0.0), x) == pytest.approx(1e-4, rel=1e-5)


def two_rows_of_a_batch(mu, n, size, k):
    """All k rows move a sum by mu each: mixtures by how many of them a batch holds, and their H."""
    shares = hypergeom(n, k, size).pmf(np.arange(k + 1))
    x = np.linspace(-12.0, 12.0 + k * mu, 200_001)
    moved = sum(p * norm.pdf(x, j * mu) for j, p in enumerate(shares))

    def delta(epsilon):
        pairs = ((moved, norm.pdf(x)), (norm.pdf(x), moved))
        return max(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), x) for p, q in pairs)

    return delta


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_no_rows_of_one_batch_exceed_what_is_stated(k, mu, delta):
    event = SampledGaussianEvent(
        sampling="fixed_size",
        sigma=1.0 / mu,
        sensitivity=1.0,
        batch_sizes=(10,),
        group_sizes=(100,),
        n_steps=1,
    )
    epsilon = spent_on(event, delta=delta).for_group(k)
    assert two_rows_of_a_batch(mu, 100, 10, k)(epsilon) <= delta
    assert epsilon >= compose(event).epsilon(delta)


def test_randomised_response_attains_the_sum_of_the_chain():
    """k answers of loss x in a row, each for one link: at delta = 0 nothing less than k x holds."""

    class Loss(PrivacyLoss):
        def delta(self, epsilon):
            return max(0.0, 1.0 - math.exp(epsilon - 0.3)) / (1.0 + math.exp(-0.3))

        def epsilon(self, delta):
            return 0.0

    loss = Loss(Relation.REPLACE_ONE, (("a release", 1),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loss, "mu_without_sampling", math.inf)
        patch.setattr(Loss, "leak", 0.0)
        epsilon = loss.group_epsilon(4, 1e-9, 1.0)
    assert epsilon == pytest.approx(1.2, abs=1e-6)


@pytest.mark.parametrize("event", [GAUSSIAN, POISSON, SUBSETS], ids=["gaussian", "sums", "rows"])
def test_groups_cost_more_than_their_rows_and_more_than_smaller_groups(event):
    spent = spent_on(event, compose(event).epsilon(1e-5))
    found = [spent.for_group(k) for k in (1, 2, 3, 5)]
    assert all(np.diff(found) > 0.0)
    assert all(e > k * found[0] for e, k in zip(found[1:], (2, 3, 5), strict=True))


def test_a_group_of_what_leaks_is_bounded_or_nothing_is_said():
    """The chain at the mu and the leak of one record; a leak as large as delta leaves nothing."""
    small = spent_on(BudgetedEvent(mu=0.1, leak=1e-9))
    epsilon = small.for_group(3)
    assert gdp_epsilon(0.3, 1e-5) < epsilon < math.inf
    x = epsilon / 3
    delta = 1e-9 + (1 - 1e-9) * gdp_delta(x, 0.1)
    assert delta * (1 + math.exp(x) + math.exp(2 * x)) == pytest.approx(1e-5, rel=1e-6)
    assert spent_on(BudgetedEvent(mu=0.1, leak=4e-6)).for_group(3) == math.inf
    assert spent_on(NonPrivateEvent(), math.inf).for_group(3) == math.inf


def thresholded(delta=1e-6, lattice=None):
    """Counts of categories whose threshold hides one record but for delta."""
    return ThresholdedCountsEvent(
        sigma=40.0, threshold=1.0 + 40.0 * norm.isf(delta) + (lattice or 0.0), lattice=lattice
    )


@pytest.mark.parametrize("lattice", [None, 0.5])
@pytest.mark.parametrize("k", [2, 5, 20])
def test_no_group_of_records_shows_its_own_categories_more_often(k, lattice):
    """All in one category, all in categories of their own, and half of each; exact tails."""
    event = thresholded(lattice=lattice)
    bound = event.group_leak(k)
    noise = np.arange(-1000, 1000, lattice or 1.0)
    mass = np.exp(-(noise**2) / (2 * 40.0**2))
    mass /= mass.sum()

    def passes(count):
        above = event.threshold - count
        return norm.sf(above / 40.0) if lattice is None else mass[noise > above].sum()

    for counts in ([k], [1] * k, [k // 2, *[1] * (k - k // 2)]):
        shown = -np.expm1(sum(np.log1p(-passes(c)) for c in counts))
        assert shown <= bound
    assert bound <= k * norm.sf((event.threshold - k - 1) / 40.0)
    assert event.group_leak(1) == event.delta_tail <= bound


def test_a_group_of_selected_categories_is_bounded():
    """It was infinite: the chain multiplies the leak of one record by exp(4 x)."""
    event = ComposedEvent(events=(GaussianEvent(sigma=10.0, sensitivity=1.0), thresholded()))
    spent = spent_on(event, compose(event).epsilon(1e-5))
    epsilon = spent.for_group(5)
    alone = gdp_epsilon(5 * compose(event).mu_without_sampling, 1e-5)
    assert alone < epsilon < 1.2 * alone
    rest = 1e-5 - thresholded().group_leak(5)
    assert epsilon == pytest.approx(
        gdp_epsilon(5 * compose(event).mu_without_sampling, rest), rel=1e-6
    )
    assert spent.for_group(30) == math.inf  # thirty categories of their own: more than delta


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_a_statement_for_a_group_needs_its_size(size):
    with pytest.raises(ValueError, match="largest number of rows"):
        calibrated(1.0).for_group(size)


def test_a_statement_of_an_unknown_event_says_nothing_of_groups():
    class Other(GaussianEvent):
        pass

    with pytest.raises(UnknownEventError, match="No accountant is known for Other"):
        spent_on(Other(sigma=1.0, sensitivity=1.0)).for_group(2)
