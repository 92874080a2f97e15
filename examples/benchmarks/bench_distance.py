"""
Distances between parties: error, time, bytes sent, and what the messages give away.

Thirteen parts, each with a table (CSV) and, for two of them, a picture in the folder ``--out``:

- ``table1``: the TriangleWad paper's Table 1 on MNIST with pixels in [-1, 1]; exact W₂, TriangleWad
  over scales of γ and t, FedWad with drawn and with fixed t, and private sketches, whose truth is
  the exact sliced distance along the same directions. After each run the rows of one party are
  attacked with nothing but what the server saw;
- ``unbalanced``: its Table 2, Gaussian samples of 80 and 200 rows;
- ``fractions``: its Table 4, t from 0.1 to 0.9;
- ``detection``: its Figure 3, noisy rows found by value, against KNN-Shapley and leave-one-out;
- ``selection``: training rows chosen by value for a regressor, as in its section 5.3;
- ``contribution``: shares of clients against their exact Shapley values for a trained model;
- ``timing``: its Table 3, with the contributions of federated learning;
- ``parties``: matrices of private distances between many parties;
- ``noise_levels``: noisy images told from others, at four strengths of the noise;
- ``directions``: sketches of images along more or fewer directions;
- ``labels``: labelled images, against OTDD;
- ``statements``: figures for theorems of the paper that do not hold;
- ``text``: its appendix on texts, with ``--data`` a folder of them (see ``distance_text.py``).

The paper does not say how much noise its noisy rows have: here the standard deviation is 20 (20
rows) and 30 (50 rows), which comes near its distances.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_distance.py --out results
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from distance_report import write_report
from distance_statements import directions, labels, statements
from distance_tasks import gaussian_pair, mnist_pair, with_noise
from distance_text import text
from distance_valuation import (
    contribution,
    detection,
    noise_levels,
    parties,
    selection,
    timing,
)
from fair_tasks import DEFAULT_DATA
from mnist_halves import DEFAULT_CACHE
from sklearn.base import clone
from tqdm import tqdm

from skdpot import PrivateWassersteinDistance
from skdpot.distance.messages import GeodesicMeasure, InterpolatingMeasure, ReferenceMeasure
from skdpot.distance.reconstruction import reconstruct, rows_from_sketch
from skdpot.distance.transcript import Transcript
from skdpot.exceptions import NotPrivateWarning, PrivacyWarning
from skdpot.mechanisms import FedWad, Triangle
from skdpot.metrics import wasserstein_distance
from skdpot.ot.transport import sliced_distance

SIZES = (100, 500, 1000)
NOISY = {0: 0.0, 20: 20.0, 50: 30.0}  # rows, and standard deviation of their noise
SCALES = (0.001, 0.01, 0.1, 1.0, 5.0)
FRACTIONS = (0.1, 0.5, 0.9)
EPSILONS = (0.5, 1.0, 3.0)
SAME_ROW = 1e-6
UNBALANCED = {
    "N(10, 3), d = 100": ((10, 3), (10, 3), 100),
    "N(10, 20), d = 100": ((10, 20), (10, 20), 100),
    "N(10, 20), d = 400": ((10, 20), (10, 20), 400),
    "N(10, 2), N(50, 3), d = 100": ((10, 2), (50, 3), 100),
    "N(100, 20), N(50, 30), d = 100": ((100, 20), (50, 30), 100),
}


def table1(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield one row for each size, noise, method and seed."""
    for seed in range(seeds):
        for n_rows in SIZES:
            clean, Y = mnist_pair(n_rows, seed, data)
            for n_noisy, scale in NOISY.items():
                X = with_noise(clean, n_noisy, scale, seed)
                facts = {"seed": seed, "n_rows": n_rows, "n_noisy": n_noisy}
                for row in _methods(X, Y, np.abs(X).max()):
                    yield facts | row


def unbalanced(seeds: int, _: Path) -> Iterator[dict[str, Any]]:
    """Yield one row for each pair of Gaussians, method and seed."""
    for seed in range(seeds):
        for name, (first, second, n_features) in UNBALANCED.items():
            X, Y = gaussian_pair(first, second, n_features, seed)
            truth = wasserstein_distance(X, Y)
            support = {"n_support": len(X) + len(Y) - 1}
            methods = {
                "FedWad, drawn t": {"protocol": "fedwad", "n_rounds": 50},
                "FedWad, t = 0.5": {"protocol": "fedwad", "n_rounds": 50, "draw_t": False},
                "TriangleWad, scale 2": {"protocol": "triangle", "gamma_scale": 2.0},
                "TriangleWad, scale 5": {"protocol": "triangle", "gamma_scale": 5.0},
                "TriangleWad, scale 2, exact": {
                    "protocol": "triangle",
                    "gamma_scale": 2.0,
                    "interpolation": "exact",
                },
            }
            facts = {"seed": seed, "pair": name}
            yield facts | {"method": "exact", "distance": truth, "truth": truth}
            for method, parameters in methods.items():
                estimate = _played(X, Y, **support, **parameters)
                yield facts | {"method": method, "truth": truth} | estimate


def fractions(seeds: int, data: Path) -> Iterator[dict[str, Any]]:
    """Yield one row for each scale of γ, t and seed."""
    for seed in range(seeds):
        X, Y = mnist_pair(500, seed, data)
        truth = wasserstein_distance(X, Y)
        for scale in (1.0, 5.0):
            for t in np.arange(1, 10) / 10:
                row = _played(X, Y, protocol="triangle", gamma_scale=scale, t=float(t))
                yield {"seed": seed, "gamma_scale": scale, "t": t, "truth": truth} | row


PARTS = {
    "table1": table1,
    "unbalanced": unbalanced,
    "fractions": fractions,
    "detection": detection,
    "selection": selection,
    "contribution": contribution,
    "timing": timing,
    "parties": parties,
    "noise_levels": noise_levels,
    "directions": directions,
    "labels": labels,
    "statements": statements,
    "text": text,
}


def _methods(X: np.ndarray, Y: np.ndarray, largest: float) -> Iterator[dict[str, Any]]:
    start = perf_counter()
    truth = wasserstein_distance(X, Y)
    seconds = perf_counter() - start
    yield {"method": "exact", "distance": truth, "truth": truth, "seconds": seconds}
    for scale in SCALES:
        for t in FRACTIONS:
            row = _played(X, Y, protocol="triangle", gamma_scale=scale, t=t)
            yield {"method": "TriangleWad", "gamma_scale": scale, "t": t, "truth": truth} | row
    for name, drawn in (("FedWad, drawn t", True), ("FedWad, t = 0.5", False)):
        yield {"method": name, "truth": truth} | _played(X, Y, protocol="fedwad", draw_t=drawn)
    for epsilon in EPSILONS:
        yield {"method": f"sketch, epsilon = {epsilon:g}"} | _sketched(X, Y, epsilon, largest)


def _played(X: np.ndarray, Y: np.ndarray, **parameters: Any) -> dict[str, Any]:
    """Play a protocol that is not private, and attack one party with what the server saw."""
    protocol = {"triangle": Triangle, "fedwad": FedWad}[parameters.pop("protocol")](**parameters)
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        fitted = PrivateWassersteinDistance(protocol).fit(X)
    estimate = fitted.compare(Y)
    seconds = perf_counter() - start
    start = perf_counter()
    found = reconstruct(estimate.transcript, "server")
    seconds_of_attack = perf_counter() - start
    return {
        "distance": estimate.distance,
        "seconds": seconds,
        "n_bytes": estimate.transcript.n_bytes,
        "rows_found": float(np.mean(found["other party"].row_errors(Y) < SAME_ROW)),
        "rmse": found["other party"].rmse(Y),
        "attack_seconds": seconds_of_attack,
        "naive_rmse": _naive_error(estimate.transcript, Y),
    }


def _naive_error(transcript: Transcript, Y: np.ndarray) -> float:
    """Return the error of who reads rows off a message as if γ were its mean: what γ hides."""
    message = transcript.messages(InterpolatingMeasure, sender="other party")[0]
    reference = transcript.messages((ReferenceMeasure, GeodesicMeasure))[0]
    if len(message.points) != len(Y):
        return float("nan")  # the exact interpolation has more points than rows
    t = reference.t
    rows = (message.points - t * reference.points.mean(axis=0)) / (1 - t)
    return float(np.sqrt(np.mean((rows - Y) ** 2)))


def _sketched(X: np.ndarray, Y: np.ndarray, epsilon: float, largest: float) -> dict[str, Any]:
    """Compare two private sketches, and look for rows in one of them."""
    start = perf_counter()
    private = PrivateWassersteinDistance(epsilon=epsilon, bounds=(-largest, largest))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # noise drowns a thousand images
        first, second = private.fit(X), clone(private).fit(Y)
    estimate = first.compare(second)
    seconds = perf_counter() - start
    guess = rows_from_sketch(second.sketch_, len(Y), np.random.default_rng(0))
    return {
        "distance": estimate.distance,
        "standard_error": estimate.standard_error,
        "truth": sliced_distance(X, Y, first.sketch_.directions_),
        "seconds": seconds,
        "n_bytes": estimate.transcript.n_bytes,
        "rows_found": float(np.mean(guess.row_errors(Y) < SAME_ROW)),
        "rmse": guess.rmse(Y),
    }


def main() -> None:
    """Run the chosen parts and write their tables and pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS)[:-1])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "distance")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        rows = tqdm(PARTS[part](options.seeds, options.data), desc=part, unit="row")
        pd.DataFrame(rows).to_csv(options.out / f"{part}.csv", index=False)
    write_report(options.out)


if __name__ == "__main__":
    main()
