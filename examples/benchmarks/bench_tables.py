"""
Private synthetic tables: what a model learns from them, their marginals, time and memory.

Adult (or any CSV file with a column to predict) is copied by independent noisy marginals, by
`DPTableSynthesizer` and by three other libraries, at each ε, δ = 1e-5, from the same 80 % of the
rows with the same public schema; ``table_peers.py`` says what each method is given. Judged are

- accuracy and AUC on the other 20 % of gradient boosting that is trained on synthetic rows;
- the total variation distance of one-way and two-way marginals (means over all columns and pairs)
  and of three-way marginals (100 random triples), numbers divided at 16 quantiles of the real
  rows;
- W₁ of the numeric columns in units of the real column's standard deviation (mean);
- seconds to fit and to sample, by the clock and of all cores, and the largest resident memory of
  a process that does nothing else.

The other libraries exclude each other's requirements, so each lives in an environment of its own,
which is named on the command line; one that is not is left out. Tables and costs stay in the folder
``--out``; ``--reuse`` judges those that are there.

    python -m venv /tmp/dpmm; /tmp/dpmm/bin/pip install dpmm        # Python 3.10 or 3.11
    python -m venv /tmp/smartnoise; /tmp/smartnoise/bin/pip install torch==2.13.0
    /tmp/smartnoise/bin/pip install smartnoise-synth
    python -m venv /tmp/opendp; /tmp/opendp/bin/pip install 'opendp[mbi]' pandas
    OMP_NUM_THREADS=1 python examples/benchmarks/bench_tables.py --out results \
        --peer-python dpmm=/tmp/dpmm/bin/python smartnoise=/tmp/smartnoise/bin/python \
        opendp=/tmp/opendp/bin/python
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mnist_halves import DEFAULT_CACHE
from table_peers import INSTALL, METHODS, Cell, PeerError, costs_path, run_cell, table_path
from table_quality import (
    N_TRIPLES,
    mean_total_variation,
    normalized_wasserstein,
    quantile_codes,
    random_subsets,
    train_on_synthetic,
)
from table_task import DEFAULT_CSV, TableTask, load_task
from tqdm import tqdm

DELTA = 1e-5
COSTS = ("fit_seconds", "sample_seconds", "fit_cpu_seconds", "sample_cpu_seconds", "peak_mib")
SHOWN = ["method", "epsilon", "accuracy", "auc", "tv1", "tv2", "tv3", "w1"]
SHOWN += ["fit_seconds", "sample_seconds", "fit_cpu_seconds", "peak_mib"]


def judge(task: TableTask, synthetic: pd.DataFrame) -> dict[str, float]:
    """Return all measures of quality of a synthetic table."""
    train, copy, test = (task.as_numbers(part) for part in (task.train, synthetic, task.test))
    columns = list(train)
    real_codes, codes = quantile_codes(train, [train, copy], task.numeric)
    triples = random_subsets(columns, 3, N_TRIPLES, np.random.default_rng(0))
    distances = normalized_wasserstein(train, copy, task.numeric)
    return train_on_synthetic(copy, test, task.target, task.categories) | {
        "tv1": mean_total_variation(real_codes, codes, itertools.combinations(columns, 1)),
        "tv2": mean_total_variation(real_codes, codes, itertools.combinations(columns, 2)),
        "tv3": mean_total_variation(real_codes, codes, triples),
        "w1": float(np.mean(list(distances.values()))) if distances else float("nan"),
    }


def run(
    cell: Cell,
    task: TableTask,
    options: argparse.Namespace,
    judged: Callable[[TableTask, pd.DataFrame], dict[str, float]] = judge,
) -> list[dict[str, Any]]:
    """Fit unless a reusable result is there; return a row for each way of sampling."""
    path = costs_path(options.out, cell)
    if not (options.reuse and path.exists()):
        path.unlink(missing_ok=True)
        python = options.peer_python.get(cell.settings.library)
        run_cell(cell, task, options.out, python, options.timeout)
        costs = json.loads(path.read_text(encoding="utf-8"))
        # Seconds by the clock mean little on a busy machine.
        path.write_text(json.dumps(costs | {"load": os.getloadavg()[0]}), encoding="utf-8")
    costs = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for sampling in cell.settings.samplings:
        synthetic = read_like(table_path(options.out, cell, sampling), task.train)
        rows.append(
            {
                "method": f"{cell.method}, {sampling}" if sampling else cell.method,
                "version": costs["version"],
                "epsilon": cell.epsilon,
                "delta": cell.delta,
                "relation": cell.settings.relation,
                "seed": cell.seed,
            }
            | judged(task, synthetic)
            | {name: costs[name] for name in (*COSTS, "load")}
        )
    return rows


def read_like(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Read a table whose words are words, even those that look like a missing value."""
    words = [name for name, values in rows.items() if not pd.api.types.is_numeric_dtype(values)]
    kinds = dict.fromkeys(words, "str")
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values="")


def wanted(options: argparse.Namespace) -> list[Cell]:
    """Return the cells that can be run or reused, and say which methods are left out."""
    cells = [
        Cell(name, epsilon, DELTA, seed, options.bins)
        for seed in range(options.seeds)
        for epsilon in options.epsilons
        for name in options.methods
    ]
    at_hand = [cell for cell in cells if is_at_hand(cell, options)]
    for name in {cell.method: None for cell in cells if cell not in at_hand}:
        library = METHODS[name].library
        print(f"{name} is left out: {INSTALL[library]}; then --peer-python {library}=PYTHON")
    return at_hand


def is_at_hand(cell: Cell, options: argparse.Namespace) -> bool:
    """Whether the library can be called, or a result be reused."""
    library = cell.settings.library
    callable_ = library not in INSTALL or library in options.peer_python
    return callable_ or (options.reuse and costs_path(options.out, cell).exists())


def main() -> None:
    """Run what is wanted, write ``tables.csv``, and print the means over seeds."""
    options = _parser().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.peer_python = dict(options.peer_python)
    drop = options.drop or (["fnlwgt"] if options.csv == DEFAULT_CSV else [])
    task = load_task(options.csv, options.target, options.schema, drop)
    rows: list[dict[str, Any]] = [{"method": "real data"} | judge(task, task.train)]
    for cell in tqdm(wanted(options), unit="fit"):
        try:
            rows += run(cell, task, options)
        except PeerError as error:
            tqdm.write(f"{cell.method} at epsilon = {cell.epsilon:g} failed: {error}")
        # After every fit: an interrupted run leaves what it has.
        pd.DataFrame(rows).to_csv(options.out / "tables.csv", index=False, float_format="%.5g")
    table = pd.DataFrame(rows).reindex(columns=SHOWN)
    means = table.groupby(["epsilon", "method"], dropna=False, sort=False).mean()
    print(means.reset_index()[SHOWN].to_string(index=False, float_format="{:.4g}".format))


def name_and_path(text: str) -> tuple[str, str]:
    """Read the interpreter that a library has on the command line."""
    name, _, path = text.partition("=")
    if name not in INSTALL or not Path(path).is_file():
        raise argparse.ArgumentTypeError(
            f"{text!r} must be one of {', '.join(INSTALL)}, '=' and the path of a Python"
        )
    return name, path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", type=Path, default=DEFAULT_CSV, help="table with a header")
    parser.add_argument("--target", default="income", help="column to predict")
    parser.add_argument("--schema", type=Path, help="public schema (JSON of TableSchema)")
    parser.add_argument("--drop", nargs="*", default=[], help="columns to leave out")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--bins", type=int, default=64, help="public bins a numeric column")
    parser.add_argument(
        "--peer-python",
        nargs="*",
        default=[],
        type=name_and_path,
        metavar="NAME=PATH",
        help="interpreters of " + ", ".join(INSTALL),
    )
    parser.add_argument("--timeout", type=float, help="most seconds a fit")
    parser.add_argument("--reuse", action="store_true", help="judge the tables that are there")
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "tables")
    return parser


if __name__ == "__main__":
    main()
