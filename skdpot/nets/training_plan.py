"""How private gradients are sampled and noised, settled before any record is read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import (
    ComposedEvent,
    Event,
    FixedSizeGaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
)
from skdpot.privacy.subsampling import fixed_size_batches, poisson_batches

__all__ = ["TrainingPlan", "plan_training"]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The public parameters of training by noisy sums of gradients.

    Parameters
    ----------
    n_samples : int
        Number of records n.
    batch_size : int
        Records in a batch, or their expected number under Poisson sampling.
    n_steps : int
        Number of steps.
    sampling : {"poisson", "without_replacement"}
        How batches are drawn.
    sensitivity : float
        L2 sensitivity of a batch's summed gradient under replace-one.
    sigma : float
        Standard deviation of the noise on that sum; 0 without privacy.
    bounds : DataBounds or BoundsPlan
        Public bounds, or how bounds are estimated first.
    event : Event
        Everything together: what is charged.
    """

    n_samples: int
    batch_size: int
    n_steps: int
    sampling: str
    sensitivity: float
    sigma: float
    bounds: DataBounds | BoundsPlan
    event: Event

    @property
    def sampling_rate(self) -> float:
        """Probability that a record is in a batch."""
        return self.batch_size / self.n_samples

    def batches(self, stream: SecretStream) -> Iterator[np.ndarray]:
        """Yield the secret indices of each step's batch."""
        if self.sampling == "poisson":
            return poisson_batches(self.n_samples, self.sampling_rate, self.n_steps, stream)
        return fixed_size_batches(self.n_samples, self.batch_size, self.n_steps, stream)


def plan_training(
    target: PrivacyTarget,
    *,
    n_samples: int,
    batch_size: int,
    n_steps: int,
    sampling: str,
    sensitivity: float,
    bounds: DataBounds | BoundsPlan,
    sigma: float | None = None,
) -> TrainingPlan:
    """Find the least noise that meets a target, or take the noise that is given.

    Parameters
    ----------
    target : PrivacyTarget
        Epsilon and delta of everything together, private bounds included.
    n_samples, batch_size, n_steps : int
        As in `TrainingPlan`; a batch size above `n_samples` means all records.
    sampling : {"poisson", "without_replacement"}
        With Poisson sampling the statistic must be a sum of one vector a record, of norm at
        most half of `sensitivity`.
    sensitivity : float
        L2 sensitivity of a batch's summed gradient under replace-one.
    bounds : DataBounds or BoundsPlan
        Public bounds, or the plan of the events that estimate them.
    sigma : float, optional
        Noise of the sum, in place of what the target asks for.

    Returns
    -------
    TrainingPlan
        Without `sigma` its event fits the target.

    Raises
    ------
    CalibrationError
        If no noise meets the target.
    ValueError
        If `sigma` is given with private bounds.
    """
    if sigma is not None and not isinstance(bounds, DataBounds):
        raise ValueError(
            "sigma= fixes the noise of training, but private bounds need noise of their own, "
            "which follows from epsilon. Give public bounds=(low, high) or norm_bound=, or leave "
            "sigma=None."
        )
    size = min(batch_size, n_samples)

    def training(noise: float) -> Event:
        if sampling == "poisson":
            return PoissonGaussianEvent(
                sigma=noise,
                sensitivity=sensitivity,
                sampling_rate=size / n_samples,
                n_steps=n_steps,
                clipped_sum=True,
            )
        return FixedSizeGaussianEvent(
            sigma=noise,
            sensitivity=sensitivity,
            batch_sizes=(size,),
            group_sizes=(n_samples,),
            n_steps=n_steps,
        )

    def whole(noise: float) -> Event:
        if isinstance(bounds, DataBounds):
            return training(noise)
        return ComposedEvent(events=(bounds.event, training(noise)))

    event, noise = _noise(target, whole, sigma)
    return TrainingPlan(
        n_samples=n_samples,
        batch_size=size,
        n_steps=n_steps,
        sampling=sampling,
        sensitivity=sensitivity,
        sigma=noise,
        bounds=bounds,
        event=event,
    )


def _noise(
    target: PrivacyTarget, whole: Callable[[float], Event], sigma: float | None
) -> tuple[Event, float]:
    """Return the event of the whole fit and the noise of its training."""
    if sigma is not None:
        return (whole(sigma), sigma) if sigma > 0 else (NonPrivateEvent(), 0.0)
    event = calibrate(target, whole)
    if isinstance(event, NonPrivateEvent):
        return event, 0.0
    training = event.events[-1] if isinstance(event, ComposedEvent) else event
    if not isinstance(training, PoissonGaussianEvent | FixedSizeGaussianEvent):
        raise CalibrationError("Training releases noisy sums of gradients of batches only.")
    return event, training.sigma
