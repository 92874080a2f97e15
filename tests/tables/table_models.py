"""Small synthesizers of every kind, fitted once."""

import functools
import warnings

import numpy as np
import pandas as pd
import polars as pl

from skdpot import DPTableSynthesizer
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)

N_ROWS = 397  # a prime, so that no array of cells has as many entries


def people(n_rows=N_ROWS, seed=0):
    """Return a table of all kinds of columns, some values missing."""
    rng = np.random.default_rng(seed)
    income = rng.exponential(2000, n_rows).round(2)
    income[rng.random(n_rows) < 0.1] = np.nan
    city = np.array(["Bonn", "Graz", "Linz", "Rome"], dtype=object)[
        rng.choice(4, n_rows, p=[0.5, 0.3, 0.15, 0.05])
    ]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n_rows),
            "income": income,
            "city": city,
            "size": pd.Categorical(
                rng.choice(["S", "M", "L"], n_rows), categories=["S", "M", "L"], ordered=True
            ),
            "smokes": rng.random(n_rows) < 0.3,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, n_rows), "D"),
            "stay": pd.to_timedelta(rng.integers(0, 240, n_rows), "h").as_unit("s"),
        }
    )


def as_polars(frame):
    """Return a table of polars, without the detour by arrow."""
    return pl.DataFrame(
        {
            name: pl.Series([None if pd.isna(value) else value for value in column.astype(object)])
            for name, column in frame.items()
        }
    )


SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90, integer=True),
        NumericColumn("income", lower=0, upper=50_000, log_scale=True, missing=True),
        CategoricalColumn("city", categories=["Bonn", "Graz", "Linz", "Rome"], other="elsewhere"),
        CategoricalColumn("size", categories=["S", "M", "L"], ordered=True),
        BooleanColumn("smokes"),
        DatetimeColumn("seen", lower="2024-01-01", upper="2024-12-31", resolution="D"),
        TimedeltaColumn("stay", lower="0 days", upper="10 days", resolution="h"),
    ]
)


def fit(data, **parameters):
    """Fit a synthesizer with a fixed seed."""
    parameters = {"epsilon": 3.0, "n_particles": 500, "random_state": 0} | parameters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return DPTableSynthesizer(**parameters).fit(data)


CASES = {
    "pandas": lambda: fit(people(), schema=SCHEMA, target="smokes"),
    "polars": lambda: fit(as_polars(people().drop(columns="size")), schema=SCHEMA.exclude("size")),
    "array": lambda: fit(people()[["age", "income"]].to_numpy(), schema=None, epsilon=20.0),
    "left out": lambda: fit(people(), schema=SCHEMA.exclude("seen", "age", "stay"), target="city"),
    "open schema": lambda: fit(people().drop(columns="seen"), schema=None, epsilon=20.0),
    "one column": lambda: fit(people()[["city"]], schema=TableSchema([SCHEMA["city"]])),
    "target alone": lambda: fit(
        people()[["city"]], schema=TableSchema([SCHEMA["city"]]), target="city"
    ),
    "no noise": lambda: fit(people(), schema=SCHEMA, epsilon=np.inf),
    "numpy scalars": lambda: fit(
        people()[["age", "smokes"]],
        schema=TableSchema([SCHEMA["age"], SCHEMA["smokes"]]),
        epsilon=np.float32(2),
        delta=np.float64(1e-6),
        n_particles=np.int64(300),
    ),
}


@functools.cache
def fitted(name):
    """Return one of `CASES`, fitted once; do not change it."""
    return CASES[name]()
