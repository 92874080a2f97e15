"""Loss and penalty of a predictor during a training without privacy; a private one records none."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.loss_curve import Losses, fixed_subset, parity_distance
from skdpot.nets.per_sample import record_outputs

_N_PROJECTIONS = 16  # enough for a curve


def prediction_losses(
    compared: ComparedOutputs, rows: torch.Tensor, targets: torch.Tensor, cells: Cells
) -> Losses:
    """Return a function from networks to their loss and their penalty, on a fixed subset of rows.

    The loss is the cross-entropy of classes, or half the squared error of targets.
    """
    subset = fixed_subset(len(rows))
    rows, targets = rows[subset], targets[subset]
    codes = cells.codes_of(targets.cpu().numpy(), cells.codes[subset])
    directions = compared.directions(_N_PROJECTIONS, np.random.default_rng(0))

    def losses(network: nn.Module) -> tuple[float, float]:
        outputs = record_outputs(network, rows).double()
        values = compared.values(outputs).cpu().numpy()
        return _loss(outputs, targets), parity_distance(values, codes, cells, directions)

    return losses


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if targets.ndim == 2:
        return float((outputs - targets).square().sum(1).mean() / 2.0)
    labelled = targets >= 0
    outputs, targets = outputs[labelled], targets[labelled]
    if outputs.shape[1] > 1:
        return float(functional.cross_entropy(outputs, targets.long()))
    return float(functional.binary_cross_entropy_with_logits(outputs[:, 0], targets.double()))
