"""What a person with several rows is charged, against closed forms and dp-accounting."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import hypergeom, norm

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import compose
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent, check_group_size
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.selection import BudgetedEvent
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import SingleFitTarget
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from tests.core.privacy.cases import gaussian, poisson, subsets

GAUSSIAN = gaussian(3.0, 1.5, n_steps=2, lattice=0.25)
POISSON = poisson(1.2, 0.04, 30, sensitivity=2.0, clipped_sum=True)
SUBSETS = subsets(1.0, 5, 50, 3)
LOOKALIKE = type("Lookalike", (GaussianEvent,), {})(sigma=1.0, sensitivity=1.0)


def test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number():
    """The same figure from the distance between whole releases: three tables, one row in each."""
    parts = np.random.default_rng(0).uniform(-1, 1, (3, 20, 2))
    others = parts.copy()
    parts[:, 0], others[:, 0] = [1.0, 0.0], [-1.0, 0.0]
    moved = np.linalg.norm(parts.sum(axis=1) - others.sum(axis=1))
    assert gaussian(5.0, 2.0).grouped(3).mu == pytest.approx(moved / 5.0)


@pytest.mark.parametrize("event", [SUBSETS, ComposedEvent(events=(GAUSSIAN, SUBSETS)), LOOKALIKE])
def test_what_is_not_proved_is_refused(event):
    with pytest.raises(UnknownEventError, match="a person with 2 rows"):
        event.grouped(2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_sizes_are_integers_of_at_least_one(size):
    for call in (GAUSSIAN.grouped, calibrated(1.0).for_group):
        with pytest.raises(ValueError, match="`group_size` must be an integer >= 1"):
            call(size)
    assert check_group_size(np.int64(3)) == 3


# Several rows that change together, whatever was released


def spent_on(event, epsilon=1.0, delta=1e-5):
    return PrivacySpent(epsilon, delta, event.relation, event, None, None, ())


def calibrated(epsilon, delta=1e-5):
    return spent_on(calibrate(SingleFitTarget(epsilon, delta), gaussian), epsilon, delta)


@pytest.mark.parametrize(("k", "three"), [(5, 3.583), (10, 3.826)])
def test_epsilon_over_k_is_more_than_epsilon_for_k_rows(k, three):
    """The closed form of k times mu, at the same delta."""
    spent = calibrated(3.0 / k)
    assert spent.for_group(k) == pytest.approx(three, abs=5e-4)
    exact = gdp_epsilon(k * spent.event.mu, 1e-5)
    assert exact <= spent.for_group(k) <= (1 + 1e-8) * exact
    assert spent.for_group(1) == spent.epsilon


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
    event = subsets(1.0 / mu, n_steps=1)
    epsilon = spent_on(event, delta=delta).for_group(k)
    assert two_rows_of_a_batch(mu, 100, 10, k)(epsilon) <= delta
    assert epsilon >= compose(event).epsilon(delta)


def test_k_rows_in_one_gaussian_sum_attain_it():
    epsilon = spent_on(gaussian(8.0), delta=1e-4).for_group(4)
    assert two_rows_of_a_batch(1 / 8, 100, 100, 4)(epsilon) == pytest.approx(1e-4, rel=1e-5)


@pytest.mark.parametrize("event", [GAUSSIAN, POISSON, SUBSETS], ids=["gaussian", "sums", "rows"])
def test_groups_cost_more_than_their_rows_and_more_than_smaller_groups(event):
    spent = spent_on(event, compose(event).epsilon(1e-5))
    found = [spent.for_group(k) for k in (1, 2, 3, 5)]
    assert all(np.diff(found) > 0.0)
    assert all(e > k * found[0] for e, k in zip(found[1:], (2, 3, 5), strict=True))


def test_a_group_of_what_leaks_is_bounded_or_nothing_is_said():
    """The chain at the mu and the leak of one record; a leak as large as delta leaves nothing."""
    epsilon = spent_on(BudgetedEvent(mu=0.1, leak=1e-9)).for_group(3)
    assert gdp_epsilon(0.3, 1e-5) < epsilon < math.inf
    x = epsilon / 3
    delta = 1e-9 + (1 - 1e-9) * gdp_delta(x, 0.1)
    assert delta * (1 + math.exp(x) + math.exp(2 * x)) == pytest.approx(1e-5, rel=1e-6)
    assert spent_on(BudgetedEvent(mu=0.1, leak=4e-6)).for_group(3) == math.inf
    assert spent_on(NonPrivateEvent(), math.inf).for_group(3) == math.inf
    with pytest.raises(UnknownEventError, match="No accountant is known for Lookalike"):
        spent_on(LOOKALIKE).for_group(2)


def thresholded(delta=1e-6, lattice=None):
    """Counts of categories whose threshold hides one record but for delta."""
    threshold = 1.0 + 40.0 * norm.isf(delta) + (lattice or 0.0)
    return ThresholdedCountsEvent(sigma=40.0, threshold=threshold, lattice=lattice)


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
    event = ComposedEvent(events=(gaussian(10.0), thresholded()))
    spent = spent_on(event, compose(event).epsilon(1e-5))
    at = partial(gdp_epsilon, 5 * compose(event).mu_without_sampling)
    epsilon = spent.for_group(5)
    assert at(1e-5) < epsilon < 1.2 * at(1e-5)
    assert epsilon == pytest.approx(at(1e-5 - thresholded().group_leak(5)), rel=1e-6)
    assert spent.for_group(30) == math.inf  # thirty categories of their own: more than delta
