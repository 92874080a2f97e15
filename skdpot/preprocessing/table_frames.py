"""Tables of pandas, polars, Arrow and numpy: taken apart into columns, and put together again."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_dtypes import (
    datetime_zone,
    dtype_family,
    dtype_name,
    is_polars,
    polars_dtype,
)
from skdpot.preprocessing.table_values import PlainColumn, read_column

__all__ = ["Table", "build_table"]


@dataclass(frozen=True, eq=False)
class Table:
    """A table with named columns, whichever library it belongs to.

    Attributes
    ----------
    data : DataFrame of pandas or polars, or ndarray of shape (n_rows, n_columns)
        The table itself.
    kind : {"pandas", "polars", "array"}
        What it belongs to.
    names : tuple of str
        Names of the columns; ``x0``, ``x1`` and so on where it has none.
    """

    data: Any
    kind: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, data: Any, names: tuple[str, ...] | None = None) -> "Table":
        """Recognise a table.

        Parameters
        ----------
        data : DataFrame of pandas or polars, or ndarray of shape (n_rows, n_columns)
            The table. One of another library that speaks Arrow's protocol (``pyarrow.Table``, for
            instance) is read as one of polars.
        names : tuple of str, optional
            Names of the columns of an array.

        Returns
        -------
        Table

        Raises
        ------
        TypeError
            If it is something else.
        ValueError
            If the names are not distinct strings.
        """
        if isinstance(data, np.ndarray) and data.ndim == 2:
            return cls(data, "array", names or tuple(f"x{j}" for j in range(data.shape[1])))
        if not cls.is_frame(data):
            advice = " Call collect() first." if type(data).__name__ == "LazyFrame" else ""
            raise TypeError(
                "A table must be a DataFrame of pandas or polars, or an array of two dimensions, "
                f"got {type(data).__name__}.{advice}"
            )
        if not (is_polars(data) or isinstance(data, pd.DataFrame)):
            data = _from_arrow(data)
        found = tuple(data.columns)
        if not all(isinstance(name, str) for name in found):
            raise ValueError(
                "The names of all columns must be strings; rename them, for instance by "
                "df.columns = df.columns.astype(str)."
            )
        if len(set(found)) < len(found):
            raise ValueError("Two columns of the table have the same name; rename one.")
        return cls(data, "polars" if is_polars(data) else "pandas", found)

    @staticmethod
    def is_frame(data: Any) -> bool:
        """Whether `data` are a DataFrame of pandas or polars, or a table of Arrow."""
        if is_polars(data):
            return type(data).__name__ == "DataFrame"
        pandas = type(data).__module__.partition(".")[0] == "pandas"
        return isinstance(data, pd.DataFrame) or (
            not pandas and hasattr(data, "__arrow_c_stream__")
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.data)

    def series(self, name: str) -> Any:
        """Return one column as its library has it.

        Raises
        ------
        ValueError
            If there is no such column.
        """
        if name not in self.names:
            raise ValueError(f"The table has no column {name!r}.")
        if self.kind == "array":
            return self.data[:, self.names.index(name)]
        return self.data[name]

    def dtype(self, name: str) -> str:
        """Return the name of the data type of a column.

        Raises
        ------
        ValueError
            If tables cannot have it; the message names the column.
        """
        try:
            return dtype_name(self.series(name).dtype)
        except ValueError as error:
            raise ValueError(f"Column {name!r}: {error}.") from None

    def column(self, name: str) -> PlainColumn:
        """Return the values of a column."""
        self.dtype(name)  # names the column where the data type is not supported
        return read_column(self.series(name))

    def categories(self, name: str) -> tuple[list[Any], bool] | None:
        """Return the categories that the data type of a column lists, and whether in order.

        They may have been made from the values, and are as private as these.
        """
        dtype = self.series(name).dtype
        if isinstance(dtype, pd.CategoricalDtype) and dtype.categories is not None:
            return dtype.categories.tolist(), bool(dtype.ordered)
        if self.dtype(name) == "enum":
            return dtype.categories.to_list(), False
        return None

    def can_miss(self, name: str) -> bool:
        """Whether the data type of a column allows for missing values."""
        if self.kind == "polars":
            return True
        dtype = self.series(name).dtype
        return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def _from_arrow(data: Any) -> Any:
    """Return a table that speaks Arrow's protocol as one of polars."""
    problem = "An object of type {} cannot be read as a table; pass a DataFrame."
    try:
        return import_module("polars").DataFrame(data)
    except ImportError:
        problem = "Reading {} needs polars: pip install polars, or pass a DataFrame of pandas."
    except Exception:  # it may be an array of Arrow, and what it says may quote values
        pass
    raise TypeError(problem.format(type(data).__name__))


def build_table(
    kind: str, columns: Mapping[str, pd.Series], schema: Mapping[str, TableColumn]
) -> Any:
    """Put a table together.

    Parameters
    ----------
    kind : {"pandas", "polars", "array"}
        What to build.
    columns : mapping of str to Series of pandas
        Values of each column, as `from_unit` and `from_codes` return them.
    schema : mapping of str to TableColumn
        The column of the schema for each name.

    Returns
    -------
    DataFrame of pandas or polars, or ndarray of float64
    """
    if kind == "pandas":
        return pd.DataFrame(dict(columns))
    if kind == "array":
        return np.column_stack([np.asarray(v, dtype=np.float64) for v in columns.values()])
    pl: Any = import_module("polars")
    return pl.DataFrame([_polars_series(pl, schema[name], v) for name, v in columns.items()])


def _polars_series(pl: Any, column: TableColumn, series: pd.Series) -> Any:
    name = column.dtype or dtype_name(series.dtype)
    missing = series.isna().to_numpy(dtype=bool)
    dtype = polars_dtype(name, getattr(column, "levels", ()))
    family = dtype_family(name)
    if family == "datetime":
        zone = datetime_zone(name)
        if zone is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        unit = "D" if dtype == pl.Date else dtype.time_unit
        ticks = series.to_numpy().astype(f"datetime64[{unit}]").astype(np.int64)
        found = pl.Series(column.name, ticks).set(pl.Series(missing), None)
        if unit == "D":
            return found.cast(pl.Int32).cast(pl.Date)
        found = found.cast(pl.Datetime(unit))
        return found if zone is None else found.dt.replace_time_zone("UTC").cast(dtype)
    if dtype.is_numeric() or dtype == pl.Boolean:
        plain = series.astype(object).where(~missing, None).tolist()
        return pl.Series(column.name, plain, dtype=dtype)
    texts = [None if lost else str(value) for value, lost in zip(series, missing, strict=True)]
    return pl.Series(column.name, texts, dtype=dtype)
