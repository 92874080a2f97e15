"""Losses during a training without privacy; with privacy there are none to tell.

They are those of the same records each time, at most 2,000.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.loss_curve import Losses, fixed_subset, parity_distance
from skdpot.nets.per_sample import record_outputs

_N_PROJECTIONS = 16


def prediction_losses(
    compared: ComparedOutputs, rows: torch.Tensor, targets: torch.Tensor, cells: Cells
) -> Losses:
    """Return cross-entropy or half the squared error, and the squared distance of groups."""
    chosen = fixed_subset(len(rows))
    rows, targets = rows[chosen], targets[chosen]
    codes = cells.codes_of(targets.cpu().numpy(), cells.codes[chosen])
    directions = compared.directions(_N_PROJECTIONS, np.random.default_rng(0))

    def losses(network: nn.Module) -> tuple[float, float]:
        outputs = record_outputs(network, rows).double()
        values = compared.values(outputs).cpu().numpy()
        return _loss(outputs, targets), parity_distance(values, codes, cells, directions)

    return losses


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if targets.ndim == 2:
        return float((outputs - targets).square().sum(1).mean() / 2.0)
    outputs, targets = outputs[targets >= 0], targets[targets >= 0]  # others have no label
    if outputs.shape[1] > 1:
        return float(functional.cross_entropy(outputs, targets.long()))
    of_second = functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double())
    return float(of_second)
