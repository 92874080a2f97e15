"""How far the noise of a sketch may have moved its distribution functions: free to know."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.slicing.decoding import known_total
from skdpot.slicing.histogram import bin_edges
from skdpot.slicing.strategy import square_root_strategy

__all__ = ["MeasuredCDF", "measured_cdf"]


@dataclass(frozen=True, eq=False)
class MeasuredCDF:
    """Distribution functions as they were measured, before anything is smoothed.

    Parameters
    ----------
    edges : ndarray of shape (n_slices, n_bins + 1)
        Bin edges, in the units of the mapped features.
    values : ndarray of shape (n_slices, n_bins + 1)
        Unbiased values: the true ones plus Gaussian noise. Neither monotone nor within [0, 1].
    deviations : ndarray of shape (n_slices, n_bins + 1)
        Standard deviations of that noise; 0 at both ends, where the values are known.
    """

    edges: np.ndarray
    values: np.ndarray
    deviations: np.ndarray


def measured_cdf(sketch: Any, label: Any = None) -> MeasuredCDF:
    """Return the measured distribution functions of a sketch with the deviations of their noise.

    With ``C`` the covariance of noisy cumulative counts for noise of unit variance, a table of
    which the last count is known to be t has the values ``F_j + σ e_j / t`` with ``Var(e_j) =
    C_jj − C_jB² / C_BB``. All K classes together have t = n, and K such tables are added. The size
    of one class is known when labels are public; else it is estimated from the last counts of L
    slices, and such that the sizes of all classes sum to n, which adds ``(F_j − C_jB / C_BB)²
    (1 − 1 / K) C_BB / L`` to the variance of e_j (to first order in the error of the size).

    Parameters
    ----------
    sketch : SlicedSketch
        Closed.
    label : optional
        A class; by default all together.

    Returns
    -------
    MeasuredCDF
        Along all directions of the sketch.

    Raises
    ------
    OpenSketchError
        If the sketch is open.
    ValueError
        If there is no such class, or it is public that it has no rows.

    Privacy
    -------
    Reads the released table and the public law of its noise, and nothing else.
    """
    smooth = sketch.table(label).cdf
    strategy = square_root_strategy(sketch.statistic_.shape[-1])
    last = strategy.covariance[:-1, -1] / strategy.covariance[-1, -1]
    variances = np.broadcast_to(
        np.diag(strategy.known_total_covariance), (len(smooth), strategy.n_bins - 1)
    )
    if label is None:
        statistic, total = sketch.statistic_.sum(axis=0), float(sketch.n_samples_)
        variances = variances * len(sketch.statistic_)
    else:
        position = sketch._position(label)
        statistic, total = sketch.statistic_[position], float(sketch.class_counts_[position])
        if not hasattr(sketch, "_label_counts"):
            others = 1 - 1 / len(sketch.statistic_)
            spread = others * strategy.covariance[-1, -1] / len(smooth)
            variances = variances + (smooth[:, 1:-1] - last) ** 2 * spread
    if total == 0:
        raise ValueError("A class without rows has no distribution function to measure.")
    values = np.zeros_like(smooth)
    values[:, 1:-1] = known_total(statistic @ strategy.decoder.T, strategy, total)
    values[:, -1] = 1.0
    deviations = np.zeros_like(smooth)
    deviations[:, 1:-1] = sketch.noise_scale_ / total * np.sqrt(variances)
    return MeasuredCDF(bin_edges(sketch.half_widths_, strategy.n_bins), values, deviations)
