"""What is proposed for the columns of a table: by their data types, or by their values."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.column_base import TableColumn, tells_who
from skdpot.tables.frames import Table, dtype_family
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.time_columns import DatetimeColumn, TimedeltaColumn

# Every kind of column that there is. The first that reads the data type of a column is guessed,
# and the first that reads all texts of a column.
_SCALES = (DatetimeColumn, TimedeltaColumn, NumericColumn)
KINDS: tuple[type[TableColumn], ...] = (*_SCALES, CategoricalColumn, BooleanColumn)
_OF_FAMILY = {family: kind for kind in reversed(KINDS) for family in kind.families}


class Proposal(NamedTuple):
    """A column as it is proposed, None to leave it out, why, and what to check."""

    name: str
    column: TableColumn | None
    why: str
    note: str = ""


def column_from_dtype(table: Table, name: str) -> TableColumn:
    """Return a column of which only public facts are known."""
    dtype = table.dtype(name)
    return _OF_FAMILY[dtype_family(dtype)].from_dtype(name, dtype, table.can_miss(name))


def propose(
    X: Any, exclude: Iterable[str], include: Iterable[str], read: Mapping[str, str]
) -> list[Proposal]:
    """Propose something for each column of a table, by its values."""
    table = Table.of(X)
    given = {"exclude": tuple(exclude), "include": tuple(include), "read": tuple(read)}
    for argument, names in given.items():
        for name in names:
            if name not in table.names:
                raise ValueError(f"{argument} names {name!r}, which is not a column of the table.")
    return [
        Proposal(name, None, "you say so")
        if name in given["exclude"]
        else _proposal(table, name, name in given["include"], read.get(name))
        for name in table.names
    ]


def _proposal(table: Table, name: str, keep: bool, how: str | None) -> Proposal:
    if tells_who(name) and not keep and how is None:
        note = "left out: columns with such names identify people."
        return Proposal(name, None, "its name", note)
    try:
        values = table.column(name)
        plain = column_from_dtype(table, name).replace(missing=bool(values.missing.any()))
        known, ordered = table.categories(name) or ([], False)
        plain = plain.replace(categories=known, ordered=ordered) if known else plain
        if not len(values.present):
            return Proposal(name, None, "its values", "left out: it holds no value.")
        if how is not None:
            if how == "categories":
                listed = tuple(key[1] for key in sorted(key for key in values.keys if key))
                column = CategoricalColumn(name, missing=plain.missing, categories=listed)
                return Proposal(name, column, "you say so")
            told: TableColumn
            if "%y" in how.lower():
                told = DatetimeColumn(name, missing=plain.missing, formats=(how,))
            else:
                told = NumericColumn(name, missing=plain.missing, written=how)
            found, note = told.guessed(told.read(values), True)
            return Proposal(name, found, "you say so", note)
        proposed: TableColumn | None = plain
        why, distinct = "", values.distinct[1]
        if values.values.dtype.kind == "O" and (keep or not plain.is_resolved):
            texts = [text for text in distinct if isinstance(text, str)]
            if len(texts) == len(distinct):
                proposed, why = _of_texts(texts, plain)
        if proposed is None:
            return Proposal(name, None, "its values", why)
        found, note = proposed.guessed(proposed.read(values) if why else values, keep)
        return Proposal(name, found, why or (found or proposed).nouns, note)
    except ValueError as error:
        note = str(error).removeprefix(f"Column {name!r}").lstrip(": ")
        return Proposal(name, None, "its values", note)


def _of_texts(texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
    """Return the column of the first kind that reads all texts, and why; by default `base`."""
    for kind in KINDS:
        column, why = kind.from_texts(texts, base)
        if why:
            return None if column is None else column, why
    return base, ""
