"""Files of synthesizers from strangers: refused with a clear error, in little memory and time."""

import json
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import DPTableSynthesizer
from skdpot.tables.table_record import TableRecord
from tests.contract.hostile_files import (
    arrays_of,
    deep_change,
    facts_of,
    forged,
    joined,
    mangled,
    split,
    text_of,
    with_tensor,
    with_text,
)
from tests.tables.table_models import fitted

GOOD = fitted("left out")
WRITTEN = TableRecord.of(GOOD).to_bytes()
FACTS, ARRAYS = facts_of(WRITTEN), arrays_of(WRITTEN)

# What reading may take beside a multiple of the input: interpreter, JSON, a schema.
CONSTANT_MEMORY = 32 * 2**20
MULTIPLE = 40


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    place = tmp_path_factory.mktemp("bytes") / "synthesizer.safetensors"
    GOOD.save(place)
    return place.read_bytes()


@pytest.fixture
def path(good, tmp_path):
    place = tmp_path / "synthesizer.safetensors"
    place.write_bytes(good)
    return place


def read_synthesizer(place):
    return TableRecord.load(place).restore()


def test_a_file_cut_anywhere_is_refused(good, path):
    for length in (*range(0, len(good), 23), len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="not a synthesizer, or it is damaged"):
            read_synthesizer(path)


def test_a_flipped_bit_is_refused(good, path):
    for position in range(0, len(good), 31):
        damaged = bytearray(good)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="synthesizer"):
            read_synthesizer(path)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_mangled_files_are_refused(good, tmp_path_factory, data):
    place = tmp_path_factory.getbasetemp() / "mangled.safetensors"
    now = mangled(data, good)
    place.write_bytes(now)
    if now != good:
        with pytest.raises(ValueError, match="synthesizer"):
            read_synthesizer(place)


PLACE = "releases.0.0.counts"
COUNTS = ARRAYS[PLACE]
HOSTILE_TENSORS = {
    "promises a terabyte": ("F64", [2**37], b""),
    "promises more than there is": ("F64", [2**60, 2**60], b""),
    "negative length": ("F64", [-1], COUNTS.tobytes()),
    "a number more": ("F64", list(COUNTS.shape), COUNTS.tobytes() + bytes(8)),
    "single precision": ("F32", list(COUNTS.shape), COUNTS.astype("<f4").tobytes()),
    "complex": ("C64", list(COUNTS.shape), COUNTS.astype("<c8").tobytes()),
    "bytes": ("U8", [len(COUNTS), 8], COUNTS.tobytes()),
    "no type": ("__import__('os').abort()", list(COUNTS.shape), COUNTS.tobytes()),
    "no numbers": ("F64", [0], b""),
}


@pytest.mark.parametrize("case", HOSTILE_TENSORS)
def test_hostile_tensors_are_refused(case, good, path):
    path.write_bytes(with_tensor(good, PLACE, *HOSTILE_TENSORS[case]))
    with pytest.raises(ValueError, match="synthesizer"):
        read_synthesizer(path)


def test_counts_off_the_lattice_in_one_place_are_refused(good, path):
    path.write_bytes(forged(good, arrays={PLACE: COUNTS + np.eye(1, len(COUNTS))[0] * 1e-9}))
    with pytest.raises(ValueError, match="lattice"):
        read_synthesizer(path)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(facts, above=()):
    """Yield the way to every fact, however deep."""
    for name in facts if isinstance(facts, dict) else range(len(facts)):
        yield (*above, name)
        if isinstance(facts[name], dict | list):
            yield from places(facts[name], (*above, name))


WAYS = sorted(places(FACTS), key=repr)


def replaced(facts, way, value):
    if not way:
        return value
    copy = dict(facts) if isinstance(facts, dict) else list(facts)
    copy[way[0]] = replaced(facts[way[0]], way[1:], value)
    return copy


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(WAYS), VALUES)
def test_a_fact_of_any_other_value_is_refused_or_harmless(way, value):
    """What is accepted is a synthesizer: it draws rows, scores and reports."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            forgery = forged(WRITTEN, replaced(FACTS, way, value))
            parameters, learned = TableRecord.from_bytes(forgery).restore()
        except ValueError:
            return
        loaded = DPTableSynthesizer(**parameters)
        vars(loaded).update(learned)
        assert len(loaded.sample(5, random_state=0)) == 5
        assert repr(loaded.quality_report(n_samples=20, random_state=0))
        assert loaded.privacy_spent_.epsilon >= 3.0 - 1e-9 or way[:2] == ("spent", "delta")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(ARRAYS)), st.data())
def test_numbers_of_any_other_value_are_refused_or_harmless(name, data):
    array = ARRAYS[name].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, array.size - 1))
        any_number = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 8)
        if array.dtype == np.float64:
            any_number = st.floats() | st.floats(-5, 5)
        array.flat[place] = data.draw(any_number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            forgery = forged(WRITTEN, arrays={name: array})
            parameters, learned = TableRecord.from_bytes(forgery).restore()
        except ValueError:
            return
        loaded = DPTableSynthesizer(**parameters)
        vars(loaded).update(learned)
        assert len(loaded.sample(5, random_state=0)) == 5
        assert repr(loaded.quality_report(n_samples=20, random_state=0))


def test_statements_of_strangers_are_shown_as_text(path):
    script = "<script>alert(1)</script>"
    facts = deep_change(FACTS, ("spent", "mechanism"), script)
    column = dict(facts["schema"]["columns"][1]) | {"categories": [script, "b", "c", "d"]}
    columns = [facts["schema"]["columns"][0], column, *facts["schema"]["columns"][2:]]
    facts = deep_change(facts, ("schema", "columns"), columns)
    path.write_bytes(forged(WRITTEN, facts))
    page = DPTableSynthesizer.load(path).quality_report(n_samples=50, random_state=0).to_html()
    assert "&lt;script&gt;" in page
    assert script not in page


MEASURE = """
import json, pathlib, resource, sys, time, tracemalloc
from skdpot.tables.table_record import TableRecord

used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 700 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    tracemalloc.start()
    start = time.process_time()
    try:
        TableRecord.load(path).restore()
        end = "read"
    except Exception as error:
        end = type(error).__name__
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    seconds = time.process_time() - start
    print(json.dumps([path.name, end, path.stat().st_size, peak, seconds]))
"""


def _bombs(directory):
    """Write files that ask for far more memory or time than they are long."""
    name = {"kind": "boolean", "name": "x"}
    many = [name | {"name": f"{k}"} for k in range(60_000)]
    marginal = FACTS["releases"][1][0]
    header, body = split(WRITTEN)
    empty = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
    text = text_of(WRITTEN)[:-1]
    wide = deep_change(marginal, ("marginal", "columns"), list(range(9**5)))
    bombs = {
        "plain": WRITTEN,
        "terabyte": with_tensor(WRITTEN, "bins.0.bins", "I64", [2**37], b""),
        "header length": joined(b"{}", length=2**40),
        "many tensors": joined(header | {f"{k}": empty for k in range(40_000)}, body),
        "long list": with_text(WRITTEN, text + ', "x": [' + "0," * 400_000 + "0]}"),
        "deep list": with_text(WRITTEN, text + ', "x": ' + "[" * 400_000 + "]" * 400_000 + "}"),
    }
    for title, way, value in (
        ("deep events", ("spent", "event"), _nested(60)),
        ("many columns", ("schema", "columns"), many),
        ("most columns", ("schema", "columns"), many[:4096]),
        ("many categories", ("schema", "columns"), [_categories(200_000)]),
        ("many marginals", ("releases",), [[marginal] * 30_000]),
        ("many columns in one", ("releases",), [[wide]]),
    ):
        bombs[title] = forged(WRITTEN, deep_change(FACTS, way, value))
    for title, content in bombs.items():
        (directory / f"{title}.safetensors").write_bytes(content)


def _nested(depth):
    event = {"type": "NonPrivateEvent", "relation": "replace_one"}
    for _ in range(depth):
        event = {"type": "ComposedEvent", "events": [event]}
    return event


def _categories(number):
    return {"kind": "categorical", "name": "x", "categories": [f"{k}" for k in range(number)]}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_hostile_files_take_little_memory_and_time(tmp_path):
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
    assert len(measured) == len(list(tmp_path.iterdir())) == 12
    for name, end, size, peak, seconds in measured:
        assert end == ("read" if name == "plain.safetensors" else "ValueError"), (name, end)
        assert peak <= MULTIPLE * size + CONSTANT_MEMORY, (name, peak / size)
        assert seconds < 10, (name, seconds)
