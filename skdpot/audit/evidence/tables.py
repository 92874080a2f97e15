"""Canaries for synthetic tables, and what their noisy counts say about them.

A synthesizer counts rows in the cells of contingency tables, of single columns first and then of
pairs of columns. Which pairs, and in which bins, follows from what was released before, so that an
attacker who has read that knows the cell of every candidate in every table. The sums of how far
the tables are off, which choose the pairs, are left out: a tenth of the squared mu is theirs.

Canaries are arrays of numbers, as all rows of an audit. Columns of categories must be numbered.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from skdpot._utils.rng import SecretStream
from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.histograms import add_histograms
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.preprocessing.table_columns import (
    BooleanColumn,
    CategoricalColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.slicing.marginal_release import release_misfits
from skdpot.slicing.marginals import IntArray, Marginal, NoisyMarginal
from skdpot.tables.column_grid import ColumnGrid, column_grid

__all__ = ["add_tables", "numbered", "table_canaries"]


def table_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make rows that differ in all columns, and on a scale by half of its length.

    Raises
    ------
    ValueError
        If a column cannot be one of numbers, or nothing says which values it has.
    """
    schema = request.estimator.schema
    if schema is None:
        schema = TableSchema.from_dtypes(request.X)
    elif not isinstance(schema, TableSchema):
        schema = TableSchema.from_json(schema)
    schema = schema.bind(request.X)
    table = Table.of(request.X, schema.names)
    sides: list[list[np.ndarray]] = [[], []]
    for column in schema:
        grid = column_grid(_with_values(column, table))
        first = request.rng.integers(grid.n_cells, size=request.n_pairs)
        least, most = (grid.n_cells // 2,) * 2 if grid.on_scale else (1, grid.n_cells - 1)
        shift = request.rng.integers(least, max(least, most) + 1, size=request.n_pairs)
        for side, cells in zip(sides, (first, (first + shift) % grid.n_cells), strict=True):
            side.append(np.asarray(grid.values(cells, request.rng), dtype=np.float64))
    return CanaryPairs(first=np.stack(sides[0], axis=1), second=np.stack(sides[1], axis=1))


def numbered(fitted: Any, X: Any) -> tuple[TableSchema, np.ndarray]:
    """Return a schema of the cells that a synthesizer counts in, and the cells of rows.

    A fit on these numbers counts in the same cells, whatever the columns held: text or dates.
    """
    table = Table.of(X, fitted.schema_.names)
    columns: list[TableColumn] = []
    numbers = []
    for grid in fitted._grids:
        name, missing = grid.column.name, grid.column.missing
        cells = grid.codes(table.column(name)).astype(np.float64)
        numbers.append(np.where(cells == grid.n_cells, np.nan, cells))
        if grid.on_scale:
            most = grid.n_cells - 1
            columns.append(NumericColumn(name, lower=0, upper=most, integer=True, missing=missing))
        else:
            levels = tuple(range(grid.n_cells))
            columns.append(
                CategoricalColumn(name, categories=levels, ordered=grid.ordered, missing=missing)
            )
    return TableSchema(tuple(columns)), np.stack(numbers, axis=1)


def _with_values(column: TableColumn, table: Table) -> TableColumn:
    """Return a column that says which values it has, by public rows where it leaves that open."""
    name = column.name
    numbered = isinstance(column, (NumericColumn, BooleanColumn)) or (
        isinstance(column, CategoricalColumn)
        and all(isinstance(level, int | float) for level in column.categories or ())
    )
    if not numbered:
        raise ValueError(
            f"The rows of an audit are arrays of numbers, and column {name!r} is none of numbers. "
            "Number its categories, or give canaries= and score= yourself."
        )
    if column.is_resolved:
        return column
    present = table.series(name)[~np.isnan(table.series(name))]
    if not len(present):
        raise ValueError(
            f"Nothing says which values column {name!r} has: give some rows, or state its bounds "
            "or categories in the schema."
        )
    if isinstance(column, NumericColumn):
        return column.within(float(present.min()), float(present.max()))
    return column.replace(categories=tuple(np.unique(present).tolist()))


def add_tables(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add all noisy tables of a synthesizer, and check the noise of how far tables are off."""
    fitted, pairs = audited.fitted, audited.pairs
    finest = [_cells(rows, fitted._grids) for rows in (audited.X, pairs.first, pairs.second)]
    binned = [_in_bins(cells, fitted.model_.bins) for cells in finest]
    model = fitted.model_
    for codes, released in ((finest, model.columns), (binned, model.marginals)):
        for noisy in audited.watched(released, "tables"):
            _add(evidence, noisy, *codes)
    add_histograms(evidence, audited)
    if evidence.heads is None:
        return
    rows = _cells(np.concatenate([audited.X, pairs.choose(evidence.heads)[0]]), fitted._grids)
    rows = _in_bins(rows, model.bins)
    for release in audited.releases:
        if release.kind == "misfits":
            facts = release.facts
            exact = release_misfits(
                rows, facts["marginals"], facts["predictions"], 0.0, SecretStream()
            )
            rest = release.value - exact
            evidence.check("misfits", float(rest @ rest), len(rest), facts["sigma"])


def _cells(rows: np.ndarray, grids: tuple[ColumnGrid, ...]) -> IntArray:
    return np.stack([grid.codes(rows[:, j]) for j, grid in enumerate(grids)], axis=1)


def _in_bins(cells: IntArray, bins: Any) -> IntArray:
    return np.stack([found.bins[cells[:, j]] for j, found in enumerate(bins)], axis=1)


def _add(
    evidence: EvidenceSum, noisy: NoisyMarginal, known: IntArray, first: IntArray, second: IntArray
) -> None:
    """Add one table, given the codes of known rows and of both candidates of each pair."""
    marginal: Marginal = noisy.marginal
    expected = marginal.counts(known) + (marginal.counts(first) + marginal.counts(second)) / 2
    numbers = np.arange(evidence.n_pairs)
    signs = np.repeat([1.0, -1.0], evidence.n_pairs)
    cells = np.concatenate([marginal.cells(first), marginal.cells(second)])
    differences = csr_array(
        (signs, (np.tile(numbers, 2), cells)), shape=(evidence.n_pairs, marginal.n_cells)
    )
    evidence.add(noisy.counts - expected, differences, noisy.sigma, name="marginals")
