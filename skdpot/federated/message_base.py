"""What all messages share: bytes, kinds, comparison, and the checks of their fields."""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.wire import MAX_BYTES, Packet, pack, unpack

__all__ = [
    "Message",
    "as_costs",
    "as_fraction",
    "as_fractions",
    "as_masses",
    "as_points",
    "as_squared_distance",
    "present",
]

Content = tuple[dict[str, Any], dict[str, np.ndarray]]

LARGEST_COORDINATE = 1e100  # beyond it squares and their sums may overflow
LARGEST_SQUARE = 1e210
_MOST_FRACTIONS = 64
_MASS_ERROR = 1e-6


class Message(ABC):
    """Something that one participant of a protocol sends to another.

    Messages are frozen. They are equal when their bytes are. A message of another party is
    read with `from_bytes`, which validates everything and runs no code of the sender.

    Every message says in `reveals`, in one sentence, what it tells to whom; its class says it
    at length. Its repr shows sizes only, so that a log of messages is no copy of them.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    _REVEALS: ClassVar[str]
    _FACTS: ClassVar[frozenset[str]] = frozenset()
    _ARRAYS: ClassVar[frozenset[str]] = frozenset()
    _OPTIONAL: ClassVar[frozenset[str]] = frozenset()
    _kinds: ClassVar[dict[str, type["Message"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the kind known to `Message.from_bytes`; a class without one is a part of others."""
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            Message._kinds[cls.kind] = cls

    @property
    def reveals(self) -> str:
        """What the message reveals, and to whom: one sentence."""
        return self._REVEALS

    @cached_property
    def n_bytes(self) -> int:
        """Length of the message on the line."""
        return len(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the bytes of the message; always the same for equal messages."""
        facts, arrays = self._content()
        return pack(self.kind, self.version, facts, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, *, max_bytes: int = MAX_BYTES) -> Self:
        """Read a message that somebody else wrote.

        Parameters
        ----------
        data : bytes
            What arrived.
        max_bytes : int, default=2**31
            Longer messages are refused unread.

        Returns
        -------
        Message
            Of this class; ``Message.from_bytes`` reads every kind.

        Raises
        ------
        MessageError
            If the bytes are damaged, of another kind or version, or what they say cannot be.
        """
        packet = unpack(data, max_bytes=max_bytes)
        known = Message._kinds.get(packet.kind)
        if known is None:
            raise MessageError(f"There is no message of kind {packet.kind[:40]!r}.")
        if not issubclass(known, cls):
            raise MessageError(f"A {cls.__name__} is due, got a {known.__name__}.")
        if packet.version != known.version:
            raise MessageError(
                f"The message of kind {known.kind!r} has version {packet.version}; this release "
                f"reads version {known.version}. All parties need releases that share one."
            )
        known._check_entries(packet)
        return known._from_packet(packet)

    @abstractmethod
    def _content(self) -> Content:
        """Return facts and arrays."""

    @classmethod
    def _from_packet(cls, packet: Packet) -> Self:
        """Make the message from facts and arrays with the right names."""
        make: Any = cls
        message: Self = make(**packet.facts, **packet.arrays)
        return message

    @classmethod
    def _check_entries(cls, packet: Packet) -> None:
        """Refuse a packet that lacks something or brings something else along."""
        found = set(packet.arrays)
        if set(packet.facts) != cls._FACTS or not (
            cls._ARRAYS - cls._OPTIONAL <= found <= cls._ARRAYS
        ):
            raise MessageError(
                f"The message of kind {cls.kind!r} lacks an entry, or has an unknown one."
            )
        if any(array.dtype != np.float64 for array in packet.arrays.values()):
            raise MessageError(f"The message of kind {cls.kind!r} is written in float64 only.")

    def __eq__(self, other: object) -> bool:
        """Compare bit for bit."""
        if not isinstance(other, Message):
            return NotImplemented
        return self is other or self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """Hash what is sent."""
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        """Return kind and sizes, never values."""
        _, arrays = self._content()
        sizes = "".join(
            f"{name}: {' x '.join(map(str, array.shape)) or 'number'}, "
            for name, array in arrays.items()
        )
        return f"<{type(self).__name__} ({sizes}{self.n_bytes} bytes)>"


def as_points(name: str, value: ArrayLike) -> np.ndarray:
    """Return points as a read-only table, or raise MessageError."""
    points = _as_floats(name, value)
    if points.ndim != 2 or 0 in points.shape:
        raise MessageError(
            f"{name} must have shape (n_points, n_features), both at least 1; got {points.shape}."
        )
    if np.abs(points).max() > LARGEST_COORDINATE:
        raise MessageError(
            f"{name} holds coordinates beyond {LARGEST_COORDINATE:g}, whose squares are not "
            "finite; use another unit."
        )
    return points


def as_masses(value: ArrayLike | None, n_points: int) -> np.ndarray | None:
    """Return the share of each point, or None for equal shares, or raise MessageError."""
    if value is None:
        return None
    masses = _as_floats("masses", value)
    if masses.shape != (n_points,) or masses.min() < 0 or masses.max() > 1 + _MASS_ERROR:
        raise MessageError(f"masses must hold one share in [0, 1] for each of {n_points} points.")
    if abs(masses.sum() - 1) > _MASS_ERROR:
        raise MessageError("masses must sum to 1; divide them by their sum.")
    return masses


def as_fractions(value: ArrayLike) -> np.ndarray:
    """Return increasing fractions of the way to the reference, or raise MessageError."""
    fractions = _as_floats("fractions", value)
    if fractions.ndim != 1 or not 1 <= fractions.size <= _MOST_FRACTIONS:
        raise MessageError(
            f"fractions must have shape (n_fractions,), with 1 to {_MOST_FRACTIONS} of them."
        )
    if fractions[0] <= 0 or fractions[-1] >= 1 or (np.diff(fractions) <= 0).any():
        raise MessageError("fractions must increase and lie strictly between 0 and 1.")
    return fractions


def as_costs(name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return squared distances of a shape (None is any length), or raise MessageError."""
    costs = _as_floats(name, value)
    fits = costs.ndim == len(shape) and all(
        length >= 1 and due in (None, length)
        for length, due in zip(costs.shape, shape, strict=True)
    )
    if not fits:
        due_text = ", ".join("any" if length is None else str(length) for length in shape)
        raise MessageError(f"{name} must have shape ({due_text}), got {costs.shape}.")
    if costs.min() < 0 or costs.max() > LARGEST_SQUARE:
        raise MessageError(f"{name} must lie between 0 and {LARGEST_SQUARE:g}.")
    return costs


def as_fraction(name: str, value: Any) -> float:
    """Return one fraction of the way to the reference, or raise MessageError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0 < value < 1):
        raise MessageError(f"{name} must be a number strictly between 0 and 1.")
    return float(value)


def as_squared_distance(value: Any) -> float:
    """Return a squared distance as a float, or raise MessageError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and 0 <= value <= LARGEST_SQUARE):
        raise MessageError(
            f"squared_distance must be a number between 0 and {LARGEST_SQUARE:g}; no value is "
            "shown, because it may be private."
        )
    return float(value)


def _as_floats(name: str, value: ArrayLike) -> np.ndarray:
    """Return a read-only copy in double precision, finite."""
    array: np.ndarray | None
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None:
        raise MessageError(f"{name} must hold real numbers.")
    if not np.isfinite(array).all():
        raise MessageError(f"{name} must not hold NaN or infinity.")
    array.setflags(write=False)
    return array


def present(**arrays: np.ndarray | None) -> dict[str, np.ndarray]:
    """Leave out what is not there."""
    return {name: array for name, array in arrays.items() if array is not None}
