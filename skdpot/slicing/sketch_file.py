"""Sketches on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

from skdpot.slicing.record_file import RecordFile, RecordFormat
from skdpot.slicing.sketch_record import ARRAYS, BOUNDS, SketchRecord

__all__ = ["read_sketch", "write_sketch"]

_FORMAT = RecordFormat(
    name="skdpot.SlicedSketch",
    version=1,
    noun="sketch",
    arrays=frozenset((*ARRAYS, *(f"bounds_{name}" for name in BOUNDS))),
    most_characters=2**20,
)
_FILE = RecordFile(_FORMAT, SketchRecord)

write_sketch = _FILE.write
read_sketch = _FILE.read
