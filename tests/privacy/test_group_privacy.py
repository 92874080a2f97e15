"""What a person with several rows is charged, against closed forms and dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import (
    ComposedEvent,
    FixedSizeGaussianEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
)
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.group_privacy import check_group_size, in_different_parts
from skdpot.privacy.relation import Relation

GAUSSIAN = GaussianEvent(sigma=3.0, sensitivity=1.5, n_steps=2, lattice=0.25)
POISSON = PoissonGaussianEvent(
    sigma=1.2, sensitivity=2.0, sampling_rate=0.04, n_steps=30, clipped_sum=True
)
SUBSETS = FixedSizeGaussianEvent(
    sigma=1.0, sensitivity=1.0, batch_sizes=(5,), group_sizes=(50,), n_steps=3
)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_gaussian_releases_of_different_parts_cost_the_root_of_their_number(k):
    assert in_different_parts(GAUSSIAN, k).mu == pytest.approx(math.sqrt(k) * GAUSSIAN.mu)


def test_rows_of_different_parts_move_all_parts_together_by_the_root_of_their_number():
    """The same figure from the distance between whole releases: three tables, one row in each."""
    rng = np.random.default_rng(0)
    parts = rng.uniform(-1, 1, (3, 20, 2))
    others = parts.copy()
    parts[:, 0], others[:, 0] = [1.0, 0.0], [-1.0, 0.0]
    moved = np.linalg.norm(parts.sum(axis=1) - others.sum(axis=1))
    one_row = GaussianEvent(sigma=5.0, sensitivity=2.0)
    assert in_different_parts(one_row, 3).mu == pytest.approx(moved / 5.0)


def test_sampled_steps_of_different_parts_compose():
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    step = dp_event.PoissonSampledDpEvent(0.04, dp_event.GaussianDpEvent(1.2))
    accountant.compose(step, 30 * 3)
    ours = compose(in_different_parts(POISSON, 3)).epsilon(1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)


def test_one_row_changes_nothing():
    for event in (GAUSSIAN, POISSON, SUBSETS, NonPrivateEvent()):
        assert in_different_parts(event, 1) is event


def test_no_noise_stays_no_noise():
    assert in_different_parts(NonPrivateEvent(), 3) == NonPrivateEvent()


def test_phases_are_changed_one_by_one():
    nested = ComposedEvent(events=(POISSON, ComposedEvent(events=(GAUSSIAN,))))
    changed = in_different_parts(POISSON, 3), in_different_parts(GAUSSIAN, 3)
    assert in_different_parts(nested, 3).events == (
        changed[0],
        ComposedEvent(events=(changed[1],)),
    )


def test_what_is_not_proved_is_refused():
    lookalike = type("Lookalike", (GaussianEvent,), {})(sigma=1.0, sensitivity=1.0)
    for event in (SUBSETS, ComposedEvent(events=(GAUSSIAN, SUBSETS)), lookalike):
        with pytest.raises(UnknownEventError, match="a person with 2 rows"):
            in_different_parts(event, 2)


def test_other_relations_are_refused():
    event = GaussianEvent(sigma=1.0, sensitivity=1.0, relation=Relation.ADD_REMOVE)
    with pytest.raises(ValueError, match="under replace-one only"):
        in_different_parts(event, 2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2", None])
def test_sizes_are_integers_of_at_least_one(size):
    with pytest.raises(ValueError, match="`group_size` must be an integer >= 1"):
        in_different_parts(GAUSSIAN, size)


def test_a_multiple_of_epsilon_and_delta_is_no_bound_for_a_group():
    """Of rows in one Gaussian sum: the group's true delta at k epsilon is far above k delta."""
    mu, k, delta = 1.0, 5, 1e-6
    assert gdp_delta(k * gdp_epsilon(mu, delta), k * mu) > 20 * k * delta


def test_numpy_integers_are_sizes():
    assert check_group_size(np.int64(3)) == 3
