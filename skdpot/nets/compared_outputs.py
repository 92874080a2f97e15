"""TODO: compared_outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from skdpot.nets.output_tables import (
    _ROUNDED_UP,
)
from skdpot.ot.slices import orthogonal_directions
from skdpot.ot.transport import pulls_between

_CANCELLED = 1e-10


@dataclass(frozen=True)
class Probabilities:
    """Predicted probabilities: of the second class for one output, of all classes otherwise."""

    n_outputs: int

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return probabilities less their mean over the classes."""
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

        Where all outputs move together, probabilities hardly do: what is left of
        :math:`D G D^\top` is then a difference of large numbers, and :math:`D^\top w` errs by as
        much. So the diagonal has :math:`10^{-10} \|D\|^2 \operatorname{tr} G` on top, which is
        more than either error, and nothing beside the rest where nothing cancels.
        """
        derivatives = self.derivatives(outputs)
        traces = gram.diagonal(dim1=1, dim2=2).sum(1)
        room = _CANCELLED * derivatives.square().sum((1, 2)) * traces
        mapped = derivatives @ gram @ derivatives.transpose(1, 2)
        return mapped + torch.diag_embed(room[:, None].expand(-1, gram.shape[1]))

    def directions(self, n_projections: int, rng: np.random.Generator) -> np.ndarray:
        """Draw directions that sum to zero: along the others probabilities do not differ."""
        if self.n_outputs == 1:
            return np.ones((1, 1))
        n_free = self.n_outputs - 1
        # An orthonormal basis of the vectors that sum to zero.
        basis = np.linalg.svd(np.ones((1, self.n_outputs)))[2][1:]
        return orthogonal_directions(n_projections, n_free, rng) @ basis

    def widths(self, directions: np.ndarray) -> np.ndarray:
        """Return the widths of the intervals that values project to: the corners are classes."""
        if self.n_outputs == 1:
            return np.ones(1)
        return directions.max(axis=1) - directions.min(axis=1)

    def half_widths(self, directions: np.ndarray) -> np.ndarray:
        """Return how far from 0 projections can be: the largest entry, less their mean."""
        if self.n_outputs == 1:
            return np.full(1, 0.5)
        centred = directions - directions.mean(axis=1, keepdims=True)
        return np.abs(centred).max(axis=1)


@dataclass(frozen=True)
class ClippedOutputs:
    """Outputs shortened to a ball; the Jacobian stays that of the network, as in the paper."""

    n_outputs: int
    radius: float

    def values(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the nearest points of the ball; 0 for what is not a number."""
        finite = outputs.nan_to_num(nan=0.0, posinf=1e150, neginf=-1e150)
        norms = finite.norm(dim=1, keepdim=True)
        return finite / (norms / self.radius).clamp(min=1.0)

    def pull_back(self, vectors: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the vectors, which pass the projection unchanged."""
        return vectors

    def gram(self, gram: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the Gram matrices of the outputs."""
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


# A map from a network's outputs to values, centred around 0, in a bounded set.
ComparedOutputs: TypeAlias = Probabilities | ClippedOutputs


def fixed_side_sensitivity(
    radius: float, clip_jacobian: float, n_projections: int, directions_norm: float
) -> float:
    r"""Bound how far a record of the *fixed* side moves the gradient, times n.

    Notation as in `skdpot.ot.transport.pulls_between`. Let the n points :math:`U_i` be private, in
    a ball of radius R, and let the Jacobians of the other side have a spectral norm of at most L;
    they do not depend on the points.

    Replacing u by u' moves one value of a sample along each direction. Its sorted values then
    all move the same way, by :math:`|\langle\theta, u - u'\rangle|` in sum (the W₁ distance of
    the two samples, times n). Of that, rank i passes the share :math:`R_{ij}` on to output j,
    and :math:`\sum_j R_{ij} = 1/n`. Hence

    .. math:: n \|\Delta G\| \le n L \sum_j \|\Delta w_j\|
              \le \frac{2 L}{S} \sum_\theta |\langle\theta, u - u'\rangle|
              \le \frac{2 L}{\sqrt S} \|\Theta (u - u')\|
              \le 4 R L \min\left(1, \frac{\|\Theta\|_2}{\sqrt S}\right)

    by Cauchy-Schwarz, and since directions are unit vectors. Whole orthogonal blocks have
    :math:`\|\Theta\|_2 = \sqrt{S / d}`: a factor :math:`\sqrt d` less than :math:`4RL`, which is
    the bound of the paper with :math:`L_1 = 0`. It is attained: one block of d directions,
    :math:`u - u'` along their sum, all other points equal to u', and outputs of which another
    one is the last along each direction.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, theorem A.1 with L₁ = 0.
    """
    share = min(1.0, directions_norm / math.sqrt(n_projections))
    return 4.0 * radius * clip_jacobian * share * _ROUNDED_UP


def moving_side_sensitivity(width: float, clip_own: float, clip_other: float) -> float:
    r"""Bound how far a record moves the gradient, times n, when its own side moves too.

    Let all projections lie in an interval of width r, let :math:`L_1` bound the Jacobians on the
    side of the record, which has n outputs, and :math:`L_2` those of the other side. Replacing
    u by u', without loss of generality :math:`u \le u'`, changes

    - the record's own term, before and after: at most
      :math:`\frac{2 L_1}{n} (|u - v| + |u' - v'|)`, where v and v' are what it is matched with;
    - the terms of the records between, each of which moves down by one rank; their matched
      values move by :math:`v' - v` in sum: at most :math:`\frac{2 L_1}{n} (v' - v)`;
    - the other side, as in `fixed_side_sensitivity`: at most :math:`\frac{2 L_2}{n} (u' - u)`.

    The sum is convex in (u, u', v, v'), so it is largest at a corner of
    :math:`0 \le u \le u' \le r,\ 0 \le v \le v' \le r`: where u = u' and v' - v = r it is
    :math:`4 r L_1 / n`; where u' - u = r it is at most
    :math:`2 r (L_1 + L_2) / n`. Ranks must come from a stable sort.
    """
    return 2.0 * width * max(2.0 * clip_own, clip_own + clip_other) * _ROUNDED_UP


@dataclass(frozen=True)
class ParityPenalty:
    r"""Squared sliced Wasserstein distances between the cells of each stratum.

    Over the Q strata and the pairs of their K cells (for two groups: equations 5 and 6 of the
    paper) it is

    .. math:: \frac{1}{Q} \sum_{q=1}^Q \frac{4}{K^2} \sum_{a < b}
              SW_2^2\left(P_{q,a}, P_{q,b}\right).

    Cells that differ by shifts have :math:`4 / K` times the sum of their squared distances to the
    barycentre: for any K a cell is pulled there with the same force.
    """

    strata: tuple[tuple[int, ...], ...]
    batch_sizes: tuple[int, ...]

    @property
    def pair_weight(self) -> float:
        """Weight of the distance between two cells of a stratum."""
        n_cells = len(self.strata[0])
        return 4.0 / (n_cells**2 * len(self.strata))

    def sensitivity(self, width: float, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, under replace-one within its cell.

        The record occurs in K − 1 pairs, each of which it moves by at most :math:`4 r L / n_c`
        (`moving_side_sensitivity` with :math:`L_1 = L_2 = L`), where :math:`n_c` is the number of
        records of its cell in the batch. With the weight of a pair that is
        :math:`\frac{4 (K - 1)}{K^2 Q} \cdot \frac{4 r L}{\min_c n_c}`.
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
