"""Distribution functions along directions: what a sketch is after decoding."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from skdpot.slicing.histogram import bin_edges

__all__ = ["CDFTable", "squared_quantile_distance"]


@dataclass(frozen=True, eq=False)
class CDFTable:
    """Piecewise linear distribution functions of the projections of one measure.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.
    cdf : ndarray of shape (n_slices, n_bins + 1)
        Values at the bin edges, non-decreasing from 0 to 1.
    """

    directions: np.ndarray
    half_widths: np.ndarray
    cdf: np.ndarray

    @cached_property
    def edges(self) -> np.ndarray:
        """Bin edges, shape (n_slices, n_bins + 1)."""
        return bin_edges(self.half_widths, self.cdf.shape[1] - 1)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Return the distribution functions at `x` (n_points,) as (n_slices, n_points)."""
        rows = zip(self.edges, self.cdf, strict=True)
        return np.stack([np.interp(x, edges, values) for edges, values in rows])

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return the quantile functions at `levels` (n_levels,) as (n_slices, n_levels)."""
        return np.stack([self.quantiles_along(k, levels) for k in range(len(self.cdf))])

    def quantiles_along(self, slice_number: int, levels: np.ndarray) -> np.ndarray:
        """Return the quantiles along one direction, at levels of any number."""
        return _inverse(self.cdf[slice_number], self.edges[slice_number], levels)

    def squared_distances(self, other: "CDFTable") -> np.ndarray:
        """Return W₂² to `other`, which has the same directions, by slice; exact."""
        pairs = zip(self.edges, self.cdf, other.edges, other.cdf, strict=True)
        return np.array(
            [
                squared_quantile_distance(
                    np.union1d(f, g), partial(_inverse, f, x), partial(_inverse, g, y)
                )
                for x, f, y, g in pairs
            ]
        )

    def squared_distances_to_sample(self, projections: np.ndarray) -> np.ndarray:
        """Return W₂² to a sample's projections (n_slices, n_rows), by slice; exact."""
        steps = np.arange(projections.shape[1] + 1) / projections.shape[1]
        return np.array(
            [
                squared_quantile_distance(
                    np.union1d(f, steps), partial(_inverse, f, x), partial(_order_statistic, p)
                )
                for x, f, p in zip(self.edges, self.cdf, np.sort(projections), strict=True)
            ]
        )


def squared_quantile_distance(
    levels: np.ndarray,
    first: Callable[[np.ndarray], np.ndarray],
    second: Callable[[np.ndarray], np.ndarray],
) -> float:
    """Return ∫ (first - second)² over [0, 1] for functions linear between `levels`.

    Both functions are read inside each interval, where they have no jump; the integral of
    the square of a linear function with end values a, b over a length h is
    ``h (a² + ab + b²) / 3``.
    """
    start, width = levels[:-1], np.diff(levels)
    near = first(start + width / 3) - second(start + width / 3)
    far = first(start + 2 * width / 3) - second(start + 2 * width / 3)
    left, right = 2 * near - far, 2 * far - near
    return float(width @ (left**2 + left * right + right**2)) / 3


def _order_statistic(ordered: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the quantile function of a sorted sample between its steps."""
    at = np.clip((levels * len(ordered)).astype(int), 0, len(ordered) - 1)
    quantiles: np.ndarray = ordered[at]
    return quantiles


def _inverse(cdf: np.ndarray, edges: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the smallest x with ``cdf(x) >= level`` of a piecewise linear function."""
    right = np.clip(np.searchsorted(cdf, levels, side="left"), 1, len(cdf) - 1)
    low, high = cdf[right - 1], cdf[right]
    rise = np.where(high > low, high - low, 1.0)
    share = np.clip((levels - low) / rise, 0.0, 1.0)
    inverse: np.ndarray = edges[right - 1] + share * (edges[right] - edges[right - 1])
    return inverse
