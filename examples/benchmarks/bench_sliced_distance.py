"""
How good the noise-aware sliced distance is, and how far its intervals can be trusted
=====================================================================================

Draws pairs of clouds, releases two tables a run and estimates their distance with
`skdpot.metrics.debiased_squared_distance`. It prints a row per pair of clouds, size and ε: the
share of 95 % intervals that hold the distance of the laws along the directions of the sketches,
with what noise can hide, and over all directions ("space"), the relative bias and the median
relative error of the estimated distance.

``--select tuned`` has the clouds on which constants were chosen, in 5 and 8 features; ``reported``
has twelve others, in 6. Rows are counted once for all ε; the noise is drawn by NumPy, with the
standard deviation that the accountant finds, in place of the slower discrete noise of a release.

    OMP_NUM_THREADS=1 python bench_sliced_distance.py --select reported --runs 200 --csv found.csv
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from skdpot.distance.compared_tables import ComparedTable
from skdpot.distance.debiased import debiased_pair
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import Sliced
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.slices import CDFTable, binned_squared_distances
from skdpot.privacy.targets import privacy_target
from skdpot.release.bounds import DataBounds
from skdpot.release.decoding import decode
from skdpot.release.private_bounds import plan_private_bounds, release_private_bounds
from skdpot.release.projection_counts import count_projections
from skdpot.release.sketch_plan import plan_sketch, projection_half_widths

DELTA, N_BINS, ALL, FINE = 1e-5, 64, 252, 4096
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
    } | tuned_in_five()


def tuned_in_five() -> dict[str, tuple[Cloud, Cloud]]:
    """Return further pairs on which constants were chosen, in 5 features."""

    def gamma(n, rng):
        return 0.1 * (rng.gamma(2, size=(n, 5)) - 2)

    def student(n, rng):
        return 0.1 * rng.standard_t(2.5, (n, 5))

    def pareto(n, rng, shift=0.0):
        rows = rng.standard_normal((n, 5)) * [0.5, 5, 1, 1, 1] + shift * np.array([1, 0, 1, 0, 0])
        rows[:, 0] += rng.pareto(3, n)
        return rows

    def far(n, rng):
        clump = 0.7 * (rng.random((n, 1)) < 0.03) * np.array([1, 1, -1, 0, 1])
        return normal(n, 5, rng, 0.2) + clump

    def loads(load, last=1.0):
        return lambda n, rng: factor(n, 5, rng, load * np.array([1, 1, 0.5, 1, last]), 0.15)

    def two(share):
        def cloud(n, rng):
            places = np.where(rng.random((n, 1)) < share, -0.35, 0.25)
            return places * np.array([1, 0, 0, 1, 0]) + normal(n, 5, rng, 0.1)

        return cloud

    def weibull(wider=0.0):
        def cloud(n, rng):
            rows, is_long = normal(n, 5, rng, 0.15), np.arange(5) == 2
            return np.where(is_long, (1 + wider) * 0.1 * (rng.weibull(0.7, (n, 5)) - 1), rows)

        return cloud

    return {
        "equal, gamma": (gamma, gamma),
        "equal, Student": (student, student),
        "Pareto column, private bounds": (pareto, lambda n, rng: pareto(n, rng, 0.3)),
        "3 % far away": (lambda n, rng: normal(n, 5, rng, 0.2), far),
        "more of a factor": (loads(0.15), loads(0.25)),
        "a load turned": (loads(0.2), loads(0.2, -1.0)),
        "other shares": (two(0.4), two(0.6)),
        "a long column, wider": (weibull(), weibull(0.4)),
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


def squared_of_laws(pair: Any, bounds: DataBounds, directions: np.ndarray, n: int) -> float:
    """Return SW₂² between the clipped laws: both samples come from one seed, so that errors cancel.

    4,096 bins per direction.
    """
    widths, tables = projection_half_widths(bounds, directions), []
    for cloud in pair:
        rows = bounds.to_ball(cloud(n, np.random.default_rng(7))).astype(np.float32)
        places = [(rows @ t / w + 1) / 2 * FINE for t, w in zip(directions, widths, strict=True)]
        counts = [np.bincount(np.clip(p, 0, FINE - 1).astype(int), minlength=FINE) for p in places]
        tables.append(np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1) / n)
    return float(np.mean(binned_squared_distances(*tables) * (2 * widths / FINE) ** 2))


def directions_for(n: int, d: int, epsilon: float) -> np.ndarray:
    """Return the directions that the estimator takes for so many rows."""
    return Sliced().directions(d, n * privacy_target(epsilon, DELTA, None).mu_cap)


def measured(
    name: str, pair: Any, n: int, run: int, known: dict[Any, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    """Draw one pair of clouds, and compare them at every ε."""
    rng = np.random.default_rng([run, n, crc32(name.encode())])
    d, private = pair[0](1, rng).shape[1], "private" in name
    rows, counted = [cloud(n, rng) for cloud in pair], {}
    everywhere = orthogonal_directions(ALL, d, np.random.default_rng(11))
    for epsilon in EPSILONS:
        directions, bounds = directions_for(n, d, epsilon), DataBounds.from_box(-1.0, 1.0, d)
        if private:
            bounds = _private_bounds(rows[0], epsilon, rng)
        key = (name, len(directions), bounds)
        if key not in known:
            sides = ((directions, 200_000), (everywhere, 100_000))
            if private:
                sides = ((directions, 50_000), (everywhere[:60], 50_000))
            known[key] = tuple(
                0.0 if "equal" in name else squared_of_laws(pair, bounds, some, laws)
                for some, laws in sides
            )
        reader = Reader(bounds, n, epsilon, directions)
        if key not in counted:
            counted[key] = [reader.counts(x) for x in rows]
        found = debiased_pair(*(reader.table(c, rng) for c in counted[key]))
        row = {"clouds": name, "n": n, "ε": epsilon, "run": run, "L": len(directions)}
        row |= dict(zip(("along", "space"), known[key], strict=True))
        row |= {"squared": found.squared, "error": found.standard_error}
        row |= dict(zip(("low", "high"), found.interval(), strict=True))
        row |= dict(zip(("low of space", "high of space"), found.interval(of="space"), strict=True))
        yield row | {"hidden": found.interval(hidden=True)[1]}


def _private_bounds(rows: np.ndarray, epsilon: float, rng: np.random.Generator) -> DataBounds:
    from skdpot._utils.streams import spawn_streams

    mu = privacy_target(epsilon, DELTA, None).mu_cap
    plan = plan_private_bounds(len(rows), rows.shape[1], mu)
    return release_private_bounds(rows, plan, spawn_streams(int(rng.integers(2**31)), "bounds"))


def summary(runs: pd.DataFrame) -> dict[str, float]:
    """Reduce the runs of one cell to a row of the table."""
    true, space, low = np.sqrt(runs["along"]), np.sqrt(runs["space"]), runs["low"]
    far = runs["squared"] - runs["along"]
    row = {
        "runs": len(runs),
        "SW₂": true.mean(),
        "hold": ((low <= true) & (true <= runs["high"])).mean(),
        "hold, hidden mass": ((low <= true) & (true <= runs["hidden"])).mean(),
        "hold, space": ((runs["low of space"] <= space) & (space <= runs["high of space"])).mean(),
        "too low": (true > runs["high"]).mean(),
        "width": (runs["high"] - low).median(),
        "upper end": runs["high"].median(),
        "upper end, hidden mass": runs["hidden"].median(),
        "bias in s.e.": far.mean() / runs["error"].mean(),
        "s.e. / deviation": runs["error"].mean() / far.std(),
    }
    if runs["along"].min() > 0:
        errors = np.sqrt(np.maximum(runs["squared"], 0)) / true - 1
        row |= {"bias": errors.mean(), "median error": errors.abs().median()}
    return row


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 2)[1])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--csv", type=Path, help="one row per run; runs that it has are not redone")
    parser.add_argument("--select", choices=["tuned", "reported"], default="reported")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--clouds", nargs="*", help="names that contain any of these words")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    clouds = {"tuned": tuned, "reported": reported}[arguments.select]()
    found = pd.DataFrame()
    if arguments.csv and arguments.csv.exists():
        found = pd.read_csv(arguments.csv)
    done = set() if found.empty else set(found[["clouds", "n", "run"]].itertuples(index=False))
    known: dict[Any, tuple[float, float]] = {}
    for run in range(arguments.first, arguments.first + arguments.runs):  # all cells in turn
        for name, n in product(clouds, arguments.sizes):
            wanted = not arguments.clouds or any(word in name for word in arguments.clouds)
            if not wanted or (name, n, run) in done:
                continue
            rows = pd.DataFrame(list(measured(name, clouds[name], n, run, known)))
            found = pd.concat([found, rows])
            if arguments.csv:
                is_new = not arguments.csv.exists()
                rows.to_csv(arguments.csv, mode="a", index=False, header=is_new)
    cells = found.groupby(["clouds", "n", "ε"], sort=False)
    table = pd.DataFrame({cell: summary(runs) for cell, runs in cells}).T
    print(table.to_string(float_format="%.3g"))


if __name__ == "__main__":
    main()
