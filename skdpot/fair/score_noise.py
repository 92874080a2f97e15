r"""How far the noise of a private training moves scores, and how far they are shrunk for it.

Near its optimum, training by noisy gradients is a linear map of the noise, so the variance of the
trained parameters about those of a training without noise follows from public facts: the rate, the
number of steps, the noise of each and the curvature of the loss (`Response`). On made-up rows with
the spread of the features this gives the variance of the scores that is due to noise, and the
network itself gives all of their variance. What is left is signal. Scores are moved towards their
mean by the share of the noise (W. James, C. Stein, 1961): where noise explains all of their
variance they become constant, and the predictor becomes that of the mean, or of the most frequent
class.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from skdpot.fair.score_losses import ScoreLoss
from skdpot.nets.networks import evaluate
from skdpot.nets.per_sample import chain_of_layers, record_jacobians
from skdpot.nets.training_plan import TrainingPlan
from skdpot.release.moments import as_finite_rows

_FEWEST_ROWS = 256  # made-up rows; with more features, twice as many as these
_ROWS_OF_JACOBIANS = 64
# Share of the curvature that counts: the gradients of some records are clipped, and features are
# correlated. With it the estimate was within a factor of 2 for made-up laws, most within 1.5.
_CURVED = 0.6
_REPLICATES = 200  # of the noise of Adam
_FURTHEST = 1e60  # scores, of which the squares can be summed
_USUAL_VARIANCE = 0.2  # of features in about [-1, 1]
_DECAYS, _OFFSET = (0.9, 0.999), 1e-8  # of Adam in torch


@dataclass(frozen=True, eq=False)
class ScoreSpread:
    """Variances of the scores of rows, one per output, in the units of the outputs.

    `whole` is that of the trained network, and `noise` the part of it that is due to noise; `level`
    is the variance that noise adds to the mean of the scores, of which `left` is not learned.
    """

    whole: np.ndarray
    noise: np.ndarray
    level: float
    mean: np.ndarray
    left: float = 0.0
    directions: int = 1  # of the noise, whose squares are summed

    @property
    def hidden(self) -> bool:
        """Whether noise alone might explain all variance."""
        return not self.sure_signal.any()

    @property
    def sure_signal(self) -> np.ndarray:
        """Variance beyond that of the noise and two of its errors."""
        doubt = 1.0 + 2.0 * math.sqrt(2.0 / self.directions)
        return np.maximum(self.whole - doubt * self.noise, 0.0)

    @property
    def kept(self) -> np.ndarray:
        """Factor of the deviation of scores from their mean that has the least expected error."""
        return np.clip(1.0 - self.noise / np.maximum(self.whole, 1e-300), 0.0, 1.0)

    @property
    def signal(self) -> np.ndarray:
        """Variance of the scores without noise, as estimated."""
        return np.maximum(self.whole - self.noise, 0.0)

    @property
    def error(self) -> np.ndarray:
        """Mean squared difference of shrunk scores from those without noise."""
        kept = self.kept
        return kept**2 * self.noise + (1.0 - kept) ** 2 * self.signal

    def mapped(self, slope: float, shift: np.ndarray) -> "ScoreSpread":
        """Return the variances of scores that are mapped to ``slope * score + shift``."""
        square = slope**2
        return replace(
            self,
            whole=square * self.whole,
            noise=square * self.noise,
            level=square * self.level,
            mean=slope * self.mean + shift,
        )


def spread_of_scores(
    network: nn.Module,
    variances: np.ndarray,
    loss: ScoreLoss,
    response: "Response",
    *,
    weight: float = 1.0,
    most_signal: float = math.inf,
) -> ScoreSpread:
    """Return the variances of the scores of rows whose features have some variances.

    Variance beyond `most_signal`, that of the targets, is noise. A network with hidden layers is
    taken to have as many directions as there are features, of equal curvature.
    """
    outputs = evaluate(network, _made_up(len(variances)) * np.sqrt(variances), None)
    outputs = as_finite_rows(outputs).clip(-_FURTHEST, _FURTHEST)
    q = outputs.shape[1]
    curvature = weight * _CURVED * loss.usual_curvature(q)
    if len(chain_of_layers(network) or ()) != 1:
        rows = _made_up(len(variances))[:_ROWS_OF_JACOBIANS] * np.sqrt(variances)
        variances = np.full(len(variances), max(_size(network, rows) - 1.0, 0.0) / len(variances))
    noise = float(variances @ response.variances(curvature * variances))
    mean = outputs.mean(axis=0)
    if loss.of_classes and q > 1:  # logits only matter relative to each other
        outputs = outputs - outputs.mean(axis=1, keepdims=True)
        noise *= 1.0 - 1.0 / q
    whole = outputs.var(axis=0)
    if loss.of_classes:
        whole = np.full(q, whole.mean())
    level = float(response.variances(np.array([curvature]))[0])
    left = response.left(curvature)
    directions = len(variances) * (q - 1 if loss.of_classes and q > 1 else 1)
    of_noise = np.maximum(noise, whole - most_signal) if noise else np.zeros(q)
    return ScoreSpread(whole, of_noise, level, mean, left, directions)


def shrink(network: nn.Module, spread: ScoreSpread) -> nn.Module:
    """Move the scores of a network towards their mean, in place; return it, or one that does."""
    kept, shift = (torch.from_numpy(v) for v in (spread.kept, (1.0 - spread.kept) * spread.mean))
    layers = chain_of_layers(network)
    last = layers[-1] if layers else None
    with torch.no_grad():
        if isinstance(last, nn.Linear) and last.bias is not None:
            last.weight *= kept.to(last.weight)[:, None]
            last.bias.copy_(kept.to(last.bias) * last.bias + shift.to(last.bias))
            return network
        after = nn.Linear(len(kept), len(kept))
        after.weight.copy_(torch.diag(kept))
        after.bias.copy_(shift)
    return nn.Sequential(network, after)


@dataclass(frozen=True)
class Response:
    """A training, as the map from the noise of its steps to the noise of its parameters.

    `sigma` is the standard deviation of the noise of a step's mean gradient. With `momentum` the
    result is the mean of the parameters from the step `first` on; without, it is that of Adam with
    a rate that falls to zero along a half cosine.
    """

    sigma: float
    n_steps: int
    rate: float
    momentum: float | None = None
    first: int = 0

    def variances(self, curvatures: np.ndarray) -> np.ndarray:
        """Return the variances of parameters along which the loss has some curvatures."""
        if self.sigma == 0.0:
            return np.zeros(len(curvatures))
        if self.momentum is not None:
            return self.sigma**2 * self._squared_responses(curvatures, self.momentum)
        usual = adam_variance(self.sigma, self.n_steps, self.rate, float(curvatures.mean()))
        return np.full(len(curvatures), usual)

    def left(self, curvature: float) -> float:
        """Return the share of the first error of a parameter that is left in the end, about."""
        if self.momentum is None:
            return 0.0
        length = curvature * self.rate * self.n_steps / (1.0 - self.momentum)
        start = self.first / self.n_steps
        return math.exp(-length * start) * -math.expm1(-length * (1 - start)) / length / (1 - start)

    def _squared_responses(self, curvatures: np.ndarray, momentum: float) -> np.ndarray:
        """Return sums of squares of what a unit of noise in each step moves the mean by."""
        after = np.zeros((self.n_steps, len(curvatures)))  # so many steps after the unit
        speed, place = np.ones(len(curvatures)), np.zeros(len(curvatures))
        for k in range(self.n_steps):
            after[k] = place
            place = place - self.rate * speed
            speed = momentum * speed + curvatures * place
        sums = np.vstack([0.0 * place, np.cumsum(after, axis=0)])
        steps = np.arange(self.n_steps)
        moved = sums[self.n_steps - steps] - sums[np.maximum(self.first - steps, 0)]
        return np.square(moved / (self.n_steps - self.first)).sum(axis=0)


def spread_after_adam(
    network: nn.Module,
    n_features: int,
    loss: ScoreLoss,
    plan: TrainingPlan,
    rate: float,
    *,
    weight: float = 1.0,
) -> ScoreSpread:
    """Return the variances of the scores of rows in about [-1, 1], after private training by Adam.

    `weight` is that of the loss in what is minimised. What a batch leaves out is no noise here.
    """
    response = Response(plan.sigma / plan.batch_size, plan.n_steps, rate)
    return spread_of_scores(
        network, np.full(n_features, _USUAL_VARIANCE), loss, response, weight=weight
    )


@lru_cache(maxsize=16)
def adam_variance(sigma: float, n_steps: int, rate: float, curvature: float) -> float:
    """Return the variance of a parameter after Adam has followed noise and a quadratic loss."""
    rng, (one, two) = np.random.default_rng(0), _DECAYS
    place, mean, square = (np.zeros(_REPLICATES) for _ in range(3))
    for k in range(n_steps):
        gradient = curvature * place + sigma * rng.standard_normal(_REPLICATES)
        mean = one * mean + (1.0 - one) * gradient
        square = two * square + (1.0 - two) * gradient**2
        step = rate * (1.0 + np.cos(np.pi * k / n_steps)) / 2.0 / (1.0 - one ** (k + 1))
        place = place - step * mean / (np.sqrt(square / (1.0 - two ** (k + 1))) + _OFFSET)
    return float(np.mean(place**2))


@lru_cache(maxsize=8)
def _made_up(n_features: int) -> np.ndarray:
    """Return normal rows whose features have mean 0 and variance 1, without correlations."""
    n = max(_FEWEST_ROWS, 2 * n_features)
    rows = np.random.default_rng(0).standard_normal((n, n_features))
    return np.asarray(np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n))


def _size(network: nn.Module, rows: np.ndarray) -> float:
    """Return the mean squared norm of the gradient of an output by all parameters."""
    copy = deepcopy(network).cpu().eval()
    gram = record_jacobians(copy, torch.from_numpy(rows).float()).gram()
    sizes = gram.diagonal(dim1=1, dim2=2).mean(dim=1)
    finite = sizes[sizes.isfinite()]  # a network of the caller may have no value at some rows
    return min(float(finite.mean()), _FURTHEST) if len(finite) else 1.0
