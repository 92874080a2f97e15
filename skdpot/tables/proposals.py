"""What the values of a table suggest about its columns, and why: for a person who confirms it.

Nothing here is private. The values are read as they are, and every proposal depends on them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.frames import Table, dtype_family
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.time_columns import DatetimeColumn, TimedeltaColumn

# Every kind of column that there is.  The first that reads the data type of a column is guessed,
# and the first that reads all texts of a column.
KINDS: tuple[type[TableColumn], ...] = (
    DatetimeColumn,
    TimedeltaColumn,
    NumericColumn,
    CategoricalColumn,
    BooleanColumn,
)
_OF_FAMILY = {family: kind for kind in reversed(KINDS) for family in kind.families}
_CATEGORIES = "categories"

# Names of columns that tell who somebody is, when words for the person are taken off.
_PERSON = r"(patient|person|people|customer|client|employee|student|user|member|contact|subject)s?"
_WHO = re.compile(
    rf"({_PERSON})?((full|first|last|middle|maiden|given|family|sur|fore|nick|user)?names?"
    r"|ids?|identifiers?|(street|home|postal|e?mail|ip)?address(es)?|e?mail"
    r"|(phone|telephone|mobile|passport|socialsecurity)(no|numbers?)?|ssn|mrn|iban)"
)


class Proposal(NamedTuple):
    """A column as it is proposed, None to leave it out, why, and what to check."""

    name: str
    column: TableColumn | None
    why: str
    note: str = ""


def tells_who(name: str) -> bool:
    """Return whether the name of a column, which is public, says that it tells who somebody is."""
    word = re.sub(r"[\W_]+", "", name).lower()
    return bool(word) and _WHO.fullmatch(word) is not None


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
        plain = _column_with_categories(table, name).replace(missing=bool(values.missing.any()))
        if not len(values.present):
            return Proposal(name, None, "its values", "left out: it holds no value.")
        if how is not None:
            if how == _CATEGORIES:
                listed = tuple(key[1] for key in sorted(key for key in values.keys if key))
                column = CategoricalColumn(name, missing=plain.missing, categories=listed)
                return Proposal(name, column, "you say so")
            told = _told(plain, how)
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


def _told(column: TableColumn, how: str) -> TableColumn:
    """Return a column of texts that are read as somebody says."""
    if "%Y" in how or "%y" in how:
        return DatetimeColumn(column.name, missing=column.missing, formats=(how,))
    return NumericColumn(column.name, missing=column.missing, written=how)


def _column_with_categories(table: Table, name: str) -> TableColumn:
    column, listed = column_from_dtype(table, name), table.categories(name)
    if listed is None or not listed[0]:
        return column
    return column.replace(categories=listed[0], ordered=listed[1])
