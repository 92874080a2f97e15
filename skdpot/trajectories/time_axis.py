"""Time stamps: what counts as one time, and where it lies on an axis from 0 to 1."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import column_or_1d

__all__ = ["TimeAxis", "read_stamps"]

_MOST_DISTINCT = 50  # time stamps that are times of their own without being asked
_DEFAULT_BINS = 20
_SECONDS = 1e-9  # of a nanosecond


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The times at which a process is looked at, from public time stamps.

    Parameters
    ----------
    knots : ndarray of shape (T,)
        Increasing times; seconds since `origin` when the stamps are dates.
    boundaries : ndarray of shape (T - 1,)
        Stamps below ``boundaries[i]`` belong to a knot before ``i + 1``.
    origin : numpy.datetime64 or None, default=None
        The date of time 0; None when stamps are numbers.
    """

    knots: np.ndarray
    boundaries: np.ndarray
    origin: np.datetime64 | None = field(default=None)

    @classmethod
    def of_stamps(cls, t: np.ndarray, n_times: int | None) -> Self:
        """Divide public time stamps.

        Parameters
        ----------
        t : ndarray of shape (n,), float64 or datetime64[ns]
            Time stamps.
        n_times : int or None
            Number of bins of equal width; bins without a stamp are dropped, and a bin's time is
            the mean of its stamps. None takes every different stamp, or 20 bins where more
            than 50 are different.

        Returns
        -------
        TimeAxis
        """
        origin = t.min() if t.dtype.kind == "M" else None
        stamps = _numbers(t, origin)
        distinct = np.unique(stamps)
        if n_times is None and len(distinct) <= _MOST_DISTINCT:
            return cls(distinct, (distinct[:-1] + distinct[1:]) / 2, origin)
        edges = np.linspace(distinct[0], distinct[-1], (n_times or _DEFAULT_BINS) + 1)[1:-1]
        bins = np.searchsorted(edges, stamps, side="right")
        present, position = np.unique(bins, return_inverse=True)
        knots = np.bincount(position, stamps) / np.bincount(position)
        return cls(knots, edges[present[1:] - 1], origin)

    @property
    def n_times(self) -> int:
        """Number of knots T."""
        return len(self.knots)

    @property
    def stamps(self) -> np.ndarray:
        """The knots in the units of the time stamps."""
        if self.origin is None:
            return self.knots
        dates: np.ndarray = self.origin + np.rint(self.knots / _SECONDS).astype("timedelta64[ns]")
        return dates

    @property
    def unit_knots(self) -> np.ndarray:
        """The knots on the axis from 0 to 1; a single one is at 0."""
        span = self.knots[-1] - self.knots[0]
        unit: np.ndarray = (self.knots - self.knots[0]) / (span if span > 0 else 1.0)
        return unit

    @property
    def spacings(self) -> np.ndarray:
        """Differences of `unit_knots`."""
        return np.diff(self.unit_knots)

    def positions(self, t: np.ndarray) -> np.ndarray:
        """Return the number of the knot that each time stamp belongs to."""
        positions: np.ndarray = np.searchsorted(self.boundaries, self._read(t), side="right")
        return positions

    def to_unit(self, times: Any) -> np.ndarray:
        """Map times to the axis from 0 to 1.

        Raises
        ------
        ValueError
            If a time lies outside the knots.
        """
        stamps = self._read(read_stamps(np.atleast_1d(times), "times"))
        span = self.knots[-1] - self.knots[0]
        room = 1e-9 * max(span, 1e-300)
        if stamps.min() < self.knots[0] - room or stamps.max() > self.knots[-1] + room:
            raise ValueError(
                f"times must lie between the first and the last fitted time, {self.stamps[0]} and "
                f"{self.stamps[-1]} (attribute times_): nothing is known of a process before or "
                "after."
            )
        unit = (stamps - self.knots[0]) / (span if span > 0 else 1.0)
        clipped: np.ndarray = np.clip(unit, 0.0, 1.0)
        return clipped

    def subset(self, chosen: np.ndarray) -> "TimeAxis":
        """Return the axis with some of the knots; stamps then belong to the nearest one."""
        knots = self.knots[chosen]
        return TimeAxis(knots, (knots[:-1] + knots[1:]) / 2, self.origin)

    def _read(self, t: np.ndarray) -> np.ndarray:
        if (t.dtype.kind == "M") != (self.origin is not None):
            kind = "numbers" if self.origin is None else "dates"
            raise ValueError(f"Time stamps must be {kind}, as they were in fit.")
        return _numbers(t, self.origin)


def read_stamps(t: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    """Check time stamps: finite numbers, or dates.

    Parameters
    ----------
    t : array-like of shape (n,)
        Numbers, datetime64 or pandas time stamps.
    name : str
        What to call them in errors.
    n_rows : int, optional
        How many there must be.

    Returns
    -------
    ndarray of shape (n,), float64 or datetime64[ns]

    Raises
    ------
    ValueError
        If they are not usable.
    """
    if t is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None: the second "
            "argument holds the public time stamp of each row."
        )
    stamps: np.ndarray = column_or_1d(_without_zone(t), warn=True)
    if stamps.dtype.kind != "M":
        try:
            stamps = stamps.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must hold numbers or dates, one a row.") from error
    else:
        stamps = stamps.astype("datetime64[ns]")
    missing = np.isnat(stamps) if stamps.dtype.kind == "M" else ~np.isfinite(stamps)
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


def _without_zone(t: Any) -> Any:
    """Turn pandas time stamps, with or without a zone, into datetime64 in UTC."""
    series = getattr(t, "dt", None)
    if series is not None and getattr(series, "tz", None) is not None:
        return series.tz_convert("UTC").dt.tz_localize(None).to_numpy()
    array = np.asarray(t)
    if array.dtype == object and array.size and hasattr(array.flat[0], "timestamp"):
        return array.astype("datetime64[ns]")
    return array


def _numbers(t: np.ndarray, origin: np.datetime64 | None) -> np.ndarray:
    if origin is None:
        return t
    seconds: np.ndarray = (t - origin).astype("timedelta64[ns]").astype(np.float64) * _SECONDS
    return seconds
