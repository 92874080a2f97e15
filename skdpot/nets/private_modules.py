"""Refusing networks in which one record can reach another's output.

Clipping bounds what a record contributes through its own gradient. A layer that computes with
several records, or remembers earlier ones, opens a second way that no clipping closes.
"""

import numpy as np
import torch
from torch import nn

from skdpot._utils.torch_rng import torch_randomness

__all__ = ["check_per_record"]

_N_RECORDS = 5
_ROUNDING = 1e-4

_NORMALISE_RECORDS = (
    nn.modules.batchnorm._BatchNorm,
    nn.SyncBatchNorm,
)


def check_per_record(
    network: nn.Module, input_shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Refuse a network whose output for a record depends on other records.

    Layers that are known for it are refused by name. For all others the network is run on
    made-up records, in training mode: exchanging the companions of a record must leave its
    output as it is, every record must have an output of its own, and no buffer may change.

    Parameters
    ----------
    network : torch.nn.Module
        To be trained with clipped gradients of single records.
    input_shape : tuple of int
        Shape of one record.
    rng : numpy.random.Generator
        Any stream but the secret one; no private record is used.

    Raises
    ------
    ValueError
        With the name of the layer and what to use in its place.
    """
    for name, layer in network.named_modules():
        _check_layer(name, layer)
    for name, parameter in network.named_parameters():
        _check_precision(name, parameter)
    # A fixed stream for the network's own randomness: both runs must see the same dropout.
    seed = int(rng.integers(2**32))
    records = torch.from_numpy(rng.uniform(-1, 1, (2 * _N_RECORDS, *input_shape))).float()
    first, others = records[:_N_RECORDS], records[_N_RECORDS:]
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    outputs = _run(network, first, seed)
    for k in range(_N_RECORDS):
        exchanged = others.clone()
        exchanged[k] = first[k]
        _check_output(outputs[k], _run(network, exchanged, seed)[k])
    _check_buffers(network, buffers)


def _check_layer(name: str, layer: nn.Module) -> None:
    kind = type(layer).__name__
    if isinstance(layer, _NORMALISE_RECORDS):
        raise ValueError(
            f"Layer {name!r} ({kind}) normalises each record by the others of the batch, so that "
            "clipping gradients does not bound what one record changes. Use torch.nn.GroupNorm "
            "or torch.nn.LayerNorm in its place."
        )
    if getattr(layer, "track_running_stats", False):
        raise ValueError(
            f"Layer {name!r} ({kind}) keeps running statistics of private records without noise. "
            "Use track_running_stats=False, or torch.nn.GroupNorm."
        )


def _check_precision(name: str, parameter: nn.Parameter) -> None:
    if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"Parameter {name!r} is of type {parameter.dtype}, too coarse to bound what one record "
            "adds to a sum of gradients. Use torch.float32 or torch.float64."
        )


def _run(network: nn.Module, records: torch.Tensor, seed: int) -> torch.Tensor:
    training = network.training
    try:
        with torch.no_grad(), torch_randomness(np.random.default_rng(seed)):
            outputs: torch.Tensor = network.train()(records)
    finally:
        network.train(training)
    if outputs.ndim < 1 or len(outputs) != len(records):
        raise ValueError(
            f"The network maps {len(records)} records to an output of shape "
            f"{tuple(outputs.shape)}; it must keep the first axis, one entry a record."
        )
    return outputs


def _check_output(alone: torch.Tensor, with_others: torch.Tensor) -> None:
    scale = 1.0 + float(alone.abs().max())
    if not bool(((alone - with_others).abs() <= _ROUNDING * scale).all()):
        raise ValueError(
            "The network's output for a record depends on the other records of the batch, so "
            "that clipping gradients does not bound what one record changes. Look for operations "
            "along the first axis (means, normalisation, attention, sorting) and let every "
            "record be computed by itself."
        )


def _check_buffers(network: nn.Module, before: dict[str, torch.Tensor]) -> None:
    for name, buffer in network.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            raise ValueError(
                f"Buffer {name!r} of the network changes in training: it would keep facts about "
                "private records without noise. Remove it, or update it from public data only."
            )
