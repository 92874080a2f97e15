"""The tables of `bench_reliability.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

KINDS = ("laws", "shared", "sklearn")


@dataclass(frozen=True)
class PanelData:
    """Rows with a class, a target, and perhaps a group of each."""

    name: str
    X: np.ndarray
    y: np.ndarray
    target: np.ndarray
    groups: np.ndarray | None = None


def panel(kind: str, folder: Path) -> Iterator[PanelData]:
    """Yield the tables of a kind."""
    yield from {"laws": _laws, "shared": _shared, "sklearn": _bundled}[kind](folder)


def _laws(_: Path) -> Iterator[PanelData]:
    shapes = [
        (100, 2, 2), (100, 10, 3), (300, 5, 4), (300, 30, 2), (1000, 4, 2), (1000, 20, 10),
        (3000, 3, 12), (3000, 50, 5), (10_000, 10, 2), (20_000, 8, 20), (20_000, 200, 2),
        (50_000, 6, 6),
    ]  # fmt: skip
    for number, (n, d, k) in enumerate(shapes):
        rng = np.random.default_rng(number)
        y = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
        y[:k] = np.arange(k)
        centers = rng.normal(size=(k, d)) * rng.uniform(0.2, 2.0)
        X = centers[y] + rng.normal(size=(n, d))
        X[:, ::3] = np.exp(0.5 * X[:, ::3])  # heavy tails
        X[:, 1::4] = rng.uniform(size=X[:, 1::4].shape)  # nothing to learn
        X *= 10.0 ** rng.integers(-3, 4, d)  # units
        signal = X[:, 0] / X[:, 0].std() + X[:, -1] / X[:, -1].std()
        target = 50.0 + 20.0 * (signal + rng.normal(scale=1.0 + number % 3, size=n))
        yield PanelData(f"law {n} x {d}, {k} classes", X, y, target, rng.integers(0, k, n))


def _shared(folder: Path) -> Iterator[PanelData]:
    adult = pd.read_csv(folder / "adult.csv.gz")
    compas = pd.read_csv(folder / "compas.csv.gz")
    digits = np.load(folder / "pendigits.npz")
    for name, frame in (("adult", adult), ("compas", compas)):
        numbers = frame.select_dtypes("number").dropna(axis=1)
        y = pd.factorize(frame.iloc[:, -1], sort=True)[0]
        words = frame.select_dtypes(exclude="number").nunique()
        few = words[(words > 1) & (words <= 20)].index[-1]
        groups = pd.factorize(frame[few], sort=True)[0]
        for n in (300, 3000, len(frame)):
            X = numbers.to_numpy(float)[:n]
            X = X[:, X.std(axis=0) > 0]
            yield PanelData(f"{name} {n}", X, y[:n], X[:, 0], groups[:n])
    X, y = digits["X_train"], digits["y_train"]
    for n in (500, len(X)):
        rows = X[:n].reshape(n, -1).astype(float)
        yield PanelData(f"pendigits {n}", rows, y[:n].astype(int), rows[:, 0])


def _bundled(_: Path) -> Iterator[PanelData]:
    for load in (datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer):
        X, y = load(return_X_y=True)
        yield PanelData(load.__name__[5:], X, y, X[:, 0], y)
    X, target = datasets.load_diabetes(return_X_y=True, scaled=False)
    y = (target > np.median(target)).astype(int)
    yield PanelData("diabetes", X, y, target, (X[:, 1] > 1.5).astype(int))
    X, y = datasets.load_digits(return_X_y=True)
    X = X[:, X.std(axis=0) > 0]
    yield PanelData("digits", X, y, X[:, 20], y)
