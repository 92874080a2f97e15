"""Exact counts of private rows, wherever the rows are: in memory, in files, in an engine.

A release is noise on a sum over rows of small tables of integers. Whatever holds the rows has to
do one thing: apply a function to every batch of them, and add up what it returns. Sums of integers
are exact in any order, so that a release does not depend on how rows are divided into batches. A
fit passes over its rows several times, and draws the noise once, where it runs.

Counts without noise are as private as the rows. They exist where the rows do: in the workers of an
engine and in the process of the fit, which are trusted alike. Nothing else sees them: they are
added to noise that is drawn there, and forgotten.
"""

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from glob import glob
from importlib import import_module
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.nothing import MISSING_TEXTS
from skdpot._utils.validation import encode_labels, read_rows, record_features, validate_rows

Tables: TypeAlias = tuple[Any, ...]  # arrays of integers, and Counters
Batch: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # rows of numbers, and their labels

_UNKNOWN = "X could not be read ({}). What the error says may quote values; it is not shown."
_STOP = (KeyboardInterrupt, SystemExit, GeneratorExit)
_LIBRARIES = ("numpy", "pandas", "polars")  # whose batches raise no errors of their own


class ExactCounts:
    """Counts of some private rows, which add up with ``+``.

    They can be neither shown, nor copied, nor pickled. An engine moves them within the cluster that
    holds the rows as the bytes of `packed`.

    Privacy
    -------
    As private as the rows: no noise protects them. Nothing but a fit should read them.
    """

    __slots__ = ("_n_rows", "_problem", "_tables")

    def __init__(self, tables: Tables = (), n_rows: int = 0, problem: str = "") -> None:
        self._tables, self._n_rows, self._problem = tables, n_rows, problem

    def __add__(self, other: "ExactCounts") -> "ExactCounts":
        """Add the counts of other rows; neither operand changes."""
        if not isinstance(other, ExactCounts):
            return NotImplemented
        if self._problem or other._problem:
            return ExactCounts(problem=self._problem or other._problem)
        if not (self._n_rows and other._n_rows):
            return self if self._n_rows else other
        tables = tuple(a + b for a, b in zip(self._tables, other._tables, strict=True))
        return ExactCounts(tables, self._n_rows + other._n_rows)

    @classmethod
    def total(cls, counts: Iterable["ExactCounts"]) -> "ExactCounts":
        """Add up any number of counts, in place of the first.

        Parameters
        ----------
        counts : iterable of ExactCounts
            Counts of disjoint sets of rows. The first of them holds the sum afterwards.

        Returns
        -------
        ExactCounts
            Their sum; that of no counts is zero.
        """
        total = cls()
        for more in counts:
            if total._n_rows and more._n_rows and not (total._problem or more._problem):
                for own, other in zip(total._tables, more._tables, strict=True):
                    own.update(other) if isinstance(own, Counter) else np.add(own, other, out=own)
                total._n_rows += more._n_rows
            else:
                total = total + more
        return total

    def packed(self) -> bytes:
        """Return the counts as bytes, for a message between machines that may see the rows.

        Returns
        -------
        bytes
            As private as the rows.
        """
        return pickle.dumps((self._tables, self._n_rows, self._problem), protocol=5)

    @classmethod
    def unpacked(cls, message: bytes) -> Self:
        """Read what `packed` returned. It is a pickle: read those of your own cluster only.

        Parameters
        ----------
        message : bytes
            Counts of some rows.

        Returns
        -------
        ExactCounts
            The counts.
        """
        return cls(*pickle.loads(message))

    def __repr__(self) -> str:
        """Show nothing."""
        return "ExactCounts(secret)"

    def _refuse(self, *args: object) -> NoReturn:
        raise TypeError(
            "Exact counts of private rows can be neither pickled nor copied, so that nobody saves "
            "them by accident. An engine moves `packed` bytes within its cluster."
        )

    __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


class Source(ABC):
    """Abstract base class of private rows that an engine reads in batches.

    `fit` of an estimator that adds up counts takes a source in place of X. To use an engine of
    your own, define `head` and `sum`, and `select` if reading fewer columns saves time. A fit reads
    `head` first, calls `select` if it needs some of the columns only, counts the rows in a pass of
    their own, and then calls `sum` several times. Each pass must read the same rows, each once, in
    any order and in batches of any size.

    Privacy
    -------
    A source adds no noise and charges nothing; the fit does. What `sum` returns, and all that it
    adds up on the way, is as private as the rows, in memory, messages and logs of the engine. What
    `head` returns is public.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot import SlicedSketch
    >>> from skdpot.sources import ExactCounts, Source
    >>> class Months(Source):
    ...     "One DataFrame for each month."
    ...     head = pd.DataFrame({"age": [], "weight": []})
    ...
    ...     def sum(self, count):
    ...         return ExactCounts.total(count(self.read(month)) for month in range(12))
    ...
    ...     def read(self, month):
    ...         rng = np.random.default_rng(month)
    ...         return pd.DataFrame(rng.uniform(0, 100, (500, 2)), columns=["age", "weight"])
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(0, 100)).fit(Months())
    >>> sketch.n_samples_, sketch.feature_names_in_.tolist()
    (6000, ['age', 'weight'])
    """

    @property
    @abstractmethod
    def head(self) -> Any:
        """A table of shape (0, n_features): names and data types of the columns.

        They are public. An array without rows stands for columns without names.
        """

    @abstractmethod
    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Return the sum of ``count(batch)`` over all batches.

        Parameters
        ----------
        count : callable
            A function of a DataFrame or array of shape (n_batch, n_features) with some of the rows
            and the columns of `head`. It can be pickled, changes nothing, and never raises an
            error.

        Returns
        -------
        ExactCounts
            The sum, of which no batch is left out and none is added twice.
        """

    def select(self, names: Sequence[str]) -> "Source":
        """Return a source with some of the columns at least, which may read less.

        Parameters
        ----------
        names : sequence of str
            Names of the columns that a fit needs.

        Returns
        -------
        Source
            By default this source.
        """
        return self


class Rows(ABC):
    """Private rows of one fit, in memory or in a source, after steps that work on single rows.

    `map` is called any number of times, then `sum` once per pass.
    """

    n_rows: int  # public

    @abstractmethod
    def map(self, step: Callable[[Any], Any]) -> "Rows":
        """Return the rows that a step makes of each batch, one row of each."""

    @abstractmethod
    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Return the sums over all batches of the tables that `count` returns of one."""


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows(Rows):
    """Rows in memory, which are one batch; steps are taken once."""

    value: Any
    n_rows: int

    def map(self, step: Callable[[Any], Any]) -> "HeldRows":
        """Take the step now."""
        return HeldRows(step(self.value), self.n_rows)

    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Count all rows."""
        return count(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class SourceRows(Rows):
    """Rows of a source, which are read again in each pass."""

    source: Source
    n_rows: int
    steps: tuple[Callable[[Any], Any], ...] = ()

    @classmethod
    def checked(
        cls,
        source: Source,
        step: Callable[[Any], Any],
        caller: str,
        fewest: int,
        count: Callable[[Any], Tables] | None = None,
    ) -> tuple["SourceRows", Tables]:
        """Count the rows of a source, and refuse those that a step cannot read, or too few."""
        found = _pass_over(source, _Count((step,), count, told=True))
        if found._n_rows < fewest:
            found_only = f"Found {found._n_rows} sample(s) while a minimum of {fewest}"
            raise ValueError(f"{found_only} is required by {caller}.")
        return cls(source, found._n_rows, (step,)), found._tables

    def map(self, step: Callable[[Any], Any]) -> "SourceRows":
        """Take the step in each pass."""
        return SourceRows(self.source, self.n_rows, (*self.steps, step))

    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Pass over all rows."""
        found = _pass_over(self.source, _Count(self.steps, count))
        if found._n_rows != self.n_rows:
            raise ValueError(
                "The passes over X found different numbers of rows, so that they did not read the "
                "same rows: files that changed, or a query whose result does. What was charged is "
                "spent; nothing was released from this pass."
            )
        return found._tables


@dataclass(frozen=True, eq=False)
class _Count:
    """What a source does with each batch; it can be pickled if the steps can."""

    steps: tuple[Callable[[Any], Any], ...]
    count: Callable[[Any], Tables] | None = None
    told: bool = False  # whether errors of the steps are known to quote no value

    def __call__(self, batch: Any) -> ExactCounts:
        try:
            rows, n_rows = batch, len(batch)
            if not n_rows:
                return ExactCounts()
            for step in self.steps:
                rows = step(rows)
            return ExactCounts(self.count(rows) if self.count else (), n_rows)
        except _STOP:
            raise
        except BaseException as error:  # a panic of polars is no Exception
            known = self.told and isinstance(error, (ValueError, TypeError))
            known &= type(batch).__module__.partition(".")[0] in _LIBRARIES
            told = str(error) if known else _UNKNOWN.format(type(error).__name__)
            return ExactCounts(problem=told)


def _pass_over(source: Source, count: _Count) -> ExactCounts:
    found: Any = quietly(partial(source.sum, count))
    if not isinstance(found, ExactCounts):
        raise TypeError("The sum of a source must be ExactCounts, those of all batches.")
    if found._problem:
        raise ValueError(found._problem)
    return found


def count_rows(source: Source) -> int:
    """Return the number of rows of a source, in a pass of its own."""
    return _pass_over(source, _Count(()))._n_rows


def head_of(source: Source) -> Any:
    """Return the head of a source; a query may have begun to read rows for it."""
    return quietly(lambda: source.head)


def quietly(read: Callable[[], Any]) -> Any:
    """Return what a reader or an engine does, without an error of it, which may quote values."""
    try:
        return read()
    except (ImportError, *_STOP):  # the former names a package to install
        raise
    except BaseException as error:
        problem = _UNKNOWN.format(type(error).__name__)
    raise ValueError(problem)  # outside of the handler, so that no context is attached


_BATCH = 2**17  # rows
_AT_ONCE = 8  # counts that one task of Dask adds
_MOST_COLLECTED = 16  # counts that the driver of Spark adds
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".arrow": "feather"}
_FORMATS |= {".feather": "feather", ".orc": "orc"}
_COMPRESSED = (".bz2", ".gz", ".lz4", ".zst")  # what the names of compressed CSV files end with


def arrow_module(name: str = "pyarrow") -> Any:
    """Return a module of pyarrow, which reading in batches needs."""
    try:
        return import_module(name)
    except ImportError:
        text = "Reading X in batches needs pyarrow: pip install 'skdpot[arrow]'."
        raise ImportError(text) from None


def _format_of(path: str | Path) -> str | None:
    ends = [end for end in Path(path).suffixes if end not in _COMPRESSED]
    return _FORMATS.get(ends[-1]) if ends else None


def _files_in(directory: Path) -> list[str]:
    """Return the files below a directory, without what engines left there of writes that failed."""
    found = (p for p in directory.rglob("*") if p.is_file() and _format_of(p))
    shown = (p for p in found if not any(n[0] in "._" for n in p.relative_to(directory).parts))
    return sorted(map(str, shown))


def frame_of(batch: Any) -> pd.DataFrame:
    """Return rows of Arrow with data types that their schema, and no value, determines."""
    return batch.to_pandas(types_mapper=_nullable, date_as_object=False, use_threads=False)


def _nullable(kind: Any) -> Any:
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
        return frame_of(self._opened().schema.empty_table())

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count batch by batch."""
        return ExactCounts.total(count(frame_of(batch)) for batch in self._batches())

    def select(self, names: Sequence[str]) -> Source:
        """Read some columns only, or convert no others."""
        return replace(self, columns=tuple(names))

    def _batches(self) -> Iterator[Any]:
        batches = self._opened()
        kept = self.columns or batches.schema.names
        return (batch.select(kept) for batch in batches)

    def _opened(self) -> Any:
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
                raise FileNotFoundError(f"No file exists at entry {place} of X.")
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
                strings_can_be_null=True, null_values=sorted(MISSING_TEXTS)
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

    def _opened(self) -> Any:
        return self.data

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
    """Return the source that X is or names; None for rows in memory."""
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
    classes: Any = None,
    *,
    labelled: bool = False,
    min_samples: int = 1,
) -> tuple[SourceRows, np.ndarray | None]:
    """Count the rows of a source, refuse what are no numbers, and record the columns."""
    head = head_of(source)
    if labelled:
        there = list(getattr(head, "columns", ()))
        if not isinstance(label, str) or label not in there:
            lacking = f" There is no column {label!r}." if isinstance(label, str) else ""
            raise ValueError(
                "y must be the name of the column of X that holds the labels, where X is read in "
                f"batches.{lacking}"
            )
        head = head[[name for name in there if name != label]]
    names = tuple(head.columns) if hasattr(head, "columns") else None
    record_features(estimator, head)
    reader = _Reader(names, head.shape[1], label if labelled else None)
    caller = type(estimator).__name__
    rows, found = SourceRows.checked(source, reader, caller, min_samples, _labels)
    if not labelled:
        return rows, None
    labels = list(found[0])
    known = encode_labels(labels, len(labels), classes)[1]
    return rows.map(partial(_encoded, classes=known)), known


def fit_rows(
    estimator: BaseEstimator, X: Any, groups: Any, needs: str = "", label: Any = None
) -> Any:
    """Validate rows; or return a source, if nothing `needs` a sketch, which alone adds it up."""
    source = source_of(X, label)
    if needs and (groups is not None or source is not None):
        given = "X in batches" if groups is None else "groups"
        raise ValueError(f"{given} needs {needs}. Pass one row of each person, in memory.")
    fewest = 2 if groups is None else 1  # of rows; a refusal counts them
    return source or validate_rows(estimator, X, reset=True, min_samples=fewest)


def record_columns(estimator: BaseEstimator, sketch: BaseEstimator) -> None:
    """Record the columns of a source that a sketch has read, without that of labels."""
    estimator.n_features_in_ = sketch.n_features_in_
    if hasattr(sketch, "feature_names_in_"):
        estimator.feature_names_in_ = sketch.feature_names_in_


@dataclass(frozen=True)
class _Reader:
    """Reads a batch; depends on each row alone."""

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
    """Count labels, which fits take to be public."""
    return (Counter([] if batch[1] is None else batch[1].tolist()),)


def _encoded(batch: Any, classes: np.ndarray) -> Batch:
    return batch[0], np.searchsorted(classes, batch[1])
