"""What several noisy releases together say about the canaries."""

from typing import Any

import numpy as np

__all__ = ["EvidenceSum"]

_LEAST_NOISE = 1e-5  # of what a record changes: canaries that coincide leave equations singular


class EvidenceSum:
    r"""The linear estimate of all coins from releases that are linear in the records.

    Release t is :math:`S_t = s_t + \sum_i b_i D_{ti} / 2 + N(0, σ_t^2)` with the coins
    :math:`b_i = ±1`. The estimate of :math:`b` with the least mean squared error is that of
    `skdpot.audit.evidence.linear_evidence` for all releases side by side, each divided by its
    noise; of each only a matrix of shape (n_pairs, n_pairs) has to be kept.

    Parameters
    ----------
    n_pairs : int
        Number of coins.
    """

    def __init__(self, n_pairs: int) -> None:
        self.n_pairs = n_pairs
        self._information = np.zeros((n_pairs, n_pairs))
        self._matched = np.zeros(n_pairs)

    def add(
        self,
        residual: np.ndarray,
        differences: Any,
        noise_scale: float,
        members: np.ndarray | None = None,
    ) -> None:
        """Add a release.

        Parameters
        ----------
        residual : ndarray of shape (n_numbers,)
            The release less what the known rows and the means of the pairs contribute.
        differences : ndarray or sparse array of shape (n_members, n_numbers)
            What the first record of each pair contributes less what the second does.
        noise_scale : float
            Standard deviation of the noise of each number, 0 for none.
        members : ndarray of int, optional
            Pairs that the release depends on, all by default.
        """
        chosen = np.arange(self.n_pairs) if members is None else members
        information = (differences @ differences.T) / 4.0
        if not isinstance(information, np.ndarray):
            information = information.toarray()
        floor = _LEAST_NOISE**2 * float(np.trace(information)) / max(len(chosen), 1)
        variance = max(float(noise_scale) ** 2, floor, 1e-300)
        self._information[np.ix_(chosen, chosen)] += information / variance
        self._matched[chosen] += differences @ residual / (2.0 * variance)

    def scores(self) -> np.ndarray:
        """Return the estimate of each coin; positive for the first record, larger is surer."""
        system = self._information + np.eye(self.n_pairs)
        estimate: np.ndarray = np.linalg.solve(system, self._matched)
        return estimate
