"""Tables of pandas, polars, Arrow and numpy: read column by column, and put together again.

A schema is written once and read with either library, so that it keeps the data type of a column
as text: pandas' own name where there is one (``"int64"``, ``"Int64"``, ``"str"``,
``"datetime64[us, UTC]"``), ``"category[...]"`` with the type of the categories inside, and two
names for what only polars has: ``"date"`` and ``"enum"``.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import BoolArray, IntArray
from skdpot._utils.validation import record_features, validate_frame, validate_rows
from skdpot.release.contributions import read_persons
from skdpot.sources import HeldRows, Rows, Source, SourceRows, head_of, source_of

_INTEGER, _FLOAT = r"(u?int|U?Int)(8|16|32|64)", r"float(16|32|64)|Float(32|64)"
_BOOLEAN, _TEXT = "bool(ean)?", "str|string|object"
_FAMILIES = {
    "integer": _INTEGER,
    "float": _FLOAT,
    "boolean": _BOOLEAN,
    "text": _TEXT,
    "category": rf"enum|category\[({_INTEGER}|{_FLOAT}|{_BOOLEAN}|{_TEXT})\]",
    "datetime": r"date|datetime64\[(s|ms|us|ns)(, .+)?\]",
    "timedelta": r"timedelta64\[(s|ms|us|ns)\]",
}
_POLARS_NAMES = {"String": "str", "Boolean": "bool", "Date": "date", "Enum": "enum"}
_POLARS_NAMES["Categorical"] = "category[str]"
_TIME_TYPES = {"Datetime": "datetime64", "Duration": "timedelta64"}
# Before pandas 3 "str" was no data type of its own.
_OLD_STRINGS = not isinstance(pd.api.types.pandas_dtype("str"), pd.StringDtype)

_UNSUPPORTED = (
    "data type {} is not supported: a column holds numbers, booleans, strings, categories, dates "
    "or durations. Convert it first"
)
_NO_TABLE = (
    "X must be a DataFrame or a numeric array. It cannot be read as numbers: every argument must "
    "be a string of digits or a number. Pass a DataFrame, such as pandas.DataFrame(X). The "
    "offending value is not shown because it may be private."
)


def _is_polars(value: Any) -> bool:
    """Whether `value` belongs to polars, which need not be installed to ask."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.partition(".")[0] == "polars"


@lru_cache
def dtype_family(name: str) -> str:
    """Return what kind of values a data type holds, such as "integer", "text" or "datetime"."""
    for family, names in _FAMILIES.items():
        if re.fullmatch(names, name):
            return family
    raise ValueError(_UNSUPPORTED.format(repr(name)))


def dtype_name(dtype: Any) -> str:
    """Return the name of a data type of pandas, numpy or polars; refuse those of no family.

    A refusal names the class of the type: its text may hold categories, or a value that fills.
    """
    if _is_polars(dtype):
        name = _polars_name(dtype)
    elif isinstance(dtype, pd.CategoricalDtype):
        unknown = dtype.categories is None
        name = f"category[{'object' if unknown else dtype_name(dtype.categories.dtype)}]"
    elif isinstance(dtype, np.dtype):
        # Numbers in another byte order are read all the same, and given back in the native one.
        name = "object" if dtype.kind in "US" else dtype.newbyteorder("=").name
    else:
        name = str(dtype)
    with suppress(ValueError):
        dtype_family(name)
        return name
    kind = dtype if isinstance(dtype, type) else type(dtype)
    raise ValueError(_UNSUPPORTED.format(repr(kind.__name__)))


def _polars_name(dtype: Any) -> str:
    text = str(dtype)
    kind = text.partition("(")[0]
    if kind in _TIME_TYPES:
        zone = getattr(dtype, "time_zone", None)
        return f"{_TIME_TYPES[kind]}[{dtype.time_unit}{f', {zone}' if zone else ''}]"
    number = re.fullmatch(f"{_INTEGER}|{_FLOAT}", text)
    return text.lower() if number else _POLARS_NAMES.get(kind, text)


def datetime_zone(name: str | None) -> str | None:
    """Return the time zone in the name of a data type, None without one."""
    return (name or "").partition(", ")[2].removesuffix("]") or None


def category_dtype(name: str) -> str | None:
    """Return the data type of the categories in ``"category[...]"``, None for other names."""
    if name == "enum":
        return "str"
    return name[9:-1] if name.startswith("category[") else None


def _nullable(name: str) -> str:
    """Return the name that pandas and polars give a number or truth value that may be missing."""
    return re.sub("^bool$", "boolean", name).replace("int", "Int").replace("uI", "UI")


def pandas_dtype(name: str, missing: bool) -> Any:
    """Return the pandas data type of plain values; those that may be missing are nullable."""
    if missing and dtype_family(name) in ("integer", "boolean"):
        name = _nullable(name)
    if name == "str" and _OLD_STRINGS:
        name = "object"
    return pd.api.types.pandas_dtype("datetime64[s]" if name == "date" else name)


def _polars_dtype(pl: Any, name: str, categories: tuple[Any, ...]) -> Any:
    """Return the polars data type of a column; `categories` are those of an ``"enum"``."""
    if name == "enum":
        return pl.Enum([str(category) for category in categories])
    inside = category_dtype(name)
    if inside is not None and dtype_family(inside) == "text":
        return pl.Categorical
    name = inside or name
    simple = {"boolean": pl.Boolean, "text": pl.String}
    return simple.get(dtype_family(name)) or getattr(pl, _nullable(name).replace("fl", "Fl"))


@dataclass(frozen=True, eq=False)
class PlainColumn:
    """The values of one column in numpy's types, read once."""

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
            found, uniques = pd.factorize(present)
            values = uniques.tolist()
        else:
            hashable = pd.api.types.is_hashable
            keys = [(type(value), value) if hashable(value) else id(value) for value in present]
            first: dict[Any, int] = {}
            found = np.array([first.setdefault(key, len(first)) for key in keys], dtype=np.int64)
            values = [key[1] if isinstance(key, tuple) else object() for key in first]
        codes = np.full(len(self), -1, dtype=np.int64)
        codes[~self.missing] = found
        return codes, values

    @cached_property
    def keys(self) -> list[tuple[str, Any] | None]:
        """The `category_key` of each distinct value."""
        return list(map(category_key, self.distinct[1]))

    def without(self, is_nothing: Callable[[str], bool]) -> "PlainColumn":
        """Return the values with texts that stand for nothing as missing ones."""
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
    """Return the sortable key of equal categories (1 and 1.0, not True), None for no category."""
    if isinstance(value, str):
        return "text", str(value)
    if isinstance(value, bool | np.bool_):
        return "boolean", bool(value)
    if not is_number(value):
        return None
    if isinstance(value, Integral):
        return "number", int(value)
    number = as_float(value)
    return ("number", number) if math.isfinite(number) else None


def is_number(value: Any) -> bool:
    """Return whether a value is a real number; truth values and durations are none."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_ | np.timedelta64)


def as_float(value: Any) -> float:
    """Return the nearest double, which is finite where the number is."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    beyond = math.isinf(number) and value != number
    return math.copysign(sys.float_info.max, number) if beyond else number


def read_column(values: Any) -> PlainColumn:
    """Read one column, a Series or anything that is like one; NaN is missing. Quotes no value."""
    if isinstance(values, PlainColumn):
        return values
    if _is_polars(values):
        name = dtype_name(values.dtype)
        found = _polars_values(values, dtype_family(name))
        missing = values.is_null().to_numpy().astype(bool)
    else:
        try:
            series: Any = pd.Series(values)
            if isinstance(values, list | tuple) and series.dtype.kind == "f":
                series = pd.Series(values, dtype=object)  # one float made floats of all integers
        except Exception:  # an array of another library may raise anything, and quote its values
            series = None
        if series is None:
            raise ValueError("a column must be a Series or an array of one dimension.")
        name = dtype_name(series.dtype)
        if isinstance(series.dtype, pd.StringDtype | pd.CategoricalDtype):
            return _CodedColumn.of_series(series, name)
        found, missing = _pandas_values(series, name), np.array(series.isna(), dtype=bool)
    if found.dtype.kind == "f":
        missing |= np.isnan(found)
    return PlainColumn(found, missing, name)


class _CodedColumn(PlainColumn):
    """Values of which the distinct ones are known first, made when they are asked for."""

    def __init__(self, codes: IntArray, known: list[Any], dtype: str) -> None:
        vars(self).update(missing=codes < 0, dtype=dtype, distinct=(codes, known))

    @classmethod
    def of_series(cls, series: pd.Series, dtype: str) -> "_CodedColumn":
        """Return the values of a Series; categories that its type lists and no row has are none."""
        if isinstance(series.dtype, pd.CategoricalDtype):
            found, known = np.asarray(series.cat.codes), series.cat.categories
            occurs = np.bincount(found + 1, minlength=len(known) + 1)[1:] > 0
            codes, known = np.append(np.cumsum(occurs) - 1, -1)[found], known[occurs]
        else:
            codes, known = pd.factorize(series)
        return cls(codes, known.tolist(), dtype)

    @cached_property
    def values(self) -> npt.NDArray[Any]:
        """The values."""
        codes, known = self.distinct
        return np.array([*known, None], dtype=object)[codes]


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
    values = series.to_numpy()  # of times with a zone those of UTC
    return values


@dataclass(frozen=True, eq=False)
class Table:
    """A table with named columns, whichever library it belongs to; each column is read once."""

    data: Any
    kind: str  # "pandas", "polars" or "array"
    names: tuple[str, ...]
    _read: dict[Any, PlainColumn] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, data: Any, names: tuple[str, ...] | None = None) -> "Table":
        """Recognise a table; `names` are those of the columns of an array (``x0``, ``x1``...)."""
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
        if not (_is_polars(data) or isinstance(data, pd.DataFrame)):
            data = _from_arrow(data)
        found = tuple(data.columns)
        if not all(isinstance(name, str) for name in found):
            raise ValueError(
                "The names of all columns must be strings; rename them, for instance by "
                "df.columns = df.columns.astype(str)."
            )
        if len(set(found)) < len(found):
            raise ValueError("Two columns of the table have the same name; rename one.")
        return cls(data, "polars" if _is_polars(data) else "pandas", found)

    @staticmethod
    def is_frame(data: Any) -> bool:
        """Whether `data` are a DataFrame of pandas or polars, or a table of Arrow."""
        if _is_polars(data):
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
        """Return one column as its library has it."""
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
        """Return the values of a column, of which nothing is known but the data type."""
        self.dtype(name)  # names the column where the data type is not supported
        return read_column(self.series(name))

    def persons(self, unit: str) -> npt.NDArray[np.integer]:
        """Return the number of each row's person, which a column tells."""
        if self.kind == "array" or unit not in self.names:
            raise ValueError(
                f"unit={unit!r} must name the column of a DataFrame that identifies the person."
            )
        return read_persons(self.series(unit), f"Column {unit!r}", self.n_rows)

    def read(self, column: Any) -> PlainColumn:
        """Return the values of a column of a schema, read and checked when first asked for."""
        if column not in self._read:
            self._read[column] = column.read(self.column(column.name))
        return self._read[column]

    def categories(self, name: str) -> tuple[list[Any], bool] | None:
        """Return the categories that a data type lists, as private as values, and if in order."""
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


def read_table(
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
    # What a schema leaves out of a fit need not be there afterwards.
    is_what_was_kept = not reset and names is not None and set(table.names) == set(names)
    if not is_what_was_kept or len(table.names) == estimator.n_features_in_:
        validate_frame(estimator, table.data, reset=reset)
    there = set(table.names)
    lacking = [] if reset or names is None else [n for n in names if n not in there]
    if lacking:  # of one that was fitted to an array
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
    """Return what a fit reads: a table in memory, or the head of a source, and the source."""
    source = source_of(X)
    if source is None:
        return read_table(estimator, X, reset=True, names=names, min_samples=min_samples), None
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
    """Return the rows of what `open_table` returned, read; refuse those that cannot be."""
    if source is None:
        return HeldRows(read(table), table.n_rows)
    return SourceRows.checked(source.select(names), read, caller, min_samples)[0]


def _check_numbers(X: Any) -> None:
    """Refuse what is often passed for a table and is none, before it is read as numbers."""
    dicts = isinstance(X, list) and len(X) > 0 and isinstance(X[0], Mapping)
    if dicts or (isinstance(X, Mapping) and not hasattr(X, "shape")):
        raise TypeError(_NO_TABLE)


def build_table(kind: str, columns: Mapping[str, pd.Series], schema: Any) -> Any:
    """Put a table of a kind ("pandas", "polars" or "array") together from decoded columns."""
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
        found = pl.Series(column.name, ticks)
        return found.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else found
    dtype = _polars_dtype(pl, name, getattr(column, "levels", ()))
    if dtype.is_numeric() or dtype == pl.Boolean:
        plain = series.astype(object).where(~missing, None).tolist()
        return pl.Series(column.name, plain, dtype=dtype)
    texts = [None if lost else str(value) for value, lost in zip(series, missing, strict=True)]
    return pl.Series(column.name, texts, dtype=dtype)
