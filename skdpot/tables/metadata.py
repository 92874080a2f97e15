"""Columns from metadata of SDV, Frictionless and Croissant, and metadata for SDV.

These formats rarely state bounds or lists of categories; missing ones are estimated privately.
Columns that identify people, or that no kind of column can hold, are excluded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from skdpot.tables.categorical_column import BooleanColumn, CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.datetime_column import DatetimeColumn
from skdpot.tables.identifiers import tells_who
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.timedelta_column import TimedeltaColumn

DescribedColumns: TypeAlias = Iterator[tuple[str, TableColumn | None]]

_SPEC = "SINGLE_TABLE_V1"  # version of the metadata of SDV


def columns_of(content: Any, table: str | None) -> dict[str, TableColumn | None] | None:
    """Return the columns of metadata, None for excluded ones; None if it is no known format.

    `table` names one of several. Values may be missing unless the metadata say otherwise.
    """
    for entry, read in _FORMATS.items():
        if isinstance(content, Mapping) and isinstance(content.get(entry), list | dict):
            try:
                several = entry in ("recordSet", "tables", "resources")
                columns = dict(read(_table(content[entry], table) if several else content))
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(f"This is not a schema: {entry!r} cannot be read.") from error
            return {n: None if tells_who(n) else c for n, c in columns.items()}
    return None


def sdv_metadata(columns: tuple[TableColumn, ...]) -> dict[str, Any]:
    """Describe columns as SDV and SDMetrics do."""
    return {
        "columns": {column.name: column.to_sdv() for column in columns},
        "METADATA_SPEC_VERSION": _SPEC,
    }


def _table(tables: Any, name: str | None) -> Any:
    """Return the part of metadata about one of its tables."""
    named = {table.get("name"): table for table in tables} if isinstance(tables, list) else tables
    if name is None and len(named) == 1:
        (name,) = named
    if name not in named:
        known = ", ".join(map(str, named)) or "no table"
        raise ValueError(f"The metadata describe {known}: state table=.")
    return named[name]


def _of_sdv(table: Any) -> DescribedColumns:
    for name, entry in table["columns"].items():
        kind = entry["sdtype"]
        if kind == "datetime":
            written = entry.get("datetime_format")
            yield name, _of_dates(name, written, "%H" in (written or "%H"))
        elif kind == "numerical":
            held = str(entry.get("computer_representation", "Float"))
            yield name, NumericColumn(name, integer="Int" in held, missing=True)
        else:
            kinds: dict[str, Any] = {"categorical": CategoricalColumn, "boolean": BooleanColumn}
            yield name, kinds[kind](name, missing=True) if kind in kinds else None


def _of_frictionless(table: Any) -> DescribedColumns:
    schema = table.get("schema", table)
    keys = schema.get("primaryKey", [])
    keys = {keys} if isinstance(keys, str) else set(keys)
    for entry in schema["fields"]:
        name, rules = entry["name"], entry.get("constraints", {})
        identifies = name in keys or rules.get("unique")
        of_text = entry.get("format", "default") in ("default", "any")
        missing = not rules.get("required", False)
        yield name, None if identifies else _of_field(name, entry, rules, missing, of_text)


def _of_field(
    name: str, entry: Any, rules: Any, missing: bool, of_text: bool
) -> TableColumn | None:
    kind = entry.get("type", "string")
    listed = rules.get("enum") or entry.get("categories")
    if listed and kind in ("string", "integer", "number"):
        values = tuple(v["value"] if isinstance(v, dict) else v for v in listed)
        ordered = bool(entry.get("categoriesOrdered", False))
        return CategoricalColumn(name, missing=missing, categories=values, ordered=ordered)
    bounds = {"lower": rules.get("minimum"), "upper": rules.get("maximum"), "missing": missing}
    if kind in ("integer", "number", "year"):
        comma = entry.get("decimalChar") == ","
        texts = comma or "groupChar" in entry
        written = ("1.234,50" if comma else "1,234.50") if texts else None
        return NumericColumn(name, integer=kind != "number", written=written, **bounds)
    if kind in ("date", "datetime"):
        form = entry.get("format", "default")
        written = form if "%" in form else None
        return _of_dates(name, written, kind == "datetime", **bounds)
    if kind == "duration":
        return TimedeltaColumn(name, **bounds)
    if kind == "boolean":
        return BooleanColumn(name, missing=missing)
    return CategoricalColumn(name, missing=missing) if kind == "string" and of_text else None


def _of_croissant(table: Any) -> DescribedColumns:
    fields = table["field"]
    for entry in [fields] if isinstance(fields, dict) else fields:
        source = entry.get("source", {})
        name = source.get("extract", {}).get("column") or entry["name"].rpartition("/")[2]
        stated = entry.get("dataType", "sc:Text")
        listed = [stated] if isinstance(stated, str) else list(stated)
        types = {t.rpartition(":")[2].rpartition("/")[2] for t in listed}
        known = (make for kind, make in _CROISSANT.items() if kind in types)
        yield name, next(known, lambda _: None)(name)


def _of_dates(name: str, written: str | None, has_time: bool, **options: Any) -> TableColumn:
    formats = () if written is None else (written,)
    options = {"missing": True, "resolution": "s" if has_time else "D"} | options
    return DatetimeColumn(name, formats=formats, **options)


_CROISSANT: dict[str, Callable[[str], TableColumn]] = {
    "Enumeration": lambda name: CategoricalColumn(name, missing=True),
    "Boolean": lambda name: BooleanColumn(name, missing=True),
    "Integer": lambda name: NumericColumn(name, integer=True, missing=True),
    "Float": lambda name: NumericColumn(name, missing=True),
    "Number": lambda name: NumericColumn(name, missing=True),
    "DateTime": lambda name: _of_dates(name, None, True),
    "Date": lambda name: _of_dates(name, None, False),
    "Text": lambda name: CategoricalColumn(name, missing=True),
}
_FORMATS: dict[str, Callable[[Any], DescribedColumns]] = {
    "recordSet": _of_croissant,
    "tables": _of_sdv,
    "columns": _of_sdv,
    "resources": _of_frictionless,
    "fields": _of_frictionless,
}
