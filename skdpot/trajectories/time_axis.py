"""The time axis of a fit, made from public time stamps: numbers or dates."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import column_or_1d

from skdpot._utils.arrays import FloatArray, IntArray

# Up to this many distinct time stamps are times of their own; more are divided into bins.
_MOST_DISTINCT = 50
_DEFAULT_BINS = 20
# Dates have nanoseconds, the axis has seconds.
_SECONDS_PER_NANOSECOND = 1e-9
# Stamps nearer to each other than this share of the whole time differ by rounding only.
_SAME = 1e-9
_NO_STAMPS = (
    "{} must hold numbers or dates, one per row. Convert text with pandas.to_datetime; divide "
    "durations by a unit."
)


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The times at which a process is observed (knots), from public time stamps.

    Knots increase strictly, shape (T,). The T - 1 boundaries lie between them; a stamp on a
    boundary belongs to the later knot. Limits are the first and the last stamp. If stamps are
    dates, all of these are seconds since the origin.
    """

    knots: FloatArray
    boundaries: FloatArray
    limits: tuple[float, float]
    origin: np.datetime64 | None = None

    @classmethod
    def of_stamps(cls, t: np.ndarray, n_times: int | None) -> Self:
        """Make an axis whose knots are the distinct time stamps, or the means of bins of them."""
        origin = t.min() if t.dtype.kind == "M" else None
        stamps = _seconds_since(t, origin)
        distinct = np.unique(stamps)
        with np.errstate(over="ignore"):
            span = distinct[-1] - distinct[0]
        if not np.isfinite(span):
            raise ValueError(
                "The first and the last time stamp are too far apart for double precision. Pass t "
                "in a larger unit of time."
            )
        apart = np.diff(distinct) > _SAME * span
        edges = None
        if n_times is not None or apart.sum() >= _MOST_DISTINCT:
            edges = np.linspace(distinct[0], distinct[-1], (n_times or _DEFAULT_BINS) + 1)[1:-1]
            bins = np.searchsorted(edges, distinct, side="right")
            apart &= np.diff(bins) > 0
        first = np.flatnonzero(apart) + 1  # first distinct stamp of each knot but the first
        # Means are taken of differences: sums of large numbers would lose small differences.
        since = stamps - distinct[0]
        knot = np.searchsorted(first, np.searchsorted(distinct, stamps), side="right")
        knots = distinct[0] + np.bincount(knot, since) / np.bincount(knot)
        alone = np.diff(first, prepend=0, append=len(distinct)) == 1
        # A mean of one stamp is this stamp, without rounding.
        knots[alone] = distinct[np.concatenate([[0], first])][alone]
        boundaries = (distinct[first - 1] + distinct[first]) / 2
        if edges is not None:
            boundaries = edges[bins[first] - 1]
        # The mean of two neighbouring floating-point numbers is one of the two.
        boundaries = np.maximum(boundaries, np.nextafter(distinct[first - 1], np.inf))
        return cls(knots, boundaries, (float(distinct[0]), float(distinct[-1])), origin)

    @property
    def n_times(self) -> int:
        """Number of knots T."""
        return len(self.knots)

    @property
    def stamps(self) -> np.ndarray:
        """The knots in the units of the time stamps."""
        if self.origin is None:
            return self.knots
        return _as_stamp(self.knots, self.origin)

    @property
    def unit_knots(self) -> np.ndarray:
        """The knots on the axis from 0 to 1; a single one is at 0."""
        span = self.knots[-1] - self.knots[0]
        return (self.knots - self.knots[0]) / (span if span > 0 else 1.0)

    @property
    def spacings(self) -> np.ndarray:
        """Differences of `unit_knots`."""
        return np.diff(self.unit_knots)

    def positions(self, t: np.ndarray) -> np.ndarray:
        """Return the index of the knot of each time stamp, shape (n,)."""
        return np.searchsorted(self.boundaries, self._read(t, "t"), side="right")

    def to_unit(self, times: ArrayLike) -> np.ndarray:
        """Map times to the axis from 0 to 1; those that equal a knot but for rounding become it."""
        stamps = self._read(read_stamps(np.atleast_1d(times), "times"), "times")
        span = self.knots[-1] - self.knots[0]
        unit = np.clip((stamps - self.knots[0]) / (span if span > 0 else 1.0), 0.0, 1.0)
        nearest = np.abs(stamps[:, None] - self.knots).argmin(axis=1)
        at_knot = np.abs(stamps - self.knots[nearest]) <= self._tolerance
        return np.where(at_knot, self.unit_knots[nearest], unit)

    def subset(self, chosen: IntArray) -> "TimeAxis":
        """Return the axis of some knots; each time stamp belongs to the nearest of them."""
        knots = self.knots[chosen]
        low = self.limits[0] if chosen[0] == 0 else float(knots[0])
        high = self.limits[1] if chosen[-1] == self.n_times - 1 else float(knots[-1])
        boundaries = np.maximum((knots[:-1] + knots[1:]) / 2, np.nextafter(knots[:-1], np.inf))
        return TimeAxis(knots, boundaries, (low, high), self.origin)

    @property
    def _tolerance(self) -> float:
        """Largest difference by rounding between two times that are meant to be equal."""
        tolerance = _SAME * (self.knots[-1] - self.knots[0])
        if self.origin is not None:  # stamps are rounded to nanoseconds
            spacing = float(np.spacing(self.knots[-1]))
            tolerance = max(tolerance, _SECONDS_PER_NANOSECOND + 4 * spacing)
        return float(tolerance)

    def _read(self, t: np.ndarray, name: str) -> FloatArray:
        """Return stamps as numbers; refuse another kind of stamp and times outside the limits."""
        if (t.dtype.kind == "M") != (self.origin is not None):
            kind = "numbers" if self.origin is None else "dates"
            raise ValueError(f"{name} must hold {kind}, as the time stamps in fit did.")
        stamps = _seconds_since(t, self.origin)
        low, high = self.limits[0] - self._tolerance, self.limits[1] + self._tolerance
        if stamps.min() < low or stamps.max() > high:
            first, last = (_as_stamp(limit, self.origin) for limit in self.limits)
            raise ValueError(
                f"{name} must lie between the first and the last fitted time, {first} and {last}: "
                "the process is unknown before and after."
            )
        return stamps


def read_stamps(t: ArrayLike | None, name: str, n_rows: int | None = None) -> np.ndarray:
    """Return time stamps as float64 or datetime64[ns]; refuse what is neither."""
    if t is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None. Pass the public "
            "time stamp of each row as y or t."
        )
    refusal = None
    try:
        column = column_or_1d(_as_column(t), warn=name == "t")
        dated = column.dtype.kind == "M"
        stamps = column.astype("datetime64[ns]") if dated else _as_doubles(column)
    except Exception as error:  # a column of another library may raise anything
        text = str(error)
        refusal = text if "should be a 1d array" in text else _NO_STAMPS.format(name)
    if refusal is not None:  # raised outside the handler, so that no private value is quoted
        raise ValueError(refusal)
    if dated and not (np.isnat(column) | (stamps.astype(column.dtype) == column)).all():
        raise ValueError(f"{name} holds a date outside of the years 1678 to 2262.")
    if not dated:
        _check_resolved(column, stamps, name)
    missing = np.isnat(stamps) if dated else ~np.isfinite(stamps)
    if missing.any():
        raise ValueError(f"{name} contains NaN, infinity or a missing date; every row needs one.")
    if n_rows is not None and len(stamps) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows and "
            f"{len(stamps)} time stamps in {name}."
        )
    if len(stamps) == 0:
        raise ValueError(f"{name} must hold at least one time.")
    return stamps


def _as_doubles(column: np.ndarray) -> np.ndarray:
    """Return numbers in double precision; raise for text and durations."""
    texts = column.dtype.kind == "O" and any(isinstance(v, str) for v in column)
    if texts or column.dtype.kind not in "biufO":
        raise TypeError
    return column.astype(np.float64)


def _as_column(t: ArrayLike) -> np.ndarray:
    """Turn dates, with or without a zone, into datetime64 in UTC; leave the rest as it is."""
    column = np.asarray(t)  # dates with a zone become objects
    # Missing values among dates are refused later.
    dated = (isinstance(v, date | np.datetime64) or v is pd.NaT or v is None for v in column.flat)
    if column.dtype == object and column.size and all(dated):
        dates = pd.to_datetime(list(column.flat), utc=True).tz_localize(None)
        return dates.to_numpy().reshape(column.shape)
    return column


def _check_resolved(column: np.ndarray, doubles: FloatArray, name: str) -> None:
    """Refuse numbers that double precision does not tell from others."""
    with np.errstate(all="ignore"):
        back = doubles if column.dtype.kind == "O" else doubles.astype(column.dtype)
        kept = np.asarray(back == column, dtype=bool)
    if not (kept | ~np.isfinite(doubles)).all():
        raise ValueError(
            f"{name} holds numbers that double precision does not resolve, such as nanoseconds "
            "since 1970. Subtract a common origin, or pass dates."
        )


def _as_stamp(time: Any, origin: np.datetime64 | None) -> Any:
    """Return seconds since the origin as dates, and times without an origin unchanged."""
    if origin is None:
        return time
    return origin + np.rint(np.asarray(time) / _SECONDS_PER_NANOSECOND).astype("timedelta64[ns]")


def _seconds_since(t: np.ndarray, origin: np.datetime64 | None) -> FloatArray:
    """Return dates as seconds since the origin, and numbers unchanged."""
    if origin is None:
        return t
    return (t - origin).astype("timedelta64[ns]").astype(np.float64) * _SECONDS_PER_NANOSECOND
