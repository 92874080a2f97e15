"""Distribution functions of the projections of a measure along directions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator


def bin_edges(half_widths: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the edges of the equal bins of ``[-w, w]`` for each slice."""
    return np.asarray(half_widths)[:, None] * np.linspace(-1.0, 1.0, n_bins + 1)


@dataclass(frozen=True, eq=False)
class CDFTable:
    """Piecewise linear distribution functions of the projections of one measure."""

    directions: np.ndarray
    half_widths: np.ndarray
    cdf: np.ndarray

    @cached_property
    def edges(self) -> np.ndarray:
        """Bin edges, shape (n_projections, n_bins + 1)."""
        return bin_edges(self.half_widths, self.cdf.shape[1] - 1)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Return the distribution functions at `x` (n_points,) as (n_projections, n_points)."""
        rows = zip(self.edges, self.cdf, strict=True)
        return np.stack([np.interp(x, edges, values) for edges, values in rows])

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return the quantile functions at `levels` (n_levels,) as (n_projections, n_levels)."""
        return np.stack([self.quantiles_along(k, levels) for k in range(len(self.cdf))])

    def quantiles_along(self, slice_number: int, levels: np.ndarray) -> np.ndarray:
        """Return the quantiles along one direction at any number of levels."""
        return _inverse(self.cdf[slice_number], self.edges[slice_number], levels)

    def squared_distances(self, other: "CDFTable") -> np.ndarray:
        """Return the exact W₂² to another table per slice; both have the same directions."""
        return self._squared_distances(other.quantiles_along, other.cdf)

    def squared_distances_to_sample(self, projections: np.ndarray) -> np.ndarray:
        """Return the exact W₂² per slice to a sample's projections (n_projections, n_rows)."""
        ordered, n_rows = np.sort(projections), projections.shape[1]

        def order_statistics(slice_number: int, levels: np.ndarray) -> Any:
            return ordered[slice_number, np.clip((levels * n_rows).astype(int), 0, n_rows - 1)]

        steps = np.arange(n_rows + 1) / n_rows
        return self._squared_distances(order_statistics, [steps] * len(ordered))

    def _squared_distances(
        self, quantiles: Callable[[int, np.ndarray], np.ndarray], steps: Iterable[np.ndarray]
    ) -> np.ndarray:
        """Integrate the squared difference to quantile functions that are linear between steps.

        Both functions are evaluated inside each interval, where they have no jump. The square of a
        linear function with end values a, b integrates to ``h (a² + ab + b²) / 3`` over length h.
        """
        integrals = []
        for k, (rises, jumps) in enumerate(zip(self.cdf, steps, strict=True)):
            levels = np.union1d(rises, jumps)
            start, width = levels[:-1], np.diff(levels)
            near, far = (
                self.quantiles_along(k, inside) - quantiles(k, inside)
                for inside in (start + width / 3, start + 2 * width / 3)
            )
            left, right = 2 * near - far, 2 * far - near
            integrals.append(float(width @ (left**2 + left * right + right**2)) / 3)
        return np.array(integrals)


def _inverse(cdf: np.ndarray, edges: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the smallest x with ``cdf(x) >= level`` of a piecewise linear function."""
    right = np.clip(np.searchsorted(cdf, levels, side="left"), 1, len(cdf) - 1)
    low, high = cdf[right - 1], cdf[right]
    rise = np.where(high > low, high - low, 1.0)
    share = np.clip((levels - low) / rise, 0.0, 1.0)
    return edges[right - 1] + share * (edges[right] - edges[right - 1])


def binned_squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return W₂² between the rows of two tables of distribution functions, in squared bins."""
    first, second = _without_dust(first), _without_dust(second)
    levels = np.concatenate([first, second], axis=1)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    passed = np.cumsum(order < first.shape[1], axis=1)[:, :-1]
    start, end = levels[:, :-1], levels[:, 1:]
    left, right = _positions(first, passed - 1, start, end)
    at_start, at_end = _positions(second, np.arange(levels.shape[1] - 1) - passed, start, end)
    left -= at_start
    right -= at_end
    squares = left * left
    squares += left * right
    squares += right * right
    return np.einsum("ij,ij->i", end - start, squares) / 3


def refined_cdf(cdf: np.ndarray, factor: int) -> np.ndarray:
    """Interpolate the values at the bin edges, which binning leaves exact, by smooth curves.

    Binning loses the shape between the edges, and with it a part of the distance between a narrow
    and a wide measure, or between one peak and two.
    """
    n_bins = cdf.shape[1] - 1
    cdf = _without_dust(cdf)
    curve = PchipInterpolator(np.arange(n_bins + 1), cdf, axis=1)
    values = curve(np.arange(factor * n_bins + 1) / factor)
    values[:, 0], values[:, -1] = cdf[:, 0], cdf[:, -1]
    return np.clip(np.maximum.accumulate(values, axis=1), 0.0, 1.0)


def _without_dust(cdf: np.ndarray) -> np.ndarray:
    """Round away steps that are rounding errors; the inverse of their slopes would overflow."""
    return np.round(cdf, 13)


def _positions(
    cdf: np.ndarray, bins: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantiles at both ends of pieces that lie within the given bins."""
    n_bins = cdf.shape[1] - 1
    at = np.clip(bins, 0, n_bins - 1)
    flat = at + n_bins * np.arange(len(cdf))[:, None]
    rise = np.diff(cdf, axis=1)
    slopes = np.divide(1.0, rise, out=np.zeros_like(rise), where=rise > 0)
    low, slope = cdf[:, :-1].ravel()[flat], slopes.ravel()[flat]
    first, last = (np.clip((levels - low) * slope, 0.0, 1.0) for levels in (start, end))
    return at + first, at + last
