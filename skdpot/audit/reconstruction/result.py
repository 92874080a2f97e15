"""What an attack returns: rows, and how sure of them the attacker can be."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

__all__ = ["PairedDifferences", "Reconstruction"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reconstruction:
    """Rows that an attack found.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        The rows.
    masses : ndarray of shape (n_rows,), optional
        Their shares; None for equal ones.
    t : float, optional
        The fraction that was used, given or found.
    error_bound : float, optional
        What the attacker knows without seeing the truth: the root mean squared error, weighed
        by the masses, is at most this if the message is what the protocol says. None if the
        attack proves nothing.
    n_plans : int, default=1
        Optimal transport plans that it took.
    victim : str, optional
        Whose rows they are.
    method : str, default=""
        What was done, for the repr.
    """

    rows: np.ndarray
    masses: np.ndarray | None = None
    t: float | None = None
    error_bound: float | None = None
    n_plans: int = 1
    victim: str | None = None
    method: str = ""

    def row_errors(self, truth: ArrayLike) -> np.ndarray:
        """Return how far each true row is from the nearest reconstructed one.

        Parameters
        ----------
        truth : array-like of shape (n_truth, n_features)
            The rows that were attacked.

        Returns
        -------
        ndarray of shape (n_truth,)
            Root mean squared error over the features.

        Raises
        ------
        ValueError
            If `truth` has another number of features.
        """
        true_rows = np.atleast_2d(np.asarray(truth, dtype=np.float64))
        if true_rows.ndim != 2 or true_rows.shape[1] != self.rows.shape[1]:
            raise ValueError(
                f"truth has shape {true_rows.shape}; it must be (n_truth, {self.rows.shape[1]})."
            )
        nearest = cdist(true_rows, self.rows).min(axis=1)
        errors: np.ndarray = nearest / np.sqrt(true_rows.shape[1])
        return errors

    def rmse(self, truth: ArrayLike) -> float:
        """Return the root mean square of `row_errors`.

        Parameters
        ----------
        truth : array-like of shape (n_truth, n_features)
            The rows that were attacked.

        Returns
        -------
        float
            The error, in the unit of the features.
        """
        return float(np.sqrt(np.mean(self.row_errors(truth) ** 2)))

    def n_exact(self, truth: ArrayLike, tol: float = 1e-9) -> int:
        """Count the true rows that were found.

        Parameters
        ----------
        truth : array-like of shape (n_truth, n_features)
            The rows that were attacked.
        tol : float, default=1e-9
            Largest root mean squared error over the features of a row that counts as found.

        Returns
        -------
        int
            Number of rows of `truth` with a reconstructed row that near.
        """
        return int(np.count_nonzero(self.row_errors(truth) <= tol))

    def __repr__(self) -> str:
        n_rows, n_features = self.rows.shape
        facts = [f"{n_rows} rows", f"{n_features} features"]
        if self.victim is not None:
            facts.append(f"victim={self.victim!r}")
        if self.t is not None:
            facts.append(f"t={self.t:.4g}")
        if self.error_bound is not None:
            facts.append(f"error_bound={self.error_bound:.2g}")
        facts += [self.method] * bool(self.method)
        return f"{type(self).__name__}({', '.join(facts)})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedDifferences:
    """Differences between rows of two parties, as a server that sees two messages finds them.

    Parameters
    ----------
    first_rows, second_rows : ndarray of shape (n_pairs,)
        Positions of the two rows of each pair in the two messages, which are those in the
        parties' own tables.
    differences : ndarray of shape (n_pairs, n_features)
        ``x_i - y_j``; up to the unknown factor ``1 - t`` when t was not given.
    """

    first_rows: np.ndarray
    second_rows: np.ndarray
    differences: np.ndarray

    @cached_property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.differences)

    def errors(self, first: ArrayLike, second: ArrayLike) -> np.ndarray:
        """Return how wrong each difference is.

        Parameters
        ----------
        first, second : array-like of shape (n, n_features), (m, n_features)
            The rows that were attacked.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Root mean squared error over the features.
        """
        truth = np.asarray(first)[self.first_rows] - np.asarray(second)[self.second_rows]
        errors: np.ndarray = np.sqrt(np.mean((self.differences - truth) ** 2, axis=1))
        return errors

    def n_exact(self, first: ArrayLike, second: ArrayLike, tol: float = 1e-9) -> int:
        """Count the differences that are right.

        Parameters
        ----------
        first, second : array-like of shape (n, n_features), (m, n_features)
            The rows that were attacked.
        tol : float, default=1e-9
            Largest root mean squared error over the features that counts as right.

        Returns
        -------
        int
            Number of pairs.
        """
        return int(np.count_nonzero(self.errors(first, second) <= tol))

    def __repr__(self) -> str:
        return f"PairedDifferences({self.n_pairs} pairs, {self.differences.shape[1]} features)"
