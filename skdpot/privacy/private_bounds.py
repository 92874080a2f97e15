r"""Private location and scale of data of unknown range.

Two ways, chosen by a public rule:

- *features*: for each feature a histogram of the differences \|x_i - x_i'\| of random pairs,
  on a grid of powers of two, gives its spread; then a histogram of the feature itself, on a
  grid whose cells are one spread wide or narrower, gives its centre.
- *norm*: one histogram of row norms gives a radius. It needs far fewer rows.

Sensitivity, replace-one. A record is in at most one pair. Replacing it moves, in each
feature, one count from one cell to another: the histogram of one feature changes by
:math:`(-1, +1)`, of norm :math:`\sqrt 2`, those of all ``d`` features by :math:`\sqrt{2d}`;
the histogram of norms by :math:`\sqrt 2`. Which rows are used, and how they are paired, is a
public random choice that does not depend on the data. The cells of the second histogram
depend on the first release only (adaptive composition). All that follows is post-processing.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import Streams
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.noisy_histogram import Counting, noisy_histogram, noisy_quantiles

__all__ = [
    "FeatureScales",
    "ball_radius",
    "release_feature_scales",
    "release_private_bounds",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Median of |x - x'| for two standard normal numbers.
_NORMAL_PAIR_MEDIAN = math.sqrt(2) * float(ndtri(0.75))
_SMALLEST, _LARGEST = 2.0**-64, 2.0**64
_CENTER_LEVELS = (0.05, 0.5, 0.95)
_TIE_NOISE = 4.5
_REACH = 3.0
_LARGEST_WIDENING = 4.0


@dataclass(frozen=True)
class FeatureScales:
    """Released location and scale of every feature."""

    center: FloatArray
    spread: FloatArray
    reach: FloatArray
    n_fallback: int


def ball_radius(n_features: int) -> float:
    """Return the radius that holds nearly all rows of features with unit spread.

    The norm of a standard normal row is ``sqrt(d)`` plus or minus 0.7; 2.5 more leaves out
    fewer than one row in a thousand, and keeps room for correlated features.
    """
    return math.sqrt(n_features) + 2.5


def release_private_bounds(
    X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams
) -> tuple[DataBounds, int]:
    """Release bounds for the rows of `X`. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds. ``plan.event`` under replace-one; the shape of `X` is public. The
    number of clipped rows is never reported.
    """
    _check_shape(X, plan)
    if plan.mode == "norm":
        radius = _norm_radius(X, plan, streams)
        if radius is None:
            _warn_fallback("the row norms")
        bounds = DataBounds.from_norm(radius or ball_radius(plan.n_features), plan.n_features)
        return bounds, int(radius is None)
    found = release_feature_scales(X, plan, streams)
    return _ball(found), found.n_fallback


def _ball(found: FeatureScales) -> DataBounds:
    """Return the ball that holds nearly all rows with these scales."""
    # Heavy tails and clusters get a wider unit, within limits.
    unit = np.clip(found.reach / _REACH, found.spread, _LARGEST_WIDENING * found.spread)
    return DataBounds(found.center, unit, ball_radius(len(unit)))


def release_feature_scales(
    X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams
) -> FeatureScales:
    """Release centre and spread of each feature. Charge ``plan.event`` first.

    Privacy
    -------
    Releases two noisy histograms a feature, or one without centres. ``plan.event`` under
    replace-one; the shape of `X` is public.
    """
    _check_shape(X, plan)
    d = plan.n_features
    order = streams.public.permutation(plan.n_samples)[: plan.n_used]
    center, spread, reach = np.zeros(d), np.ones(d), np.zeros(d)
    failed = np.zeros(d, dtype=bool)
    for j in range(d):
        found = _spread(X, j, order, plan, streams)
        failed[j] = found is None
        spread[j] = 1.0 if found is None else found
    for j in range(d if plan.centers else 0):
        located = _center(X, j, order, float(spread[j]), plan, streams)
        failed[j] |= located is None
        if located is not None:
            center[j], spread[j], reach[j] = located
    n_fallback = int(failed.sum())
    if n_fallback:
        _warn_fallback(f"{n_fallback} of {d} features")
    return FeatureScales(center, spread, reach, n_fallback)


def _check_shape(X: npt.NDArray[Any], plan: BoundsPlan) -> None:
    if X.shape != (plan.n_samples, plan.n_features):
        raise ValueError(
            f"The plan is for data of shape {(plan.n_samples, plan.n_features)}, got {X.shape}."
        )


def _spread(
    X: npt.NDArray[Any], feature: int, order: IntArray, plan: BoundsPlan, streams: Streams
) -> float | None:
    """Return the spread: 1 for a constant feature, None when nothing stands out."""
    grid = plan.spread_grid
    counting = Counting(grid=grid, order=order, shape=X.shape, feature=feature, paired=True)
    used = counting.values(X, order)
    if not plan.noises:
        first, second = counting.pairs(used)
        with np.errstate(over="ignore"):
            differences = np.abs(first - second)
        differences = differences[differences > 0]
        median = np.median(differences) if differences.size else _NORMAL_PAIR_MEDIAN
        return float(np.clip(median, _SMALLEST, _LARGEST)) / _NORMAL_PAIR_MEDIAN
    noise, smoothing = plan.noises[0], plan.spread_smoothing
    table = noisy_histogram(used, counting, noise, streams.secret, plan.event)
    log2_median = noisy_quantiles(table[1:], grid.log2_edges, (0.5,), noise.sigma, smoothing)
    if log2_median is not None:
        return float(np.exp2(log2_median[0])) / _NORMAL_PAIR_MEDIAN
    # The feature is constant if all pairs are ties, as far as the noise lets one see.
    ties = table[0] / noise.sigma
    constant = ties > max(smoothing.z, plan.n_pairs / noise.sigma - _TIE_NOISE)
    return 1.0 if constant else None


def _center(
    X: npt.NDArray[Any],
    feature: int,
    order: IntArray,
    spread: float,
    plan: BoundsPlan,
    streams: Streams,
) -> tuple[float, float, float] | None:
    """Return centre, spread (at least half the width of the centre's cell) and reach."""
    grid, width = plan.center_grid, spread / plan.cells_per_spread
    counting = Counting(grid=grid, order=order, shape=X.shape, feature=feature, width=width)
    used = counting.values(X, order)
    if not plan.noises:
        used = np.clip(used, -1e300, 1e300)  # differences of larger values overflow
        low, center, high = (float(q) for q in np.quantile(used, _CENTER_LEVELS))
        return center, spread, max(high - center, center - low)
    noise, smoothing = plan.noises[1], plan.center_smoothing
    table = noisy_histogram(used, counting, noise, streams.secret, plan.event)
    quantiles = noisy_quantiles(table, grid.edges, _CENTER_LEVELS, noise.sigma, smoothing)
    if quantiles is None:
        return None
    low, center, high = (float(q) for q in quantiles)
    cell = int(np.searchsorted(grid.edges[1:-1], center))
    cell_width = float(grid.edges[cell + 1] - grid.edges[cell])
    reach = max(high - center, center - low)
    return center * width, max(spread, cell_width * width / 2), reach * width


def _norm_radius(X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams) -> float | None:
    """Return a radius that holds most of the rows, None when nothing stands out."""
    order = streams.public.permutation(plan.n_samples)[: plan.n_used]
    grid = plan.norm_grid
    counting = Counting(grid=grid, order=order, shape=X.shape, feature=None)
    norms = counting.values(X, order)
    if not plan.noises:
        return float(np.clip(np.quantile(norms, plan.norm_level), _SMALLEST, _LARGEST))
    noise = plan.noises[0]
    table = noisy_histogram(norms, counting, noise, streams.secret, plan.event)
    edges, levels = grid.log2_edges, (plan.norm_level,)
    upper = noisy_quantiles(table[1:], edges, levels, noise.sigma, plan.norm_smoothing)
    if upper is None:
        return None
    return float(np.exp2(edges[np.searchsorted(edges, upper[0] - 1e-9)]))


def _warn_fallback(what: str) -> None:
    warn_of_privacy(
        f"Private bounds: {what} did not stand out from the privacy noise, and what was not "
        "found got a public fallback (centre 0, scale 1). Use more rows or a larger epsilon, or "
        "state limits that are public knowledge, where the estimator takes them."
    )
