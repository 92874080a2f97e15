"""The two sides of a comparison as tables: released sketches, or public rows binned like one."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.rows import validate_rows
from skdpot.distance.sampling_errors import sampling_errors
from skdpot.ot.slices import CDFTable
from skdpot.release.projection_counts import count_projections
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_record import check_overlap
from skdpot.release.strategy import Strategy

_TAIL = 0.05  # level of the outer quantiles: so much mass stands out of the noise of most tables
_RIDGE = 0.01  # penalty of the regression of reaches on directions


class Redraws(NamedTuple):
    """Simulated errors of one table, drawn once and shared by all its comparisons.

    There are two independent sets of errors of sampling, for the first and for the second side of a
    comparison. Their shape is (2, n_simulations, n_projections, n_bins - 1) around the distribution
    functions of the table, or (2, n_simulations, n_levels) if rows are taken to be as extreme in
    every direction as in one.
    """

    noise: np.ndarray  # (n_projections, n_simulations, n_bins); empty for public rows
    sampling: np.ndarray
    between: np.ndarray  # (2, n_simulations): how many rows come from one part of a mixture


@dataclass(frozen=True, eq=False)
class ComparedTable:
    """One side of a comparison: a released table, or public rows binned like it."""

    statistic: np.ndarray  # noisy entries of all rows together; exact for public rows
    strategy: Strategy  # how rows were counted and are decoded
    n_samples: int
    noise: float  # standard deviation of the noise of an entry, over the number of rows
    smooth: CDFTable  # best estimate of the distribution functions

    @cached_property
    def digest(self) -> bytes:
        """Hash of what was released, without the last digits, which depend on the processor."""
        facts = f"{self.statistic.shape} {self.n_samples} {self.noise:.6g}".encode()
        return hashlib.sha256(facts + np.ascontiguousarray(self.statistic).tobytes()).digest()

    @property
    def cdf_noise(self) -> float:
        """Typical standard deviation of the noise of a distribution function."""
        return self.noise * self.strategy.typical_deviation

    @cached_property
    def reach(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Median along each direction, and how far the data reach below and above it, in bins.

        Squared reaches are smoothed over directions, like those of a shifted ellipsoid: a support
        that follows the noise of its own direction would keep more of this noise.
        """
        widths = 2 * self.smooth.half_widths / self.strategy.n_bins
        low, middle, high = self.smooth.quantiles(np.array([_TAIL, 0.5, 1 - _TAIL])).T
        squares = np.stack([middle - low, high - middle]) ** 2
        gram = self.smooth.directions @ self.smooth.directions.T
        even, odd = squares.mean(axis=0), (squares[1] - squares[0]) / 2
        even = even.mean() + _smoothed_over_directions(even - even.mean(), gram**2)
        odd = _smoothed_over_directions(odd, gram)
        below, above = np.sqrt(np.maximum([even - odd, even + odd], squares / 16)) / widths
        return (middle - self.smooth.edges[:, 0]) / widths, below, above

    @cached_property
    def _redraws(self) -> dict[tuple[int, bool, int | None], Redraws]:
        return {}

    def redraws(self, n_simulations: int, sampled: bool, seed: int | None) -> Redraws:
        """Return simulated errors of this table; without a seed they follow from the release."""
        key = (n_simulations, sampled, seed)
        if key not in self._redraws:
            words = np.frombuffer(self.digest, dtype=np.uint32).tolist()
            rng = np.random.default_rng(words if seed is None else [*words, seed])
            n_projections, n_bins = self.statistic.shape
            noise = np.empty((n_projections, 0, n_bins), dtype=np.float32)
            if self.noise > 0:
                shape = (n_projections, n_simulations, n_bins)
                noise = self.noise * rng.standard_normal(shape, dtype=np.float32)
            between = rng.standard_normal((2, n_simulations))
            sampling: np.ndarray = np.empty(0)
            if sampled:
                errors = sampling_errors(self.smooth, self.n_samples, 2 * n_simulations, rng)
                sampling = errors.reshape(2, n_simulations, *errors.shape[1:])
            self._redraws[key] = Redraws(noise, sampling, between)
        return self._redraws[key]


def _smoothed_over_directions(values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return values smoothed over directions, by ridge regression with a kernel."""
    penalty = _RIDGE * len(kernel) * np.eye(len(kernel))
    smoothed: np.ndarray = kernel @ np.linalg.solve(kernel + penalty, values)
    return smoothed


def compared_tables(first: SlicedSketch, second: SlicedSketch | ArrayLike) -> list[ComparedTable]:
    """Return the tables of both sides, along the directions that they share."""
    if not isinstance(first, SlicedSketch):
        raise ValueError(
            f"first must be a SlicedSketch, got {type(first).__name__}; pass public rows as second."
        )
    if not isinstance(second, SlicedSketch):
        return [table_of(first), _table_of_rows(first, second)]
    for sketch in (first, second):
        sketch._check_readable()
    n_shared = check_overlap((first, second))
    return [table_of(first, n_shared), table_of(second, n_shared)]


def table_of(sketch: SlicedSketch, n_directions: int | None = None) -> ComparedTable:
    """Return the table of a sketch: the sum over its classes, whose noise adds up."""
    sketch._check_readable()
    noise = sketch.noise_scale_ * math.sqrt(len(sketch.statistic_)) / sketch.n_samples_
    statistic, whole = sketch.statistic_.sum(axis=0)[:n_directions], sketch.table()
    smooth = CDFTable(
        whole.directions[:n_directions], whole.half_widths[:n_directions], whole.cdf[:n_directions]
    )
    return ComparedTable(statistic, sketch.strategy_, sketch.n_samples_, noise, smooth)


def _table_of_rows(sketch: SlicedSketch, public: ArrayLike) -> ComparedTable:
    """Return the table of public rows, binned like those of the sketch."""
    rows = validate_rows(sketch, public, reset=False)
    n_bins = sketch.statistic_.shape[-1]
    directions, widths = sketch.directions_, sketch.half_widths_
    counts = count_projections(rows, directions, widths, n_bins, bounds=sketch.bounds_)
    cdf = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1) / len(rows)
    statistic, smooth = counts @ sketch.strategy_.matrix.T, CDFTable(directions, widths, cdf)
    return ComparedTable(statistic, sketch.strategy_, len(rows), 0.0, smooth)
