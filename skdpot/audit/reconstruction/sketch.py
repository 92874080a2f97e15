"""Rows from a private sketch: how far the attacks get, which is no further than its ε allows."""

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import check_is_fitted
from skdpot.audit.reconstruction.result import Reconstruction
from skdpot.audit.sketch_likelihood import log_likelihoods, statistic_of
from skdpot.flows import FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["row_from_sketch", "rows_from_sketch"]


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
