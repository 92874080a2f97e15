"""Sources of Arrow: files, datasets, and objects that start a new stream for each pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from glob import glob
from importlib import import_module
from os import PathLike, fspath
from os.path import realpath
from pathlib import Path
from typing import Any

import pandas as pd

from skdpot._utils.nothing import MISSING_TEXTS
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.source import Source, quietly

BATCH_ROWS = 2**17
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "feather",
    ".feather": "feather",
    ".orc": "orc",
}
_COMPRESSED = (".bz2", ".gz", ".lz4", ".zst")  # endings of compressed CSV files


def arrow_module(name: str = "pyarrow") -> Any:
    """Return a module of pyarrow, which is needed to read in batches."""
    try:
        return import_module(name)
    except ImportError:
        raise ImportError("Reading X in batches needs pyarrow: pip install pyarrow") from None


def _format_of(path: str | Path) -> str | None:
    ends = [end for end in Path(path).suffixes if end not in _COMPRESSED]
    return _FORMATS.get(ends[-1]) if ends else None


def _files_in(directory: Path) -> list[str]:
    """Return the files below a directory, without hidden ones such as failed writes of engines."""
    paths = (p for p in directory.rglob("*") if p.is_file() and _format_of(p))
    shown = (p for p in paths if not any(n[0] in "._" for n in p.relative_to(directory).parts))
    return sorted(map(str, shown))


def _check_different_files(paths: list[str]) -> None:
    """Refuse a file that is named twice."""
    if len(set(map(realpath, paths))) < len(paths):
        raise ValueError("X names a file twice, whose rows would be counted twice.")


def frame_of(batch: Any) -> pd.DataFrame:
    """Return a batch of Arrow as a DataFrame whose data types depend on the schema alone."""
    return batch.to_pandas(types_mapper=_nullable, date_as_object=False, use_threads=False)


def _nullable(kind: object) -> Any:
    """Return the pandas data type of integers and booleans that may be missing."""
    name = str(kind)
    if name.lstrip("u").startswith("int"):
        return pd.api.types.pandas_dtype(name.replace("int", "Int").replace("uI", "UI"))
    return pd.BooleanDtype() if name == "bool" else None


@dataclass(frozen=True, eq=False, repr=False)
class ArrowSource(Source):
    """Batches of an object that starts a new stream of Arrow for each pass."""

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
        """Read, or at least convert, some columns only."""
        return replace(self, columns=tuple(names))

    def _batches(self) -> Iterator[Any]:
        batches = self._opened()
        kept = self.columns or batches.schema.names
        return (batch.select(kept) for batch in batches)

    def _opened(self) -> Any:
        pa = arrow_module()
        # With Arrow's protocol, DuckDB before version 2 would hold the whole result in memory.
        for name in ("to_arrow_reader", "fetch_arrow_reader"):
            if hasattr(self.data, name):
                return getattr(self.data, name)(BATCH_ROWS)
        return pa.RecordBatchReader.from_stream(self.data)


@dataclass(frozen=True, eq=False, repr=False)
class DatasetSource(ArrowSource):
    """Batches of a dataset of pyarrow, whose files have the same columns."""

    coded: Any = None  # the same dataset with texts read as codes

    @classmethod
    def of_paths(cls, X: str | PathLike[str] | Sequence[str | PathLike[str]]) -> "DatasetSource":
        """Open files, directories and patterns such as ``"data/*.parquet"``."""
        paths: list[str] = []
        for place, path in enumerate([X] if isinstance(X, str | PathLike) else X):
            names = sorted(glob(fspath(path), recursive=True))
            if not names:  # the entry may be a value rather than a path, so it is not quoted
                raise FileNotFoundError(f"No file exists at entry {place} of X.")
            for name in names:
                paths += _files_in(Path(name)) if Path(name).is_dir() else [name]
        _check_different_files(paths)
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
        coded = [field.name for field in fields if field.type == codes]
        options = dataset.ParquetFileFormat(dictionary_columns=coded)
        data = quietly(lambda: dataset.dataset(paths, pa.schema(fields), options))
        return replace(opened, coded=data)

    @classmethod
    def of(cls, data: Any) -> "DatasetSource":
        """Return a source; refuse a dataset whose files differ in columns that have values."""
        pa, fragments = arrow_module(), list(data.get_fragments())
        schemas = quietly(lambda: [fragment.physical_schema for fragment in fragments])
        fields = [f for schema in schemas for f in schema if not pa.types.is_null(f.type)]
        known = {field.name: field for field in reversed(fields)}
        fields = [known.get(field.name, field) for field in data.schema]
        expected = pa.schema(fields, data.schema.metadata)  # the metadata name pandas' index
        keys_of = arrow_module("pyarrow.dataset").get_partition_keys
        for fragment, schema in zip(fragments, schemas, strict=True):
            types = dict.fromkeys(keys_of(fragment.partition_expression), pa.null())
            types |= {field.name: field.type for field in schema}
            kinds = [types.pop(field.name, None) for field in expected]
            wrong = [
                repr(field.name)
                for field, kind in zip(expected, kinds, strict=True)
                if kind not in (field.type, pa.null())
            ]
            # Names of other columns are not quoted: without a header they would be a row.
            if wrong or types:
                raise ValueError(
                    f"{getattr(fragment, 'path', 'A part of X')!r} differs from the other files "
                    f"in {', '.join(wrong) or 'columns that they lack'}: all must have the same "
                    "columns of the same data types."
                )
        return cls(data.replace_schema(expected))

    def _opened(self) -> Any:
        return self.data

    def _batches(self) -> Iterator[Any]:
        # With threads, pyarrow would hold up to 1 GB of batches that are not yet counted.
        ahead = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        kept = None if self.columns is None else list(self.columns)
        data = self.data if self.coded is None else self.coded
        return data.to_batches(columns=kept, batch_size=BATCH_ROWS, **ahead)
