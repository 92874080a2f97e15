"""Time axis of trajectories: time stamps, the knots that they belong to, and the rows in use."""

from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import column_or_1d

from skdpot.release.contributions import read_persons

_MOST_DISTINCT = 50  # time stamps that are times of their own without being asked
_DEFAULT_BINS = 20
_SECONDS = 1e-9  # of a nanosecond
_SAME = 1e-9  # of the whole time: nearer stamps differ by rounding


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The times at which a process is observed, from public time stamps."""

    knots: np.ndarray
    boundaries: np.ndarray
    limits: tuple[float, float]
    origin: np.datetime64 | None = None

    @classmethod
    def of_stamps(cls, t: np.ndarray, n_times: int | None) -> Self:
        """Divide public time stamps."""
        origin = t.min() if t.dtype.kind == "M" else None
        stamps = _numbers(t, origin)
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
        first = np.flatnonzero(apart) + 1  # of the distinct stamps that a knot stands for
        # From the first stamp on: the sums of large numbers would lose their small differences.
        since = stamps - distinct[0]
        knot = np.searchsorted(first, np.searchsorted(distinct, stamps), side="right")
        knots = distinct[0] + np.bincount(knot, since) / np.bincount(knot)
        alone = np.diff(first, prepend=0, append=len(distinct)) == 1
        knots[alone] = distinct[np.concatenate([[0], first])][alone]  # as they were given
        boundaries = (distinct[first - 1] + distinct[first]) / 2
        if edges is not None:
            boundaries = edges[bins[first] - 1]
        # The mean of two neighbouring floating-point numbers is one of them.
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
        """Return the number of the knot that each time stamp belongs to."""
        return np.searchsorted(self.boundaries, self._read(t, "t"), side="right")

    def to_unit(self, times: Any) -> np.ndarray:
        """Map times to the axis from 0 to 1; what is a knot but for rounding becomes it."""
        given = [times] if np.ndim(times) == 0 else times
        stamps = self._read(read_stamps(given, "times"), "times")
        span = self.knots[-1] - self.knots[0]
        unit = np.clip((stamps - self.knots[0]) / (span if span > 0 else 1.0), 0.0, 1.0)
        nearest = np.abs(stamps[:, None] - self.knots).argmin(axis=1)
        at_knot = np.abs(stamps - self.knots[nearest]) <= self._room
        return np.where(at_knot, self.unit_knots[nearest], unit)

    def subset(self, chosen: np.ndarray) -> "TimeAxis":
        """Return the axis with some of the knots; stamps then belong to the nearest one."""
        knots = self.knots[chosen]
        low = self.limits[0] if chosen[0] == 0 else float(knots[0])
        high = self.limits[1] if chosen[-1] == self.n_times - 1 else float(knots[-1])
        boundaries = np.maximum((knots[:-1] + knots[1:]) / 2, np.nextafter(knots[:-1], np.inf))
        return TimeAxis(knots, boundaries, (low, high), self.origin)

    @property
    def _room(self) -> float:
        """How far beside a time another one may lie that is meant to be the same."""
        room = _SAME * (self.knots[-1] - self.knots[0])
        if self.origin is not None:  # stamps are rounded to nanoseconds
            room = max(room, _SECONDS + 4 * float(np.spacing(self.knots[-1])))
        return float(room)

    def _read(self, t: np.ndarray, name: str) -> np.ndarray:
        if (t.dtype.kind == "M") != (self.origin is not None):
            kind = "numbers" if self.origin is None else "dates"
            raise ValueError(f"{name} must hold {kind}, as the time stamps in fit did.")
        stamps = _numbers(t, self.origin)
        if stamps.min() < self.limits[0] - self._room or stamps.max() > self.limits[1] + self._room:
            first, last = (_as_stamp(limit, self.origin) for limit in self.limits)
            raise ValueError(
                f"{name} must lie between the first and the last fitted time, {first} and {last}: "
                "the process is unknown before and after."
            )
        return stamps


_NO_STAMPS = (
    "{} must hold numbers or dates, one per row. Convert text with pandas.to_datetime; divide "
    "durations by a unit."
)


def read_stamps(t: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    """Check time stamps: finite numbers, or dates."""
    if t is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None. Pass the public "
            "time stamp of each row as y or t."
        )
    refusal = None
    try:
        given = column_or_1d(_as_column(t), warn=name == "t")
        dated = given.dtype.kind == "M"
        stamps = given.astype("datetime64[ns]") if dated else _as_doubles(given)
    except Exception as error:  # a column of another library may raise anything
        text = str(error)
        refusal = text if "should be a 1d array" in text else _NO_STAMPS.format(name)
    if refusal is not None:  # no longer handled, so that the error quotes nothing
        raise ValueError(refusal)
    if dated and not (np.isnat(given) | (stamps.astype(given.dtype) == given)).all():
        raise ValueError(f"{name} holds a date outside of the years 1678 to 2262.")
    if not dated:
        _check_resolved(given, stamps, name)
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
    """Return numbers in double precision; texts and durations are none."""
    texts = column.dtype.kind == "O" and any(isinstance(v, str) for v in column)
    if texts or column.dtype.kind not in "biufO":
        raise TypeError
    return column.astype(np.float64)


def _as_column(t: Any) -> Any:
    """Turn dates, with or without a zone, into datetime64 in UTC; leave the rest as it is."""
    column = np.asarray(t)  # of dates with a zone, objects
    # A missing value may stand among dates; whether there is one at all is checked later.
    dated = (isinstance(v, date | np.datetime64) or v is pd.NaT or v is None for v in column.flat)
    if column.dtype == object and column.size and all(dated):
        dates = pd.to_datetime(list(column.flat), utc=True).tz_localize(None)
        return dates.to_numpy().reshape(column.shape)
    return column


def _check_resolved(given: np.ndarray, doubles: np.ndarray, name: str) -> None:
    """Refuse numbers that double precision may have made equal to others."""
    with np.errstate(all="ignore"):
        back = doubles if given.dtype.kind == "O" else doubles.astype(given.dtype)
        kept = np.asarray(back == given, dtype=bool)
    if not (kept | ~np.isfinite(doubles)).all():
        raise ValueError(
            f"{name} holds numbers that double precision does not resolve, such as nanoseconds "
            "since 1970. Subtract a common origin, or pass dates."
        )


def _as_stamp(time: Any, origin: np.datetime64 | None) -> Any:
    """Return seconds since the origin as dates; times without an origin as they are."""
    if origin is None:
        return time
    return origin + np.rint(np.asarray(time) / _SECONDS).astype("timedelta64[ns]")


def _numbers(t: np.ndarray, origin: np.datetime64 | None) -> np.ndarray:
    if origin is None:
        return t
    return (t - origin).astype("timedelta64[ns]").astype(np.float64) * _SECONDS


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Private rows with the public number of the time that each belongs to.

    Each time has at least one row, and a person `group_size` rows at most, at different times.
    """

    rows: np.ndarray
    positions: np.ndarray
    axis: TimeAxis
    group_size: int
    assumptions: tuple[str, ...]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each time."""
        return np.bincount(self.positions, minlength=self.axis.n_times)


def timed_rows(
    rows: np.ndarray,
    t: Any,
    *,
    n_times: int | None,
    n_time_subsample: int | None,
    group_size: int,
    groups: Any,
    rng: np.random.Generator,
) -> TimedRows:
    """Divide rows by time, and keep those that the limits on times and persons leave.

    What is kept depends on `t`, `groups` and public random numbers only, so that a neighbour
    keeps the same rows.
    """
    stamps = read_stamps(t, "t", len(rows))
    axis = TimeAxis.of_stamps(stamps, n_times)
    positions = axis.positions(stamps)
    if groups is None:
        _check_unmixed(axis, stamps, group_size)
    kept = np.arange(len(rows))
    if n_time_subsample is not None and n_time_subsample < axis.n_times:
        inner = rng.choice(np.arange(1, axis.n_times - 1), n_time_subsample - 2, replace=False)
        chosen = [0, *inner, axis.n_times - 1]  # the first, the last and some others
        kept = np.flatnonzero(np.isin(positions, chosen))
    if groups is not None:
        persons = read_persons(groups, "groups", len(rows), fewest=1)
        kept = kept[_bounded(positions[kept], persons[kept], group_size, rng)]
    # Neither what was not chosen is a time, nor where the limit on rows has left none.
    present = np.unique(positions[kept])
    if len(present) < axis.n_times:
        axis = axis.subset(present)
    assumed = [
        f"the time stamp of every row, and so the number of rows at each of {axis.n_times} times"
    ]
    if groups is not None:
        assumed.append("which rows belong to one person")
    return TimedRows(
        rows if len(kept) == len(rows) else rows[kept],
        np.searchsorted(present, positions[kept]),
        axis,
        min(group_size, axis.n_times),
        tuple(assumed),
    )


def _check_unmixed(axis: TimeAxis, stamps: np.ndarray, group_size: int) -> None:
    """Refuse a limit on the rows per person where two of them may share a bin."""
    if group_size > 1 and len(np.unique(stamps)) > axis.n_times:
        raise ValueError(
            f"group_size={group_size} counts rows of one person at different times, but the time "
            f"stamps share {axis.n_times} bins and a person may have more than one row in a bin. "
            "Pass groups=, so that one of them is kept, or round the time stamps so that no person "
            "has two equal ones."
        )


def _bounded(
    positions: np.ndarray, persons: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Return rows such that nobody has two at one time or more than `most` in all."""
    order = rng.permutation(len(positions))
    table = pd.DataFrame({"person": persons[order], "time": positions[order]})
    table = table[~table.duplicated(["person", "time"])]
    table = table[table.groupby("person").cumcount() < most]
    return np.sort(order[table.index.to_numpy()])
