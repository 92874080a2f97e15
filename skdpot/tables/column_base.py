"""The interface of a column of a schema.

A kind of column is a class in a file of its own and an entry of `skdpot.tables.proposals.KINDS`.
Every value is read on its own. An array has one data type, and a single 0.5 among integers would
turn all of them into floats: the value of one person would change how the values of others are
read, and one record would no longer move one count by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray
from skdpot._utils.nothing import is_nothing
from skdpot.tables.column_values import PlainColumn, read_column
from skdpot.tables.dtypes import dtype_family, pandas_dtype
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.texts import present_texts, strings

ONE_VALUE = "has one value, on which a fit spends nothing."
UNSHOWN = "(not shown: it may be private)"
OTHER_KIND = f"Convert it, or declare a column of another kind {UNSHOWN}."


@dataclass(frozen=True, repr=False)
class TableColumn:
    """Base class of the columns of a schema."""

    kind: ClassVar[str]
    families: ClassVar[tuple[str, ...]]  # of data types that it reads, or single ones
    default: ClassVar[str]  # data type where no table has one
    on_scale: ClassVar[bool] = False  # whether it has bounds rather than categories
    figure: ClassVar[str] = "category"  # what it is in figures: "number", "date" or "category"
    nouns: ClassVar[str]  # what its values are
    reads_texts: ClassVar[bool] = False  # whether text in a table may stand for its values
    is_numbered: ClassVar[bool] = False  # whether an array of numbers can hold its values
    is_resolved: ClassVar[bool] = True  # whether nothing is left to be estimated privately

    # What each kind defines, besides `guessed` and `left_open`.
    describe: ClassVar[Callable[..., str]]  # which values it can have: in a few words, or in_full
    grid: ClassVar[Callable[..., "ColumnGrid"]]  # the finest cells that its values are counted in
    to_unit: ClassVar[Callable[..., FloatArray]]  # the place of each value in [0, 1], or NaN
    from_unit: ClassVar[Callable[..., pd.Series]]  # the values at such places
    condition: ClassVar[Callable[..., Any]]  # what somebody typed, as a value to look for
    _last_step: ClassVar[int | None]  # of values that are even steps apart

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
                    given = type(value).__name__
                    raise self.error(f": {item.name} must be True or False, got {given}.")
                self._store(item.name, bool(value))
        if self.dtype is not None:
            self._check_dtype(self.dtype)

    @property
    def coordinates(self) -> list[str]:
        """Names of the coordinates of a point that stands for a value."""
        return [self.name, *([f"{self.name} is missing"] if self.missing else [])]

    def encode(self, values: Any) -> FloatArray:
        """Return a point of norm 1 at most for each value.

        A line from -1 to 1, and where values may be missing one coordinate more, which is 1 where
        a value is missing; the other is then 0.
        """
        unit = self.to_places(values)
        missing = np.isnan(unit)
        places = np.where(missing, 0.0, 2 * np.where(missing, 0.0, unit) - 1)[:, None]
        return np.column_stack([places, missing]) if self.missing else places

    def decode(self, points: FloatArray) -> pd.Series:
        """Return the values whose points are nearest."""
        unit = np.clip((points[:, 0] + 1) / 2, 0.0, 1.0)
        if self.missing:
            unit[self._is_missing(*points.T)] = np.nan
        return self.from_places(unit)

    def to_places(self, values: Any) -> FloatArray:
        """Return the place of each value in [0, 1] that it is encoded by, or NaN."""
        return self.to_unit(values)

    def from_places(self, places: FloatArray) -> pd.Series:
        """Return the values at such places."""
        return self.from_unit(places)

    def _is_missing(self, position: FloatArray, mask: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether the point of missing values is nearer than that of any value.

        Values lie at (p, 0) with abs(p) <= 1, missing ones at (0, 1). The point (x, m) is as far
        from both where 2 m = 1 + 2 x p - p^2, p being the value that is nearest to x.
        """
        nearest = np.clip(position, -1.0, 1.0)
        if (last := self._last_step) is not None:
            nearest = np.rint((nearest + 1) / 2 * last) / max(last, 1) * 2 - 1
        return 2 * mask > 1 + 2 * position * nearest - nearest**2

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column of which only public facts are known."""
        return cls(name, dtype=dtype, missing=missing)

    @classmethod
    def from_texts(cls, texts: list[str], base: "TableColumn") -> "tuple[TableColumn | None, str]":
        """Return a column of this kind that reads all of the distinct texts, and why."""
        return None, ""

    def guessed(self, values: PlainColumn, keep: bool) -> tuple["TableColumn | None", str]:
        """Return the column that values suggest, None to leave it out, and a note or nothing."""
        return self, ""

    def left_open(self) -> "TableColumn":
        """Return the column without anything that may come from values."""
        return self

    def bind(self, dtype: str) -> Self:
        """Return a copy with a data type, if it has none: that of a table, or of what it reads."""
        if self.reads_texts and dtype_family(dtype) == "text" and dtype not in self.families:
            dtype = self.default
        return self if self.dtype is not None else self.replace(dtype=dtype)

    def stated(self) -> Self:
        """Return a copy that states its data type, so that no text in a file can."""
        return self.bind(self.default)

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return texts of a file, which are read when the column is, each by itself."""
        return strings(present_texts(texts, missing))

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as metrics and figures compare them."""
        return values

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields as JSON can hold them; how texts are read, if stated."""
        stated = {item.name: getattr(self, item.name) for item in fields(self)}
        unread = [name for name in ("written", "formats", "knots") if not stated.get(name)]
        return {"kind": self.kind} | {n: v for n, v in stated.items() if n not in unread}

    def read(self, values: Any) -> PlainColumn:
        """Read values, unless they have been read, and refuse those that the column cannot hold."""
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
        """Return whether a text stands for a missing value."""
        return is_nothing(text)

    def finish(
        self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], dtype: str
    ) -> pd.Series:
        """Return decoded values as a Series of the data type of the column."""
        target = pandas_dtype(dtype, self.missing)
        series = pd.Series(values, dtype=values.dtype)
        if self.missing and values.dtype.kind in "biu":
            series = series.convert_dtypes()  # that can miss values, so that integers stay exact
        if missing.any():
            series = series.mask(missing)
        if target == np.dtype(object):
            return series.astype(object).where(~missing, None)
        if isinstance(target, np.dtype) and target.kind == "f":
            return pd.Series(series.to_numpy(dtype=target, na_value=np.nan))
        return series.astype(target)

    def check_missing(self, missing: npt.NDArray[np.bool_]) -> None:
        """Refuse to decode missing values in a column that has none."""
        if missing.any() and not self.missing:
            raise self.error(" has missing=False, but missing values were to be decoded.")

    def error(self, text: str) -> ValueError:
        """Return an error that begins with the name of the column."""
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
        """Set a field of the frozen instance while it is being made."""
        object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        chosen = [repr(self.name)]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "name" and value != item.default:
                chosen.append(f"{item.name}={_short(value)}")
        return f"{type(self).__name__}({', '.join(chosen)})"


def _short(value: object) -> str:
    """Write a value; of a long list the first entries and the length only."""
    if isinstance(value, tuple) and len(value) > 8:
        return f"({', '.join(map(repr, value[:6]))}, ... {len(value)} in all)"
    return repr(value)
