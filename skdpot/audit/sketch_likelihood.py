"""How likely a released sketch is, given the rows that an attacker holds possible."""

import math

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot._utils.validation import check_is_fitted
from skdpot.slicing.histogram import count_projections
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy

__all__ = ["log_likelihood_ratio", "log_likelihoods", "statistic_of"]


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
