"""Tables in CSV and Parquet files, read and written."""

import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from skdpot._utils.nothing import MISSING_TEXTS, is_nothing
from skdpot.cli.console import CommandError
from skdpot.tables.column_values import as_float
from skdpot.tables.dtypes import dtype_family
from skdpot.tables.frames import Table
from skdpot.tables.schema import TableSchema, without_unit
from skdpot.tables.texts import plain_number, present_texts, strings, text_numbers

_CODE = re.compile(r"[-+]?0\d", re.ASCII)  # digits after a zero are a code, no number
# Texts that spreadsheets run: OWASP's list, also after blanks and with full-width signs.
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+@\-\uff1d\uff0b\uff0d\uff20]")
_LONGEST_FIELD = 2**31 - 1  # characters, the largest limit of Python's reader
_NO_PARQUET = "Parquet needs pyarrow or polars: pip install pyarrow, or convert the file to CSV."


@dataclass(frozen=True)
class FileFormat:
    """The format of tables in text files."""

    separator: str | None = None
    missing: tuple[str, ...] | None = None
    encoding: str = "utf-8"

    @property
    def missing_texts(self) -> frozenset[str]:
        """Texts that mean a missing value."""
        return MISSING_TEXTS if self.missing is None else frozenset(("", *self.missing))

    def separator_of(self, path: str | Path) -> str:
        """Return the separator of the fields of a file."""
        if self.separator is not None:
            return self.separator
        return "\t" if ".tsv" in Path(path).suffixes else ","


def read_table_file(
    path: str, schema: TableSchema, form: FileFormat, unit: str | None = None
) -> tuple[Any, TableSchema]:
    """Read the columns of a schema with its data types, and the column of persons."""
    schema = without_unit(schema, unit)
    if is_parquet(path):
        frame = _read_parquet(path)
        _check_names(path, list(frame.columns), schema, unit)
        kept = {*schema.names, unit}
        return frame[[name for name in frame.columns if name in kept]], schema
    schema = schema.replace(*(column.stated() for column in schema))
    names, texts = _read_texts(path, form)
    _check_names(path, names, schema, unit)
    described = set(schema.names)
    columns = {
        name: schema[name].parse(values, form.missing_texts)
        for name, values in zip(names, texts, strict=True)
        if name in described
    }
    if unit is not None:
        columns[unit] = strings(present_texts(texts[names.index(unit)], form.missing_texts))
    return pd.DataFrame(columns), schema


def read_guessable(path: str, form: FileFormat, as_text: Iterable[str] = ()) -> Any:
    """Read a table with data types that its values suggest, some columns as text."""
    if is_parquet(path):
        return _read_parquet(path)
    names, texts = _read_texts(path, form)
    unread = set(as_text)
    columns = {
        name: strings(present_texts(values, form.missing_texts))
        if name in unread
        else inferred_values(values, form.missing_texts)
        for name, values in zip(names, texts, strict=True)
    }
    return pd.DataFrame(columns)


def read_header(path: str, form: FileFormat) -> Any:
    """Return a table without rows: the names of a CSV file, the data types of Parquet."""
    if is_parquet(path):
        return _read_parquet(path).head(0)
    return pd.DataFrame({name: strings([]) for name in _read_texts(path, form, rows=False)[0]})


def inferred_values(texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
    """Return a column with the data type that all its texts suggest."""
    values = present_texts(texts, missing)
    plain = present_texts(texts, missing.union(filter(is_nothing, set(texts))))
    plain = plain if any(plain) else values
    numbers = text_numbers(plain)
    if numbers is not None and not any(text and _CODE.match(text) for text in set(plain)):
        whole = [number for number in numbers if isinstance(number, int)]
        present = [number for number in numbers if number is not None]
        if len(whole) < len(present):
            return pd.Series([math.nan if n is None else as_float(n) for n in numbers], dtype="f8")
        if not present or -(2**63) <= min(whole) <= max(whole) < 2**63:
            return pd.Series(numbers, dtype="Int64" if len(present) < len(numbers) else "int64")
    truths = {"true": True, "false": False}
    if not all(value is None or value.lower() in truths for value in set(plain)):
        return strings(values)
    read = [None if value is None else truths[value.lower()] for value in plain]
    return pd.Series(read, dtype="boolean" if None in read else "bool")


def check_writable_format(path: str | Path, kind: str) -> None:
    """Refuse a format that a kind of table cannot be written in, before the charge."""
    if is_parquet(path) and kind != "polars" and find_spec("pyarrow") is None:
        raise CommandError(
            f"{path}: writing Parquet needs pyarrow here: pip install pyarrow, or name a CSV file."
        )


def is_formula(value: Any) -> bool:
    """Return whether a spreadsheet runs a value as a formula; numbers are none."""
    is_text = isinstance(value, str) and _FORMULA.match(value) is not None
    return is_text and plain_number(value) is None


def _as_text(value: Any) -> Any:
    return f"'{value}" if is_formula(value) else value


def write_table_file(path: Path, table: Any, form: FileFormat, *, guard: bool = False) -> None:
    """Write a table in the format of the file name.

    `guard` writes a ' before texts of a CSV file that a spreadsheet would run.
    """
    kind = Table.of(table).kind
    if kind == "array":
        table = pd.DataFrame(table, columns=list(Table.of(table).names))
    if is_parquet(path):
        if kind == "polars":
            table.write_parquet(path)
        else:
            table.to_parquet(path, index=False)
        return
    separator, names = form.separator_of(path), list(table.columns)
    if guard:
        names, table = list(map(_as_text, names)), _without_formulas(table, kind)
    with _opened(path, form, "wt") as stream:
        # Python does not quote a lone carriage return, which some readers take for the end of a
        # line. Guarded texts are all quoted: a spreadsheet may expect another separator.
        if kind == "polars":
            style = "non_numeric" if guard else "necessary"
            header: Any = {"delimiter": separator, "lineterminator": "\n"}
            header["quoting"] = csv.QUOTE_NONNUMERIC if guard else csv.QUOTE_MINIMAL
            csv.writer(stream, **header).writerow(names)
            options = {"separator": separator, "include_header": False, "quote_style": style}
            stream.write(table.write_csv(**options))
        else:
            quoted = guard or _holds_returns(table)
            quoting = csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL
            options = {"index": False, "sep": separator, "header": names, "quoting": quoting}
            table.to_csv(stream, lineterminator="\n", **options)


def _without_formulas(table: Any, kind: str) -> Any:
    known = Table.of(table)
    families = {name: dtype_family(known.dtype(name)) for name in known.names}
    texts = [name for name, family in families.items() if family in ("text", "category")]
    if kind == "polars":
        series: Any = import_module("polars").Series
        return table.with_columns([series(n, [*map(_as_text, table[n])]) for n in texts])
    guarded = {n: table[n].astype(object).map(_as_text, na_action="ignore") for n in texts}
    return table.assign(**guarded)


def _holds_returns(table: pd.DataFrame) -> bool:
    """Return whether a text in the table holds a carriage return."""
    texts = [str(name) for name in table.columns]
    for _, column in table.items():
        if column.dtype.kind not in "biufM":
            texts += map(str, column.unique())
    return any("\r" in text for text in texts)


def is_parquet(path: str | Path) -> bool:
    """Return whether a file is in Parquet format."""
    return Path(path).suffix.lower() in (".parquet", ".pq")


def _read_parquet(path: str) -> Any:
    with Path(path).open("rb"):
        pass  # raises the error of the system
    pyarrow = find_spec("pyarrow") is not None
    if not pyarrow and find_spec("polars") is None:
        raise CommandError(f"{path}: {_NO_PARQUET}")
    try:
        if pyarrow:
            # Nullable types: a missing integer must not change the data type.
            frame: Any = pd.read_parquet(path, dtype_backend="numpy_nullable")
        else:
            frame = import_module("polars").read_parquet(path)
    except Exception:  # libraries raise anything, and may quote values
        frame = None
    if frame is None:
        raise CommandError(f"{path} is not an intact Parquet file.")
    if not len(frame):
        raise CommandError(f"{path} has no rows.")
    return frame


def _read_texts(
    path: str, form: FileFormat, *, rows: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns of a CSV file, and with `rows` the texts of each.

    Every line is one record, unless a quoted field continues on the next one. The content of a
    record changes neither the number of records nor how others are read.
    """
    problem, place = "", path
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        # The buffer decodes beyond the header; rows there must not cause a refusal.
        with _opened(path, form, "rt", "strict" if rows else "replace") as stream:
            reader = csv.reader(stream, delimiter=form.separator_of(path), strict=True)
            names = _checked_names(path, next(reader, []))
            if not rows and "\ufffd" not in "".join(names):
                return names, []
            columns = _read_columns(path, reader, len(names))
    except csv.Error:
        place = f"{path}, line {reader.line_num},"
        problem = (
            "is not valid CSV: a quotation mark may be missing, --sep may be wrong, or a carriage "
            "return may be outside quotation marks."
        )
    except UnicodeDecodeError:
        problem = f"is not encoded in {form.encoding}. Convert it, or state its --encoding."
    except (EOFError, gzip.BadGzipFile, zlib.error):
        problem = "is not an intact gzip file."
    finally:
        csv.field_size_limit(before)
    if problem:  # raised here, without an error of a library as its context
        raise CommandError(f"{place} {problem}")
    if not columns[0]:
        raise CommandError(f"{path} has no rows besides the header.")
    return names, columns


def _read_columns(path: str, reader: Any, n_columns: int) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(n_columns)]
    known: dict[str, str] = {}  # equal texts are kept once
    for row in reader:
        fields = row or [""]  # an empty line is a record of one empty field
        if len(fields) != n_columns:
            raise CommandError(
                f"{path}, line {reader.line_num}, has {len(fields)} fields, but the header has "
                f"{n_columns}. Correct the line, delete it if it is empty, quote fields that "
                "contain the separator, or state another --sep."
            )
        for column, text in zip(columns, fields, strict=True):
            column.append(known.setdefault(text, text))
    return columns


def _checked_names(path: str, header: list[str]) -> list[str]:
    """Return the names of the columns; empty names are numbered like in pandas."""
    if not header:
        raise CommandError(f"{path} is empty: the first line must name the columns.")
    names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if first.setdefault(name, place) < place:
            raise CommandError(
                f"{path}: columns {first[name] + 1} and {place + 1} have the same name "
                "(is the first line a header?). Rename one."
            )
    return names


def _check_names(path: str, names: list[str], schema: TableSchema, unit: str | None) -> None:
    if unit is not None and unit not in names:
        raise CommandError(f"{path} has no column {unit!r}, which --unit names.")
    there = set(names)
    lacking = [repr(name) for name in schema.names if name not in there]
    if lacking:
        raise CommandError(
            f"{path} has no column {', '.join(lacking)}, which the schema describes. Check that "
            "its first line is a header and that --sep is right."
        )
    known = {*schema.names, *schema.excluded}
    unknown = [str(place) for place, name in enumerate(names, start=1) if name not in known]
    if unknown:
        raise CommandError(
            f"{path}: the schema does not describe column number {', '.join(unknown)}. Add it to "
            'the schema, or list it there under "excluded".'
        )


@contextmanager
def _opened(
    path: str | Path, form: FileFormat, mode: Any, errors: str = "strict"
) -> Iterator[TextIO]:
    encoding = form.encoding
    if encoding.lower() in ("utf-8", "utf8") and mode == "rt":
        encoding = "utf-8-sig"  # skips a byte order mark
    compressed = Path(path).suffix.lower() == ".gz"
    try:
        opener: Any = gzip.open if compressed else open
        # A carriage return inside a field must not end the record.
        stream: Any = opener(path, mode, encoding=encoding, newline="\n", errors=errors)
    except LookupError:
        raise CommandError(f"The encoding {form.encoding!r} is unknown.", 2) from None
    with stream:
        yield stream
