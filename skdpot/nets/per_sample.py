r"""The gradient of every record of a batch, in a form that gives norms and weighted sums.

One backward pass suffices for a chain of ordinary layers. The gradient of record i by the weights
of a linear layer is the outer product :math:`g_i a_i^\top` of the gradient by the layer's output
and the layer's input. Its norm is :math:`|g_i| |a_i|`, and a weighted sum over records is one
matrix product, so gradients of single records are never formed (Goodfellow, "Efficient per-example
gradient computations", 2015; "book-keeping" of Bu et al., ICML 2023). Gradients by the kernels of
convolutions are small and are formed. All other networks use `torch.func`, with one gradient per
record, which is several times slower.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self, TypeAlias, cast

import torch
from torch import nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional
from torch.nn.grad import conv2d_weight
from torch.nn.modules import module as torch_module

from skdpot.nets.layers import LatentEncoding, ToSphere, WideTanh

Parameters: TypeAlias = tuple[nn.Parameter, ...]
RecordJacobians: TypeAlias = "OuterProducts | FormedGradients"
Others: TypeAlias = Mapping[nn.Parameter, "RecordJacobians"]

# A map from the outputs and the rows to the gradient of a loss by the outputs, record by record.
OutputGradient: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Cotangents: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]
# Outputs; the Jacobians of one row per layer for each vector that is pulled back; the number of
# activations per record.
_Pulled: TypeAlias = tuple[torch.Tensor, list[list[RecordJacobians]], int]
# The output of a chain, and the input and output of each layer that has parameters.
_Run: TypeAlias = tuple[torch.Tensor, list[tuple[nn.Module, torch.Tensor, torch.Tensor]]]

# Smaller entries of factors in double precision count as zero, larger as infinite (`_Factors`).
_SMALLEST, _LARGEST = 1e-60, 1e60
_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
# A guess for networks with unknown layers; it only determines the size of chunks.
_ACTIVATIONS_PER_INPUT = 32


@dataclass(frozen=True)
class _Factors:
    """Jacobians of k outputs by some parameters, for each record; a gradient has k = 1.

    All numbers are in double precision, in which products of two single-precision numbers are exact
    and do not underflow: only additions round. For networks in double precision, entries below
    1e-60 count as zero and entries above 1e60 as infinite, so that products of four entries stay in
    range.
    """

    parameters: Parameters
    factors: tuple[torch.Tensor, ...]

    def finite(self) -> Self:
        """Replace entries that are not finite."""
        return replace(self, factors=tuple(factor.nan_to_num() for factor in self.factors))


class OuterProducts(_Factors):
    """Jacobians by a linear layer: row r of record i is g_ir a_i' by weights, g_ir by the offset.

    The factors are the inputs a, (n, i), and the gradients g of the layer's outputs, (n, k, u).
    Those of a last layer are unit vectors that all records share: their first axis has a stride of
    0.
    """

    @classmethod
    def joined(cls, rows: Sequence["OuterProducts"]) -> "OuterProducts":
        """Join the Jacobians of single outputs."""
        inputs, parts = rows[0].factors[0], [row.factors[1] for row in rows]
        if shared := all(_is_shared(part) for part in parts):
            parts = [part[:1] for part in parts]
        gradients = _exact(torch.cat(parts, dim=1))
        if shared:
            gradients = gradients.expand(len(inputs), -1, -1)
        return cls(rows[0].parameters, (_exact(inputs), gradients))

    def gram(self) -> torch.Tensor:
        """Return the inner products of the rows of each record: products of g times ``|a|²``."""
        inputs, gradients = self.factors
        scale = (inputs * inputs).sum(1)
        if len(self.parameters) == 2:
            scale = scale + 1.0
        if _is_shared(gradients):
            gradients = gradients[:1]
        return scale[:, None, None] * (gradients @ gradients.mT)

    def pulled_back(self, vectors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records of J' c, the outer products of c'g and a."""
        inputs, gradients = self.factors
        if _is_shared(gradients):
            weighted = vectors @ gradients[0]
        else:
            weighted = (vectors[:, :, None] * gradients).sum(1)
        return [weighted.T @ inputs, weighted.sum(0)][: len(self.parameters)]

    def of_each(self, vectors: torch.Tensor) -> "OuterProducts":
        """Return J' c of each record, an outer product of c'g and a."""
        inputs, gradients = self.factors
        pulled = (vectors[:, :, None] * gradients).sum(1, keepdim=True)
        return OuterProducts(self.parameters, (inputs, pulled))

    def of_all(self, vectors: torch.Tensor) -> "FormedGradients":
        """Return one sum over records for each row of `vectors`."""
        inputs, gradients = self.factors
        pulled = torch.einsum("njk,jku->nju", vectors, gradients)
        weights = torch.einsum("nju,ji->nui", pulled, inputs)[:, None]
        both = (weights, pulled.sum(1, keepdim=True))[: len(self.parameters)]
        return FormedGradients(self.parameters, both)

    def products(self) -> torch.Tensor:
        """Return the inner products of all pairs of gradients, without forming outer products."""
        inputs, gradients = self.factors[0], self.factors[1][:, 0]
        return (inputs @ inputs.T + float(len(self.parameters) - 1)) * (gradients @ gradients.T)

    def inner(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the inner products of each gradient with one tensor per parameter."""
        inputs, gradients = self.factors[0], self.factors[1][:, 0]
        inner = ((gradients @ values[0]) * inputs).sum(1)
        return inner + gradients @ values[1] if len(values) == 2 else inner

    def formed(self, parameter: nn.Parameter) -> torch.Tensor:
        """Return the Jacobians by one of the parameters."""
        inputs, gradients = self.factors
        is_weight = parameter is self.parameters[0]
        return gradients[..., None] * inputs[:, None, None] if is_weight else gradients

    def plus(self, others: Others, share: float) -> "OuterProducts":
        """Return ``1 - share`` times these plus `share` times others of the same inputs."""
        inputs, gradients = self.factors
        mixed, added = (1.0 - share) * gradients, others.get(self.parameters[0])
        if added is not None:
            mixed = mixed + share * added.factors[1]
        return OuterProducts(self.parameters, (inputs, mixed))


class FormedGradients(_Factors):
    """Jacobians as full tensors of shape (n_records, k, *shape of the parameter)."""

    @classmethod
    def joined(cls, rows: Sequence["FormedGradients"]) -> "FormedGradients":
        """Join the Jacobians of single outputs."""
        of_parameters = zip(*(row.factors for row in rows), strict=True)
        joined = tuple(_exact(torch.cat(factors, dim=1)) for factors in of_parameters)
        return cls(rows[0].parameters, joined)

    def gram(self) -> torch.Tensor:
        """Return the inner products of the rows of each record."""
        rows = [factor.flatten(2) for factor in self.factors]
        return torch.stack([row @ row.mT for row in rows]).sum(0)

    def pulled_back(self, vectors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records of J' c."""
        return [torch.tensordot(vectors, factor, dims=2) for factor in self.factors]

    def of_each(self, vectors: torch.Tensor) -> "FormedGradients":
        """Return J' c of each record."""
        pulled = (torch.einsum("nk,nk...->n...", vectors, f)[:, None] for f in self.factors)
        return FormedGradients(self.parameters, tuple(pulled))

    def of_all(self, vectors: torch.Tensor) -> "FormedGradients":
        """Return one sum over records for each row of `vectors`."""
        sums = tuple(torch.tensordot(vectors, f, dims=2)[:, None] for f in self.factors)
        return FormedGradients(self.parameters, sums)

    def products(self) -> torch.Tensor:
        """Return the inner products of all pairs of gradients."""
        flat = [factor.flatten(1) for factor in self.factors]
        return torch.stack([rows @ rows.T for rows in flat]).sum(0)

    def inner(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the inner products of each gradient with one tensor per parameter."""
        pairs = zip(self.factors, values, strict=True)
        return torch.stack([rows.flatten(1) @ value.flatten() for rows, value in pairs]).sum(0)

    def formed(self, parameter: nn.Parameter) -> torch.Tensor:
        """Return the Jacobians by one of the parameters."""
        return next(f for p, f in zip(self.parameters, self.factors, strict=True) if p is parameter)

    def plus(self, others: Others, share: float) -> "FormedGradients":
        """Return ``1 - share`` times these plus `share` times others, for shared parameters."""
        mixed = [(1.0 - share) * factor for factor in self.factors]
        for k, parameter in enumerate(self.parameters):
            if parameter in others:
                mixed[k] = mixed[k] + share * others[parameter].formed(parameter)
        return FormedGradients(self.parameters, tuple(mixed))


@dataclass(frozen=True)
class ChunkJacobians:
    """Outputs of each record of a chunk and their Jacobians by all trainable parameters."""

    outputs: torch.Tensor
    parts: list[RecordJacobians]
    activations: int  # per record

    @property
    def numbers_per_record(self) -> int:
        """Number of values in memory per record."""
        return self.activations + sum(f[0].numel() for part in self.parts for f in part.factors)

    def gram(self) -> torch.Tensor:
        """Return the inner products of the rows of the Jacobian of each record."""
        grams = [part.gram() for part in self.parts]
        return grams[0] if len(grams) == 1 else torch.stack(grams).sum(0)


def _is_shared(values: torch.Tensor) -> bool:
    """Whether all records have the same values, held once."""
    return values.stride(0) == 0


def _exact(values: torch.Tensor) -> torch.Tensor:
    """Return values in double precision; extreme values become 0 or infinity."""
    if values.dtype != torch.float64:
        return values.double()
    sizes = values.abs()
    kept = torch.where(sizes < _SMALLEST, 0.0, values)
    return torch.where(sizes > _LARGEST, math.inf, kept)


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Disable products in half precision and TF32, whatever the caller has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def record_jacobians(
    network: nn.Module, rows: torch.Tensor, output_gradient: OutputGradient | None = None
) -> ChunkJacobians:
    """Compute the outputs of records and their Jacobians, each record by itself."""

    def cotangents(outputs: torch.Tensor, records: torch.Tensor) -> Sequence[torch.Tensor]:
        if output_gradient is None:
            return _unit_vectors(outputs)
        return [output_gradient(outputs, records)]

    layers = chain_of_layers(network)
    with _full_precision(rows.device):
        pulled = None if layers is None else _by_layers(layers, rows, cotangents)
        outputs, gradients, activations = pulled or _by_torch_func(network, rows, cotangents)
    parts = [type(of_layer[0]).joined(of_layer) for of_layer in zip(*gradients, strict=True)]
    return ChunkJacobians(outputs.double(), parts, activations)


def _unit_vectors(outputs: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the rows of the identity, whose pullbacks are the rows of the Jacobian."""
    if outputs.ndim != 2:
        raise ValueError(
            f"The network must map each record to a vector; it returns an array of {outputs.ndim} "
            "axes. Add torch.nn.Flatten() or torch.nn.Unflatten()."
        )
    units = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    return [unit.expand_as(outputs) for unit in units]


def record_outputs(network: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Compute the output of each record by itself, without gradients."""
    with torch.no_grad():
        layers = chain_of_layers(network)
        run = None if layers is None else _run_layers(layers, rows)
        if run is not None:
            return run[0]
        apart = deepcopy(network)
        outputs: torch.Tensor = vmap(lambda row: apart(row[None])[0], randomness="different")(rows)
    return outputs


def chain_of_layers(network: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a plain chain, or None for any other network.

    A plain chain consists of `torch.nn.Sequential` and of layers that use their parameters in a
    known way and do not mix records. Every parameter is trainable and occurs once. Subclasses,
    hooks and parametrisations may compute something else, so types must match exactly.
    """
    layers = _flatten(network)
    parameters = [p for layer in layers for p in layer.parameters()]
    plain = (
        not any(getattr(torch_module, f"_global_{kind}_hooks") for kind in _HOOKS)
        and all(_is_known(layer) for layer in layers)
        and len(set(map(id, parameters))) == len(parameters)
        and all(p.requires_grad for p in parameters)
    )
    return layers if plain else None


def _flatten(network: nn.Module) -> list[nn.Module]:
    if type(network) is nn.Sequential and not _has_hooks(network):
        return [layer for child in network for layer in _flatten(child)]
    return [network]


def _has_hooks(layer: nn.Module) -> bool:
    """Whether a call of the layer runs other code than the forward method of its class."""
    attributes = vars(layer)
    return "forward" in attributes or any([attributes[f"_{kind}_hooks"] for kind in _HOOKS])


def _is_known(layer: nn.Module) -> bool:
    if _has_hooks(layer) or _reaches_first_axis(layer) or layer._modules:
        return False
    if _has_parameters(layer):
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and (
            layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
        ):
            return False
        return type(layer) in _RULES
    of_this_package = type(layer) in (ToSphere, WideTanh, LatentEncoding)
    return of_this_package or type(layer).__module__.startswith("torch.nn.")


def _has_parameters(layer: nn.Module) -> bool:
    return any([parameter is not None for parameter in layer._parameters.values()])


def _reaches_first_axis(layer: nn.Module) -> bool:
    """Whether a layer may compute along the axis of records, or merge it with another axis.

    A negative axis other than -1 may be the first axis, depending on the input.
    """
    attributes = vars(layer)
    axis = attributes.get("start_dim", attributes.get("dim", 1))
    known = isinstance(axis, int) and (axis > 0 or axis == -1)
    return not known or isinstance(layer, nn.Softmax2d)


def _run_layers(layers: list[nn.Module], rows: torch.Tensor) -> _Run | None:
    """Run a chain; return None if a layer changes the number of records.

    Otherwise the next layer would see parts of records, and each part would be clipped by itself.
    """
    taped, value = [], rows
    for layer in layers:
        before = value.detach()
        # A layer that works in place must not overwrite a recorded tensor.
        value = layer(value.clone() if getattr(layer, "inplace", False) else value)
        if value.ndim < 2 or len(value) != len(rows):
            return None
        if type(layer) in _RULES and _has_parameters(layer):
            taped.append((layer, before, value))
    return value, taped


def _by_layers(
    layers: list[nn.Module], rows: torch.Tensor, cotangents: Cotangents
) -> _Pulled | None:
    with torch.enable_grad():
        run = _run_layers(layers, rows)
    if run is None:
        return None
    output, taped = run
    vectors = cotangents(output.detach(), rows)
    pulled, afters = [], [after for *_, after in taped]
    for k, vector in enumerate(vectors):
        if len(afters) == 1 and afters[0] is output:  # a single layer
            gradients: Sequence[torch.Tensor] = [vector]
        else:
            retain = k + 1 < len(vectors)
            gradients = torch.autograd.grad(
                output, afters, vector, retain_graph=retain, materialize_grads=True
            )
        of_layers = zip(taped, gradients, strict=True)
        pulled.append([_RULES[type(layer)](layer, a, g) for (layer, a, _), g in of_layers])
    activations = sum(value[:1].numel() for _, *both in taped for value in both)
    return output.detach(), pulled, activations


def _by_torch_func(network: nn.Module, rows: torch.Tensor, cotangents: Cotangents) -> _Pulled:
    trainable = {n: p for n, p in network.named_parameters() if p.requires_grad}
    # functional_call does not restore the parameters of a layer that occurs twice.
    network = deepcopy(network)

    def of_one_record(
        values: dict[str, torch.Tensor], row: torch.Tensor
    ) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
        pulled = vjp(lambda v: functional_call(network, v, (row[None],)), values)
        output, pull_back = pulled[0], pulled[1]
        return output[0], [pull_back(vector)[0] for vector in cotangents(output, row[None])]

    values = {name: parameter.detach() for name, parameter in trainable.items()}
    # Dropout, if any, is drawn anew for each record.
    outputs, pulled = vmap(of_one_record, in_dims=(None, 0), randomness="different")(values, rows)
    parameters = tuple(trainable.values())
    gradients: list[list[RecordJacobians]] = [
        [FormedGradients(parameters, tuple(value[:, None] for value in of_vector.values()))]
        for of_vector in pulled
    ]
    return outputs.detach(), gradients, _ACTIVATIONS_PER_INPUT * rows[:1].numel()


def _linear(layer: nn.Linear, a: torch.Tensor, g: torch.Tensor) -> RecordJacobians:
    if a.ndim == 2:
        return OuterProducts(_parameters(layer), (a, g[:, None]))
    a, g = a.flatten(1, -2), g.flatten(1, -2)
    return _formed(layer, g.transpose(1, 2) @ a, g.sum(1))


def _conv(
    layer: nn.Conv2d | nn.ConvTranspose2d, a: torch.Tensor, g: torch.Tensor
) -> RecordJacobians:
    """Compute the gradients by a kernel in one convolution, with one group per record."""
    n_records = len(a)
    larger, smaller = (g, a) if isinstance(layer, nn.ConvTranspose2d) else (a, g)
    weights = conv2d_weight(
        larger.flatten(0, 1)[None],
        (n_records * layer.weight.shape[0], *layer.weight.shape[1:]),
        smaller.flatten(0, 1)[None],
        layer.stride,
        cast("tuple[int, ...]", layer.padding),  # a plain chain has no padding given as text
        layer.dilation,
        groups=n_records,
    )
    return _formed(layer, weights.unflatten(0, (n_records, -1)), g.sum((2, 3)))


def _group_norm(layer: nn.GroupNorm, a: torch.Tensor, g: torch.Tensor) -> RecordJacobians:
    normal = functional.group_norm(a, layer.num_groups, eps=layer.eps)
    # Channels are numbers, (n, C), or arrays, (n, C, ...); both are reshaped to one axis.
    normal, g = (value.reshape(*value.shape[:2], -1) for value in (normal, g))
    return _formed(layer, (normal * g).sum(2), g.sum(2))


def _layer_norm(layer: nn.LayerNorm, a: torch.Tensor, g: torch.Tensor) -> RecordJacobians:
    normal = functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    # Sum over the axes between the records and the normalised ones.
    shape = (len(a), -1, *layer.normalized_shape)
    return _formed(layer, (normal * g).reshape(shape).sum(1), g.reshape(shape).sum(1))


def _formed(layer: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> FormedGradients:
    parameters = _parameters(layer)
    return FormedGradients(parameters, (weight[:, None], bias[:, None])[: len(parameters)])


def _parameters(layer: nn.Module) -> Parameters:
    """Return the weight and the offset, if there is one."""
    return tuple(layer.parameters(recurse=False))


_RULES: dict[type[nn.Module], Callable[..., RecordJacobians]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
