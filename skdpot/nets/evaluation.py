"""Running trained networks on rows, and the units that they see rows in."""

import math
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from skdpot.privacy.data_bounds import DataBounds

__all__ = ["evaluate", "from_network_units", "to_network_units"]

_ROWS_AT_ONCE = 512


def to_network_units(bounds: DataBounds, rows: np.ndarray) -> np.ndarray:
    """Map rows into the ball of `bounds` and scale that to the radius √d.

    A box becomes [-1, 1] along every feature; in a ball the features have a root mean square
    of at most 1. Every row is mapped by itself.
    """
    return bounds.to_ball(rows) * (math.sqrt(bounds.n_features) / bounds.radius)


def from_network_units(bounds: DataBounds, values: np.ndarray) -> np.ndarray:
    """Map the outputs of a decoder to the units of the data, clipped to `bounds`."""
    rows = bounds.from_ball(values * (bounds.radius / math.sqrt(bounds.n_features)))
    return bounds.from_ball(bounds.to_ball(rows))


def evaluate(network: nn.Module, rows: np.ndarray, device: torch.device | None) -> np.ndarray:
    """Run a network on rows, without gradients and a few rows at a time.

    Parameters
    ----------
    network : torch.nn.Module
        In evaluation mode.
    rows : ndarray of shape (n_rows, n_inputs)
        Inputs.
    device : torch.device or None
        Where to run; None is the CPU.

    Returns
    -------
    ndarray of shape (n_rows, n_outputs), float64
        Outputs. Networks without convolutions run in double precision, so that rounding, which
        depends on how many rows are computed at once, stays out of sight; convolutions run in
        single precision, which is several times faster for them.
    """
    copy = deepcopy(network).to(device=device or "cpu", dtype=_precision(network))
    parts = np.array_split(rows, max(1, math.ceil(len(rows) / _ROWS_AT_ONCE)))
    with torch.inference_mode():
        outputs = [
            copy(torch.from_numpy(part).to(device=device or "cpu", dtype=_precision(network)))
            for part in parts
        ]
    return torch.cat(outputs).cpu().numpy().astype(np.float64)


def _precision(network: nn.Module) -> torch.dtype:
    convolutional = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules())
    return torch.float32 if convolutional else torch.float64
