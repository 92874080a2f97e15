r"""How far the outputs of groups are apart, as a penalty whose gradient can be private.

Records are divided into *cells*, which are public. Cells that are to have the same distribution of
outputs form a *stratum*: all groups (demographic parity), or the groups within one class (equalised
odds). The penalty is

.. math:: \frac{1}{Q} \sum_{q=1}^Q \frac{2}{K (K - 1)} \sum_{a < b}
          SW_2^2\left(P_{q,a}, P_{q,b}\right)

over the Q strata and the pairs of their K cells (for two groups: equations 5 and 6 of the paper).
What is compared lies in a bounded set whatever the network computes, which bounds the gradient.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from skdpot.nets.wasserstein_gradient import moving_side_sensitivity, pulls_between
from skdpot.slicing.directions import orthogonal_directions

__all__ = ["Cells", "ClippedOutputs", "ComparedOutputs", "ParityPenalty", "Probabilities"]


_ROUNDING = 1.0 + 1e-12  # 0.29 * 100 is a little less than 29


@dataclass(frozen=True, eq=False)
class Cells:
    """How the records are divided, and which parts are to have alike outputs."""

    codes: np.ndarray
    sizes: tuple[int, ...]
    strata: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each cell."""
        return tuple(np.flatnonzero(self.codes == cell) for cell in range(len(self.sizes)))

    def batch_sizes(self, fraction: float, *, parameter: str = "batch_fraction") -> tuple[int, ...]:
        """Return how many records a batch takes of each cell: ``floor(fraction * size)``.

        `parameter` is what the message names, if that is none.
        """
        taken = tuple(min(n, math.floor(fraction * n * _ROUNDING)) for n in self.sizes)
        for name, size, count in zip(self.names, self.sizes, taken, strict=True):
            if count < 1:
                raise ValueError(
                    f"sensitive_features: group {name} has {size} "
                    f"{'row' if size == 1 else 'rows'}, of which a batch takes {fraction:.3g}, "
                    f"which is less than one row. Choose a larger {parameter} (at least "
                    f"{1.0 / max(size, 1):.3g} of the rows), or merge small groups."
                )
        return taken

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(other for other in stratum if other != cell)


_CANCELLED = 1e-10


class ComparedOutputs(ABC):
    """A map from a network's outputs to values in a bounded set."""

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
    """Predicted probabilities: of the second class for one output, of all classes otherwise."""

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
    """Outputs shortened to a ball; the Jacobian stays that of the network, as in the paper."""

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


@dataclass(frozen=True)
class ParityPenalty:
    """Mean squared sliced Wasserstein distance between the cells of each stratum."""

    strata: tuple[tuple[int, ...], ...]
    batch_sizes: tuple[int, ...]

    @property
    def pair_weight(self) -> float:
        """Weight of the distance between two cells of a stratum."""
        n_cells = len(self.strata[0])
        return 2.0 / (n_cells * (n_cells - 1) * len(self.strata))

    def sensitivity(self, width: float, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, under replace-one within its cell.

        The record occurs in K − 1 pairs, each of which it moves by at most :math:`4 r L / n_c`
        (`moving_side_sensitivity` with :math:`L_1 = L_2 = L`), where :math:`n_c` is the number of
        records of its cell in the batch. With the weight of a pair that is
        :math:`\frac{2}{K Q} \cdot \frac{4 r L}{\min_c n_c}`.
        """
        compared = [self.batch_sizes[cell] for stratum in self.strata for cell in stratum]
        n_pairs = len(self.strata[0]) - 1
        of_a_pair = moving_side_sensitivity(width, clip_jacobian, clip_jacobian) / min(compared)
        return self.pair_weight * n_pairs * of_a_pair

    def vectors(self, outputs: Sequence[np.ndarray], directions: np.ndarray) -> list[np.ndarray]:
        """Return the gradient of the penalty with respect to each output."""
        vectors = [np.zeros(of_cell.shape) for of_cell in outputs]
        for stratum in self.strata:
            pulls = pulls_between([outputs[cell] for cell in stratum], directions)
            for cell, pull in zip(stratum, pulls, strict=True):
                vectors[cell] = self.pair_weight * pull
        return vectors
