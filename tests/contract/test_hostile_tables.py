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
from skdpot.tables.table_file import read_synthesizer
from skdpot.tables.table_record import TableRecord
from tests.contract.hostile_files import (
    deep_change,
    entry,
    facts_of,
    mangled,
    pack,
    saved,
    unpacked,
    with_facts,
)
from tests.tables.table_models import fitted

GOOD = fitted("left out")
DUE = TableRecord.of(GOOD)

# What reading may take beside a multiple of the input: interpreter, JSON, a schema.
CONSTANT_MEMORY = 32 * 2**20
MULTIPLE = 40


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    place = tmp_path_factory.mktemp("bytes") / "synthesizer.npz"
    GOOD.save(place)
    return place.read_bytes()


@pytest.fixture
def path(good, tmp_path):
    place = tmp_path / "synthesizer.npz"
    place.write_bytes(good)
    return place


def assert_refused_or_the_same(place):
    """A damaged file is refused, unless the damage touches nothing that is read."""
    try:
        parameters, learned = read_synthesizer(place)
    except ValueError:
        return
    loaded = DPTableSynthesizer(**parameters)
    vars(loaded).update(learned)
    found = TableRecord.of(loaded)
    assert found.facts == DUE.facts
    for name, array in DUE.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_a_file_cut_anywhere_is_refused(good, path):
    for length in (*range(0, len(good), 23), len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match="not a synthesizer, or it is damaged"):
            read_synthesizer(path)


def test_a_flipped_bit_is_refused_or_touches_nothing(good, path):
    for position in range(0, len(good), 11):
        damaged = bytearray(good)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        assert_refused_or_the_same(path)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_mangled_files_are_refused_or_the_same(good, tmp_path_factory, data):
    place = tmp_path_factory.getbasetemp() / "mangled.npz"
    place.write_bytes(mangled(data, good))
    assert_refused_or_the_same(place)


COUNTS = DUE.arrays["column_counts"]
HOSTILE_ENTRIES = {
    "promises a terabyte": entry("<f8", (2**37,)),
    "promises more than there is": entry("<f8", (2**60, 2**60)),
    "one huge text": entry("<U99999999", (1,)),
    "negative length": entry("<f8", (-1,), COUNTS.tobytes()),
    "a number more": entry("<f8", COUNTS.shape, COUNTS.tobytes() + bytes(8)),
    "single precision": saved(COUNTS.astype("<f4")),
    "complex": saved(COUNTS.astype(complex)),
    "text": saved(COUNTS.astype(str)),
    "dates": entry("<M8[D]", COUNTS.shape, COUNTS.tobytes()),
    "header is code": entry("__import__('os').abort()", COUNTS.shape, COUNTS.tobytes()),
    "nothing": b"",
    "no numbers": saved(COUNTS[:0]),
    "off the lattice in one place": saved(COUNTS + np.eye(1, len(COUNTS))[0] * 1e-9),
}


@pytest.mark.parametrize("case", HOSTILE_ENTRIES)
def test_hostile_arrays_are_refused(case, path):
    pack(path, unpacked(path) | {"column_counts.npy": HOSTILE_ENTRIES[case]})
    with pytest.raises(ValueError, match="synthesizer"):
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


WAYS = sorted(places(DUE.facts), key=repr)


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
    facts = json.loads(json.dumps(replaced(DUE.facts, way, value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parameters, learned = TableRecord(facts, DUE.arrays).restore()
        except ValueError:
            return
        loaded = DPTableSynthesizer(**parameters)
        vars(loaded).update(learned)
        assert len(loaded.sample(5, random_state=0)) == 5
        assert repr(loaded.quality_report(n_samples=20, random_state=0))
        assert loaded.privacy_spent_.epsilon >= 3.0 - 1e-9 or way[:2] == ("spent", "delta")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(DUE.arrays)), st.data())
def test_numbers_of_any_other_value_are_refused_or_harmless(name, data):
    array = DUE.arrays[name].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(array) - 1))
        any_number = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 8)
        if array.dtype == np.float64:
            any_number = st.floats() | st.floats(-5, 5)
        array[place] = data.draw(any_number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parameters, learned = TableRecord(DUE.facts, DUE.arrays | {name: array}).restore()
        except ValueError:
            return
        loaded = DPTableSynthesizer(**parameters)
        vars(loaded).update(learned)
        assert len(loaded.sample(5, random_state=0)) == 5
        assert repr(loaded.quality_report(n_samples=20, random_state=0))


def test_statements_of_strangers_are_shown_as_text(path):
    script = "<script>alert(1)</script>"
    facts = deep_change(facts_of(path), ("spent", "mechanism"), script)
    column = dict(facts["schema"]["columns"][1]) | {"categories": [script, "b", "c", "d"]}
    columns = [facts["schema"]["columns"][0], column, *facts["schema"]["columns"][2:]]
    facts = deep_change(facts, ("schema", "columns"), columns)
    pack(path, with_facts(unpacked(path), facts))
    page = DPTableSynthesizer.load(path).quality_report(n_samples=50, random_state=0).to_html()
    assert "&lt;script&gt;" in page
    assert script not in page


MEASURE = """
import json, pathlib, resource, sys, time, tracemalloc
from skdpot.tables.table_file import read_synthesizer

used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + 700 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    tracemalloc.start()
    start = time.process_time()
    try:
        read_synthesizer(path)
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
    GOOD.save(directory / "plain.npz")
    entries = unpacked(directory / "plain.npz")
    facts = facts_of(directory / "plain.npz")
    zeros = bytes(2**28)
    bombs = {
        "terabyte": entries | {"bins.npy": entry("<i8", (2**37,))},
        "unpacks to 256 MB": entries | {"potentials.npy": entry("<f8", (2**25,), zeros)},
        "unpacks to 60 MB": entries
        | {"potentials.npy": entry("<f8", (3 * 2**21,), zeros[: 3 * 2**24])},
        "facts of 60 MB": entries | {"facts.npy": entry("<U15000000", (), zeros[: 6 * 10**7])},
    }
    text = json.dumps(facts)[:-1]
    name = {"kind": "boolean", "name": "x"}
    many = [name | {"name": f"{k}"} for k in range(60_000)]
    cells = [{"columns": [0, 1], "levels": [0, k]} for k in range(40_000)]
    for title, hostile in {
        "long list": text + ', "x": [' + "0," * 400_000 + "0]}",
        "deep list": text + ', "x": ' + "[" * 400_000 + "]" * 400_000 + "}",
        "deep events": json.dumps(deep_change(facts, ("spent", "event"), _nested(60))),
        "many columns": json.dumps(deep_change(facts, ("schema", "columns"), many)),
        "most columns": json.dumps(deep_change(facts, ("schema", "columns"), many[:4096])),
        "many categories": json.dumps(
            deep_change(facts, ("schema", "columns"), [_categories(200_000)])
        ),
        "many marginals": json.dumps(facts | {"marginals": cells}),
        "many columns in one": json.dumps(
            facts | {"marginals": [{"columns": list(range(9**5)), "levels": [0] * 9**5}]}
        ),
    }.items():
        bombs[title] = with_facts(entries, hostile)
    for title, content in bombs.items():
        pack(directory / f"{title}.npz", content)


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
    assert len(measured) == len(list(tmp_path.iterdir())) >= 12
    # What unpacks to less than the bound is unpacked, copied twice, and parsed.
    constants = {"unpacks to 60 MB.npz": 200, "facts of 60 MB.npz": 200}
    constants |= dict.fromkeys(
        (
            "many columns.npz",
            "many categories.npz",
            "many marginals.npz",
            "many columns in one.npz",
        ),
        150,
    )
    for name, end, size, peak, seconds in measured:
        assert end == ("read" if name == "plain.npz" else "ValueError"), (name, end)
        assert peak <= MULTIPLE * size + CONSTANT_MEMORY + 2**20 * constants.get(name, 0), name
        assert seconds < 10, (name, seconds)
