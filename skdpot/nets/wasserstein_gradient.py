r"""Gradients of the Wasserstein distance between a network's outputs and a set of points.

Let :math:`V_j` be the outputs for m inputs and :math:`U_i` a set of n points, projected on a
direction and ranked, and :math:`R_{ij}` the length of the overlap of
:math:`(\frac{i-1}{n}, \frac{i}{n}]` and :math:`(\frac{j-1}{m}, \frac{j}{m}]`. Then

.. math:: W_2^2 = \sum_{ij} R_{ij} (V_{(j)} - U_{(i)})^2, \qquad
          \nabla W_2^2 = 2 \sum_{ij} R_{ij} (V_{(j)} - U_{(i)}) J_{(j)}^\top \theta,

with the Jacobian :math:`J_j` of the output :math:`g(z_j)` by the parameters. Averaged over S
directions this is :math:`\sum_j J_j^\top w_j`. The functions here return the vectors w of one
side, and say how far one replaced record moves the gradient when Jacobians are clipped. All
sums are for the gradient *times the number of records* of the side that is private. How far a
record moves it follows from two sizes of the bounded set that outputs are moved into: its *width*,
the mean length of its projections, and its *shift*, the largest mean distance of two projections.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy import sparse
from torch import nn

from skdpot.nets.output_gradients import pulled_back_sum, shares_of_jacobians
from skdpot.nets.per_sample import record_outputs

__all__ = [
    "Ball",
    "Box",
    "OutputSet",
    "RankCoupling",
    "RankedProjections",
    "Side",
    "ball_width",
    "box_width",
    "clipped_wasserstein_gradient",
    "fixed_side_sensitivity",
    "gradient_sensitivity",
    "matched_means",
    "moving_side_sensitivity",
    "pulls_between",
    "rank_coupling",
    "ranked_projections",
    "simplex_width",
    "wasserstein_vectors",
]

_ROUNDED_UP = 1.0 + 1e-12
_NUMBERS = 2**15  # sorted at the same time


@dataclass(frozen=True, eq=False)
class RankCoupling:
    """The optimal plan between n and m sorted points, entry by entry."""

    n: int
    m: int
    first: np.ndarray
    second: np.ndarray
    mass: np.ndarray


@dataclass(frozen=True, eq=False)
class RankedProjections:
    """Points projected on directions and sorted."""

    ordered: np.ndarray
    order: np.ndarray


@cache
def rank_coupling(n: int, m: int) -> RankCoupling:
    """Return the overlaps of the n and m equal parts of an interval."""
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    start = levels[:-1]
    return RankCoupling(n, m, start // m, start // n, np.diff(levels) / (n * m))


def matched_means(ordered: np.ndarray, m: int) -> np.ndarray:
    """Average sorted points over the m equal parts that they are matched with."""
    n = ordered.shape[-1]
    if n == m:
        return ordered
    means: np.ndarray = (
        _averages(n, m).astype(ordered.dtype, copy=False) @ ordered.reshape(-1, n).T
    ).T
    return means.reshape(*ordered.shape[:-1], m)


@cache
def _averages(n: int, m: int) -> sparse.csr_array:
    """Return the plan, times m, as a sparse matrix that maps n sorted points to m means."""
    plan = rank_coupling(n, m)
    return sparse.csr_array((m * plan.mass, (plan.second, plan.first)), shape=(m, n))


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


def wasserstein_vectors(
    moving: np.ndarray, fixed: np.ndarray, directions: np.ndarray
) -> np.ndarray:
    """Return by how much, and where to, each point of one side is pulled by the other."""
    return pulls_between([moving, fixed], directions, n_moving=1)[0]


def fixed_side_sensitivity(
    radius: float, clip_jacobian: float, n_slices: int, directions_norm: float
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
    share = min(1.0, directions_norm / math.sqrt(n_slices))
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


def simplex_width(directions: np.ndarray) -> float:
    """Return how wide the probability vectors are, along some directions on average."""
    return float(np.ptp(directions, axis=1).mean()) * _ROUNDED_UP


def box_width(directions: np.ndarray, side: float) -> float:
    """Return how wide a cube is, along some directions on average."""
    return float(np.abs(directions).sum(axis=1).mean()) * side * _ROUNDED_UP


def ball_width(radius: float) -> float:
    """Return how wide a ball is, along any unit direction: twice its radius."""
    return 2.0 * radius * _ROUNDED_UP


_HUGE = 1e150  # its square is finite


class OutputSet(ABC):
    """A bounded convex set of vectors of length k."""

    @abstractmethod
    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Return the nearest points of the set, row by row; what is not finite has one too."""

    @abstractmethod
    def width(self, directions: np.ndarray) -> float:
        """Return the mean over the directions of the length of the set's projection."""

    @abstractmethod
    def diameter(self, n_outputs: int) -> float:
        """Return the largest distance of two points with `n_outputs` coordinates."""

    def shift(self, directions: np.ndarray) -> float:
        r"""Bound the mean over the directions of the distance of two projected points.

        :math:`\frac{1}{S} \sum_\theta |\langle\theta, u - u'\rangle| \le \frac{1}{\sqrt S}
        \|\Theta (u - u')\|` by Cauchy and Schwarz: for whole orthogonal blocks a factor
        :math:`\sqrt k` less than the diameter.
        """
        n_slices, n_outputs = directions.shape
        norm = float(np.linalg.norm(directions, 2)) * (1.0 + 1e-12)
        return min(self.width(directions), self.diameter(n_outputs) * norm / math.sqrt(n_slices))


@dataclass(frozen=True)
class Ball(OutputSet):
    """Vectors no longer than a radius."""

    radius: float

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Shorten longer rows to the radius; nan becomes 0."""
        finite = np.clip(np.nan_to_num(points, nan=0.0), -_HUGE, _HUGE)
        norms = np.linalg.norm(finite, axis=1, keepdims=True)
        inside: np.ndarray = finite / np.maximum(norms, self.radius) * self.radius
        return inside

    def width(self, directions: np.ndarray) -> float:
        """Return 2M."""
        return ball_width(self.radius)

    def diameter(self, n_outputs: int) -> float:
        """Return 2M."""
        return ball_width(self.radius)


@dataclass(frozen=True)
class Box(OutputSet):
    """Vectors of which every entry is in an interval."""

    low: float
    high: float

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Clip every entry; nan becomes the middle."""
        middle = (self.low + self.high) / 2.0
        return np.clip(np.nan_to_num(points, nan=middle), self.low, self.high)

    def width(self, directions: np.ndarray) -> float:
        """Return the length of the interval times the mean of ``|θ|₁``."""
        return box_width(directions, self.high - self.low)

    def diameter(self, n_outputs: int) -> float:
        """Return the diagonal."""
        return (self.high - self.low) * math.sqrt(n_outputs) * (1.0 + 1e-12)


_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False, kw_only=True)
class Side:
    """One of the two samples."""

    batch_size: int
    private: bool
    network: nn.Module | None = None
    clip_jacobian: float = 0.0
    rowwise: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {self.batch_size}.")
        if (self.network is None) != (self.clip_jacobian == 0.0) or self.clip_jacobian < 0.0:
            raise ValueError(
                "`clip_jacobian` must be positive with a network, and 0 for points that do not "
                f"move; got {self.clip_jacobian!r}."
            )


def gradient_sensitivity(
    first: Side, second: Side, *, width: float, shift: float | None = None
) -> float:
    r"""Bound how far one private record moves the gradient.

    Let all projections on a direction lie in an interval of length r, on one side let n points
    have Jacobians of norm at most :math:`L_1`, and on the other :math:`L_2`. If a record of the
    first side moves from u to u' and is matched with v before and v' after, the gradient along
    that direction moves by at most (see `skdpot.nets.wasserstein_gradient.moving_side_sensitivity`)

    .. math:: \frac{2}{n} (L_1 A + L_2 B), \qquad
              A = |u - v| + |u' - v'| + |v' - v|, \quad B = |u' - u|.

    A + B is convex and at every corner of :math:`0 \le u \le u' \le r,\ 0 \le v \le v' \le r`
    at most 2r, so it is so everywhere, and :math:`L_1 A + L_2 B \le 2 r L_1 + (L_2 - L_1) B`.
    B is at most s on average over the directions, so that the gradient moves by at most

    .. math:: \frac{2}{n} \left(2 r L_1 + \max(0, L_2 - L_1)\, s\right).

    With s = r this is :math:`\frac{2 r}{n} \max(2 L_1, L_1 + L_2)`, which is attained. Where
    private points do not move, :math:`L_1 = 0`, nothing but s counts: the other side's outputs
    may be anywhere.
    """
    shift = width if shift is None else shift
    bounds = [
        (
            4.0 * width * own.clip_jacobian
            + 2.0 * shift * max(0.0, other.clip_jacobian - own.clip_jacobian)
        )
        / own.batch_size
        for own, other in ((first, second), (second, first))
        if own.private
    ]
    return max(bounds, default=0.0) * (1.0 + 1e-12)


def clipped_wasserstein_gradient(
    first: Side,
    second: Side,
    rows_first: torch.Tensor,
    rows_second: torch.Tensor,
    directions: np.ndarray,
    *,
    clip_output: OutputSet,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    """Return the clipped gradient of the squared sliced Wasserstein distance of two samples.

    Privacy
    -------
    Not private by itself: add noise for `gradient_sensitivity`. A replaced record must keep its
    position in the batch.
    """
    pairs = [(first, rows_first), (second, rows_second)]
    pairs.sort(key=lambda pair: pair[0].network is None)  # those that move come first
    n_moving = sum(side.network is not None for side, _ in pairs)
    points = [clip_output.nearest(_points(side, rows)) for side, rows in pairs]
    pulls = pulls_between(points, directions, n_moving=n_moving)
    total: dict[nn.Parameter, torch.Tensor] = {}
    for (side, rows), pull in zip(pairs, pulls, strict=False):
        for parameter, value in _pulled_back(side, rows, pull, chunk_size).items():
            total[parameter] = total[parameter] + value if parameter in total else value
    return total


def _points(side: Side, rows: torch.Tensor) -> np.ndarray:
    """Return the points of a side, shape (batch_size, k), in double precision."""
    if len(rows) != side.batch_size:
        raise ValueError(
            f"A side with batch_size={side.batch_size} was given {len(rows)} rows. Its "
            "sensitivity holds for batches of that size only."
        )
    network = side.network
    if network is not None:
        chunks = rows.split(_ROWS_AT_ONCE)
        rows = torch.cat([record_outputs(network, chunk) for chunk in chunks])
    return rows.detach().cpu().numpy().astype(np.float64)


def _pulled_back(
    side: Side, rows: torch.Tensor, pull: np.ndarray, chunk_size: int | None
) -> dict[nn.Parameter, torch.Tensor]:
    """Multiply the vectors with shortened Jacobians."""
    given = torch.from_numpy(pull).to(rows.device)

    def vectors(_: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
        shares = shares_of_jacobians(gram, side.clip_jacobian, rowwise=side.rowwise)
        return given[records] * (shares if side.rowwise else shares[:, None])

    network = side.network
    return {} if network is None else pulled_back_sum(network, rows, vectors, chunk_size=chunk_size)
