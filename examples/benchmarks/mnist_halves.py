"""
The two halves of MNIST, and a small classifier.

Half of the training images are public: autoencoders and the classifier that defines Fréchet
distances are trained on them. The other half is private. Everything here is plain training for
the benchmarks beside this file; nothing is made private.

Training is seeded and runs on one thread, so that the number of cores does not change the
networks; another processor or PyTorch release may.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn
from torch.nn import functional

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
DEFAULT_CACHE = Path(tempfile.gettempdir()) / "skdpot-benchmarks"

N_PUBLIC = 30_000
N_FEATURES = 64
N_CLASSES = 10
EVALUATION_BATCH = 2_000


@dataclass(frozen=True, eq=False)
class MnistHalves:
    """Images as (n, 28, 28) float32 arrays in [0, 1], and their digits as int64."""

    public_images: np.ndarray
    public_labels: np.ndarray
    private_images: np.ndarray
    private_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_halves(data_path: str | os.PathLike[str] = DEFAULT_DATA, seed: int = 0) -> MnistHalves:
    """
    Load MNIST and split its training images at random.

    Parameters
    ----------
    data_path : path-like
        ``.npz`` with ``X_train``, ``y_train``, ``X_test``, ``y_test`` (uint8 images of 28 by 28).
    seed : int
        Seed of the split.
    """
    with np.load(data_path, allow_pickle=False) as data:
        images = data["X_train"].astype(np.float32) / 255
        labels = data["y_train"].astype(np.int64)
        test_images = data["X_test"].astype(np.float32) / 255
        test_labels = data["y_test"].astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    public, private = order[:N_PUBLIC], order[N_PUBLIC:]
    return MnistHalves(
        images[public], labels[public], images[private], labels[private], test_images, test_labels
    )


class DigitClassifier(ClassifierMixin, BaseEstimator):
    """
    Two small convolutions and 64 features; plain training with Adam.

    Parameters
    ----------
    n_epochs : int
        Passes over the images.
    batch_size : int
        Images a step; a last, smaller batch is left out.
    learning_rate : float
        Peak of the one-cycle schedule.
    seed : int
        Initial weights and order of the images.
    """

    def __init__(
        self,
        n_epochs: int = 3,
        batch_size: int = 128,
        learning_rate: float = 3e-3,
        seed: int = 1,
    ) -> None:
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    def fit(self, images: np.ndarray, labels: np.ndarray) -> DigitClassifier:
        """Train on (n, 28, 28) images in [0, 1] and digits 0 to 9."""
        pixels = torch.from_numpy(np.asarray(images, dtype=np.float32))
        digits = torch.from_numpy(np.asarray(labels, dtype=np.int64))
        self.feature_net_ = make_feature_net()
        self.network_ = nn.Sequential(self.feature_net_, nn.Linear(N_FEATURES, N_CLASSES))
        self.classes_ = np.arange(N_CLASSES)

        def loss(rows: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(self.network_(pixels[rows]), digits[rows])

        train(
            self.network_,
            loss,
            len(pixels),
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            peak_learning_rate=self.learning_rate,
            generator=torch.Generator().manual_seed(self.seed),
        )
        return self

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Return the most likely digit of each image."""
        return evaluate(self.network_, images).argmax(axis=1)

    def features(self, images: np.ndarray) -> np.ndarray:
        """Map (n, 28, 28) images in [0, 1] to the (n, 64) penultimate layer."""
        return image_features(self.feature_net_, images)


def make_feature_net() -> nn.Sequential:
    """Return the part of the classifier that ends in 64 features, with random weights."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 16, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, N_FEATURES),
        nn.ReLU(),
    )


def image_features(feature_net: nn.Module, images: np.ndarray) -> np.ndarray:
    """Map (n, 28, 28) images in [0, 1] to (n, 64) features."""
    images = np.asarray(images, dtype=np.float32)
    if images.ndim != 3 or images.shape[1:] != (28, 28):
        raise ValueError(f"images has shape {images.shape}; pass an array of shape (n, 28, 28).")
    return evaluate(feature_net, images)


def evaluate(net: nn.Module, inputs: np.ndarray) -> np.ndarray:
    """Apply a network to an array, batch by batch."""
    with torch.inference_mode():
        batches = torch.from_numpy(np.asarray(inputs, dtype=np.float32)).split(EVALUATION_BATCH)
        return torch.cat([net(batch) for batch in batches]).numpy()


def train(
    net: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    n_rows: int,
    *,
    n_epochs: int,
    batch_size: int,
    peak_learning_rate: float,
    generator: torch.Generator,
) -> None:
    """Minimise ``loss(row indices)``: Adam, one-cycle learning rate."""
    _initialise(net, generator)
    steps = n_rows // batch_size
    optimizer = torch.optim.Adam(net.parameters(), lr=peak_learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak_learning_rate, total_steps=n_epochs * steps
    )
    net.train()
    for _ in range(n_epochs):
        rows = torch.randperm(n_rows, generator=generator)
        for batch in rows[: steps * batch_size].split(batch_size):
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()
            schedule.step()
    net.eval()


def _initialise(net: nn.Module, generator: torch.Generator) -> None:
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(parameter)


@contextmanager
def one_thread() -> Iterator[None]:
    """Fix the order of every sum; networks this small gain little from more threads."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write beside `path`, then rename: an interrupted run leaves no broken file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        draft = Path(file.name)
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
