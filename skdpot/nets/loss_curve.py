"""Losses during a training without privacy, on the same records each time."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
from torch import nn

from skdpot.nets.cells import Cells
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.ot.transport import sliced_distance

# A map from a network to its loss and its penalty.
Losses: TypeAlias = Callable[[Any], tuple[float, float]]

_MOST_RECORDS = 2000  # records on which losses are computed
_MOST_POINTS = 300  # points of a curve; each costs more than a step


@dataclass(frozen=True, eq=False)
class LossCurve:
    """Loss and penalty before some of the steps; empty for a private training."""

    losses: Losses | None
    n_steps: int
    recorded: dict[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, losses: Losses, plan: TrainingPlan) -> Self:
        """Return a curve that records losses, which depend on the rows, only without noise."""
        return cls(losses if plan.noise is None else None, plan.n_steps)

    def told(self, step: GradientStep) -> GradientStep:
        """Return a step that first records the losses of the network."""
        losses = self.losses
        if losses is None:
            return step

        def with_losses(network: nn.Module, number: int) -> None:
            if number % math.ceil(self.n_steps / _MOST_POINTS) == 0:
                self.recorded[number] = losses(deepcopy(network).eval())
            step(network, number)

        return with_losses

    def table(self) -> pd.DataFrame | None:
        """Return the recorded losses, one row per step; None for a private training."""
        if self.losses is None:
            return None
        return pd.DataFrame.from_dict(self.recorded, orient="index", columns=["loss", "penalty"])


def fixed_subset(n_records: int) -> np.ndarray:
    """Return the positions of the records on which losses are computed."""
    return np.sort(np.random.default_rng(0).permutation(n_records)[:_MOST_RECORDS])


def parity_distance(
    values: np.ndarray, codes: np.ndarray, cells: Cells, directions: np.ndarray
) -> float:
    """Return the parity penalty of values; cells without a record count as 0."""
    if not cells.strata:
        return 0.0
    total = 0.0
    for pair in (pair for stratum in cells.strata for pair in combinations(stratum, 2)):
        first, second = (values[codes == cell] for cell in pair)
        if len(first) and len(second):
            total += sliced_distance(first, second, directions) ** 2
    return ParityPenalty(cells.strata, cells.sizes).pair_weight * total
