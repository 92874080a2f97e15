"""Composition of sampled steps on a common grid of privacy losses."""

import math
from functools import lru_cache, reduce
from typing import Protocol, runtime_checkable

from skdpot.privacy.gdp import gdp_delta
from skdpot.privacy.loss_distribution import LossPair

__all__ = ["SampledStep", "composed_losses"]

_INTERVAL = 1e-4
_COARSEST = 0.05
_STEP_POINTS = 2**18
_COMPOSED_POINTS = 2**23
_POINTS_PER_DEVIATION = 20


@runtime_checkable
class SampledStep(Protocol):
    """A mu-GDP step on a secret sample."""

    @property
    def mu(self) -> float:
        """Privacy of the step on all records."""

    @property
    def rate(self) -> float:
        """Probability that a given record is in the sample."""

    def losses(self, interval: float) -> LossPair:
        """Discretise the privacy loss of the step on the multiples of `interval`."""


@lru_cache(maxsize=4)
def composed_losses(steps: tuple[tuple[SampledStep, int], ...]) -> LossPair | None:
    """Compose sampled steps.

    Parameters
    ----------
    steps : tuple of (SampledStep, int)
        At least one step, each with its number of repetitions.

    Returns
    -------
    LossPair or None
        ``None`` when the losses are too wide for any useful grid (epsilon in the thousands);
        sampling hardly helps there.
    """
    interval = _interval(steps)
    if interval > _COARSEST:
        return None
    parts = (step.losses(interval).self_compose(count) for step, count in steps)
    return reduce(LossPair.compose, parts)


def _interval(steps: tuple[tuple[SampledStep, int], ...]) -> float:
    """Choose 1e-4, finer for steps that cost less than the grid resolves, coarser for wide ones.

    Every interval gives a bound; what follows only estimates how many points there will be.
    """
    # The total variation of a step is about 2/5 of the standard deviation of its loss.
    deviation = min(2.5 * step.rate * gdp_delta(0.0, step.mu) for step, _ in steps)
    finer = math.floor(math.log2(min(1.0, deviation / (_POINTS_PER_DEVIATION * _INTERVAL))))
    widest = max(_largest_loss(step) for step, _ in steps)
    mean = math.fsum(count * _mean_loss(step) for step, count in steps)
    variance = math.fsum(count * _loss_variance(step) for step, count in steps)
    total = mean + 9.0 * math.sqrt(variance) + widest
    coarsest = 2.0 * max(widest / _STEP_POINTS, total / _COMPOSED_POINTS)
    coarser = math.ceil(math.log2(coarsest / _INTERVAL))
    return _INTERVAL * 2.0 ** max(finer, coarser)


def _largest_loss(step: SampledStep) -> float:
    """Estimate the loss that is exceeded with probability 1e-20 only."""
    without_sampling = step.mu**2 / 2.0 + 10.0 * step.mu
    if without_sampling > 100.0:
        return max(without_sampling + math.log(step.rate), 1.0)
    return math.log1p(step.rate * math.expm1(without_sampling))


def _mean_loss(step: SampledStep) -> float:
    """Bound the mean loss by convexity, and by the chi-squared divergence."""
    return min(step.rate * step.mu**2 / 2.0, _chi_squared(step))


def _loss_variance(step: SampledStep) -> float:
    """Estimate the variance of the loss: N(mu^2 / 2, mu^2) with probability `rate`, else near 0."""
    return min(step.rate * (step.mu**2 + step.mu**4 / 4.0), _chi_squared(step))


def _chi_squared(step: SampledStep) -> float:
    return step.rate**2 * math.expm1(min(step.mu**2, 100.0))
