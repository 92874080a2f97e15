"""What noisy histograms show of one feature: its scale, a range of its values, and knots."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.noisy_cells import STANDS_OUT, expected_counts, noisy_quantiles

_PAIR_MEDIAN = math.sqrt(2) * float(ndtri(0.75))  # of |x - x'| for two standard normal numbers
_SEEN = 0.75  # of what all cells count, before cells are divided
_BEYOND = 0.25  # of what all cells count, in the outermost, before cells are joined
_SPREADS = 8.0  # that all cells cover, or else they are joined
_POINTS = (np.arange(200) + 0.5) / 200
_APART = 6.0  # standard deviations of the noise of the pairs that differ, or else none do
_IN_CELLS = 0.2  # squared spread that values get from being spread evenly in cells
_TIED = 0.25  # of the rows, in one cell
_MOST = (0.02, 0.98)
_CENTER_LEVELS = (0.05, 0.5, 0.95)
# Ranges of columns.
_DEVIATIONS = 4.0  # of a normal distribution, to reach beyond its quantiles
_LEAST_UNITS = 1.5
_LEVELS = (0.005, 0.05)
_MARGIN = 0.5  # of a range, beyond generous bounds,
_FAR_TAIL = 30.0  # or times as far as a heavy tail's quantile of 95 %
_SILENT = 2.0  # standard deviations of the noise of all cells that tell nothing from something,
_AT_STAKE = 0.05  # or so many of the rows
# Knots of a scale.
_N_KNOTS = 65
_HEAVY_TAIL = 2.0  # spreads from the centre to a quantile of 95 %; 1.6 of a normal distribution
_TAIL = 10.0  # times as far a heavy tail may reach
_BULK = 4.0  # spreads about the centre, beyond which even places become logarithmic
_FAR = np.sinh(np.linspace(-40.0, 40.0, 161))
_LEAST_RANK = 0.003  # that is told from the ends
_ALONE = 0.03  # of the rows, on one value


@dataclass(frozen=True)
class EqualCells:
    """Equal cells around multiples of their width, a power of two."""

    lowest: float
    width: float
    number: int

    @classmethod
    def over(cls, low: float, high: float, number: int) -> "EqualCells":
        """Return cells that hold an interval."""
        middle = low / 2 + high / 2
        # Floating point must tell them apart.
        least = max((high - low) / (number - 2), abs(middle) * 2.0**-48, 2.0**-1000)
        width = 2.0 ** math.ceil(math.log2(least))
        return cls((math.floor(middle / width) - number // 2 - 0.5) * width, width, number)

    @property
    def wider(self) -> "EqualCells":
        """The cells of an interval that is four times as long."""
        length = self.number * self.width
        return self.over(self.lowest - 1.5 * length, self.lowest + 2.5 * length, self.number)


@dataclass(frozen=True, eq=False)
class FeatureCounts:
    """The histogram of one feature: noisy counts of cells, and the cells that stand out."""

    table: FloatArray
    seen: IntArray
    sigma: float
    cells: EqualCells
    largest: float  # that absolute values have
    n_samples: int

    @cached_property
    def counts(self) -> FloatArray:
        """The expected count of each cell."""
        return expected_counts(self.table, self.sigma, self.n_samples)

    def places(self, levels: npt.ArrayLike) -> FloatArray:
        """Return quantiles in units of cells."""
        return noisy_quantiles(self.counts, np.arange(self.counts.size), levels)

    def quantiles(self, levels: npt.ArrayLike) -> FloatArray:
        """Return quantiles of the values."""
        return self.cells.lowest + self.cells.width * self.places(levels)

    @cached_property
    def spread(self) -> float:
        """The median distance of two values that differ, in standard deviations, or 0."""
        places = self.places(_POINTS)
        apart = np.abs(np.floor(places)[:, None] - np.floor(places))
        alike = apart == 0
        # Different values may share a cell, but no more of them than are in the cells beside it.
        tied = alike.mean(axis=0) > np.maximum(_TIED, (apart == 1).mean(axis=0))
        alike &= tied | np.eye(len(places), dtype=np.bool_)
        distances = np.abs(places[:, None] - places)[~alike]
        few = apart.size * _APART * self.sigma / self.n_samples
        # The distances of values beyond all cells are unknown.
        beyond = (places < 1) | (places >= self.counts.size - 1)
        if (~alike & ~beyond & ~beyond[:, None]).sum() <= max(few, distances.size / 2):
            return 0.0
        squared = float(np.median(distances) / _PAIR_MEDIAN) ** 2
        return self.cells.width * math.sqrt(max(squared - _IN_CELLS, squared / 4))

    @property
    def scales(self) -> tuple[float, float, float]:
        """Centre, spread and reach; the spread of a constant feature is 1, or that of a cell."""
        low, center, high = map(float, self.quantiles(_CENTER_LEVELS))
        spread = self.spread or max(self.cells.width, 1.0)
        return center, spread, max(high - center, center - low)

    def next_cells(self, fewest: float) -> EqualCells:
        """Return the cells to count next: the same ones unless they are too wide or too narrow."""
        cells, spread = self.cells, self.spread
        if self.counts[[0, -1]].sum() > _BEYOND * self.counts.sum():
            return cells.wider
        clear = self.table[self.seen].sum() > _SEEN * self.table.sum()
        if clear and spread < fewest * cells.width:
            low, high = self.quantiles(_MOST)
            return EqualCells.over(low - cells.width, high + cells.width, cells.number)
        if spread < cells.number / _SPREADS * cells.width:
            return cells
        middle, half = float(self.quantiles(0.5)), spread * _SPREADS / 2
        return EqualCells.over(middle - half, middle + half, cells.number)

    def range(self, n_samples: int) -> tuple[float, float]:
        """Return bounds that hold nearly all values."""
        first, last = int(self.seen[0]), int(self.seen[-1])
        cells = self.cells
        if not self.sigma:
            middles = cells.lowest + cells.width * (np.array([first, last]) + 0.5)
            low, high = (_roundest(float(middle), cells.width / 2) for middle in middles)
            return low, high
        # A cumulative count contains the noise of about this many cells.
        level = 3 * self.sigma * math.sqrt(self.cells.number) / n_samples
        level = float(np.clip(level, *_LEVELS))
        low, median, high = map(float, self.quantiles((level, 0.5, 1 - level)))
        reach = -float(ndtri(level))
        beyond = (high - low) * (_DEVIATIONS - reach) / (2 * reach)
        least = _LEAST_UNITS * (self.spread or 1.0)
        ends = cells.lowest + cells.width * np.array([first, last + 1])
        lower = min(low - beyond, median - least, float(ends[0]))
        upper = max(high + beyond, median + least, float(ends[1]))
        # The outermost cells are unbounded.
        lower = min(lower, -self.largest) if first == 0 else lower
        upper = max(upper, self.largest) if last == cells.number - 1 else upper
        # Zero is a bound if the counts beyond it may be noise alone.
        zero = int(np.floor(-cells.lowest / cells.width))
        hidden = min(_SILENT * self.sigma * math.sqrt(cells.number), _AT_STAKE * n_samples)
        if self.counts[: max(zero, 0)].sum() <= hidden and last > zero:
            lower = max(lower, 0.0)
        elif self.counts[max(zero + 1, 0) :].sum() <= hidden and first < zero:
            # The cell of zero also holds positive values, unless it has no more than its neighbour.
            if self.counts[zero] <= self.counts[zero - 1] + hidden:
                upper = min(upper, 0.0)
        return lower, upper

    def generous_range(self, n_samples: int) -> tuple[float, float]:
        """Return wider bounds, for cells that get finer where the rows are.

        They hold tails that the noise hides here, and end at zero where `range` does or nearly so.
        """
        lower, upper = self.range(n_samples)
        if not self.sigma:
            return lower, upper
        low, center, high = map(float, self.quantiles(_CENTER_LEVELS))
        # Whether many rows share a value near zero, which hides the law of others and its own sign.
        zero = math.floor(-self.cells.lowest / self.cells.width)
        zero = min(max(zero, 1), len(self.counts) - 2)
        hidden = _SILENT * self.sigma * math.sqrt(self.cells.number)
        shared = self.counts[zero] > self.counts[[zero - 1, zero + 1]].max() + hidden
        ends, margin = [], _MARGIN * (upper - lower)
        for far in (center - low, high - center):
            is_heavy = shared or far > _HEAVY_TAIL * self.spread
            ends.append(max(margin, _FAR_TAIL * far * is_heavy))
        first, last = lower - ends[0], upper + ends[1]
        if lower >= 0.0:
            first = max(first, -self.cells.width / 2 if shared else 0.0)
        return first, min(last, 0.0) if upper <= 0.0 else last

    def knots(self, lower: float, upper: float) -> FloatArray:
        """Return values at even places of a scale that gives room to where values are.

        A place is a weighted mean of an even one, logarithmic far from the centre, and of the
        normal score of the rank, which counts the more the lower the noise is. So no part of the
        scale is stretched without limit, whatever the noise has made of the ranks. A value that
        many rows share is repeated. A bound that is not known is infinite.
        """
        center, spread, _ = self.scales
        low, high = map(float, self.quantiles((_CENTER_LEVELS[0], _CENTER_LEVELS[-1])))
        least, most = self.range(self.n_samples)
        if least < 0.0 and center - low > _HEAVY_TAIL * spread:
            least = min(least, max(-self.largest, center - _TAIL * (center - low)))
        if most > 0.0 and high - center > _HEAVY_TAIL * spread:
            most = max(most, min(self.largest, center + _TAIL * (high - center)))
        lower, upper = (lower if lower > -np.inf else least), (upper if upper < np.inf else most)
        if lower >= upper:  # an estimate on the wrong side of what is known
            return np.array([lower, upper])
        cells = self.cells
        ends = cells.lowest + cells.width * np.arange(cells.number + 1.0)
        counts = np.maximum(self.counts, 0.0)
        beside = np.pad(counts, 1)
        over = counts - np.maximum(beside[:-2], beside[2:])
        least_over = max(STANDS_OUT * self.sigma, _ALONE * self.n_samples)
        alone = np.flatnonzero(over > np.maximum(counts / 2, least_over))
        half = cells.width / 2
        values = np.array([_roundest(float(ends[cell]) + half, half) for cell in alone])
        alone, values = (part[(values >= lower) & (values <= upper)] for part in (alone, values))
        shared = np.concatenate([[0.0], np.cumsum(over[alone])])
        counts[alone] -= over[alone]
        ends[[0, -1]] = min(ends[0], lower), max(ends[-1], upper)
        with np.errstate(over="ignore"):
            far = center + _BULK * spread * _FAR
        places = np.unique(np.concatenate([ends, far, [lower, upper]]))
        places = places[(places >= lower) & (places <= upper) & ~np.isin(places, values)]
        places = np.sort(np.concatenate([places, values, values]))
        below = np.searchsorted(values, places)
        below[1:] += np.diff(places) == 0.0  # and what many rows share, where it is repeated
        rows = np.interp(places, ends, np.concatenate([[0.0], np.cumsum(counts)])) + shared[below]
        levels = (rows - rows[0]) / max(rows[-1] - rows[0], 1.0)
        ranks = ndtri(np.clip(levels, _LEAST_RANK, 1.0 - _LEAST_RANK))
        even = _BULK * np.arcsinh((places - center) / (_BULK * spread))
        # A cumulative count contains the noise of about this many cells.
        hidden = self.sigma * math.sqrt(cells.number) / self.n_samples
        weight = 1.0 / (1.0 + math.sqrt(5.0 * hidden))
        scale = weight * ranks + (1.0 - weight) * even
        return np.interp(np.linspace(scale[0], scale[-1], _N_KNOTS), scale, places)


def _roundest(middle: float, reach: float) -> float:
    """Return the number with the fewest digits near another."""
    for digits in range(-308, 324):
        if abs(round(middle, digits) - middle) <= reach:
            return round(middle, digits)
    return middle
