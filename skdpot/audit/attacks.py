r"""What an attacker reads in the releases of a fit.

The noisy releases are public, so the attacker reads them rather than the model. Releases that are
sums over records say themselves what a record adds, and each estimator says what its mechanism sees
of a row (`_seen_by`). Two attacks are not linear: on noisy rows in random order, and on exact
medians.

A step of the row mechanisms projects a batch of k of the n rows on directions θ_j, adds noise and
sorts the numbers of each direction. The attacker asks whether one of the k numbers of each
direction comes from the candidate a, and the others from the mixture :math:`f_j` of all other
candidates (known rows, and each member of a pair by half):

.. math:: R(a) = \sum_j \log \frac1k \sum_{l=1}^k
          \frac{φ_σ(v_{jl} - ⟨a, θ_j⟩)}{f_j(v_{jl})},

the logarithm of the likelihood of the batch with a, divided by that of one without. A row is in
a batch with probability p = k / n, so that the score of a pair is

.. math:: \sum_{\text{steps}} \log \frac{1 - p + p\,e^{R(\text{first})}}
          {1 - p + p\,e^{R(\text{second})}}.

Sorting does not change a batch of one row: its numbers are one point in as many dimensions as there
are directions. Without noise the numbers are exact, and the row in the batch is found.

Sorted among n noisy numbers, a record is only as visible as in their sum: :math:`\sqrt n` times
weaker than what is charged (`skdpot.audit.canaries`). The sum of squares of the numbers, which
sorting does not change, shows the noise itself.

The matched filter
------------------
Every release says what a record adds to it (`skdpot.release.gate.Release.parts`). All coins of
an audit are estimated at once from all releases.

Once the coins are open, the auditor computes each release without noise from the rows and the
public facts (parameters, bins). The rest is the noise: with normal noise of the stated σ, n numbers
have

.. math:: \sum_k r_k^2 / σ^2 \sim χ^2_n.

If the exact value is not known (secret batches, numbers whose order is lost, rounding), r is the
noise plus something independent of it, and the sum is noncentral :math:`χ^2_n`, stochastically
larger. The lower tail of :math:`χ^2_n` therefore always bounds the p-value: what the auditor does
not know costs power and never causes a false alarm. Discrete Gaussian noise on a lattice of at
least one σ has the same tail for sixteen or more numbers, up to a factor of 1.5 at a p-value of
10⁻⁴; smaller releases are tested together.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2, norm
from tqdm.auto import tqdm

from skdpot.audit.canaries import AuditedFit, NoKnownAttackError, Score
from skdpot.ot.flow import ProjectedRows
from skdpot.privacy.events import gdp_epsilon
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import Part, Records, Release, Vectors
from skdpot.sampling.row_releases import SmoothedProjections, project_rows

_FEWEST_TESTED = 16  # numbers that are tested by themselves
_SHARE = 0.01  # of the chance of an error of the whole audit, that the tests of the noise may have
_EVERY = "all together"
_POWER = 0.95  # with which probability noise below `seen_below` is found


@dataclass(frozen=True, eq=False)
class NoiseCheck:
    """The residual of one release, compared with its stated noise."""

    name: str
    n_numbers: int
    energy: float
    hidden: float = 0.0
    signals: np.ndarray | None = None

    @property
    def factor(self) -> float:
        """The standard deviation that was found over the stated one, or an upper bound of that."""
        return math.sqrt(self.energy / self.n_numbers)

    @property
    def p_value(self) -> float:
        """A bound on the probability of so small a residual under the stated noise."""
        return float(chi2.cdf(self.energy, self.n_numbers))

    def at_most(self, level: float) -> float:
        """Bound the noise over the stated noise from above, with an error of at most `level`."""
        return math.sqrt(self.energy / float(chi2.ppf(level, self.n_numbers)))

    def seen_below(self, level: float) -> float | None:
        """Return the share of the stated noise below which a test at `level` finds it (95 %)."""
        room = float(chi2.ppf(level, self.n_numbers)) - self.hidden
        if not room > 0.0:
            return None
        # (c z + √hidden)², of which the mixed term is normal and c² χ² independent of its sign.
        square = float(chi2.ppf(_POWER, self.n_numbers))
        mixed = float(norm.ppf(_POWER)) * math.sqrt(self.hidden)
        return (math.sqrt(mixed**2 + square * room) - mixed) / square


@dataclass(frozen=True, eq=False, repr=False)
class NoiseEvidence:
    """The tests of the stated noise of all releases of an audited fit."""

    checks: tuple[NoiseCheck, ...]
    confidence: float
    unseen: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, checks: Sequence[NoiseCheck], confidence: float, unseen: Sequence[str] = ()
    ) -> "NoiseEvidence":
        """Join the checks of small releases, and add one of all together."""
        tested = [check for check in checks if check.n_numbers >= _FEWEST_TESTED]
        small: dict[str, list[NoiseCheck]] = {}
        for check in checks:
            if check.n_numbers < _FEWEST_TESTED:
                small.setdefault(check.name.rstrip("0123456789 "), []).append(check)
        groups = [_joined(f"all {kind}", of_kind) for kind, of_kind in small.items()]
        tested += (group for group in groups if group.n_numbers >= _FEWEST_TESTED)
        missed = [group.name for group in groups if group.n_numbers < _FEWEST_TESTED]
        if len(checks) > 1:
            every = _joined(_EVERY, checks)
            tested += [every] if every.n_numbers >= _FEWEST_TESTED and len(tested) != 1 else []
        return cls(tuple(tested), confidence, (*unseen, *missed))

    @property
    def level(self) -> float:
        """The p-value below which a single check refutes."""
        return _SHARE * (1.0 - self.confidence) / max(len(self.checks), 1)

    @property
    def refuting(self) -> tuple[NoiseCheck, ...]:
        """The checks that refute the stated noise, those with the least noise first."""
        found = (check for check in self.checks if check.p_value < self.level)
        return tuple(sorted(found, key=lambda check: check.factor))

    @property
    def seen_below(self) -> float | None:
        """The share of the stated noise below which noise is found in any release but `blind`."""
        return min((share for share in self._seen().values() if share is not None), default=None)

    @property
    def blind(self) -> tuple[str, ...]:
        """Releases whose complete lack of noise this audit could not find."""
        found = (name for name, share in self._seen().items() if share is None)
        return tuple(dict.fromkeys((*self.unseen, *found)))

    def _seen(self) -> dict[str, float | None]:
        return {c.name: c.seen_below(self.level) for c in self.checks if c.name != _EVERY}

    def gaussian_epsilon_lower(self, delta: float) -> float | None:
        r"""Bound ε from below by how far the surest pair moves the releases, in found noise.

        :math:`μ^2 = \sum_t \lVert s_t - s_t' \rVert^2 / \hat σ_t^2` with upper limits of the noise
        in the place of σ. It holds if the noise is normal. A release depends on those before it,
        so that the sum is that of the run that took place: a correct account, which bounds every
        term whatever came before, is refuted with no larger probability than stated.
        """
        shown = [(check, check.signals) for check in self.checks if check.signals is not None]
        if not shown or delta <= 0.0:
            return None
        if any(check.energy <= 0.0 and signals.any() for check, signals in shown):
            return math.inf
        noisy = [(signals, check.at_most(self.level)) for check, signals in shown if check.energy]
        mu = math.sqrt(np.max(sum((signals / noise**2 for signals, noise in noisy), np.zeros(1))))
        return gdp_epsilon(mu, delta) if mu > 0.0 else 0.0

    @property
    def power(self) -> str:
        """What these tests can refute, in a sentence."""
        if self.seen_below is None:
            return "Missing noise could only have been found by the guesses."
        share = math.floor(100 * self.seen_below) / 100
        seen = f"Less than {share:.2f} of the stated noise in one release would have been found"
        return f"{seen}, but not in: {', '.join(self.blind)}." if self.blind else f"{seen}."

    @property
    def verdict(self) -> str:
        """The result in words."""
        if not self.refuting:
            return self.power
        worst = self.refuting[0]
        return (
            f"REFUTED: {worst.name} has {worst.factor:.2g} of the stated noise "
            f"(p = {worst.p_value:.1g})."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per check."""
        columns = ["release", "numbers", "found / stated", "p-value", "seen below"]
        rows = [
            (check.name, check.n_numbers, check.factor, check.p_value, check.seen_below(self.level))
            for check in self.checks
        ]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return f"NoiseEvidence({len(self.checks)} checks. {self.verdict})"


def _joined(name: str, checks: Sequence[NoiseCheck]) -> NoiseCheck:
    """Test several releases by the sum of their energies."""
    sums = (sum(getattr(c, part) for c in checks) for part in ("n_numbers", "energy", "hidden"))
    return NoiseCheck(name, *sums)


_FEWEST = 16  # numbers beside those that batches move, from which noise is measured
_RANK = 1e-9  # of the largest eigenvalue: what counts as moved
_LEAST_NOISE = 1e-5  # of what a record changes: canaries that coincide leave equations singular
_LEAST_OF_SUMS = 1e-4  # of the norm of a record: what single precision leaves of exact sums
_LEAST_WEIGHT = 1e-12
_FREEDOM = 2  # numbers a pair, from which the noise is learned
_RIDGE = 1e-9


class EvidenceSum:
    r"""The linear estimate of all coins from releases that are linear in the records.

    Release t is :math:`S_t = s_t + \sum_i b_i D_{ti} / 2 + N(0, c^2 σ_t^2)` with the coins
    :math:`b_i = ±1`; :math:`s_t` is what the known rows and the means of the pairs contribute,
    :math:`D_{ti}` the difference between those of the two records of pair i. The score is the
    estimate of :math:`b` with the least mean squared error: the matched filter
    :math:`\sum_t ⟨S_t − s_t, D_{ti}⟩ / σ_t^2` where the noise dominates, and without noise the
    solution of the equations. The stated noise σ may be wrong, so c is learned from what no coin
    explains, if there are enough numbers.

    *Secret batches* (`add_batch`). Let :math:`g_j` be what record j adds to a sum if it is in the
    batch, with probability q if it is in the data. The noisy sum then has the mean

    .. math:: q \left(\sum_{known} g_j + \sum_i \frac{g_i + g_i'}{2}
              + \sum_i b_i \frac{g_i - g_i'}{2}\right)

    and, beside the noise, about the covariance :math:`\sum_j s_j q (1 - q) g_j g_j^\top` from
    the draw of the batch, where s is 1 for known rows and 1/2 for candidates.

    Once the coins are open, `checks` tests the noise. Scores do not depend on the coins.
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
        """Add a release."""
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
        """Add a noisy sum over a batch."""
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
        left = _residual(part.value, gram[np.ix_(there, there)], inner, rates[there])
        self.check(name, *left[:2], part.sigma, left[2], signals)

    def check_part(self, part: Part, name: str, n_records: int) -> None:
        """Check the noise of a part of which the records that are there are the members."""
        n_members = n_records if part.members is None else len(part.members)
        rates = np.ones(n_members) if part.rates is None else part.rates
        rest, hidden = part.value, 0.0
        if part.center is not None:
            rest = part.value - part.center
        elif part.rows is not None:
            rest = part.value - part.rows.sum(rates)
        if part.rows is not None and not np.all(rates == 1.0):
            # What batches move is known only about a mean that is known.
            spread = rates * (1.0 - rates)
            hidden = math.nan if part.center is None else float(spread @ np.diag(part.rows.gram()))
        self.check(name, float(rest @ rest), len(rest), part.sigma, hidden)

    def add_scores(self, scores: np.ndarray) -> None:
        """Take scores from elsewhere, for releases that are not linear."""
        self._given = scores

    def scores(self) -> np.ndarray:
        """Return the estimate of each coin; positive for the first record, larger is surer."""
        if self._given is not None:
            return self._given
        return self._solve(self._learned_variance())

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
    return of_records[-2 * n_pairs : -n_pairs] - of_records[-n_pairs:]


def _residual(
    value: np.ndarray, gram: np.ndarray, inner: np.ndarray, rates: np.ndarray
) -> tuple[float, int, float]:
    """Return energy and length of what the records do not explain, and what hides the noise.

    What batches move lies in the span of what their records add. It is left out if enough numbers
    remain.
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


_NEAREST = 24  # values to a median, that are tried as one of the two middle ones
_SAME = 1e-12


def default_score(fitted: Any) -> Score:
    """Return the white-box score of a fitted estimator, by all releases that have an attack."""
    return lambda audited: evidence_of(audited).scores()


def evidence_of(audited: AuditedFit, heads: np.ndarray | None = None) -> EvidenceSum:
    """Gather what the releases of an audited fit say about the coins."""
    fitted = getattr(audited.fitted, "estimator_", audited.fitted)
    releases, own, has_rows = list(audited.releases), getattr(fitted, "release_", None), False
    if own is not None and any(one.kind == own.kind for one in releases):
        # Sketches that were merged count as their sum.
        releases = [*(one for one in releases if one.kind != own.kind), own]
    has_medians = not releases and hasattr(fitted, "center_")
    evidence = EvidenceSum(len(audited.pairs), heads)
    shares, there = audited.shares, None
    if heads is not None:
        n_pairs, n_known = len(heads), len(audited.X)
        chosen = n_known + np.arange(n_pairs) + np.where(heads, 0, n_pairs)
        there = np.concatenate([np.arange(n_known), chosen])
    for release in tqdm(releases, desc="releases", disable=audited.verbose <= 0):
        n_checks, is_rows = len(evidence.checks), release.kind == "rows"
        has_rows |= is_rows
        records = audited.candidates
        if hasattr(fitted, "_seen_by"):
            records = fitted._seen_by(release, *records)
        _add(evidence, release, records, shares, there)
        seen = len(evidence.checks) > n_checks or is_rows
        if heads is not None and np.max(release.sigma) > 0.0 and not seen:
            evidence.unseen.append(release.kind)
    if has_rows:
        add_rows(evidence, audited)
    elif has_medians:
        evidence.add_scores(_found_in_medians(audited))
    elif not (hasattr(fitted, "_canaries") or any(release.linear for release in releases)):
        raise NoKnownAttackError.of(fitted)
    return evidence


def _add(
    evidence: EvidenceSum,
    release: Release,
    records: Records,
    shares: np.ndarray,
    there: np.ndarray | None,
) -> None:
    """Add a release, and check its noise."""
    exact = set()
    for part in release.parts(records, shares):
        evidence.add_part(part, shares, release.kind)
        exact.add(part.exact)
    if there is not None and np.max(release.sigma) > 0.0 and exact != {True}:
        # What the rows that were there give may be known all the same.
        of_fit = tuple(None if of is None else of[there] for of in records)
        for part in release.parts(of_fit, np.ones(len(there))):
            evidence.check_part(part, release.kind, len(there))


def _found_in_medians(audited: AuditedFit) -> np.ndarray:
    """Count how often each record is the exact median of a feature, or one of the middle two."""
    (rows, _), m, medians = audited.candidates, len(audited.pairs), audited.fitted.center_
    evidence = np.zeros(len(rows))
    is_odd = (len(audited.X) + m) % 2 == 1
    for median, column in zip(() if medians is None else medians, rows.T, strict=False):
        near = np.argsort(np.abs(column - median), kind="stable")[:_NEAREST]
        values = column[near]
        room = _SAME * max(float(np.abs(values).max()), 1e-300)
        if is_odd:
            found = near[np.abs(values - median) <= room]
        else:
            means = (values[:, None] + values) / 2
            found = near[np.argwhere(np.triu(np.abs(means - median) <= room, 1)).ravel()]
        np.add.at(evidence, found, 1.0 / max(len(found), 1))
    return evidence[-2 * m : -m] - evidence[-m:]


# Released numbers have single precision: values closer than this are equal.
_RESOLUTION = 2.0**-20
_CELLS_A_SIGMA = 16
# Beside a density of 1 at the peak of a kernel.
_FLOOR = 1e-12
_SMALLEST = 1e-300
_SWEEPS = 2


def add_rows(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add how likely each record is to be among the released projections."""
    releases = [release for release in audited.releases if release.kind == "rows"]
    bounds: DataBounds = releases[0].facts["bounds"]
    noise = float(np.max(releases[0].sigma))
    sigma = max(noise, _RESOLUTION * bounds.radius)
    pairs, n_rows = audited.pairs, len(audited.X) + len(audited.pairs)
    candidates = bounds.to_ball(np.concatenate([pairs.first, pairs.second, audited.X]))
    first_shares = np.full(len(pairs), 0.5)
    batches = SmoothedProjections(tuple(releases)).batches
    for _ in range(_SWEEPS):
        # What one look at all steps tells of the others makes the mixture sharper in the next.
        ratios = np.zeros(len(pairs))
        for batch in batches:
            places = project_rows(candidates, batch.directions, bounds.radius) * bounds.radius
            ratios += _of_batch(batch, places, first_shares, sigma, n_rows)
        first_shares = 1.0 / (1.0 + np.exp(-np.clip(ratios, -30.0, 30.0)))
    evidence.add_scores(ratios)
    if evidence.heads is None:
        return
    rows = bounds.to_ball(np.concatenate([audited.X, pairs.choose(evidence.heads)[0]]))
    for batch in batches:
        # Sorting keeps sums of squares: about the mean of all rows, which are less than the noise.
        exact = project_rows(rows, batch.directions, bounds.radius) * bounds.radius
        middle = exact.mean(axis=1, keepdims=True)
        energy = float(np.sum(np.square(batch.values - middle, dtype=np.float64)))
        hidden = float(np.sum(np.square(exact - middle))) * batch.values.shape[1] / len(rows)
        evidence.check("rows", energy, batch.values.size, noise, hidden)


def _of_batch(
    batch: ProjectedRows, places: np.ndarray, first_shares: np.ndarray, sigma: float, n_rows: int
) -> np.ndarray:
    """Return the logarithm of the likelihood ratio of each pair, given one batch."""
    m, size = len(first_shares), batch.values.shape[1]
    shares = np.ones(places.shape[1])
    shares[:m], shares[m : 2 * m] = first_shares, 1.0 - first_shares
    present = np.zeros((2, m))
    for kernel, weights in _kernels(batch, places, sigma):
        pairs = kernel[: 2 * m].reshape(2, m, -1)
        # The mixture of all records but those of the pair itself.
        own = np.einsum("sm,smk->mk", shares[: 2 * m].reshape(2, m), pairs)
        others = np.maximum(shares @ kernel - own, 0.0) / max(n_rows - 1, 1)
        ratios = np.einsum("smk,mk->sm", pairs, weights / size / (others + _FLOOR))
        present += np.log(ratios + _SMALLEST)
    if size >= n_rows:
        return present[0] - present[1]
    rate = size / n_rows
    likelihoods = np.logaddexp(np.log1p(-rate), np.log(rate) + present)
    return likelihoods[0] - likelihoods[1]


def _kernels(
    batch: ProjectedRows, places: np.ndarray, sigma: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, per direction, densities (n_candidates, n_points) of the points, and their counts."""
    if batch.values.shape[1] == 1:
        squares = np.sum((batch.values - places) ** 2, axis=0)
        squares -= squares.min()
        yield np.exp(-squares[:, None] / (2.0 * sigma**2)), np.ones(1)
        return
    cell = sigma / _CELLS_A_SIGMA
    for values, place in zip(batch.values, places, strict=True):
        points, counts = values.astype(np.float64), np.ones(len(values))
        if np.ptp(points) < cell * len(points):  # fewer cells of a fine grid than points
            cells, number = np.unique(np.rint(points / cell), return_counts=True)
            points, counts = cells * cell, number.astype(np.float64)
        yield np.exp(-(((points - place[:, None]) / sigma) ** 2) / 2.0), counts
