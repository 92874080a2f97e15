"""Files of synthesizers from strangers with facts or numbers of any other value.

What holds of all bytes of strangers is in `test_hostile_bytes`.
"""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import DPTableSynthesizer
from skdpot.tables.record import TableRecord
from tests.contract.hostile_files import (
    arrays_of,
    deep_change,
    facts_of,
    forged,
)
from tests.tables.table_models import fitted

GOOD = fitted("left out")
WRITTEN = TableRecord.of(GOOD).to_bytes()
FACTS, ARRAYS = facts_of(WRITTEN), arrays_of(WRITTEN)

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


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(WAYS), VALUES)
def test_a_fact_of_any_other_value_is_refused_or_harmless(way, value):
    check_harmless(lambda: forged(WRITTEN, replaced(FACTS, way, value)), way)


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
    check_harmless(lambda: forged(WRITTEN, arrays={name: array}))


def test_statements_of_strangers_are_shown_as_text(tmp_path):
    script, path = "<script>alert(1)</script>", tmp_path / "synthesizer.safetensors"
    facts = deep_change(FACTS, ("spent", "mechanism"), script)
    column = dict(facts["schema"]["columns"][1]) | {"categories": [script, "b", "c", "d"]}
    columns = [facts["schema"]["columns"][0], column, *facts["schema"]["columns"][2:]]
    facts = deep_change(facts, ("schema", "columns"), columns)
    path.write_bytes(forged(WRITTEN, facts))
    page = DPTableSynthesizer.load(path).quality_report(n_samples=50, random_state=0).to_html()
    assert "&lt;script&gt;" in page
    assert script not in page
