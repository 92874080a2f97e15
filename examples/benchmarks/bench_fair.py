"""
Accuracy against fairness, with and without privacy, on Adult and COMPAS.

The data and their coding are described in ``fair_tasks.py``, the rivals in ``fair_methods.py``,
with Opacus' DP-SGD in ``fair_dpsgd.py`` and the private thresholds in ``fair_thresholds.py``. Every
method gets the same rows, features and splits (70 % for training); δ = 1e-5. It needs Fairlearn and
Opacus beside the library.

Three tables and a picture are written into the folder ``--out``: every cell, the means over seeds,
and each method's best accuracy at a given disparate impact. Which setting is best is read from the
test rows, for all methods alike: it says what a method can reach, not what a user would pick.
No method's choice of settings is charged for.

Each cell (data set, group as a feature or not, method, setting, ε, seed) is kept in a file of its
own in ``--cache``, so that an interrupted run goes on where it stopped.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_fair.py --out results
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fair_methods import ALPHAS, METHODS, cells, run_cell
from fair_report import write_report
from fair_tasks import DATA_SETS, DEFAULT_DATA
from joblib import Parallel, delayed
from mnist_halves import DEFAULT_CACHE
from tqdm import tqdm


def main() -> None:
    """Run the cells that are missing; write the tables and the picture."""
    options = _parser().parse_args()
    chosen = cells(
        options.data_sets, options.methods, options.epsilons, options.alphas, options.seeds
    )
    wanted = {options.cache / f"{cell.name}.json": cell for cell in chosen}
    missing = {path: cell for path, cell in wanted.items() if not path.exists()}
    done = Parallel(options.jobs, return_as="generator_unordered")(
        delayed(run_cell)(cell, options.data, path) for path, cell in missing.items()
    )
    try:
        for _ in tqdm(done, total=len(missing), desc="cells"):
            pass
    finally:
        write_report([path for path in wanted if path.exists()], options.out, options.earlier)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = DEFAULT_CACHE / "fair"
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the tables")
    parser.add_argument("--cache", type=Path, default=folder / "cells", help="of finished cells")
    parser.add_argument("--out", type=Path, default=folder, help="of tables and the picture")
    parser.add_argument("--earlier", type=Path, help="fair.csv whose other means are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--alphas", type=float, nargs="*", default=[*ALPHAS], help="of ours")
    parser.add_argument("--methods", nargs="*", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--data-sets", nargs="*", choices=[*DATA_SETS], default=[*DATA_SETS])
    parser.add_argument("--jobs", type=int, default=1, help="above 1, seconds mean little")
    return parser


if __name__ == "__main__":
    main()
