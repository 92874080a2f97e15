"""
Domain adaptation under differential privacy: accuracy on the target, for each mechanism.

Three tasks, of which half of the rows are the source and half the target, whose labels are only
used to judge. *generated*: four Gaussian classes in eight dimensions, the target mapped by a matrix
and moved. *pendigits*: the pen strokes of the target are turned, by 25 or 40 degrees. *Adult*:
people above about 40 years are more often in the target, so that the classes are less frequent in
one domain than in the other, which no mechanism is made for.

Beside the mechanisms of `skdpot.DPDomainAdapter`: the same training on the source alone, and
logistic regression without privacy on the source and on the target's labels.

    python examples/benchmarks/bench_domain.py --seeds 3
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from fair_tasks import DEFAULT_DATA, load_task
from sklearn.linear_model import LogisticRegression

from skdpot import DPDomainAdapter
from skdpot.mechanisms import RankedOutputs, SketchedOutputs

MECHANISMS = {
    "transport": "transport",
    "sketch": SketchedOutputs(alpha=0.9),
    "ranks": RankedOutputs(alpha=0.6),
}


def generated(rng, data):
    """Return source rows, their classes, target rows and theirs."""
    fixed, n, d = np.random.default_rng(5), 10_000, 8
    means, matrix = 0.45 * fixed.normal(size=(4, d)), fixed.normal(size=(d, d))
    y = rng.integers(0, 4, 2 * n)
    X = means[y] + 0.35 * rng.normal(size=(2 * n, d))
    turned = X[n:] @ (np.eye(d) + 0.35 * matrix / np.sqrt(d)).T + 0.5 * fixed.normal(size=d)
    return np.clip(X[:n] / 3, -1, 1), y[:n], np.clip(turned / 3, -1, 1), y[n:]


def pendigits(rng, data, degrees):
    """Return pen strokes, those of the target turned."""
    read = np.load(data / "pendigits.npz")
    X = np.concatenate([read["X_train"], read["X_test"]]) / 50.0 - 1.0
    y = np.concatenate([read["y_train"], read["y_test"]]).astype(int)
    source, target = np.array_split(rng.permutation(len(X)), 2)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    turned = X[target] @ np.array([[cos, sin], [-sin, cos]])
    return X[source].reshape(-1, 16), y[source], turned.reshape(-1, 16), y[target]


def adult(rng, data):
    """Return people, of whom the older are more often in the target."""
    task = load_task("adult", data, group_feature=True, seed=0)
    X, y = np.concatenate([task.X, task.X_test]), np.concatenate([task.y, task.y_test])
    is_target = rng.random(len(X)) < 1 / (1 + np.exp(-4 * (X[:, 0] - np.median(X[:, 0]))))
    return X[~is_target], y[~is_target], X[is_target], y[is_target]


TASKS = {
    "generated": generated,
    "pendigits, 25 degrees": lambda rng, data: pendigits(rng, data, 25),
    "pendigits, 40 degrees": lambda rng, data: pendigits(rng, data, 40),
    "Adult by age": adult,
}


def judged(name, epsilon, seed, data):
    """Return the accuracy on the target of each way to train."""
    source, y, target, y_target = TASKS[name](np.random.default_rng(seed), data)
    X, labels = np.concatenate([source, target]), np.concatenate([y, y_target])
    domain = np.repeat([1, -1], [len(source), len(target)])
    alone = DPDomainAdapter(epsilon).fit(source, y)
    found = {"source alone": alone.score(target, y_target)}
    for label, mechanism in MECHANISMS.items():
        adapter = DPDomainAdapter(epsilon, mechanism=mechanism)
        adapter.fit(X, labels, sample_domain=domain)
        found[label] = adapter.score(target, y_target)
    for label, rows, classes in (("source", source, y), ("target", target, y_target)):
        plain = LogisticRegression(max_iter=500).fit(rows, classes)
        found[f"{label}, no privacy"] = plain.score(target, y_target)
    return found


def main():
    """Print one line per task and budget."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--data", type=type(DEFAULT_DATA), default=DEFAULT_DATA)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.tasks:
        for epsilon in options.epsilons:
            rows = [judged(name, epsilon, seed, options.data) for seed in range(options.seeds)]
            table = pd.DataFrame(rows)
            summary = [f"{k} {table[k].mean():.3f} ± {table[k].std():.3f}" for k in table]
            print(f"{name}, ε = {epsilon:g}: " + "; ".join(summary), flush=True)


if __name__ == "__main__":
    main()
