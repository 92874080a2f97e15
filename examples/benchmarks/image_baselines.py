"""
Other makers' generators of private images without public data, and their published figures.

`DPMERF` is written after F. Harder, K. Adamczewski and M. Park, "DP-MERF: Differentially private
mean embeddings with random features for practical privacy-preserving data generation", AISTATS 2021
(arXiv 2002.11603). The mean of random Fourier features of every class is released once, with
Gaussian noise; a generator is trained until the mean features of its images are near. Settings for
digits are those of the authors' code (``github.com/ParkLabML/DP-MERF``): 5,000 frequencies of
variance 1/105, batches of 500 images, five epochs of Adam at 0.01, which falls by a tenth an epoch;
labels of batches and samples are uniform. The noise is the least for ε by our account: 3.73 times
the sensitivity at ε = 1, where their code takes 5. The noise is drawn in floating point, which is
not hardened: this is a baseline.

    python examples/benchmarks/image_baselines.py --data mnist.npz --epsilon 1
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from image_task import as_images, evaluate, load
from mnist_halves import DEFAULT_DATA, one_thread
from torch import nn
from torch.nn import functional

from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.targets import privacy_target

BLOCK = 2_000


class Published(NamedTuple):
    """Accuracy on real MNIST test images of a classifier trained on synthetic ones."""

    method: str
    epsilon_1: float
    epsilon_10: float


# C. Gong, K. Li, Z. Lin and T. Wang, "DPImageBench: A unified benchmark for differentially private
# image synthesis", CCS 2025 (arXiv 2503.14681). Its classifiers are larger networks than ours.
PUBLISHED = (
    Published("DP-MERF", 0.803, 0.813),
    Published("DPDM", 0.892, 0.977),
    Published("DP-Kernel", 0.940, 0.936),
    Published("DP-FETA", 0.956, 0.981),
)


class DPMERF:
    """
    A generator whose random features have the private mean of each class.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of the fit; replacing one labelled image. The number of images is public.
    n_frequencies : int
        Half the number of features.
    lengthscale : float
        Of the Gaussian kernel that the features approximate, in the unit of the images' norm.
    n_steps, batch_size, n_latent : int
        Of the generator.
    learning_rate : float
        Initial rate of Adam; after every fifth of the steps it falls by a tenth.
    seed : int
        Of everything; for benchmarks.

    Notes
    -----
    Features of an image, ``(cos ωx, sin ωx) / sqrt(n_frequencies)``, have norm 1, and those of one
    image are added to the column of its class. Replacing an image takes away one vector of norm 1
    and adds another, so that the sum moves by at most 2 and the mean by 2/n; the bound is the
    triangle inequality, reached only if the two are opposite and of one class.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        *,
        n_frequencies: int = 5_000,
        lengthscale: float = math.sqrt(105),
        n_steps: int = 600,
        batch_size: int = 500,
        n_latent: int = 5,
        learning_rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.n_frequencies, self.lengthscale = n_frequencies, lengthscale
        self.n_steps, self.batch_size, self.n_latent = n_steps, batch_size, n_latent
        self.learning_rate, self.seed = learning_rate, seed

    def fit(self, images: np.ndarray, labels: np.ndarray, classes: np.ndarray) -> DPMERF:
        """Release the noisy mean features; train on them alone. `classes` are public."""
        images, self.classes_ = as_images(images), np.asarray(classes)
        self.shape_ = images.shape[1:]
        self._generator = torch.Generator().manual_seed(self.seed)
        rng = np.random.default_rng(self.seed)
        n_pixels = math.prod(self.shape_)
        frequencies = rng.standard_normal((self.n_frequencies, n_pixels)) / self.lengthscale
        self._frequencies = torch.from_numpy(frequencies.astype(np.float32))
        self.sigma_ = self._noise()
        sums = self._sums(images.reshape(len(images), -1), np.searchsorted(self.classes_, labels))
        noise = self.sigma_ * rng.standard_normal(sums.shape)
        self.embedding_ = torch.from_numpy(((sums + noise) / len(images)).astype(np.float32))
        with one_thread():
            self._train()
        return self

    def sample_labeled(self, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return images in [0, 1] and their labels, as many of each class as of others."""
        codes = torch.arange(n_samples) % len(self.classes_)
        self._net.eval()
        with torch.inference_mode():
            parts = [self._images(part) for part in codes.split(BLOCK)]
        images = torch.cat(parts).reshape(n_samples, *self.shape_).numpy()
        return images, self.classes_[codes.numpy()]

    def _noise(self) -> float:
        """Return the least standard deviation on the sums."""
        if math.isinf(self.epsilon):
            return 0.0
        target = privacy_target(self.epsilon, self.delta, None)
        event = calibrate(target, lambda sigma: GaussianEvent(sigma=sigma, sensitivity=2.0))
        return float(event.sigma)

    def _sums(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Sum the features of each class, shape (2 n_frequencies, n_classes)."""
        total = torch.zeros(2 * self.n_frequencies, len(self.classes_), dtype=torch.float64)
        members = functional.one_hot(torch.from_numpy(codes), len(self.classes_)).float()
        with torch.inference_mode():
            for start in range(0, len(rows), BLOCK):
                block = slice(start, start + BLOCK)
                total += self._features(torch.from_numpy(rows[block])).T @ members[block]
        return total.numpy()

    def _features(self, rows: torch.Tensor) -> torch.Tensor:
        angles = rows @ self._frequencies.T
        return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(self.n_frequencies)

    def _train(self) -> None:
        self._net = _generator(self.n_latent + len(self.classes_), self.shape_)
        _start(self._net, self._generator)
        optimizer = torch.optim.Adam(self._net.parameters(), lr=self.learning_rate)
        epoch = max(1, self.n_steps // 5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=epoch, gamma=0.9)
        for _ in range(self.n_steps):
            codes = torch.randint(len(self.classes_), (self.batch_size,), generator=self._generator)
            members = functional.one_hot(codes, len(self.classes_)).float()
            made = self._features(self._images(codes)).T @ members / self.batch_size
            optimizer.zero_grad()
            (self.embedding_ - made).square().sum().backward()
            optimizer.step()
            schedule.step()

    def _images(self, codes: torch.Tensor) -> torch.Tensor:
        latents = torch.randn(len(codes), self.n_latent, generator=self._generator)
        members = functional.one_hot(codes, len(self.classes_)).float()
        made = self._net(torch.cat([latents, members], dim=1))
        return made.permute(0, 2, 3, 1).reshape(len(codes), -1)  # channels last, as the rows are


def _generator(n_inputs: int, shape: tuple[int, ...]) -> nn.Sequential:
    """Return the authors' generator of digits, for any image whose sides are multiples of four."""
    height, width, channels = (*shape, 1)[:3]
    if height % 4 or width % 4:
        raise ValueError(f"images of {height} x {width} cannot be halved twice; pad them.")
    small = (16, height // 4, width // 4)
    double = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
    return nn.Sequential(
        nn.Linear(n_inputs, 200),
        nn.BatchNorm1d(200),
        nn.ReLU(),
        nn.Linear(200, math.prod(small)),
        nn.BatchNorm1d(math.prod(small)),
        nn.ReLU(),
        nn.Unflatten(1, small),
        double,
        nn.Conv2d(16, 8, kernel_size=5, padding=2),
        nn.ReLU(),
        double,
        nn.Conv2d(8, channels, kernel_size=5, padding=2),
        nn.Sigmoid(),
    )


def _start(net: nn.Module, generator: torch.Generator) -> None:
    """Draw PyTorch's initial weights from a generator of our own."""
    for layer in net:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in (layer.weight, layer.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)


def main() -> None:
    """Fit DP-MERF, judge its images, and print the published figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.2, 1.0, 10.0])
    parser.add_argument("--frequencies", type=int, default=5_000)
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-frechet", action="store_true", help="spare the reference network")
    options = parser.parse_args()
    data = load(options.data)
    real = {} if options.no_frechet else {"real_labels": data.train_labels}
    for epsilon in options.epsilon:
        start = time.perf_counter()
        maker = DPMERF(epsilon, n_frequencies=options.frequencies, seed=options.seed)
        maker.fit(data.train_images, data.train_labels, np.unique(data.test_labels))
        made = maker.sample_labeled(options.samples)
        seconds = time.perf_counter() - start
        figures = evaluate(
            *made,
            data.test_images,
            data.test_labels,
            data.train_images if real else None,
            options.seed,
            **real,
        )
        told = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(f"DP-MERF, epsilon {epsilon:g}: {told}, {seconds:.0f} s", flush=True)
    for row in PUBLISHED:
        print(f"published, {row.method}: {row.epsilon_1} at 1, {row.epsilon_10} at 10")


if __name__ == "__main__":
    main()
