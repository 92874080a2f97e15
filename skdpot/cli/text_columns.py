"""Columns of a text file, with the data types of a schema or with those that the texts suggest.

A data type that is inferred from texts depends on every row: a column of integers becomes one of
floats when one person's value is missing. So with a schema nothing is inferred, and each text is
read by itself.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from skdpot.cli.console import CommandError
from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.preprocessing.table_dtypes import category_dtype, dtype_family, pandas_dtype
from skdpot.preprocessing.table_objects import as_integer
from skdpot.preprocessing.table_values import category_key

__all__ = ["MISSING_TEXTS", "declared_column", "inferred_values", "read_declared"]

# What pandas takes for a missing value.
MISSING_TEXTS = frozenset(
    (
        *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
_BOOLEANS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}
_DIGITS = {"1": True, "1.0": True, "0": False, "0.0": False}

Texts = Sequence[str]
Number = int | float
Conversion = Callable[[str], Number | None]


def inferred_values(texts: Texts, missing: frozenset[str]) -> pd.Series:
    """Return a column with the data type that its texts suggest.

    Parameters
    ----------
    texts : sequence of str
        As they stand in the file.
    missing : frozenset of str
        Texts that mean a missing value.

    Returns
    -------
    Series
        Integers, floats, booleans or strings; integers and booleans are of a nullable type when
        some are missing.
    """
    values = _present(texts, missing)
    numbers = _inferred_numbers(values)
    if numbers is not None:
        return numbers
    truths = _truths(values, _BOOLEANS)
    if truths is None:
        return _strings(values)
    return truths if truths.hasnans else truths.astype("bool")


def declared_column(column: TableColumn) -> TableColumn:
    """Return a column that states its data type, so that no text can.

    Parameters
    ----------
    column : TableColumn
        A column of a schema.

    Returns
    -------
    TableColumn
    """
    if column.dtype is not None:
        return column
    if isinstance(column, NumericColumn):
        return column.replace(dtype="int64" if column.integer else "float64")
    if isinstance(column, CategoricalColumn):
        return column.replace(dtype={"text": "str"}.get(_held(column), "object"))
    return column.replace(dtype="bool" if isinstance(column, BooleanColumn) else "datetime64[s]")


def read_declared(column: TableColumn, texts: Texts, missing: frozenset[str]) -> pd.Series:
    """Return a column as its schema describes it.

    Parameters
    ----------
    column : TableColumn
        The column of the schema.
    texts : sequence of str
        As they stand in the file.
    missing : frozenset of str
        Texts that mean a missing value; a category of the schema does not.

    Returns
    -------
    Series

    Raises
    ------
    CommandError
        If a text cannot be read; it is not quoted.
    """
    if isinstance(column, NumericColumn):
        return _declared_numbers(column, _present(texts, missing))
    if isinstance(column, BooleanColumn):
        return _declared_booleans(column, _present(texts, missing))
    if isinstance(column, CategoricalColumn):
        levels = {str(level): level for level in column.levels} if column.is_resolved else {}
        values = _present(texts, missing - levels.keys())
        held = _held(column)
        if held == "number":
            return pd.Series(_checked_numbers(column, values, _number), dtype=object)
        if held == "text":
            return _strings(values)
        known = [None if value is None else levels.get(value, value) for value in values]
        return pd.Series(known, dtype=object)
    if isinstance(column, DatetimeColumn):
        return _strings(_present(texts, missing))
    raise CommandError(f"Column {column.name!r}: {column.kind} columns cannot be read from text.")


def _declared_numbers(column: NumericColumn, values: list[str | None]) -> pd.Series:
    if not column.integer:
        return _doubles(_checked_numbers(column, values, _double))
    try:
        found = _checked_numbers(column, values, _number)
        numbers = [None if number is None else as_integer(number) for number in found]
    except OverflowError:
        numbers = None
    if numbers is None:
        raise CommandError(
            f"Column {column.name!r} holds infinity, or a number as large; every value must be "
            "finite or missing."
        )
    return _whole(numbers)


def _checked_numbers(
    column: TableColumn, values: list[str | None], convert: Conversion
) -> list[Number | None]:
    numbers = _numbers(values, convert)
    if numbers is None:
        raise CommandError(
            f"Column {column.name!r} holds a text that is no number (not shown, because it may be "
            "private). Is it a missing value? Then name it by --missing. Are there separators, as "
            "in 1,234.50? Write 1234.50. If the column holds categories, declare them in the "
            "schema."
        )
    return numbers


def _declared_booleans(column: TableColumn, values: list[str | None]) -> pd.Series:
    truths = _truths(values, _BOOLEANS | _DIGITS)
    if truths is None:
        raise CommandError(
            f"Column {column.name!r} holds a text that is neither true nor false (not shown, "
            "because it may be private). Name missing values by --missing, or declare the column "
            "as categorical in the schema."
        )
    return truths


def _held(column: CategoricalColumn) -> str:
    """Return "text", "number" or "boolean", or "several" kinds, that the categories are."""
    if column.is_resolved:
        kinds = {key[0] for level in column.levels if (key := category_key(level)) is not None}
        return kinds.pop() if len(kinds) == 1 else "several"
    if column.dtype is None:
        return "text"
    family = dtype_family(category_dtype(column.dtype) or column.dtype)
    return "number" if family in ("integer", "float") else "text"


def _present(texts: Texts, missing: frozenset[str]) -> list[str | None]:
    return [None if text in missing else text for text in texts]


def _inferred_numbers(values: list[str | None]) -> pd.Series | None:
    """Return texts as integers if they all are, else as floats; None if some are no numbers."""
    numbers = _numbers(values, _number)
    if numbers is None:
        return None
    if any(isinstance(number, float) for number in numbers):
        return _doubles(_numbers(values, _double))
    present = [number for number in numbers if number is not None]
    if present and not -(2**63) <= min(present) <= max(present) < 2**63:
        return None
    return _whole(numbers) if len(present) < len(numbers) else pd.Series(numbers, dtype="int64")


def _numbers(values: list[str | None], convert: Conversion) -> list[Number | None] | None:
    """Return texts as numbers, None if some are none. What is NaN is missing."""
    try:
        return [None if value is None else convert(value) for value in values]
    except ValueError:  # it quotes the text
        return None


def _number(text: str) -> Number | None:
    """Return an integer, which may have any size, or else the nearest double."""
    number = _double(text)
    try:
        return int(text)
    except ValueError:
        return number


def _double(text: str) -> float | None:
    """Return the nearest double."""
    if "_" in text or not text.isascii():  # Python reads more than other programs do
        raise ValueError
    number = float(text)
    return None if math.isnan(number) else number


def _doubles(numbers: Sequence[Number | None] | None) -> pd.Series:
    return pd.Series(np.array(numbers, dtype=np.float64))  # NaN for None


def _whole(numbers: Sequence[Number | None]) -> pd.Series:
    """Return integers of 64 bits, exactly, some of which may be missing."""
    missing = np.array([number is None for number in numbers], dtype=bool)
    values = np.array([0 if number is None else number for number in numbers], dtype=np.int64)
    return pd.Series(pd.arrays.IntegerArray(values, missing))


def _truths(values: list[str | None], known: dict[str, bool]) -> pd.Series | None:
    """Return texts as nullable booleans, None if some are no truth values."""
    if not known.keys() >= {value for value in values if value is not None}:
        return None
    found = [None if value is None else known[value] for value in values]
    return pd.Series(found, dtype="boolean")


def _strings(values: list[str | None]) -> pd.Series:
    return pd.Series(values, dtype=pandas_dtype("str", True))
