"""TODO: loss_curve."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from torch import nn

from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ParityPenalty
from skdpot.nets.training import GradientStep
from skdpot.ot.transport import sliced_wasserstein_distance

Losses: TypeAlias = Callable[[Any], tuple[float, float]]  # of a network: loss, and penalty

_MOST = 2000  # records
_LONGEST = 300  # points of a curve, since each costs more than a step


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


def _chosen(n_records: int) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(n_records)[:_MOST])


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
