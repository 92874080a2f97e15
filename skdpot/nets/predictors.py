"""Networks that predict: their shape, their inputs, what they start from."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from skdpot.nets.given_network import checked_network

__all__ = ["Predictor", "build_predictor"]

Predictor: TypeAlias = nn.Module | Callable[[], Any] | Literal["linear", "mlp"]

_HIDDEN_UNITS = 64


def build_predictor(module: Predictor, n_features: int, n_outputs: int) -> nn.Module:
    """Make a network from rows to outputs.

    Parameters
    ----------
    module : {"linear", "mlp"}, torch.nn.Module or callable
        "linear" is one linear layer, "mlp" one hidden layer of 64 units with tanh. A network is
        copied and starts from the weights that it has; a function without arguments makes one.
    n_features : int
        Columns of its input.
    n_outputs : int
        Columns of its output.

    Returns
    -------
    torch.nn.Module
        The network. Initial weights come from torch's global generator. Those of the last layer
        of "linear" and "mlp" are 0: every record starts with the same prediction, so that no
        group has an advantage to begin with.

    Raises
    ------
    TypeError
        If the function returns something else.
    ValueError
        If its output has another shape, or it has nothing to train.
    """
    if not isinstance(module, str):
        return checked_network(
            module,
            n_features,
            n_outputs,
            inputs="one column a feature of X",
            outputs="one logit for two classes, one a class for more; one column a target",
        )
    if module == "linear":
        return nn.Sequential(_from_zero(n_features, n_outputs))
    hidden = nn.Linear(n_features, _HIDDEN_UNITS)
    return nn.Sequential(hidden, nn.Tanh(), _from_zero(_HIDDEN_UNITS, n_outputs))


def _from_zero(n_inputs: int, n_outputs: int) -> nn.Linear:
    layer = nn.Linear(n_inputs, n_outputs)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    return layer
