"""Columns of made-up codes that follow a public pattern."""

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np
import pandas as pd

from skdpot.tables.dtypes import dtype_family, pandas_dtype
from skdpot.tables.rules import Rule

_MOST_CHARACTERS = 64  # of a code, and alternatives
_MOST_DIGITS = 18  # of a code that is an integer of 64 bits
_MOST_CODES = 2**62  # codes that one random number can index
_PART = re.compile(
    r"(?:\\(?P<digit>d)|\\(?P<escaped>[^A-Za-z0-9])|\[(?P<set>[^][\\^]+)\]"
    r"|(?P<plain>[^][\\^$.*+?(){}|]))(?:\{(?P<times>[0-9]{1,3})\})?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Pattern(Rule):
    r"""A column of codes that follow a public pattern: post codes, numbers of patients.

    The column is excluded from the schema, and private codes are not read. A new code is drawn for
    each synthetic row.

    Parameters
    ----------
    column : str
        Name of the column.
    pattern : str
        Regular expression of characters, sets such as ``[A-Z0-9]`` and ``\d``, each of which may
        be repeated: ``[A-Z]{2}-\d{6}``. Alternatives such as ``\d{4}|[A-Z]\d{3}`` are drawn
        equally often.
    unique : bool, default=False
        Whether the rows of a sample have different codes; not for alternatives.
    dtype : str, default="str"
        Data type of the column: "str", "object", or for digits an integer type.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Privacy
    -------
    Nothing of the private column is read. A code may by chance be that of a person.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.preprocessing import Pattern
    >>> codes = Pattern("patient_id", r"P-\d{6}", unique=True).draw(3, np.random.default_rng())
    >>> bool(codes.str.fullmatch(r"P-\d{6}").all()), codes.nunique()
    (True, 3)
    """

    kind: ClassVar[str] = "pattern"

    column: str
    pattern: str
    unique: bool = False
    dtype: str = "str"

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        return f"“{self.column}” has made-up codes{', all different' * self.unique}"

    def __post_init__(self) -> None:
        texts = (self.column, self.pattern, self.dtype)
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.unique, bool):
            raise ValueError("column, pattern and dtype must be texts, and unique True or False.")
        if not (self.column and self.pattern.isascii()):
            raise ValueError("column must not be empty, and pattern must have ASCII characters.")
        slots = [slot for alternative in self._alternatives for slot in alternative]
        family, n_most = dtype_family(self.dtype), max(map(len, self._alternatives))
        digits = n_most <= _MOST_DIGITS and all(slot.isdigit() for slot in slots)
        if not (family == "text" or (family == "integer" and digits)):
            raise self.error("needs the data type str or object, or for few digits one of integers")
        if self.unique and len(self._alternatives) > 1:
            raise self.error("cannot be unique, as it has alternatives")

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column

    @cached_property
    def _alternatives(self) -> list[list[str]]:
        """Possible characters at each place of a code, per alternative."""
        alternatives: list[list[str]] = [[]]
        place = 0
        while place < len(self.pattern):
            if self.pattern[place] == "|":
                alternatives, place = [*alternatives, []], place + 1
                continue
            if (part := _PART.match(self.pattern, place)) is None:
                raise self.error(
                    f"cannot be read at character {place}: use characters, sets such as [A-Z0-9], "
                    r"\d, each with {n} if need be, and a backslash before special characters"
                )
            alternatives[-1] += [_characters(part)] * int(part["times"] or 1)
            place = part.end()
            if max(len(alternatives), len(alternatives[-1])) > _MOST_CHARACTERS:
                raise self.error(f"has more than {_MOST_CHARACTERS} characters or alternatives")
        if not all(slot for alternative in alternatives for slot in alternative or [""]):
            raise self.error("has an alternative or a set that is empty")
        return alternatives

    def draw(self, n_rows: int, rng: np.random.Generator) -> pd.Series:
        """Draw codes.

        Parameters
        ----------
        n_rows : int
            Number of codes.
        rng : Generator
            Source of randomness.

        Returns
        -------
        Series
        """
        kinds, drawn = rng.integers(len(self._alternatives), size=n_rows), None
        for kind, slots in enumerate(self._alternatives):
            places = [rng.integers(len(slot), size=n_rows) for slot in slots]
            if self.unique:  # the first characters are drawn together, as one number
                sizes = [len(slot) for slot in slots]
                n_first = sum(np.cumprod(np.array(sizes, dtype=object)) < _MOST_CODES)
                n_codes = prod(sizes[:n_first])
                if n_rows > n_codes:
                    raise self.error(f"has {n_codes:,} codes, fewer than {n_rows:,} rows")
                first = rng.choice(n_codes, n_rows, replace=False)
                places[:n_first] = np.unravel_index(first, sizes[:n_first])
            characters = [np.array(list(s))[p] for s, p in zip(slots, places, strict=True)]
            codes = np.stack(characters, axis=1).view(f"U{len(slots)}")[:, 0]
            drawn = codes if drawn is None else np.where(kinds == kind, codes, drawn)
        target = pandas_dtype(self.dtype, False)
        return pd.Series(np.asarray(drawn).astype(object)).astype(target)


def _characters(part: re.Match[str]) -> str:
    """Return the distinct characters that are possible at a place of a code."""
    if part["digit"]:
        return "0123456789"
    ranges = re.findall(r"(.)-(.)|(.)", part["set"] or part["escaped"] or part["plain"], re.DOTALL)
    codes = (range(ord(a or single), ord(b or single) + 1) for a, b, single in ranges)
    return "".join(dict.fromkeys(chr(code) for codes in codes for code in codes))
