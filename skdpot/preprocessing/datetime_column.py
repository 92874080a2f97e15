"""Columns of dates and times between two bounds."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn, TickColumn
from skdpot.preprocessing.table_frames import (
    PlainColumn,
    datetime_zone,
    dtype_family,
    pandas_dtype,
)

__all__ = ["DatetimeColumn"]

_DEFAULT = "datetime64[s]"
# Sooner or later a nanosecond counter overflows.
_NANOSECONDS = (date(1678, 1, 1), date(2261, 12, 31))
_EPOCH = datetime(1970, 1, 1)
_DAYS = (date.min + timedelta(days=1), date.max - timedelta(days=1))
_FIRST_SECOND, _LAST_SECOND = ((day.toordinal() - _EPOCH.toordinal()) * 86400 for day in _DAYS)
_UNKNOWN = ("1900-01-01", "2100-01-01")
_DATED = "a date or time in ISO format between the years 1 and 9999, such as '2024-01-31'"

# What Python reads, many times as fast as pandas does.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


@dataclass(frozen=True, repr=False)
class DatetimeColumn(TickColumn):
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
    figure: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
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
            if known and self._bound_seconds(self.lower) > self._bound_seconds(self.upper):
                raise ValueError(
                    f"Column {self.name!r}: lower={self.lower!r} is after upper={self.upper!r}."
                )

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column of which only public facts are known."""
        resolution = "D" if dtype == "date" else "s"
        return cls(name, dtype=dtype, missing=missing, resolution=resolution)

    @classmethod
    def from_texts(cls, values: PlainColumn, base: TableColumn) -> TableColumn | None:
        """Return a column of times if all texts are dates in ISO format."""
        texts = {value for value in values.present[:1000] if isinstance(value, str)}
        if not texts or not all(len(text) >= 8 and text[:4].isdigit() for text in texts):
            return None
        proposed = cls(base.name, missing=base.missing, dtype=_DEFAULT)
        try:
            return proposed.guessed(proposed.read(values), False)[0]
        except ValueError:
            return None

    def bind(self, dtype: str) -> Self:
        """Return a copy with a data type: that of a table, or for dates written as text a time."""
        return super().bind(_DEFAULT if dtype_family(dtype) == "text" else dtype)

    def read(self, values: Any) -> PlainColumn:
        """Read values and refuse what is not a time."""
        column = super().read(values)
        if column.values.dtype.kind == "O" and (times := as_times(column.present)) is not None:
            found, zoned = times
            ticks = np.zeros(len(column), dtype=found.dtype)
            ticks[~column.missing] = found
            column = PlainColumn(ticks, column.missing, f"datetime64[us{', UTC' * zoned}]")
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

    def seconds(self, column: PlainColumn) -> npt.NDArray[np.int64]:
        """Return whole seconds since 1970; for days those of the clocks in the column's zone.

        No clock is known before the year 1 or after 9999: days beyond are moved there first.
        """
        seconds = super().seconds(column)
        zone = datetime_zone(self.dtype or column.dtype)
        if self.resolution != "D" or zone is None:
            return seconds
        known = np.clip(seconds, _FIRST_SECOND, _LAST_SECOND).astype("datetime64[s]")
        clocks = pd.DatetimeIndex(known).tz_localize("UTC").tz_convert(zone).tz_localize(None)
        return np.asarray(clocks).astype("datetime64[s]").astype(np.int64)

    def _from_seconds(self, seconds: npt.NDArray[np.int64], missing: Any) -> pd.Series:
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

    def bounded(self, lower: float, upper: float, found: bool) -> Self:
        """Return the column with estimates for the bounds that it lacks, in seconds."""
        estimates = tuple(self.bounds_around(lower, upper).values()) if found else _UNKNOWN
        return self.within(*estimates)

    def bounds_around(self, first: float, last: float) -> dict[str, str]:
        """Return bounds in ISO format that hold the seconds from `first` to `last`, in days."""
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

    def _bound_seconds(self, bound: str) -> int:
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

    def _limit(self, value: Any) -> pd.Timestamp:
        """Return a limit like the column's values; without an offset it is in the column's zone."""
        zone = datetime_zone(self.dtype)
        try:
            stamp = pd.Timestamp("" if isinstance(value, Number) else value)  # a number is no time
            if zone is not None and stamp.tzinfo is None:
                return stamp.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            if not pd.isna(stamp) and (stamp.tzinfo is None) == (zone is None):
                return stamp if zone is None else stamp.tz_convert(zone)
        except (ValueError, TypeError, OverflowError):
            pass
        offset = "" if zone else " without an offset from UTC"
        raise ValueError(
            f"The condition on {self.name!r} must be a date or time in ISO format{offset}, or a "
            "tuple of two, or of one and None."
        )

    def condition(self, text: Any) -> str:
        """Return the text of a date that somebody typed."""
        try:
            pd.Timestamp(text)
        except (TypeError, ValueError):
            text = None
        if text is None:
            raise ValueError(f"{self.name!r} is a date; write it in ISO format, as 2024-01-31.")
        return str(text).strip()

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as times, those written as text too."""
        return values if pd.api.types.is_datetime64_any_dtype(values) else pd.to_datetime(values)

    def _text_dtype(self) -> str:
        return _DEFAULT

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


def as_times(values: Iterable[Any]) -> tuple[npt.NDArray[Any], bool] | None:
    """Return dates, times and ISO texts as times, and whether they have offsets or zones.

    Those with an offset are in UTC. None if they are not all times, or some have an offset and
    others none.
    """
    known: dict[Any, tuple[np.datetime64, bool]] = {}
    found = []
    for value in values:
        if not isinstance(value, str | date | np.datetime64):
            return None
        key = (type(value), value)  # a date and the midnight that it begins with are two
        if key not in known:
            try:
                known[key] = _time(value)
            except (ValueError, OverflowError):
                return None
        found.append(known[key])
    zones = {zoned for _, zoned in found}
    if len(zones) > 1:
        return None
    return np.array([time for time, _ in found], dtype="datetime64[us]"), True in zones


def _time(value: Any) -> tuple[np.datetime64, bool]:
    """Return one time, in UTC if it has an offset, and whether it has one."""
    if isinstance(value, str):
        if _ISO.fullmatch(value):
            value = datetime.fromisoformat(value)
        else:
            value = pd.to_datetime(value, format="ISO8601")
    if isinstance(value, np.datetime64 | pd.Timestamp):  # of any unit, and so of any year
        stamp = pd.Timestamp(value)
        zoned = stamp.tzinfo is not None
        stamp = stamp.tz_convert("UTC").tz_localize(None) if zoned else stamp
        return stamp.floor("us").as_unit("us").to_datetime64(), zoned
    if getattr(value, "tzinfo", None) is None:
        return np.datetime64(value, "us"), False
    return np.datetime64(value.astimezone(UTC).replace(tzinfo=None), "us"), True
