"""Sketches on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

from pathlib import Path
from typing import Any

from skdpot.slicing.record_file import RecordFormat
from skdpot.slicing.sketch_record import ARRAYS, BOUNDS, SketchRecord

__all__ = ["read_sketch", "write_sketch"]

_FORMAT = RecordFormat(
    name="skdpot.SlicedSketch",
    version=1,
    noun="sketch",
    arrays=frozenset((*ARRAYS, *(f"bounds_{name}" for name in BOUNDS))),
    most_characters=2**20,
)


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
    _FORMAT.write(path, record.facts, record.arrays)


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
    return SketchRecord(*_FORMAT.read(path)).restore()
