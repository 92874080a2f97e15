"""What the values of a table suggest about its schema. They are read without any privacy."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

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

__all__ = ["guess_columns", "tells_who"]

_FEW = 100
_MOST_DISTINCT = 0.5
_FEW_ROWS = 20
_HEAVY = 3.0
_LARGEST_INTEGER = 2**53
_LARGEST_LOG_RANGE = 2**39
_MOST = 0.9  # of the distinct texts that tell what they are

# Names of columns that tell who somebody is, when words for the person are taken off.
_PERSON = r"(patient|person|people|customer|client|employee|student|user|member|contact|subject)s?"
_WHO = re.compile(
    rf"({_PERSON})?((full|first|last|middle|maiden|given|family|sur|fore|nick|user)?names?"
    r"|ids?|identifiers?|(street|home|postal|e?mail|ip)?address(es)?|e?mail"
    r"|(phone|telephone|mobile|passport|socialsecurity)(no|numbers?)?|ssn|mrn|iban)"
)
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE = re.compile(
    r"\s*(\d{4}([./-])\d{1,2}\2\d{1,2}|\d{1,2}([./-])\d{1,2}\3(\d{4}|\d{2})"
    rf"|\d{{1,2}}[\s./-]*{_MONTH}[\s.,/-]*(\d{{4}}|\d{{2}})"
    rf"|{_MONTH}\.?\s*\d{{1,2}},?\s*\d{{4}})(\D.*)?",
    re.ASCII | re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+(]?\s*[$€£¥]?\s*\d{1,3}([,.'\s]?\d{3})*([.,]\d+)?\s*[%$€£¥]?\s*\)?")
_NUMBER_AND_UNIT = re.compile(r"[-+<>~]?\s*\d+([.,]\d+)?\s*([^\d\s]*)")
_NO_DATE = (
    "left out: its texts look like dates, and not all are in ISO format (2024-01-31). Convert it, "
    "with pandas.to_datetime(column, dayfirst=True) for instance, or format='mixed'."
)
_NO_NUMBER = (
    "left out: its texts look like numbers with separators or units, such as 1,234.50 or 75 kg, or "
    "with words among them. Write plain numbers such as 1234.50, and nothing where one is missing; "
    "pandas.read_csv(path, thousands=',') reads 1,234.50, with decimal=',' and thousands='.' it "
    "reads 1.234,50."
)


def tells_who(name: str) -> bool:
    """Return whether the name of a column, which is public, says that it tells who somebody is."""
    word = re.sub(r"[\W_]+", "", name).lower()
    return bool(word) and _WHO.fullmatch(word) is not None


def guess_columns(
    table: Table,
    exclude: Iterable[str],
    include: Iterable[str],
    public: Callable[[Table, str], TableColumn],
) -> tuple[tuple[TableColumn, ...], tuple[str, ...], tuple[str, ...]]:
    """Guess a column of a schema for each column of a table.

    Parameters
    ----------
    table : Table
        Its values are read.
    exclude : iterable of str
        Columns to leave out.
    include : iterable of str
        Columns to keep, whatever they look like.
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
        keep = name in include
        if tells_who(name) and not keep:
            excluded.append(name)
            notes.append(f"{name!r}: left out: by its name it tells who somebody is.")
            continue
        try:
            column, note = _guess(table.column(name), public(table, name), keep)
        except ValueError as error:
            column, note = None, f"{str(error).removeprefix(f'Column {name!r}').lstrip(': ')}"
        if column is None:
            excluded.append(name)
        else:
            columns.append(column)
        if note:
            notes.append(f"{name!r}: {note}")
    return tuple(columns), tuple(excluded), tuple(notes)


def _guess(values: PlainColumn, column: TableColumn, keep: bool) -> tuple[TableColumn | None, str]:
    """Return a column and a note about it, which may be empty; None for what is left out."""
    column = column.replace(missing=bool(values.missing.any()))
    if not len(values.present):
        return None, "left out: it holds no value."
    if isinstance(column, NumericColumn):
        return _numeric(values, column)
    if isinstance(column, DatetimeColumn):
        return _datetimes(values, column), ""
    if isinstance(column, CategoricalColumn) and (column.categories is None or keep):
        return _text(values, column.replace(categories=None, ordered=False), keep)
    if isinstance(column, CategoricalColumn):  # its data type lists categories
        why = _left_out(column.levels, len(values.present))
        return (None, why) if why else (column, "")
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


def _text(
    values: PlainColumn, column: CategoricalColumn, keep: bool
) -> tuple[TableColumn | None, str]:
    codes, distinct = distinct_values(values)
    keys = [category_key(value) for value in distinct]
    if None in keys:
        return None, "left out: it holds things that are neither strings nor numbers."
    n, k = len(values.present), len(distinct)
    if all(key[0] == "boolean" for key in keys if key):
        return BooleanColumn(column.name, missing=column.missing, dtype=column.dtype), ""
    if (times := _as_times(values, column)) is not None:
        return times, "text that reads as dates; they are decoded as dates."
    if not keep and (why := _left_out(distinct, n)):
        return None, why
    if k > _FEW or keep:
        return column, (
            f"has {k} distinct texts; those that occur often enough will be selected privately. "
            "List them if they are public."
        )
    ordered = sorted(key for key in keys if key)
    note = "" if k < n or n < 2 else "every text occurs once. Is it an identifier?"
    return column.replace(categories=[key[1] for key in ordered]), note


def _left_out(distinct: Iterable[Any], n: int) -> str:
    """Say why a column of texts, `n` of them, is no list of categories; empty if it may be one."""
    values = list(distinct)
    texts = [value for value in values if isinstance(value, str)]
    if sum(map(bool, map(_DATE.fullmatch, texts))) > _MOST * len(texts):
        return _NO_DATE
    alike = [text for text in texts if _NUMBER.fullmatch(text.strip())]
    if len(alike) > _MOST * len(texts) and not all(map(_is_float, alike)):
        return _NO_NUMBER
    if len(texts) == len(values) > _FEW and _have_units(texts):
        return _NO_NUMBER
    if len(values) > _MOST_DISTINCT * n and n >= _FEW_ROWS:
        return (
            f"left out: {len(values)} distinct texts in {n} rows look like identifiers or free "
            "text. Drop the column, or leave it excluded."
        )
    return ""


def _have_units(texts: Iterable[str]) -> bool:
    """Whether all but three texts are numbers, with two units at most, and not all are plain."""
    matches = {text: _NUMBER_AND_UNIT.fullmatch(text.strip()) for text in texts}
    numbers = [match for match in matches.values() if match]
    units = {match[2] for match in numbers}
    plain = all(map(_is_float, matches))
    return len(numbers) >= len(matches) - 3 and len(units) <= 2 and not plain


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
