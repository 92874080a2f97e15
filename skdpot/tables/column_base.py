"""What a column of a schema does, on a scale or of categories.

A kind of column is a class in a file of its own and a line in `skdpot.tables.proposals`.
It reads values, each by itself: an array has one data type, and one half among integers would make
floats of them all, so that the value of one person would change how those of others are read and
a record would no longer move one count by one.
"""

import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray
from skdpot._utils.nothing import is_blank, is_nothing
from skdpot.tables.frames import PlainColumn, dtype_family, pandas_dtype, read_column
from skdpot.tables.grids import ColumnGrid, Rounding

_FIRST_CUTS, _FIRST_EVEN_CUTS = 256, 20  # of a scale, without and with orders of magnitude
ONE_VALUE = "has one value, on which a fit spends nothing."
UNSHOWN = "(not shown: it may be private)"
OTHER_KIND = f"Convert it, or declare a column of another kind {UNSHOWN}."
LARGEST_UNEVEN = 2**40  # integers on a scale that is not even, so that roundings lose none
_MAX_VALUES = 512  # numbers and times with at most so many possible values have a cell for each


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


@dataclass(frozen=True, repr=False)
class ScaledColumn(TableColumn):
    """Base class of columns of values between two bounds, which have places in [0, 1]."""

    on_scale: ClassVar[bool] = True
    figure: ClassVar[str] = "number"

    log_scale = False  # whether places are logarithmic rather than even
    n_values: ClassVar[int | None]  # None for a continuum, or while a bound is not known
    step: ClassVar[float]  # between neighbouring values as `numbers` has them, 0 for a continuum
    span: ClassVar[tuple[float, float]]  # bounds in the same numbers, infinite while not known
    numbers: ClassVar[Callable[..., FloatArray]]  # that stand for values, NaN for missing ones
    from_numbers: ClassVar[Callable[..., pd.Series]]  # the values that such numbers stand for
    _bounds_are: ClassVar[str]  # what they must be,
    _bound: ClassVar[Callable[..., Any]]  # and such a value in its plain type, or else None
    rounding: ClassVar[Rounding]  # of the numbers that `lattice` returns
    _length: ClassVar[Callable[..., float]]  # of what lies between the bounds
    _distances: ClassVar[Callable[..., FloatArray]]  # of values from the lower bound
    _at: ClassVar[Callable[..., pd.Series]]  # the values at such distances
    wanted: ClassVar[str]  # in a condition
    _end: ClassVar[Callable[..., Any]]  # of an interval in a condition, or None for what is none
    _inside: ClassVar[Callable[..., tuple[Any, Any, float, float]]]  # its values and their places

    _: KW_ONLY
    lower: Any = None
    upper: Any = None
    knots: tuple[float, ...] | None = None

    @property
    def is_resolved(self) -> bool:  # type: ignore[override]
        """Whether both bounds are known."""
        return self.lower is not None and self.upper is not None

    @property
    def _last_step(self) -> int | None:  # type: ignore[override]
        uneven = self.log_scale or self.knots is not None
        return None if uneven or self.n_values is None else self.n_values - 1

    @property
    def held_span(self) -> tuple[float, float]:
        """The bounds as numbers of the data type, which may be less exact."""
        lower, upper = self.numbers(self.from_numbers(np.array(self.span))).tolist()
        return lower, upper

    def to_unit(self, values: Any) -> FloatArray:
        """Map values to [0, 1]."""
        self._bounds()
        column = self.read(values)
        unit = np.minimum(self._places(self._distances(column)), 1.0)
        unit[column.missing] = np.nan
        return unit

    def from_unit(self, unit: npt.ArrayLike) -> pd.Series:
        """Map numbers of [0, 1] back to values."""
        numbers = np.asarray(unit, dtype=np.float64)
        missing = np.isnan(numbers)
        self.check_missing(missing)
        places = np.clip(np.where(missing, 0.0, numbers), 0.0, 1.0)
        return self._at(self.steps_at(places), missing)

    def to_places(self, values: Any) -> FloatArray:
        """Return where values are among the knots, amid those that are equal."""
        unit = self.to_unit(values)
        if self.knots is None:
            return unit
        numbers = np.arange(len(self.knots), dtype=np.float64)
        first, after = (np.searchsorted(self.knots, unit, side) for side in ("left", "right"))
        places = np.interp(unit, self.knots, numbers)
        return np.where(after - first > 1, (first + after - 1) / 2, places) / numbers[-1]

    def from_places(self, places: FloatArray) -> pd.Series:
        """Return the values at places among the knots."""
        if self.knots is None:
            return self.from_unit(places)
        numbers = np.arange(len(self.knots), dtype=np.float64)
        return self.from_unit(np.interp(places * numbers[-1], numbers, self.knots))

    def stretched(self, values: FloatArray) -> Self:
        """Return the column with knots at some numbers, unless it has a scale of its own."""
        long = self.n_values is not None and self.n_values > LARGEST_UNEVEN
        if self.log_scale or self.knots is not None or long or self.lower == self.upper:
            return self
        inside = self.replace(missing=False).from_numbers(np.clip(values, *self.span))
        knots = self.replace(missing=False).to_unit(inside)
        return self.replace(knots=(0.0, *knots[1:-1].tolist(), 1.0))

    def left_open(self) -> Self:
        """Return the column without bounds."""
        return self.replace(lower=None, upper=None, knots=None)

    def limits(self, lowest: Any, highest: Any) -> tuple[Any, Any, float, float]:
        """Return the part of an interval inside the bounds, None being no end, and its places."""
        lower, upper = map(self._limit, self._bounds())
        lowest, highest = (None if end is None else self._limit(end) for end in (lowest, highest))
        if lowest is not None and highest is not None and lowest > highest:
            raise self._nothing("the smallest value that it allows exceeds the largest")
        lowest = lower if lowest is None else max(lowest, lower)
        highest = upper if highest is None else min(highest, upper)
        if lowest > highest:
            raise self._nothing(f"its schema has bounds {self.lower!r} and {self.upper!r}")
        return self._inside(lowest, highest)

    def _limit(self, value: Any) -> Any:
        """Return the end of an interval as the values of the column are."""
        if (found := self._end(value)) is None:
            raise ValueError(
                f"The condition on {self.name!r} must be {self.wanted}, or a tuple of two, or of "
                "one and None."
            )
        return found

    def _nothing(self, why: str) -> ValueError:
        return ValueError(
            f"No value of {self.name!r} lies in the interval that conditions asks for: {why}."
        )

    def _check_bounds(self) -> None:
        """Give the bounds their plain type, and refuse what can be none."""
        for side in ("lower", "upper"):
            value = getattr(self, side)
            bound = None if value is None else self._bound(value)
            if value is not None and bound is None:
                raise self.error(f": {side} must be None or {self._bounds_are}.")
            self._store(side, bound)
        if self.knots is not None:
            try:
                knots = np.asarray(self.knots, dtype=np.float64)
                right = knots.ndim == 1 and [knots[0], knots[-1]] == [0.0, 1.0]
                if not right or not (np.diff(knots) >= 0.0).all():
                    raise ValueError
            except (TypeError, ValueError, IndexError):
                raise self.error(
                    ": knots must be None or numbers that begin with 0, do not fall, and end "
                    "with 1."
                ) from None
            self._store("knots", tuple(knots.tolist()))

    def _bounds(self) -> tuple[Any, Any]:
        """Return both bounds, and refuse a column that lacks one."""
        if not self.is_resolved:
            raise self.error(
                " has no bounds yet: state them, or have a TableEncoder estimate them privately."
            )
        return self.lower, self.upper

    def ends(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return where the single values at some places begin and end."""
        if self.n_values is None:
            return places, np.nextafter(places, 2.0)
        steps = np.rint(self.steps_at(places))
        return self._places(steps - 0.5), self._places(steps + 0.5)

    def steps_at(self, places: FloatArray) -> FloatArray:
        """Return the distances from the lower bound at some places."""
        return places * self._length()

    def _places(self, steps: FloatArray) -> FloatArray:
        """Return the places at some distances from the lower bound."""
        return steps / (self._length() or 1.0)

    def lattice(self, places: FloatArray) -> FloatArray:
        """Return the numbers that `rounding` is about."""
        return self.steps_at(places)

    def from_lattice(
        self, places: FloatArray, numbers: FloatArray, rounded: npt.NDArray[np.bool_]
    ) -> pd.Series:
        """Return values at places, or of such numbers where these are round; NaN is missing."""
        whole = rounded & ~np.isnan(places)
        return self.from_unit(np.where(whole, self._off_lattice(numbers), places))

    def _off_lattice(self, numbers: FloatArray) -> FloatArray:
        """Return the places of such numbers."""
        return self._places(numbers)

    def cuts(self, first: float, last: float, most: int, finest: int = 0) -> FloatArray:
        """Return the places of the values in a part that are multiples of the finest step there."""
        low, high = self.lattice(np.array([first, last]))
        found = np.zeros(0)
        for step, phase in zip(self.rounding.steps[::-1], self.rounding.phases[::-1], strict=True):
            start, stop = (math.ceil((round(end, 2) - phase) / max(step, 1)) for end in (low, high))
            if step < max(finest, 1) or stop - start > most:
                break
            found = phase + step * np.arange(start, stop, dtype=np.float64)
        places = self._off_lattice(found)
        return places[(places > first) & (places < last)]

    def _first_cuts(self) -> FloatArray:
        """Return the places of public cuts: equally many in each order of magnitude, or even."""
        if (origin := self.rounding.origin) is None:
            return self.cuts(0.0, 1.0, _FIRST_CUTS)
        digits = np.outer(10.0 ** np.arange(0, 19), np.arange(1, 10)).ravel()
        ends = self.lattice(np.array([0.0, 1.0]))
        # Where zero is far away values may still be close to a bound.
        signed = [(-origin, 1), (-origin, -1), (ends[0], 1), (ends[1], -1)]
        near = signed[:2] if ends[0] <= -origin <= ends[1] else signed[2:]
        places = self._off_lattice(np.concatenate([start + sign * digits for start, sign in near]))
        even = self.cuts(0.0, 1.0, _FIRST_EVEN_CUTS)
        return np.concatenate((places[(places > 0.0) & (places < 1.0)], even))

    def grid(self) -> "ColumnGrid":
        """Return a cell for each value or, if too many, those that are counted first."""
        n_values = 1 if self.lower == self.upper else self.n_values
        if n_values is not None and n_values <= _MAX_VALUES:
            steps = np.arange(n_values + 1, dtype=np.float64) - 0.5
            return ColumnGrid(self, n_values, True, self._places(steps))
        cuts = self.ends(self._first_cuts())[0]
        edges = np.unique(np.concatenate((cuts, *self.ends(self._alone()))))
        return ColumnGrid(self, len(edges) - 1, True, edges)

    def _alone(self) -> FloatArray:
        """Return the places of values that many rows may share: the bounds."""
        return np.array([0.0, 1.0])


def present_texts(
    texts: Sequence[str], missing: frozenset[str], listed: Container[str] = ()
) -> list[str | None]:
    """Return None for texts that mean a missing value or show nothing, unless they are listed."""
    known = set(texts)
    lost = {text for text in known if (text in missing or is_blank(text)) and text not in listed}
    return [None if text in lost else text for text in texts]


def strings(values: Sequence[str | None]) -> pd.Series:
    """Return a column of texts."""
    return pd.Series(values, dtype=pandas_dtype("str", True))


def plain_number(text: str) -> int | float | None:
    """Return the number that a text is for any program, None for what is none."""
    return (text_numbers([text]) or [None])[0]


def text_numbers(values: Iterable[str | None]) -> list[int | float | None] | None:
    """Return integers, and else the nearest doubles, None for NaN; None if a text is no number."""
    try:
        return [None if value is None else _number(value) for value in values]
    except ValueError:  # it quotes the text
        return None


def _number(text: str) -> int | float | None:
    if "_" in text or not text.isascii():  # Python reads more than other programs do
        raise ValueError
    return None if math.isnan(float(text)) else finite_number(text)


def finite_number(digits: str) -> int | float:
    """Return an integer, or the nearest double, which is infinite for the word alone."""
    try:
        return int(digits)
    except ValueError:  # no integer, or one of thousands of digits
        number = float(digits)
    beyond = math.isinf(number) and any(map(str.isdigit, digits))
    return math.copysign(sys.float_info.max, number) if beyond else number


# Names of columns that tell who somebody is, when words for the person are taken off.
_PERSON = r"(patient|person|people|customer|client|employee|student|user|member|contact|subject)s?"
_WHO = re.compile(
    rf"({_PERSON})?((full|first|last|middle|maiden|given|family|sur|fore|nick|user)?names?"
    r"|ids?|identifiers?|(street|home|postal|e?mail|ip)?address(es)?|e?mail"
    r"|(phone|telephone|mobile|passport|socialsecurity)(no|numbers?)?|ssn|mrn|iban)"
)


def tells_who(name: str) -> bool:
    """Return whether the name of a column, which is public, says that it tells who somebody is."""
    word = re.sub(r"[\W_]+", "", name).lower()
    return bool(word) and _WHO.fullmatch(word) is not None
