"""The messages of all protocols, and what each of them tells to whom.

Only `SketchMessage` is private. The others carry what the protocols of the literature exchange,
without noise: rows follow from them, and their docstrings say how. See the attacks in
`skdpot.audit`, which read nothing but messages.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from skdpot._utils.records import MOST_BYTES, Record
from skdpot._utils.validation import check_count
from skdpot.exceptions import MessageError
from skdpot.federated.message_fields import CHECKS, FRACTIONS
from skdpot.ot.measures import DiscreteMeasure
from skdpot.ot.slices import make_directions
from skdpot.privacy.spent import PrivacySpent
from skdpot.release.bounds import DataBounds, public_bounds
from skdpot.release.histogram import projection_half_widths
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_record import SketchRecord

FloatArray = npt.NDArray[np.float64]


class Message(Record):
    """Something that one participant of a protocol sends to another.

    Messages are frozen. They are equal when their bytes are. A message of another party is
    read with `from_bytes`, which validates everything and runs no code of the sender.

    Every message says in `reveals`, in one sentence, what it tells to whom; its class says it
    at length. Its repr shows sizes only, so that a log of messages is no copy of them.
    """

    noun: ClassVar[str] = "message"
    _REVEALS: ClassVar[str]

    @property
    def reveals(self) -> str:
        """What the message reveals, and to whom: one sentence."""
        return self._REVEALS

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
        """Compare bit for bit."""
        if not isinstance(other, Message):
            return NotImplemented
        return self is other or self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        """Hash what is sent."""
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        """Return kind and sizes, never values."""
        held = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        sizes = "".join(
            f"{name}: {' x '.join(map(str, array.shape))}, "
            for name, array in held.items()
            if isinstance(array, np.ndarray)
        )
        return f"<{type(self).__name__} ({sizes}{self.n_bytes} bytes)>"

    def _store(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        """Check each field by its name, in their order, and keep read-only copies."""
        for item in fields(self):  # type: ignore[arg-type]
            self._store(item.name, CHECKS[item.name](getattr(self, item.name), self))


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
    """The reference γ that all parties interpolate towards, from the server to each party.

    Reveals nothing: γ is drawn without looking at anybody's rows. But γ is what makes an
    `InterpolatingMeasure` readable, and every participant has it.
    """

    kind: ClassVar[str] = "reference"
    _REVEALS: ClassVar[str] = "Nothing: it is drawn without looking at anybody's rows."


@dataclass(frozen=True, eq=False, repr=False)
class InterpolatingMeasure(MeasureMessage):
    """A party's measure moved a fraction t of the way to the reference, to the server.

    **Reveals every row, exactly, to whoever knows the reference and t**: the server, and every
    party that is shown the message. It is no more private than the rows.

    `skdpot.audit.reconstruction.rows_from_interpolation` does it, with the proof, in the time of
    one optimal transport for equal sizes: a second for a thousand rows, whatever the scale of the
    reference and t. That finding the plan is hard, as the paper says, is not so. If t is unknown,
    only that one number is missing: any feature that is constant in the data, such as a pixel that
    is always black, gives it away.

    **Also reveals differences of rows to a server that sees two of them**, made with the same
    reference and t, even if it does not know these: see
    `skdpot.audit.message_attacks.paired_differences`.

    References
    ----------
    Li, Pang, "Private Wasserstein distance", 2024 (TriangleWad).
    """

    kind: ClassVar[str] = "interpolating measure"
    _REVEALS: ClassVar[str] = (
        "Every row of the sender, exactly, to whoever knows the reference and t; to who sees two "
        "such messages also the differences (1 - t)(x_i - y_j) of paired rows."
    )


@dataclass(frozen=True, eq=False, repr=False)
class GeodesicMeasure(_Target):
    """The measure ξ between two parties that FedWad improves round by round, to both of them.

    The first one is drawn at random and reveals nothing. **Every later one is made of both
    parties' interpolating measures, and reveals each party's rows to the other.** Each ξ lies
    at the known fraction t between the two: a party that knows its own reads the other's
    from ξ, like a row from an `InterpolatingMeasure`, and from that the other's rows. Nor does it
    take such care: as the rounds go on ξ settles on the geodesic between μ and ν, and
    who holds μ extends the segments from its own rows through the last ξ to where ν must be. The
    server, which has all of ξ and η, reads the rows of both from the first η that it gets.

    References
    ----------
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024.
    """

    kind: ClassVar[str] = "geodesic measure"
    _REVEALS: ClassVar[str] = (
        "From the second round on the rows of each party to the other, which extends the segments "
        "from its own points through these."
    )


@dataclass(frozen=True, eq=False, repr=False)
class FractionRequest(MeasureMessage):
    """A party's interpolating measure, with the question how far another party's are from it.

    **Reveals to the recipient, who knows the reference, every row of the sender up to one
    unknown number**, its fraction t: everything that `InterpolatingMeasure` says holds here too.
    Keeping t back is what the protocol calls private; see there why it is not.
    """

    fractions: FloatArray = FRACTIONS  # type: ignore[assignment]

    kind: ClassVar[str] = "fraction request"
    _REVEALS: ClassVar[str] = (
        "Every row of the sender, up to its one unknown fraction t, to whoever knows the reference."
    )


@dataclass(frozen=True, eq=False, repr=False)
class DistancesAtFractions(Message):
    """Squared distances of a party's interpolating measures from the asker's, to the asker.

    Reveals one exact number for each fraction. **That is little for one request, but not
    private.** Every row moves these numbers, and no noise covers it: who knows all rows but one
    can test with certainty whether the last one is a given person. And the asker chooses the
    measure. Asked about one single point p the answer is ``‖p - mean‖² + variance``, so that
    requests about d + 1 points give the mean of the rows exactly; a measure with a little
    mass far away in one direction finds the rows that are outermost there.
    """

    fractions: FloatArray
    squared_distances: FloatArray

    kind: ClassVar[str] = "distances at fractions"
    _REVEALS: ClassVar[str] = (
        "A few exact distances to the asker: enough to test with certainty for one row when the "
        "others are known, and to find rows after many requests."
    )


@dataclass(frozen=True, eq=False, repr=False)
class CostMatrices(Message):
    """Squared distances of each of a party's moved rows from the asker's points, to the asker.

    **Reveals every row exactly to the asker as soon as it has sent more points than there are
    features**, by trilateration: see `skdpot.audit.message_attacks.rows_from_cost_matrices`. With
    fewer points the asker learns the projection of each row on their span, and its distance from
    it. The masses are told as they are.
    """

    fractions: FloatArray
    costs: FloatArray
    masses: FloatArray | None = None

    kind: ClassVar[str] = "cost matrices"
    _REVEALS: ClassVar[str] = (
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

    @property
    def shares(self) -> np.ndarray:
        """Shares of the sender's points, also when they are equal."""
        return np.full(self.n_points, 1 / self.n_points) if self.masses is None else self.masses


@dataclass(frozen=True, eq=False, repr=False)
class DistanceMessage(Message):
    """One squared distance: of a party's rows from a measure, to the server, or a result.

    Reveals one exact number to the recipient. **A number is not private because it is one
    number.** It moves with every row, and no noise covers it: who knows all rows but one can
    test with certainty whether the last one is a given person. Who may ask for distances from
    measures of its own choice learns more with each answer: from single points the mean of the
    rows after d + 1 of them, from others single rows.

    As a result, from the server to the parties, it is a function of both parties' rows, and tells
    each of them that much about the other's.
    """

    squared_distance: float

    kind: ClassVar[str] = "distance"
    _REVEALS: ClassVar[str] = (
        "One exact distance to the recipient: enough to test with certainty for one row when the "
        "others are known."
    )


def check_type(given: object, *due: type[Message]) -> None:
    """Raise MessageError unless a message of one of the classes is given."""
    if not isinstance(given, due):
        names = " or ".join(kind.__name__ for kind in due)
        raise MessageError(f"A {names} is due, got {type(given).__name__}.")


_FEWEST_BINS, _MOST_BINS = 2, 512  # decoding takes a time that grows with the third power
_MOST_ENTRIES = 2**24  # of the table that is asked for: 128 MB
_MOST_COORDINATES = 2**25  # of the directions: 256 MB, so that answers fit in a message
_LARGEST_BOUND = 1e150
_ROUNDING = 1e-9  # machines may differ in the last digits
_MOST_NAME_BYTES = 2**19  # half of what a header holds


@dataclass(frozen=True, eq=False, repr=False)
class SketchRequest(Message):
    """What all parties must measure, so that their sketches can be compared: to each of them.

    Reveals nothing about anybody's rows: directions are drawn at random, bins are a number, and
    the bounds are known without looking at the rows, or were released before. How much noise a
    party adds, with which epsilon and out of which budget, is the party's own decision, and no
    part of a request.
    """

    directions: FloatArray
    n_bins: int
    bounds: DataBounds

    kind: ClassVar[str] = "sketch request"
    _REVEALS: ClassVar[str] = (
        "Nothing: it is drawn at random, and its bounds are public or released already."
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
            raise MessageError(f"A table of more than {_MOST_ENTRIES} entries is asked for.")
        # A party that fails on absurd bounds would fail after it has paid.
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
            given = "private" if bounds is None else bounds
            declared = public_bounds(given, norm_bound, n_features)
            directions = make_directions(projections, n_projections, n_features, rng)
        except (TypeError, ValueError) as error:
            raise MessageError(f"No request can be drawn: {error}") from error
        if declared is None:
            raise MessageError(
                "Pass bounds=(low, high) or norm_bound= that are public: known without the rows, "
                "and the same for all parties."
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

    def read(self, message: "SketchMessage") -> SlicedSketch:
        """Return the sketch of an answer that measures what this request asks for."""
        check_type(message, SketchMessage)
        record, shape = message.record, (1, len(self.directions), self.n_bins)
        widths = projection_half_widths(self.bounds, self.directions)
        # Bounds follow from the request by operations that all machines round alike.
        differs = {
            "directions": not _close(record.directions, self.directions),
            "half_widths": not _close(record.half_widths, widths),
            "bounds": record.bounds != self.bounds,
            "shape of the table": record.statistic.shape != shape,
        }
        if wrong := [name for name, differ in differs.items() if differ]:
            raise MessageError(
                f"The sketch does not measure what was asked for: other {', '.join(wrong)}."
            )
        return _restored(replace(record, directions=self.directions, half_widths=widths))

    def __repr__(self) -> str:
        return (
            f"<SketchRequest ({len(self.directions)} slices, {self.n_bins} bins, "
            f"{self.n_features} features, {self.n_bytes} bytes)>"
        )


def _unit_rows(value: Any, n_features: int) -> np.ndarray:
    """Return directions of unit length, or raise MessageError."""
    try:
        if np.size(value) > _MOST_COORDINATES:
            raise ValueError(f"these have more than {_MOST_COORDINATES} coordinates.")
        with np.errstate(all="ignore"):
            rows = make_directions(np.asarray(value), 0, n_features, np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise MessageError(f"directions: {error!s:.300}") from error
    given = np.asarray(value, dtype=np.float64)
    if np.allclose(np.linalg.norm(np.clip(given, -2, 2), axis=1), 1, rtol=0, atol=_ROUNDING):
        rows = given.copy()  # so that a request that is read is the one that was written
    rows.setflags(write=False)
    return rows


def _close(given: np.ndarray, due: np.ndarray) -> bool:
    near = given.shape == due.shape and np.abs(given - due) <= _ROUNDING * np.abs(due)
    return bool(np.all(near))


@dataclass(frozen=True, eq=False, repr=False)
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
    """

    record: SketchRecord

    kind: ClassVar[str] = "sketch"
    version: ClassVar[int] = 3
    noun: ClassVar[str] = "sketch"

    def __post_init__(self) -> None:
        """Copy what was released, and refuse what no party sends."""
        given: Any = self.record
        if isinstance(given, SketchRecord):
            _check(given)
            return
        if not isinstance(given, SlicedSketch):
            raise MessageError(f"A SlicedSketch is due, got {type(given).__name__}.")
        given._check_readable()
        try:
            # What is read from bytes cannot be changed by anybody.
            self._store("record", SketchRecord.from_bytes(SketchRecord.of(given).to_bytes()))
            _check(self.record)
            self.to_bytes()
        except ValueError as error:
            raise MessageError(f"The sketch cannot be sent: {error!s:.300}") from error

    @property
    def sketch(self) -> SlicedSketch:
        """The sketch, closed; decoded anew from what was sent, each time."""
        return _restored(self.record)

    @property
    def statement(self) -> PrivacySpent:
        """Privacy statement of the sender."""
        return self.record.spent

    @property
    def reveals(self) -> str:
        """What the message reveals, and to whom: one sentence."""
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


def _check(record: SketchRecord) -> None:
    """Refuse what cannot be, or would keep its reader busy."""
    if record.statistic.shape[-1:] > (_MOST_BINS,):
        raise ValueError(f"messages hold sketches of at most {_MOST_BINS} bins.")
    if record.classes is not None and record.classes.dtype.kind not in "bifU":
        raise ValueError("classes that are sent must be integers, numbers, text or booleans.")
    record.restore()


def _restored(record: SketchRecord) -> SlicedSketch:
    return SlicedSketch._restored(*record.restore())


def is_writable(text: str) -> bool:
    """Return whether UTF-8 can write a text; it cannot write one half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_feature_names(names: Sequence[str]) -> None:
    """Raise ValueError, which quotes no name, unless a message can hold the names of columns."""
    written = json.dumps(json.dumps(list(names), ensure_ascii=False), ensure_ascii=False)
    if not is_writable(written):
        raise ValueError("Names of columns must be text that UTF-8 can write; rename the columns.")
    if (n_bytes := len(written.encode())) > _MOST_NAME_BYTES:
        raise ValueError(f"Names of columns may take {_MOST_NAME_BYTES} bytes, and have {n_bytes}.")
