"""Canaries for private bounds and scalers, and what the noisy histograms say about them.

A record counts once in the histogram of the values of each feature, and once in that of the
distances of random pairs; which rows are paired is public. Where the partner of a canary is
a canary too, the mean over the partner's coin is taken. A record that lies far out, in cells of its
own, is seen best: canaries are spread over many orders of magnitude, so beside them there should
be ordinary rows, three times as many or more, that keep the cells narrow.

Without noise there is no histogram: `PrivateScaler` then publishes exact medians, and each
of them *is* the value of one record, or the mean of two. With several times as many features as
canaries most canaries are found in one of them; with fewer the audit has no teeth at ε = ∞.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.recording import Release

__all__ = ["add_histograms", "add_scaler", "scaler_canaries"]

_OCTAVES = 16.0
_NEIGHBOURS = 12  # on either side of a median, that are tried as one of the two middle values
_SAME = 1e-12


def scaler_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make records of opposite signs and of all orders of magnitude above that of the rows."""
    n_pairs, X, rng = request.n_pairs, request.X, request.rng
    unit = np.maximum(np.abs(X).max(axis=0), 1e-12) if len(X) else np.ones(X.shape[1])
    sign = np.where(rng.random((n_pairs, X.shape[1])) < 0.5, -1.0, 1.0)
    first, second = unit * np.exp2(rng.uniform(0.0, _OCTAVES, size=(2, *sign.shape)))
    if request.y is None:
        return CanaryPairs(first=sign * first, second=-sign * second)
    same = rng.choice(request.y, size=n_pairs)
    return CanaryPairs(
        first=sign * first, second=-sign * second, first_labels=same, second_labels=same
    )


def add_scaler(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the noisy histograms of a scaler, or its exact medians."""
    if any(release.kind == "histogram" for release in audited.releases):
        add_histograms(evidence, audited)
    else:
        evidence.add_scores(_found_in_medians(audited))


def add_histograms(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the histograms of private bounds, if the fit has released any.

    Parameters
    ----------
    evidence : EvidenceSum
        Of the pairs.
    audited : AuditedFit
        A fit that gave all its rows, in their order, to
        `skdpot.privacy.private_bounds.release_private_bounds`.
    """
    releases = _of_the_first_bounds(audited.releases)
    if not releases:
        return
    plan, order = releases[0].facts["plan"], releases[0].facts["rows"]
    n_rows, n_features = len(audited.X) + len(audited.pairs), audited.X.shape[1]
    if (plan.n_samples, plan.n_features) != (n_rows, n_features):
        return  # of a part of the rows, or of something made of them
    counted = _Counted(audited, order)
    if plan.mode == "norm":
        tables = [counted.norms(plan)]
        noisy = [release for release in releases if release.kind == "histogram"]
        _add(evidence, noisy, tables)
        return
    histograms = [release for release in releases if release.kind == "histogram"]
    widths = [release.facts["width"] for release in releases if release.kind == "cell_width"]
    d = plan.n_features
    _add(evidence, histograms[:d], [counted.spreads(plan, j) for j in range(d)])
    centers = [counted.values(plan, j, width) for j, width in enumerate(widths)]
    _add(evidence, histograms[d:], centers)


def _of_the_first_bounds(releases: tuple[Release, ...]) -> list[Release]:
    """Return what belongs to the bounds of X, which come first."""
    kinds = ("histogram_rows", "histogram", "cell_width")
    relevant = [release for release in releases if release.kind in kinds]
    starts = [i for i, release in enumerate(relevant) if release.kind == "histogram_rows"]
    if len(starts) > 1:
        relevant = relevant[: starts[1]]
    return relevant if len(relevant) > 1 else []


@dataclass(frozen=True, eq=False)
class _Counts:
    """Where records count: cells, with the row of `_Counted` and the weight of each count."""

    pairs: np.ndarray  # of each count of a canary: its pair
    signs: np.ndarray  # 1 for the first record, −1 for the second, times its share
    cells: np.ndarray
    expected: np.ndarray  # the table that is expected on average over all coins


class _Counted:
    """The rows that histograms count, in their public order.

    Parameters
    ----------
    audited : AuditedFit
        The known rows, which come first, and the pairs.
    order : ndarray of shape (n_used,)
        Numbers of the rows that are counted.
    """

    def __init__(self, audited: AuditedFit, order: np.ndarray) -> None:
        n_known = len(audited.X)
        self._order = order
        self._pair = np.maximum(order - n_known, -1)  # number of the pair, −1 for a known row
        self._pair[order < n_known] = -1
        self._first = np.concatenate([audited.X, audited.pairs.first])[order]
        self._second = np.concatenate([audited.X, audited.pairs.second])[order]

    def values(self, plan: BoundsPlan, feature: int, width: float) -> _Counts:
        """Return where the values of a feature count."""
        grid = plan.center_grid
        cells = [grid.cells(side[:, feature] / width) for side in (self._first, self._second)]
        return self._alone(cells, grid.n_cells)

    def norms(self, plan: BoundsPlan) -> _Counts:
        """Return where the norms of rows count."""
        grid = plan.norm_grid
        cells = [grid.cells(np.linalg.norm(side, axis=1)) for side in (self._first, self._second)]
        return self._alone(cells, grid.n_cells)

    def spreads(self, plan: BoundsPlan, feature: int) -> _Counts:
        """Return where the distances of paired rows count."""
        grid, half = plan.spread_grid, len(self._order) // 2
        columns = [side[:, feature].astype(np.float64) for side in (self._first, self._second)]
        left, right = slice(0, half), slice(half, 2 * half)
        expected = np.zeros(grid.n_cells)
        counts = []
        for s, own in enumerate(columns):
            for t, other in enumerate(columns):
                cells = grid.cells(np.abs(own[left] - other[right]))
                np.add.at(expected, cells, 0.25)
                # A known row has two equal columns: its two halves make the mean.
                counts.append((self._pair[left], np.where(s == 0, 0.5, -0.5), cells))
                counts.append((self._pair[right], np.where(t == 0, 0.5, -0.5), cells))
        return _gathered(counts, expected)

    def _alone(self, cells: list[np.ndarray], n_cells: int) -> _Counts:
        expected = np.zeros(n_cells)
        for side in cells:
            np.add.at(expected, side, 0.5)
        signs = (np.array(1.0), np.array(-1.0))
        counts = [(self._pair, sign, side) for sign, side in zip(signs, cells, strict=True)]
        return _gathered(counts, expected)


def _gathered(
    counts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], expected: np.ndarray
) -> _Counts:
    """Put the counts of canaries one after the other."""
    parts = [
        (pair[pair >= 0], np.broadcast_to(sign, pair.shape)[pair >= 0], cells[pair >= 0])
        for pair, sign, cells in counts
    ]
    pairs, signs, where = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Counts(pairs, signs, where, expected)


def _add(evidence: EvidenceSum, histograms: list[Release], tables: list[_Counts]) -> None:
    """Add noisy tables of one family, all with the same noise."""
    if not histograms:
        return
    sizes = [len(table.expected) for table in tables]
    starts = np.cumsum([0, *sizes])
    rows = np.concatenate([table.pairs for table in tables])
    signs = np.concatenate([table.signs for table in tables])
    columns = np.concatenate(
        [table.cells + start for table, start in zip(tables, starts, strict=False)]
    )
    differences = csr_array((signs, (rows, columns)), shape=(evidence.n_pairs, starts[-1]))
    residual = np.concatenate(
        [release.value - table.expected for release, table in zip(histograms, tables, strict=True)]
    )
    sigma = histograms[0].facts["noise"].sigma
    evidence.add(residual, differences, sigma, name="histogram", sizes=sizes)


def _found_in_medians(audited: AuditedFit) -> np.ndarray:
    """Count how often each record is the exact median of a feature, or one of the middle two."""
    pairs, scaler = audited.pairs, audited.fitted
    m = len(pairs)
    evidence = np.zeros(m + 1)  # the last entry collects known rows
    if scaler.center_ is None:
        return evidence[:m]
    owners = np.concatenate([np.arange(m), np.arange(m), np.full(len(audited.X), m)])
    signs = np.concatenate([np.ones(m), -np.ones(m), np.zeros(len(audited.X))])
    candidates = np.concatenate([pairs.first, pairs.second, audited.X])
    is_odd = (m + len(audited.X)) % 2 == 1
    for median, column in zip(scaler.center_, candidates.T, strict=True):
        found = list(_middle(float(median), column, is_odd))
        for number in found:
            evidence[owners[number]] += signs[number] / len(found)
    return evidence[:m]


def _middle(median: float, column: np.ndarray, is_odd: bool) -> Iterator[int]:
    """Yield the candidates that the median consists of."""
    order = np.argsort(column, kind="stable")
    place = int(np.searchsorted(column[order], median))
    near = order[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS]
    values = column[near]
    room = _SAME * max(float(np.abs(values).max(initial=0.0)), 1e-300)
    if is_odd:
        yield from near[np.abs(values - median) <= room]
        return
    first, second = np.nonzero(np.abs((values[:, None] + values) / 2 - median) <= room)
    yield from near[first[first < second]]
    yield from near[second[first < second]]
