r"""The mean and the spread of predictions, set right after they were made alike in all groups.

A penalty pulls the predictions of all groups together, and under clipping and noise what the loss
has to say of their level is lost. Moves along an uncertain posterior add a spread that says nothing
of the target. From one noisy sum follow the means of targets y and predictions u, their covariance
and the variance of the predictions. Predictions become :math:`\bar y + b (u - \bar u)` with the
slope of least squares, from 0 to 1, so that no distance between groups grows, and none is worse
than the mean of the targets but for noise.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.networks import evaluate
from skdpot.nets.per_sample import chain_of_layers
from skdpot.release.moments import SumNoise, as_finite_rows, plan_sums, release_sums

_LONGEST, _LONGEST_TARGET = math.sqrt(3.25), math.sqrt(1.25)  # see `_moments`, `_of_targets`
_NARROWEST = 1e-6


@dataclass(frozen=True, eq=False)
class Affine:
    """The map ``slope * u + shift`` of predictions."""

    slope: float
    shift: np.ndarray

    def __call__(self, outputs: np.ndarray) -> np.ndarray:
        """Return mapped predictions."""
        return self.slope * outputs + self.shift

    def before(self, outputs: np.ndarray) -> np.ndarray:
        """Return what is mapped to the given predictions."""
        return (outputs - self.shift) / self.slope

    def after(self, network: nn.Module) -> nn.Module:
        """Return a network with mapped outputs."""
        layers, shift = chain_of_layers(network), torch.from_numpy(self.shift)
        with torch.no_grad():
            if layers and isinstance(layers[-1], nn.Linear) and layers[-1].bias is not None:
                layers[-1].weight *= self.slope
                layers[-1].bias.copy_(self.slope * layers[-1].bias + shift.to(layers[-1].bias))
                return network
            last = nn.Linear(len(shift), len(shift))
            last.weight.copy_(self.slope * torch.eye(len(shift)))
            last.bias.copy_(shift)
        return nn.Sequential(network, last)


def plan_recalibration(mu: float) -> SumNoise:
    """Plan the release of the moments of targets and predictions."""
    return plan_sums(mu, _LONGEST, "Means and products of targets and predictions")


def release_recalibration(
    outputs: np.ndarray,
    targets: np.ndarray,
    codes: np.ndarray,
    noise: SumNoise,
    stream: SecretStream,
    outputs_of: Callable[[Any, np.ndarray], np.ndarray],
) -> Affine:
    """Return the map to a better mean and spread. The caller has charged the noise."""
    n, q = targets.shape

    def vectors_of(rows: Any, targets: Any, codes: np.ndarray) -> np.ndarray:
        return _moments(outputs_of(rows, codes), np.asarray(targets))

    sums = release_sums(_moments(outputs, targets), codes, 1, noise, stream, vectors_of)[0] / n
    target, output = math.sqrt(q) * sums[:q], math.sqrt(q) * sums[q : 2 * q]
    covariance = q * sums[-2] - target @ output
    variance = q * (sums[-1] + 0.5) - output @ output
    error = 2.0 * q * noise.sigma / n  # of either; what the noise hides is left as it is
    slope = float(np.clip((covariance + error) / max(variance, error, 1e-12), 0.0, 1.0))
    return Affine(slope, target - slope * output)


def plan_spread(mu: float) -> SumNoise:
    """Plan the release of the mean and the spread of targets."""
    return plan_sums(mu, _LONGEST_TARGET, "Mean and spread of the targets")


def release_spread(
    targets: np.ndarray, codes: np.ndarray, noise: SumNoise, stream: SecretStream
) -> Affine:
    """Return the map from targets of mean 0 and a spread of 1/2; the noise is charged already."""
    (n, q), given = targets.shape, (codes, 1, noise, stream)
    sums = release_sums(_of_targets(targets), *given, lambda _, y, __: _of_targets(np.asarray(y)))
    mean, square = math.sqrt(q) * sums[0, :q] / n, sums[0, q] / n + 0.5
    error = noise.sigma / n  # what it hides counts as spread
    return Affine(2.0 * math.sqrt(max(square - mean @ mean / q, error, _NARROWEST)), mean)


def _of_targets(targets: np.ndarray) -> np.ndarray:
    r"""Return y and |y|² - 1/2 of targets shortened to norm 1: of norm up to :math:`\sqrt{5/4}`."""
    norms = np.linalg.norm(targets, axis=1, keepdims=True)
    y = targets / np.maximum(norms, math.sqrt(len(targets.T)))
    return np.column_stack([y, (y * y).sum(axis=1) - 0.5])


def recalibrated(
    network: nn.Module,
    rows: np.ndarray,
    targets: np.ndarray,
    codes: np.ndarray,
    noise: SumNoise,
    stream: SecretStream,
) -> nn.Module:
    """Return a network with a better mean and spread of its outputs."""
    before = deepcopy(network)

    def outputs_of(rows: Any, _: np.ndarray) -> np.ndarray:
        return as_finite_rows(evaluate(before, np.asarray(rows, dtype=np.float64), None))

    given = (outputs_of(rows, codes), targets, codes, noise, stream, outputs_of)
    return release_recalibration(*given).after(network)


def _moments(outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    r"""Return y, u, y·u and |u|² of records, y and u shortened to norm 1.

    The last entry is taken less its middle, so that the norm is at most
    :math:`\sqrt{1 + 1 + 1 + 1/4}`.
    """
    y, u = (
        values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), math.sqrt(len(values.T)))
        for values in (targets, outputs)
    )
    return np.column_stack([y, u, (y * u).sum(axis=1), (u * u).sum(axis=1) - 0.5])
