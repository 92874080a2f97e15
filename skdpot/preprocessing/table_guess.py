"""What the values of a table suggest about its schema. They are read without any privacy."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_values import (
    PlainColumn,
    category_key,
    distinct_values,
    read_column,
)

__all__ = ["guess_columns"]

_FEW = 100
_MOST_DISTINCT = 0.9
_FEW_ROWS = 20
_HEAVY = 3.0
_LARGEST_INTEGER = 2**53
_LARGEST_LOG_RANGE = 2**39


def guess_columns(
    table: Table, exclude: Iterable[str], public: Callable[[Table, str], TableColumn]
) -> tuple[tuple[TableColumn, ...], tuple[str, ...], tuple[str, ...]]:
    """Guess a column of a schema for each column of a table.

    Parameters
    ----------
    table : Table
        Its values are read.
    exclude : iterable of str
        Columns to leave out.
    public : callable
        Returns what the data type alone says about a column.

    Returns
    -------
    columns : tuple of TableColumn
        What can be described.
    excluded : tuple of str
        What was left out: what the caller asked for, and what a note is about.
    notes : tuple of str
        What to look at.
    """
    columns: list[TableColumn] = []
    excluded = list(exclude)
    notes: list[str] = []
    for name in table.names:
        if name in excluded:
            continue
        try:
            column, note = _guess(table.column(name), public(table, name))
        except ValueError as error:
            column, note = None, f"{str(error).removeprefix(f'Column {name!r}').lstrip(': ')}"
        if column is None:
            excluded.append(name)
        else:
            columns.append(column)
        if note:
            notes.append(f"{name!r}: {note}")
    return tuple(columns), tuple(excluded), tuple(notes)


def _guess(values: PlainColumn, column: TableColumn) -> tuple[TableColumn | None, str]:
    """Return a column and a note about it, which may be empty; None for what is left out."""
    column = column.replace(missing=bool(values.missing.any()))
    if not len(values.present):
        return None, "left out: it holds no value."
    if isinstance(column, NumericColumn):
        return _numeric(values, column)
    if isinstance(column, DatetimeColumn):
        return _datetimes(values, column), ""
    if isinstance(column, CategoricalColumn) and column.categories is None:
        return _text(values, column)
    return column, ""


def _numeric(values: PlainColumn, column: NumericColumn) -> tuple[TableColumn | None, str]:
    present = values.present
    finite = present[np.isfinite(present)]
    if not len(finite):
        return None, "left out: it holds no finite number."
    note = ""
    if len(finite) < len(present):
        note = "holds infinity, which an encoder refuses; replace it by a number or by missing."
    low, high = finite.min().item(), finite.max().item()
    whole = finite.dtype.kind in "iu" or (
        bool((finite == np.rint(finite)).all()) and max(-low, high) < _LARGEST_INTEGER
    )
    lower, upper = _rounded_outwards(low, high, whole)
    with np.errstate(all="ignore"):
        heavy = high - lower > _HEAVY * (np.quantile(finite, 0.99).item() - lower)
    distinct = len(np.unique(finite)) == len(finite) >= _FEW_ROWS
    if whole and distinct and high - low >= len(finite) - 1:
        note = (
            "every number occurs once. Exclude the column if it identifies rows or people; "
            "encoded, it would only be noise."
        )
    if column.dtype is not None and whole:
        lower, upper = _within_dtype(lower, upper, column.dtype)
    found = column.replace(
        integer=whole,
        lower=int(lower) if whole else float(lower),
        upper=int(upper) if whole else float(upper),
        log_scale=bool(lower >= 0 and heavy and not (whole and high - low > _LARGEST_LOG_RANGE)),
    )
    return found, note


def _rounded_outwards(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Round a range outwards to multiples of 5 % to 50 % of it; of few integers keep the ends."""
    length = high - low
    if (whole and length <= _FEW_ROWS) or not 1e-290 < length < 1e290:
        return low, high
    exponent = math.floor(math.log10(length)) - 1
    if whole:
        step = max(5 * 10**exponent, 1)
        return math.floor(low) // step * step, -(-math.ceil(high) // step) * step
    # Division by a power of ten gives the float next to the decimal number, so that 0.15 is 0.15.
    steps = 5 * 10.0**exponent
    first, last = math.floor(low / steps) * 5, math.ceil(high / steps) * 5
    scale = 10.0 ** abs(exponent)
    lower, upper = (n * scale if exponent > 0 else n / scale for n in (first, last))
    return min(lower, low), max(upper, high)


def _within_dtype(lower: float, upper: float, dtype: str) -> tuple[float, float]:
    if "int" not in dtype.lower():
        return lower, upper
    limits = np.iinfo(dtype.lower())
    return max(lower, limits.min), min(upper, limits.max)


def _datetimes(values: PlainColumn, column: DatetimeColumn) -> DatetimeColumn:
    """Choose the longest ticks on which all times lie, and whole days that hold them."""
    kept = PlainColumn(values.present, np.zeros(len(values.present), dtype=bool), values.dtype)
    found = column
    for resolution in ("D", "h", "min", "s"):
        found = column.replace(resolution=resolution)
        seconds = found.seconds(kept)
        found = found.replace(**found.iso_bounds(int(seconds.min()), int(seconds.max()) + 1))
        decoded = read_column(found.from_unit(found.to_unit(kept)))
        if np.array_equal(decoded.values, kept.values):
            break
    return found


def _text(values: PlainColumn, column: CategoricalColumn) -> tuple[TableColumn | None, str]:
    codes, distinct = distinct_values(values)
    keys = [category_key(value) for value in distinct]
    if None in keys:
        return None, "left out: it holds things that are neither strings nor numbers."
    n, k = len(values.present), len(distinct)
    if all(key[0] == "boolean" for key in keys if key):
        return BooleanColumn(column.name, missing=column.missing, dtype=column.dtype), ""
    if (times := _as_times(values, column)) is not None:
        return times, "text that reads as dates; they are decoded as dates."
    if k > _MOST_DISTINCT * n and n >= _FEW_ROWS:
        return None, (
            f"left out: {k} distinct texts in {n} rows look like identifiers or free text. Drop "
            "the column, or leave it excluded."
        )
    if k > _FEW:
        return column, (
            f"has {k} distinct texts; those that occur often enough will be selected privately. "
            "List them if they are public."
        )
    ordered = sorted(key for key in keys if key)
    note = "" if k < n or n < 2 else "every text occurs once. Is it an identifier?"
    return column.replace(categories=[key[1] for key in ordered]), note


def _as_times(values: PlainColumn, column: CategoricalColumn) -> DatetimeColumn | None:
    """Return a column of times if all texts are dates in ISO format."""
    texts = {value for value in values.present[:1000] if isinstance(value, str)}
    if not texts or not all(len(text) >= 8 and text[:4].isdigit() for text in texts):
        return None
    proposed = DatetimeColumn(column.name, missing=column.missing, dtype="datetime64[s]")
    try:
        return _datetimes(proposed.read_times(values), proposed)
    except ValueError:
        return None
