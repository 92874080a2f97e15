"""Sketches on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.slicing.sketch_record import SketchRecord

__all__ = ["read_sketch", "write_sketch"]

_FORMAT = "skdpot.SlicedSketch"
_VERSION = 1


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
    arrays = _read_arrays(Path(path))
    try:
        facts = json.loads(str(arrays.pop("facts")))
    except RecursionError as error:
        raise ValueError(f"{name} is not a sketch: its facts are nested too deeply.") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{name} is not a sketch: its facts are of another kind.")
    if facts.get("format") != _FORMAT or facts.get("version") != _VERSION:
        raise ValueError(
            f"{name} has format {facts.get('format')!r:.40}, version "
            f"{facts.get('version')!r:.40}; this release reads {_FORMAT!r}, version {_VERSION}."
        )
    return SketchRecord(facts, arrays).restore()


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file; no other kind of file is opened."""
    try:
        # Opened as a zip archive here, because numpy would also read other formats.
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ValueError(f"{path.name} is not a sketch, or it is damaged.") from error
    if "facts" not in arrays:
        raise ValueError(f"{path.name} is not a sketch: it has no entry 'facts'.")
    return arrays
