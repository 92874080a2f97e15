r"""The one attack on releases that are sums over records, or nearly so: a matched filter.

Every release says what a record adds to it (`skdpot.privacy.recording.Release.parts`), by the code
that the mechanism itself has next to its sum. So all coins of an audit are estimated at once from
all releases together, and once the coins are open the residuals show whether the noise is there.
"""

import math
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skdpot.audit.noise import NoiseCheck
from skdpot.privacy.recording import Part, Vectors

__all__ = ["EvidenceSum", "linear_evidence"]

_FEWEST = 16  # numbers beside those that batches move, from which noise is measured
_RANK = 1e-9  # of the largest eigenvalue: what counts as moved
_LEAST_NOISE = 1e-5  # of what a record changes: canaries that coincide leave equations singular
_LEAST_OF_SUMS = 1e-4  # of the norm of a record: what single precision leaves of exact sums
_LEAST_WEIGHT = 1e-12
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

    *Secret batches* (`add_batch`). Let :math:`g_j` be what record j adds to a sum if it is in the
    batch. Of a pair one record is in the data, and a record in the data is in the batch with
    probability q. The noisy sum then has the mean

    .. math:: q \left(\sum_{known} g_j + \sum_i \frac{g_i + g_i'}{2}
              + \sum_i b_i \frac{g_i - g_i'}{2}\right)

    and, beside the noise, about the covariance :math:`\sum_j s_j q (1 - q) g_j g_j^\top` from
    the draw of the batch, where s is 1 for known rows and 1/2 for candidates.

    *The noise itself* (`checks`). Once the coins are open, the residuals show whether the stated
    noise is there, see `skdpot.audit.noise`. Scores do not depend on the coins.

    Parameters
    ----------
    n_pairs : int
        Number of coins.
    heads : ndarray of bool of shape (n_pairs,), optional
        The coins, for `checks`; nothing is checked without.
    """

    def __init__(self, n_pairs: int, heads: np.ndarray | None = None) -> None:
        self.n_pairs, self.heads = n_pairs, heads
        self.checks: list[NoiseCheck] = []
        self.unseen: list[str] = []  # kinds of noisy releases that no check covers
        self._given: np.ndarray | None = None
        self._information = np.zeros((n_pairs, n_pairs))
        self._matched = np.zeros(n_pairs)
        self._energy, self._n_numbers, self._exact = 0.0, 0, False

    def add(
        self,
        residual: np.ndarray,
        differences: Any,
        noise_scale: float,
        members: np.ndarray | None = None,
        *,
        name: str = "release",
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
        name : str, default="release"
            For the check of the noise; nothing is checked without.
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
        if self.heads is not None and name:
            coins = np.where(self.heads[chosen], 0.5, -0.5)
            rest = np.ravel(residual) - coins @ differences
            signals = np.zeros(self.n_pairs)
            squares = differences * differences  # entry by entry, of sparse arrays too
            signals[chosen] = np.asarray(squares.sum(axis=1)).ravel()
            self.check(name, float(rest @ rest), len(rest), float(noise_scale), signals=signals)

    def check(
        self,
        name: str,
        energy: float,
        n_numbers: int,
        sigma: float,
        hidden: float = 0.0,
        signals: np.ndarray | None = None,
    ) -> None:
        """Check the noise of a release, see `NoiseCheck`; energies in the units of the release."""
        if sigma > 0.0:
            number = sum(check.name.startswith(f"{name} ") for check in self.checks) + 1
            self.checks.append(
                NoiseCheck(
                    name=f"{name} {number}",
                    n_numbers=n_numbers,
                    energy=max(energy, 0.0) / sigma**2,
                    hidden=hidden / sigma**2,
                    signals=None if signals is None else signals / sigma**2,
                )
            )

    def add_batch(
        self,
        gram: np.ndarray,
        inner: np.ndarray,
        noise_scale: float,
        rates: np.ndarray,
        members: np.ndarray | None = None,
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
        members : ndarray of int, optional
            Pairs that the release depends on, all by default.
        """
        chosen = np.arange(self.n_pairs) if members is None else members
        if not len(chosen):
            return
        floor = _LEAST_OF_SUMS**2 * float(np.trace(gram)) / len(gram)
        variance = max(float(noise_scale) ** 2, floor, 1e-300)
        k = len(chosen)
        if np.all(rates == 1.0):  # no secret draw
            evidence = _apart(np.column_stack([gram, inner]), k) / variance
        else:
            shares = np.concatenate([np.ones(len(gram) - 2 * k), np.full(2 * k, 0.5)])
            weights = np.maximum(shares * rates * (1.0 - rates), _LEAST_WEIGHT)
            # Woodbury's identity: with weights W, G' (σ² + G' W G)⁻¹ = (σ² + K W)⁻¹ G', K = G G'.
            system = gram + np.diag(variance / weights)
            solved = cho_solve(cho_factor(system), np.column_stack([gram, inner]))
            evidence = _apart(rates[:, None] * solved / weights[:, None], k)
        of_coins = _apart(rates[:, None] * evidence[:, :-1].T, k).T
        self._information[np.ix_(chosen, chosen)] += of_coins / 4.0
        self._matched[chosen] += evidence[:, -1] / 2.0

    def add_part(self, part: Part, shares: np.ndarray, name: str) -> None:
        """Add a part of a release, and check its noise if what a record adds is known exactly.

        `shares` are those of all records: 1 for known ones, which come first, and 1/2 for the
        first and then the second of all pairs.
        """
        if part.rows is None:
            return
        members = np.arange(len(shares)) if part.members is None else part.members
        rates = np.ones(len(members)) if part.rates is None else part.rates
        start = len(shares) - 2 * self.n_pairs
        first = np.flatnonzero((members >= start) & (members < start + self.n_pairs))
        second = np.flatnonzero(members >= start + self.n_pairs)
        pairs = members[first] - start
        center = part.rows.sum(rates * shares[members]) if part.center is None else part.center
        residual, noise = part.value - center, math.hypot(part.sigma, part.missed)
        if isinstance(part.rows, Vectors) and part.rates is None:
            apart = part.rows.minus(first, second).array
            self.add(residual, apart, noise, pairs, name=name if part.exact else "")
            return
        gram = part.rows.gram()
        self.add_batch(gram, part.rows.inner(residual), noise, rates, pairs)
        if not part.exact or self.heads is None:
            return
        there = np.ones(len(members), dtype=bool)
        there[first], there[second] = self.heads[pairs], ~self.heads[pairs]
        signals = None
        if np.all(rates == 1.0):
            signals, diagonal = np.zeros(self.n_pairs), np.diag(gram)
            signals[pairs] = diagonal[first] + diagonal[second] - 2.0 * gram[first, second]
        inner = part.rows.inner(part.value)[there]
        left = _residual(part.value, gram[np.ix_(there, there)], inner, rates[there], exact=True)
        self.check(name, *left[:2], part.sigma, left[2], signals)

    def check_part(self, part: Part, name: str) -> None:
        """Check the noise of a part of which the records that are there are the members."""
        if part.rows is None:
            rest = part.value - (0.0 if part.center is None else part.center)
            self.check(name, float(rest @ rest), len(rest), part.sigma)
            return
        rest = part.value if part.center is None else part.value - part.center
        gram, inner = part.rows.gram(), part.rows.inner(rest)
        rates = np.ones(len(gram)) if part.rates is None else part.rates
        left = _residual(rest, gram, inner, rates, exact=False, centred=part.center is not None)
        self.check(name, *left[:2], part.sigma, left[2])

    def add_scores(self, scores: np.ndarray) -> None:
        """Take scores from elsewhere, for releases that are not linear."""
        self._given = scores

    def scores(self) -> np.ndarray:
        """Return the estimate of each coin; positive for the first record, larger is surer."""
        if self._given is not None:
            return self._given
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


def _apart(of_records: np.ndarray, n_pairs: int) -> np.ndarray:
    """Return what the first of each pair has more than the second, along the first axis."""
    difference: np.ndarray = of_records[-2 * n_pairs : -n_pairs] - of_records[-n_pairs:]
    return difference


def _residual(
    value: np.ndarray,
    gram: np.ndarray,
    inner: np.ndarray,
    rates: np.ndarray,
    *,
    exact: bool,
    centred: bool = False,
) -> tuple[float, int, float]:
    """Return energy and length of what the records do not explain, and what hides the noise.

    What batches move lies in the span of what their records add, if that is `exact`. It is left
    out if enough numbers remain.
    """
    energy, n_numbers, drawn = float(value @ value), len(value), not np.all(rates == 1.0)
    if drawn and exact:
        eigenvalues, vectors = np.linalg.eigh(gram)
        moved = eigenvalues > _RANK * max(eigenvalues[-1], 1e-300)
        left = n_numbers - int(moved.sum())
        if left >= _FEWEST:
            explained = (vectors[:, moved].T @ inner) ** 2 / eigenvalues[moved]
            return energy - float(explained.sum()), left, 0.0
    if not centred:
        energy += float(rates @ gram @ rates - 2.0 * rates @ inner)
    hidden = float(np.sum(rates * (1.0 - rates) * np.diag(gram)))
    return energy, n_numbers, hidden if exact or centred or not drawn else math.nan
