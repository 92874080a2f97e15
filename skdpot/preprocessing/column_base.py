"""What the columns of a schema have in common."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.table_dtypes import dtype_family, pandas_dtype
from skdpot.preprocessing.table_values import PlainColumn, read_column

__all__ = ["TableColumn"]


@dataclass(frozen=True, repr=False)
class TableColumn:
    """Base class of the columns of a schema.

    Parameters
    ----------
    name : str
        Name of the column.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values; by default that of the table that an encoder is fitted on.

    Raises
    ------
    ValueError
        If a field is not valid; the message names the column and the field.
    """

    kind: ClassVar[str]
    families: ClassVar[tuple[str, ...]]

    name: str
    _: KW_ONLY
    missing: bool = False
    dtype: str | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                f"A column needs a name that is a string, got {type(self.name).__name__}; rename "
                "the columns of a table with strings."
            )
        for item in fields(self):
            if item.type in (bool, "bool"):
                self._store(item.name, self._boolean(item.name))
        if self.dtype is not None:
            self._check_dtype(self.dtype)

    @property
    def is_resolved(self) -> bool:
        """Whether nothing is left to be estimated privately."""
        return True

    def describe(self) -> str:
        """Say in a few words which values the column can have."""
        raise NotImplementedError

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column of which only public facts are known."""
        return cls(name, dtype=dtype, missing=missing)

    def bind(self, dtype: str) -> Self:
        """Return a copy that has the data type of a table, if it has none of its own."""
        return self if self.dtype is not None else self.replace(dtype=dtype)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked again."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields as JSON can hold them."""
        return {"kind": self.kind} | {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """Rebuild a column from the fields that `to_dict` returned, without the kind."""
        known = {item.name for item in fields(cls)}
        for key in entries:
            if key not in known:
                raise ValueError(
                    f"A {cls.kind} column has no field {key!r:.40}; there are "
                    f"{', '.join(sorted(known))}."
                )
        if "name" not in entries:
            raise ValueError(f"A {cls.kind} column of the schema has no name.")
        return cls(**entries)

    def read(self, values: Any) -> PlainColumn:
        """Read values and refuse missing ones that the column does not allow.

        Raises
        ------
        ValueError
            Naming the column, never quoting a value.
        """
        try:
            column = read_column(values)
        except ValueError as error:
            raise ValueError(f"Column {self.name!r}: {error}.") from None
        if column.missing.any() and not self.missing:
            raise ValueError(
                f"Column {self.name!r} misses values, but missing=False in its schema. Set "
                "missing=True (it is then public that values can be missing), or fill them."
            )
        return column

    def finish(
        self, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_], dtype: str
    ) -> pd.Series:
        """Return decoded values as a Series of the data type of the column."""
        self.check_missing(missing)
        target = pandas_dtype(dtype, self.missing)
        series = pd.Series(values, dtype=values.dtype)
        if self.missing and values.dtype.kind in "biu":
            # Through a type that can miss values, so that integers stay exact.
            nullable: Any = {"b": "boolean", "i": "Int64", "u": "UInt64"}
            series = series.astype(nullable[values.dtype.kind])
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
            raise ValueError(f"Column {self.name!r} has missing=False: there is none to decode.")

    def checked_codes(self, codes: npt.ArrayLike, n_categories: int) -> npt.NDArray[np.int64]:
        """Return codes as integers and refuse those that are out of range."""
        given = np.asarray(codes)
        whole = given.dtype.kind in "iu" or given.size == 0
        if not whole or (given.size and not -1 <= given.min() <= given.max() < n_categories):
            raise ValueError(
                f"Column {self.name!r}: codes must be integers from -1 (missing) to "
                f"{n_categories - 1}."
            )
        return given.astype(np.int64)

    def _check_dtype(self, dtype: Any) -> None:
        try:
            family = dtype_family(dtype) if isinstance(dtype, str) else ""
        except ValueError as error:
            raise ValueError(f"Column {self.name!r}: {error}.") from None
        if family not in self.families:
            raise ValueError(
                f"Column {self.name!r}: a {self.kind} column cannot have the data type {dtype!r}; "
                f"it must hold {' or '.join(self.families)} values. Choose another kind of column."
            )

    def _boolean(self, field: str) -> bool:
        value = getattr(self, field)
        if not isinstance(value, bool | np.bool_):
            raise ValueError(
                f"Column {self.name!r}: {field} must be True or False, got {type(value).__name__}."
            )
        return bool(value)

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
