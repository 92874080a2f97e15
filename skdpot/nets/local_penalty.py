"""The penalty between cells as a sum over records, from a release of their distributions."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import nn

from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import OutputTables
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.per_sample import record_outputs

# Share of the squared mu for the releases of the distributions of the outputs.
TABLE_SHARE = 0.1
# Half of 4, the growth of the gradient of the bound per unit that a value moves. On Adult and
# COMPAS shares of 0.2, 0.5 and 1 were indistinguishable; 0.2 was too small for a network that
# predicts two targets.
_STIFFNESS = 0.5 * 4.0
_ROWS_AT_ONCE = 8192
_LARGEST = 1e100  # replaces infinite outputs


@dataclass(frozen=True, eq=False)
class LocalPenalty:
    r"""A penalty that is a sum over records and replaces the distance between cells.

    Let :math:`u_i^0` be the values at a release, :math:`T_b` the optimal map from the cell of i to
    cell b along a direction, and :math:`t_i = (u_i^0 + T_b(u_i^0)) / 2`. The points t of two cells
    have the same distribution B, so that, for any later values u,

    .. math:: W_2^2(P_a, P_b) \le 2 W_2^2(P_a, B) + 2 W_2^2(P_b, B)
              \le \frac{2}{n_a} \sum_{i \in a} (u_i - t_i)^2
              + \frac{2}{n_b} \sum_{i \in b} (u_i - t_i)^2,

    with equality, and the same gradient, at the release. The gradient of this bound grows by 4 per
    unit that a value moves. Without this growth, each group would move to the former place of the
    other, and past it, until the next release. The growth also resists moves of all groups
    together, which may reduce the loss, so only half of it is used (`_STIFFNESS`).
    """

    values: torch.Tensor
    pulls: torch.Tensor
    stiffness: torch.Tensor

    @classmethod
    def of_arrays(cls, values: np.ndarray, pulls: np.ndarray, stiffness: np.ndarray) -> Self:
        """Return a penalty with these values, (n, k), pulls, (n, k), and stiffness, (n, k, k)."""
        return cls(*map(torch.from_numpy, (values, pulls, stiffness)))

    @classmethod
    def of_release(cls, tables: OutputTables, values: np.ndarray, cells: Cells) -> Self:
        """Return the penalty of all records, whose distributions were released as `tables`.

        All records are projected at once, because their number is public. The size of a cell may be
        private, and the rounding of a matrix product depends on its size: a record that changes its
        cell must not change the bits of other records.
        """
        n, directions = sum(cells.sizes), tables.directions
        weight = ParityPenalty(cells.strata, cells.sizes).pair_weight
        projections, scale = tables.projections(values), np.zeros(len(values))
        pulls = np.zeros_like(projections)
        for cell, size in enumerate(cells.sizes):
            members, others = cells.codes == cell, cells.others(cell)
            along = tables.pulls(projections[:, members], cell, others)
            pulls[:, members] = weight * (n / size) * along
            scale[members] = _STIFFNESS * weight * (n / size) * len(others)
        mean_square = directions.T @ directions / len(directions)
        stiffness = scale[:, None, None] * mean_square
        return cls.of_arrays(values, pulls.T @ directions, stiffness)

    def vectors(self, values: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        """Return n times the gradient of the penalty by the values, (n_records, k)."""
        records = records.to(self.values.device)
        moved = values - self.values[records].to(values)
        stiffness = self.stiffness[records].to(values)
        return self.pulls[records].to(values) + torch.einsum("nkl,nl->nk", stiffness, moved)


def network_outputs(network: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return the outputs of all rows in double precision, bounded and without gradients."""
    outputs = torch.cat([record_outputs(network, chunk) for chunk in rows.split(_ROWS_AT_ONCE)])
    return finite_outputs(outputs.to(torch.float64))


def finite_outputs(outputs: torch.Tensor) -> torch.Tensor:
    """Replace NaN by 0 and infinity by a large number."""
    return outputs.nan_to_num(nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
