"""Sketch files as an attacker would write them: any header, any archive, any fact."""

import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

PREFIX = struct.Struct("<8sHIQI")  # of a packet of `skdpot.federated.wire`


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.trace,)


def entry(descr: str, shape: tuple[Any, ...], body: bytes = b"", *, fortran: bool = False) -> bytes:
    """Return an ``.npy`` file whose header says what it is told to."""
    text = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    header = text.encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def saved(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    """Return an ``.npy`` file as numpy writes it."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def unpacked(path: Path) -> dict[str, bytes]:
    """Return the entries of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write an archive of these entries."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def facts_of(path: Path) -> dict[str, Any]:
    """Return the facts of a sketch file."""
    facts: dict[str, Any] = json.loads(str(np.load(path)["facts"]))
    return facts


def with_facts(entries: dict[str, bytes], facts: Any) -> dict[str, bytes]:
    """Return the entries with other facts: text, or what JSON writes."""
    text = facts if isinstance(facts, str) else json.dumps(facts)
    return entries | {"facts.npy": saved(np.array(text))}


def deep_change(facts: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return nested mappings with one entry replaced, added, or (value ...) removed."""
    if not path:
        return value
    inner = deep_change(facts.get(path[0], {}), path[1:], value)
    changed = {name: old for name, old in facts.items() if name != path[0]}
    return changed if inner is ... else changed | {path[0]: inner}


def packet(
    header: bytes,
    body: bytes = b"",
    *,
    header_length: int | None = None,
    total: int | None = None,
    version: int = 1,
) -> bytes:
    """Return a packet with a checksum that is right: damage is not what protects us."""
    length = len(header) if header_length is None else header_length
    size = PREFIX.size + len(header) + len(body) if total is None else total
    start = PREFIX.pack(b"\x93skdpot\n", version, length, size, 0)[:-4]
    checksum = zlib.crc32(header + body, zlib.crc32(start))
    return start + struct.pack("<I", checksum) + header + body


def parts(data: bytes) -> tuple[bytes, bytes]:
    """Return header and body of a packet."""
    length = PREFIX.unpack(data[: PREFIX.size])[2]
    return data[PREFIX.size : PREFIX.size + length], data[PREFIX.size + length :]


def mangled(data, good):
    """Cut, repeat, overwrite, insert or reverse parts of bytes, as hypothesis draws."""
    bytes_now = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(bytes_now))] * 2)))
        action = data.draw(st.sampled_from(["cut", "repeat", "overwrite", "insert", "reverse"]))
        part = bytes_now[start:stop]
        bytes_now[start:stop] = {
            "cut": b"",
            "repeat": part * 2,
            "overwrite": data.draw(st.binary(max_size=20)),
            "insert": data.draw(st.binary(max_size=20)) + part,
            "reverse": part[::-1],
        }[action]
    return bytes(bytes_now)
