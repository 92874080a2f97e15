r"""The gradient of every record of a batch, in a form that can be measured, weighted and added.

For a chain of ordinary layers one backward pass is enough. The gradient of record i for a linear
layer is the outer product :math:`g_i a_i^\top` of the gradient of its output and its input, so
its norm is :math:`|g_i| |a_i|` and a weighted sum over records is one matrix product: no
gradient of a single record is ever formed (Goodfellow 2015; "book-keeping" of Bu et al. 2023).
Kernels of convolutions are small, and their gradients are formed. All other networks go
through `torch.func`, one gradient a record, which is right for every network that treats records
one by one and takes several times longer.

References
----------
I. Goodfellow, "Efficient per-example gradient computations", 2015.
Z. Bu, Y.-X. Wang, S. Zha, G. Karypis, "Differentially private optimization on large model at
small cost", ICML 2023.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import torch
from torch import nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional
from torch.nn.grad import conv2d_weight
from torch.nn.modules import module as torch_module

from skdpot.nets.networks import LatentEncoding, ToSphere

Parameters: TypeAlias = tuple[nn.Parameter, ...]

_SMALLEST, _LARGEST = 1e-60, 1e60


# Gradients, for some parameters, of each record of a chunk; and Jacobians of k outputs. All numbers
# of Jacobians are in double precision. It holds the products of two single-precision numbers
# exactly, so that only additions round, and the squares of all of them: none underflows. Of
# networks in double precision entries below 1e-60 count as zero and those beyond 1e60 as infinite,
# so that no product of four leaves the range either.
RecordGradients: TypeAlias = "OuterProducts | FormedGradients"
RecordJacobians: TypeAlias = "OuterProductJacobians | FormedJacobians"


@dataclass(frozen=True)
class OuterProducts:
    """Gradients of a linear layer: g_i a_i' for the weights, g_i for the offset."""

    parameters: Parameters
    inputs: torch.Tensor
    output_gradients: torch.Tensor

    def weighted_sum(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the weighted sum over records."""
        weighted = self.output_gradients * weights[:, None]
        return [weighted.T @ self.inputs, weighted.sum(0)][: len(self.parameters)]

    def gram(self) -> torch.Tensor:
        """Return products of inner products: no outer product is formed."""
        inputs = self.inputs @ self.inputs.T + float(len(self.parameters) - 1)
        return inputs * (self.output_gradients @ self.output_gradients.T)

    def inner(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the inner products of each record with a tensor a parameter."""
        inner = ((self.output_gradients @ values[0]) * self.inputs).sum(1)
        return inner + self.output_gradients @ values[1] if len(values) == 2 else inner

    def formed(self) -> "FormedGradients":
        """Form the outer products."""
        weights = self.output_gradients[:, :, None] * self.inputs[:, None, :]
        both = (weights, self.output_gradients)[: len(self.parameters)]
        return FormedGradients(self.parameters, both)

    def plus(self, other: "RecordGradients | None", share: float) -> RecordGradients:
        """Add gradients of the same layer, which has the same inputs."""
        if isinstance(other, FormedGradients):
            return self.formed().plus(other, share)
        total = (1.0 - share) * self.output_gradients
        if other is not None:
            total = total + share * other.output_gradients
        return OuterProducts(self.parameters, self.inputs, total)

    @staticmethod
    def jacobian(rows: Sequence["OuterProducts"]) -> "OuterProductJacobians":
        """Join the gradients of the outputs."""
        gradients = torch.stack([row.output_gradients for row in rows], dim=1)
        return OuterProductJacobians(rows[0].parameters, _exact(rows[0].inputs), _exact(gradients))


@dataclass(frozen=True)
class FormedGradients:
    """Gradients that are there, as tensors of shape (n_records, *shape of the parameter)."""

    parameters: Parameters
    gradients: tuple[torch.Tensor, ...]

    def weighted_sum(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the weighted sum over records."""
        return [torch.tensordot(weights, gradient, dims=1) for gradient in self.gradients]

    def gram(self) -> torch.Tensor:
        """Return the inner products of all pairs of records."""
        flat = [gradient.flatten(1) for gradient in self.gradients]
        return torch.stack([rows @ rows.T for rows in flat]).sum(0)

    def inner(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the inner products of each record with a tensor a parameter."""
        pairs = zip(self.gradients, values, strict=True)
        return torch.stack([rows.flatten(1) @ value.flatten() for rows, value in pairs]).sum(0)

    def formed(self) -> "FormedGradients":
        """Return these gradients."""
        return self

    def plus(self, other: "RecordGradients | None", share: float) -> "FormedGradients":
        """Return ``(1 - share)`` of these gradients and `share` of others of the same records."""
        others = self if other is None else other.formed()
        weight = 0.0 if other is None else share
        pairs = zip(self.gradients, others.gradients, strict=True)
        added = tuple((1.0 - share) * a + weight * b for a, b in pairs)
        return FormedGradients(self.parameters, added)

    @staticmethod
    def jacobian(rows: Sequence["FormedGradients"]) -> "FormedJacobians":
        """Join the gradients of the outputs."""
        of_parameters = zip(*(row.gradients for row in rows), strict=True)
        stacked = tuple(_exact(torch.stack(gradients, dim=1)) for gradients in of_parameters)
        return FormedJacobians(rows[0].parameters, stacked)


@dataclass(frozen=True)
class OuterProductJacobians:
    """Jacobians of the outputs of a linear layer: row r of record i is g_ir a_i' and g_ir."""

    parameters: Parameters
    inputs: torch.Tensor
    output_gradients: torch.Tensor

    @property
    def numbers_per_record(self) -> int:
        """How many numbers are held for each record."""
        return self.inputs[0].numel() + self.output_gradients[0].numel()

    def gram(self) -> torch.Tensor:
        """Return the inner products of the rows: those of g times the square of a."""
        scale = (self.inputs * self.inputs).sum(1)
        if len(self.parameters) == 2:
            scale = scale + 1.0
        return scale[:, None, None] * (self.output_gradients @ self.output_gradients.mT)

    def pulled_back(self, vectors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records of J' c: outer products again, of c'g and a."""
        weighted = (vectors[:, :, None] * self.output_gradients).sum(1)
        return [weighted.T @ self.inputs, weighted.sum(0)][: len(self.parameters)]

    def of_each(self, vectors: torch.Tensor) -> RecordGradients:
        """Return J' c of each record: an outer product of c'g and a."""
        pulled = (vectors[:, :, None] * self.output_gradients).sum(1)
        return OuterProducts(self.parameters, self.inputs, pulled)

    def of_all(self, vectors: torch.Tensor) -> FormedGradients:
        """Return the sums over records, one for each row of `vectors`."""
        pulled = torch.einsum("njk,jku->nju", vectors, self.output_gradients)
        weights = torch.einsum("nju,ji->nui", pulled, self.inputs)
        both = (weights, pulled.sum(1))[: len(self.parameters)]
        return FormedGradients(self.parameters, both)

    def finite(self) -> "OuterProductJacobians":
        """Replace what is not finite."""
        inputs, gradients = self.inputs.nan_to_num(), self.output_gradients.nan_to_num()
        return OuterProductJacobians(self.parameters, inputs, gradients)


@dataclass(frozen=True)
class FormedJacobians:
    """Jacobians that are there, as tensors of shape (n_records, k, *shape of the parameter)."""

    parameters: Parameters
    gradients: tuple[torch.Tensor, ...]

    @property
    def numbers_per_record(self) -> int:
        """How many numbers are held for each record."""
        return sum(gradient[0].numel() for gradient in self.gradients)

    def gram(self) -> torch.Tensor:
        """Return the inner products of the rows."""
        rows = [gradient.flatten(2) for gradient in self.gradients]
        return torch.stack([row @ row.mT for row in rows]).sum(0)

    def pulled_back(self, vectors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records of J' c."""
        return [torch.tensordot(vectors, g, dims=2) for g in self.gradients]

    def of_each(self, vectors: torch.Tensor) -> RecordGradients:
        """Return J' c of each record."""
        formed = tuple(torch.einsum("nk,nk...->n...", vectors, g) for g in self.gradients)
        return FormedGradients(self.parameters, formed)

    def of_all(self, vectors: torch.Tensor) -> FormedGradients:
        """Return the sums over records, one for each row of `vectors`."""
        sums = tuple(torch.tensordot(vectors, g, dims=2) for g in self.gradients)
        return FormedGradients(self.parameters, sums)

    def finite(self) -> "FormedJacobians":
        """Replace what is not finite."""
        return FormedJacobians(self.parameters, tuple(g.nan_to_num() for g in self.gradients))


@dataclass(frozen=True)
class ChunkJacobians:
    """Outputs of each record of a chunk and their Jacobians by all trainable parameters."""

    outputs: torch.Tensor
    parts: list[RecordJacobians]
    numbers_per_record: int


def _exact(values: torch.Tensor) -> torch.Tensor:
    """Return values in double precision, without those of which a square would leave its range."""
    if values.dtype != torch.float64:
        return values.double()
    sizes = values.abs()
    kept = torch.where(sizes < _SMALLEST, 0.0, values)
    return torch.where(sizes > _LARGEST, math.inf, kept)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Keep products from being rounded to half precision or TF32, whatever is set outside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")

# A guess for networks whose inner works we do not see; it only sets the size of chunks.
_ACTIVATIONS_PER_INPUT = 32

Cotangents: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]


# Outputs, the gradients of each vector, and how many activations a record has.
_Pulled: TypeAlias = tuple[torch.Tensor, list[list[RecordGradients]], int]


def record_gradients(
    network: nn.Module, rows: torch.Tensor, cotangents: Cotangents, targets: torch.Tensor
) -> list[list[RecordGradients]]:
    """Pull vectors at the outputs of a network back to its parameters, record by record."""
    return _pull(network, rows, cotangents, targets)[1]


def record_jacobians(
    network: nn.Module, rows: torch.Tensor, cotangents: Cotangents | None = None
) -> ChunkJacobians:
    """Compute the outputs of records and their Jacobians, each record by itself."""
    outputs, gradients, activations = _pull(network, rows, cotangents or _units, rows)
    parts = [type(of_layer[0]).jacobian(of_layer) for of_layer in zip(*gradients, strict=True)]
    held = sum(part.numbers_per_record for part in parts)
    return ChunkJacobians(outputs, parts, held + activations)


def _units(outputs: torch.Tensor, _: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the rows of the identity, which pull back to those of the Jacobian."""
    if outputs.ndim != 2:
        raise ValueError(
            f"The network must map each record to a vector; it returns an array of {outputs.ndim} "
            "axes. Add torch.nn.Flatten() or torch.nn.Unflatten()."
        )
    units = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    return [unit.expand_as(outputs) for unit in units]


def _pull(
    network: nn.Module, rows: torch.Tensor, cotangents: Cotangents, targets: torch.Tensor
) -> _Pulled:
    layers = chain_of_layers(network)
    pulled = None if layers is None else _by_layers(layers, rows, cotangents, targets)
    return _by_torch_func(network, rows, cotangents, targets) if pulled is None else pulled


def record_outputs(network: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Compute the output of each record by itself, without gradients."""
    with torch.no_grad():
        layers = chain_of_layers(network)
        run = None if layers is None else _run_layers(layers, rows)
        if run is not None:
            return run.output
        apart = deepcopy(network)
        outputs: torch.Tensor = vmap(lambda row: apart(row[None])[0], randomness="different")(rows)
    return outputs


def chain_of_layers(network: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a plain chain, or None for any other network.

    A plain chain consists of `torch.nn.Sequential` and of layers of which we know how they use
    their parameters, each parameter once and trainable, and that leave the first axis alone.
    Subclasses, hooks and parametrisations may compute something else, so that the types have to
    match exactly.
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
    """Tell whether anything runs beside the forward method of the layer's class."""
    own = vars(layer)
    return "forward" in own or any([own[f"_{kind}_hooks"] for kind in _HOOKS])


def _is_known(layer: nn.Module) -> bool:
    if _has_hooks(layer) or _reaches_first_axis(layer) or layer._modules:
        return False
    if _has_parameters(layer):
        return type(layer) in _RULES and not _is_unusual_convolution(layer)
    ours = type(layer) in (ToSphere, LatentEncoding)
    return ours or type(layer).__module__.startswith("torch.nn.")


def _has_parameters(layer: nn.Module) -> bool:
    return any([parameter is not None for parameter in layer._parameters.values()])


def _reaches_first_axis(layer: nn.Module) -> bool:
    """Tell whether a layer may work along the axis of records, or merge it with another.

    Negative axes other than the last may be the first, which depends on the input.
    """
    own = vars(layer)
    axis = own.get("start_dim", own.get("dim", 1))
    known = isinstance(axis, int) and (axis > 0 or axis == -1)
    return not known or isinstance(layer, nn.Softmax2d)


def _is_unusual_convolution(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        return False
    return layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)


@dataclass(frozen=True)
class _Run:
    """A chain's output, and input and output of each layer that has parameters."""

    output: torch.Tensor
    layers: list[nn.Module]
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


def _run_layers(layers: list[nn.Module], rows: torch.Tensor) -> _Run | None:
    """Run a chain; None if any layer returns another number of records than it was given.

    A layer behind that would see parts of records, each of which would be clipped by itself.
    """
    run = _Run(rows, [], [], [])
    value = rows
    for layer in layers:
        before = value.detach()
        # What was taped must not be overwritten.
        value = layer(value.clone() if getattr(layer, "inplace", False) else value)
        if value.ndim < 2 or len(value) != len(rows):
            return None
        if type(layer) in _RULES and _has_parameters(layer):
            run.layers.append(layer)
            run.inputs.append(before)
            run.outputs.append(value)
    return replace(run, output=value)


def _by_layers(
    layers: list[nn.Module], rows: torch.Tensor, cotangents: Cotangents, targets: torch.Tensor
) -> _Pulled | None:
    with torch.enable_grad():
        run = _run_layers(layers, rows)
    if run is None:
        return None
    outputs = run.output.detach()
    vectors = cotangents(outputs, targets)
    pulled = []
    for k, vector in enumerate(vectors):
        # Only gradients of activations are computed, since only those are asked for.
        gradients = torch.autograd.grad(
            run.output,
            run.outputs,
            vector,
            retain_graph=k + 1 < len(vectors),
            materialize_grads=True,
        )
        taped = zip(run.layers, run.inputs, gradients, strict=True)
        pulled.append([_RULES[type(layer)](layer, a, g) for layer, a, g in taped])
    held = sum(value[:1].numel() for value in (*run.inputs, *run.outputs))
    return outputs, pulled, held


def _by_torch_func(
    network: nn.Module, rows: torch.Tensor, cotangents: Cotangents, targets: torch.Tensor
) -> _Pulled:
    trainable = {n: p for n, p in network.named_parameters() if p.requires_grad}
    # functional_call does not give a layer that occurs twice its own parameters back.
    network = deepcopy(network)

    def of_one_record(
        values: dict[str, torch.Tensor], row: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
        pulled = vjp(lambda v: functional_call(network, v, (row[None],)), values)
        output, pull_back = pulled[0], pulled[1]
        return output[0], [pull_back(vector)[0] for vector in cotangents(output, target[None])]

    values = {name: parameter.detach() for name, parameter in trainable.items()}
    # Dropout, if any, is drawn anew for each record.
    outputs, pulled = vmap(of_one_record, in_dims=(None, 0, 0), randomness="different")(
        values, rows, targets
    )
    parameters = tuple(trainable.values())
    gradients: list[list[RecordGradients]] = [
        [FormedGradients(parameters, tuple(g.values()))] for g in pulled
    ]
    return outputs.detach(), gradients, _ACTIVATIONS_PER_INPUT * rows[:1].numel()


def _linear(layer: nn.Linear, a: torch.Tensor, g: torch.Tensor) -> RecordGradients:
    if a.ndim == 2:
        return OuterProducts(_parameters(layer), a, g)
    a, g = a.flatten(1, -2), g.flatten(1, -2)
    return _formed(layer, g.transpose(1, 2) @ a, g.sum(1))


def _conv(layer: nn.Conv2d, a: torch.Tensor, g: torch.Tensor) -> RecordGradients:
    return _formed(layer, _kernel_gradients(layer, a, g), g.sum((2, 3)))


def _transposed_conv(
    layer: nn.ConvTranspose2d, a: torch.Tensor, g: torch.Tensor
) -> RecordGradients:
    # A transposed convolution is a convolution from the output to the input.
    return _formed(layer, _kernel_gradients(layer, g, a), g.sum((2, 3)))


def _kernel_gradients(
    layer: nn.Conv2d | nn.ConvTranspose2d, larger: torch.Tensor, smaller: torch.Tensor
) -> torch.Tensor:
    """Return each record's gradient of a kernel, by one convolution with a group a record.

    `larger` is what the convolution reads, `smaller` belongs to what it makes of that.
    """
    n_records = len(larger)
    weights = conv2d_weight(
        larger.flatten(0, 1)[None],
        (n_records * layer.weight.shape[0], *layer.weight.shape[1:]),
        smaller.flatten(0, 1)[None],
        layer.stride,
        cast("tuple[int, ...]", layer.padding),  # texts are not in a plain chain
        layer.dilation,
        groups=n_records,
    )
    return weights.unflatten(0, (n_records, -1))


def _group_norm(layer: nn.GroupNorm, a: torch.Tensor, g: torch.Tensor) -> RecordGradients:
    normal = functional.group_norm(a, layer.num_groups, eps=layer.eps)
    # A channel may be one number, (n, C), or an array, (n, C, ...): one axis for both.
    normal, g = (value.reshape(*value.shape[:2], -1) for value in (normal, g))
    return _formed(layer, (normal * g).sum(2), g.sum(2))


def _layer_norm(layer: nn.LayerNorm, a: torch.Tensor, g: torch.Tensor) -> RecordGradients:
    normal = functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    between = tuple(range(1, a.ndim - len(layer.normalized_shape)))
    products, offsets = normal * g, g
    if between:
        products, offsets = products.sum(between), offsets.sum(between)
    return _formed(layer, products, offsets)


def _formed(layer: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> FormedGradients:
    parameters = _parameters(layer)
    return FormedGradients(parameters, (weight, bias)[: len(parameters)])


def _parameters(layer: nn.Module) -> Parameters:
    """Return weight and, where there is one, offset."""
    return tuple(layer.parameters(recurse=False))


_RULES: dict[type[nn.Module], Callable[..., RecordGradients]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _transposed_conv,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
