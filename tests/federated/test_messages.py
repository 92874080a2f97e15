"""Messages: exact on the line, and refused when they cannot be."""

import math
import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.contract.hostile_files import arrays_of, facts_of, forged

RNG = np.random.default_rng(8114)
POINTS = RNG.normal(size=(5, 3))
MASSES = RNG.dirichlet(np.ones(5))
FRACTIONS = (0.25, 0.5, 0.75)
ROWS = RNG.uniform(-1, 1, (300, 3))
LABELS = np.array(["north", "south", "west"])[RNG.integers(0, 3, 300)]
REQUEST = SketchRequest.draw(
    3, n_projections=4, n_bins=8, bounds=(-1, [1, 2, 3]), projections="axes+orthogonal", rng=RNG
)


def sketch(rows=ROWS, labels=None, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return SlicedSketch(**{"n_bins": 8, "projections": REQUEST.directions} | parameters).fit(
            rows, labels
        )


PLAIN = SketchMessage(sketch(**REQUEST.sketch_parameters))
EXAMPLES = {
    "reference": ReferenceMeasure(POINTS),
    "reference with terms": ReferenceMeasure(POINTS, MASSES, 0.3, "exact"),
    "interpolating measure": InterpolatingMeasure(POINTS),
    "weighted interpolating measure": InterpolatingMeasure(POINTS, MASSES),
    "geodesic measure": GeodesicMeasure(POINTS, MASSES, 0.9, "exact"),
    "geodesic measure without t": GeodesicMeasure(POINTS),
    "fraction request": FractionRequest(POINTS, MASSES),
    "one fraction": FractionRequest(POINTS, None, [0.5]),
    "distances": DistancesAtFractions(FRACTIONS, [0.0, 1.5, 2.0]),
    "costs": CostMatrices(FRACTIONS, RNG.uniform(size=(3, 4, 5)), [0.1, 0.2, 0.3, 0.4]),
    "costs of equal masses": CostMatrices([0.5], RNG.uniform(size=(1, 4, 5))),
    "distance": DistanceMessage(0.1),
    "distance 0": DistanceMessage(0),
    "request": REQUEST,
    "request with a norm": SketchRequest.draw(
        2, n_projections=3, n_bins=2, norm_bound=0.7, rng=RNG
    ),
    "sketch": PLAIN,
    "sketch with names": SketchMessage(
        sketch(pd.DataFrame(ROWS, columns=["a", "ü", "c c"]), bounds=(-1, 1))
    ),
    "sketch with text classes": SketchMessage(
        sketch(labels=LABELS, conditional=True, bounds=(-1, 1))
    ),
    "sketch with object classes": SketchMessage(
        sketch(labels=LABELS.astype(object), conditional=True, bounds=(-1, 1))
    ),
    "sketch with integer classes": SketchMessage(
        sketch(labels=(LABELS == "west") * 7, conditional=True, bounds=(-1, 1))
    ),
    "sketch with boolean classes": SketchMessage(
        sketch(labels=LABELS == "west", conditional=True, bounds=(-1, 1))
    ),
    "sketch with private bounds": SketchMessage(sketch(epsilon=8.0)),
    "sketch with numpy scalars": SketchMessage(
        sketch(epsilon=np.float32(2), delta=np.float64(1e-6), norm_bound=np.int64(3))
    ),
    "sketch without privacy": SketchMessage(sketch(epsilon=math.inf)),
    "merged sketch": SketchMessage(
        sketch(bounds=(-1, 1)).merge(sketch(epsilon=0.2, bounds=(-1, 1)))
    ),
}
CLASSES = [one for one in vars(messages).values() if isinstance(one, type)]
KINDS = [one for one in CLASSES if issubclass(one, Message) and "kind" in vars(one)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_round_trip_is_exact(name):
    message = EXAMPLES[name]
    data = message.to_bytes()
    assert data == message.to_bytes()
    assert message.n_bytes == len(data)
    for reader in (Message, type(message)):
        arrived = reader.from_bytes(data)
        assert type(arrived) is type(message)
        assert arrived == message
        assert hash(arrived) == hash(message)
        assert arrived.to_bytes() == data
        assert repr(arrived) == repr(message)
        assert arrived.reveals == message.reveals
    assert Message.from_bytes(bytearray(data)) == message
    assert pickle.loads(pickle.dumps(message)) == message


def test_all_kinds_are_tried():
    assert {type(message) for message in EXAMPLES.values()} == set(KINDS)


def test_fields_come_back_bit_for_bit():
    arrived = CostMatrices.from_bytes(EXAMPLES["costs"].to_bytes())
    for field in ("fractions", "costs", "masses"):
        sent = getattr(EXAMPLES["costs"], field)
        assert getattr(arrived, field).tobytes() == sent.tobytes()
        assert not getattr(arrived, field).flags.writeable
    reference = Message.from_bytes(EXAMPLES["reference with terms"].to_bytes())
    assert (reference.t, reference.interpolation) == (0.3, "exact")
    np.testing.assert_array_equal(reference.measure.points, POINTS)
    np.testing.assert_allclose(reference.measure.weights, MASSES, rtol=1e-15)
    assert DistanceMessage.from_bytes(DistanceMessage(0.1).to_bytes()).squared_distance == 0.1


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
    with pytest.raises(ValueError, match="read-only"):
        message.points[0, 0] = 1.0


@pytest.mark.parametrize("name", EXAMPLES)
def test_reprs_show_sizes_only(name):
    text = repr(EXAMPLES[name])
    assert "bytes" in text
    assert len(text) < 150
    for value in (POINTS[0, 0], MASSES[0], 0.3, EXAMPLES["costs"].costs[0, 0, 0]):
        assert f"{value:.3f}" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_says_what_it_reveals_to_whom(kind):
    example = next(message for message in EXAMPLES.values() if type(message) is kind)
    assert example.reveals.endswith((".", "infinite."))
    assert "eveal" in kind.__doc__
    assert any(word in kind.__doc__ for word in ("to each", "to the", "to both", "to who"))


def test_only_the_sketch_claims_privacy():
    private = {type(m) for m in EXAMPLES.values() if "differentially private" in m.reveals}
    assert private == {SketchMessage}
    assert "(1, 1e-05)" in PLAIN.reveals
    assert "Exact counts" in EXAMPLES["sketch without privacy"].reveals


# -- bytes of strangers


def changed(message, kind=None, version=None, facts=None, arrays=None):
    """Write a message with a right checksum and some entries replaced."""
    good = message.to_bytes()
    merged = facts_of(good) | (facts or {})
    kept = {name: value for name, value in merged.items() if value is not ...}
    return forged(good, kept, arrays, kind=kind, version=version)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_damaged_messages_are_refused(name, data):
    sent = bytearray(EXAMPLES[name].to_bytes())
    action = data.draw(st.sampled_from(["flip", "cut", "append", "overwrite"]))
    position = data.draw(st.integers(0, len(sent) - 1))
    if action == "flip":
        sent[position] ^= 1 << data.draw(st.integers(0, 7))
    elif action == "cut":
        del sent[position:]
    elif action == "append":
        sent += data.draw(st.binary(min_size=1, max_size=9))
    else:
        noise = data.draw(st.binary(min_size=1, max_size=50))
        sent[position : position + len(noise)] = noise
    try:
        arrived = Message.from_bytes(bytes(sent))
    except MessageError:
        return
    assert arrived == EXAMPLES[name]  # what was overwritten with itself


scalars = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**62, 0.0, -0.5, 0.5, 1e308, math.inf, "", "text", [], {}]
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


def replace_somewhere(value, data):
    """Replace one leaf of a nested fact, drop it, or add one."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return value | {key: replace_somewhere(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], replace_somewhere(value[index], data), *value[index + 1 :]]
    return data.draw(json_values)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_facts_of_other_types_raise_nothing_else(name, data):
    message = EXAMPLES[name]
    facts = facts_of(message.to_bytes())
    forged = replace_somewhere(facts, data)
    if not isinstance(forged, dict):
        forged = facts | {data.draw(st.sampled_from(["x", *facts])): forged}
    accept_or_refuse(changed(message, facts=dict.fromkeys(facts, ...) | forged))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_arrays_of_other_shapes_and_values_raise_nothing_else(name, data):
    message = EXAMPLES[name]
    arrays = arrays_of(message.to_bytes())
    key = data.draw(st.sampled_from(["other", *arrays]))
    shape = data.draw(st.lists(st.integers(1, 6), max_size=4))
    if key in arrays and data.draw(st.booleans()):
        shape = arrays[key].shape
    value = data.draw(st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e30, 1e120, 1.7e308]))
    dtype = data.draw(st.sampled_from([np.float64, np.float64, np.uint8, np.int64]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forged = np.full(shape, value).astype(dtype)
    if not np.isfinite(forged).all():
        return
    if key in arrays and forged.shape == arrays[key].shape and data.draw(st.booleans()):
        mixed = arrays[key].astype(dtype)
        mixed.flat[data.draw(st.integers(0, mixed.size - 1))] = forged.flat[0]
        forged = mixed
    accept_or_refuse(changed(message, arrays={key: forged}))


def accept_or_refuse(data):
    """Refuse with a MessageError, or accept what is then one spelling of a usable message."""
    try:
        arrived = Message.from_bytes(data)
    except MessageError:
        return
    assert arrived.to_bytes() == data
    repr(arrived)
    if isinstance(arrived, SketchMessage):
        try:
            assert np.isfinite(arrived.sketch.cdf_).all()
            assert isinstance(str(arrived.statement), str)
        except MessageError:
            pass


def test_messages_of_another_kind_or_version_are_refused():
    data = EXAMPLES["distance"].to_bytes()
    with pytest.raises(MessageError, match="holds 'distance' version 1; expected 'sketch' version"):
        SketchMessage.from_bytes(data)
    with pytest.raises(MessageError, match=r"holds 'other' version 1; expected .*'distance' ver"):
        Message.from_bytes(changed(EXAMPLES["distance"], kind="other"))
    for version in (0, 2, -1):
        with pytest.raises(MessageError, match=f"holds 'distance' version {version}; expected"):
            Message.from_bytes(changed(EXAMPLES["distance"], version=version))
    with pytest.raises(MessageError, match="at most 10 are read"):
        Message.from_bytes(data, max_bytes=10)
    with pytest.raises(MessageError, match="lacks an entry"):
        Message.from_bytes(changed(EXAMPLES["reference"], arrays={"points": ...}))
    with pytest.raises(MessageError, match=r"lacks \['squared_distance'\]"):
        Message.from_bytes(changed(EXAMPLES["distance"], facts={"squared_distance": ...}))
    with pytest.raises(MessageError, match="unknown"):
        Message.from_bytes(changed(EXAMPLES["distance"], facts={"note": "hello"}))
    with pytest.raises(MessageError, match="wrong one"):
        Message.from_bytes(changed(EXAMPLES["reference"], arrays={"points": np.ones((2, 2), int)}))


def test_a_message_in_other_words_is_refused():
    """Requests are told apart by their bytes: one request has one spelling."""
    whole = changed(EXAMPLES["distance 0"], facts={"squared_distance": 0})
    with pytest.raises(MessageError, match="not written in its only valid form"):
        Message.from_bytes(whole)
    center = np.array([-0.0, 0.5, 1.0])
    with pytest.raises(MessageError, match="not written in its only valid form"):
        Message.from_bytes(changed(REQUEST, arrays={"bounds.center": center}))
    with pytest.raises(MessageError, match="not written in its only valid form"):
        Message.from_bytes(changed(REQUEST, arrays={"directions": 2 * REQUEST.directions}))


IMPOSSIBLE = {
    "NaN point": (lambda: ReferenceMeasure([[np.nan]]), "points must hold finite numbers"),
    "infinite point": (lambda: InterpolatingMeasure([[np.inf]]), "points must hold finite numbers"),
    "point without a square": (lambda: InterpolatingMeasure([[1e200]]), "beyond 1e\\+100"),
    "vector of points": (lambda: InterpolatingMeasure([1.0, 2.0]), "points must have shape"),
    "no points": (lambda: InterpolatingMeasure(np.zeros((0, 2))), "points must have shape"),
    "text": (lambda: InterpolatingMeasure([["a"]]), "points must hold finite numbers"),
    "ragged": (lambda: InterpolatingMeasure([[1.0], [1.0, 2.0]]), "must hold finite numbers"),
    "negative mass": (lambda: InterpolatingMeasure(POINTS, [2, -1, 0, 0, 0]), "one share in"),
    "masses beyond 1": (lambda: InterpolatingMeasure(POINTS, [1, 1, 1, 1, 1]), "must sum to 1"),
    "no mass": (lambda: InterpolatingMeasure(POINTS, np.zeros(5)), "must sum to 1"),
    "few masses": (lambda: FractionRequest(POINTS, [1.0]), "one share in"),
    "t = 0 is the rows": (lambda: ReferenceMeasure(POINTS, None, 0.0), "strictly between 0 and 1"),
    "t = 1": (lambda: GeodesicMeasure(POINTS, None, 1.0), "strictly between 0 and 1"),
    "t is true": (lambda: ReferenceMeasure(POINTS, None, True), "strictly between 0 and 1"),
    "t is NaN": (lambda: ReferenceMeasure(POINTS, None, math.nan), "strictly between"),
    "t is text": (lambda: ReferenceMeasure(POINTS, None, "0.5"), "strictly between"),
    "interpolation": (lambda: ReferenceMeasure(POINTS, None, 0.5, "none"), "barycentric"),
    "interpolation list": (lambda: GeodesicMeasure(POINTS, None, 0.5, []), "barycentric"),
    "fraction 0": (lambda: FractionRequest(POINTS, None, [0.0, 0.5]), "strictly between 0 and 1"),
    "fraction 1": (lambda: FractionRequest(POINTS, None, [0.5, 1.0]), "strictly between 0 and 1"),
    "equal fractions": (lambda: FractionRequest(POINTS, None, [0.5, 0.5]), "must increase"),
    "no fractions": (lambda: FractionRequest(POINTS, None, []), "1 to 64"),
    "many fractions": (
        lambda: FractionRequest(POINTS, None, np.linspace(0.1, 0.9, 65)),
        "1 to 64",
    ),
    "negative distance": (lambda: DistancesAtFractions([0.5], [-1.0]), "must lie between 0"),
    "distances too few": (lambda: DistancesAtFractions(FRACTIONS, [1.0]), "must have shape"),
    "infinite distance": (
        lambda: DistancesAtFractions([0.5], [np.inf]),
        "finite numbers",
    ),
    "negative cost": (lambda: CostMatrices([0.5], -np.ones((1, 2, 2))), "must lie between 0"),
    "flat costs": (lambda: CostMatrices([0.5], np.ones((1, 2))), "costs must have shape"),
    "costs of other fractions": (
        lambda: CostMatrices([0.5], np.ones((2, 2, 2))),
        r"\(1, any, any\), got \(2, 2, 2\)",
    ),
    "masses of costs": (lambda: CostMatrices([0.5], np.ones((1, 2, 2)), [1.0]), "one share in"),
    "distance below 0": (lambda: DistanceMessage(-1e-300), "squared_distance must be"),
    "distance NaN": (lambda: DistanceMessage(math.nan), "squared_distance must be"),
    "distance infinite": (lambda: DistanceMessage(math.inf), "squared_distance must be"),
    "distance true": (lambda: DistanceMessage(True), "squared_distance must be"),
    "distance text": (lambda: DistanceMessage("1"), "squared_distance must be"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_messages_are_refused_by_their_own_class(case):
    make, text = IMPOSSIBLE[case]
    with pytest.raises(MessageError, match=text):
        make()


def test_refusals_quote_no_value():
    for make in (
        lambda: DistanceMessage(-123.456),
        lambda: InterpolatingMeasure(POINTS, [123.456, 0, 0, 0, 0]),
        lambda: DistancesAtFractions([0.5], [-123.456]),
        lambda: InterpolatingMeasure([["123.456x"]]),
    ):
        with pytest.raises(MessageError, match=r"(?s)^(?!.*123).*$"):
            make()


# -- the request for sketches


def test_a_request_draws_directions_and_declares_bounds():
    assert REQUEST.directions.shape == (4, 3)
    np.testing.assert_allclose(np.linalg.norm(REQUEST.directions, axis=1), 1)
    np.testing.assert_array_equal(REQUEST.directions[:3], np.eye(3))
    parameters = REQUEST.sketch_parameters
    assert set(parameters) == {"bounds", "projections", "n_bins"}
    assert parameters["bounds"] == DataBounds.from_box(-1, [1, 2, 3], 3)
    assert EXAMPLES["request with a norm"].bounds == DataBounds.from_norm(0.7, 2)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_bounds_that_one_party_has_released_serve_all():
    rows = RNG.normal(5.0, 2.0, size=(2000, 3))
    released = SlicedSketch(epsilon=5.0, projections=np.eye(3), n_bins=8).fit(rows)
    request = SketchRequest.from_bytes(SketchRequest(np.eye(3), 8, released.bounds_).to_bytes())
    other = SlicedSketch(epsilon=5.0, **request.sketch_parameters).fit(rows + 1)
    assert released.distance(request.read(SketchMessage(other))) > 0


def test_directions_are_scaled_and_then_stay_as_they_are():
    bounds = DataBounds.from_box(-1, 1, 3)
    request = SketchRequest(7.0 * uniform_directions(20, 3, RNG), 4, bounds)
    again = SketchRequest.from_bytes(request.to_bytes())
    assert again.directions.tobytes() == request.directions.tobytes()


BOX = DataBounds.from_box(-1, 1, 3)
BAD_REQUESTS = {
    "private bounds": (
        lambda: SketchRequest.draw(3, n_projections=3, n_bins=4, bounds="private", rng=RNG),
        "are public",
    ),
    "no bounds": (lambda: SketchRequest.draw(3, n_projections=3, n_bins=4, rng=RNG), "are public"),
    "both bounds": (
        lambda: SketchRequest.draw(
            3, n_projections=3, n_bins=4, bounds=(-1, 1), norm_bound=1, rng=RNG
        ),
        "give only one",
    ),
    "radius without resolution": (
        lambda: SketchRequest(np.eye(3), 4, DataBounds(np.ones(3), np.ones(3), 1e300)),
        "must lie between",
    ),
    "bounds are a pair": (lambda: SketchRequest(np.eye(3), 4, (-1, 1)), "must be DataBounds"),
    "zero direction": (lambda: SketchRequest(np.zeros((3, 3)), 4, BOX), "not zero"),
    "NaN direction": (lambda: SketchRequest(np.full((3, 3), np.nan), 4, BOX), "finite rows"),
    "other features": (lambda: SketchRequest(np.eye(2), 4, BOX), "one column a feature"),
    "text directions": (lambda: SketchRequest([["a"]], 4, BOX), "directions"),
    "one bin": (lambda: SketchRequest(np.eye(3), 1, BOX), "must be >= 2"),
    "many bins": (lambda: SketchRequest(np.eye(3), 513, BOX), "must be <= 512"),
    "bins for minutes": (lambda: SketchRequest(np.eye(3), 4096, BOX), "must be <= 512"),
    "bins are true": (lambda: SketchRequest(np.eye(3), True, BOX), "n_bins must be"),
    "bins are a float": (lambda: SketchRequest(np.eye(3), 8.0, BOX), "n_bins must be"),
    "table too large": (
        lambda: SketchRequest(np.ones((32_769, 3)), 512, BOX),
        "more than 16777216 entries",
    ),
    "directions too large": (
        lambda: SketchRequest(np.ones((513, 2**16)), 2, DataBounds.from_box(-1, 1, 2**16)),
        "more than 33554432 coordinates",
    ),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_unusable_requests_are_refused(case):
    make, text = BAD_REQUESTS[case]
    with pytest.raises(MessageError, match=text):
        make()


def test_a_strangers_request_for_too_many_bins_is_refused():
    assert SketchRequest(np.eye(3), 512, BOX).n_bins == 512
    with pytest.raises(MessageError, match="must be <= 512"):
        Message.from_bytes(changed(REQUEST, facts={"n_bins": 4096}))


def test_a_request_cannot_speak_of_privacy():
    for name in ("epsilon", "delta", "noise_scale", "budget", "random_state"):
        with pytest.raises(MessageError, match="unknown"):
            SketchRequest.from_bytes(changed(REQUEST, facts={name: 1e9}))
        assert name not in REQUEST.sketch_parameters


# -- sketches


def test_a_sketch_arrives_whole():
    sent = sketch(bounds=(-1, 1))
    message = SketchMessage.from_bytes(SketchMessage(sent).to_bytes())
    arrived = message.sketch
    for name in ("statistic_", "directions_", "half_widths_", "cdf_", "class_counts_"):
        np.testing.assert_array_equal(getattr(arrived, name), getattr(sent, name))
    assert arrived.privacy_spent_ == sent.privacy_spent_ == message.statement
    assert arrived.bounds_ == sent.bounds_
    assert (arrived.n_samples_, arrived.noise_scale_) == (sent.n_samples_, sent.noise_scale_)
    assert arrived.distance(sent) == 0.0


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("sketch with")])
def test_classes_and_names_of_a_sketch_arrive(name):
    sent, arrived = EXAMPLES[name].sketch, Message.from_bytes(EXAMPLES[name].to_bytes()).sketch
    for attribute in ("classes_", "feature_names_in_"):
        assert hasattr(arrived, attribute) == hasattr(sent, attribute)
        if hasattr(sent, attribute):
            given, due = getattr(arrived, attribute), getattr(sent, attribute)
            assert given.dtype == due.dtype
            assert given.tolist() == due.tolist()


def test_a_sketch_message_does_not_follow_the_sketch():
    sent = sketch(bounds=(-1, 1))
    message = SketchMessage(sent)
    before = message.to_bytes()
    sent.statistic_[:] = 0
    assert sent.directions_.flags.writeable
    assert message.to_bytes() == before


def test_open_sketches_and_odd_classes_are_not_sent():
    stream = SlicedSketch(bounds=(-1, 1)).partial_fit(ROWS)
    with pytest.raises(OpenSketchError, match="open"):
        SketchMessage(stream)
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")[(LABELS == "west") * 1]
    dated = sketch(labels=dates, conditional=True, bounds=(-1, 1))
    with pytest.raises(MessageError, match="classes that are sent"):
        SketchMessage(dated)


@pytest.mark.parametrize("what", [PLAIN, REQUEST, ROWS, None])
def test_only_sketches_are_sent_as_sketches(what):
    with pytest.raises(MessageError, match="A SlicedSketch is due, got"):
        SketchMessage(what)


def test_nothing_of_the_rows_is_in_a_sketch_message():
    data = PLAIN.to_bytes()
    for row in ROWS[:50]:
        for value in (row, row.astype(np.float32)):
            assert value.tobytes() not in data
            assert value[:1].tobytes() not in data


RECORD = facts_of(PLAIN.to_bytes())["record"]


def spent(**changes):
    return {"spent": RECORD["spent"] | changes}


def event(**changes):
    return spent(event=RECORD["spent"]["event"] | changes)


STATISTIC = PLAIN.record.statistic
GAUSSIAN = RECORD["spent"]["event"]


def bounds(**changes):
    return {"bounds": RECORD["bounds"] | changes}


def changed_sketch(facts=None, arrays=None):
    """Write the sketch with some facts and arrays of its record replaced."""
    named = {f"record.{name}": value for name, value in (arrays or {}).items()}
    return changed(PLAIN, facts={"record": RECORD | (facts or {})}, arrays=named)


NONSENSE = {
    "smaller epsilon than paid": (spent(epsilon=0.5), {}, "smaller epsilon than its own events"),
    "smaller delta than paid": (spent(delta=1e-9), {}, "smaller epsilon than its own events"),
    "NaN-like epsilon": (spent(epsilon="nan"), {}, "wrong one"),
    "negative epsilon": (spent(epsilon=-1.0), {}, "epsilon that is not > 0"),
    "no epsilon": (spent(epsilon=None), {}, "wrong one"),
    "delta of 1": (spent(delta=1), {}, "epsilon that is not > 0"),
    "epsilon is true": (spent(epsilon=True), {}, "wrong one"),
    "mechanism is a number": (spent(mechanism=3), {}, "wrong one"),
    "assumptions are numbers": (spent(assumptions=[1]), {}, "wrong one"),
    "assumptions are missing": (spent(assumptions=None), {}, "wrong one"),
    "sigma is text": (spent(sigma="1"), {}, "wrong one"),
    "other sigma": (spent(sigma=1e6), {}, "not the one that its statement"),
    "other sensitivity": (spent(sensitivity=1e-6), {}, "not the one that its statement"),
    "unknown entry": (spent(note="trust me"), {}, "unknown"),
    "unknown event": (event(type="TrustMe"), {}, "names an unknown event"),
    "event is a module": (event(type="math"), {}, "names an unknown event"),
    "event is base class": (
        spent(event={"type": "Event", "relation": "replace_one", "label": ""}),
        {},
        "event of type Event",
    ),
    "event type is a list": (event(type=["GaussianEvent"]), {}, "names an unknown event"),
    "event is a number": (spent(event=3), {}, "wrong one"),
    "sampled event": (
        spent(
            event={
                "type": "SampledGaussianEvent",
                "relation": "replace_one",
                "sigma": 1.0,
                "sensitivity": 1.0,
                "sampling_rate": 1e-9,
                "n_steps": 10**9,
                "clipped_sum": False,
                "lattice": None,
                "label": "",
                "sampling": "poisson",
                "n_samples": None,
                "batch_sizes": None,
                "group_sizes": None,
            }
        ),
        {},
        "event of type SampledGaussianEvent",
    ),
    "other relation": (event(relation="add_or_remove_one"), {}, "under replace-one"),
    "unknown relation": (event(relation="none"), {}, "not a valid"),
    "tiny sensitivity": (
        event(sensitivity=GAUSSIAN["sensitivity"] / 9),
        {},
        "not the one that its statement",
    ),
    "sensitivity of less": (
        spent(
            sensitivity=GAUSSIAN["sensitivity"] / 9,
            event=GAUSSIAN | {"sensitivity": GAUSSIAN["sensitivity"] / 9},
        ),
        {},
        "not the one that its statement",
    ),
    "many steps": (event(n_steps=2), {}, "smaller epsilon"),
    "negative sigma": (event(sigma=-1.0), {}, "sigma"),
    "no noise": ({"noise_scale": 0.0}, {}, "not the one that its statement"),
    "less noise than stated": ({"noise_scale": PLAIN.record.noise_scale / 2}, {}, "noise"),
    "negative noise": ({"noise_scale": -1.0}, {}, "noise_scale of the sketch is -1.0"),
    "infinite noise": ({"noise_scale": math.inf}, {}, "noise_scale of the sketch is inf"),
    "noise is true": ({"noise_scale": True}, {}, "wrong one"),
    "no rows": ({"n_samples": 0}, {}, "n_samples of the sketch is 0"),
    "half a row": ({"n_samples": 0.5}, {}, "wrong one"),
    "rows are true": ({"n_samples": True}, {}, "wrong one"),
    "rows are text": ({"n_samples": "300"}, {}, "wrong one"),
    "finite epsilon without noise": (
        spent(event={"type": "NonPrivateEvent", "relation": "replace_one", "label": ""}),
        {},
        "finite epsilon for a release without noise",
    ),
    "unreachable counts": ({}, {"statistic": STATISTIC + 1e9}, "cannot reach"),
    "one bin": ({}, {"statistic": np.zeros((1, 4, 1))}, "inconsistent shapes"),
    "ten thousand bins": ({}, {"statistic": np.zeros((1, 4, 10**4))}, "at most 512 bins"),
    "two classes": ({}, {"statistic": np.zeros((2, 4, 8))}, "inconsistent shapes"),
    "flat table": ({}, {"statistic": np.zeros((4, 8))}, "inconsistent shapes"),
    "long directions": ({}, {"directions": 2 * REQUEST.directions}, "unit length"),
    "wider ranges": (
        {},
        {"half_widths": 2 * PLAIN.record.half_widths},
        "do not follow from its bounds",
    ),
    "zero ranges": ({}, {"half_widths": np.zeros(4)}, "do not follow from its bounds"),
    "negative scale": ({}, {"bounds.scale": -np.ones(3)}, "positive"),
    "bounds beyond all numbers": (
        {},
        {"bounds.scale": np.full(3, 1.7e308), "bounds.center": np.full(3, 1e308)},
        "bounds of the sketch are not finite",
    ),
    "huge radius": (bounds(radius=1e300), {}, "out of range"),
    "radius of two": (bounds(radius=[1.0, 1.0]), {}, "wrong one"),
    "box is a number": (bounds(box=1), {}, "wrong one"),
    "names too few": ({"feature_names": ["a"]}, {}, "inconsistent shapes"),
    "names are numbers": ({"feature_names": [1, 2, 3]}, {}, "wrong one"),
    "classes of a table without": (
        {"classes": "@"},
        {"classes": np.array([1])},
        "exactly if it is conditional",
    ),
    "classes twice": ({"classes": "@"}, {"classes": np.array([1, 1])}, "shapes|sorted"),
    "dates as classes": (
        {"classes": "@<M8[s]"},
        {"classes": np.zeros((1, 8), "u1")},
        "classes that are sent",
    ),
    "declared is text": ({"declared_bounds": "yes"}, {}, "wrong one"),
    "a parameter more": ({"budget": None}, {}, "unknown"),
    "epsilon is a list": ({"epsilon": []}, {}, "wrong one"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_sketches_that_cannot_be_are_refused(case):
    facts, arrays, text = NONSENSE[case]
    with pytest.raises(MessageError, match=text):
        SketchMessage.from_bytes(changed_sketch(facts, arrays))


@pytest.mark.parametrize("depth", [10, 150, 300])
def test_nested_events_are_bounded(depth):
    nested = GAUSSIAN
    for _ in range(depth):
        nested = {"type": "ComposedEvent", "events": [nested]}
    with pytest.raises(MessageError, match=r"nested too deeply|wrong one"):
        SketchMessage.from_bytes(changed_sketch(spent(event=nested)))


def test_a_strangers_sketch_takes_bounded_memory():
    bins = 4096
    data = changed_sketch(arrays={"statistic": np.zeros((1, 4, bins + 1))})
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="at most 512 bins"):
            Message.from_bytes(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(data)


# -- answers to a request


def test_an_answer_is_read_with_the_directions_that_were_asked_for():
    # Another machine may round the last digit of directions and ranges otherwise.
    near = {
        "directions": PLAIN.record.directions * (1 + 2e-16),
        "half_widths": np.nextafter(PLAIN.record.half_widths, 9),
    }
    answer = SketchMessage.from_bytes(changed_sketch(arrays=near))
    read = REQUEST.read(answer)
    np.testing.assert_array_equal(read.directions_, REQUEST.directions)
    assert read.distance(REQUEST.read(PLAIN)) == 0.0


OTHER = SketchRequest.draw(3, n_projections=4, n_bins=8, bounds=(-1, 1), rng=RNG)
ANSWERS = {
    "bounds": (SketchMessage(sketch(**OTHER.sketch_parameters)), "half_widths, bounds"),
    "bins": (
        SketchMessage(sketch(**REQUEST.sketch_parameters | {"n_bins": 9})),
        "shape of the table",
    ),
    "directions": (
        SketchMessage(
            sketch(**REQUEST.sketch_parameters | {"projections": uniform_directions(4, 3, RNG)})
        ),
        "directions",
    ),
    "projections": (
        SketchMessage(
            sketch(**REQUEST.sketch_parameters | {"projections": uniform_directions(5, 3, RNG)})
        ),
        "directions",
    ),
    "classes": (
        SketchMessage(sketch(labels=LABELS, conditional=True, **REQUEST.sketch_parameters)),
        "shape of the table",
    ),
    "private bounds": (SketchMessage(sketch(epsilon=8.0)), "bounds"),
}


def test_only_sketches_are_read_as_answers():
    for message in (EXAMPLES["interpolating measure"], PLAIN.sketch):
        with pytest.raises(MessageError, match="A SketchMessage is due"):
            REQUEST.read(message)


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_to_something_else_are_refused(case):
    answer, text = ANSWERS[case]
    with pytest.raises(MessageError, match=f"does not measure what was asked for.*{text}"):
        REQUEST.read(answer)
