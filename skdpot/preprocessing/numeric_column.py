"""Columns of numbers between two bounds."""

import math
import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_dtypes import dtype_family
from skdpot.preprocessing.table_objects import LARGEST_INTEGER, as_float, as_integer
from skdpot.preprocessing.table_values import PlainColumn

__all__ = ["NumericColumn"]

FloatArray = npt.NDArray[np.float64]

# A few roundings of a double in [0, 1] must not reach half a step of what it stands for.
_LARGEST_RANGE = 2**48
_LARGEST_LOG_RANGE = 2**40


@dataclass(frozen=True, repr=False)
class NumericColumn(TableColumn):
    r"""Numbers between two bounds, as they stand or on a logarithmic scale.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : float, optional
        Public bounds; values outside are clipped. None: to be estimated privately.
    integer : bool, default=False
        Whether the values are integers; others are rounded to one. An integer `dtype` implies it.
    log_scale : bool, default=False
        Whether to encode log(1 + distance from `lower`) in the place of the distance, for amounts
        of which most are small and some are huge.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values, such as "int64", "Int64" or "float32"; by default that of the
        table that an encoder is fitted on. Where values may be missing, an integer type of numpy
        becomes the nullable one of pandas.

    Raises
    ------
    ValueError
        If a field is not valid, or the integers span more than 2\ :sup:`48` (on a logarithmic
        scale 2\ :sup:`40`) and could not all be told apart; integers beyond 2\ :sup:`53` are exact
        as long as their range is smaller.

    Notes
    -----
    Decoding what was encoded gives integers back exactly. Other numbers are right to 1e-12 of the
    range between the bounds, or to the precision of the number itself where that is coarser.

    Examples
    --------
    >>> from skdpot.preprocessing import NumericColumn
    >>> age = NumericColumn("age", lower=0, upper=100, integer=True)
    >>> age.to_unit([25, 50, 130])
    array([0.25, 0.5 , 1.  ])
    >>> age.from_unit([0.25, 0.504]).tolist()
    [25, 50]
    """

    kind: ClassVar[str] = "numeric"
    families: ClassVar[tuple[str, ...]] = ("integer", "float")

    lower: float | int | None = None
    upper: float | int | None = None
    integer: bool = False
    log_scale: bool = False

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.dtype is not None and dtype_family(self.dtype) == "integer":
            self._store("integer", True)
        for side in ("lower", "upper"):
            self._store(side, self._bound(side))
        if self.lower is not None and self.upper is not None:
            self._check_range(self.lower, self.upper)

    @property
    def is_resolved(self) -> bool:
        """Whether both bounds are known."""
        return self.lower is not None and self.upper is not None

    @property
    def n_values(self) -> int | None:
        """How many values there are; None for a continuum, or while a bound is not known."""
        if not self.integer or self.lower is None or self.upper is None:
            return None
        return int(self.upper - self.lower) + 1

    def describe(self) -> str:
        """Say in a few words which values the column can have."""
        numbers = "integers" if self.integer else "numbers"
        scale = " on a logarithmic scale" if self.log_scale else ""
        return f"{numbers} {_between(self.lower, self.upper)}{scale}"

    def to_unit(self, values: Any) -> FloatArray:
        """Map values to [0, 1].

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            Numbers; those outside of the bounds are clipped.

        Returns
        -------
        ndarray of shape (n_rows,)
            NaN where a value is missing.

        Raises
        ------
        ValueError
            If something is not a finite number, or misses although `missing` is False. The
            message names the column and quotes no value.
        """
        lower, upper = self._bounds()
        column = self.read_numbers(values)
        if self.integer:
            distance = (_integers(column, int(lower), int(upper)) - int(lower)).astype(np.float64)
        else:
            numbers = np.where(column.missing, lower, column.values.astype(np.float64))
            distance = np.clip(numbers, lower, upper) - lower
        if self.log_scale:
            distance = np.log1p(distance)
        unit = distance / (self._length(lower, upper) or 1.0)
        unit = np.minimum(unit, 1.0)
        unit[column.missing] = np.nan
        return unit

    def from_unit(self, unit: npt.ArrayLike) -> pd.Series:
        """Map numbers of [0, 1] back to values.

        Parameters
        ----------
        unit : array-like of shape (n_rows,)
            Numbers outside of [0, 1] are clipped; NaN is a missing value.

        Returns
        -------
        Series of shape (n_rows,)
            Of the data type of the column; integers are the nearest ones.

        Raises
        ------
        ValueError
            If something misses although `missing` is False.
        """
        lower, upper = self._bounds()
        numbers = np.asarray(unit, dtype=np.float64)
        missing = np.isnan(numbers)
        distance = np.clip(np.where(missing, 0.0, numbers), 0.0, 1.0) * self._length(lower, upper)
        if self.log_scale:
            distance = np.expm1(distance)
        if not self.integer:
            restored = np.clip(lower + distance, lower, upper)
            return self.finish(restored, missing, self.dtype or "float64")
        steps = np.clip(np.rint(distance), 0.0, float(upper - lower)).astype(np.int64)
        return self.finish(int(lower) + steps, missing, self.dtype or "int64")

    def read_numbers(self, values: Any) -> PlainColumn:
        """Read values and refuse what is not a finite number.

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            The column.

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
            column = self._from_objects(column)
        if column.values.dtype.kind not in "biuf":
            raise ValueError(
                f"Column {self.name!r} must hold numbers. Convert it, or declare it as a column "
                "of another kind (the offending value is not shown because it may be private)."
            )
        if column.values.dtype.kind == "f" and np.isinf(column.present).any():
            raise self._infinite()
        return column

    def within(self, lower: float, upper: float) -> "NumericColumn":
        """Return the column with bounds in the place of those that it lacks.

        Parameters
        ----------
        lower, upper : float
            Estimates; they are rounded outwards to integers, and moved to where the data type,
            the known bound and the largest range allow.

        Returns
        -------
        NumericColumn
        """
        low, high = (-sys.float_info.max / 4, sys.float_info.max / 4)
        if self.integer:
            lower, upper = float(np.floor(lower)), float(np.ceil(upper))
            low, high = float(-LARGEST_INTEGER), float(LARGEST_INTEGER)
        if self.dtype is not None and dtype_family(self.dtype) == "integer":
            limits = np.iinfo(self.dtype.lower())
            low, high = max(low, float(limits.min)), min(high, float(limits.max))
        lower, upper = (min(max(bound, low), high) for bound in (lower, upper))
        lower = lower if self.lower is None else self.lower
        upper = upper if self.upper is None else self.upper
        if lower > upper:  # an estimate on the wrong side of what is known
            lower, upper = (upper, upper) if self.lower is None else (lower, lower)
        largest = _LARGEST_LOG_RANGE if self.log_scale else _LARGEST_RANGE
        if self.integer and upper - lower > largest:
            kept = upper if self.lower is None and self.upper is not None else None
            lower, upper = (kept - largest, kept) if kept is not None else (lower, lower + largest)
        return self.replace(lower=lower, upper=upper)

    def _from_objects(self, column: PlainColumn) -> PlainColumn:
        """Return numbers that are Python objects as integers or floats, if all are numbers.

        Each is converted on its own: the others must not depend on it.
        """
        present = column.present
        kinds = set(map(type, present))
        if not all(issubclass(kind, Real) and kind is not bool for kind in kinds):
            return column
        values = np.zeros(len(column), dtype=np.int64 if self.integer else np.float64)
        try:
            values[~column.missing] = list(map(as_integer if self.integer else as_float, present))
        except OverflowError:
            raise self._infinite() from None
        return PlainColumn(values, column.missing, column.dtype)

    def _infinite(self) -> ValueError:
        return ValueError(
            f"Column {self.name!r} holds infinity; every value must be finite or missing."
        )

    def _bounds(self) -> tuple[float | int, float | int]:
        if self.lower is None or self.upper is None:
            raise ValueError(
                f"Column {self.name!r} has no bounds yet: state them, or have a TableEncoder "
                "estimate them privately."
            )
        return self.lower, self.upper

    def _length(self, lower: float, upper: float) -> float:
        """Return the length of the interval on the scale that is encoded."""
        return math.log1p(upper - lower) if self.log_scale else float(upper - lower)

    def _bound(self, side: str) -> float | int | None:
        value = getattr(self, side)
        if value is None:
            return None
        number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
        limit = LARGEST_INTEGER if self.integer else sys.float_info.max
        if not number or not abs(value) <= limit:
            raise ValueError(
                f"Column {self.name!r}: {side} must be None or a finite number"
                f"{', an integer between -2^62 and 2^62' if self.integer else ''}."
            )
        if self.integer and value != int(value):
            raise ValueError(f"Column {self.name!r} holds integers: {side} must be one.")
        return int(value) if self.integer else float(value)

    def _check_range(self, lower: float, upper: float) -> None:
        if lower > upper:
            raise ValueError(f"Column {self.name!r}: lower={lower!r} is above upper={upper!r}.")
        if not math.isfinite(upper - lower):
            raise ValueError(f"Column {self.name!r}: the bounds are too far apart.")
        largest = _LARGEST_LOG_RANGE if self.log_scale else _LARGEST_RANGE
        if self.integer and upper - lower > largest:
            raise ValueError(
                f"Column {self.name!r}: integers between bounds more than {largest} apart cannot "
                "all be told apart. Narrow the bounds, or make the column one of floating-point "
                "numbers; identifiers are best left out."
            )
        if self.dtype is not None and dtype_family(self.dtype) == "integer":
            limits = np.iinfo(self.dtype.lower())
            if lower < limits.min or upper > limits.max:
                raise ValueError(
                    f"Column {self.name!r}: the bounds are beyond what {self.dtype!r} can hold."
                )


def _integers(column: PlainColumn, lower: int, upper: int) -> npt.NDArray[np.int64]:
    """Return the nearest integers within the bounds; `lower` where a value is missing."""
    values = column.values
    if values.dtype.kind == "f":
        rounded = np.rint(np.where(column.missing, 0.0, values.astype(np.float64)))
        values = np.clip(rounded, -LARGEST_INTEGER, LARGEST_INTEGER)
    elif values.dtype.kind == "u":
        values = np.minimum(values.astype(np.uint64), np.uint64(LARGEST_INTEGER))
    integers = np.where(column.missing, lower, values.astype(np.int64))
    return np.clip(integers, lower, upper)


def _between(lower: float | None, upper: float | None) -> str:
    """Write an interval, of which nothing may be known yet."""
    ends = ["?" if bound is None else _written(bound) for bound in (lower, upper)]
    private = ", bounds to be estimated privately" if None in (lower, upper) else ""
    return f"from {ends[0]} to {ends[1]}{private}"


def _written(bound: float) -> str:
    return f"{bound:,d}" if isinstance(bound, int) else f"{bound:,.12g}"
