"""Canaries for sketches, what their noisy tables say about them, and how likely a table is."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot._utils.validation import check_is_fitted
from skdpot.audit.audited_fit import AuditedFit, NoKnownAttackError
from skdpot.audit.canaries import CanaryPairs, CanaryRequest, antipodal_pairs
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.estimators.wasserstein_distance import PrivateWassersteinDistance
from skdpot.slicing.histogram import count_projections
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy

__all__ = [
    "add_contribution",
    "add_sketch",
    "contribution_canaries",
    "edges",
    "log_likelihood_ratio",
    "log_likelihoods",
    "refuse_without_claim",
    "sketch_canaries",
    "statistic_of",
    "statistics_of_rows",
]

_NUMBERS = 2**24  # 128 MB


def statistic_of(sketch: SlicedSketch, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
    """Compute what the table of a sketch would be for given rows, without noise.

    Everything that it needs is public: directions, bins, the strategy matrix and the bounds.

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch.
    X : array-like of shape (n_rows, n_features)
        Rows of the attacker's knowledge.
    y : array-like of shape (n_rows,), optional
        Their labels, for a sketch with classes.

    Returns
    -------
    ndarray of shape (n_classes, n_slices, n_bins)
        ``A H``.

    Raises
    ------
    ValueError
        If labels are missing or not known to the sketch, or the features do not fit.
    """
    check_is_fitted(sketch, "statistic_")
    rows = np.atleast_2d(np.asarray(X, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != sketch.directions_.shape[1]:
        raise ValueError(
            f"X has shape {rows.shape}; it must be (n_rows, {sketch.directions_.shape[1]})."
        )
    n_classes, n_slices, n_bins = sketch.statistic_.shape
    codes = None
    if hasattr(sketch, "classes_"):
        codes, _ = encode_labels(y, len(rows), sketch.classes_)
    counts = count_projections(
        rows,
        sketch.directions_,
        sketch.half_widths_,
        n_bins,
        codes=codes,
        n_classes=n_classes,
        bounds=sketch.bounds_,
    )
    table: np.ndarray = counts @ square_root_strategy(n_bins).matrix.T
    return table.reshape(n_classes, n_slices, n_bins)


def statistics_of_rows(
    sketch: SlicedSketch,
    X: np.ndarray,
    y: np.ndarray | None = None,
    slices: slice = slice(None),
) -> np.ndarray:
    """Compute what each single row adds to the table of a sketch.

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch.
    X : ndarray of shape (n_rows, n_features)
        Rows.
    y : ndarray of shape (n_rows,), optional
        Their labels, for a sketch with classes.
    slices : slice, default=slice(None)
        Slices of the table that are wanted, all by default.

    Returns
    -------
    ndarray of shape (n_rows, n_classes * n_slices * n_bins)
    """
    n_classes, _, n_bins = sketch.statistic_.shape
    directions = sketch.directions_[slices]
    # Each row is counted as a class of its own.
    counts = count_projections(
        X,
        directions,
        sketch.half_widths_[slices],
        n_bins,
        codes=np.arange(len(X)),
        n_classes=len(X),
        bounds=sketch.bounds_,
    )
    own = (counts @ square_root_strategy(n_bins).matrix.T).reshape(len(X), -1)
    if n_classes == 1:
        return own
    codes, _ = encode_labels(y, len(X), sketch.classes_)
    tables = np.zeros((len(X), n_classes, own.shape[1]))
    tables[np.arange(len(X)), codes] = own
    return tables.reshape(len(X), -1)


def log_likelihoods(sketch: SlicedSketch, others: np.ndarray, statistics: np.ndarray) -> np.ndarray:
    """Compute the log likelihood of each candidate for the one unknown record.

    The noise is a discrete Gaussian on a lattice that holds all statistics, so that
    ``log p = −‖S − s(others) − s(candidate)‖² / 2 σ²`` up to a constant: the score below is
    the matched filter, and no test does better (Neyman and Pearson).

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch.
    others : ndarray of shape (n_classes, n_slices, n_bins)
        Statistic of the known rows.
    statistics : ndarray of shape (n_candidates, n_classes, n_slices, n_bins)
        Statistic of each candidate.

    Returns
    -------
    ndarray of shape (n_candidates,)
        Log likelihoods, the largest being 0. Without noise ``-inf`` for what cannot be.
    """
    residual = (sketch.statistic_ - others).ravel()
    flat = statistics.reshape(len(statistics), -1)
    misfits = np.sum((residual - flat) ** 2, axis=1) / 2
    misfits -= misfits.min()
    if sketch.noise_scale_ == 0:
        return np.where(misfits > 0, -np.inf, 0.0)
    likelihoods: np.ndarray = -misfits / sketch.noise_scale_**2
    return likelihoods


def log_likelihood_ratio(
    sketch: SlicedSketch,
    X: ArrayLike,
    X_neighbour: ArrayLike,
    *,
    y: ArrayLike | None = None,
    y_neighbour: ArrayLike | None = None,
) -> float:
    """Say how much a released sketch speaks for one data set against another.

    The noise is a discrete Gaussian on a lattice that holds both noiseless tables s and s', so
    that ``log p(S | X) − log p(S | X') = ⟨S − (s + s')/2, s − s'⟩ / σ²``: a matched filter. By the
    lemma of Neyman and Pearson no test has more true positives at the same rate of false ones.

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch; only what it published is read.
    X, X_neighbour : array-like of shape (n_samples, n_features)
        The two data sets that the attacker holds possible, usually with one different row.
    y, y_neighbour : array-like of shape (n_samples,), optional
        Their labels, for a sketch with classes.

    Returns
    -------
    float
        The logarithm of the ratio; positive speaks for X. Infinite without noise. Bounds that
        were estimated privately are part of the release too, but are taken as given.

    Raises
    ------
    ValueError
        If the data do not fit the sketch.
    """
    one = statistic_of(sketch, X, y)
    other = statistic_of(sketch, X_neighbour, y_neighbour)
    evidence = float(np.sum((sketch.statistic_ - (one + other) / 2) * (one - other)))
    if sketch.noise_scale_ > 0:
        return evidence / sketch.noise_scale_**2
    return math.copysign(math.inf, evidence) if evidence else 0.0


def edges(estimator: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the box that an estimator is told of, or else the one around public rows.

    Raises
    ------
    ValueError
        If there is neither.
    """
    n_features = X.shape[1]
    bounds, radius = estimator.bounds, getattr(estimator, "norm_bound", None)
    if radius is not None:
        return np.full(n_features, -float(radius)), np.full(n_features, float(radius))
    if isinstance(bounds, str):
        if not len(X):
            raise ValueError(
                'With bounds="private" the canaries lie on the edge of the rows of X: give some '
                "rows, or bounds=(low, high)."
            )
        return X.min(axis=0), X.max(axis=0)
    low, high = (np.broadcast_to(np.asarray(b, dtype=float), n_features) for b in bounds)
    return low, high


def sketch_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make opposite corners of the box, of different classes where classes are protected."""
    estimator, n_pairs, y, rng = request.estimator, request.n_pairs, request.y, request.rng
    low, high = edges(estimator, request.X)
    conditional = getattr(estimator, "conditional", False)
    labels = y if conditional and not getattr(estimator, "public_labels", False) else None
    pairs = antipodal_pairs(
        n_pairs, low, high, rng=rng, corners=estimator.norm_bound is None, labels=labels
    )
    if y is None or labels is not None:
        return pairs
    same = rng.choice(np.asarray(y), size=n_pairs)
    return CanaryPairs(
        first=pairs.first, second=pairs.second, first_labels=same, second_labels=same
    )


def add_sketch(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the noisy table, and the histograms of private bounds."""
    sketch = audited.fitted
    if not isinstance(sketch, SlicedSketch):
        sketch = sketch.sketch_
    pairs = audited.pairs
    labelled = hasattr(sketch, "classes_")
    residual = np.array(sketch.statistic_)
    if len(audited.X):
        residual -= statistic_of(sketch, audited.X, audited.y if labelled else None)
    n_classes, n_slices, n_bins = residual.shape
    size = max(1, _NUMBERS // (len(pairs) * n_classes * n_bins))
    for start in audited.watched(range(0, n_slices, size), "slices"):
        # Slices are releases of their own: a block of them at a time takes bounded memory.
        block = slice(start, start + size)
        first, second = (
            statistics_of_rows(sketch, rows, labels if labelled else None, block)
            for rows, labels in (
                (pairs.first, pairs.first_labels),
                (pairs.second, pairs.second_labels),
            )
        )
        expected = (first.sum(axis=0) + second.sum(axis=0)) / 2
        left = residual[:, block].ravel() - expected
        evidence.add(left, first - second, sketch.noise_scale_, name="sketch")
    add_histograms(evidence, audited)


def refuse_without_claim(request: CanaryRequest) -> CanaryPairs:
    """Refuse a protocol that claims no privacy.

    Raises
    ------
    ValueError
        Always.
    """
    raise NoKnownAttackError(
        f"No attack on PrivateWassersteinDistance(protocol={request.estimator.protocol!r}): it "
        "claims no privacy that could be refuted. skdpot.audit.reconstruction recovers rows from "
        'its messages; audit protocol="sliced".'
    )


def contribution_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make canaries among the reference rows, which the inner estimator publishes."""
    estimator = request.estimator
    inner = PrivateWassersteinDistance() if estimator.estimator is None else estimator.estimator
    make = sketch_canaries if inner.protocol == "sliced" else refuse_without_claim
    return make(replace(request, estimator=inner))


def add_contribution(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the table that the inner estimator published."""
    add_sketch(evidence, replace(audited, fitted=audited.fitted.estimator_))
