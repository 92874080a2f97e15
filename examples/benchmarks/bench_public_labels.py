"""What public labels buy: errors of a sketch's classes with private and with public labels.

For several data sets, releases a class-conditional sketch with private and with public labels
and measures, class by class, the sliced Wasserstein-2 distance between the decoded distribution
functions and those of the rows themselves (in mapped units, mean over classes and noise draws).
With public labels, three decodings of one release are compared: all classes together, as private
ones are, each apart, and the likelier of the two, which is what the sketch does.

    python examples/benchmarks/bench_public_labels.py
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from skdpot import SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.slices import CDFTable
from skdpot.release.decoding import posterior_mean
from skdpot.release.strategy import increasing

TARGETS = ((1.0, 1e-4), (2.0, 1e-3), (8.0, 1e-5))
Rows = tuple[np.ndarray, np.ndarray]


def moving_cloud(n: int, rng: np.random.Generator) -> Rows:
    """Draw a cloud in three dimensions that moves, seen at ten times."""
    t = np.repeat(np.arange(10), n)
    path = np.stack([t / 9, 1 - t / 9, 0 * t], axis=1)
    return rng.normal(0, 0.25, path.shape) + 0.8 * path, t


def branches(n: int, rng: np.random.Generator) -> Rows:
    """Draw three branches from one point to another, seen at ten times."""
    t = np.repeat(np.arange(10), n)
    side = rng.integers(-1, 2, len(t))
    angle = np.pi * (1 - t / 9)
    along = np.where(side == 0, 2 * t / 9 - 1, np.cos(angle))
    path = np.stack([along, side * np.sin(angle)], axis=1)
    return path + rng.normal(0, np.sqrt(0.005), path.shape), t


def hospitals(n: int, rng: np.random.Generator) -> Rows:
    """Draw rows of five hospitals of different sizes, all of one distribution."""
    label = rng.choice(5, 5 * n, p=np.arange(1, 6) / 15)
    centers = rng.normal(0, 0.3, (3, 4))
    return centers[rng.integers(0, 3, 5 * n)] + rng.normal(0, 0.15, (5 * n, 4)), label


def digits(n: int, rng: np.random.Generator) -> Rows:
    """Return six principal components of scikit-learn's digits, about 180 of each."""
    images, labels = load_digits(return_X_y=True)
    return PCA(6, random_state=0).fit_transform(images) / 40, labels


CASES: tuple[tuple[str, Callable[[int, np.random.Generator], Rows], tuple[int, ...]], ...] = (
    ("moving cloud, 10 times", moving_cloud, (100, 600, 3000)),
    ("three branches, 10 times", branches, (150, 600, 3000)),
    ("5 hospitals, all alike", hospitals, (100, 600)),
    ("digits, 6 PCA", digits, (180,)),
)


def decoded(sketch: SlicedSketch, classes: list[int]) -> np.ndarray:
    """Decode some classes of a release together."""
    strategy = sketch.strategy_
    totals = sketch.class_counts_[classes]
    cumulative = sketch.statistic_[classes] @ strategy.decoder.T
    inner = posterior_mean(
        strategy.known_total(cumulative, totals[:, None, None]),
        strategy.known_total_covariance,
        sketch.noise_scale_ / totals,
        totals / totals.sum(),
        sketch.directions_,
        sketch.half_widths_,
    )
    return increasing(inner)


def error(cdf: np.ndarray, exact: SlicedSketch) -> float:
    """Mean over classes of SW2 between decoded and exact distribution functions."""
    widths = (exact.directions_, exact.half_widths_)
    pairs = zip(cdf, exact.cdf_, strict=True)
    squared = [CDFTable(*widths, f).squared_distances(CDFTable(*widths, g)) for f, g in pairs]
    return float(np.mean([np.sqrt(values.mean()) for values in squared]))


def errors(X: np.ndarray, y: np.ndarray, epsilon: float, delta: float, seed: int) -> list[float]:
    """Return the errors with private labels, and with public ones decoded in three ways."""
    options = {"bounds": (-1.5, 1.5), "conditional": True, "random_state": seed}
    public = SlicedSketch(epsilon, delta=delta, public_labels=True, **options).fit(X, y)
    shape = {"projections": public.directions_, "n_bins": public.statistic_.shape[-1]}
    private = SlicedSketch(epsilon, delta=delta, **options, **shape).fit(X, y)
    exact = SlicedSketch(np.inf, public_labels=True, **options, **shape).fit(X, y)
    n_classes = len(public.classes_)
    apart = np.concatenate([decoded(public, [k]) for k in range(n_classes)])
    tables = (private.cdf_, decoded(public, list(range(n_classes))), apart, public.cdf_)
    return [error(cdf, exact) for cdf in tables]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    n_seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore", PrivacyWarning)
    head = ("private", "together", "apart", "chosen")
    print(f"{'data':26}{'n a class':>9}{'eps':>6}{'delta':>8}" + "".join(f"{h:>10}" for h in head))
    for name, make, sizes in CASES:
        for size in sizes:
            for epsilon, delta in TARGETS:
                found = [
                    errors(*make(size, np.random.default_rng(seed)), epsilon, delta, seed)
                    for seed in range(n_seeds)
                ]
                values = "".join(f"{value:10.3f}" for value in np.mean(found, axis=0))
                print(f"{name:26}{size:9}{epsilon:6g}{delta:8.0e}{values}", flush=True)


if __name__ == "__main__":
    main()
