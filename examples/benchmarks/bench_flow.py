"""Speed of one flow step, beside straight implementations, POT and the machine's limit.

Particles move towards the same quantiles along the same directions in every row of the
table. Rivals take turns, so that whatever else the machine does falls on all of them alike;
times are medians. The straight steps sort the projections; ours looks them up in a table.

The limit is what a step that reads one table entry a projection has to do: both matrix
products and one ``numpy.take``, on one thread like our step.

    python examples/benchmarks/bench_flow.py
    python examples/benchmarks/bench_flow.py --quick
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import ot
import torch
from tqdm import tqdm

from skdpot import DPSlicedFlowSampler
from skdpot._utils.threads import one_blas_thread
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.drift import NumpyDrift, TorchDrift
from skdpot.ot.flow_problems import DirectionBatch

N_LEVELS = 1024
STEP = 0.5
Step = Callable[[np.ndarray], np.ndarray]


def mixture(n_rows: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of four clusters inside the unit ball."""
    centers = 0.4 * rng.standard_normal((4, n_features)) / np.sqrt(n_features)
    rows = centers[rng.integers(0, 4, n_rows)]
    return (rows + 0.1 * rng.standard_normal(rows.shape)).astype(np.float32)


class Rivals:
    """One step of every implementation, from the same particles to the same target."""

    def __init__(self, n_particles: int, n_features: int, n_projections: int) -> None:
        rng = np.random.default_rng(0)
        target = mixture(n_particles, n_features, rng)
        directions = orthogonal_directions(
            n_features * -(-n_projections // n_features), n_features, rng
        )
        self.directions = directions[:n_projections].astype(np.float32)
        self.levels = ((np.arange(N_LEVELS) + 0.5) / N_LEVELS).astype(np.float32)
        quantiles = np.quantile(target @ self.directions.T, self.levels, axis=0).T
        self.batch = DirectionBatch(self.directions, np.ascontiguousarray(quantiles, np.float32))
        self.particles = (0.3 * rng.standard_normal(target.shape)).astype(np.float32)
        self.ranks = ((np.arange(n_particles) + 0.5) / n_particles).astype(np.float32)
        # What the sorted steps move the sorted particles to; known before the first step.
        self.sorted_targets = np.stack(
            [np.interp(self.ranks, self.levels, q) for q in self.batch.quantiles]
        ).astype(np.float32)
        self.torch_directions = torch.from_numpy(self.directions)
        self.torch_targets = torch.from_numpy(self.sorted_targets)
        self.torch_quantiles = torch.from_numpy(self.batch.quantiles)
        self.torch_full_step = torch.from_numpy(self.batch.full_step)
        self.torch_sample = torch.from_numpy(target)
        self.numpy_drift = NumpyDrift(n_particles, n_projections)
        self.torch_drift = TorchDrift(torch.device("cpu"))

    def steps(self) -> dict[str, Step]:
        """Return the rivals by name; the first is the yardstick."""
        return {
            "torch: argsort, scatter": self.torch_scatter,
            "torch: sort, searchsorted, interpolate": self.torch_searchsorted,
            "numpy: argsort, put_along_axis": self.numpy_scatter,
            "POT: sliced distance, autograd": self.pot,
            "skdpot, numpy (CPU default)": self.ours_numpy,
            "skdpot, torch on the CPU": self.ours_torch,
            "limit: products and one take": self.limit,
        }

    def _moved(self, residual: torch.Tensor) -> np.ndarray:
        step: np.ndarray = (STEP * self.torch_full_step * residual).numpy()
        return step

    def torch_scatter(self, particles: np.ndarray) -> np.ndarray:
        """Sort, and give the particle of each rank the target of that rank."""
        position = self.torch_directions @ torch.from_numpy(particles).T
        target = torch.empty_like(position)
        target.scatter_(1, position.argsort(dim=1), self.torch_targets)
        return self._moved((position - target).T @ self.torch_directions)

    def torch_searchsorted(self, particles: np.ndarray) -> np.ndarray:
        """Sort, read each particle's level in the sorted row, interpolate the quantiles."""
        position = self.torch_directions @ torch.from_numpy(particles).T
        ordered = position.sort(dim=1).values
        level = (torch.searchsorted(ordered, position) + 0.5) / len(particles)
        at = (level * N_LEVELS - 0.5).clamp(0, N_LEVELS - 1)
        left = at.long().clamp_max(N_LEVELS - 2)
        below = self.torch_quantiles.gather(1, left)
        above = self.torch_quantiles.gather(1, left + 1)
        target = below + (at - left) * (above - below)
        return self._moved((position - target).T @ self.torch_directions)

    def numpy_scatter(self, particles: np.ndarray) -> np.ndarray:
        """Do the same as `torch_scatter`."""
        position = self.directions @ particles.T
        target = np.empty_like(position)
        np.put_along_axis(target, np.argsort(position, axis=1), self.sorted_targets, axis=1)
        return STEP * self.batch.full_step * ((position - target).T @ self.directions)

    def pot(self, particles: np.ndarray) -> np.ndarray:
        """Follow the gradient of the distance to a sample of as many rows."""
        moving = torch.from_numpy(particles).clone().requires_grad_()
        loss = ot.sliced_wasserstein_distance(
            moving, self.torch_sample, projections=self.torch_directions.T
        )
        loss.square().backward()
        return self._moved(moving.grad * len(particles) * len(self.directions) / 2)

    def ours_numpy(self, particles: np.ndarray) -> np.ndarray:
        """Take the step that the estimators take on a CPU."""
        residual = self.numpy_drift.residual(particles, self.batch)
        return STEP * self.batch.full_step * residual

    def ours_torch(self, particles: np.ndarray) -> np.ndarray:
        """Take the step that the estimators take on a GPU, here on the CPU."""
        return self._moved(self.torch_drift.residual(torch.from_numpy(particles), self.batch))

    def limit(self, particles: np.ndarray) -> np.ndarray:
        """Do no more than project, read a table and project back; not a step."""
        with one_blas_thread():
            position = self.directions @ particles.T
            cells = self._cells(position.shape)
            np.take(self.batch.quantiles.ravel(), cells, out=position, mode="clip")
            moved: np.ndarray = position.T @ self.directions
        return moved

    def _cells(self, shape: tuple[int, ...]) -> np.ndarray:
        if not hasattr(self, "_random_cells"):
            rng = np.random.default_rng(1)
            self._random_cells = rng.integers(0, self.batch.quantiles.size, shape)
        return self._random_cells


def time_steps(rivals: Rivals, n_rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each rival's step, taking turns."""
    steps = rivals.steps()
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in tqdm(range(n_rounds), desc="steps", leave=False):
        for name, step in steps.items():
            start = time.perf_counter()
            step(rivals.particles)
            spent[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(times[1:])) for name, times in spent.items()}


def print_steps(rivals: Rivals, n_rounds: int) -> None:
    """Print a row for each rival, and how far its step is from the sorted one."""
    times = time_steps(rivals, n_rounds)
    yardstick, *_ = times
    exact = rivals.numpy_scatter(rivals.particles)
    print(f"{'one step':<40} {'ms':>8} {'speed-up':>9} {'deviation':>10}")
    for name, step in rivals.steps().items():
        error = np.sqrt(np.mean((step(rivals.particles) - exact) ** 2) / np.mean(exact**2))
        deviation = "" if name.startswith("limit") else f"{error:>10.1e}"
        print(f"{name:<40} {times[name]:>8.2f} {times[yardstick] / times[name]:>9.1f} {deviation}")


def print_estimator(n_rows: int, n_features: int, n_repeats: int) -> None:
    """Print the seconds of a whole fit, and of sampling as many rows as were given."""
    rows = mixture(n_rows, n_features, np.random.default_rng(2))
    fitting, sampling = [], []
    for _ in tqdm(range(n_repeats), desc="fits", leave=False):
        start = time.perf_counter()
        sampler = DPSlicedFlowSampler(epsilon=1.0, norm_bound=1.0).fit(rows)
        fitting.append(time.perf_counter() - start)
        start = time.perf_counter()
        sampler.sample(n_rows)
        sampling.append(time.perf_counter() - start)
    n_projections, n_bins = sampler.sketch_.cdf_.shape[1], sampler.sketch_.cdf_.shape[2] - 1
    print(
        f"\nDPSlicedFlowSampler(epsilon=1) on {n_rows:,} x {n_features} rows: "
        f"{n_projections} slices, {n_bins} bins, {sampler.n_steps} steps\n"
        f"fit, {len(sampler.particles_):,} particles: {np.median(fitting):.2f} s; "
        f"sample of {n_rows:,} rows: {np.median(sampling):.2f} s"
    )


def main() -> None:
    """Time the steps, then the whole estimator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--projections", type=int, default=70)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and rows")
    arguments = parser.parse_args()
    print(
        f"{arguments.particles:,} particles, {arguments.features} features, "
        f"{arguments.projections} slices; {torch.get_num_threads()} threads, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    rivals = Rivals(arguments.particles, arguments.features, arguments.projections)
    print_steps(rivals, 10 if arguments.quick else arguments.rounds)
    print_estimator(
        3000 if arguments.quick else 30_000, arguments.features, 1 if arguments.quick else 3
    )


if __name__ == "__main__":
    main()
