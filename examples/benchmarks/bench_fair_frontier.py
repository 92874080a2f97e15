"""
The frontier that a fit of `FairPrivateClassifier` tells, against the one that is true.

People of two groups (60 and 40 %) and two classes are drawn from a known law: 45 % of the first
group and 25 % of the second are of class 1, three features are normal around the class and two
around the group. Probabilities of class and group are then known for every row, and the most
accurate rule at a ratio s of the groups' rates decides 1 where

    2 P(class 1 | x) - 1 + w (P(low | x) / P(low) - s P(high | x) / P(high)) > 0.

Its weight w and its accuracy come from a million rows of the law.

A fit at n = 30,000, ε = 1 and δ = 1e-5 tells by `frontier_` what its rules for three levels will
have. Each rule is then run on other rows of the law. The table shows the accuracy of the best rule,
how far below it the rules are, the share of fits whose stated accuracy and disparate impact are
within two standard errors of what they have, and the root mean square of these errors in units of
the stated ones.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_fair_frontier.py --out frontier.csv
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

import skdpot
from skdpot.exceptions import PrivacyWarning
from skdpot.metrics import disparate_impact

SHARES = np.array([[0.6 * 0.55, 0.6 * 0.45], [0.4 * 0.75, 0.4 * 0.25]])  # by group and class
BY_CLASS = np.array([1.2, 0.8, 0.4, 0.0, 0.0])
BY_GROUP = np.array([0.0, 0.0, 0.4, 1.0, 0.6])
LEVELS = (0.7, 0.8, 0.9)
N, N_TEST, N_LAW = 30_000, 200_000, 1_000_000
SCALE = 5.0  # public: a feature is hardly ever beyond it


def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, classes and groups."""
    cells = rng.choice(4, n, p=SHARES.ravel())
    groups, classes = cells // 2, cells % 2
    features = rng.normal(size=(n, len(BY_CLASS)))
    features += np.outer(classes, BY_CLASS) + np.outer(groups, BY_GROUP)
    return features / SCALE, classes, groups


def probabilities(features: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of class 1 and those of both groups; `groups` if a rule sees them."""
    logs = np.log(SHARES)[None].repeat(len(features), 0)
    for a in range(2):
        for c in range(2):
            mean = a * BY_GROUP + c * BY_CLASS
            logs[:, a, c] -= np.square(features * SCALE - mean).sum(axis=1) / 2
    if groups is not None:
        logs[np.arange(len(groups)), 1 - groups] = -np.inf
    joint = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return joint[:, :, 1].sum(axis=1), joint.sum(axis=2)


def best_accuracies(*, aware: bool, rng: np.random.Generator) -> list[float]:
    """Return the accuracy of the best rule at each level."""
    features, _, groups = draw(N_LAW, rng)
    of_class, of_group = probabilities(features, groups if aware else None)
    high, low = (of_group / SHARES.sum(axis=1)).T
    accuracies = []
    for level in LEVELS:
        pull = low - level * high

        def lacking(weight: float, pull: np.ndarray = pull) -> float:
            return float(((2 * of_class - 1 + weight * pull) > 0) @ pull)

        weight = brentq(lacking, 0.0, 2.0, xtol=1e-6)
        decided = (2 * of_class - 1 + weight * pull) > 0
        accuracies.append(float(np.where(decided, of_class, 1 - of_class).mean()))
    return accuracies


def one_fit(seed: int, epsilon: float, *, aware: bool) -> list[dict[str, float]]:
    """Fit, and return what is told and what is true at each level."""
    rng = np.random.default_rng((seed, aware))
    features, classes, groups = draw(N, rng)
    classifier = skdpot.FairPrivateClassifier(
        epsilon=epsilon, group_aware=aware, random_state=seed
    ).fit(features, classes, sensitive_features=groups)
    told = classifier.frontier_.set_index(classifier.frontier_["level"].round(2))
    features, classes, groups = draw(N_TEST, rng)
    given = {"sensitive_features": groups} if aware else {}
    rows = []
    for level in LEVELS:
        decided = classifier.with_constraint(level=level).predict(features, **given)
        found = {
            "accuracy": float((decided == classes).mean()),
            "disparate_impact": disparate_impact(decided, sensitive_features=groups),
        }
        row = {"aware": aware, "seed": seed, "level": level, **found}
        for figure, value in found.items():
            error = told.loc[level, f"{figure}_se"]
            row[f"{figure}_se"] = error
            row[f"{figure}_off"] = (value - told.loc[level, figure]) / error
        rows.append(row)
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row a kind of rule and level."""
    rows = []
    for aware, block in table.groupby("aware"):
        found = best_accuracies(aware=aware, rng=np.random.default_rng(0))
        best = dict(zip(LEVELS, found, strict=True))
        for level, fits in block.groupby("level"):
            row = {"group-aware": aware, "level": level, "fits": len(fits), "best": best[level]}
            row["below it"] = best[level] - fits["accuracy"].mean()
            row["impact"] = fits["disparate_impact"].mean()
            for figure, name in (("accuracy", "accuracy"), ("disparate_impact", "impact")):
                off = fits[f"{figure}_off"]
                row[f"{name} covered"] = (off.abs() <= 2).mean()
                row[f"{name}, error"] = fits[f"{figure}_se"].mean()
                row[f"{name}, rms"] = float(np.sqrt(np.square(off).mean()))
            rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Fit, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="of a row a fit and level")
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)  # seeds are for benchmarks
    rows: list[dict[str, float]] = []
    for seed in range(options.fits):
        for aware in (False, True):
            rows += one_fit(seed, options.epsilon, aware=aware)
        if options.out is not None:
            pd.DataFrame(rows).to_csv(options.out, index=False)
    print(summary(pd.DataFrame(rows)).round(4).to_string(index=False))


if __name__ == "__main__":
    main()
