"""
Is this tree slower than another commit?
========================================

Times the core of the package (sketch, flow, table, gradient steps, Sinkhorn) in this tree and in
a base commit, which is checked out into a temporary worktree. One process per tree stays up, and
the two take turns call by call, so that both see the same machine. Printed for each item: the
shortest and the median processor time of each tree, the ratio now/base of the shortest times,
and the median of the ratios of pairs; below 1 this tree is faster.

Run ``OMP_NUM_THREADS=1 python examples/benchmarks/bench_core.py [--base COMMIT] [item ...]``;
a minute on one core.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BASE = "95e807bc8f82af93a2da6cbed442e44d78fd7161"  # where the inside of the package was rewritten
RNG = np.random.default_rng(0)
BOX = {"bounds": (-1, 1)}

Call = Callable[[], object]


def _named(**options: Any) -> dict[str, Any]:
    """Return options under the names of the tree at hand; its base says n_slices."""
    from skdpot import SlicedSketch

    if "n_projections" in options and "n_slices" in SlicedSketch().get_params():
        options["n_slices"] = options.pop("n_projections")
    return options


def _owned(parameter: str, kind: str, **options: Any) -> dict[str, Any]:
    """Return an option that is an object of `skdpot.mechanisms`; the base has flat options."""
    with suppress(ImportError, AttributeError):
        return {parameter: getattr(importlib.import_module("skdpot.mechanisms"), kind)(**options)}
    return _named(**options)


def sketch_fit() -> Call:
    """Project, count and release 20,000 rows along 200 directions."""
    from skdpot import SlicedSketch

    rows = RNG.uniform(-1, 1, size=(20_000, 50))
    sketch = SlicedSketch(**_named(n_projections=200), n_bins=64, **BOX)
    return lambda: sketch.fit(rows)


def flow_steps() -> Call:
    """Move 2,000 particles a hundred steps towards a sketch."""
    from skdpot import DPSlicedFlowSampler

    rows = RNG.uniform(-1, 1, size=(500, 20))
    particles = {"n_particles": 2000, "n_steps": 100}
    mechanism = _owned("mechanism", "Sketch", n_projections=100, n_bins=32)
    sampler = DPSlicedFlowSampler(**mechanism, **particles, **BOX)
    return lambda: sampler.fit(rows)


def flow_of_rows() -> Call:
    """Move 500 particles forty steps, each towards noisy projections of its own of 1,000 rows."""
    from skdpot import DPSlicedFlowSampler

    rows = RNG.uniform(-1, 1, size=(1000, 20))
    mechanism = _owned("mechanism", "Resample", batch_size=1000, n_projections=50)
    if "batch_size" in mechanism:
        mechanism["mechanism"] = "resample"
    sampler = DPSlicedFlowSampler(**mechanism, n_steps=40, n_particles=500, **BOX)
    return lambda: sampler.fit(rows)


def table_fit() -> Call:
    """Learn a table of eight columns and 20,000 rows."""
    from skdpot import DPTableSynthesizer, TableSchema
    from skdpot.preprocessing import CategoricalColumn

    codes = RNG.integers(6, size=(20_000, 8)).astype(float)
    schema = TableSchema([CategoricalColumn(f"x{j}", categories=range(6)) for j in range(8)])
    synthesizer = DPTableSynthesizer(schema, n_particles=5000)
    return lambda: synthesizer.fit(codes)


def gradient_mlp() -> Call:
    """Take ten private steps of a dense autoencoder on batches of all 1,000 rows."""
    from skdpot import PrivateSWAutoencoder

    rows = RNG.uniform(-1, 1, size=(1000, 64))
    steps = _owned("mechanism", "DPSGD", n_steps=10, batch_size=1000)
    network = PrivateSWAutoencoder(8, **steps, **BOX)
    return lambda: network.fit(rows)


def gradient_conv() -> Call:
    """Take two private steps of a convolutional autoencoder on all of 200 images."""
    from skdpot import PrivateSWAutoencoder

    rows = RNG.uniform(-1, 1, size=(200, 784))
    steps = _owned("mechanism", "DPSGD", n_steps=2, batch_size=200)
    shape = _owned("architecture", "Architecture", networks="conv", image_shape=(28, 28))
    if "networks" in shape:
        shape["architecture"] = shape.pop("networks")
    network = PrivateSWAutoencoder(8, **steps, **shape, **BOX)
    return lambda: network.fit(rows)


def gradient_fair() -> Call:
    """Take ten private and fair steps of a small network on all of 4,000 records."""
    from skdpot import FairPrivateClassifier

    rows = RNG.uniform(-1, 1, size=(4000, 16))
    labels, groups = rows[:, 0] > 0, np.arange(4000) % 2
    options = {"n_steps": 10, "n_releases": 5, "batch_fraction": 1.0, "n_projections": 20}
    steps = _owned("mechanism", "SketchedOutputs", **options)
    model = FairPrivateClassifier(module="mlp", **steps)
    return lambda: model.fit(rows, labels, sensitive_features=groups)


def sinkhorn() -> Call:
    """Solve for the Schrödinger potentials of six pairs of clouds of 700 points."""
    from skdpot.ot.sinkhorn import schrodinger_potentials

    first, second = RNG.uniform(-1, 1, size=(2, 6, 700, 2))
    regularization = np.full(6, 0.01)
    return lambda: schrodinger_potentials(first, second, regularization, tol=1e-4)


ITEMS: dict[str, Callable[[], Call]] = {
    "sketch": sketch_fit,
    "flow": flow_steps,
    "flow of rows": flow_of_rows,
    "table": table_fit,
    "gradient, mlp": gradient_mlp,
    "gradient, conv": gradient_conv,
    "gradient, fair": gradient_fair,
    "sinkhorn": sinkhorn,
}


def work() -> None:
    """Answer each name of an item on the standard input with the seconds of one call."""
    warnings.simplefilter("ignore")
    ready: dict[str, Call] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = ITEMS[name]()
            ready[name]()  # what is computed once is not timed
        start = time.process_time()  # what others do on the machine is not counted
        ready[name]()
        print(time.process_time() - start, flush=True)


def worker(side: str, tree: Path) -> subprocess.Popen[str]:
    """Start the process of one tree."""
    return subprocess.Popen(
        [sys.executable, __file__, "--side", side],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
    )


def ask(process: subprocess.Popen[str], name: str) -> float:
    """Let a process take one call."""
    print(name, file=process.stdin, flush=True)
    answer = process.stdout.readline() if process.stdout else ""
    if not answer:
        raise SystemExit(f"{name}: the process that timed it has ended; its error is above.")
    return float(answer)


def compare(names: list[str], base: Path, repeats: int) -> None:
    """Time the items in both trees and print a line for each."""
    sides = {"base": worker("base", base), "now": worker("now", ROOT)}
    print(f"{'seconds':16}{'base':>16}{'now':>16}{'now/base':>18}")
    try:
        for name in names:
            found: dict[str, list[float]] = {"base": [], "now": []}
            for k in range(repeats):
                for side in ("base", "now") if k % 2 else ("now", "base"):
                    found[side].append(ask(sides[side], name))
            pairs = [now / then for now, then in zip(found["now"], found["base"], strict=True)]
            ratio = f"{min(found['now']) / min(found['base']):.3f} ({median(pairs):.3f})"
            cells = [f"{min(found[s]):.3f} ({median(found[s]):.3f})" for s in ("base", "now")]
            print(f"{name:16}{cells[0]:>16}{cells[1]:>16}{ratio:>18}", flush=True)
    finally:
        for process in sides.values():
            process.terminate()


def main() -> None:
    """Check out the base, compare, and remove it again."""
    parser = argparse.ArgumentParser(description="Times of this tree beside those of a commit.")
    parser.add_argument("items", nargs="*", metavar="item", help=", ".join(ITEMS))
    parser.add_argument("--base", default=BASE, help="commit to compare with")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--side", choices=("base", "now"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        work()
        return
    if unknown := set(options.items) - set(ITEMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(ITEMS)}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), options.base], check=True)
        try:
            compare(options.items or list(ITEMS), tree, options.repeats)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


if __name__ == "__main__":
    main()
