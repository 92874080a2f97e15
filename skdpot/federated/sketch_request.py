"""What every party must measure, so that their sketches can be compared."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot.exceptions import MessageError
from skdpot.federated.message_base import Content, Message
from skdpot.federated.sketch_messages import MOST_BINS, SketchMessage, restored_sketch
from skdpot.federated.vault import check_type
from skdpot.federated.wire import Packet
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.directions import make_directions
from skdpot.slicing.rules import projection_half_widths, public_bounds
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.sketch_record import SketchRecord

__all__ = ["SketchRequest"]

_FEWEST_BINS = 2
_MOST_ENTRIES = 2**24  # of the table that is asked for: 128 MB
_MOST_COORDINATES = 2**25  # of the directions: 256 MB, so that answers fit in a message
_LARGEST_BOUND = 1e150
_ROUNDING = 1e-9  # machines may differ in the last digits


@dataclass(frozen=True, eq=False, repr=False)
class SketchRequest(Message):
    """What all parties must measure, so that their sketches can be compared: to each of them.

    Reveals nothing about anybody's rows: directions are drawn at random, bins are a number, and
    the bounds are known without looking at the rows, or were released before. How much noise a
    party adds, with which epsilon and out of which budget, is the party's own decision, and no
    part of a request.

    Parameters
    ----------
    directions : array-like of shape (n_slices, n_features)
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
    >>> SketchRequest.draw(3, n_slices=6, n_bins=16, bounds=(-1, 1), rng=rng)
    <SketchRequest (6 slices, 16 bins, 3 features, ... bytes)>
    """

    directions: np.ndarray
    n_bins: int
    bounds: DataBounds

    kind: ClassVar[str] = "sketch request"
    _REVEALS = "Nothing: it is drawn at random, and its bounds are public or released already."
    _FACTS = frozenset({"n_bins", "box"})
    _ARRAYS = frozenset({"directions", "center", "scale", "radius"})

    def __post_init__(self) -> None:
        """Check the fields and keep read-only copies."""
        if not isinstance(self.bounds, DataBounds):
            raise MessageError(f"bounds must be DataBounds, got {type(self.bounds).__name__}.")
        n_bins = self.n_bins
        whole = isinstance(n_bins, int | np.integer) and not isinstance(n_bins, bool)
        if not (whole and _FEWEST_BINS <= n_bins <= MOST_BINS):
            raise MessageError(f"n_bins must be an integer from {_FEWEST_BINS} to {MOST_BINS}.")
        object.__setattr__(self, "n_bins", int(n_bins))
        object.__setattr__(self, "directions", _unit_rows(self.directions, self.bounds.n_features))
        if len(self.directions) * self.n_bins > _MOST_ENTRIES:
            raise MessageError(f"A table of more than {_MOST_ENTRIES} entries is asked for.")
        if self.directions.size > _MOST_COORDINATES:
            raise MessageError(f"The directions have more than {_MOST_COORDINATES} coordinates.")
        try:
            public_bounds(self.bounds, None, self.n_features)
        except ValueError as error:
            raise MessageError(str(error)) from error
        # A party that fails on absurd bounds would fail after it has paid.
        largest = max(np.abs(self.bounds.center).max(), self.bounds.scale.max())
        if largest > _LARGEST_BOUND or self.bounds.scale.min() < 1 / _LARGEST_BOUND:
            raise MessageError(
                f"bounds must have centers up to {_LARGEST_BOUND:g}, and scales between its "
                "inverse and it; use another unit."
            )

    @classmethod
    def draw(
        cls,
        n_features: int,
        *,
        n_slices: int,
        n_bins: int,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        norm_bound: float | None = None,
        slices: str = "orthogonal",
        rng: np.random.Generator,
    ) -> Self:
        """Draw the directions of a request.

        Parameters
        ----------
        n_features : int
            Number of features of every party's rows.
        n_slices, n_bins : int
            Shape of the table; `skdpot.slicing.recommended_slices` and ``recommended_bins``
            advise.
        bounds : (low, high), optional
            Public limits of the features, numbers or arrays.
        norm_bound : float, optional
            Public bound of every row's norm, in place of `bounds`.
        slices : {"orthogonal", "axes+orthogonal", "uniform"}, default="orthogonal"
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
                "Parties can only compare sketches with bounds that are public: pass bounds=(low, "
                "high) or norm_bound=, known without looking at the rows."
            )
        try:
            given = "private" if bounds is None else bounds
            declared = public_bounds(given, norm_bound, n_features)
            directions = make_directions(slices, n_slices, n_features, rng)
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
        return {"bounds": self.bounds, "slices": self.directions, "n_bins": self.n_bins}

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
        record = message.record
        arrays, facts = record.arrays, record.facts
        bounds = self.bounds
        widths = projection_half_widths(bounds, self.directions)
        due = {"directions_": self.directions, "half_widths_": widths}
        wrong = [
            name.strip("_") for name in due if not _close(arrays[name], due[name], abs(due[name]))
        ]
        # Bounds follow from the request by operations that all machines round alike.
        sent = {name: arrays[f"bounds_{name}"] for name in ("center", "scale", "radius", "box")}
        if DataBounds.from_dict(sent) != bounds:
            wrong.append("bounds")
        if arrays["statistic_"].shape != (1, len(self.directions), self.n_bins):
            wrong.append("shape of the table")
        if wrong:
            raise MessageError(
                f"The sketch does not measure what was asked for: other {', '.join(wrong)}."
            )
        return restored_sketch(SketchRecord(facts, arrays | due))

    def _content(self) -> Content:
        bounds = self.bounds
        arrays = {
            "directions": self.directions,
            "center": bounds.center,
            "scale": bounds.scale,
            "radius": np.array(bounds.radius),
        }
        return {"n_bins": self.n_bins, "box": bounds.box}, arrays

    @classmethod
    def _from_packet(cls, packet: Packet) -> Self:
        arrays, box = packet.arrays, packet.facts["box"]
        if not isinstance(box, bool) or arrays["radius"].ndim:
            raise MessageError("The bounds of the request are no bounds.")
        bounds = _bounds(arrays["center"], arrays["scale"], float(arrays["radius"]), box)
        request = cls(arrays["directions"], packet.facts["n_bins"], bounds)
        _, written = request._content()
        if any(arrays[name].tobytes() != written[name].tobytes() for name in written):
            raise MessageError("The directions or bounds of the request were not scaled.")
        return request

    def __repr__(self) -> str:
        return (
            f"<SketchRequest ({len(self.directions)} slices, {self.n_bins} bins, "
            f"{self.n_features} features, {self.n_bytes} bytes)>"
        )


def _unit_rows(value: Any, n_features: int) -> np.ndarray:
    """Return directions of unit length, or raise MessageError."""
    try:
        with np.errstate(all="ignore"):
            rows = make_directions(np.asarray(value), 0, n_features, np.random.default_rng(0))
    except (TypeError, ValueError) as error:
        raise MessageError(f"directions: {error!s:.300}") from error
    given = np.asarray(value, dtype=np.float64)
    if np.allclose(np.linalg.norm(np.clip(given, -2, 2), axis=1), 1, rtol=0, atol=_ROUNDING):
        rows = given.copy()  # so that a request that is read is the one that was written
    rows.setflags(write=False)
    return rows


def _bounds(center: np.ndarray, scale: np.ndarray, radius: float, box: bool) -> DataBounds:
    try:
        return DataBounds(center, scale, radius, box)
    except ValueError as error:
        raise MessageError(f"bounds: {error!s:.300}") from error


def _close(given: np.ndarray, due: np.ndarray, unit: np.ndarray) -> bool:
    return given.shape == due.shape and bool((np.abs(given - due) <= _ROUNDING * unit).all())
