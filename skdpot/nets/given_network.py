"""Networks that callers bring along: copied, and tried on made-up rows."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

__all__ = ["checked_network"]

_N_PROBES = 2


def checked_network(
    module: nn.Module | Callable[[], Any],
    n_inputs: int,
    n_outputs: int,
    *,
    inputs: str,
    outputs: str,
) -> nn.Module:
    """Copy or make a caller's network, and check what it returns.

    Parameters
    ----------
    module : torch.nn.Module or callable
        A network, which is copied and starts from the weights that it has, or a function
        without arguments that makes one.
    n_inputs, n_outputs : int
        Columns of its input and of its output.
    inputs, outputs : str
        What these columns are, for messages.

    Returns
    -------
    torch.nn.Module
        The network.

    Raises
    ------
    TypeError
        If the function returns something else.
    ValueError
        If its output has another shape, or it has nothing to train.
    """
    # A function may return the same network each time: training must not change that one.
    try:
        network = deepcopy(module if isinstance(module, nn.Module) else module())
    except TypeError as error:
        raise TypeError(
            "module must be a torch.nn.Module or a function without arguments that returns one; "
            f"calling it failed: {error}"
        ) from error
    if not isinstance(network, nn.Module):
        raise TypeError(
            "module must be a torch.nn.Module or a function without arguments that returns one, "
            f"got one that returns {type(network).__name__}."
        )
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("module has no parameters to train.")
    with torch.no_grad():
        try:
            rows = deepcopy(network).eval()(torch.zeros(_N_PROBES, n_inputs))
        except RuntimeError as error:
            raise ValueError(
                f"module does not accept a tensor of shape ({_N_PROBES}, {n_inputs}): {inputs}. "
                f"It says: {error}"
            ) from error
    if rows.shape != (_N_PROBES, n_outputs):
        raise ValueError(
            f"module maps {_N_PROBES} rows to a tensor of shape {tuple(rows.shape)}; it must be "
            f"({_N_PROBES}, {n_outputs}): {outputs}."
        )
    return network
