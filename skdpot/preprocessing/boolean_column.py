"""Columns of the two truth values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot.preprocessing.column_base import CodedColumn, present_texts
from skdpot.preprocessing.table_frames import PlainColumn

__all__ = ["BooleanColumn", "text_truths"]

_TRUTHS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}
_DIGITS = {"1": True, "1.0": True, "0": False, "0.0": False}


@dataclass(frozen=True, repr=False)
class BooleanColumn(CodedColumn):
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

    ordered = True
    is_ranked = False

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.dtype in ("str", "string"):
            raise ValueError(
                f"Column {self.name!r}: a boolean column cannot have the data type {self.dtype!r}; "
                "declare texts as a categorical column."
            )

    @property
    def levels(self) -> tuple[bool, bool]:
        """The two values."""
        return False, True

    def describe(self, *, in_full: bool = False) -> str:
        """Say in a few words which values the column can have."""
        return "True and False"

    @property
    def is_numbered(self) -> bool:
        """Whether an array of numbers can hold the values."""
        return True

    def read(self, values: Any) -> PlainColumn:
        """Read values and refuse what is neither True nor False."""
        column = super().read(values)
        if any(key is None or key[0] == "text" or key[1] not in (0, 1) for key in column.keys):
            raise ValueError(
                f"Column {self.name!r} must hold True and False, or 1 and 0. Declare it as a "
                "categorical column if it has other values."
            )
        return column

    def to_codes(self, values: Any) -> npt.NDArray[np.int64]:
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
        table = np.array([*(int(key[1]) for key in column.keys if key), -1], dtype=np.int64)
        return table[column.distinct[0]]

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
        positions = self.checked_codes(codes)
        return self.finish(positions == 1, positions < 0, self.dtype or "bool")

    def level(self, value: Any) -> int | None:
        """Return 1 for True and 0 for False, and for numbers that are equal."""
        alike = [pd.api.types.is_scalar(value) and level == value for level in self.levels]
        return alike.index(True) if any(alike) else None

    def _text_dtype(self) -> str:
        return "bool"

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return texts of a file as truth values."""
        truths = text_truths(present_texts(texts, missing), _TRUTHS | _DIGITS)
        if truths is None:
            raise ValueError(
                f"Column {self.name!r} holds a text that is neither true nor false (not shown, "
                "because it may be private). Name missing values by --missing, or declare the "
                "column as categorical in the schema."
            )
        return truths

    def condition(self, text: str) -> bool | None:
        """Return a truth value that somebody typed, None for a missing one."""
        known = {"true": True, "1": True, "false": False, "0": False}
        if text and text.lower() not in known:
            raise ValueError(f"{self.name!r} is True or False, not {text!r}.")
        return known.get(text.lower())


def text_truths(values: Sequence[str | None], known: dict[str, bool] = _TRUTHS) -> pd.Series | None:
    """Return texts as nullable booleans, None if some are no truth values."""
    if not known.keys() >= {value for value in values if value is not None}:
        return None
    found = [None if value is None else known[value] for value in values]
    return pd.Series(found, dtype="boolean")
