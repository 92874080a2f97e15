"""What attacks on synthetic rows share: their input and their result."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import as_finite
from skdpot.audit.membership.result import MembershipResult

__all__ = ["SyntheticMembershipResult", "read_rows", "scaled"]


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembershipResult(MembershipResult):
    """Scores of members and of others in an attack on one set of synthetic rows.

    Parameters
    ----------
    member_scores : ndarray of shape (n_members,)
        Scores of rows that the generator was fitted on.
    other_scores : ndarray of shape (n_others,)
        Scores of other rows of the same population.
    epsilon, delta : float
        What the release claims; infinity and 0 for nothing.
    attack : str, default=""
        Its name.

    Notes
    -----
    One release, many persons: confidence limits here are over the choice of persons, the
    release being what it is. If members are a random part of the population, a claim bounds the
    rates in the mean over releases. That refutes a claim less strictly than
    `skdpot.audit.one_run_audit` does, and `epsilon_lower_bound` is only indicative.
    """

    attack: str = ""

    def figures(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the figures of the attack.

        Parameters
        ----------
        confidence : float, default=0.95
            Of the limits, in (0, 1).

        Returns
        -------
        dict
            ``auc`` with its limits, ``advantage``, and the true positive rates at false positive
            rates of 0.001, 0.01 and 0.1 with theirs.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1) or there are fewer than two scores of a kind.
        """
        low, high = self.auc_interval(confidence)
        figures = {"auc": self.auc, "auc_low": low, "auc_high": high, "advantage": self.advantage}
        for fpr in (0.001, 0.01, 0.1):
            found = self.tpr_at(fpr, confidence)
            for suffix, value in (("", found.value), ("_low", found.low), ("_high", found.high)):
                figures[f"tpr_at_{fpr:g}{suffix}"] = value
        return figures

    def __repr__(self) -> str:
        return (
            f"SyntheticMembershipResult({self.attack!r}, {len(self.member_scores)} members, "
            f"{len(self.other_scores)} others, auc={self.auc:.3f}, "
            f"tpr_at(0.01)={self.tpr_at(0.01).value:.3f})"
        )


def read_rows(X: ArrayLike, name: str, n_features: int | None = None) -> np.ndarray:
    """Return finite float64 rows.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows.
    name : str
        What messages call them.
    n_features : int, optional
        How many features they must have.

    Returns
    -------
    ndarray of shape (n_rows, n_features)

    Raises
    ------
    ValueError
        If they are not such rows; no value is quoted.
    """
    # Not check_array, whose messages quote rows of other shapes.
    rows = as_finite(X, name, "must hold finite numbers, in rows of features.")
    if rows.ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions, (n_rows, n_features), and has {rows.ndim}. Of a "
            "single feature take array.reshape(-1, 1), of a single row array.reshape(1, -1)."
        )
    if 0 in rows.shape:
        raise ValueError(
            f"{name} has {rows.shape[0]} rows and {rows.shape[1]} features; it must have at least "
            "one of each."
        )
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(
            f"{name} has {rows.shape[1]} features and synthetic has {n_features}: all rows must "
            "have the same features in the same order."
        )
    return rows


def scaled(rows: np.ndarray, divisors: np.ndarray) -> np.ndarray:
    """Return rows whose features are divided by `divisors`."""
    quotients: np.ndarray = rows / divisors
    return quotients
