"""Events of these tests, and events as files hold them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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


@dataclass(frozen=True)
class Written(Record):
    event: Event

    kind: ClassVar[str] = "event"


def written_and_read(event: Event, **changes: Any) -> Event:
    """Return what a reader makes of an event, of which some fields were forged."""
    good = Written(event).to_bytes()
    facts = {"event": facts_of(good)["event"] | changes}
    return Written.from_bytes(forged(good, facts)).event
