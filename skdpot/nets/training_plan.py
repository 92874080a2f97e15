"""The plan of a private training: batches, steps and noise, from public facts alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.privacy.batches import fixed_size_batches, placed_batches
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, noise_for_sums, required_bits
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.private_bounds import BoundsPlan


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The public parameters of training by noisy sums of gradients."""

    group_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    n_steps: int
    sampling: str
    sensitivity: float
    noise: LatticeNoise | None
    bounds: Any  # DataBounds or BoundsPlan; None where no rows or targets are bounded
    event: Event

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the sum of a batch; 0 without privacy."""
        return 0.0 if self.noise is None else self.noise.sigma

    @property
    def n_samples(self) -> int:
        """Number of records of all cells."""
        return sum(self.group_sizes)

    @property
    def batch_size(self) -> int:
        """Number of records in a whole batch, or its expectation."""
        return sum(self.batch_sizes)

    @property
    def sampling_rate(self) -> float:
        """Largest probability of a record to be in a batch."""
        return max(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))

    def rates(self, codes: np.ndarray) -> np.ndarray:
        """Return the probability of each record to be in a batch, given the codes of the cells."""
        if self.sampling == "poisson" or len(self.group_sizes) == 1:
            return np.full(len(codes), self.sampling_rate)
        return (np.asarray(self.batch_sizes) / np.asarray(self.group_sizes))[codes]

    def batches(
        self, stream: SecretStream, members: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the secret indices of the batch of each step; -1 marks a vacant place."""
        if self.sampling == "poisson":
            return placed_batches(self.n_samples, self.sampling_rate, self.n_steps, stream)
        if members is None:
            members = np.split(np.arange(self.n_samples), np.cumsum(self.group_sizes)[:-1])
        cells = zip(self.group_sizes, self.batch_sizes, strict=True)
        draws = [fixed_size_batches(n, size, self.n_steps, stream) for n, size in cells]
        return (
            np.concatenate([of_cell[drawn] for of_cell, drawn in zip(members, step, strict=True)])
            for step in zip(*draws, strict=True)
        )


def plan_training(
    target: PrivacyTarget,
    *,
    n_samples: int | Sequence[int],
    batch_size: int | Sequence[int],
    n_steps: int,
    sampling: str,
    sensitivity: float,
    n_parameters: int,
    bounds: DataBounds | BoundsPlan | None = None,
    others: Sequence[Event] = (),
    sigma: float | None = None,
) -> TrainingPlan:
    """Calibrate the least noise that meets a target, or compute the cost of given noise."""
    if sigma is not None and isinstance(bounds, BoundsPlan):
        raise ValueError(
            "sigma= fixes the noise of training, but not that of private bounds. Give public "
            "bounds=(low, high) or norm_bound=, or leave sigma=None."
        )
    cells = tuple(np.atleast_1d(n_samples).tolist())
    wanted = np.atleast_1d(batch_size).tolist()
    sizes = tuple(min(size, n) for size, n in zip(wanted, cells, strict=True))

    def training(scale: float) -> Event:
        noise = noise_for_sums(scale, sensitivity, max(1, n_parameters))
        batches: dict[str, Any] = {"batch_sizes": sizes, "group_sizes": cells}
        if sampling == "poisson":
            batches = {"sampling_rate": sizes[0] / cells[0], "clipped_sum": True}
        return SampledGaussianEvent(
            sampling="poisson" if sampling == "poisson" else "fixed_size",
            n_steps=n_steps,
            label="Gradients",
            **vars(noise),
            **batches,
        )

    def whole(scale: float) -> Event:
        before = (bounds.event,) if isinstance(bounds, BoundsPlan) else ()
        if not before and not others:
            return training(scale)
        return ComposedEvent(events=(*before, *others, training(scale)))

    if sigma is None:
        event = calibrate(target, whole)
    else:
        event = whole(sigma) if sigma > 0 else NonPrivateEvent()
    noise = None
    if event.is_private:
        step = event.phases[-1]
        noise = LatticeNoise(sigma=step.sigma, sensitivity=step.sensitivity, lattice=step.lattice)
        required_bits(noise.sigma / noise.lattice, noise.mu)  # refuses before any charge
    return TrainingPlan(
        group_sizes=cells,
        batch_sizes=sizes,
        n_steps=n_steps,
        sampling=sampling,
        sensitivity=sensitivity if noise is None else noise.sensitivity,
        noise=noise,
        bounds=bounds,
        event=event,
    )


def trained_numbers(network: nn.Module) -> int:
    """Return the number of trained entries in the parameters of a network."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
