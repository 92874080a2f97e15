"""Laplace noise, accounted for by its privacy loss."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtri

from skdpot.privacy.events import Event, Steps, count, positive
from skdpot.privacy.sampling import SampledStep


def laplace_delta(epsilon: np.ndarray, mu: float, rate: float, ratio: float) -> np.ndarray:
    """Evaluate the profile of one number, ``1 - exp((epsilon - ratio) / 2)`` up to `ratio`."""
    return np.maximum(0.0, -np.expm1(0.5 * (epsilon - ratio)))


@dataclass(frozen=True)
class LaplaceStep(SampledStep):
    """One release with Laplace noise that is ``ratio``-private without any delta."""

    ratio: float

    _profiles = (laplace_delta,)


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(Event):
    """`n_steps` numbers, each released once with Laplace noise."""

    scale: float
    sensitivity: float
    n_steps: int = 1

    in_files = True
    _checks = {"scale": positive, "sensitivity": positive, "n_steps": count}

    def _steps(self) -> Steps:
        ratio = self.sensitivity / self.scale
        # The corner of the pure guarantee lies on the trade-off curve of N(0, 1) and N(mu, 1).
        mu = float(-2.0 * ndtri(expit(-ratio)))
        yield LaplaceStep(mu, 1.0, ratio), self.n_steps

    def _words(self) -> str:
        return f"{self.n_steps} numbers with Laplace noise of scale {self.scale:.4g}."
