"""Reading of X in a fit: a source or rows in memory, validated, with recorded columns."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skdpot._utils.labels import encode_labels
from skdpot._utils.rows import read_rows, record_features, validate_rows
from skdpot.sources.arrow import ArrowSource, DatasetSource
from skdpot.sources.engines import DaskSource, LazySource, SparkSource
from skdpot.sources.exact_counts import Tables
from skdpot.sources.rows import SourceRows
from skdpot.sources.source import Source, head_of, quietly

Batch: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # rows of numbers, and their labels


def source_of(X: Any, label: object = None) -> Source | None:
    """Return X as a source, or None for rows in memory."""
    if isinstance(X, Source):
        return X
    paths = X if isinstance(X, list | tuple) else [X]
    if paths and all(isinstance(path, str | PathLike) for path in paths):
        return DatasetSource.of_paths(X)
    library, name = type(X).__module__.partition(".")[0], type(X).__name__
    if library in ("dask", "pyspark"):
        return DaskSource(X) if library == "dask" else SparkSource(X)
    if name == "LazyFrame":
        return LazySource(X)
    if hasattr(X, "to_batches") and hasattr(X, "get_fragments"):
        return DatasetSource.of(X)
    if name == "RecordBatchReader":  # can be read once
        return ArrowSource(quietly(X.read_all))
    if library in ("duckdb", "_duckdb") or (name == "Table" and isinstance(label, str)):
        return ArrowSource(X)
    return None


def read_numbers(
    estimator: BaseEstimator,
    source: Source,
    label: Any = None,
    classes: ArrayLike | None = None,
    *,
    labelled: bool = False,
    min_samples: int = 1,
) -> tuple[SourceRows, np.ndarray | None]:
    """Count the rows of a source, refuse values other than numbers, and record the columns."""
    head = head_of(source)
    if labelled:
        columns = list(getattr(head, "columns", ()))
        if not isinstance(label, str) or label not in columns:
            lacking = f" There is no column {label!r}." if isinstance(label, str) else ""
            raise ValueError(
                "y must be the name of the column of X that holds the labels, where X is read in "
                f"batches.{lacking}"
            )
        head = head[[name for name in columns if name != label]]
    names = tuple(head.columns) if hasattr(head, "columns") else None
    record_features(estimator, head)
    reader = _Reader(names, head.shape[1], label if labelled else None)
    caller = type(estimator).__name__
    rows, tables = SourceRows.checked(source, reader, caller, min_samples, _labels)
    if not labelled:
        return rows, None
    labels = list(tables[0])
    known = encode_labels(labels, len(labels), classes)[1]
    return rows.map(partial(_encoded, classes=known)), known


def fit_rows(
    estimator: BaseEstimator, X: Any, groups: object, needs: str = "", label: object = None
) -> Any:
    """Return validated rows or a source; `needs` names the mechanism for sources and groups."""
    source = source_of(X, label)
    if needs and (groups is not None or source is not None):
        asked = "X in batches" if groups is None else "groups"
        raise ValueError(f"{asked} needs {needs}. Pass one row of each person, in memory.")
    fewest = 2 if groups is None else 1  # the error for too few rows states their number
    return source or validate_rows(estimator, X, reset=True, min_samples=fewest)


def record_columns(estimator: BaseEstimator, sketch: BaseEstimator) -> None:
    """Copy the columns that a sketch has recorded of a source, without the labels."""
    estimator.n_features_in_ = sketch.n_features_in_
    if hasattr(sketch, "feature_names_in_"):
        estimator.feature_names_in_ = sketch.feature_names_in_


@dataclass(frozen=True)
class _Reader:
    """Reader of a batch, which treats each row by itself."""

    names: tuple[str, ...] | None
    n_features: int
    label: str | None

    def __call__(self, batch: Any) -> Batch:
        if self.names is None:
            rows = read_rows(batch)
        else:
            needed = (*self.names, self.label) if self.label else self.names
            lacking = [name for name in needed if name not in batch.columns]
            if lacking:
                raise ValueError(f"A batch lacks the columns {', '.join(map(repr, lacking))}.")
            rows = read_rows(batch[list(self.names)])
        if rows.shape[1] != self.n_features:
            raise ValueError(f"A batch has {rows.shape[1]} columns, not {self.n_features}.")
        if self.label is None:
            return rows, None
        codes, known = encode_labels(batch[self.label], len(rows))
        return rows, known[codes]


def _labels(batch: Batch) -> Tables:
    """Count labels, which a fit treats as public."""
    return (Counter([] if batch[1] is None else batch[1].tolist()),)


def _encoded(batch: Any, classes: np.ndarray) -> Batch:
    return batch[0], np.searchsorted(classes, batch[1])
