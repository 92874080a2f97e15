r"""Gradients of the Wasserstein distance between a network's outputs and a set of points.

Let :math:`V_j` be the outputs for m inputs and :math:`U_i` a set of n points, projected on a
direction and ranked, and :math:`R_{ij}` the length of the overlap of
:math:`(\frac{i-1}{n}, \frac{i}{n}]` and :math:`(\frac{j-1}{m}, \frac{j}{m}]`. Then

.. math:: W_2^2 = \sum_{ij} R_{ij} (V_{(j)} - U_{(i)})^2, \qquad
          \nabla W_2^2 = 2 \sum_{ij} R_{ij} (V_{(j)} - U_{(i)}) J_{(j)}^\top \theta,

with the Jacobian :math:`J_j` of the output :math:`g(z_j)` by the parameters. Averaged over S
directions this is :math:`\sum_j J_j^\top w_j`. The functions here return the vectors w of one
side, and say how far one replaced record moves the gradient when Jacobians are clipped. All
sums are for the gradient *times the number of records* of the side that is private.

`ParityPenalty` tells how far the outputs of groups are apart; its gradient can be private.

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
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from scipy import sparse

from skdpot.ot.slices import orthogonal_directions

_ROUNDED_UP = 1.0 + 1e-12  # also of counts: 0.29 * 100 is a little less than 29
_NUMBERS = 2**15  # sorted at the same time


@dataclass(frozen=True, eq=False)
class RankedProjections:
    """Points projected on directions and sorted."""

    ordered: np.ndarray
    order: np.ndarray


def matched_means(ordered: np.ndarray, m: int) -> np.ndarray:
    """Average sorted points over the m equal parts that they are matched with."""
    n = ordered.shape[-1]
    if n == m:
        return ordered
    means: np.ndarray = (
        rank_coupling(n, m).astype(ordered.dtype, copy=False) @ ordered.reshape(-1, n).T
    ).T
    return means.reshape(*ordered.shape[:-1], m)


@cache
def rank_coupling(n: int, m: int) -> sparse.csr_array:
    """Return the overlaps of the m and n equal parts of an interval, as shares of one of the m."""
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    start, mass = levels[:-1], np.diff(levels) / (n * m)
    return sparse.csr_array((m * mass, (start // n, start // m)), shape=(m, n))


def ranked_projections(points: np.ndarray, directions: np.ndarray) -> RankedProjections:
    """Project points on directions and sort them, ties by position.

    The sensitivities below need the order of the other points to stay as it is when one point is
    replaced, and clipped outputs are full of ties. Here a point's key is its projection with
    its position in the last bits (for 3,000 points 12 of 64). No two keys are alike, so that
    every way of sorting has the same result, the fastest one included.
    """
    projected = np.ascontiguousarray(directions.astype(np.float64) @ points.T.astype(np.float64))
    m = projected.shape[1]
    position = np.int64((1 << (m - 1).bit_length()) - 1)
    keys = _sortable(projected.view(np.int64))
    keys &= ~position
    keys |= np.arange(m)
    keys.sort(axis=1)
    order = keys & position
    values = _sortable(keys)
    values &= ~position
    return RankedProjections(values.view(np.float64), order)


def _sortable(bits: np.ndarray) -> np.ndarray:
    """Map the bits of floats to integers of the same order; its own inverse."""
    flipped = bits >> np.int64(63)
    flipped &= np.int64(2**63 - 1)
    flipped ^= bits
    return flipped


def pulls_between(
    samples: Sequence[np.ndarray], directions: np.ndarray, *, n_moving: int | None = None
) -> list[np.ndarray]:
    """Return the gradients of the summed distances of samples to each other."""
    moving = samples[:n_moving]
    vectors = [np.zeros(sample.shape) for sample in moving]
    at_once = max(1, _NUMBERS // max(map(len, samples)))
    # A few directions at a time, so that everything stays in the processor's cache. Each sample
    # is sorted once a direction, whatever the number of samples that it is compared with.
    for start in range(0, len(directions), at_once):
        block = directions[start : start + at_once]
        ranked = [ranked_projections(sample, block) for sample in samples]
        for c, total in enumerate(vectors):
            others = [ranked[b].ordered for b in range(len(samples)) if b != c]
            total += _gaps(ranked[c], others).T @ block
    for sample, total in zip(moving, vectors, strict=True):
        total *= 2.0 / (len(directions) * len(sample))
    return vectors


def _gaps(own: RankedProjections, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return how far each projection is from what it is matched with, in the points' order."""
    n_directions, m = own.ordered.shape
    gaps = own.ordered * len(others)
    for other in others:
        gaps -= matched_means(other, m)
    places = own.order + m * np.arange(n_directions)[:, None]
    in_order = np.empty(gaps.size)
    in_order[places.ravel()] = gaps.ravel()
    return in_order.reshape(gaps.shape)


def fixed_side_sensitivity(
    radius: float, clip_jacobian: float, n_projections: int, directions_norm: float
) -> float:
    r"""Bound how far a record of the *fixed* side moves the gradient, times n.

    Let the n points be private, in a ball of radius R, and let the Jacobians of the other side
    have a spectral norm of at most L; they do not depend on the points.

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
        taken = tuple(min(n, math.floor(fraction * n * _ROUNDED_UP)) for n in self.sizes)
        for name, size, count in zip(self.names, self.sizes, taken, strict=True):
            if count < 1:
                raise ValueError(
                    f"sensitive_features: group {name} has {size} "
                    f"{'row' if size == 1 else 'rows'}, too few for a batch. Choose a larger "
                    f"{parameter}, or merge small groups."
                )
        return taken

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(other for other in stratum if other != cell)


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
