"""
What synthetic images are judged by: classifiers trained on them, and a Fréchet distance.

The judges are fixed, so that figures of different methods can be compared:

- *accuracy*: a linear ("logistic"), a fully connected ("mlp", 200 hidden units) and a convolutional
  network ("cnn", two convolutions of 16 and 32 channels and 128 features) are trained on the
  synthetic images alone and tested on real test images. Each takes 1,000 steps of Adam on batches
  of 128, so that time does not depend on the number of images;
- *frechet*: the Fréchet distance between the 128 features of the synthetic and of the real images.
  The features are those of the same convolutional network trained on the *real* training images and
  their labels for 2,000 steps with seed 0. It is no Inception network, so that distances are not
  those of papers. Compare samples of equal size.

The judging uses real images without noise: it compares methods and releases nothing.

    python examples/benchmarks/image_task.py --data mnist.npz

prints what real training images reach. FashionMNIST and CelebA are read from files; see `load`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np
import torch
from mnist_halves import DEFAULT_CACHE, DEFAULT_DATA, one_thread, replacing, train
from mnist_halves import evaluate as outputs_of
from torch import nn
from torch.nn import functional

from skdpot.metrics import frechet_distance
from skdpot.ot.distances import GaussianStatistics

BATCH_SIZE = 128
N_STEPS = 1_000
RULER_STEPS = 2_000
N_FEATURES = 128
PEAK_LEARNING_RATE = 3e-3
VERSION = 1

# The four arrays of an .npz file, and the beginnings of the names of idx files.
_NAMES = {
    "train_images": ("x_train", "train-images"),
    "train_labels": ("y_train", "train-labels"),
    "test_images": ("x_test", "t10k-images"),
    "test_labels": ("y_test", "t10k-labels"),
}


class ImageData(NamedTuple):
    """Images as float32 arrays in [0, 1] of shape (n, h, w) or (n, h, w, c); labels as int64."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(path: str | Path = DEFAULT_DATA) -> ImageData:
    """
    Read labelled images.

    Parameters
    ----------
    path : path-like
        An ``.npz`` file with ``X_train``, ``y_train``, ``X_test`` and ``y_test`` (in any case):
        images of shape (n, h, w) or (n, h, w, c), as bytes or in [0, 1], or strokes of a pen as
        points of shape (n, k, 2) in [0, 100], which are drawn. Or the folder of the four idx files
        of MNIST or FashionMNIST (``train-images-idx3-ubyte``, with or without ``.gz``).

    Raises
    ------
    ValueError
        If an array is missing or has another shape or range.
    FileNotFoundError
        If there is no such file.
    """
    path = Path(path)
    if path.is_dir():
        arrays = {name: _read_idx(path, beginning) for name, (_, beginning) in _NAMES.items()}
    else:
        with np.load(path, allow_pickle=False) as file:
            keys = {key.lower(): key for key in file.files}
            missing = [key for key, _ in _NAMES.values() if key not in keys]
            if missing:
                raise ValueError(f"{path} has no arrays {', '.join(missing)}.")
            arrays = {name: file[keys[key]] for name, (key, _) in _NAMES.items()}
    return ImageData(
        as_images(arrays["train_images"]),
        arrays["train_labels"].ravel().astype(np.int64),
        as_images(arrays["test_images"]),
        arrays["test_labels"].ravel().astype(np.int64),
    )


def _read_idx(folder: Path, beginning: str) -> np.ndarray:
    """Read one idx file: two zeros, the type (8: bytes), the number of axes, their lengths."""
    found = sorted(folder.glob(f"{beginning}*"))
    if not found:
        raise FileNotFoundError(f"{folder} has no file {beginning}-idx*.")
    with gzip.open(found[0]) if found[0].suffix == ".gz" else found[0].open("rb") as file:
        content = file.read()
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{found[0]} is not an idx file of bytes.")
    n_axes = content[3]
    shape = np.frombuffer(content, ">u4", count=n_axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


def drawn(points: np.ndarray) -> np.ndarray:
    """Draw strokes as lines of about three pixels on 28 x 28; y grows upwards."""
    places = np.stack(np.meshgrid(np.arange(28.0), np.arange(28.0)), axis=-1).reshape(-1, 1, 2)
    images = []
    for stroke in points.astype(float):
        ends = np.column_stack([4 + stroke[:, 0] / 5, 24 - stroke[:, 1] / 5])
        first, lines = ends[:-1], np.diff(ends, axis=0)
        lengths = np.maximum(np.sum(lines**2, axis=1), 1e-9)
        shares = np.clip(np.sum((places - first) * lines, axis=2) / lengths, 0, 1)
        gaps = np.linalg.norm(places - first - shares[..., None] * lines, axis=2).min(axis=1)
        images.append(np.clip(1.8 - gaps, 0, 1).reshape(28, 28))
    return np.float32(images)


def as_images(images: np.ndarray) -> np.ndarray:
    """Return images as float32 in [0, 1]; bytes are divided by 255, one channel is dropped."""
    images = np.asarray(images)
    images = drawn(images) if images.ndim == 3 and images.shape[2] == 2 else images
    images = np.float32(images) / 255 if images.dtype == np.uint8 else np.float32(images)
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.ndim not in (3, 4):
        raise ValueError(f"images have shape {images.shape}; pass (n, h, w) or (n, h, w, c).")
    if not (np.isfinite(images).all() and images.min() >= 0 and images.max() <= 1):
        raise ValueError("images must be bytes or lie in [0, 1].")
    return images


def evaluate(
    images: np.ndarray,
    labels: np.ndarray,
    test_images: np.ndarray,
    test_labels: np.ndarray,
    real_images: np.ndarray | None = None,
    seed: int = 0,
    *,
    real_labels: np.ndarray | None = None,
    judges: tuple[str, ...] = ("logistic", "mlp", "cnn"),
) -> dict[str, float]:
    """
    Judge synthetic images.

    Parameters
    ----------
    images, labels : ndarray of shape (n, h, w[, c]) and (n,)
        The synthetic images in [0, 1], and their labels.
    test_images, test_labels : ndarray of shape (m, h, w[, c]) and (m,)
        Real images that had no part in making them.
    real_images, real_labels : ndarray, optional
        The real training images for the Fréchet distance, both or none. The network of its features
        is trained once (two minutes) and kept in the folder of caches.
    seed : int
        Of the classifiers, not of the features.
    judges : tuple of str
        Which classifiers are trained: the convolutional one takes most of the time.

    Returns
    -------
    dict
        Accuracies, by the names of the judges, and "frechet" if real images are given.

    Raises
    ------
    ValueError
        If images are invalid; if `real_images` come without `real_labels`.
    """
    if (real_images is None) != (real_labels is None):
        raise ValueError("Give real_images and real_labels, or neither: features need both.")
    images, test_images = as_images(images), as_images(test_images)
    classes, codes = np.unique(np.concatenate([labels, test_labels]), return_inverse=True)
    own, wanted = codes[: len(labels)], codes[len(labels) :]
    figures = {}
    with one_thread():
        for name in judges:
            net = _network(name, images.shape[1:], len(classes))
            _fit(net, images, own, N_STEPS, seed)
            figures[name] = float((_outputs(net, test_images).argmax(1) == wanted).mean())
        if real_images is not None:
            ruler, reference = _ruler(as_images(real_images), np.asarray(real_labels))
            figures["frechet"] = frechet_distance(_outputs(ruler, images), reference)
    return figures


def _network(name: str, shape: tuple[int, ...], n_classes: int) -> nn.Sequential:
    """Return a network that reads images with channels first."""
    height, width, channels = (*shape, 1)[:3]
    n_pixels = height * width * channels
    if name == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(n_pixels, n_classes))
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(n_pixels, 200), nn.ReLU(), nn.Linear(200, n_classes)
        )
    convolution = partial(nn.Conv2d, kernel_size=5, padding=2)
    return nn.Sequential(
        convolution(channels, 16),
        nn.MaxPool2d(2),
        nn.ReLU(),
        convolution(16, 32),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), N_FEATURES),
        nn.ReLU(),
        nn.Linear(N_FEATURES, n_classes),
    )


def _fit(net: nn.Module, images: np.ndarray, codes: np.ndarray, n_steps: int, seed: int) -> None:
    """Train on random batches; a step takes `BATCH_SIZE` images, drawn anew if there are fewer."""
    pixels, digits = _channels_first(images), torch.from_numpy(codes)
    generator = torch.Generator().manual_seed(seed)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        rows = rows % len(pixels)
        return functional.cross_entropy(net(pixels[rows]), digits[rows])

    train(
        net,
        loss,
        n_steps * BATCH_SIZE,
        n_epochs=1,
        batch_size=BATCH_SIZE,
        peak_learning_rate=PEAK_LEARNING_RATE,
        generator=generator,
    )


def _outputs(net: nn.Module, images: np.ndarray) -> np.ndarray:
    return outputs_of(net, _channels_first(images).numpy())


def _channels_first(images: np.ndarray) -> torch.Tensor:
    pixels = torch.from_numpy(images)
    return pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()


def _ruler(images: np.ndarray, labels: np.ndarray) -> tuple[nn.Module, GaussianStatistics]:
    """Return the network of features and the statistics of the real images, made once."""
    digest = hashlib.sha256(np.ascontiguousarray(images).data)
    digest.update(np.ascontiguousarray(labels).data)
    path = DEFAULT_CACHE / f"ruler-{digest.hexdigest()[:16]}-{VERSION}.joblib"
    if not path.exists():
        classes, codes = np.unique(labels, return_inverse=True)
        net = _network("cnn", images.shape[1:], len(classes))
        _fit(net, images, codes, RULER_STEPS, seed=0)
        statistics = GaussianStatistics.of(_outputs(net[:-1], images))
        with replacing(path) as draft:
            joblib.dump((net[:-1], statistics), draft)
    return _loaded(path)


@cache
def _loaded(path: Path) -> tuple[nn.Module, GaussianStatistics]:
    return joblib.load(path)


def main() -> None:
    """Print what real training images reach: the most that synthetic ones can hope for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="file, or folder of idx")
    parser.add_argument("--n", type=int, default=20_000, help="of training images")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = load(options.data)
    chosen = np.random.default_rng(options.seed).permutation(len(data.train_images))[: options.n]
    figures = evaluate(
        data.train_images[chosen],
        data.train_labels[chosen],
        data.test_images,
        data.test_labels,
        data.train_images,
        options.seed,
        real_labels=data.train_labels,
    )
    print(", ".join(f"{name} {value:.4f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
