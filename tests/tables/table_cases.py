"""Tables of all kinds of columns, with schemas that hold all of their values."""

import datetime

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
)

__all__ = ["ArrowTable", "mixed_rows", "tables"]

WORDS = ("", "?", "a", "b", "ä b", "nan", "None", "1")
FIRST = datetime.datetime(2019, 12, 31, 23)


class ArrowTable:
    """A table of which nothing is known but that it speaks Arrow's protocol."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


@st.composite
def tables(draw, library):
    """Draw a table of pandas or polars and a schema; no value is outside."""
    n_rows = draw(st.integers(1, 6))
    n_columns = draw(st.integers(1, 4))
    names = [f"c{j}" for j in range(n_columns)]
    make = draw(st.permutations(MAKERS[library]))
    columns, series = [], {}
    for j, name in enumerate(names):
        column, values = make[j % len(make)](draw, name, n_rows)
        columns.append(column)
        series[name] = values
    frame = pd.DataFrame(series) if library == "pandas" else pl.DataFrame(series)
    # A schema need not have the order of the table.
    return frame, TableSchema(draw(st.permutations(columns)))


def some(draw, values, n_rows, missing):
    """Draw a list, None where a value is missing."""
    one = st.one_of(st.none(), values) if missing else values
    return draw(st.lists(one, min_size=n_rows, max_size=n_rows))


def pandas_integers(draw, name, n_rows):
    dtype, missing = draw(
        st.sampled_from(
            [("int64", False), ("uint8", False), ("Int64", True), ("UInt16", True), ("Int8", False)]
        )
    )
    values = some(draw, st.integers(0, 100), n_rows, missing)
    column = NumericColumn(name, lower=0, upper=100, missing=missing)
    if draw(st.booleans()):
        column = column.replace(log_scale=True)
    return column, pd.Series(values, dtype=dtype)


def pandas_whole_floats(draw, name, n_rows):
    missing = draw(st.booleans())
    dtype = draw(st.sampled_from(["float64", "float32", "Float64"]))
    values = some(draw, st.integers(-50, 50), n_rows, missing)
    column = NumericColumn(name, lower=-50, upper=50, integer=True, missing=missing)
    return column, pd.Series(values, dtype=dtype)


def pandas_texts(draw, name, n_rows):
    dtype = draw(st.sampled_from(["str", "string", "object"]))
    missing, ordered = draw(st.booleans()), draw(st.booleans())
    values = pd.Series(some(draw, st.sampled_from(WORDS), n_rows, missing), dtype=dtype)
    return CategoricalColumn(name, categories=WORDS, missing=missing, ordered=ordered), values


def pandas_categories(draw, name, n_rows):
    listed = draw(st.sampled_from([["y", "x"], [2, 1], [0.5, 2.5], [True, False], ["q", 3]]))
    missing, ordered = draw(st.booleans()), draw(st.booleans())
    dtype = pd.CategoricalDtype(listed, ordered=ordered)
    values = pd.Series(some(draw, st.sampled_from(listed), n_rows, missing), dtype=dtype)
    column = CategoricalColumn(name, categories=listed, missing=missing, ordered=ordered)
    return column, values


def pandas_booleans(draw, name, n_rows):
    dtype, missing = draw(
        st.sampled_from([("bool", False), ("boolean", True), ("object", True), ("object", False)])
    )
    values = some(draw, st.booleans(), n_rows, missing)
    return BooleanColumn(name, missing=missing), pd.Series(values, dtype=dtype)


def pandas_times(draw, name, n_rows):
    unit = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin", "Asia/Kolkata"]))
    missing = draw(st.booleans())
    hours = some(draw, st.integers(0, 9000), n_rows, missing)
    times = [None if h is None else FIRST + datetime.timedelta(hours=h) for h in hours]
    values = pd.Series(times, dtype=f"datetime64[{unit}]")
    bounds = {"lower": "2019-12-31T00:00", "upper": "2021-01-31T00:00"}
    if zone is not None:
        values = values.dt.tz_localize("UTC").dt.tz_convert(zone)
        bounds = {side: f"{bound}+00:00" for side, bound in bounds.items()}
    resolution = draw(st.sampled_from(["h", "min", "s"]))
    return DatetimeColumn(name, **bounds, resolution=resolution, missing=missing), values


def polars_numbers(draw, name, n_rows):
    dtype = draw(st.sampled_from([pl.Int64, pl.UInt8, pl.Int16, pl.Float32, pl.Float64]))
    missing = draw(st.booleans())
    values = some(draw, st.integers(0, 100), n_rows, missing)
    column = NumericColumn(name, lower=0, upper=100, integer=True, missing=missing)
    return column, pl.Series(values, dtype=dtype, strict=False)


def polars_texts(draw, name, n_rows):
    dtype = draw(st.sampled_from([pl.String, pl.Categorical, pl.Enum(WORDS)]))
    missing, ordered = draw(st.booleans()), draw(st.booleans())
    values = pl.Series(some(draw, st.sampled_from(WORDS), n_rows, missing), dtype=dtype)
    return CategoricalColumn(name, categories=WORDS, missing=missing, ordered=ordered), values


def polars_booleans(draw, name, n_rows):
    missing = draw(st.booleans())
    values = pl.Series(some(draw, st.booleans(), n_rows, missing), dtype=pl.Boolean)
    return BooleanColumn(name, missing=missing), values


def polars_times(draw, name, n_rows):
    dtype = draw(
        st.sampled_from(
            [pl.Date, pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns", "Europe/Berlin")]
        )
    )
    missing = draw(st.booleans())
    days = some(draw, st.integers(0, 300), n_rows, missing)
    morning = datetime.datetime(2020, 1, 1, 5)
    times = [None if day is None else morning + datetime.timedelta(day) for day in days]
    values = pl.Series(times, dtype=pl.Datetime("us"))
    if getattr(dtype, "time_zone", None):
        values = values.dt.replace_time_zone("UTC").cast(dtype)
    else:
        values = values.cast(dtype)
    bounds = {"lower": "2020-01-01", "upper": "2021-01-01"}
    resolution = "D" if dtype == pl.Date else "s"
    return DatetimeColumn(name, **bounds, resolution=resolution, missing=missing), values


MAKERS = {
    "pandas": (
        pandas_integers,
        pandas_whole_floats,
        pandas_texts,
        pandas_categories,
        pandas_booleans,
        pandas_times,
    ),
    "polars": (polars_numbers, polars_texts, polars_booleans, polars_times),
}


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
