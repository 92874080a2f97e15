"""
A table to copy: its rows, a test part, what is public about it, and a public binning.

The task of ``bench_tables.py`` is Adult unless another CSV file is given. Its schema (bounds,
categories, which numbers are integers, which have a logarithmic scale) is public, and the same for
every method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema

__all__ = ["DEFAULT_CSV", "PublicBins", "TableTask", "adult_schema", "load_task"]

DEFAULT_CSV = Path(__file__).resolve().parents[3] / "shared" / "data" / "adult.csv.gz"
TEST_SHARE = 0.2
UNKNOWN = "?"

# Taken as public: least and greatest value, and whether the scale is logarithmic.
ADULT_NUMBERS = {
    "age": (17, 90, False),
    "education_num": (1, 16, False),
    "capital_gain": (0, 100_000, True),
    "capital_loss": (0, 4_500, True),
    "hours_per_week": (1, 99, False),
}


@dataclass(frozen=True, eq=False)
class TableTask:
    """
    Rows to copy and rows to test on.

    Attributes
    ----------
    train, test : DataFrame
        Private rows, and rows that no method sees. A missing category is "?".
    target : str
        What a model is to predict.
    schema : TableSchema
        What is public.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    schema: TableSchema

    @cached_property
    def numeric(self) -> list[str]:
        """Names of the columns of numbers and of times."""
        return [name for name in self.schema.names if name not in self.categories]

    def as_numbers(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the columns of the schema, times as numbers between their bounds."""
        times = [column for column in self.schema if column.kind == "datetime"]
        return table[list(self.schema.names)].assign(
            **{column.name: column.to_unit(table[column.name]) for column in times}
        )

    @cached_property
    def categories(self) -> dict[str, list[object]]:
        """Public values of the other columns."""
        found: dict[str, list[object]] = {}
        for name in self.schema.names:
            column = self.schema[name]
            if column.kind == "categorical":
                found[name] = list(column.categories)
            elif column.kind == "boolean":
                found[name] = [False, True]
        return found


def load_task(csv: Path, target: str, schema: Path | None, drop: list[str]) -> TableTask:
    """
    Read a CSV file, split it, and read or guess what is public.

    Parameters
    ----------
    csv : Path
        File with a header.
    target : str
        Column to predict; the split keeps its shares.
    schema : Path or None
        Public schema as JSON. None: Adult's own for Adult; for another file it is guessed from
        the rows, which a real release must not do.
    drop : list of str
        Columns to leave out.

    Returns
    -------
    TableTask
    """
    table = pd.read_csv(csv).drop(columns=drop)
    if target not in table:
        raise SystemExit(f"--target: {csv} has no column {target!r}; it has {', '.join(table)}.")
    if schema is not None:
        public = TableSchema.from_json(schema)
        table = table[list(public.names)]
        whole = [column.name for column in public if not column.missing]
    else:
        whole = list(table)
    words = [name for name in whole if not pd.api.types.is_numeric_dtype(table[name])]
    table[words] = table[words].fillna(UNKNOWN)
    if schema is None and csv == DEFAULT_CSV:
        public = adult_schema(table)
    elif schema is None:
        public = _guessed(table, target)
        table = table[list(public.names)]
    _check(public, target)
    # Stratified, since these data are public. Never split private rows by their values: one label
    # moves the rows of several persons (doc/budgets_splits.rst).
    train, test = train_test_split(
        table, test_size=TEST_SHARE, random_state=0, stratify=table[target]
    )
    return TableTask(train.reset_index(drop=True), test.reset_index(drop=True), target, public)


def _guessed(table: pd.DataFrame, target: str) -> TableSchema:
    """Take for public what the rows show; the target's values are classes."""
    print("No --schema: bounds and categories are guessed from the rows and count as public.")
    classes = CategoricalColumn(target, categories=sorted(table[target].unique().tolist()))
    return TableSchema.guess(table).replace(classes).confirm()


def _check(public: TableSchema, target: str) -> None:
    """Refuse a schema that leaves something open, which not every method could fill in."""
    open_columns = [column.name for column in public if not column.is_resolved]
    if open_columns:
        raise SystemExit(
            f"--schema: state bounds and categories of {', '.join(open_columns)}, or --drop them."
        )
    if target not in public.names or public[target].kind not in ("categorical", "boolean"):
        raise SystemExit(f"--target: {target!r} must be a categorical or boolean column.")


def adult_schema(table: pd.DataFrame) -> TableSchema:
    """Return what is public about Adult: bounds, and the categories of the census' coding."""
    columns: list[NumericColumn | CategoricalColumn] = []
    for name in table:
        if name in ADULT_NUMBERS:
            lower, upper, log_scale = ADULT_NUMBERS[name]
            columns.append(
                NumericColumn(name, lower=lower, upper=upper, integer=True, log_scale=log_scale)
            )
        else:
            columns.append(CategoricalColumn(name, categories=sorted(table[name].unique())))
    return TableSchema(columns)


class PublicBins:
    """
    Codes 0, 1, ... for every column, from public facts alone.

    Categories keep their numbers, and integers of few values theirs. Other numbers share equal
    bins, equal in the logarithm where the schema says so; the lower bound of such a column, often
    a heap of zeros, has a bin of its own. A value missing has the last code. Decoding draws
    uniformly within a bin.

    Parameters
    ----------
    schema : TableSchema
        Schema without anything to be estimated.
    n_bins : int
        Most bins for a column of numbers.
    """

    def __init__(self, schema: TableSchema, n_bins: int) -> None:
        self.schema = schema
        self.edges = {
            name: _edges(schema[name], n_bins)
            for name in schema.names
            if schema[name].kind not in ("categorical", "boolean")
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Number of codes of each column."""
        sizes = {}
        for name in self.schema.names:
            column = self.schema[name]
            known = len(self.edges[name]) - 1 if name in self.edges else column.n_categories
            sizes[name] = known + column.missing
        return sizes

    def encode(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the codes of a table."""
        codes = {}
        for name in self.schema.names:
            column = self.schema[name]
            if name in self.edges:
                unit = column.to_unit(table[name])
                last = len(self.edges[name]) - 2
                positions = _positions(column, np.nan_to_num(unit))
                known = np.searchsorted(self.edges[name], positions, side="right") - 1
                codes[name] = np.where(np.isnan(unit), last + 1, np.clip(known, 0, last))
            else:
                known = column.to_codes(table[name])
                codes[name] = np.where(known < 0, column.n_categories, known)
        return pd.DataFrame(codes).astype(np.int64)

    def decode(self, codes: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        """Return a table with these codes."""
        table = {}
        for name in self.schema.names:
            column, known = self.schema[name], codes[name].to_numpy()
            if name in self.edges:
                edges = self.edges[name]
                missing = known > len(edges) - 2
                low, high = edges[known - missing], edges[known - missing + 1]
                positions = low + rng.random(len(known)) * (high - low)
                unit = _units(column, positions)
                table[name] = column.from_unit(np.where(missing, np.nan, unit))
            else:
                missing = known >= column.n_categories
                table[name] = column.from_codes(np.where(missing, -1, known))
        return pd.DataFrame(table)


# --- positions: steps 0, 1, ... from the lower bound, or the unit scale of a continuum -----------


def _edges(column: NumericColumn, n_bins: int) -> np.ndarray:
    n_values = column.n_values
    log_scale = getattr(column, "log_scale", False)
    if n_values is None:
        edges = np.linspace(0.0, 1.0, n_bins + (not log_scale))
        # The lower bound alone, as for integers.
        return np.insert(edges, 1, np.nextafter(0.0, 1.0)) if log_scale else edges
    if log_scale:
        inner = np.ceil(np.expm1(np.linspace(0, np.log1p(n_values - 1), n_bins + 1)[1:-1]))
        return np.unique([0.0, *inner, float(n_values)])
    step = -(-n_values // n_bins)
    return np.unique(np.minimum(np.arange(0, n_values + step, step), n_values)).astype(float)


def _positions(column: NumericColumn, unit: np.ndarray) -> np.ndarray:
    if column.n_values is None:
        return unit
    steps = column.n_values - 1
    if getattr(column, "log_scale", False):
        return np.rint(np.expm1(unit * np.log1p(steps)))
    return np.rint(unit * steps)


def _units(column: NumericColumn, positions: np.ndarray) -> np.ndarray:
    if column.n_values is None:
        return positions
    steps, whole = max(column.n_values - 1, 1), np.floor(positions)
    if getattr(column, "log_scale", False):
        return np.log1p(whole) / np.log1p(steps)
    return whole / steps
