"""The square-root strategy: which linear statistics of a histogram to release.

A cumulative distribution is a prefix sum ``T h`` of a histogram ``h``. Adding noise to
``h`` makes the noise of ``T h`` grow along the bins; adding it to ``T h`` makes one record
touch every value. Releasing ``A h`` with ``A = T^(1/2)`` and decoding with ``T A^(-1)``
balances both: the worst error grows like log B instead of sqrt B.

References
----------
M. Henzinger, J. Upadhyay, S. Upadhyay, "Almost tight error bounds on differentially
private continual counting", SODA 2023 (the square root of the counting matrix).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

__all__ = ["SquareRootStrategy", "square_root_strategy"]


@dataclass(frozen=True)
class SquareRootStrategy:
    """Lower-triangular Toeplitz strategy matrix, rounded once to a public lattice.

    Parameters
    ----------
    n_bins : int
        Number of bins B.
    lattice : float
        Spacing g. The matrix is an integer matrix times g, so that the statistic of any
        data set lies on the lattice on which the noise is drawn and is never rounded.
    """

    n_bins: int
    lattice: float

    @cached_property
    def integer_matrix(self) -> np.ndarray:
        """A / g, int64 of shape (n_bins, n_bins)."""
        k = np.arange(1, self.n_bins)
        column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
        units = np.rint(column / self.lattice).astype(np.int64)
        return _frozen(np.tril(toeplitz(units)))

    @cached_property
    def matrix(self) -> np.ndarray:
        """A, float64 of shape (n_bins, n_bins); exact, as g is a power of two."""
        return _frozen(self.integer_matrix * self.lattice)

    @cached_property
    def decoder(self) -> np.ndarray:
        """D = T A^-1: from the released statistic to cumulative counts."""
        inverse = solve_triangular(self.matrix, np.eye(self.n_bins), lower=True)
        return _frozen(np.cumsum(inverse, axis=0))

    @cached_property
    def covariance(self) -> np.ndarray:
        """D Dᵀ: covariance of the cumulative counts for noise of unit variance."""
        return _frozen(self.decoder @ self.decoder.T)

    @cached_property
    def known_total_covariance(self) -> np.ndarray:
        """Covariance of the counts at the inner edges, given the last one."""
        last = self.covariance[:, -1]
        return _frozen((self.covariance - np.outer(last, last) / last[-1])[:-1, :-1])

    @cached_property
    def typical_deviation(self) -> float:
        """Root mean square deviation of a cumulative count, for noise of unit variance."""
        return float(np.sqrt(np.diag(self.covariance).mean()))

    def sensitivity(self, n_slices: int, *, conditional: bool) -> float:
        """Return the L2 sensitivity of the released statistic under replace-one.

        A record adds one count to one bin of each of the L histograms. Replacing it moves
        that count from bin a to bin b, which moves the statistic by ``A (e_a - e_b)`` in
        each slice: ``Δ² = L max_ab ‖A(e_a - e_b)‖²``. With classes the record may also
        change class; then two tables move, by ``A e_a`` and ``A e_b``:
        ``Δ² = 2 L max_a ‖A e_a‖²``. As A has no negative entry,
        ``‖A(e_a - e_b)‖² <= ‖A e_a‖² + ‖A e_b‖²``, so the second covers the first.
        Both are attained with one slice; with many, by records whose projections fall in
        the maximal bins of all of them.

        Parameters
        ----------
        n_slices : int
            Number of slices L.
        conditional : bool
            Whether there is one table a class and the class is protected too. Where classes are
            public knowledge see `skdpot.slicing.plan.table_sensitivity`.

        Returns
        -------
        float
            Δ, rounded up.
        """
        # Integers far below 2^53, so that the products are exact in double precision, which
        # is hundreds of times faster at 4096 bins.
        units = self.integer_matrix.astype(np.float64)
        gram = units.T @ units
        diagonal = np.diag(gram)
        if conditional:
            squared = 2 * int(diagonal.max())
        else:
            squared = int((diagonal[:, None] + diagonal[None, :] - 2 * gram).max())
        # Whole numbers up to here; one unit in the last place pays for the square root.
        return float(np.nextafter(self.lattice * np.sqrt(float(n_slices * squared)), np.inf))


@lru_cache(maxsize=32)
def square_root_strategy(n_bins: int) -> SquareRootStrategy:
    """Return the strategy for `n_bins` bins, with the coarsest lattice that costs nothing.

    The spacing is 1/16 up to 256 bins. Beyond, the entries of the matrix fall below it and
    rounding them would cost accuracy (at 512 bins 14 % more noise), so it is 1/64.
    """
    return SquareRootStrategy(n_bins, 1 / 16 if n_bins <= 256 else 1 / 64)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
