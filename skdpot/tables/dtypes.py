"""Names of data types that pandas, polars and numpy have in common.

A schema is written once and read with any of these libraries, so it stores the data type of a
column as text: the name in pandas where there is one (``"int64"``, ``"Int64"``, ``"str"``,
``"datetime64[us, UTC]"``), ``"category[...]"`` with the type of the categories inside, and two
names for types of polars alone: ``"date"`` and ``"enum"``.
"""

import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

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
_POLARS_NAMES = {
    "String": "str",
    "Boolean": "bool",
    "Date": "date",
    "Enum": "enum",
    "Categorical": "category[str]",
}
_TIME_TYPES = {"Datetime": "datetime64", "Duration": "timedelta64"}
# Before pandas 3 "str" is not a data type of its own.
_OLD_STRINGS = not isinstance(pd.api.types.pandas_dtype("str"), pd.StringDtype)

_UNSUPPORTED = (
    "data type {} is not supported: a column holds numbers, booleans, strings, categories, dates "
    "or durations. Convert it first"
)


def is_polars(value: Any) -> bool:
    """Return whether a value belongs to polars, without importing it."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__.partition(".")[0] == "polars"


@lru_cache
def dtype_family(name: str) -> str:
    """Return the family of a data type, such as "integer", "text" or "datetime"."""
    for family, names in _FAMILIES.items():
        if re.fullmatch(names, name):
            return family
    raise ValueError(_UNSUPPORTED.format(repr(name)))


def dtype_name(dtype: Any) -> str:
    """Return the name of a data type of pandas, numpy or polars; refuse types of no family.

    The message names the class of the type only: its repr may hold categories or a fill value.
    """
    if is_polars(dtype):
        name = _polars_name(dtype)
    elif isinstance(dtype, pd.CategoricalDtype):
        unknown = dtype.categories is None
        name = f"category[{'object' if unknown else dtype_name(dtype.categories.dtype)}]"
    elif isinstance(dtype, np.dtype):
        # Numbers in another byte order are read as well, and returned in the native one.
        name = "object" if dtype.kind in "US" else dtype.newbyteorder("=").name
    else:
        name = str(dtype)
    with suppress(ValueError):
        dtype_family(name)
        return name
    raise ValueError(_UNSUPPORTED.format(repr(_class_name(dtype))))


def _class_name(dtype: Any) -> str:
    kind = dtype if isinstance(dtype, type) else type(dtype)
    return kind.__name__


def _polars_name(dtype: Any) -> str:
    text = str(dtype)
    kind = text.partition("(")[0]
    if kind in _TIME_TYPES:
        zone = getattr(dtype, "time_zone", None)
        return f"{_TIME_TYPES[kind]}[{dtype.time_unit}{f', {zone}' if zone else ''}]"
    number = re.fullmatch(f"{_INTEGER}|{_FLOAT}", text)
    return text.lower() if number else _POLARS_NAMES.get(kind, text)


def datetime_zone(name: str | None) -> str | None:
    """Return the time zone of a data type, None without one."""
    return (name or "").partition(", ")[2].removesuffix("]") or None


def category_dtype(name: str) -> str | None:
    """Return the data type of the categories in ``"category[...]"``, None for other types."""
    if name == "enum":
        return "str"
    return name[9:-1] if name.startswith("category[") else None


def _nullable(name: str) -> str:
    """Return the nullable data type of pandas for a number or truth value."""
    return re.sub("^bool$", "boolean", name).replace("int", "Int").replace("uI", "UI")


def pandas_dtype(name: str, missing: bool) -> Any:
    """Return the data type of pandas, nullable if values may be missing."""
    if missing and dtype_family(name) in ("integer", "boolean"):
        name = _nullable(name)
    if name == "str" and _OLD_STRINGS:
        name = "object"
    return pd.api.types.pandas_dtype("datetime64[s]" if name == "date" else name)


def polars_dtype(pl: Any, name: str, categories: tuple[Any, ...]) -> Any:
    """Return the polars data type of a column; `categories` are those of an ``"enum"``."""
    if name == "enum":
        return pl.Enum([str(category) for category in categories])
    inside = category_dtype(name)
    if inside is not None and dtype_family(inside) == "text":
        return pl.Categorical
    name = inside or name
    simple = {"boolean": pl.Boolean, "text": pl.String}
    return simple.get(dtype_family(name)) or getattr(pl, _nullable(name).replace("fl", "Fl"))
