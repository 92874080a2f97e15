"""
Risk and unfairness of fair and private regression, beside barycentres without privacy.

Adult: hours per week, and age, by sex. COMPAS: prior offences by race. "two targets" is
`make_biased_regression`, "hint" a law whose best fair rule is known; equalised odds are on a third.
Features in [-1, 1], 70 % for training, mean squared error over the variance of the target (1 - R²)
and W₂ over its standard deviation, on test rows. "least squares" is a linear model without privacy,
moved by empirical quantiles where the group may be used.

Run: ``python examples/benchmarks/bench_fair_regression.py`` (about ten minutes)
"""

import argparse
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from fair_tasks import DATA_SETS, DEFAULT_DATA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from skdpot import FairPrivateRegressor
from skdpot.datasets import make_biased_regression
from skdpot.exceptions import FairnessWarning
from skdpot.mechanisms import SketchedOutputs
from skdpot.metrics import wasserstein_parity

LEVELS = (0.0, 0.5, 0.8, 1.0)


def tasks(folder: Path):
    """Yield names, features, targets of shape (n, q), groups and public bounds."""
    if (folder / "adult.csv.gz").exists():
        for name, column in (("Adult, hours", 2), ("Adult, age", 0), ("COMPAS, priors", 1)):
            source = name.split(",")[0].lower()
            table = pd.read_csv(folder / f"{source}.csv.gz", skipinitialspace=True)
            X, y, groups = DATA_SETS[source](table)
            rest = np.column_stack([np.delete(X, column, axis=1), 2.0 * y - 1])
            yield name, rest, X[:, [column]], groups, (-1, 1)
    X, Y, groups = make_biased_regression(20_000, random_state=0)
    yield "two targets", X, Y, groups, (0, 1)
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 20_000)
    v = np.where(rng.random(20_000) < 0.8, group, 1 - group) - 0.5
    z = 0.5 * rng.standard_normal(20_000)
    y = z + 0.8 * v + 0.2 * rng.standard_normal(20_000)
    yield "hint (best: .44)", np.column_stack([z, v]), y[:, None], group, (-3, 3)


def barycentre(train, test, codes, codes_test):
    """Return predictions moved by empirical quantiles of the training predictions."""
    moved = np.empty_like(test)
    shares = np.bincount(codes) / len(codes)
    levels = (np.arange(1000) + 0.5) / 1000
    for j in range(test.shape[1]):
        of = [np.quantile(train[codes == k, j], levels) for k in range(len(shares))]
        target = shares @ np.array(of)
        for k, own in enumerate(of):
            here = codes_test == k
            moved[here, j] = np.interp(test[here, j], own, target)
    return moved


def rows(name, X, Y, groups, bounds, seed):
    """Yield a line for each method and level."""
    train, test = train_test_split(np.arange(len(X)), test_size=0.3, random_state=seed)
    codes = np.unique(groups, return_inverse=True)[1]
    variance = Y[test].var(axis=0).mean()

    def line(method, epsilon, aware, level, predicted, told=(math.nan,) * 4):
        predicted = predicted.reshape(len(test), -1)
        risk = np.mean((predicted - Y[test]) ** 2)
        apart = wasserstein_parity(predicted, sensitive_features=groups[test])
        figures = np.array([risk, *told[:2]]) / variance
        apart = np.array([apart, *told[2:]]) / math.sqrt(variance)
        return (name, method, epsilon, aware, level, *figures, *apart)

    one_hot = np.eye(codes.max() + 1)[codes][:, 1:]
    of = LinearRegression().fit(np.hstack([X, one_hot])[train], Y[train])
    found = of.predict(np.hstack([X, one_hot]))
    moved = barycentre(found[train], found[test], codes[train], codes[test])
    for level in LEVELS:
        mixed = (1 - level) * found[test] + level * moved
        yield line("least squares", math.inf, True, level, mixed)
    for aware in (True, False):
        for epsilon in (math.inf, 3.0, 1.0):
            fitted = FairPrivateRegressor(
                epsilon=epsilon, target_bounds=bounds, group_aware=aware
            ).fit(X[train], Y[train], sensitive_features=groups[train])
            for level in LEVELS:
                given = {"sensitive_features": groups[test]} if aware else {}
                told = fitted.frontier_.iloc[round(20 * level), 1:].to_numpy()
                predicted = fitted.with_level(level).predict(X[test], **given)
                yield line("barycentre", epsilon, aware, level, predicted, told)
    for alpha in (0.75, 0.9):
        fitted = FairPrivateRegressor(target_bounds=bounds, mechanism=SketchedOutputs(alpha))
        fitted.fit(X[train], Y[train], sensitive_features=groups[train])
        yield line("sketch", 1.0, False, alpha, fitted.predict(X[test]))


def odds():
    """Return what is left of distances in all, and given the target, on a generated law."""

    def drawn(seed):
        rng = np.random.default_rng(seed)
        group = rng.integers(0, 2, 20_000)
        z = rng.normal(size=20_000) * 0.6 + 0.5 * group
        y = z + 0.3 * rng.normal(size=20_000)
        told = (2 * group - 1) * 0.8 + 0.3 * rng.normal(size=20_000)
        rest = rng.normal(size=(20_000, 2)) * 0.3
        return np.column_stack([z + 0.3 * rng.normal(size=20_000), told, rest]) / 2, y, group

    (X, y, groups), (X_test, y_test, of_test) = drawn(0), drawn(1)
    bins = np.digitize(y_test, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))
    for fairness, epsilon, alpha in (
        ("equalized_odds", 1.0, 0.0),
        ("demographic_parity", 1.0, 0.9),
        ("equalized_odds", 1.0, 0.75),
        ("equalized_odds", 1.0, 0.9),
        ("equalized_odds", 3.0, 0.75),
        ("equalized_odds", math.inf, 0.75),
    ):
        fitted = FairPrivateRegressor(
            epsilon=epsilon,
            mechanism=SketchedOutputs(alpha),
            fairness=fairness,
            target_bounds=(-4, 4),
        ).fit(X, y, sensitive_features=groups)
        predicted, given = fitted.predict(X_test), {"sensitive_features": of_test}
        apart = (wasserstein_parity(predicted, **given, y_true=of) for of in (None, bins))
        yield (fairness, epsilon, alpha, fitted.score(X_test, y_test), *apart)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FairnessWarning)
    keys = ["task", "method", "epsilon", "aware", "level"]
    figures = ["risk", "told", "told_se", "W", "W_told", "W_told_se"]
    names = ["fairness", "epsilon", "alpha", "R2", "W", "W given the target"]
    runs = pd.DataFrame([row for _ in range(given.seeds) for row in odds()], columns=names)
    by_setting = runs.groupby(names[:3], sort=False)
    print(by_setting.mean().join(by_setting.std().add_suffix("_sd")).round(3), flush=True)
    for task in tasks(given.data):
        found = [row for seed in range(given.seeds) for row in rows(*task, seed)]
        table = pd.DataFrame(found, columns=keys + figures)
        by_setting = table.groupby(keys, sort=False)
        spread = by_setting[["risk", "W"]].std().add_suffix("_sd")
        print(by_setting.mean().join(spread).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
