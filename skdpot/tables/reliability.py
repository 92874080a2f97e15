"""The errors that privacy noise leaves in the columns and pairs of a fitted table.

Everything here is computed from released counts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.tables.bins import ColumnBins, project_to_total
from skdpot.tables.cells import combined
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import tables_of
from skdpot.tables.marginals import column_numbers
from skdpot.tables.model import TableModel
from skdpot.tables.schema_release import SchemaEstimate

# An error of this total variation is small whatever the data are; so is one of a mean that is this
# share of the range.
_MARGIN, _MEAN_MARGIN = 0.05, 0.05
_BEYOND = 0.1  # share of the rows outside the bounds from which on a mean is unknown
_FEW = 8  # parts in which the noise of a column without bins is stated
_PAIR_MARGIN = 0.1  # of a pair, which has more cells
_MEAN_NOISE = math.sqrt(2.0 / math.pi)  # mean absolute value of standard normal noise
_HELP = "Use more rows, fewer columns or a larger epsilon"
_UNIFORM, _MIDDLE = "a uniform distribution in the bounds", "the middle of the bounds"
_EQUAL, _INDEPENDENT = "equal shares of all categories", "independence"


def table_reliability(
    model: TableModel, target: int | None = None, schema: Sequence[SchemaEstimate] = ()
) -> Reliability:
    """Return the errors of released bounds and categories, of columns, and of measured pairs.

    The distribution of a column has an error in total variation, in the bins of the model. Its
    counts are those of the column and of all pairs and triples, combined by their noise. The model
    lies between them and the counts of the column alone; half of the distance is a part of the
    error. The error of a pair is the total variation that noise adds to what its columns say alone.
    """
    columns = {c.name: c for c in (_ColumnCounts.of(model, p) for p in range(len(model.bins)))}
    estimates = [
        columns[item.column].beyond(item) if item.what == "bounds" else item for item in schema
    ]
    hidden = {item.column: item.hidden for item in estimates if item.what != "scale"}
    outputs = [item.output for item in estimates]
    for name, column in columns.items():
        outputs += column.outputs(hidden.get(name, 0.0))
    outputs += _pairs(model, target)
    narrower = ", and state narrower bounds and fewer categories" if not schema else ""
    stated = " State bounds and categories that are public." if schema else ""
    return Reliability(tuple(outputs), f"{_HELP}{narrower}.{stated}")


@dataclass(frozen=True, eq=False)
class _ColumnCounts:
    """The counts of one column in the bins of the model, with their covariance."""

    grid: ColumnGrid
    bins: ColumnBins
    n_rows: int
    cells: FloatArray  # covariance of the counts of its cells, or their variances
    shares: FloatArray  # of the bins
    covariance: FloatArray  # of these shares

    @classmethod
    def of(cls, model: TableModel, place: int) -> "_ColumnCounts":
        """Combine all released counts of a column."""
        grid, bins, n_rows = model.grids[place], model.bins[place], model.n_rows
        best, cells = cell_counts(model, place)
        if not cells.any():
            return cls(grid, bins, n_rows, cells, bins.shares, np.zeros((bins.n_bins,) * 2))
        sums = np.eye(bins.n_bins)[bins.bins]
        information = np.linalg.inv(sums.T @ _times(cells, sums))
        counts: FloatArray = sums.T @ best
        known = information @ counts
        published = model.releases[0].kind != "marginals"  # counts of columns are sums of pairs
        for noisy in () if published else model.marginals:
            for axis, column in enumerate(noisy.marginal.columns):
                if column == place:
                    groups = np.eye(noisy.marginal.shape[axis])[noisy.marginal.groups[axis]]
                    margin, variance = _margin(noisy, axis)
                    variance = max(variance, np.finfo(np.float64).tiny)
                    information = information + groups @ groups.T / variance
                    known = known + groups @ margin / variance
        covariance = np.linalg.inv(information)
        counts, whole = covariance @ known, covariance.sum(axis=1)  # the total is public
        counts = counts + whole / whole.sum() * (n_rows - counts.sum())
        covariance = (covariance - np.outer(whole, whole) / whole.sum()) / n_rows**2
        return cls(grid, bins, n_rows, cells, project_to_total(counts / n_rows, 1.0), covariance)

    @property
    def name(self) -> str:
        """Name of the column."""
        return str(self.grid.column.name)

    @cached_property
    def deviations(self) -> FloatArray:
        """Standard deviation of the share of each bin."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def beyond(self, estimate: SchemaEstimate) -> SchemaEstimate:
        """Return estimated bounds with the share of the rows that the counts place beyond them.

        These are in the cells of the bounds. Many rows may have a bound of zero, or a bound without
        noise.
        """
        if not self.cells.any():
            return estimate
        ends = {0: self.grid.column.span[0], self.grid.n_cells - 1: self.grid.column.span[1]}
        places = [place for place, bound in ends.items() if bound != 0.0]
        outside = np.isin(np.arange(self.grid.size), places).astype(np.float64)
        noise = math.sqrt(max(float(outside @ _times(self.cells, outside)), 0.0)) / self.n_rows
        hidden = min(float(self.bins.cell_shares @ outside) + noise, 1.0)
        return replace(estimate, hidden=hidden, found=estimate.found or hidden <= _BEYOND)

    def outputs(self, outside: float) -> Iterator[OutputError]:
        """Yield the error of the distribution, and that of the mean of a column of numbers.

        The distribution of the share of the rows that is `outside` the bounds or categories is
        unknown, and so is that of a bin of many values with more than half of the rows.
        """
        uniform = np.bincount(self.bins.bins, self.grid.weights, self.bins.n_bins)
        distance = np.abs(self.shares - uniform / uniform.sum()).sum() / 2
        covariance = self.covariance
        seen = self.bins.n_bins - self.grid.column.missing > 1
        if hidden := not seen and self.grid.n_cells > 1 and bool(self.cells.any()):
            covariance = self._coarse_covariance()
        noise = _distance_of_noise(covariance)
        away = float(np.abs(self.shares - self.bins.shares).sum()) / 4
        unresolved = max(2.0 * float(self.shares[self._is_wide].max(initial=0.0)) - 1.0, 0.0)
        yield OutputError(
            output=f"distribution of {self.name}",
            standard_error=min(math.hypot(noise, away, unresolved, outside), 1.0),
            trivial=_UNIFORM if self.grid.on_scale else _EQUAL,
            trivial_error=max(float(distance - _MEAN_NOISE * self.deviations.sum() / 2), 0.0),
            margin=_MARGIN,
            replaced=hidden,
        )
        if self.grid.column.figure == "number" and outside <= _BEYOND:
            yield self._mean()

    @property
    def _is_wide(self) -> BoolArray:
        """Whether each bin has several values."""
        several = np.zeros(self.grid.size)
        if self.grid.on_scale and not self.grid.is_final:
            several[: self.grid.n_cells] = ~self.grid.alone
        bins = self.bins.bins
        n_values = np.bincount(bins, 1.0 + several, self.bins.n_bins)
        return np.asarray(n_values > 1.0, dtype=np.bool_)

    def _coarse_covariance(self) -> FloatArray:
        """Return the covariance of shares of a few parts of equally many cells."""
        n_parts = min(self.grid.n_cells, _FEW)
        parts = np.eye(n_parts)[np.arange(self.grid.n_cells) * n_parts // self.grid.n_cells]
        sums = np.zeros((self.grid.size, n_parts))
        sums[: self.grid.n_cells] = parts
        covariance: FloatArray = sums.T @ _times(self.cells, sums) / self.n_rows**2
        return covariance

    def _mean(self) -> OutputError:
        """Return the error of the mean of the values that are present."""
        n_cells, bins = self.grid.n_cells, self.bins.bins
        values = column_numbers(self.grid.column.compared(self.grid.middles), "number")
        lower, upper = self.grid.column.span
        unit = max(abs(lower), abs(upper), float(np.finfo(np.float64).tiny))  # no square overflows
        cells = np.append(values / unit, 0.0)[: self.grid.size]
        if self.grid.column.missing:
            cells[n_cells:] = 0.0
        inside = np.arange(len(bins)) < n_cells
        weights = np.where(inside, self.bins.cell_shares, 0.0)
        sizes = np.bincount(bins, weights, self.bins.n_bins)
        means = np.bincount(bins, weights * cells, self.bins.n_bins) / np.where(sizes, sizes, 1.0)
        shares = np.where(sizes > 0.0, self.shares, 0.0)
        tiny = float(np.finfo(np.float64).tiny)
        whole = max(float(shares.sum()), tiny)
        mean = float(shares @ means) / whole
        # Noise moves the shares of bins, and of cells within bins.
        between = np.where(sizes > 0.0, means - mean, 0.0) / whole
        within = np.where(inside, cells - means[bins], 0.0) / (whole * self.n_rows)
        variance = between @ self.covariance @ between + within @ _times(self.cells, within)
        alone = np.where(sizes > 0.0, self.bins.shares, 0.0)
        away = (float(alone @ means) / max(float(alone.sum()), tiny) - mean) / 2
        mean, error = unit * mean, unit * math.sqrt(max(float(variance), 0.0) + away**2)
        error = min(error, upper - lower)
        from_middle = abs(mean - (lower + upper) / 2)
        return OutputError(
            output=f"mean of {self.name}",
            estimate=min(max(mean, lower), upper),
            standard_error=error,
            trivial=_MIDDLE,
            trivial_error=max(from_middle - error, 0.0),
            margin=_MEAN_MARGIN * (upper - lower),
        )


def cell_counts(model: TableModel, place: int) -> tuple[FloatArray, FloatArray]:
    """Return the best linear counts of cells, and their covariance, or variances if it is none.

    Counts of several rounds are combined by `skdpot.tables.cells.combined`, which is the estimate
    of least squares. Cells of different groups in the first round are independent.
    """
    last = model.columns[place]
    tables = [
        table
        for release in model.releases[: model.n_rounds]
        for table in tables_of(release)
        if table.marginal.columns == (place,) and table.marginal.levels != (0,)
    ]
    if len(tables) < 2 or last.sigma == 0.0:
        return last.counts, np.full(len(last.counts), last.sigma**2)
    rounds = [(table.marginal.groups[0], table.sigma**-2) for table in tables]
    first = rounds[0][0]
    covariance: FloatArray = np.eye(len(first)) / sum(precision for _, precision in rounds)
    for group in np.flatnonzero(np.bincount(first) > 1):
        inside = np.flatnonzero(first == group)
        parts = [(groups[inside], precision) for groups, precision in rounds]
        information = sum((part[:, None] == part) * precision for part, precision in parts)
        covariance[np.ix_(inside, inside)] = np.linalg.inv(information)
    return combined(tables)[0], covariance


def _times(covariance: FloatArray, right: FloatArray) -> FloatArray:
    """Return the product with a covariance, which may be given by its variances."""
    if covariance.ndim == 1:
        return (covariance * right.T).T
    return covariance @ right


def _margin(noisy: NoisyMarginal, axis: int) -> tuple[FloatArray, float]:
    """Return the counts of one column of a marginal, and the variance of each."""
    shape = noisy.marginal.shape
    table = np.moveaxis(noisy.counts.reshape(shape), axis, 0).reshape(shape[axis], -1)
    return table.sum(axis=1), noisy.sigma**2 * table.shape[1]


def _distance_of_noise(covariance: FloatArray) -> float:
    r"""Return the root mean square of the total variation distance that normal noise makes.

    For normal x and y of unit variance and correlation :math:`\rho` the mean of :math:`|x y|` is
    :math:`2 (\rho \arcsin \rho + \sqrt{1 - \rho^2}) / \pi`.
    """
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    products = np.outer(deviations, deviations)
    correlations = np.clip(covariance / np.where(products, products, 1.0), -1.0, 1.0)
    return float(np.sqrt((products * _mean_product(correlations)).sum()) / 2)


def _mean_product(correlation: FloatArray) -> FloatArray:
    """Return the mean absolute product of two standard normal numbers."""
    angle = correlation * np.arcsin(correlation) + np.sqrt(1.0 - correlation**2)
    return np.asarray(2.0 / math.pi * angle, dtype=np.float64)


def _pairs(model: TableModel, target: int | None) -> list[OutputError]:
    """Return the errors of the pairs with released counts, those with the target first."""
    best: dict[tuple[int, ...], tuple[float, float]] = {}
    for noisy in model.marginals:
        columns = noisy.marginal.columns
        if len(columns) != 2 or 1 in noisy.marginal.shape:  # of one bin, nothing depends
            continue
        errors = _errors_of_pair(noisy, model.n_rows)
        if errors[0] <= best.get(columns, (math.inf,))[0]:
            best[columns] = errors
    ordered = sorted(best, key=lambda columns: (target not in columns, columns))
    names = [grid.column.name for grid in model.grids]
    return [
        OutputError(
            output=f"relation of {names[first]} and {names[second]}",
            standard_error=min(best[first, second][0], 1.0),
            trivial=_INDEPENDENT,
            trivial_error=best[first, second][1],
            margin=_PAIR_MARGIN,
        )
        for first, second in ordered
    ]


def _errors_of_pair(noisy: NoisyMarginal, n_rows: int) -> tuple[float, float]:
    """Return the error of a pair, and its distance from independence beyond noise.

    Both are total variation distances, without what the sums of rows and columns say: noise that is
    orthogonal to them has the correlations -1 / (c - 1) in a row, -1 / (r - 1) in a column, and
    their product elsewhere. A cell deviates from independence by about as much as it holds, so a
    model that weighs this against the noise has a smaller error where few rows are expected.
    """
    n_first, n_second = noisy.marginal.shape
    free = (n_first - 1) * (n_second - 1)
    table = noisy.counts.reshape(n_first, n_second) / n_rows
    table = table + (1.0 - table.sum()) / table.size
    first, second = (project_to_total(table.sum(axis=axis), 1.0) for axis in (1, 0))
    expected = np.outer(first, second)
    away, deviation = np.abs(table - expected), noisy.sigma / n_rows * math.sqrt(free / table.size)
    if deviation == 0.0:
        return 0.0, float(away.sum()) / 2
    kept = expected**2 / (expected**2 + deviation**2)
    others: IntArray = np.array([1, n_second - 1, n_first - 1, free])
    correlations = np.array([1.0, -1 / (n_second - 1), -1 / (n_first - 1), 1 / free])
    one = math.sqrt(float(others @ _mean_product(correlations)) / table.size)
    error = one * deviation * float(np.sqrt(kept).sum()) / 2
    seen, noise = float(away.ravel() @ kept.ravel()), _MEAN_NOISE * deviation * float(kept.sum())
    return error, math.sqrt(max(seen**2 - noise**2, 0.0)) / 2
