"""Conditions on synthetic rows as they are typed, such as ``age=30..40``."""

import json
import re
from collections.abc import Iterable
from typing import Any

from skdpot.cli.console import USAGE, CommandError
from skdpot.cli.schemas import known_column
from skdpot.tables.column_base import TableColumn
from skdpot.tables.conditions import parse_conditions
from skdpot.tables.row_map import RowMap
from skdpot.tables.schema import TableSchema

_SYNTAX = (
    "Write COLUMN=VALUE, COLUMN=ONE,ANOTHER for categories, COLUMN=LOW..HIGH, COLUMN>=LOW or "
    'COLUMN<=HIGH for numbers and dates, COLUMN= for missing values, or JSON: {"age": [30, 40]}.'
)


def read_conditions(texts: Iterable[str], schema: TableSchema) -> dict[str, Any]:
    """Read conditions as `DPTableSynthesizer.sample` takes them."""
    conditions: dict[str, Any] = {}
    for text in texts:
        for name, operator, value in _parsed(text, schema):
            column = known_column(schema, name)
            read = _from_json if operator == "json" else _from_text
            wanted = read(column, operator, value)
            if name in conditions:
                wanted = _joined(name, conditions[name], wanted)
            conditions[name] = wanted
    return conditions


def check_conditions(conditions: dict[str, Any], schema: TableSchema, *, kept: bool) -> None:
    """Refuse conditions that no row can satisfy, before the charge."""
    open_columns = [name for name in conditions if not schema[name].is_resolved]
    if open_columns and not kept:
        raise CommandError(
            f"--where on {', '.join(map(repr, open_columns))}: the schema leaves the values open, "
            "so only the fit, which costs privacy, shows whether a row can satisfy the condition. "
            "Add --save to keep the fit in any case, or state the values in the schema."
        )
    known = {name: wanted for name, wanted in conditions.items() if name not in open_columns}
    resolved = tuple(column.grid() for column in schema if column.is_resolved)
    parse_conditions(known, resolved)
    if schema.is_resolved:
        RowMap(schema).split(conditions)


def _parsed(text: str, schema: TableSchema) -> list[tuple[str, str, Any]]:
    if text.lstrip().startswith("{"):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise CommandError(f"--where {text}: this is not a JSON object. {_SYNTAX}", USAGE)
        return [(name, "json", value) for name, value in content.items()]
    # The longest name first: a name may contain an operator.
    for name in sorted(filter(text.startswith, schema.names), key=len, reverse=True):
        if rest := re.fullmatch(r"\s*(>=|<=|=)(.*)", text.removeprefix(name), re.DOTALL):
            return [(name, rest[1], rest[2].strip())]
    name, operator, _ = re.split(r"([<>]?=|[<>]|\Z)", text, maxsplit=1)
    if operator in ("", "<", ">"):
        raise CommandError(f"--where {text}: this is not a condition. {_SYNTAX}", USAGE)
    return [(name.strip(), operator, None)]


def _from_text(column: TableColumn, operator: str, text: str) -> Any:
    if not column.on_scale:
        if operator != "=":
            raise CommandError(f"--where: {column.name!r} has no order; use =.", USAGE)
        return _typed(column, text)
    if operator == "=" and not text:
        return None
    low, dots, high = text.partition("..")
    if operator == "=" and not dots:
        value = _typed(column, low)
        return (value, value)
    if dots and operator != "=":
        raise CommandError(f"--where {column.name}{operator}{text}: give one value.", USAGE)
    if operator == ">=":
        high = ""
    elif operator == "<=":
        low, high = "", low
    return (_typed(column, low) if low else None, _typed(column, high) if high else None)


def _from_json(column: TableColumn, _: str, value: Any) -> Any:
    if not column.on_scale or value is None:
        return value
    if isinstance(value, list):
        if len(value) != 2:
            raise CommandError(f"--where: {column.name!r} takes [smallest, largest].", USAGE)
        return tuple(None if end is None else _typed(column, end) for end in value)
    return (_typed(column, value),) * 2


def _typed(column: TableColumn, text: Any) -> Any:
    try:
        return column.condition(text)
    except ValueError as error:
        raise CommandError(f"--where: {error}", USAGE) from None


def _joined(name: str, before: Any, after: Any) -> Any:
    """Return both of ``age>=30`` and ``age<=40``; refuse other pairs on one column."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        ends = list(zip(before, after, strict=True))
        if all(None in pair for pair in ends):
            return tuple(old if new is None else new for old, new in ends)
    raise CommandError(
        f"--where names {name!r} twice. For several categories write {name}=ONE,ANOTHER.", USAGE
    )
