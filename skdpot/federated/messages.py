"""The messages of all protocols, and what each of them tells to whom.

Only `SketchMessage` is private. The others carry what the protocols of the literature exchange,
without noise.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.plain_messages import (
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FloatArray,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    Message,
    ReferenceMeasure,
    check_type,
)
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.plan import make_directions, projection_half_widths, public_bounds
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.sketch_record import SketchRecord

__all__ = [
    "CostMatrices",
    "DistanceMessage",
    "DistancesAtFractions",
    "FractionRequest",
    "GeodesicMeasure",
    "InterpolatingMeasure",
    "Message",
    "ReferenceMeasure",
    "SketchMessage",
    "SketchRequest",
]


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

    Parameters
    ----------
    directions : array-like of shape (n_projections, n_features)
        Directions of the slices; scaled to unit length.
    n_bins : int
        Bins along each direction, 2 to 512. With more a party would be busy for minutes, and
        noise covers what finer bins would show.
    bounds : DataBounds
        The same for all parties: declared together, with ``DataBounds.from_box`` or
        ``DataBounds.from_norm``, or what one of them has released (``sketch.bounds_``).

    Raises
    ------
    MessageError
        If directions, bins or bounds are not usable.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federated.messages import SketchRequest
    >>> rng = np.random.default_rng(0)
    >>> SketchRequest.draw(3, n_projections=6, n_bins=16, bounds=(-1, 1), rng=rng)
    <SketchRequest (6 slices, 16 bins, 3 features, ... bytes)>
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
        n_bins = self.n_bins
        whole = isinstance(n_bins, int | np.integer) and not isinstance(n_bins, bool)
        if not (whole and _FEWEST_BINS <= n_bins <= _MOST_BINS):
            raise MessageError(f"n_bins must be an integer from {_FEWEST_BINS} to {_MOST_BINS}.")
        self._store("n_bins", int(n_bins))
        self._store("directions", _unit_rows(self.directions, self.bounds.n_features))
        if len(self.directions) * self.n_bins > _MOST_ENTRIES:
            raise MessageError(f"A table of more than {_MOST_ENTRIES} entries is asked for.")
        try:
            public_bounds(self.bounds, None, self.n_features)
        except ValueError as error:
            raise MessageError(str(error)) from error
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
        """Draw the directions of a request.

        Parameters
        ----------
        n_features : int
            Number of features of every party's rows.
        n_projections, n_bins : int
            Shape of the table; `skdpot.slicing.recommended_n_projections` and ``recommended_bins``
            advise.
        bounds : (low, high), optional
            Public limits of the features, numbers or arrays.
        norm_bound : float, optional
            Public bound of every row's norm, in place of `bounds`.
        projections : {"orthogonal", "axes+orthogonal", "uniform"}, default="orthogonal"
            How directions are drawn. Along axes alone, data with equal marginals cannot be told
            apart.
        rng : numpy.random.Generator
            Public stream.

        Returns
        -------
        SketchRequest

        Raises
        ------
        MessageError
            If no bounds are given, or an argument is out of range.
        """
        if bounds is None and norm_bound is None:
            raise MessageError(
                "Pass bounds=(low, high) or norm_bound= that are public: known without the rows."
            )
        try:
            given = "private" if bounds is None else bounds
            declared = public_bounds(given, norm_bound, n_features)
            directions = make_directions(projections, n_projections, n_features, rng)
        except (TypeError, ValueError) as error:
            raise MessageError(f"No request can be drawn: {error}") from error
        if declared is None:
            raise MessageError("bounds must be a pair (low, high), the same for all parties.")
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
        """Return the sketch of an answer that measures what this request asks for.

        Parameters
        ----------
        message : SketchMessage
            What a party answered.

        Returns
        -------
        SlicedSketch
            With exactly the directions and bounds of the request, which a party's machine may
            have rounded otherwise; sketches of several parties can be compared.

        Raises
        ------
        MessageError
            If the answer measures something else, or is no sketch.
        """
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

    Parameters
    ----------
    record : SlicedSketch
        Closed. What was released is copied, as a `SketchRecord`; an open sketch is refused.

    Raises
    ------
    MessageError
        If the sketch cannot be sent.
    OpenSketchError
        If rows are still added to it.
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
