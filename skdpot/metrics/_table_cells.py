"""Two tables in common cells, and how far their marginals are apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.metrics._marginals import column_codes, column_kind

__all__ = ["CodedTables", "check_same_columns", "distance_by_chance"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MOST_CELLS = 2**22  # of a marginal before cells that nobody is in are left out
_SURE = 5.0  # standard deviations above what chance explains


@dataclass(frozen=True, eq=False)
class CodedTables:
    """The cell of each value of two tables.

    Parameters
    ----------
    names : tuple
        Names of the columns.
    codes : tuple of ndarray of int64, shape (n_real + n_synthetic,)
        Cells of each column, those of the real rows first.
    sizes : tuple of int
        Number of cells of each column.
    n_real, n_synthetic : int
        Numbers of rows.
    """

    names: tuple[Any, ...]
    codes: tuple[IntArray, ...]
    sizes: tuple[int, ...]
    n_real: int
    n_synthetic: int

    @classmethod
    def of(
        cls, real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series], n_bins: int
    ) -> "CodedTables":
        """Count numbers and dates between quantiles of the real ones.

        Parameters
        ----------
        real, synthetic : mapping of str to Series
            Columns of both tables, with the same names.
        n_bins : int
            Number of bins of numbers and dates.

        Returns
        -------
        CodedTables
        """
        found = [column_codes(real[name], synthetic[name], n_bins) for name in real]
        first = next(iter(real))
        return cls(
            tuple(real),
            tuple(np.concatenate(pair) for *pair, _ in found),
            tuple(size for *_, size in found),
            len(real[first]),
            len(synthetic[first]),
        )

    def shares(self, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return the shares of the real and of the synthetic rows in the cells of a marginal.

        Parameters
        ----------
        columns : sequence of int
            Places of its columns.

        Returns
        -------
        tuple of two ndarray of shape (n_cells,)
        """
        keys: IntArray = np.zeros(self.n_real + self.n_synthetic, dtype=np.int64)
        n_cells = 1
        for column in columns:
            keys = keys * self.sizes[column] + self.codes[column]
            n_cells *= self.sizes[column]
            if n_cells > _MOST_CELLS:
                keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
                n_cells = int(keys.max()) + 1
        real, synthetic = keys[: self.n_real], keys[self.n_real :]
        return (
            np.bincount(real, minlength=n_cells) / self.n_real,
            np.bincount(synthetic, minlength=n_cells) / self.n_synthetic,
        )

    def total_variation(self, columns: Sequence[int]) -> float:
        """Return the total variation distance of one marginal."""
        real, synthetic = self.shares(columns)
        return min(float(np.abs(real - synthetic).sum() / 2), 1.0)


def check_same_columns(
    real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series]
) -> dict[Any, pd.Series]:
    """Refuse tables of different columns; return the second in the order of the first."""
    if set(real) != set(synthetic):
        apart = sorted(map(str, set(real) ^ set(synthetic)))
        raise ValueError(f"Both tables must have the same columns; {apart[:10]} are in one only.")
    for name in real:
        kinds = {column_kind(column) for column in (real[name], synthetic[name])}
        known = real[name].notna().any() and synthetic[name].notna().any()
        if len(kinds) > 1 and known:
            raise ValueError(f"Column {name!r} is a {' and a '.join(sorted(kinds))}.")
    return {name: synthetic[name] for name in real}


def distance_by_chance(
    real: FloatArray, synthetic: FloatArray, n_real: int, n_synthetic: int
) -> tuple[float, float]:
    """Return how far two samples of one distribution are apart.

    Parameters
    ----------
    real, synthetic : ndarray of shape (n_cells,)
        Their shares in the cells.
    n_real, n_synthetic : int
        Numbers of rows.

    Returns
    -------
    expected : float
        Mean of the total variation distance of two samples of the pooled shares.
    limit : float
        What chance exceeds once in ten thousand times at most.
    """
    pooled = (n_real * real + n_synthetic * synthetic) / (n_real + n_synthetic)
    variances = pooled * (1 - pooled) * (1 / n_real + 1 / n_synthetic)
    expected = float(np.sqrt(2 / np.pi * variances).sum() / 2)
    # Two cells alone move together, which doubles the variance; many cells hardly do.
    deviation = float(np.sqrt((1 - 2 / np.pi) * variances.sum() / 2))
    return expected, expected + _SURE * deviation
