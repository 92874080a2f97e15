"""What single records add to a sum of clipped gradients, without a sum over them.

The attacks on networks need the inner products of all candidates' gradients with each other and
with what was released. The gradient of a linear layer is an outer product, whose inner products
take a few numbers a record: it is never formed.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpot.nets.gradient_parts import (
    FormedGradients,
    FormedJacobians,
    OuterProductJacobians,
    OuterProducts,
    RecordGradients,
    RecordJacobians,
    full_precision,
)
from skdpot.nets.output_gradients import ClippedVectors, shares_of_jacobians
from skdpot.nets.per_sample import Cotangents, record_jacobians

__all__ = [
    "Contributions",
    "at_parameters",
    "gradients_by_parameter",
    "of_clipped_gradients",
    "of_vectors",
    "pulled_apart",
    "pulled_together",
]

ByParameter = Mapping[nn.Parameter, torch.Tensor]


@dataclass(frozen=True)
class Contributions:
    """The vectors that records add to a sum, layer by layer.

    Parameters
    ----------
    parts : tuple of RecordGradients
        For disjoint parameters.
    """

    parts: tuple[RecordGradients, ...]

    def gram(self) -> np.ndarray:
        """Return the inner products of all vectors, shape (n_records, n_records)."""
        total = sum(_part_gram(part) for part in self.parts)
        return torch.as_tensor(total).numpy()

    def inner(self, released: ByParameter) -> np.ndarray:
        """Return the inner products with a released gradient, shape (n_records,)."""
        total = sum(_part_inner(part, released) for part in self.parts)
        return torch.as_tensor(total).numpy()

    def plus(self, other: "Contributions") -> "Contributions":
        """Add vectors of the same records, which may be for some of the parameters only."""
        added = {id(part.parameters[0]): part for part in other.parts}
        return Contributions(
            tuple(_sum(part, added.get(id(part.parameters[0]))) for part in self.parts)
        )

    def times(self, factor: float) -> "Contributions":
        """Multiply all vectors."""
        return Contributions(tuple(_scaled(part, factor) for part in self.parts))

    def take(self, places: np.ndarray) -> "Contributions":
        """Return the vectors of some records."""
        index = torch.from_numpy(places)
        return Contributions(tuple(_taken(part, index) for part in self.parts))

    def weighted_sum(self, weights: np.ndarray) -> dict[nn.Parameter, torch.Tensor]:
        """Sum the vectors, each times its weight."""
        given = torch.from_numpy(weights)
        total: dict[nn.Parameter, torch.Tensor] = {}
        for part in self.parts:
            total.update(zip(part.parameters, part.weighted_sum(given), strict=True))
        return total

    def vectors(self) -> np.ndarray:
        """Form the vectors, shape (n_records, n_parameters): for small networks."""
        formed = [g.flatten(1) for part in self.parts for g in _formed(part).gradients]
        return torch.cat(formed, dim=1).numpy()


def at_parameters(network: nn.Module, parameters: Sequence[np.ndarray]) -> nn.Module:
    """Return a copy of a network, on the CPU, with recorded parameters in their precision."""
    copy = deepcopy(network).cpu().eval()
    copy.to(torch.from_numpy(parameters[0]).dtype)
    trained = [parameter for parameter in copy.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter, value in zip(trained, parameters, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return copy


def gradients_by_parameter(
    network: nn.Module, gradients: Sequence[np.ndarray]
) -> dict[nn.Parameter, torch.Tensor]:
    """Give recorded gradients to the parameters of such a copy, in double precision."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return {
        parameter: torch.from_numpy(value).double()
        for parameter, value in zip(trained, gradients, strict=True)
    }


def of_vectors(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    cotangents: Cotangents | None = None,
) -> Contributions:
    """Return what `skdpot.nets.output_gradients.pulled_back_sum` sums over."""
    with full_precision(rows.device):
        jacobians = record_jacobians(network, rows, cotangents)
    outputs = jacobians.outputs.double()
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    chosen = vectors(outputs, gram, slice(0, len(rows)))
    return Contributions(tuple(pulled_apart(part, chosen.double()) for part in jacobians.parts))


def of_clipped_gradients(
    network: nn.Module,
    rows: torch.Tensor,
    output_gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    clip: float,
) -> Contributions:
    """Return what `skdpot.nets.output_gradients.clipped_gradient_sum` sums over."""
    return of_vectors(
        network,
        rows,
        lambda _, gram, __: shares_of_jacobians(gram, clip)[:, None],
        lambda outputs, rows: [output_gradient(outputs, rows)],
    )


def pulled_apart(part: RecordJacobians, vectors: torch.Tensor) -> RecordGradients:
    """Multiply each record's Jacobian with its vector, in double precision."""
    if isinstance(part, OuterProductJacobians):
        pulled = (vectors[:, :, None] * part.output_gradients).sum(1)
        return OuterProducts(part.parameters, part.inputs, pulled)
    if not isinstance(part, FormedJacobians):
        raise TypeError(f"Unknown kind of Jacobians: {type(part).__name__}.")
    formed = tuple(torch.einsum("nk,nk...->n...", vectors, g) for g in part.gradients)
    return FormedGradients(part.parameters, formed)


def pulled_together(part: RecordJacobians, vectors: torch.Tensor) -> RecordGradients:
    """Sum the Jacobians of m inputs times vectors of shape (n_records, m, k), for each record."""
    if isinstance(part, OuterProductJacobians):
        pulled = torch.einsum("njk,jku->nju", vectors, part.output_gradients)
        weights = torch.einsum("nju,ji->nui", pulled, part.inputs)
        both = (weights, pulled.sum(1))[: len(part.parameters)]
        return FormedGradients(part.parameters, both)
    if not isinstance(part, FormedJacobians):
        raise TypeError(f"Unknown kind of Jacobians: {type(part).__name__}.")
    formed = tuple(torch.tensordot(vectors, g, dims=2) for g in part.gradients)
    return FormedGradients(part.parameters, formed)


def _formed(part: RecordGradients) -> FormedGradients:
    if isinstance(part, OuterProducts):
        weights = part.output_gradients[:, :, None] * part.inputs[:, None, :]
        both = (weights, part.output_gradients)[: len(part.parameters)]
        return FormedGradients(part.parameters, both)
    if not isinstance(part, FormedGradients):
        raise TypeError(f"Unknown kind of gradients: {type(part).__name__}.")
    return part


def _part_gram(part: RecordGradients) -> torch.Tensor:
    if isinstance(part, OuterProducts):
        inputs = part.inputs @ part.inputs.T + float(len(part.parameters) - 1)
        return inputs * (part.output_gradients @ part.output_gradients.T)
    flat = [gradient.flatten(1) for gradient in _formed(part).gradients]
    return torch.stack([rows @ rows.T for rows in flat]).sum(0)


def _part_inner(part: RecordGradients, released: ByParameter) -> torch.Tensor:
    of_part = [released[parameter] for parameter in part.parameters]
    if isinstance(part, OuterProducts):
        inner = ((part.output_gradients @ of_part[0]) * part.inputs).sum(1)
        return inner + part.output_gradients @ of_part[1] if len(of_part) == 2 else inner
    pairs = zip(_formed(part).gradients, of_part, strict=True)
    return torch.stack([rows.flatten(1) @ value.flatten() for rows, value in pairs]).sum(0)


def _sum(part: RecordGradients, other: RecordGradients | None) -> RecordGradients:
    if other is None:
        return part
    if isinstance(part, OuterProducts) and isinstance(other, OuterProducts):  # of one layer
        total = part.output_gradients + other.output_gradients
        return OuterProducts(part.parameters, part.inputs, total)
    pairs = zip(_formed(part).gradients, _formed(other).gradients, strict=True)
    return FormedGradients(part.parameters, tuple(a + b for a, b in pairs))


def _scaled(part: RecordGradients, factor: float) -> RecordGradients:
    if isinstance(part, OuterProducts):
        return OuterProducts(part.parameters, part.inputs, factor * part.output_gradients)
    gradients = tuple(factor * gradient for gradient in _formed(part).gradients)
    return FormedGradients(part.parameters, gradients)


def _taken(part: RecordGradients, index: torch.Tensor) -> RecordGradients:
    if isinstance(part, OuterProducts):
        gradients = part.output_gradients[index]
        return OuterProducts(part.parameters, part.inputs[index], gradients)
    return FormedGradients(part.parameters, tuple(g[index] for g in _formed(part).gradients))
