"""
Private synthetic tables beside fresh rows of the law that the private rows come from.

Each table of ``table_laws.py`` (heavy tails, rules between columns, XOR of three, 100 and 300
columns, a million rows, amounts of credit cards, 16 answers, 12 categories) is copied at
ε = 1, δ = 1e-5 by independent noisy columns, by `DPTableSynthesizer` (also with rules in its
schema) and, where they are installed, by AIM and MST of dpmm. Where a table has numbers, dpmm bins
them by itself, out of the same ε. Judged against fresh rows (as many, or more where they are few)
are

- ``auc``: gradient boosting trained on synthetic rows, on 20,000 fresh rows;
- ``tv1``, ``tv2``, ``tv3``: mean total variation distance of columns, of pairs (at most 300) and of
  triples (at most 100), numbers divided at 16 quantiles;
- ``rows1``, ``rows2``, ``rows3``: the same against the private rows;
- ``known``, ``worst``: that of the columns that the law ties together, against fresh rows (mean and
  maximum);
- ``values``: of single numbers at each value that 0.5 % of the rows have, all others as one;
- ``broken``: the share of rows that break a rule of the law;
- seconds to fit and to sample as many rows, by the clock and of all cores, and memory.

The row "real data" holds the private rows themselves against the fresh ones: what chance leaves.
A method that takes longer than ``--timeout`` is left out of that table.

    python -m venv /tmp/dpmm; /tmp/dpmm/bin/pip install dpmm        # Python 3.10 or 3.11
    OMP_NUM_THREADS=1 python examples/benchmarks/bench_table_laws.py --out results --seeds 3 \
        --peer-python dpmm=/tmp/dpmm/bin/python
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench_tables import COSTS, DELTA, is_at_hand, name_and_path, run
from mnist_halves import DEFAULT_CACHE
from table_laws import LAWS, Law
from table_peers import Cell, PeerError
from table_quality import (
    N_TRIPLES,
    mean_total_variation,
    quantile_codes,
    random_subsets,
    total_variation,
    train_on_synthetic,
)
from table_task import TableTask
from tqdm import tqdm

EPSILON = 1.0
N_PAIRS = 300
N_VALUES = 5_000_000
FREQUENT = 0.005
RULED = "skdpot, rules"
PEERS = ("dpmm MST", "dpmm AIM")
METHODS = ("marginals", "skdpot", RULED, *PEERS, "dpmm AIM, triples")
QUALITY = ["auc", "tv1", "tv2", "tv3", "rows1", "rows2", "rows3"]
QUALITY += ["known", "worst", "values", "broken"]


def judge(
    law: Law, fresh: pd.DataFrame, task: TableTask, synthetic: pd.DataFrame
) -> dict[str, float]:
    """Return all measures of quality of a synthetic table."""
    columns, rng = list(fresh), np.random.default_rng(0)
    subsets = [
        random_subsets(columns, size, n, rng)
        for size, n in ((1, len(columns)), (2, N_PAIRS), (3, N_TRIPLES))
    ]
    fresh_codes, codes = quantile_codes(fresh, [fresh, synthetic], task.numeric)
    private = quantile_codes(task.train, [task.train, synthetic], task.numeric)
    known = [total_variation(fresh_codes, codes, related) for related in law.relations]
    values = [values_apart(fresh[name], synthetic[name]) for name in task.numeric]
    return {
        "auc": train_on_synthetic(synthetic, task.test, task.target, task.categories)["auc"],
        **{f"tv{len(of[0])}": mean_total_variation(fresh_codes, codes, of) for of in subsets},
        **{f"rows{len(of[0])}": mean_total_variation(*private, of) for of in subsets},
        "known": float(np.mean(known)) if known else np.nan,
        "worst": max(known, default=np.nan),
        "values": float(np.mean(values)) if values else np.nan,
        "broken": law.broken(synthetic) if law.rules else np.nan,
    }


def values_apart(real: pd.Series, synthetic: pd.Series) -> float:
    """Return the total variation distance over frequent values, all others as one."""
    shares = real.value_counts(normalize=True)
    shares = shares[shares >= FREQUENT]
    found = synthetic.value_counts(normalize=True).reindex(shares.index, fill_value=0.0)
    rest = abs(shares.sum() - found.sum())
    return float((np.abs(shares - found).sum() + rest) / 2)


def named(method: str, law: Law) -> str:
    """Return the method as it is run: with numbers, the other libraries make their own bins."""
    numbers = any(column.kind == "numeric" for column in law.columns)
    return f"{method}, own bins" if numbers and method in PEERS else method


def main() -> None:
    """Run what is wanted, write ``laws.csv``, and print the means over seeds."""
    options = _parser().parse_args()
    options.peer_python = dict(options.peer_python)
    share = 0.05 if options.quick else 1.0
    rows: list[dict[str, Any]] = []
    work = list(itertools.product(options.laws, range(options.seeds)))
    for name, seed in tqdm(work, unit="table"):
        law = LAWS[name]()
        task = law.task(seed, share)
        n_fresh = max(len(task.train), int(share * N_VALUES / len(law.columns)))
        fresh = law.rows(n_fresh, seed, 2)
        rows.append({"law": name, "method": "real data", "seed": seed})
        rows[-1] |= judge(law, fresh, task, task.train)
        folder = options.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for method in options.methods:
            cell = Cell(named(method, law), EPSILON, DELTA, seed, options.bins)
            if not is_at_hand(cell, options) or (method == RULED and not law.rules):
                continue
            try:
                done = run(
                    cell,
                    law.stated(task) if method == RULED else task,
                    argparse.Namespace(**vars(options) | {"out": folder}),
                    partial(judge, law, fresh),
                )
            except PeerError as error:
                tqdm.write(f"{method} on {name}: {error}")
                continue
            rows += [{"law": name} | row for row in done]
            # After every fit: an interrupted run leaves what it has.
            pd.DataFrame(rows).to_csv(options.out / "laws.csv", index=False, float_format="%.5g")
    table = pd.DataFrame(rows).reindex(columns=["law", "method", *QUALITY, *COSTS])
    means = table.groupby(["law", "method"], sort=False).mean().reset_index()
    print(means.to_string(index=False, float_format="{:.4g}".format))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", nargs="*", choices=LAWS, default=list(LAWS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--bins", type=int, default=64, help="public bins a numeric column")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows")
    parser.add_argument(
        "--peer-python", nargs="*", default=[], type=name_and_path, metavar="dpmm=PATH"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="most seconds a fit")
    parser.add_argument("--reuse", action="store_true", help="judge the tables that are there")
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "table_laws")
    return parser


if __name__ == "__main__":
    main()
