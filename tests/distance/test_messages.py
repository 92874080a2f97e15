"""Messages: exact on the line, and refused when they cannot be.

Bytes of strangers are the matter of `tests/contract/test_hostile_bytes.py`.
"""

import math
import pickle
import warnings
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch
from skdpot.distance.messages import (
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
from skdpot.exceptions import MessageError, OpenSketchError, PrivacyWarning
from skdpot.ot.directions import uniform_directions
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
    "fraction request": FractionRequest(POINTS, MASSES),
    "distances": DistancesAtFractions(FRACTIONS, [0.0, 1.5, 2.0]),
    "costs": CostMatrices(FRACTIONS, RNG.uniform(size=(3, 4, 5)), [0.1, 0.2, 0.3, 0.4]),
    "distance": DistanceMessage(0.1),
    "request": REQUEST,
    "request with a norm": draw(2, 3, 2, norm_bound=0.7),
    "sketch": PLAIN,
    "sketch with names": SketchMessage(sketch(pd.DataFrame(ROWS, columns=["a", "ü", "c c"]))),
    "sketch with classes": SketchMessage(sketch(labels=LABELS)),
    "sketch without privacy": SketchMessage(sketch(epsilon=math.inf)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_round_trip_is_exact(name):
    """That of the record in a sketch is asked of `tests.core.release.test_sketch_file`."""
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
    for item in fields(message):
        given, due = getattr(arrived, item.name), getattr(message, item.name)
        if not isinstance(message, SketchMessage):
            assert np.asarray(given).dtype == np.asarray(due).dtype
            np.testing.assert_array_equal(given, due)
    assert pickle.loads(pickle.dumps(message)) == message
    assert message.reveals.endswith(".")
    assert ("differentially private" in message.reveals) == (
        isinstance(message, SketchMessage) and name != "sketch without privacy"
    )
    # Sizes alone are shown.
    assert repr(arrived) == repr(message)
    assert "bytes" in repr(message)
    for value in (POINTS[0, 0], MASSES[0], 0.3, EXAMPLES["costs"].costs[0, 0, 0]):
        assert f"{value:.3f}" not in repr(message)


def test_what_is_revealed_is_said_in_full():
    assert "(1, 1e-05)" in PLAIN.reveals
    assert "Exact counts" in EXAMPLES["sketch without privacy"].reveals


def test_messages_are_frozen_and_own_their_arrays():
    given, sent = POINTS.copy(), sketch()
    message, of_sketch = InterpolatingMeasure(given), SketchMessage(sent)
    before, released = message.to_bytes(), of_sketch.to_bytes()
    given[:] = sent.statistic_[:] = 0
    assert message.to_bytes() == before
    assert of_sketch.to_bytes() == released
    with pytest.raises(AttributeError, match="cannot assign"):
        message.points = given
    for each in (message, Message.from_bytes(before)):
        with pytest.raises(ValueError, match="read-only"):
            each.points[0, 0] = 1.0
    read = of_sketch.sketch
    for array in (of_sketch.record.statistic, read.statistic_):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    read.release_ = read.privacy_spent_ = None
    read.cdf_[:] = 0.0
    assert of_sketch.to_bytes() == released
    assert of_sketch.sketch.cdf_.any()


def changed(message, facts=None, arrays=None):
    """Write a message with a right checksum and some entries replaced."""
    good = message.to_bytes()
    return forged(good, facts_of(good) | (facts or {}), arrays)


RECORD = facts_of(PLAIN.to_bytes())["record"]
UNPAID = {"type": "NonPrivateEvent", "relation": "replace_one", "label": ""}
SAMPLED = UNPAID | {
    **{"type": "SampledGaussianEvent", "sampling": "poisson", "sigma": 1.0, "sensitivity": 1.0},
    **{"sampling_rate": 1e-9, "n_steps": 10**9, "clipped_sum": False, "lattice": None},
    **dict.fromkeys(("n_samples", "batch_sizes", "group_sizes")),
}


def stating(event):
    """Return a sketch that states another event."""
    return changed(PLAIN, {"record": RECORD | {"spent": RECORD["spent"] | {"event": event}}})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (changed(EXAMPLES["distance"], {"squared_distance": 0}), "only valid form"),
        (changed(REQUEST, arrays={"directions": 2 * REQUEST.directions}), "only valid form"),
        # How much noise there is, and who pays for it, is no part of a request.
        (changed(REQUEST, {"epsilon": 1e9}), "unknown"),
        (changed(REQUEST, {"budget": 1e9}), "unknown"),
        # A sketch has no other mechanism.
        (stating(SAMPLED), "event of type SampledGaussianEvent"),
        (stating(UNPAID), "finite epsilon for a release without noise"),
    ],
)
def test_bytes_in_other_words_are_refused(data, text):
    with pytest.raises(MessageError, match=text):
        Message.from_bytes(data)


# What no field of this name can hold, whatever the message.
IMPOSSIBLE = {
    "points": [
        *([[np.nan]], [[1e200]], [1.0, 2.0], np.zeros((0, 2)), [["4711x"]], [[1.0], [1.0, 4711.0]])
    ],
    "masses": [[4711, -4710, 0, 0, 0], [1, 1, 1, 1, 1], [1.0], [np.nan] * 5],
    "t": [0.0, 1.0, True, math.nan, "0.5"],  # at t = 0 the message would be the rows
    "interpolation": ["none", []],
    "fractions": [[0.0, 0.5, 0.75], [0.5, 0.5, 0.6], [], np.linspace(0.1, 0.9, 65)],
    "squared_distances": [[-4711.0, 0, 0], [1.0], [0, 0, np.inf]],
    "costs": [-np.ones((3, 4, 5)), np.ones((2, 4, 5)), np.ones((3, 4))],
    "squared_distance": [-4711.0, math.nan, True, "1", np.inf],
}
FIELDS = [
    (name, item.name)
    for name in ("reference", "geodesic measure", "interpolating measure", "fraction request",
                 "distances", "costs", "distance")
    for item in fields(EXAMPLES[name])
]  # fmt: skip


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_impossible_messages_are_refused_and_no_value_quoted(name, field):
    for value in IMPOSSIBLE[field]:
        with pytest.raises(MessageError, match=field) as caught:
            replace(EXAMPLES[name], **{field: value})
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
        (lambda: SketchRequest(np.full((3, 3), np.nan), 4, BOX), "finite rows"),
        (lambda: SketchRequest(np.eye(2), 4, BOX), "one column per feature"),
        (lambda: SketchRequest(np.eye(3), 1, BOX), "must be >= 2"),
        (lambda: SketchRequest(np.eye(3), 513, BOX), "must be <= 512"),
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


def test_what_is_not_sent_as_a_sketch():
    with pytest.raises(OpenSketchError, match="open"):
        SketchMessage(SlicedSketch(bounds=(-1, 1)).partial_fit(ROWS))
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")[(LABELS == "west") * 1]
    with pytest.raises(MessageError, match="classes that are sent"):
        SketchMessage(sketch(labels=dates))
    for what in (PLAIN, REQUEST, ROWS, None):
        with pytest.raises(MessageError, match="Expected a SlicedSketch, got"):
            SketchMessage(what)


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
        ({"n_bins": 9}, "shape of the table"),
        ({"labels": LABELS}, "shape of the table"),
        ({"projections": uniform_directions(4, 3, RNG)}, "directions"),
    ],
)
def test_answers_to_something_else_are_refused(other, text):
    answer = SketchMessage(sketch(**REQUEST.sketch_parameters | other))
    with pytest.raises(MessageError, match=f"does not match the request.*{text}"):
        REQUEST.read(answer)
    for no_answer in (EXAMPLES["interpolating measure"], PLAIN.sketch):
        with pytest.raises(MessageError, match="Expected a SketchMessage"):
            REQUEST.read(no_answer)
