"""Slices of a table that see few columns: a bin for each combination of their values.

A direction with random weights on the coordinates of a few columns gives every combination of
their categories a place of its own on the line. Where the combinations are few, the histogram of
such a sparse slice with a bin for each of them is their contingency table, which is called a
marginal. It needs no strategy matrix, for a bin is a combination and not a point on a scale.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "IntArray", "Marginal", "NoisyMarginal"]

IntArray = npt.NDArray[np.integer]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Marginal:
    """Which cell of a contingency table each row falls in.

    Parameters
    ----------
    columns : tuple of int
        Positions of the columns.
    groups : tuple of ndarray of int
        For each of them the group of each of its codes; groups are numbered from 0.
    levels : tuple of int
        Names of these groupings; marginals of equal columns and levels are equal.
    """

    columns: tuple[int, ...]
    groups: tuple[IntArray, ...] = field(compare=False, repr=False)
    levels: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    def cells(self, codes: IntArray) -> IntArray:
        """Return the cell of each row.

        Parameters
        ----------
        codes : ndarray of int, shape (n_rows, n_columns)
            Codes of all columns of the table.

        Returns
        -------
        ndarray of int64, shape (n_rows,)
        """
        cells = np.zeros(len(codes), dtype=np.int64)
        for column, groups, size in zip(self.columns, self.groups, self.shape, strict=True):
            own = codes[:, column]
            alone = size == len(groups) and bool((groups == np.arange(size)).all())
            cells *= size
            cells += own if alone else groups[own]
        return cells

    @property
    def ungrouped(self) -> "Marginal":
        """The marginal of the same columns with a cell for each combination of codes."""
        return Marginal(self.columns, tuple(np.arange(len(groups)) for groups in self.groups))

    def joined(self, table: FloatArray) -> FloatArray:
        """Add up counts of all combinations of codes to those of this marginal's cells."""
        cells = np.zeros((), dtype=np.int64)
        for groups, size in zip(self.groups, self.shape, strict=True):
            cells = cells[..., None] * size + groups
        return np.bincount(cells.ravel(), table.ravel(), self.n_cells).astype(np.float64)

    def counts(self, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
        """Return the number of rows, or their weight, in each cell."""
        return np.bincount(self.cells(codes), weights=weights, minlength=self.n_cells).astype(
            np.float64
        )


@dataclass(frozen=True, eq=False)
class NoisyMarginal:
    """A released contingency table.

    Parameters
    ----------
    marginal : Marginal
        What was counted.
    counts : ndarray of shape (n_cells,)
        Noisy numbers of rows.
    sigma : float
        Standard deviation of the noise on each; 0 without noise.
    """

    marginal: Marginal
    counts: FloatArray
    sigma: float

    def merge(self, other: "NoisyMarginal") -> "NoisyMarginal":
        """Return the best combination of two releases of one marginal."""
        if min(self.sigma, other.sigma) == 0.0:
            return self if self.sigma == 0.0 else other
        own, others = self.sigma**-2, other.sigma**-2
        counts = (own * self.counts + others * other.counts) / (own + others)
        return NoisyMarginal(self.marginal, counts, (own + others) ** -0.5)
