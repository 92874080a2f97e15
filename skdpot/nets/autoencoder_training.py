"""Steps that train an autoencoder, with and without privacy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.noisy_step import (
    StepPart,
    expected_batch,
    gradients_of_vectors,
    release_gradient,
)
from skdpot.nets.output_gradients import (
    clipped_gradient_sum,
    pulled_back_sum,
    shares_of_jacobians,
)
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.recording import Records

__all__ = ["AutoencoderLoss", "CodePenalty", "private_steps", "public_steps"]


_CODES_AT_ONCE = 256


class CodePenalty(Protocol):
    """What a loss asks of a penalty of the codes of a batch.

    `skdpot.nets.code_penalties.PriorDistance` and `skdpot.nets.code_penalties.ParityDistance`.
    """

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the directions of one step from a public stream."""

    def for_batch(self, sizes: tuple[int, ...]) -> "CodePenalty":
        """Return the penalty of batches with other numbers of records in their cells."""

    def sensitivity(self, clip_jacobian: float) -> float:
        """Bound how far one record moves the gradient, times the batch size."""

    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the gradient by each code, times the batch size."""

    def value(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the penalty, with derivatives."""


@dataclass(frozen=True, kw_only=True)
class AutoencoderLoss:
    """What is minimised: ``(1 - alpha) * reconstruction + alpha * penalty``.

    With privacy the reconstruction error is half of the squared error, summed over features:
    its gradients are long beside the default `clip`, so that nearly all are shortened to that
    norm, whatever the unit and the number of features. Without privacy it is the mean squared
    error.
    """

    clip: float
    penalty: CodePenalty | None = None
    alpha: float = 0.0
    clip_jacobian: float = 1.0
    chunk_size: int | None = None

    @property
    def sensitivity(self) -> float:
        """How far one record moves a batch's summed gradient, under replace-one."""
        share = self.alpha if self.penalty else 0.0
        bound = (1.0 - share) * 2.0 * self.clip
        if self.penalty is not None:
            bound += share * self.penalty.sensitivity(self.clip_jacobian)
        return bound

    def clipped_sum(
        self, autoencoder: nn.Sequential, rows: torch.Tensor, directions: np.ndarray | None
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Return the summed, clipped gradient of a batch."""
        total = clipped_gradient_sum(
            autoencoder, rows, reconstruction_gradient, self.clip, chunk_size=self.chunk_size
        )
        if self.penalty is None or directions is None:
            return total
        pull = self._clipped_pull(autoencoder[:-1], rows, self.penalty, directions)
        for parameter in total:
            total[parameter] *= 1.0 - self.alpha
            if parameter in pull:
                total[parameter] += self.alpha * pull[parameter]
        return total

    def _clipped_pull(
        self,
        encoder: nn.Module,
        rows: torch.Tensor,
        penalty: CodePenalty,
        directions: np.ndarray,
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Return the gradient of the penalty, times the batch size, by clipped Jacobians."""
        chunks = rows.split(self.chunk_size or _CODES_AT_ONCE)
        codes = torch.cat([record_outputs(encoder, chunk) for chunk in chunks])
        pulls = penalty.vectors(codes, directions)

        def clipped(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            return shares_of_jacobians(gram, self.clip_jacobian)[:, None] * pulls[records]

        return pulled_back_sum(encoder, rows, clipped, chunk_size=self.chunk_size)


def reconstruction_gradient(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gradient of half of each record's squared error with respect to its reconstruction."""
    return outputs - rows


def private_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    plan: TrainingPlan,
    secret: SecretStream,
    public: np.random.Generator,
    members: Sequence[np.ndarray] | None = None,
) -> GradientStep:
    """Make the steps of training with noisy sums of clipped gradients.

    Privacy
    -------
    Each step releases the sum, rounded to a lattice, with discrete Gaussian noise ``plan.noise``.
    Batches are secret; nothing of them is kept.
    """
    batches = plan.batches(secret, members)

    def step(autoencoder: Any, number: int) -> None:
        batch = torch.from_numpy(next(batches)).to(rows.device)
        directions = None if loss.penalty is None else loss.penalty.directions(public)
        total = loss.clipped_sum(autoencoder, rows[batch], directions)
        facts = {"loss": loss, "directions": directions}
        linear = partial(_step_part, loss, directions)
        release_gradient(autoencoder, total, plan, secret, facts, linear)

    return step


def _step_part(
    loss: AutoencoderLoss,
    directions: np.ndarray | None,
    autoencoder: Any,
    records: Records,
    shares: np.ndarray,
) -> StepPart:
    """Return what each record adds to `AutoencoderLoss.clipped_sum`.

    With a penalty, which compares the codes of a batch, among those of an expected batch.
    """
    rows, codes = records
    own = gradients_of_vectors(
        autoencoder,
        rows,
        lambda _, gram, __: shares_of_jacobians(gram, loss.clip)[:, None],
        lambda outputs, chunk: [reconstruction_gradient(outputs, chunk)],
    )
    if loss.penalty is None or directions is None:
        return StepPart(rows=own)
    encoder = autoencoder[:-1]
    order, places, sizes = expected_batch(codes, shares)
    penalty = loss.penalty.for_batch(sizes)
    pulls = penalty.vectors(record_outputs(encoder, rows[order]), directions)

    def clipped(_: torch.Tensor, gram: torch.Tensor, batch: slice) -> torch.Tensor:
        return shares_of_jacobians(gram, loss.clip_jacobian)[:, None] * pulls[batch]

    pulled = gradients_of_vectors(encoder, rows, clipped, places=places)
    return StepPart(rows=own.plus(pulled, loss.alpha), exact=False)


def public_steps(
    loss: AutoencoderLoss,
    rows: torch.Tensor,
    batch_size: int | Sequence[int],
    rng: np.random.Generator,
    members: Sequence[np.ndarray] | None = None,
) -> GradientStep:
    """Make the steps of ordinary training on rows that are public."""
    cells = [np.arange(len(rows))] if members is None else members
    sizes = np.atleast_1d(batch_size).tolist()
    epochs = [_epochs(cell, size, rng) for cell, size in zip(cells, sizes, strict=True)]
    batches = (np.concatenate(parts) for parts in zip(*epochs, strict=True))

    def step(autoencoder: Any, number: int) -> None:
        batch = rows[torch.from_numpy(next(batches)).to(rows.device)]
        codes = autoencoder[:-1](batch)
        error = ((autoencoder[-1](codes) - batch) ** 2).mean()
        if loss.penalty is not None:
            pull = loss.penalty.value(codes, loss.penalty.directions(rng))
            error = (1.0 - loss.alpha) * error + loss.alpha * pull
        error.backward()

    return step


def _epochs(cell: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield batches of shuffled epochs, for ever."""
    size = min(size, len(cell))
    while True:
        order = rng.permutation(cell)
        yield from (order[k : k + size] for k in range(0, len(cell) - size + 1, size))
