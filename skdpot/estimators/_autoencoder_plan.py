"""What a fit of `PrivateSWAutoencoder` minimises, on which batches and for how long.

Everything here follows from parameters and public facts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from skdpot.estimators._groups import batch_sizes, read_groups
from skdpot.nets.autoencoder_training import AutoencoderLoss, CodePenalty
from skdpot.nets.code_penalties import CodeParity, PriorPenalty
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.privacy.calibration import privacy_target
from skdpot.slicing.plan import bounds_or_plan
from skdpot.slicing.rules import public_bounds

if TYPE_CHECKING:
    from skdpot.estimators.autoencoder import PrivateSWAutoencoder

__all__ = [
    "BatchCells",
    "choose_cells",
    "choose_loss",
    "learning_rate",
    "number_of_steps",
    "plan_fit",
]

_EPOCHS = 40
_FEWEST_STEPS = 60
_FEWEST_PUBLIC_STEPS = 1500
_PUBLIC_RATE = 2e-3
_LARGEST_RATE = 0.03
_STEPS_AT_FULL_RATE = 400
_RATE = 0.32  # over the fourth root of the number of parameters


@dataclass(frozen=True, eq=False)
class BatchCells:
    """Public parts of the records that each have batches of a fixed share of their own.

    Parameters
    ----------
    members : tuple of ndarray
        Indices of the records of each cell: of each group, or of all records.
    batch_sizes : tuple of int
        Records of each cell in a batch.
    """

    members: tuple[np.ndarray, ...]
    batch_sizes: tuple[int, ...]

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Number of records of each cell."""
        return tuple(map(len, self.members))


def choose_cells(
    estimator: "PrivateSWAutoencoder", n_samples: int, sensitive_features: Any
) -> BatchCells:
    """Return the groups that are compared, or all records where none are."""
    if estimator.penalty != "parity":
        return BatchCells((np.arange(n_samples),), (min(estimator.batch_size, n_samples),))
    groups = read_groups(sensitive_features, n_samples, needed_by='penalty="parity"')
    share = min(1.0, estimator.batch_size / n_samples)
    sizes = batch_sizes(groups.sizes, share, groups.labels.tolist(), parameter="batch_size")
    return BatchCells(groups.members, sizes)


def choose_loss(estimator: "PrivateSWAutoencoder", cells: BatchCells) -> AutoencoderLoss:
    """Return what is minimised, or say which parameters exclude each other."""
    if estimator.normalize_codes and estimator.latent_dim < 2:
        raise ValueError(
            "latent_dim=1 with normalize_codes=True leaves codes no value but -1 and 1. Use "
            "latent_dim of at least 2, or normalize_codes=False."
        )
    if estimator.penalty is None:
        return AutoencoderLoss(clip=estimator.clip)
    if estimator.private and estimator.sampling == "poisson":
        raise ValueError(
            f'penalty="{estimator.penalty}" compares the ranks of the codes of a batch, so that '
            "one record moves the terms of others; Poisson batches are accounted for sums only. "
            'Use sampling="auto" or "without_replacement".'
        )
    return AutoencoderLoss(
        clip=estimator.clip,
        penalty=_choose_penalty(estimator, cells),
        alpha=estimator.alpha,
        clip_jacobian=estimator.clip_jacobian,
    )


def _choose_penalty(estimator: "PrivateSWAutoencoder", cells: BatchCells) -> CodePenalty:
    if estimator.penalty == "parity":
        return CodeParity(
            latent_dim=estimator.latent_dim,
            batch_sizes=cells.batch_sizes,
            radius=1.0 if estimator.normalize_codes else estimator.clip_output,
            n_slices=estimator.n_slices,
        )
    return PriorPenalty(
        prior="sphere" if estimator.normalize_codes else "normal",
        latent_dim=estimator.latent_dim,
        batch_size=sum(cells.batch_sizes),
        n_slices=estimator.n_slices,
    )


def number_of_steps(estimator: "PrivateSWAutoencoder", n_samples: int) -> int:
    """Return the number of training steps, by default a public rule in n."""
    if estimator.n_steps is not None:
        return estimator.n_steps
    # Steps without noise cost no privacy, so that few rows are simply passed over more often.
    fewest = _FEWEST_STEPS if estimator.private else _FEWEST_PUBLIC_STEPS
    return max(fewest, _EPOCHS * n_samples // estimator.batch_size)


def learning_rate(estimator: "PrivateSWAutoencoder", network: nn.Module, n_steps: int) -> float:
    """Return Adam's learning rate, by default a public rule in parameters and steps.

    Every parameter of a noisy step moves by about the learning rate, so that what noise adds to
    an output grows with the number of parameters, and over many steps the noise of each has
    to count for less. The constants were measured on digits
    (900 and 1,800 rows, 13,000 parameters) and MNIST (10,000 rows, a million parameters).
    """
    if estimator.learning_rate != "auto":
        return float(estimator.learning_rate)
    if not estimator.private:
        return _PUBLIC_RATE
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    rate = min(_LARGEST_RATE, _RATE * max(1, n_parameters) ** -0.25)
    return float(rate * min(1.0, (_STEPS_AT_FULL_RATE / n_steps) ** 0.5))


def plan_fit(
    estimator: "PrivateSWAutoencoder",
    loss: AutoencoderLoss,
    cells: BatchCells,
    n_features: int,
    network: nn.Module,
) -> TrainingPlan:
    """Fix batches and noise from public facts."""
    n_samples = sum(cells.group_sizes)
    target = privacy_target(estimator.epsilon, estimator.delta, estimator.budget)
    bounds = public_bounds(estimator.bounds, estimator.norm_bound, n_features)
    sampling = estimator.sampling
    if sampling == "auto":
        sampling = "poisson" if loss.penalty is None else "without_replacement"
    return plan_training(
        target,
        n_samples=cells.group_sizes,
        batch_size=cells.batch_sizes,
        n_steps=number_of_steps(estimator, n_samples),
        sampling=sampling,
        sensitivity=loss.sensitivity,
        n_parameters=trained_numbers(network),
        bounds=bounds_or_plan(bounds or n_samples, n_features, target.mu_cap),
        sigma=estimator.sigma,
    )
