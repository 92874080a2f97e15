"""
What persons with several rows cost: weights against one row each, for the same person-level ε.

Visits of n persons who have 1 to 16 each, drawn from a known law; `DPTableSynthesizer` at ε = 1.
Mean total variation of columns and pairs of 100,000 synthetic rows to 200,000 rows of the law
(a random row of a random person, or for ``weighting="row"`` a random row).

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_units.py --csv doc/table_units.csv
"""

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd

from skdpot import DPTableSynthesizer
from skdpot.exceptions import PrivacyWarning
from skdpot.metrics import marginal_total_variation
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, NumericColumn, TableSchema

WARDS = list("ABCDEF")
SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90, integer=True),
        BooleanColumn("sick"),
        NumericColumn("cost", lower=0, upper=100_000, integer=True),
        CategoricalColumn("ward", categories=WARDS),
        BooleanColumn("cured"),
    ]
)
WAYS: dict[str, dict[str, Any]] = {
    'unit, weighting="person" (up to 16 rows)': {"unit": "who"},
    "one row of each person": {"unit": "who", "max_rows": 1},
    'unit, weighting="row", max_rows=4': {"unit": "who", "weighting": "row", "max_rows": 4},
    'unit, weighting="row", max_rows=16': {"unit": "who", "weighting": "row", "max_rows": 16},
}


def visits(n_persons: int, seed: int) -> pd.DataFrame:
    """Draw persons of whom a third are sick, and their visits."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n_persons), rng.integers(1, 17, n_persons))
    age, sick = rng.integers(18, 90, n_persons)[who], (rng.random(n_persons) < 0.3)[who]
    cost = np.round(rng.lognormal(4 + sick, 1, len(who)))
    ward = rng.choice(WARDS, len(who), p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])
    cured = rng.random(len(who)) < 0.3 + 0.4 * sick
    columns = {"age": age, "sick": sick, "cost": cost, "ward": ward, "cured": cured}
    return pd.DataFrame({"who": who} | columns)


def main() -> None:
    """Measure, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", default="units.csv")
    args = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    names = list(SCHEMA.names)
    laws = {
        "person": visits(200_000, 99).groupby("who").sample(1, random_state=0)[names],
        "row": visits(25_000, 98)[names],
    }
    found = []
    for n_persons in (2000, 20_000):
        for way, options in WAYS.items():
            off = []
            for seed in range(args.seeds):
                fitted = DPTableSynthesizer(SCHEMA, epsilon=1.0, **options)
                drawn = fitted.fit(visits(n_persons, seed)).sample(100_000)
                law = laws[options.get("weighting", "person")]
                off.append([marginal_total_variation(law, drawn, n_way=k) for k in (1, 2)])
            one, two = np.mean(off, axis=0)
            row = {"persons": n_persons, "rows that count": way}
            found.append(row | {"tv1": f"{one:.4f}", "tv2": f"{two:.4f}"})
            print(*found[-1].values(), flush=True)
    pd.DataFrame(found).to_csv(args.csv, index=False)


if __name__ == "__main__":
    main()
