"""Every event passes the contract; what is special to one of them is below."""

import math

import numpy as np
import pytest

from skdpot.privacy.accounting import compose
from skdpot.privacy.choices import ChoiceEvent
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import BudgetedEvent
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from tests.contract.event_suite import NOT_COUNTS, NOT_POSITIVE, AnyEventSuite, EventSuite
from tests.core.privacy.cases import gaussian, poisson, subsets

NOT_A_RELATION = ("replace", "", None, 3)
NOT_PROBABLE = (-1e-9, 1.0, math.nan, "0", None, True)
NOISE = {"sigma": NOT_POSITIVE, "sensitivity": NOT_POSITIVE, "n_steps": NOT_COUNTS}
# None is continuous noise, so it is not among the refused values of the lattice.
NO_LATTICE = tuple(v for v in NOT_POSITIVE if v is not None)


class TestGaussianEvent(EventSuite):
    kind = GaussianEvent
    parameters = {"sigma": 5.0, "sensitivity": 1.0, "n_steps": 3}
    invalid = NOISE | {"relation": NOT_A_RELATION}


class TestLatticeGaussianEvent(EventSuite):
    kind = GaussianEvent
    parameters = TestGaussianEvent.parameters | {"lattice": 0.25}
    invalid = {"lattice": (*NO_LATTICE, 5.1)}


class SampledSuite(EventSuite):
    kind = SampledGaussianEvent
    relations = (Relation.REPLACE_ONE,)
    common = {"sigma": 4.0, "sensitivity": 1.0, "n_steps": 30}


class TestPoissonGaussianEvent(SampledSuite):
    parameters = SampledSuite.common | {"sampling": "poisson", "sampling_rate": 0.1}
    relations = tuple(Relation)
    invalid = NOISE | {
        "sampling": ("shuffled", "", None),
        "sampling_rate": (*NOT_POSITIVE, 1.0000001),
        "n_samples": (10,),
        "batch_sizes": ((10,),),
        "group_sizes": ((10,),),
        "label": (None, 3),
        "relation": NOT_A_RELATION,
    }


class TestPoissonClippedSumEvent(SampledSuite):
    parameters = TestPoissonGaussianEvent.parameters | {"clipped_sum": True}
    invalid = {"relation": NOT_A_RELATION}

    def test_is_refused_under_add_remove(self) -> None:
        with pytest.raises(ValueError, match=r"`clipped_sum` .* replace-one only"):
            self.make(relation=Relation.ADD_REMOVE)


class TestFixedSizeGaussianEvent(SampledSuite):
    parameters = SampledSuite.common | {
        "sampling": "fixed_size",
        "batch_sizes": (10, 30),
        "group_sizes": (100, 400),
    }
    invalid = NOISE | {
        "batch_sizes": ((), (10,), (101, 30), (0, 30), (10.5, 30), 10, (10, 30, 1)),
        "group_sizes": ((), (0, 400), (100, "400"), None),
        "sampling_rate": (0.1,),
        "clipped_sum": (True,),
        "relation": (*NOT_A_RELATION, Relation.ADD_REMOVE),
    }

    def test_needs_one_size_of_a_batch_for_each_group(self) -> None:
        for value in ((10,), (10, 30, 1)):
            with pytest.raises(ValueError, match="one entry per group"):
                self.make(batch_sizes=value)
        assert self.make(batch_sizes=(50, 40)).rate == 0.5  # the largest share


class TestLatticeFixedSizeGaussianEvent(SampledSuite):
    parameters = TestFixedSizeGaussianEvent.parameters | {"lattice": 0.25}
    invalid = {"lattice": (*NO_LATTICE, 4.1)}


class TestPoissonRowsGaussianEvent(SampledSuite):
    parameters = TestPoissonGaussianEvent.parameters | {
        "sampling": "poisson_rows",
        "n_samples": 300,
    }
    invalid = NOISE | {
        "sampling_rate": (*NOT_POSITIVE, 1.0000001),
        "n_samples": NOT_COUNTS,
        "lattice": (*NO_LATTICE, 4.1),
        "relation": (*NOT_A_RELATION, Relation.ADD_REMOVE),
    }


class TestThresholdedCountsEvent(EventSuite):
    kind = ThresholdedCountsEvent
    parameters = {"sigma": 2.5, "threshold": 1 + 7 * 2.5, "n_columns": 3}
    invalid = {
        "sigma": NOT_POSITIVE,
        "threshold": (*NOT_POSITIVE, 3.4),
        "n_columns": NOT_COUNTS,
        "lattice": (*NO_LATTICE, 2.6),
        "relation": NOT_A_RELATION,
    }

    def at_noise(self, factor: float) -> Event:
        """More noise needs a threshold that follows it, or more comes through by chance."""
        return self.make(sigma=2.5 * factor, threshold=1 + 7 * 2.5 * factor)


class TestChoiceEvent(EventSuite):
    kind = ChoiceEvent
    parameters = {"sigma": 3.0, "sensitivity": 1.5, "n_steps": 4}
    invalid = {
        "sigma": NOT_POSITIVE,
        "sensitivity": NOT_POSITIVE,
        "n_steps": NOT_COUNTS,
        "relation": NOT_A_RELATION,
    }


class TestComposedEvent(EventSuite):
    kind = ComposedEvent
    parameters = {"events": (gaussian(9.0), subsets(4.0), poisson(3.0, clipped_sum=True))}
    relations = (Relation.REPLACE_ONE,)
    invalid = {"events": ((), (1.0,), ("GaussianEvent",))}

    def each_relation(self) -> list[Event]:
        other = {"relation": Relation.ADD_REMOVE}
        events = gaussian(9.0, **other), poisson(3.0, **other), poisson(4.0, **other)
        return [self.make(), ComposedEvent(events=events)]

    def at_noise(self, factor: float) -> Event:
        events = gaussian(9.0 * factor), subsets(4.0 * factor), poisson(3.0, clipped_sum=True)
        return ComposedEvent(events=events)

    def test_relation_is_not_an_argument(self) -> None:
        with pytest.raises(TypeError, match="relation"):
            self.make(relation=Relation.REPLACE_ONE)

    def test_nests(self) -> None:
        event = gaussian(2.0)
        nested = ComposedEvent(events=(event, ComposedEvent(events=[event, event])))
        assert compose(nested) == compose(event, 3)


class TestNonPrivateEvent(AnyEventSuite):
    kind = NonPrivateEvent
    parameters = {}
    invalid = {"relation": NOT_A_RELATION}


class TestBudgetedEvent(EventSuite):
    kind = BudgetedEvent
    parameters = {"mu": 0.3, "leak": 1e-12}
    invalid = {"mu": NOT_POSITIVE, "leak": NOT_PROBABLE, "relation": NOT_A_RELATION}

    def at_noise(self, factor: float) -> Event:
        return self.make(mu=self.parameters["mu"] / factor)


class TestPrivateSelectionEvent(TestBudgetedEvent):
    parameters = TestBudgetedEvent.parameters | {"mean_trials": 8.0}
    invalid = TestBudgetedEvent.invalid | {
        "mean_trials": (*(v for v in NOT_POSITIVE if v is not None), 0.99, 1.1e6),
        "shape": (-0.51, -2.0, math.nan, "geometric", None, True),
        "leak": (*NOT_PROBABLE, 0.126),
    }
    conversion = 2.0

    def test_conversion_is_no_larger_than_it_must_be(self) -> None:
        """The worst case is far from Gaussian, and lies at epsilon = 0."""
        loss = compose(self.make())
        assert loss.to_gdp(1e-9).delta(0.0) <= 1.002 * loss.delta(0.0)


def test_gaussian_mu_charges_the_lattice():
    assert gaussian(2.0, 3.0, n_steps=4).mu == pytest.approx(3.0)
    coarse = gaussian(2.0, 3.0, n_steps=4, lattice=0.5)
    assert coarse.mu == pytest.approx(3.0 * (1 + 1 / (20 * 4**2)))
    assert compose(coarse).mu_without_sampling == pytest.approx(coarse.mu)


@pytest.mark.parametrize("more", [{}, {"sampling": "poisson_rows", "sampling_rate": 0.1}])
def test_lattice_is_charged_under_sampling_too(more):
    if more:
        more |= {"n_samples": 100, "batch_sizes": None, "group_sizes": None}
    coarse = subsets(2.0, lattice=1.0, **more)
    assert coarse.mu == pytest.approx(0.5 * (1 + 1 / (20 * 2**2)))
    widened = compose(subsets(2.0, sensitivity=1 + 1 / 80, **more)).epsilon(1e-5)
    assert compose(coarse).epsilon(1e-5) == pytest.approx(widened)


def test_numpy_numbers_become_plain_ones():
    event = subsets(np.float32(2.0), n_steps=np.int64(7), relation="replace_one")
    grouped = subsets(2.0, batch_sizes=np.array([3, 4]), group_sizes=[30, 50])
    assert (type(event.sigma), type(event.n_steps)) == (float, int)
    assert (grouped.batch_sizes, grouped.group_sizes) == ((3, 4), (30, 50))
    assert type(grouped.batch_sizes[0]) is int
    assert event.relation is Relation.REPLACE_ONE
    assert isinstance(hash(event), int)
