"""Packets: exact, one spelling each, and nothing that a stranger writes is believed."""

import json
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from skdpot.exceptions import MessageError
from skdpot.federated.wire import FORMAT_VERSION, pack, unpack

RNG = np.random.default_rng(503)
FACTS = {"text": "grüße", "whole": -3, "number": 0.1, "none": None, "list": [True, 1e300, "x"]}
ARRAYS = {
    "table": RNG.normal(size=(3, 4)),
    "single": RNG.normal(size=5).astype(np.float32),
    "counts": np.array([2**62, -1]),
    "scalar": np.array(2.5),
}
GOOD = pack("example", 1, FACTS, ARRAYS)

PREFIX = struct.Struct("<8sHIQI")
HEADER = json.dumps(
    {
        "arrays": [{"dtype": "<f8", "name": "x", "shape": [2]}],
        "facts": {"n": 1},
        "kind": "example",
        "version": 1,
    },
    sort_keys=True,
    separators=(",", ":"),
)
BODY = np.array([1.0, 2.0]).tobytes()


def forged(
    header=HEADER,
    body=BODY,
    *,
    version=FORMAT_VERSION,
    magic=GOOD[:8],
    header_length=None,
    total=None,
):
    """Write a packet by hand, with a checksum that is right: damage is not what protects us."""
    raw = header if isinstance(header, bytes) else header.encode()
    length = len(raw) if header_length is None else header_length
    size = PREFIX.size + len(raw) + len(body) if total is None else total
    start = PREFIX.pack(magic, version, length, size, 0)[:-4]
    checksum = zlib.crc32(raw + body, zlib.crc32(start))
    return start + struct.pack("<I", checksum) + raw + body


def with_array(**changes):
    content = json.loads(HEADER)
    content["arrays"][0] |= changes
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def with_entry(**changes):
    content = json.loads(HEADER) | changes
    kept = {name: value for name, value in content.items() if value is not ...}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def test_a_packet_comes_back_bit_for_bit():
    packet = unpack(GOOD)
    assert (packet.kind, packet.version, packet.facts) == ("example", 1, FACTS)
    assert set(packet.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert packet.arrays[name].dtype == array.dtype
        assert packet.arrays[name].shape == array.shape
        assert packet.arrays[name].tobytes() == array.tobytes()
        assert not packet.arrays[name].flags.writeable


def test_writing_is_deterministic_whatever_the_order_and_memory_layout():
    backwards = pack(
        "example",
        1,
        dict(reversed(FACTS.items())),
        {name: np.array(array, order="F") for name, array in reversed(ARRAYS.items())},
    )
    assert backwards == GOOD
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in ARRAYS.items()}
    assert pack("example", 1, FACTS, swapped) == GOOD


def test_what_is_read_is_independent_of_the_bytes():
    data = bytearray(forged())
    packet = unpack(data)
    data[-8:] = bytes(8)
    np.testing.assert_array_equal(packet.arrays["x"], [1.0, 2.0])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False).filter(lambda x: x != -np.inf)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3
        )
    ),
    max_leaves=8,
)
number_arrays = arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.int64]),
    shape=array_shapes(min_dims=1, max_dims=4, max_side=4),
    elements={"allow_nan": False, "allow_infinity": False},
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5), number_arrays, max_size=3
    ),
)
def test_every_packet_comes_back(facts, content):
    data = pack("kind", 7, facts, content)
    packet = unpack(data)
    assert packet.facts == facts
    for name, array in content.items():
        assert packet.arrays[name].tobytes() == array.tobytes()
    assert pack(packet.kind, packet.version, packet.facts, packet.arrays) == data


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 8 * len(GOOD) - 1))
def test_every_flipped_bit_is_found(position):
    data = bytearray(GOOD)
    data[position // 8] ^= 1 << position % 8
    with pytest.raises(MessageError, match=r"packet|header"):
        unpack(bytes(data))


@pytest.mark.parametrize("length", [0, 1, 8, PREFIX.size - 1, PREFIX.size, 100, len(GOOD) - 1])
def test_truncated_packets_are_refused(length):
    with pytest.raises(MessageError, match="truncated"):
        unpack(GOOD[:length])


def test_bytes_that_follow_are_refused():
    with pytest.raises(MessageError, match="followed by other bytes"):
        unpack(GOOD + b"\0")
    with pytest.raises(MessageError, match="do not fit the bytes"):
        unpack(forged(body=BODY + bytes(8)))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_else(data):
    for candidate in (data, GOOD[:8] + data, forged(header=data), forged(body=data)):
        try:
            packet = unpack(candidate)
        except MessageError:
            continue
        assert pack(packet.kind, packet.version, packet.facts, packet.arrays) == candidate


HOSTILE = {
    "wrong magic": (forged(magic=b"PK\3\4zzzz"), "not a packet"),
    "format version 0": (forged(version=0), "format version 0"),
    "newer format": (forged(version=FORMAT_VERSION + 1), "reads version 1"),
    "header beyond the end": (forged(header_length=10**6), "header of 1000000 bytes"),
    "huge header": (forged(header_length=2**32 - 1), "declares a header"),
    "wrong total": (forged(total=2**63), "truncated"),
    "no JSON": (forged(header="{"), "not valid JSON"),
    "no UTF-8": (forged(header=b"\xff\xfe"), "not valid JSON"),
    "a list": (forged(header="[]", body=b""), "lacks an entry"),
    "null": (forged(header="null", body=b""), "lacks an entry"),
    "no kind": (forged(header=with_entry(kind=...)), "lacks an entry"),
    "one entry more": (forged(header=with_entry(extra=1)), "unknown one"),
    "kind is a number": (forged(header=with_entry(kind=3)), "kind of a packet"),
    "version is text": (forged(header=with_entry(version="1")), "version an integer"),
    "version is true": (forged(header=with_entry(version=True)), "version an integer"),
    "facts are a list": (forged(header=with_entry(facts=[])), "facts of a packet"),
    "arrays are a mapping": (forged(header=with_entry(arrays={})), "arrays a list"),
    "array is a number": (forged(header=with_entry(arrays=[1])), "has a name"),
    "array without shape": (
        forged(header=with_entry(arrays=[{"dtype": "<f8", "name": "x"}])),
        "has a name",
    ),
    "spaces": (forged(header=HEADER + " "), "canonical"),
    "other order": (forged(header=HEADER.replace('"n":1', '"z":1,"n":1')), "canonical"),
    "key twice": (forged(header=HEADER.replace('"n":1', '"n":1,"n":1')), "canonical"),
    "escaped text": (forged(header=HEADER.replace("example", "ex\\u0061mple")), "canonical"),
    "lone surrogate": (forged(header=HEADER.replace("example", "\\ud800")), "not valid JSON"),
    "NaN": (forged(header=HEADER.replace('"n":1', '"n":NaN')), "not valid JSON"),
    "minus infinity": (forged(header=HEADER.replace('"n":1', '"n":-Infinity')), "not valid JSON"),
    "overflowing number": (forged(header=HEADER.replace('"n":1', '"n":1e999')), "canonical"),
    "long integer": (forged(header=HEADER.replace('"n":1', '"n":' + "9" * 5000)), "not valid"),
    "deep nesting": (
        forged(header=HEADER.replace('"n":1', '"n":' + "[" * 10**5 + "]" * 10**5)),
        "not valid JSON",
    ),
    "object dtype": (forged(header=with_array(dtype="|O")), "no other numbers"),
    "big-endian": (forged(header=with_array(dtype=">f8")), "no other numbers"),
    "dtype is a list": (forged(header=with_array(dtype=["<f8"])), "no other numbers"),
    "text dtype": (forged(header=with_array(dtype="<U2")), "no other numbers"),
    "name is a number": (forged(header=with_array(name=1)), "name of an array"),
    "shape is a number": (forged(header=with_array(shape=2)), "dimensions"),
    "shape of floats": (forged(header=with_array(shape=[2.0])), "integers from 1"),
    "shape of booleans": (forged(header=with_array(shape=[True])), "integers from 1"),
    "negative shape": (forged(header=with_array(shape=[-2])), "integers from 1"),
    "two negative shapes": (forged(header=with_array(shape=[-2, -1])), "integers from 1"),
    "empty array": (forged(header=with_array(shape=[0]), body=b""), "integers from 1"),
    "ten dimensions": (forged(header=with_array(shape=[1] * 10)), "dimensions"),
    "other shape": (forged(header=with_array(shape=[3])), "do not fit"),
    "shape that wraps around": (forged(header=with_array(shape=[2**61 + 2])), "do not fit"),
    "product that wraps around": (forged(header=with_array(shape=[2**31] * 3)), "do not fit"),
    "array twice": (
        forged(
            header=with_entry(arrays=[{"dtype": "<f8", "name": "x", "shape": [1]}] * 2),
        ),
        "repeated or out of order",
    ),
    "arrays out of order": (
        forged(
            header=with_entry(
                arrays=[{"dtype": "<f8", "name": name, "shape": [1]} for name in "yx"]
            ),
        ),
        "repeated or out of order",
    ),
    "NaN in an array": (forged(body=np.array([1, np.nan]).tobytes()), "NaN or infinity"),
    "infinity in an array": (forged(body=np.array([np.inf, 1]).tobytes()), "NaN or infinity"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_packets_are_refused(case):
    data, text = HOSTILE[case]
    with pytest.raises(MessageError, match=text):
        unpack(data)


def test_the_forger_can_write_a_good_packet():
    assert unpack(forged()).arrays["x"].tolist() == [1.0, 2.0]
    assert unpack(forged(header=HEADER.replace('"n":1', '"n":Infinity'))).facts["n"] == np.inf


@pytest.mark.parametrize("shape", [[10**12], [10**6, 10**6], [10**18], [2**20, 2**20, 2**20]])
def test_declared_sizes_allocate_nothing(shape):
    data = forged(header=with_array(shape=shape))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="do not fit"):
            unpack(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**5


def test_a_long_header_takes_bounded_memory():
    big = forged(header=b"[" + b"[]," * 2**21 + b"[]]")
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="declares a header"):
            unpack(big)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**5
    longest = forged(header=b'{"a":[' + b"[]," * (2**20 // 3 - 10) + b"[]]}")
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="lacks an entry"):
            unpack(longest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**8


def test_packets_beyond_the_limit_are_not_read():
    with pytest.raises(MessageError, match="at most 100 are read"):
        unpack(GOOD, max_bytes=100)
    assert unpack(GOOD, max_bytes=len(GOOD)).kind == "example"


@pytest.mark.parametrize("data", [10**12, "text", None, [1, 2]])
def test_other_objects_are_no_packets(data):
    with pytest.raises(TypeError, match="A packet is bytes"):
        unpack(data)


UNWRITABLE = {
    "NaN in facts": ({"x": float("nan")}, {}, "JSON"),
    "long integer": ({"x": 10**25}, {}, "JSON"),
    "object": ({"x": object()}, {}, "JSON"),
    "lone surrogate": ({"x": "\ud800"}, {}, "JSON"),
    "too many facts": ({"x": "a" * 2**21}, {}, "packet holds"),
    "text array": ({}, {"x": np.array(["a"])}, "no other numbers"),
    "object array": ({}, {"x": np.array([None])}, "no other numbers"),
    "complex array": ({}, {"x": np.array([1j])}, "no other numbers"),
    "empty array": ({}, {"x": np.zeros((0, 3))}, "integers from 1"),
    "NaN array": ({}, {"x": np.array([np.nan])}, "NaN or infinity"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_what_cannot_be_read_is_not_written(case):
    facts, content, text = UNWRITABLE[case]
    with pytest.raises(MessageError, match=text):
        pack("example", 1, facts, content)
