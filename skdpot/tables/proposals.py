"""What is proposed for the columns of a table: by their data types, their values, or other formats.

Other formats are the metadata of SDV, of Frictionless and of Croissant. They rarely state bounds or
lists of categories. What they do not state is left to be estimated privately, and columns that
identify people, or hold what no column of a schema can, are excluded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from skdpot._utils.nothing import is_nothing
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


# What somebody may say of texts, besides formats of dates and a number as it is written.
CATEGORIES, TRUTHS, DURATIONS = "categories", "truth values", "durations"
_TOLD: dict[str, Any] = {
    CATEGORIES: CategoricalColumn,
    TRUTHS: BooleanColumn,
    DURATIONS: TimedeltaColumn,
}
_PLAIN = {"1234": True, "1234.50": False}  # whether plain numbers are integers


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


def told_column(name: str, how: str | Sequence[str], missing: bool) -> TableColumn:
    """Return a column of which somebody says how its texts are read."""
    formats = (how,) if isinstance(how, str) else tuple(how)
    if formats[0] in _TOLD:
        return _TOLD[formats[0]](name, missing=missing)
    if "%y" in formats[0].lower():
        zone = "datetime64[s, UTC]" if any("%z" in one for one in formats) else None
        days = not any(part in one for one in formats for part in ("%H", "%I"))
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
    """Propose something for each column of a table, by its values or by public facts alone."""
    table = Table.of(X)
    given = {"exclude": dict.fromkeys(exclude), "include": dict.fromkeys(include), "read": read}
    there = set(table.names)
    for argument, names in given.items():
        for name in names:
            if name not in there:
                raise ValueError(f"{argument} names {name!r}, which is not a column of the table.")
    return [
        Proposal(name, None, "you say so")
        if name in given["exclude"]
        else _proposal(table, name, name in given["include"], read.get(name), by_values)
        for name in table.names
    ]


def _proposal(table: Table, name: str, keep: bool, how: Any, by_values: bool) -> Proposal:
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
        return Proposal(name, None, source, note)


def _of_texts(texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
    """Return the column of the first kind that reads all texts, and why; by default `base`."""
    seen = [text for text in texts if not is_nothing(text)]
    missing = base.missing or len(seen) < len(texts)
    for kind in KINDS if seen else ():
        column, why = kind.from_texts(seen, base.replace(missing=missing))
        if why:
            return column, why
    return base, ""


Described: TypeAlias = Iterator[tuple[str, TableColumn | None]]

_SPEC = "SINGLE_TABLE_V1"  # of SDV


def columns_of(content: Any, table: str | None) -> dict[str, TableColumn | None] | None:
    """Return the columns that metadata describe, None for one that is left out; None if none are.

    `table` names one of several. A column may be missing wherever nothing says otherwise.
    """
    for entry, read in _FORMATS.items():
        if isinstance(content, Mapping) and isinstance(content.get(entry), list | dict):
            try:
                several = entry in ("recordSet", "tables", "resources")
                found = dict(read(_table(content[entry], table) if several else content))
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise ValueError(f"This is not a schema: {entry!r} cannot be read.") from error
            return {n: c if c is None or not tells_who(n) else None for n, c in found.items()}
    return None


def sdv_metadata(columns: tuple[TableColumn, ...]) -> dict[str, Any]:
    """Describe columns as SDV and SDMetrics do."""
    return {"columns": {c.name: _sdv_of(c) for c in columns}, "METADATA_SPEC_VERSION": _SPEC}


def _table(found: Any, name: str | None) -> Any:
    """Return the part of metadata that is about one table; columns themselves are one."""
    named = {one.get("name"): one for one in found} if isinstance(found, list) else found
    if name is None and len(named) == 1:
        (name,) = named
    if name not in named:
        known = ", ".join(map(str, named)) or "no table"
        raise ValueError(f"The metadata describe {known}: state table=.")
    return named[name]


def _of_sdv(table: Any) -> Described:
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


def _of_frictionless(table: Any) -> Described:
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
        given = entry.get("format", "default")
        written = given if "%" in given else None
        return _of_dates(name, written, kind == "datetime", **bounds)
    if kind == "duration":
        return TimedeltaColumn(name, **bounds)
    if kind == "boolean":
        return BooleanColumn(name, missing=missing)
    return CategoricalColumn(name, missing=missing) if kind == "string" and of_text else None


def _of_croissant(table: Any) -> Described:
    fields = table["field"]
    for entry in [fields] if isinstance(fields, dict) else fields:
        source = entry.get("source", {})
        name = source.get("extract", {}).get("column") or entry["name"].rpartition("/")[2]
        given = entry.get("dataType", "sc:Text")
        types = {t.rpartition(":")[2].rpartition("/")[2] for t in _listed(given)}
        known = (make for kind, make in _CROISSANT.items() if kind in types)
        yield name, next(known, lambda _: None)(name)


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


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
_FORMATS: dict[str, Callable[[Any], Described]] = {
    "recordSet": _of_croissant,
    "tables": _of_sdv,
    "columns": _of_sdv,
    "resources": _of_frictionless,
    "fields": _of_frictionless,
}


def _sdv_of(column: TableColumn) -> dict[str, str]:
    if isinstance(column, NumericColumn):
        held = "Int64" if column.integer else "Float"
        return {"sdtype": "numerical", "computer_representation": held}
    if isinstance(column, DatetimeColumn):
        clock = "" if column.resolution == "D" else " %H:%M:%S"
        return {"sdtype": "datetime", "datetime_format": f"%Y-%m-%d{clock}"}
    known = ("boolean", "categorical")
    return {"sdtype": column.kind if column.kind in known else "unknown"}
