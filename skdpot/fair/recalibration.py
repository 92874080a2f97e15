r"""The mean and the spread of predictions, corrected after these were made alike in all groups.

A penalty moves the predictions of all groups together, and under clipping and noise the loss hardly
corrects their level. Moves along an uncertain posterior add a spread that is unrelated to the
target. One noisy sum estimates the means of targets y and predictions u, their covariance and the
variance of the predictions. Predictions become :math:`\bar y + b (u - \bar u)` with the slope of
least squares, from 0 to 1. So no distance between groups grows, and apart from noise predictions
are no worse than the mean of the targets. Both corrections are made by the share that is not noise,
if a slope errs by `_USUAL_SLOPE` and a mean by `_USUAL_SHIFT` without them.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.nets.networks import evaluate
from skdpot.nets.per_sample import chain_of_layers
from skdpot.release.moments import SumNoise, as_finite_rows, plan_sums, release_sums

_LONGEST = math.sqrt(3.25)  # largest norm of `_moments_of_both`
_LONGEST_TARGET = math.sqrt(1.25)  # largest norm of `_moments_of_targets`
_NARROWEST = 1e-6  # squared spread of targets
_SMALLEST = 1e-12  # variance of predictions
_USUAL_SLOPE, _USUAL_SHIFT = 0.5, 0.15  # errors of slopes and means before they are corrected


@dataclass(frozen=True, eq=False)
class Affine:
    """The map ``slope * u + shift`` of predictions."""

    slope: float
    shift: np.ndarray

    def __call__(self, outputs: np.ndarray) -> np.ndarray:
        """Return mapped predictions."""
        return self.slope * outputs + self.shift

    def before(self, outputs: np.ndarray) -> np.ndarray:
        """Return the predictions that are mapped to the given ones: the inverse map."""
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
    outputs_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Affine:
    """Return the map to a better mean and spread. The caller has charged the noise.

    For audits, `outputs_of` maps rows and groups to predictions.
    """
    n, q = targets.shape

    def vectors_of(rows: np.ndarray, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return _moments_of_both(outputs_of(rows, codes), np.asarray(targets))

    vectors = _moments_of_both(outputs, targets)
    sums = release_sums(vectors, codes, 1, noise, stream, vectors_of)[0] / n
    target, output = math.sqrt(q) * sums[:q], math.sqrt(q) * sums[q : 2 * q]
    covariance = q * sums[-2] - target @ output
    variance = max(q * (sums[-1] + 0.5) - output @ output, _SMALLEST)
    measured = float(np.clip(covariance / variance, 0.0, 1.0))
    error = math.sqrt(2.0) * q * noise.sigma / n / variance
    slope = 1.0 + _share(_USUAL_SLOPE, error) * (measured - 1.0)
    mean = output + _share(_USUAL_SHIFT, shift_error(noise, n, q)) * (target - output)
    return Affine(slope, mean - slope * output)


def shift_error(noise: SumNoise, n_samples: int, n_targets: int) -> float:
    """Return the error of the measured difference of two means."""
    return math.sqrt(2.0 * n_targets) * noise.sigma / n_samples


def error_of_means(noise: SumNoise, n_samples: int, n_targets: int) -> float:
    """Return the error that the correction of a mean adds."""
    error = shift_error(noise, n_samples, n_targets)
    return _share(_USUAL_SHIFT, error) * error


def _share(usual: float, error: float) -> float:
    """Return the share of a measured correction that is made, given its usual size."""
    return usual**2 / (usual**2 + error**2)


def plan_spread(mu: float) -> SumNoise:
    """Plan the release of the mean and the spread of targets."""
    return plan_sums(mu, _LONGEST_TARGET, "Mean and spread of the targets")


def release_spread(
    targets: np.ndarray, codes: np.ndarray, noise: SumNoise, stream: SecretStream
) -> Affine:
    """Return the map from targets of mean 0 and a spread of 1/2; the noise is charged already."""
    n, q = targets.shape

    def vectors_of(_: np.ndarray, targets: np.ndarray, __: np.ndarray) -> np.ndarray:
        return _moments_of_targets(np.asarray(targets))

    sums = release_sums(_moments_of_targets(targets), codes, 1, noise, stream, vectors_of)
    mean = np.clip(math.sqrt(q) * sums[0, :q] / n, -1.0, 1.0)
    square, error = sums[0, q] / n + 0.5, noise.sigma / n  # what the noise hides counts as spread
    return Affine(2.0 * math.sqrt(max(square - mean @ mean / q, error, _NARROWEST)), mean)


def _moments_of_targets(targets: np.ndarray) -> np.ndarray:
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

    def outputs_of(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
        return as_finite_rows(evaluate(before, np.asarray(rows, dtype=np.float64), None))

    outputs = outputs_of(rows, codes)
    affine = release_recalibration(outputs, targets, codes, noise, stream, outputs_of)
    return affine.after(network)


def _moments_of_both(outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    r"""Return y, u, y·u and |u|² - 1/2 of records, with y and u shortened to norm 1.

    The norm is at most :math:`\sqrt{1 + 1 + 1 + 1/4}`.
    """
    y, u = (
        values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), math.sqrt(len(values.T)))
        for values in (targets, outputs)
    )
    return np.column_stack([y, u, (y * u).sum(axis=1), (u * u).sum(axis=1) - 0.5])
