"""Frozen dataclasses as ``safetensors`` files and messages, without pickle.

Arrays are stored under the names of their fields, and everything else as one JSON text in the
header. Any reader of ``safetensors`` can show the contents of a file.

The reader does not trust the writer. It compares lengths and shapes with the available bytes before
it allocates memory, accepts only the types that the class declares, and executes nothing. Each
object has exactly one valid encoding, and all others are refused, so equal objects have equal bytes
and a file hides nothing beside the data. The checksum detects damage; it does not authenticate the
sender.
"""

import json
import math
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import SafetensorError, deserialize

from skdpot._utils.files import write_file

MOST_BYTES = 2**31
LARGEST_COUNT = 2**53
_TYPES = {k: np.dtype(code) for k, code in (("F64", "<f8"), ("I64", "<i8"), ("U8", "u1"))}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
# Arrays of other types are stored as bytes, and their type in place of the array.
_OTHERS = re.compile(r"@((?:[<|](?:[biuf][1248]|U[1-9][0-9]{0,7}|[mM]8(?:\[[0-9a-zA-Z]+\])?))?)")
_DEEPEST = 20  # levels of nested fields
_LARGEST_CHARACTER = 0x10FFFF

Packed = tuple[str, int, Any, dict[str, np.ndarray]]


class Record:
    """A frozen dataclass of plain values, arrays and other dataclasses that can be saved.

    Annotations say what `from_bytes` accepts; `__post_init__` checks more.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    noun: ClassVar[str] = "record"
    most_header: ClassVar[int] = 2**20  # bytes; parsing takes some twenty times as much memory

    def to_bytes(self) -> bytes:
        """Return the bytes of the record; equal records have equal bytes."""
        arrays: dict[str, np.ndarray] = {}
        data = pack(self.kind, self.version, _plain(self, "", arrays), arrays)
        n_header = int.from_bytes(data[:8], "little")
        if n_header > self.most_header:
            raise ValueError(
                f"The header of this {self.noun} has {n_header} bytes; the limit is "
                f"{self.most_header}. Shorten the longest lists, such as categories or names."
            )
        return data

    @classmethod
    def from_bytes(
        cls, data: bytes, *, max_bytes: int = MOST_BYTES, source: str = "The data"
    ) -> Self:
        """Read bytes from an untrusted writer, or raise ValueError."""
        with refusing(cls.noun):
            kind, version, content, arrays = unpack(data, cls, max_bytes, source)
            known = {made.kind: made for made in _classes(cls) if "kind" in vars(made)}
            due = known.get(kind)
            if due is None or version != due.version:
                expected = ", ".join(f"{k!r} version {made.version}" for k, made in known.items())
                raise ValueError(
                    f"{source} holds {kind!r:.60} version {version}; expected {expected}."
                )
            record: Self = _built(due, content, "", arrays)
            if arrays:
                raise ValueError(f"The {cls.noun} has unknown arrays, {len(arrays)} of them.")
            if record.to_bytes() != bytes(data):
                raise ValueError(f"The {cls.noun} is not written in its only valid form.")
            return record

    def save(self, path: str | Path) -> None:
        """Write a file; an existing file is replaced once the new one is complete."""
        data = self.to_bytes()
        write_file(path, lambda draft: draft.write_bytes(data))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file from an untrusted writer, or raise ValueError or OSError."""
        place = Path(path)
        status = place.stat()  # opening a pipe would wait for its writer
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise ValueError(f"{place.name} is not a {cls.noun}: it is not a regular file.")
        if status.st_size > MOST_BYTES:
            raise ValueError(
                f"{place.name} is larger than {MOST_BYTES} bytes, the largest size that is read."
            )
        with place.open("rb") as file:
            return cls.from_bytes(file.read(status.st_size), source=place.name)


@contextmanager
def refusing(noun: str) -> Iterator[None]:
    """Raise ValueError for impossible values, and suppress NumPy warnings about them."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"The {noun} lacks an entry, or has a wrong one.") from error


def pack(kind: str, version: int, content: object, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return ``safetensors`` bytes of JSON content and arrays.

    The layout is written here, so that equal contents have equal bytes with every release of
    ``safetensors``.
    """
    held = {k: a.astype(a.dtype.newbyteorder("<"), copy=False) for k, a in arrays.items()}
    facts = {"content": content, "kind": kind, "version": version}
    text = _text(facts | {"crc32": _checksum(facts, held)})
    header: dict[str, Any] = {"__metadata__": {"skdpot": text}}
    end, parts = 0, []
    for name in _order(held):
        dtype, shape = _NAMES[held[name].dtype], list(held[name].shape)
        parts.append(held[name].tobytes("C"))
        place = [end, end := end + len(parts[-1])]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return b"".join((len(raw).to_bytes(8, "little"), raw, *parts))


def unpack(
    data: bytes, due: type[Record], max_bytes: int = MOST_BYTES, source: str = "The data"
) -> Packed:
    """Return kind, version, content and arrays of undamaged bytes, or raise ValueError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ValueError(f"A {due.noun} is read from bytes, got {type(data).__name__}.")
    if len(data) > max_bytes:
        raise ValueError(f"{source} has {len(data)} bytes; at most {max_bytes} are read.")
    data = bytes(data)
    broken = f"{source} is not a {due.noun}, or it is damaged: "
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > 8 + due.most_header or start > len(data):
        raise ValueError(f"{broken}its header is too long, or it is truncated.")
    try:
        metadata = json.loads(data[8:start])["__metadata__"]
        facts = json.loads(metadata["skdpot"], parse_constant=_infinity, parse_int=_integer)
        tensors = deserialize(data)
        arrays = {
            name: np.frombuffer(bytes(t["data"]), _TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in tensors
        }
        checksum = facts.pop("crc32")
        if set(facts) != {"content", "kind", "version"}:
            raise ValueError("unknown entries")
        if type(facts["kind"]) is not str or type(facts["version"]) is not int:
            raise TypeError("it must have a kind and a version")
        computed = _checksum(facts, arrays)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{broken}it is not a safetensors file written by skdpot.") from error
    except RecursionError as error:
        raise ValueError(f"{broken}it is nested too deeply.") from error
    if checksum != computed:
        raise ValueError(f"{broken}its checksum does not match.")
    return facts["kind"], facts["version"], facts["content"], arrays


def _order(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names with bytes last, so that numbers are aligned."""
    return sorted(arrays, key=lambda name: (arrays[name].dtype == np.uint8, name))


def _checksum(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> int:
    layout = {name: (_NAMES[a.dtype], a.shape) for name, a in arrays.items()}
    checksum = zlib.crc32(_text([facts, layout]).encode())
    for name in _order(arrays):
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).data, checksum)
    return checksum


def _text(content: object) -> str:
    """Return canonical JSON: equal contents have equal texts."""
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _infinity(word: str) -> float:
    """Read the constant Infinity, an epsilon without privacy; refuse NaN."""
    if word != "Infinity":
        raise ValueError("NaN or minus infinity")
    return math.inf


def _integer(digits: str) -> int:
    number = int(digits) if len(digits) < 22 else 2**64
    if not -(2**63) <= number < 2**64:
        raise ValueError("an integer of more than 64 bits")
    return number


def _classes(cls: type[Any]) -> list[type[Any]]:
    """Return a class and all classes derived from it."""
    return [cls, *(derived for child in cls.__subclasses__() for derived in _classes(child))]


def _has_variants(cls: type[Any]) -> bool:
    """Whether a field can hold several classes, this one included, so that its name is written."""
    related = (*cls.__mro__[1:], *cls.__subclasses__())
    return not issubclass(cls, Record) and any(map(is_dataclass, related))


def _plain(value: object, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value as JSON, and add its arrays to `arrays`."""
    if isinstance(value, np.ndarray):
        return _stored(value, path, arrays)
    if is_dataclass(value):
        held = (item.name for item in fields(value) if item.init)
        content = {name: _plain(getattr(value, name), _at(path, name), arrays) for name in held}
        return content | ({"type": type(value).__name__} if _has_variants(type(value)) else {})
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValueError(f"{path} has keys that are not strings, and cannot be written.")
        return {name: _plain(inner, _at(path, name), arrays) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, _at(path, str(k)), arrays) for k, inner in enumerate(value)]
    return _scalar(value, path)


def _scalar(value: Any, path: str) -> Any:
    """Return text, a number, a boolean or None in the form that JSON preserves."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        value.encode()  # raises ValueError for half of a surrogate pair
    elif isinstance(value, float):
        if not (math.isfinite(value) or value == math.inf):
            raise ValueError(f"{path} is NaN or minus infinity, and cannot be written.")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{path} is an integer of more than 64 bits, and cannot be written.")
    elif value is not None:
        raise ValueError(f"{path} is a {type(value).__name__}, which cannot be written.")
    return value


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _stored(array: np.ndarray, path: str, arrays: dict[str, np.ndarray]) -> str:
    """Add an array to `arrays`, and return its mark in the JSON."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    if array.dtype in (np.dtype("<f8"), np.dtype("<i8")):
        mark, arrays[path] = "@", array
    elif _OTHERS.fullmatch(mark := f"@{array.dtype.str}"):
        arrays[path] = np.frombuffer(array.tobytes(), "u1").reshape(
            (*array.shape, array.dtype.itemsize)
        )
    else:
        raise ValueError(
            f"{path} holds objects that are neither strings nor numbers, and cannot be written."
        )
    _check_values(array, path)
    return mark


def _check_values(array: np.ndarray, path: str) -> None:
    if array.dtype.kind == "b" and (array.view("u1") > 1).any():
        raise ValueError(f"{path!r:.60} holds values that are not booleans.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{path!r:.60} holds non-finite values, NaN or infinity.")


def _read_array(hint: Any, mark: object, path: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    match = _OTHERS.fullmatch(mark) if isinstance(mark, str) else None
    if match is None:
        raise TypeError("an array is expected")
    array = arrays.pop(path)
    if match[1]:
        dtype = np.dtype(match[1])
        array = array.view(dtype).reshape(array.shape[:-1])
        if dtype.kind == "U" and (array.view("<u4") > _LARGEST_CHARACTER).any():
            raise ValueError(f"{path!r:.60} holds no text.")
    if parameters := get_args(hint):
        number = get_args(parameters[1])[0]
        if not np.issubdtype(array.dtype, get_origin(number) or number):
            raise TypeError("an array of another type is due")
    _check_values(array, path)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.init}


def _built(hint: Any, tree: object, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the value that `_plain` has converted, or raise ValueError or TypeError."""
    origin = get_origin(hint)
    if hint is Any:
        return tree
    if path.count(".") > _DEEPEST:
        raise ValueError("The fields are nested too deeply.")
    if origin in (Union, UnionType):
        return _one_of(hint, tree, path, arrays)
    if origin is tuple and isinstance(tree, list):
        inner, *_ = get_args(hint)  # all entries have one type
        return tuple(_built(inner, part, _at(path, str(k)), arrays) for k, part in enumerate(tree))
    if np.ndarray in (origin, hint):
        return _read_array(hint, tree, path, arrays)
    if is_dataclass(hint):
        return _made(hint, tree, path, arrays)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(tree)
    whole = type(tree) is int and abs(tree) <= LARGEST_COUNT
    real = hint is float and (type(tree) is float or whole)
    if real or (hint is type(tree) and origin is None):
        return tree
    raise TypeError(f"{path!r:.60} is of another type")


def _one_of(hint: Any, tree: object, path: str, arrays: dict[str, np.ndarray]) -> Any:
    for member in get_args(hint):
        try:
            return _built(member, tree, path, arrays)
        except TypeError:
            continue
    raise TypeError(f"{path!r:.60} is of another type")


def _made(hint: Any, tree: object, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(tree, dict):
        raise TypeError(f"{path!r:.60} must be a mapping")
    tree, made = dict(tree), hint
    if _has_variants(hint):
        name = tree.pop("type")
        known = {made.__name__: made for made in _classes(hint) if is_dataclass(made)}
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"{path} names an unknown {hint.__name__.lower()}.")
        made = known[name]
    hints = _hints(made)
    if set(tree) != set(hints):
        lacking, unknown = sorted(set(hints) - set(tree)), len(set(tree) - set(hints))
        name = path or "The record"
        raise ValueError(f"{name} lacks {lacking} and has {unknown} unknown entries.")
    return made(**{k: _built(hints[k], tree[k], _at(path, k), arrays) for k in hints})
