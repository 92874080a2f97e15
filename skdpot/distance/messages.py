"""The messages of all protocols, and what each reveals to whom; only `SketchMessage` is private."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.arguments import check_count
from skdpot._utils.arrays import FloatArray
from skdpot._utils.finite import as_finite
from skdpot._utils.records import MOST_BYTES, Record
from skdpot.exceptions import MessageError
from skdpot.ot.directions import make_directions
from skdpot.ot.measures import DiscreteMeasure
from skdpot.privacy.statement import PrivacySpent
from skdpot.release.bounds import DataBounds, public_bounds
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_plan import projection_half_widths
from skdpot.release.sketch_record import SketchRecord

FRACTIONS = (0.25, 0.5, 0.75)
"""Fractions at which distances are asked for if t is not disclosed, as in the paper."""

# What a field may hold.
_LARGEST_COORDINATE = 1e100  # beyond it squares and their sums may overflow
_LARGEST_SQUARE = 1e210
_MOST_FRACTIONS = 64  # each is answered by a matrix of all distances
_MASS_ERROR = 1e-6

# What a request for a sketch may ask for.
_FEWEST_BINS = 2
_MOST_BINS = 512  # the time of decoding grows with the third power
_MOST_ENTRIES = 2**24  # of the table: 128 MB
_MOST_COORDINATES = 2**25  # of the directions: 256 MB, so that answers fit in a message
_LARGEST_BOUND = 1e150  # its square is finite
_ROUNDING = 1e-9  # directions of different machines may differ in the last digits
_MOST_NAME_BYTES = 2**19  # half of what a header holds


def _array(
    name: str, value: Any, shape: tuple[int | None, ...], low: float, high: float
) -> np.ndarray:
    """Return a read-only copy of an array, or refuse it; None in the shape is any length."""
    try:
        array: np.ndarray = as_finite(value, name).copy()
    except ValueError as error:
        raise MessageError(str(error)) from None
    expected = tuple(n if d is None else d for n, d in zip(array.shape, shape, strict=False))
    if array.shape != expected or array.ndim != len(shape) or 0 in array.shape:
        lengths = ", ".join("any" if d is None else str(d) for d in shape)
        raise MessageError(f"{name} must have shape ({lengths}), got {array.shape}.")
    if array.min() < low or array.max() > high:
        raise MessageError(f"{name} must lie between {low:g} and {high:g}.")
    array.setflags(write=False)
    return array


def _masses(value: Any, message: "MeasureMessage | CostMatrices") -> np.ndarray | None:
    """Return the share of each point, or None for equal shares."""
    if value is None:
        return None
    masses = _array("masses", value, (message.n_points,), 0, 1 + _MASS_ERROR)
    if abs(masses.sum() - 1) > _MASS_ERROR:
        raise MessageError("masses must sum to 1; divide them by their sum.")
    return masses


def as_fractions(value: Any, _: Any = None) -> np.ndarray:
    """Return increasing fractions of the way to the reference."""
    fractions = _array("fractions", value, (None,), 0, 1)
    if fractions[0] == 0 or fractions[-1] == 1 or (np.diff(fractions) <= 0).any():
        raise MessageError("fractions must increase and lie strictly between 0 and 1.")
    if len(fractions) > _MOST_FRACTIONS:
        raise MessageError(f"fractions may hold {_MOST_FRACTIONS} numbers, got {len(fractions)}.")
    return fractions


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def as_fraction(name: str, value: Any) -> float:
    """Return one fraction of the way to the reference."""
    if not (_is_number(value) and 0 < value < 1):
        raise MessageError(f"{name} must be a number strictly between 0 and 1.")
    return float(value)


def as_interpolation(value: Any, _: Any = None) -> str:
    """Return the kind of an interpolating measure."""
    if value not in ("barycentric", "exact"):
        raise MessageError('interpolation must be "barycentric" or "exact".')
    return str(value)


def _squared_distance(value: Any, _: Any) -> float:
    if not (_is_number(value) and 0 <= value <= _LARGEST_SQUARE):
        raise MessageError(f"squared_distance must be a number between 0 and {_LARGEST_SQUARE:g}.")
    return float(value)


def _squares(name: str, n_axes: int) -> Callable[[Any, Any], np.ndarray]:
    return lambda value, message: _array(
        name, value, (len(message.fractions), *[None] * (n_axes - 1)), 0, _LARGEST_SQUARE
    )


# The check of a field depends on its name, and it reads the fields before it.
_CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "points": lambda value, _: _array(
        "points", value, (None, None), -_LARGEST_COORDINATE, _LARGEST_COORDINATE
    ),
    "masses": _masses,
    "t": lambda value, _: None if value is None else as_fraction("t", value),
    "interpolation": as_interpolation,
    "fractions": as_fractions,
    "squared_distances": _squares("squared_distances", 1),
    "costs": _squares("costs", 3),
    "squared_distance": _squared_distance,
}


class Message(Record):
    """What one participant of a protocol sends to another; frozen, and equal by its bytes."""

    noun: ClassVar[str] = "message"
    reveals: ClassVar[str]

    @cached_property
    def n_bytes(self) -> int:
        """Length of the message on the line."""
        return len(self.to_bytes())

    @classmethod
    def from_bytes(
        cls, data: bytes, *, max_bytes: int = MOST_BYTES, source: str = "The data"
    ) -> Self:
        """Read a message that somebody else wrote."""
        try:
            return super().from_bytes(data, max_bytes=max_bytes, source=source)
        except ValueError as error:
            raise MessageError(f"{error!s:.400}") from error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self is other or self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        """Return kind and sizes, never values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        sizes = "".join(
            f"{name}: {' x '.join(map(str, array.shape))}, "
            for name, array in values.items()
            if isinstance(array, np.ndarray)
        )
        return f"<{type(self).__name__} ({sizes}{self.n_bytes} bytes)>"

    def _store(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        """Check each field by its name, in their order, and keep read-only copies."""
        for item in fields(self):  # type: ignore[arg-type]
            self._store(item.name, _CHECKS[item.name](getattr(self, item.name), self))


AnyMessage = TypeVar("AnyMessage", bound=Message)


@dataclass(frozen=True, eq=False, repr=False)
class MeasureMessage(Message):
    """A message that is a measure: points, and masses unless these are equal."""

    points: FloatArray
    masses: FloatArray | None = None

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.points.shape[1])

    @property
    def measure(self) -> DiscreteMeasure:
        """The measure that is sent."""
        return DiscreteMeasure(self.points, self.masses)


@dataclass(frozen=True, eq=False, repr=False)
class _Target(MeasureMessage):
    """A measure that parties are asked to move theirs towards."""

    t: float | None = None
    interpolation: str = "barycentric"


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceMeasure(_Target):
    """The reference γ of TriangleWad, to each party; it reveals an `InterpolatingMeasure`."""

    kind: ClassVar[str] = "reference"
    reveals: ClassVar[str] = "Nothing: it is drawn without looking at any rows."


@dataclass(frozen=True, eq=False, repr=False)
class InterpolatingMeasure(MeasureMessage):
    """A party's measure moved a fraction t of the way to the reference, to the server.

    It is no more private than the rows: see `rows_from_interpolation`, and `paired_differences` for
    two such messages (`skdpot.distance.reconstruction`). If t is unknown, any feature that is
    constant in the data gives it away.
    """

    kind: ClassVar[str] = "interpolating measure"
    reveals: ClassVar[str] = (
        "Every row of the sender, exactly, to anyone who knows the reference and t; and the "
        "differences (1 - t)(x_i - y_j) of paired rows to anyone who sees two such messages."
    )


@dataclass(frozen=True, eq=False, repr=False)
class GeodesicMeasure(_Target):
    """The measure ξ between two parties that FedWad improves round by round, to both of them.

    The first one is drawn at random. Every later one lies at a known fraction between the moved
    rows of both (`skdpot.distance.reconstruction.rows_from_one_round`).
    """

    kind: ClassVar[str] = "geodesic measure"
    reveals: ClassVar[str] = (
        "From the second round on, the rows of each party to the other, which extends the "
        "segments from its own points through these."
    )


@dataclass(frozen=True, eq=False, repr=False)
class FractionRequest(MeasureMessage):
    """A party's interpolating measure, with the question how far another party's are from it."""

    fractions: FloatArray = FRACTIONS  # type: ignore[assignment]

    kind: ClassVar[str] = "fraction request"
    reveals: ClassVar[str] = (
        "Every row of the sender, up to its one unknown fraction t, to anyone who knows the "
        "reference."
    )


@dataclass(frozen=True, eq=False, repr=False)
class DistancesAtFractions(Message):
    """Squared distances of a party's interpolating measures from the asker's, to the asker.

    Requests about d + 1 single points give the mean of the rows, and a measure with a little mass
    far away in one direction finds the outermost rows there.
    """

    fractions: FloatArray
    squared_distances: FloatArray

    kind: ClassVar[str] = "distances at fractions"
    reveals: ClassVar[str] = (
        "A few exact distances to the asker: enough to test for one row with certainty when the "
        "others are known, and to find rows after many requests."
    )


@dataclass(frozen=True, eq=False, repr=False)
class CostMatrices(Message):
    """Squared distances of each of a party's moved rows from the asker's points, to the asker.

    With fewer points than features the asker learns only the projection of each row on their span
    (`skdpot.distance.reconstruction.rows_from_cost_matrices`).
    """

    fractions: FloatArray
    costs: FloatArray
    masses: FloatArray | None = None

    kind: ClassVar[str] = "cost matrices"
    reveals: ClassVar[str] = (
        "Every row of the sender, exactly, to the asker: squared distances to more known points "
        "than there are features locate each row."
    )

    @property
    def n_points(self) -> int:
        """Number of the sender's points."""
        return int(self.costs.shape[1])

    @property
    def n_targets(self) -> int:
        """Number of the asker's points."""
        return int(self.costs.shape[2])


@dataclass(frozen=True, eq=False, repr=False)
class DistanceMessage(Message):
    """One squared distance: of a party's rows from a measure, to the server, or a result."""

    squared_distance: float

    kind: ClassVar[str] = "distance"
    reveals: ClassVar[str] = (
        "One exact distance to the recipient: enough to test for one row with certainty when the "
        "others are known."
    )


def check_type(message: object, *expected: type[Message]) -> None:
    """Raise MessageError unless a message has one of the classes."""
    if not isinstance(message, expected):
        names = " or ".join(kind.__name__ for kind in expected)
        raise MessageError(f"Expected a {names}, got {type(message).__name__}.")


@dataclass(frozen=True, eq=False, repr=False)
class SketchRequest(Message):
    """What all parties measure, so that their sketches can be compared: to each of them.

    Noise, epsilon and budget are each party's own decision, and no part of a request.
    """

    directions: FloatArray
    n_bins: int
    bounds: DataBounds

    kind: ClassVar[str] = "sketch request"
    reveals: ClassVar[str] = (
        "Nothing: it is drawn at random, and its bounds are public or already released."
    )

    def __post_init__(self) -> None:
        """Check the fields and keep read-only copies."""
        if not isinstance(self.bounds, DataBounds):
            raise MessageError(f"bounds must be DataBounds, got {type(self.bounds).__name__}.")
        try:
            n_bins = check_count(self.n_bins, "n_bins", least=_FEWEST_BINS, most=_MOST_BINS)
            public_bounds(self.bounds, None, self.n_features)
        except (TypeError, ValueError) as error:
            raise MessageError(str(error)) from error
        self._store("n_bins", n_bins)
        self._store("directions", _unit_rows(self.directions, self.n_features))
        if len(self.directions) * n_bins > _MOST_ENTRIES:
            raise MessageError(f"The requested table has more than {_MOST_ENTRIES} entries.")
        # With absurd bounds a party would fail after it has paid.
        largest = max(np.abs(self.bounds.center).max(), self.bounds.scale.max())
        if largest > _LARGEST_BOUND or self.bounds.scale.min() < 1 / _LARGEST_BOUND:
            raise MessageError(
                f"bounds may have centers up to {_LARGEST_BOUND:g}, scales from its inverse to it."
            )

    @classmethod
    def draw(
        cls,
        n_features: int,
        *,
        n_projections: int,
        n_bins: int,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        norm_bound: float | None = None,
        projections: str = "orthogonal",
        rng: np.random.Generator,
    ) -> Self:
        """Draw the directions of a request."""
        try:
            declared = public_bounds(
                "private" if bounds is None else bounds, norm_bound, n_features
            )
            directions = make_directions(projections, n_projections, n_features, rng)
        except (TypeError, ValueError) as error:
            raise MessageError(f"The request cannot be drawn: {error}") from error
        if declared is None:
            raise MessageError(
                "Pass public bounds: bounds=(low, high) or norm_bound=, known without the rows and "
                "the same for all parties."
            )
        return cls(directions, n_bins, declared)

    @property
    def n_features(self) -> int:
        """Number of features of the rows that are asked about."""
        return self.bounds.n_features

    @cached_property
    def sketch_parameters(self) -> dict[str, Any]:
        """Parameters that a party passes to `SlicedSketch`; none of them is about privacy."""
        return {"bounds": self.bounds, "projections": self.directions, "n_bins": self.n_bins}

    def read(self, message: "SketchMessage", *, overlapping: bool = False) -> SlicedSketch:
        """Return the sketch of an answer that measures what this request asks for.

        If `overlapping`, it may have fewer or more directions of the same sequence.
        """
        check_type(message, SketchMessage)
        record, directions = message.record, self.directions
        if overlapping:
            n_answered, n_requested = len(record.directions), len(directions)
            longer = record.directions[n_requested:]
            directions = np.concatenate([directions[:n_answered], longer])
        shape = (1, len(directions), self.n_bins)
        widths = projection_half_widths(self.bounds, directions)
        # Bounds are compared exactly: all machines round alike what they follow from.
        differs = {
            "directions": not _close(record.directions, directions),
            "half_widths": not _close(record.half_widths, widths),
            "bounds": record.bounds != self.bounds,
            "shape of the table": record.statistic.shape != shape,
        }
        if wrong := [name for name, differ in differs.items() if differ]:
            raise MessageError(
                f"The sketch does not match the request: different {', '.join(wrong)}."
            )
        return _restored(replace(record, directions=directions, half_widths=widths))


def _unit_rows(value: Any, n_features: int) -> np.ndarray:
    """Return directions of length one, read-only, or refuse them."""
    try:
        if np.size(value) > _MOST_COORDINATES:
            raise ValueError(f"these have more than {_MOST_COORDINATES} coordinates.")
        with np.errstate(all="ignore"):
            rows = make_directions(np.asarray(value), 0, n_features, np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise MessageError(f"directions: {error!s:.300}") from error
    exact = np.asarray(value, dtype=np.float64)
    if np.allclose(np.linalg.norm(np.clip(exact, -2, 2), axis=1), 1, rtol=0, atol=_ROUNDING):
        rows = exact.copy()  # a request that is read must equal the one that was written
    rows.setflags(write=False)
    return rows


def _close(answered: np.ndarray, requested: np.ndarray) -> bool:
    """Whether two arrays are equal except for rounding."""
    if answered.shape != requested.shape:
        return False
    return bool(np.all(np.abs(answered - requested) <= _ROUNDING * np.abs(requested)))


@dataclass(frozen=True, eq=False, repr=False)
class SketchMessage(Message):
    """The sketch that a party has released, to anyone who wants it. The only private message.

    The released table is (epsilon, delta)-differentially private under replace-one. The number of
    rows, the features and their names, the directions and bounds of the request, and with
    ``public_labels=True`` the number of rows per label are public. A statement that contradicts its
    own events and noise is refused; whether the noise was drawn cannot be seen from a table.
    """

    record: SketchRecord

    kind: ClassVar[str] = "sketch"
    version: ClassVar[int] = 3
    noun: ClassVar[str] = "sketch"

    def __post_init__(self) -> None:
        """Copy what was released, and refuse what no party sends."""
        released: Any = self.record
        if isinstance(released, SketchRecord):
            _check_record(released)
            return
        if not isinstance(released, SlicedSketch):
            raise MessageError(f"Expected a SlicedSketch, got {type(released).__name__}.")
        released._check_readable()
        try:
            # Read from bytes, so that nobody can change it.
            self._store("record", SketchRecord.from_bytes(SketchRecord.of(released).to_bytes()))
            _check_record(self.record)
            self.to_bytes()
        except ValueError as error:
            raise MessageError(f"The sketch cannot be sent: {error!s:.300}") from error

    @property
    def sketch(self) -> SlicedSketch:
        """The closed sketch, decoded from the message at each access."""
        return _restored(self.record)

    @property
    def statement(self) -> PrivacySpent:
        """Privacy statement of the sender."""
        return self.record.spent

    @property
    def reveals(self) -> str:  # type: ignore[override]
        """What the message reveals, and to whom, in one sentence."""
        spent, person, sizes = self.record.spent, "any one row", ""
        if math.isinf(spent.epsilon):
            return "Exact counts of rows along every direction, to everybody: epsilon is infinite."
        if self.record.label_counts is not None:
            sizes = " Besides, how many rows have each label, exactly: labels are public."
        if self.record.group_size > 1:
            person = f"any {self.record.group_size} rows of different labels"
        return (
            f"To everybody a noisy table that is ({spent.epsilon:.4g}, {spent.delta:.4g})-"
            f"differentially private: nothing that depends much on {person}.{sizes}"
        )

    def __repr__(self) -> str:
        n_classes, n_projections, n_bins = self.record.statistic.shape
        spent = self.record.spent
        return (
            f"<SketchMessage ({n_classes} x {n_projections} x {n_bins} table, epsilon="
            f"{spent.epsilon:.4g}, delta={spent.delta:.4g}, {self.n_bytes} bytes)>"
        )


def _check_record(record: SketchRecord) -> None:
    """Refuse what cannot be right, and what would take its reader too long."""
    if record.statistic.shape[-1:] > (_MOST_BINS,):
        raise ValueError(f"messages hold sketches of at most {_MOST_BINS} bins.")
    if record.classes is not None and record.classes.dtype.kind not in "bifU":
        raise ValueError("classes that are sent must be integers, numbers, text or booleans.")
    record.restore()


def _restored(record: SketchRecord) -> SlicedSketch:
    """Return the closed sketch of a record."""
    return SlicedSketch._restored(*record.restore())


def is_writable(text: str) -> bool:
    """Whether a text can be encoded in UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_feature_names(names: Sequence[str]) -> None:
    """Raise ValueError, which quotes no name, unless a message can hold the names of columns."""
    written = json.dumps(json.dumps(list(names), ensure_ascii=False), ensure_ascii=False)
    if not is_writable(written):
        raise ValueError("Column names must be valid UTF-8 text; rename the columns.")
    if (n_bytes := len(written.encode())) > _MOST_NAME_BYTES:
        raise ValueError(f"Column names may take {_MOST_NAME_BYTES} bytes in total, got {n_bytes}.")
