"""Every event passes the contract; what is special to one of them is below."""

import math

import numpy as np
import pytest

from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent, Relation
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.selection import ThresholdedCountsEvent
from tests.contract.event_suite import NOT_COUNTS, NOT_POSITIVE, EventSuite

NOT_A_RELATION = ("replace", "", None, 3)


class TestGaussianEvent(EventSuite):
    kind = GaussianEvent
    parameters = {"sigma": 5.0, "sensitivity": 1.0, "n_steps": 3}
    invalid = {
        "sigma": NOT_POSITIVE,
        "sensitivity": NOT_POSITIVE,
        "n_steps": NOT_COUNTS,
        "relation": NOT_A_RELATION,
    }


class TestLatticeGaussianEvent(EventSuite):
    kind = GaussianEvent
    parameters = {"sigma": 5.0, "sensitivity": 1.0, "n_steps": 3, "lattice": 0.25}
    # None is continuous noise, so it is not among the refused values of the lattice.
    invalid = {"lattice": (*(v for v in NOT_POSITIVE if v is not None), 5.1)}


class TestPoissonGaussianEvent(EventSuite):
    kind = SampledGaussianEvent
    parameters = {
        "sampling": "poisson",
        "sigma": 4.0,
        "sensitivity": 1.0,
        "sampling_rate": 0.1,
        "n_steps": 30,
    }
    invalid = {
        "sigma": NOT_POSITIVE,
        "sensitivity": NOT_POSITIVE,
        "sampling": ("shuffled", "", None),
        "sampling_rate": (*NOT_POSITIVE, 1.0000001),
        "n_samples": (10,),
        "batch_sizes": ((10,),),
        "group_sizes": ((10,),),
        "n_steps": NOT_COUNTS,
        "label": (None, 3),
        "relation": NOT_A_RELATION,
    }


class TestPoissonClippedSumEvent(EventSuite):
    kind = SampledGaussianEvent
    parameters = TestPoissonGaussianEvent.parameters | {"clipped_sum": True}
    relations = (Relation.REPLACE_ONE,)
    invalid = {"relation": NOT_A_RELATION}


class TestFixedSizeGaussianEvent(EventSuite):
    kind = SampledGaussianEvent
    parameters = {
        "sampling": "fixed_size",
        "sigma": 4.0,
        "sensitivity": 1.0,
        "batch_sizes": (10, 30),
        "group_sizes": (100, 400),
        "n_steps": 30,
    }
    relations = (Relation.REPLACE_ONE,)
    invalid = {
        "sigma": NOT_POSITIVE,
        "sensitivity": NOT_POSITIVE,
        "batch_sizes": ((), (10,), (101, 30), (0, 30), (10.5, 30), 10, (10, 30, 1)),
        "group_sizes": ((), (0, 400), (100, "400"), None),
        "sampling_rate": (0.1,),
        "clipped_sum": (True,),
        "n_steps": NOT_COUNTS,
        "relation": (*NOT_A_RELATION, Relation.ADD_REMOVE),
    }

    def test_refuses_invalid_fields_and_names_them(self) -> None:
        mismatch = {"batch_sizes": ((10,), (10, 30, 1))}
        super().test_refuses_invalid_fields_and_names_them()
        for value in mismatch["batch_sizes"]:
            with pytest.raises(ValueError, match="one entry a group"):
                self.make(batch_sizes=value)


class TestLatticeFixedSizeGaussianEvent(EventSuite):
    kind = SampledGaussianEvent
    parameters = TestFixedSizeGaussianEvent.parameters | {"lattice": 0.25}
    relations = (Relation.REPLACE_ONE,)
    invalid = {"lattice": (*(v for v in NOT_POSITIVE if v is not None), 4.1)}


class TestPoissonRowsGaussianEvent(EventSuite):
    kind = SampledGaussianEvent
    parameters = {
        "sampling": "poisson_rows",
        "sigma": 4.0,
        "sensitivity": 1.0,
        "sampling_rate": 0.1,
        "n_samples": 300,
        "n_steps": 30,
    }
    relations = (Relation.REPLACE_ONE,)
    invalid = {
        "sigma": NOT_POSITIVE,
        "sensitivity": NOT_POSITIVE,
        "sampling_rate": (*NOT_POSITIVE, 1.0000001),
        "n_samples": NOT_COUNTS,
        "n_steps": NOT_COUNTS,
        "lattice": (*(v for v in NOT_POSITIVE if v is not None), 4.1),
        "relation": (*NOT_A_RELATION, Relation.ADD_REMOVE),
    }


class TestThresholdedCountsEvent(EventSuite):
    kind = ThresholdedCountsEvent
    parameters = {"sigma": 2.5, "threshold": 1 + 7 * 2.5, "n_columns": 3}
    invalid = {
        "sigma": NOT_POSITIVE,
        "threshold": (*NOT_POSITIVE, 3.4),
        "n_columns": NOT_COUNTS,
        "lattice": (*(v for v in NOT_POSITIVE if v is not None), 2.6),
        "relation": NOT_A_RELATION,
    }

    def at_noise(self, factor: float) -> Event:
        """More noise needs a threshold that follows it, or more comes through by chance."""
        return self.make(sigma=2.5 * factor, threshold=1 + 7 * 2.5 * factor)


class TestComposedEvent(EventSuite):
    kind = ComposedEvent
    parameters = {
        "events": (
            GaussianEvent(sigma=9.0, sensitivity=1.0),
            SampledGaussianEvent(
                sampling="fixed_size",
                sigma=4.0,
                sensitivity=1.0,
                batch_sizes=(10,),
                group_sizes=(100,),
                n_steps=30,
            ),
            SampledGaussianEvent(
                sampling="poisson",
                sigma=3.0,
                sensitivity=1.0,
                sampling_rate=0.05,
                n_steps=20,
                clipped_sum=True,
            ),
        )
    }
    relations = (Relation.REPLACE_ONE,)
    invalid = {"events": ((), (1.0,), ("GaussianEvent",))}

    def each_relation(self) -> list[Event]:
        sampled = [
            SampledGaussianEvent(
                sampling="poisson",
                sigma=s,
                sensitivity=1.0,
                sampling_rate=0.05,
                n_steps=20,
                relation="add_or_remove_one",
            )
            for s in (3.0, 4.0)
        ]
        plain = GaussianEvent(sigma=9.0, sensitivity=1.0, relation=Relation.ADD_REMOVE)
        return [self.make(), ComposedEvent(events=(plain, *sampled))]

    def at_noise(self, factor: float) -> Event:
        first, second, third = self.parameters["events"]
        return ComposedEvent(
            events=(
                GaussianEvent(sigma=first.sigma * factor, sensitivity=1.0),
                SampledGaussianEvent(
                    sampling="fixed_size",
                    sigma=second.sigma * factor,
                    sensitivity=1.0,
                    batch_sizes=(10,),
                    group_sizes=(100,),
                    n_steps=30,
                ),
                third,
            )
        )

    def test_relation_is_not_an_argument(self) -> None:
        with pytest.raises(TypeError, match="relation"):
            self.make(relation=Relation.REPLACE_ONE)


class TestNonPrivateEvent(EventSuite):
    kind = NonPrivateEvent
    parameters = {}
    invalid = {"relation": NOT_A_RELATION}

    def test_composition_costs_more_than_its_part_and_less_than_the_sum(self) -> None:
        for event in self.each_relation():
            assert compose(event).epsilon(0.5) == compose(event, 7).epsilon(0.5) == math.inf

    def test_more_noise_never_costs_more(self) -> None:
        with pytest.raises(TypeError, match="sigma"):
            self.make(sigma=1e9)

    def test_profile_decreases_and_inverts_to_the_private_side(self) -> None:
        assert compose(self.make()).delta(1e9) == 1.0

    def test_conversion_to_gdp_is_a_bound(self) -> None:
        assert compose(self.make()).to_gdp(0.5).mu == math.inf

    def test_ledger_cost_is_whole_units_rounded_up(self) -> None:
        self.test_no_noise_anywhere_is_no_privacy()


def test_gaussian_mu_charges_the_lattice():
    plain = GaussianEvent(sigma=2.0, sensitivity=3.0, n_steps=4)
    assert plain.mu == pytest.approx(3.0)
    coarse = GaussianEvent(sigma=2.0, sensitivity=3.0, n_steps=4, lattice=0.5)
    assert coarse.mu == pytest.approx(3.0 * (1 + 1 / (20 * 4**2)))
    assert compose(coarse).mu_without_sampling == pytest.approx(coarse.mu)


def test_lattice_is_charged_under_sampling_too():
    shared = {"sigma": 2.0, "sensitivity": 1.0, "n_steps": 30}
    for make in (
        lambda **more: SampledGaussianEvent(
            sampling="fixed_size", batch_sizes=(10,), group_sizes=(100,), **more
        ),
        lambda **more: SampledGaussianEvent(
            sampling="poisson_rows", sampling_rate=0.1, n_samples=100, **more
        ),
    ):
        coarse = make(**shared, lattice=1.0)
        assert coarse.mu == pytest.approx(0.5 * (1 + 1 / (20 * 2**2)))
        widened = make(**(shared | {"sensitivity": 1 + 1 / 80}))
        assert compose(coarse).epsilon(1e-5) == pytest.approx(compose(widened).epsilon(1e-5))
        assert compose(coarse).epsilon(1e-5) > compose(make(**shared)).epsilon(1e-5)


def test_sampling_rate_of_groups_is_the_largest_share():
    event = SampledGaussianEvent(
        sampling="fixed_size",
        sigma=1.0,
        sensitivity=1.0,
        batch_sizes=(5, 40),
        group_sizes=(10, 200),
        n_steps=1,
    )
    assert event.rate == 0.5


def test_clipped_sum_is_refused_under_add_remove():
    with pytest.raises(ValueError, match=r"`clipped_sum` .* replace-one only"):
        SampledGaussianEvent(
            sampling="poisson",
            sigma=1.0,
            sensitivity=1.0,
            sampling_rate=0.1,
            n_steps=1,
            relation=Relation.ADD_REMOVE,
            clipped_sum=True,
        )


def test_numpy_numbers_become_plain_ones():
    event = SampledGaussianEvent(
        sampling="fixed_size",
        sigma=np.float32(2.0),
        sensitivity=np.float64(1.0),
        batch_sizes=np.array([3, 4]),
        group_sizes=[30, 50],
        n_steps=np.int64(7),
        relation="replace_one",
    )
    assert {type(v) for v in (event.sigma, event.sensitivity)} == {float}
    assert event.batch_sizes == (3, 4)
    assert event.group_sizes == (30, 50)
    assert type(event.n_steps) is type(event.batch_sizes[0]) is int
    assert event.relation is Relation.REPLACE_ONE
    assert isinstance(hash(event), int)


def test_composed_events_nest():
    event = GaussianEvent(sigma=2.0, sensitivity=1.0)
    nested = ComposedEvent(events=(event, ComposedEvent(events=[event, event])))
    assert compose(nested) == compose(event, 3)
