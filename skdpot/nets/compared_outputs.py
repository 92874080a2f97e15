"""Maps from the outputs of a network to the values that are compared, in a set centred around 0.

The set is bounded for every network, which bounds the gradient of a comparison.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from skdpot.ot.directions import orthogonal_directions

# Added to a mapped Gram matrix, relative to its factors: exceeds the rounding error where terms
# cancel (`Probabilities.gram`).
_CANCELLED = 1e-10
_LARGEST_OUTPUT = 1e150  # replaces infinity; its square is finite


class ComparedOutputs(ABC):
    """A map from the outputs of a network to the values that are compared.

    Outputs have the shape (n_records, q) and values (n_records, k), with q = k = `n_outputs`. Each
    record is mapped by itself, and its value lies in a bounded set for every output.
    """

    n_outputs: int

    @abstractmethod
    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values, (n_records, k); finite also where outputs are not."""

    @abstractmethod
    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Map gradients by the values, (n_records, k), to gradients by the outputs."""

    @abstractmethod
    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Map Gram matrices of the outputs' Jacobians, (n_records, q, q), to the values'."""

    @abstractmethod
    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw unit directions, (n_directions, k); a single one where k = 1."""

    @abstractmethod
    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the largest distance of a projected value from 0, (n_directions,)."""

    @abstractmethod
    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the length of the interval of projected values, (n_directions,)."""


@dataclass(frozen=True)
class Probabilities(ComparedOutputs):
    """Predicted probability of the second class for one output, or of all classes otherwise."""

    n_outputs: int

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return probabilities minus their mean over the classes."""
        if self.n_outputs == 1:
            return outputs.sigmoid() - 0.5
        return outputs.softmax(1) - 1.0 / self.n_outputs

    def derivatives(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the derivative of sigmoid or softmax, (n_records, k, q)."""
        if self.n_outputs == 1:
            p = outputs.sigmoid()
            return (p * (1.0 - p))[:, :, None]
        p = outputs.softmax(1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Map gradients by the values, (n_records, k), to gradients by the outputs."""
        return torch.einsum("nkq,nk->nq", self.derivatives(outputs), vectors)

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        r"""Map the Gram matrices of the outputs' Jacobians, (n_records, q, q), to the values'.

        If all outputs move by the same amount, probabilities hardly change: :math:`D G D^\top` is
        then a small difference of large numbers, with a rounding error as large as that of
        :math:`D^\top w`. Adding :math:`10^{-10} \|D\|^2 \operatorname{tr} G` to the diagonal
        exceeds both errors, and is negligible where nothing cancels.
        """
        derivatives = self.derivatives(outputs)
        traces = gram.diagonal(dim1=1, dim2=2).sum(1)
        room = _CANCELLED * derivatives.square().sum((1, 2)) * traces
        mapped = derivatives @ gram @ derivatives.transpose(1, 2)
        return mapped + torch.diag_embed(room[:, None].expand(-1, gram.shape[1]))

    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw directions that sum to zero: along (1, ..., 1) probabilities are constant."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        n_free = self.n_outputs - 1
        # An orthonormal basis of the vectors that sum to zero.
        basis = np.linalg.svd(np.ones((1, self.n_outputs)))[2][1:]
        return orthogonal_directions(n_projections, n_free, rng) @ basis

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the range of the projected corners of the simplex, one corner per class."""
        if self.n_outputs == 1:
            return np.ones(1)
        return directions.max(axis=1) - directions.min(axis=1)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the largest absolute entry of each centred direction."""
        if self.n_outputs == 1:
            return np.full(1, 0.5)
        centred = directions - directions.mean(axis=1, keepdims=True)
        return np.abs(centred).max(axis=1)


@dataclass(frozen=True)
class ClippedOutputs(ComparedOutputs):
    """Outputs shortened to a ball; as in the paper, the Jacobian of the shortening is ignored."""

    n_outputs: int
    radius: float

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the nearest points of the ball; 0 for NaN."""
        finite = outputs.nan_to_num(nan=0.0, posinf=_LARGEST_OUTPUT, neginf=-_LARGEST_OUTPUT)
        norms = finite.norm(dim=1, keepdim=True)
        return finite / (norms / self.radius).clamp(min=1.0)

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the vectors unchanged."""
        return vectors

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the Gram matrices of the outputs unchanged."""
        return gram

    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw orthogonal blocks of directions."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        return orthogonal_directions(n_projections, self.n_outputs, rng)

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the diameter 2M."""
        return 2.0 * self.half_widths(directions)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the radius M."""
        return np.full(len(directions), self.radius)
