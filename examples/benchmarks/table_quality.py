"""
How good a synthetic table is: what a model learns from it, and how its marginals differ.

Every function here is pure: tables in, numbers out. Smaller is better except for accuracy and
AUC. Nothing here is private: it compares with the real rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import wasserstein_distance
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

__all__ = [
    "mean_total_variation",
    "normalized_wasserstein",
    "quantile_codes",
    "random_subsets",
    "total_variation",
    "train_on_synthetic",
]

N_QUANTILES = 16
N_TRIPLES = 100
# What a histogram of scikit-learn's boosting can tell apart in one column.
MOST_CATEGORIES = 255
MOST_KEYS = 2**18


def train_on_synthetic(
    synthetic: pd.DataFrame,
    test: pd.DataFrame,
    target: str,
    categories: Mapping[str, Sequence[object]],
) -> dict[str, float]:
    """
    Train gradient boosting on synthetic rows and judge it on real ones.

    Parameters
    ----------
    synthetic, test : DataFrame
        Rows to learn from, and real rows that nobody learnt from.
    target : str
        Categorical column to predict.
    categories : mapping of str to sequence
        Values of each categorical column, the target among them; other columns are numbers.

    Returns
    -------
    dict
        ``accuracy``, and ``auc`` (one against the rest, mean over classes, beyond two). A table
        with one class only predicts that class and has an AUC of 0.5.
    """
    features = [name for name in test if name != target]
    X, X_test = (_features(table[features], categories) for table in (synthetic, test))
    y, y_test = (
        pd.Categorical(table[target], categories=list(categories[target])).codes
        for table in (synthetic, test)
    )
    scores = np.zeros((len(test), len(categories[target])))
    if np.unique(y).size > 1:
        few = [name in categories and len(categories[name]) <= MOST_CATEGORIES for name in features]
        model = HistGradientBoostingClassifier(categorical_features=few, random_state=0).fit(X, y)
        scores[:, model.classes_] = model.predict_proba(X_test)
    else:
        scores[:, y[0]] = 1.0
    accuracy = float(np.mean(scores.argmax(axis=1) == y_test))
    return {"accuracy": accuracy, "auc": _auc(y_test, scores)}


def _features(table: pd.DataFrame, categories: Mapping[str, Sequence[object]]) -> pd.DataFrame:
    """Return numbers, and codes of categories; missing and unknown values are NaN."""
    columns = {}
    for name, values in table.items():
        if name in categories:
            codes = pd.Categorical(values, categories=list(categories[name])).codes
            columns[name] = np.where(codes < 0, np.nan, codes)
        else:
            columns[name] = values.to_numpy(dtype=float)
    return pd.DataFrame(columns)


def _auc(y: np.ndarray, scores: np.ndarray) -> float:
    present = np.unique(y)
    if scores.shape[1] == 2:
        return float(roc_auc_score(y, scores[:, 1]))
    return float(np.mean([roc_auc_score(y == k, scores[:, k]) for k in present]))


def quantile_codes(
    real: pd.DataFrame, tables: Sequence[pd.DataFrame], numeric: Iterable[str]
) -> list[pd.DataFrame]:
    """
    Return tables of integers: numbers by quantiles of the real rows, categories by number.

    Parameters
    ----------
    real : DataFrame
        Rows whose 16 quantiles (the least and the greatest value among them) divide the numeric
        columns; equal quantiles count once.
    tables : sequence of DataFrame
        What to encode, in common codes.
    numeric : iterable of str
        Names of the numeric columns.

    Returns
    -------
    list of DataFrame
        Missing values have a code of their own.
    """
    numeric = set(numeric)
    coded: list[dict[str, np.ndarray]] = [{} for _ in tables]
    for name in real:
        if name in numeric:
            known = real[name].dropna().to_numpy(dtype=float)
            edges = np.unique(np.quantile(known, np.linspace(0, 1, N_QUANTILES)))
            for codes, table in zip(coded, tables, strict=True):
                values = table[name].to_numpy(dtype=float)
                missing = np.isnan(values)
                codes[name] = np.where(missing, len(edges) + 1, np.searchsorted(edges, values))
        else:
            joined = pd.concat([table[name].astype(object) for table in tables])
            numbers = np.split(
                pd.factorize(joined)[0], np.cumsum([len(table) for table in tables])[:-1]
            )
            for codes, part in zip(coded, numbers, strict=True):
                codes[name] = part + 1  # -1 is missing
    return [pd.DataFrame(codes) for codes in coded]


def total_variation(real: pd.DataFrame, synthetic: pd.DataFrame, columns: Sequence[str]) -> float:
    """Return the total variation distance of the joint distribution of some coded columns."""
    n_real, size = len(real), 1
    keys = np.zeros(n_real + len(synthetic), dtype=np.int64)
    for name in columns:
        codes = np.concatenate([real[name], synthetic[name]])
        n_codes = int(codes.max()) + 1
        keys, size = keys * n_codes + codes, size * n_codes
        if size > MOST_KEYS:  # numbered anew, keys stay below the number of rows squared
            keys = np.unique(keys, return_inverse=True)[1]
            size = int(keys.max()) + 1
    p = np.bincount(keys[:n_real], minlength=size) / n_real
    q = np.bincount(keys[n_real:], minlength=size) / len(synthetic)
    return float(np.abs(p - q).sum() / 2)


def mean_total_variation(
    real: pd.DataFrame, synthetic: pd.DataFrame, subsets: Iterable[Sequence[str]]
) -> float:
    """Return the mean total variation distance over sets of coded columns."""
    return float(np.mean([total_variation(real, synthetic, columns) for columns in subsets]))


def random_subsets(
    columns: Sequence[str], size: int, n_subsets: int, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """Return different random sets of columns; all of them where there are no more."""
    if math.comb(len(columns), size) <= n_subsets:
        return list(itertools.combinations(columns, size))
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < n_subsets:
        chosen.add(tuple(sorted(rng.choice(len(columns), size, replace=False).tolist())))
    return [tuple(columns[i] for i in indices) for indices in sorted(chosen)]


def normalized_wasserstein(
    real: pd.DataFrame, synthetic: pd.DataFrame, numeric: Iterable[str]
) -> dict[str, float]:
    """
    Return W₁ of each numeric column in units of the real column's standard deviation.

    Missing values are left out. A column without spread is measured in its own units; one that
    is missing everywhere in the synthetic rows is infinitely far.
    """
    distances = {}
    for name in numeric:
        p, q = (table[name].dropna().to_numpy(dtype=float) for table in (real, synthetic))
        scale = p.std() or 1.0
        distances[name] = wasserstein_distance(p, q) / scale if q.size else math.inf
    return distances
