"""Marginals of two public tables in common cells, and the distances between them."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.arguments import check_count
from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.streams import solver_generator

_TAIL = 0.005  # share of the real values on each side that end bins include
PAIR_BINS = 16  # quantile bins of numbers and dates in pairs
_ALIKE = ("string", "integer", "boolean")  # types whose equal values have equal texts
_DAY = 86_400 * 10**9  # nanoseconds

_MOST_CELLS = 2**22  # of a marginal, from which on empty cells are dropped
_SURE = 5.0  # standard deviations above the mean that count as more than chance
_MOST_LISTED = 10**6  # combinations that are listed before some are drawn


@dataclass(frozen=True, eq=False)
class ColumnShares:
    """Shares of the values of one column in two tables, including missing values."""

    name: str
    kind: str
    values: np.ndarray
    real: np.ndarray
    synthetic: np.ndarray
    real_missing: float
    synthetic_missing: float
    real_deviations: np.ndarray | None = None
    real_missing_deviation: float = 0.0

    @property
    def total_variation(self) -> float:
        """Total variation distance: half the sum of absolute differences."""
        missing = abs(self.real_missing - self.synthetic_missing)
        return float(np.abs(self.real - self.synthetic).sum() + missing) / 2


def as_columns(frame: Any, name: str) -> dict[Any, pd.Series]:
    """Return the columns of a table of pandas or polars, or of an array, by name."""
    if hasattr(frame, "get_column"):  # polars
        columns = {key: pd.Series(frame.get_column(key).to_list()) for key in frame.columns}
        dates = [key for key in columns if str(frame.schema[key]).startswith("Date")]
        columns |= {key: pd.to_datetime(columns[key]) for key in dates}
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


def marginal_of(name: Any, real: pd.Series, synthetic: pd.Series, bins: int) -> ColumnShares:
    """Count a column of both tables in the same bins."""
    kind = column_kind(real)
    if kind == "category":
        *parts, values = _shared_codes(real, synthetic)
        shares = [np.bincount(codes[codes >= 0], minlength=len(values)) for codes in parts]
    else:
        numbers = (column_numbers(column, kind) for column in (real, synthetic))
        first, second = (column[~np.isnan(column)] for column in numbers)
        values = _shared_edges(first, second, bins)
        inside = (np.clip(column, values[0], values[-1]) for column in (first, second))
        shares = [np.histogram(column, values)[0] for column in inside]
    return ColumnShares(
        str(name),
        kind,
        values,
        shares[0] / len(real),
        shares[1] / len(synthetic),
        float(real.isna().mean()),
        float(synthetic.isna().mean()),
    )


def pair_distances(real: dict[Any, pd.Series], synthetic: dict[Any, pd.Series]) -> pd.DataFrame:
    """Return the total variation distance of all pairs of columns, of columns on the diagonal."""
    tables = CodedTables.of(real, synthetic, PAIR_BINS)
    places = range(len(real))
    distances = [[tables.total_variation({i, j}) for j in places] for i in places]
    names = [str(name) for name in real]
    return pd.DataFrame(distances, names, names)


def correlation_differences(
    real: dict[Any, pd.Series], synthetic: dict[Any, pd.Series]
) -> pd.DataFrame:
    """Return synthetic minus real correlations of the columns of numbers."""
    names = [name for name in real if column_kind(real[name]) == "number"]
    if len(names) < 2:
        raise ValueError("Correlations need at least two columns of numbers.")
    first, second = (
        pd.DataFrame({str(name): column_numbers(part[name], "number") for name in names}).corr()
        for part in (real, synthetic)
    )
    return second - first


def column_kind(column: pd.Series) -> str:
    """Return "number", "date" or "category"."""
    if pd.api.types.is_bool_dtype(column):
        return "category"
    if pd.api.types.is_datetime64_any_dtype(column):
        return "date"
    return "number" if pd.api.types.is_numeric_dtype(column) else "category"


def column_numbers(column: pd.Series, kind: str) -> np.ndarray:
    """Return numbers, or dates in days, NaN if missing."""
    if kind == "date":
        stamps = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        days = stamps.to_numpy("datetime64[ns]").astype(np.int64) / _DAY
        return np.where(column.isna(), np.nan, days)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _shared_codes(
    real: pd.Series, synthetic: pd.Series
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places among the categories of both columns (-1 if missing), and these."""
    first, second = _column_texts(real), _column_texts(synthetic)
    if isinstance(real.dtype, pd.CategoricalDtype) and real.dtype.ordered:
        known = list(dict.fromkeys(map(str, real.cat.categories)))
    else:
        codes, distinct = pd.factorize(first)
        counts = np.bincount(codes[codes >= 0], minlength=len(distinct))
        known = distinct[np.argsort(-counts, kind="stable")].tolist()
    others = sorted(set(second[pd.notna(second)]) - set(known))
    values = pd.Index([*known, *others], dtype=object)
    places = [values.get_indexer(pd.Index(texts, dtype=object)) for texts in (first, second)]
    return places[0], places[1], values.to_numpy()


def _column_texts(column: pd.Series) -> np.ndarray:
    """Return the values as text, None if missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, uniques = column.cat.codes.to_numpy(), column.cat.categories
    elif column.dtype == object and pd.api.types.infer_dtype(column) not in _ALIKE:
        codes, uniques = pd.factorize(column.map(str, na_action="ignore"))  # True and 1 are two
    else:
        codes, uniques = pd.factorize(column)
    return np.array([*map(str, uniques), None], dtype=object)[codes]


def _shared_edges(real: np.ndarray, synthetic: np.ndarray, bins: int) -> np.ndarray:
    """Return shared edges of equal bins; integers are divided evenly among bins."""
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


def column_codes(real: pd.Series, synthetic: pd.Series, n_bins: int) -> tuple[np.ndarray, int]:
    """Return the cells of both columns, one after the other, and the number of cells."""
    if column_kind(real) == "category":
        *parts, known = _shared_codes(real, synthetic)
        codes, n_values = np.concatenate(parts), len(known)
        missing = codes < 0
    else:
        numbers = [column_numbers(column, column_kind(real)) for column in (real, synthetic)]
        present = numbers[0][~np.isnan(numbers[0])]
        inner = np.linspace(0, 1, n_bins + 1)[1:-1]
        cuts = np.unique(np.quantile(present, inner)) if present.size else np.zeros(0)
        both = np.concatenate(numbers)
        missing, codes = np.isnan(both), np.searchsorted(cuts, both, side="left")
        n_values = len(cuts) + 1
    return np.where(missing, n_values, codes).astype(np.int64), n_values + 1


@dataclass(frozen=True, eq=False)
class CodedTables:
    """The cells of all values of two tables."""

    names: tuple[Any, ...]
    codes: tuple[IntArray, ...]
    sizes: tuple[int, ...]
    n_real: int
    n_synthetic: int

    @classmethod
    def of(
        cls, real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series], n_bins: int
    ) -> "CodedTables":
        """Code two tables; cells of numbers and dates lie between quantiles of the real ones."""
        codes, sizes = zip(
            *(column_codes(real[name], synthetic[name], n_bins) for name in real), strict=True
        )
        n_real, n_synthetic = (len(next(iter(part.values()))) for part in (real, synthetic))
        return cls(tuple(real), codes, sizes, n_real, n_synthetic)

    def shares(self, columns: Iterable[int]) -> tuple[FloatArray, FloatArray]:
        """Return the shares of real and of synthetic rows in the cells of a marginal."""
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

    def total_variation(self, columns: Iterable[int]) -> float:
        """Return the total variation distance of a marginal."""
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
            both = " in one table and a ".join(sorted(kinds))
            raise ValueError(f"Column {name!r} is a {both} in the other.")
    return {name: synthetic[name] for name in real}


def distance_by_chance(
    real: FloatArray, synthetic: FloatArray, n_real: int, n_synthetic: int
) -> tuple[float, float]:
    """Return the expected distance of two samples of one distribution, and its upper limit."""
    pooled = (n_real * real + n_synthetic * synthetic) / (n_real + n_synthetic)
    variances = pooled * (1 - pooled) * (1 / n_real + 1 / n_synthetic)
    expected = float(np.sqrt(2 / np.pi * variances).sum() / 2)
    # Two cells alone move together, which doubles the variance; many cells hardly do.
    deviation = float(np.sqrt((1 - 2 / np.pi) * variances.sum() / 2))
    return expected, expected + _SURE * deviation


def marginal_total_variation(real: Any, synthetic: Any, **options: Any) -> float:
    """Mean total variation distance of the marginals of two tables.

    Parameters
    ----------
    real, synthetic : DataFrame (pandas or polars) or array-like of shape (n_rows, n_columns)
        Tables with the same columns of numbers, dates or categories, possibly with missing values.
    **options : dict
        `n_way` (2): number of columns per marginal; `n_bins` (16): number of quantile bins of
        numbers and dates; `n_marginals`: number of combinations to draw at random, all by default;
        `random_state`: seed of that draw.

    Returns
    -------
    float
        Between 0, for equal marginals, and 1.

    Raises
    ------
    ValueError
        If a table is empty, the columns differ, or a parameter is out of range.

    Notes
    -----
    The distance of a marginal is half the sum of the absolute differences between the shares of
    rows in the cells of its contingency table; a missing value counts as a value. Two samples of
    one distribution differ by chance, the more the fewer rows and the more cells there are:
    compare with the distance between two parts of the real rows.

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
    return float(marginal_total_variations(real, synthetic, **options).mean())


def marginal_total_variations(
    real: Any,
    synthetic: Any,
    *,
    n_way: int = 2,
    n_bins: int = PAIR_BINS,
    n_marginals: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> pd.Series:
    """Total variation distance of each marginal of two public tables."""
    first, second = _paired_columns(real, synthetic)
    n_way = check_count(n_way, "n_way", most=len(first))
    tables = CodedTables.of(first, second, check_count(n_bins, "n_bins", least=2))
    chosen = _combinations(len(first), n_way, n_marginals, random_state)
    distances = [tables.total_variation(columns) for columns in chosen]
    names = [tuple(tables.names[column] for column in columns) for columns in chosen]
    index: pd.Index = pd.MultiIndex.from_tuples(
        names, names=[f"column {k + 1}" for k in range(n_way)]
    )
    if n_way == 1:
        index = index.get_level_values(0).rename("column")
    return pd.Series(distances, index, name="total_variation", dtype=np.float64)


def normalized_wasserstein_distance(real: Any, synthetic: Any) -> pd.Series:
    """Wasserstein-1 distance of each public column of numbers, as a share of the real range."""
    first, second = _paired_columns(real, synthetic)
    distances = {
        name: _wasserstein(column_numbers(column, kind), column_numbers(second[name], kind))
        for name, column in first.items()
        if (kind := column_kind(column)) != "category"
    }
    series = pd.Series(distances, name="normalized_wasserstein", dtype=np.float64)
    return series.rename_axis("column")


def _wasserstein(real: np.ndarray, synthetic: np.ndarray) -> float:
    from scipy.stats import wasserstein_distance  # takes a second to load

    real, synthetic = (part[~np.isnan(part)] for part in (real, synthetic))
    if not real.size or not synthetic.size:
        return math.nan
    distance = float(wasserstein_distance(real, synthetic))
    spread = float(np.ptp(real))
    if spread == 0.0:
        return math.inf if distance else 0.0
    return distance / spread


def _paired_columns(real: Any, synthetic: Any) -> tuple[dict[Any, pd.Series], dict[Any, pd.Series]]:
    first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
    return first, check_same_columns(first, second)


def _combinations(
    n_columns: int,
    n_way: int,
    n_marginals: int | None,
    random_state: int | np.random.RandomState | None,
) -> list[tuple[int, ...]]:
    """Return all combinations of columns, or some drawn at random without repetition."""
    if n_marginals is not None:
        n_marginals = check_count(n_marginals, "n_marginals")
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
