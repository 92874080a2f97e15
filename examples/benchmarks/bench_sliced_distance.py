"""
How good the noise-aware sliced distance is, and how far its intervals can be trusted
=====================================================================================

For pairs of clouds in eight features (equal, shifted, correlated and shifted, scaled, differently
shaped) and several sizes and privacy levels, releases two sketches a run, estimates their distance
with `skdpot.metrics.debiased_squared_distance`, and compares it with what is true: the distance
between the two laws (from 400,000 rows each), or between the two data sets. It prints, a row a
case,

- the share of estimates of SW₂² within two standard errors of the truth,
- how often the intervals of 90 % and 95 % cover it,
- the error of SW₂, median and 95 % of the runs,
- estimates without debiasing, and their share within two standard errors,
- seconds an estimate.

``--select slices`` repeats three cases over numbers of slices: the table behind
``recommended_n_projections`` below.

    OMP_NUM_THREADS=1 python bench_sliced_distance.py --runs 200 --csv sliced_distance.csv

About 0.3 s a run on one core.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.metrics.debiased_distance import debiased_squared_distance
from skdpot.ot.slices import orthogonal_directions
from skdpot.ot.transport import wasserstein_1d
from skdpot.privacy.accounting import privacy_target
from skdpot.release.histogram import recommended_bins

N_FEATURES, SPREAD, SHIFT, DELTA = 8, 0.25, 0.1, 1e-5
CLOUDS = ("equal", "shifted", "correlated", "scaled", "mixture", "heavy")


def recommended_n_projections(n_samples: int, n_features: int, mu: float) -> int:
    """Return the number of slices for sketches that are made to be compared.

    One orthogonal block of directions per 500 units of ``n mu``, at least two (the first may be the
    axes, which see no dependence between features) and at most about 256 directions. Whole blocks
    measure a shift without error, whatever their number. More directions show more shapes, but the
    smallest distance that stands out of the noise grows with them.
    """
    most = max(1, 256 // n_features)
    return n_features * int(min(max(n_samples * mu / 500, 2), most))


def gaussian(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of an isotropic cloud."""
    return SPREAD * rng.standard_normal((n, N_FEATURES))


def second_cloud(kind: str, n: int, shift: float, rng: np.random.Generator) -> np.ndarray:
    """Rows of the party that is compared with an isotropic (or correlated) cloud."""
    if kind == "scaled":
        return 1.3 * gaussian(n, rng)
    if kind == "mixture":
        return 0.6 * gaussian(n, rng) + 0.2 * rng.choice([-1.0, 1.0], (n, 1))
    if kind == "heavy":
        return 0.12 * rng.standard_t(3, (n, N_FEATURES))
    return first_cloud(kind, n, rng) + (0.0 if kind == "equal" else shift)


def first_cloud(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of the first party."""
    if kind != "correlated":
        return gaussian(n, rng)
    common = SPREAD * rng.standard_normal((n, 1))
    return np.sqrt(0.7) * common + np.sqrt(0.3) * gaussian(n, rng)


@dataclass(frozen=True)
class Case:
    """One pair of clouds at one size and privacy level."""

    cloud: str
    n: int
    m: int
    epsilon: float
    shift: float = SHIFT
    n_projections: int | None = None

    def shape(self) -> tuple[int, int]:
        """Return slices and bins by the public rules."""
        mu = privacy_target(self.epsilon, DELTA, None).mu_cap
        smaller = min(self.n, self.m)
        slices = recommended_n_projections(smaller, N_FEATURES, mu)
        return self.n_projections or slices, recommended_bins(smaller, N_FEATURES, mu)

    def draw(self, n: int, m: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the rows of both parties."""
        rows = first_cloud(self.cloud, n, rng), second_cloud(self.cloud, m, self.shift, rng)
        return [np.clip(x, -1, 1) for x in rows]


def squared_distance(rows: list[np.ndarray], directions: np.ndarray) -> float:
    """Return the exact SW₂² of two samples."""
    return float(np.mean(wasserstein_1d(directions @ rows[0].T, directions @ rows[1].T) ** 2))


def squared_distance_of_laws(
    case: Case, directions: np.ndarray, rng: np.random.Generator, n: int = 400_000
) -> float:
    """Return SW₂² between the laws; 0 for equal ones, exact up to what is clipped for a shift."""
    if case.cloud == "equal":
        return 0.0
    rows = case.draw(n, n, rng)
    return float(np.mean([wasserstein_1d(rows[0] @ t, rows[1] @ t) ** 2 for t in directions]))


def run(case: Case, n_runs: int, seed: int) -> list[dict[str, object]]:
    """Measure one case for both targets."""
    rng = np.random.default_rng(seed)
    n_projections, n_bins = case.shape()
    directions = orthogonal_directions(n_projections, N_FEATURES, rng, axes_first=True)
    of_laws = squared_distance_of_laws(case, directions, rng)
    found: dict[str, list[list[float]]] = {"population": [], "data": []}
    for _ in range(n_runs):
        rows = case.draw(case.n, case.m, rng)
        sketches = [
            SlicedSketch(
                case.epsilon,
                delta=DELTA,
                bounds=(-1, 1),
                projections=directions,
                n_bins=n_bins,
                random_state=int(rng.integers(2**31)),
            ).fit(x)
            for x in rows
        ]
        truths = {"population": of_laws, "data": squared_distance(rows, directions)}
        for target, true in truths.items():
            start = time.perf_counter()
            one = debiased_squared_distance(*sketches, target=target)
            seconds = time.perf_counter() - start
            covers = [low <= np.sqrt(true) <= high for low, high in map(one.interval, (0.9, 0.95))]
            error = abs(one.distance / np.sqrt(true) - 1) if true > 0 else np.nan
            found[target].append(
                [
                    one.squared,
                    one.standard_error,
                    one.raw_squared,
                    true,
                    abs(one.squared - true) <= 2 * one.standard_error,
                    abs(one.raw_squared - true) <= 2 * one.standard_error,
                    *covers,
                    error,
                    seconds,
                ]
            )
    return [
        {"cloud": case.cloud, "n": case.n, "m": case.m, "ε": case.epsilon, "shift": case.shift}
        | {"L": n_projections, "B": n_bins, "target": target}
        | summary(np.array(values))
        for target, values in found.items()
    ]


def summary(values: np.ndarray) -> dict[str, float]:
    """Reduce the runs of one case to a row of the table."""
    squared, error, raw, true, near, near_raw, cover90, cover95, relative, seconds = values.T
    known = np.isfinite(relative).any()
    return {
        "SW₂": float(np.sqrt(true.mean())),
        "SW₂² found": squared.mean(),
        "SW₂² raw": raw.mean(),
        "standard error": error.mean(),
        "deviation": (squared - true).std(),
        "within 2 s.e.": near.mean(),
        "raw within 2": near_raw.mean(),
        "covers (90 %)": cover90.mean(),
        "covers (95 %)": cover95.mean(),
        "median error": float(np.median(relative)) if known else np.nan,
        "95 % error": float(np.quantile(relative, 0.95)) if known else np.nan,
        "seconds": float(np.median(seconds)),
    }


def cases(selection: str) -> list[Case]:
    """List what is measured."""
    if selection == "projections":
        base = Case("equal", 10_000, 10_000, 1.0)
        return [
            replace(base, cloud=cloud, n_projections=n_projections)
            for n_projections in (8, 16, 40, 80, 160, 480)
            for cloud in ("equal", "shifted", "mixture")
        ]
    if selection == "shifts":
        return [
            Case(cloud, 10_000, 10_000, 1.0, shift)
            for cloud in ("shifted", "correlated")
            for shift in (0.1, 0.2, 0.3, 0.5)
        ]
    if selection == "equal":
        return [Case("equal", 10_000, 10_000, 1.0)]
    sizes = [(1000, 1000), (10_000, 10_000), (10_000, 1000)]
    return [
        Case(cloud, n, m, epsilon)
        for n, m in sizes
        for epsilon in (0.5, 1.0, 3.0)
        for cloud in CLOUDS
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 2)[1])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument(
        "--select", choices=["coverage", "projections", "shifts", "equal"], default="coverage"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)  # seeds make the table reproducible
    rows: list[dict[str, object]] = []
    for case in cases(arguments.select):
        rows += run(case, arguments.runs, arguments.seed)
        for row in rows[-2:]:
            print("  ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}"
                            for k, v in row.items()), flush=True)  # fmt: skip
        if arguments.csv:
            pd.DataFrame(rows).to_csv(arguments.csv, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
