"""Proposed columns for a table: by data types, by values, or as a user says."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from skdpot._utils.nothing import is_nothing
from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.datetime_column import DatetimeColumn
from skdpot.tables.dtypes import dtype_family
from skdpot.tables.frames import Table
from skdpot.tables.identifiers import tells_who
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.timedelta_column import TimedeltaColumn

# All kinds of columns. A guess takes the first that reads a data type, or all texts of a column.
_SCALES = (DatetimeColumn, TimedeltaColumn, NumericColumn)
KINDS: tuple[type[TableColumn], ...] = (*_SCALES, CategoricalColumn, BooleanColumn)
_OF_FAMILY = {family: kind for kind in reversed(KINDS) for family in kind.families}


# How a user says that texts are read, besides formats of dates and examples of numbers.
CATEGORIES, TRUTHS, DURATIONS = "categories", "truth values", "durations"
_TOLD: dict[str, Any] = {
    CATEGORIES: CategoricalColumn,
    TRUTHS: BooleanColumn,
    DURATIONS: TimedeltaColumn,
}
_PLAIN = {"1234": True, "1234.50": False}  # examples of plain numbers, integers or not


class Proposal(NamedTuple):
    """A proposed column (None: left out), the reason, and a note for the user."""

    name: str
    column: TableColumn | None
    why: str
    note: str = ""


def column_from_dtype(table: Table, name: str) -> TableColumn:
    """Return a column from public facts alone."""
    dtype = table.dtype(name)
    return _OF_FAMILY[dtype_family(dtype)].from_dtype(name, dtype, table.can_miss(name))


def told_column(name: str, how: str | Sequence[str], missing: bool) -> TableColumn:
    """Return a column whose texts are read as a user says."""
    formats = (how,) if isinstance(how, str) else tuple(how)
    if formats[0] in _TOLD:
        return _TOLD[formats[0]](name, missing=missing)
    if "%y" in formats[0].lower():
        zone = "datetime64[s, UTC]" if any("%z" in form for form in formats) else None
        days = not any(part in form for form in formats for part in ("%H", "%I"))
        stated: dict[str, Any] = {"dtype": zone, "resolution": "D" if days else "s"}
        return DatetimeColumn(name, missing=missing, formats=formats, **stated)
    if formats[0] in _PLAIN:
        return NumericColumn(name, missing=missing, integer=_PLAIN[formats[0]])
    return NumericColumn(name, missing=missing, written=formats[0])


def propose(
    X: Any,
    exclude: Iterable[str],
    include: Iterable[str],
    read: Mapping[str, str | Sequence[str]],
    *,
    by_values: bool = True,
) -> list[Proposal]:
    """Propose a column for each column of a table, by its values or by public facts alone."""
    table = Table.of(X)
    excluded, included, known = set(exclude), set(include), set(table.names)
    for argument, names in (("exclude", excluded), ("include", included), ("read", read)):
        for name in names:
            if name not in known:
                raise ValueError(f"{argument} names {name!r}, which is not a column of the table.")
    return [
        Proposal(name, None, "you say so")
        if name in excluded
        else _propose_column(table, name, name in included, read.get(name), by_values)
        for name in table.names
    ]


def _propose_column(table: Table, name: str, keep: bool, how: Any, by_values: bool) -> Proposal:
    if tells_who(name) and not keep and how is None:
        note = "left out: columns with such names identify people."
        return Proposal(name, None, "its name", note)
    source = "its values" if by_values else "its data type"
    try:
        plain = column_from_dtype(table, name)
        if not by_values:
            told = plain if how is None else told_column(name, how, plain.missing)
            return Proposal(name, told, source if how is None else "you say so")
        values = table.column(name)
        plain = plain.replace(missing=bool(values.missing.any()))
        known, ordered = table.categories(name) or ([], False)
        plain = plain.replace(categories=known, ordered=ordered) if known else plain
        if not len(values.present):
            return Proposal(name, None, source, "left out: it holds no value.")
        if how is not None:
            told = told_column(name, how, plain.missing)
            if how == CATEGORIES:
                listed = tuple(key[1] for key in sorted(key for key in values.keys if key))
                return Proposal(name, told.replace(categories=listed), "you say so")
            guess, note = told.guessed(told.read(values), True)
            return Proposal(name, guess, "you say so", note)
        proposed: TableColumn | None = plain
        why, distinct = "", values.distinct[1]
        if values.values.dtype.kind == "O" and (keep or not plain.is_resolved):
            texts = [text for text in distinct if isinstance(text, str)]
            if len(texts) == len(distinct):
                proposed, why = _column_of_texts(texts, plain)
        if proposed is None:
            return Proposal(name, None, "its values", why)
        guess, note = proposed.guessed(proposed.read(values) if why else values, keep)
        return Proposal(name, guess, why or (guess or proposed).nouns, note)
    except ValueError as error:
        note = str(error).removeprefix(f"Column {name!r}").lstrip(": ")
        return Proposal(name, None, source, note)


def _column_of_texts(texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
    """Return the column of the first kind that reads all texts, and the reason; else `base`."""
    seen = [text for text in texts if not is_nothing(text)]
    missing = base.missing or len(seen) < len(texts)
    for kind in KINDS if seen else ():
        column, why = kind.from_texts(seen, base.replace(missing=missing))
        if why:
            return column, why
    return base, ""
