"""Warnings of a quality report, from public facts and released counts."""

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from skdpot.privacy.charges import SEEDED
from skdpot.privacy.statement import PrivacySpent
from skdpot.tables.bins import ColumnBins
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.model import TableModel
from skdpot.tables.schema import TableSchema

COMPARED_WITH_ROWS = (
    "This report was computed, without noise, from rows that were handed to it. They count as "
    "public. If they are not, this report is as confidential as they are: make another one "
    "without rows for everybody else."
)
# Rows pile up at a bound if its cell, on a scale of enough values, holds this share of the rows,
# this many standard deviations of noise, and this many times the largest of its neighbours.
_FEWEST_VALUES = 16
_PILE_SHARE, _PILE_SEEN, _PILE_RATIO = 0.01, 5.0, 2.0
_NEAR = 8  # neighbouring cells


def cautions_of_fit(schema: TableSchema, spent: PrivacySpent | None, of_rows: bool) -> list[str]:
    """Return the warnings about the fit, the gravest first."""
    known = {
        COMPARED_WITH_ROWS: of_rows,
        "The synthesizer was fitted without noise: ε is infinite, and neither its rows nor this "
        "report are private.": spent is not None and math.isinf(spent.epsilon),
        "The synthesizer was fitted with a random_state. Anyone who knows it can remove the noise; "
        "for a release leave it None.": spent is not None and SEEDED in spent.assumptions,
        "The schema was guessed from the values and never confirmed: what stands in it is not "
        "protected. Check it, and call confirm().": schema.guessed,
    }
    return [text for text, holds in known.items() if holds]


def cautions_of_columns(model: TableModel, grids: Sequence[ColumnGrid]) -> Iterator[str]:
    """Yield warnings about columns of low quality, from released counts."""
    constant, hidden, visible = [], [], []
    for grid, noisy, bins in zip(grids, model.columns, model.bins, strict=True):
        if grid.n_cells == 1:
            constant.append(grid.column.name)
        elif _is_hidden_by_noise(grid, noisy, bins, model.n_rows):
            hidden.append(grid.column.name)
        else:
            visible.append((grid, noisy, bins))
    if constant:
        yield f"A single value is possible, and every synthetic row has it, in {_listed(constant)}."
    if hidden:
        yield (
            f"Nothing stands out of the noise in {_listed(hidden)}: "
            "the synthetic values say hardly more than the schema does. Use more rows, a larger ε, "
            "fewer columns, or narrower bounds and fewer categories."
        )
    for grid, noisy, _ in visible:
        yield from _cautions_of_bounds(grid, noisy, model.n_rows)
    for grid, _, bins in visible:
        yield from _cautions_of_rare(grid, bins)


def cautions_of_signs(columns: pd.DataFrame) -> Iterator[str]:
    """Yield a warning if synthetic values, or their mean, are negative where none are known."""
    known = columns[columns["smallest"] >= 0.0]
    for figure, what in (("mean", "a negative mean"), ("smallest", "negative values")):
        if names := [str(name) for name in known.index[known[f"synthetic_{figure}"] < 0.0]]:
            yield (
                f"Synthetic rows have {what} in {_listed(names)}, where no negative value is "
                "known. State lower=0 in the schema if there can be none."
            )


def _is_hidden_by_noise(
    grid: ColumnGrid, noisy: NoisyMarginal, bins: ColumnBins, n_rows: int
) -> bool:
    """Return whether no bin of a column stands out of the noise."""
    counts = noisy.counts[: grid.n_cells]
    groups = bins.bins[: grid.n_cells]
    if len(np.unique(groups)) == 1:  # perhaps nearly all rows have one value
        groups = np.arange(grid.n_cells)
    sums, sizes = np.bincount(groups, weights=counts), np.bincount(groups)
    # The largest of k noises rarely exceeds this many standard deviations.
    seen = math.sqrt(2 * math.log(2 * len(sums))) + 1
    visible = seen * noisy.sigma * np.sqrt(sizes)
    return bool((np.minimum(sums, n_rows) <= visible).all())


def _cautions_of_bounds(grid: ColumnGrid, noisy: NoisyMarginal, n_rows: int) -> Iterator[str]:
    """Yield a warning if rows pile up at a bound other than zero, like clipped values."""
    if not grid.on_scale or grid.n_cells < _FEWEST_VALUES:
        return
    column: Any = grid.column
    counts = noisy.counts[: grid.n_cells]
    least = max(_PILE_SHARE * n_rows, _PILE_SEEN * noisy.sigma)
    for side, beyond, inwards in (("lower", "smaller", counts), ("upper", "larger", counts[::-1])):
        bound, at = getattr(column, side), inwards[0]
        if bound == 0 or at < max(least, _PILE_RATIO * inwards[1 : 1 + _NEAR].max()):
            continue
        shown = f"{bound:,.12g}" if isinstance(bound, Real) else bound
        yield (
            f"About {100 * min(at / n_rows, 1.0):.2g} % of the rows are at the {side} bound of "
            f"{column.name!r}, {shown}: {beyond} values, if there were any, were clipped to it. "
            "Widen the bound in the schema if there can be such."
        )


def _cautions_of_rare(grid: ColumnGrid, bins: ColumnBins) -> Iterator[str]:
    """Yield a warning for each bin that several categories share."""
    if grid.on_scale:
        return
    present, column = bins.bins[: grid.n_cells], grid.column
    for group in np.flatnonzero(np.bincount(present) > 1):
        members = np.flatnonzero(present == group)
        share = 100 * float(bins.cell_shares[members].sum())
        size = f"about {share:.2g} %" if share >= 0.1 else "less than 0.1 %"
        yield (
            f"{column.name!r}: {len(members)} of {grid.n_cells} categories are too rare to be told "
            f"apart, with {size} of the rows together: "
            f"{_listed([str(column.levels[member]) for member in members])}. How they relate to "
            "other columns is known of all of them together only."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
