"""
Table 1 of the flow paper beside the sketch: quality, privacy spent, and time.

Rivals, each on the same 30,000 private codes (see ``table1_task.py``), with δ = 1e-5:

- ``DPSWgen``, ``DPSWflow`` and ``DPSWflow-r`` with the paper's settings (batch 250; 70 directions,
  or 31 of which each step takes 25; steps of 3; no diffusion; 35 epochs, or 20 at ε of 5 and
  less; 1,500 steps of ``DPSWflow``, each over all rows), and the least noise for the ε at the
  head of the column by the library's accounting. Directions are orthogonal, which spares them
  a quarter of the noise that independent ones need;
- ``sketch flow``, ``sketch generator`` and ``sketch flow, labels`` with the library's defaults. The
  last one learns the private labels too; images of the others are labelled by the public
  classifier.

Two more columns take the paper's own noise, for which it states ε = 10 and ε = 5: multipliers of
0.67 and 0.8, which are standard deviations of 5.05 and 6.03 with its sensitivity. The table shows
what this noise costs with orthogonal directions. And three rows without privacy say what can be
reached: real images, the same decoded from their codes, and codes drawn uniformly.

``--networks`` chooses the public autoencoder. "paper" is the paper's convolutional one, trained for
as long as in the authors' configuration (a million steps of 250 images: hours on a GPU); "quick" is
the same with 900 steps of 64 (minutes on one thread); "mlp" is a perceptron.

Each cell (method, column, seed) is kept in a file of its own in the folder ``--out``, so that an
interrupted run goes on where it stopped.

    python examples/benchmarks/bench_table1.py --out results
    python examples/benchmarks/bench_table1.py --quick --seeds 1 --out results
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from joblib import Parallel, delayed
from mnist_halves import DEFAULT_CACHE, DEFAULT_DATA
from table1_cells import METHODS, PAPER_NOISE, VERSION, Settings, cells, level_of, run_cell
from table1_report import write_report
from table1_task import CONFIGS
from tqdm import tqdm


def main() -> None:
    """Run the cells that are missing; write the table and the picture."""
    options = _parser().parse_args()
    levels = [level_of(epsilon) for epsilon in options.epsilons]
    levels += [PAPER_NOISE[sigma] for sigma in options.sigmas]
    settings = Settings(options.cache, options.data, CONFIGS[options.networks])
    folder = options.out / f"cells-{settings.task().key}-{VERSION}"
    wanted = {cell.path(folder): cell for cell in cells(options.methods, levels, options.seeds)}
    missing = [cell for path, cell in wanted.items() if not path.exists()]
    done = Parallel(options.jobs, return_as="generator_unordered")(
        delayed(run_cell)(cell, settings, folder) for cell in missing
    )
    try:
        for _ in tqdm(done, total=len(missing), desc="cells"):
            pass
    finally:
        write_report([path for path in wanted if path.exists()], options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="mnist.npz")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="of public networks")
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "table1", help="of results")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[math.inf, 10, 5, 1, 0.2])
    parser.add_argument(
        "--sigmas", type=float, nargs="*", choices=[*PAPER_NOISE], default=[*PAPER_NOISE]
    )
    parser.add_argument("--methods", nargs="*", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--networks", choices=[*CONFIGS], default="paper", help="public ones")
    parser.add_argument(
        "--quick", action="store_const", dest="networks", const="quick", help="--networks quick"
    )
    parser.add_argument("--jobs", type=int, default=1, help="above 1, seconds mean little")
    return parser


if __name__ == "__main__":
    main()
