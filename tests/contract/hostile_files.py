"""Files and messages as an attacker would write them: any header, any array, any fact.

The checksum is right wherever there can be one: damage is not what protects us.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from skdpot._utils import records


class Anything(records.Record):
    """Is read whatever its kind."""

    most_header = 2**27


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.trace,)


def facts_of(data: bytes) -> Any:
    """Return what a file or message says beside its arrays."""
    return records.unpack(data, Anything)[2]


def arrays_of(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a file or message."""
    return dict(sorted(records.unpack(data, Anything)[3].items()))


def forged(
    data: bytes, facts: Any = None, arrays: Any = None, *, kind: Any = None, version: Any = None
) -> bytes:
    """Return a file or message with other facts, arrays (`...` removes one), kind or version."""
    old_kind, old_version, old_facts, old_arrays = records.unpack(data, Anything)
    changed = {k: v for k, v in (old_arrays | (arrays or {})).items() if v is not ...}
    return records.pack(
        old_kind if kind is None else kind,
        old_version if version is None else version,
        old_facts if facts is None else facts,
        changed,
    )


def with_text(data: bytes, text: str) -> bytes:
    """Return a file or message whose facts are this text, valid JSON or not."""
    *_, arrays = records.unpack(data, Anything)
    start, body = split(data)
    try:
        crc = records._checksum(json.loads(text), arrays)
        text = f'{text[:-1]},"crc32":{crc}' + "}"
    except (ValueError, TypeError, RecursionError):
        pass
    return joined(start | {"__metadata__": {"skdpot": text}}, body)


def text_of(data: bytes) -> str:
    """Return the facts as text, without the checksum."""
    facts = json.loads(split(data)[0]["__metadata__"]["skdpot"])
    facts.pop("crc32")
    return json.dumps(facts)


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of ``safetensors`` and the bytes behind it."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def joined(header: Any, body: bytes = b"", *, length: int | None = None) -> bytes:
    """Return ``safetensors`` with a header that may be anything."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + body


def with_tensor(data: bytes, name: str, dtype: Any, shape: Any, content: bytes) -> bytes:
    """Return a file or message with one tensor replaced by whatever is promised of it."""
    header, body = split(data)
    start, stop = header[name]["data_offsets"]
    longer = len(content) - (stop - start)
    for other, entry in header.items():
        if other != "__metadata__" and entry["data_offsets"][0] >= stop:
            entry["data_offsets"] = [place + longer for place in entry["data_offsets"]]
    places = [start, start + len(content)]
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": places}
    return joined(header, body[:start] + content + body[stop:])


def deep_change(facts: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return nested mappings and lists with one entry replaced, added, or (value ...) removed."""
    if not path:
        return value
    if isinstance(facts, list):
        inner = deep_change(facts[path[0]], path[1:], value)
        return [*facts[: path[0]], *([] if inner is ... else [inner]), *facts[path[0] + 1 :]]
    inner = deep_change(facts.get(path[0], {}), path[1:], value)
    changed = {name: old for name, old in facts.items() if name != path[0]}
    return changed if inner is ... else changed | {path[0]: inner}


def places(facts: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the way to every fact, however deep, and what stands there."""
    for name in facts if isinstance(facts, dict) else range(len(facts)):
        yield (*above, name), facts[name]
        if isinstance(facts[name], dict | list):
            yield from places(facts[name], (*above, name))
