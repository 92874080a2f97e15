"""The matched filter: one linear estimate of all coins from releases that are sums."""

import math
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skdpot.audit.noise_evidence import NoiseCheck
from skdpot.release.releases import Part, Vectors

# Least noise in the equations, without which equal canaries would make them singular: a share of
# what a record changes, and for sums of batches of its norm, as they have single precision.
_LEAST_NOISE = 1e-5
_LEAST_OF_SUMS = 1e-4
_LEAST_WEIGHT = 1e-12  # of a record of a batch, whose inverse is taken

# The noise is learned if there are so many numbers per pair; the ridge makes this solvable.
_FREEDOM = 2
_RIDGE = 1e-9

# Noise is measured on the numbers that batches do not move, if so many are left. Directions of
# smaller eigenvalues than this share of the largest one count as not moved.
_FEWEST = 16
_RANK = 1e-9


class EvidenceSum:
    r"""The linear estimate of all coins from releases that are linear in the records.

    Release t is :math:`S_t = s_t + \sum_i b_i D_{ti} / 2 + N(0, c^2 σ_t^2)` with the coins
    :math:`b_i = ±1`; :math:`s_t` is what the known rows and the means of the pairs contribute,
    :math:`D_{ti}` the difference between those of the two records of pair i. The score is the
    estimate of :math:`b` with the least mean squared error: the matched filter
    :math:`\sum_t ⟨S_t − s_t, D_{ti}⟩ / σ_t^2` where noise dominates, and the solution of the
    equations without noise. The stated σ may be wrong, so the factor c is learned from what no coin
    explains, if there are enough numbers.

    *Secret batches* (`add_batch`). Let :math:`g_j` be what record j adds to a sum if it is in the
    batch, with probability q if it is in the data. The noisy sum then has the mean

    .. math:: q \left(\sum_{known} g_j + \sum_i \frac{g_i + g_i'}{2}
              + \sum_i b_i \frac{g_i - g_i'}{2}\right)

    and the draw of the batch adds about the covariance :math:`\sum_j s_j q (1 - q) g_j g_j^\top`
    to the noise, where s is 1 for known rows and 1/2 for candidates.

    With open coins (`heads`), `checks` collects the tests of the noise. Scores do not depend on the
    coins.
    """

    def __init__(self, n_pairs: int, heads: np.ndarray | None = None) -> None:
        self.n_pairs, self.heads = n_pairs, heads
        self.checks: list[NoiseCheck] = []
        self.unseen: list[str] = []  # kinds of noisy releases that no check covers
        self._scores: np.ndarray | None = None
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
        """Add a release of n numbers.

        `residual` is its value without what known rows and the means of the pairs contribute, and
        `differences` (n_members, n) what the two records of the pairs `members` differ by.
        """
        chosen = np.arange(self.n_pairs) if members is None else members
        information = Vectors(differences).gram() / 4.0
        floor = _LEAST_NOISE**2 * float(np.trace(information)) / max(len(chosen), 1)
        variance = max(float(noise_scale) ** 2, floor, 1e-300)
        self._information[np.ix_(chosen, chosen)] += information / variance
        self._matched[chosen] += differences @ residual / (2.0 * variance)
        self._energy += float(np.sum(np.square(residual))) / variance
        self._n_numbers += np.size(residual)
        self._exact |= variance > float(noise_scale) ** 2
        if self.heads is not None and name:
            rest = np.ravel(residual) - _explained(self.heads[chosen], differences)
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
        """Check the noise of a release, see `NoiseCheck`; here energies have the release's unit."""
        if sigma > 0.0:
            number = sum(check.name.startswith(f"{name} ") for check in self.checks) + 1
            signals = None if signals is None else signals / sigma**2
            energy, hidden = max(energy, 0.0) / sigma**2, hidden / sigma**2
            self.checks.append(NoiseCheck(f"{name} {number}", n_numbers, energy, hidden, signals))

    def add_batch(
        self,
        gram: np.ndarray,
        inner: np.ndarray,
        noise_scale: float,
        rates: np.ndarray,
        members: np.ndarray | None = None,
    ) -> None:
        """Add a noisy sum over a batch of records.

        `gram` holds the inner products of what all candidates add, of shape (n, n), and `inner`
        those with the residual. The last ones are the two records of the pairs `members`.
        """
        chosen = np.arange(self.n_pairs) if members is None else members
        if not len(chosen):
            return
        floor = _LEAST_OF_SUMS**2 * float(np.trace(gram)) / len(gram)
        variance = max(float(noise_scale) ** 2, floor, 1e-300)
        n_chosen = len(chosen)
        if np.all(rates == 1.0):  # no secret draw
            evidence = _difference(np.column_stack([gram, inner]), n_chosen) / variance
        else:
            n_known = len(gram) - 2 * n_chosen
            shares = np.concatenate([np.ones(n_known), np.full(2 * n_chosen, 0.5)])
            weights = np.maximum(shares * rates * (1.0 - rates), _LEAST_WEIGHT)
            # Woodbury's identity: with weights W, G' (σ² + G' W G)⁻¹ = (σ² + K W)⁻¹ G', K = G G'.
            system = gram + np.diag(variance / weights)
            solved = cho_solve(cho_factor(system), np.column_stack([gram, inner]))
            evidence = _difference(rates[:, None] * solved / weights[:, None], n_chosen)
        of_coins = _difference(rates[:, None] * evidence[:, :-1].T, n_chosen).T
        self._information[np.ix_(chosen, chosen)] += of_coins / 4.0
        self._matched[chosen] += evidence[:, -1] / 2.0

    def add_part(self, part: Part, shares: np.ndarray, name: str) -> None:
        """Add a part of a release, and check its noise if what a record adds is known exactly."""
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
            differences = part.rows.minus(first, second).array
            self.add(residual, differences, noise, pairs, name=name if part.exact else "")
            return
        gram = part.rows.gram()
        self.add_batch(gram, part.rows.inner(residual), noise, rates, pairs)
        if not part.exact or self.heads is None:
            return
        present = np.ones(len(members), dtype=bool)
        present[first], present[second] = self.heads[pairs], ~self.heads[pairs]
        signals = None
        if np.all(rates == 1.0):
            signals, diagonal = np.zeros(self.n_pairs), np.diag(gram)
            signals[pairs] = diagonal[first] + diagonal[second] - 2.0 * gram[first, second]
        inner = part.rows.inner(part.value)[present]
        energy, n_numbers, hidden = _unexplained(
            part.value, gram[np.ix_(present, present)], inner, rates[present]
        )
        self.check(name, energy, n_numbers, part.sigma, hidden, signals)

    def check_part(self, part: Part, name: str, n_records: int) -> None:
        """Check the noise of a part whose members are the records of the fit."""
        n_members = n_records if part.members is None else len(part.members)
        rates = np.ones(n_members) if part.rates is None else part.rates
        rest, hidden = part.value, 0.0
        if part.center is not None:
            rest = part.value - part.center
        elif part.rows is not None:
            rest = part.value - part.rows.sum(rates)
        if part.rows is not None and not np.all(rates == 1.0):
            # How far batches move a sum is known only if its mean is.
            spread = rates * (1.0 - rates)
            hidden = math.nan if part.center is None else float(spread @ np.diag(part.rows.gram()))
        self.check(name, float(rest @ rest), len(rest), part.sigma, hidden)

    def add_scores(self, scores: np.ndarray) -> None:
        """Take the scores of an attack on releases that are not linear."""
        self._scores = scores

    def scores(self) -> np.ndarray:
        """Return the estimate of each coin: positive for the first record, and larger if surer."""
        if self._scores is not None:
            return self._scores
        return self._solve(self._learned_variance())

    def _learned_variance(self) -> float:
        """Return c², or 1 if it cannot be learned, or if with one coin it would change nothing."""
        freedom = self._n_numbers - self.n_pairs
        if self._exact or self.n_pairs == 1 or freedom < (_FREEDOM - 1) * self.n_pairs:
            return 1.0
        level = _RIDGE * max(float(np.trace(self._information)) / self.n_pairs, 1.0)
        unexplained = self._energy - float(self._matched @ self._solve(level))
        return float(np.clip(unexplained / freedom, _LEAST_NOISE, 1.0 / _LEAST_NOISE))

    def _solve(self, level: float) -> np.ndarray:
        """Solve the equations of all coins with `level` added to their diagonal."""
        system = self._information + level * np.eye(self.n_pairs)
        return np.asarray(np.linalg.solve(system, self._matched))


def _explained(heads: np.ndarray, differences: Any) -> np.ndarray:
    """Return what the coins add to a release: half of the difference, for either side."""
    return np.where(heads, 0.5, -0.5) @ differences


def _difference(of_records: np.ndarray, n_pairs: int) -> np.ndarray:
    """Subtract the second record of each pair from the first, along the first axis."""
    return of_records[-2 * n_pairs : -n_pairs] - of_records[-n_pairs:]


def _unexplained(
    value: np.ndarray, gram: np.ndarray, inner: np.ndarray, rates: np.ndarray
) -> tuple[float, int, float]:
    """Return energy and length of what the records do not explain, and the energy of the batches.

    Batches move a sum within the span of what their records add. This span is left out if enough
    numbers remain.
    """
    energy, n_numbers = float(value @ value), len(value)
    if not np.all(rates == 1.0):
        eigenvalues, vectors = np.linalg.eigh(gram)
        moved = eigenvalues > _RANK * max(eigenvalues[-1], 1e-300)
        left = n_numbers - int(moved.sum())
        if left >= _FEWEST:
            explained = (vectors[:, moved].T @ inner) ** 2 / eigenvalues[moved]
            return energy - float(explained.sum()), left, 0.0
    energy += float(rates @ gram @ rates - 2.0 * rates @ inner)
    return energy, n_numbers, float(np.sum(rates * (1.0 - rates) * np.diag(gram)))
