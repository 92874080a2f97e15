"""What of a network's outputs is compared between groups: probabilities, or clipped outputs.

A compared value lies in a bounded set whatever the network computes, which is what bounds the
gradient of a Wasserstein distance. All tensors are in double precision.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from skdpot.slicing.directions import orthogonal_directions

__all__ = ["ClippedOutputs", "ComparedOutputs", "Probabilities"]

_CANCELLED = 1e-10


class ComparedOutputs(ABC):
    """A map from a network's outputs to values in a bounded set.

    Attributes
    ----------
    n_outputs : int
        Outputs q of the network a record.
    """

    n_outputs: int

    @abstractmethod
    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values of each record, shape (n_records, k), centred around 0."""

    @abstractmethod
    def derivatives(self, outputs: torch.Tensor) -> torch.Tensor | None:
        """Return each record's derivative of the values by the outputs, (n_records, k, q).

        None is the identity.
        """

    @abstractmethod
    def directions(self, n_slices: int, rng: np.random.Generator) -> np.ndarray:
        """Draw unit directions, shape (n_slices, k); a single one where there is only one."""

    @abstractmethod
    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the width of the interval that values project to, for each direction."""

    @abstractmethod
    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return how far from 0 projections can be, for each direction."""

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Map gradients by the values, (n_records, k), to gradients by the outputs."""
        derivatives = self.derivatives(outputs)
        return vectors if derivatives is None else torch.einsum("nkq,nk->nq", derivatives, vectors)

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        r"""Map the Gram matrices of the outputs' Jacobians, (n_records, q, q), to the values'.

        Where all outputs move together, probabilities hardly do: what is left of
        :math:`D G D^\top` is then a difference of large numbers, and :math:`D^\top w` errs by as
        much. So the diagonal has :math:`10^{-10} \|D\|^2 \operatorname{tr} G` on top, which is
        more than either error, and nothing beside the rest where nothing cancels.
        """
        derivatives = self.derivatives(outputs)
        if derivatives is None:
            return gram
        traces = gram.diagonal(dim1=1, dim2=2).sum(1)
        room = _CANCELLED * derivatives.square().sum((1, 2)) * traces
        mapped = derivatives @ gram @ derivatives.transpose(1, 2)
        return mapped + torch.diag_embed(room[:, None].expand(-1, gram.shape[1]))


@dataclass(frozen=True)
class Probabilities(ComparedOutputs):
    """Predicted probabilities: of the second class for one output, of all classes otherwise.

    Parameters
    ----------
    n_outputs : int
        1, the logit of the second of two classes, or the number of classes Q > 2.
    """

    n_outputs: int

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return probabilities less their mean over the classes."""
        if self.n_outputs == 1:
            return outputs.sigmoid() - 0.5
        return outputs.softmax(1) - 1.0 / self.n_outputs

    def derivatives(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the derivative of sigmoid or softmax."""
        if self.n_outputs == 1:
            p = outputs.sigmoid()
            return (p * (1.0 - p))[:, :, None]
        p = outputs.softmax(1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def directions(self, n_slices: int, rng: np.random.Generator) -> np.ndarray:
        """Draw directions that sum to zero: along the others probabilities do not differ."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        n_free = self.n_outputs - 1
        # An orthonormal basis of the vectors that sum to zero.
        basis = np.linalg.svd(np.ones((1, self.n_outputs)))[2][1:]
        return orthogonal_directions(n_slices, n_free, rng) @ basis

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the largest less the smallest entry: the corners are the classes."""
        if self.n_outputs == 1:
            return np.ones(1)
        widths: np.ndarray = directions.max(axis=1) - directions.min(axis=1)
        return widths

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the size of the largest entry, less the mean of the entries."""
        if self.n_outputs == 1:
            return np.full(1, 0.5)
        centred = directions - directions.mean(axis=1, keepdims=True)
        half_widths: np.ndarray = np.abs(centred).max(axis=1)
        return half_widths


@dataclass(frozen=True)
class ClippedOutputs(ComparedOutputs):
    """Outputs shortened to a ball; the Jacobian stays that of the network, as in the paper.

    Parameters
    ----------
    n_outputs : int
        Outputs k of the network.
    radius : float
        M, the largest norm of a value.
    """

    n_outputs: int
    radius: float

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the nearest points of the ball; 0 for what is not a number."""
        finite = outputs.nan_to_num(nan=0.0, posinf=1e150, neginf=-1e150)
        norms = finite.norm(dim=1, keepdim=True)
        return finite / (norms / self.radius).clamp(min=1.0)

    def derivatives(self, outputs: torch.Tensor) -> None:
        """Return None: vectors pass the projection unchanged."""
        return

    def directions(self, n_slices: int, rng: np.random.Generator) -> np.ndarray:
        """Draw orthogonal blocks of directions."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        return orthogonal_directions(n_slices, self.n_outputs, rng)

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the diameter 2M."""
        return np.full(len(directions), 2.0 * self.radius)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the radius M."""
        return np.full(len(directions), self.radius)
