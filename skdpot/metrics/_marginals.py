"""Shares of the values of columns, of real and of synthetic rows on the same bins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = [
    "PAIR_BINS",
    "Marginal",
    "as_columns",
    "column_codes",
    "column_kind",
    "column_numbers",
    "correlation_differences",
    "marginal_of",
    "pair_distances",
]

_TAIL = 0.005  # of the real values, on each side, that end bins take in
PAIR_BINS = 16
_ALIKE = ("string", "integer", "boolean")  # objects of one type, of which equal ones look alike
_DAY = 86_400 * 10**9  # nanoseconds


@dataclass(frozen=True, eq=False)
class Marginal:
    """Shares of one column's values, missing ones included.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"number", "date", "category"}
        What its values are.
    values : ndarray
        Bin edges, one more than there are shares, of numbers and of dates (in days since 1970);
        categories, as text, otherwise.
    real, synthetic : ndarray of shape (n_bins,)
        Shares of all rows. Values beyond the outer edges are counted in the end bins.
    real_missing, synthetic_missing : float
        Shares of rows without a value.
    real_deviations : ndarray of shape (n_bins,), optional
        Standard deviations of the real shares, where these are noisy.
    real_missing_deviation : float, default=0.0
        The same of the share of rows without a value.
    ticks : tuple of (float, str), default=()
        Places on the axis of the bin edges and what to write there, where the edges are not
        values themselves.
    """

    name: str
    kind: str
    values: np.ndarray
    real: np.ndarray
    synthetic: np.ndarray
    real_missing: float
    synthetic_missing: float
    real_deviations: np.ndarray | None = None
    real_missing_deviation: float = 0.0
    ticks: tuple[tuple[float, str], ...] = ()

    @property
    def total_variation(self) -> float:
        """Total variation distance of the two: half the sum of absolute differences."""
        missing = abs(self.real_missing - self.synthetic_missing)
        return float(np.abs(self.real - self.synthetic).sum() + missing) / 2


def as_columns(frame: Any, name: str) -> dict[Any, pd.Series]:
    """Return the columns of a table of pandas or polars, or of an array, by name.

    Parameters
    ----------
    frame : DataFrame or array-like of shape (n, d)
        The table. The columns of an array are called x0, x1 and so on.
    name : str
        What the caller calls it.

    Returns
    -------
    dict of Series

    Raises
    ------
    ValueError
        If there are no rows, two columns of one name, or more than two axes.
    """
    if hasattr(frame, "get_column"):  # polars
        columns = {key: _from_polars(frame.get_column(key)) for key in frame.columns}
    elif isinstance(frame, pd.DataFrame):
        if frame.columns.has_duplicates:
            raise ValueError(f"{name} has several columns of one name.")
        columns = {key: frame[key].reset_index(drop=True) for key in frame.columns}
    else:
        table = np.asarray(frame)
        if table.ndim != 2:
            raise ValueError(f"{name} has shape {table.shape}; it must be a table of columns.")
        columns = {f"x{k}": pd.Series(table[:, k]) for k in range(table.shape[1])}
    if not columns or not len(next(iter(columns.values()))):
        raise ValueError(f"{name} is empty; pass rows to draw.")
    return columns


def marginal_of(name: Any, real: pd.Series, synthetic: pd.Series, bins: int) -> Marginal:
    """Count a column of both tables on the same bins.

    Parameters
    ----------
    name : object
        Name of the column.
    real, synthetic : Series
        Its values.
    bins : int
        Number of bins of numbers; whole numbers of fewer different values have a bin each.

    Returns
    -------
    Marginal

    Raises
    ------
    ValueError
        If the column is of another kind in the other table.
    """
    kind = column_kind(real)
    other = column_kind(synthetic)
    if kind != other and real.notna().any() and synthetic.notna().any():
        raise ValueError(f"Column {name!r} holds a {kind} in real and a {other} in synthetic rows.")
    if kind == "category":
        *parts, values = _shared_codes(real, synthetic)
        shares = [np.bincount(codes[codes >= 0], minlength=len(values)) for codes in parts]
    else:
        first, second = column_numbers(real, kind), column_numbers(synthetic, kind)
        values = _edges(first[~np.isnan(first)], second[~np.isnan(second)], bins)
        shares = [_counts(column, values) for column in (first, second)]
    return Marginal(
        str(name),
        kind,
        values,
        shares[0] / len(real),
        shares[1] / len(synthetic),
        float(real.isna().mean()),
        float(synthetic.isna().mean()),
    )


def pair_distances(real: dict[Any, pd.Series], synthetic: dict[Any, pd.Series]) -> pd.DataFrame:
    """Return the total variation distance of every pair of columns, numbers in 16 bins.

    The bins end at quantiles of the real rows; a missing value is a value of its own. On the
    diagonal are the distances of single columns.
    """
    coded = [column_codes(real[name], synthetic[name], PAIR_BINS) for name in real]
    distances = np.zeros((len(coded), len(coded)))
    for i, (first, first_other, n_first) in enumerate(coded):
        for j, (second, second_other, n_second) in enumerate(coded[: i + 1]):
            n_cells = n_first * n_second
            here = np.bincount(first * n_second + second, minlength=n_cells) / len(first)
            there = np.bincount(first_other * n_second + second_other, minlength=n_cells)
            gap = np.abs(here - there / len(first_other)).sum() / 2
            distances[i, j] = distances[j, i] = gap
    names = [str(name) for name in real]
    return pd.DataFrame(distances, names, names)


def correlation_differences(
    real: dict[Any, pd.Series], synthetic: dict[Any, pd.Series]
) -> pd.DataFrame:
    """Return correlations of the synthetic minus those of the real rows, of columns of numbers."""
    names = [name for name in real if column_kind(real[name]) == "number"]
    if len(names) < 2:
        raise ValueError("Correlations need two columns of numbers; there are not as many.")
    tables = [
        pd.DataFrame({str(name): column_numbers(part[name], "number") for name in names}).corr()
        for part in (real, synthetic)
    ]
    return tables[1] - tables[0]


def _from_polars(column: Any) -> pd.Series:
    """Return a column of polars as one of pandas, by way of plain values."""
    series = pd.Series(column.to_list())
    if str(column.dtype).startswith(("Date", "Datetime")):
        return pd.to_datetime(series)
    return series


def column_kind(column: pd.Series) -> str:
    """Return "number", "date" or "category"."""
    if pd.api.types.is_bool_dtype(column):
        return "category"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "date"
    return "number" if pd.api.types.is_numeric_dtype(column) else "category"


def column_numbers(column: pd.Series, kind: str) -> np.ndarray:
    """Return numbers, and dates as days, with NaN for what is missing."""
    if kind == "date":
        stamps = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        days = stamps.to_numpy("datetime64[ns]").astype(np.int64) / _DAY
        return np.where(column.isna(), np.nan, days)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _shared_codes(
    real: pd.Series, synthetic: pd.Series
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the place of each value of two columns among the categories of both, and these.

    They are in their order if they have one, else the frequent first; -1 is a missing value.
    """
    first, known = _texts(real)
    second, found = _texts(synthetic)
    if not (isinstance(real.dtype, pd.CategoricalDtype) and real.dtype.ordered):
        counts = np.bincount(first[first >= 0], minlength=len(known))
        kept = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ordered = known[kept]
    else:
        ordered = known
    others = sorted(set(found[np.unique(second[second >= 0])]) - set(ordered))
    values = np.array([*ordered, *others], dtype=object)
    places = {text: place for place, text in enumerate(values)}
    tables = [
        np.array([*(places.get(text, -1) for text in texts), -1], dtype=np.int64)
        for texts in (known, found)
    ]
    return tables[0][first], tables[1][second], values


def _texts(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each value among distinct texts, -1 where it misses, and the texts.

    Only distinct values are written as text: there may be many rows.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, uniques = column.cat.codes.to_numpy(), column.cat.categories
    elif column.dtype == object and pd.api.types.infer_dtype(column) not in _ALIKE:
        codes, uniques = pd.factorize(column.map(str, na_action="ignore"))  # True and 1 are two
    else:
        codes, uniques = pd.factorize(column)
    # The number 1 and the text "1" are written alike.
    places, texts = pd.factorize(np.array([str(value) for value in uniques], dtype=object))
    return np.append(places, -1)[codes], texts


def _edges(real: np.ndarray, synthetic: np.ndarray, bins: int) -> np.ndarray:
    """Return shared edges of equal bins; of whole numbers each bin holds equally many."""
    real, synthetic = real[np.isfinite(real)], synthetic[np.isfinite(synthetic)]
    both = np.concatenate([real, synthetic])
    if not both.size:
        return np.array([0.0, 1.0])
    low, high = np.quantile(real if real.size else both, [_TAIL, 1 - _TAIL])
    if not low < high:
        low, high = both.min(), both.max()
    if (real == np.rint(real)).all() and real.size:
        if np.ptp(both) < bins:
            low, high = both.min(), both.max()
        low, high = np.floor(low), np.ceil(high)
        width = np.ceil((high - low + 1) / bins)
        n_bins = int(np.ceil((high - low + 1) / width))
        return low - 0.5 + width * np.arange(n_bins + 1)
    return np.histogram_bin_edges(both, bins, range=(low, high))


def _counts(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    inside = np.clip(values[~np.isnan(values)], edges[0], edges[-1])
    counts: np.ndarray = np.histogram(inside, edges)[0]
    return counts


def column_codes(
    real: pd.Series, synthetic: pd.Series, n_bins: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the cells of the values of two columns, and how many cells there are.

    Parameters
    ----------
    real, synthetic : Series
        The column in both tables.
    n_bins : int
        Numbers and dates are cut at so many quantiles of the real ones.

    Returns
    -------
    real, synthetic : ndarray of int64
        The last cell is that of missing values.
    n_cells : int
    """
    if column_kind(real) == "category":
        *codes, known = _shared_codes(real, synthetic)
        n_values = len(known)
    else:
        kind = column_kind(real)
        first, second = column_numbers(real, kind), column_numbers(synthetic, kind)
        inner = np.linspace(0, 1, n_bins + 1)[1:-1]
        present = first[~np.isnan(first)]
        cuts = np.unique(np.quantile(present, inner)) if present.size else np.zeros(0)
        codes = [
            np.where(np.isnan(column), -1, np.searchsorted(cuts, column, side="left"))
            for column in (first, second)
        ]
        n_values = len(cuts) + 1
    first_codes, second_codes = (
        np.where(part < 0, n_values, part).astype(np.int64) for part in codes
    )
    return first_codes, second_codes, n_values + 1
