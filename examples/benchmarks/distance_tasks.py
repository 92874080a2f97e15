"""The data of ``bench_distance.py``: pairs of parties, and training sets with noisy rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from fair_tasks import DEFAULT_DATA, load_task
from sklearn.preprocessing import StandardScaler

__all__ = [
    "Detection",
    "client_rows",
    "digits_of_mnist",
    "gaussian_pair",
    "mnist_pair",
    "noisy_adult",
    "noisy_mnist",
    "training_market",
    "with_noise",
]


@dataclass(frozen=True, eq=False)
class Detection:
    """A training set of which a public share of rows is noisy, and clean rows to compare with."""

    X: np.ndarray
    y: np.ndarray
    is_noisy: np.ndarray
    X_clean: np.ndarray
    y_clean: np.ndarray
    limit: float  # public bound of every feature, for sketches


def mnist_pair(n_rows: int, seed: int, data: Path = DEFAULT_DATA) -> tuple[np.ndarray, np.ndarray]:
    """Return two disjoint sets of MNIST images, pixels in [-1, 1]."""
    images, _ = digits_of_mnist(data)
    rows = np.random.default_rng([seed, n_rows]).permutation(len(images))[: 2 * n_rows]
    return images[rows[:n_rows]], images[rows[n_rows:]]


def with_noise(X: np.ndarray, n_noisy: int, scale: float, seed: int) -> np.ndarray:
    """Return the rows with Gaussian noise on the first few of them."""
    noisy = X.copy()
    noisy[:n_noisy] += scale * np.random.default_rng([seed, n_noisy]).normal(size=X[:n_noisy].shape)
    return noisy


def gaussian_pair(
    first: tuple[float, float], second: tuple[float, float], n_features: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return 80 and 200 rows of two isotropic Gaussians, given by mean and standard deviation."""
    rng = np.random.default_rng([seed, n_features])
    return (
        rng.normal(*first, size=(80, n_features)),
        rng.normal(*second, size=(200, n_features)),
    )


def noisy_mnist(n_rows: int, seed: int, data: Path = DEFAULT_DATA, noise: float = 1.0) -> Detection:
    """Return MNIST images of which 15 % have noise of that deviation on every pixel."""
    images, digits = digits_of_mnist(data)
    return _detection(images, digits, n_rows, seed, 1.0, noise)


def noisy_adult(n_rows: int, seed: int, data: Path = DEFAULT_DATA) -> Detection:
    """Return standardised rows of Adult of which 15 % have noise of standard deviation 1."""
    task = load_task("adult", data, group_feature=False, seed=seed)
    return _detection(StandardScaler().fit_transform(task.X), task.y, n_rows, seed, 3.0)


def _detection(
    X: np.ndarray, y: np.ndarray, n_rows: int, seed: int, limit: float, noise: float = 1.0
) -> Detection:
    rng = np.random.default_rng([seed, n_rows, 15])
    order = rng.permutation(len(X))
    rows, clean = order[:n_rows], order[n_rows : 2 * n_rows]
    is_noisy = np.zeros(n_rows, dtype=bool)
    is_noisy[rng.choice(n_rows, round(0.15 * n_rows), replace=False)] = True
    noisy = X[rows] + noise * is_noisy[:, None] * rng.normal(size=(n_rows, X.shape[1]))
    return Detection(noisy, y[rows], is_noisy, X[clean], y[clean], limit)


@cache
def digits_of_mnist(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the training images, pixels in [-1, 1], and their digits."""
    with np.load(data / "mnist.npz") as file:
        images = file["X_train"].reshape(len(file["X_train"]), -1) / 127.5 - 1.0
        return images, file["y_train"].astype(int)


def client_rows(
    case: str, seed: int, data: Path = DEFAULT_DATA, n_rows: int = 2000, n_clients: int = 5
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Return the rows of clients and of the server, as 10 public principal components.

    "noisy pixels": the pixels of client k have noise of standard deviation k - 1. "few
    classes": client k holds the digits up to 2k - 1 only. After five both begin again.
    Components are scaled to lie in [-1, 1]: what lies beyond is clipped, by everybody.
    """
    images, digits = digits_of_mnist(data)
    rng = np.random.default_rng([seed, n_rows, 7])
    order = rng.permutation(len(images))
    public, server = order[:5000], order[5000 : 5000 + n_rows]
    centre = images[public].mean(axis=0)
    axes = np.linalg.svd(images[public] - centre, full_matrices=False)[2][:10]
    unit = np.abs((images[public] - centre) @ axes.T).max()

    def components(rows: np.ndarray) -> np.ndarray:
        return np.clip((rows - centre) @ axes.T / unit, -1, 1)

    clients = {}
    for number, shard in enumerate(np.array_split(order[5000 + n_rows :], n_clients)):
        k = number % 5
        allowed = shard[digits[shard] <= 2 * k + 1] if case == "few classes" else shard
        chosen = allowed[:n_rows]
        rows = images[chosen]
        if case == "noisy pixels":
            rows = rows + k * rng.normal(size=rows.shape)
        clients[f"client {number + 1}"] = components(rows), digits[chosen]
    return clients, (components(images[server]), digits[server])


def training_market(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return 1,000 training rows on offer, 300 of them like the 50 test rows, and the test rows.

    Ten features around the point that the test rows are around, or around other points up to
    three deviations away; the target is a smooth function that differs from place to place.
    """
    rng = np.random.default_rng([seed, 53])
    centre = rng.normal(size=10)
    others = rng.normal(0, 3, size=(7, 10)).repeat(100, axis=0)
    X = np.concatenate([centre + rng.normal(size=(300, 10)), others + rng.normal(size=(700, 10))])
    X_test = centre + rng.normal(size=(50, 10))
    slopes = rng.normal(size=10)

    def target(rows: np.ndarray) -> np.ndarray:
        return rows @ slopes + 3 * np.sin(rows[:, 0]) + 0.3 * rng.normal(size=len(rows))

    return X, target(X), X_test, target(X_test)
