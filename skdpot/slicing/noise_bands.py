"""How far the noise of a sketch may have moved its distribution functions: free to know."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.notices import warn_of_privacy
from skdpot.privacy.bounds_plan import MAX_AUTO_FEATURES
from skdpot.privacy.private_bounds import ball_radius
from skdpot.slicing.decoding import known_total
from skdpot.slicing.histogram import bin_edges
from skdpot.slicing.strategy import square_root_strategy

__all__ = ["MeasuredCDF", "measured_cdf", "warn_of_noise"]

_MOST_NOISE = 0.2
_MOST_NARROW = 0.05  # of more than MAX_AUTO_FEATURES features
_MOST_NARROW_OF_FEW = 0.5


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


def warn_of_noise(sketch: Any, caller: str) -> None:
    """Warn of synthetic rows that would show noise, or leave the range of the data.

    Parameters
    ----------
    sketch : SlicedSketch
        Closed.
    caller : str
        Name of the estimator that makes rows of it.

    Warns
    -----
    PrivacyWarning
        Of released values and the law of their noise alone. The thresholds are calibrated: where
        the first is passed, rows were at least 0.6 times, mostly more than 0.8 times, as far from
        the data as their mean repeated is (`doc/bounds.rst`).
    """
    noise = _typical_noise(sketch)
    if noise > _MOST_NOISE:
        classes = " conditional=False," if sketch.conditional else ""
        warn_of_privacy(
            f"{caller}: the noise hides the data: averaged over the slices, the noise of a "
            f"distribution function has a standard deviation of about {noise:.2f} on its scale "
            "from 0 to 1. Synthetic rows may say little more than the bounds do. Use more rows, a "
            f"larger epsilon,{classes} fewer features (PCA fitted on public rows) or tight bounds."
        )
    elif _is_private_ball(sketch):
        share = _narrow_features(sketch)
        few = len(sketch.bounds_.center) <= MAX_AUTO_FEATURES
        if share > (_MOST_NARROW_OF_FEW if few else _MOST_NARROW):
            why = "too few rows" if few else f"more than {MAX_AUTO_FEATURES} features"
            warn_of_privacy(
                f"{caller}: private bounds of {why} are one ball, and about {share:.0%} of the "
                "features vary less than its resolution, so that synthetic values leave their "
                "range. State what is public, such as bounds=(0, 1) of pixels, or arrays with the "
                "limits of each feature: synthetic rows are then clipped to it. Or leave out "
                "features that hardly vary."
            )


def _is_private_ball(sketch: Any) -> bool:
    """Whether private bounds are one radius that was found; a fallback has its own warning."""
    private = isinstance(sketch.bounds, str) and sketch.norm_bound is None
    bounds = sketch.bounds_
    found = bounds.radius != ball_radius(len(bounds.center))
    return private and found and bool(np.all(bounds.scale == 1.0))


def _typical_noise(sketch: Any) -> float:
    """Return the noise of a distribution function after its slices are averaged.

    L slices of d features measure each of them about L / d times. The mean over classes, weighted
    by their released sizes.
    """
    n_slices, n_features = sketch.directions_.shape
    labels = getattr(sketch, "classes_", (None,))
    shares = sketch.class_counts_ / sketch.class_counts_.sum()
    noise = [
        share * np.sqrt(np.mean(measured_cdf(sketch, label).deviations[:, 1:-1] ** 2))
        for label, share in zip(labels, shares, strict=True)
        if share > 0
    ]
    return float(np.sum(noise) * np.sqrt(n_features / n_slices))


def _narrow_features(sketch: Any) -> float:
    """Return the share of features whose released distribution is narrower than a bin."""
    n_features = sketch.directions_.shape[1]
    if not isinstance(sketch.slices, str) or not sketch.slices.startswith("axes"):
        return 0.0
    smooth = sketch.table(None).cdf[:n_features]
    masses, places = np.diff(smooth, axis=1), np.arange(smooth.shape[1] - 1)
    variances = masses @ places**2 - (masses @ places) ** 2
    return float(np.mean(variances < 1.0))
