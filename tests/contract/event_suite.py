"""The suite that every type of event inherits."""

import itertools
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pytest

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent, Relation
from skdpot.privacy.gdp import ROUNDING
from skdpot.privacy.targets import PrivacyTarget, event_cost
from tests.core.privacy.cases import Written, written_and_read

DELTA = 1e-5

NOT_POSITIVE = (0, -1.0, math.nan, math.inf, -math.inf, "3", None, True, [1.0])
NOT_COUNTS = (0, -3, 2.5, math.nan, "3", None, True)


def falls(values: list[float]) -> bool:
    """Whether they decrease, until they are zero if that is reached."""
    return all(b < a or a == b == 0.0 for a, b in itertools.pairwise(values))


class AnyEventSuite:
    """Inherit, and say how the event is made and what it refuses.

    Attributes
    ----------
    kind : type
        The event.
    parameters : dict
        Keyword arguments of a valid event other than its relation.
    relations : tuple of Relation
        The relations that the event admits.
    invalid : dict
        For each field, values that must be refused.
    """

    kind: ClassVar[type[Event]]
    parameters: ClassVar[dict[str, Any]]
    relations: ClassVar[tuple[Relation, ...]] = tuple(Relation)
    invalid: ClassVar[dict[str, tuple[Any, ...]]]

    def make(self, **changes: Any) -> Event:
        """Make the event, with other parameters where told."""
        return self.kind(**(self.parameters | changes))

    def each_relation(self) -> list[Event]:
        """Make the event once for every relation."""
        return [self.make(relation=relation) for relation in self.relations]

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_composing_k_times_is_composing_k_events(self, count: int) -> None:
        for event in self.each_relation():
            one_by_one = reduce(PrivacyLoss.compose, [compose(event)] * count)
            assert compose(event, count) == one_by_one
            listed = ComposedEvent(events=(event,) * count)
            assert compose(listed) == one_by_one
            assert compose(event, count).epsilon(DELTA) == one_by_one.epsilon(DELTA)

    def test_steps_compose_like_events(self) -> None:
        if "n_steps" not in self.parameters:
            pytest.skip("the event has no steps")
        for event in self.each_relation():
            assert compose(replace(event, n_steps=3), 4) == compose(replace(event, n_steps=12))

    def test_relation_is_kept(self) -> None:
        for event in self.each_relation():
            assert compose(event).relation is event.relation
            assert ComposedEvent(events=(event, event)).relation is event.relation
            assert pickle.loads(pickle.dumps(event)).relation is event.relation

    def test_relations_do_not_mix(self) -> None:
        for event in self.each_relation():
            other = NonPrivateEvent(relation=next(r for r in Relation if r is not event.relation))
            with pytest.raises(ValueError, match="`events` must share one relation"):
                ComposedEvent(events=(event, other))
            with pytest.raises(ValueError, match="do not compose"):
                compose(event).compose(compose(other))

    def test_no_noise_anywhere_is_no_privacy(self) -> None:
        for event in self.each_relation():
            leaky = ComposedEvent(events=(event, NonPrivateEvent(relation=event.relation)))
            assert compose(leaky).epsilon(DELTA) == math.inf
            assert compose(leaky).delta(100.0) == 1.0
            assert compose(leaky).to_gdp(1e-9).mu == math.inf
            assert not PrivacyTarget(1e6, 0.5).admits(leaky)

    def test_is_a_frozen_value(self) -> None:
        event = self.make()
        with pytest.raises(FrozenInstanceError):
            event.relation = event.relation
        assert event == self.make()
        assert hash(event) == hash(self.make())
        assert pickle.loads(pickle.dumps(event)) == event
        assert compose(pickle.loads(pickle.dumps(event))) == compose(event)
        for count in (0, -1):
            with pytest.raises(ValueError, match="`count` must be an integer >= 1"):
                compose(event, count)

    def test_refuses_invalid_fields_and_names_them(self) -> None:
        for name, values in self.invalid.items():
            for value in values:
                with pytest.raises(ValueError, match=rf"{self.kind.__name__}: `{name}`"):
                    self.make(**{name: value})

    def test_a_subclass_is_unknown(self) -> None:
        lookalike = type("Lookalike", (self.kind,), {})
        with pytest.raises(UnknownEventError, match="Lookalike"):
            compose(lookalike(**self.parameters))

    def test_is_written_and_read(self) -> None:
        for event in self.each_relation():
            assert written_and_read(event) == event
            assert Written(written_and_read(event)).to_bytes() == Written(event).to_bytes()
            for wrong in ("Nothing", ["GaussianEvent"], None):
                with pytest.raises(ValueError, match="names an unknown event"):
                    written_and_read(event, type=wrong)
            with pytest.raises(ValueError, match="1 unknown entries"):
                written_and_read(event, surprise=1)

    def test_says_what_it_is_in_public_words(self) -> None:
        for event in self.each_relation():
            assert str(event).startswith(f"{self.kind.__name__}(")
            assert "relation" not in str(event)
            assert event.describe() == " ".join(phase.describe() for phase in event.phases)
            for phase in event.phases:
                labelled = replace(phase, label="What it is")
                assert labelled.describe() == f"What it is: {phase.describe()}"
                assert labelled == phase
                assert str(labelled) == str(phase)
                if event.relation is Relation.ADD_REMOVE and event.is_private:
                    assert "adding or removing one record" in phase.describe()

    def test_closed_form_is_a_bound(self) -> None:
        for event in self.each_relation():
            loss, bound = compose(event), event.to_gdp()
            assert bound.leak == loss.leak
            for epsilon in (0.0, 0.5, 2.0):
                assert loss.delta(epsilon) <= bound.delta(epsilon) * (1 + 2 * ROUNDING) + 1e-12

    def test_a_group_costs_more_or_is_refused(self) -> None:
        for event in self.each_relation():
            assert event.group_leak(2) >= event.to_gdp().leak
            if event.relation is Relation.ADD_REMOVE:
                with pytest.raises(ValueError, match="under replace-one only"):
                    event.grouped(2)
                continue
            assert event.grouped(1) is event
            try:
                group = event.grouped(3)
            except UnknownEventError:
                continue
            assert compose(group) == compose(event, 3) or not event.is_private
            assert [phase.label for phase in group.phases] == [p.label for p in event.phases]


class EventSuite(AnyEventSuite):
    """Of an event with noise.

    Attributes
    ----------
    conversion : float
        By what factor one Gaussian release that covers the event may exceed its epsilon.
    """

    conversion: ClassVar[float] = 1.1

    def at_noise(self, factor: float) -> Event:
        """Make the event with `factor` times the noise."""
        return self.make(sigma=factor * self.parameters["sigma"])

    def test_composition_costs_more_than_its_part_and_less_than_the_sum(self) -> None:
        for event in self.each_relation():
            once, thrice = compose(event).epsilon(DELTA / 3), compose(event, 3).epsilon(DELTA)
            assert compose(event).epsilon(DELTA) < thrice <= 3 * once

    def test_more_noise_never_costs_more(self) -> None:
        for relation in self.relations:
            chosen = {"relation": relation} if len(self.relations) > 1 else {}
            noises = (0.7, 1.0, 1.01, 1.5, 4.0)
            losses = [compose(replace(self.at_noise(f), **chosen)) for f in noises]
            assert falls([loss.epsilon(DELTA) for loss in losses])
            assert falls([loss.delta(0.1) for loss in losses])
            assert falls([loss.to_gdp(1e-9).mu for loss in losses])

    def test_profile_decreases_and_inverts_to_the_private_side(self) -> None:
        for event in self.each_relation():
            loss = compose(event)
            assert falls([loss.delta(epsilon) for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0)])
            for delta in (1e-2, 1e-5, 1e-8):
                epsilon = loss.epsilon(delta)
                assert loss.delta(epsilon) <= delta
                assert epsilon == 0.0 or loss.delta(epsilon * (1 - 1e-6)) > delta

    def test_conversion_to_gdp_is_a_bound(self) -> None:
        for event in self.each_relation():
            loss = compose(event)
            private = loss.to_gdp(1e-9)
            for epsilon in np.linspace(0.0, 1.5 * loss.epsilon(1e-9), 60):
                raised = (1 + 2 * ROUNDING) * private.delta(float(epsilon))
                assert loss.delta(float(epsilon)) <= raised
            assert private.epsilon(DELTA) <= self.conversion * loss.epsilon(DELTA)

    def test_ledger_cost_is_whole_units_rounded_up(self) -> None:
        cap = PrivacyTarget(1.0, DELTA).leak_cap
        for event in self.each_relation():
            cost, own = event_cost(event, cap), compose(event).leak
            assert isinstance(cost.mu_squared_units, int)
            assert isinstance(cost.leak_units, int)
            private = compose(event).to_gdp(max(0.0, cost.leak_units * 1e-18 - own))
            assert private.mu**2 * 1e12 <= cost.mu_squared_units
            most = max(compose(event).n_steps, cap * 1e18 / 1000)
            assert max(1.0, 1e18 * own) <= cost.leak_units <= most + 1e18 * own + 3
