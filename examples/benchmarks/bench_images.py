r"""
Images from private images alone: no public image, no trained encoder.

- *generator*: `DPSlicedGenerator` with `ImageNetwork` on a class-conditional sketch of pixels and
  edges;
- *gaussians*: `DPSlicedFlowSampler` with `Moments` on the cosine codes of `ImageCodes`. `SIZES`
  says how many codes and Gaussians per class an ε pays for. The ground is taken to be black.

- *both*: half of the images of each, and half of the squared mu;
- *DPSWflow*, *DPSWflow-r*: the methods of the flow paper (`Presample`, `Resample`) on the same
  codes. They have no classes, and there is no public classifier, so a row is its code and a one for
  its class. 10,000 particles are moved, and drawn from with repetition.

They are judged by ``image_task.py``: classifiers trained on the copy and tested on real test
images, and a Fréchet distance. δ is 1e-5. Baselines and published figures are in
``image_baselines.py``.

    python examples/benchmarks/bench_images.py --data mnist.npz --epsilon 0.2 1 10
    python examples/benchmarks/bench_images.py --method gaussians --seeds 3
    python examples/benchmarks/bench_images.py --method gaussians generator both --epsilon 1 \
        --picture images.png
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from image_task import evaluate, load
from mnist_halves import DEFAULT_DATA
from scipy.optimize import brentq

from skdpot import DPSlicedFlowSampler, DPSlicedGenerator
from skdpot.mechanisms import (
    ImageNetwork,
    Mechanism,
    Moments,
    Presample,
    Resample,
    Sketch,
    image_projections,
    with_edges,
)
from skdpot.preprocessing import ImageCodes
from skdpot.privacy.targets import privacy_target

N_BINS, DELTA = 65, 1e-5  # odd: what is empty is in the middle of a bin
N_PARTICLES = 10_000  # of the paper's methods
SIZES = ((0.5, 7, 1), (3.0, 8, 1), (math.inf, 10, 10))  # up to an ε: codes a side; parts of a class


def flat(images: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return images (n, h, w[, c]) as rows, channels first, and the shape of one."""
    first = np.moveaxis(images[..., None] if images.ndim == 3 else images, 3, 1)
    return first.reshape(len(first), -1), first.shape[1:]


def unflat(rows: np.ndarray, shape: tuple[int, ...], n_axes: int) -> np.ndarray:
    """Return rows as images again."""
    last = np.moveaxis(rows.astype(np.float32).reshape(-1, *shape), 1, 3)
    return last[..., 0] if n_axes == 3 else last


def copy(
    images: np.ndarray, labels: np.ndarray, epsilon: float, n_samples: int, n_steps: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a generator fitted to private images of (n, h, w[, c])."""
    rows, shape = flat(images)
    directions = image_projections(shape, edges=True)
    generator = DPSlicedGenerator(
        Sketch(n_bins=N_BINS, projections=directions, classes=np.unique(labels)),
        module=ImageNetwork(shape, pixels=(0, 1), edges=True),
        epsilon=epsilon,
        conditional=True,
        bounds=(-1, 1),
        n_steps=n_steps,
    )
    generator.fit(with_edges(rows, shape), labels)
    rows, made = generator.sample_labeled(n_samples)
    return unflat(rows[:, : math.prod(shape)], shape, images.ndim), made


def gaussians(
    images: np.ndarray, labels: np.ndarray, epsilon: float, n_samples: int, n_steps: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of Gaussians of codes of private images; `n_steps` is not used."""
    size, n_components = next(chosen for most, *chosen in SIZES if epsilon <= most)
    rows, shape = flat(images)
    coder = ImageCodes(shape, size=size, background=0.0)
    sampler = DPSlicedFlowSampler(
        Moments(np.unique(labels), n_components=n_components),
        epsilon=epsilon,
        conditional=True,
        norm_bound=coder.norm_bound,
    )
    sampler.fit(coder.fit_transform(rows), labels)
    codes, made = sampler.sample_labeled(n_samples)
    return unflat(coder.inverse_transform(codes), shape, images.ndim), made


def both(
    images: np.ndarray, labels: np.ndarray, epsilon: float, n_samples: int, n_steps: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return images of the generator and of Gaussians, which share the privacy equally."""

    def excess(part: float) -> float:
        parts = [privacy_target(each, DELTA, None).mu_cap for each in (part, epsilon)]
        return parts[0] - parts[1] / math.sqrt(2)

    part = brentq(excess, epsilon / 4, epsilon)
    halves = [method(images, labels, part, n_samples // 2, n_steps) for method in (copy, gaussians)]
    made = [np.concatenate(pair) for pair in zip(*halves, strict=True)]
    return made[0], made[1]


def noisy_rows(
    mechanism: Mechanism,
    default: int,
    images: np.ndarray,
    labels: np.ndarray,
    epsilon: float,
    n_samples: int,
    n_steps: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of particles that follow noisy projections of codes and classes."""
    size = next(size for most, size, _ in SIZES if epsilon <= most)
    rows, shape = flat(images)
    coder = ImageCodes(shape, size=size, background=0.0)
    classes, codes = np.unique(labels, return_inverse=True)
    n_particles = min(n_samples, N_PARTICLES)
    sampler = DPSlicedFlowSampler(
        mechanism,
        epsilon=epsilon,
        norm_bound=math.sqrt(2),  # of a code of norm 1 and a one
        n_steps=n_steps or default,
        n_particles=n_particles,
    )
    sampler.fit(
        np.hstack([coder.fit_transform(rows) / coder.norm_bound, np.eye(len(classes))[codes]])
    )
    made = np.resize(sampler.sample(n_particles), (n_samples, sampler.n_features_in_))
    images_made = coder.inverse_transform(coder.norm_bound * made[:, : -len(classes)])
    return unflat(images_made, shape, images.ndim), classes[made[:, -len(classes) :].argmax(1)]


METHODS = {
    "generator": copy,
    "gaussians": gaussians,
    "both": both,
    "DPSWflow": partial(noisy_rows, Presample(240), 1_500),
    "DPSWflow-r": partial(noisy_rows, Resample(), 4_800),  # 20 epochs of batches of 250
}


def draw(made: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """Draw the first two images of each class, for each name a strip."""
    plt.style.use("skdpot.pictures")
    figure, axes = plt.subplots(len(made), 1, figsize=(5.4, 1.25 * len(made)), squeeze=False)
    for axis, (name, (images, labels)) in zip(axes[:, 0], made.items(), strict=True):
        own = [images[labels == label][:2] for label in np.unique(labels)]
        strip = np.concatenate([np.concatenate(two, axis=0) for two in own], axis=1)
        axis.imshow(strip, cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(name, pad=3)
        axis.axis("off")
    figure.savefig(path)


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.2, 1.0, 10.0])
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--method", choices=METHODS, nargs="+", default=["generator"])
    parser.add_argument("--seeds", type=int, default=1, help="runs, each with judges of its own")
    parser.add_argument("--no-frechet", action="store_true", help="spare the reference network")
    parser.add_argument("--picture", type=Path, help="a file for images of the last seed's fits")
    options = parser.parse_args()
    data = load(options.data)
    private = data.train_images, data.train_labels
    shown = {"real images": private}
    for method, epsilon, seed in product(options.method, options.epsilon, range(options.seeds)):
        start = time.perf_counter()
        made = METHODS[method](*private, epsilon, options.samples, options.steps)
        seconds = time.perf_counter() - start
        shown[f"{method}, ε = {epsilon:g}"] = made
        real = (None, None) if options.no_frechet else (data.train_images, data.train_labels)
        judges = data.test_images, data.test_labels, real[0], seed
        figures = evaluate(*made, *judges, real_labels=real[1])
        told = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(f"{method}, epsilon {epsilon:g}: {told}, {seconds:.0f} s", flush=True)
    if options.picture:
        draw(shown, options.picture)


if __name__ == "__main__":
    main()
