"""The check that refuses networks in which a record affects the outputs of other records.

Clipping bounds only the contribution of a record through its own gradient.
"""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from skdpot._utils.streams import torch_randomness
from skdpot.nets.per_sample import chain_of_layers, record_jacobians, record_outputs
from skdpot.nets.training import train_network

_FEW_RECORDS = 5
_MANY_RECORDS = 64  # kernels may treat many records differently


def check_per_record(
    network: nn.Module,
    input_shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    parameter: str = "architecture",
    callbacks: Sequence[Any] | None = None,
) -> None:
    """Refuse a network whose output for a record depends on other records.

    Known layers of this kind are refused by name. Otherwise a copy of the network is run on made-up
    records in training mode. When the other records of a batch are exchanged, the output and the
    gradient of a record must be equal to the last bit; the run must change no buffer or parameter;
    and gradients of single records must be computable. Copies of the callbacks run for one step
    without rows.
    """
    _refuse_known_layers(network)
    _refuse_coarse_parameters(network)
    # A fixed seed for the randomness of the network: both runs must draw the same dropout.
    seed = int(rng.integers(2**32))
    few, other_few = _made_up(_FEW_RECORDS, input_shape, rng)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _run(network, few, seed)
    copied = deepcopy(network).train()
    _check_companions(copied, few, other_few, seed)
    if chain_of_layers(network) is None:
        many, other_many = _made_up(_MANY_RECORDS, input_shape, rng)
        for companions in (other_many, -many):  # -many changes every sign
            _check_companions(copied, many, companions, seed)
    _check_unchanged(network, copied)
    _check_gradients(deepcopy(network).train(), few, other_few, seed, parameter)
    _try_callbacks(deepcopy(network), callbacks)


def _refuse_known_layers(network: nn.Module) -> None:
    """Refuse layers that normalise by other records or keep statistics of records."""
    for name, layer in network.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # SyncBatchNorm is one
            raise ValueError(
                f"Layer {name!r} ({kind}) normalises each record by the others of the batch, which "
                "no clipping bounds. Use torch.nn.GroupNorm or torch.nn.LayerNorm."
            )
        if getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"Layer {name!r} ({kind}) keeps running statistics of private records without "
                "noise. Use track_running_stats=False, or torch.nn.GroupNorm."
            )


def _refuse_coarse_parameters(network: nn.Module) -> None:
    """Refuse trained parameters in half precision."""
    for name, values in network.named_parameters():
        if values.requires_grad and values.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"Parameter {name!r} is of type {values.dtype}, too coarse to bound a record's "
                "gradient. Use torch.float32 or torch.float64."
            )


def _made_up(
    n_records: int, input_shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    records = torch.from_numpy(rng.uniform(-1, 1, (2 * n_records, *input_shape))).float()
    return records[:n_records], records[n_records:]


def _check_companions(
    network: nn.Module, first: torch.Tensor, others: torch.Tensor, seed: int
) -> None:
    """Exchange subsets of the records, of which one separates any two records."""
    outputs = _run(network, first, seed)
    numbers = torch.arange(len(first))
    for bit in range((len(first) - 1).bit_length()):
        for kept in (numbers >> bit & 1 == 0, numbers >> bit & 1 == 1):
            exchanged = others.clone()
            exchanged[kept] = first[kept]
            _check_output(outputs[kept], _run(network, exchanged, seed)[kept])


def _run(network: nn.Module, records: torch.Tensor, seed: int) -> torch.Tensor:
    with torch.no_grad(), torch_randomness(np.random.default_rng(seed)):
        outputs: torch.Tensor = network(records)
    if outputs.ndim < 1 or len(outputs) != len(records):
        raise ValueError(
            f"The network maps {len(records)} records to {tuple(outputs.shape)}; it must keep the "
            "first axis, one entry per record."
        )
    return outputs


def _check_output(alone: torch.Tensor, with_others: torch.Tensor) -> None:
    if not bool((alone.isfinite() & with_others.isfinite()).all()):
        raise ValueError(
            "The network's output for a row with values between -1 and 1 is not a finite number."
        )
    _check_equal(alone, with_others)


def _check_equal(alone: torch.Tensor, with_others: torch.Tensor) -> None:
    """Compare to the last bit: arrays of one shape are computed by the same instructions."""
    if not _same_bits(alone, with_others):
        raise ValueError(
            "The network's output for a record depends on the other records of the batch, which no "
            "clipping bounds. Look for operations along the first axis: means, attention, sorting."
        )


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first, second)


def _check_unchanged(before: nn.Module, after: nn.Module) -> None:
    """Refuse a network that a run in training mode has changed."""
    for kind in ("buffers", "parameters"):
        known = dict(getattr(before, f"named_{kind}")())
        for name, tensor in getattr(after, f"named_{kind}")():
            if name not in known or not torch.equal(tensor, known[name]):
                raise ValueError(
                    f"{kind[:-1].capitalize()} {name!r} of the network changes when it is run in "
                    "training mode: it would keep facts about private records without noise."
                )


def _check_gradients(
    network: nn.Module, first: torch.Tensor, others: torch.Tensor, seed: int, parameter: str
) -> None:
    """Compute the gradients of a step, so that unsuitable networks fail before any charge."""
    both, exchanged = [], others.clone()
    exchanged[::2] = first[::2]
    try:
        for records in (first, exchanged):
            with torch_randomness(np.random.default_rng(seed)):
                record_outputs(network, records)
                both.append(record_jacobians(network, records, lambda outputs, _: outputs))
    except Exception as error:  # a caller's module may raise anything
        raise ValueError(
            f"{parameter}: the gradients of single records cannot be computed by torch.func.vmap. "
            "Avoid operations in place, branches that depend on values, and recurrent layers. It "
            f"says: {error}"
        ) from error
    _check_equal(*(jacobians.gram()[::2].nan_to_num() for jacobians in both))


def _try_callbacks(network: nn.Module, callbacks: Sequence[Any] | None) -> None:
    """Train for one step without rows, so that callbacks fail before any charge."""
    try:
        copies = deepcopy(list(callbacks or ()))
    except Exception:  # callbacks that cannot be copied, such as an open file, are not tried
        return
    if not copies:
        return

    def no_gradient(trained: nn.Module, _: int) -> None:
        for parameter in trained.parameters():
            parameter.grad = torch.zeros_like(parameter)

    rng = np.random.default_rng(0)
    try:
        with suppress(KeyboardInterrupt):  # a callback that stops training
            train_network(network, no_gradient, 1, learning_rate=1e-3, rng=rng, callbacks=copies)
    except Exception as error:
        raise ValueError(
            "callbacks: a step of training without any row fails with them. "
            f"{type(error).__name__} says: {error}"
        ) from error
