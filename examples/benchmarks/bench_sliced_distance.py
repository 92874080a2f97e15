"""
How good the noise-aware sliced distance is, and how far its intervals can be trusted
=====================================================================================

Draws pairs of clouds, releases two tables a run and estimates their distance with
`skdpot.metrics.debiased_squared_distance`. It prints a row per pair of clouds, size and ε: the
share of 95 % intervals that hold the distance of the laws along the directions of the sketches
("directions") and over all directions ("space"), the relative bias and the median relative error of
the estimated distance.

``--select tuned`` has the clouds on which constants were chosen, in 8 features; ``reported`` has
twelve others, in 6. Rows are counted once for all ε; the noise is drawn by NumPy, with the standard
deviation that the accountant finds, in place of the slower discrete noise of a release.

    OMP_NUM_THREADS=1 python bench_sliced_distance.py --select reported --runs 200 --csv found.csv
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import Sliced
from skdpot.metrics.debiased_distance import ComparedTable, debiased_pair
from skdpot.ot.slices import CDFTable, orthogonal_directions
from skdpot.ot.transport import wasserstein_1d
from skdpot.privacy.accounting import privacy_target
from skdpot.release.bounds import DataBounds, plan_private_bounds, release_private_bounds
from skdpot.release.decoding import decode
from skdpot.release.histogram import count_projections, plan_sketch, projection_half_widths

DELTA, N_BINS, ALL = 1e-5, 64, 252
SIZES, EPSILONS = (1000, 10_000), (0.5, 1.0, 3.0)
Cloud = Callable[[int, np.random.Generator], np.ndarray]


def normal(n: int, d: int, rng: np.random.Generator, spread: Any = 0.25) -> np.ndarray:
    """Rows of independent normal columns."""
    return spread * rng.standard_normal((n, d))


def factor(n: int, d: int, rng: np.random.Generator, loads: Any, rest: float) -> np.ndarray:
    """Rows with one common factor."""
    return rng.standard_normal((n, 1)) * loads + normal(n, d, rng, rest)


def tuned() -> dict[str, tuple[Cloud, Cloud]]:
    """Return the pairs of clouds on which constants are chosen: 8 features of spread 0.25."""
    d, column = 8, np.eye(8)

    def plain(n, rng):
        return normal(n, d, rng)

    def correlated(n, rng):
        return factor(n, d, rng, np.full(d, 0.21), 0.14)

    return {
        "equal": (plain, plain),
        "shifted by 0.1": (plain, lambda n, rng: plain(n, rng) + 0.1),
        "correlated, shifted": (correlated, lambda n, rng: correlated(n, rng) + 0.1),
        "1.3 times as wide": (plain, lambda n, rng: 1.3 * plain(n, rng)),
        "two peaks": (
            plain,
            lambda n, rng: 0.6 * plain(n, rng) + 0.2 * rng.choice([-1.0, 1.0], (n, 1)),
        ),
        "heavy tails": (plain, lambda n, rng: 0.12 * rng.standard_t(3, (n, d))),
        "one column shifted, one wider": (
            plain,
            lambda n, rng: plain(n, rng) * (1 + 0.6 * column[1]) + 0.3 * column[0],
        ),
    }


D, SCALES = 6, np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3])  # of the clouds that are reported


def skewed(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of exponential columns."""
    return 0.15 * rng.exponential(size=(n, D)) - 0.15


def heavy(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of columns of Student's law with 3 degrees of freedom."""
    return 0.12 * rng.standard_t(3, (n, D))


def lognormal(n: int, rng: np.random.Generator, shift: float = 0.0) -> np.ndarray:
    """Rows of normal columns, the last of them lognormal."""
    rows = rng.standard_normal((n, D)) + shift
    return np.where(np.arange(D) == D - 1, np.exp(1.2 * rows), rows)


def mixed(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of columns of different scales."""
    return normal(n, D, rng, SCALES)


def clusters(n: int, rng: np.random.Generator, share: float = 0.5) -> np.ndarray:
    """Rows of two clusters."""
    places = np.where(rng.random((n, 1)) < share, -0.3, 0.3) * np.array([1, 1, 0, 0, 0, -1.0])
    return places + normal(n, D, rng, 0.12)


def binary(n: int, rng: np.random.Generator, share: float = 0.5) -> np.ndarray:
    """Rows of two values."""
    return np.where(rng.random((n, D)) < share, -0.3, 0.3)


def ring(n: int, rng: np.random.Generator, radius: float = 0.5) -> np.ndarray:
    """Rows on a sphere."""
    rows = rng.standard_normal((n, D))
    return radius * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def ball(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows in a ball."""
    return ring(n, rng) * rng.random((n, 1)) ** (1 / D) * 1.1


def spoiled(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of which 2 % are far away."""
    return normal(n, D, rng, 0.15) + 0.6 * (rng.random((n, 1)) < 0.02)


def turned(n: int, rng: np.random.Generator, sign: float = 1.0) -> np.ndarray:
    """Rows of one factor; the sign of one of its loads can change."""
    return factor(n, D, rng, 0.2 * np.array([1, sign, 1, 1, -1, 1]), 0.12)


def reported() -> dict[str, tuple[Cloud, Cloud]]:
    """Return twelve pairs of clouds in 6 features that nothing was tuned on."""
    column = np.eye(D)
    return {
        "equal, skewed": (skewed, skewed),
        "equal, heavy tails": (heavy, heavy),
        "one column shifted, one wider": (
            lambda n, rng: normal(n, D, rng, 0.2),
            lambda n, rng: normal(n, D, rng, 0.2) * (1 + 0.4 * column[3]) + 0.2 * column[2],
        ),
        "mixed scales, the least moved": (
            mixed,
            lambda n, rng: mixed(n, rng) + 0.1 * column[0] + 0.1 * column[4],
        ),
        "lognormal, private bounds": (lognormal, lambda n, rng: lognormal(n, rng, 0.3)),
        "another load": (
            lambda n, rng: factor(n, D, rng, 0.2 * np.ones(D), 0.12),
            lambda n, rng: factor(n, D, rng, 0.3 * np.ones(D), 0.12),
        ),
        "heavy against normal": (lambda n, rng: normal(n, D, rng, 0.2), heavy),
        "other shares of clusters": (clusters, lambda n, rng: clusters(n, rng, 0.7)),
        "binary columns": (binary, lambda n, rng: binary(n, rng, 0.6)),
        "2 % far away": (lambda n, rng: normal(n, D, rng, 0.15), spoiled),
        "sphere and ball": (ring, ball),
        "a correlation turned": (turned, lambda n, rng: turned(n, rng, -1.0)),
    }


class Reader:
    """Counts rows along public directions, and releases the counts with noise."""

    def __init__(self, bounds: DataBounds, n: int, epsilon: float, directions: np.ndarray) -> None:
        target = privacy_target(epsilon, DELTA, None)
        self.plan = plan_sketch(
            target,
            n,
            bounds.n_features,
            rng=np.random.default_rng(0),
            projections=directions,
            n_bins=N_BINS,
            bounds=bounds,
        )
        self.bounds, self.directions, self.n = bounds, directions, n
        self.widths = projection_half_widths(bounds, directions)

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """Count rows in bins."""
        options: dict[str, Any] = {"bounds": self.bounds}
        return count_projections(rows, self.directions, self.widths, N_BINS, **options)

    def table(self, counts: np.ndarray, rng: np.random.Generator) -> ComparedTable:
        """Release counts and read them."""
        strategy, sigma = self.plan.strategy, self.plan.sigma
        statistic = counts @ strategy.matrix.T
        statistic = statistic + sigma * rng.standard_normal(statistic.shape)
        shape = (sigma, self.directions, self.widths)
        cdf, _ = decode(statistic[None], strategy, self.n, *shape)
        smooth = CDFTable(self.directions, self.widths, cdf[0])
        return ComparedTable(statistic, strategy, self.n, sigma / self.n, smooth)


def squared_of_laws(pair: Any, bounds: DataBounds, directions: np.ndarray, n: int) -> np.ndarray:
    """Return W₂² between the clipped laws along each direction."""
    rng = np.random.default_rng(7)
    first, second = (bounds.to_ball(cloud(n, rng)).astype(np.float32) for cloud in pair)
    widths = projection_half_widths(bounds, directions).astype(np.float32)
    return np.array(
        [
            wasserstein_1d(np.clip(first @ t, -w, w), np.clip(second @ t, -w, w)) ** 2
            for t, w in zip(directions.astype(np.float32), widths, strict=True)
        ]
    )


def directions_for(n: int, d: int, epsilon: float) -> np.ndarray:
    """Return the directions that the estimator takes for so many rows."""
    return Sliced().directions(d, n * privacy_target(epsilon, DELTA, None).mu_cap)


def measured(name: str, pair: Any, n: int, n_runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Measure one pair of clouds at one size and every ε."""
    rng = np.random.default_rng([seed, n])
    d, private = pair[0](1, rng).shape[1], "private" in name
    declared = DataBounds.from_box(-1.0, 1.0, d)
    everywhere = orthogonal_directions(ALL, d, np.random.default_rng(11))
    found: dict[float, list[tuple[Any, float, float]]] = {epsilon: [] for epsilon in EPSILONS}
    sets = {epsilon: directions_for(n, d, epsilon) for epsilon in EPSILONS}
    known: dict[bytes, Any] = {}
    for _ in range(n_runs):
        rows = [cloud(n, rng) for cloud in pair]
        counted: dict[Any, Any] = {}
        for epsilon, directions in sets.items():
            bounds, laws = declared, 50_000
            if private:
                bounds, laws = _private_bounds(rows[0], epsilon, rng), 20_000
            key = (len(directions), bounds)
            if key not in known:
                sides = (directions, everywhere[: 60 if private else ALL])
                along = [squared_of_laws(pair, bounds, some, laws).mean() for some in sides]
                known[key] = [0.0 if "equal" in name else value for value in along]
            reader = Reader(bounds, n, epsilon, directions)
            if key not in counted:
                counted[key] = [reader.counts(x) for x in rows]
            estimate = debiased_pair(*(reader.table(c, rng) for c in counted[key]))
            found[epsilon].append((estimate, *known[key]))
    for epsilon, runs in found.items():
        yield {"clouds": name, "n": n, "ε": epsilon, "L": len(sets[epsilon])} | summary(runs)


def _private_bounds(rows: np.ndarray, epsilon: float, rng: np.random.Generator) -> DataBounds:
    from skdpot._utils.validation import spawn_streams

    mu = privacy_target(epsilon, DELTA, None).mu_cap
    plan = plan_private_bounds(len(rows), rows.shape[1], mu)
    return release_private_bounds(rows, plan, spawn_streams(int(rng.integers(2**31)), "bounds"))


def summary(runs: list[tuple[Any, float, float]]) -> dict[str, Any]:
    """Reduce the runs of one cell to a row of the table."""
    row: dict[str, Any] = {"SW₂": float(np.sqrt(np.mean([along for _, along, _ in runs])))}
    row["SW₂ of space"] = float(np.sqrt(np.mean([space for *_, space in runs])))
    for number, of in enumerate(("directions", "space"), start=1):
        ends = [run[0].interval(0.95, of=of) for run in runs]
        roots = np.sqrt([run[number] for run in runs])
        row[f"{of} hold"] = float(
            np.mean([low <= true <= high for (low, high), true in zip(ends, roots, strict=True)])
        )
        row[f"{of} width"] = float(np.median([high - low for low, high in ends]))
    squared = np.array([run[0].squared for run in runs])
    along = np.array([run[1] for run in runs])
    row["squared bias"] = float((squared - along).mean())
    row["in s.e."] = float(
        (squared - along).mean() / np.mean([run[0].standard_error for run in runs])
    )
    row["s.e. / deviation"] = float(
        np.mean([run[0].standard_error for run in runs]) / (squared - along).std()
    )
    if along.min() > 0:
        errors = np.array([run[0].distance for run in runs]) / np.sqrt(along) - 1
        row |= {"bias": float(errors.mean()), "median error": float(np.median(np.abs(errors)))}
    return row


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 2)[1])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--select", choices=["tuned", "reported"], default="reported")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--clouds", nargs="*", help="names that contain any of these words")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    rows: list[dict[str, Any]] = []
    for name, pair in {"tuned": tuned, "reported": reported}[arguments.select]().items():
        if arguments.clouds and not any(word in name for word in arguments.clouds):
            continue
        for n in arguments.sizes:
            for row in measured(name, pair, n, arguments.runs, arguments.seed):
                rows.append(row)
                told = (
                    f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()
                )
                print("  ".join(told), flush=True)
                if arguments.csv:
                    pd.DataFrame(rows).to_csv(arguments.csv, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
