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
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from skdpot.audit.canaries import AuditedFit, NoKnownAttackError, Score
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.ot.flow import ProjectedRows
from skdpot.release.bounds import DataBounds
from skdpot.release.release import Records, Release
from skdpot.release.rows import SmoothedProjections, project_rows

_NEAREST = 24  # values to a median, that are tried as one of the two middle ones
_SAME = 1e-12


def default_score(fitted: Any) -> Score:
    """Return the white-box score of a fitted estimator, by all releases that have an attack."""
    return lambda audited: evidence_of(audited).scores()


def evidence_of(audited: AuditedFit, heads: np.ndarray | None = None) -> EvidenceSum:
    """Gather what the releases of an audited fit say about the coins.

    If the coins are given, the noise is checked; they change no score.
    """
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
    """Yield, per direction, densities (n_candidates, n_points) of the points, and their counts.

    A batch of one row has a single array.
    """
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
