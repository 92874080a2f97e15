"""Names of the data types that tables may have, the same for pandas and polars.

A schema is written once and read with either library, so that it keeps the data type of a column
as text: pandas' own name where there is one (``"int64"``, ``"Int64"``, ``"str"``,
``"datetime64[us, UTC]"``), ``"category[...]"`` with the type of the categories inside, and two
names for what only polars has: ``"date"`` and ``"enum"``.
"""

import re
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "category_dtype",
    "datetime_zone",
    "dtype_family",
    "dtype_name",
    "is_polars",
    "pandas_dtype",
    "polars_dtype",
]

# Names of numpy, and those of the nullable types, which pandas and polars share.
_INTEGERS = {
    f"{sign}int{bits}": f"{sign.upper()}Int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_FLOATS = {f"float{bits}": f"Float{bits}" for bits in (16, 32, 64)}
_SIMPLE = {
    **dict.fromkeys([*_INTEGERS, *_INTEGERS.values()], "integer"),
    **dict.fromkeys([*_FLOATS, "Float32", "Float64"], "float"),
    **dict.fromkeys(["bool", "boolean"], "boolean"),
    **dict.fromkeys(["str", "string", "object"], "text"),
    "enum": "category",
    "date": "datetime",
}
_DATETIME = re.compile(r"datetime64\[(s|ms|us|ns)(?:, (.+))?\]")
_CATEGORY = re.compile(r"category\[(\w+)\]")
# Before pandas 3 "str" was no data type of its own.
_OLD_STRINGS = not isinstance(pd.api.types.pandas_dtype("str"), pd.StringDtype)
_IN_CATEGORIES = ("integer", "float", "boolean", "text")


def is_polars(value: Any) -> bool:
    """Whether `value` belongs to polars, which need not be installed to ask."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.partition(".")[0] == "polars"


def dtype_family(name: str) -> str:
    """Return what kind of values a data type holds.

    Parameters
    ----------
    name : str
        Name of a data type.

    Returns
    -------
    {"integer", "float", "boolean", "text", "category", "datetime"}

    Raises
    ------
    ValueError
        If a column of a table cannot have it.
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    if _DATETIME.fullmatch(name):
        return "datetime"
    inside = _CATEGORY.fullmatch(name)
    if inside and _SIMPLE.get(inside.group(1)) in _IN_CATEGORIES:
        return "category"
    raise ValueError(
        f"data type {name!r} is not supported: a column holds numbers, booleans, strings, "
        "categories or dates. Convert it first, a duration for instance to a number of seconds"
    )


def dtype_name(dtype: Any) -> str:
    """Return the name of a data type of pandas or polars.

    Parameters
    ----------
    dtype : pandas, numpy or polars data type
        Of one column.

    Returns
    -------
    str
        Accepted by `pandas_dtype` and `polars_dtype`.

    Raises
    ------
    ValueError
        If a column of a table cannot have it.
    """
    if is_polars(dtype):
        name = _polars_name(dtype)
    elif isinstance(dtype, pd.CategoricalDtype):
        unknown = dtype.categories is None
        name = f"category[{'object' if unknown else dtype_name(dtype.categories.dtype)}]"
    elif isinstance(dtype, np.dtype):
        # Numbers in another byte order are read all the same, and given back in the native one.
        name = "object" if dtype.kind in "US" else dtype.newbyteorder("=").name
    else:
        name = str(dtype)
    dtype_family(name)
    return name


def _polars_name(dtype: Any) -> str:
    text = str(dtype)
    kind = text.partition("(")[0]
    if kind == "Datetime":
        zone = f", {dtype.time_zone}" if dtype.time_zone else ""
        return f"datetime64[{dtype.time_unit}{zone}]"
    names = {"String": "str", "Boolean": "bool", "Date": "date", "Enum": "enum"}
    names["Categorical"] = "category[str]"
    lower = kind.lower()
    return names.get(kind, lower if lower in (*_INTEGERS, *_FLOATS) else text)


def datetime_zone(name: str | None) -> str | None:
    """Return the time zone in the name of a data type, None without one."""
    found = _DATETIME.fullmatch(name or "")
    return found.group(2) if found else None


def category_dtype(name: str) -> str | None:
    """Return the data type of the categories in ``"category[...]"``, None for other names."""
    found = _CATEGORY.fullmatch("category[str]" if name == "enum" else name)
    return found.group(1) if found else None


def pandas_dtype(name: str, missing: bool) -> Any:
    """Return the pandas data type of a column that has no list of categories.

    Parameters
    ----------
    name : str
        Name of the data type.
    missing : bool
        Whether the column may miss values: integers and booleans are then nullable.

    Returns
    -------
    dtype
        Of pandas or numpy.
    """
    if missing:
        name = {**_INTEGERS, "bool": "boolean"}.get(name, name)
    if name == "str" and _OLD_STRINGS:
        name = "object"
    return pd.api.types.pandas_dtype("datetime64[s]" if name == "date" else name)


def polars_dtype(name: str, categories: tuple[Any, ...] = ()) -> Any:
    """Return the polars data type of a column.

    Parameters
    ----------
    name : str
        Name of the data type.
    categories : tuple, default=()
        Categories of an ``"enum"``.

    Returns
    -------
    polars.DataType
    """
    pl: Any = import_module("polars")
    if name == "enum":
        return pl.Enum([str(category) for category in categories])
    if found := _DATETIME.fullmatch(name):
        unit, zone = found.groups()
        return pl.Datetime("ms" if unit == "s" else unit, zone)
    inside = category_dtype(name)
    if inside in ("str", "string", "object"):
        return pl.Categorical
    families = {"boolean": pl.Boolean, "text": pl.String, "datetime": pl.Date}
    name = inside or name
    number = {**_INTEGERS, **_FLOATS}.get(name, name)
    return families.get(dtype_family(name)) or getattr(pl, number)
