"""Columns of durations between two bounds."""

import re
from dataclasses import dataclass
from datetime import timedelta
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn, TickColumn
from skdpot.preprocessing.table_frames import (
    PlainColumn,
    add_time_type,
    dtype_family,
    pandas_dtype,
)

__all__ = ["TimedeltaColumn"]

add_time_type("timedelta64", "Duration")

_DEFAULT = "timedelta64[s]"
_LONGEST = 100_000 * 86_400  # seconds; a counter of nanoseconds ends after 106,751 days
_UNKNOWN = ("0 days", "365 days")
_ISO = r"P(?=.*[DTHMS]$)(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"  # P000123 is a code
_TEXT = re.compile(rf"\s*-?({_ISO}|\d+ days?.*|\d+:\d\d:\d\d.*|\d+ ?(D|h|min|s))\s*", re.ASCII)


@dataclass(frozen=True, repr=False)
class TimedeltaColumn(TickColumn):
    """Durations between two bounds, in ticks of a day, an hour, a minute or a second.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : str, optional
        Public bounds such as "0 days", "36 h", "1 days 02:30:00" or "P1DT2H"; durations of Python,
        numpy and pandas are taken too. At most 100,000 days. Values outside are clipped. None: to
        be estimated privately.
    resolution : {"s", "min", "h", "D"}, default="s"
        Length of a tick. Ticks are counted from `lower`; durations between two become the shorter.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values, such as "timedelta64[us]"; by default that of the table that
        an encoder is fitted on.

    Raises
    ------
    ValueError
        If a field is not valid.

    Examples
    --------
    >>> from skdpot.preprocessing import TimedeltaColumn
    >>> stay = TimedeltaColumn("stay", lower="0 h", upper="10 h", resolution="h")
    >>> stay.to_unit(["05:00:00"])
    array([0.5])
    """

    kind: ClassVar[str] = "timedelta"
    families: ClassVar[tuple[str, ...]] = ("timedelta",)

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        for side in ("lower", "upper"):
            value = getattr(self, side)
            found = None if value is None else _duration(value)
            short = found is not None and abs(found.total_seconds()) <= _LONGEST
            if not (value is None or short):
                raise ValueError(
                    f"Column {self.name!r}: {side} must be None or a duration of at most 100,000 "
                    "days, such as '36 h' or '1 days 02:30:00'."
                )
            self._store(side, None if found is None else str(found.floor("s")))
        if self.is_resolved and (self.n_values or 0) < 1:
            raise ValueError(
                f"Column {self.name!r}: lower={self.lower!r} is above upper={self.upper!r}."
            )

    @classmethod
    def from_texts(cls, values: PlainColumn, base: TableColumn) -> TableColumn | None:
        """Return a column of durations if all texts are such."""
        texts = {value for value in values.present[:1000] if isinstance(value, str)}
        if not texts or not all(map(_TEXT.fullmatch, texts)):
            return None
        proposed = cls(base.name, missing=base.missing, dtype=_DEFAULT)
        try:
            return proposed.guessed(proposed.read(values), False)[0]
        except ValueError:
            return None

    def bind(self, dtype: str) -> Self:
        """Return a copy with a data type: that of a table, or a duration for text."""
        return super().bind(_DEFAULT if dtype_family(dtype) == "text" else dtype)

    def read(self, values: Any) -> PlainColumn:
        """Read values and refuse what is not a duration."""
        column = super().read(values)
        if column.values.dtype.kind == "O":
            codes, distinct = column.distinct
            found = list(map(_duration, distinct))
            if None not in found and all(abs(d.total_seconds()) <= _LONGEST for d in found if d):
                ticks = np.array([*found, pd.Timedelta(0)], dtype="timedelta64[us]")[codes]
                column = PlainColumn(ticks, column.missing, "timedelta64[us]")
        if column.values.dtype.kind != "m":
            raise ValueError(
                f"Column {self.name!r} must hold durations. Convert it with pandas.to_timedelta, "
                "or declare it as a column of another kind (the offending value is not shown "
                "because it may be private)."
            )
        return column

    def _from_seconds(self, seconds: npt.NDArray[np.int64], missing: Any) -> pd.Series:
        spans = seconds.astype("timedelta64[s]")
        spans[missing] = np.timedelta64("NaT")
        return pd.Series(spans).astype(pandas_dtype(self.dtype or _DEFAULT, self.missing))

    def bounded(self, lower: float, upper: float, found: bool) -> Self:
        """Return the column with estimates for the bounds that it lacks, in seconds."""
        estimates = tuple(self.bounds_around(lower, upper).values()) if found else _UNKNOWN
        return self.within(*estimates)

    def bounds_around(self, first: float, last: float) -> dict[str, str]:
        """Return bounds that hold the seconds from `first` to `last`, in whole days."""
        ends = (np.floor(first / 86400), np.ceil(last / 86400))
        days = np.clip(ends, -_LONGEST // 86400, _LONGEST // 86400).astype(int)
        return {"lower": f"{days[0]} days", "upper": f"{days[1]} days"}

    def _bound_seconds(self, bound: str) -> int:
        return int(pd.Timedelta(bound) // timedelta(seconds=1))

    def _limit(self, value: Any) -> pd.Timedelta:
        found = _duration(value)
        if found is None:
            raise ValueError(
                f"The condition on {self.name!r} must be a duration, such as '36 h', or a tuple "
                "of two, or of one and None."
            )
        return found

    def condition(self, text: Any) -> str:
        """Return the text of a duration that somebody typed."""
        if _duration(text) is None:
            raise ValueError(f"{self.name!r} is a duration; write it with its unit, as 36 h.")
        return str(text).strip()

    def compared(self, values: pd.Series) -> pd.Series:
        """Return durations as numbers of seconds."""
        column = self.read(values)
        seconds = column.values / np.timedelta64(1, "s")
        return pd.Series(np.where(column.missing, np.nan, seconds))

    def _text_dtype(self) -> str:
        return _DEFAULT


def _duration(value: Any) -> pd.Timedelta | None:
    """Return one duration, None for what is none; a number without a unit is none."""
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        return None
    if isinstance(value, Number) and not isinstance(value, np.timedelta64):
        return None
    try:
        found = pd.Timedelta(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return None if pd.isna(found) else found
