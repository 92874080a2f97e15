"""Parts of ``bench_distance.py``: what a paper states, and which directions to take for images."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from distance_tasks import digits_of_mnist
from scipy.spatial.distance import cdist

from skdpot import PrivateWassersteinDistance
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.mechanisms import Sliced, Triangle, image_projections
from skdpot.metrics import frechet_distance
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference
from skdpot.ot.plans import interpolate, optimal_plan
from skdpot.ot.transport import exact_plan, wasserstein_1d

__all__ = ["directions", "labels", "statements"]

T, N_FEATURES = 0.5, 10


def statements(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield figures that the TriangleWad paper says are 0, fall like 1/k, or equal 1.

    Rows of two Gaussian clouds in 10 features, m of one and n of the other, are moved half of the
    way towards k points of a standard Gaussian sample.
    """
    for seed in range(seeds):
        for m, n in ((60, 60), (60, 90)):
            rng = np.random.default_rng([seed, n])
            rows = rng.normal(size=(m, N_FEATURES)), 1.5 * rng.normal(size=(n, N_FEATURES)) + 0.5
            clouds = [DiscreteMeasure(x) for x in rows]
            truth = np.sqrt(optimal_plan(*clouds).squared_distance)
            for k in (1, 10, 60, 600, 6000):
                gamma = gaussian_reference(k, N_FEATURES, rng=rng)
                plans = [optimal_plan(cloud, gamma) for cloud in clouds]
                moved = [interpolate(plan, T, kind="barycentric") for plan in plans]
                found = np.sqrt(optimal_plan(*moved).squared_distance) / (1 - T)
                means = (moved[0].points - (1 - T) * rows[0]) / T
                way = np.sqrt(optimal_plan(clouds[0], moved[0]).squared_distance)
                yield {
                    "seed": seed,
                    "m": m,
                    "n": n,
                    "k": k,
                    "error": found / truth - 1,
                    "σ of the plan's means": float(means.std(axis=0).mean()),
                    "W(μ, η) / t W(μ, γ)": way / (T * np.sqrt(plans[0].squared_distance)),
                }


def labels(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield distances of labelled images by the protocol, and OTDD, which it approximates.

    OTDD (Alvarez-Melis and Fusi, NeurIPS 2020) adds the squared distance between the classes of two
    rows to theirs, here that of Gaussians ("Gaussian") or of the rows themselves ("exact").
    """
    for seed in range(seeds):
        for shares in ((5, 5), (8, 2)):
            sides = [_labelled(share, [seed, k], data) for k, share in enumerate(shares)]
            costs = cdist(sides[0][0], sides[1][0], "sqeuclidean")
            facts = {"seed": seed, "classes of both": " / ".join(map(str, shares))}
            yield facts | {"method": "without labels", "distance": _root(costs)}
            for name, between in (("Gaussian", frechet_distance), ("exact", _squared)):
                extra = [
                    [between(_of(sides[0], a), _of(sides[1], b)) for b in (0, 1)] for a in (0, 1)
                ]
                of_classes = np.array(extra)[np.ix_(sides[0][1], sides[1][1])]
                yield facts | {"method": f"OTDD, {name}", "distance": _root(costs + of_classes)}
            for labeled in (False, True):
                protocol = Triangle(gamma_scale=0.001, labeled=labeled)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotPrivateWarning)
                    fitted = PrivateWassersteinDistance(protocol).fit(*sides[0])
                found = fitted.distance(*sides[1])
                yield facts | {"method": f"TriangleWad, labeled={labeled}", "distance": found}


def _labelled(share: int, seed: list[int], data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return 100 images of the digits 0 and 1, so many tenths of them 0, as 49 averaged pixels."""
    images, digits = digits_of_mnist(data)
    rng = np.random.default_rng([*seed, share])
    numbers = [
        rng.choice(np.flatnonzero(digits == digit), 10 * n, replace=False)
        for digit, n in ((0, share), (1, 10 - share))
    ]
    rows = images[np.concatenate(numbers)].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4))
    return rows.reshape(len(rows), -1), np.repeat([0, 1], [10 * share, 100 - 10 * share])


def _of(side: tuple[np.ndarray, np.ndarray], label: int) -> np.ndarray:
    return side[0][side[1] == label]


def _root(costs: np.ndarray) -> float:
    return float(np.sqrt(exact_plan(costs, None, None)[1]["cost"]))


def _squared(first: np.ndarray, second: np.ndarray) -> float:
    return _root(cdist(first, second, "sqeuclidean")) ** 2


def directions(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield sketched distances of 1,000 images and 1,000 others, of the same or other digits."""
    images, digits = digits_of_mnist(data)
    ways: dict[str, dict[str, Any]] = {
        "784 directions": {"n_projections": 784},
        "automatic": {},
        "64 directions": {"n_projections": 64},
        "16 directions": {"n_projections": 16},
        "64 for images": {"projections": image_projections((28, 28), 64)},
    }
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 784])
        for pair in ("same digits", "0 to 4 and 5 to 9"):
            few = digits < 5 if pair != "same digits" else np.ones(len(digits), dtype=bool)
            many = ~few if pair != "same digits" else few
            sides = [images[rng.choice(np.flatnonzero(some), 1000, replace=False)]
                     for some in (few, many)]  # fmt: skip
            pools = [images[rng.choice(np.flatnonzero(some), 10_000)] for some in (few, many)]
            for name, options in ways.items():
                private = PrivateWassersteinDistance(Sliced(**options), bounds=(-1, 1))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PrivacyWarning)
                    one, other = (private.fit(x).sketch_ for x in sides)
                    estimate = private.compare(one)
                along = [one.directions_[:100] @ pool.T for pool in pools]
                truth = 0.0 if pair == "same digits" else np.mean(wasserstein_1d(*along) ** 2)
                low, high = estimate.interval()
                yield {
                    "seed": seed,
                    "pair": pair,
                    "directions": name,
                    "number": len(other.directions_),
                    "distance": estimate.distance,
                    "low": low,
                    "high": high,
                    "truth": float(np.sqrt(truth)),
                }
