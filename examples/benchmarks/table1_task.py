"""
The task of Table 1: imitate the codes of 30,000 private MNIST images, and be judged by images.

After "Differentially private gradient flow based on the sliced Wasserstein distance" (Sebag et
al.): an autoencoder trained on the public half of the training images maps images to the unit
sphere of R^8; the codes of the other half are private. The autoencoder is the paper's: images are
padded to 32 x 32 and decoded ones cropped, networks are convolutional, and outputs are squashed to
the range of pixels (a hyperbolic tangent between -1 and 1 is a sigmoid between 0 and 1), with the
squared error as the loss. A sample of codes is decoded and judged by

- the Fréchet distance to the real private images, between the 64 features of a small classifier
  of digits that was trained on the public half (the paper's Inception network has seen colour
  photographs only, and is too large to run here);
- the accuracy on the 10,000 test images of the same classifier trained on the sample alone.

The judging itself uses private images without noise: it is for comparing methods.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import joblib
import numpy as np
from mnist_halves import (
    DEFAULT_CACHE,
    DEFAULT_DATA,
    DigitClassifier,
    MnistHalves,
    load_halves,
    one_thread,
    replacing,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, Architecture
from skdpot.metrics import frechet_distance, train_synthetic_test_real
from skdpot.ot.distances import GaussianStatistics

LATENT_DIM = 8
N_SAMPLES = 6_000


MARGIN = 2  # of black pixels on each side


@dataclass(frozen=True)
class Table1Config:
    """
    What the public networks depend on, apart from the images; it names the cache file.

    The paper states no training of its autoencoder; steps, batches and rate are those of the
    authors' configuration file (their rate is constant, ours falls).
    """

    architecture: str = "conv"
    n_steps: int = 1_000_000
    batch_size: int = 250
    learning_rate: float = 1e-3
    classifier_epochs: int = 3
    seed: int = 0
    version: int = 3


CONFIGS = {
    "paper": Table1Config(),
    "quick": Table1Config(n_steps=900, batch_size=64, learning_rate=5e-4),
    "mlp": Table1Config("mlp", n_steps=12_000, batch_size=128, learning_rate=3e-3),
}


@dataclass(frozen=True)
class Score:
    """How good a sample of images is."""

    frechet: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Table1Task:
    """
    Codes to imitate, and the judges.

    Attributes
    ----------
    key : str
        Changes with the data and the configuration.
    halves : MnistHalves
        Images.
    autoencoder : Pipeline
        Padding, and a `PrivateSWAutoencoder` trained on the public half, which costs no privacy.
    classifier : DigitClassifier
        Trained on the public half.
    codes : ndarray of shape (30000, 8)
        Codes of the private images, of norm 1.
    reference : GaussianStatistics
        Of the features of the private images.
    """

    key: str
    halves: MnistHalves
    autoencoder: Pipeline
    classifier: DigitClassifier
    codes: np.ndarray
    reference: GaussianStatistics

    @property
    def labels(self) -> np.ndarray:
        """Digits of the private images."""
        return self.halves.private_labels

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Decode (n, 8) codes into (n, 28, 28) images in [0, 1]."""
        if not np.isfinite(codes).all():
            raise ValueError("codes has values that are not finite; the sampler diverged.")
        return self.autoencoder.inverse_transform(codes).reshape(-1, 28, 28) / 255

    def score(self, images: np.ndarray, labels: np.ndarray | None, seed: int) -> Score:
        """
        Judge images in [0, 1].

        Parameters
        ----------
        images : ndarray of shape (n, 28, 28)
            The sample. Compare samples of equal size.
        labels : ndarray of shape (n,) or None
            Its digits; None lets the public classifier read them.
        seed : int
            Of the classifier that is trained on the sample.
        """
        digits = self.classifier.predict(images) if labels is None else labels
        # As many steps as the public classifier takes on its 30,000 images.
        n_epochs = max(1, self.classifier.n_epochs * len(self.halves.public_images) // len(images))
        with one_thread():
            accuracy = train_synthetic_test_real(
                DigitClassifier(n_epochs, seed=seed),
                images,
                digits,
                self.halves.test_images,
                self.halves.test_labels,
            )
        distance = frechet_distance(self.classifier.features(images), self.reference)
        return Score(distance, accuracy)


def load_table1(
    cache_dir: str | os.PathLike[str] = DEFAULT_CACHE,
    data_path: str | os.PathLike[str] = DEFAULT_DATA,
    config: Table1Config | None = None,
) -> Table1Task:
    """
    Load the task; train its public networks (minutes) if the cache has none.

    Parameters
    ----------
    cache_dir : path-like
        Folder of the cache; created when absent. One file per data set and configuration.
    data_path : path-like
        MNIST; see `mnist_halves.load_halves`.
    config : Table1Config, optional
        Architecture, steps and seed.
    """
    config = CONFIGS["paper"] if config is None else config
    digest = hashlib.sha256(Path(data_path).read_bytes())
    digest.update(json.dumps(asdict(config), sort_keys=True).encode())
    key = digest.hexdigest()[:16]
    path = Path(cache_dir) / f"table1-{key}.joblib"
    halves = load_halves(data_path, config.seed)
    if not path.exists():
        networks = _train(halves, config)
        with replacing(path) as draft:
            joblib.dump(networks, draft)
    autoencoder, classifier, codes = joblib.load(path)
    reference = GaussianStatistics.of(classifier.features(halves.private_images))
    return Table1Task(key, halves, autoencoder, classifier, codes, reference)


def _train(
    halves: MnistHalves, config: Table1Config
) -> tuple[Pipeline, DigitClassifier, np.ndarray]:
    """Train on the public half; encode the private one."""
    margin = MARGIN if config.architecture == "conv" else 0
    side = 28 + 2 * margin
    framed = FunctionTransformer(
        _pad, _crop, kw_args={"margin": margin}, inv_kw_args={"margin": margin}
    )
    with one_thread():
        autoencoder = make_pipeline(
            framed,
            PrivateSWAutoencoder(
                LATENT_DIM,
                private=False,
                architecture=Architecture(config.architecture, image_shape=(side, side)),
                bounds=(0, 255),
                mechanism=DPSGD(
                    config.n_steps, learning_rate=config.learning_rate, batch_size=config.batch_size
                ),
                random_state=config.seed,
                verbose=1,
            ),
        ).fit(_pixels(halves.public_images))
        classifier = DigitClassifier(config.classifier_epochs, seed=config.seed + 1).fit(
            halves.public_images, halves.public_labels
        )
    codes = np.asarray(autoencoder.transform(_pixels(halves.private_images)), dtype=np.float32)
    return autoencoder, classifier, codes


def _pixels(images: np.ndarray) -> np.ndarray:
    """Return images as flat rows of values from 0 to 255."""
    return 255 * images.reshape(len(images), -1)


def _pad(rows: np.ndarray, margin: int) -> np.ndarray:
    """Frame flat images of 28 x 28 with black pixels."""
    images = rows.reshape(-1, 28, 28)
    return np.pad(images, [(0, 0), (margin, margin), (margin, margin)]).reshape(len(rows), -1)


def _crop(rows: np.ndarray, margin: int) -> np.ndarray:
    """Take the frame away."""
    side, inside = 28 + 2 * margin, slice(margin, 28 + margin)
    return rows.reshape(-1, side, side)[:, inside, inside].reshape(len(rows), -1)
