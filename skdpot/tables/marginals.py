"""Marginals of two tables in common cells: how far they are apart, and a picture of them."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.panels import COLORS, PanelDisplay, check_choice, cut_short, show_dates
from skdpot._utils.validation import check_count, solver_generator

_TAIL = 0.005  # of the real values, on each side, that end bins take in
PAIR_BINS = 16
_ALIKE = ("string", "integer", "boolean")  # objects of one type, of which equal ones look alike
_DAY = 86_400 * 10**9  # nanoseconds


@dataclass(frozen=True, eq=False)
class ColumnShares:
    """Shares of one column's values, missing ones included."""

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
        """Total variation distance of the two: half the sum of absolute differences."""
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
    """Count a column of both tables on the same bins."""
    kind = column_kind(real)
    if kind == "category":
        *parts, values = _shared_codes(real, synthetic)
        shares = [np.bincount(codes[codes >= 0], minlength=len(values)) for codes in parts]
    else:
        numbers = (column_numbers(column, kind) for column in (real, synthetic))
        first, second = (column[~np.isnan(column)] for column in numbers)
        values = _edges(first, second, bins)
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
    """Return the total variation distance of every pair of columns; single ones on the diagonal."""
    tables = CodedTables.of(real, synthetic, PAIR_BINS)
    places = range(len(real))
    distances = [[tables.total_variation({i, j}) for j in places] for i in places]
    names = [str(name) for name in real]
    return pd.DataFrame(distances, names, names)


def correlation_differences(
    real: dict[Any, pd.Series], synthetic: dict[Any, pd.Series]
) -> pd.DataFrame:
    """Return correlations of the synthetic minus those of the real rows, of columns of numbers."""
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
    """Return numbers, and dates as days, with NaN for what is missing."""
    if kind == "date":
        stamps = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        days = stamps.to_numpy("datetime64[ns]").astype(np.int64) / _DAY
        return np.where(column.isna(), np.nan, days)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _shared_codes(
    real: pd.Series, synthetic: pd.Series
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places of values among the categories of both columns, -1 if missing, and these."""
    first, second = _texts(real), _texts(synthetic)
    if isinstance(real.dtype, pd.CategoricalDtype) and real.dtype.ordered:
        known = list(dict.fromkeys(map(str, real.cat.categories)))
    else:
        codes, found = pd.factorize(first)
        counts = np.bincount(codes[codes >= 0], minlength=len(found))
        known = found[np.argsort(-counts, kind="stable")].tolist()
    others = sorted(set(second[pd.notna(second)]) - set(known))
    values = pd.Index([*known, *others], dtype=object)
    places = [values.get_indexer(pd.Index(texts, dtype=object)) for texts in (first, second)]
    return places[0], places[1], values.to_numpy()


def _texts(column: pd.Series) -> np.ndarray:
    """Return the values as text, None where they miss; each distinct value is written once."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, uniques = column.cat.codes.to_numpy(), column.cat.categories
    elif column.dtype == object and pd.api.types.infer_dtype(column) not in _ALIKE:
        codes, uniques = pd.factorize(column.map(str, na_action="ignore"))  # True and 1 are two
    else:
        codes, uniques = pd.factorize(column)
    return np.array([*map(str, uniques), None], dtype=object)[codes]


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


def column_codes(real: pd.Series, synthetic: pd.Series, n_bins: int) -> tuple[np.ndarray, int]:
    """Return the cell of each value of one column after the other, and how many cells there are."""
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


_MOST_CELLS = 2**22  # of a marginal before cells that nobody is in are left out
_SURE = 5.0  # standard deviations above what chance explains


@dataclass(frozen=True, eq=False)
class CodedTables:
    """The cell of each value of two tables."""

    names: tuple[Any, ...]
    codes: tuple[IntArray, ...]
    sizes: tuple[int, ...]
    n_real: int
    n_synthetic: int

    @classmethod
    def of(
        cls, real: Mapping[Any, pd.Series], synthetic: Mapping[Any, pd.Series], n_bins: int
    ) -> "CodedTables":
        """Count numbers and dates between quantiles of the real ones."""
        codes, sizes = zip(
            *(column_codes(real[name], synthetic[name], n_bins) for name in real), strict=True
        )
        n_real, n_synthetic = (len(next(iter(part.values()))) for part in (real, synthetic))
        return cls(tuple(real), codes, sizes, n_real, n_synthetic)

    def shares(self, columns: Iterable[int]) -> tuple[FloatArray, FloatArray]:
        """Return the shares of the real and of the synthetic rows in the cells of a marginal."""
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
            kinds_found = " in one table and a ".join(sorted(kinds))
            raise ValueError(f"Column {name!r} is a {kinds_found} in the other.")
    return {name: synthetic[name] for name in real}


def distance_by_chance(
    real: FloatArray, synthetic: FloatArray, n_real: int, n_synthetic: int
) -> tuple[float, float]:
    """Return how far two samples of one distribution are apart."""
    pooled = (n_real * real + n_synthetic * synthetic) / (n_real + n_synthetic)
    variances = pooled * (1 - pooled) * (1 / n_real + 1 / n_synthetic)
    expected = float(np.sqrt(2 / np.pi * variances).sum() / 2)
    # Two cells alone move together, which doubles the variance; many cells hardly do.
    deviation = float(np.sqrt((1 - 2 / np.pi) * variances.sum() / 2))
    return expected, expected + _SURE * deviation


_MOST_LISTED = 10**6  # combinations


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
    first, second = _columns(real, synthetic)
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
    first, second = _columns(real, synthetic)
    distances = {
        name: _wasserstein(column_numbers(column, kind), column_numbers(second[name], kind))
        for name, column in first.items()
        if (kind := column_kind(column)) != "category"
    }
    found = pd.Series(distances, name="normalized_wasserstein", dtype=np.float64)
    return found.rename_axis("column")


def _wasserstein(real: np.ndarray, synthetic: np.ndarray) -> float:
    real, synthetic = (part[~np.isnan(part)] for part in (real, synthetic))
    if not real.size or not synthetic.size:
        return math.nan
    distance = float(wasserstein_distance(real, synthetic))
    spread = float(np.ptp(real))
    if spread == 0.0:
        return math.inf if distance else 0.0
    return distance / spread


def _columns(real: Any, synthetic: Any) -> tuple[dict[Any, pd.Series], dict[Any, pd.Series]]:
    first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
    return first, check_same_columns(first, second)


def _combinations(
    n_columns: int, n_way: int, n_marginals: int | None, random_state: Any
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


_SIZE = (2.7, 2.2)  # inches
_N_COLUMNS = 4
_REAL = {"color": "0.78"}
_REACH = 2.0  # standard deviations, of the bars of noise
_NOISE = {"fmt": "none", "ecolor": "0.35", "elinewidth": 0.8, "capsize": 0}
_MOST_LETTERS = 16
_MOST_WRITTEN = 8  # columns whose figures fit into the cells of the map


def _mosaic(n_columns: int, n_pairs: int) -> np.ndarray:
    """Make one Axes per column and one for the map of pairs, to the right of all."""
    import matplotlib.pyplot as plt

    width = min(n_columns, max(2, math.ceil(math.sqrt(n_columns))), _N_COLUMNS)
    places = np.array_split(np.arange(n_columns), range(width, n_columns, width))
    rows = [[*row.tolist(), *[-2] * (width - len(row)), -1] for row in places]
    map_size = float(np.clip(0.36 * n_pairs + 1.8, 3.2, 9.0))
    size = width * _SIZE[0] + map_size + 0.8, max(len(rows) * _SIZE[1], map_size) + 0.5
    ratios = [_SIZE[0]] * width + [map_size + 0.8]
    options: Any = {"empty_sentinel": -2, "width_ratios": ratios, "layout": "constrained"}
    _, axes = plt.subplot_mosaic(rows, figsize=size, **options)
    return np.array([axes[k] for k in [*range(n_columns), -1]])


def _draw_marginal(
    ax: Any, marginal: ColumnShares, max_categories: int, style: dict[str, Any]
) -> tuple[Any, Any]:
    if marginal.kind == "category":
        artists = _draw_bars(ax, marginal, style, max_categories)
    else:
        artists = _draw_steps(ax, marginal, style)
    title = f"{cut_short(marginal.name, 26)}\nTV = {marginal.total_variation:.3f}"
    ax.set_title(title, fontsize="small")
    ax.tick_params(labelsize="small")
    return artists


def draw_pairs(ax: Any, pairs: pd.DataFrame, name: str) -> Any:
    """Draw the map of pairs, with figures in the cells where they fit."""
    values = pairs.to_numpy()
    signed = name == "correlation" or bool(np.nanmin(values) < 0)
    largest = float(np.nanmax(np.abs(values))) or 1.0
    limits = {"vmin": -largest if signed else 0.0, "vmax": largest}
    image = ax.imshow(values, cmap="RdBu_r" if signed else "Blues", **limits)
    names = [cut_short(str(column), _MOST_LETTERS) for column in pairs.columns]
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    if len(names) <= _MOST_WRITTEN:
        for (i, j), value in np.ndenumerate(values):
            strong = abs(value) > 0.6 * largest
            text = "" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
            color = "white" if strong else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize="x-small", color=color)
    off_diagonal = np.abs(values[~np.eye(len(values), dtype=bool)])
    mean = f", mean {np.nanmean(off_diagonal):.3f}" if off_diagonal.size else ""
    title = f"{name} of pairs" if not signed else f"{name}, synthetic − real"
    ax.set_title(title + mean, fontsize="small")
    ax.figure.colorbar(image, ax=ax, shrink=0.7).ax.tick_params(labelsize="small")
    return image


def _draw_steps(ax: Any, marginal: ColumnShares, style: dict[str, Any]) -> tuple[Any, Any]:
    """Draw histograms of numbers or dates, and apart from them the missing values as bars."""
    edges = marginal.values
    if marginal.kind == "date":
        show_dates(ax.xaxis)
    else:  # long numbers side by side would run into each other
        ax.locator_params(axis="x", nbins=4)
        ax.ticklabel_format(axis="x", scilimits=(-3, 5))
    real = ax.stairs(marginal.real, edges, fill=True, **_REAL)
    synthetic = ax.stairs(marginal.synthetic, edges, linewidth=1.5, **style)
    if marginal.real_deviations is not None:
        centres = (edges[1:] + edges[:-1]) / 2
        ax.errorbar(centres, marginal.real, _REACH * marginal.real_deviations, **_NOISE)
    if marginal.real_missing or marginal.synthetic_missing:
        span = edges[-1] - edges[0]
        first, second, text = edges[-1] + np.array([0.23, 0.29, 0.12]) * span
        ax.bar(first, marginal.real_missing, 0.06 * span, **_REAL)
        if marginal.real_missing_deviation:
            reach = _REACH * marginal.real_missing_deviation
            ax.errorbar(first, marginal.real_missing, reach, **_NOISE)
        ax.bar(second, marginal.synthetic_missing, 0.06 * span, **style)
        letters = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "x-small"}
        ax.text(text, 0.04, "missing", transform=ax.get_xaxis_transform(), **letters)
    ax.set_ylim(0, None)
    return real, synthetic


def _draw_bars(
    ax: Any, marginal: ColumnShares, style: dict[str, Any], max_categories: int
) -> tuple[Any, Any]:
    """Draw bars of categories, the rarest together, with a bar for the missing values."""
    variances = np.zeros(len(marginal.real))
    if marginal.real_deviations is not None:
        variances = marginal.real_deviations**2
    # One row per bar: its shares of the real and the synthetic rows, and the variance of noise.
    names = marginal.values.tolist()
    bars = np.column_stack([marginal.real, marginal.synthetic, variances])
    if len(names) > max_categories:
        order = np.argsort(-marginal.real, kind="stable")
        kept, others = np.sort(order[: max_categories - 1]), order[max_categories - 1 :]
        names = [*(names[k] for k in kept), f"{len(others)} others"]
        bars = np.vstack([bars[kept], bars[others].sum(axis=0)])
    missing = marginal.real_missing, marginal.synthetic_missing
    if any(missing):
        names = [*names, "missing"]
        bars = np.vstack([bars, [*missing, marginal.real_missing_deviation**2]])
    where, (real, synthetic, variances) = np.arange(len(names)), bars.T
    drawn = ax.barh(where - 0.2, real, 0.4, **_REAL), ax.barh(where + 0.2, synthetic, 0.4, **style)
    if variances.any():
        ax.errorbar(real, where - 0.2, xerr=_REACH * np.sqrt(variances), **_NOISE)
        ax.set_xlim(0, None)
    ax.set_yticks(where, [cut_short(name, _MOST_LETTERS) for name in names], fontsize="small")
    ax.invert_yaxis()
    return drawn


_MOST_COLUMNS = 40
_PAIRS = {"total_variation": pair_distances, "correlation": correlation_differences}


@dataclass(kw_only=True, eq=False, repr=False)
class MarginalsDisplay(PanelDisplay):
    """Marginal distributions of real and synthetic rows, one panel per column.

    Create one with `from_frames` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    marginals : list of ColumnShares
        Shares of the values of each column: ``name``, ``kind``, ``values``, ``real``,
        ``synthetic``, ``real_missing``, ``synthetic_missing`` and ``total_variation``.
    pairs, pairs_name : DataFrame of shape (n_columns, n_columns), str, optional
        A number for every pair of columns, and its name.
    labels : tuple of two str, default=("real rows", "synthetic rows")
        Labels of the legend.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        The panels in the order of the columns; the panel of the pairs comes last.
    artists_ : dict of str to tuple of two artists
        Artists of the real and of the synthetic rows of each column: steps for numbers and dates,
        bars for categories.
    image_ : AxesImage or None
        Map of the pairs.

    Privacy
    -------
    Real rows are treated as public: their shares are drawn and stored without noise. A plot of
    private rows is not private, however private the synthetic rows are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.metrics import MarginalsDisplay
    >>> X, _ = load_iris(return_X_y=True, as_frame=True)
    >>> X_private, X_public = train_test_split(X, random_state=0)
    >>> sampler = DPSlicedFlowSampler(epsilon=20.0, bounds=(0, 8)).fit(X_private)
    >>> display = MarginalsDisplay.from_frames(X_public, sampler.sample(500))
    >>> [marginal.name for marginal in display.marginals][:2]
    ['sepal length (cm)', 'sepal width (cm)']
    """

    marginals: list[ColumnShares]
    pairs: pd.DataFrame | None = None
    pairs_name: str | None = None
    labels: tuple[str, str] = ("real rows", "synthetic rows")

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        real: Any,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot rows of a fitted sampler beside real rows; return the display.

        Parameters
        ----------
        sampler : estimator
            Fitted estimator with a method ``sample(n_samples, random_state=)``.
        real : DataFrame or array-like of shape (n, d)
            **Public** rows.
        n_samples : int, optional
            Number of synthetic rows; by default the number of real rows, but at least 1000.
        random_state : int, RandomState or None, default=None
            Passed to ``sampler.sample``.
        **kwargs : dict
            Passed to `from_frames`.
        """
        size = max(len(real), 1000) if n_samples is None else n_samples
        return cls.from_frames(real, sampler.sample(size, random_state=random_state), **kwargs)

    @classmethod
    def from_frames(
        cls,
        real: Any,
        synthetic: Any,
        columns: Any = None,
        *,
        bins: int = 20,
        pairs: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot two tables on the same bins; return the display.

        Parameters
        ----------
        real, synthetic : DataFrame (pandas or polars) or array-like of shape (n, d), (m, d)
            **Public** rows, and synthetic rows with the same columns.
        columns : sequence of column names, optional
            Columns to plot; all columns of `real` by default. The columns of an array are named
            ``x0``, ``x1`` and so on.
        bins : int, default=20
            Number of bins of numbers. They span the real rows except 0.5 % on each side, which the
            end bins include. If there are fewer integers than bins, each has its own bin.
        pairs : {"total_variation", "correlation"}, optional
            Adds a map of all pairs of columns: the total variation distance of the bivariate
            distributions (numbers in 16 bins), or the correlation in the synthetic rows minus that
            in the real rows (numbers only).
        **kwargs : dict
            Passed to `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If a table is empty, columns are missing or too many, or the kinds of a column differ.
        """
        if pairs is not None:
            check_choice("pairs", pairs, list(_PAIRS))
        first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
        names = list(first if columns is None else columns)
        absent = [name for name in names if name not in first or name not in second]
        if absent:
            raise ValueError(
                f"Both tables must have the columns {absent}; name others in columns=."
            )
        if not 1 <= len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
            raise ValueError(
                f"columns must name 1 to {_MOST_COLUMNS} different columns, and holds {len(names)}."
            )
        first, second = ({name: part[name] for name in names} for part in (first, second))
        check_same_columns(first, second)
        return cls(
            marginals=[marginal_of(name, first[name], second[name], bins) for name in names],
            pairs=None if pairs is None else _PAIRS[pairs](first, second),
            pairs_name=None if pairs is None else pairs.replace("_", " "),
        ).plot(**kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_categories: int = 10,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Plot the panels and return the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes per column, and one for the pairs if there are any; new ones by default.
        max_categories : int, default=10
            Maximum number of bars; the rarest categories share the last one.
        name, legend : str, bool, optional
            Title of the figure, and whether to plot the legend.
        **kwargs : dict
            Style of the synthetic rows, such as `color`.
        """
        n_columns, n_pairs = len(self.marginals), 0 if self.pairs is None else len(self.pairs)
        given = _mosaic(n_columns, n_pairs) if n_pairs and ax is None else ax
        self._take_axes(given, n_columns + (n_pairs > 0), _N_COLUMNS, _SIZE)
        style = {"color": COLORS[0]} | kwargs
        self.artists_ = {
            marginal.name: _draw_marginal(panel, marginal, max_categories, style)
            for panel, marginal in zip(self.axes_, self.marginals, strict=False)
        }
        self.image_ = None
        if self.pairs is not None:
            self.image_ = draw_pairs(self.axes_[-1], self.pairs, str(self.pairs_name))
        handles = next(iter(self.artists_.values())) if legend else ()
        self._add_title_and_legend(ax, name, handles, self.labels)
        return self
