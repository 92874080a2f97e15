"""What the choice of bounds does to a private copy.

Normal features of mean 50 and standard deviation 10, known to lie within 0 and 100 in all but a
few rows, are copied by `DPSlicedFlowSampler` at ε = 1 with bounds that are right, too wide, too
narrow, or estimated privately. Run: ``python examples/benchmarks/bench_bounds.py``.
"""

import argparse
import warnings

import numpy as np

from skdpot import DPSlicedFlowSampler
from skdpot.exceptions import PrivacyWarning
from skdpot.metrics import sliced_wasserstein_distance

CHOICES = {
    "(0, 100), right": {"bounds": (0, 100)},
    "(-100, 200), 3 times too wide": {"bounds": (-100, 200)},
    "(0, 1000), 10 times too wide": {"bounds": (0, 1000)},
    "(0, 10000), 100 times too wide": {"bounds": (0, 10_000)},
    "(40, 60), too narrow": {"bounds": (40, 60)},
    'bounds="private"': {},
    "norm_bound=140": {"norm_bound": 140},
}
MEAN, SPREAD, N_FEATURES = 50.0, 10.0, 4


def measure(options: dict[str, object], n_rows: int, runs: int) -> tuple[np.ndarray, int]:
    """Mean figures of private copies, and in how many runs private bounds gave up."""
    figures, fallbacks = [], 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        X = rng.normal(MEAN, SPREAD, size=(n_rows, N_FEATURES))
        others = rng.normal(MEAN, SPREAD, size=(5000, N_FEATURES))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            copy = DPSlicedFlowSampler(epsilon=1.0, **options).fit(X).sample(5000)
        fallbacks += any("stand out" in str(warning.message) for warning in caught)
        centre = np.abs(copy.mean(axis=0) - MEAN).mean()
        figures.append((centre, copy.std(axis=0).mean(), sliced_wasserstein_distance(copy, others)))
    return np.mean(figures, axis=0), fallbacks


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 2000, 20_000])
    options = parser.parse_args()
    print("rows    bounds                          error of means  spread    SW2  fallbacks")
    for n_rows in options.rows:
        for name, choice in CHOICES.items():
            (centre, spread, distance), fallbacks = measure(choice, n_rows, options.runs)
            line = f"{n_rows:6,}  {name:30}  {centre:14.2f}  {spread:6.1f}  {distance:5.2f}"
            print(f"{line}  {fallbacks:>5} of {options.runs}", flush=True)


if __name__ == "__main__":
    main()
