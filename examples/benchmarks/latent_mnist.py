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
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

DEFAULT_DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist.npz"
DEFAULT_CACHE = Path(tempfile.gettempdir()) / "skdpot-benchmarks"

N_PUBLIC = 30_000
LATENT_DIM = 8
N_FEATURES = 64
N_CLASSES = 10
EVALUATION_BATCH = 2_000


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
class FeatureStatistics:
    """Mean (64,) and covariance (64, 64) of a set of feature vectors."""

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray) -> FeatureStatistics:
        """Compute the statistics of (n, 64) features in double precision."""
        features = np.asarray(features, dtype=np.float64)
        if len(features) < 2:
            raise ValueError(f"A covariance needs 2 or more rows; {len(features)} given.")
        return cls(features.mean(axis=0), np.cov(features, rowvar=False))

    @property
    def mean_squared_norm(self) -> float:
        """Mean squared norm of a feature vector: the scale of every distance."""
        return float(self.mean @ self.mean + np.trace(self.covariance))


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
    reference : FeatureStatistics
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
    reference: FeatureStatistics
    frechet_real: float

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """
        Decode (n, 8) codes into (n, 28, 28) float32 images in [0, 1].

        Codes are first projected to the unit sphere, which is public knowledge.
        """
        return _decode(self.decoder, codes)

    def features(self, images: np.ndarray) -> np.ndarray:
        """Map (n, 28, 28) images in [0, 1] to the (n, 64) penultimate layer of the classifier."""
        images = np.asarray(images, dtype=np.float32)
        if images.ndim != 3 or images.shape[1:] != (28, 28):
            raise ValueError(
                f"images has shape {images.shape}; pass an array of shape (n, 28, 28)."
            )
        return _evaluate(self.feature_net, images)

    def frechet(self, codes: np.ndarray) -> float:
        """Fréchet distance between decoded (n, 8) codes and the real private images."""
        statistics = FeatureStatistics.of(self.features(self.decode(codes)))
        return frechet_distance(statistics, self.reference)

    @cached_property
    def frechet_floor(self) -> float:
        """Fréchet distance of the decoded private codes: a perfect sampler's, up to sampling."""
        return self.frechet(self.codes)


def frechet_distance(first: FeatureStatistics, second: FeatureStatistics) -> float:
    """
    Fréchet distance (squared Wasserstein-2 distance of the fitted Gaussians, as in FID).

    The trace of the square root is taken from the eigenvalues of a symmetric matrix, so that
    singular covariances (features that are always zero) are no trouble.
    """
    values, vectors = np.linalg.eigh(first.covariance)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    cross = np.linalg.eigvalsh(root @ second.covariance @ root)
    covariance_term = (
        np.trace(first.covariance)
        + np.trace(second.covariance)
        - 2 * np.sqrt(cross.clip(min=0)).sum()
    )
    return float(np.sum((first.mean - second.mean) ** 2) + covariance_term)


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
        path.parent.mkdir(parents=True, exist_ok=True)
        with _one_thread():
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


def _make_feature_net() -> nn.Sequential:
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


def _initialise(net: nn.Module, generator: torch.Generator) -> None:
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)
        else:
            nn.init.zeros_(parameter)


# --- training -------------------------------------------------------------------------------


@contextmanager
def _one_thread() -> Iterator[None]:
    """Fix the order of every sum; networks this small gain little from more threads."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _fit(
    net: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    n_epochs: int,
    config: TaskConfig,
    generator: torch.Generator,
) -> None:
    """Minimise ``loss(row indices)`` over the public rows: Adam, one-cycle learning rate."""
    _initialise(net, generator)
    steps = N_PUBLIC // config.batch_size
    optimizer = torch.optim.Adam(net.parameters(), lr=config.peak_learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.peak_learning_rate, total_steps=n_epochs * steps
    )
    net.train()
    for _ in range(n_epochs):
        rows = torch.randperm(N_PUBLIC, generator=generator)
        for batch in rows[: steps * config.batch_size].split(config.batch_size):
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()
            schedule.step()
    net.eval()


def _train_autoencoder(images: np.ndarray, config: TaskConfig) -> tuple[nn.Module, nn.Module]:
    pixels = torch.from_numpy(images)
    encoder, decoder = _make_encoder(config), _make_decoder(config)
    autoencoder = nn.Sequential(encoder, decoder)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy_with_logits(autoencoder(pixels[rows]), pixels[rows])

    generator = torch.Generator().manual_seed(config.seed)
    _fit(autoencoder, loss, config.autoencoder_epochs, config, generator)
    return encoder, decoder


def _train_feature_net(images: np.ndarray, labels: np.ndarray, config: TaskConfig) -> nn.Module:
    pixels, digits = torch.from_numpy(images), torch.from_numpy(labels)
    feature_net = _make_feature_net()
    classifier = nn.Sequential(feature_net, nn.Linear(N_FEATURES, N_CLASSES))

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(classifier(pixels[rows]), digits[rows])

    generator = torch.Generator().manual_seed(config.seed + 1)
    _fit(classifier, loss, config.classifier_epochs, config, generator)
    return feature_net


# --- evaluation -----------------------------------------------------------------------------


def _to_sphere(codes: np.ndarray) -> np.ndarray:
    return codes / np.linalg.norm(codes, axis=1, keepdims=True).clip(min=1e-12)


def _evaluate(net: nn.Module, inputs: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        batches = torch.from_numpy(inputs).split(EVALUATION_BATCH)
        return torch.cat([net(batch) for batch in batches]).numpy()


def _decode(decoder: nn.Module, codes: np.ndarray) -> np.ndarray:
    codes = np.asarray(codes, dtype=np.float32)
    if codes.ndim != 2 or codes.shape[1] != LATENT_DIM:
        raise ValueError(
            f"codes has shape {codes.shape}; pass an array of shape (n, {LATENT_DIM})."
        )
    if not np.isfinite(codes).all():
        raise ValueError("codes has values that are not finite; the sampler diverged.")
    logits = _evaluate(decoder, _to_sphere(codes))
    return torch.sigmoid(torch.from_numpy(logits)).numpy()


# --- building and caching -------------------------------------------------------------------


def _build(data_path: str | os.PathLike[str], config: TaskConfig) -> dict[str, np.ndarray]:
    """Train the networks and return every array of the cache file."""
    with np.load(data_path, allow_pickle=False) as data:
        images = data["X_train"].astype(np.float32) / 255
        labels = data["y_train"].astype(np.int64)
        test_images = data["X_test"].astype(np.float32) / 255
    order = np.random.default_rng(config.seed).permutation(len(images))
    public, private = order[:N_PUBLIC], order[N_PUBLIC:]
    encoder, decoder = _train_autoencoder(images[public], config)
    feature_net = _train_feature_net(images[public], labels[public], config)
    reference = FeatureStatistics.of(_evaluate(feature_net, images[private]))
    test = FeatureStatistics.of(_evaluate(feature_net, test_images))
    return {
        "codes": _evaluate(encoder, images[private]),
        "labels": labels[private],
        "public_codes": _evaluate(encoder, images[public]),
        "public_labels": labels[public],
        "reference_mean": reference.mean,
        "reference_covariance": reference.covariance,
        "frechet_real": np.float64(frechet_distance(test, reference)),
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
    """Write beside the target, then rename: an interrupted run leaves no broken cache."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    os.replace(file.name, path)


def _task_from(arrays: dict[str, np.ndarray], config: TaskConfig) -> LatentTask:
    return LatentTask(
        codes=arrays["codes"],
        labels=arrays["labels"],
        public_codes=arrays["public_codes"],
        public_labels=arrays["public_labels"],
        decoder=_restore("decoder", _make_decoder(config), arrays),
        feature_net=_restore("feature_net", _make_feature_net(), arrays),
        reference=FeatureStatistics(arrays["reference_mean"], arrays["reference_covariance"]),
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
