r"""Noisy histograms of the values of features, or of the norms of rows, and what they show.

A histogram is a sum over rows: batches are counted apart, by `count`, and integers added up, so
that a release does not depend on how rows are divided among batches, or on their order.

Sensitivity, replace-one. A row is in one cell of the histogram of each of ``d`` features, or in
none where its value is missing. Replacing it takes at most one count from a cell and adds at most
one to another: a histogram changes by at most :math:`\sqrt 2` in L2, and those of ``d`` features
together by :math:`\sqrt{2d}`. All ``k`` rows of a person may leave one cell for another, which is
:math:`k \sqrt{2d}`. Both are attained.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri, softmax, stdtr

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import lattice_noise
from skdpot.release.release import Part, Records, Release, Vectors, released
from skdpot.sources import HeldRows, Rows, Tables

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

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
    return np.asarray(released(release), dtype=np.float64)


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
