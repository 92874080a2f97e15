"""How far synthetic tables are from real ones: marginals, and columns of numbers."""

import itertools
import math
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance

from skdpot._utils.rng import solver_generator
from skdpot.metrics._marginals import PAIR_BINS, as_columns, column_kind, column_numbers
from skdpot.metrics._table_cells import CodedTables, check_same_columns

__all__ = [
    "marginal_total_variation",
    "marginal_total_variations",
    "normalized_wasserstein_distance",
]

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
