"""
Which slices of a table are worth their noise, and what each part of the synthesizer adds.

On Adult at each ε (δ = 1e-5, the training rows of ``bench_tables.py``): `DPSlicedFlowSampler` on
the coordinates of `TableEncoder`, along dense directions and along sparse ones with random weights
(400 over the target and one or two other columns, 200 over pairs); `DPTableSynthesizer`, whose
slices are contingency tables; and the same with one part changed at a time.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_table_choices.py --seeds 3 --csv choices.csv
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from bench_tables import judge
from table_task import DEFAULT_CSV, TableTask, load_task

from skdpot import DPSlicedFlowSampler, DPTableSynthesizer, TableEncoder
from skdpot.mechanisms import Sketch
from skdpot.tables import bins, fitting, model, particles, plan, tree

MEASURES = ("auc", "accuracy", "tv1", "tv2", "tv3", "w1")

# What is changed: a module, its constant, and another value.
CHANGES: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "contingency tables (the default)": (),
    "... without a target": (),
    "... target as important as others": ((fitting, "TARGET_IMPORTANCE", 1.0),),
    "... no tree: pairs from independent columns": (
        (
            plan,
            "_FEW",
            plan._FEW | {"independence": 1e-6, "tree": 1e-6, "pairs": 0.84},
        ),
    ),
    "... tree only: no second choice": (
        (
            plan,
            "_FEW",
            {"columns": 0.1, "independence": 0.1, "tree": 0.8}
            | dict.fromkeys(("candidates", "misfit", "pairs"), 1e-6),
        ),
    ),
    "... no groups of bins": (
        (plan, "MOST_GROUPS", 64),
        (plan, "_SEEN_CELL", 1e-9),
    ),
    "... 12 bins in place of 24": ((bins, "MAX_BINS", 12),),
    "... 48 bins in place of 24": ((bins, "MAX_BINS", 48),),
    "... no ties inside groups": ((tree, "FEWEST_TIED", 10**9),),
    "... no second parents": ((tree, "_MOST_CASES", 0),),
    "... counts held ten times tighter": ((particles, "SMOOTHING", 0.005),),
    "... counts held ten times looser": ((particles, "SMOOTHING", 0.5),),
    "... particles not fitted again when drawn": ((model, "_DRAW_SWEEPS", 0),),
}


def sparse_directions(
    groups: Any,
    n_projections: int,
    n_features: int,
    rng: Any,
    *,
    group_size: int,
    always: Any = None,
) -> np.ndarray:
    """Draw directions with random weights on the features of a few columns."""
    others = [k for k in range(len(groups)) if k != always]
    rows = np.zeros((n_projections, n_features))
    for row in rows:
        chosen = list(rng.choice(others, group_size - (always is not None), replace=False))
        if always is not None:
            chosen.append(always)
        support = np.concatenate([np.asarray(groups[k], dtype=int) for k in chosen])
        row[support] = rng.standard_normal(len(support))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@contextmanager
def changed(changes: tuple[tuple[Any, str, Any], ...]) -> Iterator[None]:
    """Run with other constants."""
    before = [getattr(module, name) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)


def synthesizer(
    name: str, task: TableTask, epsilon: float, seed: int
) -> tuple[pd.DataFrame, float]:
    """Return a synthetic table of a variant, and its seconds."""
    target = None if "without a target" in name else task.target
    start = time.perf_counter()
    with changed(CHANGES[name]):
        fitted = DPTableSynthesizer(task.schema, epsilon=epsilon, target=target).fit(task.train)
        table = fitted.sample(len(task.train), random_state=seed)
    return table, time.perf_counter() - start


def directions(encoder: TableEncoder, target: str, rng: np.random.Generator) -> np.ndarray:
    """Draw sparse directions over the columns of an encoder."""
    blocks = list(encoder.column_blocks_.values())
    n_coordinates = max(block.stop for block in blocks)
    groups = [range(n_coordinates)[block] for block in blocks]
    always = list(encoder.column_blocks_).index(target)
    return np.concatenate(
        [
            sparse_directions(groups, 200, n_coordinates, rng, group_size=2, always=always),
            sparse_directions(groups, 200, n_coordinates, rng, group_size=3, always=always),
            sparse_directions(groups, 200, n_coordinates, rng, group_size=2),
        ]
    )


def flow(sparse: bool) -> Callable[[TableTask, float, int], tuple[pd.DataFrame, float]]:
    """Return a variant that moves particles in the coordinates of an encoder."""

    def run(task: TableTask, epsilon: float, seed: int) -> tuple[pd.DataFrame, float]:
        start = time.perf_counter()
        encoder = TableEncoder(task.schema).fit(task.train)
        sketch = Sketch()
        if sparse:
            rows = directions(encoder, task.target, np.random.default_rng(seed))
            sketch = Sketch(projections=rows, n_bins=64)
        sampler = DPSlicedFlowSampler(
            sketch, epsilon=epsilon, norm_bound=1.0, n_particles=20_000, n_steps=300
        ).fit(encoder.transform(task.train))
        table = encoder.inverse_transform(sampler.sample(len(task.train), random_state=seed))
        return table, time.perf_counter() - start

    return run


def main() -> None:
    """Run all variants and print their means."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv")
    options = parser.parse_args()
    task = load_task(DEFAULT_CSV, "income", None, ["fnlwgt"])
    variants: dict[str, Callable[[TableTask, float, int], tuple[pd.DataFrame, float]]] = {
        "dense directions, particle flow": flow(sparse=False),
        "sparse directions, particle flow": flow(sparse=True),
    }
    for name in CHANGES:
        variants[name] = lambda task, epsilon, seed, name=name: synthesizer(
            name, task, epsilon, seed
        )
    rows = []
    for epsilon in options.epsilons:
        for name, run in variants.items():
            judged = []
            for seed in range(options.seeds):
                table, seconds = run(task, epsilon, seed)
                judged.append(judge(task, table) | {"seconds": seconds})
            means = pd.DataFrame(judged).mean()
            rows.append({"projections": name, "epsilon": epsilon, **means[[*MEASURES, "seconds"]]})
            print(pd.DataFrame(rows[-1:]).round(4).to_string(header=len(rows) == 1, index=False))
    if options.csv:
        pd.DataFrame(rows).round(4).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
