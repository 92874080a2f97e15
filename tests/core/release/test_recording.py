"""The gate of releases: who records sees all, who replays puts recorded values in their place."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from skdpot.exceptions import ReplayError
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent
from skdpot.release.comparison import first_difference
from skdpot.release.gate import forgotten, pass_gate, record_releases, remember, replay_releases
from skdpot.release.releases import Release, candidates


def made(kind, value, facts=None, **options):
    """Make a release, without noise unless its event is given."""
    return Release(kind, value, facts=facts or {}, **({"event": NonPrivateEvent()} | options))


def test_records_in_order_and_stops():
    value = np.array([1.0])
    with record_releases() as outer:
        with record_releases() as releases:
            assert pass_gate(made("sum", value, {"fact": 1}, sigma=3.0)) is value
            pass_gate(made("count", (2, torch.ones(2))))
        pass_gate(made("last", 1))
    value += 1
    assert [release.kind for release in releases] == ["sum", "count"]
    assert [release.kind for release in outer] == ["last"]  # the inner block listened alone
    assert releases[0].value == [1.0]  # a copy
    assert isinstance(releases[1].value[1], np.ndarray)
    assert repr(releases[0]) == "Release('sum', sigma=3.0, facts=['fact'])"


@pytest.mark.parametrize("forgetting", [True, False])
def test_what_is_forgotten_is_recorded_where_that_is_asked_for(forgetting):
    with record_releases(forgetting=forgetting) as releases:
        pass_gate(made("before", 1))
        with forgotten() as first:
            pass_gate(made("first", 1))
        with forgotten():
            pass_gate(made("second", 1))
        remember(first)
    kinds = [release.kind for release in releases]
    assert kinds == (["before", "first"] if forgetting else ["before", "first", "second"])


@pytest.mark.parametrize("sigma", [0.0, (1.0, 0.0)])
def test_what_was_charged_with_noise_is_not_released_without(sigma):
    noisy, none = GaussianEvent(sigma=1.0, sensitivity=1.0), NonPrivateEvent()
    with pytest.raises(RuntimeError, match="'sum' would be released without the noise"):
        pass_gate(made("sum", 1, sigma=sigma, event=ComposedEvent(events=(noisy, noisy))))
    assert pass_gate(made("sum", 1, sigma=sigma, event=none)) == 1
    assert pass_gate(made("sum", 1, sigma=sigma)) == 1
    assert pass_gate(made("sum", 1, sigma=1.0, event=noisy)) == 1


def test_candidates_stand_in_for_the_slots_of_the_data():
    first, second = candidates(np.array([1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]))
    assert first.tolist() == [0, 1, 2, 3, 4]
    assert second.tolist() == [0, 1, 5, 6, 7]
    assert [of.tolist() for of in candidates(np.ones(2))] == [[0, 1], [0, 1]]


def two_releases(shift, *, kind="mean", shape=(2, 3), sigma=1.0, names=("a",), last=True):
    """What passes the gate twice."""
    value = (np.full(shape, shift), torch.full((2,), float(shift)))
    mean, codes = pass_gate(made(kind, value, {"shape": shape[:1]}, sigma=sigma))
    found = pass_gate(made("names", list(names))) if last else None
    return mean, codes, found


def test_a_replay_puts_what_was_recorded_in_the_place_of_what_is_computed():
    with record_releases() as releases:
        two_releases(1)
    with replay_releases(releases):
        mean, codes, found = two_releases(2, names=("b", "c"))  # the length of a list is no fact
    assert (mean == 1).all()
    assert isinstance(codes, torch.Tensor)
    assert codes.tolist() == [1.0, 1.0]
    assert found == ["a"]
    mean += 1
    with replay_releases(releases):
        assert (two_releases(3)[0] == 1).all()
    assert two_releases(4)[0].max() == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "total"}, "'mean' was recorded in the place of 'total', release number 0"),
        ({"shape": (3, 2)}, "The shape of 'mean', release number 0"),
        ({"sigma": 1.0 + 1e-15}, "A fact of 'mean', release number 0.*: sigma"),
        ({"last": False}, "Less was released than recorded: 'names'"),
    ],
)
def test_a_replay_refuses_other_releases(options, message):
    with record_releases() as releases:
        two_releases(1)
    with pytest.raises(ReplayError, match=message), replay_releases(releases):
        two_releases(1, **options)
    with pytest.raises(ReplayError, match="More is released"), replay_releases([]):
        two_releases(1)


@dataclass
class Pair:
    first: object
    second: object


class Holder:
    def __init__(self, value):
        self.value, self.me = value, self


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: {"a": [1, (x, None)]},
        lambda x: np.array([0.0, x]),
        lambda x: np.array([0.0, x], dtype=object),
        lambda x: torch.tensor([x], dtype=torch.float64),
        lambda x: Pair(np.float64(x), max),
        lambda x: Holder(Holder(x)),
        lambda x: np.random.default_rng(int(x * 2**60)),
        lambda x: torch.nn.Linear(1, 1).requires_grad_(False).double().weight.fill_(x),
    ],
)
def test_the_last_bit_is_a_difference(make):
    assert first_difference(make(0.5), make(0.5)) is None
    assert first_difference(make(0.5), make(np.nextafter(0.5, 1.0))) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (1, 1.0), (1, True), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([1], [1, 1]),
     (np.zeros(2), np.zeros(2, dtype=np.float32)), (np.zeros(2), np.zeros((1, 2)))],
)  # fmt: skip
def test_equal_is_not_enough(one, other):
    assert first_difference(one, other) is not None


def test_a_difference_says_where_it_is():
    one, other = {"a": [1, Pair(2, 3)]}, {"a": [1, Pair(2, 4)]}
    assert first_difference(one, other, "it") == "it.a.1.second"
    assert first_difference(float("nan"), float("nan")) is None
