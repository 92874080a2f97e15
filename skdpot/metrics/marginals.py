"""Marginals of two tables in common cells, and how far they are apart."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import wasserstein_distance

from skdpot._utils.rng import solver_generator

__all__ = [
    "PAIR_BINS",
    "CodedTables",
    "Marginal",
    "as_columns",
    "check_same_columns",
    "column_codes",
    "column_kind",
    "column_numbers",
    "correlation_differences",
    "distance_by_chance",
    "marginal_of",
    "marginal_total_variation",
    "marginal_total_variations",
    "normalized_wasserstein_distance",
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


IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_MOST_CELLS = 2**22  # of a marginal before cells that nobody is in are left out
_SURE = 5.0  # standard deviations above what chance explains


@dataclass(frozen=True, eq=False)
class CodedTables:
    """The cell of each value of two tables.

    Parameters
    ----------
    names : tuple
        Names of the columns.
    codes : tuple of ndarray of int64, shape (n_real + n_synthetic,)
        Cells of each column, those of the real rows first.
    sizes : tuple of int
        Number of cells of each column.
    n_real, n_synthetic : int
        Numbers of rows.
    """

    names: tuple[Any, ...]
    codes: tuple[IntArray, ...]
    sizes: tuple[int, ...]
    n_real: int
    n_synthetic: int

    @classmethod
    def of(
        cls, real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series], n_bins: int
    ) -> "CodedTables":
        """Count numbers and dates between quantiles of the real ones.

        Parameters
        ----------
        real, synthetic : mapping of str to Series
            Columns of both tables, with the same names.
        n_bins : int
            Number of bins of numbers and dates.

        Returns
        -------
        CodedTables
        """
        found = [column_codes(real[name], synthetic[name], n_bins) for name in real]
        first = next(iter(real))
        return cls(
            tuple(real),
            tuple(np.concatenate(pair) for *pair, _ in found),
            tuple(size for *_, size in found),
            len(real[first]),
            len(synthetic[first]),
        )

    def shares(self, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return the shares of the real and of the synthetic rows in the cells of a marginal.

        Parameters
        ----------
        columns : sequence of int
            Places of its columns.

        Returns
        -------
        tuple of two ndarray of shape (n_cells,)
        """
        keys: IntArray = np.zeros(self.n_real + self.n_synthetic, dtype=np.int64)
        n_cells = 1
        for column in columns:
            keys = keys * self.sizes[column] + self.codes[column]
            n_cells *= self.sizes[column]
            if n_cells > _MOST_CELLS:
                keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
                n_cells = int(keys.max()) + 1
        real, synthetic = keys[: self.n_real], keys[self.n_real :]
        return (
            np.bincount(real, minlength=n_cells) / self.n_real,
            np.bincount(synthetic, minlength=n_cells) / self.n_synthetic,
        )

    def total_variation(self, columns: Sequence[int]) -> float:
        """Return the total variation distance of one marginal."""
        real, synthetic = self.shares(columns)
        return min(float(np.abs(real - synthetic).sum() / 2), 1.0)


def check_same_columns(
    real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series]
) -> dict[Any, pd.Series]:
    """Refuse tables of different columns; return the second in the order of the first."""
    if set(real) != set(synthetic):
        apart = sorted(map(str, set(real) ^ set(synthetic)))
        raise ValueError(f"Both tables must have the same columns; {apart[:10]} are in one only.")
    for name in real:
        kinds = {column_kind(column) for column in (real[name], synthetic[name])}
        known = real[name].notna().any() and synthetic[name].notna().any()
        if len(kinds) > 1 and known:
            raise ValueError(f"Column {name!r} is a {' and a '.join(sorted(kinds))}.")
    return {name: synthetic[name] for name in real}


def distance_by_chance(
    real: FloatArray, synthetic: FloatArray, n_real: int, n_synthetic: int
) -> tuple[float, float]:
    """Return how far two samples of one distribution are apart.

    Parameters
    ----------
    real, synthetic : ndarray of shape (n_cells,)
        Their shares in the cells.
    n_real, n_synthetic : int
        Numbers of rows.

    Returns
    -------
    expected : float
        Mean of the total variation distance of two samples of the pooled shares.
    limit : float
        What chance exceeds once in ten thousand times at most.
    """
    pooled = (n_real * real + n_synthetic * synthetic) / (n_real + n_synthetic)
    variances = pooled * (1 - pooled) * (1 / n_real + 1 / n_synthetic)
    expected = float(np.sqrt(2 / np.pi * variances).sum() / 2)
    # Two cells alone move together, which doubles the variance; many cells hardly do.
    deviation = float(np.sqrt((1 - 2 / np.pi) * variances.sum() / 2))
    return expected, expected + _SURE * deviation


_MOST_LISTED = 10**6  # combinations


def marginal_total_variation(
    real: Any,
    synthetic: Any,
    *,
    n_way: int = 2,
    n_bins: int = PAIR_BINS,
    n_marginals: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Total variation distance of the marginals of two tables, mean over combinations of columns.

    Parameters
    ----------
    real, synthetic : DataFrame (pandas or polars) or array-like of shape (n_rows, n_columns)
        Tables with the same columns. Numbers, dates, categories and missing values may be mixed.
    n_way : int, default=2
        How many columns are looked at together: 1 for columns alone, 2 for all pairs.
    n_bins : int, default=16
        Numbers and dates are cut at so many quantiles of the real ones.
    n_marginals : int, optional
        Only so many combinations, chosen at random; all by default.
    random_state : int, RandomState instance or None, default=None
        Of that choice.

    Returns
    -------
    float
        Between 0, for equal marginals, and 1.

    Raises
    ------
    ValueError
        If a table is empty, the columns differ, or a parameter is out of range.

    See Also
    --------
    marginal_total_variations : The distance of each combination.

    Notes
    -----
    The distance is half the sum of the absolute differences of the shares of rows in the cells
    of a contingency table, to which a missing value of a column is one more value. Two
    samples of one distribution are apart by chance, the more so the fewer rows and the more
    cells there are: compare with the distance between two parts of the real rows.

    Privacy
    -------
    Both tables are treated as public: the distance is computed from them without noise.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.metrics import marginal_total_variation
    >>> real = pd.DataFrame({"smokes": ["no", "no", "yes", "yes"], "age": [20, 30, 40, 50]})
    >>> synthetic = real.assign(age=[50, 40, 30, 20])
    >>> marginal_total_variation(real, synthetic, n_way=1)
    0.0
    >>> marginal_total_variation(real, synthetic)
    1.0
    """
    found = marginal_total_variations(
        real,
        synthetic,
        n_way=n_way,
        n_bins=n_bins,
        n_marginals=n_marginals,
        random_state=random_state,
    )
    return float(found.mean())


def marginal_total_variations(
    real: Any,
    synthetic: Any,
    *,
    n_way: int = 2,
    n_bins: int = PAIR_BINS,
    n_marginals: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> pd.Series:
    """Total variation distance of each marginal of two tables.

    Parameters
    ----------
    real, synthetic : DataFrame (pandas or polars) or array-like of shape (n_rows, n_columns)
        Tables with the same columns. The columns of an array are called ``x0``, ``x1`` and so on.
    n_way : int, default=2
        How many columns are looked at together.
    n_bins : int, default=16
        Numbers and dates are cut at so many quantiles of the real ones.
    n_marginals : int, optional
        Only so many combinations, chosen at random; all by default.
    random_state : int, RandomState instance or None, default=None
        Of that choice.

    Returns
    -------
    Series
        A distance a combination, indexed by the names of its columns.

    Raises
    ------
    ValueError
        If a table is empty, the columns differ, or a parameter is out of range.

    See Also
    --------
    marginal_total_variation : Their mean.

    Privacy
    -------
    Both tables are treated as public: distances are computed from them without noise.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.metrics import marginal_total_variations
    >>> real = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1], "c": [0, 1, 0, 1]})
    >>> marginal_total_variations(real, real.assign(b=[1, 1, 0, 0])).to_dict()
    {('a', 'b'): 1.0, ('a', 'c'): 0.0, ('b', 'c'): 0.0}
    """
    first, second = _columns(real, synthetic)
    _check_whole(n_bins, "n_bins", 2, None)
    _check_whole(n_way, "n_way", 1, len(first))
    tables = CodedTables.of(first, second, int(n_bins))
    chosen = _combinations(len(first), int(n_way), n_marginals, random_state)
    distances = [tables.total_variation(columns) for columns in chosen]
    names = [tuple(tables.names[column] for column in columns) for columns in chosen]
    if n_way == 1:
        index = pd.Index([name for (name,) in names], name="column")
    else:
        index = pd.MultiIndex.from_tuples(names, names=[f"column {k + 1}" for k in range(n_way)])
    return pd.Series(distances, index, name="total_variation", dtype=np.float64)


def normalized_wasserstein_distance(real: Any, synthetic: Any) -> pd.Series:
    """Wasserstein-1 distance of each column of numbers, as a share of the range of the real ones.

    Parameters
    ----------
    real, synthetic : DataFrame (pandas or polars) or array-like of shape (n_rows, n_columns)
        Tables with the same columns. Those of categories are left out, and missing values too.

    Returns
    -------
    Series
        W₁ divided by the largest minus the smallest real value, of each column of numbers or
        dates. Where all real values are equal, 0 if the synthetic ones are the same and infinity
        if not; NaN where a table has no value.

    Raises
    ------
    ValueError
        If a table is empty, or the columns differ.

    See Also
    --------
    wasserstein_distance : Of all columns together.

    Privacy
    -------
    Both tables are treated as public: distances are computed from them without noise.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.metrics import normalized_wasserstein_distance
    >>> real = pd.DataFrame({"age": [20, 40, 60], "city": ["Bonn", "Graz", "Linz"]})
    >>> normalized_wasserstein_distance(real, real.assign(age=[24, 44, 64])).to_dict()
    {'age': 0.1}
    """
    first, second = _columns(real, synthetic)
    distances = {
        name: _wasserstein(column_numbers(column, kind), column_numbers(second[name], kind))
        for name, column in first.items()
        if (kind := column_kind(column)) != "category"
    }
    index = pd.Index(list(distances), name="column", dtype=None if distances else object)
    return pd.Series(
        list(distances.values()), index, name="normalized_wasserstein", dtype=np.float64
    )


def _wasserstein(real: np.ndarray, synthetic: np.ndarray) -> float:
    real, synthetic = (part[~np.isnan(part)] for part in (real, synthetic))
    if not real.size or not synthetic.size:
        return math.nan
    distance = float(wasserstein_distance(real, synthetic))
    spread = float(np.ptp(real))
    if spread == 0.0:
        return 0.0 if distance == 0.0 else math.inf
    return distance / spread


def _columns(real: Any, synthetic: Any) -> tuple[dict[Any, pd.Series], dict[Any, pd.Series]]:
    first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
    return first, check_same_columns(first, second)


def _combinations(
    n_columns: int, n_way: int, n_marginals: int | None, random_state: Any
) -> list[tuple[int, ...]]:
    """Return all combinations of columns, or some drawn at random without repetition."""
    if n_marginals is not None:
        _check_whole(n_marginals, "n_marginals", 1, None)
    n_all = math.comb(n_columns, n_way)
    if n_marginals is None or n_marginals >= n_all:
        return list(itertools.combinations(range(n_columns), n_way))
    rng = solver_generator(random_state)
    if n_all <= _MOST_LISTED:
        every = list(itertools.combinations(range(n_columns), n_way))
        return [every[k] for k in np.sort(rng.choice(n_all, n_marginals, replace=False))]
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < n_marginals:
        drawn = rng.choice(n_columns, n_way, replace=False)
        chosen.add(tuple(sorted(drawn.tolist())))
    return sorted(chosen)


def _check_whole(value: Any, name: str, least: int, most: int | None) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be an integer {limit}.")
