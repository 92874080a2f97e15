r"""How far the outputs of groups are apart, as a penalty whose gradient can be private.

Records are divided into *cells*. Cells that are to have the same distribution of outputs form a
*stratum*: all groups together (statistical parity), or the groups within one class (equalised
odds). The penalty is

.. math:: \frac{1}{Q} \sum_{q=1}^Q \frac{2}{K (K - 1)} \sum_{a < b}
          SW_2^2\left(P_{q,a}, P_{q,b}\right)

over the Q strata and the pairs of their K cells (for two groups: equations 5 and 6 of the paper).

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.nets.wasserstein_gradient import moving_side_sensitivity, pulls_between

__all__ = ["ParityPenalty"]


@dataclass(frozen=True)
class ParityPenalty:
    """Mean squared sliced Wasserstein distance between the cells of each stratum.

    Parameters
    ----------
    strata : tuple of tuple of int
        Numbers of the cells that are compared with each other. All have the same length, at least
        two, and a cell occurs once.
    batch_sizes : tuple of int
        Records of each cell in a batch.
    """

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

        Parameters
        ----------
        width : float
            r: mean over the directions of the width of the interval that projections lie in.
        clip_jacobian : float
            L, the largest spectral norm of an output's Jacobian by all parameters.

        Returns
        -------
        float
            L2 sensitivity of the gradient.
        """
        compared = [self.batch_sizes[cell] for stratum in self.strata for cell in stratum]
        n_pairs = len(self.strata[0]) - 1
        of_a_pair = moving_side_sensitivity(width, clip_jacobian, clip_jacobian) / min(compared)
        return self.pair_weight * n_pairs * of_a_pair

    def vectors(self, outputs: Sequence[np.ndarray], directions: np.ndarray) -> list[np.ndarray]:
        r"""Return the gradient of the penalty with respect to each output.

        Parameters
        ----------
        outputs : sequence of ndarray of shape (batch_sizes[c], k)
            Clipped outputs of the records of each cell. A replaced record keeps its position, so
            that the stable sort leaves the order of the others as it was.
        directions : ndarray of shape (n_slices, k)
            Unit rows.

        Returns
        -------
        list of ndarray of shape (batch_sizes[c], k)
            Vectors w; the gradient by the parameters is the sum of :math:`J_i^\top w_i`.
        """
        vectors = [np.zeros(of_cell.shape) for of_cell in outputs]
        for stratum in self.strata:
            pulls = pulls_between([outputs[cell] for cell in stratum], directions)
            for cell, pull in zip(stratum, pulls, strict=True):
                vectors[cell] = self.pair_weight * pull
        return vectors
