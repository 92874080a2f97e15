"""What the examples share: the files, the two fits, and the fingerprint of what they release."""

import argparse
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpot import DPTableSynthesizer, PrivacyBudget, SlicedSketch
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema

RANGES = {"age": (18, 90), "weight": (40, 160), "pressure": (80, 220)}  # public knowledge
OUTCOMES = ["home", "ward", "died"]
SCHEMA = TableSchema(
    [
        *(
            NumericColumn(name, lower=low, upper=high, integer=name == "age")
            for name, (low, high) in RANGES.items()
        ),
        CategoricalColumn("outcome", categories=OUTCOMES),
    ]
)


@contextmanager
def private_files(n_files: int = 8, n_rows: int = 5000) -> Iterator[Path]:
    """Write invented patients, one Parquet file for each hospital, and delete them at the end."""
    with tempfile.TemporaryDirectory() as name:
        for hospital in range(n_files):
            rng = np.random.default_rng(hospital)
            age = rng.integers(18, 91, n_rows)
            weight = rng.normal(70 + age / 5, 12).clip(40, 160)
            pressure = rng.normal(100 + age / 2 + weight / 4, 10).clip(80, 220)
            risk = (age - 18) / 100 + (pressure > 170) / 5
            outcome = np.select([rng.random(n_rows) < risk, rng.random(n_rows) < 0.5], [2, 1], 0)
            columns = {"age": age, "weight": weight, "pressure": pressure}
            table = pd.DataFrame(columns | {"outcome": np.array(OUTCOMES)[outcome]})
            table.to_parquet(Path(name) / f"hospital{hospital}.parquet", index=False)
        yield Path(name)


def fingerprint(values: Any) -> str:
    """Return the SHA-256 of arrays, to the last bit."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def release(X: Any) -> None:
    """Release a sketch and the tables of a synthesizer from X, whatever holds its rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledger", help="file of the budget; continued if it exists")
    parser.add_argument("--seed", type=int, default=0, help="-1 draws secret noise")
    args = parser.parse_args()
    # One budget pays for all that is released about these rows, on whichever day it is.
    budget = PrivacyBudget(epsilon=4.0, delta=1e-5, ledger=args.ledger)
    # Two runs are compared here. Real releases have no seed: who knows it can remove the noise.
    seed = None if args.seed < 0 else args.seed

    lower, upper = np.transpose(list(RANGES.values()))
    sketch = SlicedSketch(
        epsilon=1.0, bounds=(lower, upper), conditional=True, budget=budget, random_state=seed
    ).fit(X, "outcome")
    print("rows     ", sketch.n_samples_)
    print("sketch   ", fingerprint([sketch.statistic_]))

    synthesizer = DPTableSynthesizer(
        SCHEMA, epsilon=1.0, target="outcome", budget=budget, random_state=seed
    ).fit(X)
    tables = [table for found in synthesizer.releases_ for table in found.value]
    print("tables   ", fingerprint(tables))
    print(synthesizer.sample(3, random_state=0).to_string(index=False))
    print(f"one more fit may have epsilon = {budget.remaining():.2f}")
