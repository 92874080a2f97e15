"""Rules between columns: violations in many rows, and utility with and without rules.

``python examples/benchmarks/bench_table_rules.py`` (a few minutes)
"""

import argparse

import numpy as np
import pandas as pd

from skdpot import DPTableSynthesizer
from skdpot.preprocessing import (
    CategoricalColumn,
    DatetimeColumn,
    Forbidden,
    Implies,
    LessEqual,
    NumericColumn,
    SumTo,
    TableSchema,
)

GRADES = {"school": 9, "bachelor": 13, "master": 14, "doctor": 16}
DAYS = {"lower": "2015-01-01", "upper": "2025-12-31", "resolution": "D"}
PARTS = ["yes", "no", "perhaps"]
COLUMNS = [
    CategoricalColumn("education", categories=list(GRADES)),
    NumericColumn("grade", lower=1, upper=16, integer=True),
    DatetimeColumn("admission", **DAYS),
    DatetimeColumn("discharge", **DAYS),
    CategoricalColumn("sex", categories=["F", "M"]),
    CategoricalColumn("status", categories=["husband", "wife", "single"]),
    *(NumericColumn(name, lower=0, upper=100, integer=True) for name in PARTS),
]
RULES = [
    Implies("education", "grade", GRADES),
    LessEqual("admission", "discharge", largest=90),
    Forbidden({"sex": "F", "status": "husband"}),
    Forbidden({"sex": "M", "status": "wife"}),
    SumTo(PARTS, 100),
]


def private_rows(n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return rows that obey the rules."""
    education = rng.choice(list(GRADES), n_rows, p=[0.5, 0.3, 0.15, 0.05])
    admission = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3650, n_rows), "D")
    stay = pd.to_timedelta(np.minimum(rng.geometric(0.15, n_rows) - 1, 90), "D")
    sex = rng.choice(["F", "M"], n_rows)
    couple = np.where(sex == "F", "wife", "husband")
    shares = np.floor(rng.dirichlet([2, 3, 4], n_rows) * 100).astype(int)
    return pd.DataFrame(
        {
            "education": education,
            "grade": pd.Series(education).map(GRADES),
            "admission": admission,
            "discharge": admission + stay,
            "sex": sex,
            "status": np.where(rng.random(n_rows) < 0.5, couple, "single"),
            "yes": shares[:, 0],
            "no": shares[:, 1],
            "perhaps": 100 - shares[:, 0] - shares[:, 1],
        }
    )


def violations(rows: pd.DataFrame) -> int:
    """Return the number of rows that break a rule."""
    both = rows["sex"] + rows["status"]
    wrong = (
        (rows["education"].map(GRADES) != rows["grade"])
        | (rows["admission"] > rows["discharge"])
        | both.isin(["Fhusband", "Mwife"])
        | (rows[PARTS].sum(axis=1) != 100)
    )
    return int(wrong.sum())


def figures(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the shares of the combinations that rules are about."""
    days = (rows["discharge"] - rows["admission"]).dt.days
    shown = {
        "education, grade": rows[["education", "grade"]],
        "length of stay": days,
        "sex, status": rows[["sex", "status"]],
        "no, perhaps": rows[["no", "perhaps"]] // 10,
    }
    return {name: part.value_counts(normalize=True) for name, part in shown.items()}


def main() -> None:
    """Print what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--fits", type=int, default=3)
    args = parser.parse_args()
    real = private_rows(30_000, np.random.default_rng(3))
    due, found = figures(real), {}
    for name, rules in (("rules", RULES), ("no rules", [])):
        synthesizer = DPTableSynthesizer(TableSchema(COLUMNS, rules=rules))
        for run in range(args.fits):
            drawn = synthesizer.fit(real).sample(len(real))
            for label, shares in figures(drawn).items():
                distance = shares.sub(due[label], fill_value=0.0).abs().sum() / 2
                found[label, name, run] = distance
        for wanted in (None, {"grade": 13}, {"discharge": ("2018-01-01", "2018-12-31")}):
            n_wrong = violations(synthesizer.sample(args.rows, conditions=wanted))
            print(f"{name}, {wanted}: {n_wrong:,} of {args.rows:,} rows break a rule")
    print(pd.Series(found).groupby(level=[0, 1]).mean().unstack().round(4))


if __name__ == "__main__":
    main()
