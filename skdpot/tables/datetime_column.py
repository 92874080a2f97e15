"""Columns of dates and times."""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import IntArray
from skdpot.tables.column_base import TableColumn
from skdpot.tables.column_values import PlainColumn
from skdpot.tables.dtypes import datetime_zone
from skdpot.tables.tick_column import TickColumn

# A counter of nanoseconds overflows outside these days.
_NANOSECONDS = (np.datetime64("1678-01-01"), np.datetime64("2261-12-31"))
_DAYS = (np.datetime64("0001-01-02"), np.datetime64("9999-12-30"))
# In UTC, so that the first and last day exist in every time zone.
_KNOWN_CLOCKS = (np.datetime64("0001-01-02T00:00"), np.datetime64("9999-12-31T09:59"))
# Dates beyond all possible bounds count as these; patterns of their years in texts.
_FIRST, _LAST = (pd.Timestamp(f"{day}T12:00").as_unit("us") for day in ("0001-01-01", "9999-12-31"))
_ISO_BEYOND = re.compile(r"(?:-\d{4,}|0000|\+?0*+[1-9]\d{4,})(?=-\d\d-\d\d)", re.ASCII)
_BEYOND = re.compile(r"(?<!\d)(?:0000|0*+[1-9]\d{4,})(?!\d)", re.ASCII)

_EXAMPLE = datetime(2024, 12, 31, 14, 5, tzinfo=UTC)

# A guess from texts: the share that must look like dates, and the formats that it tries.
_MOST = 0.9
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE = re.compile(
    r"\s*(\d{4}([./-])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2})"
    rf"|\d{{1,2}}[\s./-]*{_MONTH}[\s.,/-]*(\d{{4}}|\d{{2}})"
    rf"|{_MONTH}\.?\s*\d{{1,2}},?\s*\d{{4}})(\D.*)?",
    re.ASCII | re.IGNORECASE,
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_ONE_ORDER = "%Y/%m/%d|%Y.%m.%d|%Y-%m-%d|%d-%b-%Y|%d %b %Y|%d %B %Y|%b %d, %Y|%B %d, %Y|%b %d %Y"
_ONE_ORDER += "|%d-%b-%y|%d. %B %Y"
_DAY_FIRST, _MONTH_FIRST = (
    tuple(f"{day}{clock}" for clock in _CLOCKS for day in (*_ONE_ORDER.split("|"), *numeric))
    for numeric in (
        [f"%d{s}%m{s}%{year}" for year in "Yy" for s in "/.-"],
        [f"%m{s}%d{s}%{year}" for year in "Yy" for s in "/-"] + ["%d.%m.%Y", "%d.%m.%y"],
    )
)
_NO_DATE = (
    "left out: its texts look like dates, but no list of formats reads them all. Write them in one "
    "format or in ISO format (2024-01-31), all with an offset from UTC or all without; in Python "
    "pandas.to_datetime(column, dayfirst=True) or format='mixed' converts them."
)
_WHICH_FIRST = (
    "left out: its texts look like dates, but 03/04/2024 may be in March or in April, and no date "
    "tells which. State it: --date COLUMN=%d/%m/%Y or =%m/%d/%Y."
)

# ISO formats that Python reads, many times faster than pandas.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d(?::\d\d)?)?)?",
    re.ASCII,
)

_MONTHS, _YEARS = 60, 3650  # longer ranges, in days, get bounds at ends of months, of years


@dataclass(frozen=True, repr=False)
class DatetimeColumn(TickColumn):
    """Dates and times between two bounds, in ticks of a day, an hour, a minute or a second.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : str, optional
        Public bounds in ISO format, such as "2024-01-31" or "2024-01-31T12:00+01:00", or as dates
        and times of Python, numpy or pandas. Values outside are clipped. A bound without an offset
        is in the time zone of the column, if it has one. If None, estimated privately.
    resolution : {"s", "min", "h", "D"}, default="s"
        Length of a tick. Ticks are counted from `lower`; times are rounded down to a tick. Days
        are those of the time zone of the column.
    knots : sequence of float, optional
        Scale of a `TableEncoder`: parts of the way from `lower` to `upper`, from 0 to 1, that are
        encoded at even distances. A number that is repeated stands for a value that many rows
        share. If None, the scale is even, or estimated privately (``TableEncoder(scale=)``).
    formats : sequence of str, default=()
        How texts are written besides ISO format, such as ``["%d/%m/%Y", "%b %d, %Y"]``, as in
        `datetime.datetime.strptime`. Each text is read by the first format that it has.
    missing : bool, default=False
        Whether values may be missing; this is public.
    dtype : str, optional
        Data type of decoded values, such as "datetime64[us]", "datetime64[ns, Europe/Rome]" or
        "date"; by default that of the table of the fit.

    Raises
    ------
    ValueError
        If a field is invalid.

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
    default: ClassVar[str] = "datetime64[s]"
    nouns: ClassVar[str] = "dates or times"
    pattern: ClassVar[re.Pattern[str]] = re.compile(r"\d{4}.{4,}", re.DOTALL)
    unknown: ClassVar[tuple[str, str]] = ("1900-01-01", "2100-01-01")

    _: KW_ONLY
    formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        several = isinstance(self.formats, list | tuple)
        if not several or not all(isinstance(f, str) and _is_format(f) for f in self.formats):
            raise self.error(": formats must be a list of formats of dates, such as '%d/%m/%Y'.")
        self._store("formats", tuple(self.formats))
        super().__post_init__()

    @classmethod
    def from_texts(cls, texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
        """Return a column of dates if all texts are dates, in ISO format or in others."""
        column, why = super().from_texts(texts, base)
        if column is not None or sum(map(bool, map(_DATE.fullmatch, texts))) <= _MOST * len(texts):
            return column, why
        proposed = cls(base.name, missing=base.missing, dtype=cls.default)
        ways = [
            proposed.replace(formats=formats)
            for formats in (_formats_of(texts, order) for order in (_DAY_FIRST, _MONTH_FIRST))
            if formats
        ]
        if not ways:
            return None, _NO_DATE
        read = [[way._time(text) for text in texts] for way in ways]
        if read[0] != read[-1]:
            return None, _WHICH_FIRST
        return ways[0], "all texts are dates"

    def guessed(self, values: PlainColumn, keep: bool) -> tuple["TableColumn | None", str]:
        """Choose bounds at ends of months or years: the first date may belong to one person."""
        column: Any = super().guessed(values, keep)[0]
        first, last = (date.fromisoformat(end[:10]) for end in (column.lower, column.upper))
        if (last - first).days < _MONTHS or not 1 < first.year < last.year + 1 < 9999:
            return column, ""
        months = (1, 13) if (last - first).days >= _YEARS else (first.month, last.month + 1)
        after = date(last.year + months[1] // 13, (months[1] - 1) % 12 + 1, 1)
        lower = f"{first.replace(month=months[0], day=1)}{column.lower[10:]}"
        upper = f"{after - timedelta(days=column.resolution == 'D')}{column.upper[10:]}"
        return column.replace(lower=lower, upper=upper), ""

    @property
    def _examples(self) -> str:
        return " or ".join(_EXAMPLE.strftime(form) for form in self.formats)

    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words."""
        zone = f", in {zone}" if (zone := datetime_zone(self.dtype)) else ""
        written = f", written like {self._examples}" if self.formats else ""
        return super().describe(in_full=in_full) + zone + written

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column from public facts alone."""
        resolution = "D" if dtype == "date" else "s"
        return cls(name, dtype=dtype, missing=missing, resolution=resolution)

    def _time(self, value: Any) -> pd.Timestamp | None:
        time: Any = self._written_time(value) if isinstance(value, str) else value
        if not isinstance(time, date | np.datetime64):
            return self._beyond(value) if isinstance(value, str) else None
        zone = UTC if getattr(time, "tzinfo", None) is not None else None
        try:
            in_utc: Any = time if zone is None else time.astimezone(UTC)  # type: ignore[union-attr]
            return pd.Timestamp(in_utc).floor("us").as_unit("us")
        except (OverflowError, pd.errors.OutOfBoundsDatetime):
            late = time.year > 1970 if isinstance(time, date) else time.astype(np.int64) > 0
            return (_LAST if late else _FIRST).tz_localize(zone)
        except ValueError:
            return None

    def _written_time(self, text: str) -> Any:
        """Return the time of a text in ISO 8601 or in a format, None if it is none."""
        text = text.strip()
        try:
            if _ISO.fullmatch(text):
                return datetime.fromisoformat(text)
            if self.formats:
                times = (_by_format(text, form) for form in self.formats)
                return next((time for time in times if time is not None), None)
            # Without the test for a year pandas would read the word "today".
            return pd.to_datetime(text, format="ISO8601") if text[:4].isdigit() else None
        except (ValueError, OverflowError):
            return None

    def _beyond(self, text: str) -> pd.Timestamp | None:
        """Return the stand-in for a date in a year beyond Python's, None if the text is no date."""
        text = text.strip()
        year = _ISO_BEYOND.match(text) or (_BEYOND.search(text) if self.formats else None)
        if year is None:
            return None
        years = (2000, 2004)
        before, after = text[: year.start()], text[year.end() :]
        read = [self._written_time(f"{before}{known}{after}") for known in years]
        if any(time is None or time.year != year for time, year in zip(read, years, strict=True)):
            return None
        stamp = _FIRST if year[0][0] == "-" or not year[0].strip("0") else _LAST
        return stamp.tz_localize(None if read[0].tzinfo is None else UTC)

    def read(self, values: Any) -> PlainColumn:
        """Read values; refuse values that are not times, or lack the time zone of the data type."""
        column = super().read(values)
        zones = [datetime_zone(dtype) for dtype in (column.dtype, self.dtype)]
        if self.dtype is not None and zones.count(None) == 1:
            raise self.error(
                f" has {'no' if zones[0] is None else 'a'} time zone, unlike the data type of its "
                f"schema, {self.dtype!r}. Convert the column, or change the schema."
            )
        return column

    def seconds(self, column: PlainColumn) -> IntArray:
        """Return whole seconds since 1970; for days, by the clocks of the time zone.

        Clocks are known from the year 1 to 9999; days beyond are moved there first.
        """
        seconds = super().seconds(column)
        zone = datetime_zone(self.dtype or column.dtype)
        if self.resolution != "D" or zone is None:
            return seconds
        clocks = (
            pd.DatetimeIndex(_with_clocks(seconds))
            .tz_localize("UTC")
            .tz_convert(zone)
            .tz_localize(None)
        )
        return np.asarray(clocks).astype("datetime64[s]").astype(np.int64)

    def _localized(self, times: Any) -> Any:
        if (zone := datetime_zone(self.dtype)) is None:
            return times
        if self.resolution == "D":  # midnight in the zone; the first if there are two
            earlier = np.ones(len(times), dtype=bool)
            return times.tz_localize(zone, ambiguous=earlier, nonexistent="shift_forward")
        return times.tz_localize("UTC").tz_convert(zone)

    def bounds_around(self, first: float, last: float) -> tuple[str, str]:
        """Return bounds in ISO format; with a time zone, at midnight in UTC."""
        lower, upper = super().bounds_around(first, last)
        zoned = datetime_zone(self.dtype) is not None and self.resolution != "D"
        midnight = "T00:00:00+00:00" if zoned else ""
        return lower + midnight, upper + midnight

    @property
    def _limits(self) -> tuple[Any, Any]:  # type: ignore[override]
        """First and last day that the data type can hold in every time zone."""
        dtype = self.dtype or self.default
        return _NANOSECONDS if dtype.startswith("datetime64[ns") else _DAYS

    def _bound_seconds(self, bound: str) -> int:
        time = _parsed(bound)
        if self.dtype is None and time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        stamp = self._end(pd.Timestamp(time).as_unit("s"))
        if stamp is None:
            raise self.error(
                f": the bound {bound!r} has an offset from UTC, but the column has no time zone; "
                "leave the offset out."
            )
        if self.resolution == "D":
            stamp = stamp.tz_localize(None).floor("D")
        return int(stamp.timestamp())

    def _end(self, value: Any) -> pd.Timestamp | None:
        """Return a time in the time zone of the column, which a time without an offset has."""
        zone = datetime_zone(self.dtype)
        try:
            stamp = pd.Timestamp("" if isinstance(value, Number) else value)  # a number is no time
            if zone is not None and stamp.tzinfo is None:
                stamp = stamp.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            elif zone is not None:
                stamp = stamp.tz_convert(zone)
        except (ValueError, TypeError, OverflowError):
            return None
        return None if pd.isna(stamp) or (stamp.tzinfo is None) != (zone is None) else stamp

    @property
    def wanted(self) -> str:
        """Values of a condition, in words."""
        offset = "" if datetime_zone(self.dtype) else " without an offset from UTC"
        return f"a date or time in ISO format{offset}"

    def condition(self, text: Any) -> str:
        """Return the text of a date that a user typed."""
        try:
            pd.Timestamp(text)
        except (TypeError, ValueError):
            hint = "a date in ISO format, such as 2024-01-31"
            raise ValueError(f"{self.name!r} must be {hint}.") from None
        return str(text).strip()

    def to_sdv(self) -> dict[str, str]:
        """Return the description of the column in metadata of SDV."""
        clock = "" if self.resolution == "D" else " %H:%M:%S"
        return {"sdtype": "datetime", "datetime_format": f"%Y-%m-%d{clock}"}

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as times, also if they are written as text."""
        return values if pd.api.types.is_datetime64_any_dtype(values) else pd.to_datetime(values)

    @property
    def _bounds_are(self) -> str:
        first, last = self._limits
        return f"a date or time in ISO format between {first} and {last}, such as '2024-01-31'"

    def _bound(self, value: Any) -> str | None:
        try:
            if isinstance(value, np.datetime64):
                value = pd.Timestamp(value).to_pydatetime()
            text = value.isoformat() if isinstance(value, date) else value  # a datetime is one
            first, last = self._limits
            is_within = isinstance(text, str) and first <= _parsed(text).date() <= last
            return text if is_within else None
        except (ValueError, OverflowError):
            return None


def _with_clocks(seconds: IntArray) -> npt.NDArray[np.datetime64]:
    """Return times in UTC, moved to days whose clocks are known."""
    return np.clip(seconds.astype("datetime64[s]"), *_KNOWN_CLOCKS)


def _parsed(bound: str) -> datetime:
    return datetime.fromisoformat(bound).replace(microsecond=0)


def _by_format(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text.strip(), form)
    except ValueError:
        return None


def _is_format(form: str) -> bool:
    """Whether a format writes a date so that it can be read again."""
    day = datetime(2024, 2, 29, tzinfo=UTC)
    read = _by_format(day.strftime(form), form)
    return read is not None and read.replace(tzinfo=UTC) == day


def _formats_of(texts: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the known formats that read all texts, none if one text has no known format."""
    formats: list[str] = []
    for text in texts:
        if not any(_by_format(text, form) for form in formats):
            fitting = next((form for form in known if _by_format(text, form)), None)
            if fitting is None:
                return ()
            formats.append(fitting)
    return tuple(formats)
