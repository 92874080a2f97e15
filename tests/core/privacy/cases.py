"""Events of these tests, and events as files hold them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from skdpot._utils.records import Record
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.sampling import SampledGaussianEvent
from tests.contract.hostile_files import facts_of, forged


def gaussian(sigma: float, sensitivity: float = 1.0, **more: Any) -> GaussianEvent:
    """Return an event of all records."""
    return GaussianEvent(sigma=sigma, sensitivity=sensitivity, **more)


def subsets(sigma: float, batch: int = 10, of: int = 100, n_steps: int = 30, **more: Any) -> Any:
    """Return an event of batches of a fixed size."""
    sizes = {"batch_sizes": (batch,), "group_sizes": (of,)} | {"n_steps": n_steps}
    options = {"sampling": "fixed_size", "sensitivity": 1.0} | sizes | more
    return SampledGaussianEvent(sigma=sigma, **options)


def poisson(sigma: float, rate: float = 0.05, n_steps: int = 20, **more: Any) -> Any:
    """Return an event of Poisson samples."""
    options = {"sampling": "poisson", "sensitivity": 1.0, "n_steps": n_steps} | more
    return SampledGaussianEvent(sigma=sigma, sampling_rate=rate, **options)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Return the profile of two lists of probabilities in this order."""
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum())


def composed_epsilon(
    mu: float, rate: float, n_steps: int, delta: float, interval: float, n_points: int
) -> float:
    """Return the cost of secret batches by a route of its own.

    The losses of the pair that attains C_p in closed form, on the positive side, their mirror image
    on the other, composed by one transform.
    """
    half = n_points // 2
    edges = interval * (np.arange(half) + 0.5)  # between the losses of the grid
    z = (edges - np.log(rate) + np.log1p(-(1 - rate) * np.exp(-edges))) / mu + mu / 2
    beyond = (1 - rate) * ndtr(-z) + rate * ndtr(mu - z)
    mass = -np.diff(beyond, append=0.0)
    positive = interval * np.arange(1, half + 1)
    pmf = np.zeros(n_points)  # losses 0, h, 2h, ..., then the negative ones
    pmf[1:half] = mass[:-1]
    pmf[-1 : half - 1 : -1] = mass * np.exp(-positive)
    pmf[0] = 1.0 - pmf.sum()
    composed = np.maximum(np.fft.irfft(np.fft.rfft(pmf) ** n_steps, n_points), 0.0)
    assert composed[half - half // 100 : half].sum() < 1e-7  # nothing wraps around

    def excess(epsilon: float) -> float:
        above = positive > epsilon
        gains = -np.expm1(epsilon - positive[above])
        return float(composed[1 : half + 1][above] @ gains - delta)

    return float(brentq(excess, 0.0, positive[-2]))


@dataclass(frozen=True)
class Written(Record):
    event: Event

    kind: ClassVar[str] = "event"


def written_and_read(event: Event, **changes: Any) -> Event:
    """Return what a reader makes of an event, of which some fields were forged."""
    good = Written(event).to_bytes()
    facts = {"event": facts_of(good)["event"] | changes}
    return Written.from_bytes(forged(good, facts)).event
