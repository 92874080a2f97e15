"""Fitted synthesizers on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

from skdpot.slicing.record_file import RecordFile, RecordFormat
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
_FILE = RecordFile(_FORMAT, TableRecord)

write_synthesizer = _FILE.write
read_synthesizer = _FILE.read
