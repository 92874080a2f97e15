"""The gradients of the records of a chunk, held so that they can be measured and added.

A gradient is with respect to all trained parameters of a network. It comes in parts, one for the
parameters of each layer. The rows of a record's Jacobian are gradients too: of one output each.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

__all__ = [
    "ChunkJacobians",
    "FormedGradients",
    "FormedJacobians",
    "OuterProductJacobians",
    "OuterProducts",
    "Parameters",
    "RecordGradients",
    "RecordJacobians",
    "full_precision",
    "zero_sums",
]

Parameters: TypeAlias = tuple[nn.Parameter, ...]

_SMALLEST, _LARGEST = 1e-60, 1e60


class RecordGradients(ABC):
    """Gradients, for some parameters, of each record of a chunk.

    Attributes
    ----------
    parameters : tuple of torch.nn.Parameter
        What the gradients are with respect to.
    """

    parameters: Parameters

    @abstractmethod
    def weighted_sum(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records, each times its weight, a tensor a parameter."""

    @staticmethod
    @abstractmethod
    def jacobian(rows: Sequence[Any]) -> "RecordJacobians":
        """Join the gradients of the k outputs, of this type and for the same parameters."""


class RecordJacobians(ABC):
    """Jacobians of k outputs, for some parameters, of each record of a chunk.

    All numbers are in double precision. It holds the products of two single-precision numbers
    exactly, so that only additions round, and the squares of all of them: none underflows. Of
    networks in double precision entries below 1e-60 count as zero and those beyond 1e60 as
    infinite, so that no product of four leaves the range either.

    Attributes
    ----------
    parameters : tuple of torch.nn.Parameter
        What the outputs are differentiated by.
    """

    parameters: Parameters

    @property
    @abstractmethod
    def numbers_per_record(self) -> int:
        """How many numbers are held for each record."""

    @abstractmethod
    def gram(self) -> torch.Tensor:
        """Return :math:`J_i J_i^T` of each record, of shape (n_records, k, k)."""

    @abstractmethod
    def pulled_back(self, vectors: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum over records of :math:`J_i^T c_i`, a tensor a parameter.

        `vectors` has shape (n_records, k).
        """

    @abstractmethod
    def finite(self) -> "RecordJacobians":
        """Return the same with what is not a finite number replaced."""


@dataclass(frozen=True)
class OuterProducts(RecordGradients):
    """Gradients of a linear layer: g_i a_i' for the weights, g_i for the offset."""

    parameters: Parameters
    inputs: torch.Tensor
    output_gradients: torch.Tensor

    def weighted_sum(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the weighted sum over records."""
        weighted = self.output_gradients * weights[:, None]
        return [weighted.T @ self.inputs, weighted.sum(0)][: len(self.parameters)]

    @staticmethod
    def jacobian(rows: Sequence["OuterProducts"]) -> "OuterProductJacobians":
        """Join the gradients of the outputs."""
        gradients = torch.stack([row.output_gradients for row in rows], dim=1)
        return OuterProductJacobians(rows[0].parameters, _exact(rows[0].inputs), _exact(gradients))


@dataclass(frozen=True)
class FormedGradients(RecordGradients):
    """Gradients that are there, as tensors of shape (n_records, *shape of the parameter)."""

    parameters: Parameters
    gradients: tuple[torch.Tensor, ...]

    def weighted_sum(self, weights: torch.Tensor) -> list[torch.Tensor]:
        """Return the weighted sum over records."""
        return [torch.tensordot(weights, gradient, dims=1) for gradient in self.gradients]

    @staticmethod
    def jacobian(rows: Sequence["FormedGradients"]) -> "FormedJacobians":
        """Join the gradients of the outputs."""
        of_parameters = zip(*(row.gradients for row in rows), strict=True)
        stacked = tuple(_exact(torch.stack(gradients, dim=1)) for gradients in of_parameters)
        return FormedJacobians(rows[0].parameters, stacked)


@dataclass(frozen=True)
class OuterProductJacobians(RecordJacobians):
    """Jacobians of the outputs of a linear layer: row r of record i is g_ir a_i' and g_ir.

    Parameters
    ----------
    parameters : tuple of torch.nn.Parameter
        Weights and, where there is one, offset.
    inputs : tensor of shape (n_records, n_inputs)
        a_i.
    output_gradients : tensor of shape (n_records, k, n_units)
        g_ir.
    """

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

    def finite(self) -> "OuterProductJacobians":
        """Replace what is not finite."""
        inputs, gradients = self.inputs.nan_to_num(), self.output_gradients.nan_to_num()
        return OuterProductJacobians(self.parameters, inputs, gradients)


@dataclass(frozen=True)
class FormedJacobians(RecordJacobians):
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

    def finite(self) -> "FormedJacobians":
        """Replace what is not finite."""
        return FormedJacobians(self.parameters, tuple(g.nan_to_num() for g in self.gradients))


@dataclass(frozen=True)
class ChunkJacobians:
    """Outputs of each record of a chunk and their Jacobians by all trainable parameters.

    Attributes
    ----------
    outputs : tensor of shape (n_records, k)
        Detached.
    parts : list of RecordJacobians
        For disjoint parameters that together are all trainable ones.
    numbers_per_record : int
        About how many numbers a record takes in memory.
    """

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


def zero_sums(network: nn.Module) -> dict[nn.Parameter, torch.Tensor]:
    """Return a zero for every trainable parameter, in double precision."""
    trained = (parameter for parameter in network.parameters() if parameter.requires_grad)
    return {p: torch.zeros_like(p, dtype=torch.float64, requires_grad=False) for p in trained}


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
