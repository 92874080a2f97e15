"""Python objects as numbers and times, each read by itself.

An array has one data type, and a single value can decide it: one half among integers makes floats
of them all, and floats beyond 2^53 are rounded. Then the value of one person would change how the
values of all others are read, and a record would no longer move one count by one. So each object
is converted on its own, to the data type that the kind of column alone decides.
"""

import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["LARGEST_INTEGER", "as_float", "as_integer", "as_times"]

LARGEST_INTEGER = 2**62

# What Python reads, many times as fast as pandas does.
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def as_integer(value: Any) -> int:
    """Return the nearest integer between -2^62 and 2^62.

    Parameters
    ----------
    value : int, float or another real number
        Not NaN. Integers of any size stay exact.

    Returns
    -------
    int

    Raises
    ------
    OverflowError
        If the number is infinite.
    """
    if type(value) is int:
        number = value
    else:
        number = int(value) if isinstance(value, Integral) else round(as_float(value))
    if -LARGEST_INTEGER <= number <= LARGEST_INTEGER:
        return number
    return LARGEST_INTEGER if number > 0 else -LARGEST_INTEGER


def as_float(value: Any) -> float:
    """Return the nearest double, which is infinite where the number is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_times(values: Iterable[Any]) -> tuple[npt.NDArray[Any], bool] | None:
    """Return dates, times and ISO texts as times, or None if they are not all of one kind.

    Something may be no time, or some may have an offset from UTC and others none.

    Parameters
    ----------
    values : iterable of str, date, datetime, Timestamp or datetime64
        None of them missing.

    Returns
    -------
    times : ndarray of datetime64[us]
        In UTC if they have offsets or zones, else as they stand.
    zoned : bool
        Whether they have.
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
