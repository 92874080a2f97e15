"""How likely a released sketch is for given rows, and rows that it is likely for.

The attacks get as far as the ε of the sketch allows, and no further.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot._utils.validation import check_is_fitted
from skdpot.audit.reconstruction.interpolation import Reconstruction
from skdpot.flows import FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.slicing.histogram import count_projections
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy

__all__ = [
    "log_likelihood_ratio",
    "log_likelihoods",
    "row_from_sketch",
    "rows_from_sketch",
    "statistic_of",
]


def statistic_of(sketch: SlicedSketch, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
    """Compute what the table of a sketch would be for given rows, without noise.

    Everything that it needs is public: directions, bins, the strategy matrix and the bounds.
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


def row_from_sketch(
    sketch: SlicedSketch,
    others: ArrayLike,
    candidates: ArrayLike,
    *,
    y_others: ArrayLike | None = None,
    y_candidates: ArrayLike | None = None,
    estimate: str = "mode",
) -> Reconstruction:
    """Reconstruct one row, for an attacker who knows all others.

    The attacker holds `candidates` possible, equally likely beforehand, and compares the
    likelihoods of the released table. Nobody finds the row more often; if the sketch is μ-GDP,
    it is found among M candidates with probability at most ``Φ(Φ⁻¹(1/M) + μ)``, where
    guessing has 1/M. (Naming one of M rows tells its data set from one without it: apply the
    bound on TPR at FPR = 1/M.)

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch; only what it published is read.
    others : array-like of shape (n_samples - 1, n_features)
        The rows that are known.
    candidates : array-like of shape (n_candidates, n_features)
        Draws from what is known about the row beforehand.
    y_others, y_candidates : array-like, optional
        Labels, for a sketch with classes.
    estimate : {"mode", "mean"}, default="mode"
        The most likely candidate, or the mean of all weighed by their likelihoods, which has
        the least expected squared error.

    Returns
    -------
    Reconstruction
        One row.

    Raises
    ------
    ValueError
        If the data do not fit the sketch, or the estimate is unknown.

    References
    ----------
    Balle, Cherubin, Hayes, "Reconstructing training data with informed adversaries", IEEE
    S&P 2022; Hayes, Mahloujifar, Balle, "Bounding training data reconstruction in DP-SGD",
    NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit.reconstruction import row_from_sketch
    >>> rows, prior = np.random.default_rng(0).uniform(-1, 1, size=(2, 100, 2))
    >>> prior[7] = rows[0]
    >>> unsafe = SlicedSketch(epsilon=np.inf, bounds=(-1, 1), n_slices=8, n_bins=64).fit(rows)
    >>> row_from_sketch(unsafe, rows[1:], prior).n_exact(rows[:1])
    1
    """
    if estimate not in ("mode", "mean"):
        raise ValueError(f"estimate={estimate!r} must be 'mode' or 'mean'.")
    rows = np.atleast_2d(np.asarray(candidates, dtype=np.float64))
    labels = [None] * len(rows) if y_candidates is None else list(np.asarray(y_candidates))
    statistics = np.stack(
        [
            statistic_of(sketch, row[None], None if label is None else [label])
            for row, label in zip(rows, labels, strict=True)
        ]
    )
    scores = log_likelihoods(sketch, statistic_of(sketch, others, y_others), statistics)
    if estimate == "mode":
        best = rows[[int(np.argmax(scores))]]
    else:
        weights = np.exp(scores)
        best = (weights @ rows / weights.sum())[None]
    method = f"{estimate} of {len(rows)} candidates"
    return Reconstruction(rows=best, n_plans=0, method=method)


def rows_from_sketch(
    sketch: SlicedSketch,
    n_rows: int,
    rng: np.random.Generator,
    *,
    label: object = None,
    n_steps: int = 200,
) -> Reconstruction:
    """Look for rows whose distribution functions are those of a sketch.

    Particles are moved until their projections are distributed like the table says: what an
    attacker with no further knowledge can do, and what `DPSlicedFlowSampler` does on
    purpose. The rows look like the data, but are none of them: those who were in the data and
    those who were not, from the same population, are equally far from them, up to ε.

    Parameters
    ----------
    sketch : SlicedSketch
        A closed sketch.
    n_rows : int
        Number of particles.
    rng : numpy.random.Generator
        Draws their start and the order of directions.
    label : optional
        A class; by default all together.
    n_steps : int, default=200
        Steps of the flow.

    Returns
    -------
    Reconstruction
        Rows in the units of the data.
    """
    check_is_fitted(sketch, "statistic_")
    problem = SlicedFlowProblem(sketch.table(label), None)
    flow = sliced_flow(problem, n_rows, FlowSchedule(n_steps, 1.0, 0.0, FlowSchedule.momentum), rng)
    rows = sketch.bounds_.from_ball(flow.particles.astype(np.float64))
    return Reconstruction(rows=rows, n_plans=0, method="flow towards the sketch")
