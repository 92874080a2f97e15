"""
What a private and fair training step costs
===========================================

Compares whole training steps of `FairPrivateClassifier` and `FairPrivateRegressor` (forward pass,
ranks, gradients of single records, clipping, noise, optimizer) with Opacus' DP-SGD on the same
network, batch and loss. All steps are taken in turn, so that every ratio is one of steps within
the same fraction of a second. It prints

- one output: DP-SGD by Opacus, our loss alone, and loss and penalty between two groups,
- two outputs: the same with 10, 50 and 250 directions,
- the time of the clipped sum alone against the number of records.

Run ``python bench_fair_step.py``; a minute on one core. Set OMP_NUM_THREADS=1 for figures that
do not depend on the number of cores. Opacus forms the gradients of all records of a batch at once
and is the faster the more memory the C library keeps between steps: for its best case also set
MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ to 1000000000 (Linux).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import opacus
import pandas as pd
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn import functional

from skdpot._utils.streams import SecretStream
from skdpot.nets.gradients import pulled_back_sum, shares_of_jacobians, shares_of_vectors
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.per_sample import record_outputs
from skdpot.ot.directions import orthogonal_directions
from skdpot.privacy.noise import gaussian_noise

Step = Callable[[], None]

N_FEATURES, N_HIDDEN = 16, 64
CLIP, CLIP_JACOBIAN, SIGMA, ALPHA, LEARNING_RATE = 5.0, 1.0, 50.0, 0.5, 0.05


def make_network(n_outputs: int) -> nn.Sequential:
    """Make the same small network every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(N_FEATURES, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, n_outputs))


def make_batch(n_records: int, n_outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw rows and targets: one bit, or several numbers, a record."""
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(rng.normal(size=(n_records, N_FEATURES))).float()
    targets = torch.from_numpy(rng.uniform(size=(n_records, n_outputs))).float()
    return rows, targets.round() if n_outputs == 1 else targets


def opacus_step(rows: torch.Tensor, targets: torch.Tensor) -> Step:
    """Make a step of DP-SGD as a user of Opacus takes it."""
    network = GradSampleModule(make_network(targets.shape[1]))
    optimizer = DPOptimizer(
        torch.optim.SGD(network.parameters(), lr=LEARNING_RATE),
        noise_multiplier=SIGMA / CLIP,
        max_grad_norm=CLIP,
        expected_batch_size=len(rows),
    )
    loss = functional.binary_cross_entropy_with_logits
    criterion = loss if targets.shape[1] == 1 else functional.mse_loss

    def step() -> None:
        optimizer.zero_grad()
        criterion(network(rows), targets).backward()
        optimizer.step()

    return step


def our_step(
    rows: torch.Tensor, targets: torch.Tensor, penalty: ParityPenalty | None, n_projections: int = 1
) -> Step:
    """Make a step on the noisy gradient of a loss and a penalty between groups."""
    n, k = targets.shape
    network, secret = make_network(k), SecretStream()
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    loss, rng = Loss(targets), np.random.default_rng(2)
    alpha = 0.0 if penalty is None else ALPHA

    def step() -> None:
        pulls = None
        if penalty is not None:
            directions = np.ones((1, 1)) if k == 1 else orthogonal_directions(n_projections, k, rng)
            values = loss.compared(record_outputs(network, rows).double()).numpy()
            ends = np.cumsum(penalty.batch_sizes)[:-1]
            pulls = torch.from_numpy(
                np.concatenate(penalty.vectors(np.split(values, ends), directions))
            )

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            own = loss.gradient(outputs, records)
            total = (1.0 - alpha) * own * shares_of_vectors(own, gram, CLIP)[:, None]
            if pulls is not None:
                slopes = loss.slopes(outputs)
                of_compared = slopes[:, :, None] * gram * slopes[:, None]
                shares = shares_of_jacobians(of_compared, CLIP_JACOBIAN)
                total = total + alpha * n * slopes * shares[:, None] * pulls[records]
            return total

        optimizer.zero_grad()
        for parameter, value in pulled_back_sum(network, rows, vectors).items():
            value += torch.from_numpy(gaussian_noise(SIGMA, tuple(value.shape), secret))
            parameter.grad = (value / n).to(parameter.dtype)
        optimizer.step()

    return step


class Loss:
    """Logistic loss of one logit, or half the squared error of several outputs."""

    def __init__(self, targets: torch.Tensor) -> None:
        self.targets, self.logistic = targets.double(), targets.shape[1] == 1

    def gradient(self, outputs: torch.Tensor, records: slice) -> torch.Tensor:
        """Return the gradient by the outputs."""
        predicted = outputs.sigmoid() if self.logistic else outputs
        return predicted - self.targets[records]

    def compared(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return what groups are compared by: probabilities, or outputs in a ball."""
        if self.logistic:
            return outputs.sigmoid()
        return outputs / outputs.norm(dim=1, keepdim=True).clamp(min=1.0)

    def slopes(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the derivatives of what is compared; clipping leaves Jacobians alone."""
        p = outputs.sigmoid()
        return p * (1.0 - p) if self.logistic else torch.ones_like(outputs)


def compare(functions: dict[str, Step], n_repeats: int) -> pd.DataFrame:
    """Call the functions in turn; tabulate medians, and ratios to the first within a round."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(n_repeats + 3):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    times = {name: np.array(values[3:]) for name, values in seconds.items()}
    reference = next(iter(times.values()))
    return pd.DataFrame(
        {
            "milliseconds": {name: 1e3 * np.median(values) for name, values in times.items()},
            "ratio": {name: np.median(values / reference) for name, values in times.items()},
            "lower quartile": {n: np.quantile(v / reference, 0.25) for n, v in times.items()},
            "upper quartile": {n: np.quantile(v / reference, 0.75) for n, v in times.items()},
        }
    )


def bench_steps(n_records: int, n_outputs: int, slices: list[int], n_repeats: int) -> pd.DataFrame:
    """Compare whole steps."""
    rows, targets = make_batch(n_records, n_outputs)
    first = n_records * 2 // 5
    penalty = ParityPenalty(((0, 1),), (first, n_records - first))
    steps = {
        "Opacus DP-SGD": opacus_step(rows, targets),
        "loss alone": our_step(rows, targets, None),
    }
    for n_projections in slices:
        steps[f"loss and penalty, {n_projections} directions"] = our_step(
            rows, targets, penalty, n_projections
        )
    return compare(steps, n_repeats)


def bench_sizes(sizes: list[int], n_repeats: int) -> pd.DataFrame:
    """Show that the clipped sum's time is in proportion to the number of records."""

    def summed(n_records: int) -> Step:
        network = make_network(1)
        rows, targets = make_batch(n_records, 1)
        loss = Loss(targets)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            own = loss.gradient(outputs, records)
            return own * shares_of_vectors(own, gram, CLIP)[:, None]

        return lambda: pulled_back_sum(network, rows, vectors) and None

    return compare({f"{n} records": summed(n) for n in sizes}, n_repeats)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 2)[1])
    parser.add_argument("--batch-size", type=int, default=6000)
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    n = arguments.batch_size
    print(
        f"batch {n}, network {N_FEATURES}-{N_HIDDEN}-k, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, opacus {opacus.__version__}"
    )
    for n_outputs, slices in ((1, [1]), (2, [10, 50, 250])):
        print(f"\nwhole steps, k = {n_outputs}")
        table = bench_steps(n, n_outputs, slices, arguments.repeats)
        print(table.to_string(float_format="%.2f"), flush=True)
    print("\nclipped sum, k = 1")
    print(bench_sizes([n, 4 * n, 16 * n], arguments.repeats // 2).to_string(float_format="%.2f"))


if __name__ == "__main__":
    main()
