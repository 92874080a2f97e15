"""
The cells of Table 1: which estimator each method is, and how one cell is run and kept.

See ``bench_table1.py`` for what the methods are.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from mnist_halves import replacing
from table1_task import LATENT_DIM, N_SAMPLES, Table1Config, Table1Task, load_table1
from torch import nn

from skdpot import DPSlicedFlowSampler, DPSlicedGenerator
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import LatentNetwork, Presample, Resample
from skdpot.sampling.row_releases import lemma1_sensitivity

DELTA = 1e-5
BATCH_SIZE = 250
STEPS_PER_EPOCH = 30_000 // BATCH_SIZE
# Four times as many change the distance without privacy from 18.8 to 18.5 (latent_mnist.py).
FROZEN_STEPS = 1_500
STEP_SIZE = 3 / LATENT_DIM  # h = 3 of the paper's code as a share of the full step, which is d
GENERATOR_RATE = 1e-3  # of the authors' configuration; the paper states none
N_SHOWN = 24
VERSION = 2


@dataclass(frozen=True)
class Level:
    """A column: a target ε, or a given noise σ whose ε is found out."""

    epsilon: float = math.inf
    sigma: float | None = None
    n_epochs: int = 35

    @property
    def name(self) -> str:
        """Text of the column, also used in file names."""
        return f"epsilon={self.epsilon:g}" if self.sigma is None else f"sigma={self.sigma:.3g}"


# The paper's pairs of σ and ε. In the authors' code σ is a noise multiplier: it is multiplied by
# the sensitivity of Lemma 1 at δ/2 for rows of norm 1. The ε is not used where σ is given.
PAPER_SENSITIVITY = lemma1_sensitivity(70, LATENT_DIM, DELTA / 2)
PAPER_NOISE = {
    0.67: Level(10.0, sigma=0.67 * PAPER_SENSITIVITY, n_epochs=35),
    0.8: Level(5.0, sigma=0.8 * PAPER_SENSITIVITY, n_epochs=20),
}


def level_of(epsilon: float) -> Level:
    """Return the column of a target ε, with the paper's number of epochs."""
    return Level(epsilon, n_epochs=35 if epsilon > 5 else 20)


# --- methods --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How to make an estimator for a column and a seed."""

    make: Callable[[Level, int], Any]
    labelled: bool = False
    takes_sigma: bool = False


def paper_flow_resampled(level: Level, seed: int) -> DPSlicedFlowSampler:
    """Return Algorithm 1: new directions, a new batch and new noise in each step."""
    return DPSlicedFlowSampler(
        Resample(BATCH_SIZE, n_projections=70, sigma=level.sigma),
        **_privacy(level, seed),
        n_steps=level.n_epochs * STEPS_PER_EPOCH,
        step_size=STEP_SIZE,
        n_particles=N_SAMPLES,
    )


def paper_flow_frozen(level: Level, seed: int) -> DPSlicedFlowSampler:
    """Return Algorithm 2: one release of all rows."""
    return DPSlicedFlowSampler(
        Presample(n_projections=31, n_projections_per_step=25),
        **_privacy(level, seed),
        n_steps=FROZEN_STEPS,
        step_size=STEP_SIZE,
        n_particles=N_SAMPLES,
    )


def paper_generator(level: Level, seed: int) -> DPSlicedGenerator:
    """Return a network in the place of the particles of Algorithm 1."""
    return DPSlicedGenerator(
        Resample(BATCH_SIZE, n_projections=70, sigma=level.sigma),
        **_privacy(level, seed),
        module=LatentNetwork(paper_network, latent_dim=LATENT_DIM),
        n_steps=level.n_epochs * STEPS_PER_EPOCH,
        learning_rate=GENERATOR_RATE,
    )


def paper_network() -> nn.Module:
    """Return the generator of appendix C.5."""
    return nn.Sequential(
        nn.Linear(LATENT_DIM, 256),
        nn.ReLU(),
        nn.Linear(256, 512),
        nn.BatchNorm1d(512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, LATENT_DIM),
    )


def sketch_flow(level: Level, seed: int) -> DPSlicedFlowSampler:
    """Return the library's default."""
    return DPSlicedFlowSampler(**_privacy(level, seed), n_particles=N_SAMPLES)


def sketch_flow_labels(level: Level, seed: int) -> DPSlicedFlowSampler:
    """Return the same with a table a class."""
    return DPSlicedFlowSampler(**_privacy(level, seed), n_particles=N_SAMPLES, conditional=True)


def sketch_generator(level: Level, seed: int) -> DPSlicedGenerator:
    """Return a network trained on the sketch."""
    return DPSlicedGenerator(**_privacy(level, seed))


METHODS = {
    "DPSWgen": Method(paper_generator, takes_sigma=True),
    "DPSWflow": Method(paper_flow_frozen),
    "DPSWflow-r": Method(paper_flow_resampled, takes_sigma=True),
    "sketch generator": Method(sketch_generator),
    "sketch flow": Method(sketch_flow),
    "sketch flow, labels": Method(sketch_flow_labels, labelled=True),
}
REFERENCES = ("real images", "decoded codes", "uniform codes")


def _privacy(level: Level, seed: int) -> dict[str, Any]:
    return {
        "epsilon": level.epsilon,
        "delta": DELTA,
        "norm_bound": 1.0,
        "device": "cpu",
        "random_state": seed,
    }


# --- cells ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One method, one column, one seed."""

    method: str
    level: Level
    seed: int

    def path(self, folder: Path) -> Path:
        """Return where the result of the cell is kept."""
        name = f"{self.method}-{self.level.name}-{self.seed}.npz"
        return folder / name.replace(" ", "_").replace(",", "")


@dataclass(frozen=True)
class Settings:
    """Where the task comes from."""

    cache: Path
    data: Path
    config: Table1Config

    def task(self) -> Table1Task:
        """Return the task; each process loads it once."""
        return _task(self)


@cache
def _task(settings: Settings) -> Table1Task:
    return load_table1(settings.cache, settings.data, settings.config)


def cells(methods: list[str], levels: list[Level], n_seeds: int) -> Iterator[Cell]:
    """Yield the references and every cell that makes sense, one seed after the other."""
    for seed in range(n_seeds):
        for reference in REFERENCES:
            yield Cell(reference, Level(), seed)
        for method in methods:
            for level in levels:
                if level.sigma is None or METHODS[method].takes_sigma:
                    yield Cell(method, level, seed)


def run_cell(cell: Cell, settings: Settings, folder: Path) -> None:
    """Fit, sample, judge, and write one file."""
    warnings.simplefilter("ignore", PrivacyWarning)  # seeds are for benchmarks, too
    task = settings.task()
    make = _reference if cell.method in REFERENCES else _sample
    images, labels, facts = make(task, cell)
    row = {
        "method": cell.method,
        "column": cell.level.name,
        "seed": cell.seed,
        **asdict(task.score(images, labels, cell.seed)),
        **facts,
    }
    with replacing(cell.path(folder)) as draft, draft.open("wb") as file:
        shown = np.uint8(np.rint(255 * images[:N_SHOWN]))
        np.savez(file, row=json.dumps(row), images=shown)


def _sample(task: Table1Task, cell: Cell) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Return images, their labels if the method learned any, ε and seconds."""
    method = METHODS[cell.method]
    estimator = method.make(cell.level, cell.seed)
    start = time.perf_counter()
    labels = None
    if method.labelled:
        estimator.fit(task.codes, task.labels)
        codes, labels = estimator.sample_labeled(N_SAMPLES, random_state=cell.seed)
    else:
        codes = estimator.fit(task.codes).sample(N_SAMPLES, random_state=cell.seed)
    seconds = time.perf_counter() - start
    spent = estimator.privacy_spent_.epsilon
    return task.decode(codes), labels, {"epsilon_spent": spent, "seconds": seconds}


def _reference(task: Table1Task, cell: Cell) -> tuple[np.ndarray, np.ndarray | None, dict]:
    """Return what samples are compared with; no privacy."""
    rng = np.random.default_rng(cell.seed)
    rows = rng.permutation(len(task.codes))[:N_SAMPLES]
    facts = {"epsilon_spent": math.inf, "seconds": 0.0}
    if cell.method == "real images":
        return task.halves.private_images[rows], task.labels[rows], facts
    if cell.method == "decoded codes":
        return task.decode(task.codes[rows]), task.labels[rows], facts
    codes = rng.standard_normal((N_SAMPLES, LATENT_DIM))
    return task.decode(codes / np.linalg.norm(codes, axis=1, keepdims=True)), None, facts
