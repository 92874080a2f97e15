"""What noisy sums over secret batches say about the canaries."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skdpot.audit.evidence.linear import EvidenceSum

__all__ = ["BatchEvidence"]

_LEAST_NOISE = 1e-4  # of the norm of a record: what single precision leaves of exact sums
_LEAST_WEIGHT = 1e-12


class BatchEvidence(EvidenceSum):
    r"""Estimate of all coins from releases of everybody and releases of batches.

    Let :math:`g_j` be what record j adds to a sum if it is in the batch. Of a pair one record is
    in the data, by a coin :math:`b = ±1`, and a record in the data is in the batch with
    probability q. The noisy sum then has the mean

    .. math:: q \Big(\sum_{known} g_j + \sum_i \frac{g_i + g_i'}{2}
              + \sum_i b_i \frac{g_i - g_i'}{2}\Big)

    and, beside the noise, about the covariance :math:`\sum_j s_j q (1 - q) g_j g_j^\top` from
    the draw of the batch, where s is 1 for known rows and 1/2 for candidates. The estimate of least
    mean squared error tells candidates apart by all that their vectors differ in, and is the
    matched filter where the noise rules.
    """

    def add_batch(
        self, gram: np.ndarray, inner: np.ndarray, noise_scale: float, rates: np.ndarray
    ) -> None:
        """Add a noisy sum over a batch.

        Parameters
        ----------
        gram : ndarray of shape (n_records, n_records)
            Inner products of the vectors g: of known rows, then of the first and then of the
            second records of all pairs. So sums of any length take little memory.
        inner : ndarray of shape (n_records,)
            Inner products of the vectors with the release less its mean.
        noise_scale : float
            Standard deviation of the noise of each number, 0 for none.
        rates : ndarray of shape (n_records,)
            q of each record.
        """
        floor = _LEAST_NOISE**2 * float(np.trace(gram)) / len(gram)
        variance = max(float(noise_scale) ** 2, floor, 1e-300)
        if np.all(rates == 1.0):  # no secret draw
            evidence = self._differences(np.column_stack([gram, inner])) / variance
        else:
            n_known = len(gram) - 2 * self.n_pairs
            shares = np.concatenate([np.ones(n_known), np.full(2 * self.n_pairs, 0.5)])
            weights = np.maximum(shares * rates * (1.0 - rates), _LEAST_WEIGHT)
            # Woodbury's identity: with weights W, G' (σ² + G' W G)⁻¹ = (σ² + K W)⁻¹ G', K = G G'.
            system = gram + np.diag(variance / weights)
            solved = cho_solve(cho_factor(system), np.column_stack([gram, inner]))
            evidence = self._differences(rates[:, None] * solved / weights[:, None])
        of_coins = self._differences(rates[:, None] * evidence[:, :-1].T).T
        self._information += of_coins / 4.0
        self._matched += evidence[:, -1] / 2.0

    def _differences(self, of_records: np.ndarray) -> np.ndarray:
        """Return what the first of each pair has more than the second, along the first axis."""
        second = of_records[-self.n_pairs :]
        first = of_records[-2 * self.n_pairs : -self.n_pairs]
        difference: np.ndarray = first - second
        return difference
