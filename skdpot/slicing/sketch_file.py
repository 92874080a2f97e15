"""Sketches on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.slicing.array_archive import may_unpack, read_arrays
from skdpot.slicing.sketch_record import ARRAYS, BOUNDS, SketchRecord

__all__ = ["read_sketch", "write_sketch"]

_FORMAT = "skdpot.SlicedSketch"
_VERSION = 1
_NAMES = frozenset(("facts", *ARRAYS, *(f"bounds_{name}" for name in BOUNDS)))
_MOST_CHARACTERS = 2**20  # of the facts; parsed JSON takes some twenty times its own length


def write_sketch(sketch: Any, path: str | Path) -> None:
    """Write a closed sketch.

    Parameters
    ----------
    sketch : SlicedSketch
        Closed.
    path : str or Path
        File to write; an existing file is replaced.

    Raises
    ------
    ValueError
        If the classes are neither numbers nor strings.
    """
    record = SketchRecord.of(sketch)
    facts = json.dumps({"format": _FORMAT, "version": _VERSION, **record.facts})
    entries: dict[str, Any] = {"facts": np.array(facts), **record.arrays}
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **entries)
        packed = file.tell()
    # A reader refuses what unpacks to very much more; thousands of axes among directions would.
    if not may_unpack(sum(np.asarray(entry).nbytes for entry in entries.values()), packed):
        with Path(path).open("wb") as file:
            np.savez(file, **entries)


def read_sketch(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and validate what `write_sketch` wrote.

    Parameters
    ----------
    path : str or Path
        File to read. It may come from another party: nothing in it is executed.

    Returns
    -------
    parameters, fitted : dict
        Constructor parameters and fitted attributes.

    Raises
    ------
    ValueError
        If the file is not a sketch, of an unknown version, or inconsistent.
    """
    name = Path(path).name
    arrays = read_arrays(Path(path), _NAMES)
    if "facts" not in arrays:
        raise ValueError(f"{name} is not a sketch: it has no entry 'facts'.")
    facts = _read_facts(arrays.pop("facts"), name)
    found, version = facts.pop("format", None), facts.pop("version", None)
    if found != _FORMAT or type(version) is not int or version != _VERSION:
        raise ValueError(
            f"{name} has format {found!r:.40}, version {version!r:.40}; this release reads "
            f"{_FORMAT!r}, version {_VERSION}."
        )
    return SketchRecord(facts, arrays).restore()


def _read_facts(stored: np.ndarray, name: str) -> dict[str, Any]:
    """Parse the facts, each of which must be said once."""
    if stored.dtype.kind != "U" or stored.ndim or stored.nbytes > 4 * _MOST_CHARACTERS:
        raise ValueError(f"{name} is not a sketch: its facts are of another kind, or too long.")
    try:
        facts = json.loads(str(stored), object_pairs_hook=_said_once)
    except RecursionError as error:
        raise ValueError(f"{name} is not a sketch: its facts are nested too deeply.") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{name} is not a sketch: its facts are of another kind.")
    return facts


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        raise ValueError("The file is not a sketch: its facts contradict each other.")
    return facts
