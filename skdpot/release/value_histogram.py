r"""Noisy histograms of the values of one feature, or of the norms of rows, and what they show.

Sensitivity, replace-one. A record is in one cell of a histogram of values, and in at most one pair
of a histogram of differences. Replacing it moves one count from one cell to another: the histogram
changes by :math:`(-1, +1)`, of norm :math:`\sqrt 2`, those of ``d`` features together by
:math:`\sqrt{2d}`. Which rows are counted, and how they are paired, is a public random choice. A
missing value is in no cell and in no pair, which takes at most the one count away.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtri

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import lattice_noise
from skdpot.release.release import Part, Records, Release, Vectors, candidates, released

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FALSE_ALARM = 1e-4
_BLOCK = 8192


@dataclass(frozen=True)
class MagnitudeGrid:
    """Cells for non-negative numbers: {0}, then `per_octave` cells per doubling up to ``2**64``.

    They are centred on powers of two, so that differences of 0/1 features fall in the middle.
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
    def edges(self) -> FloatArray:
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
    """How a noisy table is cleaned before quantiles are read from it."""

    window: int
    margin: int
    n_candidates: int

    @property
    def z(self) -> float:
        """Threshold in deviations of the noise, which no window passes but with `FALSE_ALARM`."""
        return float(-ndtri(FALSE_ALARM / self.n_candidates))


@dataclass(frozen=True, eq=False, kw_only=True)
class Counting:
    """The public description of a histogram: one feature of some rows, or their norms."""

    grid: MagnitudeGrid | SignedGrid
    order: IntArray
    shape: tuple[int, int]
    feature: int | None
    width: float = 1.0
    paired: bool = False

    def values(self, X: npt.NDArray[np.generic], order: IntArray) -> FloatArray:
        """Return the values of some rows in double precision, or their norms."""
        if self.feature is not None:
            return X[order, self.feature].astype(np.float64)
        norms = np.empty(len(order))
        for start in range(0, len(order), _BLOCK):
            part = X[order[start : start + _BLOCK]].astype(np.float64)
            with np.errstate(over="ignore"):
                norms[start : start + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return norms

    def pairs(self, used: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the two halves that are paired."""
        half = len(self.order) // 2
        return used[:half], used[half : 2 * half]

    def cells(self, used: FloatArray) -> IntArray:
        """Return where values, one of each row in `order`, are counted; missing ones are not."""
        with np.errstate(over="ignore"):
            if self.paired:
                first, second = self.pairs(used)
                used = np.abs(first - second)
            return self.grid.cells(used[~np.isnan(used)] / self.width)


def noisy_histogram(
    used: FloatArray,
    counting: Counting,
    noise: GaussianEvent,
    stream: SecretStream,
    event: Event,
) -> FloatArray:
    """Return the counts of the cells plus noise, which is drawn first.

    `used` holds the value of each row in the order of the counting, and `event` was charged.
    """
    n_cells, lattice = counting.grid.n_cells, noise.lattice or 1.0
    table = lattice_noise(noise.sigma, n_cells, stream, lattice=lattice, mu=noise.mu)
    np.add.at(table, counting.cells(used), round(1 / lattice))
    release = Release(
        "histogram",
        table.astype(np.float64) * lattice,
        {"counting": counting},
        sigma=noise.sigma,
        lattice=lattice,
        sensitivity=noise.sensitivity,
        event=event,
        linear=_counted,
    )
    return released(release)


def _counted(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what rows add, if all were counted: of pairs the mean over the other's candidates."""
    counting: Counting = release.facts["counting"]
    slots = candidates(shares)
    if counting.shape != (len(slots[0]), records[0].shape[1]):
        return
    values = counting.values(records[0], np.arange(len(shares)))
    sides = [own[counting.order] for own in slots]  # the candidates of each counted slot
    counts = []
    if counting.paired:
        left, right = zip(*(counting.pairs(own) for own in sides), strict=True)
        with np.errstate(over="ignore"):
            for a in left:
                for b in right:
                    distances = np.abs(values[a] - values[b])
                    counts += [(a, distances, 0.5), (b, distances, 0.5)]
    else:
        counts = [(own, values[own], 0.5 + 0.5 * (shares[own] < 1.0)) for own in sides]
    places = np.concatenate([of for of, _, _ in counts])
    counted = np.concatenate([numbers for _, numbers, _ in counts]) / counting.width
    weights = np.concatenate([np.broadcast_to(w, len(of)) for of, _, w in counts])
    there = ~np.isnan(counted)
    with np.errstate(over="ignore"):
        cells = counting.grid.cells(counted[there])
    shape = (len(values), counting.grid.n_cells)
    array = csr_array((weights[there], (places[there], cells)), shape=shape)
    expected = shares @ array
    if counting.paired:  # once per pair, not once per member
        expected = np.bincount(cells, weights[there] / 4.0, minlength=shape[1])
    sigma, rows, exact = float(np.max(release.sigma)), Vectors(array), not counting.paired
    yield Part(value=release.value, sigma=sigma, rows=rows, center=expected, exact=exact)


def noisy_quantiles(
    table: FloatArray,
    edges: FloatArray,
    levels: Sequence[float],
    sigma: float,
    smoothing: Smoothing,
) -> FloatArray | None:
    """Return quantiles of the distribution that a noisy histogram shows.

    Only the neighbourhoods of windows that stand out from the noise are used: the sum of thousands
    of empty, noisy cells would drown the rest.
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
    return edges[cell] + share * (edges[cell + 1] - edges[cell])


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
