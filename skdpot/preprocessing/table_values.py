"""Columns of pandas, of polars and of numpy, read as plain numpy arrays and a mask."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.table_dtypes import datetime_zone, dtype_family, dtype_name, is_polars

__all__ = ["PlainColumn", "category_key", "distinct_values", "read_column"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PlainColumn:
    """The values of one column in numpy's types.

    Attributes
    ----------
    values : ndarray of shape (n_rows,)
        Integers, floats, booleans, ``datetime64`` or objects; UTC for times with a zone. Where
        `missing`, they mean nothing.
    missing : ndarray of bool of shape (n_rows,)
        Where there is no value.
    dtype : str
        Name of the data type, see `skdpot.preprocessing.table_dtypes`.
    """

    values: npt.NDArray[Any]
    missing: BoolArray
    dtype: str

    @property
    def family(self) -> str:
        """What kind of values these are, by their data type."""
        return dtype_family(self.dtype)

    @property
    def present(self) -> npt.NDArray[Any]:
        """The values that are not missing."""
        return self.values[~self.missing]

    def __len__(self) -> int:
        return len(self.missing)


def read_column(values: Any) -> PlainColumn:
    """Read one column, or anything that is like one.

    Parameters
    ----------
    values : PlainColumn, Series of pandas or polars, or array-like of shape (n_rows,)
        The column.

    Returns
    -------
    PlainColumn

    Raises
    ------
    ValueError
        If the values are of a kind that tables cannot have. No value is quoted.
    """
    if isinstance(values, PlainColumn):
        return values
    if is_polars(values):
        return _without_nan(_read_polars(values))
    try:
        series: pd.Series | None = _as_series(values)
    except Exception:  # an array of another library may raise anything, and quote its values
        series = None
    if series is None:
        raise ValueError("a column must be a Series or an array of one dimension.")
    return _without_nan(_read_pandas(series))


def _as_series(values: Any) -> pd.Series:
    if isinstance(values, pd.Series):
        return values
    series = pd.Series(values)
    if isinstance(values, list | tuple) and series.dtype.kind == "f":
        return pd.Series(values, dtype=object)  # one float would make floats of all integers
    return series


def _read_pandas(series: pd.Series) -> PlainColumn:
    name = dtype_name(series.dtype)
    family = dtype_family(name)
    missing = np.array(series.isna(), dtype=bool)
    if family in ("text", "category"):
        return PlainColumn(np.asarray(series.astype(object)), missing, name)
    if family == "datetime":
        if datetime_zone(name):
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return PlainColumn(np.asarray(series), missing, name)
    if isinstance(series.dtype, np.dtype):
        return PlainColumn(np.asarray(series), missing, name)
    filled = series.fillna(False if family == "boolean" else 0)
    return PlainColumn(
        filled.to_numpy(dtype=name.lower().replace("boolean", "bool")), missing, name
    )


def _read_polars(series: Any) -> PlainColumn:
    name = dtype_name(series.dtype)
    family = dtype_family(name)
    missing = series.is_null().to_numpy().astype(bool)
    if family in ("text", "category"):
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
    elif family == "datetime":
        unit = "D" if name == "date" else series.dtype.time_unit
        ticks = series.to_physical().fill_null(0).to_numpy().astype(np.int64)
        values = ticks.astype(f"datetime64[{unit}]")
    else:
        values = series.fill_null(False if family == "boolean" else 0).to_numpy()
    return PlainColumn(values, missing, name)


def _without_nan(column: PlainColumn) -> PlainColumn:
    """Count NaN as missing, also where a library knows another way to miss a value."""
    if column.values.dtype.kind == "f":
        column.missing[:] |= np.isnan(column.values)
    return column


def category_key(value: Any) -> tuple[str, Any] | None:
    """Return what two equal categories share, None for what is no category.

    Numbers are compared by value, so that 1 and 1.0 are one category; True is another.

    Parameters
    ----------
    value : object
        One value.

    Returns
    -------
    tuple of (str, str, int, float or bool), or None
        Such tuples sort.
    """
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, bool | np.bool_):
        return "boolean", bool(value)
    if isinstance(value, Integral):
        return "number", int(value)
    if isinstance(value, Real) and np.isfinite(float(value)):
        return "number", float(value)
    return None


def distinct_values(column: PlainColumn) -> tuple[IntArray, list[Any]]:
    """Return the distinct values of a column, and the position of each value among them.

    Parameters
    ----------
    column : PlainColumn
        The column.

    Returns
    -------
    codes : ndarray of shape (n_rows,), int64
        -1 where a value is missing.
    uniques : list
        Distinct values, of which True and 1 are two.
    """
    present = column.present
    alike = pd.api.types.infer_dtype(present, skipna=False) in ("string", "integer", "boolean")
    if present.dtype.kind != "O" or alike:
        found, uniques = pd.factorize(present)
        values = uniques.tolist()
    else:
        keys = [(type(value), value) if _is_hashable(value) else id(value) for value in present]
        first: dict[Any, int] = {}
        found = np.array([first.setdefault(key, len(first)) for key in keys], dtype=np.int64)
        values = [key[1] if isinstance(key, tuple) else object() for key in first]
    codes = np.full(len(column), -1, dtype=np.int64)
    codes[~column.missing] = found
    return codes, values


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
