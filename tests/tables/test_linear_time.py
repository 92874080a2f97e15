"""Reading a long text takes time in proportion to its length, and a header to its columns.

A quadratic step takes sixteen times as long for four times the input. What is compared are times
of one run on one machine: the least of several, with room for what does not grow.
"""

import ast
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skdpot
from skdpot._utils.nothing import is_nothing
from skdpot._utils.pages import render
from skdpot.cli.inputs import FileFormat, inferred_values, read_guessable, read_table
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    Implies,
    NumericColumn,
    Pattern,
    TableSchema,
    TimedeltaColumn,
)
from skdpot.tables.column_base import tells_who
from skdpot.tables.row_map import RowMap

_MOST = 9.0  # times as long for four times the input; in proportion it would be 4
_NOISE = 5e-3  # seconds


def refused(call):
    """Call, whatever it refuses."""

    def called(given):
        try:
            call(given)
        except ValueError:
            pass

    return called


def seconds(call, given):
    def once():
        start = time.perf_counter()
        call(given)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


def assert_linear(call, make, size):
    call(make(8))  # imports
    short, long = (seconds(call, make(n)) for n in (size, 4 * size))
    assert long < _MOST * short + _NOISE, f"{short:.4f} s, then {long:.4f} s"


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
    "schemas": lambda text: TableSchema.from_json('{"' + text.replace("\n", " ") + '": 1}'),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_is_read_in_linear_time(reader):
    for make in HOSTILE.values():
        assert_linear(refused(READERS[reader]), make, 4000)
