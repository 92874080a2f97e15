"""Records: exact, one spelling each; `test_hostile_bytes` has what strangers may send."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from skdpot._utils.records import Record
from tests.contract.hostile_files import facts_of, forged, split, text_of, with_text

RNG = np.random.default_rng(503)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    size: int


@dataclass(frozen=True)
class WidePart(Part):
    width: float = 1.0


@dataclass(frozen=True, eq=False)
class Example(Record):
    anything: Any
    table: npt.NDArray[np.float64]
    whole: npt.NDArray[np.integer]
    any_array: np.ndarray
    many: tuple[npt.NDArray[np.float64], ...]
    parts: tuple[Part, ...]
    number: float
    scale: float | tuple[float, ...] | None = None
    colour: Colour = Colour.RED
    text: str = "grüße"
    yes: bool = True

    kind: ClassVar[str] = "example"


@dataclass(frozen=True, eq=False)
class Numbers(Record):
    facts: Any
    x: np.ndarray

    kind: ClassVar[str] = "numbers"


def example(**changes):
    fields = {
        "anything": {"a": [1, None, {"b": 0.1}], "ü": "x"},
        "table": RNG.normal(size=(3, 4)),
        "whole": np.array([2**62, -1]),
        "any_array": np.array([["a", "bb"]]),
        "many": (np.zeros(2), np.zeros((0, 3)), np.array(2.5)),
        "parts": (Part(3), WidePart(4, 0.5)),
        "number": 7,
    }
    return Example(**fields | changes)


MADE = example()
GOOD = MADE.to_bytes()
FACTS = facts_of(GOOD)


def test_a_record_comes_back_bit_for_bit():
    data = bytearray(GOOD)
    read = Example.from_bytes(data)
    data[-64:] = bytes(64)  # what is read does not depend on the bytes any more
    for name in ("table", "whole", "any_array"):
        due, found = getattr(MADE, name), getattr(read, name)
        assert (due.dtype, due.shape, due.tobytes()) == (found.dtype, found.shape, found.tobytes())
        with pytest.raises(ValueError, match="WRITEABLE"):
            found.setflags(write=True)
    for due, found in zip(MADE.many, read.many, strict=True):
        assert (due.shape, due.tobytes()) == (found.shape, found.tobytes())
    for name in ("anything", "parts", "number", "scale", "colour", "text", "yes"):
        assert getattr(read, name) == getattr(MADE, name)
    assert type(read.parts[1]) is WidePart
    assert read.to_bytes() == GOOD == MADE.to_bytes()


def test_writing_is_deterministic_whatever_the_order_and_memory_layout():
    again = example(
        anything=dict(reversed(MADE.anything.items())),
        table=np.asfortranarray(MADE.table).astype(">f8"),
        whole=MADE.whole.astype(">i8"),
        any_array=MADE.any_array.astype(">U2"),
    )
    assert again.to_bytes() == GOOD
    assert example(table=MADE.table, number=np.int64(7), scale=None).to_bytes() == GOOD


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False).filter(lambda x: x != -np.inf)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(json_values, arrays(np.float64, array_shapes(), elements={"allow_nan": False})
       | arrays(st.sampled_from([np.int64, np.int8, np.bool_, "<U3"]), array_shapes()))  # fmt: skip
def test_every_record_comes_back(facts, array):
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return
    data = Numbers(facts, array).to_bytes()
    read = Numbers.from_bytes(data)
    assert read.facts == facts
    assert (read.x.dtype, read.x.tobytes()) == (array.dtype, array.tobytes())
    assert read.to_bytes() == data


def changed(**facts):
    return forged(GOOD, {k: v for k, v in (FACTS | facts).items() if v is not ...})


class Odd:
    pass


WRONG = {
    "another kind": (forged(GOOD, kind="numbers"), "holds 'numbers' version 1; expected 'example'"),
    "another version": (forged(GOOD, version=2), "version 2; expected 'example' version 1"),
    "a field less": (changed(number=...), r"lacks \['number'\]"),
    "a field more": (changed(note=1), "1 unknown"),
    "text for a number": (changed(number="7"), "wrong one"),
    "truth for a number": (changed(number=True), "wrong one"),
    "a huge integer for a number": (changed(number=2**60), "wrong one"),
    "a number for truth": (changed(yes=1), "wrong one"),
    "a number for text": (changed(text=3), "wrong one"),
    "a list for a number": (changed(scale=["x"]), "wrong one"),
    "another word": (changed(colour="blue"), "not a valid"),
    "a list of a word": (changed(colour=["red"]), "not a valid"),
    "an unknown class": (changed(parts=[{"type": "Odd", "size": 3}]), "names an unknown part"),
    "no class": (changed(parts=[{"size": 3}]), "wrong one"),
    "a class of another kind": (changed(parts=[{"type": "Example"}]), "names an unknown part"),
    "a field of another class": (
        changed(parts=[{"type": "Part", "size": 3, "width": 1.0}]), "unknown"
    ),
    "a part that is text": (changed(parts=["Part"]), "wrong one"),
    "a number for an array": (changed(table=[1.0]), "wrong one"),
    "an array of another name": (changed(table="@whole"), "wrong one"),
    "an array of another type": (
        forged(GOOD, arrays={"table": np.zeros((3, 4), np.int64)}), "wrong one"
    ),
    "an array less": (forged(GOOD, arrays={"table": ...}), "lacks an entry"),
    "an array more": (forged(GOOD, arrays={"x": np.zeros(3)}), "unknown arrays"),
    "NaN in an array": (forged(GOOD, arrays={"table": np.full((3, 4), np.nan)}), "non-finite"),
    "infinity in an array": (forged(GOOD, arrays={"many.0": np.array([np.inf])}), "non-finite"),
    "objects": (changed(any_array="@|O8"), "wrong one"),
    "another size": (changed(any_array="@<U3"), "record|match|divis"),
    "NaN": (with_text(GOOD, text_of(GOOD).replace("0.1", "NaN")), "damaged"),
    "minus infinity": (with_text(GOOD, text_of(GOOD).replace("0.1", "-Infinity")), "damaged"),
    "a long integer": (with_text(GOOD, text_of(GOOD).replace("0.1", "9" * 5000)), "damaged"),
    "an overflowing number": (with_text(GOOD, text_of(GOOD).replace("0.1", "1e999")), "valid form"),
    "a number in other words": (
        with_text(GOOD, text_of(GOOD).replace("0.1", "0.10")), "valid form"
    ),
    "deep nesting": (
        with_text(GOOD, text_of(GOOD).replace("0.1", "[" * 10**5 + "]" * 10**5)), "too deeply"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_hostile_records_are_refused(case):
    data, text = WRONG[case]
    with pytest.raises(ValueError, match=text):
        Example.from_bytes(data)


def test_limits_and_other_objects():
    assert Example.from_bytes(changed(number=np.inf)).number == np.inf
    assert Example.from_bytes(GOOD, max_bytes=len(GOOD)).number == 7
    with pytest.raises(ValueError, match="at most 100 are read"):
        Example.from_bytes(GOOD, max_bytes=100)
    for data in (10**12, "text", None, [1, 2]):
        with pytest.raises(ValueError, match="is read from bytes, got"):
            Example.from_bytes(data)


UNWRITABLE = {
    "NaN": ({"number": float("nan")}, "NaN or minus infinity"),
    "minus infinity": ({"anything": {"x": [-np.inf]}}, "anything.x.0 is NaN or minus"),
    "long integer": ({"anything": 10**25}, "more than 64 bits"),
    "object": ({"anything": Odd()}, "is a Odd, which cannot be written"),
    "names of numbers": ({"anything": {1: 2}}, "keys that are not strings"),
    "lone surrogate": ({"text": "\ud800"}, "surrogates not allowed"),
    "too many facts": ({"text": "a" * 2**21}, "the limit is 1048576"),
    "object array": ({"any_array": np.array([None])}, "holds objects"),
    "complex array": ({"any_array": np.array([1j])}, "holds objects"),
    "NaN array": ({"table": np.array([np.nan])}, "non-finite"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_what_cannot_be_read_is_not_written(case, tmp_path):
    changes, text = UNWRITABLE[case]
    with pytest.raises(ValueError, match=text):
        example(**changes).save(tmp_path / "record")
    assert not list(tmp_path.iterdir())


def test_a_known_record_has_known_bytes():
    """What this release writes, later ones read: the layout does not follow that of a library."""
    data = Numbers({"b": 1, "a": 0.5}, np.array([1.0, 2.0])).to_bytes()
    header, body = split(data)
    assert json.loads(header.pop("__metadata__")["skdpot"]) == {
        "content": {"facts": {"a": 0.5, "b": 1}, "x": "@"},
        "crc32": 1683884218,
        "kind": "numbers",
        "version": 1,
    }
    assert header == {"x": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}
    assert body == np.array([1.0, 2.0]).tobytes()
    assert len(data) % 8 == 0
