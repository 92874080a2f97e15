"""Losses during a training without privacy; with privacy there are none to tell.

They are those of the same records each time, at most 2,000.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

from skdpot.nets.output_tables import Cells, ComparedOutputs, ParityPenalty
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.sampling.autoencoder_training import AutoencoderLoss, PriorDistance

Losses: TypeAlias = Callable[[Any], tuple[float, float]]  # of a network: loss, and penalty

_MOST, _LONGEST = 2000, 300  # records; points of a curve, since each costs more than a step
_N_PROJECTIONS = 16


@dataclass(frozen=True, eq=False)
class LossCurve:
    """Loss and penalty before some steps; none of a private training, which has no `losses`."""

    losses: Losses | None
    n_steps: int
    found: dict[int, tuple[float, float]] = field(default_factory=dict)

    def told(self, step: GradientStep) -> GradientStep:
        """Return a step that is preceded by the losses of the network that it is given."""
        losses = self.losses
        if losses is None:
            return step

        def with_losses(network: nn.Module, number: int) -> None:
            if number % math.ceil(self.n_steps / _LONGEST) == 0:
                self.found[number] = losses(deepcopy(network).eval())
            step(network, number)

        return with_losses

    def table(self) -> pd.DataFrame | None:
        """Return a row for each of the steps, by their numbers."""
        if self.losses is None:
            return None
        return pd.DataFrame.from_dict(self.found, orient="index", columns=["loss", "penalty"])


def prediction_losses(
    compared: ComparedOutputs, rows: torch.Tensor, targets: torch.Tensor, cells: Cells
) -> Losses:
    """Return cross-entropy or half the squared error, and the squared distance of groups."""
    chosen = _chosen(len(rows))
    rows, targets = rows[chosen], targets[chosen]
    codes = cells.codes_of(targets.cpu().numpy(), cells.codes[chosen])
    directions = compared.directions(_N_PROJECTIONS, np.random.default_rng(0))

    def losses(network: nn.Module) -> tuple[float, float]:
        outputs = record_outputs(network, rows).double()
        values = compared.values(outputs).cpu().numpy()
        return _loss(outputs, targets), _distance(values, codes, cells, directions)

    return losses


def reconstruction_losses(loss: AutoencoderLoss, rows: torch.Tensor, cells: Cells) -> Losses:
    """Return half the squared error, summed over features, and the penalty of codes."""
    chosen, penalty = _chosen(len(rows)), loss.penalty
    rows, codes = rows[chosen], cells.codes[chosen]

    def losses(autoencoder: nn.Sequential) -> tuple[float, float]:
        error = record_outputs(autoencoder, rows) - rows
        half = float(error.square().sum(1).mean() / 2.0)
        if penalty is None:
            return half, 0.0
        values = penalty.compared.values(record_outputs(autoencoder[:-1], rows).double())
        points = values.cpu().numpy()
        directions = penalty.directions(np.random.default_rng(0))
        if isinstance(penalty, PriorDistance):
            along = np.sort(directions @ points.T, axis=1)
            quantiles = replace(penalty, batch_sizes=(len(points),)).quantiles
            return half, float(np.square(along - quantiles).mean())
        return half, _distance(points, codes, cells, directions)

    return losses


def _chosen(n_records: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n_records)[:_MOST])


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if targets.ndim == 2:
        return float((outputs - targets).square().sum(1).mean() / 2.0)
    outputs, targets = outputs[targets >= 0], targets[targets >= 0]  # others have no label
    if outputs.shape[1] > 1:
        return float(functional.cross_entropy(outputs, targets.long()))
    of_second = functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double())
    return float(of_second)


def _distance(values: np.ndarray, codes: np.ndarray, cells: Cells, directions: np.ndarray) -> float:
    """Return the penalty of groups; cells without a record among those that are told count 0."""
    if not cells.strata:
        return 0.0
    total = 0.0
    for pair in (pair for stratum in cells.strata for pair in combinations(stratum, 2)):
        own, other = (values[codes == cell] for cell in pair)
        if len(own) and len(other):
            total += sliced_wasserstein_distance(own, other, directions) ** 2
    return ParityPenalty(cells.strata, cells.sizes).pair_weight * total
