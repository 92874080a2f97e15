"""Messages: exact on the line, and refused when they cannot be.

Bytes of strangers are the matter of `tests/contract/test_hostile_bytes.py`.
"""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch
from skdpot.exceptions import MessageError, OpenSketchError, PrivacyWarning
from skdpot.federated import messages
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
from skdpot.ot.slices import uniform_directions
from skdpot.release.bounds import DataBounds
from tests.contract.hostile_files import facts_of, forged

RNG = np.random.default_rng(8114)
POINTS = RNG.normal(size=(5, 3))
MASSES = RNG.dirichlet(np.ones(5))
FRACTIONS = (0.25, 0.5, 0.75)
ROWS = RNG.uniform(-1, 1, (300, 3))
LABELS = np.array(["north", "south", "west"])[RNG.integers(0, 3, 300)]


def draw(n_features=3, n_projections=4, n_bins=8, **options):
    return SketchRequest.draw(
        n_features, n_projections=n_projections, n_bins=n_bins, rng=RNG, **options
    )


REQUEST = draw(bounds=(-1, [1, 2, 3]), projections="axes+orthogonal")


def sketch(rows=ROWS, labels=None, **parameters):
    given = {"n_bins": 8, "projections": REQUEST.directions, "bounds": (-1, 1)} | parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return SlicedSketch(**given, conditional=labels is not None).fit(rows, labels)


PLAIN = SketchMessage(sketch(**REQUEST.sketch_parameters))
EXAMPLES = {
    "reference": ReferenceMeasure(POINTS),
    "reference with terms": ReferenceMeasure(POINTS, MASSES, 0.3, "exact"),
    "interpolating measure": InterpolatingMeasure(POINTS, MASSES),
    "geodesic measure": GeodesicMeasure(POINTS, MASSES, 0.9, "exact"),
    "geodesic measure without t": GeodesicMeasure(POINTS),
    "fraction request": FractionRequest(POINTS, MASSES),
    "distances": DistancesAtFractions(FRACTIONS, [0.0, 1.5, 2.0]),
    "costs": CostMatrices(FRACTIONS, RNG.uniform(size=(3, 4, 5)), [0.1, 0.2, 0.3, 0.4]),
    "costs of equal masses": CostMatrices([0.5], RNG.uniform(size=(1, 4, 5))),
    "distance": DistanceMessage(0.1),
    "request": REQUEST,
    "request with a norm": draw(2, 3, 2, norm_bound=0.7),
    "sketch": PLAIN,
    "sketch with names": SketchMessage(sketch(pd.DataFrame(ROWS, columns=["a", "ü", "c c"]))),
    "sketch with text classes": SketchMessage(sketch(labels=LABELS)),
    "sketch with object classes": SketchMessage(sketch(labels=LABELS.astype(object))),
    "sketch with integer classes": SketchMessage(sketch(labels=(LABELS == "west") * 7)),
    "sketch with boolean classes": SketchMessage(sketch(labels=LABELS == "west")),
    "sketch of private bounds": SketchMessage(sketch(epsilon=8.0, bounds="private")),
    "sketch without privacy": SketchMessage(sketch(epsilon=math.inf)),
    "merged sketch": SketchMessage(sketch().merge(sketch(epsilon=0.2))),
}
CLASSES = [one for one in vars(messages).values() if isinstance(one, type)]
KINDS = [one for one in CLASSES if issubclass(one, Message) and "kind" in vars(one)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_round_trip_is_exact(name):
    message = EXAMPLES[name]
    data = message.to_bytes()
    assert message.n_bytes == len(data)
    for reader in (Message, type(message)):
        arrived = reader.from_bytes(bytearray(data))
        assert type(arrived) is type(message)
        assert arrived == message
        assert hash(arrived) == hash(message)
        assert arrived.to_bytes() == data
        assert arrived.reveals == message.reveals
    assert pickle.loads(pickle.dumps(message)) == message
    # Sizes alone are shown.
    assert repr(arrived) == repr(message)
    assert "bytes" in repr(message)
    for value in (POINTS[0, 0], MASSES[0], 0.3, EXAMPLES["costs"].costs[0, 0, 0]):
        assert f"{value:.3f}" not in repr(message)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_says_what_it_reveals(kind):
    example = next(message for message in EXAMPLES.values() if type(message) is kind)
    assert example.reveals.endswith(".")
    assert ("differentially private" in example.reveals) == (kind is SketchMessage)
    assert "(1, 1e-05)" in PLAIN.reveals
    assert "Exact counts" in EXAMPLES["sketch without privacy"].reveals


@pytest.mark.parametrize("field", ["t", "interpolation", "points", "masses"])
@pytest.mark.parametrize("kind", [ReferenceMeasure, GeodesicMeasure])
def test_every_field_is_on_the_line(kind, field):
    fields = {"points": POINTS, "masses": MASSES, "t": 0.5, "interpolation": "barycentric"}
    changed = {"points": POINTS + 1, "masses": None, "t": None, "interpolation": "exact"}
    one, other = kind(**fields), kind(**fields | {field: changed[field]})
    assert one != other
    arrived = getattr(kind.from_bytes(other.to_bytes()), field)
    np.testing.assert_array_equal(arrived, changed[field])


def test_messages_are_frozen_and_own_their_arrays():
    given = POINTS.copy()
    message = InterpolatingMeasure(given)
    before = message.to_bytes()
    given[:] = 0
    assert message.to_bytes() == before
    with pytest.raises(AttributeError, match="cannot assign"):
        message.points = given
    for each in (message, Message.from_bytes(before)):
        with pytest.raises(ValueError, match="read-only"):
            each.points[0, 0] = 1.0


def changed(message, facts=None, arrays=None, **header):
    """Write a message with a right checksum and some entries replaced."""
    good = message.to_bytes()
    return forged(good, facts_of(good) | (facts or {}), arrays, **header)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (changed(EXAMPLES["distance"], kind="other"), "holds 'other' version 1; expected"),
        (changed(EXAMPLES["distance"], version=2), "holds 'distance' version 2; expected"),
        (changed(EXAMPLES["reference"], arrays={"points": ...}), "lacks an entry"),
        (changed(EXAMPLES["distance"], {"note": "hello"}), "unknown"),
        (changed(EXAMPLES["distance"], {"squared_distance": 0}), "only valid form"),
        (changed(REQUEST, arrays={"directions": 2 * REQUEST.directions}), "only valid form"),
        # How much noise there is, and who pays for it, is no part of a request.
        (changed(REQUEST, {"epsilon": 1e9}), "unknown"),
        (changed(REQUEST, {"budget": 1e9}), "unknown"),
    ],
)
def test_bytes_in_other_words_are_refused(data, text):
    with pytest.raises(MessageError, match=text):
        Message.from_bytes(data)


IMPOSSIBLE = [
    (InterpolatingMeasure, ([[np.nan]],), "points must hold finite numbers"),
    (InterpolatingMeasure, ([[1e200]],), "points must lie between"),
    (InterpolatingMeasure, ([1.0, 2.0],), "points must have shape"),
    (InterpolatingMeasure, (np.zeros((0, 2)),), "points must have shape"),
    (InterpolatingMeasure, ([["4711x"]],), "points must hold finite numbers"),
    (InterpolatingMeasure, ([[1.0], [1.0, 4711.0]],), "must hold finite numbers"),
    (InterpolatingMeasure, (POINTS, [4711, -4710, 0, 0, 0]), "masses must lie between"),
    (InterpolatingMeasure, (POINTS, [1, 1, 1, 1, 1]), "must sum to 1"),
    (FractionRequest, (POINTS, [1.0]), "masses must have shape"),
    # At t = 0 the message would be the rows.
    (ReferenceMeasure, (POINTS, None, 0.0), "strictly between 0 and 1"),
    (GeodesicMeasure, (POINTS, None, 1.0), "strictly between 0 and 1"),
    (ReferenceMeasure, (POINTS, None, True), "strictly between 0 and 1"),
    (ReferenceMeasure, (POINTS, None, math.nan), "strictly between"),
    (ReferenceMeasure, (POINTS, None, "0.5"), "strictly between"),
    (ReferenceMeasure, (POINTS, None, 0.5, "none"), "barycentric"),
    (GeodesicMeasure, (POINTS, None, 0.5, []), "barycentric"),
    (FractionRequest, (POINTS, None, [0.0, 0.5]), "strictly between 0 and 1"),
    (FractionRequest, (POINTS, None, [0.5, 0.5]), "must increase"),
    (FractionRequest, (POINTS, None, []), "fractions must have shape"),
    (FractionRequest, (POINTS, None, np.linspace(0.1, 0.9, 65)), "may hold 64"),
    (DistancesAtFractions, ([0.5], [-4711.0]), "must lie between 0"),
    (DistancesAtFractions, (FRACTIONS, [1.0]), "must have shape"),
    (DistancesAtFractions, ([0.5], [np.inf]), "finite numbers"),
    (CostMatrices, ([0.5], -np.ones((1, 2, 2))), "must lie between 0"),
    (CostMatrices, ([0.5], np.ones((2, 2, 2))), "costs must have shape"),
    (CostMatrices, ([0.5], np.ones((1, 2, 2)), [1.0]), "masses must have shape"),
    (DistanceMessage, (-4711.0,), "squared_distance must be"),
    (DistanceMessage, (math.nan,), "squared_distance must be"),
    (DistanceMessage, (True,), "squared_distance must be"),
    (DistanceMessage, ("1",), "squared_distance must be"),
]


@pytest.mark.parametrize(("kind", "fields", "text"), IMPOSSIBLE)
def test_impossible_messages_are_refused_and_no_value_quoted(kind, fields, text):
    with pytest.raises(MessageError, match=text) as caught:
        kind(*fields)
    assert "4711" not in str(caught.value)


# -- the request for sketches

BOX = DataBounds.from_box(-1, 1, 3)


def test_a_request_draws_directions_and_declares_bounds():
    assert REQUEST.directions.shape == (4, 3)
    np.testing.assert_allclose(np.linalg.norm(REQUEST.directions, axis=1), 1)
    np.testing.assert_array_equal(REQUEST.directions[:3], np.eye(3))
    parameters = REQUEST.sketch_parameters
    assert set(parameters) == {"bounds", "projections", "n_bins"}
    assert parameters["bounds"] == DataBounds.from_box(-1, [1, 2, 3], 3)
    assert EXAMPLES["request with a norm"].bounds == DataBounds.from_norm(0.7, 2)
    scaled = SketchRequest(7.0 * uniform_directions(20, 3, RNG), 4, BOX)
    again = SketchRequest.from_bytes(scaled.to_bytes())
    assert again.directions.tobytes() == scaled.directions.tobytes()


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_bounds_that_one_party_has_released_serve_all():
    rows = RNG.normal(5.0, 2.0, size=(2000, 3))
    released = SlicedSketch(epsilon=5.0, projections=np.eye(3), n_bins=8).fit(rows)
    request = SketchRequest.from_bytes(SketchRequest(np.eye(3), 8, released.bounds_).to_bytes())
    other = SlicedSketch(epsilon=5.0, **request.sketch_parameters).fit(rows + 1)
    assert released.distance(request.read(SketchMessage(other))) > 0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: draw(bounds="private"), "public bounds"),
        (lambda: draw(), "public bounds"),
        (lambda: draw(bounds=(-1, 1), norm_bound=1), "give only one"),
        (lambda: SketchRequest(np.eye(3), 4, (-1, 1)), "must be DataBounds"),
        (
            lambda: SketchRequest(np.eye(3), 4, DataBounds(np.ones(3), np.ones(3), 1e300)),
            "must lie between",
        ),
        (lambda: SketchRequest(np.zeros((3, 3)), 4, BOX), "not zero"),
        (lambda: SketchRequest(np.full((3, 3), np.nan), 4, BOX), "finite rows"),
        (lambda: SketchRequest(np.eye(2), 4, BOX), "one column per feature"),
        (lambda: SketchRequest([["a"]], 4, BOX), "directions"),
        (lambda: SketchRequest(np.eye(3), 1, BOX), "must be >= 2"),
        (lambda: SketchRequest(np.eye(3), 513, BOX), "must be <= 512"),
        (lambda: SketchRequest(np.eye(3), True, BOX), "n_bins must be"),
        (lambda: SketchRequest(np.ones((32_769, 3)), 512, BOX), "more than 16777216 entries"),
        (
            lambda: SketchRequest(np.ones((513, 2**16)), 2, DataBounds.from_box(-1, 1, 2**16)),
            "more than 33554432 coordinates",
        ),
    ],
)
def test_unusable_requests_are_refused(make, text):
    assert SketchRequest(np.eye(3), 512, BOX).n_bins == 512
    with pytest.raises(MessageError, match=text):
        make()


# -- sketches


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("sketch")])
def test_a_sketch_arrives_whole(name):
    sent, arrived = EXAMPLES[name].sketch, Message.from_bytes(EXAMPLES[name].to_bytes()).sketch
    for attribute in ("statistic_", "directions_", "half_widths_", "cdf_", "class_counts_"):
        np.testing.assert_array_equal(getattr(arrived, attribute), getattr(sent, attribute))
    for attribute in ("privacy_spent_", "bounds_", "n_samples_", "noise_scale_"):
        assert getattr(arrived, attribute) == getattr(sent, attribute)
    for attribute in ("classes_", "feature_names_in_"):
        assert hasattr(arrived, attribute) == hasattr(sent, attribute)
        if hasattr(sent, attribute):
            given, due = getattr(arrived, attribute), getattr(sent, attribute)
            assert (given.dtype, given.tolist()) == (due.dtype, due.tolist())


def test_a_sketch_message_holds_no_row_and_does_not_follow_the_sketch():
    sent = sketch()
    message = SketchMessage(sent)
    before = message.to_bytes()
    sent.statistic_[:] = 0
    assert sent.directions_.flags.writeable
    assert message.to_bytes() == before
    for row in ROWS[:50]:
        assert row[:1].tobytes() not in before
        assert row.astype(np.float32)[:1].tobytes() not in before


def test_what_is_not_sent_as_a_sketch():
    with pytest.raises(OpenSketchError, match="open"):
        SketchMessage(SlicedSketch(bounds=(-1, 1)).partial_fit(ROWS))
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")[(LABELS == "west") * 1]
    with pytest.raises(MessageError, match="classes that are sent"):
        SketchMessage(sketch(labels=dates))
    for what in (PLAIN, REQUEST, ROWS, None):
        with pytest.raises(MessageError, match="Expected a SlicedSketch, got"):
            SketchMessage(what)


RECORD = facts_of(PLAIN.to_bytes())["record"]
SAMPLED = {
    **{"type": "SampledGaussianEvent", "relation": "replace_one", "label": ""},
    **{"sigma": 1.0, "sensitivity": 1.0, "sampling_rate": 1e-9, "n_steps": 10**9},
    **{"clipped_sum": False, "lattice": None, "sampling": "poisson"},
    **dict.fromkeys(("n_samples", "batch_sizes", "group_sizes")),
}
UNPAID = {"type": "NonPrivateEvent", "relation": "replace_one", "label": ""}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (SAMPLED, "event of type SampledGaussianEvent"),
        (UNPAID, "finite epsilon for a release without noise"),
    ],
)
def test_statements_of_another_mechanism_are_refused(event, text):
    lie = {"record": RECORD | {"spent": RECORD["spent"] | {"event": event}}}
    with pytest.raises(MessageError, match=text):
        SketchMessage.from_bytes(changed(PLAIN, lie))


# -- answers to a request


def test_an_answer_is_read_with_the_directions_that_were_asked_for():
    # Another machine may round the last digit of directions and ranges otherwise.
    near = {
        "record.directions": PLAIN.record.directions * (1 + 2e-16),
        "record.half_widths": np.nextafter(PLAIN.record.half_widths, 9),
    }
    read = REQUEST.read(SketchMessage.from_bytes(changed(PLAIN, arrays=near)))
    np.testing.assert_array_equal(read.directions_, REQUEST.directions)
    assert read.distance(REQUEST.read(PLAIN)) == 0.0


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"bounds": (-1, 1)}, "bounds"),
        ({"bounds": "private", "epsilon": 8.0}, "bounds"),
        ({"n_bins": 9}, "shape of the table"),
        ({"labels": LABELS}, "shape of the table"),
        ({"projections": uniform_directions(4, 3, RNG)}, "directions"),
        ({"projections": uniform_directions(5, 3, RNG)}, "directions"),
    ],
)
def test_answers_to_something_else_are_refused(other, text):
    answer = SketchMessage(sketch(**REQUEST.sketch_parameters | other))
    with pytest.raises(MessageError, match=f"does not match the request.*{text}"):
        REQUEST.read(answer)


def test_only_sketches_are_read_as_answers():
    for message in (EXAMPLES["interpolating measure"], PLAIN.sketch):
        with pytest.raises(MessageError, match="Expected a SketchMessage"):
            REQUEST.read(message)
