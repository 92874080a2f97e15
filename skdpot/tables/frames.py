"""Tables of pandas, polars, Arrow and numpy: read column by column, and rebuilt from columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.rows import record_features, validate_frame, validate_rows
from skdpot.release.contributions import read_persons
from skdpot.sources import HeldRows, Rows, Source, SourceRows, head_of, source_of
from skdpot.tables.column_values import PlainColumn, read_column
from skdpot.tables.dtypes import datetime_zone, dtype_family, dtype_name, is_polars, polars_dtype

_NO_TABLE = (
    "X must be a DataFrame or a numeric array. It cannot be read as numbers: every argument must "
    "be a string of digits or a number. Pass a DataFrame, such as pandas.DataFrame(X). The "
    "offending value is not shown because it may be private."
)


@dataclass(frozen=True, eq=False)
class Table:
    """A table of any library with named columns; each column is read once."""

    data: Any
    kind: str  # "pandas", "polars" or "array"
    names: tuple[str, ...]
    _read: dict[Any, PlainColumn] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Any, names: tuple[str, ...] | None = None) -> "Table":
        """Recognise a table; `names` are the names for an array (default ``x0``, ``x1``, ...)."""
        if isinstance(data, Table):
            return data
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
        columns = tuple(data.columns)
        if not all(isinstance(name, str) for name in columns):
            raise ValueError(
                "The names of all columns must be strings; rename them, for instance by "
                "df.columns = df.columns.astype(str)."
            )
        if len(set(columns)) < len(columns):
            raise ValueError("Two columns of the table have the same name; rename one.")
        return cls(data, "polars" if is_polars(data) else "pandas", columns)

    @staticmethod
    def is_frame(data: Any) -> bool:
        """Return whether data are a DataFrame of pandas or polars, or a table of Arrow."""
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
        """Return one column in the type of its library."""
        if self.kind == "array":
            return self.data[:, self.names.index(name)]
        return self.data[name]

    def dtype(self, name: str) -> str:
        """Return the name of the data type of a column."""
        try:
            return dtype_name(self.series(name).dtype)
        except ValueError as error:
            raise ValueError(f"Column {name!r}: {error}.") from None

    def column(self, name: str) -> PlainColumn:
        """Return the values of a column without a schema."""
        self.dtype(name)  # its error names the column
        return read_column(self.series(name))

    def persons(self, unit: str) -> npt.NDArray[np.integer]:
        """Return the number of each row's person, from the column that identifies persons."""
        if self.kind == "array" or unit not in self.names:
            raise ValueError(
                f"unit={unit!r} must name the column of a DataFrame that identifies the person."
            )
        return read_persons(self.series(unit), f"Column {unit!r}", self.n_rows)

    def read(self, column: Any) -> PlainColumn:
        """Return the values of a column of a schema, read and checked once."""
        if column not in self._read:
            self._read[column] = column.read(self.column(column.name))
        return self._read[column]

    def categories(self, name: str) -> tuple[list[Any], bool] | None:
        """Return the categories that a data type lists, as private as values; and if ordered."""
        dtype = self.series(name).dtype
        if isinstance(dtype, pd.CategoricalDtype) and dtype.categories is not None:
            return dtype.categories.tolist(), bool(dtype.ordered)
        if self.dtype(name) == "enum":
            return dtype.categories.to_list(), False
        return None

    def can_miss(self, name: str) -> bool:
        """Return whether the data type of a column allows missing values."""
        if self.kind == "polars":
            return True
        dtype = self.series(name).dtype
        return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def _from_arrow(data: Any) -> Any:
    """Return a table with Arrow's protocol as a DataFrame of polars."""
    problem = "An object of type {} cannot be read as a table; pass a DataFrame."
    try:
        return import_module("polars").DataFrame(data)
    except ImportError:
        problem = "Reading {} needs polars: pip install polars, or pass a DataFrame of pandas."
    except Exception:  # such as for an array of Arrow; the text may quote values
        pass
    raise TypeError(problem.format(type(data).__name__))


def validate_table(
    estimator: Any, X: Any, *, reset: bool, names: tuple[str, ...] | None, min_samples: int = 1
) -> Table:
    """Validate a table and record its columns on an estimator, or check them."""
    if not isinstance(X, Table) and not Table.is_frame(X):
        _check_numbers(X)
        rows = validate_rows(
            estimator,
            X,
            reset=reset,
            min_samples=min_samples,
            dtype=(np.float64,),
            allow_nan=True,
            not_numeric=_NO_TABLE,
        )
        return Table.of(rows, names)
    table = Table.of(X)
    # Excluded columns may be absent after the fit.
    has_kept_columns = not reset and names is not None and set(table.names) == set(names)
    if not has_kept_columns or len(table.names) == estimator.n_features_in_:
        validate_frame(estimator, table.data, reset=reset)
    there = set(table.names)
    lacking = [] if reset or names is None else [n for n in names if n not in there]
    if lacking:  # the estimator was fitted to an array
        raise ValueError(f"The table has no columns {', '.join(map(repr, lacking))}.")
    if table.n_rows < min_samples or not table.names:
        raise ValueError(
            f"Found a table of {table.n_rows} rows and {len(table.names)} columns while a minimum "
            f"of {min_samples} rows and one column is required by {type(estimator).__name__}."
        )
    return table


def open_table(
    estimator: Any, X: Any, *, names: tuple[str, ...] | None, min_samples: int
) -> tuple[Table, Source | None]:
    """Return a table in memory and None, or the head of a source and the source."""
    source = source_of(X)
    if source is None:
        return validate_table(estimator, X, reset=True, names=names, min_samples=min_samples), None
    head = head_of(source)
    if not hasattr(head, "columns"):
        raise TypeError("X is read in batches and must have named columns: pass a DataFrame.")
    table = Table.of(head)
    record_features(estimator, table.data)
    return table, source


def table_rows(
    table: Table,
    source: Source | None,
    names: tuple[str, ...],
    read: Callable[[Any], Any],
    caller: str,
    min_samples: int,
) -> Rows:
    """Read the rows that `open_table` returned; refuse them if one cannot be read."""
    if source is None:
        return HeldRows(read(table), table.n_rows)
    return SourceRows.checked(source.select(names), read, caller, min_samples)[0]


def _check_numbers(X: Any) -> None:
    """Refuse dicts and lists of dicts before they are read as numbers."""
    dicts = isinstance(X, list) and len(X) > 0 and isinstance(X[0], Mapping)
    if dicts or (isinstance(X, Mapping) and not hasattr(X, "shape")):
        raise TypeError(_NO_TABLE)


def build_table(kind: str, columns: Mapping[str, pd.Series], schema: Any) -> Any:
    """Build a table of a kind ("pandas", "polars" or "array") from decoded columns."""
    if kind == "pandas":
        return pd.DataFrame(dict(columns))
    if kind == "array":
        return np.column_stack([np.asarray(v, dtype=np.float64) for v in columns.values()])
    pl: Any = import_module("polars")
    return pl.DataFrame([_polars_series(pl, schema[name], v) for name, v in columns.items()])


def _polars_series(pl: Any, column: Any, series: pd.Series) -> Any:
    name = column.dtype or dtype_name(series.dtype)
    missing = series.isna().to_numpy(dtype=bool)
    if dtype_family(name) in ("datetime", "timedelta"):
        zone = datetime_zone(name)
        if zone is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        if "[s" in name:  # polars counts no seconds
            series = series.dt.as_unit("ms")
        ticks = series.to_numpy().astype("datetime64[D]") if name == "date" else series.to_numpy()
        times = pl.Series(column.name, ticks)
        return times.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else times
    dtype = polars_dtype(pl, name, getattr(column, "levels", ()))
    if dtype.is_numeric() or dtype == pl.Boolean:
        plain = series.astype(object).where(~missing, None).tolist()
        return pl.Series(column.name, plain, dtype=dtype)
    texts = [None if lost else str(value) for value, lost in zip(series, missing, strict=True)]
    return pl.Series(column.name, texts, dtype=dtype)
