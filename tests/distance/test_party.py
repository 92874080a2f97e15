"""Parties: rows stay where they are, and nothing is sent that the owner did not agree to."""

import copy
import pickle
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.distance import party as party_module
from skdpot.distance.messages import (
    DistanceMessage,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.distance.party import PROTOCOLS, Party, rehearsed
from skdpot.exceptions import (
    BudgetExceededError,
    MessageError,
    PrivacyWarning,
    ProtocolRefusedError,
)
from skdpot.ot.data_values import calibrated_values
from skdpot.ot.measures import DiscreteMeasure, labelled_measure
from skdpot.ot.plans import interpolate, optimal_plan
from skdpot.release import sketch_record
from skdpot.release.bounds import DataBounds
from skdpot.release.sketch_record import SketchRecord

RNG = np.random.default_rng(6053)
# Numbers that no other array holds by chance, and that are easy to find in text.
ROWS = RNG.uniform(-1, 1, (40, 3)) + 0.123456789
LABELS = np.array(["aaa", "bbb"])[RNG.integers(0, 2, 40)]
MASSES = RNG.uniform(0.5, 1.5, 40)
REFERENCE = ReferenceMeasure(RNG.normal(size=(40, 3)), None, 0.4)
GEODESIC = GeodesicMeasure(RNG.normal(size=(40, 3)), None, 0.4)
QUESTION = FractionRequest(RNG.normal(size=(7, 3)))
REQUESTS = [
    SketchRequest.draw(3, n_projections=6, n_bins=8, bounds=(-2, 2), rng=RNG) for _ in range(3)
]
ALL = {"allows": PROTOCOLS}

PLAIN_ANSWERS = {
    "interpolate": ("triangle", lambda party: party.interpolate(REFERENCE)),
    "interpolate in FedWad": ("fedwad", lambda party: party.interpolate(GEODESIC)),
    "fraction_request": ("triangle", lambda party: party.fraction_request(REFERENCE, 0.3)),
    "distances_at": ("triangle", lambda party: party.distances_at(QUESTION, REFERENCE)),
    "cost_matrices": ("triangle", lambda party: party.cost_matrices(QUESTION, REFERENCE)),
    "squared_distance_to": ("fedwad", lambda party: party.squared_distance_to(GEODESIC)),
    "values_against": ("values", lambda party: party.values_against(REFERENCE)),
}
ANSWERS = PLAIN_ANSWERS | {
    "publish_sketch": ("sliced", lambda party: party.publish_sketch(REQUESTS[0]))
}


def reachable(thing, depth=4, seen=None):
    """Yield everything that attributes, items and slots lead to, without calling anything."""
    seen = set() if seen is None else seen
    if depth < 0 or id(thing) in seen or isinstance(thing, type | type(np)):
        return
    seen.add(id(thing))
    yield thing
    children = []
    if isinstance(thing, dict):
        children += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        children += list(thing)
    for name in dir(thing):
        if name not in ("__globals__", "__builtins__"):
            try:
                children.append(getattr(thing, name))
            except Exception:
                continue
    for child in children:
        yield from reachable(child, depth - 1, seen)


def shows_rows(thing):
    if isinstance(thing, np.ndarray) and thing.size >= ROWS.size and thing.dtype.kind == "f":
        return np.isin(ROWS, thing).any()
    if isinstance(thing, pd.DataFrame):
        return np.isin(ROWS, thing.to_numpy()).any()
    if isinstance(thing, bytes | bytearray):
        return any(value.tobytes() in thing for value in ROWS.ravel())
    if isinstance(thing, str):
        return any(f"{value:.12f}"[:7] in thing for value in np.abs(ROWS).ravel())
    return False


@pytest.fixture
def untouchable(monkeypatch):
    """Fail as soon as somebody reads the rows of a party for an answer."""

    def fail(*args, **kwargs):
        pytest.fail("the rows were touched")

    monkeypatch.setattr(party_module.PartyData, "measure", property(fail))
    monkeypatch.setattr(party_module, "optimal_plan", fail)
    monkeypatch.setattr("skdpot.distance.party.SlicedSketch", fail)


def interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def named(*names):
    return pd.DataFrame(ROWS, columns=pd.Index(names, dtype=object))


# -- what shows the rows


@pytest.mark.parametrize("answered", [False, True])
def test_nothing_that_is_reached_from_a_party_holds_its_rows(answered):
    assert any(shows_rows(thing) for thing in reachable([{"rows": ROWS}, pickle.dumps(ROWS)]))
    party = Party("north", ROWS, **ALL)
    if answered:
        for _, ask in ANSWERS.values():
            ask(party)
    assert not any(shows_rows(thing) for thing in reachable(party))
    assert repr(party) == f"Party('north', n_samples=40, n_features=3, allows={PROTOCOLS})"
    facts = "name n_samples n_features n_dimensions allows feature_names epsilon delta budget"
    assert list(vars(party)) == facts.split()


@pytest.mark.parametrize(
    "duplicate",
    [pickle.dumps, copy.copy, copy.deepcopy, lambda party: clone(party, safe=False)],
    ids=["pickle", "copy", "deepcopy", "clone"],
)
def test_a_party_is_not_copied(duplicate):
    with pytest.raises(TypeError, match="cannot be pickled or copied: its rows stay"):
        duplicate(Party("north", ROWS))


LONG, LONE = "a" * 600_000, "\ud800"
REFUSED = [
    ((np.where(ROWS > 1, np.nan, ROWS),), {}, "contains NaN"),
    (([["0.123456x"], ["1"]],), {}, "cannot be read as numbers"),
    ((ROWS[:1],), {}, "minimum of 2 is required"),
    ((ROWS[0],), {}, "Expected 2D array"),
    ((ROWS, LABELS[:5]), {}, "y has 5 labels for 40 rows"),
    ((ROWS, ROWS[:, 0]), {}, "Unknown label type"),
    ((ROWS,), {"masses": -MASSES}, "masses"),
    ((ROWS * 1e200,), {"masses": MASSES}, r"1e\+150"),
    ((ROWS,), {"name": "  "}, "name must be text"),
    ((ROWS,), {"name": LONE}, "printable"),
    ((ROWS,), {"name": "\x1b[2Jnorth"}, "printable"),
    ((ROWS,), {"allows": ("all",)}, "allows must hold"),
    ((ROWS,), {"allows": ()}, "allows must hold"),
    ((ROWS,), {"epsilon": 0}, "epsilon"),
    ((ROWS,), {"delta": 1.0}, "delta"),
    ((ROWS,), {"budget": 1.0}, "must be a PrivacyBudget"),
    ((ROWS,), {"random_state": "0"}, "seed|Seed"),
    ((ROWS, LABELS), {"covariance": "none"}, "covariance"),
    # Names of columns that no message can hold.
    ((named(LONG, "b", "c"),), {}, "Column names may take"),
    ((named("\0" * 100_000, "b", "c"),), {}, "Column names may take"),
    ((named(LONE, "b", "c"),), {}, "Column names must be valid"),
]


@pytest.mark.parametrize(("data", "terms", "text"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_cannot_be_used_is_refused_without_a_word_about_it(data, terms, text):
    with pytest.raises((ValueError, TypeError), match=text) as caught:
        Party(**{"name": "north", "X": data[0], "y": (*data, None)[1]} | terms)
    chain = [caught.value]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for error in chain:
        said = "".join(traceback.format_exception_only(error))
        assert not shows_rows(said)
        assert len(said) < 400


def test_public_facts_and_the_longest_names_that_are_sent():
    names = ("é" * 130_000, "\n", '"')
    party = Party("north", named(*names), allows="sliced", epsilon=0.5, delta=1e-6)
    due = ("north", 40, 3, 3, ("sliced",), names, 0.5, 1e-6, None)
    assert tuple(vars(party).values()) == due
    arrived = SketchMessage.from_bytes(party.publish_sketch(REQUESTS[0]).to_bytes())
    assert tuple(arrived.sketch.feature_names_in_) == names
    for covariance, n_dimensions in (("full", 15), ("diagonal", 9)):
        assert Party("b", ROWS, LABELS, covariance=covariance).n_dimensions == n_dimensions


# -- what the owner agreed to


@pytest.mark.parametrize("name", ANSWERS)
def test_only_what_is_allowed_is_answered_and_no_finite_budget_pays_for_rows(name, request):
    protocol, ask = ANSWERS[name]
    others = tuple(other for other in PROTOCOLS if other != protocol)
    budgets = [PrivacyBudget(epsilon) for epsilon in (np.inf, 100.0)]
    if name in PLAIN_ANSWERS:  # a budget without limit keeps the history
        ask(Party("north", ROWS, budget=budgets[0], **ALL))
        (label,) = budgets[0].history()["label"]
        assert protocol in label
    request.getfixturevalue("untouchable")
    n_charges = len(budgets[0].history())
    with pytest.raises(ProtocolRefusedError, match=f"does not take part in '{protocol}'"):
        ask(Party("north", ROWS, allows=others, budget=budgets[0]))
    if name in PLAIN_ANSWERS:
        with pytest.raises(PermissionError, match=r"Only its owner can allow more"):
            ask(Party("north", ROWS))  # the default
        with pytest.raises(BudgetExceededError, match="NonPrivateEvent|left"):
            ask(Party("north", ROWS, budget=budgets[1], **ALL))
    assert [len(budget.history()) for budget in budgets] == [n_charges, 0]


WRONG_QUESTIONS = {
    "rows instead of a message": lambda party: party.interpolate(ROWS),
    "sketch request": lambda party: party.interpolate(REQUESTS[0]),
    "own message": lambda party: party.interpolate(InterpolatingMeasure(ROWS)),
    "no t": lambda party: party.interpolate(ReferenceMeasure(ROWS)),
    "t = 0": lambda party: party.interpolate(REFERENCE, 0.0),
    "t = 1": lambda party: party.fraction_request(REFERENCE, 1.0),
    "kind": lambda party: party.interpolate(REFERENCE, kind="raw"),
    "features": lambda party: party.interpolate(ReferenceMeasure(np.eye(2), None, 0.5)),
    "features of a question": lambda p: p.distances_at(FractionRequest(np.eye(2)), REFERENCE),
    "features of the reference": lambda p: p.cost_matrices(QUESTION, ReferenceMeasure(np.eye(2))),
    "reference as question": lambda party: party.distances_at(REFERENCE, REFERENCE),
    "question as reference": lambda party: party.cost_matrices(QUESTION, QUESTION),
    "fractions": lambda party: party.fraction_request(REFERENCE, 0.5, [0.0, 0.5]),
    "answer too large": lambda party: party.cost_matrices(
        FractionRequest(np.ones((10**6, 3)), None, np.linspace(0.1, 0.9, 9)), REFERENCE
    ),
    "reference for a distance": lambda party: party.squared_distance_to(REFERENCE),
    "values against a distance": lambda party: party.values_against(DistanceMessage(1.0)),
    "values against rows": lambda party: party.values_against(ROWS),
    "sketch for a reference": lambda party: party.publish_sketch(REFERENCE),
    "sketch of other features": lambda party: party.publish_sketch(
        SketchRequest.draw(2, n_projections=2, n_bins=4, bounds=(-1, 1), rng=RNG)
    ),
}


@pytest.mark.parametrize("case", WRONG_QUESTIONS)
def test_wrong_questions_are_refused_before_anything_happens(case, untouchable):
    budget = PrivacyBudget(epsilon=np.inf)
    with pytest.raises(MessageError, match="Expected|strictly|must be|features|far to go|at most"):
        WRONG_QUESTIONS[case](Party("north", ROWS, budget=budget, **ALL))
    assert len(budget.history()) == 0


# -- the private answer


def test_another_request_is_charged_again_until_the_budget_ends():
    budget = PrivacyBudget(epsilon=1.5)
    party = Party("north", ROWS, epsilon=0.9, budget=budget)
    first, second = (party.publish_sketch(request) for request in REQUESTS[:2])
    assert second != first
    assert party.privacy_spent == (first.statement, second.statement)
    spent = budget.epsilon_spent()
    alone = Party("south", ROWS)
    only = alone.publish_sketch(REQUESTS[0])
    for asked, error, text in (
        (party, BudgetExceededError, "left"),
        (alone, ProtocolRefusedError, "has published its sketch, for another request"),
        (Party("west", ROWS, masses=MASSES), ProtocolRefusedError, "counts every row once"),
    ):
        with pytest.raises(error, match=text):
            asked.publish_sketch(REQUESTS[2])
    # A refusal changes nothing, and what is published stays so.
    again = SketchRequest.from_bytes(REQUESTS[0].to_bytes())
    assert party.publish_sketch(again) == first
    assert party.publish_sketch(REQUESTS[1]) == second
    assert alone.publish_sketch(again) == only
    assert (budget.epsilon_spent(), len(party.privacy_spent)) == (spent, 2)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ((sketch_record, "_LARGEST_NOISE", 1.0), MessageError),
        ((SketchRecord, "most_header", 500), MessageError),
        ((SlicedSketch, "fit", interrupted), KeyboardInterrupt),
    ],
    ids=["noise", "header", "interrupted"],
)
def test_a_sketch_that_cannot_be_sent_is_not_paid_for(fault, error, monkeypatch):
    budget = PrivacyBudget(epsilon=1.0)
    party = Party("north", ROWS, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(*fault)
        with pytest.raises(error):
            party.publish_sketch(REQUESTS[0])
    assert len(budget.history()) == 0
    assert party.privacy_spent == ()
    # Nothing was used up: the whole budget is there for the next request.
    assert isinstance(party.publish_sketch(REQUESTS[1]), SketchMessage)


def test_requests_at_the_same_time_are_one_release():
    budget, start = PrivacyBudget(epsilon=5.0), threading.Barrier(6)
    party = Party("north", ROWS, budget=budget)

    def ask(_):
        start.wait()
        return party.publish_sketch(REQUESTS[0]).to_bytes()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(ask, range(6)))) == 1
    assert len(budget.history()) == 1


def test_a_sketch_measures_what_was_asked_and_clips_to_the_given_bounds():
    request = SketchRequest.draw(3, n_projections=3, n_bins=8, bounds=(-0.5, 0.5), rng=RNG)
    party = Party("north", named("x", "y", "z"), epsilon=np.inf)
    sketch = request.read(party.publish_sketch(request))
    due = SlicedSketch(np.inf, **request.sketch_parameters).fit(named("x", "y", "z"))
    for fact in ("statistic_", "feature_names_in_", "n_samples_", "bounds_"):
        np.testing.assert_array_equal(getattr(sketch, fact), getattr(due, fact))


@pytest.mark.parametrize("center", [0.0, 1e-300, -1e150, 1e300, 1.7e308])
@pytest.mark.parametrize("scale", [1e-320, 1e-150, 1.0, 1e150, 1.7e308])
@pytest.mark.parametrize(("radius", "box"), [(1.0, False), (1e30, True), (1e30, False)])
def test_no_request_makes_a_party_pay_for_nothing(center, scale, radius, box):
    bounds = DataBounds(np.full(3, center), np.full(3, scale), radius, box)
    budget = PrivacyBudget(epsilon=1.0)
    party = Party("north", ROWS, budget=budget)
    try:
        request = SketchRequest.from_bytes(SketchRequest(np.eye(3), 8, bounds).to_bytes())
    except MessageError:
        return
    assert request.read(party.publish_sketch(request)).n_samples_ == 40


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("seed", [lambda: 0, lambda: np.random.RandomState(0)])
def test_equal_seeds_give_no_equal_noise(seed):
    """The difference of two releases with equal noise is exact."""

    def noise(name, request):
        party = Party(name, ROWS, budget=PrivacyBudget(epsilon=5.0), random_state=seed())
        return party.publish_sketch(request).record.statistic

    # Two requests whose tables count alike: the second one differs by a last digit.
    bounds = REQUESTS[0].bounds
    wider = DataBounds(bounds.center, np.nextafter(bounds.scale, 9), bounds.radius, bounds.box)
    almost = SketchRequest(REQUESTS[0].directions, 8, wider)
    with pytest.warns(PrivacyWarning, match="random_state"):
        one = noise("a", REQUESTS[0])
    np.testing.assert_array_equal(one, noise("a", REQUESTS[0]))
    for other in (noise("b", REQUESTS[0]), noise("a", almost)):
        # Noise has a standard deviation of 10, and independent noise never agrees.
        assert (one != other).mean() > 0.9


@pytest.mark.parametrize("epsilon", [0.3, 7.0, np.inf])
@pytest.mark.parametrize("budget", [None, np.inf])
def test_the_rehearsal_is_the_message_but_for_its_table(epsilon, budget):
    budget = budget and PrivacyBudget(epsilon=budget)
    party = Party("north", pd.DataFrame(ROWS, columns=list("xyz")), epsilon=epsilon, budget=budget)
    before = rehearsed(party, REQUESTS[0]).record
    sent = party.publish_sketch(REQUESTS[0]).record
    same = {"assumptions": (), "mechanism": ""}
    before, sent = (replace(one, spent=replace(one.spent, **same)) for one in (before, sent))
    assert not before.statistic.any()
    assert before.statistic.shape == sent.statistic.shape
    assert replace(before, statistic=sent.statistic).to_bytes() == sent.to_bytes()


# -- the answers that are not private


def test_arguments_come_before_what_a_message_says():
    """That the numbers are right is asked of the protocols."""
    party = Party("north", ROWS, masses=MASSES, **ALL)
    sent = ReferenceMeasure(REFERENCE.points, None, 0.3, "exact")
    moved, asked = party.interpolate(sent), party.fraction_request(sent, 0.3)
    assert party.interpolate(REFERENCE, 0.3, "exact") == moved
    np.testing.assert_array_equal(asked.points, moved.points)
    plan = optimal_plan(DiscreteMeasure(ROWS, MASSES), REFERENCE.measure)
    due = calibrated_values(plan.source_potential, plan.source.masses)
    np.testing.assert_allclose(party.values_against(REFERENCE.measure).values, due, atol=1e-9)


def test_labels_are_compared_with_their_rows():
    party = Party("north", ROWS, LABELS, **ALL)
    reference = ReferenceMeasure(RNG.normal(size=(9, party.n_dimensions)), None, 0.4)
    plan = optimal_plan(labelled_measure(ROWS, LABELS), reference.measure)
    due = interpolate(plan, 0.4)
    np.testing.assert_allclose(party.interpolate(reference).points, due.points, atol=1e-12)
    with pytest.raises(MessageError, match="compares 15 features, and was asked about 3"):
        party.interpolate(REFERENCE)
    # The sketch is of the rows alone: a mean of a class is not one person's contribution.
    assert party.publish_sketch(REQUESTS[0]).sketch.n_features_in_ == 3
