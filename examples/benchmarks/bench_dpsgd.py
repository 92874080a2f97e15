"""
What per-sample clipping costs, in time and in memory
=====================================================

Trains the autoencoders of `PrivateSWAutoencoder` on MNIST images, with and without privacy,
step by step in turn, so that both see the same machine in the same minute. It prints

- the time of a whole step (batch, gradient, noise, Adam) and its ratio to a step without privacy,
- the time of the summed gradient alone: our route, one pass for a chain of layers, and the
  general route through ``torch.func``,
- the peak memory of one clipped sum against chunk size and batch size, each in a process of its
  own (Linux).

Run ``python bench_dpsgd.py --data mnist.npz``; a few minutes on one core. Set OMP_NUM_THREADS=1
for figures that do not depend on the number of cores. Without the data file random images are
used: values do not matter here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.nets import per_sample
from skdpot.nets.gradients import by_jacobians, pulled_back_sum
from skdpot.nets.layers import ToSphere
from skdpot.nets.training_plan import plan_training
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.sampling.architecture import build_networks
from skdpot.sampling.autoencoder_training import (
    AutoencoderLoss,
    private_steps,
    public_steps,
    reconstruction_gradient,
)
from skdpot.sampling.code_distances import PriorDistance

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
N_ROWS, LATENT_DIM = 30_000, 8
CLIPPED = by_jacobians(1.0)


def load_rows(path: Path, n_rows: int) -> torch.Tensor:
    """Return flat images in [-1, 1]."""
    if path.is_file():
        with np.load(path, allow_pickle=False) as data:
            images = data["X_train"][:n_rows].reshape(-1, 784)
        return torch.from_numpy(images.astype(np.float32) / 127.5 - 1)
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (n_rows, 784))).float()


def make_network(architecture: str) -> nn.Sequential:
    """Make an autoencoder of 28 x 28 images with codes on the sphere."""
    torch.manual_seed(0)
    encoder, decoder = build_networks(
        architecture, n_features=784, image=(1, 28, 28), latent_dim=LATENT_DIM
    )
    return nn.Sequential(nn.Sequential(encoder, ToSphere()), nn.Sequential(decoder, nn.Tanh()))


def paired_seconds(
    functions: dict[str, Callable[[], object]], n_repeats: int
) -> dict[str, np.ndarray]:
    """Call the functions in turn; return the seconds of each call after a first round."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(n_repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: np.array(values[1:]) for name, values in seconds.items()}


def report(title: str, seconds: dict[str, np.ndarray], reference: str) -> pd.DataFrame:
    """Tabulate medians, and the median of the ratios to the reference within each round."""
    rows = [
        {
            "what": f"{title}: {name}",
            "milliseconds": 1e3 * float(np.median(values)),
            "ratio": float(np.median(values / seconds[reference])),
        }
        for name, values in seconds.items()
    ]
    return pd.DataFrame(rows)


def bench_steps(
    architecture: str, rows: torch.Tensor, batch_size: int, n_repeats: int
) -> pd.DataFrame:
    """Compare whole training steps."""
    plans = {
        name: plan_training(
            PrivacyTarget(1.0, 1e-5),
            n_samples=len(rows),
            batch_size=batch_size,
            n_steps=10**6,
            sampling=sampling,
            sensitivity=2.0,
            n_parameters=sum(p.numel() for p in make_network(architecture).parameters()),
            bounds=DataBounds.from_box(-1, 1, 784),
            sigma=2.0,
        )
        for name, sampling in (("private", "poisson"), ("penalty", "without_replacement"))
    }
    prior = PriorDistance(
        prior="sphere", latent_dim=LATENT_DIM, batch_sizes=(batch_size,), n_projections=50
    )
    rng = np.random.default_rng(0)
    makers = {
        "without privacy": public_steps(
            AutoencoderLoss(clip=1.0), rows, (batch_size,), rng, [np.arange(len(rows))]
        ),
        "private": private_steps(
            AutoencoderLoss(clip=1.0), rows, plans["private"], SecretStream(), rng
        ),
        "private, prior penalty": private_steps(
            AutoencoderLoss(clip=1.0, penalty=prior, alpha=0.1),
            rows,
            plans["penalty"],
            SecretStream(),
            rng,
        ),
    }

    def whole_step(step: Callable[[nn.Module, int], None]) -> Callable[[], None]:
        network = make_network(architecture).train()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

        def run() -> None:
            optimizer.zero_grad()
            step(network, 0)
            optimizer.step()

        return run

    steps = {name: whole_step(step) for name, step in makers.items()}
    return report(f"{architecture} step", paired_seconds(steps, n_repeats), "without privacy")


def bench_routes(architecture: str, batch: torch.Tensor, n_repeats: int) -> pd.DataFrame:
    """Compare ways to the summed gradient."""
    network = make_network(architecture)

    def plain() -> None:
        network.zero_grad()
        ((network(batch) - batch) ** 2).mean().backward()

    def clipped() -> None:
        pulled_back_sum(network, batch, CLIPPED, reconstruction_gradient)

    def by_torch_func() -> None:
        with mock.patch.object(per_sample, "chain_of_layers", return_value=None):
            pulled_back_sum(network, batch, CLIPPED, reconstruction_gradient, chunk_size=32)

    functions = {
        "without clipping": plain,
        "clipped, chain of layers": clipped,
        "clipped, torch.func": by_torch_func,
    }
    seconds = paired_seconds(functions, n_repeats)
    return report(f"{architecture} gradient", seconds, "without clipping")


def peak_memory(architecture: str, batch_size: int, chunk_size: int) -> float:
    """Return the MiB that one clipped sum adds to this process' peak."""
    network = make_network(architecture)
    batch = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (batch_size, 784))).float()
    pulled_back_sum(network, batch[:1], CLIPPED, reconstruction_gradient)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_mebibytes()
    pulled_back_sum(network, batch, CLIPPED, reconstruction_gradient, chunk_size=chunk_size)
    return peak_mebibytes() - before


def peak_mebibytes() -> float:
    """Return the peak of this process' memory (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def bench_memory(architecture: str, batch_sizes: list[int], chunks: list[int]) -> pd.DataFrame:
    """Tabulate the peak memory, a row a chunk size and a column a batch size."""
    table = {}
    for batch_size in batch_sizes:
        for chunk_size in chunks:
            case = f"{architecture},{batch_size},{chunk_size}"
            command = [sys.executable, __file__, "--memory-of", case]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            table[chunk_size, batch_size] = float(done.stdout)
    return pd.Series(table).unstack().rename_axis(index="chunk", columns="batch")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 2)[1])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--architectures", nargs="+", default=["mlp", "conv"])
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        architecture, batch_size, chunk_size = arguments.memory_of.split(",")
        print(peak_memory(architecture, int(batch_size), int(chunk_size)))
        return
    rows = load_rows(arguments.data, N_ROWS)
    print(
        f"{len(rows)} images, batch {arguments.batch_size}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for architecture in arguments.architectures:
        steps = bench_steps(architecture, rows, arguments.batch_size, arguments.repeats)
        routes = bench_routes(
            architecture, rows[: arguments.batch_size], max(2, arguments.repeats // 4)
        )
        print(pd.concat([steps, routes]).to_string(index=False, float_format="%.2f"))
        print(f"\n{architecture}: MiB added to the peak by one clipped sum")
        memory = bench_memory(architecture, [250, 1000], [16, 64, 250, 1000])
        print(memory.to_string(float_format="%.0f"), flush=True)


if __name__ == "__main__":
    main()
