"""Protocols: the numbers of a direct computation, and nothing sent that is not written down."""

import numpy as np
import ot
import pandas as pd
import pytest

from skdpot import PrivacyBudget
from skdpot.distance.debiased import debiased_squared_distance
from skdpot.distance.estimates import DistanceEstimate, PairwiseResult
from skdpot.distance.fedwad import fedwad, fractions_of_rounds, pairwise_fedwad
from skdpot.distance.messages import (
    FRACTIONS,
    CostMatrices,
    DistancesAtFractions,
    FractionRequest,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.distance.party import PROTOCOLS, Party
from skdpot.distance.sliced import pairwise_sliced, sliced
from skdpot.distance.triangle import pairwise_triangle, rescaled, triangle, triangle_to_union
from skdpot.exceptions import BudgetExceededError, MessageError, ProtocolRefusedError
from skdpot.ot.measures import DiscreteMeasure
from skdpot.ot.plans import interpolate, optimal_plan
from tests.contract.hostile_files import forged

RNG = np.random.default_rng(2750)
FIRST = RNG.normal(size=(40, 3))
SECOND = RNG.normal(0.7, 1.3, size=(40, 3))
SMALL = RNG.normal(-0.5, 0.6, size=(23, 3))
MASSES = RNG.uniform(0.5, 2, 40)
GAMMA = DiscreteMeasure(RNG.normal(size=(40, 3)))
REQUEST = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-5, 5), rng=RNG)
THREE = {"first": FIRST, "second": SECOND, "third": SMALL}


def party(name="first", rows=None, **parameters):
    rows = THREE.get(name, SECOND) if rows is None else rows
    return Party(name, rows, **{"allows": PROTOCOLS} | parameters)


# -- the numbers


@pytest.mark.parametrize("kind", ["barycentric", "exact"])
@pytest.mark.parametrize("masses", [None, MASSES])
@pytest.mark.parametrize("others", [SECOND, SMALL])
def test_triangle_wad_equals_the_direct_computation(kind, masses, others):
    def moved(rows, t, masses=None):
        return interpolate(optimal_plan(DiscreteMeasure(rows, masses), GAMMA), t, kind=kind)

    def distance(measure):
        return optimal_plan(measure, eta).squared_distance

    options = {"t": 0.3, "reference": GAMMA, "interpolation": kind}
    own, other = party(masses=masses), party("second", others)
    eta, theirs, third = moved(FIRST, 0.3, masses), moved(others, 0.3), moved(SMALL, 0.3)
    result = triangle(own, other, **options)
    assert result.squared_distance == pytest.approx(rescaled(distance(theirs), 0.3), rel=1e-9)
    assert result.distance**2 == pytest.approx(result.squared_distance)
    # The plan between the messages comes along: it values the rows of both sides.
    assert rescaled(result.details.squared_distance, 0.3) == result.squared_distance
    assert len(result.details.source_potential) == result.details.source.n_points
    # A secret t is read off a parabola.
    secret = triangle(own, other, disclose_t=False, **options)
    due = [distance(moved(others, s)) for s in FRACTIONS]
    (answer,) = secret.transcript.messages(DistancesAtFractions)
    np.testing.assert_allclose(answer.squared_distances, due, rtol=1e-9)
    at_t = np.polyval(np.polyfit(FRACTIONS, due, 2), 0.3)
    assert secret.squared_distance == pytest.approx(rescaled(at_t, 0.3), rel=1e-9)
    # A union of two, of which one has three quarters.
    sellers = [other, party("third")]
    found = triangle_to_union(own, sellers, disclose_t=True, shares=[3, 1], **options)
    weights = np.concatenate([0.75 * theirs.weights, 0.25 * third.weights])
    union = DiscreteMeasure(np.vstack([theirs.points, third.points]), weights)
    assert found.squared_distance == pytest.approx(rescaled(distance(union), 0.3), rel=1e-9)


@pytest.mark.parametrize("others", [SECOND, SMALL])
@pytest.mark.parametrize("t", ["drawn", 0.5])
def test_fedwad_equals_the_rounds_in_one_place(others, t):
    options = {"n_rounds": 4, "t": t, "reference": GAMMA, "rng": np.random.default_rng(5)}
    result = fedwad(party(), party("second", others), **options)
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
    exact = ot.emd2([], [], ot.dist(FIRST, others))
    assert result.squared_distance >= exact * (1 - 1e-9)


def test_sliced_equals_the_estimate_from_the_released_sketches():
    first, second = party(epsilon=3.0), party("second", epsilon=1.0)
    result = sliced(first, second, REQUEST)
    due = debiased_squared_distance(
        *(REQUEST.read(p.publish_sketch(REQUEST)) for p in (first, second))
    )
    assert result.details == due
    assert (result.squared_distance, result.distance) == (due.squared, due.distance)
    data = sliced(first, second, REQUEST, target="data", n_simulations=20)
    assert (data.details.target, data.details.n_simulations) == ("data", 20)
    assert [len(p.privacy_spent) for p in (first, second)] == [1, 1]


def test_pairwise_distances_equal_those_of_pairs():
    for both, pair, options in (
        (pairwise_triangle, triangle, {"t": 0.3, "reference": GAMMA}),
        (pairwise_fedwad, fedwad, {"n_rounds": 2, "t": 0.5, "reference": GAMMA}),
    ):
        result = both([party(name) for name in THREE], **options)
        frame = result.to_frame()
        assert list(frame.index) == list(frame.columns) == list(THREE)
        np.testing.assert_array_equal(result.squared_distances, result.squared_distances.T)
        for (i, j), estimate in result.estimates.items():
            due = pair(party(i), party(j), **options)
            assert frame.loc[i, j] == pytest.approx(due.distance, rel=1e-12)
            assert type(estimate.details) is type(due.details)
        assert np.diag(result.distances).tolist() == [0, 0, 0]
        assert "3 parties" in repr(result)
    below = DistanceEstimate("sliced", -0.5, None)
    pairs = PairwiseResult("sliced", ("a", "b"), {("a", "b"): below}, None)
    assert pairs.squared_distances.tolist() == [[0, -0.5], [-0.5, 0]]
    assert pairs.to_frame().to_numpy().tolist() == [[0, 0], [0, 0]]


# -- the transcript

PLAYS = {
    "triangle": lambda a, b: triangle(a, b, reference=GAMMA),
    "secret t": lambda a, b: triangle(a, b, reference=GAMMA, t=0.123456789, disclose_t=False),
    "union": lambda a, b: triangle_to_union(a, [b], reference=GAMMA),
    "fedwad": lambda a, b: fedwad(a, b, n_rounds=2, reference=GAMMA, rng=np.random.default_rng(0)),
    "sliced": lambda a, b: sliced(a, b, REQUEST, n_simulations=8),
    "pairwise triangle": lambda a, b: pairwise_triangle([a, b], reference=GAMMA),
}


class Observed:
    """A party whose answers are noted; one of them may be replaced by something else."""

    def __init__(self, of, method=None, reply=None):
        self.of, self.method, self.reply, self.sent = of, method, reply, []

    def __getattr__(self, name):
        attribute = getattr(self.of, name)
        if not callable(attribute):
            return attribute

        def answer(*args):
            self.sent.append(attribute(*args))
            return self.reply(self.sent[-1]) if name == self.method else self.sent[-1]

        return answer


def both_ways(to_parties, to_server):
    ways = {f"server {name} {kind}" for name in ("first", "second") for kind in to_parties}
    return ways | {f"{name} server {kind}" for name in ("first", "second") for kind in to_server}


# Who sends what to whom, and nothing else.
TRIANGLE = both_ways(["reference"], ["interpolating measure"])
ASKED = both_ways(["reference"], []) | {"first second fraction request"}
FLOWS = {
    "triangle": TRIANGLE | both_ways(["distance"], []),
    "pairwise triangle": TRIANGLE,
    "secret t": ASKED | {"second first distances at fractions"},
    "union": ASKED | {"second first cost matrices"},
    "fedwad": both_ways(["geodesic measure", "distance"], ["interpolating measure", "distance"]),
    "sliced": both_ways(["sketch request"], ["sketch"]),
}


@pytest.mark.parametrize("name", PLAYS)
def test_the_transcript_holds_exactly_what_was_sent(name):
    first, second = Observed(party()), Observed(party("second"))
    transcript = PLAYS[name](first, second).transcript
    for participant in (first, second):
        recorded = transcript.messages(Message, sender=participant.name)
        assert list(dict.fromkeys(recorded)) == list(dict.fromkeys(participant.sent))
        # What is recorded is what arrived, not the sender's own object.
        assert not {id(m) for m in recorded} & {id(m) for m in participant.sent}
    for participant in ("server", "first", "second"):
        seen = transcript.seen_by(participant)
        assert list(seen) == [e for e in transcript if participant in (e.sender, e.recipient)]
    flows = transcript.to_frame()[["sender", "recipient", "kind"]].drop_duplicates()
    assert {" ".join(flow) for flow in flows.to_numpy()} == FLOWS[name]
    sizes = [len(entry.message.to_bytes()) for entry in transcript]
    assert transcript.n_bytes == sum(sizes) == transcript.to_frame()["n_bytes"].sum()
    rounds = [entry.round for entry in transcript]
    assert rounds == sorted(rounds)
    if name == "secret t":
        sent = b"".join(entry.message.to_bytes() for entry in transcript)
        assert np.array(0.123456789).tobytes() not in sent
        assert b"0.12345" not in sent
    # What a party sends depends on no other party.
    again = Observed(party())
    PLAYS[name](again, party("second", SMALL))
    assert type(first.sent[0]) is type(again.sent[0])
    if name not in ("sliced", "fedwad"):
        assert first.sent[:1] == again.sent[:1]


def test_a_transcript_grows_only_and_shows_sizes_and_meanings():
    transcript = PLAYS["triangle"](party(), party("second")).transcript
    with pytest.raises(TypeError, match="holds messages, got str"):
        transcript.record(0, "north", "server", "rows")
    n, seen = len(transcript), transcript.seen_by("second")
    seen.record(9, "first", "second", transcript.entries[0].message)
    assert f"{n} messages, {transcript.n_bytes} bytes" in repr(transcript)
    card = transcript._repr_html_()
    assert "first → server: 1 × interpolating measure" in card
    assert "Every row of the sender" in card


# -- parties who send what they should not


def few_columns(message):
    return type(message)(message.points[:, :2])


def of_another_request(message):
    other = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-4, 5), rng=RNG)
    return Party("x", SECOND).publish_sketch(other)


def refuse(message):
    raise MessageError("no answer today")


METHODS = {
    "interpolate": "triangle",
    "distances_at": "secret t",
    "cost_matrices": "union",
    "squared_distance_to": "fedwad",
    "publish_sketch": "sliced",
}
FAULTS = {
    "truncated": (lambda m: m.to_bytes()[:-7], "damaged"),
    "wrong version": (lambda m: forged(m.to_bytes(), version=9), r"version 9; expected"),
    "other kind": (lambda m: ReferenceMeasure(np.eye(3)), r"holds 'reference' version 1; expected"),
    "an array": (lambda m: np.eye(3), "Expected a message, got ndarray"),
    "an error": (refuse, "no answer today"),
}
OTHER_FRACTIONS = r"fractions is .*; expected"
AUTHOR = party()
STOLEN = AUTHOR.publish_sketch(REQUEST)
# Who lies: the second party, by this method, when the first or it begins.
LIES = [
    *((play, method, *fault) for method, play in METHODS.items() for fault in FAULTS.values()),
    ("triangle", "interpolate", few_columns, "n_features is 2; expected 3"),
    ("fedwad", "interpolate", few_columns, "n_features is 2; expected 3"),
    ("secret t", "fraction_request", few_columns, "n_features is 2; expected 3"),
    ("union", "fraction_request", few_columns, "n_features is 2; expected 3"),
    ("secret t", "fraction_request", lambda m: FractionRequest(m.points, None, [0.1, 0.2]),
     OTHER_FRACTIONS),
    ("secret t", "distances_at",
     lambda m: DistancesAtFractions(m.fractions[:2], m.squared_distances[:2]), OTHER_FRACTIONS),
    ("union", "cost_matrices", lambda m: CostMatrices(m.fractions, m.costs[:, :, :5]),
     "n_targets is 5; expected 40"),
    ("union", "cost_matrices", lambda m: CostMatrices(m.fractions / 2, m.costs), OTHER_FRACTIONS),
    ("fedwad", "squared_distance_to", lambda m: forged(m.to_bytes(), {"squared_distance": -1.0}),
     "must be a number between 0"),
    ("sliced", "publish_sketch", of_another_request, "does not match the request"),
    ("sliced", "publish_sketch", lambda m: STOLEN, "'second' cannot be compared"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method", "reply", "text"), LIES)
def test_a_faulty_party_is_named(name, method, reply, text):
    liar = Observed(party("second"), method, reply)
    pair = (liar, AUTHOR) if method == "fraction_request" else (AUTHOR, liar)
    with pytest.raises(MessageError, match=f"(?s).*{text}") as caught:
        PLAYS[name](*pair)
    assert "'second'" in str(caught.value)
    assert "'first'" not in str(caught.value) or "compared" in text


@pytest.mark.parametrize(("fault", "order"), [("truncated", 1), ("an error", -1)])
def test_the_others_lose_nothing(fault, order):
    budgets = [PrivacyBudget(epsilon=1.0) for _ in range(3)]
    honest = [party(name, budget=budget) for name, budget in zip(THREE, budgets, strict=True)]
    faulty = Observed(honest[1], "publish_sketch", FAULTS[fault][0])
    with pytest.raises(MessageError, match="second"):
        pairwise_sliced([honest[0], faulty, honest[2]][::order], REQUEST)
    before = [p.publish_sketch(REQUEST) for p in (honest[0], honest[2])]
    spent = [budget.epsilon_spent() for budget in budgets]
    # The budgets are used up, and still everybody answers when the fault is mended,
    result = pairwise_sliced(honest, REQUEST, n_simulations=8)
    sent = result.transcript.messages(SketchMessage)
    assert [sent[0], sent[2]] == before
    # and the two who were honest can do without the third.
    two = sliced(honest[0], honest[2], REQUEST, n_simulations=8)
    assert two.details == result.estimates["first", "third"].details
    assert [budget.epsilon_spent() for budget in budgets] == spent
    assert all(len(budget.history()) == 1 for budget in budgets)


@pytest.fixture
def unasked(monkeypatch):
    def fail(*args, **kwargs):
        pytest.fail("a party was asked")

    for method in (*METHODS, "fraction_request"):
        monkeypatch.setattr(Party, method, fail)


def union(a, b, **options):
    return triangle_to_union(a, [b], **options)


NARROW = SketchRequest.draw(2, n_projections=2, n_bins=4, bounds=(-1, 1), rng=RNG)
MEASURE = InterpolatingMeasure(np.eye(2))
BAD_CALLS = [
    (triangle, {"second": party()}, "different names"),
    (triangle, {"second": party("server")}, "other than 'server'"),
    (triangle, {"second": party("b", SECOND[:, :2])}, "the same features"),
    (sliced, {"second": party("b", SECOND[:, :2]), "request": REQUEST}, r"others: \{'b': 2\}"),
    (triangle, {"reference": np.eye(2)}, "reference has 2 features"),
    (triangle, {"t": 1.0}, "strictly between 0 and 1"),
    (fedwad, {"t": 0.0}, "strictly between 0 and 1"),
    (fedwad, {"t": "random"}, '"drawn"'),
    (fedwad, {"n_rounds": 0}, "n_rounds"),
    (triangle, {"interpolation": "raw"}, "barycentric"),
    (union, {"shares": [1, 1]}, "shares"),
    # Other messages than those that are due.
    (sliced, {"request": MEASURE}, "Expected a"),
    (sliced, {"request": NARROW}, "Nobody was asked"),
    (triangle, {"reference": REQUEST}, "not a message"),
    (union, {"reference": ReferenceMeasure(np.eye(2))}, "not a message"),
    (fedwad, {"reference": MEASURE}, "not a message"),
    # Nobody plays alone.
    (lambda a, b: pairwise_sliced([a], REQUEST), {}, "two parties or more"),
    (lambda a, b: triangle_to_union(a, []), {}, "two parties or more"),
]


@pytest.mark.parametrize(("play", "options", "text"), BAD_CALLS)
def test_wrong_arguments_are_refused_before_anybody_is_asked(play, options, text, unasked):
    options = {"second": party("b")} | options
    with pytest.raises(ValueError, match=text):
        play(party(), options.pop("second"), **options)


def test_refusals_come_through_as_they_are():
    with pytest.raises(ProtocolRefusedError, match="'second' does not take part in 'triangle'"):
        triangle(party(), Party("second", SECOND), reference=GAMMA)
    frames = [pd.DataFrame(SECOND, columns=list(names)) for names in ("xyz", "xzy")]
    with pytest.raises(MessageError, match="(?s)'a' and 'b' cannot be compared.*names of features"):
        sliced(Party("a", frames[0]), Party("b", frames[1]), REQUEST)


@pytest.mark.parametrize("order", [1, -1])
def test_a_shared_budget_pays_for_the_least_private_party(order):
    budget = PrivacyBudget(3.0)
    parties = [party("first", epsilon=0.5), party("second", epsilon=2.0)]
    pairwise_sliced(parties[::order], REQUEST, n_simulations=8, budget=budget)
    assert len(budget.history()) == 1
    assert 2.0 <= budget.epsilon_spent() < 2.1


class _Elsewhere:
    """What a protocol sees of a party in another process."""

    name, n_samples, n_features, allows = "first", 40, 3, PROTOCOLS


def that_published_before(budget=None):
    once = party(budget=budget)
    once.publish_sketch(REQUEST)
    return once


UNPAID = {
    "not agreed": (lambda: party(allows=("triangle",)), ProtocolRefusedError),
    "weighted": (lambda: party(masses=MASSES), ProtocolRefusedError),
    "one sketch only": (that_published_before, ProtocolRefusedError),
    "no budget left": (lambda: that_published_before(PrivacyBudget(1.0)), BudgetExceededError),
    "elsewhere": (_Elsewhere, ValueError),
}


@pytest.mark.parametrize("case", UNPAID)
@pytest.mark.parametrize("place", [0, 1])
def test_a_refused_call_charges_no_shared_budget(case, place):
    """The people of all parties paid for sketches that nobody published."""
    first, error = UNPAID[case]
    budget, parties = PrivacyBudget(3.0), [party("second")]
    parties.insert(place, first())
    request = SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-5, 5), rng=RNG)
    with pytest.raises(error):
        pairwise_sliced(parties, request, budget=budget)
    assert len(budget.history()) == 0
    assert parties[1 - place].privacy_spent == ()
