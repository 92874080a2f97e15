"""Histograms over public grids of unlimited range, and robust quantiles from noisy ones.

The grids need no prior knowledge of the data: cells grow with the magnitude, and the last
ones take all that lies beyond. Every function of a noisy table here is post-processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import LatticeNoise, lattice_noise
from skdpot.privacy.recording import released

__all__ = [
    "MagnitudeGrid",
    "SignedGrid",
    "Smoothing",
    "noisy_histogram",
    "noisy_quantiles",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class MagnitudeGrid:
    """Cells for non-negative numbers: {0}, then `per_octave` cells a doubling.

    Cells are centred on the powers of ``2 ** (1 / per_octave)``, so that the differences of
    0/1 features fall in the middle of one, and run from ``2**-64`` to ``2**64``.
    """

    per_octave: int
    octaves: int = 64

    @property
    def n_cells(self) -> int:
        """Number of cells, {0} included."""
        return 2 * self.octaves * self.per_octave + 1

    def cells(self, magnitudes: FloatArray) -> IntArray:
        """Return the cell of each magnitude."""
        with np.errstate(divide="ignore"):
            exponents = np.rint(self.per_octave * np.log2(magnitudes))
        last = self.n_cells - 2
        shifted = np.clip(exponents + self.octaves * self.per_octave, 0, last)
        return np.where(magnitudes == 0, 0, shifted.astype(np.int64) + 1)

    @cached_property
    def log2_edges(self) -> FloatArray:
        """Base-2 logarithms of the edges of the cells after {0}."""
        return (np.arange(self.n_cells) - 0.5) / self.per_octave - self.octaves


@dataclass(frozen=True)
class SignedGrid:
    """Cells for real numbers: of width 1 around zero, then as wide as floating point.

    Cells are centred on the integers up to ``2 * n_uniform`` on either side; each doubling
    beyond is divided into `n_uniform` cells.
    """

    n_uniform: int = 1024
    octaves: int = 18

    @property
    def n_cells(self) -> int:
        """Number of cells, both signs and the one around zero."""
        return 2 * self._per_sign - 1

    @property
    def _per_sign(self) -> int:
        return self.n_uniform * (self.octaves + 1)

    def cells(self, values: FloatArray) -> IntArray:
        """Return the cell of each value."""
        largest = self.n_uniform * 2.0**self.octaves
        magnitude = np.minimum(np.abs(values) + 0.5, largest)
        mantissa, exponent = np.frexp(magnitude / self.n_uniform)
        beyond = self.n_uniform * (exponent + 2 * mantissa - 1)
        index = np.where(exponent < 1, magnitude, beyond).astype(np.int64)
        index = np.minimum(index, self._per_sign - 1)
        return np.where(values < 0, -index, index) + (self._per_sign - 1)

    @cached_property
    def edges(self) -> FloatArray:
        """The ``n_cells + 1`` edges, in increasing order."""
        octave, step = np.divmod(np.arange(1, self._per_sign + 1), self.n_uniform)
        beyond = np.ldexp(float(self.n_uniform) + step, octave - 1)
        upper = np.where(octave < 1, step.astype(np.float64), beyond) - 0.5
        return np.concatenate([-upper[::-1], upper])


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """How a noisy table is cleaned before quantiles are read from it.

    Attributes
    ----------
    window : int
        Number of neighbouring cells whose sum must stand out from the noise.
    margin : int
        Cells that are kept on either side of such a window.
    n_candidates : int
        Number of windows in the whole release; fixes the threshold.
    """

    window: int
    margin: int
    n_candidates: int

    @property
    def z(self) -> float:
        """Threshold in standard deviations of the noise.

        Without data, the probability that any window passes is at most `FALSE_ALARM`.
        """
        return float(-ndtri(FALSE_ALARM / self.n_candidates))


def noisy_histogram(
    cells: IntArray, n_cells: int, noise: LatticeNoise, stream: SecretStream
) -> FloatArray:
    """Return the counts of the cells plus noise.

    Counts are added on top of the noise: no table without noise ever exists.

    Parameters
    ----------
    cells : ndarray of int
        Cell of each record.
    n_cells : int
        Length of the table.
    noise : LatticeNoise
        Noise on a lattice ``1 / k``.
    stream : SecretStream
        Source of the noise.

    Returns
    -------
    ndarray of shape (n_cells,)
    """
    table = lattice_noise(noise.sigma, n_cells, stream, lattice=noise.lattice, mu=noise.mu)
    np.add.at(table, cells, round(1 / noise.lattice))
    noisy = table.astype(np.float64) * noise.lattice
    return released("histogram", noisy, lambda: {"noise": noise})


def noisy_quantiles(
    table: FloatArray,
    edges: FloatArray,
    levels: Sequence[float],
    sigma: float,
    smoothing: Smoothing,
) -> FloatArray | None:
    """Return quantiles of the distribution that a noisy histogram shows.

    Only the neighbourhoods of windows that stand out from the noise are used: the sum of
    thousands of empty, noisy cells would drown the rest. Inside, the cumulative sum is made
    monotone and interpolated linearly between `edges`.

    Parameters
    ----------
    table : ndarray of shape (n_cells,)
        Noisy counts.
    edges : ndarray of shape (n_cells + 1,)
        Edges of the cells, in the coordinate in which to interpolate.
    levels : sequence of float
        Levels of the quantiles, in (0, 1).
    sigma : float
        Standard deviation of the noise on each count.
    smoothing : Smoothing
        Window, margin and threshold.

    Returns
    -------
    ndarray of shape (len(levels),) or None
        ``None`` when nothing stands out from the noise.
    """
    kept = _significant(table, sigma, smoothing)
    if kept.size == 0:
        return None
    cumulative = np.concatenate([[0.0], np.cumsum(table[kept])])
    rising = np.maximum.accumulate(cumulative)
    falling = np.minimum.accumulate(cumulative[::-1])[::-1]
    monotone = (rising + falling) / 2
    targets = monotone[0] + np.asarray(levels) * (monotone[-1] - monotone[0])
    after = np.clip(np.searchsorted(monotone, targets, side="right"), 1, kept.size)
    low, high = monotone[after - 1], monotone[after]
    share = np.divide(targets - low, high - low, out=np.full(after.shape, 0.5), where=high > low)
    cell = kept[after - 1]
    quantiles: FloatArray = edges[cell] + share * (edges[cell + 1] - edges[cell])
    return quantiles


def _significant(table: FloatArray, sigma: float, smoothing: Smoothing) -> IntArray:
    """Return the indices of the cells near a window that stands out from the noise."""
    window, margin = min(smoothing.window, table.size), smoothing.margin
    totals = np.convolve(table, np.ones(window), mode="valid")
    hits = np.flatnonzero(totals > smoothing.z * sigma * np.sqrt(window))
    # +1 where a kept stretch starts, -1 after its end.
    steps = np.zeros(table.size + 1, dtype=np.int64)
    np.add.at(steps, np.maximum(hits - margin, 0), 1)
    np.add.at(steps, np.minimum(hits + window + margin, table.size), -1)
    return np.flatnonzero(np.cumsum(steps[:-1]))
