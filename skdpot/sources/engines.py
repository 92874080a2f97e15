"""What sources there are: files, queries, datasets of pyarrow, Dask and Spark.

Engines count partitions where they are, and add up counts on the way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from glob import glob
from importlib import import_module
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from skdpot.sources.base import ExactCounts, Source, quietly

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 2**17  # rows
_AT_ONCE = 8  # counts that one task of Dask adds
_MOST_COLLECTED = 16  # counts that the driver of Spark adds
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".arrow": "feather"}
_FORMATS |= {".feather": "feather", ".orc": "orc"}
_COMPRESSED = (".bz2", ".gz", ".lz4", ".zst")  # what the names of compressed CSV files end with
# What pandas.read_csv takes for missing.
_MISSING = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"]
_MISSING += ["1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]


def arrow_module(name: str = "pyarrow") -> Any:
    """Return a module of pyarrow, which reading in batches needs."""
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            "Reading X in batches needs pyarrow: pip install 'skdpot[arrow]'."
        ) from None


def _format_of(path: str | Path) -> str | None:
    ends = [end for end in Path(path).suffixes if end not in _COMPRESSED]
    return _FORMATS.get(ends[-1]) if ends else None


def _files_in(directory: Path) -> list[str]:
    """Return the files below a directory, without what engines left there of writes that failed."""
    found = (p for p in directory.rglob("*") if p.is_file() and _format_of(p))
    shown = (p for p in found if not any(n[0] in "._" for n in p.relative_to(directory).parts))
    return sorted(map(str, shown))


def frame_of(batch: "pa.RecordBatch | pa.Table") -> pd.DataFrame:
    """Return rows of Arrow with data types that their schema, and no value, determines."""
    return batch.to_pandas(types_mapper=_nullable, date_as_object=False, use_threads=False)


def _nullable(kind: "pa.DataType") -> Any:
    """Return the data type of pandas for integers and truth values that may be missing."""
    name = str(kind)
    if name.lstrip("u").startswith("int"):
        return pd.api.types.pandas_dtype(name.replace("int", "Int").replace("uI", "UI"))
    return pd.BooleanDtype() if name == "bool" else None


@dataclass(frozen=True, eq=False, repr=False)
class ArrowSource(Source):
    """Batches of anything that starts a new stream of Arrow for each pass."""

    data: Any
    columns: tuple[str, ...] | None = None

    @cached_property
    def head(self) -> pd.DataFrame:
        """Names and data types."""
        return frame_of(self._schema().empty_table())

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count batch by batch."""
        return ExactCounts.total(count(frame_of(batch)) for batch in self._batches())

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only, or convert no others."""
        return replace(self, columns=tuple(names))

    def _schema(self) -> Any:
        return self._stream().schema

    def _batches(self) -> Iterator[Any]:
        batches = self._stream()
        kept = self.columns or batches.schema.names
        return (batch.select(kept) for batch in batches)

    def _stream(self) -> Any:
        pa = arrow_module()
        # DuckDB before version 2 holds the whole result where Arrow's protocol asks for it.
        for name in ("to_arrow_reader", "fetch_arrow_reader"):
            if hasattr(self.data, name):
                return getattr(self.data, name)(_BATCH)
        return pa.RecordBatchReader.from_stream(self.data)


@dataclass(frozen=True, eq=False, repr=False)
class DatasetSource(ArrowSource):
    """Batches of a dataset of pyarrow: of files that have the same columns."""

    coded: Any = None  # the same dataset, of whose texts the codes are read

    @classmethod
    def of_paths(cls, given: Any) -> "DatasetSource":
        """Open files, directories and patterns such as ``"data/*.parquet"``."""
        paths: list[str] = []
        for place, path in enumerate([given] if isinstance(given, str | PathLike) else given):
            found = sorted(glob(fspath(path), recursive=True))
            if not found:  # what it says may be no path
                raise FileNotFoundError(f"X names no file by the path at place {place}.")
            for name in found:
                paths += _files_in(Path(name)) if Path(name).is_dir() else [name]
        if len(set(map(realpath, paths))) < len(paths):
            raise ValueError("X names a file twice, whose rows would be counted twice.")
        kinds = set(map(_format_of, paths))
        if len(kinds) != 1 or None in kinds:
            raise ValueError(
                "X must name files of one format, which their names end with: "
                f"{', '.join(_FORMATS)}."
            )
        options: Any = kinds.pop()
        pa, dataset = arrow_module(), arrow_module("pyarrow.dataset")
        if options == "csv":
            convert = arrow_module("pyarrow.csv").ConvertOptions(
                strings_can_be_null=True, null_values=_MISSING
            )
            options = dataset.CsvFileFormat(convert_options=convert)
        opened = cls.of(quietly(lambda: dataset.dataset(paths, format=options)))
        if options != "parquet":
            return opened
        texts, codes = pa.string(), pa.dictionary(pa.int32(), pa.string())
        fields = [f.with_type(codes) if f.type == texts else f for f in opened.data.schema]
        names = [field.name for field in fields if field.type == codes]
        options = dataset.ParquetFileFormat(dictionary_columns=names)
        data = quietly(lambda: dataset.dataset(paths, pa.schema(fields), options))
        return replace(opened, coded=data)

    @classmethod
    def of(cls, data: Any) -> "DatasetSource":
        """Refuse a dataset whose files differ in their columns; one without values may."""
        pa, fragments = arrow_module(), list(data.get_fragments())
        schemas = quietly(lambda: [fragment.physical_schema for fragment in fragments])
        fields = [f for schema in schemas for f in schema if not pa.types.is_null(f.type)]
        known = {field.name: field for field in reversed(fields)}
        fields = [known.get(field.name, field) for field in data.schema]
        expected = pa.schema(fields, data.schema.metadata)  # it says what pandas had as an index
        keys_of = arrow_module("pyarrow.dataset").get_partition_keys
        for fragment, found in zip(fragments, schemas, strict=True):
            types = dict.fromkeys(keys_of(fragment.partition_expression), pa.null())
            types |= {field.name: field.type for field in found}
            given = [types.pop(field.name, None) for field in expected]
            wrong = [
                repr(field.name)
                for field, kind in zip(expected, given, strict=True)
                if kind not in (field.type, pa.null())
            ]
            if wrong or types:  # without a header, names of other columns would be a row
                raise ValueError(
                    f"{getattr(fragment, 'path', 'A part of X')!r} differs from the other files "
                    f"in {', '.join(wrong) or 'columns that they lack'}: all must have the same "
                    "columns of the same data types."
                )
        return cls(data.replace_schema(expected))

    def _schema(self) -> Any:
        return self.data.schema

    def _batches(self) -> Iterator[Any]:
        # With threads, pyarrow holds up to 1 GB that has been read and not yet counted.
        ahead = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        kept = None if self.columns is None else list(self.columns)
        data = self.data if self.coded is None else self.coded
        return data.to_batches(columns=kept, batch_size=_BATCH, **ahead)


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
        return ExactCounts.total(map(count, self.data.collect_batches(chunk_size=_BATCH)))

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only."""
        return LazySource(self.data.select(names))


@dataclass(frozen=True, eq=False, repr=False)
class DaskSource(Source):
    """Partitions of a DataFrame of Dask, or blocks of rows of its arrays."""

    data: Any

    @property
    def head(self) -> Any:
        """Names and data types; of an array its number of columns."""
        if hasattr(self.data, "columns"):
            return self.data._meta
        return np.empty((0, *self.data.shape[1:]), dtype=self.data.dtype)

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count on the workers of the current client, and add up along a tree."""
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
        """Count in the executors; of many partitions, counts are added there too."""
        names = tuple(self.data.columns)  # of which mapInArrow cannot resolve those with dots
        numbered = self.data.toDF(*(f"c{place}" for place in range(len(names))))
        parts = numbered.mapInArrow(_CountArrow(count, names), "counts binary")
        try:
            n_parts = self.data.rdd.getNumPartitions()
        except Exception:  # a client of Spark Connect does not know
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


def source_of(X: Any, label: Any = None) -> Source | None:
    """Return the source that X is or names; None for rows in memory.

    Paths and lists of paths, datasets and readers of pyarrow, relations of DuckDB, LazyFrames of
    polars, what Dask and Spark have, and a table of pyarrow if one of its columns is the label.
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
        return DatasetSource.of(X)
    if name == "RecordBatchReader":  # can be read once
        return ArrowSource(quietly(X.read_all))
    if library in ("duckdb", "_duckdb") or (name == "Table" and isinstance(label, str)):
        return ArrowSource(X)
    return None
