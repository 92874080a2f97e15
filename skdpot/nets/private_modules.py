"""Refusing networks in which one record can reach another's output.

Clipping bounds what a record contributes through its own gradient. A layer that computes with
several records, or remembers earlier ones, opens a second way that no clipping closes. So private
rows are shown to copies of a network, one row at a time, unless it is a plain chain of layers
(`skdpot.nets.per_sample`), and of a trained network only the parameters that were trained count.
What is refused here would be trained as something else than what is used afterwards.
"""

from copy import deepcopy

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from skdpot._utils.torch_rng import torch_randomness
from skdpot.nets.per_sample import chain_of_layers, record_gradients, record_outputs

__all__ = ["check_per_record", "with_trained_parameters"]

_N_RECORDS = 5
_MANY = 64
_ROUNDING = 1e-4

_NORMALISE_RECORDS = (
    nn.modules.batchnorm._BatchNorm,
    nn.SyncBatchNorm,
)


def check_per_record(
    network: nn.Module,
    input_shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    parameter: str = "architecture",
) -> None:
    """Refuse a network whose output for a record depends on other records.

    Layers that are known for it are refused by name. For all others a copy of the network is run
    on made-up records, in training mode: exchanging the companions of a record must leave its
    output as it is, every record must have an output of its own, no buffer and no parameter may
    change, and gradients of single records must be computable.
    """
    for name, layer in network.named_modules():
        _check_layer(name, layer)
    for name, values in network.named_parameters():
        _check_precision(name, values)
    # A fixed stream for the network's own randomness: both runs must see the same dropout.
    seed = int(rng.integers(2**32))
    records = _made_up(_N_RECORDS, input_shape, rng)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _run(network, records[0], seed)
    apart = deepcopy(network)
    _check_companions(apart, *records, seed)
    if chain_of_layers(network) is None:
        # It may treat few records in another way than many.
        many, others = _made_up(_MANY, input_shape, rng)
        for companions in (others, -many):  # the second set changes every sign
            _check_companions(apart, many, companions, seed)
    _check_unchanged(network, apart)
    _check_gradients(deepcopy(network).train(), records[0], seed, parameter)


def with_trained_parameters(clean: nn.Module, trained: nn.Module) -> nn.Module:
    """Put trained parameters into a copy of a network that was made before training."""
    with torch.no_grad():
        pairs = zip(clean.named_parameters(), trained.named_parameters(), strict=True)
        for (name, parameter), (other_name, value) in pairs:
            if name != other_name:
                raise ValueError(f"The networks differ: {name!r} and {other_name!r}.")
            if parameter.requires_grad:
                parameter.copy_(value)
    return clean.eval()


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


def _made_up(
    n_records: int, input_shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return records, and others to exchange them with."""
    records = torch.from_numpy(rng.uniform(-1, 1, (2 * n_records, *input_shape))).float()
    return records[:n_records], records[n_records:]


def _check_companions(
    network: nn.Module, first: torch.Tensor, others: torch.Tensor, seed: int
) -> None:
    """Exchange some records at a time; of any two, one is once exchanged without the other."""
    outputs = _run(network, first, seed)
    numbers = torch.arange(len(first))
    for bit in range((len(first) - 1).bit_length()):
        for kept in (numbers >> bit & 1 == 0, numbers >> bit & 1 == 1):
            exchanged = others.clone()
            exchanged[kept] = first[kept]
            _check_output(outputs[kept], _run(network, exchanged, seed)[kept])


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
    if not bool((alone.isfinite() & with_others.isfinite()).all()):
        raise ValueError(
            "The network's output for an ordinary row, with values between -1 and 1, is not a "
            "finite number. Look for divisions, logarithms and roots."
        )
    scale = 1.0 + float(alone.abs().max())
    if not bool(((alone - with_others).abs() <= _ROUNDING * scale).all()):
        raise ValueError(
            "The network's output for a record depends on the other records of the batch, so "
            "that clipping gradients does not bound what one record changes. Look for operations "
            "along the first axis (means, normalisation, attention, sorting) and let every "
            "record be computed by itself."
        )


def _check_unchanged(before: nn.Module, after: nn.Module) -> None:
    for kind in ("buffers", "parameters"):
        known = dict(getattr(before, f"named_{kind}")())
        for name, tensor in getattr(after, f"named_{kind}")():
            if name not in known or not torch.equal(tensor, known[name]):
                raise ValueError(
                    f"{kind[:-1].capitalize()} {name!r} of the network changes when it is run in "
                    "training mode: it would keep facts about private records without noise. "
                    "Remove it, or update it from public data only."
                )


def _check_gradients(network: nn.Module, records: torch.Tensor, seed: int, parameter: str) -> None:
    """Take a step's gradients once, so that what cannot be done fails before it is paid for."""
    try:
        with torch_randomness(np.random.default_rng(seed)):
            outputs = record_outputs(network, records)
            record_gradients(network, records, lambda _, given: [given], outputs)
    # Modules of callers may raise anything.
    except Exception as error:
        raise ValueError(
            f"{parameter}: the gradients of single records of this network, by torch.func.vmap, "
            "cannot be computed. Avoid operations in place, branches that depend on values, and "
            f"recurrent layers. It says: {error}"
        ) from error
