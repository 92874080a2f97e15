"""Mean, standard deviation and 99 % quantile of numbers: of rows, and of noisy counts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from skdpot.metrics.marginals import column_numbers
from skdpot.preprocessing.table_columns import NumericColumn, TableColumn
from skdpot.slicing.marginals import FloatArray, NoisyMarginal
from skdpot.tables.column_grid import ColumnGrid

__all__ = ["NUMBERS", "numbers_beside", "numbers_of_counts", "numbers_of_values"]

NUMBERS = ("mean", "std", "quantile_99")
_HIGH = 0.99


def numbers_of_values(column: NumericColumn, values: Any) -> dict[str, float]:
    """Return the figures of a column of rows.

    Parameters
    ----------
    column : NumericColumn
        What the schema says of it.
    values : Series or PlainColumn
        Its values; missing ones do not count.

    Returns
    -------
    dict of str to float
        NaN if all values miss.
    """
    present = column.read_numbers(values).present.astype(np.float64)
    if not present.size:
        return dict.fromkeys(NUMBERS, np.nan)
    high = np.quantile(present, _HIGH, method="inverted_cdf")
    figures = (present.mean(), present.std(), high)
    return dict(zip(NUMBERS, map(float, figures), strict=True))


def numbers_of_counts(grid: ColumnGrid, noisy: NoisyMarginal) -> dict[str, float]:
    """Return the figures that noisy counts of cells give, each value in the middle of its cell.

    Counts are taken as they are: cut off below zero, the noise of empty cells would become a tail.

    Parameters
    ----------
    grid : ColumnGrid
        Cells of a column of numbers.
    noisy : NoisyMarginal
        Their noisy counts.

    Returns
    -------
    dict of str to float
        With ``mean_noise``, the standard deviation of the noise of the mean. NaN is what the noise
        leaves nothing of.
    """
    middle = (np.asarray(grid.starts) + np.asarray(grid.stops)) / 2
    column: Any = grid.column
    values = column_numbers(column.from_unit(middle), "number")
    order = np.argsort(values, kind="stable")
    values, counts = values[order], noisy.counts[: grid.n_cells][order]
    total = counts.sum()
    if total <= noisy.sigma * np.sqrt(len(counts)):
        return dict.fromkeys((*NUMBERS, "mean_noise"), np.nan)
    mean = float(counts @ values / total)
    variance = float(counts @ (values - mean) ** 2 / total)
    below: FloatArray = isotonic_regression(np.cumsum(counts)).x
    place = int(np.searchsorted(below, _HIGH * below[-1]))
    return {
        "mean": mean,
        "std": float(np.sqrt(variance)) if variance >= 0.0 else np.nan,
        "quantile_99": float(values[place]),
        "mean_noise": float(noisy.sigma * np.sqrt(((values - mean) ** 2).sum()) / total),
    }


def numbers_beside(
    columns: Sequence[TableColumn],
    compared: Mapping[str, Mapping[str, float]],
    synthetic: Mapping[str, Mapping[str, float]],
) -> pd.DataFrame:
    """Return the figures of both sides, a row for each column, NaN for what is no number.

    Parameters
    ----------
    columns : sequence of TableColumn
        The schema.
    compared, synthetic : mapping of str to mapping of str to float
        Figures of the columns of numbers.

    Returns
    -------
    DataFrame
    """
    names = [column.name for column in columns]
    sides = [pd.DataFrame.from_dict(dict(side), orient="index") for side in (compared, synthetic)]
    noise = ["mean_noise"] if "mean_noise" in sides[0].columns else []
    found = sides[0].reindex(index=names, columns=[*NUMBERS, *noise])
    drawn = sides[1].reindex(index=names, columns=list(NUMBERS)).add_prefix("synthetic_")
    return found.join(drawn).astype(np.float64).rename_axis("column")
