"""Columns of all kinds, series of every data type that they read, and tables of these.

A new kind of column has its cases here: an entry of `COLUMNS`, texts in `FILE_TEXTS`, and a series
of `SERIES` for each library. The suites of columns, schemas and encoders try them all.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
from hypothesis import strategies as st

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)
from skdpot.tables.column_values import read_column

YEAR = {"lower": "2024-01-01", "upper": "2024-12-31"}
ROME = "datetime64[ns, Europe/Rome]"
COLUMNS = {
    "few integers": NumericColumn("c", lower=-3, upper=90, integer=True, dtype="int32"),
    "integers": NumericColumn("c", lower=-3, upper=600, integer=True, dtype="int64"),
    "integers, missing": NumericColumn("c", lower=0, upper=999, missing=True, dtype="Int64"),
    "few integers, missing": NumericColumn("c", lower=0, upper=9, missing=True, dtype="Int64"),
    "integers as floats": NumericColumn(
        "c", lower=0, upper=511, integer=True, missing=True, dtype="float64"
    ),
    "huge integers": NumericColumn("c", lower=5, upper=2**40, dtype="int64"),
    "one integer": NumericColumn("c", lower=7, upper=7, dtype="int64"),
    "two integers": NumericColumn("c", lower=0, upper=1, dtype="int8"),
    "floats": NumericColumn("c", lower=-1.5, upper=7.1, dtype="float64"),
    "short floats": NumericColumn("c", lower=-1.5, upper=7.1, dtype="float32"),
    "short floats, missing": NumericColumn(
        "c", lower=-1.5, upper=7.1, missing=True, dtype="float32"
    ),
    "tiny floats": NumericColumn("c", lower=0.0, upper=1e-6, missing=True, dtype="Float64"),
    "one float": NumericColumn("c", lower=2.5, upper=2.5, dtype="float64"),
    "log floats": NumericColumn("c", lower=0, upper=1e5, log_scale=True, dtype="float64"),
    "stretched floats": NumericColumn(
        "c", lower=-2, upper=6, knots=[0, 0.1, 0.25, 0.25, 0.3, 1], missing=True, dtype="float64"
    ),
    "stretched integers": NumericColumn(
        "c", lower=0, upper=2**40 - 1, knots=[0, 0, 1e-9, 1e-6, 1], dtype="int64"
    ),
    "stretched days": DatetimeColumn(
        "c", **YEAR, resolution="D", knots=[0, 0.5, 0.5, 0.5, 0.6, 1], dtype="datetime64[s]"
    ),
    "days": DatetimeColumn("c", **YEAR, resolution="D", dtype="datetime64[s]"),
    "dates": DatetimeColumn("c", **YEAR, resolution="D", dtype="date", missing=True),
    "seconds": DatetimeColumn("c", **YEAR, dtype="datetime64[us]", missing=True),
    "minutes": DatetimeColumn("c", **YEAR, resolution="min", dtype="datetime64[ns]", missing=True),
    "hours of a zone": DatetimeColumn("c", **YEAR, resolution="h", dtype=ROME),
    "days of a zone": DatetimeColumn("c", **YEAR, resolution="D", dtype=ROME),
    "durations": TimedeltaColumn("c", lower="-1 h", upper="9 days", resolution="min", missing=True),
    "categories": CategoricalColumn("c", categories=["x", "y", "z"], dtype="object"),
    "one category": CategoricalColumn("c", categories=["x"], dtype="str"),
    "ordered": CategoricalColumn(
        "c", categories=["lo", "hi"], ordered=True, missing=True, dtype="category[str]"
    ),
    "others": CategoricalColumn("c", categories=["x", "y"], other="rest", dtype="string"),
    "ordered, others": CategoricalColumn("c", categories=["S", "M"], ordered=True, other="huge"),
    "numbers": CategoricalColumn("c", categories=[3, 1, 2], dtype="int64"),
    "ordered numbers": CategoricalColumn(
        "c", categories=[1, 2, 3], ordered=True, missing=True, dtype="float64"
    ),
    "truth": BooleanColumn("c", dtype="bool"),
    "truth, missing": BooleanColumn("c", missing=True, dtype="boolean"),
    "truth as numbers": BooleanColumn("c", dtype="int64"),
}

# What texts of a file each kind reads.
DIGITS = [f"{BIG}" for BIG in (2**53 + 1, 2**53 + 3, 2**64, -3, 600)]
DIGITS += [f"{2**53}.5", f" {2**53 + 5} ", "9" * 300, "-1e300", "0.5", "0.1", "1e16", "007", "+3"]
DIGITS += ["", "NaN", "-0"]
DAYS = ["2024-06-01", "2024-06-01T12:00:00.123456789", "1066-01-01", "9999-12-31", "20240601", ""]
FILE_TEXTS = {
    "numeric": DIGITS,
    "datetime": DAYS,
    "timedelta": ["0:00:01", "2 days", "36 h", "P1DT2H", ""],
    "categorical": [*DIGITS, "x", "lo", "S", "None"],
    "boolean": ["True", "false", "1", "0.0", "", "NA"],
}


class Series(NamedTuple):
    """How a series is made of values, and the columns that read it."""

    make: Callable[[list[Any]], Any]
    inside: list[Any]  # values that `columns` give back exactly,
    beyond: list[Any] = []  # and more that they read all the same
    columns: list[Any] = []
    rough: list[Any] = []  # columns that read them all, and round

    @property
    def can_miss(self):
        try:
            return bool(read_column(self.make([None])).missing[0])
        except (TypeError, ValueError):
            return False


class ArrowTable:
    """A table of which nothing is known but that it speaks Arrow's protocol."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


def pandas_of(dtype):
    return lambda values: pd.Series(
        [np.nan if v is None and dtype.startswith("float") else v for v in values], dtype=dtype
    )


def polars_of(dtype):
    return lambda values: pl.Series(values, dtype=dtype, strict=False)


def nullable_unsigned(values):
    """Return exact integers; pandas makes a column of a list by way of floats."""
    lost = np.array([value is None for value in values])
    numbers = np.array([0 if value is None else value for value in values], dtype="uint64")
    return pd.Series(pd.arrays.IntegerArray(numbers, lost))


def category(listed, *rough, ordered=False):
    dtype = pd.CategoricalDtype(listed, ordered=ordered)
    exact = [CategoricalColumn("c", categories=listed, ordered=ordered)]
    return Series(lambda values: pd.Series(values, dtype=dtype), listed, [], exact, list(rough))


def pandas_ticks(dtype, zone=None):
    def make(ticks):
        lost = [tick is None for tick in ticks]
        numbers = np.array([0 if tick is None else tick for tick in ticks])
        values = pd.Series(numbers.astype(dtype)).mask(lost)
        return values if zone is None else values.dt.tz_localize("UTC").dt.tz_convert(zone)

    return make


def polars_ticks(dtype):
    return lambda ticks: pl.Series(ticks, dtype=pl.Int64).cast(dtype)


BIG = 2**53
WHOLE = [-3, BIG + 1, BIG + 3, BIG + 4, 2**62 + 1, -(2**63), 2**63 - 1]
SMALL = [-3, 100, -128, 127]
UNSIGNED = [100, BIG + 1, BIG + 3, 2**63, 2**64 - 1]
SINGLE = [-0.0, 0.1, 0.5, 1 / 3, -3.25, 1e-40, 3e38, -3e38]
REAL = [-0.0, 0.1, 0.5, 1 / 3, -3.25, 1e-300, 5e-324, 1e300, -1.7e308, float(BIG + 2)]
ODD = [np.uint64(BIG + 7), np.float32(0.1), Fraction(1, 3), 2**64, -(10**30)]
WORDS = ["", "a", "b", "nan", "1", "1.0", "True", "ä", "#", "rare"]
# Ticks since 1970: around changes of the clocks, far away, and as far as there is any.
TICKS = [0, -1, 1585443600 * 10**6, 1603587600 * 10**6 + 1, 1577836800 * 10**6, 2**62, -(2**62)]
TICKS += [2**63 - 1, -(2**63) + 2, 86_399_999_999]
SPANS = [-1, 1, 86_399_999_999, 3_600 * 10**6 + 1, 10**12]
OBJECTS = [
    *(datetime(2020, 6, 1, 12, 1), date(2020, 6, 1), datetime(1, 1, 1)),
    *(np.datetime64("1066-01-01"), np.datetime64("2020-06-01T12:00:03.123456789")),
    pd.Timestamp("2020-06-01 12:00:01.123456789"),
    *("2020-06-01", "2020-06-01 12:30", "2020-06-01T12:00:00.123456789", "9999-12-31"),
]
ZONED = [
    datetime(2020, 6, 1, 12, tzinfo=timezone(timedelta(hours=3))),
    pd.Timestamp("2020-06-01 12:00:01.123456789", tz="Europe/Rome"),
    *("2020-06-01T12:00:00Z", "2020-06-01T12:00:00+03:00", "2020-06-01 12:00:00.5-05:00"),
]

LISTED = CategoricalColumn("c", categories=[0, 1, 7, 100], other=-1)
LOG = NumericColumn("c", lower=0, upper=100, integer=True, log_scale=True)
SHORT = [NumericColumn("c", lower=-3, upper=7, integer=True), LOG, LISTED]
LONG = NumericColumn("c", lower=BIG, upper=BIG + 9, integer=True)
WIDE = [
    NumericColumn("c", lower=-1.0, upper=1 / 3),
    NumericColumn("c", lower=-3.25, upper=2.0**54, log_scale=True),
]
STATED = [
    *(column.replace(dtype="int64") for column in (*SHORT, LONG)),
    *(column.replace(dtype="float64") for column in WIDE),
]
KNOWN = ["", "a", "1", "nan"]
ORDERED = CategoricalColumn("c", categories=KNOWN[::-1], ordered=True, missing=True)
TEXTS = [CategoricalColumn("c", categories=KNOWN, other="another"), ORDERED]
TRUTHS = [BooleanColumn("c")]
LIMITS = {"lower": "2020-01-01", "upper": "2021-01-01"}
AMOUNTS = ["1.234,50 EUR", "1234,5", "EUR 7", "(1 000)", "-0,5 EUR", "1.234", "12"]
AMOUNT = NumericColumn("c", lower=-1000.0, upper=5000.0, written="1.234,50 EUR")
WRITTEN = ["2020-03-04", "04/03/2020", "Mar 04, 2020", "4.3.20", datetime(2020, 3, 4)]
DATES = [DatetimeColumn("c", formats=["%d/%m/%Y", "%b %d, %Y", "%d.%m.%y"], **LIMITS)]
TIMES = [DatetimeColumn("c", resolution=r, **LIMITS) for r in ("s", "min", "h", "D")]
IN_UTC = {side: f"{day}T00:00+00:00" for side, day in LIMITS.items()}
UTC_TIMES = [DatetimeColumn("c", resolution=r, **IN_UTC) for r in ("s", "min", "h")]
TOKYO = [DatetimeColumn("c", dtype="datetime64[s, Asia/Tokyo]", **LIMITS)]
LASTING = [
    TimedeltaColumn("c", resolution=r, lower="-1 days", upper="2 days")
    for r in ("s", "min", "h", "D")
]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
CLOCKS = [("ms", "Europe/Berlin"), ("us", "America/New_York"), ("ns", "Asia/Kolkata"), ("us", None)]


def times(make, unit, zone):
    """Midnights of 2020 in UTC come back exactly."""
    midnights = [(18262 + day) * 86_400 * PER_SECOND[unit] for day in (0, 1, 89, 366)]
    exact, rough = (TIMES, []) if zone is None else (UTC_TIMES, TIMES)
    return Series(make, midnights, TICKS, exact, rough)


def spans(make, unit):
    days = [day * 86_400 * PER_SECOND[unit] for day in (-1, 0, 2)]
    return Series(make, days, SPANS, LASTING)


SERIES = {
    "pandas": {
        **{t: Series(pandas_of(t), [0, 1, 7], WHOLE, SHORT, [LONG]) for t in ("int64", "Int64")},
        "object of numbers": Series(
            pandas_of("object"), [0, 1, 7], [*WHOLE, *REAL, *UNSIGNED, *ODD], rough=STATED
        ),
        **{t: Series(pandas_of(t), [0, 1, 7], SMALL, SHORT) for t in ("int8", "Int8")},
        "uint64": Series(pandas_of("uint64"), [0, 1, 7], UNSIGNED, [LOG], [LONG]),
        "UInt64": Series(nullable_unsigned, [0, 1, 7], UNSIGNED, [LOG], [LONG]),
        **{
            t: Series(pandas_of(t), [0.0, 1.0, 7.0], values, SHORT, [LONG, *WIDE])
            for values, types in ((REAL, ("float64", "Float64")), (SINGLE, ("float32", "Float32")))
            for t in types
        },
        "float16": Series(pandas_of("float16"), [0, 1, 7], SMALL, SHORT),
        **{t: Series(pandas_of(t), KNOWN, WORDS, TEXTS) for t in ("str", "string", "object")},
        "amounts as text": Series(pandas_of("str"), [], AMOUNTS, rough=[AMOUNT]),
        "dates as text": Series(pandas_of("object"), [], WRITTEN, rough=DATES),
        "truth as text": Series(pandas_of("str"), [], ["yes", "NEIN", "n", "J", "1"], rough=TRUTHS),
        **{t: Series(pandas_of(t), [True, False], columns=TRUTHS) for t in ("bool", "boolean")},
        "object of truth values": Series(pandas_of("object"), [True, False], columns=TRUTHS),
        "category of text": category(WORDS, *TEXTS),
        "category in order": category(WORDS[::-1], *TEXTS, ordered=True),
        "category of numbers": category(sorted(WHOLE[:-2]), LISTED),
        "category of floats": category(REAL, LISTED),
        "category of both": category(["q", 3]),
        "category of truth values": category(
            [True, False], CategoricalColumn("c", categories=[True], other=False)
        ),
        "object of times": Series(pandas_of("object"), [], OBJECTS, rough=TIMES),
        "object of times with zones": Series(pandas_of("object"), [], ZONED, rough=TOKYO),
        **{
            f"datetime64[{u}, {z}]": times(pandas_ticks(f"datetime64[{u}]", z), u, z)
            for u, z in (*CLOCKS, ("s", "UTC"))
        },
        **{
            name: spans(pandas_ticks(name), unit)
            for unit in ("ms", "us", "ns")
            for name in [f"timedelta64[{unit}]"]
        },
    },
    "polars": {
        "Int64": Series(polars_of(pl.Int64), [0, 1, 7], WHOLE, SHORT, [LONG]),
        "Int8": Series(polars_of(pl.Int8), [0, 1, 7], SMALL, SHORT),
        "UInt64": Series(polars_of(pl.UInt64), [0, 1, 7], UNSIGNED, [LOG], [LONG]),
        "Float64": Series(polars_of(pl.Float64), [0, 1, 7], REAL, SHORT, [LONG, *WIDE]),
        "Float32": Series(polars_of(pl.Float32), [0, 1, 7], SINGLE, SHORT, [LONG, *WIDE]),
        "String": Series(polars_of(pl.String), KNOWN, WORDS, TEXTS),
        "Categorical": Series(polars_of(pl.Categorical), KNOWN, WORDS, TEXTS),
        "Enum": Series(
            polars_of(pl.Enum(WORDS)),
            WORDS,
            columns=[CategoricalColumn("c", categories=WORDS)],
            rough=TEXTS,
        ),
        "Boolean": Series(polars_of(pl.Boolean), [True, False], columns=TRUTHS),
        "Date": Series(
            lambda days: pl.Series(days, dtype=pl.Int32).cast(pl.Date),
            [18262, 18400],
            [0, -1, 2**31 - 1, -(2**31), 10**6],
            TIMES,
        ),
        **{f"Datetime({u}, {z})": times(polars_ticks(pl.Datetime(u, z)), u, z) for u, z in CLOCKS},
        **{f"Duration({u})": spans(polars_ticks(pl.Duration(u)), u) for u in ("ms", "us", "ns")},
    },
}
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": lambda columns: ArrowTable(pl.DataFrame(columns)),
}


@st.composite
def tables(draw, library):
    """Draw a table of pandas or polars and a schema that gives its values back."""
    exact = [series for series in SERIES[library].values() if series.columns]
    n_rows = draw(st.integers(1, 6))
    columns, found = [], {}
    for place, series in enumerate(draw(st.lists(st.sampled_from(exact), min_size=1, max_size=4))):
        column = draw(st.sampled_from(series.columns))
        missing = series.can_miss and draw(st.booleans())
        value = st.sampled_from([*series.inside, None] if missing else series.inside)
        columns.append(column.replace(name=f"c{place}", missing=missing))
        values = draw(st.lists(value, min_size=n_rows, max_size=n_rows))
        found[f"c{place}"] = series.make(values)
    # A schema need not have the order of the table.
    return FRAMES[library](found), TableSchema(draw(st.permutations(columns)))


def mixed_rows(n_rows, seed=0):
    """Return a table of pandas with numbers, texts, truth values, dates and holes."""
    rng = np.random.default_rng(seed)
    holes = rng.random(n_rows) < 0.2
    days = pd.to_timedelta(rng.integers(0, 2000, n_rows), "D")
    jobs, shares = ["clerk", "cook", "farmer", "poet"], [0.5, 0.3, 0.19, 0.01]
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 91, n_rows),
            "gain": np.where(rng.random(n_rows) < 0.9, 0, rng.lognormal(8, 1, n_rows)).round(),
            "height": np.where(holes, np.nan, rng.normal(1.7, 0.1, n_rows)),
            "job": rng.choice(jobs, n_rows, p=shares),
            "member": rng.random(n_rows) < 0.3,
            "since": pd.Timestamp("2015-01-01") + days,
        }
    )
    frame["since"] = frame["since"].astype("datetime64[s]")
    frame.loc[rng.random(n_rows) < 0.1, "job"] = None
    return frame
