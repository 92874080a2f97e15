r"""Squared sliced Wasserstein distances between outputs: gradients and their sensitivities.

One or both of two sets of points are outputs of the network. `fixed_side_sensitivity` and
`moving_side_sensitivity` bound how far one record moves the gradient; `ParityPenalty` sums the
distances between the cells of each stratum.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.ot.transport import pulls_between

ROUNDED_UP = 1.0 + 1e-12  # covers the rounding errors of a bound


def fixed_side_sensitivity(
    radius: float, clip_jacobian: float, n_projections: int, directions_norm: float
) -> float:
    r"""Bound how far a record of the *fixed* side moves the gradient, times n.

    Notation as in `skdpot.ot.transport.pulls_between`. The n points :math:`U_i` are private and lie
    in a ball of radius R. The Jacobians of the other side have a spectral norm of at most L and do
    not depend on the points.

    Replacing u by u' moves one value of the sample along each direction. The sorted values then
    all move the same way, by :math:`|\langle\theta, u - u'\rangle|` in total (n times the W₁
    distance of the two samples). Rank i contributes its move to output j with weight
    :math:`R_{ij}`, and :math:`\sum_j R_{ij} = 1/n`. Hence

    .. math:: n \|\Delta G\| \le n L \sum_j \|\Delta w_j\|
              \le \frac{2 L}{S} \sum_\theta |\langle\theta, u - u'\rangle|
              \le \frac{2 L}{\sqrt S} \|\Theta (u - u')\|
              \le 4 R L \min\left(1, \frac{\|\Theta\|_2}{\sqrt S}\right)

    by Cauchy-Schwarz, and since directions are unit vectors. Whole orthogonal blocks have
    :math:`\|\Theta\|_2 = \sqrt{S / d}`. The bound is then smaller by the factor :math:`\sqrt d`
    than :math:`4RL`, the paper's bound with :math:`L_1 = 0`. It is attained by one block of d
    directions, :math:`u - u'` along their sum, all other points equal to u', and outputs such that
    a different output is the last along each direction.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, theorem A.1 with L₁ = 0.
    """
    share = min(1.0, directions_norm / math.sqrt(n_projections))
    return 4.0 * radius * clip_jacobian * share * ROUNDED_UP


def moving_side_sensitivity(width: float, clip_own: float, clip_other: float) -> float:
    r"""Bound how far a record moves the gradient, times n, when its own side moves too.

    All projections lie in an interval of width r. :math:`L_1` bounds the Jacobians on the record's
    side, which has n outputs, and :math:`L_2` those on the other side. Replacing u by u', without
    loss of generality :math:`u \le u'`, changes

    - the record's own term, before and after: at most
      :math:`\frac{2 L_1}{n} (|u - v| + |u' - v'|)`, where v and v' are the values matched with it;
    - the terms of the records between, each of which moves down by one rank; their matched
      values move by :math:`v' - v` in total: at most :math:`\frac{2 L_1}{n} (v' - v)`;
    - the other side, as in `fixed_side_sensitivity`: at most :math:`\frac{2 L_2}{n} (u' - u)`.

    The sum is convex in (u, u', v, v'), so it is largest at a corner of
    :math:`0 \le u \le u' \le r,\ 0 \le v \le v' \le r`: where u = u' and v' - v = r it is
    :math:`4 r L_1 / n`; where u' - u = r it is at most
    :math:`2 r (L_1 + L_2) / n`. Ranks must come from a stable sort.
    """
    return 2.0 * width * max(2.0 * clip_own, clip_own + clip_other) * ROUNDED_UP


@dataclass(frozen=True)
class ParityPenalty:
    r"""Squared sliced Wasserstein distances between the cells of each stratum.

    Over the Q strata and the pairs of their K cells (for two groups: equations 5 and 6 of the
    paper) it is

    .. math:: \frac{1}{Q} \sum_{q=1}^Q \frac{4}{K^2} \sum_{a < b}
              SW_2^2\left(P_{q,a}, P_{q,b}\right).

    For cells that differ by shifts it is :math:`4 / K` times the sum of their squared distances to
    the barycentre, so the gradient towards the barycentre is the same for any K.
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
        moved_by_pair = moving_side_sensitivity(width, clip_jacobian, clip_jacobian) / min(compared)
        return self.pair_weight * n_pairs * moved_by_pair

    def vectors(self, outputs: Sequence[np.ndarray], directions: np.ndarray) -> list[np.ndarray]:
        """Return the gradient of the penalty by the outputs of each cell, (n_records, k) each."""
        vectors = [np.zeros(of_cell.shape) for of_cell in outputs]
        for stratum in self.strata:
            pulls = pulls_between([outputs[cell] for cell in stratum], directions)
            for cell, pull in zip(stratum, pulls, strict=True):
                vectors[cell] = self.pair_weight * pull
        return vectors
