"""What the releases of an audited fit tell about the coins.

The noisy releases are public, so the attacker reads them rather than the model. A release that is a
sum over records says itself what a record adds (`skdpot.release.releases.Release.parts`), and each
estimator says what its mechanism sees of a row (`_seen_by`). All coins of an audit are estimated at
once from all releases (`matched_filter`). Two attacks are not linear: on noisy rows in random order
(`row_attack`), and on exact medians, below.
"""

import numpy as np
from tqdm.auto import tqdm

from skdpot.audit.audited_fit import AuditedFit, Score
from skdpot.audit.canaries import NoKnownAttackError
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.audit.row_attack import add_rows
from skdpot.release.releases import Records, Release

_NEAREST = 24  # values next to a median that are tried as one of the two middle ones
_SAME = 1e-12  # relative difference of equal values


def default_score(audited: AuditedFit) -> np.ndarray:
    """Return the score of each pair from all releases that have an attack."""
    return evidence_of(audited).scores()


def scores_of(score: Score | str, audited: AuditedFit) -> np.ndarray:
    """Return the score of each pair, from a function or by default, and check its form."""
    n_pairs = len(audited.pairs)
    judge = default_score if isinstance(score, str) else score
    scores = np.asarray(judge(audited), dtype=np.float64)
    if scores.shape != (n_pairs,) or np.isnan(scores).any():
        allowed = f"{n_pairs} numbers, one per pair, none of them NaN"
        raise ValueError(f"score must return {allowed}; it returned shape {scores.shape}.")
    return scores


def evidence_of(audited: AuditedFit, heads: np.ndarray | None = None) -> EvidenceSum:
    """Gather what the releases say about the coins; with open coins, also check the noise."""
    fitted = getattr(audited.fitted, "estimator_", audited.fitted)
    releases = list(audited.releases)
    merged = getattr(fitted, "release_", None)
    if merged is not None and any(release.kind == merged.kind for release in releases):
        # Sketches that were merged count as their sum.
        releases = [*(release for release in releases if release.kind != merged.kind), merged]
    evidence = EvidenceSum(len(audited.pairs), heads)
    shares, present = audited.shares, None
    if heads is not None:
        n_pairs, n_known = len(heads), len(audited.X)
        chosen = n_known + np.arange(n_pairs) + np.where(heads, 0, n_pairs)
        present = np.concatenate([np.arange(n_known), chosen])
    for release in tqdm(releases, desc="releases", disable=audited.verbose <= 0):
        n_checks = len(evidence.checks)
        records = audited.candidates
        if hasattr(fitted, "_seen_by"):
            records = fitted._seen_by(release, *records)
        _add_release(evidence, release, records, shares, present)
        is_checked = len(evidence.checks) > n_checks or release.kind == "rows"
        if heads is not None and np.max(release.sigma) > 0.0 and not is_checked:
            evidence.unseen.append(release.kind)
    if any(release.kind == "rows" for release in releases):
        add_rows(evidence, audited)
    elif not releases and hasattr(fitted, "center_"):
        evidence.add_scores(_medians_that_are_records(audited))
    elif not (hasattr(fitted, "_canaries") or any(release.linear for release in releases)):
        raise NoKnownAttackError.of(fitted)
    return evidence


def _add_release(
    evidence: EvidenceSum,
    release: Release,
    records: Records,
    shares: np.ndarray,
    present: np.ndarray | None,
) -> None:
    """Add a release, and check its noise."""
    is_exact = set()
    for part in release.parts(records, shares):
        evidence.add_part(part, shares, release.kind)
        is_exact.add(part.exact)
    if present is not None and np.max(release.sigma) > 0.0 and is_exact != {True}:
        # The sum over the records that were present may be known nevertheless.
        of_fit = tuple(None if column is None else column[present] for column in records)
        for part in release.parts(of_fit, np.ones(len(present))):
            evidence.check_part(part, release.kind, len(present))


def _medians_that_are_records(audited: AuditedFit) -> np.ndarray:
    """Count how often each record is the exact median of a feature, or one of the middle two."""
    (rows, _), m, medians = audited.candidates, len(audited.pairs), audited.fitted.center_
    evidence = np.zeros(len(rows))
    is_odd = (len(audited.X) + m) % 2 == 1
    for median, column in zip(() if medians is None else medians, rows.T, strict=False):
        near = np.argsort(np.abs(column - median), kind="stable")[:_NEAREST]
        values = column[near]
        tolerance = _SAME * max(float(np.abs(values).max()), 1e-300)
        if is_odd:
            middle = near[np.abs(values - median) <= tolerance]
        else:
            means = (values[:, None] + values) / 2
            middle = near[np.argwhere(np.triu(np.abs(means - median) <= tolerance, 1)).ravel()]
        np.add.at(evidence, middle, 1.0 / max(len(middle), 1))
    return evidence[-2 * m : -m] - evidence[-m:]
