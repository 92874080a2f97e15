"""
Logistic regression by Opacus' DP-SGD.

Opacus counts privacy under *add/remove*: neighbours differ by one person who is there or not. The
library under test protects the replacement of a person, which is harder: a replaced record moves a
sum of clipped gradients by up to twice the clipping norm. So equal ε favours Opacus here.

Noise is the least that Opacus' PRV accountant allows for (ε, δ), to within a thousandth of ε and
the accountant's own allowance for its error (.005, half of Opacus' default).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from mnist_halves import one_thread
from opacus import GradSampleModule
from opacus.accountants import PRVAccountant
from opacus.optimizers import DPOptimizer
from scipy.optimize import brentq
from scipy.special import expit
from torch import nn

from skdpot.privacy.gdp import gdp_mu

ACCOUNTING_ERROR = 0.005  # of ε, which the accountant adds to its answer
TOLERANCE = 0.001


@dataclass(frozen=True)
class DPSGDSettings:
    """
    How long and how fast to train.

    Attributes
    ----------
    sampling_rate : float
        Probability that a record is in a batch.
    n_steps : int
        Batches.
    learning_rate : float
        Of Adam, at the start; it falls to 0 along a cosine.
    clip : float
        Bound on the norm of a record's gradient.
    """

    sampling_rate: float
    n_steps: int
    learning_rate: float
    clip: float


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A private logistic regression."""

    coef: np.ndarray
    intercept: float
    epsilon: float

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probability of class 1."""
        return expit(X @ self.coef + self.intercept)


def train_dpsgd(
    X: np.ndarray,
    y: np.ndarray,
    settings: DPSGDSettings,
    target: tuple[float, float],
    seed: int,
    releases: tuple[float, ...] = (),
) -> LinearModel:
    """
    Train from zero weights with Poisson batches.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features.
    y : ndarray of shape (n,)
        Classes 0 and 1.
    settings : DPSGDSettings
        Steps, rates and clipping.
    target : tuple of float
        ε and δ of training and `releases` together.
    seed : int
        Of batches and noise.
    releases : tuple of float
        Noise multipliers of Gaussian releases of the same rows that are paid for as well.
    """
    noise_scale = noise_multiplier(settings, target, releases)
    rows, labels = torch.from_numpy(X).float(), torch.from_numpy(y).float()
    batches, noise = (torch.Generator().manual_seed(2 * seed + i) for i in (0, 1))
    layer = nn.Linear(X.shape[1], 1)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    model = GradSampleModule(layer)
    adam = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    optimizer = DPOptimizer(
        adam,
        noise_multiplier=noise_scale,
        max_grad_norm=settings.clip,
        expected_batch_size=max(1, int(settings.sampling_rate * len(rows))),
        generator=noise,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, settings.n_steps)
    loss = nn.BCEWithLogitsLoss()
    with one_thread():
        for _ in range(settings.n_steps):
            drawn = torch.rand(len(rows), generator=batches) < settings.sampling_rate
            optimizer.zero_grad()
            loss(model(rows[drawn])[:, 0], labels[drawn]).backward()
            optimizer.step()
            schedule.step()
    epsilon = spent(_history(settings, noise_scale, releases), target[1])
    return LinearModel(layer.weight.detach().numpy()[0], layer.bias.item(), epsilon)


def spent(history: Sequence[tuple[float, float, int]], delta: float) -> float:
    """Return Opacus' ε of steps (noise multiplier, sampling rate, number)."""
    accountant = PRVAccountant()
    accountant.history = list(history)
    return float(accountant.get_epsilon(delta, eps_error=ACCOUNTING_ERROR))


@cache
def noise_multiplier(
    settings: DPSGDSettings, target: tuple[float, float], releases: tuple[float, ...] = ()
) -> float:
    """Return the least noise whose ε is at most the target's; kept, as it takes seconds."""
    epsilon, delta = target

    def excess(log_noise: float) -> float:
        history = _history(settings, float(np.exp(log_noise)), releases)
        return spent(history, delta) - epsilon + TOLERANCE / 2

    # The accountant is slow far from the answer: start from the central limit's.
    share = gdp_mu(epsilon, delta) ** 2 - sum(release**-2 for release in releases)
    steps = settings.n_steps * settings.sampling_rate**2
    guess = -0.5 * np.log(np.log1p(share / steps))
    log_noise = brentq(excess, guess - 0.3, guess + 0.3, xtol=TOLERANCE / 10)
    return float(np.exp(log_noise + TOLERANCE / 10))


def _history(
    settings: DPSGDSettings, noise_scale: float, releases: tuple[float, ...]
) -> list[tuple[float, float, int]]:
    """Return what the accountant composes; its formulas need a rate below 1."""
    training = (noise_scale, settings.sampling_rate, settings.n_steps)
    return [training, *((release, 1 - 1e-9, 1) for release in releases)]
