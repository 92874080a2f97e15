"""A table with columns of all kinds, and what is public about it, for several tests."""

import numpy as np
import pandas as pd

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)

__all__ = ["SCHEMA", "example_table"]

SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90),
        NumericColumn("income", lower=0, upper=1e6, log_scale=True, missing=True),
        CategoricalColumn("town", categories=["Alba", "Bra", "Como"], other="elsewhere"),
        CategoricalColumn("size", categories=["S", "M", "L"], ordered=True),
        DatetimeColumn(
            "visit", lower="2024-01-01", upper="2024-12-31", resolution="D", missing=True
        ),
        BooleanColumn("member"),
        NumericColumn("score", lower=0, upper=10, integer=True, missing=True),
    ]
)


def example_table(n_rows, seed=0):
    """Return a table in which members are older, and rich people live in Alba."""
    rng = np.random.default_rng(seed)
    member = rng.random(n_rows) < 0.4
    age = np.clip(rng.normal(np.where(member, 65, 35), 8), 18, 90).round().astype(int)
    income = np.exp(rng.normal(8, 1.5, n_rows))
    town = np.where(
        (income > 5000) & (rng.random(n_rows) < 0.8), "Alba", rng.choice(["Bra", "Como"], n_rows)
    )
    days = rng.integers(0, 366, n_rows)
    return pd.DataFrame(
        {
            "age": age,
            "income": np.where(rng.random(n_rows) < 0.1, np.nan, income),
            "town": town,
            "size": pd.Categorical(
                rng.choice(["S", "M", "L"], n_rows), categories=["S", "M", "L"], ordered=True
            ),
            "visit": pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")).where(
                rng.random(n_rows) > 0.2
            ),
            "member": member,
            "score": np.where(rng.random(n_rows) < 0.3, np.nan, rng.integers(0, 11, n_rows)),
        }
    )
