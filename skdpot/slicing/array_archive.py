"""Arrays from an ``.npz`` file that somebody else may have written.

numpy's own reader allocates what a header promises and unpacks whatever an archive holds. Here
sizes are compared with the bytes that are really there before anything is allocated, an archive
may unpack to a bounded multiple of its own length only, and an entry has one valid spelling.
"""

import io
import math
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["may_unpack", "read_arrays"]

_MAX_BYTES = 2**31
_FREE = 2**27  # what an archive of any length may unpack to: 128 MB,
_RATIO = 16  # and this many times its own length on top
_LONGEST_HEADER = 2**10
_MOST_DIMENSIONS = 4
_LARGEST_CHARACTER = 0x10FFFF
_END = struct.Struct("<4s4H2IH")  # the last bytes of an archive without a comment
_LOCATOR, _LOCATOR_SIZE = b"PK\x06\x07", 20
_ENTRY = 512  # bytes that the directory of an archive may take for an entry
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:[biuf][1248]|[SU][1-9][0-9]{0,7}|[mM]8(?:\[[0-9a-zA-Z]{1,9}\])?))', "
    rb"'fortran_order': (True|False), "
    rb"'shape': \(((?:[0-9]{1,18},)?|[0-9]{1,18}(?:, [0-9]{1,18}){1,3})\), \} *\n",
)
# What the archive reader raises when it meets bytes that are no archive.
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)


def may_unpack(n_unpacked: int, n_packed: int) -> bool:
    """Whether an archive of one length may hold arrays of another, both in bytes."""
    return n_unpacked <= _FREE + _RATIO * n_packed


def read_arrays(path: Path, names: Collection[str], noun: str = "sketch") -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file; no other kind of file is opened.

    Parameters
    ----------
    path : Path
        File to read. Nothing in it is executed.
    names : collection of str
        Names that arrays may have. Others are refused unread.
    noun : str, default="sketch"
        What errors say that the file is not.

    Returns
    -------
    dict of str to ndarray
        Booleans, numbers, times or text, in the byte order of this machine. Together they take
        at most 128 MB and 16 times the length of the file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such archive, or damaged, or would unpack to more.
    """
    data = _read_bytes(path, noun)
    entries = _entries(data, path.name, names, noun)
    arrays = {}
    for name, content in entries.items():
        try:
            arrays[name] = _parse(content)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{path.name} is not a {noun}, or it is damaged: its entry {name!r} is no array "
                "as this release writes it."
            ) from error
    return arrays


def _read_bytes(path: Path, noun: str) -> bytes:
    found = path.stat()  # opening a pipe would wait for its writer
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise ValueError(f"{path.name} is not a {noun}: it is no regular file.")
    if found.st_size > _MAX_BYTES:
        raise ValueError(f"{path.name} has {found.st_size} bytes; at most {_MAX_BYTES} are read.")
    with path.open("rb") as file:
        return file.read(found.st_size)


def _entries(data: bytes, file: str, names: Collection[str], noun: str) -> dict[str, bytes]:
    """Unpack an archive whose directory was looked at first."""
    broken = f"{file} is not a {noun}, or it is damaged. Pass a file that skdpot saved, unchanged."
    _check_end(data, broken, len(names))
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _FAULTS as error:
        raise ValueError(broken) from error
    with archive:
        entries = archive.infolist()
        found = [entry.filename.removesuffix(".npy") for entry in entries]
        if unknown := sorted({f"{name:.40}" for name in found if name not in names}):
            raise ValueError(f"{file} is not a {noun}: it has unknown {unknown}.")
        if len(set(found)) < len(found):
            raise ValueError(f"{file} is not a {noun}: it has an entry twice.")
        n_bytes = sum(entry.file_size for entry in entries)
        if not may_unpack(n_bytes, len(data)):
            raise ValueError(
                f"{file} would unpack from {len(data)} to {n_bytes} bytes, which is more than any "
                f"{noun}; nothing was unpacked."
            )
        try:
            return {
                name: _unpack(archive, entry) for name, entry in zip(found, entries, strict=True)
            }
        except _FAULTS as error:
            raise ValueError(broken) from error


def _check_end(data: bytes, broken: str, most: int) -> None:
    """Refuse a directory of more entries than there are names, before it is read."""
    if len(data) < _END.size:
        raise ValueError(broken)
    mark, *_, n_entries, n_bytes, _, n_comment = _END.unpack(data[-_END.size :])
    # Readers would believe this pointer to another directory, for archives of many gigabytes.
    if data[: -_END.size][-_LOCATOR_SIZE:].startswith(_LOCATOR):
        raise ValueError(broken)
    if mark != b"PK\x05\x06" or n_comment or n_entries > most or n_bytes > most * _ENTRY:
        raise ValueError(broken)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError("packed in another way")
    with archive.open(entry) as stream:
        # Asked for its size: without a number, a chunk is unpacked however long it becomes.
        content = stream.read(entry.file_size)
    if len(content) != entry.file_size:
        raise EOFError("shorter than the directory says")
    return content


def _parse(content: bytes) -> np.ndarray:
    """Return the array of one entry, once its header and its length agree."""
    start = len(_MAGIC) + 2
    length = int.from_bytes(content[len(_MAGIC) : start], "little")
    if not content.startswith(_MAGIC) or length > _LONGEST_HEADER:
        raise ValueError("no header")
    match = _HEADER.fullmatch(content[start : start + length])
    if match is None:
        raise ValueError("another header")
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(number) for number in match[3].replace(b",", b" ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - start - length:
        raise ValueError("another length")
    stored: np.ndarray[Any, Any] = np.frombuffer(content, dtype, offset=start + length)
    array = stored.reshape(shape, order="F" if match[2] == b"True" else "C")
    if dtype.kind == "U" and (stored.view(f"{match[1][:1].decode()}u4") > _LARGEST_CHARACTER).any():
        raise ValueError("no text")
    native: np.ndarray[Any, Any] = array.astype(dtype.newbyteorder("="))
    return native
