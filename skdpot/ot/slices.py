"""Directions, and distribution functions of the projections of a measure on them."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.fft import idctn
from scipy.interpolate import PchipInterpolator
from scipy.ndimage import gaussian_filter
from scipy.stats.qmc import Halton


def uniform_directions(n_projections: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw independent uniform directions."""
    rows = rng.standard_normal((n_projections, n_features))
    return _unit(rows)


def orthogonal_directions(
    n_projections: int, n_features: int, rng: np.random.Generator, *, axes_first: bool = False
) -> np.ndarray:
    """Draw directions in Haar-distributed orthogonal blocks of `n_features` rows.

    Each direction alone is uniform on the sphere; within a block they repel each other, so averages
    over them have a lower variance than over independent ones. When L is a multiple of d,
    ``directions.T @ directions`` is exactly ``(L / d)`` times the identity.

    In the plane the blocks lie at equally spaced angles, which integrates smooth functions of the
    direction far better than independent blocks. Each block alone is still Haar-distributed.
    """
    n_blocks = -(-n_projections // n_features)
    if n_features == 2:
        return _plane_blocks(n_blocks, None if axes_first else rng)[:n_projections]
    blocks = [_haar(n_features, rng) for _ in range(n_blocks - axes_first)]
    if axes_first:
        blocks.insert(0, np.eye(n_features))
    return np.concatenate(blocks)[:n_projections]


def make_directions(
    projections: str | np.ndarray, n_projections: int, n_features: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the directions that a ``projections=`` parameter asks for."""
    if isinstance(projections, str):
        if projections == "uniform":
            return uniform_directions(n_projections, n_features, rng)
        axes_first = projections == "axes+orthogonal"
        return orthogonal_directions(n_projections, n_features, rng, axes_first=axes_first)
    rows = np.asarray(projections, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or rows.shape[0] == 0:
        raise ValueError(
            f"projections has shape {rows.shape}; an array of directions must have shape "
            f"(n_projections, {n_features}), one column per feature."
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.all(np.isfinite(rows)) or np.any(largest == 0):
        raise ValueError("projections must hold finite rows that are not zero.")
    rows = rows / largest  # squares of very large or small entries would not be finite
    return _unit(rows)


_WAVES = 8  # low frequencies along each side
_WAVE_SHARE = 4  # one direction in so many mixes waves, the others are local
_SCALES = (1.0, 1.5, 2.5, 4.0)  # of local directions, on images with sides of 28
_BUMPS, _BUMP_SCALES, _USUAL_SIDE = 8, (0.4, 1.0), 28.0


def image_directions(
    image: tuple[int, int, int], n_projections: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw directions that see shapes: mixtures of slow waves, and local patterns.

    All but one local direction in eight, which is a bump, are blind to a constant, so that pixels
    along them spread around the middle of their range.
    """
    channels, *sides = image
    waves = [
        idctn(np.eye(1, math.prod(sides), k * sides[1] + j).reshape(sides), norm="ortho")
        for k in range(min(_WAVES, sides[0]))
        for j in range(min(_WAVES, sides[1]))
        if k + j > 0
    ]
    n_waves = n_projections // _WAVE_SHARE if waves else 0
    slow = np.kron(np.eye(channels), np.reshape(waves, (len(waves), math.prod(sides))))
    rows = [orthogonal_directions(n_waves, len(slow), rng) @ slow] if n_waves else []
    places = np.indices(sides)
    unit = max(min(sides) / _USUAL_SIDE, 0.5)
    for number in range(n_projections - n_waves):
        scale = unit * _SCALES[number % len(_SCALES)]
        centre = rng.uniform(0.1, 0.9, size=2) * sides
        squares = np.sum((places - centre[:, None, None]) ** 2, axis=0)
        if number % _BUMPS == 0:
            sharp = unit * rng.uniform(*_BUMP_SCALES)
            local = np.exp(-squares / (2 * sharp**2)) * rng.standard_normal((channels, 1, 1))
        else:
            window = np.exp(-squares / (2 * (1.5 * scale) ** 2))
            local = rng.standard_normal(image)
            local = gaussian_filter(local, (0, scale / 2, scale / 2))
            local = window * (local - (window * local).sum((1, 2), keepdims=True) / window.sum())
        rows.append(local.reshape(1, -1))
    return _unit(np.concatenate(rows))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _haar(n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a Haar-distributed orthogonal matrix (QR with the signs of R's diagonal removed)."""
    q, r = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    return q * signs


def _plane_blocks(n_blocks: int, rng: np.random.Generator | None) -> np.ndarray:
    """Return orthogonal pairs in the plane at equally spaced angles, in van der Corput order."""
    order = Halton(1, scramble=False).random(n_blocks)[:, 0].argsort().argsort()
    steps = order / n_blocks
    signs = np.ones(n_blocks)
    if rng is not None:
        steps = (steps + rng.random()) % 1 + rng.integers(0, 4, n_blocks)
        signs = rng.choice([-1.0, 1.0], n_blocks)
    cos, sin = np.cos(np.pi / 2 * steps), np.sin(np.pi / 2 * steps)
    first, second = np.stack([cos, sin], axis=1), np.stack([-sin * signs, cos * signs], axis=1)
    pairs: np.ndarray = np.stack([first, second], axis=1).reshape(-1, 2)
    return pairs + 0.0  # no negative zeros


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
        """Return the quantiles along one direction, at levels of any number."""
        return _inverse(self.cdf[slice_number], self.edges[slice_number], levels)

    def squared_distances(self, other: "CDFTable") -> np.ndarray:
        """Return the exact W₂² to `other` per slice; both have the same directions."""
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

        Both functions are read inside each interval, where they have no jump; the square of a
        linear function with end values a, b over a length h integrates to ``h (a² + ab + b²) / 3``.
        """
        integrals = []
        for k, (own, others) in enumerate(zip(self.cdf, steps, strict=True)):
            levels = np.union1d(own, others)
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
    ends = levels[:, :-1], levels[:, 1:]
    left, right = _positions(first, passed - 1, *ends)
    one, other = _positions(second, np.arange(levels.shape[1] - 1) - passed, *ends)
    left -= one
    right -= other
    squares = left * left
    squares += left * right
    squares += right * right
    return np.einsum("ij,ij->i", ends[1] - ends[0], squares) / 3


def refined(cdf: np.ndarray, factor: int) -> np.ndarray:
    """Draw smooth curves through the values at the bin edges, which binning does not touch.

    What binning loses is the shape in between, and with it a part of the distance between a narrow
    and a wide measure, or between one peak and two.
    """
    n_bins = cdf.shape[1] - 1
    cdf = _without_dust(cdf)
    curve = PchipInterpolator(np.arange(n_bins + 1), cdf, axis=1)
    values = curve(np.arange(factor * n_bins + 1) / factor)
    values[:, 0], values[:, -1] = cdf[:, 0], cdf[:, -1]
    return np.clip(np.maximum.accumulate(values, axis=1), 0.0, 1.0)


def _without_dust(cdf: np.ndarray) -> np.ndarray:
    """Make steps that are rounding errors flat: their slopes would overflow."""
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
