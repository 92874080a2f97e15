"""Synthetic rows beside the noisy counts they were fitted to, or beside public rows."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.estimators._table_marginals import drawn_marginal
from skdpot.estimators._table_numbers import (
    numbers_beside,
    numbers_of_counts,
    numbers_of_values,
)
from skdpot.metrics.marginals import (
    PAIR_BINS,
    CodedTables,
    Marginal,
    distance_by_chance,
    marginal_of,
    normalized_wasserstein_distance,
)
from skdpot.preprocessing.table_columns import NumericColumn, TableColumn
from skdpot.preprocessing.table_frames import Table
from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal
from skdpot.tables.coarsening import project_to_total
from skdpot.tables.column_grid import ColumnGrid
from skdpot.tables.model import TableModel

__all__ = ["TableComparison", "compare_with_releases", "compare_with_rows"]

_N_DRAWS = 100  # of noise, for what it explains
_SURE = 5.0  # standard deviations above what noise explains
_ROUNDING = 1e-12
_DRAWN_BINS = 24
_FIGURES = ("total_variation", "expected", "limit", "beyond_noise")


@dataclass(frozen=True, eq=False)
class TableComparison:
    """How far synthetic rows are from what they are compared with.

    Parameters
    ----------
    columns, pairs : DataFrame
        A row for each column, and for each pair that was compared.
    marginals : tuple of Marginal
        Shares of the values of each column, to be drawn.
    """

    columns: pd.DataFrame
    pairs: pd.DataFrame
    marginals: tuple[Marginal, ...]


def compare_with_releases(
    model: TableModel,
    grids: Sequence[ColumnGrid],
    synthetic: Table,
    rng: np.random.Generator,
) -> TableComparison:
    """Compare synthetic rows with the noisy counts that the model was fitted to.

    Parameters
    ----------
    model : TableModel
        The model and the counts.
    grids : sequence of ColumnGrid
        Cells of each column.
    synthetic : Table
        The synthetic rows.
    rng : Generator
        For draws of noise, which show what it explains.

    Returns
    -------
    TableComparison
        Columns are compared in the intervals that are drawn, pairs in the cells that were
        released.
    """
    parts = {grid.column.name: synthetic.column(grid.column.name) for grid in grids}
    cells = np.stack([grid.codes(parts[grid.column.name]) for grid in grids], axis=1)
    drawn = []
    figures = []
    for place, (grid, noisy) in enumerate(zip(grids, model.columns, strict=True)):
        shares = np.bincount(cells[:, place], minlength=grid.size) / len(cells)
        marginal, joined = drawn_marginal(grid, noisy, shares, model.n_rows, _DRAWN_BINS)
        drawn.append(marginal)
        figures.append(_misfit(noisy, shares, joined, model.n_rows, len(cells), rng))
    columns = [grid.column for grid in grids]
    frame = _columns_frame(columns, figures)
    released = {
        grid.column.name: numbers_of_counts(grid, noisy)
        for grid, noisy in zip(grids, model.columns, strict=True)
        if isinstance(grid.column, NumericColumn)
    }
    frame = frame.join(numbers_beside(columns, released, _numbers_of(columns, parts)))
    binned = np.empty(cells.shape, dtype=np.int64)
    for place, bins in enumerate(model.bins):
        binned[:, place] = bins.bins[cells[:, place]]
    rows = []
    for noisy in model.marginals:
        shares = noisy.marginal.counts(binned) / len(cells)
        joined = np.arange(len(shares))
        names = [grids[place].column.name for place in noisy.marginal.columns]
        found = _misfit(noisy, shares, joined, model.n_rows, len(cells), rng)
        rows.append((*names, len(shares), *found))
    return TableComparison(frame, _pairs_frame(rows), tuple(drawn))


def compare_with_rows(
    columns: Sequence[TableColumn], real: dict[str, pd.Series], synthetic: dict[str, pd.Series]
) -> TableComparison:
    """Compare synthetic rows with public ones.

    Parameters
    ----------
    columns : sequence of TableColumn
        The schema.
    real, synthetic : dict of str to Series
        The columns of both tables.

    Returns
    -------
    TableComparison
        Numbers and dates are counted between 16 quantiles of the real ones.
    """
    tables = CodedTables.of(real, synthetic, PAIR_BINS)
    figures = [_difference(tables, (place,))[1:] for place in range(len(columns))]
    frame = _columns_frame(columns, figures)
    distances = normalized_wasserstein_distance(pd.DataFrame(real), pd.DataFrame(synthetic))
    frame["normalized_wasserstein"] = distances.reindex(frame.index)
    numbers = (_numbers_of(columns, part) for part in (real, synthetic))
    frame = frame.join(numbers_beside(columns, *numbers))
    rows = [
        (*(columns[place].name for place in pair), *_difference(tables, pair))
        for pair in itertools.combinations(range(len(columns)), 2)
    ]
    drawn = tuple(marginal_of(name, real[name], synthetic[name], _DRAWN_BINS) for name in real)
    return TableComparison(frame, _pairs_frame(rows), drawn)


def _numbers_of(
    columns: Sequence[TableColumn], table: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    return {
        column.name: numbers_of_values(column, table[column.name])
        for column in columns
        if isinstance(column, NumericColumn)
    }


def _misfit(
    noisy: NoisyMarginal,
    synthetic: FloatArray,
    joined: IntArray,
    n_rows: int,
    n_samples: int,
    rng: np.random.Generator,
) -> tuple[float, float, float, bool]:
    """Return the distance to noisy counts, and what the noise alone would make of it.

    If the synthetic shares are those of the private rows, then noisy counts of them are the
    private ones plus noise, and the synthetic rows at hand a sample: both are drawn anew.
    """
    n_cells = int(joined.max()) + 1
    counts, truth = (_join(part, joined, n_cells) for part in (noisy.counts, synthetic))
    sizes = np.bincount(joined, minlength=n_cells)
    scales = noisy.sigma * np.sqrt(sizes)
    found = _distance(counts, truth, n_rows)
    draws = np.empty(_N_DRAWS)
    for draw in range(_N_DRAWS):
        sample = rng.multinomial(n_samples, truth / truth.sum()) / n_samples
        noise = scales * rng.standard_normal(n_cells)
        draws[draw] = _distance(n_rows * truth + noise, sample, n_rows)
    expected = float(draws.mean())
    limit = expected + _SURE * float(draws.std(ddof=1))
    return found, expected, limit, found > limit + _ROUNDING


def _distance(counts: FloatArray, shares: FloatArray, n_rows: int) -> float:
    possible = project_to_total(counts, n_rows) / n_rows
    return float(np.abs(possible - shares).sum() / 2)


def _join(values: npt.ArrayLike, groups: IntArray, n_groups: int) -> FloatArray:
    return np.bincount(groups, weights=np.asarray(values), minlength=n_groups).astype(np.float64)


def _difference(
    tables: CodedTables, columns: tuple[int, ...]
) -> tuple[int, float, float, float, bool]:
    real, synthetic = tables.shares(columns)
    found = float(np.abs(real - synthetic).sum() / 2)
    expected, limit = distance_by_chance(real, synthetic, tables.n_real, tables.n_synthetic)
    return len(real), found, expected, limit, found > limit + _ROUNDING


def _columns_frame(columns: Sequence[TableColumn], figures: Sequence[tuple[Any, ...]]) -> Any:
    index = pd.Index([column.name for column in columns], name="column")
    frame = pd.DataFrame(figures, index, columns=list(_FIGURES))
    frame.insert(0, "kind", [column.kind for column in columns])
    return frame


def _pairs_frame(rows: Sequence[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["first", "second", "cells", *_FIGURES])
    types = {"cells": "int64", "beyond_noise": "bool"} | dict.fromkeys(_FIGURES[:3], "float64")
    return frame.astype(types).set_index(["first", "second"])
