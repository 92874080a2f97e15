"""Canaries for sketches, and what their noisy tables say about them."""

from typing import Any

import numpy as np

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest, antipodal_pairs
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.likelihood import statistic_of, statistics_of_rows
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["add_sketch", "edges", "sketch_canaries"]

_NUMBERS = 2**24  # 128 MB


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
