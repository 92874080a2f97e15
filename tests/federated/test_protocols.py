"""Protocols: the numbers of a direct computation, and nothing sent that is not written down."""

import math

import numpy as np
import ot
import pandas as pd
import pytest

from skdpot import PrivacyBudget
from skdpot.exceptions import BudgetExceededError, MessageError, ProtocolRefusedError
from skdpot.federated.baselines import (
    fedwad,
    fractions_of_rounds,
    pairwise_fedwad,
    pairwise_triangle,
    rescaled,
    triangle,
    triangle_to_union,
)
from skdpot.federated.exchange import DistanceEstimate, PairwiseResult
from skdpot.federated.messages import (
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.federated.party import PROTOCOLS, Party
from skdpot.federated.sliced_protocol import pairwise_sliced, sliced
from skdpot.metrics.debiased_distance import debiased_squared_distance
from skdpot.ot.measures import DiscreteMeasure, interpolate, optimal_plan
from tests.contract.hostile_files import forged

RNG = np.random.default_rng(2750)
FIRST = RNG.normal(size=(40, 3))
SECOND = RNG.normal(0.7, 1.3, size=(40, 3))
SMALL = RNG.normal(-0.5, 0.6, size=(23, 3))
MASSES = RNG.uniform(0.5, 2, 40)
GAMMA = DiscreteMeasure(RNG.normal(size=(40, 3)))
REQUEST = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-5, 5), rng=RNG)


def party(name="first", rows=FIRST, **parameters):
    return Party(name, rows, **{"allows": PROTOCOLS} | parameters)


def moved(rows, t, kind="barycentric", masses=None, gamma=GAMMA):
    return interpolate(optimal_plan(DiscreteMeasure(rows, masses), gamma), t, kind=kind)


def triangle_squared_distance(eta_mu, eta_nu, t):
    return rescaled(optimal_plan(eta_mu, eta_nu).squared_distance, t)


def exact(rows, others):
    return ot.emd2([], [], ot.dist(rows, others))


# -- the numbers


@pytest.mark.parametrize("kind", ["barycentric", "exact"])
@pytest.mark.parametrize("masses", [None, MASSES])
@pytest.mark.parametrize("others", [SECOND, SMALL])
def test_triangle_equals_the_direct_computation(kind, masses, others):
    result = triangle(
        party(masses=masses),
        party("second", others),
        t=0.3,
        reference=GAMMA,
        interpolation=kind,
    )
    due = triangle_squared_distance(moved(FIRST, 0.3, kind, masses), moved(others, 0.3, kind), 0.3)
    assert result.squared_distance == pytest.approx(due, rel=1e-9)
    assert result.distance == pytest.approx(math.sqrt(due), rel=1e-9)
    # The plan between the messages comes along: it values the rows of both sides.
    assert rescaled(result.details.squared_distance, 0.3) == result.squared_distance
    assert len(result.details.source_potential) == result.details.source.n_points


@pytest.mark.parametrize("kind", ["barycentric", "exact"])
def test_a_secret_fraction_is_read_off_the_parabola(kind):
    result = triangle(
        party(),
        party("second", SMALL),
        t=0.4,
        disclose_t=False,
        reference=GAMMA,
        interpolation=kind,
    )
    eta = moved(FIRST, 0.4, kind)
    distances = [
        optimal_plan(moved(SMALL, s, kind), eta).squared_distance for s in (0.25, 0.5, 0.75)
    ]
    (answer,) = result.transcript.messages(DistancesAtFractions)
    np.testing.assert_allclose(answer.squared_distances, distances, rtol=1e-9)
    at_t = np.polyval(np.polyfit([0.25, 0.5, 0.75], distances, 2), 0.4)
    assert result.squared_distance == pytest.approx(rescaled(at_t, 0.4), rel=1e-9)


@pytest.mark.parametrize("kind", ["barycentric", "exact"])
def test_the_union_equals_the_direct_computation(kind):
    sellers = [party("second", SECOND, masses=MASSES), party("third", SMALL)]
    result = triangle_to_union(
        party(),
        sellers,
        t=0.3,
        disclose_t=True,
        shares=[3, 1],
        reference=GAMMA,
        interpolation=kind,
    )
    etas = [moved(SECOND, 0.3, kind, MASSES), moved(SMALL, 0.3, kind)]
    union = DiscreteMeasure(
        np.vstack([eta.points for eta in etas]),
        np.concatenate([0.75 * etas[0].weights, 0.25 * etas[1].weights]),
    )
    due = triangle_squared_distance(moved(FIRST, 0.3, kind), union, 0.3)
    assert result.squared_distance == pytest.approx(due, rel=1e-9)


@pytest.mark.parametrize("others", [SECOND, SMALL])
@pytest.mark.parametrize("t", ["drawn", 0.5])
def test_fedwad_equals_the_rounds_in_one_place(others, t):
    result = fedwad(
        party(),
        party("second", others),
        n_rounds=4,
        t=t,
        reference=GAMMA,
        rng=np.random.default_rng(5),
    )
    xi, sums = GAMMA, []
    ends = [DiscreteMeasure(FIRST), DiscreteMeasure(others)]
    for fraction in fractions_of_rounds(t, 4, np.random.default_rng(5)):
        plans = [optimal_plan(end, xi) for end in ends]
        sums.append(sum(plan.distance for plan in plans))
        xi = interpolate(optimal_plan(*(interpolate(plan, fraction) for plan in plans)), fraction)
    sums.append(sum(optimal_plan(end, xi).distance for end in ends))
    np.testing.assert_allclose(result.details.distances, sums, rtol=1e-9)
    np.testing.assert_allclose(result.details.reference.points, xi.points, rtol=1e-9, atol=1e-12)
    assert result.distance == pytest.approx(min(sums), rel=1e-9)
    assert result.squared_distance >= exact(FIRST, others) * (1 - 1e-9)


def test_sliced_equals_the_estimate_from_the_released_sketches():
    first, second = party(epsilon=3.0), party("second", SECOND, epsilon=1.0)
    result = sliced(first, second, REQUEST)
    sketches = [REQUEST.read(p.publish_sketch(REQUEST)) for p in (first, second)]
    due = debiased_squared_distance(*sketches)
    assert result.details == due
    assert (result.squared_distance, result.distance) == (due.squared, due.distance)
    data = sliced(first, second, REQUEST, target="data", n_simulations=20, random_state=0)
    assert (data.details.target, data.details.n_simulations) == ("data", 20)
    assert [len(p.privacy_spent) for p in (first, second)] == [1, 1]


THREE = {"first": FIRST, "second": SECOND, "third": SMALL}


def three(**parameters):
    return [party(name, rows, **parameters) for name, rows in THREE.items()]


def test_pairwise_distances_equal_those_of_pairs():
    for both, pair, options in (
        (pairwise_triangle, triangle, {"t": 0.3, "reference": GAMMA}),
        (pairwise_fedwad, fedwad, {"n_rounds": 2, "t": 0.5, "reference": GAMMA}),
    ):
        result = both(three(), **options)
        frame = result.to_frame()
        assert list(frame.index) == list(frame.columns) == list(THREE)
        np.testing.assert_array_equal(result.squared_distances, result.squared_distances.T)
        for (i, j), estimate in result.estimates.items():
            due = pair(party(i, THREE[i]), party(j, THREE[j]), **options)
            assert frame.loc[i, j] == pytest.approx(due.distance, rel=1e-12)
            assert type(estimate.details) is type(due.details)
        assert np.diag(result.distances).tolist() == [0, 0, 0]
        assert "3 parties" in repr(result)


# -- the transcript

PLAYS = {
    "triangle": lambda a, b: triangle(a, b, reference=GAMMA),
    "secret t": lambda a, b: triangle(a, b, reference=GAMMA, t=0.123456789, disclose_t=False),
    "union": lambda a, b: triangle_to_union(a, [b], reference=GAMMA),
    "fedwad": lambda a, b: fedwad(a, b, n_rounds=2, reference=GAMMA, rng=np.random.default_rng(0)),
    "sliced": lambda a, b: sliced(a, b, REQUEST, n_simulations=8),
    "pairwise triangle": lambda a, b: pairwise_triangle([a, b], reference=GAMMA),
}


class Listening:
    """A party whose every answer is noted beside the protocol."""

    def __init__(self, of):
        self.of, self.sent = of, []

    def __getattr__(self, name):
        attribute = getattr(self.of, name)
        if not callable(attribute):
            return attribute

        def answer(*args):
            self.sent.append(attribute(*args))
            return self.sent[-1]

        return answer


@pytest.mark.parametrize("name", PLAYS)
def test_the_transcript_holds_exactly_what_was_sent(name):
    first, second = Listening(party()), Listening(party("second", SECOND))
    transcript = PLAYS[name](first, second).transcript
    for participant in (first, second):
        recorded = transcript.messages(Message, sender=participant.name)
        assert list(dict.fromkeys(recorded)) == list(dict.fromkeys(participant.sent))
        # What is recorded is what arrived, not the sender's own object.
        assert not {id(m) for m in recorded} & {id(m) for m in participant.sent}
    assert set(transcript.participants) == {"server", "first", "second"}
    sizes = [len(entry.message.to_bytes()) for entry in transcript]
    assert transcript.n_bytes == sum(sizes) == transcript.to_frame()["n_bytes"].sum()
    rounds = [entry.round for entry in transcript]
    assert rounds == sorted(rounds)
    if name == "secret t":
        for entry in transcript:
            data = entry.message.to_bytes()
            assert np.array(0.123456789).tobytes() not in data
            assert b"0.12345" not in data
    if name == "fedwad":
        xis = transcript.seen_by("first").messages(GeodesicMeasure)
        assert [xi.t is None for xi in xis] == [False, False, True]


def test_a_transcript_grows_only_and_shows_sizes_and_meanings():
    transcript = triangle(party(), party("second", SECOND), reference=GAMMA).transcript
    with pytest.raises(AttributeError, match="no setter"):
        transcript.entries = ()
    with pytest.raises(AttributeError, match="cannot assign"):
        transcript.entries[0].sender = "nobody"
    with pytest.raises(TypeError, match="holds messages, got str"):
        transcript.record(0, "north", "server", "rows")
    n, seen = len(transcript), transcript.seen_by("second")
    seen.record(9, "first", "second", transcript.entries[0].message)
    assert (len(transcript), len(transcript.seen_by("stranger"))) == (n, 0)
    assert f"{n} messages, {transcript.n_bytes} bytes" in repr(transcript)
    card = transcript._repr_html_()
    assert "first → server: 1 × interpolating measure" in card
    assert "Every row of the sender" in card


def test_nobody_sees_messages_between_others():
    result = triangle(party(), party("second", SECOND), reference=GAMMA)
    eta = result.transcript.messages(InterpolatingMeasure, sender="first")[0]
    assert eta in result.transcript.seen_by("server").messages(Message)
    assert eta not in result.transcript.seen_by("second").messages(Message)
    assert {e.sender for e in result.transcript.seen_by("second")} == {"server", "second"}
    secret = triangle(party(), party("second", SECOND), reference=GAMMA, disclose_t=False)
    assert secret.transcript.seen_by("server").messages(FractionRequest) == []
    assert len(secret.transcript.seen_by("second").messages(FractionRequest)) == 1
    many = triangle_to_union(party(), three()[1:], reference=GAMMA)
    for name, other in (("second", "third"), ("third", "second")):
        seen = many.transcript.seen_by(name)
        assert len(seen.messages(CostMatrices)) == 1
        assert other not in seen.participants


def test_what_a_party_sends_depends_on_no_other_party():
    for play in PLAYS.values():
        one = play(party(), party("second", SECOND)).transcript
        other = play(party(), party("second", SMALL)).transcript
        first = [e.message for e in one if e.sender == "first" and e.round <= 1]
        again = [e.message for e in other if e.sender == "first" and e.round <= 1]
        if isinstance(first[0], InterpolatingMeasure | FractionRequest):
            assert first[0] == again[0]
        else:
            assert type(first[0]) is type(again[0])


def test_results_below_zero_are_distances_of_zero():
    result = DistanceEstimate("sliced", -0.5, None)
    assert result.distance == 0.0
    pairs = PairwiseResult("sliced", ("a", "b"), {("a", "b"): result}, None)
    assert pairs.squared_distances.tolist() == [[0, -0.5], [-0.5, 0]]
    assert pairs.to_frame().to_numpy().tolist() == [[0, 0], [0, 0]]


# -- parties who send what they should not

CALLS = {
    "interpolate": PLAYS["triangle"],
    "distances_at": PLAYS["secret t"],
    "cost_matrices": PLAYS["union"],
    "squared_distance_to": PLAYS["fedwad"],
    "publish_sketch": PLAYS["sliced"],
}


class Faulty:
    """A party of which one answer is replaced by something else."""

    def __init__(self, of, method, reply):
        self._of, self._method, self._reply = of, method, reply

    def __getattr__(self, name):
        if name != self._method:
            return getattr(self._of, name)
        return lambda *args: self._reply(getattr(self._of, name)(*args))


def rewritten(message, **arrays):
    """Return the bytes of a message with other numbers in it, which `Message` would not write."""
    return forged(message.to_bytes(), arrays=arrays)


def refuse(message):
    raise MessageError("no answer today")


FAULTS = {
    "truncated": (lambda m: m.to_bytes()[:-7], "damaged"),
    "wrong version": (lambda m: forged(m.to_bytes(), version=9), r"version 9; expected"),
    "other kind": (lambda m: ReferenceMeasure(np.eye(3)), r"holds 'reference' version 1; expected"),
    "an array": (lambda m: np.eye(3), "Expected a message, got ndarray"),
    "an error": (refuse, "no answer today"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", CALLS)
def test_a_faulty_party_is_named(method, fault):
    reply, text = FAULTS[fault]
    with pytest.raises(MessageError, match=f"(?s)'second'.*{text}") as caught:
        CALLS[method](party(), Faulty(party("second", SECOND), method, reply))
    assert "'first'" not in str(caught.value)


def few_columns(message):
    return type(message)(message.points[:, :2])


def of_another_request(message):
    other = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-4, 5), rng=RNG)
    return Party("x", SECOND).publish_sketch(other)


# Who lies: the second party, by this method, when the first or it begins.
LIES = [
    ("triangle", "interpolate", few_columns, "n_features is 2; expected 3"),
    ("fedwad", "interpolate", few_columns, "n_features is 2; expected 3"),
    ("secret t", "fraction_request", few_columns, "n_features is 2; expected 3"),
    ("union", "fraction_request", few_columns, "n_features is 2; expected 3"),
    (
        "secret t",
        "fraction_request",
        lambda m: FractionRequest(m.points, None, [0.1, 0.2]),
        r"fractions is .*; expected",
    ),
    (
        "secret t",
        "distances_at",
        lambda m: DistancesAtFractions(m.fractions[:2], m.squared_distances[:2]),
        r"fractions is .*; expected",
    ),
    (
        "union",
        "cost_matrices",
        lambda m: CostMatrices(m.fractions, m.costs[:, :, :5]),
        "n_targets is 5; expected 40",
    ),
    (
        "union",
        "cost_matrices",
        lambda m: CostMatrices(m.fractions / 2, m.costs),
        r"fractions is .*; expected",
    ),
    (
        "fedwad",
        "squared_distance_to",
        lambda m: forged(m.to_bytes(), {"squared_distance": -1.0}),
        "must be a number between 0",
    ),
    ("sliced", "publish_sketch", of_another_request, "does not match the request"),
    ("sliced", "publish_sketch", lambda m: STOLEN, "'second' cannot be compared"),
]
AUTHOR = party()
STOLEN = AUTHOR.publish_sketch(REQUEST)


@pytest.mark.parametrize(("name", "method", "reply", "text"), LIES)
def test_a_party_that_lies_is_named(name, method, reply, text):
    liar = Faulty(party("second", SECOND), method, reply)
    pair = (liar, AUTHOR) if method == "fraction_request" else (AUTHOR, liar)
    with pytest.raises(MessageError, match=f"(?s).*{text}") as caught:
        PLAYS[name](*pair)
    assert "'second'" in str(caught.value)


@pytest.mark.parametrize("fault", ["truncated", "wrong version", "an error"])
@pytest.mark.parametrize("order", [1, -1])
def test_the_others_lose_nothing(fault, order):
    budgets = [PrivacyBudget(epsilon=1.0) for _ in range(3)]
    honest = [party(n, THREE[n], budget=b) for n, b in zip(THREE, budgets, strict=True)]
    parties = [honest[0], Faulty(honest[1], "publish_sketch", FAULTS[fault][0]), honest[2]]
    with pytest.raises(MessageError, match="second"):
        pairwise_sliced(parties[::order], REQUEST)
    before = [p.publish_sketch(REQUEST) for p in (honest[0], honest[2])]
    spent = [budget.epsilon_spent() for budget in budgets]
    # The budgets are used up, and still everybody answers when the fault is mended.
    result = pairwise_sliced(honest, REQUEST, n_simulations=8)
    sent = result.transcript.messages(SketchMessage)
    assert [sent[0], sent[2]] == before
    assert [budget.epsilon_spent() for budget in budgets] == spent
    assert all(len(budget.history()) == 1 for budget in budgets)
    # And the two who were honest can do without the third.
    two = sliced(honest[0], honest[2], REQUEST, n_simulations=8)
    assert two.details == result.estimates["first", "third"].details
    assert [budget.epsilon_spent() for budget in budgets] == spent


@pytest.fixture
def unasked(monkeypatch):
    def fail(*args, **kwargs):
        pytest.fail("a party was asked")

    for method in (*CALLS, "fraction_request"):
        monkeypatch.setattr(Party, method, fail)


def unmet(a, b, **options):
    return triangle_to_union(a, [b], **options)


NARROW = SketchRequest.draw(2, n_projections=2, n_bins=4, bounds=(-1, 1), rng=RNG)
MEASURE = InterpolatingMeasure(np.eye(2))
BAD_CALLS = [
    (triangle, {"second": party()}, "different names"),
    (triangle, {"second": party("server")}, "other than 'server'"),
    (triangle, {"second": party("b", SECOND[:, :2])}, "the same features"),
    (fedwad, {"second": party("b", SECOND[:, :2])}, "same features"),
    (sliced, {"second": party("b", SECOND[:, :2]), "request": REQUEST}, r"others: \{'b': 2\}"),
    (triangle, {"reference": np.eye(2)}, "reference has 2 features"),
    (triangle, {"t": 1.0}, "strictly between 0 and 1"),
    (fedwad, {"t": 0.0}, "strictly between 0 and 1"),
    (fedwad, {"t": "random"}, '"drawn"'),
    (fedwad, {"n_rounds": 0}, "n_rounds"),
    (triangle, {"interpolation": "raw"}, "barycentric"),
    (unmet, {"shares": [0.0]}, "shares"),
    (unmet, {"shares": [1, 1]}, "shares"),
    # Other messages than those that are due.
    (sliced, {"request": MEASURE}, "Expected a"),
    (sliced, {"request": None}, "Expected a"),
    (sliced, {"request": NARROW}, "Nobody was asked"),
    (triangle, {"reference": REQUEST}, "not a message"),
    (triangle, {"reference": MEASURE, "disclose_t": False}, "not a message"),
    (unmet, {"reference": ReferenceMeasure(np.eye(2))}, "not a message"),
    (fedwad, {"reference": DistanceMessage(1.0)}, "not a message"),
]


@pytest.mark.parametrize(("play", "options", "text"), BAD_CALLS)
def test_wrong_arguments_are_refused_before_anybody_is_asked(play, options, text, unasked):
    options = {"second": party("b")} | options
    with pytest.raises(ValueError, match=text):
        play(party(), options.pop("second"), **options)


def test_nobody_plays_alone(unasked):
    for play in (
        lambda: pairwise_sliced([party()], REQUEST),
        lambda: triangle_to_union(party(), []),
    ):
        with pytest.raises(ValueError, match="two parties or more"):
            play()


def test_refusals_come_through_as_they_are():
    with pytest.raises(ProtocolRefusedError, match="'second' does not take part in 'triangle'"):
        triangle(party(), Party("second", SECOND), reference=GAMMA)
    with pytest.raises(BudgetExceededError, match="left"):
        sliced(party(), party("second", SECOND, budget=PrivacyBudget(epsilon=0.1)), REQUEST)
    frames = [pd.DataFrame(SECOND, columns=list(names)) for names in ("xyz", "xzy")]
    with pytest.raises(MessageError, match="(?s)'a' and 'b' cannot be compared.*names of features"):
        sliced(Party("a", frames[0]), Party("b", frames[1]), REQUEST)


class _Elsewhere:
    """What a protocol sees of a party in another process."""

    name, n_samples, n_features, allows = "first", 40, 3, PROTOCOLS


def spent_budget():
    budget = PrivacyBudget(1.0)
    Party("spent", FIRST, budget=budget).publish_sketch(REQUEST)
    return budget


def another_request_before():
    once = party()
    sliced(once, party("other", SMALL), REQUEST)
    return once


@pytest.mark.parametrize(
    ("first", "error"),
    [
        (lambda: party(allows=("triangle",)), ProtocolRefusedError),
        (lambda: party(masses=MASSES), ProtocolRefusedError),
        (another_request_before, ProtocolRefusedError),
        (lambda: party(budget=spent_budget()), BudgetExceededError),
        (lambda: _Elsewhere(), ValueError),
    ],
    ids=["not agreed", "weighted", "one sketch only", "no budget left", "elsewhere"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_refused_call_charges_no_shared_budget(first, error, place):
    """The people of all parties paid for sketches that nobody published."""
    budget, parties = PrivacyBudget(3.0), [party("second", SECOND)]
    parties.insert(place, first())
    request = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-5, 5), rng=RNG)
    with pytest.raises(error):
        pairwise_sliced(parties, request, budget=budget)
    assert len(budget.history()) == 0
    assert parties[1 - place].privacy_spent == ()
