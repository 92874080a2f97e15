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
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import LedgerError, MessageError, PrivacyWarning
from skdpot.federated.answering import answer
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
from skdpot.federated.party import Party
from skdpot.federated.releases import ReleaseFile
from skdpot.federated.wire import pack as pack_message
from skdpot.federated.wire import unpack
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.gdp import gdp_delta
from skdpot.slicing import array_archive
from skdpot.slicing.plan import table_sensitivity
from skdpot.slicing.sketch_file import read_sketch
from skdpot.slicing.strategy import square_root_strategy
from tests.contract.hostile_files import (
    Bomb,
    deep_change,
    entry,
    facts_of,
    mangled,
    pack,
    packet,
    parts,
    saved,
    unpacked,
    with_facts,
)

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
        given_parameters = {"bounds": (-1, 1), "slices": np.eye(3), "n_bins": 8} | parameters
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
    "sketch request": SketchRequest.draw(3, n_slices=3, n_bins=8, bounds=(-1, 1), rng=RNG),
    "sketch": SketchMessage(PLAIN),
    "sketch with classes": SketchMessage(CLASSES),
}


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "sketch.npz"
    CLASSES.save(place)
    return place


def assert_refused_or_the_same(place, due):
    """A damaged file is refused, unless the damage touches nothing that is read."""
    try:
        _, fitted = read_sketch(place)
    except ValueError:
        return
    np.testing.assert_array_equal(fitted["statistic_"], due.statistic_)
    np.testing.assert_array_equal(fitted["directions_"], due.directions_)
    assert fitted["privacy_spent_"] == due.privacy_spent_
    assert fitted["bounds_"] == due.bounds_
    assert (fitted["n_samples_"], fitted["noise_scale_"]) == (due.n_samples_, due.noise_scale_)


# ------------------------------------------------------------------------ files of sketches


def test_a_file_cut_anywhere_is_refused(path):
    good = path.read_bytes()
    for length in (*range(0, len(good), 3), len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="not a sketch, or it is damaged"):
            read_sketch(path)


def test_a_flipped_bit_is_refused_or_touches_nothing(path):
    good = path.read_bytes()
    for position in range(0, len(good), 3):
        damaged = bytearray(good)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        assert_refused_or_the_same(path, CLASSES)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    place = tmp_path_factory.mktemp("bytes") / "sketch.npz"
    CLASSES.save(place)
    return place, place.read_bytes()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_mangled_files_are_refused_or_the_same(shared_path, data):
    place, good = shared_path
    place.write_bytes(mangled(data, good))
    assert_refused_or_the_same(place, CLASSES)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.binary(max_size=3000))
def test_random_bytes_are_refused(shared_path, content):
    place, _ = shared_path
    place.write_bytes(content)
    with pytest.raises(ValueError, match="not a sketch"):
        read_sketch(place)
    with pytest.raises(MessageError, match=REFUSED):
        Message.from_bytes(content)


TABLE = CLASSES.statistic_
HOSTILE_ENTRIES = {
    "promises a terabyte": entry("<f8", (2**37,)),
    "promises more than there is": entry("<f8", (2**60, 2**60)),
    "one huge text": entry("<U99999999", (1,)),
    "negative length": entry("<f8", (-1, 3, 8), TABLE.tobytes()),
    "length is true": entry("<f8", (True, 2, 24), TABLE.tobytes()),
    "a number more": entry("<f8", TABLE.shape, TABLE.tobytes() + bytes(8)),
    "a number less": entry("<f8", TABLE.shape, TABLE.tobytes()[:-8]),
    "single precision": saved(TABLE.astype("<f4")),
    "half precision": saved(TABLE.astype("<f2")),
    "extended precision": entry("<f16", TABLE.shape, bytes(16 * TABLE.size)),
    "complex": saved(TABLE.astype(complex)),
    "integers": saved(TABLE.astype(int)),
    "text": saved(TABLE.astype(str)),
    "dates": entry("<M8[D]", TABLE.shape, TABLE.tobytes()),
    "records": saved(TABLE.view([("x", "<f8")])),
    "raw bytes": entry("|V8", TABLE.shape, TABLE.tobytes()),
    "header is code": entry("__import__('os').abort()", TABLE.shape, TABLE.tobytes()),
    "header of Python 2": entry("<f8", TABLE.shape, TABLE.tobytes()).replace(b"(2, ", b"(2L,"),
    "no header": TABLE.tobytes(),
    "nothing": b"",
    "five dimensions": saved(TABLE[None, None]),
    "no numbers": saved(TABLE[:0]),
    "NaN": saved(np.where(TABLE == TABLE.max(), np.nan, TABLE)),
    "infinity": saved(np.where(TABLE == TABLE.max(), -np.inf, TABLE)),
    "off the lattice": saved(np.nextafter(TABLE, np.inf)),
    "off the lattice in one place": saved(TABLE + np.eye(2, 3)[:, :, None] * 1e-9),
    "denormal": saved(np.where(TABLE == TABLE.max(), 5e-324, TABLE)),
    "unreachable": saved(TABLE + 2.0**40),
    "other shape": saved(TABLE[:, :2]),
}


@pytest.mark.parametrize("case", HOSTILE_ENTRIES)
def test_hostile_arrays_are_refused(case, path):
    pack(path, unpacked(path) | {"statistic_.npy": HOSTILE_ENTRIES[case]})
    with pytest.raises(ValueError, match=r"sketch"):
        read_sketch(path)


@pytest.mark.parametrize("form", ["big-endian", "fortran order", "stored", "again"])
def test_what_other_machines_write_is_read(form, path):
    entries = unpacked(path)
    if form == "big-endian":
        entries["statistic_.npy"] = saved(TABLE.astype(">f8"))
        entries["classes_.npy"] = saved(CLASSES.classes_.astype(">U2"))
    if form == "fortran order":
        entries["statistic_.npy"] = saved(np.asfortranarray(TABLE))
    pack(path, entries, zipfile.ZIP_STORED if form == "stored" else zipfile.ZIP_DEFLATED)
    loaded = SlicedSketch.load(path)
    np.testing.assert_array_equal(loaded.statistic_, TABLE)
    np.testing.assert_array_equal(loaded.cdf_, CLASSES.cdf_)
    assert loaded.classes_.tolist() == ["a", "bb"]


def _add(place, name, content, **attributes):
    info = zipfile.ZipInfo(name)
    for key, value in attributes.items():
        setattr(info, key, value)
    with warnings.catch_warnings(), zipfile.ZipFile(place, "a") as archive:
        warnings.simplefilter("ignore", UserWarning)  # that a name occurs twice
        archive.writestr(info, content)


def _patched(place, mark, offset, value):
    """Change one byte of a header that starts with a mark."""
    data = bytearray(place.read_bytes())
    data[data.find(mark) + offset] = value
    place.write_bytes(data)


SYMBOLIC_LINK = 0o120777 << 16
HOSTILE_ARCHIVES = {
    "an entry twice": lambda p: _add(p, "statistic_.npy", saved(TABLE * 0)),
    "a path out of the directory": lambda p: _add(p, "../../evil.npy", saved(TABLE)),
    "an absolute path": lambda p: _add(p, "/etc/evil.npy", saved(TABLE)),
    "a symbolic link": lambda p: _add(
        p, "feature_names_in_.npy", b"/etc/passwd", external_attr=SYMBOLIC_LINK
    ),
    "another file beside": lambda p: _add(p, "setup.py", b"raise SystemExit"),
    "a directory": lambda p: _add(p, "directions_.npy/", b""),
    "twenty thousand entries": lambda p: pack(p, {f"{i}.npy": b"" for i in range(20_000)}),
    "a long name": lambda p: _add(p, "x" * 60_000, b""),
    "packed with bzip2": lambda p: pack(p, unpacked(p), zipfile.ZIP_BZIP2),
    "packed with LZMA": lambda p: pack(p, unpacked(p), zipfile.ZIP_LZMA),
    "encrypted": lambda p: _patched(p, b"PK\x01\x02", 8, 1),
    "packed in an unknown way": lambda p: _patched(p, b"PK\x01\x02", 10, 99),
    "for a newer reader": lambda p: _patched(p, b"PK\x01\x02", 6, 250),
    "patched data": lambda p: _patched(p, b"PK\x01\x02", 8, 32),
    "a comment": lambda p: p.write_bytes(p.read_bytes()[:-2] + b"\x05\x00hello"),
    "bytes behind": lambda p: p.write_bytes(p.read_bytes() + bytes(30)),
    "no entries": lambda p: pack(p, {}),
    "an array file": lambda p: p.write_bytes(saved(TABLE)),
    "a pickle": lambda p: p.write_bytes(pickle.dumps(Bomb(p.with_name("trace")))),
}


@pytest.mark.parametrize("case", HOSTILE_ARCHIVES)
def test_hostile_archives_are_refused(case, path):
    HOSTILE_ARCHIVES[case](path)
    with pytest.raises(ValueError, match="is not a sketch") as caught:
        read_sketch(path)
    assert len(str(caught.value)) < 300
    assert [place.name for place in path.parent.iterdir()] == [path.name]


def test_no_pickle_in_a_file_is_executed(path):
    trace = path.with_name("trace")
    bomb = np.array([Bomb(trace)], dtype=object)
    np.load(_with_pickle(path, "classes_.npy", bomb), allow_pickle=True)["classes_"]
    assert trace.exists()  # this pickle does harm to who reads it
    trace.rmdir()
    for name in ("facts.npy", "statistic_.npy", "classes_.npy", "feature_names_in_.npy"):
        with pytest.raises(ValueError, match="no array as this release writes it"):
            SlicedSketch.load(_with_pickle(path, name, bomb))
    assert not trace.exists()


def _with_pickle(path, name, content):
    pack(path, unpacked(path) | {name: saved(content, allow_pickle=True)})
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    told = []

    def load(place):
        with pytest.raises(ValueError, match="no regular file"):
            SlicedSketch.load(place)
        told.append(place)

    for place in (tmp_path / "pipe", Path("/dev/zero")):
        reader = threading.Thread(target=load, args=(place,), daemon=True)
        reader.start()
        reader.join(10)
    assert len(told) == 2


# -- facts


NUMBERS = {
    ("n_samples",): [0, -1, 1.5, True, "200", None, 10**400, 2**54, []],
    ("noise_scale",): [-1.0, 0, math.nan, math.inf, 1e300, True, "1", None, 10**400],
    ("parameters", "epsilon"): [0, -1, math.nan, True, "1", None, 10**400],
    ("parameters", "delta"): [0, 1, -1e-5, math.nan, 2, "1", None],
    ("parameters", "norm_bound"): [0, -1.0, math.nan, math.inf, True, "1", 10**400],
    ("parameters", "conditional"): [False, 1, None, "yes"],
    ("parameters", "group_size"): [0, 2, 1.0, True, 10**400],
    ("parameters", "budget"): [None, "/etc/passwd"],
    ("declared_bounds",): [1, None, "yes"],
    ("label_counts",): [[100, 100], [200], "200", {}, [-1, 201]],
    ("spent", "epsilon"): [0.99, 1e-300, 0, -1, math.nan, 10**400, "1", None],
    ("spent", "delta"): [9e-6, 0, 1, math.nan, None],
    ("spent", "sigma"): [-1.0, 1e-9, math.nan, math.inf, None, "1"],
    ("spent", "sensitivity"): [-1.0, 1e9, math.nan, math.inf, None, "1"],
    ("spent", "assumptions"): ["none", [1], None, {}],
    ("spent", "mechanism"): [1, None, []],
    ("spent", "event"): [None, "GaussianEvent", [], {}],
    ("spent", "event", "type"): ["Path", "Event", "compose", None, ["GaussianEvent"]],
    ("spent", "event", "sigma"): [-1.0, 0, 1e-9, 1e9, math.nan, math.inf, "1", None],
    ("spent", "event", "sensitivity"): [-1.0, 0, 1e-9, math.nan, None],
    ("spent", "event", "n_steps"): [0, 2, -1, 1.5, 10**30, "1"],
    ("spent", "event", "lattice"): [None, 1e-300, 0.3, -1.0, math.nan, 1e9],
    ("spent", "event", "relation"): ["add_or_remove_one", "none", None, 3],
    ("spent", "event", "code"): ["import os"],
    ("note",): ["trust me"],
    ("format",): ["skdpot", None, 3],
    ("version",): [0, 2, True, 1.0, "1", None, [], 10**400],
}


@pytest.mark.parametrize("where", NUMBERS, ids="/".join)
def test_facts_that_cannot_be_are_refused(where, path):
    entries, facts = unpacked(path), facts_of(path)
    for value in [*NUMBERS[where], ...]:
        removable = {("note",), ("spent", "event", "code"), ("parameters", "budget")}
        defaults = {("label_counts",), ("spent", "mechanism"), ("spent", "event", "n_steps")}
        if value is ... and where in removable | defaults | {("parameters", "group_size")}:
            continue  # what is not there, or stands for its default, may be left out
        pack(path, with_facts(entries, deep_change(facts, where, value)))
        with pytest.raises(ValueError, match=r"sketch|Event|valid") as caught:
            read_sketch(path)
        assert len(str(caught.value)) < 600


def test_texts_that_are_no_facts_are_refused(path):
    entries, good = unpacked(path), json.dumps(facts_of(path))
    for text in (
        "",
        "{",
        "null",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
        good + good,
        good + " " * 2**20,
        good[:-1] + ', "n_samples": 100}',  # said twice
        good.replace('"epsilon": 1.0', '"epsilon": 0.1, "epsilon": 1.0'),
        good[:-1] + ', "x": [' + "0," * 10**6 + "0]}",
    ):
        pack(path, with_facts(entries, text))
        with pytest.raises(ValueError, match=REFUSED):
            read_sketch(path)
    for raw in (b"\xff\xff\xff\x7f", b"\x00\x00\x11\x00"):  # no characters
        pack(path, entries | {"facts.npy": entry("<U1", (), raw)})
        with pytest.raises(ValueError, match="no array as this release writes it"):
            read_sketch(path)


CLASS_ARRAYS = {
    "twice the same": np.array(["a", "a"]),
    "not sorted": np.array(["bb", "a"]),
    "three": np.array(["a", "b", "c"]),
    "a table": np.array([["a", "bb"]]),
    "one text": np.array("a"),
}


@pytest.mark.parametrize("case", CLASS_ARRAYS)
def test_classes_that_cannot_be_are_refused(case, path):
    pack(path, unpacked(path) | {"classes_.npy": saved(CLASS_ARRAYS[case])})
    with pytest.raises(ValueError, match="sketch"):
        read_sketch(path)


ARRAY_LIES = {
    "long directions": ("directions_", lambda v: v * 1.001),
    "short directions": ("directions_", lambda v: v * 0.5),
    "zero directions": ("directions_", np.zeros_like),
    "huge directions": ("directions_", lambda v: v * 1e200),
    "wider ranges": ("half_widths_", lambda v: v * 2),
    "negative ranges": ("half_widths_", np.negative),
    "low above high": ("bounds_scale", np.negative),
    "no width": ("bounds_scale", np.zeros_like),
    "NaN centre": ("bounds_center", lambda v: v * np.nan),
    "infinite centre": ("bounds_center", lambda v: v + np.inf),
    "two radii": ("bounds_radius", lambda v: np.array([v, v])),
    "larger ball": ("bounds_radius", lambda v: v * 3),
    "no ball": ("bounds_radius", np.zeros_like),
    "ball instead of box": ("bounds_radius", np.negative),
}


@pytest.mark.parametrize("case", ARRAY_LIES)
def test_geometry_that_cannot_be_is_refused(case, path):
    name, lie = ARRAY_LIES[case]
    pack(path, unpacked(path) | {f"{name}.npy": saved(lie(np.load(path)[name]))})
    with pytest.raises(ValueError, match=r"sketch|`center`|`radius`"):
        read_sketch(path)


@pytest.mark.parametrize("factor", [1.001, 0.999, 0.0, -2.0, 1e200])
def test_directions_must_have_unit_length_where_ranges_do_not_show_it(factor, path):
    """In a ball the binned range is the same along all directions."""
    sketch(bounds="private", norm_bound=2.0).save(path)
    pack(path, unpacked(path) | {"directions_.npy": saved(factor * np.eye(3))})
    with pytest.raises(ValueError, match="unit length"):
        read_sketch(path)


def proves(facts, statistic, conditional):
    """Whether a statement holds, by the textbook: what its noise gives at its epsilon."""
    spent, event = facts["spent"], facts["spent"]["event"]
    due = table_sensitivity(
        square_root_strategy(statistic.shape[2]), statistic.shape[1], changes_table=conditional
    )
    mu = due / event["sigma"]
    return gdp_delta(spent["epsilon"], mu) <= spent["delta"] * (1 + 1e-5) and facts[
        "noise_scale"
    ] >= event["sigma"] * (1 - 1e-6)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_no_forged_statement_promises_more_than_its_noise(tmp_path, data):
    place = tmp_path / "sketch.npz"
    original = data.draw(st.sampled_from([PLAIN, CLASSES, MERGED]))
    original.save(place)
    facts = facts_of(place)
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
        value = facts
        for name in where:
            value = value[name]
        facts = deep_change(facts, where, value * data.draw(factors))
    if data.draw(st.booleans()):  # as one who takes care would lie
        for name in ("sigma", "sensitivity"):
            facts = deep_change(facts, ("spent", name), facts["spent"]["event"][name])
    pack(place, with_facts(unpacked(place), facts))
    try:
        read_sketch(place)
    except ValueError:
        return
    assert proves(facts, original.statistic_, original is CLASSES)


def test_files_that_pack_too_well_are_stored_and_read(tmp_path, monkeypatch):
    """Thousands of axes are a matrix of zeros; the reader's bound must not lock them out."""
    monkeypatch.setattr(array_archive, "_FREE", 2**8)
    monkeypatch.setattr(array_archive, "_RATIO", 4)
    made = SlicedSketch(math.inf, bounds=(-1, 1), slices=np.eye(60), n_bins=4).fit(
        RNG.uniform(-1, 1, (9, 60))
    )
    place = tmp_path / "axes.npz"
    made.save(place)
    assert place.stat().st_size > made.directions_.nbytes
    np.testing.assert_array_equal(SlicedSketch.load(place).statistic_, made.statistic_)
    pack(place, unpacked(place))  # packed by somebody else
    with pytest.raises(ValueError, match="nothing was unpacked"):
        SlicedSketch.load(place)


# -- memory, measured in a process of its own

MEASURE = """
import json, pathlib, resource, sys, time, tracemalloc
from skdpot.exceptions import MessageError
from skdpot.federated.messages import Message
from skdpot.slicing.sketch_file import read_sketch

used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 700 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    data = path.read_bytes() if path.suffix == ".message" else b""
    tracemalloc.start()
    start = time.process_time()
    try:
        Message.from_bytes(data) if data else read_sketch(path)
        end = "read"
    except Exception as error:
        end = type(error).__name__
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    seconds = time.process_time() - start
    print(json.dumps([path.name, end, path.stat().st_size, peak, seconds]))
"""


def _bombs(directory):
    """Write files and messages that ask for far more memory than they are long."""
    entries = unpacked(_saved(directory / "plain.npz"))
    zeros = bytes(2**28)
    bombs = {
        "terabyte": {"statistic_.npy": entry("<f8", (2**37,))},
        "overflow": {"statistic_.npy": entry("<f8", (2**62, 4))},
        "unpacks to 256 MB": {"statistic_.npy": entry("<f8", (2**25,), zeros)},
        "unpacks to 60 MB": {"statistic_.npy": entry("<f8", (1, 3, 2**21), zeros[: 3 * 2**24])},
        "facts of 60 MB": {"facts.npy": entry("<U15000000", (), zeros[: 6 * 10**7])},
        "names of 60 MB": {"feature_names_in_.npy": entry("<U5000000", (3,), zeros[: 6 * 10**7])},
    }
    for name, change in bombs.items():
        pack(directory / f"{name}.npz", entries | change)
    _understate(directory / "unpacks to 256 MB.npz", directory / "says it is short.npz")
    text = json.dumps(facts_of(directory / "plain.npz"))[:-1]
    for name, more in {
        "long list": ', "x": [' + "0," * 400_000 + "0]}",
        "deep list": ', "x": ' + "[" * 400_000 + "]" * 400_000 + "}",
        "long event": ', "x": "' + "e" * 900_000 + '"}',
    }.items():
        pack(directory / f"{name}.npz", with_facts(entries, text + more))
    header = json.dumps(
        {
            "arrays": [{"dtype": "<f8", "name": "points", "shape": [2**40]}],
            "facts": {},
            "kind": "interpolating measure",
            "version": 1,
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    messages = {
        "terabyte": packet(header.encode()),
        "total": packet(header.encode(), total=2**60),
        "header length": packet(header.encode(), header_length=2**32 - 1),
        "deep": packet(b"[" * 2**20),
        "long": packet(b'{"arrays":[' + b"0," * 2**18 + b"0]}"),
        "digits": packet(b'{"version":' + b"9" * 2**19 + b"}"),
        "spaces": packet(b" " * 2**20),
        "floats": packet(b"[" + b"1e5," * 2**17 + b"0]"),
    }
    for name, data in messages.items():
        (directory / f"{name}.message").write_bytes(data)


def _saved(place):
    PLAIN.save(place)
    return place


def _understate(bomb, target):
    """Let the directory of an archive say that its largest entry is short."""
    data = bytearray(bomb.read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        if int.from_bytes(data[at + 24 : at + 28], "little") > 2**27:
            data[at + 24 : at + 28] = (2**10).to_bytes(4, "little")
        at = data.find(b"PK\x01\x02", at + 4)
    target.write_bytes(data)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_hostile_bytes_take_little_memory_and_time(tmp_path):
    _bombs(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(measured) == len(list(tmp_path.iterdir())) >= 18
    # What unpacks to less than the bound is unpacked, and copied twice on the way.
    within = {"unpacks to 60 MB.npz", "facts of 60 MB.npz", "names of 60 MB.npz"}
    for name, end, size, peak, seconds in measured:
        harmless = ("plain.npz", "names of 60 MB.npz")  # such names may be
        assert end == "read" if name in harmless else end in ("MessageError", "ValueError"), name
        constant = CONSTANT_MEMORY + (200 * 2**20 if name in within else 0)
        assert peak <= MULTIPLE * size + constant, (name, size, peak)
        assert seconds < 10, (name, seconds)


# ------------------------------------------------------------------------------- messages


def test_all_kinds_of_messages_are_tried():
    assert {type(message) for message in SMALL.values()} == set(Message._kinds.values())


@pytest.mark.parametrize("name", SMALL)
def test_a_message_cut_anywhere_is_refused(name):
    good = SMALL[name].to_bytes()
    for length in range(len(good)):
        with pytest.raises(MessageError, match="truncated"):
            Message.from_bytes(good[:length])


@pytest.mark.parametrize("name", SMALL)
def test_every_flipped_bit_of_a_message_is_found(name):
    good = SMALL[name].to_bytes()
    for position in range(0, 8 * len(good), 5):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(MessageError, match=r"packet"):
            Message.from_bytes(bytes(damaged))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_forged_messages_are_refused_or_have_one_spelling(name, data):
    """The checksum is right here, so that every later check is met."""
    header, body = map(bytearray, parts(SMALL[name].to_bytes()))
    target = header if data.draw(st.booleans()) else body
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(target)))
        stop = data.draw(st.integers(start, min(len(target), start + 9)))
        target[start:stop] = data.draw(
            st.one_of(
                st.binary(max_size=9),
                st.sampled_from(
                    [b"NaN", b"Infinity", b"-1", b"1e999", b"[]", b"{}", b'""', b"9" * 30, b"true"]
                ),
            )
        )
    sent = packet(bytes(header), bytes(body))
    try:
        arrived = Message.from_bytes(sent)
    except MessageError:
        return
    assert arrived.to_bytes() == sent
    if isinstance(arrived, SketchMessage):
        record = arrived.record
        conditional = record.facts["parameters"]["conditional"]
        assert proves(record.facts, record.arrays["statistic_"], conditional)


def _forged(message, *, facts=None, arrays=None):
    sent = unpack(message.to_bytes())
    merged = sent.facts | (facts or {}), sent.arrays | (arrays or {})
    return pack_message(sent.kind, sent.version, *merged)


def _numbers(message):
    return dict(unpack(message.to_bytes()).arrays)


OFF = np.nextafter(PLAIN.statistic_, np.inf)
MANY = np.zeros((1, 3, 513))


@pytest.mark.parametrize(
    ("forged", "text"),
    [
        (lambda: _forged(SMALL["sketch"], arrays={"statistic_": OFF}), "off the lattice"),
        (lambda: _forged(SMALL["sketch"], arrays={"statistic_": MANY}), "at most 512 bins"),
        (lambda: _forged(SMALL["sketch"], facts={"note": "trust me"}), "unknown"),
        (lambda: SketchMessage(sketch(n_bins=600)).to_bytes(), "at most 512 bins"),
    ],
    ids=["off the lattice", "bins for minutes", "unknown fact", "bins that are sent"],
)
def test_sketches_that_no_party_sends_are_refused(forged, text):
    with pytest.raises(MessageError, match=text):
        Message.from_bytes(forged())


def test_no_array_of_a_message_may_be_swapped_for_another():
    for message in SMALL.values():
        arrays = _numbers(message)
        for name, other in ((a, b) for a in arrays for b in arrays if a != b):
            if arrays[name].shape == arrays[other].shape:
                continue  # two lists of numbers are alike; their values are checked elsewhere
            with pytest.raises(MessageError, match=REFUSED):
                Message.from_bytes(_forged(message, arrays={name: arrays[other]}))


def test_statements_of_strangers_are_shown_as_text(path):
    script = "<script>alert(1)</script>"
    facts = facts_of(path)
    for where in (("spent", "mechanism"), ("spent", "assumptions")):
        value = script if where[1] == "mechanism" else [script]
        facts = deep_change(facts, where, value)
    pack(path, with_facts(unpacked(path), facts))
    page = SlicedSketch.load(path).privacy_spent_._repr_html_()
    assert "&lt;script&gt;" in page
    assert script not in page


def test_hostile_requests_charge_nothing(tmp_path):
    budget = PrivacyBudget(1.0, ledger=tmp_path / "ledger")
    party = Party("north", ROWS, budget=budget)
    good = SMALL["sketch request"].to_bytes()
    header, body = parts(good)
    for data in (
        b"",
        good[:-1],
        good + b"x",
        packet(header, body[:-8]),
        packet(header.replace(b'"n_bins":8', b'"n_bins":4096'), body),
        packet(header.replace(b'"n_bins":8', b'"n_bins":-8'), body),
        packet(header, np.full(len(body) // 8, np.nan).tobytes()),
        packet(header, np.zeros(len(body) // 8).tobytes()),
        packet(b"[" * 10**5),
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


def test_events_of_a_message_are_of_this_package():
    """The examples state what their noise gives, by another route."""
    for name in ("sketch", "sketch with classes"):
        record = SMALL[name].record
        assert isinstance(SMALL[name].statement.event, GaussianEvent)
        assert proves(record.facts, record.arrays["statistic_"], name != "sketch")
