"""Private rows and targets as tensors, and the training of a copy of a network on them."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot.base import FitContext
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.training import GradientStep, train_to_the_end, with_trained_parameters


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Private rows and targets, on the device and in the precision of training."""

    rows: torch.Tensor
    targets: torch.Tensor

    @classmethod
    def of(cls, network: nn.Module, rows: np.ndarray, targets: np.ndarray, device: str) -> Self:
        """Convert arrays to the precision that a network is trained in."""
        kind = np.float64 if _trains_in_double(network) else np.float32
        place = resolve_device(device) or "cpu"
        return cls(
            torch.from_numpy(rows.astype(kind)).to(place), torch.from_numpy(targets).to(place)
        )

    def take(self, batch: np.ndarray) -> "TrainingRows":
        """Return the records of a batch."""
        index = torch.from_numpy(batch).to(self.rows.device)
        return TrainingRows(self.rows[index], self.targets[index])


def train_on(
    records: TrainingRows,
    network: nn.Module,
    make_step: Callable[[TrainingRows], GradientStep],
    n_steps: int,
    *,
    learning_rate: float,
    context: FitContext,
    callbacks: Sequence[Any] | None,
) -> nn.Module:
    """Train a network on private records, and return it in its own precision."""
    trained = deepcopy(network)
    if _trains_in_double(network):
        trained.to(torch.float64)
    train_to_the_end(
        trained,
        make_step(records),
        n_steps,
        learning_rate=learning_rate,
        # The dropout masks of a record depend on the rest of its Poisson batch: they are secret.
        rng=context.streams.secret.generator(),
        callbacks=callbacks,
        **context.training,
    )
    return with_trained_parameters(network, trained)


def _trains_in_double(network: nn.Module) -> bool:
    """Whether a network is trained in double precision, which holds rows of any size.

    Networks that are no plain chain of layers may not support it, and stay in single precision.
    """
    return chain_of_layers(network) is not None
