"""Parties: rows stay where they are, and nothing is sent that the owner did not agree to."""

import copy
import gc
import io
import pickle
import threading
import traceback
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skdpot import PrivacyBudget
from skdpot.exceptions import (
    BudgetExceededError,
    MessageError,
    PrivacyWarning,
    ProtocolRefusedError,
    SkdpotError,
)
from skdpot.federated import party as party_module
from skdpot.federated.messages import (
    DistanceMessage,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
    SketchMessage,
    SketchRequest,
)
from skdpot.federated.party import PROTOCOLS, Party, rehearsed
from skdpot.federated.valuation import calibrated_values
from skdpot.ot.measures import DiscreteMeasure, interpolate, labelled_measure, optimal_plan
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
    "publish_sketch": ("sliced", lambda party: party.publish_sketch(REQUESTS[0])),
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
    monkeypatch.setattr(party_module, "optimal_plan", fail)
    monkeypatch.setattr("skdpot.federated.party.SlicedSketch", fail)


# -- what shows the rows


def test_the_search_finds_rows():
    class Leaky:
        def __init__(self):
            self._data = {"rows": [ROWS]}

    assert any(shows_rows(thing) for thing in reachable(Leaky()))
    assert shows_rows(f"{ROWS[0, 0]:.9f}")
    assert shows_rows(pickle.dumps(ROWS))


@pytest.mark.parametrize("answered", [False, True])
def test_nothing_that_is_reached_from_a_party_holds_its_rows(answered):
    party = Party("north", ROWS, **ALL)
    if answered:
        for _, ask in ANSWERS.values():
            ask(party)
    assert not any(shows_rows(thing) for thing in reachable(party))
    assert repr(party) == str(party)
    assert repr(party) == f"Party('north', n_samples=40, n_features=3, allows={PROTOCOLS})"
    facts = "name n_samples n_features n_dimensions allows feature_names epsilon delta budget"
    assert list(vars(party)) == facts.split()
    for name in ("rows", "allows"):
        with pytest.raises(AttributeError, match="cannot assign"):
            setattr(party, name, PROTOCOLS)


@pytest.mark.parametrize(
    "duplicate",
    [pickle.dumps, copy.copy, copy.deepcopy, lambda party: clone(party, safe=False)],
    ids=["pickle", "copy", "deepcopy", "clone"],
)
def test_a_party_is_not_copied(duplicate):
    with pytest.raises(TypeError, match="cannot be pickled or copied: its rows stay"):
        duplicate(Party("north", ROWS))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.Pickler(io.BytesIO()).dump([Party("north", ROWS)])


def test_parties_of_equal_facts_are_two():
    one, other = Party("north", ROWS, **ALL), Party("north", -ROWS, **ALL)
    assert one != other
    assert one.interpolate(REFERENCE) != other.interpolate(REFERENCE)


def test_rows_go_with_the_party():
    party = Party("north", ROWS, **ALL)
    party.interpolate(REFERENCE)
    kept = weakref.ref(party_module.data_of(party))
    del party
    gc.collect()
    assert kept() is None


def test_later_changes_of_the_callers_arrays_do_not_matter():
    rows, labels, masses = ROWS.copy(), LABELS.copy(), MASSES.copy()
    party = Party("north", rows, labels, masses=masses, **ALL)
    plain = Party("north", rows, **ALL)
    before = party.interpolate(reference_for(party))
    rows[:], labels[:], masses[:] = 0, "aaa", 1
    assert party.interpolate(reference_for(party)) == before
    assert plain.interpolate(REFERENCE) == Party("north", ROWS, **ALL).interpolate(REFERENCE)
    assert rows.flags.writeable


def reference_for(party):
    return ReferenceMeasure(
        np.random.default_rng(0).normal(size=(9, party.n_dimensions)), None, 0.4
    )


BAD_DATA = {
    "NaN": (lambda: Party("north", np.where(ROWS > 1, np.nan, ROWS)), "contains NaN"),
    "text": (lambda: Party("north", [["0.123456x"], ["1"]]), "cannot be read as numbers"),
    "one row": (lambda: Party("north", ROWS[:1]), "minimum of 2 is required"),
    "vector": (lambda: Party("north", ROWS[0]), "Expected 2D array"),
    "few labels": (lambda: Party("north", ROWS, LABELS[:5]), "y has 5 labels for 40 rows"),
    "real labels": (lambda: Party("north", ROWS, ROWS[:, 0]), "Unknown label type"),
    "few masses": (lambda: Party("north", ROWS, masses=MASSES[:5]), "masses"),
    "negative masses": (lambda: Party("north", ROWS, masses=-MASSES), "masses"),
    "NaN masses": (lambda: Party("north", ROWS, masses=MASSES * np.nan), "masses"),
    "huge rows": (lambda: Party("north", ROWS * 1e200, masses=MASSES), r"1e\+150"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_unusable_data_are_refused_without_a_word_about_them(case):
    make, text = BAD_DATA[case]
    with pytest.raises((ValueError, TypeError), match=text) as caught:
        make()
    chain = [caught.value]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for error in chain:
        assert not shows_rows("".join(traceback.format_exception_only(error)))


BAD_TERMS = {
    "name": (lambda: Party("  ", ROWS), ValueError, "name must be text"),
    "name type": (lambda: Party(3, ROWS), ValueError, "name must be text"),
    "protocol": (lambda: Party("a", ROWS, allows=("all",)), ValueError, "allows must hold"),
    "no protocol": (lambda: Party("a", ROWS, allows=()), ValueError, "allows must hold"),
    "epsilon": (lambda: Party("a", ROWS, epsilon=0), ValueError, "epsilon"),
    "delta": (lambda: Party("a", ROWS, delta=1.0), ValueError, "delta"),
    "budget": (lambda: Party("a", ROWS, budget=1.0), TypeError, "must be a PrivacyBudget"),
    "covariance": (lambda: Party("a", ROWS, LABELS, covariance="none"), ValueError, "covariance"),
}


@pytest.mark.parametrize("case", BAD_TERMS)
def test_unusable_terms_are_refused(case):
    make, kind, text = BAD_TERMS[case]
    with pytest.raises(kind, match=text):
        make()


def test_public_facts():
    frame = pd.DataFrame(ROWS, columns=["x", "y", "z"])
    party = Party("north", frame, allows="sliced", epsilon=0.5, delta=1e-6)
    assert (party.name, party.n_samples, party.n_features) == ("north", 40, 3)
    assert party.feature_names == ("x", "y", "z")
    assert (party.allows, party.epsilon, party.delta) == (("sliced",), 0.5, 1e-6)
    assert party.budget is None
    assert party.privacy_spent == ()
    assert party.n_dimensions == 3
    assert Party("b", ROWS).feature_names is None
    assert Party("b", ROWS, LABELS).n_dimensions == 15
    assert Party("b", ROWS, LABELS, covariance="diagonal").n_dimensions == 9


# -- what the owner agreed to


@pytest.mark.parametrize("name", ANSWERS)
def test_only_what_is_allowed_is_answered(name, untouchable):
    protocol, ask = ANSWERS[name]
    others = tuple(other for other in PROTOCOLS if other != protocol)
    budget = PrivacyBudget(epsilon=np.inf)
    with pytest.raises(ProtocolRefusedError, match=f"does not take part in '{protocol}'"):
        ask(Party("north", ROWS, allows=others, budget=budget))
    assert len(budget.history()) == 0


def test_by_default_only_the_private_protocol_is_allowed():
    party = Party("north", ROWS)
    for _, ask in PLAIN_ANSWERS.values():
        with pytest.raises(PermissionError, match=r"Only its owner can allow more"):
            ask(party)
    assert isinstance(party.publish_sketch(REQUESTS[0]), SketchMessage)
    with pytest.raises(SkdpotError, match="does not take part"):
        party.interpolate(REFERENCE)


@pytest.mark.parametrize("name", PLAIN_ANSWERS)
def test_a_finite_budget_pays_for_nothing_without_noise(name, untouchable):
    budget = PrivacyBudget(epsilon=100.0)
    with pytest.raises(BudgetExceededError, match="NonPrivateEvent|left"):
        PLAIN_ANSWERS[name][1](Party("north", ROWS, budget=budget, **ALL))
    assert len(budget.history()) == 0


@pytest.mark.parametrize("name", PLAIN_ANSWERS)
def test_a_budget_without_limit_keeps_the_history(name):
    budget = PrivacyBudget(epsilon=np.inf)
    PLAIN_ANSWERS[name][1](Party("north", ROWS, budget=budget, **ALL))
    assert len(budget.history()) == 1
    assert PLAIN_ANSWERS[name][0] in budget.history()["label"].iloc[0]


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
    with pytest.raises(MessageError, match="due|strictly|must be|features|far to go|at most"):
        WRONG_QUESTIONS[case](Party("north", ROWS, budget=budget, **ALL))
    assert len(budget.history()) == 0


# -- the private answer


def test_a_sketch_is_released_once_for_a_request():
    budget = PrivacyBudget(epsilon=2.0)
    party = Party("north", ROWS, epsilon=1.0, budget=budget)
    first = party.publish_sketch(REQUESTS[0])
    spent = budget.epsilon_spent()
    assert 0.9 < spent <= 1.0
    again = party.publish_sketch(SketchRequest.from_bytes(REQUESTS[0].to_bytes()))
    assert again == first
    assert budget.epsilon_spent() == spent
    assert party.privacy_spent == (first.statement,)
    assert len(budget.history()) == 1


def test_another_request_is_charged_again_until_the_budget_ends():
    budget = PrivacyBudget(epsilon=1.5)
    party = Party("north", ROWS, epsilon=0.9, budget=budget)
    first = party.publish_sketch(REQUESTS[0])
    second = party.publish_sketch(REQUESTS[1])
    assert second != first
    assert len(party.privacy_spent) == 2
    spent = budget.epsilon_spent()
    with pytest.raises(BudgetExceededError, match="left"):
        party.publish_sketch(REQUESTS[2])
    # A refusal changes nothing, and what is published stays so.
    assert budget.epsilon_spent() == spent
    assert party.publish_sketch(REQUESTS[0]) == first
    assert party.publish_sketch(REQUESTS[1]) == second
    assert len(party.privacy_spent) == 2


def test_without_a_budget_there_is_one_sketch():
    party = Party("north", ROWS)
    first = party.publish_sketch(REQUESTS[0])
    with pytest.raises(ProtocolRefusedError, match="has published its sketch, for another request"):
        party.publish_sketch(REQUESTS[1])
    assert party.publish_sketch(REQUESTS[0]) == first


def test_requests_at_the_same_time_are_one_release():
    budget = PrivacyBudget(epsilon=5.0)
    party = Party("north", ROWS, budget=budget)
    answers, start = [], threading.Barrier(6)

    def ask():
        start.wait()
        answers.append(party.publish_sketch(REQUESTS[0]).to_bytes())

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert len(set(answers)) == 1
    assert len(budget.history()) == 1


def test_a_failed_fit_leaves_nothing_behind(monkeypatch):
    party = Party("north", ROWS)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("skdpot.release.sketch.SlicedSketch.fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            party.publish_sketch(REQUESTS[0])
    assert party.privacy_spent == ()
    assert isinstance(party.publish_sketch(REQUESTS[1]), SketchMessage)


def test_noise_is_the_partys_decision():
    strict, loose = (Party("a", ROWS, epsilon=e, delta=d) for e, d in ((0.1, 1e-7), (9.0, 1e-4)))
    statements = [party.publish_sketch(REQUESTS[0]).statement for party in (strict, loose)]
    assert [(s.epsilon, s.delta) for s in statements] == [(0.1, 1e-7), (9.0, 1e-4)]
    assert statements[0].sigma > 20 * statements[1].sigma


def test_a_sketch_measures_what_was_asked_and_clips_to_the_given_bounds():
    request = SketchRequest.draw(3, n_projections=3, n_bins=8, bounds=(-0.5, 0.5), rng=RNG)
    party = Party("north", pd.DataFrame(ROWS, columns=list("xyz")), epsilon=np.inf)
    sketch = request.read(party.publish_sketch(request))
    assert sketch.n_samples_ == 40
    assert list(sketch.feature_names_in_) == ["x", "y", "z"]
    mapped = request.bounds.to_ball(ROWS)
    inner = sketch.table().edges[:, 1:-1]
    for k, theta in enumerate(request.directions):
        shares = (mapped @ theta <= inner[k][:, None]).mean(axis=1)
        np.testing.assert_allclose(sketch.cdf_[0, k, 1:-1], shares, atol=1.5 / 40)


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


def test_weights_are_not_for_sketches():
    party = Party("north", ROWS, masses=MASSES)
    with pytest.raises(ProtocolRefusedError, match="a sketch counts every row once"):
        party.publish_sketch(REQUESTS[0])


def test_a_seed_is_for_tests_and_says_so():
    with pytest.warns(PrivacyWarning, match="random_state"):
        one = Party("a", ROWS, random_state=0).publish_sketch(REQUESTS[0])
    with pytest.warns(PrivacyWarning, match="random_state"):
        assert Party("a", ROWS, random_state=0).publish_sketch(REQUESTS[0]) == one
    assert Party("a", ROWS).publish_sketch(REQUESTS[0]) != one


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("seed", [0, np.int64(7), "RandomState"])
def test_equal_seeds_give_no_equal_noise(seed):
    """The difference of two releases with equal noise is exact."""

    def noise(name, request):
        state = np.random.RandomState(0) if seed == "RandomState" else seed
        party = Party(name, ROWS, budget=PrivacyBudget(epsilon=5.0), random_state=state)
        return party.publish_sketch(request).record.statistic

    # Two requests whose tables count alike: the second one differs by a last digit.
    bounds = REQUESTS[0].bounds
    wider = DataBounds(bounds.center, np.nextafter(bounds.scale, 9), bounds.radius, bounds.box)
    almost = SketchRequest(REQUESTS[0].directions, 8, wider)
    one = noise("a", REQUESTS[0])
    np.testing.assert_array_equal(one, noise("a", REQUESTS[0]))
    for other in (noise("b", REQUESTS[0]), noise("a", almost)):
        # Noise has a standard deviation of 10, and independent noise never agrees.
        assert (one != other).mean() > 0.9


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_one_party_with_a_seed_answers_two_requests_with_other_noise():
    bounds = REQUESTS[0].bounds
    wider = DataBounds(bounds.center, np.nextafter(bounds.scale, 9), bounds.radius, bounds.box)
    party = Party("a", ROWS, budget=PrivacyBudget(epsilon=5.0), random_state=0)
    one, other = (
        party.publish_sketch(SketchRequest(REQUESTS[0].directions, 8, b)).sketch.statistic_
        for b in (bounds, wider)
    )
    assert (one != other).mean() > 0.9


# -- what cannot be sent is found out before it is paid for

LONG, LONE = "a" * 600_000, "\ud800"
BAD_NAMES = {
    "long": [LONG, "b", "c"],
    "long together": ["a" * 200_000, "b" * 200_000, "c" * 200_000],
    "long when written": ["\0" * 100_000, "b", "c"],
    "lone surrogate": [LONE, "b", "c"],
}


@pytest.mark.parametrize("case", BAD_NAMES)
def test_names_of_columns_that_cannot_be_sent_are_refused_at_once(case):
    frame = pd.DataFrame(ROWS, columns=BAD_NAMES[case])
    with pytest.raises(ValueError, match=r"Names of columns (may take|must be text)") as caught:
        Party("north", frame)
    assert len(str(caught.value)) < 300
    assert caught.value.__cause__ is None


def test_the_longest_names_that_are_accepted_are_sent():
    names = ["é" * 130_000, "\n", '"']
    budget = PrivacyBudget(epsilon=1.0)
    party = Party("north", pd.DataFrame(ROWS, columns=names), budget=budget)
    arrived = SketchMessage.from_bytes(party.publish_sketch(REQUESTS[0]).to_bytes())
    assert list(arrived.sketch.feature_names_in_) == names


def test_a_name_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="UTF-8"):
        Party(LONE, ROWS)


def test_bad_random_states_are_refused_at_once():
    with pytest.raises(ValueError, match="seed|Seed"):
        Party("north", ROWS, random_state="0")


@pytest.mark.parametrize(
    "limit", [(sketch_record, "_LARGEST_NOISE", 1.0), (SketchRecord, "most_header", 500)], ids=str
)
def test_a_sketch_that_cannot_be_sent_is_not_paid_for(limit, monkeypatch):
    budget = PrivacyBudget(epsilon=1.0)
    party = Party("north", ROWS, budget=budget)
    with monkeypatch.context() as patch:
        patch.setattr(*limit)
        with pytest.raises(MessageError, match="cannot be sent"):
            party.publish_sketch(REQUESTS[0])
    assert len(budget.history()) == 0
    assert party.privacy_spent == ()
    # Nothing was used up: the whole budget is there for the next request.
    assert isinstance(party.publish_sketch(REQUESTS[1]), SketchMessage)


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


def test_nobody_who_reads_a_release_changes_what_is_sent_again():
    party = Party("north", ROWS)
    message = party.publish_sketch(REQUESTS[0])
    before = message.to_bytes()
    for name, value in (("spent", None), ("n_samples", 7), ("statistic", np.zeros((1, 6, 8)))):
        with pytest.raises(AttributeError, match="cannot assign"):
            setattr(message.record, name, value)
    sketch = message.sketch
    released = sketch.statistic_
    sketch.release_ = sketch.privacy_spent_ = None
    sketch.cdf_[:] = 0.0
    for array in (message.record.statistic, released):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(AttributeError, match="cannot assign|no setter"):
        message.record = None
    again = party.publish_sketch(REQUESTS[0])
    assert again.to_bytes() == before
    assert again.statement.mechanism.startswith("noisy distribution functions")
    assert again.sketch.noise_scale_ > 0
    assert again.sketch.cdf_.any()


# -- the answers that are not private


@pytest.mark.parametrize("kind", ["barycentric", "exact"])
@pytest.mark.parametrize("masses", [None, MASSES])
@pytest.mark.parametrize("n_support", [40, 25])
def test_answers_equal_the_numeric_functions(kind, masses, n_support):
    party = Party("north", ROWS, masses=masses, **ALL)
    own = DiscreteMeasure(ROWS, masses)
    gamma = DiscreteMeasure(RNG.normal(size=(n_support, 3)))
    plan = optimal_plan(own, gamma)
    sent = ReferenceMeasure(gamma.points, None, 0.3, kind)
    due = interpolate(plan, 0.3, kind=kind)
    for eta in (party.interpolate(sent), party.fraction_request(sent, 0.3)):
        np.testing.assert_allclose(eta.points, due.points, atol=1e-12)
        np.testing.assert_allclose(eta.measure.weights, due.weights, atol=1e-12)
    etas = [interpolate(plan, s, kind=kind) for s in (0.25, 0.5, 0.75)]
    answer = party.distances_at(QUESTION, sent)
    expected = [optimal_plan(eta, QUESTION.measure).squared_distance for eta in etas]
    np.testing.assert_allclose(answer.squared_distances, expected, rtol=1e-9)
    costs = party.cost_matrices(QUESTION, sent)
    for k, eta in enumerate(etas):
        gaps = eta.points[:, None] - QUESTION.points
        np.testing.assert_allclose(costs.costs[k], (gaps**2).sum(axis=2), rtol=1e-9)
    xi = GeodesicMeasure(gamma.points)
    assert party.squared_distance_to(xi).squared_distance == pytest.approx(plan.squared_distance)
    np.testing.assert_allclose(
        party.values_against(gamma).values,
        calibrated_values(plan.source_potential, own.masses),
        atol=1e-9,
    )


def test_arguments_come_before_what_the_message_says():
    party = Party("north", ROWS, **ALL)
    told = ReferenceMeasure(REFERENCE.points, None, 0.7, "exact")
    assert party.interpolate(REFERENCE, 0.7, "exact") == party.interpolate(told)


def test_one_plan_serves_two_questions_about_one_measure(monkeypatch):
    party, calls = Party("north", ROWS, **ALL), []

    def counted(*args, **kwargs):
        calls.append(args)
        return optimal_plan(*args, **kwargs)

    monkeypatch.setattr(party_module, "optimal_plan", counted)
    party.squared_distance_to(GEODESIC)
    party.interpolate(GEODESIC)
    assert len(calls) == 1
    party.interpolate(REFERENCE)
    assert len(calls) == 2


def test_labels_are_compared_with_their_rows():
    party = Party("north", ROWS, LABELS, **ALL)
    reference = reference_for(party)
    plan = optimal_plan(labelled_measure(ROWS, LABELS), reference.measure)
    due = interpolate(plan, 0.4)
    np.testing.assert_allclose(party.interpolate(reference).points, due.points, atol=1e-12)
    with pytest.raises(MessageError, match="compares 15 features, and was asked about 3"):
        party.interpolate(REFERENCE)
    # The sketch is of the rows alone: a mean of a class is not one person's contribution.
    assert party.publish_sketch(REQUESTS[0]).sketch.n_features_in_ == 3
