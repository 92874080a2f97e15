"""How private gradients are sampled and noised, settled before any record is read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from skdpot._utils.rng import SecretStream, Streams
from skdpot.exceptions import CalibrationError
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent, SampledGaussianEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import LatticeNoise, noise_for_sums
from skdpot.privacy.private_bounds import release_private_bounds
from skdpot.privacy.subsampling import fixed_size_batches, poisson_batches

__all__ = ["TrainingPlan", "plan_training", "trained_numbers"]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The public parameters of training by noisy sums of gradients."""

    group_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    n_steps: int
    sampling: str
    sensitivity: float
    noise: LatticeNoise | None
    bounds: DataBounds | BoundsPlan | None
    event: Event

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on a batch's sum; 0 without privacy."""
        return 0.0 if self.noise is None else self.noise.sigma

    @property
    def n_samples(self) -> int:
        """Number of records of all cells."""
        return sum(self.group_sizes)

    @property
    def batch_size(self) -> int:
        """(Expected) number of records in a whole batch."""
        return sum(self.batch_sizes)

    @property
    def sampling_rate(self) -> float:
        """Probability that a record is in a batch; the largest of the cells."""
        return max(b / n for b, n in zip(self.batch_sizes, self.group_sizes, strict=True))

    def rates(self, codes: np.ndarray) -> np.ndarray:
        """Return the probability that records of some cells are in a batch."""
        if self.sampling == "poisson" or len(self.group_sizes) == 1:
            return np.full(len(codes), self.sampling_rate)
        of_cells: np.ndarray = np.asarray(self.batch_sizes) / np.asarray(self.group_sizes)
        return of_cells[codes]

    def batches(
        self, stream: SecretStream, members: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the secret indices of each step's batch."""
        members = self._checked(members)
        if self.sampling == "poisson":
            draws = [poisson_batches(self.n_samples, self.sampling_rate, self.n_steps, stream)]
        else:
            cells = zip(self.group_sizes, self.batch_sizes, strict=True)
            draws = [fixed_size_batches(n, size, self.n_steps, stream) for n, size in cells]
        return (
            np.concatenate([of_cell[drawn] for of_cell, drawn in zip(members, step, strict=True)])
            for step in zip(*draws, strict=True)
        )

    def settle_bounds(self, rows: np.ndarray, streams: Streams) -> DataBounds:
        """Return the public bounds, or release private ones.

        Privacy
        -------
        What is released is part of `event`, which has to be charged before.
        """
        if self.bounds is None:
            raise ValueError("This training was planned without bounds.")
        if isinstance(self.bounds, DataBounds):
            return self.bounds
        return release_private_bounds(rows, self.bounds, streams)[0]

    def _checked(self, members: Sequence[np.ndarray] | None) -> Sequence[np.ndarray]:
        """Return the records of each cell; a record in two cells would be drawn more often."""
        if members is None:
            return np.split(np.arange(self.n_samples), np.cumsum(self.group_sizes)[:-1])
        found = tuple(len(of_cell) for of_cell in members)
        if found != self.group_sizes or len(np.unique(np.concatenate(members))) < sum(found):
            raise ValueError(
                f"`members` must be disjoint sets of {self.group_sizes} indices, got {found}."
            )
        return members


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
    """Find the least noise that meets a target, or take the noise that is given."""
    if sigma is not None and isinstance(bounds, BoundsPlan):
        raise ValueError(
            "sigma= fixes the noise of training, but private bounds need noise of their own, "
            "which follows from epsilon. Give public bounds=(low, high) or norm_bound=, or leave "
            "sigma=None."
        )
    cells = tuple(np.atleast_1d(n_samples).tolist())
    wanted = np.atleast_1d(batch_size).tolist()
    sizes = tuple(min(size, n) for size, n in zip(wanted, cells, strict=True))
    if sampling == "poisson" and len(cells) > 1:
        raise ValueError(
            'Batches of a fixed number of records of each cell need sampling="without_replacement".'
        )

    def training(scale: float) -> Event:
        noise = noise_for_sums(scale, sensitivity, max(1, n_parameters))
        if sampling == "poisson":
            return SampledGaussianEvent(
                sampling="poisson",
                sigma=noise.sigma,
                sensitivity=noise.sensitivity,
                sampling_rate=sizes[0] / cells[0],
                n_steps=n_steps,
                clipped_sum=True,
                lattice=noise.lattice,
                label="Gradients",
            )
        return SampledGaussianEvent(
            sampling="fixed_size",
            sigma=noise.sigma,
            sensitivity=noise.sensitivity,
            batch_sizes=sizes,
            group_sizes=cells,
            n_steps=n_steps,
            lattice=noise.lattice,
            label="Gradients",
        )

    def whole(scale: float) -> Event:
        before = (bounds.event,) if isinstance(bounds, BoundsPlan) else ()
        if not before and not others:
            return training(scale)
        return ComposedEvent(events=(*before, *others, training(scale)))

    event = calibrate(target, whole) if sigma is None else _given(whole, sigma)
    noise = _noise(event)
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
    """Return how many numbers of a network are trained."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def _given(whole: Callable[[float], Event], sigma: float) -> Event:
    return whole(sigma) if sigma > 0 else NonPrivateEvent()


def _noise(event: Event) -> LatticeNoise | None:
    """Return the noise of the training in the event of a whole fit, if it can be drawn."""
    if not event.is_private:
        return None
    training = event.phases[-1]
    if training.lattice is None:
        raise CalibrationError("The noise of training lies on a lattice.")
    noise = LatticeNoise(
        sigma=training.sigma, sensitivity=training.sensitivity, lattice=training.lattice
    )
    required_bits(noise.sigma / noise.lattice, noise.mu)  # refuses before any charge
    return noise
