"""Rows that are too many for one array: files, queries, and the partitions of an engine."""

from os import PathLike
from typing import Any

from skdpot.sources.base import ExactCounts, HeldRows, Rows, Source, SourceRows, Tables
from skdpot.sources.engines import (
    ArrowSource,
    DaskSource,
    DatasetSource,
    LazySource,
    SparkSource,
)
from skdpot.sources.numbers import Batch, read_numbers

__all__ = [
    "Batch",
    "ExactCounts",
    "HeldRows",
    "Rows",
    "Source",
    "SourceRows",
    "Tables",
    "read_numbers",
    "source_of",
]


def source_of(X: Any) -> Source | None:
    """Return the source that X is or names; None for rows in memory.

    Paths and lists of paths, datasets and readers of pyarrow, relations of DuckDB, LazyFrames of
    polars, and what Dask and Spark have.
    """
    if isinstance(X, Source):
        return X
    paths = X if isinstance(X, list | tuple) else [X]
    if paths and all(isinstance(path, str | PathLike) for path in paths):
        return DatasetSource.of_paths(X)
    library, name = type(X).__module__.partition(".")[0], type(X).__name__
    if library == "dask":
        return DaskSource(X)
    if library == "pyspark":
        return SparkSource(X)
    if name == "LazyFrame":
        return LazySource(X)
    if hasattr(X, "to_batches") and hasattr(X, "get_fragments"):
        return DatasetSource(X)
    if name == "RecordBatchReader":  # can be read once
        return ArrowSource(X.read_all())
    if library in ("duckdb", "_duckdb"):
        return ArrowSource(X)
    return None
