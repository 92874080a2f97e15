"""
The 8-dimensional MNIST latent task.

Half of the MNIST training images are public. They train an autoencoder, whose codes lie on the
unit sphere of R^8, and a classifier, whose 64 features define a Fréchet distance. The codes of
the other half are the private rows that a sampler has to imitate. A sample of codes is judged by
decoding it and comparing the features of the images with those of the *real* private images.

Nothing here is private by itself: the codes, the reference statistics and every distance are
computed from the private half without noise. They are for measuring samplers, not for release.

Run ``python latent_mnist.py --data mnist.npz`` to build the task (minutes, once; later runs read
the cache) and print its reference figures. In a script::

    task = load_task()
    sampler.fit(task.codes)
    task.frechet(sampler.sample(30_000))

Distances depend on the sample size: fewer codes give a slightly larger one, so compare samples of
equal size. Training is seeded and runs on one thread, so that the number of cores does not change
the task; another processor or PyTorch release may.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from mnist_halves import (
    DEFAULT_CACHE,
    DEFAULT_DATA,
    DigitClassifier,
    evaluate,
    image_features,
    load_halves,
    make_feature_net,
    one_thread,
    replacing,
    train,
)
from torch import nn
from torch.nn import functional

from skdpot.metrics import frechet_distance
from skdpot.ot.distances import GaussianStatistics

LATENT_DIM = 8


@dataclass(frozen=True)
class TaskConfig:
    """What the trained networks depend on, apart from the data; it names the cache file."""

    seed: int = 0
    hidden: int = 512
    autoencoder_epochs: int = 50
    classifier_epochs: int = 3
    batch_size: int = 128
    peak_learning_rate: float = 3e-3
    version: int = 1


@dataclass(frozen=True, eq=False)
class LatentTask:
    """
    Codes to imitate, and the ruler.

    Attributes
    ----------
    codes, public_codes : ndarray of shape (30000, 8), float32
        Unit-norm codes of the private and of the public images.
    labels, public_labels : ndarray of shape (30000,), int64
        Digits, 0 to 9.
    decoder, feature_net : torch.nn.Module
        Trained on the public half, in evaluation mode.
    reference : GaussianStatistics
        Of the real private images.
    frechet_real : float
        Fréchet distance of the 10,000 real test images: what no sample is expected to beat.
    """

    codes: np.ndarray
    labels: np.ndarray
    public_codes: np.ndarray
    public_labels: np.ndarray
    decoder: nn.Module
    feature_net: nn.Module
    reference: GaussianStatistics
    frechet_real: float

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """
        Decode (n, 8) codes into (n, 28, 28) float32 images in [0, 1].

        Codes are first projected to the unit sphere, which is public knowledge.
        """
        return _decode(self.decoder, codes)

    def features(self, images: np.ndarray) -> np.ndarray:
        """Map (n, 28, 28) images in [0, 1] to the (n, 64) penultimate layer of the classifier."""
        return image_features(self.feature_net, images)

    def frechet(self, codes: np.ndarray) -> float:
        """Fréchet distance between decoded (n, 8) codes and the real private images."""
        return frechet_distance(self.features(self.decode(codes)), self.reference)

    @cached_property
    def frechet_floor(self) -> float:
        """Fréchet distance of the decoded private codes: a perfect sampler's, up to sampling."""
        return self.frechet(self.codes)


def load_task(
    cache_dir: str | os.PathLike[str] = DEFAULT_CACHE,
    data_path: str | os.PathLike[str] = DEFAULT_DATA,
    config: TaskConfig | None = None,
) -> LatentTask:
    """
    Load the task from the cache, or train it once and cache it.

    Parameters
    ----------
    cache_dir : path-like
        Folder of the cache; created when absent. One file per data set and configuration.
    data_path : path-like
        ``.npz`` with ``X_train``, ``y_train`` and ``X_test`` (uint8 images of 28 by 28).
    config : TaskConfig, optional
        Sizes, epochs and seed.

    Raises
    ------
    FileNotFoundError
        If the data file is absent.
    """
    config = TaskConfig() if config is None else config
    path = cache_path(cache_dir, data_path, config)
    if not path.exists():
        with one_thread():
            _save(path, _build(data_path, config))
    with np.load(path, allow_pickle=False) as arrays:
        return _task_from(dict(arrays), config)


def cache_path(
    cache_dir: str | os.PathLike[str], data_path: str | os.PathLike[str], config: TaskConfig
) -> Path:
    """Return the cache file of this data and configuration."""
    data_path = Path(data_path)
    if not data_path.is_file():
        raise FileNotFoundError(f"No MNIST file at {data_path}; pass data_path (or --data).")
    key = hashlib.sha256(data_path.read_bytes())
    key.update(json.dumps(asdict(config), sort_keys=True).encode())
    return Path(cache_dir) / f"latent_mnist-{key.hexdigest()[:16]}.npz"


def uniform_codes(n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw codes uniformly on the sphere: a sampler that knows nothing."""
    return _to_sphere(rng.standard_normal((n_samples, LATENT_DIM)).astype(np.float32))


# --- networks -------------------------------------------------------------------------------


class _ToSphere(nn.Module):
    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return functional.normalize(codes, dim=1)


def _make_encoder(config: TaskConfig) -> nn.Sequential:
    width = config.hidden
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, width),
        nn.ReLU(),
        nn.Linear(width, width // 2),
        nn.ReLU(),
        nn.Linear(width // 2, LATENT_DIM),
        _ToSphere(),
    )


def _make_decoder(config: TaskConfig) -> nn.Sequential:
    """Return the decoder, which ends in logits; `_decode` applies the sigmoid."""
    width = config.hidden
    return nn.Sequential(
        nn.Linear(LATENT_DIM, width // 2),
        nn.ReLU(),
        nn.Linear(width // 2, width),
        nn.ReLU(),
        nn.Linear(width, 784),
        nn.Unflatten(1, (28, 28)),
    )


# --- training -------------------------------------------------------------------------------


def _train_autoencoder(images: np.ndarray, config: TaskConfig) -> tuple[nn.Module, nn.Module]:
    pixels = torch.from_numpy(images)
    encoder, decoder = _make_encoder(config), _make_decoder(config)
    autoencoder = nn.Sequential(encoder, decoder)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(autoencoder(pixels[rows]), pixels[rows])

    train(
        autoencoder,
        loss,
        len(pixels),
        n_epochs=config.autoencoder_epochs,
        batch_size=config.batch_size,
        peak_learning_rate=config.peak_learning_rate,
        generator=torch.Generator().manual_seed(config.seed),
    )
    return encoder, decoder


def _train_feature_net(images: np.ndarray, labels: np.ndarray, config: TaskConfig) -> nn.Module:
    classifier = DigitClassifier(
        config.classifier_epochs, config.batch_size, config.peak_learning_rate, config.seed + 1
    )
    return classifier.fit(images, labels).feature_net_


# --- evaluation -----------------------------------------------------------------------------


def _to_sphere(codes: np.ndarray) -> np.ndarray:
    return codes / np.linalg.norm(codes, axis=1, keepdims=True).clip(min=1e-12)


def _decode(decoder: nn.Module, codes: np.ndarray) -> np.ndarray:
    codes = np.asarray(codes, dtype=np.float32)
    if codes.ndim != 2 or codes.shape[1] != LATENT_DIM:
        raise ValueError(
            f"codes has shape {codes.shape}; pass an array of shape (n, {LATENT_DIM})."
        )
    if not np.isfinite(codes).all():
        raise ValueError("codes has values that are not finite; the sampler diverged.")
    logits = evaluate(decoder, _to_sphere(codes))
    return torch.sigmoid(torch.from_numpy(logits)).numpy()


# --- building and caching -------------------------------------------------------------------


def _build(data_path: str | os.PathLike[str], config: TaskConfig) -> dict[str, np.ndarray]:
    """Train the networks and return every array of the cache file."""
    halves = load_halves(data_path, config.seed)
    encoder, decoder = _train_autoencoder(halves.public_images, config)
    feature_net = _train_feature_net(halves.public_images, halves.public_labels, config)
    reference = GaussianStatistics.of(evaluate(feature_net, halves.private_images))
    return {
        "codes": evaluate(encoder, halves.private_images),
        "labels": halves.private_labels,
        "public_codes": evaluate(encoder, halves.public_images),
        "public_labels": halves.public_labels,
        "reference_mean": reference.mean,
        "reference_covariance": reference.covariance,
        "frechet_real": np.float64(
            frechet_distance(evaluate(feature_net, halves.test_images), reference)
        ),
        **_weights("decoder", decoder),
        **_weights("feature_net", feature_net),
    }


def _weights(name: str, net: nn.Module) -> dict[str, np.ndarray]:
    return {f"{name}/{key}": value.numpy() for key, value in net.state_dict().items()}


def _restore(name: str, net: nn.Module, arrays: dict[str, np.ndarray]) -> nn.Module:
    net.load_state_dict(
        {key: torch.from_numpy(arrays[f"{name}/{key}"]) for key in net.state_dict()}
    )
    return net.eval()


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _task_from(arrays: dict[str, np.ndarray], config: TaskConfig) -> LatentTask:
    return LatentTask(
        codes=arrays["codes"],
        labels=arrays["labels"],
        public_codes=arrays["public_codes"],
        public_labels=arrays["public_labels"],
        decoder=_restore("decoder", _make_decoder(config), arrays),
        feature_net=_restore("feature_net", make_feature_net(), arrays),
        reference=GaussianStatistics(arrays["reference_mean"], arrays["reference_covariance"]),
        frechet_real=float(arrays["frechet_real"]),
    )


def main(arguments: list[str] | None = None) -> None:
    """Build or load the task and print its reference figures."""
    parser = argparse.ArgumentParser(description="Build the 8-dimensional MNIST latent task.")
    parser.add_argument("--data", default=DEFAULT_DATA, help="mnist.npz (default: %(default)s)")
    parser.add_argument("--cache", default=DEFAULT_CACHE, help="folder (default: %(default)s)")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    task = load_task(options.cache, options.data)
    uniform = uniform_codes(len(task.codes), np.random.default_rng(0))
    figures = {
        "seconds to load or train": time.perf_counter() - start,
        "mean squared feature norm": task.reference.mean_squared_norm,
        "Fréchet distance, real test images": task.frechet_real,
        "Fréchet distance, decoded private codes": task.frechet_floor,
        "Fréchet distance, decoded public codes": task.frechet(task.public_codes),
        "Fréchet distance, decoded uniform codes": task.frechet(uniform),
    }
    print(f"cache: {cache_path(options.cache, options.data, TaskConfig())}")
    for name, value in figures.items():
        print(f"{name:42s} {value:9.2f}")


if __name__ == "__main__":
    main()
