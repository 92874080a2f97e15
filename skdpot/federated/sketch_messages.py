"""The one private message: a sketch that a party has released."""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from skdpot.exceptions import MessageError
from skdpot.federated.message_base import Content, Message
from skdpot.federated.wire import Packet, pack
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.readings import SketchReadings
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.sketch_record import SketchRecord

__all__ = ["MOST_BINS", "SketchMessage", "check_feature_names", "is_writable", "restored_sketch"]

_NUMBERS = ("directions_", "half_widths_", "statistic_")
_SCALES = ("bounds_center", "bounds_scale", "bounds_radius")
_MOST_NAME_BYTES = 2**19  # half of what a packet holds beside its numbers
MOST_BINS = 512  # decoding takes a time that grows with the third power of their number
_MOST_CHARACTERS = 2**23  # 32 MB: an array gives every text the room of the longest
_CLASS_KINDS = {"b": "boolean", "i": "integer", "f": "float", "U": "text"}
_CLASS_TYPES = {"boolean": bool, "integer": int, "float": float, "text": str}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class SketchMessage(Message):
    """The sketch that a party has released, to whoever wants it. The only private message.

    **Reveals the released table, which is (epsilon, delta)-differentially private** under
    replace-one: whatever anybody computes from it, alone or together with everything that is
    known from elsewhere, now or later, is nearly as likely had any one row of the party been
    another row. `statement` has epsilon, delta and the assumptions. Public besides: the
    number of rows and of features and their names, the directions and bounds of the request;
    with ``public_labels=True`` also how many rows have each label, exactly.

    What it does not hide: facts about all rows together, which is what it is made for; and
    nothing at all if epsilon is infinite. The noise is the sender's own. A statement that its own
    events and noise contradict is refused, but no one can see from a table whether the noise
    was drawn: who lies about that harms its own rows.

    Parameters
    ----------
    sketch : SlicedSketch
        Closed. What was released is copied; an open sketch is refused.

    Raises
    ------
    MessageError
        If the sketch cannot be sent.
    OpenSketchError
        If rows are still added to it.
    """

    _record: SketchRecord

    kind: ClassVar[str] = "sketch"
    version: ClassVar[int] = 2  # the first had no label_counts
    _FACTS = frozenset(
        "n_samples noise_scale parameters declared_bounds spent".split()
        + "label_counts box classes names".split()
    )
    _ARRAYS = frozenset((*_NUMBERS, *_SCALES))

    def __init__(self, sketch: SlicedSketch) -> None:
        if not isinstance(sketch, SketchReadings):
            raise MessageError(f"A SlicedSketch is due, got {type(sketch).__name__}.")
        sketch._check_readable()
        try:
            facts, arrays = deepcopy(_to_wire(SketchRecord.of(sketch)))
            record = _from_wire(facts, arrays)
            record.restore()
            pack(self.kind, self.version, facts, arrays)
        except ValueError as error:
            raise MessageError(f"The sketch cannot be sent: {error!s:.300}") from error
        object.__setattr__(self, "_record", record)

    @property
    def record(self) -> SketchRecord:
        """The released parts of the sketch: a copy, whose changes do not reach the message."""
        # Who has a view of a read-only array cannot make it writable.
        arrays = {name: array.view() for name, array in self._record.arrays.items()}
        for array in arrays.values():
            array.setflags(write=False)
        return SketchRecord(deepcopy(self._record.facts), arrays)

    @property
    def sketch(self) -> SlicedSketch:
        """The sketch, closed; decoded anew from what was sent, each time."""
        return restored_sketch(self.record)

    @property
    def statement(self) -> PrivacySpent:
        """Privacy statement of the sender."""
        statement: PrivacySpent = self._record.restore()[1]["privacy_spent_"]
        return statement

    @property
    def reveals(self) -> str:
        """What the message reveals, and to whom: one sentence."""
        spent = self._record.facts["spent"]
        if math.isinf(spent["epsilon"]):
            return "Exact counts of rows along every direction, to everybody: epsilon is infinite."
        sizes, person = "", "any one row"
        if self._record.facts["label_counts"] is not None:
            sizes = " Besides, how many rows have each label, exactly: labels are public."
        if (group_size := self._record.facts["parameters"]["group_size"]) > 1:
            person = f"any {group_size} rows of different labels"
        return (
            f"To everybody a noisy table that is ({spent['epsilon']:.4g}, {spent['delta']:.4g})-"
            f"differentially private: nothing that depends much on {person}.{sizes}"
        )

    def _content(self) -> Content:
        return _to_wire(self._record)

    @classmethod
    def _from_packet(cls, packet: Packet) -> Self:
        message = cls.__new__(cls)
        try:
            record = _from_wire(packet.facts, packet.arrays)
            record.restore()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise MessageError(f"The sketch cannot be: {error!s:.300}") from error
        object.__setattr__(message, "_record", record)
        return message

    def __repr__(self) -> str:
        n_classes, n_slices, n_bins = self._record.arrays["statistic_"].shape
        spent = self._record.facts["spent"]
        return (
            f"<SketchMessage ({n_classes} x {n_slices} x {n_bins} table, epsilon="
            f"{spent['epsilon']:.4g}, delta={spent['delta']:.4g}, {self.n_bytes} bytes)>"
        )


def _to_wire(record: SketchRecord) -> Content:
    """Return a record as facts and arrays of numbers; text and truth values become facts."""
    arrays = dict(record.arrays)
    names = arrays.pop("feature_names_in_", None)
    facts = record.facts | {
        "box": bool(arrays.pop("bounds_box")),
        "names": None if names is None else [str(name) for name in names],
        "classes": _classes_to_wire(arrays.pop("classes_", None)),
    }
    return facts, {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}


def _from_wire(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SketchRecord:
    """Undo `_to_wire`."""
    facts, arrays = dict(facts), dict(arrays)
    box, names, classes = facts.pop("box"), facts.pop("names"), facts.pop("classes")
    if not isinstance(box, bool):
        raise TypeError("box must be true or false.")
    arrays["bounds_box"] = np.array(box)
    if names is not None:
        arrays["feature_names_in_"] = _column(names, str)
    if classes is not None:
        if not isinstance(classes, dict) or set(classes) != {"kind", "values"}:
            raise TypeError("classes have a kind and values.")
        if classes["kind"] not in _CLASS_TYPES:
            raise TypeError("classes are of an unknown kind.")
        arrays["classes_"] = _column(classes["values"], _CLASS_TYPES[classes["kind"]])
        if not np.array_equal(np.unique(arrays["classes_"]), arrays["classes_"]):
            raise ValueError("classes must be different and sorted.")
    if arrays["bounds_radius"].ndim:
        raise TypeError("the radius of the bounds must be one number.")
    if arrays["statistic_"].shape[-1:] > (MOST_BINS,):
        raise ValueError(f"messages hold sketches of at most {MOST_BINS} bins.")
    for array in arrays.values():
        array.setflags(write=False)
    return SketchRecord(facts, arrays)


def _classes_to_wire(classes: np.ndarray | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    kind = _CLASS_KINDS.get(classes.dtype.kind)
    if kind is None:
        raise ValueError("classes that are sent must be integers, numbers, text or booleans.")
    return {"kind": kind, "values": classes.tolist()}


def _column(values: Any, due: type) -> np.ndarray:
    """Return a list of one type as an array."""
    if (
        not isinstance(values, list)
        or not values
        or any(type(value) is not due for value in values)
    ):
        raise TypeError(f"a list of {due.__name__} is due.")
    if due is str and _padded_characters(values) > _MOST_CHARACTERS:
        raise ValueError("its texts are too long.")
    return np.array(values)


def _padded_characters(texts: Sequence[str]) -> int:
    """Return how many characters an array of the texts has room for."""
    return len(texts) * max(map(len, texts))


def is_writable(text: str) -> bool:
    """Return whether UTF-8 can write a text; it cannot write one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_feature_names(names: Sequence[str]) -> None:
    """Raise ValueError, which quotes no name, unless a message can hold the names of columns.

    Parameters
    ----------
    names : sequence of str
        At least one name.
    """
    written = json.dumps(list(names), ensure_ascii=False)
    if not is_writable(written):
        raise ValueError(
            "Names of columns must be text that UTF-8 can write, without lone surrogates; rename "
            "the columns."
        )
    n_bytes, n_characters = len(written.encode()), _padded_characters(names)
    if n_bytes > _MOST_NAME_BYTES or n_characters > _MOST_CHARACTERS:
        raise ValueError(
            f"Names of columns may take {_MOST_NAME_BYTES} bytes together, and their number times "
            f"the length of the longest may be {_MOST_CHARACTERS}; these have {n_bytes} and "
            f"{n_characters}. Shorten them, or pass rows without names."
        )


def restored_sketch(record: SketchRecord) -> SlicedSketch:
    """Make a closed sketch of what was sent, or raise MessageError."""
    try:
        sketch: SlicedSketch = SlicedSketch._restored(*record.restore())
    except ValueError as error:
        raise MessageError(f"The sketch cannot be: {error!s:.300}") from error
    return sketch
