"""A small private table and its schema."""

import io

import numpy as np
import pandas as pd

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)

SECRET = "S3CR3T"
FIT = "synth data.csv -o new.csv --schema schema.json --epsilon 1"


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    smokes = rng.random(n) < 0.4
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 10, n).round(1),
            "sex": np.where(rng.random(n) < 0.5, "Female", "Male"),
            "smokes": smokes,
            "visit": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, n), "D"),
        }
    )


def people_schema():
    return TableSchema(
        [
            NumericColumn("age", lower=18, upper=90, integer=True),
            NumericColumn("weight", lower=30, upper=120),
            CategoricalColumn("sex", categories=["Female", "Male"]),
            BooleanColumn("smokes"),
            DatetimeColumn("visit", lower="2024-01-01", upper="2024-03-01", resolution="D"),
        ]
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True
