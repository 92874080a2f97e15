"""What a reader of a report on a synthetic table must be warned of, from released facts alone."""

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np

from skdpot._utils.notices import warn_of_privacy
from skdpot.preprocessing.table_columns import CategoricalColumn
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.spent import PrivacySpent
from skdpot.slicing.marginals import NoisyMarginal
from skdpot.tables.coarsening import ColumnBins
from skdpot.tables.column_grid import ColumnGrid
from skdpot.tables.model import TableModel

__all__ = ["OF_ROWS", "cautions_of", "warn_of_small_table"]

OF_ROWS = (
    "This report was computed, without noise, from rows that were handed to it. They count as "
    "public. If they are not, this report is as confidential as they are: make another one "
    "without rows for everybody else."
)
_MOST_NOISE = 0.1  # of the rows
_FEWEST_VALUES = 16  # of a scale, for its ends to be compared with their neighbours
_NEAR = 8  # cells beside a bound
_PILE_SHARE = 0.01  # of the rows in the cell of a bound,
_PILE_SEEN = 5.0  # standard deviations of its noise,
_PILE_RATIO = 2.0  # and times the largest of the neighbours: such is a pile
_SEED = "nobody knows random_state"


def warn_of_small_table(sigma: float, n_rows: int) -> None:
    """Warn of noise that leaves hardly anything of a table.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on the counts of a column.
    n_rows : int
        Number of rows, which is public.

    Warns
    -----
    PrivacyWarning
        Whatever the rows are.
    """
    if sigma > _MOST_NOISE * n_rows:
        warn_of_privacy(
            f"The table is too small for this epsilon: it has {n_rows:,} rows, and the noise on "
            f"each count of a column has a standard deviation of {sigma:,.3g} rows. Synthetic rows "
            "may say little more than the schema does. Use more rows, fewer columns or a larger "
            "epsilon."
        )


def cautions_of(
    schema: TableSchema,
    spent: PrivacySpent,
    model: TableModel,
    grids: Sequence[ColumnGrid],
    *,
    of_rows: bool,
) -> tuple[str, ...]:
    """Return all warnings, the gravest first.

    Parameters
    ----------
    schema : TableSchema
        The resolved schema.
    spent : PrivacySpent
        The privacy statement.
    model : TableModel
        The model, with the counts that it was fitted to.
    grids : sequence of ColumnGrid
        Cells of each column.
    of_rows : bool
        Whether rows were handed to the report.

    Returns
    -------
    tuple of str
    """
    general = _of_the_fit(schema, spent, of_rows)
    return (*general, *_of_columns(model, grids))


def _of_the_fit(schema: TableSchema, spent: PrivacySpent, of_rows: bool) -> Iterator[str]:
    if of_rows:
        yield OF_ROWS
    if math.isinf(spent.epsilon):
        yield (
            "The synthesizer was fitted without noise: ε is infinite, and neither its rows nor "
            "this report are private."
        )
    if _SEED in spent.assumptions:
        yield (
            "The synthesizer was fitted with a random_state. Whoever knows it can remove the "
            "noise; for a release leave it None."
        )
    if schema.guessed:
        yield (
            "The schema was guessed from the values and never confirmed: what stands in it is not "
            "protected. Check it, and call confirm()."
        )


def _of_columns(model: TableModel, grids: Sequence[ColumnGrid]) -> Iterator[str]:
    blank: list[str] = []
    alone: list[str] = []
    lumped: list[str] = []
    clipped: list[str] = []
    for grid, noisy, bins in zip(grids, model.columns, model.bins, strict=True):
        if grid.n_cells == 1:
            alone.append(grid.column.name)
        elif _is_blank(grid, noisy, bins, model.n_rows):
            blank.append(grid.column.name)
        else:
            lumped.extend(_lumped(grid, bins))
            clipped.extend(_clipped(grid, noisy, model.n_rows))
    if alone:
        yield f"A single value is possible, and every synthetic row has it, in {_listed(alone)}."
    if blank:
        yield (
            f"Nothing stands out of the noise in {_listed(blank)}: the synthetic values say "
            "hardly more than the schema does. Use more rows, a larger ε, fewer columns, or "
            "narrower bounds and fewer categories."
        )
    yield from clipped
    yield from lumped


def _is_blank(grid: ColumnGrid, noisy: NoisyMarginal, bins: ColumnBins, n_rows: int) -> bool:
    """Whether nothing is known of the values of a column: no bin stands out of the noise."""
    counts = noisy.counts[: grid.n_cells]
    groups = bins.bins[: grid.n_cells]
    if len(np.unique(groups)) == 1:  # one value, perhaps, that nearly all rows have
        groups = np.arange(grid.n_cells)
    sums, sizes = np.bincount(groups, weights=counts), np.bincount(groups)
    # The largest of k noises is hardly ever larger than this many standard deviations.
    seen = math.sqrt(2 * math.log(2 * len(sums))) + 1
    visible = seen * noisy.sigma * np.sqrt(sizes)
    return bool((np.minimum(sums, n_rows) <= visible).all())


def _clipped(grid: ColumnGrid, noisy: NoisyMarginal, n_rows: int) -> Iterator[str]:
    """Say where rows pile up at a bound, as clipped values do.

    A few possible values may well pile up at an end, and amounts at zero: these are left out.
    """
    if not grid.on_scale or grid.n_cells < _FEWEST_VALUES:
        return
    column: Any = grid.column
    counts = noisy.counts[: grid.n_cells]
    for side, bound, inwards in (
        ("lower", column.lower, counts),
        ("upper", column.upper, counts[::-1]),
    ):
        at, near = inwards[0], inwards[1 : 1 + _NEAR]
        least = max(_PILE_SHARE * n_rows, _PILE_SEEN * noisy.sigma)
        if bound == 0 or at < least or at < _PILE_RATIO * near.max():
            continue
        beyond = "smaller" if side == "lower" else "larger"
        shown = f"{bound:,.12g}" if isinstance(bound, Real) else bound
        yield (
            f"About {100 * min(at / n_rows, 1.0):.2g} % of the rows are at the {side} bound of "
            f"{column.name!r}, {shown}: {beyond} values, if there were any, were clipped to it. "
            "Widen the bound in the schema if there can be such."
        )


def _lumped(grid: ColumnGrid, bins: ColumnBins) -> Iterator[str]:
    """Say which categories share a bin."""
    if grid.on_scale:
        return
    present = bins.bins[: grid.n_cells]
    for group in np.flatnonzero(np.bincount(present) > 1):
        members = np.flatnonzero(present == group)
        share = 100 * float(bins.cell_shares[members].sum())
        size = f"about {share:.2g} %" if share >= 0.1 else "less than 0.1 %"
        column = grid.column
        levels = column.levels if isinstance(column, CategoricalColumn) else (False, True)
        yield (
            f"{column.name!r}: {len(members)} of {grid.n_cells} categories are too rare to be told "
            f"apart, with {size} of the rows together: "
            f"{_listed([str(levels[member]) for member in members])}. How they relate to other "
            "columns is known of all of them together only."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
