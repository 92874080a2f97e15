"""Parts of columns that synthetic rows lack: tenths of the range, tails, ends, categories.

A part is lost if synthetic rows have less than four fifths of its rows, and the difference is more
than noise or chance explains. It is hidden if synthetic rows have next to none of the rows that it
may have by its noisy counts.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginals import ColumnShares

SEEN = 4.0  # standard deviations at which rows stand out of noise or chance
_LEFT = 0.8  # share of a part that must be left
_AT_MOST = 2.0  # standard deviations of noise that are added to a count
_LEAST_HIDDEN = 0.005  # share of the rows from which on hidden parts are told
_N_TENTHS = 10
_TAILS = (0.01, 0.99)
_MISSING = "missing values"
_UNKNOWN = (math.nan, math.nan)


@dataclass(frozen=True)
class RangePart:
    """A part of a column: its shares of the given and of the synthetic rows."""

    name: str
    given: float
    synthetic: float
    deviation: float  # of their difference, by noise or chance

    @property
    def is_lost(self) -> bool:
        """Whether synthetic rows lack it."""
        lacking = self.given - self.synthetic
        return lacking > (1.0 - _LEFT) * self.given and lacking > SEEN * self.deviation

    @property
    def at_most(self) -> float:
        """The largest share of the rows that the noise allows."""
        return min(max(self.given, 0.0) + _AT_MOST * self.deviation, 1.0)

    @property
    def is_hidden(self) -> bool:
        """Whether it may have rows, and synthetic rows have next to none of these."""
        few = self.synthetic < (1.0 - _LEFT) * self.at_most
        return few and self.at_most >= _LEAST_HIDDEN and not self.is_lost


@dataclass(frozen=True, eq=False)
class Side:
    """The values of a column, in the unit of `numbers`, with their shares of all rows.

    `noise` is the covariance of noise on the shares, or variances if it is none; None for rows,
    which differ by chance.
    """

    values: FloatArray
    shares: FloatArray
    n_rows: int
    noise: FloatArray | None = None

    @classmethod
    def of_rows(cls, numbers: FloatArray) -> "Side":
        """Return the side of rows; NaN is missing."""
        present = numbers[~np.isnan(numbers)]
        return cls(present, np.full(len(present), 1.0 / max(len(numbers), 1)), len(numbers))

    @classmethod
    def of_counts(
        cls, grid: ColumnGrid, counts: FloatArray, covariance: FloatArray, n_rows: int
    ) -> "Side":
        """Return the side of noisy counts, with all rows of a cell at its mean value."""
        present = slice(grid.n_cells)
        noise = covariance[present] if covariance.ndim == 1 else covariance[present, present]
        return cls(cell_numbers(grid), counts[present] / n_rows, n_rows, noise / n_rows**2)

    def within(self, low: float, high: float) -> BoolArray:
        """Whether each value is above `low` and at most `high`."""
        return (self.values > low) & (self.values <= high)

    def share(self, low: float, high: float) -> float:
        """Return the share of the rows above `low` and at most `high`."""
        return float(self.shares[self.within(low, high)].sum())

    def variance(self, low: float, high: float) -> float:
        """Return the variance of such a share by noise; 0 for rows."""
        if self.noise is None:
            return 0.0
        inside = self.within(low, high).astype(np.float64)
        weighted = self.noise * inside if self.noise.ndim == 1 else self.noise @ inside
        return float(inside @ weighted)

    def quantiles(self, levels: Sequence[float]) -> FloatArray:
        """Return quantiles; shares with noise are made monotone first."""
        if not len(self.values):
            return np.full(len(levels), np.nan)
        if self.noise is None:
            weights = self.shares
            return np.quantile(self.values, levels, method="inverted_cdf", weights=weights)
        order = np.argsort(self.values, kind="stable")
        below: FloatArray = isotonic_regression(np.cumsum(self.shares[order])).x
        places = np.searchsorted(below, np.array(levels) * below[-1])
        return np.asarray(self.values[order][np.minimum(places, len(order) - 1)])

    def ends(self) -> tuple[float, float]:
        """Return the smallest and the largest value, of those that stand out of the noise."""
        if self.noise is None:
            present = self.values[self.shares > 0.0]
            return (float(present.min()), float(present.max())) if present.size else _UNKNOWN
        order = np.argsort(self.values, kind="stable")
        return self._first_seen(order), self._first_seen(order[::-1])

    def _first_seen(self, order: IntArray) -> float:
        """Return the first value, in an order, up to which the rows stand out of the noise."""
        noise = np.asarray(self.noise)
        if noise.ndim == 1:
            variances = np.cumsum(noise[order])
        else:
            variances = np.cumsum(np.cumsum(noise[np.ix_(order, order)], axis=0), axis=1).diagonal()
        seen = np.flatnonzero(np.cumsum(self.shares[order]) > SEEN * np.sqrt(variances))
        return float(self.values[order[seen[0]]]) if seen.size else math.nan


def cell_numbers(grid: ColumnGrid) -> FloatArray:
    """Return the mean value of each cell of a scale, in the unit of `numbers`."""
    return np.asarray(grid.column.replace(missing=False).numbers(grid.middles), dtype=np.float64)


def parts_of_scale(column: Any, given: Side, synthetic: Side) -> list[RangePart]:
    """Return the rows beyond the synthetic range, the tails of rows, and the tenths of the range.

    A part within one that is lost or hidden is left out, and neighbouring hidden tenths are one.
    """
    least, most = synthetic.ends()
    ends = [(-math.inf, np.nextafter(least, -math.inf)), (most, math.inf)]
    if given.noise is None:
        first, last = given.quantiles(_TAILS)
        ends += [(-math.inf, np.nextafter(first, -math.inf)), (last, math.inf)]
    lower, upper = column.span
    edges = np.linspace(lower, upper, _N_TENTHS + 1)[1:-1].tolist()
    parts: list[tuple[float, float, RangePart]] = []
    for low, high in (*ends, *itertools.pairwise([-math.inf, *edges, math.inf])):
        if any(a <= low and high <= b for a, b, part in parts if part.is_lost or part.is_hidden):
            continue
        found = _part(column, given, synthetic, low, high)
        if parts and parts[-1][1] == low and found.is_hidden and parts[-1][2].is_hidden:
            low = parts.pop()[0]
            found = _part(column, given, synthetic, low, high)
        parts.append((low, high, found))
    return [part for _, _, part in parts]


def _part(column: Any, given: Side, synthetic: Side, low: float, high: float) -> RangePart:
    """Return the part of a scale above `low` and at most `high`."""
    share, drawn = given.share(low, high), synthetic.share(low, high)
    if given.noise is None:
        variance = _by_chance(share, drawn, given.n_rows, synthetic.n_rows)
    else:
        variance = given.variance(low, high) + drawn * (1.0 - drawn) / synthetic.n_rows
    return RangePart(_interval(column, low, high), share, drawn, math.sqrt(variance))


def parts_of_categories(shares: ColumnShares, n_rows: int, n_samples: int) -> Iterator[RangePart]:
    """Yield the categories; noise on the real shares is known, or else rows differ by chance."""
    names = [str(value) for value in shares.values]
    noise = shares.real_deviations
    for place, name in enumerate(names):
        given, drawn = float(shares.real[place]), float(shares.synthetic[place])
        yield _category(
            name, given, drawn, None if noise is None else noise[place], n_rows, n_samples
        )


def missing_part(shares: ColumnShares, n_rows: int, n_samples: int) -> RangePart:
    """Return the part of missing values."""
    noise = None if shares.real_deviations is None else shares.real_missing_deviation
    given, drawn = shares.real_missing, shares.synthetic_missing
    return _category(_MISSING, given, drawn, noise, n_rows, n_samples)


def _category(
    name: str, given: float, drawn: float, noise: float | None, n_rows: int, n_samples: int
) -> RangePart:
    if noise is None:
        variance = _by_chance(given, drawn, n_rows, n_samples)
    else:
        variance = noise**2 + drawn * (1.0 - drawn) / n_samples
    return RangePart(name, given, drawn, math.sqrt(variance))


def _by_chance(given: float, drawn: float, n_given: int, n_drawn: int) -> float:
    """Return the variance of the difference of two shares in samples of one distribution."""
    pooled = (n_given * given + n_drawn * drawn) / (n_given + n_drawn)
    return max(pooled * (1.0 - pooled), 0.0) * (1.0 / n_given + 1.0 / n_drawn)


def _interval(column: Any, low: float, high: float) -> str:
    """Return an interval of the values of a column, in words."""
    if low == -math.inf:
        return f"up to {shown_value(column, high)}"
    if high == math.inf:
        return f"above {shown_value(column, low)}"
    return f"above {shown_value(column, low)}, up to {shown_value(column, high)}"


def shown_value(column: Any, number: float) -> str:
    """Return a number of a column as text: a number, a date or a duration."""
    if not math.isfinite(number):
        return "–"
    if column.is_numbered:
        return f"{number:,.0f}" if 1e4 <= abs(number) < 1e9 else f"{number:,.4g}"
    return str(column.replace(missing=False).from_numbers(np.array([number]))[0])


def losses_frame(parts: Iterable[tuple[str, RangePart]], by_noise: bool) -> pd.DataFrame:
    """Return the lost and, of noisy counts, the hidden parts of columns as a table."""
    rows = [
        (name, p.name, p.given, p.synthetic, p.deviation, p.at_most, p.is_lost)
        for name, p in parts
        if p.is_lost or (by_noise and p.is_hidden)
    ]
    shares = dict.fromkeys(("given", "synthetic", "deviation", "at_most"), "float64")
    frame = pd.DataFrame(rows, columns=["column", "part", *shares, "lost"])
    return frame.astype(shares | {"lost": "bool"}).set_index("column")
