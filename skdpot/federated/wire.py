"""Packets: how a message becomes bytes and comes back, without pickle.

A packet is a fixed prefix, a JSON header and raw numbers, in this order::

    magic (8 bytes) | format version (uint16) | header length (uint32)
    | length of the whole packet (uint64) | CRC-32 of everything else (uint32)
    | header | numbers of each array, little-endian, in C order

The header names the kind and version of the message, its facts, and the name, number type and
shape of each array. There is exactly one way to write a packet: keys and arrays are sorted, and
a reader refuses any other spelling. So equal packets are equal bytes, and nothing can hide in a
packet beside what is read from it.

Who reads a packet does not trust who wrote it. Lengths and shapes are compared with the bytes
that are really there before anything is allocated, and nothing in a packet is executed. The
checksum finds damage. It does not prove who the sender is: that is up to the transport (TLS).
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.exceptions import MessageError

__all__ = ["FORMAT_VERSION", "MAX_BYTES", "Packet", "pack", "unpack"]

FORMAT_VERSION = 1
MAX_BYTES = 2**31

_MAGIC = b"\x93skdpot\n"
_PREFIX = struct.Struct("<8sHIQI")
_CHECKSUM_AT = _PREFIX.size - 4
_MAX_HEADER = 2**20  # parsed JSON takes some twenty times its own length
_MAX_DIMENSIONS = 4
_MAX_DIGITS = 19  # of a 64-bit integer
_NUMBER_TYPES = ("<f4", "<f8", "<i8")
_HEADER_KEYS = {"arrays", "facts", "kind", "version"}
_ARRAY_KEYS = {"dtype", "name", "shape"}


@dataclass(frozen=True, eq=False)
class Packet:
    """What a message consists of.

    Parameters
    ----------
    kind : str
        Name of the kind of message.
    version : int
        Version of this kind.
    facts : dict
        What JSON can hold; numbers are finite, or infinity.
    arrays : dict of str to ndarray
        float32, float64 or int64, finite and not empty.
    """

    kind: str
    version: int
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def pack(kind: str, version: int, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Write a packet.

    Parameters
    ----------
    kind : str
        Name of the kind of message.
    version : int
        Version of this kind.
    facts : mapping
        Strings, numbers, booleans, None, and lists and mappings of these.
    arrays : mapping of str to ndarray
        float32, float64 or int64, finite and not empty.

    Returns
    -------
    bytes
        The same for equal arguments.

    Raises
    ------
    MessageError
        If a packet cannot hold the arguments.
    """
    values = {name: np.asarray(arrays[name]) for name in sorted(arrays)}
    layout = []
    for name, array in values.items():
        number_type = array.dtype.newbyteorder("<").str
        layout.append({"dtype": number_type, "name": name, "shape": list(array.shape)})
        _check_layout(layout[-1])
        _check_finite(name, array)
    content = {"arrays": layout, "facts": dict(facts), "kind": kind, "version": version}
    try:
        header = _canonical(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError("facts must be what JSON can hold, without NaN.") from error
    if len(header) > _MAX_HEADER:
        raise MessageError(
            f"The facts take {len(header)} bytes; a packet holds {_MAX_HEADER} bytes of them."
        )
    _check_header(content)
    little_endian = (array.astype(array.dtype.newbyteorder("<")) for array in values.values())
    body = b"".join((header, *(array.tobytes("C") for array in little_endian)))
    total = _PREFIX.size + len(body)
    start = _PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header), total, 0)[:_CHECKSUM_AT]
    checksum = zlib.crc32(body, zlib.crc32(start))
    return start + struct.pack("<I", checksum) + body


def unpack(data: bytes | bytearray | memoryview, *, max_bytes: int = MAX_BYTES) -> Packet:
    """Read and validate a packet that somebody else wrote.

    Parameters
    ----------
    data : bytes
        One whole packet.
    max_bytes : int, default=2**31
        Longer packets are refused unread.

    Returns
    -------
    Packet
        Its arrays are read-only copies.

    Raises
    ------
    MessageError
        If the bytes are not one undamaged packet in the only valid spelling.
    TypeError
        If `data` is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"A packet is bytes, got {type(data).__name__}.")
    view = memoryview(data).cast("B")
    if len(view) > max_bytes:
        raise MessageError(f"The packet has {len(view)} bytes; at most {max_bytes} are read.")
    start = _check_prefix(view)
    header = _read_header(bytes(view[_PREFIX.size : start]))
    sizes = [_check_layout(entry) for entry in header["arrays"]]
    names = [entry["name"] for entry in header["arrays"]]
    if names != sorted(set(names)):
        raise MessageError("The arrays of the packet are repeated or out of order.")
    if start + sum(sizes) != len(view):
        raise MessageError(
            "The shapes that the packet declares do not fit the bytes that it brings."
        )
    arrays = {}
    for entry, size in zip(header["arrays"], sizes, strict=True):
        arrays[entry["name"]] = _read_array(entry, view[start : start + size])
        start += size
    return Packet(header["kind"], header["version"], header["facts"], arrays)


def _check_prefix(view: memoryview) -> int:
    """Return where the header ends, once lengths and checksum agree with the bytes."""
    if len(view) < _PREFIX.size:
        raise MessageError("The packet is truncated: it is shorter than its own prefix.")
    magic, version, header_length, total, checksum = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != _MAGIC:
        raise MessageError("These bytes are not a packet of skdpot.")
    if version != FORMAT_VERSION:
        raise MessageError(
            f"The packet has format version {version}; this release reads version "
            f"{FORMAT_VERSION}. All parties need releases that share one."
        )
    if total != len(view):
        fault = "truncated" if total > len(view) else "followed by other bytes"
        raise MessageError(
            f"The packet is {fault}: it declares {total} bytes and {len(view)} arrived."
        )
    if zlib.crc32(view[_PREFIX.size :], zlib.crc32(view[:_CHECKSUM_AT])) != checksum:
        raise MessageError("The packet is damaged: its checksum does not match.")
    end: int = _PREFIX.size + header_length
    if header_length > _MAX_HEADER or end > len(view):
        raise MessageError(f"The packet declares a header of {header_length} bytes.")
    return end


def _read_header(raw: bytes) -> dict[str, Any]:
    """Parse the header; refuse whatever `pack` would not have written."""
    try:
        header = json.loads(raw.decode(), parse_constant=_infinity, parse_int=_whole_number)
        canonical = _canonical(header)
    except (ValueError, RecursionError) as error:
        raise MessageError("The header of the packet is not valid JSON.") from error
    # This also refuses keys that occur twice and numbers that a float cannot hold.
    if canonical != raw:
        raise MessageError("The header of the packet is not in its canonical form.")
    return _check_header(header)


def _canonical(content: Any) -> bytes:
    """Return the only spelling of a header."""
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    # Reading it back is the check: NaN, long integers and keys that are no text do not survive.
    json.loads(text, parse_constant=_infinity, parse_int=_whole_number)
    return text.encode()


def _infinity(word: str) -> float:
    """Read the constant Infinity, an epsilon without privacy; refuse NaN."""
    if word != "Infinity":
        raise ValueError("the header holds NaN or minus infinity")
    return math.inf


def _whole_number(digits: str) -> int:
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise ValueError("the header holds an integer of more than 64 bits")
    return int(digits)


def _check_header(header: Any) -> dict[str, Any]:
    """Check the types of everything but the facts, which the message checks."""
    if not isinstance(header, dict) or set(header) != _HEADER_KEYS:
        raise MessageError("The header of the packet lacks an entry, or has an unknown one.")
    kind, version = header["kind"], header["version"]
    if not isinstance(kind, str) or type(version) is not int:
        raise MessageError("The kind of a packet is text, and its version an integer.")
    if not isinstance(header["facts"], dict) or not isinstance(header["arrays"], list):
        raise MessageError("The facts of a packet are a mapping, and its arrays a list.")
    return header


def _check_layout(entry: Any) -> int:
    """Return how many bytes an array takes that the header describes."""
    if not isinstance(entry, dict) or set(entry) != _ARRAY_KEYS:
        raise MessageError("An array of a packet has a name, a number type and a shape.")
    name, shape = entry["name"], entry["shape"]
    if not isinstance(name, str):
        raise MessageError("The name of an array of a packet is text.")
    if entry["dtype"] not in _NUMBER_TYPES:
        raise MessageError(
            f"A packet holds arrays of {', '.join(_NUMBER_TYPES)}, and no other numbers."
        )
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise MessageError(f"Arrays of a packet have at most {_MAX_DIMENSIONS} dimensions.")
    if not all(type(length) is int and length >= 1 for length in shape):
        raise MessageError("The shape of an array of a packet is made of integers from 1 on.")
    return math.prod(shape) * int(entry["dtype"][-1])


def _read_array(entry: dict[str, Any], raw: memoryview) -> np.ndarray:
    """Copy the numbers of one array, whose shape fits them."""
    stored = np.frombuffer(raw, dtype=entry["dtype"]).reshape(entry["shape"])
    array: np.ndarray = stored.astype(stored.dtype.newbyteorder("="))
    _check_finite(entry["name"], array)
    array.setflags(write=False)
    return array


def _check_finite(name: str, array: np.ndarray) -> None:
    if not np.isfinite(array).all():
        raise MessageError(f"The array {name[:40]!r} holds NaN or infinity; no message does.")
