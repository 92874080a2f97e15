"""Columns of durations."""

import re
from dataclasses import dataclass
from datetime import timedelta
from numbers import Number
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from skdpot.tables.tick_column import TickColumn

_LONGEST = np.timedelta64(100_000, "D")  # a counter of nanoseconds ends after 106,751 days
_FARTHEST = pd.Timedelta(_LONGEST) + pd.Timedelta(1, "s")  # stands for all longer durations
_ISO_SPAN = r"P(?=.*[DTHMS]$)(-?\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"  # P000123 is a code
_TEXT = re.compile(
    rf"\s*-?({_ISO_SPAN}|\d+ days?.*|\d+:\d\d:\d\d.*|\d+ ?(D|h|min|s)\s*)", re.ASCII | re.DOTALL
)


@dataclass(frozen=True, repr=False)
class TimedeltaColumn(TickColumn):
    """Durations between two bounds, in ticks of a day, an hour, a minute or a second.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : str, optional
        Public bounds of at most 100,000 days, such as "0 days", "36 h", "1 days 02:30:00" or
        "P1DT2H", or as durations of Python, numpy or pandas. Values outside are clipped. If None,
        estimated privately.
    resolution : {"s", "min", "h", "D"}, default="s"
        Length of a tick. Ticks are counted from `lower`; durations are rounded down to a tick.
    knots : sequence of float, optional
        Scale of a `TableEncoder`: parts of the way from `lower` to `upper`, from 0 to 1, that are
        encoded at even distances. A number that is repeated stands for a value that many rows
        share. If None, the scale is even, or estimated privately (``TableEncoder(scale=)``).
    missing : bool, default=False
        Whether values may be missing; this is public.
    dtype : str, optional
        Data type of decoded values, such as "timedelta64[us]"; by default that of the table of
        the fit.

    Raises
    ------
    ValueError
        If a field is invalid.

    Examples
    --------
    >>> from skdpot.preprocessing import TimedeltaColumn
    >>> stay = TimedeltaColumn("stay", lower="0 h", upper="10 h", resolution="h")
    >>> stay.to_unit(["05:00:00"])
    array([0.5])
    """

    kind: ClassVar[str] = "timedelta"
    families: ClassVar[tuple[str, ...]] = ("timedelta",)
    default: ClassVar[str] = "timedelta64[s]"
    nouns: ClassVar[str] = "durations"
    pattern: ClassVar[re.Pattern[str]] = _TEXT
    unknown: ClassVar[tuple[str, str]] = ("0 days", "365 days")
    wanted: ClassVar[str] = "a duration, such as '36 h'"
    _limits = (-_LONGEST, _LONGEST)
    _bounds_are = "a duration of at most 100,000 days, such as '36 h' or '1 days 02:30:00'"

    def _bound(self, value: Any) -> str | None:
        duration = self._time(value)
        if duration is None or abs(duration) > _LONGEST:
            return None
        return str(duration.floor("s"))

    def _time(self, value: Any) -> pd.Timedelta | None:
        """Return one duration, None if it is none; a number without a unit is none."""
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            return None
        if isinstance(value, Number) and not isinstance(value, np.timedelta64):
            return None
        try:
            duration = pd.Timedelta(value)
        except pd.errors.OutOfBoundsTimedelta:
            signs = re.match(r"[^\d]*", str(value))[0].count("-")  # type: ignore[index]
            return -_FARTHEST if signs % 2 else _FARTHEST
        except (ValueError, TypeError, OverflowError):
            return None
        return None if pd.isna(duration) else min(max(duration, -_FARTHEST), _FARTHEST)

    def _bound_seconds(self, bound: str) -> int:
        return int(pd.Timedelta(bound) // timedelta(seconds=1))

    def condition(self, text: Any) -> str:
        """Return the text of a duration that a user typed."""
        if self._time(text) is None:
            raise ValueError(f"{self.name!r} must be a duration with a unit, such as 36 h.")
        return str(text).strip()

    def compared(self, values: pd.Series) -> pd.Series:
        """Return durations in seconds."""
        column = self.read(values)
        seconds = column.values / np.timedelta64(1, "s")
        return pd.Series(np.where(column.missing, np.nan, seconds))
