"""Reading a long text takes time in proportion to its length, and a header to its columns.

A quadratic step takes sixteen times as long for four times the input. What is compared are times
of one thread in one run: the least of several, with room for what does not grow.
"""

import json
import time

import pandas as pd
import pytest

from skdpot._utils.nothing import is_nothing
from skdpot._utils.pages import _environment
from skdpot.cli.table_files import FileFormat, inferred_values, read_guessable, read_table_file
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    Forbidden,
    Implies,
    LessEqual,
    NumericColumn,
    Pattern,
    TableSchema,
    TimedeltaColumn,
)
from skdpot.tables.identifiers import tells_who

_MOST = 9.0  # times as long for four times the input; in proportion it would be 4
_NOISE = 0.02  # seconds
_TRIES = 3


def refused(call):
    """Call, whatever it refuses."""

    def called(given):
        try:
            call(given)
        except ValueError:
            pass

    return called


def seconds(call, given):
    start = time.thread_time()
    call(given)
    return time.thread_time() - start


def assert_linear(call, make, size):
    given = make(size), make(4 * size)
    call(given[0])  # imports and caches
    for _ in range(_TRIES):
        short, long = (seconds(call, one) for one in given)
        if long < _MOST * short + _NOISE:
            return
    pytest.fail(f"{short:.4f} s, then {long:.4f} s for four times the input")


HOSTILE = {
    "blanks": lambda k: "1" + " " * k + "x x",
    "blanks alone": lambda k: " " * k,
    "blanks, then a line": lambda k: "1 days" + " " * k + "\nx",
    "no width": lambda k: "\u200b" * k + "x",
    "digits": lambda k: "9" * k,
    "digits, then a word": lambda k: "9" * k + "x",
    "digits and blanks": lambda k: "1 " * (k // 2) + "((",
    "digits and points": lambda k: "1." * (k // 2) + "x x",
    "digits and commas": lambda k: "1,234" + ",234" * (k // 4) + "x,",
    "zeros": lambda k: "0" * k + "x",
    "points": lambda k: "1" + "." * k + "x x",
    "words": lambda k: "jan" * (k // 3),
    "dashes": lambda k: "2024" + "-01" * (k // 3),
    "years": lambda k: "10000 " * (k // 6),
    "durations": lambda k: "P" + "1D" * (k // 2),
    "signs": lambda k: "-" * k + "1",
    "brackets": lambda k: "[" * k,
    "currencies": lambda k: "EUR" * (k // 3) + " 1",
}
YEARS = {"lower": "2000-01-01", "upper": "2024-12-31"}
KINDS = {
    "numbers": NumericColumn("c", lower=0, upper=9, missing=True),
    "amounts": NumericColumn("c", lower=0, upper=9, written="$1,234.50", missing=True),
    "dates": DatetimeColumn("c", **YEARS, missing=True),
    "dates of formats": DatetimeColumn("c", **YEARS, formats=["%d/%m/%Y", "%b %d, %Y"]),
    "durations": TimedeltaColumn("c", lower="0 h", upper="9 h", missing=True),
    "truth": BooleanColumn("c", missing=True),
    "categories": CategoricalColumn("c", categories=["x"], missing=True),
    "categories of numbers": CategoricalColumn("c", categories=[1], missing=True),
}
READERS = {
    **{
        name: lambda text, column=column: column.parse([text], frozenset())
        for name, column in KINDS.items()
    },
    **{
        f"{name} in memory": lambda text, column=column: column.read([text])
        for name, column in KINDS.items()
    },
    "guess": lambda text: TableSchema.guess(pd.DataFrame({"c": [f"{text}{k}" for k in range(3)]})),
    "guess of a file": lambda text: inferred_values([text], frozenset()),
    "names": tells_who,
    "nothing": is_nothing,
    "patterns": lambda text: Pattern("c", text),
    "examples": lambda text: NumericColumn("c", written=text),
    "formats": lambda text: DatetimeColumn("c", formats=[text]),
    "bounds": lambda text: DatetimeColumn("c", lower=text),
    "pages": lambda text: _environment().filters["kept"](text),
    "schemas": lambda text: TableSchema.from_json('{"' + text.replace("\n", " ") + '": 1}'),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_is_read_in_linear_time(reader):
    for make in HOSTILE.values():
        assert_linear(refused(READERS[reader]), make, 4000)


def header(n_columns, tmp_path):
    """A file of many columns."""
    path = tmp_path / f"{n_columns}.csv"
    rows = (",".join(f"{text}{c}" for c in range(n_columns)) for text in ("c", "1", "2"))
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def wide(n_columns):
    return TableSchema([NumericColumn(f"c{c}", lower=0, upper=9) for c in range(n_columns)])


def test_a_wide_file_is_read_in_linear_time(tmp_path):
    def read(path):
        schema = TableSchema.guess(read_guessable(path, FileFormat()))
        table, stated = read_table_file(path, schema, FileFormat())
        return stated.bind(table).read(table)

    assert_linear(read, lambda n: header(n, tmp_path), 100)


def texts(n):
    return [f"k{number}" for number in range(n)]


def metadata(n):
    fields = [{"name": name, "type": "number"} for name in texts(n)]
    return json.dumps({"fields": fields, "primaryKey": texts(n)[1:]})


PAIR = [CategoricalColumn("a", categories=["x"]), CategoricalColumn("b", categories=["x"])]
LONG = {
    "a schema": (lambda n: wide(n).columns, TableSchema, 3000),
    "left out": (texts, lambda names: TableSchema(PAIR, excluded=names), 10_000),
    "replaced": (wide, lambda schema: schema.replace(*schema.columns), 2000),
    "excluded": (wide, lambda schema: schema.exclude(*schema.names[1:]), 2000),
    "JSON": (lambda n: wide(n).to_json(), TableSchema.from_json, 1000),
    "metadata": (metadata, TableSchema.from_json, 2000),
    "rules": (
        wide,
        lambda schema: TableSchema(
            schema.columns,
            rules=list(map(LessEqual, schema.names[::2], schema.names[1::2])),
        ),
        500,
    ),
    "codes that are made": (
        texts, lambda names: TableSchema(PAIR, rules=[Pattern(name, "x") for name in names]), 1000
    ),
    "categories": (
        texts, lambda names: CategoricalColumn("c", categories=names).to_codes(names[::-1]), 5000
    ),
    "what is forbidden": (
        texts,
        lambda names: TableSchema(
            [CategoricalColumn("c", categories=names), PAIR[0]],
            rules=[Forbidden({"c": names[1:], "a": "x"})],
        ),
        4000,
    ),
    "a table of what follows": (
        texts,
        lambda names: TableSchema(
            [CategoricalColumn("c", categories=names), PAIR[0]],
            rules=[Implies("c", "a", dict.fromkeys(names, "x"))],
        ),
        4000,
    ),
    "a guess": (
        texts, lambda names: TableSchema.guess(pd.DataFrame({"c": names * 3}), include=["c"]), 4000
    ),
    "nested": (lambda n: '{"a": ' + "[" * n + "]" * n, refused(TableSchema.from_json), 20_000),
}  # fmt: skip


@pytest.mark.parametrize("what", LONG)
def test_a_long_list_takes_linear_time(what):
    make, call, size = LONG[what]
    assert_linear(call, make, size)
