"""Columns of categories."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_dtypes import category_dtype, dtype_family
from skdpot.preprocessing.table_values import category_key, distinct_values

__all__ = ["CategoricalColumn"]

IntArray = npt.NDArray[np.int64]

_UNKNOWN = -2
# What each family of data types can hold, by the kinds of `category_key`.
_HOLDS = {"text": "text", "integer": "number", "float": "number", "boolean": "boolean"}


@dataclass(frozen=True, repr=False)
class CategoricalColumn(TableColumn):
    """Values from a list of categories.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : sequence of str, int, float or bool, optional
        The public list. None: those that occur often enough are selected privately.
    ordered : bool, default=False
        Whether the order of the list means something; then the column is encoded as one
        coordinate rather than one for each category.
    other : str, int, float or bool, optional
        The category that stands for every value that is not in the list. It may be in the list
        itself; otherwise it comes last. None: other values count as missing where `missing` is
        True, and are refused where it is not.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values, such as "str", "object", "category[str]" or "int64"; by
        default that of the table that an encoder is fitted on.

    Raises
    ------
    ValueError
        If a field is not valid, or a category occurs twice or does not fit the data type.

    Notes
    -----
    Numbers are compared by value: 1 and 1.0 are one category; True is another.

    Examples
    --------
    >>> from skdpot.preprocessing import CategoricalColumn
    >>> colour = CategoricalColumn("colour", categories=["red", "green"], other="another")
    >>> colour.to_codes(["green", "mauve", "red"])
    array([1, 2, 0])
    >>> list(colour.from_codes([1, 2, 0]))
    ['green', 'another', 'red']
    """

    kind: ClassVar[str] = "categorical"
    families: ClassVar[tuple[str, ...]] = ("text", "category", "integer", "float")

    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    other: Any = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.other is not None:
            self._store("other", self._plain(self.other, "other"))
        if self.categories is None:
            return
        if isinstance(self.categories, str) or not isinstance(self.categories, Iterable):
            raise ValueError(f"Column {self.name!r}: categories must be a list, or None.")
        categories = tuple(self._plain(value, "categories") for value in self.categories)
        self._store("categories", categories)
        if len(set(map(category_key, categories))) < len(categories):
            raise ValueError(f"Column {self.name!r}: a category is listed twice.")
        if not self.levels:
            raise ValueError(f"Column {self.name!r} needs at least one category, or other=.")

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column of which only public facts are known: of categories the truth values."""
        known = (False, True) if dtype == "category[bool]" else None
        return cls(name, dtype=dtype, missing=missing, categories=known)

    @property
    def is_resolved(self) -> bool:
        """Whether the list of categories is known."""
        return self.categories is not None

    @cached_property
    def levels(self) -> tuple[Any, ...]:
        """All values that the column can have: the categories, and `other` if it is no such."""
        if self.categories is None:
            raise ValueError(
                f"Column {self.name!r} has no categories yet: state them, or have a TableEncoder "
                "select them privately."
            )
        known = {category_key(category) for category in self.categories}
        extra = self.other is not None and category_key(self.other) not in known
        return (*self.categories, self.other) if extra else self.categories

    @property
    def n_categories(self) -> int:
        """Number of categories, with `other`."""
        return len(self.levels)

    def describe(self) -> str:
        """Say in a few words which values the column can have."""
        if self.categories is None:
            return "categories to be selected privately"
        shown = ", ".join(map(str, self.levels[:5])) + (", ..." if len(self.levels) > 5 else "")
        order = "ordered " if self.ordered else ""
        return f"{len(self.levels)} {order}categories: {shown}"

    def to_codes(self, values: Any) -> IntArray:
        """Return the position of each value in `levels`.

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            The column.

        Returns
        -------
        ndarray of shape (n_rows,), int64
            -1 where a value is missing.

        Raises
        ------
        ValueError
            If a value is not in the list and there is no `other` and `missing` is False, or a
            value is missing although `missing` is False. The message names the column and quotes
            no value.
        """
        column = self.read(values)
        codes, uniques = distinct_values(column)
        positions = {category_key(level): code for code, level in enumerate(self.levels)}
        unknown = _UNKNOWN if self.other is None else positions[category_key(self.other)]
        keys = [self._key(value) for value in uniques]
        table = np.array([*(positions.get(key, unknown) for key in keys), -1], dtype=np.int64)
        found = table[codes]
        if self.other is None and (found == _UNKNOWN).any():
            if not self.missing:
                raise ValueError(
                    f"Column {self.name!r} holds a value that is not among its "
                    f"{len(self.levels)} categories. List it, name a category that takes all "
                    "others (other=), or let them count as missing (missing=True)."
                )
            found[found == _UNKNOWN] = -1
        return found

    def check_values(self, values: Any) -> None:
        """Refuse values that are no categories, whichever the categories will be.

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            The column.

        Raises
        ------
        ValueError
            If one could be no category of the column's data type. The message names the column
            and quotes no value.
        """
        for value in distinct_values(self.read(values))[1]:
            key = self._key(value)
            if self.dtype is not None and (why := _misfit(key, self.dtype)):
                raise ValueError(
                    f"Column {self.name!r} must hold {why}, for its data type is {self.dtype!r}. "
                    "Convert the column, or change the schema (the offending value is not shown "
                    "because it may be private)."
                )

    def from_codes(self, codes: npt.ArrayLike) -> pd.Series:
        """Return the categories at positions in `levels`.

        Parameters
        ----------
        codes : array-like of int of shape (n_rows,)
            Positions; -1 is a missing value.

        Returns
        -------
        Series of shape (n_rows,)
            Of the data type of the column.

        Raises
        ------
        ValueError
            If a code is out of range, or -1 although `missing` is False.
        """
        positions = self.checked_codes(codes, len(self.levels))
        missing = positions < 0
        self.check_missing(missing)
        dtype = self.dtype or "object"
        if (inside := category_dtype(dtype)) is not None:
            taken = pd.Categorical.from_codes(positions, dtype=self._categorical_dtype(inside))
            return pd.Series(taken)
        levels = np.empty(len(self.levels) + 1, dtype=object)
        levels[:] = [*self.levels, None]
        if dtype_family(dtype) == "text":
            return self.finish(levels[positions], missing, dtype)
        held = dtype.lower() if dtype_family(dtype) == "integer" else "float64"
        numbers = np.array([*self.levels, 0], dtype=held)
        return self.finish(numbers[positions], missing, dtype)

    def _categorical_dtype(self, inside: str) -> pd.CategoricalDtype:
        index = pd.Index(list(self.levels), dtype=object)
        keys = [key for level in self.levels if (key := category_key(level))]
        if inside != "object" and not any(_misfit(key, inside) for key in keys):
            index = index.astype(inside)
        return pd.CategoricalDtype(index, ordered=self.ordered)

    def _plain(self, value: Any, field: str) -> Any:
        """Return a category as a plain Python value that fits the data type."""
        key = category_key(value)
        if key is None:
            raise ValueError(
                f"Column {self.name!r}: {field} must hold strings, numbers or booleans."
            )
        if self.dtype is None:
            return key[1]
        if why := _misfit(key, self.dtype):
            raise ValueError(
                f"Column {self.name!r}: {field} must hold {why}, for its data type is "
                f"{self.dtype!r}."
            )
        return int(key[1]) if dtype_family(self.dtype) == "integer" else key[1]

    def _key(self, value: Any) -> tuple[str, Any]:
        key = category_key(value)
        if key is None:
            raise ValueError(
                f"Column {self.name!r} holds something that is neither a string nor a finite "
                "number nor a boolean, and so no category; convert it first."
            )
        return key


def _misfit(key: tuple[str, Any], dtype: str) -> str:
    """Say what a data type holds, if it is no category like this one."""
    family = dtype_family(dtype)
    if family == "category" or dtype == "object":
        return ""
    if key[0] != _HOLDS[family]:
        return f"a {_HOLDS[family]} each"
    if family == "integer":
        limits = np.iinfo(dtype.lower())
        if key[1] != int(key[1]):
            return "integers"
        if not limits.min <= key[1] <= limits.max:
            return f"integers from {limits.min} to {limits.max}"
    return ""
