r"""Noisy histograms of the values of features, or of the norms of rows, and what they show.

A histogram is a sum over rows: batches are counted apart, by `count`, and integers added up, so
that a release does not depend on how rows are divided among batches, or on their order.

Sensitivity, replace-one. A row is in one cell of the histogram of each of ``d`` features, or in
none where its value is missing. Replacing it takes at most one count from a cell and adds at most
one to another: a histogram changes by at most :math:`\sqrt 2` in L2, and those of ``d`` features
together by :math:`\sqrt{2d}`. All ``k`` rows of a person may leave one cell for another, which is
:math:`k \sqrt{2d}`. Both are attained.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri, softmax, stdtr

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import lattice_noise
from skdpot.release.gate import Part, Records, Release, Vectors, pass_gate
from skdpot.sources import HeldRows, Rows, Tables

FALSE_ALARM = 1e-4
_BLOCK = 4096  # rows
_LEAST_EXPONENT, _LARGEST_EXPONENT = -1074, 1024  # of double precision
_WINDOWS = (1, 2, 4, 8, 16)  # cells
_heavy_tailed = partial(stdtr, 1.5)  # Student's law
_DOUBT = 0.5  # of a count, in its expectation
_STANDS_OUT = 4.0  # standard deviations of the noise
_LARGEST_VALUE = 2.0**1000  # of a feature; those of larger ones are counted together
_LARGE = 0.9  # quantile of absolute values
_READ = 3.0  # standard deviations of noise of the counts that are read, once some stand out
_OCTAVES = 6  # that are read, beyond those that stand out


@dataclass(frozen=True, eq=False, kw_only=True)
class Histograms(ABC):
    """Which cell each value of a row is counted in: public, and a function of that row alone."""

    n_features: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of histograms, and of the cells of each."""

    @abstractmethod
    def _cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row in each histogram; any for a missing value."""

    def cells(self, rows: npt.NDArray[np.generic]) -> IntArray:
        """Return the place of each row in the histograms end to end, behind them if missing."""
        values = rows.astype(np.float64)
        n_tables, n_cells = self.shape
        with np.errstate(over="ignore", invalid="ignore"):
            cells = self._cells(values) + n_cells * np.arange(n_tables)
        missing = np.isnan(values)
        gone = missing if n_tables == self.n_features else missing.any(axis=1, keepdims=True)
        return np.where(gone, n_tables * n_cells, cells)

    def count(self, batch: npt.NDArray[np.generic]) -> Tables:
        """Return how many rows of a batch are in each cell, as integers that may be added up."""
        n_cells = self.shape[0] * self.shape[1]
        counts = np.zeros(n_cells + 1, dtype=np.int64)
        for start in range(0, len(batch), _BLOCK):
            cells = self.cells(batch[start : start + _BLOCK])
            counts += np.bincount(cells.ravel(), minlength=n_cells + 1)
        return (counts[:-1].reshape(self.shape),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Magnitudes(Histograms):
    """Cells for the absolute value of each feature: zero, and each power of two of doubles."""

    parts: int = 1  # of each power of two, equally wide

    @property
    def shape(self) -> tuple[int, int]:
        """One histogram per feature."""
        n_exponents = _LARGEST_EXPONENT - _LEAST_EXPONENT
        return self.n_features, 1 + self.parts * n_exponents

    def _cells(self, rows: FloatArray) -> IntArray:
        sizes = np.minimum(np.abs(rows), np.finfo(np.float64).max)
        mantissas, exponents = np.frexp(sizes)
        part = np.nan_to_num((2 * mantissas - 1) * self.parts).astype(np.int64)
        cells = 1 + self.parts * (exponents.astype(np.int64) - 1 - _LEAST_EXPONENT) + part
        return np.where(sizes == 0.0, 0, cells)

    def end(self, cell: int) -> float:
        """Return the upper end of a cell other than that of zero."""
        octave, part = divmod(cell - 1, self.parts)
        exponent = min(octave + _LEAST_EXPONENT, _LARGEST_EXPONENT - 2)
        return float(np.ldexp(1 + (part + 1) / self.parts, exponent))

    def usual_and_largest(self, table: FloatArray, sigma: float, z: float) -> tuple[float, float]:
        """Return what most absolute values are below, and all that are seen; 1 if nothing is."""
        seen = cells_seen(table[1:], sigma, z) + 1
        if not seen.size:
            return 1.0, 1.0
        last = int(seen[-1]) + 1
        # Octaves in a row count less clearly, once something does.
        beyond = cells_seen(table[last : last + _OCTAVES], sigma, _READ)
        most = int(noisy_quantiles(table[seen], seen, _LARGE))
        usual, largest = (self.end(c) for c in (most, last + int(max(beyond, default=-1))))
        return min(usual, _LARGEST_VALUE), min(largest, _LARGEST_VALUE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Norms(Magnitudes):
    """Cells for the norms of rows, each feature less a centre and divided by a scale."""

    center: FloatArray
    scale: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """One histogram of all features."""
        return 1, super().shape[1]

    def _cells(self, rows: FloatArray) -> IntArray:
        squares = np.zeros(len(rows))
        # One by one: no row's sum may depend on how rows lie in memory.
        for column, center, scale in zip(rows.T, self.center, self.scale, strict=True):
            squares += np.square((column - center) / scale)
        return super()._cells(np.sqrt(squares)[:, None])


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals(Histograms):
    """Equal cells for each feature, of which the first and the last have no end."""

    lowest: FloatArray
    width: FloatArray
    n_cells: int

    @property
    def shape(self) -> tuple[int, int]:
        """One histogram per feature."""
        return self.n_features, self.n_cells

    def _cells(self, rows: FloatArray) -> IntArray:
        places = np.floor((rows - self.lowest) / self.width)
        return np.nan_to_num(np.clip(places, 0, self.n_cells - 1)).astype(np.int64)


def release_histograms(
    histograms: Histograms,
    rows: Rows | npt.NDArray[np.generic],
    noise: GaussianEvent | None,
    stream: SecretStream,
    event: Event,
) -> FloatArray:
    """Return the counts of the cells plus noise, which is drawn first; `event` was charged."""
    sigma, lattice = (0.0, 1.0) if noise is None else (noise.sigma, noise.lattice or 1.0)
    table = np.zeros(histograms.shape, dtype=np.int64)
    if noise is not None:
        table = lattice_noise(sigma, table.shape, stream, lattice=lattice, mu=noise.mu)
    batches = rows if isinstance(rows, Rows) else HeldRows(rows, len(rows))
    (counts,) = batches.sum(histograms.count)
    table += round(1 / lattice) * counts
    release = Release(
        "histogram",
        table.astype(np.float64) * lattice,
        {"histograms": histograms},
        sigma=sigma,
        lattice=lattice,
        sensitivity=None if noise is None else noise.sensitivity,
        event=event,
        linear=_counted,
    )
    return np.asarray(pass_gate(release), dtype=np.float64)


def _counted(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what rows add: a count in one cell of each histogram."""
    histograms: Histograms = release.facts["histograms"]
    if records[0].shape[1] != histograms.n_features:
        return
    cells, size = histograms.cells(records[0]), release.value.size
    ends = np.arange(len(cells) + 1) * cells.shape[1]
    ones = (np.ones(cells.size), cells.ravel(), ends)
    added = csr_array(ones, shape=(len(cells), size + 1))[:, :size]
    sigma = float(np.max(release.sigma))
    yield Part(value=release.value.ravel(), sigma=sigma, rows=Vectors(added))


def threshold(n_cells: int) -> float:
    """Return deviations of the noise that no sum of windows passes but with `FALSE_ALARM`."""
    return float(-ndtri(FALSE_ALARM / (n_cells * len(_WINDOWS))))


def cells_seen(table: FloatArray, sigma: float, z: float) -> IntArray:
    """Return the cells of windows that stand out from the noise, and those beside wider ones.

    Windows are sought among what narrower ones have left, so that a single value brings no noise
    of its neighbours with it: the sum of empty, noisy cells would drown the rest.
    """
    left, seen = table.copy(), np.zeros(table.size, dtype=np.bool_)
    for window in (w for w in _WINDOWS if w <= table.size):
        totals = np.convolve(left, np.ones(window), mode="valid")
        hits = np.flatnonzero(totals > max(z * sigma * np.sqrt(window), 0.5))
        steps = np.zeros(table.size + 1, dtype=np.int64)
        np.add.at(steps, np.maximum(hits - window // 2, 0), 1)
        np.add.at(steps, np.minimum(hits + window + window // 2, table.size), -1)
        found = np.cumsum(steps[:-1]) > 0
        seen |= found
        left[found] = 0.0
    return np.flatnonzero(seen)


def noisy_quantiles(counts: FloatArray, cells: IntArray, levels: npt.ArrayLike) -> FloatArray:
    """Return quantiles of what some cells are taken to hold, in units of cells."""
    cumulative = np.concatenate([[0.0], np.cumsum(counts)])
    rising = np.maximum.accumulate(cumulative)
    falling = np.minimum.accumulate(cumulative[::-1])[::-1]
    monotone = (rising + falling) / 2
    targets = monotone[0] + np.asarray(levels) * (monotone[-1] - monotone[0])
    after = np.clip(np.searchsorted(monotone, targets, side="right"), 1, cells.size)
    low, high = monotone[after - 1], monotone[after]
    share = np.divide(targets - low, high - low, out=np.full(after.shape, 0.5), where=high > low)
    return np.asarray(cells[after - 1] + share, dtype=np.float64)


@lru_cache(maxsize=4)
def _bells(n_cells: int, n_samples: int, sigma: float) -> tuple[FloatArray, ...]:
    """Return counts of bell-shaped laws, log spreads, and what their likelihoods are made of."""
    ends, middles = np.arange(n_cells + 1.0), np.arange(0.0, n_cells, 0.5)
    ends[0], ends[-1] = -np.inf, np.inf
    spreads = np.geomspace(0.125, n_cells / 6, 17)
    places = (ends - middles[:, None, None]) / spreads[:, None]
    bells = n_samples * np.concatenate([np.diff(law(places)) for law in (ndtr, _heavy_tailed)])
    bells = bells.reshape(-1, n_cells)
    variances = sigma**2 + np.square(_DOUBT * bells)
    constants = (np.square(bells) / variances + np.log(variances)).sum(axis=1)
    logs = np.tile(np.log(spreads), 2 * middles.size)
    return bells, logs, 1 / variances, bells / variances, constants


def expected_counts(table: FloatArray, sigma: float, n_samples: int) -> FloatArray:
    """Return the counts of cells that are expected, given noisy ones; of at most so many rows.

    The prior is a smooth Gaussian process about a mixture of bell-shaped laws, weighted by how well
    each fits. Counts that stand out from it, such as ties, are kept as they are.
    """
    if not sigma:
        return table
    bells, logs, precisions, filters, constants = _bells(table.size, n_samples, sigma)
    misfits = precisions @ table**2 - 2 * (filters @ table) + constants
    weights = softmax(-0.5 * misfits)
    expected = weights @ bells
    places = np.arange(table.size) / np.exp(weights @ logs)
    alike = np.exp(-0.5 * np.square(places[:, None] - places))
    alike += _DOUBT**2 * (1 + np.eye(table.size))
    rest = table - expected
    covariance = alike * np.outer(expected, expected)
    covariance += np.diag(np.where(np.abs(rest) > _STANDS_OUT * sigma, rest**2, 0.0))
    noisy = covariance + sigma**2 * np.eye(table.size)
    return np.asarray(expected + covariance @ np.linalg.solve(noisy, rest))


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
class Cells:
    """Equal cells around multiples of their width, a power of two."""

    lowest: float
    width: float
    number: int

    @classmethod
    def over(cls, low: float, high: float, number: int) -> "Cells":
        """Return cells that hold an interval."""
        middle = low / 2 + high / 2
        # Floating point must tell them apart.
        least = max((high - low) / (number - 2), abs(middle) * 2.0**-48, 2.0**-1000)
        width = 2.0 ** math.ceil(math.log2(least))
        return cls((math.floor(middle / width) - number // 2 - 0.5) * width, width, number)

    @property
    def wider(self) -> "Cells":
        """Cells for four times as long an interval."""
        length = self.number * self.width
        return self.over(self.lowest - 1.5 * length, self.lowest + 2.5 * length, self.number)


@dataclass(frozen=True, eq=False)
class FeatureCounts:
    """What histograms show of one feature: noisy counts of cells, and which stand out."""

    table: FloatArray
    seen: IntArray
    sigma: float
    cells: Cells
    largest: float  # that absolute values have
    n_samples: int

    @cached_property
    def counts(self) -> FloatArray:
        """What each cell is expected to hold."""
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
        # Different values may share a cell, but not more of them than are beside it.
        tied = alike.mean(axis=0) > np.maximum(_TIED, (apart == 1).mean(axis=0))
        alike &= tied | np.eye(len(places), dtype=np.bool_)
        distances = np.abs(places[:, None] - places)[~alike]
        few = apart.size * _APART * self.sigma / self.n_samples
        # Nor is it known how far those are that are beyond all cells.
        beyond = (places < 1) | (places >= self.counts.size - 1)
        if (~alike & ~beyond & ~beyond[:, None]).sum() <= max(few, distances.size / 2):
            return 0.0
        squared = float(np.median(distances) / _PAIR_MEDIAN) ** 2
        return self.cells.width * math.sqrt(max(squared - _IN_CELLS, squared / 4))

    @property
    def scales(self) -> tuple[float, float, float]:
        """Centre, spread and reach; the spread of what looks constant is 1, or a cell."""
        low, center, high = map(float, self.quantiles(_CENTER_LEVELS))
        spread = self.spread or max(self.cells.width, 1.0)
        return center, spread, max(high - center, center - low)

    def next_cells(self, fewest: float) -> Cells:
        """Return the cells to count next: the same if neither too wide nor too narrow."""
        cells, spread = self.cells, self.spread
        if self.counts[[0, -1]].sum() > _BEYOND * self.counts.sum():
            return cells.wider
        clear = self.table[self.seen].sum() > _SEEN * self.table.sum()
        if clear and spread < fewest * cells.width:
            low, high = self.quantiles(_MOST)
            return Cells.over(low - cells.width, high + cells.width, cells.number)
        if spread < cells.number / _SPREADS * cells.width:
            return cells
        middle, half = float(self.quantiles(0.5)), spread * _SPREADS / 2
        return Cells.over(middle - half, middle + half, cells.number)

    def range(self, n_samples: int) -> tuple[float, float]:
        """Return bounds that hold nearly all values."""
        first, last = int(self.seen[0]), int(self.seen[-1])
        cells = self.cells
        if not self.sigma:
            middles = cells.lowest + cells.width * (np.array([first, last]) + 0.5)
            low, high = (_roundest(float(middle), cells.width / 2) for middle in middles)
            return low, high
        # About so many cells, of which the noise is in a cumulative count.
        level = 3 * self.sigma * math.sqrt(self.cells.number) / n_samples
        level = float(np.clip(level, *_LEVELS))
        low, median, high = map(float, self.quantiles((level, 0.5, 1 - level)))
        reach = -float(ndtri(level))
        beyond = (high - low) * (_DEVIATIONS - reach) / (2 * reach)
        least = _LEAST_UNITS * (self.spread or 1.0)
        ends = cells.lowest + cells.width * np.array([first, last + 1])
        lower = min(low - beyond, median - least, float(ends[0]))
        upper = max(high + beyond, median + least, float(ends[1]))
        # The outermost cells have no end.
        lower = min(lower, -self.largest) if first == 0 else lower
        upper = max(upper, self.largest) if last == cells.number - 1 else upper
        # Zero is a bound where the noise may be all that is beyond it.
        zero = int(np.floor(-cells.lowest / cells.width))
        hidden = min(_SILENT * self.sigma * math.sqrt(cells.number), _AT_STAKE * n_samples)
        if self.counts[: max(zero, 0)].sum() <= hidden and last > zero:
            lower = max(lower, 0.0)
        elif self.counts[max(zero + 1, 0) :].sum() <= hidden and first < zero:
            upper = min(upper, 0.0)
        return lower, upper

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
        least_over = max(_STANDS_OUT * self.sigma, _ALONE * self.n_samples)
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
        # A cumulative count has the noise of about so many cells.
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
