"""Values of one column as plain numpy values, read once from any library."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import BoolArray, IntArray
from skdpot.tables.dtypes import datetime_zone, dtype_family, dtype_name, is_polars


@dataclass(frozen=True, eq=False)
class PlainColumn:
    """Values of one column in types of numpy, each read once."""

    values: npt.NDArray[Any]
    missing: BoolArray
    dtype: str

    @property
    def present(self) -> npt.NDArray[Any]:
        """The values that are not missing."""
        return self.values[~self.missing]

    def take(self, rows: npt.NDArray[np.integer]) -> "PlainColumn":
        """Return the values of some rows."""
        return PlainColumn(self.values[rows], self.missing[rows], self.dtype)

    def __len__(self) -> int:
        return len(self.missing)

    @cached_property
    def distinct(self) -> tuple[IntArray, list[Any]]:
        """Place of each value among the distinct ones, -1 if missing, and these; 1 is not True."""
        present = self.present
        alike = pd.api.types.infer_dtype(present, skipna=False) in ("string", "integer", "boolean")
        if present.dtype.kind != "O" or alike:
            places, uniques = pd.factorize(present)
            values = uniques.tolist()
        else:
            hashable = pd.api.types.is_hashable
            keys = [(type(value), value) if hashable(value) else id(value) for value in present]
            first: dict[Any, int] = {}
            places = np.array([first.setdefault(key, len(first)) for key in keys], dtype=np.int64)
            values = [key[1] if isinstance(key, tuple) else object() for key in first]
        codes = np.full(len(self), -1, dtype=np.int64)
        codes[~self.missing] = places
        return codes, values

    @cached_property
    def keys(self) -> list[tuple[str, Any] | None]:
        """The `category_key` of each distinct value."""
        return list(map(category_key, self.distinct[1]))

    def without(self, is_nothing: Callable[[str], bool]) -> "PlainColumn":
        """Return the values; texts that mean nothing are missing."""
        if not (isinstance(self, _CodedColumn) or self.values.dtype.kind == "O"):
            return self
        codes, known = self.distinct
        lost = np.array([isinstance(v, str) and is_nothing(v) for v in known], dtype=bool)
        if not lost.any():
            return self
        places = np.append(np.where(lost, -1, np.cumsum(~lost) - 1), -1)
        left = [value for value, gone in zip(known, lost, strict=True) if not gone]
        return _CodedColumn(places[codes], left, self.dtype)


def category_key(value: Any) -> tuple[str, Any] | None:
    """Return the sortable key of a category (equal for 1 and 1.0, not True), None if invalid."""
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, bool | np.bool_):
        return "boolean", bool(value)
    if not is_real_number(value):
        return None
    if isinstance(value, Integral):
        return "number", int(value)
    number = as_float(value)
    return ("number", number) if math.isfinite(number) else None


def is_real_number(value: Any) -> bool:
    """Return whether a value is a real number, and no truth value or duration."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_ | np.timedelta64)


def as_float(value: Any) -> float:
    """Return the nearest double, finite if the number is finite."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    beyond = math.isinf(number) and value != number
    return math.copysign(sys.float_info.max, number) if beyond else number


def read_column(values: Any) -> PlainColumn:
    """Read one column, a Series or array-like; NaN is missing. Errors quote no value."""
    if isinstance(values, PlainColumn):
        return values
    if is_polars(values):
        name = dtype_name(values.dtype)
        plain = _polars_values(values, dtype_family(name))
        missing = values.is_null().to_numpy().astype(bool)
    else:
        try:
            series: Any = pd.Series(values)
            if isinstance(values, list | tuple) and series.dtype.kind == "f":
                series = pd.Series(values, dtype=object)  # one float would change all integers
        except Exception:  # arrays of other libraries raise anything, and may quote values
            series = None
        if series is None:
            raise ValueError("a column must be a Series or an array of one dimension.")
        name = dtype_name(series.dtype)
        if isinstance(series.dtype, pd.StringDtype | pd.CategoricalDtype):
            return _CodedColumn.of_series(series, name)
        plain, missing = _pandas_values(series, name), np.array(series.isna(), dtype=bool)
    if plain.dtype.kind == "f":
        missing |= np.isnan(plain)
    return PlainColumn(plain, missing, name)


class _CodedColumn(PlainColumn):
    """Values stored as codes of the distinct values, and expanded on demand."""

    def __init__(self, codes: IntArray, known: list[Any], dtype: str) -> None:
        vars(self).update(missing=codes < 0, dtype=dtype, distinct=(codes, known))

    @classmethod
    def of_series(cls, series: pd.Series, dtype: str) -> "_CodedColumn":
        """Return the values of a Series, without listed categories that no row has."""
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes, known = without_unused(np.asarray(series.cat.codes), series.cat.categories)
        else:
            codes, known = pd.factorize(series)
        return cls(codes, known.tolist(), dtype)

    @cached_property
    def values(self) -> npt.NDArray[Any]:
        """The values."""
        codes, known = self.distinct
        return np.array([*known, None], dtype=object)[codes]


def without_unused(codes: IntArray, categories: pd.Index) -> tuple[IntArray, pd.Index]:
    """Return codes of the categories that occur, and these: whoever made the list is unknown."""
    occurs = np.bincount(codes + 1, minlength=len(categories) + 1)[1:] > 0
    return np.append(np.cumsum(occurs) - 1, -1)[codes], categories[occurs]


def _pandas_values(series: pd.Series, name: str) -> npt.NDArray[Any]:
    if dtype_family(name) == "text":
        return np.asarray(series.astype(object))
    if datetime_zone(name):
        return np.asarray(series.dt.tz_convert("UTC").dt.tz_localize(None))
    if isinstance(series.dtype, np.dtype):
        return np.asarray(series)
    held = name.lower().replace("boolean", "bool")
    return series.to_numpy(dtype=held, na_value=0)


def _polars_values(series: Any, family: str) -> npt.NDArray[Any]:
    if family in ("text", "category"):
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
        return values
    if family not in ("datetime", "timedelta"):
        series = series.fill_null(False if family == "boolean" else 0)
    values = series.to_numpy()  # times with a zone become UTC
    return values
