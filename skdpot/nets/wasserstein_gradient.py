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
from dataclasses import dataclass
from functools import cache

import numpy as np

__all__ = [
    "RankCoupling",
    "fixed_side_sensitivity",
    "matched_means",
    "moving_side_sensitivity",
    "rank_coupling",
    "wasserstein_vectors",
]


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
    if m % n == 0:
        return np.repeat(ordered, m // n, axis=-1)
    plan = rank_coupling(n, m)
    starts = np.flatnonzero(np.diff(plan.second, prepend=-1))
    weights = (m * plan.mass).astype(ordered.dtype)
    means: np.ndarray = np.add.reduceat(ordered[..., plan.first] * weights, starts, axis=-1)
    return means


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
        with respect to point j. Ranks come from a stable sort, so that a replaced point leaves
        the order of the others as it was; clipped outputs are full of ties.
    """
    projected = directions @ moving.T
    targets = matched_means(np.sort(directions @ fixed.T, axis=1), len(moving))
    order = np.argsort(projected, axis=1, kind="stable")
    matched = np.empty_like(projected)
    np.put_along_axis(matched, order, targets.astype(projected.dtype, copy=False), axis=1)
    scale = 2.0 / (len(directions) * len(moving))
    vectors: np.ndarray = scale * ((projected - matched).T @ directions)
    return vectors


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
    the bound of the paper's theorem, corrected, direction by direction. It is attained: one
    block of d directions, :math:`u - u'` along their sum, all other points equal to u', and
    outputs of which another one is the last along each direction.

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
    "Differentially private gradients of the Wasserstein distance", theorem of the sensitivity
    with L₁ = 0.
    """
    share = min(1.0, directions_norm / math.sqrt(n_slices))
    return 4.0 * radius * clip_jacobian * share * (1.0 + 1e-12)


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
    return 2.0 * width * max(2.0 * clip_own, clip_own + clip_other) * (1.0 + 1e-12)
