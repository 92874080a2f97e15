r"""Noisy histograms of the values of features, or of the norms of rows.

A histogram is a sum over rows: `count` counts each batch, and the integers are added. So a release
does not depend on the order of rows or on their division into batches.

Sensitivity under replace-one: a row is in one cell of the histogram of each of ``d`` features, or
in none where its value is missing. Replacing it removes at most one count from a cell and adds at
most one to another, so a histogram changes by at most :math:`\sqrt 2` in L2, and the histograms of
``d`` features together by :math:`\sqrt{2d}`. All ``k`` rows of a person may move from one cell to
another, which is :math:`k \sqrt{2d}`. Both bounds are attained.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import lattice_noise
from skdpot.release.gate import pass_gate
from skdpot.release.noisy_cells import cells_seen, noisy_quantiles
from skdpot.release.releases import Part, Records, Release
from skdpot.sources.exact_counts import Tables
from skdpot.sources.rows import HeldRows, Rows

_BLOCK = 4096  # rows counted at once
_LEAST_EXPONENT, _LARGEST_EXPONENT = -1074, 1024  # of double precision
_LARGEST_VALUE = 2.0**1000  # largest bound of a feature
_LARGE = 0.9  # quantile of the absolute values that counts as usual
_READ = 3.0  # z-score that cells beyond the last one that stands out need
_OCTAVES = 6  # cells that are searched beyond it


@dataclass(frozen=True, eq=False, kw_only=True)
class Histograms(ABC):
    """Map from each value of a row to its cell: public, and a function of that row alone."""

    n_features: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of histograms, and number of cells per histogram."""

    @abstractmethod
    def _cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row in each histogram; arbitrary for a missing value."""

    def cells(self, rows: npt.NDArray[np.generic]) -> IntArray:
        """Return each row's cell in the concatenated histograms; their end for a missing value."""
        values = rows.astype(np.float64)
        n_tables, n_cells = self.shape
        with np.errstate(over="ignore", invalid="ignore"):
            cells = self._cells(values) + n_cells * np.arange(n_tables)
        missing = np.isnan(values)
        gone = missing if n_tables == self.n_features else missing.any(axis=1, keepdims=True)
        return np.where(gone, n_tables * n_cells, cells)

    def count(self, batch: npt.NDArray[np.generic]) -> Tables:
        """Return the number of rows of a batch per cell, as integers."""
        n_cells = self.shape[0] * self.shape[1]
        counts = np.zeros(n_cells + 1, dtype=np.int64)
        for start in range(0, len(batch), _BLOCK):
            cells = self.cells(batch[start : start + _BLOCK])
            counts += np.bincount(cells.ravel(), minlength=n_cells + 1)
        return (counts[:-1].reshape(self.shape),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Magnitudes(Histograms):
    """Cells of the absolute value of each feature: zero, and each power of two in doubles."""

    parts: int = 1  # cells per power of two, equally wide

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
        """Return the upper end of a cell, except the cell of zero."""
        octave, part = divmod(cell - 1, self.parts)
        exponent = min(octave + _LEAST_EXPONENT, _LARGEST_EXPONENT - 2)
        return float(np.ldexp(1 + (part + 1) / self.parts, exponent))

    def usual_and_largest(self, table: FloatArray, sigma: float, z: float) -> tuple[float, float]:
        """Return bounds of most and of all absolute values that stand out; 1 if none does."""
        seen = cells_seen(table[1:], sigma, z) + 1
        if not seen.size:
            return 1.0, 1.0
        last = int(seen[-1]) + 1
        # Cells beyond the last one that stands out need a smaller z-score.
        beyond = cells_seen(table[last : last + _OCTAVES], sigma, _READ)
        most = int(noisy_quantiles(table[seen], seen, _LARGE))
        usual, largest = (self.end(c) for c in (most, last + int(max(beyond, default=-1))))
        return min(usual, _LARGEST_VALUE), min(largest, _LARGEST_VALUE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Norms(Magnitudes):
    """Cells of the norms of rows whose features are centred and scaled."""

    center: FloatArray
    scale: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """One histogram of all features."""
        return 1, super().shape[1]

    def _cells(self, rows: FloatArray) -> IntArray:
        squares = np.zeros(len(rows))
        # One column at a time: the sum of a row must not depend on the memory layout.
        for column, center, scale in zip(rows.T, self.center, self.scale, strict=True):
            squares += np.square((column - center) / scale)
        return super()._cells(np.sqrt(squares)[:, None])


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals(Histograms):
    """Cells of equal width for each feature; the first and the last are unbounded."""

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
    """Release the counts of the cells; the caller has charged `event`, and noise comes first."""
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
    """Yield the contributions of rows: one count in one cell of each histogram."""
    histograms: Histograms = release.facts["histograms"]
    if records[0].shape[1] != histograms.n_features:
        return
    cells, size = histograms.cells(records[0]), release.value.size
    ends = np.arange(len(cells) + 1) * cells.shape[1]
    ones = (np.ones(cells.size), cells.ravel(), ends)
    added = csr_array(ones, shape=(len(cells), size + 1))[:, :size]
    yield release.as_part(added)
