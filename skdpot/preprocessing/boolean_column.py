"""Columns of the two truth values."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_values import category_key, distinct_values

__all__ = ["BooleanColumn"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class BooleanColumn(TableColumn):
    """True and False.

    Parameters
    ----------
    name : str
        Name of the column.
    missing : bool, default=False
        Whether values may be missing, which is public.
    dtype : str, optional
        Data type of decoded values: "bool", "boolean", "object" or a number; by default that of
        the table that an encoder is fitted on. Where values may be missing, "bool" becomes
        "boolean" in pandas.

    Raises
    ------
    ValueError
        If a field is not valid.

    Examples
    --------
    >>> from skdpot.preprocessing import BooleanColumn
    >>> BooleanColumn("member").to_codes([True, False])
    array([1, 0])
    """

    kind: ClassVar[str] = "boolean"
    families: ClassVar[tuple[str, ...]] = ("boolean", "text", "integer", "float")

    levels: ClassVar[tuple[bool, bool]] = (False, True)
    n_categories: ClassVar[int] = 2
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.dtype in ("str", "string"):
            raise ValueError(
                f"Column {self.name!r}: a boolean column cannot have the data type {self.dtype!r}; "
                "declare texts as a categorical column."
            )

    def describe(self) -> str:
        """Say in a few words which values the column can have."""
        return "True and False"

    def to_codes(self, values: Any) -> IntArray:
        """Return 1 for True and 0 for False.

        Parameters
        ----------
        values : Series of pandas or polars, or array-like of shape (n_rows,)
            Booleans, or the numbers 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows,), int64
            -1 where a value is missing.

        Raises
        ------
        ValueError
            If something is neither, or misses although `missing` is False. The message names the
            column and quotes no value.
        """
        column = self.read(values)
        codes, uniques = distinct_values(column)
        keys = [category_key(value) for value in uniques]
        if any(key is None or key[0] == "text" or key[1] not in (0, 1) for key in keys):
            raise ValueError(
                f"Column {self.name!r} must hold True and False, or 1 and 0. Declare it as a "
                "categorical column if it has other values."
            )
        table = np.array([*(int(key[1]) for key in keys if key is not None), -1], dtype=np.int64)
        return table[codes]

    def from_codes(self, codes: npt.ArrayLike) -> pd.Series:
        """Return True for 1 and False for 0.

        Parameters
        ----------
        codes : array-like of int of shape (n_rows,)
            -1 is a missing value.

        Returns
        -------
        Series of shape (n_rows,)
            Of the data type of the column.

        Raises
        ------
        ValueError
            If a code is out of range, or -1 although `missing` is False.
        """
        positions = self.checked_codes(codes, 2)
        return self.finish(positions == 1, positions < 0, self.dtype or "bool")
