"""Columns of times between two bounds, in ticks of a resolution."""

import math
import re
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.tables.column_base import OTHER_KIND, TableColumn
from skdpot.tables.column_values import PlainColumn, read_column
from skdpot.tables.dtypes import datetime_zone, pandas_dtype
from skdpot.tables.rounding import Rounding
from skdpot.tables.scaled_column import ScaledColumn

# Lengths of ticks, the longest first.
_SECONDS = {"D": 86400, "h": 3600, "min": 60, "s": 1}
_DAYS_IN_STEPS = [86400 * 10**power for power in range(7)]
_ROUND_SECONDS = [1, 10, 60, 600, 3600, 21600, *_DAYS_IN_STEPS]  # each divides its successor
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, repr=False)
class TickColumn(ScaledColumn):
    """Base class of columns of times between two bounds, in ticks of a resolution."""

    reads_texts: ClassVar[bool] = True
    pattern: ClassVar[re.Pattern[str]]  # texts that may be such times
    unknown: ClassVar[tuple[str, str]]  # bounds if private ones did not stand out of the noise
    _limits: ClassVar[tuple[Any, Any]]  # first and last possible day of a bound

    _: KW_ONLY
    lower: str | None = None
    upper: str | None = None
    resolution: str = "s"

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if not isinstance(self.resolution, str) or self.resolution not in _SECONDS:
            raise self.error(f": resolution must be one of {', '.join(_SECONDS)}.")
        self._check_bounds()
        if self.is_resolved and self._length() < 0.0:
            raise self.error(f": lower={self.lower!r} is after upper={self.upper!r}.")

    @abstractmethod
    def _time(self, value: Any) -> pd.Timestamp | pd.Timedelta | None:
        """Return one value as a time in UTC or a duration, None if it is none."""

    @abstractmethod
    def _bound_seconds(self, bound: str) -> int:
        """Return the seconds of a bound, counted like `seconds`."""

    @classmethod
    def from_texts(cls, texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
        """Return a column of times if all texts are times."""
        if not all(map(cls.pattern.fullmatch, texts)):
            return None, ""
        column = cls(base.name, missing=base.missing)
        try:
            zone = datetime_zone(column.read(texts).dtype)
        except ValueError:
            return None, ""
        in_utc = " with offsets from UTC; they come back in UTC" if zone else ""
        dtype = f"{cls.default[:-1]}, UTC]" if zone else cls.default
        return column.replace(dtype=dtype), f"all texts are {cls.nouns}{in_utc}"

    def bounded(self, lower: float, upper: float, found: bool = True) -> Self:
        """Return the column with released estimates, in seconds, of open bounds."""
        first, last = self.bounds_around(lower, upper) if found else self.unknown
        first, last = self.lower or first, self.upper or last
        if self._bound_seconds(first) > self._bound_seconds(last):
            first, last = (last, last) if self.lower is None else (first, first)
        return self.replace(lower=first, upper=last)

    def read(self, values: Any) -> PlainColumn:
        """Read values; refuse values that are not times."""
        column = super().read(values)
        if column.values.dtype.kind == "O":
            codes, distinct = column.distinct
            times = list(map(self._time, distinct))
            zoned = {getattr(time, "tzinfo", None) is not None for time in times}
            zoned = zoned or {datetime_zone(self.dtype) is not None}  # all are missing
            if None not in times and len(zoned) <= 1:
                plain = [*(time.to_numpy() for time in times if time is not None), 0]
                ticks = np.array(plain, dtype=f"{self.kind}64[us]")[codes]
                zone = ", UTC" if True in zoned else ""
                column = PlainColumn(ticks, column.missing, f"{self.kind}64[us{zone}]")
        if column.values.dtype.kind != np.dtype(f"{self.kind}64").kind:
            raise self.error(f" must hold {self.nouns} (pandas.to_{self.kind}). {OTHER_KIND}")
        return column

    def seconds(self, column: PlainColumn) -> IntArray:
        """Return whole seconds, rounded down."""
        unit, step = np.datetime_data(column.values.dtype)
        ticks = np.where(column.missing, 0, column.values.astype(np.int64))
        if unit in _SECONDS:
            return ticks * (step * _SECONDS[unit])
        return ticks * step // _PER_SECOND[unit]

    def bounds_around(self, first: float, last: float) -> tuple[str, str]:
        """Return bounds in whole days around the seconds from `first` to `last`."""
        days = np.array([np.floor(first / 86400), np.ceil(last / 86400)]).astype(np.int64)
        lower, upper = np.clip(days.astype(f"{self.kind}64[D]"), *self._limits)
        return str(lower), str(upper)

    @property
    def n_values(self) -> int | None:
        """Number of ticks; None while a bound is open."""
        return int(self._length()) + 1 if self.is_resolved else None

    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words."""
        length = {"D": "days", "h": "hours", "min": "minutes", "s": "seconds"}[self.resolution]
        ends = f"{length} from {self.lower or '?'} to {self.upper or '?'}"
        return ends if self.is_resolved else f"{ends}, bounds to be estimated privately"

    def _length(self) -> float:
        lower, upper = map(self._bound_seconds, self._bounds())
        return float((upper - lower) // _SECONDS[self.resolution])

    def _distances(self, column: PlainColumn) -> FloatArray:
        first, tick = self._first(), _SECONDS[self.resolution]
        seconds = np.clip(self.seconds(column), first, first + int(self._length()) * tick)
        return ((seconds - first) // tick).astype(np.float64)

    def _at(self, distances: FloatArray, missing: BoolArray) -> pd.Series:
        seconds = self._first() + np.rint(distances) * self.step
        return self.from_numbers(np.where(missing, np.nan, seconds))

    @property
    def step(self) -> float:
        """Seconds per tick."""
        return float(_SECONDS[self.resolution])

    @property
    def span(self) -> tuple[float, float]:
        """The bounds in seconds; an open bound is infinite."""
        lower = -math.inf if self.lower is None else float(self._bound_seconds(self.lower))
        return lower, math.inf if self.upper is None else float(self._bound_seconds(self.upper))

    def from_numbers(self, numbers: FloatArray) -> pd.Series:
        """Return seconds as values of the column; NaN is missing."""
        missing = np.isnan(numbers)
        held = self._possible(np.where(missing, 0.0, numbers))
        times = held.astype(np.int64).astype(f"{self.kind}64[s]")
        times[missing] = "NaT"
        target = pandas_dtype(self.dtype or self.default, self.missing)
        return pd.Series(self._localized(pd.Index(times)).astype(target))

    def _possible(self, numbers: FloatArray) -> FloatArray:
        """Clip seconds to possible days, which may begin a day before or after those of UTC."""
        first, last = np.array(self._limits, dtype=f"{self.kind}64[s]").astype(np.int64)
        return numbers.clip(first - 86_400, last + 2 * 86_400 - 1)

    @property
    def rounding(self) -> Rounding:
        """Full minutes, hours and days, counted in ticks from the lower bound."""
        tick, first = _SECONDS[self.resolution], self._first()
        steps = [step // tick for step in _ROUND_SECONDS if step >= tick]
        phases = [-first % (step * tick) // tick for step in steps]
        if first % tick:  # ticks lie between the strokes of a clock
            phases = [0] * len(steps)
        return Rounding(tuple(steps), tuple(phases))

    def _first(self) -> int:
        """Return the seconds of the first tick."""
        return self._bound_seconds(str(self.lower))

    def _localized(self, times: Any) -> Any:
        """Return times, counted like `seconds`, in the time zone of the column."""
        return times

    def numbers(self, values: Any) -> FloatArray:
        """Return the values in seconds, NaN if missing."""
        column = self.read(values)
        return np.where(column.missing, np.nan, self.seconds(column).astype(np.float64))

    def guessed(self, values: PlainColumn, keep: bool) -> tuple["TableColumn | None", str]:
        """Choose the longest ticks on which all times lie, and bounds in whole days."""
        present = values.present
        kept = PlainColumn(present, np.zeros(len(present), dtype=bool), values.dtype)
        column = self
        for resolution in _SECONDS:
            column = self.replace(resolution=resolution)
            seconds = column.seconds(kept)
            lower, upper = column.bounds_around(seconds.min(), seconds.max() + 1)
            column = column.replace(lower=lower, upper=upper)
            decoded = read_column(column.from_unit(column.to_unit(kept)))
            if np.array_equal(decoded.values, kept.values):
                break
        return column, ""

    def _inside(self, lowest: Any, highest: Any) -> tuple[Any, Any, float, float]:
        start, stop = self.to_unit(pd.Series([lowest, highest])).tolist()
        # A time between two ticks is rounded down; the interval starts at the next tick.
        if self.from_unit([start])[0] < lowest:
            start += 1.0 / (self._length() or 1.0)
        if start > stop:
            raise self._nothing(f"it holds no value of the resolution {self.resolution!r}")
        return (*self.from_unit([start, stop]), start, stop)

    def _end(self, value: Any) -> Any:
        return self._time(value)
