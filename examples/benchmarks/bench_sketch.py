"""Speed and memory of the sketch, beside POT on the same rows and beside the machine's limit.

Rows of 16 features are generated a chunk at a time and streamed through
``SlicedSketch.partial_fit`` (64 slices, 64 bins, public bounds). POT's
``ot.sliced_wasserstein_distance`` with 64 projections compares the same rows with as many
others; it needs all of them at once, so it stops at a million. Every measurement runs in a
process of its own, whose high-water mark is its memory. Generating rows is never timed.

The limit is what any histogram of projections has to do, in the same process and with as
many threads: the matrix product, and one pass of ``numpy.bincount`` over its results.

    python examples/benchmarks/bench_sketch.py            # minutes, most of them POT's
    python examples/benchmarks/bench_sketch.py --quick
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import ot
from tqdm import tqdm

from skdpot import SlicedSketch
from skdpot._utils.threads import in_threads, n_threads

N_FEATURES, N_SLICES, N_BINS = 16, 64, 64
CHUNK = 100_000
BLOCK = 2048
SIZES = (100_000, 1_000_000, 10_000_000)
POT_SIZES = (100_000, 1_000_000)
MEGABYTE = 2**20


def chunks(n_rows: int, dtype: str, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield normal rows, of which a few are beyond the bounds (-1, 1) and get clipped."""
    rng = np.random.default_rng(seed)
    for start in range(0, n_rows, CHUNK):
        size = min(CHUNK, n_rows - start)
        yield (0.4 * rng.standard_normal((size, N_FEATURES), dtype=np.float32)).astype(dtype)


def peak_memory() -> float:
    """Return the high-water mark of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


def seconds(function: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure_sketch(n_rows: int, dtype: str) -> dict[str, float]:
    """Stream all rows once; return seconds by phase and MB."""
    for _ in chunks(3 * CHUNK, dtype):
        pass  # the generator's own memory belongs to the base
    before = peak_memory()
    sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_projections=N_SLICES, n_bins=N_BINS)
    stream = chunks(n_rows, dtype)
    first = next(stream)
    # Two rows open the sketch: parameters, charge, noise.
    opening = seconds(lambda: sketch.partial_fit(first[:2]))
    adding = seconds(lambda: sketch.partial_fit(first[2:]))
    for rows in stream:
        adding += seconds(lambda rows=rows: sketch.partial_fit(rows))
    closing = seconds(sketch.close)
    return {
        "open": opening,
        "add": adding,
        "close": closing,
        "peak": peak_memory(),
        "before": before,
    }


def measure_limit(n_rows: int, dtype: str) -> dict[str, float]:
    """Time the parts of one pass over the rows; return seconds by part."""
    rng = np.random.default_rng(1)
    sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_projections=N_SLICES, n_bins=N_BINS)
    sketch.fit(next(chunks(1000, dtype)))
    weights = np.ascontiguousarray(sketch.directions_.T, dtype=np.float32)
    cells = np.arange(N_SLICES) * N_BINS + rng.integers(0, N_BINS, (BLOCK, N_SLICES))

    def product(rows: np.ndarray) -> None:
        out = np.empty((BLOCK, N_SLICES), dtype=np.float32)
        for block in blocks(rows):
            np.matmul(block, weights, out=out[: len(block)])

    def count(rows: np.ndarray) -> None:
        for block in blocks(rows):
            np.bincount(cells[: len(block)].ravel(), minlength=N_SLICES * N_BINS)

    def clip(rows: np.ndarray) -> None:
        for block in blocks(rows):
            sketch.bounds_.to_ball(block)

    spent = {"product": 0.0, "count": 0.0, "clip": 0.0}
    for rows in chunks(n_rows, dtype):
        single = np.array_split(rows.astype(np.float32), n_threads())
        given = np.array_split(rows, n_threads())
        for name, part, data in zip(
            spent, (product, count, clip), (single, single, given), strict=True
        ):
            spent[name] += seconds(lambda part=part, data=data: in_threads(part, data))
    return spent


def blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield consecutive blocks that stay in the cache."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]


def measure_pot(n_rows: int, dtype: str) -> dict[str, float]:
    """Time POT's sliced distance between the rows and as many others."""
    first, second = (np.concatenate(list(chunks(n_rows, dtype, seed))) for seed in (0, 1))
    spent = seconds(
        lambda: ot.sliced_wasserstein_distance(first, second, n_projections=N_SLICES, seed=0)
    )
    return {"pot": spent, "pot_peak": peak_memory()}


MEASUREMENTS = {"sketch": measure_sketch, "limit": measure_limit, "pot": measure_pot}


def in_process(name: str, n_rows: int, dtype: str, repeats: int = 1) -> dict[str, float]:
    """Run a measurement in fresh processes; return the median of each figure."""
    command = [sys.executable, __file__, "--measure", name, str(n_rows), dtype]
    runs = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(repeats)
    ]
    return {key: float(np.median([run[key] for run in runs])) for key in runs[0]}


def print_row(n_rows: int, dtype: str, found: dict[str, float]) -> None:
    """Print one line of the table."""
    total = found["open"] + found["add"] + found["close"]
    line = (
        f"{n_rows:>10,} {dtype:>8} {found['open']:>6.2f} {found['add']:>6.2f} "
        f"{found['close']:>6.2f} {total:>6.2f} {n_rows / total / 1e6:>7.2f} "
        f"{found['peak'] - found['before']:>6.0f}"
    )
    if "pot" in found:
        line += f" {found['pot']:>7.1f} {found['pot_peak']:>7.0f} {found['pot'] / total:>6.0f}"
    tqdm.write(line)


def main() -> None:
    """Measure every size and print the table, then the machine's limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to a million rows, POT to 10^5")
    parser.add_argument("--repeats", type=int, default=3, help="of the sketch; medians are shown")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, n_rows, dtype = arguments.measure
        print(json.dumps(MEASUREMENTS[name](int(n_rows), dtype)))
        return
    sizes, pot_sizes = (SIZES[:2], POT_SIZES[:1]) if arguments.quick else (SIZES, POT_SIZES)
    print(
        f"{N_FEATURES} features, {N_SLICES} slices, {N_BINS} bins; {n_threads()} threads, "
        f"load average at the start {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'rows':>10} {'input':>8} {'open s':>6} {'add s':>6} {'close':>6} {'total':>6} "
        f"{'Mrows/s':>7} {'+MB':>6} {'POT s':>7} {'POT MB':>7} {'ratio':>6}"
    )
    cases = [(n_rows, dtype) for n_rows in sizes for dtype in ("float32", "float64")]
    for n_rows, dtype in tqdm(cases, leave=False):
        found = in_process("sketch", n_rows, dtype, arguments.repeats)
        if n_rows in pot_sizes:
            found |= in_process("pot", n_rows, dtype)
        print_row(n_rows, dtype, found)
    print_limit(arguments.repeats)


def print_limit(repeats: int) -> None:
    """Print what a million rows cost at least, and what they cost."""
    n_rows = 1_000_000
    print(f"\nMachine's limit for {n_rows:,} rows, and the sketch's pass over them (ms)")
    names = ("input", "product", "count", "both", "clip", "add", "add/both")
    print(" ".join(f"{name:>8}" for name in names))
    for dtype in ("float32", "float64"):
        parts = in_process("limit", n_rows, dtype, repeats)
        adding = in_process("sketch", n_rows, dtype, repeats)["add"]
        both = parts["product"] + parts["count"]
        figures = (parts["product"], parts["count"], both, parts["clip"], adding)
        print(
            f"{dtype:>8} " + " ".join(f"{1e3 * value:>8.0f}" for value in figures),
            f"{adding / both:>8.1f}",
        )


if __name__ == "__main__":
    main()
