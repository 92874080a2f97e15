"""Networks of callers, default predictors, and the evaluation of trained networks."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

Predictor: TypeAlias = nn.Module | Callable[[], Any] | Literal["linear", "mlp"]

_N_PROBES = 2  # rows of zeros on which a network is tried
_HIDDEN_UNITS = 64
_ROWS_AT_ONCE = 512


def network_of_caller(
    module: nn.Module | Callable[[], Any], parameter: str = "module"
) -> nn.Module:
    """Copy a caller's network, or create one by a caller's function."""
    kinds = (
        f"{parameter} must be a torch.nn.Module or a function without arguments that returns one"
    )
    try:
        network = deepcopy(module if isinstance(module, nn.Module) else module())
    except TypeError as error:
        raise TypeError(f"{kinds}; calling it failed: {error}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{kinds}; got one that returns {type(network).__name__}.")
    return network


def checked_network(
    module: nn.Module | Callable[[], Any],
    n_inputs: int,
    n_outputs: int,
    *,
    inputs: str,
    outputs: str,
) -> nn.Module:
    """Copy or create a caller's network, and check the shape of its outputs."""
    network = network_of_caller(module)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("module has no parameters to train.")
    check_widths("module", deepcopy(network), (n_inputs, inputs), (n_outputs, outputs))
    return network


def check_widths(
    name: str, network: nn.Module, inputs: tuple[int, str], outputs: tuple[int, str]
) -> None:
    """Check a network on rows of zeros; `inputs` and `outputs` are a width and its meaning."""
    shape = (_N_PROBES, inputs[0])
    with torch.no_grad():
        try:
            rows = network.eval()(torch.zeros(shape))
        except Exception as error:  # a caller's module may raise anything
            raise ValueError(
                f"{name} does not accept a tensor of shape {shape}: {inputs[1]}. Its "
                f"{type(error).__name__} says: {error}"
            ) from error
    wanted = (_N_PROBES, outputs[0])
    if rows.shape != wanted:
        raise ValueError(
            f"{name} maps {_N_PROBES} rows to a tensor of shape {tuple(rows.shape)}; it must be "
            f"{wanted}: {outputs[1]}."
        )


def build_predictor(module: Predictor, n_features: int, n_outputs: int) -> nn.Module:
    """Return a network from rows to outputs; a default one has zero outputs at first."""
    if not isinstance(module, str):
        outputs = "one logit for two classes, one per class for more; one column per target"
        rows = "one column per feature of X"
        return checked_network(module, n_features, n_outputs, inputs=rows, outputs=outputs)
    hidden = [] if module == "linear" else [nn.Linear(n_features, _HIDDEN_UNITS), nn.Tanh()]
    last = nn.Linear(n_features if module == "linear" else _HIDDEN_UNITS, n_outputs)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*hidden, last)


def evaluate(network: nn.Module, rows: np.ndarray, device: torch.device | None) -> np.ndarray:
    """Run a network on rows in chunks, without gradients."""
    convolutional = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules())
    place, dtype = device or "cpu", torch.float32 if convolutional else torch.float64
    copy = deepcopy(network).to(place, dtype)
    parts = np.array_split(rows, max(1, math.ceil(len(rows) / _ROWS_AT_ONCE)))
    with torch.inference_mode():
        outputs = [copy(torch.from_numpy(part).to(place, dtype)) for part in parts]
    return torch.cat(outputs).cpu().numpy().astype(np.float64)
