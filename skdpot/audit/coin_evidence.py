r"""What several noisy releases say about the coins of an audit, all coins and releases together.

A release is modelled as :math:`S = \sum_j z_j g_j + N(0, σ²)` with what record j would add,
:math:`g_j`, and whether it was counted, :math:`z_j`. Of a pair one record is in the data, by the
fall of a coin :math:`b = ±1`, and a record in the data is in a batch with probability q. Then

.. math:: E[S \mid b] = q \Big(\sum_{known} g_j + \sum_i \frac{g_i + g_i'}{2}
          + \sum_i b_i \frac{g_i - g_i'}{2}\Big),

and the draws of batches add the covariance :math:`q (1 - q)\, g_j g_j^\top` of each record. The
score is the linear estimate of b of least mean squared error from all releases, whose noises and
batches are independent. So neither the other canaries nor the batches disturb where records can
be told apart, and where the noise rules it is the matched filter.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["CoinEvidence"]

_FLOOR = 1e-8  # of the squared norm of a record: what rounding leaves of releases without noise


class CoinEvidence:
    """Collects releases, then estimates the coins.

    Parameters
    ----------
    n_pairs : int
        Number of coins.
    """

    def __init__(self, n_pairs: int) -> None:
        self._n_pairs = n_pairs
        self._precision = np.eye(n_pairs)
        self._evidence = np.zeros(n_pairs)

    def add_whole(self, gram: np.ndarray, inner: np.ndarray, noise_scale: float) -> None:
        """Add a release that counts every record of the data.

        Parameters
        ----------
        gram : ndarray of shape (n_pairs, n_pairs)
            Inner products of the differences ``g - g'``.
        inner : ndarray of shape (n_pairs,)
            Their inner products with the release less its mean.
        noise_scale : float
            σ.
        """
        variance = _variance(noise_scale, gram)
        self._precision += gram / (4.0 * variance)
        self._evidence += inner / (2.0 * variance)

    def add_sampled(
        self, gram: np.ndarray, inner: np.ndarray, noise_scale: float, rates: np.ndarray
    ) -> None:
        """Add a release of a batch.

        Parameters
        ----------
        gram : ndarray of shape (n_records, n_records)
            Inner products of what records would add: known ones, the first and the second of all
            pairs.
        inner : ndarray of shape (n_records,)
            Their inner products with the release less its mean.
        noise_scale : float
            σ.
        rates : ndarray of shape (n_records,)
            q of each record.
        """
        if np.all(rates == 1.0):
            self.add_whole(
                self._differences(self._differences(gram).T), self._differences(inner), noise_scale
            )
            return
        n_known = len(gram) - 2 * self._n_pairs
        share = np.concatenate([np.ones(n_known), np.full(2 * self._n_pairs, 0.5)])
        # Woodbury: everything in the space of records, of which there are fewer than parameters.
        weights = np.maximum(share * rates * (1.0 - rates), 1e-12)
        system = gram.copy()
        system[np.diag_indices_from(system)] += _variance(noise_scale, gram) / weights
        solved = cho_solve(cho_factor(system), np.column_stack([gram, inner])) / weights[:, None]
        halves = self._differences(rates[:, None] * solved) / 2.0
        self._precision += self._differences((rates[:, None] * halves[:, :-1].T)).T / 2.0
        self._evidence += halves[:, -1]

    def scores(self) -> np.ndarray:
        """Return the estimated coins, shape (n_pairs,): positive for the first record."""
        estimate: np.ndarray = np.linalg.solve(self._precision, self._evidence)
        return estimate

    def _differences(self, of_records: np.ndarray) -> np.ndarray:
        """Return what the first of each pair has more than the second, along the first axis."""
        first, second = (
            of_records[-2 * self._n_pairs : -self._n_pairs],
            of_records[-self._n_pairs :],
        )
        return first - second


def _variance(noise_scale: float, gram: np.ndarray) -> float:
    """Return the variance of the noise, or what rounding leaves where there is none."""
    return max(float(noise_scale) ** 2, _FLOOR * float(np.trace(gram)) / len(gram), 1e-300)
