"""The interface of a column of a schema.

A kind of column is a class in a file of its own and an entry of `skdpot.tables.proposals.KINDS`.
Every value is read on its own. An array has one data type, and a single 0.5 among integers would
turn all of them into floats: the value of one person would change how the values of others are
read, and one record would no longer move one count by one.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray
from skdpot._utils.nothing import is_nothing
from skdpot.tables.column_values import PlainColumn, read_column
from skdpot.tables.dtypes import dtype_family, pandas_dtype
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.texts import present_texts, strings

ONE_VALUE = "has one value, on which a fit spends nothing."
UNSHOWN = "(not shown: it may be private)"
OTHER_KIND = f"Convert it, or declare a column of another kind {UNSHOWN}."


@dataclass(frozen=True, repr=False)
class TableColumn(ABC):
    """Base class of the columns of a schema.

    A kind on a scale derives from `ScaledColumn`, one of categories from `CodedColumn`. A fit uses
    a column in this order:

    1. `from_dtype` or `from_texts`, then `bind`: public facts, and texts of a guess.
    2. `read`: the only method that sees raw private values. It refuses wrong ones and never quotes
       them.
    3. If not `is_resolved`: `numbers` and `bounded` on a scale, else `labels` and `listed`. The
       second of each pair gets released values only.
    4. `grid`: the cells, by public facts. Cells of private values come from `to_unit` on a scale,
       else from `to_codes`. Each value is mapped on its own, whatever the other rows hold.
    5. `from_unit` or `from_codes`: synthetic values.
    """

    kind: ClassVar[str]  # name in files
    families: ClassVar[tuple[str, ...]]  # families of data types that it reads, or single types
    default: ClassVar[str]  # data type if no table has one
    on_scale: ClassVar[bool] = False  # has bounds rather than categories
    figure: ClassVar[str] = "category"  # "number", "date" or "category" in plots
    nouns: ClassVar[str]  # the values, in words
    reads_texts: ClassVar[bool] = False  # a table may hold its values as text
    is_numbered: ClassVar[bool] = False  # an array of numbers can hold its values
    is_resolved: ClassVar[bool] = True  # nothing is left to be estimated privately

    name: str
    _: KW_ONLY
    missing: bool = False
    dtype: str | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"The name of a column must be a non-empty string, got {type(self.name).__name__}."
            )
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type in (bool, "bool"):
                if not isinstance(value, bool | np.bool_):
                    kind = type(value).__name__
                    raise self.error(f": {item.name} must be True or False, got {kind}.")
                self._store(item.name, bool(value))
        if self.dtype is not None:
            self._check_dtype(self.dtype)

    @abstractmethod
    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words: a summary, or without omissions (`in_full`)."""

    @abstractmethod
    def grid(self) -> ColumnGrid:
        """Return the public cells in which values are counted first."""

    @abstractmethod
    def to_unit(self, values: Any) -> FloatArray:
        """Return the place of each value in [0, 1], NaN if missing; shape (n_rows,)."""

    @abstractmethod
    def from_unit(self, unit: npt.ArrayLike) -> pd.Series:
        """Return the values nearest to places in [0, 1], missing ones for NaN."""

    @abstractmethod
    def condition(self, text: Any) -> Any:
        """Return the value or values that a user typed in a condition; raise ValueError."""

    @property
    @abstractmethod
    def _last_step(self) -> int | None:
        """Number of steps between the first and the last value if steps are even, else None."""

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinates that encode a value."""
        return [self.name, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, values: Any) -> FloatArray:
        """Return a point of norm at most 1 per value; shape (n_rows, len(coordinates)).

        The first coordinate is in [-1, 1]. If values may be missing, a second coordinate is 1 for
        missing values, and the first is then 0.
        """
        unit = self.to_places(values)
        missing = np.isnan(unit)
        places = np.where(missing, 0.0, 2 * np.where(missing, 0.0, unit) - 1)[:, None]
        return np.column_stack([places, missing]) if self.missing else places

    def decode(self, points: FloatArray) -> pd.Series:
        """Return the values with the nearest points."""
        unit = np.clip((points[:, 0] + 1) / 2, 0.0, 1.0)
        if self.missing:
            unit[self._is_missing(*points.T)] = np.nan
        return self.from_places(unit)

    def to_places(self, values: Any) -> FloatArray:
        """Return the encoded place of each value in [0, 1], NaN if missing."""
        return self.to_unit(values)

    def from_places(self, places: FloatArray) -> pd.Series:
        """Return the values at encoded places."""
        return self.from_unit(places)

    def _is_missing(self, position: FloatArray, mask: FloatArray) -> BoolArray:
        """Whether the point of missing values is nearer than the point of any value.

        Values lie at (p, 0) with abs(p) <= 1, missing ones at (0, 1). The point (x, m) is equally
        far from both if 2 m = 1 + 2 x p - p^2, where p is the value nearest to x.
        """
        nearest = np.clip(position, -1.0, 1.0)
        if (last := self._last_step) is not None:
            nearest = np.rint((nearest + 1) / 2 * last) / max(last, 1) * 2 - 1
        return 2 * mask > 1 + 2 * position * nearest - nearest**2

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column from public facts alone."""
        return cls(name, dtype=dtype, missing=missing)

    @classmethod
    def from_texts(cls, texts: list[str], base: "TableColumn") -> "tuple[TableColumn | None, str]":
        """Return a column of this kind that reads all distinct texts, and the reason; else None."""
        return None, ""

    def guessed(self, values: PlainColumn, keep: bool) -> tuple["TableColumn | None", str]:
        """Return the column that values suggest (None to leave it out), and a note."""
        return self, ""

    def left_open(self) -> "TableColumn":
        """Return the column without anything that values may have suggested."""
        return self

    def bind(self, dtype: str) -> Self:
        """Return a copy with the data type of a table, if it has none."""
        if self.reads_texts and dtype_family(dtype) == "text" and dtype not in self.families:
            dtype = self.default
        return self if self.dtype is not None else self.replace(dtype=dtype)

    def stated(self) -> Self:
        """Return a copy with a fixed data type, so that texts of a file cannot change it."""
        return self.bind(self.default)

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return the texts of a file as values that `read` accepts, each text on its own."""
        return strings(present_texts(texts, missing))

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values in the form that metrics and plots compare."""
        return values

    def replace(self, **changes: Any) -> Self:
        """Return a checked copy with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields for JSON, without unset options of later versions."""
        stated = {item.name: getattr(self, item.name) for item in fields(self)}
        unread = [name for name in ("written", "formats", "knots") if not stated.get(name)]
        return {"kind": self.kind} | {n: v for n, v in stated.items() if n not in unread}

    def to_sdv(self) -> dict[str, str]:
        """Return the description of the column in metadata of SDV."""
        return {"sdtype": "unknown"}

    def read(self, values: Any) -> PlainColumn:
        """Read private values once; refuse values that the column cannot hold."""
        try:
            column = read_column(values).without(self._is_nothing)
        except ValueError as error:
            raise self.error(f": {error}.") from None
        if column.missing.any() and not self.missing:
            raise self.error(
                " has missing values, but missing=False in its schema. Set missing=True (it is "
                "then public that values can be missing), or impute them."
            )
        return column

    def _is_nothing(self, text: str) -> bool:
        """Return whether a text means a missing value."""
        return is_nothing(text)

    def finish(self, values: npt.NDArray[Any], missing: BoolArray, dtype: str) -> pd.Series:
        """Return decoded values as a Series of a data type."""
        target = pandas_dtype(dtype, self.missing)
        series = pd.Series(values, dtype=values.dtype)
        if self.missing and values.dtype.kind in "biu":
            series = series.convert_dtypes()  # nullable, so that integers stay exact
        if missing.any():
            series = series.mask(missing)
        if target == np.dtype(object):
            return series.astype(object).where(~missing, None)
        if isinstance(target, np.dtype) and target.kind == "f":
            return pd.Series(series.to_numpy(dtype=target, na_value=np.nan))
        return series.astype(target)

    def check_missing(self, missing: BoolArray) -> None:
        """Refuse to decode missing values if the column has none."""
        if missing.any() and not self.missing:
            raise self.error(" has missing=False, but missing values were to be decoded.")

    def error(self, text: str) -> ValueError:
        """Return an error that starts with the name of the column."""
        return ValueError(f"Column {self.name!r}{text}")

    def _check_dtype(self, dtype: Any) -> None:
        try:
            family = dtype_family(dtype) if isinstance(dtype, str) else ""
        except ValueError as error:
            raise self.error(f": {error}.") from None
        if family not in self.families and dtype not in self.families:
            raise self.error(
                f": a {self.kind} column cannot have the data type {dtype!r}; it must hold "
                f"{' or '.join(self.families)} values. Choose another kind of column."
            )

    def _store(self, field: str, value: object) -> None:
        """Set a field of the frozen instance during initialisation."""
        object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        chosen = [repr(self.name)]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "name" and value != item.default:
                chosen.append(f"{item.name}={_short(value)}")
        return f"{type(self).__name__}({', '.join(chosen)})"


def _short(value: object) -> str:
    """Return the repr of a value; a long list is shortened."""
    if isinstance(value, tuple) and len(value) > 8:
        return f"({', '.join(map(repr, value[:6]))}, ... {len(value)} in all)"
    return repr(value)
