"""What noisy releases say about the canaries if they are linear in the records."""

from typing import Any

import numpy as np

__all__ = ["EvidenceSum", "linear_evidence"]

_LEAST_NOISE = 1e-5  # of what a record changes: canaries that coincide leave equations singular
_FREEDOM = 2  # numbers a pair, from which the noise is learned
_RIDGE = 1e-9


def linear_evidence(
    residual: np.ndarray, differences: np.ndarray, noise_scale: float
) -> np.ndarray:
    """Estimate all coins of an audit at once from one release, see `EvidenceSum`.

    Parameters
    ----------
    residual : ndarray of shape (n_numbers,)
        The release less what the known rows and the means of the pairs contribute.
    differences : ndarray of shape (n_pairs, n_numbers)
        What the first record of each pair contributes less what the second does.
    noise_scale : float
        Standard deviation of the noise of each number, 0 for none.

    Returns
    -------
    ndarray of shape (n_pairs,)
        Positive for the first record. Larger is surer.
    """
    evidence = EvidenceSum(len(differences))
    evidence.add(residual, differences, noise_scale)
    return evidence.scores()


class EvidenceSum:
    r"""The linear estimate of all coins from releases that are linear in the records.

    Release t is :math:`S_t = s_t + \sum_i b_i D_{ti} / 2 + N(0, c^2 σ_t^2)` with the coins
    :math:`b_i = ±1`; :math:`s_t` is what the known rows and the means of the pairs contribute,
    :math:`D_{ti}` the difference of what the two records of pair i do. The score is the estimate of
    :math:`b` with the least mean squared error: the matched filter
    :math:`\sum_t ⟨S_t − s_t, D_{ti}⟩ / σ_t^2` where the noise rules, and without noise the solution
    of the equations, in which the other canaries do not disturb. Of each release only a matrix of
    shape (n_pairs, n_pairs) is kept.

    The noise σ is what a mechanism states, and an audit asks whether it is there. So c is learned
    from what no coin explains, where the releases hold enough numbers for that: from the squared
    distance of the releases to the nearest that coins of any real values would give.

    Parameters
    ----------
    n_pairs : int
        Number of coins.
    """

    def __init__(self, n_pairs: int) -> None:
        self.n_pairs = n_pairs
        self._information = np.zeros((n_pairs, n_pairs))
        self._matched = np.zeros(n_pairs)
        self._energy, self._n_numbers, self._exact = 0.0, 0, False

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
        self._energy += float(np.sum(np.square(residual))) / variance
        self._n_numbers += np.size(residual)
        self._exact |= variance > float(noise_scale) ** 2

    def scores(self) -> np.ndarray:
        """Return the estimate of each coin; positive for the first record, larger is surer."""
        estimate: np.ndarray = self._solve(self._learned_variance())
        return estimate

    def _learned_variance(self) -> float:
        """Return c², or 1 where it cannot be learned or, with one coin, would change nothing."""
        freedom = self._n_numbers - self.n_pairs
        if self._exact or self.n_pairs == 1 or freedom < (_FREEDOM - 1) * self.n_pairs:
            return 1.0
        level = _RIDGE * max(float(np.trace(self._information)) / self.n_pairs, 1.0)
        unexplained = self._energy - float(self._matched @ self._solve(level))
        return float(np.clip(unexplained / freedom, _LEAST_NOISE, 1.0 / _LEAST_NOISE))

    def _solve(self, level: float) -> np.ndarray:
        """Solve the equations with `level` on their diagonal."""
        system = self._information + level * np.eye(self.n_pairs)
        return np.asarray(np.linalg.solve(system, self._matched))
