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
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import sparse

__all__ = [
    "RankCoupling",
    "RankedProjections",
    "ball_width",
    "box_width",
    "fixed_side_sensitivity",
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
    """The optimal plan between n and m sorted points, entry by entry.

    Parameters
    ----------
    n, m : int
        Numbers of points.
    first, second : ndarray of shape (n_entries,), intp
        Ranks i and j, both non-decreasing, counted from 0.
    mass : ndarray of shape (n_entries,)
        R_ij; sums to 1.
    """

    n: int
    m: int
    first: np.ndarray
    second: np.ndarray
    mass: np.ndarray


@dataclass(frozen=True, eq=False)
class RankedProjections:
    """Points projected on directions and sorted.

    Parameters
    ----------
    ordered : ndarray of shape (n_slices, m)
        Projections, non-decreasing along the last axis.
    order : ndarray of shape (n_slices, m), int64
        Position of the point that each belongs to.
    """

    ordered: np.ndarray
    order: np.ndarray


@cache
def rank_coupling(n: int, m: int) -> RankCoupling:
    """Return the overlaps of the n and m equal parts of an interval.

    Parameters
    ----------
    n, m : int
        Numbers of points.

    Returns
    -------
    RankCoupling
        At most ``n + m - 1`` entries. Levels are integers in units of 1 / (n m), so that no
        entry is lost or invented by rounding.
    """
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    start = levels[:-1]
    return RankCoupling(n, m, start // m, start // n, np.diff(levels) / (n * m))


def matched_means(ordered: np.ndarray, m: int) -> np.ndarray:
    """Average sorted points over the m equal parts that they are matched with.

    Parameters
    ----------
    ordered : ndarray of shape (..., n)
        Sorted along the last axis.
    m : int
        Number of points on the other side.

    Returns
    -------
    ndarray of shape (..., m)
        ``m Σ_i R_ij u_(i)``; `ordered` itself if n = m.
    """
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

    Parameters
    ----------
    points : ndarray of shape (m, d)
        Finite; a replaced point keeps its position.
    directions : ndarray of shape (n_slices, d)
        Rows θ.

    Returns
    -------
    RankedProjections
        Projections lose the bits that positions take; they are rounded towards zero, by less
        than one part in :math:`2^{52} / 2m`.
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
    r"""Return the gradients of the summed distances of samples to each other.

    Parameters
    ----------
    samples : sequence of ndarray of shape (m_c, d)
        Two or more samples; their sizes may differ.
    directions : ndarray of shape (n_slices, d)
        Unit rows.
    n_moving : int, optional
        Only the gradients by the first samples are wanted; None is all.

    Returns
    -------
    list of ndarray of shape (m_c, d)
        For each sample c the gradient of :math:`\sum_{b \ne c} SW_2^2(P_c, P_b)`, the mean
        over the directions, by its points.
    """
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
    r"""Return by how much, and where to, each point of one side is pulled by the other.

    Parameters
    ----------
    moving : ndarray of shape (m, d)
        Points of the side whose gradient is wanted.
    fixed : ndarray of shape (n, d)
        Points of the other side.
    directions : ndarray of shape (n_slices, d)
        Unit rows.

    Returns
    -------
    ndarray of shape (m, d)
        :math:`w_j = \frac{2}{S m} \sum_\theta (V_j - m \sum_i R_{r(j) i} U_{(i)}) \theta` with
        the rank r(j): the gradient of the mean of the squared distances along the directions
        with respect to point j. Ties are ranked by position (`ranked_projections`).
    """
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

    Parameters
    ----------
    radius : float
        R.
    clip_jacobian : float
        L, the largest spectral norm of an output's Jacobian by all parameters.
    n_slices : int
        Number of directions S.
    directions_norm : float
        Upper bound of the largest singular value of the directions.

    Returns
    -------
    float
        L2 sensitivity of n times the gradient under replace-one.

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

    Parameters
    ----------
    width : float
        r; for several directions the mean of their widths.
    clip_own, clip_other : float
        L₁ and L₂.

    Returns
    -------
    float
        L2 sensitivity of n times the gradient under replace-one,
        :math:`2 r \max(2 L_1, L_1 + L_2)`.
    """
    return 2.0 * width * max(2.0 * clip_own, clip_own + clip_other) * _ROUNDED_UP


def simplex_width(directions: np.ndarray) -> float:
    """Return how wide the probability vectors are, along some directions on average.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, k)
        Rows θ, those that are really used.

    Returns
    -------
    float
        Mean of ``max(θ) - min(θ)``, rounded up; at most √2 for unit rows.
    """
    return float(np.ptp(directions, axis=1).mean()) * _ROUNDED_UP


def box_width(directions: np.ndarray, side: float) -> float:
    """Return how wide a cube is, along some directions on average.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, k)
        Rows θ, those that are really used.
    side : float
        Length of an edge; for k = 1 that of the interval.

    Returns
    -------
    float
        ``side`` times the mean of ``|θ|₁``, rounded up.
    """
    return float(np.abs(directions).sum(axis=1).mean()) * side * _ROUNDED_UP


def ball_width(radius: float) -> float:
    """Return how wide a ball is, along any unit direction: twice its radius.

    Parameters
    ----------
    radius : float
        Radius M.

    Returns
    -------
    float
        2M, rounded up.
    """
    return 2.0 * radius * _ROUNDED_UP
