"""Sources of engines: LazyFrames of polars, DataFrames of Dask and Spark."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skdpot.sources.arrow import BATCH_ROWS, arrow_module, frame_of
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.source import Source

_AT_ONCE = 8  # counts added by one task of Dask
_MOST_COLLECTED = 16  # counts added by the driver of Spark


@dataclass(frozen=True, eq=False, repr=False)
class LazySource(Source):
    """Batches of a LazyFrame of polars."""

    data: Any

    @cached_property
    def head(self) -> Any:
        """Names and data types."""
        return self.data.head(0).collect()

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count batch by batch."""
        return ExactCounts.total(map(count, self.data.collect_batches(chunk_size=BATCH_ROWS)))

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only."""
        return LazySource(self.data.select(names))


@dataclass(frozen=True, eq=False, repr=False)
class DaskSource(Source):
    """Partitions of a DataFrame of Dask, or blocks of rows of an array of Dask."""

    data: Any

    @property
    def head(self) -> Any:
        """Names and data types; for an array the number of columns."""
        if hasattr(self.data, "columns"):
            return self.data._meta
        return np.empty((0, *self.data.shape[1:]), dtype=self.data.dtype)

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count on the workers of the current client, and add the counts in a tree."""
        from dask import delayed

        data = self.data if hasattr(self.data, "columns") else self.data.rechunk({1: -1})
        shared = delayed(count, pure=False, traverse=False)
        parts = [
            delayed(_packed, pure=False)(shared, part)
            for part in np.ravel(np.asarray(data.to_delayed(), dtype=object))
        ]
        while len(parts) > 1:
            groups = (parts[k : k + _AT_ONCE] for k in range(0, len(parts), _AT_ONCE))
            parts = [delayed(_added, pure=False)(group) for group in groups]
        return ExactCounts.unpacked(parts[0].compute())

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only."""
        return DaskSource(self.data[list(names)])


def _packed(count: Callable[[Any], ExactCounts], batch: Any) -> bytes:
    return count(batch).packed()


def _added(messages: Iterable[bytes]) -> bytes:
    return ExactCounts.total(map(ExactCounts.unpacked, messages)).packed()


@dataclass(frozen=True, eq=False, repr=False)
class SparkSource(Source):
    """Batches of a DataFrame of Spark, counted by `mapInArrow`."""

    data: Any

    @property
    def head(self) -> Any:
        """Names and data types."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return frame_of(to_arrow_schema(self.data.schema).empty_table())

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count in the executors, which also add the counts of many partitions."""
        names = tuple(self.data.columns)  # mapInArrow cannot resolve names with dots
        numbered = self.data.toDF(*(f"c{place}" for place in range(len(names))))
        parts = numbered.mapInArrow(_CountArrow(count, names), "counts binary")
        try:
            n_parts = self.data.rdd.getNumPartitions()
        except Exception:  # Spark Connect cannot tell
            n_parts = _MOST_COLLECTED + 1
        if n_parts > _MOST_COLLECTED:
            parts = parts.repartition(_MOST_COLLECTED).mapInArrow(_add_arrow, "counts binary")
        return ExactCounts.total(ExactCounts.unpacked(row[0]) for row in parts.collect())

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only."""
        return SparkSource(self.data.select(*(f"`{name.replace('`', '``')}`" for name in names)))


@dataclass(frozen=True, eq=False)
class _CountArrow:
    count: Callable[[Any], ExactCounts]
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        named = (batch.rename_columns(list(self.names)) for batch in batches)
        total = ExactCounts.total(self.count(frame_of(batch)) for batch in named)
        yield _message(total.packed())


def _add_arrow(batches: Iterator[Any]) -> Iterator[Any]:
    yield _message(_added(value.as_py() for batch in batches for value in batch.column(0)))


def _message(content: bytes) -> Any:
    return arrow_module().record_batch({"counts": arrow_module().array([content], "binary")})
