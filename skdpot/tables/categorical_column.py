"""Columns of categories, and of truth values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.nothing import is_nothing
from skdpot.tables.column_base import ONE_VALUE, UNSHOWN, TableColumn
from skdpot.tables.column_values import PlainColumn, category_key
from skdpot.tables.dtypes import category_dtype, dtype_family
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.numeric_column import no_number
from skdpot.tables.texts import present_texts, strings, text_numbers

_OTHER = "other"
# Kinds of `category_key` that each family of data types can hold.
_HOLDS = {"text": "text", "integer": "number", "float": "number", "boolean": "boolean"}

# A guess from values.
_FEW = 100  # distinct texts that are listed as categories
_MOST_DISTINCT = 0.5  # share of the rows; texts with more distinct values look like identifiers,
_FEW_ROWS = 20  # unless there are fewer rows
_CODE = re.compile(r"0\d+", re.ASCII)
_A_WORD = 4  # mean number of words per text, from which on it is free text

_TRUE = ("true", "t", "yes", "y", "on", "ja", "j", "oui", "si", "sí", "sì", "sim", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "off", "nein", "nee", "non", "não", "0", "0.0")
_SPELLED = {
    spelled: truth
    for truth, words in enumerate((_FALSE, _TRUE))
    for word in words
    for spelled in (word, word.capitalize(), word.upper())
}


class CodedColumn(TableColumn):
    """Base class of columns of categories, which are coded by their places in `levels`."""

    levels: tuple[Any, ...]  # all possible values
    ordered: bool
    other: Any = None
    _places: dict[Any, int]  # places of levels by `category_key`

    @property
    def n_categories(self) -> int:
        """Number of categories, including the one for other values."""
        return len(self.levels)

    def to_codes(self, values: Any) -> IntArray:
        """Return the place of each value in `levels`, -1 if missing; shape (n_rows,)."""
        column = self.read(values)
        unknown = -1 if self.likely_empty is None else self.likely_empty
        places = [*(self._places.get(key, unknown) for key in column.keys), -1]
        return np.array(places, dtype=np.int64)[column.distinct[0]]

    def from_codes(self, codes: npt.ArrayLike) -> pd.Series:
        """Return the categories at places in `levels`; -1 is missing."""
        positions, last = np.asarray(codes), self.n_categories - 1
        integers = positions.dtype.kind in "iu"
        if positions.size and not (integers and -1 <= positions.min() <= positions.max() <= last):
            raise self.error(f": codes must be integers from -1 (missing) to {last}.")
        positions = positions.astype(np.int64)
        missing = positions < 0
        self.check_missing(missing)
        dtype = self.dtype or self.default
        family = dtype_family(dtype)
        if (inside := category_dtype(dtype)) is not None:
            index = pd.Index(list(self.levels), dtype=object)
            if inside != "object" and not any(_misfit(key, inside) for key in self._places):
                index = index.astype(inside)
            kinds = pd.CategoricalDtype(index, ordered=self.ordered)
            return pd.Series(pd.Categorical.from_codes(positions, dtype=kinds))
        held = {"text": "object", "integer": dtype.lower(), "boolean": "bool"}
        levels = np.array([*self.levels, None if family == "text" else 0], held.get(family, "f8"))
        return self.finish(levels[positions], missing, dtype)

    def level(self, value: Any) -> int | None:
        """Return the place of a category, None if it is not listed."""
        return None if (key := category_key(value)) is None else self._places.get(key)

    def grid(self) -> "ColumnGrid":
        """Return one cell per category."""
        return ColumnGrid(self, self.n_categories, self.ordered)

    @property
    def likely_empty(self) -> int | None:
        """Place of the category for all other values; None without one."""
        return None if self.other is None else self.level(self.other)

    def to_unit(self, values: Any) -> FloatArray:
        """Return the place of each category in their order, in [0, 1]; NaN if missing."""
        codes = self.to_codes(values)
        return np.where(codes < 0, np.nan, codes / max(self.n_categories - 1, 1))

    def from_unit(self, unit: npt.ArrayLike) -> pd.Series:
        """Return the categories nearest to places in their order."""
        places = np.asarray(unit, dtype=np.float64)
        missing = np.isnan(places)
        codes = np.rint(np.where(missing, 0.0, places) * (self.n_categories - 1))
        return self.from_codes(np.where(missing, -1, codes).astype(np.int64))

    @property
    def coordinates(self) -> list[str]:
        """One name per category if they have no order."""
        names = super().coordinates
        if self.ordered:
            return names
        return [*(f"{self.name}={level}" for level in self.levels), *names[1:]]

    def encode(self, values: Any) -> FloatArray:
        """Return a point of norm at most 1 per value: without an order, a corner of the simplex."""
        if self.ordered:
            return super().encode(values)
        codes = self.to_codes(values)
        points = np.zeros((len(codes), self.n_categories + self.missing))
        points[np.arange(len(codes)), np.where(codes < 0, self.n_categories, codes)] = 1.0
        return points

    def decode(self, points: FloatArray) -> pd.Series:
        """Return the categories with the nearest points."""
        if self.ordered:
            return super().decode(points)
        codes = np.argmax(points, axis=1)
        return self.from_codes(np.where(codes == self.n_categories, -1, codes))

    @property
    def _last_step(self) -> int | None:
        return self.n_categories - 1

    def to_sdv(self) -> dict[str, str]:
        """Return the description of the column in metadata of SDV."""
        return {"sdtype": self.kind}

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as text, ordered like the categories if they have an order."""
        names = list(map(str, self.levels))
        if len(set(names)) < len(names):  # such as the number 1 and the text "1"
            names = list(map(repr, self.levels))
        codes = self.to_codes(values)
        return pd.Series(pd.Categorical.from_codes(codes, pd.Index(names), ordered=self.ordered))


@dataclass(frozen=True, repr=False)
class BooleanColumn(CodedColumn):
    """Boolean values.

    Texts are read as such too: true, yes, y, on, 1, ja, oui, si and their opposites, in lower or
    upper case or capitalized.

    Parameters
    ----------
    name : str
        Name of the column.
    missing : bool, default=False
        Whether values may be missing; this is public.
    dtype : str, optional
        Data type of decoded values: "bool", "boolean", "object" or a number; by default that of
        the table of the fit. Where values may be missing, "bool" becomes "boolean" in pandas.

    Raises
    ------
    ValueError
        If a field is invalid.

    Examples
    --------
    >>> from skdpot.preprocessing import BooleanColumn
    >>> BooleanColumn("member").to_codes([True, False])
    array([1, 0])
    """

    kind: ClassVar[str] = "boolean"
    families: ClassVar[tuple[str, ...]] = ("boolean", "object", "integer", "float")

    is_numbered: ClassVar[bool] = True
    reads_texts: ClassVar[bool] = True
    default: ClassVar[str] = "bool"
    nouns: ClassVar[str] = "True and False"

    levels = (False, True)
    ordered = True
    _places = {
        **{(kind, truth): truth for kind in ("boolean", "number") for truth in (0, 1)},
        **{("text", spelled): truth for spelled, truth in _SPELLED.items()},
    }

    @classmethod
    def from_texts(cls, texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
        """Return a column of truth values if they are spelled in several ways."""
        truths = [_SPELLED.get(text) for text in texts]
        if None in truths or len(texts) <= 2:  # two texts stay categories, with their spelling
            return None, ""
        true, false = (", ".join(t for t in sorted(texts) if _SPELLED[t] == k) for k in (1, 0))
        why = f"True is written {true or 'nowhere'}; False {false or 'nowhere'}"
        return cls(base.name, missing=base.missing), why

    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words."""
        return self.nouns

    def read(self, values: Any) -> PlainColumn:
        """Read values; refuse values that are neither True nor False."""
        column = super().read(values)
        if not self._places.keys() >= set(column.keys):
            raise self.error(
                " must hold True and False, 1 and 0, or texts such as yes and no. Name missing "
                "values (--missing), or declare its categories."
            )
        return column

    def grid(self) -> ColumnGrid:
        """Return two cells without an order."""
        return ColumnGrid(self, 2, False)

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return texts of a file as truth values."""
        return self.from_codes(self.to_codes(strings(present_texts(texts, missing))))

    def condition(self, text: str) -> bool | None:
        """Return a truth value that a user typed, None for a missing value."""
        if text and text.lower() not in _SPELLED:
            raise ValueError(f"{self.name!r} must be True or False, got {text!r}.")
        return bool(_SPELLED[text.lower()]) if text else None


@dataclass(frozen=True, repr=False)
class CategoricalColumn(CodedColumn):
    """Values from a list of categories.

    Parameters
    ----------
    name : str
        Name of the column.
    categories : sequence of str, int, float or bool, optional
        Public list of categories. If None, frequent categories are selected privately.
    ordered : bool, default=False
        Whether the order of the list matters; the column is then encoded as one coordinate
        instead of one per category.
    other : str, int, float or bool, optional
        Category for all values that are not in the list. It may be in the list; otherwise it comes
        last. If None, such values count as missing if `missing` is True, and are refused otherwise.
    missing : bool, default=False
        Whether values may be missing; this is public.
    dtype : str, optional
        Data type of decoded values, such as "str", "object", "category[str]" or "int64"; by
        default that of the table that an encoder is fitted on.

    Raises
    ------
    ValueError
        If a field is invalid, or a category occurs twice or does not fit the data type.

    Notes
    -----
    Numbers are compared by value: 1 and 1.0 are the same category, True is another. Every text of a
    table is a value, the empty one and "NA" too; None and NaN are missing. In files what shows
    nothing is missing, unless it is listed.

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
    default: ClassVar[str] = "object"
    nouns: ClassVar[str] = "texts"

    _: KW_ONLY
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
            raise self.error(": categories must be a list, or None.")
        categories = tuple(self._plain(value, "categories") for value in self.categories)
        self._store("categories", categories)
        if len(set(map(category_key, categories))) < len(categories):
            raise self.error(": a category is listed twice.")
        if not self.levels:
            raise self.error(" needs at least one category, or other=.")

    @classmethod
    def from_dtype(cls, name: str, dtype: str, missing: bool) -> Self:
        """Return a column from public facts alone; only truth values are known categories."""
        known = (False, True) if dtype == "category[bool]" else None
        return cls(name, dtype=dtype, missing=missing, categories=known)

    @property
    def is_resolved(self) -> bool:  # type: ignore[override]
        """Whether the list of categories is known."""
        return self.categories is not None

    @cached_property
    def levels(self) -> tuple[Any, ...]:  # type: ignore[override]
        """All possible values: the categories, and `other` if it is not listed."""
        if self.categories is None:
            raise self.error(
                " has no categories yet: state them, or let a TableEncoder select them privately."
            )
        known = {category_key(category) for category in self.categories}
        extra = self.other is not None and category_key(self.other) not in known
        return (*self.categories, self.other) if extra else self.categories

    @property
    def is_numbered(self) -> bool:  # type: ignore[override]
        """Whether an array of numbers can hold the values."""
        return all(isinstance(level, int | float) for level in self.categories or ())

    @cached_property
    def _places(self) -> dict[Any, int]:  # type: ignore[override]
        return {category_key(level): place for place, level in enumerate(self.levels)}

    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words: the first categories, or all of them (`in_full`)."""
        if self.categories is None:
            return "categories to be selected privately"
        kind = f"{'ordered ' if self.ordered else ''}"
        kind += "category" if len(self.levels) == 1 else "categories"
        if in_full:
            texts = [text if text.strip() else repr(text) for text in map(str, self.levels)]
        else:
            texts = [*map(str, self.levels[:5]), *["..."][: len(self.levels) > 5]]
        return f"{len(self.levels)} {kind}: {', '.join(texts)}"

    def read(self, values: Any) -> PlainColumn:
        """Read values; refuse values that are not categories.

        Without a list only values are refused that can be no category of the data type.
        """
        column = super().read(values)
        if None in column.keys:
            raise self.error(
                " holds something that is neither a string nor a finite number nor a boolean. "
                "Convert it first."
            )
        if self.is_resolved:
            known = self._places.keys()
            if not (self.missing or self.other is not None or known >= set(column.keys)):
                raise self.error(
                    f" holds a value that is not among its {len(self.levels)} categories. List it, "
                    "state a category for all others (other=), or set missing=True."
                )
        elif self.dtype is not None:
            for key in column.keys:
                if key is not None and (why := _misfit(key, self.dtype)):
                    raise self.error(
                        f" must hold {why}, for its data type is {self.dtype!r}. Convert the "
                        f"column, or change the schema {UNSHOWN}."
                    )
        return column

    def _is_nothing(self, text: str) -> bool:
        """Every text is a category, also one that means a missing value elsewhere."""
        return False

    def labels(self, values: PlainColumn) -> npt.NDArray[Any]:
        """Return the values from which categories are selected; equal numbers have one type."""
        if values.values.dtype.kind != "O":
            return values.present
        codes = values.distinct[0]
        plain = np.empty(len(values.keys), dtype=object)
        whole = (key for key in values.keys if key)
        plain[:] = [int(v) if k == "number" and v == int(v) else v for k, v in whole]
        return plain[codes[codes >= 0]]

    def listed(self, selected: tuple[Any, ...]) -> Self:
        """Return the column with released categories, and one for all other values."""
        other = self.other
        if other is None:
            dtype, taken = self.dtype or "object", set(map(category_key, selected))
            names = _candidate_names(category_dtype(dtype) or dtype)
            # None: every value of the data type was selected, and no other value is possible.
            other = next((name for name in names if category_key(name) not in taken), None)
        return self.replace(categories=selected, other=other)

    def _plain(self, value: Any, field: str) -> Any:
        """Return a category as a plain Python value of the data type."""
        key = category_key(value)
        if key is None:
            raise self.error(f": {field} must hold strings, numbers or booleans.")
        if self.dtype is None:
            return key[1]
        if why := _misfit(key, self.dtype):
            raise self.error(f": {field} must hold {why}, for its data type is {self.dtype!r}.")
        return int(key[1]) if dtype_family(self.dtype) == "integer" else key[1]

    def left_open(self) -> Self:
        """Return the column without categories and their order."""
        return self.replace(categories=None, other=None, ordered=False)

    def guessed(self, values: PlainColumn, keep: bool) -> tuple[TableColumn | None, str]:
        """List few distinct values; leave out values that look like identifiers."""
        n = len(values.present)
        if self.categories is not None and not keep:  # the data type lists them
            why = _identifiers(self.levels, n)
            return (None, why) if why else (self, "")
        column, keys = self.left_open(), values.keys
        if None in keys:
            return None, "left out: it holds things that are neither strings nor numbers."
        if all(key[0] == "boolean" for key in keys if key):
            return BooleanColumn(column.name, missing=column.missing, dtype=column.dtype), ""
        if not keep and (why := _identifiers(values.distinct[1], n)):
            return None, why
        codes = any(isinstance(v, str) and _CODE.fullmatch(v) for v in values.distinct[1])
        notes = ["digits with a leading zero are codes and no numbers."] if codes else []
        if len(keys) > _FEW or keep:
            notes.append(
                f"has {len(keys)} distinct texts; frequent ones will be selected privately. If "
                "all are public, --category COLUMN lists them."
            )
            return column, " ".join(notes)
        if len(keys) == 1:
            notes.append(ONE_VALUE)
        elif len(keys) == n:
            notes.append("every text occurs once. Is it an identifier?")
        ordered = sorted(key for key in keys if key)
        return column.replace(categories=[key[1] for key in ordered]), " ".join(notes)

    def _held(self) -> str:
        """Return the kind of the categories: "text", "number", "boolean" or "several"."""
        if self.categories is not None:
            kinds = {key[0] for key in self._places}
            return kinds.pop() if len(kinds) == 1 else "several"
        if self.dtype is None:
            return "text"
        family = dtype_family(category_dtype(self.dtype) or self.dtype)
        return "number" if family in ("integer", "float") else "text"

    def stated(self) -> Self:
        """Return a copy with a fixed data type, so that texts of a file cannot change it."""
        return self.bind("str" if self._held() == "text" else self.default)

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return the texts of a file as categories; a listed text is not missing."""
        known = self.levels if self.is_resolved else ()
        levels: dict[Any, Any] = {str(level): level for level in known}
        held = self._held()
        if held == "number":
            missing = missing.union(filter(is_nothing, set(texts)))
        values = present_texts(texts, missing, levels)
        if held == "number":
            numbers = text_numbers(values)
            if numbers is None:
                raise no_number(self.name)
            return pd.Series(numbers, dtype=object)
        if held == "text":
            return strings(values)
        return pd.Series([levels.get(value, value) for value in values], dtype=object)

    def condition(self, text: str) -> Any:
        """Return a category, a list of categories separated by commas, or None for missing."""
        if not self.is_resolved:
            return text or None
        levels = {str(level): level for level in self.levels}
        if text in levels:
            return levels[text]
        parts = [part.strip() for part in text.split(",")]
        if text and all(part in levels for part in parts):
            return [levels[part] for part in parts]
        return text or None


def _misfit(key: tuple[str, Any], dtype: str) -> str:
    """Return the values of a data type, in words, if it cannot hold this category; else ""."""
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


def _candidate_names(dtype: str) -> Iterable[Any]:
    """Return the categories that a data type can hold, unlikely ones first."""
    family = dtype_family(dtype)
    if family == "integer":
        limits = np.iinfo(dtype.lower())
        if limits.min == 0:
            return range(limits.max, -1, -1)
        return chain(range(-1, limits.min - 1, -1), range(limits.max + 1))
    if family == "float":
        return count(-1, -1)
    return (_OTHER + "_" * length for length in count())


def _identifiers(distinct: Sequence[Any], n: int) -> str:
    """Return why the distinct texts of `n` rows are no list of categories; else ""."""
    if n < _FEW_ROWS or len(distinct) <= _MOST_DISTINCT * n:
        return ""
    n_words = sum(len(text.split()) for text in distinct if isinstance(text, str))
    kind = "free text" if n_words >= _A_WORD * len(distinct) else "identifiers"
    return (
        f"left out: {len(distinct)} distinct texts in {n} rows look like {kind}. Drop the column, "
        "or leave it excluded. A column made from it (a length, a topic, a group) can be kept."
    )
