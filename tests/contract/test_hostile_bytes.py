"""Bytes of strangers: refused with a clear error, without running code or filling memory."""

import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import DPTableSynthesizer, PrivacyBudget, SlicedSketch
from skdpot._utils.records import _classes
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
from skdpot.distance.party import Party
from skdpot.distance.remote import ReleaseFile, answer
from skdpot.exceptions import LedgerError, MessageError, PrivacyWarning
from skdpot.privacy.gdp import gdp_delta
from skdpot.release.sketch_record import SketchRecord
from skdpot.release.strategy import Energy
from skdpot.tables.record import TableRecord
from tests.contract.hostile_files import (
    Bomb,
    arrays_of,
    deep_change,
    facts_of,
    forged,
    joined,
    places,
    split,
    text_of,
    with_tensor,
    with_text,
)
from tests.tables.table_models import fitted as fitted_table

RNG = np.random.default_rng(7001)
ROWS = RNG.uniform(-1, 1, (200, 3))
LABELS = np.array(["a", "bb"])[RNG.integers(0, 2, 200)]
SHARES = RNG.dirichlet(np.ones(4))
REFUSED = r"(?s).{10}"  # an error says something

# What reading may take beside a multiple of the input: interpreter, JSON, one strategy matrix.
CONSTANT_MEMORY = 32 * 2**20
MULTIPLE = 40


def sketch(labels=None, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        given_parameters = {"bounds": (-1, 1), "projections": np.eye(3), "n_bins": 8} | parameters
        return SlicedSketch(**given_parameters).fit(ROWS, labels)


PLAIN, CLASSES = sketch(), sketch(LABELS, conditional=True)
MERGED = PLAIN.merge(sketch(epsilon=0.2))
SMALL = {
    "reference": ReferenceMeasure(ROWS[:3], None, 0.3, "exact"),
    "interpolating": InterpolatingMeasure(ROWS[:4], SHARES),
    "geodesic": GeodesicMeasure(ROWS[:2]),
    "fraction request": FractionRequest(ROWS[:2], None, [0.5]),
    "distances": DistancesAtFractions([0.25, 0.5], [0.0, 2.0]),
    "costs": CostMatrices([0.5], RNG.uniform(size=(1, 4, 2)), SHARES),
    "distance": DistanceMessage(0.1),
    "sketch request": SketchRequest.draw(3, n_projections=3, n_bins=8, bounds=(-1, 1), rng=RNG),
    "sketch": SketchMessage(PLAIN),
    "sketch with classes": SketchMessage(CLASSES),
}


@dataclass(frozen=True)
class Format:
    """Something that strangers send: a good example, what reads it, and one of its arrays."""

    good: bytes
    read: Callable[[bytes], Any]
    array: str | None
    error: type[ValueError] = ValueError


def read_sketch(data):
    return SketchRecord.from_bytes(data).restore()


def format_of(message):
    good = message.to_bytes()
    arrays = (name for name, array in arrays_of(good).items() if array.dtype == np.float64)
    return Format(good, Message.from_bytes, next(arrays, None), MessageError)


SKETCH = SketchRecord.of(CLASSES).to_bytes()
TABLES = TableRecord.of(fitted_table("left out")).to_bytes()
FORMATS = {
    "sketch": Format(SKETCH, read_sketch, "statistic"),
    "synthesizer": Format(
        TABLES, lambda data: TableRecord.from_bytes(data).restore(), "releases.0.0.counts"
    ),
} | {f"message, {name}": format_of(message) for name, message in SMALL.items()}
WITH_ARRAYS = [name for name in FORMATS if FORMATS[name].array is not None]


def refused(name, data, match=REFUSED):
    """Read bytes that are not the good ones, and return what is said."""
    with pytest.raises(FORMATS[name].error, match=match) as caught:
        FORMATS[name].read(data)
    return str(caught.value)


# ------------------------------------------------------------------------ whatever is sent


def test_all_kinds_of_messages_are_tried():
    assert {type(message) for message in SMALL.values()} == {
        made for made in _classes(Message) if "kind" in vars(made)
    }


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_cut_anywhere_are_refused(name):
    good = FORMATS[name].good
    for length in (*range(0, len(good), 1 + len(good) // 1000), len(good) - 1):
        refused(name, good[:length], "is not a .*, or it is damaged")


@pytest.mark.parametrize("name", FORMATS)
def test_every_flipped_bit_is_found(name):
    good = FORMATS[name].good
    for position in range(0, 8 * len(good), 1 + len(good) // 200):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << position % 8
        refused(name, bytes(damaged))


# What may be promised of an array of numbers: data type, shape and bytes.
HOSTILE_TENSORS = {
    "promises a terabyte": lambda a: ("F64", [2**37], b""),
    "promises more than there is": lambda a: ("F64", [2**60, 2**60], b""),
    "negative length": lambda a: ("F64", [-1, *a.shape[1:]], a.tobytes()),
    "a number more": lambda a: ("F64", list(a.shape), a.tobytes() + bytes(8)),
    "a number less": lambda a: ("F64", list(a.shape), a.tobytes()[:-8]),
    "single precision": lambda a: ("F32", list(a.shape), a.astype("<f4").tobytes()),
    "integers": lambda a: ("I64", list(a.shape), a.astype("<i8").tobytes()),
    "truth values": lambda a: ("BOOL", list(a.shape), bytes(a.size)),
    "an unknown type": lambda a: ("__import__('os').abort()", list(a.shape), a.tobytes()),
    "no type": lambda a: (None, list(a.shape), a.tobytes()),
    "no numbers": lambda a: ("F64", [0, *a.shape[1:]], b""),
    "more dimensions": lambda a: ("F64", [1, 1, *a.shape], a.tobytes()),
}


@pytest.mark.parametrize("case", HOSTILE_TENSORS)
def test_hostile_tensors_are_refused(case):
    for name in WITH_ARRAYS:
        good, array = FORMATS[name].good, FORMATS[name].array
        hostile = HOSTILE_TENSORS[case](arrays_of(good)[array])
        refused(name, with_tensor(good, array, *hostile))


def _header(change):
    """Return a function that changes the header of ``safetensors``."""

    def apply(data, array):
        header, body = split(data)
        return joined(change(header, array), body)

    return apply


def _again(data, array):
    """Name a tensor twice; a reader that takes the last one would not see the first."""
    raw = data[8 : 8 + int.from_bytes(data[:8], "little")].rstrip()
    entry = json.dumps(split(data)[0][array])
    return joined(raw[:-1] + f',"{array}":'.encode() + entry.encode() + b"}", split(data)[1])


HOSTILE_FILES = {
    "a tensor twice": _again,
    "another tensor beside": lambda d, a: forged(d, arrays={"extra": np.zeros(3)}),
    "a tensor less": lambda d, a: forged(d, arrays={a: ...}),
    "other metadata beside": _header(
        lambda h, a: h | {"__metadata__": h["__metadata__"] | {"note": "trust me"}}
    ),
    "no metadata": _header(lambda h, a: {k: v for k, v in h.items() if k != "__metadata__"}),
    "metadata that is a number": _header(lambda h, a: h | {"__metadata__": {"skdpot": 3}}),
    "another order": _header(lambda h, a: dict(reversed(h.items()))),
    "a header in UTF-16": _header(lambda h, a: json.dumps(h).encode("utf-16")),
    "offsets that overlap": _header(lambda h, a: h | {"twin": h[a]}),
    "bytes behind": lambda d, a: d + bytes(30),
    "a header beyond the end": lambda d, a: joined(b"{}", length=2**19),
    "another kind": lambda d, a: forged(d, kind="skdpot.PrivateScaler"),
    "a newer version": lambda d, a: forged(d, version=2),
    "another's": lambda d, a: FORMATS["synthesizer" if d == SKETCH else "sketch"].good,
    "a pickle": lambda d, a: pickle.dumps(Bomb(Path("trace"))),
}


@pytest.mark.parametrize("case", HOSTILE_FILES)
def test_hostile_files_are_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in WITH_ARRAYS:
        said = refused(name, HOSTILE_FILES[case](FORMATS[name].good, FORMATS[name].array))
        assert len(said) < 600
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    told = []

    def load(place):
        with pytest.raises(ValueError, match="not a regular file"):
            SlicedSketch.load(place)
        told.append(place)

    for place in (tmp_path / "pipe", Path("/dev/zero")):
        reader = threading.Thread(target=load, args=(place,), daemon=True)
        reader.start()
        reader.join(10)
    assert len(told) == 2


# ------------------------------------------------------------------------ sketches


# Values that hardly any fact can have.
OTHERS = (
    *(None, [], {}, [100, 100], ["a", "bb"], [-1, 201], True, False, ..., math.nan, math.inf),
    *(0, -1, 1, 2, 10**30, 10**400, 2**54, -1.0, 1e-300, 1e-9, 9e-6, 0.3, 0.99, 1.5, 1e9, 1e300),
    *("", "1", "@", "@<f8", "@<i8", "@<U1", "@<U99999999", "@|O8", "@<c8", "half_widths"),
    *("none", "add_or_remove_one", "Path", "Event", "compose", "GaussianEvent", "trust me"),
)
WORDS = [("spent", "mechanism"), ("spent", "event", "label"), ("spent", "assumptions")]
SIZES = [("delta",), ("epsilon",), ("norm_bound",), ("n_samples",)]  # which promise nothing
LARGER = [("noise_scale",), ("spent", "epsilon"), ("spent", "delta")]  # a weaker promise


def may_be(where, old, value):
    """Whether it may be read, because it promises no more than what stands there."""
    if where == ("declared_bounds",):
        return value is False
    if where[:3] in WORDS or where[:2] in WORDS:
        return isinstance(value, str | list) or (value is ... and where[-1] != where[1])
    number = type(value) in (int, float)
    return number and (where in SIZES and value > 0 or where in LARGER and value > old)


@pytest.mark.parametrize("where", [where for where, _ in places(facts_of(SKETCH))], ids=str)
def test_facts_that_cannot_be_are_refused(where):
    facts = facts_of(SKETCH)
    old = dict(places(facts))[where]
    for value in OTHERS:
        same = value == old and isinstance(value, bool) == isinstance(old, bool)
        if not same and not may_be(where, old, value):
            data = forged(SKETCH, deep_change(facts, where, value))
            assert len(refused("sketch", data)) < 600
    if isinstance(old, dict):
        refused("sketch", forged(SKETCH, deep_change(facts, (*where, "note"), "trust me")))


def lied(name, lie):
    return lambda: forged(SKETCH, arrays={name: lie(arrays_of(SKETCH)[name])})


def with_classes(*classes):
    made = CLASSES.__sklearn_clone__()
    vars(made).update(vars(CLASSES) | {"classes_": np.array(classes)})
    return SketchRecord.of(made).to_bytes()


def in_a_ball(factor):
    """In a ball the binned range is the same along all directions, whatever their length."""
    good = SketchRecord.of(sketch(bounds="private", norm_bound=2.0)).to_bytes()
    return forged(good, arrays={"directions": factor * np.eye(3)})


def of_no_text(raw):
    classes = np.frombuffer(2 * raw + 2 * b"b\0\0\0", "u1").reshape(2, 8)
    return forged(SKETCH, arrays={"classes": classes})


IN_VAIN = r"sketch|`center`|`radius`|non-finite"
LIES = {
    "NaN": (lied("statistic", lambda v: np.where(v == v.max(), np.nan, v)), IN_VAIN),
    "infinity": (lied("statistic", lambda v: np.where(v == v.max(), -np.inf, v)), IN_VAIN),
    "off the lattice": (lied("statistic", lambda v: np.nextafter(v, np.inf)), IN_VAIN),
    "unreachable": (lied("statistic", lambda v: v + 2.0**40), IN_VAIN),
    "other shape": (lied("statistic", lambda v: v[:, :2]), IN_VAIN),
    "integers": (lied("statistic", lambda v: v.astype(np.int64)), IN_VAIN),
    "long directions": (lied("directions", lambda v: v * 1.001), IN_VAIN),
    "huge directions": (lied("directions", lambda v: v * 1e200), IN_VAIN),
    "wider ranges": (lied("half_widths", lambda v: v * 2), IN_VAIN),
    "low above high": (lied("bounds.scale", np.negative), IN_VAIN),
    "NaN centre": (lied("bounds.center", lambda v: v * np.nan), IN_VAIN),
    "a centre of -0": (lied("bounds.center", lambda v: v - 0.0 if v.any() else -v), IN_VAIN),
    "twice the same class": (lambda: with_classes("a", "a"), "sketch"),
    "classes that are not sorted": (lambda: with_classes("bb", "a"), "sketch"),
    "three classes": (lambda: with_classes("a", "b", "c"), "sketch"),
    "a character beyond all": (lambda: of_no_text(b"\xff\xff\xff\x7f"), "holds no text"),
    "the first character beyond": (lambda: of_no_text(b"\x00\x00\x11\x00"), "holds no text"),
    **{
        f"directions of length {factor}": (lambda f=factor: in_a_ball(f), "unit length")
        for factor in (1.001, 0.999, 0.0, -2.0, 1e200)
    },
}


@pytest.mark.parametrize("case", LIES)
def test_arrays_that_cannot_be_are_refused(case):
    make, text = LIES[case]
    refused("sketch", make(), text)


def proves(facts, sketch):
    """Whether a statement holds, by the textbook: what its noise gives at its epsilon."""
    spent, event = facts["spent"], facts["spent"]["event"]
    energy = Energy.of(sketch.bounds_, sketch.directions_, sketch.half_widths_)
    due = sketch.strategy_.sensitivity(energy, conditional=sketch.conditional)
    mu = due / event["sigma"]
    return gdp_delta(spent["epsilon"], mu) <= spent["delta"] * (1 + 1e-5) and facts[
        "noise_scale"
    ] >= event["sigma"] * (1 - 1e-6)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_no_forged_statement_promises_more_than_its_noise(data):
    original = data.draw(st.sampled_from([PLAIN, CLASSES, MERGED]))
    good = SketchRecord.of(original).to_bytes()
    facts = facts_of(good)
    factors = st.sampled_from([1, 1, 1, 0.5, 2, 0.999, 1.001, 10])
    for where in (
        ("spent", "epsilon"),
        ("spent", "delta"),
        ("spent", "sigma"),
        ("spent", "sensitivity"),
        ("spent", "event", "sigma"),
        ("spent", "event", "sensitivity"),
        ("spent", "event", "lattice"),
        ("noise_scale",),
    ):
        old = dict(places(facts))[where]
        facts = deep_change(facts, where, old * data.draw(factors))
    if data.draw(st.booleans()):  # as one who takes care would lie
        for name in ("sigma", "sensitivity"):
            facts = deep_change(facts, ("spent", name), facts["spent"]["event"][name])
    try:
        read_sketch(forged(good, facts))
    except ValueError:
        return
    assert proves(facts, original)


# ------------------------------------------------------------------------ synthesizers

FACTS, ARRAYS = facts_of(TABLES), arrays_of(TABLES)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def check_harmless(forgery, way=()):
    """What is accepted is a synthesizer: it draws rows, scores and reports."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parameters, learned = TableRecord.from_bytes(forgery()).restore()
        except ValueError:
            return
        loaded = DPTableSynthesizer(**parameters)
        vars(loaded).update(learned)
        assert len(loaded.sample(5, random_state=0)) == 5
        assert repr(loaded.quality_report(n_samples=20, random_state=0))
        assert loaded.privacy_spent_.epsilon >= 3.0 - 1e-9 or way[:2] == ("spent", "delta")


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(sorted((way for way, _ in places(FACTS)), key=repr)), VALUES)
def test_a_fact_of_any_other_value_is_refused_or_harmless(way, value):
    check_harmless(lambda: forged(TABLES, deep_change(FACTS, way, value)), way)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(name for name in ARRAYS if ARRAYS[name].size)), st.data())
def test_numbers_of_any_other_value_are_refused_or_harmless(name, data):
    array = ARRAYS[name].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, array.size - 1))
        any_number = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 8)
        if array.dtype == np.float64:
            any_number = st.floats() | st.floats(-5, 5)
        array.flat[place] = data.draw(any_number)
    check_harmless(lambda: forged(TABLES, arrays={name: array}))


SCRIPT = "<script>alert(1)</script>"
FIRST, SECOND, *REST = FACTS["schema"]["columns"]
SPOKEN = {
    SlicedSketch: (SKETCH, {("spent", "mechanism"): SCRIPT, ("spent", "assumptions"): [SCRIPT]}),
    DPTableSynthesizer: (
        TABLES,
        {
            ("spent", "mechanism"): SCRIPT,
            ("schema", "columns"): [
                FIRST, SECOND | {"categories": [SCRIPT, "b", "c", "d"]}, *REST
            ],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOKEN)
def test_statements_of_strangers_are_shown_as_text(kind, tmp_path):
    good, changes = SPOKEN[kind]
    facts, path = facts_of(good), tmp_path / "file.safetensors"
    for where, value in changes.items():
        facts = deep_change(facts, where, value)
    path.write_bytes(forged(good, facts))
    loaded = kind.load(path)
    pages = [loaded.privacy_spent_._repr_html_()]
    if kind is DPTableSynthesizer:
        pages += [loaded.quality_report(n_samples=50, random_state=0).to_html()]
    for page in pages:
        assert "&lt;script&gt;" in page
        assert SCRIPT not in page


# -- memory, measured in a process of its own

MEASURE = """
import json, pathlib, resource, sys, tracemalloc
from skdpot.distance.messages import Message
from skdpot.release.sketch_record import SketchRecord
from skdpot.tables.record import TableRecord

records = {".message": Message, ".sketch": SketchRecord, ".synthesizer": TableRecord}
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 700 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    tracemalloc.start()
    try:
        read = records[path.suffix].load(path)
        getattr(read, "restore", read.to_bytes)()
        end = "read"
    except Exception as error:
        end = type(error).__name__
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(json.dumps([path.name, end, path.stat().st_size, peak]))
"""


def _bombs(good, array):
    """Bytes that ask for far more memory or time than they are long."""
    (header, body), text = split(good), text_of(good)[:-1]
    huge = {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}
    return {
        "terabyte": with_tensor(good, array, "F64", [2**37], b""),
        "long list": with_text(good, text + ', "x": [' + "0," * 400_000 + "0]}"),
        "deep list": with_text(good, text + ', "x": ' + "[" * 400_000 + "]" * 400_000 + "}"),
        "header length": joined(b"{}", length=2**40),
        "one huge tensor": joined(header | {"points": huge}, body),
        "deep": joined(b"[" * 2**20),
        "long": joined(b"[" + b"0," * 2**18 + b"0]"),
        "spaces": joined(b" " * 2**20),
    }


def _nested(depth):
    event = {"type": "NonPrivateEvent", "relation": "replace_one"}
    for _ in range(depth):
        event = {"type": "ComposedEvent", "events": [event]}
    return event


def _long_facts():
    """Yield facts that take far more room once they are read: kind of record, name, way, value."""
    names = ["a" * 400_000, *"b" * 20_000]  # in an array each would take the room of the longest
    yield "sketch", "one huge text", ("classes",), "@<U99999999"
    yield "sketch", "long names", ("feature_names",), names
    many = [{"kind": "boolean", "name": f"{k}"} for k in range(60_000)]
    categories = [f"{k}" for k in range(200_000)]
    marginal = facts_of(TABLES)["releases"][1][0]
    wide = deep_change(marginal, ("marginal", "columns"), list(range(9**5)))
    columns = [{"kind": "categorical", "name": "x", "categories": categories}]
    yield "synthesizer", "deep events", ("spent", "event"), _nested(60)
    yield "synthesizer", "many columns", ("schema", "columns"), many
    yield "synthesizer", "many categories", ("schema", "columns"), columns
    yield "synthesizer", "many marginals", ("releases",), [[marginal] * 30_000]
    yield "synthesizer", "many columns in one", ("releases",), [[wide]]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_hostile_bytes_take_little_memory(tmp_path):
    for kind in ("sketch", "synthesizer", "message, sketch"):
        good, array = FORMATS[kind].good, FORMATS[kind].array
        for name, data in ({"good": good} | _bombs(good, array)).items():
            (tmp_path / f"{name}.{kind.partition(',')[0]}").write_bytes(data)
    for kind, name, way, value in _long_facts():
        good = FORMATS[kind].good
        longer = forged(good, deep_change(facts_of(good), way, value))
        (tmp_path / f"{name}.{kind}").write_bytes(longer)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(measured) == len(list(tmp_path.iterdir())) == 3 * 9 + 7
    for name, end, size, peak in measured:
        error = "MessageError" if name.endswith(".message") else "ValueError"
        assert end == ("read" if name.startswith("good.") else error), (name, end)
        assert peak <= MULTIPLE * size + CONSTANT_MEMORY, (name, size, peak)


# ------------------------------------------------------------------------------- messages


OFF = np.nextafter(PLAIN.statistic_, np.inf)
MANY = np.zeros((1, 3, 513))


@pytest.mark.parametrize(
    ("arrays", "facts", "text"),
    [
        ({"record.statistic": OFF}, {}, "off the lattice"),
        ({"record.statistic": MANY}, {}, "at most 512 bins"),  # decoding would take minutes
        ({}, {"note": "trust me"}, "unknown"),
    ],
)
def test_sketches_that_no_party_sends_are_refused(arrays, facts, text):
    good = SMALL["sketch"].to_bytes()
    with pytest.raises(MessageError, match=text):
        Message.from_bytes(forged(good, facts_of(good) | facts, arrays))
    with pytest.raises(MessageError, match="at most 512 bins"):
        SketchMessage(sketch(n_bins=600)).to_bytes()


def test_hostile_requests_charge_nothing(tmp_path):
    budget = PrivacyBudget(1.0, ledger=tmp_path / "ledger")
    party = Party("north", ROWS, budget=budget)
    good = SMALL["sketch request"].to_bytes()
    header, body = split(good)
    facts, wide = facts_of(good), arrays_of(good)["directions"]
    for data in (
        b"",
        good[:-1],
        good + b"x",
        joined(header, body[:-8]),
        forged(good, facts | {"n_bins": 4096}),
        forged(good, facts | {"n_bins": -8}),
        forged(good, arrays={"directions": np.full_like(wide, np.nan)}),
        forged(good, arrays={"directions": np.zeros_like(wide)}),
        forged(good, arrays={"directions": wide * 2}),
        joined(b"[" * 10**5),
        pickle.dumps(Bomb(tmp_path / "trace")),
        SMALL["sketch"].to_bytes(),
    ):
        with pytest.raises(MessageError, match=REFUSED):
            answer(party, "publish_sketch", data)
    assert len(budget.history()) == 0
    assert not (tmp_path / "trace").exists()


# ------------------------------------------------------------------- the file of releases


@pytest.fixture
def releases(tmp_path):
    kept = ReleaseFile(tmp_path / "releases")
    kept.answer("north", b"request", lambda: b"noisy table")
    return kept


@pytest.mark.parametrize("reply", [10**12, "text", 1.5, -1])
def test_a_kept_release_that_is_no_bytes_is_not_sent(releases, reply):
    with closing(sqlite3.connect(releases.path)) as connection:
        connection.execute("UPDATE releases SET reply = ?", (reply,))
        connection.commit()
    with pytest.raises(LedgerError, match=r"cannot be used.*Nothing was published"):
        releases.answer("north", b"request", lambda: b"another")


def test_a_damaged_file_of_releases_sends_what_was_sent_or_makes_it_anew(releases):
    """A release that cannot be found is charged anew: `make` is what charges."""
    good = releases.path.read_bytes()
    made = []

    def make():
        made.append("charged")
        return b"made anew"

    positions = [i for i in range(len(good)) if good[i]][::4] + list(range(4096, 4110))
    for position in positions:
        damaged = bytearray(good)
        damaged[position] ^= 1 << position % 8
        releases.path.write_bytes(damaged)
        made.clear()
        try:
            reply = releases.answer("north", b"request", make)
        except LedgerError:
            continue
        # A bit of the release itself may be another: its packet has a checksum of its own.
        near = sum(a != b for a, b in zip(reply, b"noisy table", strict=False)) <= 1
        assert reply == b"made anew" if made else near
    for length in range(0, len(good), 500):
        releases.path.write_bytes(good[:length])
        made.clear()
        try:
            reply = releases.answer("north", b"request", make)
        except LedgerError:
            continue
        assert made == ["charged"]
