"""Changing row i of a column changes code i alone, for every kind of column and every library."""

from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from skdpot.tables.frames import Table, read_column
from skdpot.tables.schema import KINDS
from tests.tables.table_cases import ArrowTable

BIG = 2**53
WHOLE = [0, 1, 7, -3, BIG + 1, BIG + 3, BIG + 4, 2**62 + 1, -(2**63), 2**63 - 1]
SMALL = [0, 1, 7, -3, 100, -128, 127]
UNSIGNED = [0, 1, 7, 100, BIG + 1, BIG + 3, 2**63, 2**64 - 1]
REAL = [0.0, -0.0, 0.1, 0.5, 1 / 3, -3.25, 1e-300, 5e-324, 1e300, -1.7e308, float(BIG + 2), 7.0]
SINGLE = [0.0, -0.0, 0.1, 0.5, 1 / 3, -3.25, 1e-40, 3e38, -3e38, 7.0]
ODD = [np.uint64(BIG + 7), np.float32(0.1), Fraction(1, 3), 2**64, -(10**30)]
WORDS = ["", "a", "b", "nan", "1", "1.0", "True", "ä", "#", "rare"]
# Microseconds since 1970: around changes of the clocks, far away, and as far as there is any.
TICKS = [0, -1, 1585443600 * 10**6, 1603587600 * 10**6 + 1, 1577836800 * 10**6, 2**62, -(2**62)]
TICKS += [2**63 - 1, -(2**63) + 2, 86_399_999_999]
DAYS = [0, -1, 18262, 18400, 2**31 - 1, -(2**31), 10**6]

OBJECTS = [
    *(
        datetime(2020, 6, 1, 12, 1),
        date(2020, 6, 1),
        datetime(1, 1, 1),
        np.datetime64("1066-01-01"),
    ),
    np.datetime64("2020-06-01T12:00:03.123456789"),
    pd.Timestamp("2020-06-01 12:00:01.123456789"),
    *("2020-06-01", "2020-06-01 12:30", "2020-06-01T12:00:00.123456789", "9999-12-31"),
]
ZONED = [
    datetime(2020, 6, 1, 12, tzinfo=timezone(timedelta(hours=3))),
    pd.Timestamp("2020-06-01 12:00:01.123456789", tz="Europe/Rome"),
    *("2020-06-01T12:00:00Z", "2020-06-01T12:00:00+03:00", "2020-06-01 12:00:00.5-05:00"),
]

LIMITS = {"lower": "2020-01-01", "upper": "2021-01-01"}
LISTED = [CategoricalColumn("c", categories=[0, 1, 7, 100], other=-1)]
SHORT = [
    NumericColumn("c", lower=-3, upper=7, integer=True),
    NumericColumn("c", lower=0, upper=100, integer=True, log_scale=True),
    *LISTED,
]
LONG = [NumericColumn("c", lower=BIG, upper=BIG + 9, integer=True), *SHORT]
NUMBERS = [
    NumericColumn("c", lower=-1.0, upper=1 / 3),
    NumericColumn("c", lower=-3.25, upper=2.0**54, log_scale=True),
    *LONG,
]
STATED = [c.replace(dtype="int64" if c in LONG else "float64") for c in NUMBERS]
TEXTS = [
    CategoricalColumn("c", categories=["", "a", "1", "nan"], other="another"),
    CategoricalColumn("c", categories=["b", "a"], ordered=True, missing=True),
]
TRUTHS = [BooleanColumn("c")]
LISTED_TRUTHS = [CategoricalColumn("c", categories=[True], other=False)]
TIMES = [DatetimeColumn("c", resolution=r, **LIMITS) for r in ("s", "min", "h", "D")]
TOKYO = [DatetimeColumn("c", dtype="datetime64[s, Asia/Tokyo]", **LIMITS)]
CLOCKS = [("ms", "Europe/Berlin"), ("us", "America/New_York"), ("ns", "Asia/Kolkata"), ("us", None)]


def pandas_times(unit, zone):
    def make(ticks):
        lost = [tick is None for tick in ticks]
        numbers = np.array([0 if tick is None else tick for tick in ticks])
        values = pd.Series(numbers.astype(f"datetime64[{unit}]")).mask(lost)
        return values if zone is None else values.dt.tz_localize("UTC").dt.tz_convert(zone)

    return make


def polars_times(unit, zone):
    return lambda ticks: pl.Series(ticks, dtype=pl.Int64).cast(pl.Datetime(unit, zone))


def pandas_of(dtype):
    return lambda values: pd.Series(
        [np.nan if v is None and dtype.startswith("float") else v for v in values], dtype=dtype
    )


def nullable_unsigned(values):
    """Return exact integers; pandas makes a column of a list by way of floats."""
    lost = np.array([value is None for value in values])
    numbers = np.array([0 if value is None else value for value in values], dtype="uint64")
    return pd.Series(pd.arrays.IntegerArray(numbers, lost))


def polars_of(dtype):
    return lambda values: pl.Series(values, dtype=dtype, strict=False)


def listed(pool, *, ordered=False):
    dtype = pd.CategoricalDtype(sorted(set(pool)), ordered=ordered)
    return lambda values: pd.Series(values, dtype=dtype)


# Of each data type: how a column is made of values, the values, and the columns that read it.
PANDAS = {
    **{t: (pandas_of(t), WHOLE, LONG) for t in ("int64", "Int64")},
    "object of numbers": (pandas_of("object"), [*WHOLE, *REAL, *UNSIGNED, *ODD], STATED),
    **{t: (pandas_of(t), SMALL, SHORT) for t in ("int8", "Int8")},
    "uint64": (pandas_of("uint64"), UNSIGNED, [LONG[0], LONG[2]]),
    "UInt64": (nullable_unsigned, UNSIGNED, [LONG[0], LONG[2]]),
    **{t: (pandas_of(t), REAL, NUMBERS) for t in ("float64", "Float64")},
    **{t: (pandas_of(t), SINGLE, NUMBERS) for t in ("float32", "Float32")},
    "float16": (pandas_of("float16"), SMALL, NUMBERS),
    **{t: (pandas_of(t), WORDS, TEXTS) for t in ("str", "string")},
    "object of text": (pandas_of("object"), WORDS, TEXTS),
    **{t: (pandas_of(t), [True, False], TRUTHS) for t in ("bool", "boolean")},
    "object of truth values": (pandas_of("object"), [True, False], TRUTHS),
    "category of text": (listed(WORDS), WORDS, TEXTS),
    "category in order": (listed(WORDS, ordered=True), WORDS, TEXTS),
    "category of numbers": (listed(WHOLE), WHOLE, LISTED),
    "category of floats": (listed(REAL), REAL, LISTED),
    "category of truth values": (listed([True, False]), [True, False], LISTED_TRUTHS),
    "object of times": (pandas_of("object"), OBJECTS, TIMES),
    "object of times with zones": (pandas_of("object"), ZONED, TOKYO),
    **{
        f"datetime64[{unit}, {zone}]": (pandas_times(unit, zone), TICKS, TIMES)
        for unit, zone in (*CLOCKS, ("s", "UTC"))
    },
}
POLARS = {
    "Int64": (polars_of(pl.Int64), WHOLE, LONG),
    "Int8": (polars_of(pl.Int8), SMALL, SHORT),
    "UInt64": (polars_of(pl.UInt64), UNSIGNED, [LONG[0], LONG[2]]),
    "Float64": (polars_of(pl.Float64), REAL, NUMBERS),
    "Float32": (polars_of(pl.Float32), SINGLE, NUMBERS),
    "String": (polars_of(pl.String), WORDS, TEXTS),
    "Categorical": (polars_of(pl.Categorical), WORDS, TEXTS),
    "Enum": (polars_of(pl.Enum(WORDS)), WORDS, TEXTS),
    "Boolean": (polars_of(pl.Boolean), [True, False], TRUTHS),
    "Date": (lambda days: pl.Series(days, dtype=pl.Int32).cast(pl.Date), DAYS, TIMES),
    **{
        f"Datetime({unit}, {zone})": (polars_times(unit, zone), TICKS, TIMES)
        for unit, zone in CLOCKS
    },
}

# A kind that is not among them brings its own in the file of its tests.
for kind in KINDS:
    if not any(kind in map(type, columns) for _, _, columns in PANDAS.values()):
        cases = import_module(f"tests.tables.test_{kind.kind}_column")
        PANDAS |= cases.PANDAS
        POLARS |= cases.POLARS


FRAMES = {
    "pandas": lambda values: pd.DataFrame({"c": values}),
    "polars": lambda values: pl.DataFrame({"c": values}),
    "arrow": lambda values: ArrowTable(pl.DataFrame({"c": values})),
}
CASES = [
    pytest.param(library, *case, id=f"{library}-{name}")
    for library, cases in (("pandas", PANDAS), ("polars", POLARS), ("arrow", POLARS))
    for name, case in cases.items()
]


def codes_of(frame, column):
    """Return what is read of each row: its number or code, its cell, and its place in the ball."""
    schema = TableSchema([column]).bind(frame)
    values = schema.read(Table.of(frame))["c"]
    column = schema["c"]
    read = column.to_unit if column.on_scale else column.to_codes
    places = TableEncoder(schema).fit_transform(frame)
    return np.column_stack([read(values), column.grid().codes(values), places])


def can_miss(make):
    try:
        return bool(read_column(make([None])).missing[0])
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize(("library", "make", "pool", "columns"), CASES)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_changing_a_row_changes_its_code_alone(library, make, pool, columns, data):
    """A row is read the same beside any others, alone, and at any place."""
    missing = can_miss(make)
    column = data.draw(st.sampled_from(columns)).replace(missing=missing)
    value = st.sampled_from([*pool, None] if missing else pool)
    values = data.draw(st.lists(value, min_size=2, max_size=6))
    row, other = data.draw(st.integers(0, len(values) - 1)), data.draw(value)
    changed = [*values[:row], other, *values[row + 1 :]]
    alone = [values[row]]

    def codes(rows):
        return codes_of(FRAMES[library](make(rows)), column)

    before, after = codes(values), codes(changed)
    assert len(before) == len(after) == len(values)
    np.testing.assert_array_equal(np.delete(after, row, 0), np.delete(before, row, 0))
    np.testing.assert_array_equal(codes(alone)[0], before[row])
    np.testing.assert_array_equal(codes(values[::-1])[::-1], before)


def test_every_kind_of_column_is_tried_in_every_library():
    for cases in (PANDAS, POLARS):
        tried = {column.kind for _, _, columns in cases.values() for column in columns}
        assert tried == {kind.kind for kind in KINDS}
