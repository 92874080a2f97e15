"""Fréchet distance of private copies of MNIST codes, with the library's defaults.

The task is that of ``latent_mnist.py``: 30,000 private rows on the unit sphere of R^8. Prints
one row an epsilon: mean and range over seeds, and the time of fit and sample.

    python examples/benchmarks/bench_latent.py
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from latent_mnist import load_task
from mnist_halves import DEFAULT_CACHE, DEFAULT_DATA
from tqdm import tqdm

from skdpot import DPSlicedFlowSampler
from skdpot.exceptions import PrivacyWarning


def main() -> None:
    """Fit, sample, decode, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bounds", action="store_true", help="estimate the bounds privately too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    task = load_task(arguments.cache, arguments.data)
    print(f"real test images {task.frechet_real:.2f}, decoded real codes {task.frechet_floor:.2f}")
    print(f"{'epsilon':>8} {'L x B':>11} {'FD mean':>8} {'min':>6} {'max':>6} {'seconds':>8}")
    public = {} if arguments.bounds else {"norm_bound": 1.0}
    for epsilon in (np.inf, 5.0, 1.0, 0.2):
        distances, start = [], time.perf_counter()
        for seed in tqdm(range(arguments.seeds), desc=f"epsilon={epsilon:g}", leave=False):
            sampler = DPSlicedFlowSampler(epsilon=epsilon, random_state=seed, **public)
            codes = sampler.fit(task.codes).sample(6000, random_state=seed)
            distances.append(task.frechet(codes.astype(np.float32)))
        seconds = (time.perf_counter() - start) / arguments.seeds
        shape = "{} x {}".format(*sampler.sketch_.statistic_.shape[1:])
        print(
            f"{epsilon:>8g} {shape:>11} {np.mean(distances):>8.2f} {min(distances):>6.2f} "
            f"{max(distances):>6.2f} {seconds:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
