"""
Private trajectories: error, time and rates, on strokes, branches and a process with known law.

Parts, each with a table (CSV) in the folder ``--out``; at the end summaries of all tables that are
there are printed:

- ``strokes`` and ``pendigits``: each person gives one random point of a stroke. Mean over times of
  W₂ and of squared W₂ to the points of people who were seen at another time, sliced W₂ between
  whole paths, seconds. The private rows (the paper's settings, the estimator's own, sketches)
  stand beside rows that are not private, and beside sketches whose times know nothing of each
  other;
- ``branching``: shares of three branches and paths that change between them;
- ``dynamics``: clusters on a spiral and on a fork, three branches, an Ornstein-Uhlenbeck process
  that turns, strokes and pen digits: squared W₂ at the times, between them and between whole
  paths (per time), and paths that change clusters, beside sketches without smoothing and ties;
- ``rates``: the integrated squared Hellinger distance of an Ornstein-Uhlenbeck process in the plane
  against the numbers of rows and of times, beside the paper's Theorem 3.2;
- ``time``: seconds of a fit of 10 times 650 points with 500 particles a time;
- ``coverage`` and ``selection``: whether intervals cover the truth, and whether times left out
  choose good paths, on populations of known law;
- ``paper``: its further experiments (annealing, no warm start, fewer times), and the entropy;
- ``settings``: what the paper leaves open, tried on digit 3; not among the default parts.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_trajectories.py --out results
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
from fair_tasks import DEFAULT_DATA
from mnist_halves import DEFAULT_CACHE
from tqdm import tqdm
from trajectory_errors import coverage, selection
from trajectory_methods import (
    METHODS,
    PRIVATE,
    UNCOUPLED,
    WANDERING,
    Recovered,
    fitted,
    paper_settings,
)
from trajectory_paper import paper
from trajectory_rates import rates
from trajectory_report import write_report
from trajectory_tasks import StrokeTask, stroke_tasks

from skdpot.datasets import (
    make_branching_trajectories,
    make_forking_trajectories,
    make_ornstein_uhlenbeck_trajectories,
    make_spiral_trajectories,
)
from skdpot.metrics import path_sliced_wasserstein_distance, wasserstein_distance
from skdpot.trajectories.moving_clusters import branch_of, branching_paths
from skdpot.trajectories.path_metrics import resample_paths

BUDGETS = ((2.0, 1e-3), (1.0, 1e-4))
BRANCHING_BUDGET = (1.0, 1e-2)
BRANCHING = {
    "sketch, entropic plans": {},
    "sketch, exact plans": {"coupling": "exact"},
    "sketch, wandering, exact": {"coupling": "exact", "diffusivity": WANDERING},
    "mfld, k-means start": {"mechanism": "mfld", "warm_start": "kmeans"},
}
N_PATHS = 3000
N_COMPARED = 500
LEFT_OPEN = {
    "bandwidth": (0.05, 0.1, 0.2),
    "regularization": (0.1, 1.0),
    "diffusivity": (0.01, 0.05, 0.5),
}


def strokes(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the errors of each digit, budget, method and seed on MNIST strokes."""
    return _digits("strokes", seeds, data)


def pendigits(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the errors of each digit, budget, method and seed on pen digits."""
    return _digits("pendigits", seeds, data)


def branching(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield shares and changes of branch, for twice as many seeds."""
    epsilon, delta = BRANCHING_BUDGET
    for seed in range(2 * seeds):
        X, t, _ = make_branching_trajectories(random_state=seed)
        for method, parameters in BRANCHING.items():
            start = perf_counter()
            sampler = fitted(
                X,
                t,
                epsilon=epsilon,
                delta=delta,
                bounds=(-1.5, 1.5),
                random_state=seed,
                **parameters,
            )
            seconds = perf_counter() - start
            # The branches meet at both ends: there a point tells nothing of its branch.
            inner = sampler.times_[(sampler.times_ > 0.2) & (sampler.times_ < 0.8)]
            branch = branch_of(sampler.sample(N_PATHS, inner, random_state=seed), inner)
            shares = np.stack([np.mean(branch == k, axis=0) for k in range(3)])
            yield {
                "method": method,
                "seed": seed,
                "upper": shares[0].mean(),
                "straight": shares[1].mean(),
                "lower": shares[2].mean(),
                "worst_deviation": np.abs(shares - 1 / 3).max(),
                "changing": np.mean((branch[:, 1:] != branch[:, :-1]).any(axis=1)),
                "seconds": seconds,
            }


def time(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield the seconds of fits of 10 times 650 points, 500 particles a time."""
    rng = np.random.default_rng(0)
    t = np.repeat(np.linspace(0, 1, 10), 650)
    methods = {"sketch": {}, "mfld": {"mechanism": "mfld", "warm_start": "mean"}}
    for n_features, (method, parameters) in product((2, 8), methods.items()):
        X = np.sin(3 * t)[:, None] / 2 + 0.2 * rng.normal(size=(len(t), n_features))
        for seed in range(seeds):
            start = perf_counter()
            fitted(X, t, epsilon=1.0, bounds=(-2, 2), random_state=seed, **parameters)
            seconds = perf_counter() - start
            yield {"d": n_features, "method": method, "seed": seed, "seconds": seconds}


def settings(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield the errors of the paper's settings with what the paper leaves open."""
    epsilon, delta = BUDGETS[0]
    for task in stroke_tasks("strokes", data, seeds):
        if task.name != "3":
            continue
        X, t = task.seen
        for values in product(*LEFT_OPEN.values()):
            left_open = dict(zip(LEFT_OPEN, values, strict=True))
            parameters = paper_settings(epsilon, delta, task.scarcest, left_open)
            parameters |= {"epsilon": epsilon, "delta": delta, "bounds": (0.0, 1.0)}
            sampler = fitted(X, t, random_state=task.seed, **parameters)
            points = [sampler.sample_marginal(s, task.n_drawn, task.seed) for s in task.times]
            errors = _marginal_errors(task, points)
            yield left_open | {"seed": task.seed} | errors


def dynamics(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield errors at the times, between them and of whole paths, and changes of cluster."""
    epsilon, delta = BUDGETS[0]
    for seed in range(1, seeds + 1):
        for name, (X, t, bounds, paths, cluster_of) in _moving(seed, data).items():
            for tables, options in TABLES.items():
                start = process_time()
                sampler = fitted(
                    X, t, epsilon=epsilon, delta=delta, bounds=bounds, random_state=seed, **options
                )
                facts = {"data": name, "tables": tables, "seed": seed}
                facts["seconds"] = process_time() - start
                errors = _path_errors(sampler, paths, cluster_of, seed)
                yield {"plans": "entropic"} | facts | errors
                exact = sampler.with_params(coupling="exact", random_state=seed)
                errors = _path_errors(exact, paths, cluster_of, seed)
                yield {"plans": "exact"} | facts | errors


TABLES = {"default": {}, "times apart": UNCOUPLED}


def _moving(seed: int, data: Path) -> dict[str, tuple[Any, ...]]:
    """Return rows, times, bounds, true paths and, where there are clusters, which one is nearest.

    Clusters are told apart from the times on that are given with them.
    """
    tasks: dict[str, tuple[Any, ...]] = {}
    for name, (X, t, _, law), first in (
        ("spiral", make_spiral_trajectories(random_state=seed), 0.0),
        ("spiral, 1.5 turns", make_spiral_trajectories(turns=1.5, random_state=seed), 0.0),
        ("fork", make_forking_trajectories(random_state=seed), 0.6),
    ):
        paths = partial(_drawn, law.sample_paths, seed)
        tasks[name] = X, t, (-1.5, 1.5), paths, (law.cluster_of, first, 1.0)
    X, t, _ = make_branching_trajectories(400, random_state=seed)
    paths = partial(_drawn, lambda n, times, rng: branching_paths(n, times), seed)
    tasks["branches"] = X, t, (-1.5, 1.5), paths, (branch_of, 0.2, 0.8)
    X, t, law = make_ornstein_uhlenbeck_trajectories(
        650, n_features=10, random_state=seed, mean_reversion=1.0, rotation=2 * np.pi
    )
    sample = law.sample_paths
    tasks["rotating OU"] = X, t, (-2.0, 2.0), partial(_drawn, lambda *a: (sample(*a),), seed), None
    for kind in ("strokes", "pendigits"):
        for task in stroke_tasks(kind, data, seed + 1)[-6:]:
            tasks[f"{kind} {task.name}"] = *task.seen, (0.0, 1.0), partial(_strokes, task), None
    return tasks


def _drawn(sample: Any, seed: int, n: int, times: np.ndarray) -> np.ndarray:
    return sample(n, times, np.random.default_rng([seed, 1]))[0]


def _strokes(task: StrokeTask, n: int, times: np.ndarray) -> np.ndarray:
    people = np.random.default_rng([task.seed, 2]).permutation(task.paths)[:n]
    return resample_paths(people, task.times, times)


def _path_errors(sampler: Any, draw: Any, clusters: Any, seed: int) -> dict[str, float]:
    knots = sampler.times_
    times = np.sort(np.concatenate([knots, (knots[1:] + knots[:-1]) / 2]))
    truth = draw(N_COMPARED, times)
    points = [sampler.sample_marginal(s, N_COMPARED, seed) for s in times]
    squared = [wasserstein_distance(truth[:, i], at) ** 2 for i, at in enumerate(points)]
    paths = sampler.sample(N_COMPARED, times, random_state=seed)
    whole = [x.reshape(len(x), -1) for x in (truth, paths)]
    errors = {
        "at_times": float(np.mean(squared[::2])),
        "between": float(np.mean(squared[1::2])),
        "paths": wasserstein_distance(*whole) ** 2 / len(times),
    }
    if clusters is not None:
        cluster_of, first, last = clusters
        apart = (knots >= first) & (knots <= last)
        found = cluster_of(paths[:, ::2][:, apart], knots[apart])
        errors["changing"] = float(np.mean((found != found[:, :1]).any(axis=1)))
    return errors


PARTS = {
    "dynamics": dynamics,
    "strokes": strokes,
    "pendigits": pendigits,
    "branching": branching,
    "rates": rates,
    "time": time,
    "coverage": coverage,
    "selection": selection,
    "paper": paper,
    "settings": settings,
}


def _digits(name: str, seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    for task in stroke_tasks(name, data, seeds):
        facts = {"data": name, "digit": task.name, "seed": task.seed, "T": len(task.times)}
        for number, (epsilon, delta) in enumerate(BUDGETS):
            # What is not private does not depend on the budget, and is measured once.
            for method, recover in (PRIVATE if number else METHODS).items():
                budget = {"epsilon": epsilon, "delta": delta} if method in PRIVATE else {}
                recovered = recover(task, epsilon, delta)
                yield facts | {"method": method} | budget | _errors(task, recovered)


def _errors(task: StrokeTask, recovered: Recovered) -> dict[str, float]:
    errors = _marginal_errors(task, recovered.marginals)
    if recovered.paths is not None:
        errors["paths"] = path_sliced_wasserstein_distance(task.true_paths()[0], recovered.paths)
    return errors | {"seconds": recovered.seconds, "spent": recovered.epsilon}


def _marginal_errors(task: StrokeTask, marginals: list[np.ndarray]) -> dict[str, float]:
    """Return the means over times of W₂ and of its square."""
    distances = np.array(
        [wasserstein_distance(task.truth(i)[0], points) for i, points in enumerate(marginals)]
    )
    return {"w2": float(distances.mean()), "squared_w2": float(np.mean(distances**2))}


def main() -> None:
    """Run the chosen parts, write their tables, and print and draw what they say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = [part for part in PARTS if part != "settings"]
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=defaults)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "trajectories")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        rows = tqdm(PARTS[part](options.seeds, options.data), desc=part, unit="row")
        pd.DataFrame(rows).to_csv(options.out / f"{part}.csv", index=False, float_format="%.6g")
    write_report(options.out)


if __name__ == "__main__":
    main()
