"""Noise of the distribution functions of a sketch, measured through the public API.

For every number of features d and of bins B, sketches of the same rows in a ball are released again
and again. The error of a distribution function at an edge is the difference between
`~skdpot.release.decoding.measured_cdf` of the release and of a sketch without noise. In units of
``√L / (n μ)`` it depends on d and B alone. "square root" is the same for the square root of the
prefix sums and a record that can be at the ends of all slices: noise of the standard deviation that
its sensitivity needs is added to empty histograms and decoded by least squares. "bound" is a lower
bound of the mean noise of any Gaussian mechanism that releases a linear map of each histogram
(``tools/sketch_strategies.py``).

    python examples/benchmarks/bench_sketch_noise.py
"""

import argparse
import math
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.linalg import toeplitz
from tqdm import tqdm

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.release.decoding import measured_cdf
from skdpot.release.strategy import ENERGIES

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from sketch_strategies import Problem

FEATURES, BINS = (2, 8, 16, 64), (16, 32, 64, 128)
N_ROWS, SLICES, SKETCHES = 2000, 128, 20


def of_sketches(n_features: int, n_bins: int) -> np.ndarray:
    """Return the root mean square error at each inner edge."""
    rng = np.random.default_rng(n_features)
    rows = rng.normal(size=(N_ROWS, n_features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    shape = {"norm_bound": 1.0, "projections": "orthogonal", "n_bins": n_bins}
    shape |= {"n_projections": SLICES}
    exact = SlicedSketch(math.inf, **shape, random_state=0).fit(rows)
    shape["projections"] = exact.directions_
    truth, squares = measured_cdf(exact)[0], []
    for _ in range(SKETCHES):
        sketch = SlicedSketch(1.0, **shape).fit(rows)
        squares.append((measured_cdf(sketch)[0] - truth)[:, 1:-1] ** 2)
    unit = math.sqrt(SLICES) / sketch.privacy_spent_.event.mu / N_ROWS
    return np.sqrt(np.mean(squares, axis=(0, 1))) / unit


def of_square_root(n_bins: int) -> np.ndarray:
    """Return the same for one slice of the square root, by simulation."""
    root = np.tril(toeplitz([math.comb(2 * k, k) / 4**k for k in range(n_bins)]))
    moved = np.linalg.norm(root[:, :, None] - root[:, None, :], axis=0).max()
    noise = moved * np.random.default_rng(1).normal(size=(100_000, n_bins))
    histogram = np.linalg.lstsq(root, noise.T, rcond=None)[0]
    # Given that they sum to zero: less their regression on the sum.
    inverse = np.linalg.inv(root.T @ root)
    histogram -= np.outer(inverse.sum(axis=1) / inverse.sum(), histogram.sum(axis=0))
    return np.sqrt(np.mean(np.cumsum(histogram, axis=0)[:-1] ** 2, axis=1))


def lower_bound(n_features: int, n_bins: int) -> float:
    """Return the bound of the mean noise for records of the energy of a ball."""
    energy = max(1 / n_features, ENERGIES[0])
    problem = Problem(n_bins, energy, classes=False)
    problem.weights = np.full(n_bins - 1, 1 / (n_bins - 1))
    return problem.lower_bound(problem.solve())


def root_mean_square(errors: np.ndarray) -> float:
    """Return the root mean square."""
    return math.sqrt(np.mean(errors**2))


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    print("   d    B   square root       now           ratio         bound")
    print("            worst   mean   worst   mean   worst   mean     mean")
    for n_bins in BINS:
        before = of_square_root(n_bins)
        for n_features in tqdm(FEATURES, desc=f"{n_bins} bins", leave=False):
            now = of_sketches(n_features, n_bins)
            figures = [f(x) for x in (before, now) for f in (np.max, root_mean_square)]
            ratios = figures[2] / figures[0], figures[3] / figures[1]
            bound = lower_bound(n_features, n_bins)
            line = "  ".join(f"{x:5.2f}" for x in (*figures, *ratios))
            print(f"{n_features:4d} {n_bins:4d}   {line}    {bound:5.2f}", flush=True)


if __name__ == "__main__":
    main()
