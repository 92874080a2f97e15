"""Which number of slices L and bins B to use: the table behind the public rule.

For several data sets and values of n·ε, fits the sampler on every (L, B) of a grid and
measures the sliced Wasserstein-2 distance of its particles to held-out real rows, relative
to the root mean square radius of the data. Prints the best shape, the shape that the rule
picks and what the rule loses.

    python examples/benchmarks/bench_sketch_shape.py --csv shape.csv
"""

import argparse
import csv
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.fft import dctn
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from tqdm import tqdm

from skdpot import DPSlicedFlowSampler
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import Sketch
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.transport import sliced_distance
from skdpot.privacy.targets import privacy_target
from skdpot.release.sketch_plan import recommended_bins, recommended_n_projections

DELTA = 1e-5
ROOT = Path(__file__).resolve().parents[2]
BINS = (8, 32, 128)
MULTIPLES = (1, 4, 16, 64)


def mnist_codes(path: Path, n_components: int) -> np.ndarray:
    """PCA codes on the unit sphere; the projection is fitted on the public half."""
    with np.load(path) as file:
        images = file["X_train"].reshape(-1, 784) / 255.0
    codes = PCA(n_components, random_state=0).fit(images[:30_000]).transform(images[30_000:])
    return codes / np.linalg.norm(codes, axis=1, keepdims=True)


def digits_codes(n_low: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest n_low x n_low cosine coefficients of scikit-learn's digits, in a unit ball."""
    images, labels = load_digits(return_X_y=True)
    waves = dctn(images.reshape(-1, 8, 8) - 8.0, axes=(1, 2), norm="ortho")
    # Every pixel is in [0, 16], so the norm is at most 64; 58 is the largest that occurs.
    return waves[:, :n_low, :n_low].reshape(len(waves), -1) / 64.0, labels


@dataclass(frozen=True)
class Case:
    """One data set at one privacy level."""

    name: str
    train: np.ndarray
    test: np.ndarray
    train_labels: np.ndarray | None
    test_labels: np.ndarray | None
    epsilon: float

    @property
    def n_classes(self) -> int:
        """Number of tables."""
        return 1 if self.train_labels is None else len(np.unique(self.train_labels))

    @property
    def mu(self) -> float:
        """Gaussian privacy parameter of the sketch."""
        return privacy_target(self.epsilon, DELTA, None).mu_cap

    def rule(self) -> tuple[int, int]:
        """Return the shape that the public rule picks."""
        size = (*self.train.shape, self.mu, self.n_classes)
        n_bins = recommended_bins(*size)
        return recommended_n_projections(*size), n_bins

    def distance(self, n_projections: int, n_bins: int, seed: int) -> float:
        """Fit one shape; return the mean distance by class over the data's radius."""
        sampler = DPSlicedFlowSampler(
            Sketch(n_projections, n_bins=n_bins),
            epsilon=self.epsilon,
            delta=DELTA,
            norm_bound=1.0,
            conditional=self.train_labels is not None,
            n_particles=2000,
            n_steps=100,
            random_state=seed,
        ).fit(self.train, self.train_labels)
        n_features = self.train.shape[1]
        directions = orthogonal_directions(256, n_features, np.random.default_rng(7))
        radius = np.sqrt(np.mean(np.sum((self.test - self.test.mean(axis=0)) ** 2, axis=1)))
        if self.train_labels is None:
            pairs = [(sampler.particles_, self.test[:4000])]
        else:
            pairs = [
                (
                    sampler.particles_[sampler.particle_labels_ == k],
                    self.test[self.test_labels == k],
                )
                for k in sampler.classes_
            ]
        distances = [sliced_distance(a, b, directions) for a, b in pairs]
        return float(np.mean(distances) / radius)


def cases(data: Path, quick: bool) -> Iterator[Case]:
    """Yield every data set at every epsilon."""
    digits, labels = digits_codes(4)
    sources = {"digits 16 cosines": (digits, None), "the same by class": (digits, labels)}
    if data.exists():
        for n_components in (8, 16):
            sources[f"MNIST {n_components} PCA"] = (mnist_codes(data, n_components), None)
    rng = np.random.default_rng(0)
    for name, (rows, y) in sources.items():
        order = rng.permutation(len(rows))
        half = len(rows) // 2
        train, test = order[:half], order[half:]
        for size in [half] if half < 5000 else [1000, half]:
            kept = train[:size]
            ys = (None, None) if y is None else (y[kept], y[test])
            for epsilon in (0.3, 3.0) if quick else (0.1, 0.3, 1.0, 3.0, 10.0):
                yield Case(f"{name} n={size}", rows[kept], rows[test], *ys, epsilon)


def run(case: Case, n_seeds: int) -> dict[tuple[int, int], float]:
    """Return the mean distance of every shape on the grid, the rule's included."""
    n_features = case.train.shape[1]
    most = min(1024, 2560 // case.n_classes)
    shapes = {(m * n_features, b) for m in MULTIPLES for b in BINS if m * n_features <= most}
    return {
        shape: float(np.mean([case.distance(*shape, seed) for seed in range(n_seeds)]))
        for shape in tqdm(sorted(shapes | {case.rule()}), desc=case.name, leave=False)
    }


def main() -> None:
    """Run the grid and print one row a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/mnist.npz")
    parser.add_argument("--csv", type=Path, help="also write every distance here")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    rows = []
    print(f"{'data':<24} {'eps':>5} {'n mu/C':>8} {'best L x B':>11} {'SW2':>6}", end="")
    print(f" {'rule L x B':>11} {'SW2':>6} {'ratio':>6}")
    for case in cases(arguments.data, arguments.quick):
        found = run(case, arguments.seeds)
        best, rule = min(found, key=found.__getitem__), case.rule()
        print(
            f"{case.name:<24} {case.epsilon:>5} "
            f"{len(case.train) * case.mu / case.n_classes:>8.0f} "
            f"{best[0]:>5} x {best[1]:>3} {found[best]:>6.3f} "
            f"{rule[0]:>5} x {rule[1]:>3} {found[rule]:>6.3f} {found[rule] / found[best]:>6.2f}",
            flush=True,
        )
        rows += [(case.name, case.epsilon, case.mu, *shape, d) for shape, d in found.items()]
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("data", "epsilon", "mu", "L", "B", "distance"), *rows])


if __name__ == "__main__":
    main()
