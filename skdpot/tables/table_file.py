"""Fitted synthesizers on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

from pathlib import Path
from typing import Any

from skdpot.slicing.record_file import RecordFormat
from skdpot.tables.model_record import ARRAYS
from skdpot.tables.table_record import TableRecord

__all__ = ["read_synthesizer", "write_synthesizer"]

_FORMAT = RecordFormat(
    name="skdpot.DPTableSynthesizer",
    version=1,
    noun="synthesizer",
    arrays=frozenset(ARRAYS),
    most_characters=2**22,  # categories are among the facts
)


def write_synthesizer(synthesizer: Any, path: str | Path) -> None:
    """Write a fitted synthesizer.

    Parameters
    ----------
    synthesizer : DPTableSynthesizer
        Fitted.
    path : str or Path
        File to write; an existing file is replaced.

    Raises
    ------
    ValueError
        If its schema is longer than a file may hold.
    """
    record = TableRecord.of(synthesizer)
    _FORMAT.write(path, record.facts, record.arrays)


def read_synthesizer(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read and validate what `write_synthesizer` wrote.

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
        If the file is not a synthesizer, of an unknown version, or inconsistent.
    """
    return TableRecord(*_FORMAT.read(path)).restore()
