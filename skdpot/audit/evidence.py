"""How much a noisy linear release speaks for one record of each pair."""

import numpy as np

__all__ = ["linear_evidence"]


def linear_evidence(
    residual: np.ndarray, differences: np.ndarray, noise_scale: float
) -> np.ndarray:
    r"""Estimate all coins of an audit at once from a release that is linear in the records.

    With coins :math:`b_i = ±1` for the first and the second record of slot i the release is
    :math:`S = s_0 + \sum_i b_i D_i / 2 + N(0, σ²)`, where :math:`D_i` is the difference of what the
    two records contribute, and :math:`s_0` what the known rows and the means of the pairs do. The
    score is the linear estimate of :math:`b` with the least mean squared error: the matched
    filter :math:`⟨S − s_0, D_i⟩` where the noise rules, and without noise the solution of the
    equations, in which the other canaries do not disturb.

    Parameters
    ----------
    residual : ndarray of shape (n_numbers,)
        ``S − s_0``.
    differences : ndarray of shape (n_pairs, n_numbers)
        D.
    noise_scale : float
        σ, 0 for a release without noise.

    Returns
    -------
    ndarray of shape (n_pairs,)
        Positive for the first record. Larger is surer.
    """
    half = np.asarray(differences, dtype=np.float64) / 2.0
    gram = half @ half.T
    # A floor for releases without noise: canaries that coincide leave the equations singular.
    ridge = max(float(noise_scale) ** 2, 1e-10 * float(np.trace(gram)) / len(half), 1e-300)
    gram[np.diag_indices_from(gram)] += ridge
    evidence: np.ndarray = np.linalg.solve(gram, half @ np.asarray(residual, dtype=np.float64))
    return evidence
