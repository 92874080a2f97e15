"""Columns of dates and times between two bounds."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_dtypes import datetime_zone, dtype_family, pandas_dtype
from skdpot.preprocessing.table_objects import as_times
from skdpot.preprocessing.table_values import PlainColumn

__all__ = ["DatetimeColumn"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_SECONDS = {"D": 86400, "h": 3600, "min": 60, "s": 1}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DEFAULT = "datetime64[s]"
# Sooner or later a nanosecond counter overflows.
_NANOSECONDS = (date(1678, 1, 1), date(2261, 12, 31))
_EPOCH = datetime(1970, 1, 1)
_DAYS = (date.min + timedelta(days=1), date.max - timedelta(days=1))
_FIRST_SECOND, _LAST_SECOND = ((day.toordinal() - _EPOCH.toordinal()) * 86400 for day in _DAYS)
_DATED = "a date or time in ISO format between the years 1 and 9999, such as '2024-01-31'"


@dataclass(frozen=True, repr=False)
class DatetimeColumn(TableColumn):
    """Dates and times between two bounds, in ticks of a day, an hour, a minute or a second.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : str, optional
        Public bounds in ISO format, such as "2024-01-31" or "2024-01-31T12:00+01:00"; dates and
        times of Python, numpy and pandas are taken too. Values outside are clipped. Without an
        offset they are read in the column's own time zone, if it has one. None: to be estimated
        privately.
    resolution : {"s", "min", "h", "D"}, default="s"
        Length of a tick. Ticks are counted from `lower`; times between two become the earlier.
        Days are those of the column's time zone.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values, such as "datetime64[us]", "datetime64[ns, Europe/Rome]" or
        "date"; by default that of the table that an encoder is fitted on.

    Raises
    ------
    ValueError
        If a field is not valid.

    Examples
    --------
    >>> from skdpot.preprocessing import DatetimeColumn
    >>> visit = DatetimeColumn("visit", lower="2024-01-01", upper="2024-01-11", resolution="D")
    >>> visit.to_unit(["2024-01-06"])
    array([0.5])
    """

    kind: ClassVar[str] = "datetime"
    families: ClassVar[tuple[str, ...]] = ("datetime",)

    lower: str | None = None
    upper: str | None = None
    resolution: str = "s"

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if not isinstance(self.resolution, str) or self.resolution not in _SECONDS:
            raise ValueError(
                f"Column {self.name!r}: resolution must be one of {', '.join(_SECONDS)}."
            )
        first, last = self._limits
        for side in ("lower", "upper"):
            bound = self._bound(side)
            self._store(side, bound)
            if bound is not None and not first <= _parsed(bound).date() <= last:
                raise ValueError(
                    f"Column {self.name!r}: {side}={bound!r} is not between {first} and {last}, "
                    f"which is what {self.dtype or _DEFAULT!r} can hold."
                )
        if self.lower is not None and self.upper is not None:
            offsets = {_parsed(bound).tzinfo is None for bound in (self.lower, self.upper)}
            known = self.dtype is not None or len(offsets) == 1
            if known and self._seconds(self.lower) > self._seconds(self.upper):
                raise ValueError(
                    f"Column {self.name!r}: lower={self.lower!r} is after upper={self.upper!r}."
                )

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column of which only public facts are known."""
        resolution = "D" if dtype == "date" else "s"
        return cls(name, dtype=dtype, missing=missing, resolution=resolution)

    def bind(self, dtype: str) -> Self:
        """Return a copy with a data type: that of a table, or for dates written as text a time."""
        return super().bind(_DEFAULT if dtype_family(dtype) == "text" else dtype)

    @property
    def is_resolved(self) -> bool:
        """Whether both bounds are known."""
        return self.lower is not None and self.upper is not None

    @property
    def n_values(self) -> int | None:
        """Number of ticks; None while a bound is not known."""
        if self.lower is None or self.upper is None:
            return None
        length = self._seconds(self.upper) - self._seconds(self.lower)
        return length // _SECONDS[self.resolution] + 1

    def describe(self) -> str:
        """Say in a few words which values the column can have."""
        length = {"D": "days", "h": "hours", "min": "minutes", "s": "seconds"}[self.resolution]
        ends = f"{length} from {self.lower or '?'} to {self.upper or '?'}"
        return ends if self.is_resolved else f"{ends}, bounds to be estimated privately"

    def to_unit(self, values: Any) -> FloatArray:
        """Map times to [0, 1].

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            Times; those outside of the bounds are clipped. Lists of strings in ISO format will do.

        Returns
        -------
        ndarray of shape (n_rows,)
            NaN where a value is missing.

        Raises
        ------
        ValueError
            If something is not a time, or misses although `missing` is False. The message names
            the column and quotes no value.
        """
        first, last = self._ticks()
        column = self.read_times(values)
        tick = _SECONDS[self.resolution]
        seconds = np.clip(self.seconds(column), first, first + last * tick)
        unit = (seconds - first) // tick / np.float64(last or 1)
        unit[column.missing] = np.nan
        return unit

    def from_unit(self, unit: npt.ArrayLike) -> pd.Series:
        """Map numbers of [0, 1] back to times.

        Parameters
        ----------
        unit : array-like of shape (n_rows,)
            Numbers outside of [0, 1] are clipped; NaN is a missing value.

        Returns
        -------
        Series of shape (n_rows,)
            Of the data type of the column; the nearest ticks.

        Raises
        ------
        ValueError
            If something misses although `missing` is False.
        """
        first, last = self._ticks()
        numbers = np.asarray(unit, dtype=np.float64)
        missing = np.isnan(numbers)
        self.check_missing(missing)
        ticks = np.rint(np.clip(np.where(missing, 0.0, numbers), 0.0, 1.0) * last)
        seconds = first + ticks.astype(np.int64) * _SECONDS[self.resolution]
        times = seconds.astype("datetime64[s]")
        times[missing] = np.datetime64("NaT")
        target, zone = pandas_dtype(self.dtype or _DEFAULT, self.missing), datetime_zone(self.dtype)
        index = pd.DatetimeIndex(times)
        if zone is None:
            return pd.Series(index.astype(target))
        if self.resolution == "D":  # midnight of the zone; where there are two, the first
            earlier = np.ones(len(index), dtype=bool)
            index = index.tz_localize(zone, ambiguous=earlier, nonexistent="shift_forward")
        else:
            index = index.tz_localize("UTC").tz_convert(zone)
        return pd.Series(index.astype(target))

    def read_times(self, values: Any) -> PlainColumn:
        """Read values and refuse what is not a time.

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            The column; lists of strings in ISO format will do.

        Returns
        -------
        PlainColumn

        Raises
        ------
        ValueError
            Naming the column, never quoting a value.
        """
        column = self.read(values)
        if column.values.dtype.kind == "O":
            column = _from_objects(column)
        if column.values.dtype.kind != "M":
            raise ValueError(
                f"Column {self.name!r} must hold dates or times. Convert it with pandas.to_datetime"
                ", or declare it as a column of another kind (the offending value is not shown "
                "because it may be private)."
            )
        if (datetime_zone(column.dtype) is None) != (datetime_zone(self.dtype) is None):
            has = "no " if datetime_zone(column.dtype) is None else "a "
            if self.dtype is not None:
                raise ValueError(
                    f"Column {self.name!r} has {has}time zone, unlike the data type of its schema, "
                    f"{self.dtype!r}. Convert the column, or change the schema."
                )
        return column

    def seconds(self, column: PlainColumn) -> IntArray:
        """Return whole seconds since 1970; for days those of the clocks in the column's zone.

        No clock is known before the year 1 or after 9999: days beyond are moved there first.
        """
        unit, step = np.datetime_data(column.values.dtype)
        ticks = np.where(column.missing, 0, column.values.astype(np.int64))
        if unit in _SECONDS:
            seconds = ticks * (step * _SECONDS[unit])
        else:
            seconds = ticks * step // _PER_SECOND[unit]
        zone = datetime_zone(self.dtype or column.dtype)
        if self.resolution != "D" or zone is None:
            return seconds
        known = np.clip(seconds, _FIRST_SECOND, _LAST_SECOND).astype("datetime64[s]")
        clocks = pd.DatetimeIndex(known).tz_localize("UTC").tz_convert(zone).tz_localize(None)
        return np.asarray(clocks).astype("datetime64[s]").astype(np.int64)

    def within(self, lower: str, upper: str) -> Self:
        """Return the column with bounds in the place of those that it lacks.

        Parameters
        ----------
        lower, upper : str
            Estimates in ISO format; one on the wrong side of a known bound becomes that bound.

        Returns
        -------
        DatetimeColumn
        """
        first, last = self.lower or lower, self.upper or upper
        if self._seconds(first) > self._seconds(last):
            first, last = (last, last) if self.lower is None else (first, first)
        return self.replace(lower=first, upper=last)

    def iso_bounds(self, first: float, last: float) -> dict[str, str]:
        """Return bounds that hold the seconds from `first` to `last`, in whole days.

        Parameters
        ----------
        first, last : float
            Seconds since 1970, as `seconds` counts them.

        Returns
        -------
        dict
            ``lower`` and ``upper`` in ISO format.
        """
        days = [np.floor(first / 86400), np.ceil(last / 86400)]
        earliest, latest = (day.toordinal() for day in self._limits)
        ordinals = [int(np.clip(day + _EPOCH.toordinal(), earliest, latest)) for day in days]
        zoned = datetime_zone(self.dtype) is not None and self.resolution != "D"
        offset = "T00:00:00+00:00" if zoned else ""
        lower, upper = (date.fromordinal(day).isoformat() + offset for day in ordinals)
        return {"lower": lower, "upper": upper}

    @property
    def _limits(self) -> tuple[date, date]:
        """First and last day that the data type can hold, wherever on earth it is read."""
        if (self.dtype or _DEFAULT).startswith("datetime64[ns"):
            return _NANOSECONDS
        return _DAYS

    def _ticks(self) -> tuple[int, int]:
        """Return the seconds of the first tick and the number of the last."""
        n_values = self.n_values
        if self.lower is None or n_values is None:
            raise ValueError(
                f"Column {self.name!r} has no bounds yet: state them, or have a TableEncoder "
                "estimate them privately."
            )
        return self._seconds(self.lower), n_values - 1

    def _seconds(self, bound: str) -> int:
        """Return a bound as `seconds` counts."""
        time, zone = _parsed(bound), datetime_zone(self.dtype)
        if time.tzinfo is None:
            if zone is not None and self.resolution != "D":
                stamp = pd.Timestamp(time).as_unit("s")
                local = stamp.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
                time = local.tz_convert("UTC").tz_localize(None).to_pydatetime()
        elif zone is None and self.dtype is not None:
            raise ValueError(
                f"Column {self.name!r}: the bound {bound!r} has an offset from UTC, but the column "
                "has no time zone; leave the offset out."
            )
        elif zone is not None and self.resolution == "D":
            stamp = pd.Timestamp(time).as_unit("s").tz_convert(zone)
            time = stamp.tz_localize(None).to_pydatetime()
        else:
            time = time.astimezone(UTC).replace(tzinfo=None)
        if self.resolution == "D":
            time = datetime(time.year, time.month, time.day)
        return (time - _EPOCH) // timedelta(seconds=1)

    def _bound(self, side: str) -> str | None:
        value = getattr(self, side)
        try:
            if isinstance(value, np.datetime64):
                value = pd.Timestamp(value).to_pydatetime()
            if isinstance(value, date):  # a datetime is one
                value = value.isoformat()
            if value is None or (isinstance(value, str) and _parsed(value)):
                return value
        except (ValueError, OverflowError):
            pass
        raise ValueError(f"Column {self.name!r}: {side} must be None or {_DATED}.")


def _parsed(bound: str) -> datetime:
    return datetime.fromisoformat(bound).replace(microsecond=0)


def _from_objects(column: PlainColumn) -> PlainColumn:
    """Return dates that are stored as Python objects or ISO strings as times, if they all are."""
    found = as_times(column.present)
    if found is None:
        return column
    times, zoned = found
    values = np.zeros(len(column), dtype=times.dtype)
    values[~column.missing] = times
    return PlainColumn(values, column.missing, f"datetime64[us{', UTC' * zoned}]")
