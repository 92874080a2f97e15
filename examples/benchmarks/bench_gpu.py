"""How much faster fits are on a GPU than on the cores of the same machine.

Run it where torch sees a GPU: ``python examples/benchmarks/bench_gpu.py``. Each fit runs twice on
each device, and the second run counts. The table in ``doc/benchmarks.rst`` is its output.
"""

import time
import warnings

import numpy as np
import torch

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    FairPrivateClassifier,
    PrivateSWAutoencoder,
    SlicedSketch,
)
from skdpot.mechanisms import DPSGD, Gradient, ImageNetwork, Sketch, image_projections

warnings.simplefilter("ignore")  # seeds are for benchmarks and tests alone
RNG = np.random.default_rng(0)


def rows(n: int, d: int) -> np.ndarray:
    """Draw clipped Gaussian rows."""
    return RNG.normal(size=(n, d)).clip(-3, 3)


SMALL, LARGE, WIDE = rows(20_000, 10), rows(100_000, 50), rows(20_000, 50)
IMAGES = rows(20_000, 784)
CLASSES = (WIDE[:, 0] + 0.3 * RNG.normal(size=len(WIDE)) > 0).astype(int)
GROUPS = RNG.integers(0, 2, len(WIDE))
COMMON = {"bounds": (-3, 3), "random_state": 0}
FITS = {
    "flow, 20,000 rows and particles of 10 features": lambda device: DPSlicedFlowSampler(
        epsilon=2.0, n_particles=20_000, device=device, **COMMON
    ).fit(SMALL),
    "flow, 100,000 rows and particles of 50 features": lambda device: DPSlicedFlowSampler(
        epsilon=2.0, n_particles=100_000, device=device, **COMMON
    ).fit(LARGE),
    "sketch, 200,000 rows of 50 features": lambda device: SlicedSketch(device=device, **COMMON).fit(
        np.repeat(WIDE, 10, axis=0)
    ),
    "generator of a sketch, 500 steps": lambda device: DPSlicedGenerator(
        epsilon=2.0, n_steps=500, device=device, **COMMON
    ).fit(WIDE),
    "generator of images of 28 x 28, 500 steps": lambda device: DPSlicedGenerator(
        Sketch(projections=image_projections((28, 28))),
        module=ImageNetwork((28, 28)),
        epsilon=2.0,
        n_steps=500,
        device=device,
        **COMMON,
    ).fit(IMAGES),
    "generator by noisy gradients, 50 steps": lambda device: DPSlicedGenerator(
        Gradient(batch_size=250), epsilon=2.0, n_steps=50, device=device, **COMMON
    ).fit(WIDE),
    "autoencoder by DP-SGD, 100 steps": lambda device: PrivateSWAutoencoder(
        mechanism=DPSGD(n_steps=100), epsilon=2.0, device=device, **COMMON
    ).fit(WIDE),
    "fair classifier, two hidden layers": lambda device: FairPrivateClassifier(
        module="mlp", epsilon=3.0, device=device, random_state=0
    ).fit(WIDE, CLASSES, sensitive_features=GROUPS),
}

if __name__ == "__main__":
    cores = torch.get_num_threads()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {cores} cores")
    for name, fit in FITS.items():
        seconds = []
        for device in ("cpu", "cuda"):
            fit(device)
            start = time.perf_counter()
            fit(device)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        print(f"{name:50} {seconds[0]:8.2f} s {seconds[1]:8.2f} s {seconds[0] / seconds[1]:6.1f}")
