"""Columns of numbers between two bounds."""

import math
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray
from skdpot.tables.column_base import ONE_VALUE, UNSHOWN, TableColumn
from skdpot.tables.column_values import PlainColumn, as_float, is_real_number
from skdpot.tables.dtypes import dtype_family
from skdpot.tables.rounding import Rounding
from skdpot.tables.scaled_column import LARGEST_UNEVEN, ScaledColumn
from skdpot.tables.texts import finite_number, plain_number

# Larger values count as these: integers that doubles hold, and numbers that can be added up.
LARGEST_INTEGER, LARGEST_NUMBER = 2**62, 1e300
# A few roundings of a double in [0, 1] must stay below half a step of the range.
_LARGEST_RANGE = 2**48
# Digits in which round numbers are sought, far fewer than a double has.
_DIGITS, _SHORT_DIGITS = 13, {"float16": 2, "float32": 5, "Float32": 5}
# Zero, and numbers that often stand for missing values.
_NINES = [10**power - 1 for power in range(2, 10)]
_CODES = [0, -1, *_NINES, *(-number for number in _NINES), -(2**31), 2**31 - 1]
# A guess from values.
_FEW_VALUES = 20  # shorter ranges of integers keep their ends; fewer texts may be categories
_HEAVY = 3.0  # a range that exceeds the 99 % quantile this often has a heavy tail
_LARGEST_GUESS, _LARGEST_LOG_GUESS = 2**53, 2**39  # integers, and integers on a log scale
_MOST, _MOST_UNITS = 0.9, 3  # share of texts that must be numbers, and units among them
_CODE = re.compile(r"[-+]?0\d+", re.ASCII)
_NO_NUMBER = (
    "left out: its texts look like numbers mixed with words, or written in several ways. Write "
    "plain numbers such as 1234.50, and nothing for missing values (or name them by --missing); "
    "pandas.read_csv(path, thousands=',') reads 1,234.50."
)
_MARKS = (
    "left out: its texts look like numbers, but some use a comma as the decimal mark and others a "
    "point. Write them in one way."
)
_UNITS = "left out: its texts are numbers of several units or currencies. Convert them to one."
_WHICH_MARK = (
    "left out: its texts look like numbers, but 1.234 and 1,234 may be 1234 or 1.234, and no text "
    "tells which. State it: --number COLUMN={} or ={}."
)

# Numbers in texts, such as 1,234.50, (1'234.50), EUR -1.234,50 or 75 kg.
_AMOUNT = re.compile(
    r"(?P<open>\()?(?P<sign>[-+])?(?P<before>[$€£¥₹]|[A-Z]{3}(?=\s|-|\d))?\s*(?P<inner>[-+])?"
    r"(?P<number>\d(?:\s*+[\d.,'])*+)\s*+(?P<after>[^\d\s.,'()+-][^\d\s()]*)?(?P<close>\))?"
)
_GROUPED = [
    re.compile(rf"(\d{{1,3}}(?:([{mark}'\s])\d{{3}}(?:\2\d{{3}})*)|\d+)(?:{decimal}(\d+))?")
    for mark, decimal in ((",", r"\."), (r"\.", ","))
]
_EXAMPLE = re.compile(r"\D*(1,234\.50|1\.234,50)\D*")


def written_number(text: str, comma: bool) -> tuple[int | float, str] | None:
    """Return a number and its unit, read with a decimal comma or point; None if it is none."""
    amount = _AMOUNT.fullmatch(text.strip())
    digits = amount and _GROUPED[comma].fullmatch(amount["number"])
    if not (amount and digits) or (amount["open"] is None) != (amount["close"] is None):
        return None
    if (amount["before"] and amount["after"]) or (amount["sign"] and amount["inner"]):
        return None
    whole = re.sub(r"\D", "", digits[1])
    number = finite_number(whole if digits[3] is None else f"{whole}.{digits[3]}")
    negative = amount["open"] or "-" in (amount["sign"], amount["inner"])
    return -number if negative else number, amount["before"] or amount["after"] or ""


@dataclass(frozen=True, repr=False)
class NumericColumn(ScaledColumn):
    r"""Numbers between two bounds, on a linear or a logarithmic scale.

    Parameters
    ----------
    name : str
        Name of the column.
    lower, upper : float, optional
        Public bounds between -1e300 and 1e300; values outside are clipped. If None, estimated
        privately.
    integer : bool, default=False
        Whether the values are integers; other values are rounded. An integer `dtype` implies it.
    log_scale : bool, default=False
        Whether a `TableEncoder` encodes log(1 + x - lower) instead of x - lower, for heavy-tailed
        amounts. Synthetic tables do not need it: their cells are found where the rows are.
    knots : sequence of float, optional
        Scale of a `TableEncoder`: parts of the way from `lower` to `upper`, from 0 to 1, that are
        encoded at even distances. A number that is repeated stands for a value that many rows
        share. If None, the scale is even, or estimated privately (``TableEncoder(scale=)``).
    written : str, optional
        How numbers are written where they are text: "1,234.50" or "1.234,50", with a unit or
        currency if they have one, such as "$1,234.50" or "1.234,50 EUR". Each text may have
        separators of thousands, the unit, and parentheses for negative numbers. They are decoded
        as numbers. If None, texts must be plain numbers, such as "1234.5".
    missing : bool, default=False
        Whether values may be missing; this is public.
    dtype : str, optional
        Data type of decoded values, such as "int64", "Int64" or "float32"; by default that of the
        table of the fit. Where values may be missing, a numpy integer type becomes the nullable
        pandas type.

    Raises
    ------
    ValueError
        If a field is invalid, or the integers span more than 2\ :sup:`48` (2\ :sup:`40` on a
        logarithmic scale or with knots), too many to be distinguished. Within a
        smaller range, integers beyond 2\ :sup:`53` are exact.

    Notes
    -----
    Integers survive encoding and decoding exactly. Other numbers are accurate to 1e-12 of the
    range, or to the precision of the number itself where that is coarser.

    Examples
    --------
    >>> from skdpot.preprocessing import NumericColumn
    >>> age = NumericColumn("age", lower=0, upper=100, integer=True)
    >>> age.to_unit([25, 50, 130])
    array([0.25, 0.5 , 1.  ])
    >>> age.from_unit([0.25, 0.504]).tolist()
    [25, 50]
    """

    kind: ClassVar[str] = "numeric"
    families: ClassVar[tuple[str, ...]] = ("integer", "float")
    is_numbered: ClassVar[bool] = True
    reads_texts: ClassVar[bool] = True
    nouns: ClassVar[str] = "numbers"
    wanted: ClassVar[str] = "a number (True and False are no numbers)"

    _: KW_ONLY
    lower: float | int | None = None
    upper: float | int | None = None
    integer: bool = False
    log_scale: bool = False
    written: str | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.dtype is not None and dtype_family(self.dtype) == "integer":
            self._store("integer", True)
        if self.written is not None:
            if not isinstance(self.written, str) or not _EXAMPLE.fullmatch(self.written):
                raise self.error(
                    ": written must be '1,234.50' or '1.234,50', with a unit or currency before "
                    "or after it if the numbers have one, such as '$1,234.50'."
                )
        self._check_bounds()
        if self.lower is not None and self.upper is not None:
            self._check_range(self.lower, self.upper)

    @property
    def default(self) -> str:  # type: ignore[override]
        """Data type if no table has one."""
        return "int64" if self.integer else "float64"

    @property
    def n_values(self) -> int | None:
        """Number of possible values; None for a continuum, or while a bound is open."""
        if not self.integer or self.lower is None or self.upper is None:
            return None
        return int(self.upper - self.lower) + 1

    def describe(self, *, in_full: bool = False) -> str:
        """Return the possible values in words, with all digits if `in_full`."""
        numbers = "integers" if self.integer else "numbers"
        scale = "on a logarithmic scale" if self.log_scale else ""
        if self.written:
            scale = f"{scale}{', ' * bool(scale)}written like {self.written}"
        if in_full and self.is_resolved:
            shown = f"{numbers} from {self.lower!r} to {self.upper!r}"
            return f"{shown}, {scale}" if scale else shown
        ends = ["?" if end is None else _shown_bound(end) for end in (self.lower, self.upper)]
        private = "" if self.is_resolved else ", bounds to be estimated privately"
        comma = "," if private and scale else ""
        return f"{numbers} from {ends[0]} to {ends[1]}{private}{comma} {scale}".rstrip()

    def _length(self) -> float:
        lower, upper = self._bounds()
        return float(upper - lower)

    def _distances(self, column: PlainColumn) -> FloatArray:
        lower, upper = self._bounds()
        return np.clip(np.where(column.missing, lower, column.values), lower, upper) - lower

    def _at(self, distances: FloatArray, missing: BoolArray) -> pd.Series:
        lower, upper = self._bounds()
        if self.integer:
            values = lower + np.clip(np.rint(distances), 0.0, float(upper - lower)).astype(np.int64)
        else:
            values = np.clip(lower + distances, lower, upper)
        return self.finish(values, missing, self.dtype or self.default)

    def read(self, values: Any) -> PlainColumn:
        """Return integers of 64 bits, or doubles; refuse values that are not finite numbers.

        Each value is converted on its own, whatever the others are.
        """
        column = super().read(values)
        numbers, missing = column.values, column.missing
        if numbers.dtype.kind == "O":
            codes, distinct = column.distinct
            numbers = np.array([*self._numbers_of(distinct), 0], self.default)[codes]
        if numbers.dtype.kind not in "biuf":
            raise no_number(self.name, self.written)
        if numbers.dtype.kind == "f" and np.isinf(numbers[~missing]).any():
            raise self._infinite()
        if self.integer and numbers.dtype.kind == "f":
            rounded = np.rint(np.where(missing, 0.0, numbers.astype(np.float64)))
            numbers = np.clip(rounded, -LARGEST_INTEGER, LARGEST_INTEGER)
        elif self.integer and numbers.dtype.kind == "u":
            numbers = np.minimum(numbers.astype(np.uint64), np.uint64(LARGEST_INTEGER))
        dtype = np.int64 if self.integer else np.float64
        return PlainColumn(numbers.astype(dtype, copy=False), missing, column.dtype)

    def _numbers_of(self, objects: list[Any]) -> list[Any]:
        """Return objects as numbers, each on its own."""
        numbers = [self._number(value) for value in objects]
        if None in numbers:
            raise no_number(self.name, self.written)
        try:
            return self._plain_numbers(numbers)
        except OverflowError:
            raise self._infinite() from None

    def _plain_numbers(self, numbers: list[Any]) -> list[Any]:
        return list(map(as_integer if self.integer else as_float, numbers))

    def _number(self, value: Any) -> Any:
        """Return a value as a number, None if it is none."""
        if isinstance(value, str):
            if self.written is None:
                return plain_number(value)
            amount, example = (written_number(t, self._comma) for t in (value, self.written))
            same_unit = amount and example and amount[1] in ("", example[1])
            return amount[0] if amount and same_unit else None
        return value if is_real_number(value) else None

    @property
    def _comma(self) -> bool:
        return "1.234,50" in (self.written or "")

    @classmethod
    def from_texts(cls, texts: list[str], base: TableColumn) -> tuple[TableColumn | None, str]:
        """Return a column of numbers if all texts are numbers, written in one way."""
        amounts = list(filter(None, (_AMOUNT.fullmatch(text.strip()) for text in texts)))
        units = {amount["before"] or amount["after"] for amount in amounts} - {None}
        marked = any(amount["before"] or not amount["number"].isdigit() for amount in amounts)
        read = [[written_number(text, comma) for text in texts] for comma in (False, True)]
        readable = [any(pair) for pair in zip(*read, strict=True)]
        if (
            sum(readable) <= _MOST * len(texts)
            or len(units) > _MOST_UNITS
            or not (marked or len(texts) > _FEW_VALUES)
            or any(map(_CODE.fullmatch, texts))
        ):
            return None, ""
        ways = [comma for comma in (False, True) if None not in read[comma]]
        if not ways:
            return None, _MARKS if all(readable) else _NO_NUMBER
        if len(units) > 1:
            return None, _UNITS
        unit, before = next(iter(units), ""), any(amount["before"] for amount in amounts)
        space = " " * (len(unit) > 1)
        first, last = (unit + space, "") if before else ("", space + unit)
        point, comma = (f"{first}{example}{last}" for example in ("1,234.50", "1.234,50"))
        if read[ways[0]] != read[ways[-1]]:
            return None, _WHICH_MARK.format(point, comma)
        column = cls(base.name, missing=base.missing)
        if units or any(plain_number(text) is None for text in texts):
            column = column.replace(written=comma if ways[0] else point)
        return column, "all texts are numbers"

    def numbers(self, values: Any) -> FloatArray:
        """Return the values as doubles, NaN if missing."""
        column = self.read(values)
        return np.where(column.missing, np.nan, column.values.astype(np.float64))

    @property
    def step(self) -> float:
        """Difference of neighbouring values; 0 for a continuum."""
        return float(self.integer)

    @property
    def span(self) -> tuple[float, float]:
        """The bounds; an open bound is infinite."""
        lower = -math.inf if self.lower is None else float(self.lower)
        return lower, math.inf if self.upper is None else float(self.upper)

    def from_numbers(self, numbers: FloatArray) -> pd.Series:
        """Return numbers as values of the column; NaN is missing."""
        missing = np.isnan(numbers)
        held = np.where(missing, 0.0, numbers).clip(*self.holds)
        held = np.rint(held).astype(np.int64) if self.integer else held
        return self.finish(held, missing, self.dtype or self.default)

    def bounded(self, lower: float, upper: float, found: bool = True) -> Self:
        """Return the column with released estimates of open bounds."""
        if self.integer:
            lower, upper = float(np.floor(lower)), float(np.ceil(upper))
        low, high = self.holds
        lower, upper = (min(max(bound, low), high) for bound in (lower, upper))
        lower = lower if self.lower is None else self.lower
        upper = upper if self.upper is None else self.upper
        if lower > upper:  # an estimate on the wrong side of a stated bound
            lower, upper = (upper, upper) if self.lower is None else (lower, lower)
        longest = self._longest
        if self.integer and upper - lower > longest:
            above = self.lower is None and self.upper is not None
            lower, upper = (upper - longest, upper) if above else (lower, lower + longest)
        return self.replace(lower=lower, upper=upper)

    def _infinite(self) -> ValueError:
        return self.error(" holds infinity; every value must be finite or missing.")

    @property
    def _bounds_are(self) -> str:
        kind, most = (", an integer", "2^62") if self.integer else ("", "1e300")
        return f"a finite number{kind} between -{most} and {most}"

    def _bound(self, value: Any) -> float | int | None:
        limit = LARGEST_INTEGER if self.integer else LARGEST_NUMBER
        within = is_real_number(value) and abs(value) <= limit
        if not within or (self.integer and value != int(value)):
            return None
        return int(value) if self.integer else float(value)

    def _check_range(self, lower: float, upper: float) -> None:
        if lower > upper:
            raise self.error(f": lower={lower!r} is above upper={upper!r}.")
        if self.integer and upper - lower > self._longest:
            raise self.error(
                f": integers between bounds more than {self._longest} apart cannot be told apart. "
                "Narrow the bounds or use floating-point numbers; exclude identifiers."
            )
        smallest, largest = self.holds
        if lower < smallest or upper > largest:
            raise self.error(f": the bounds are beyond what {self.dtype!r} can hold.")

    @property
    def holds(self) -> tuple[float, float]:
        """Smallest and largest number of the data type."""
        held = (self.dtype or self.default).lower()
        if dtype_family(held) == "integer":
            limits = np.iinfo(held)
            return max(limits.min, -LARGEST_INTEGER), min(limits.max, LARGEST_INTEGER)
        most = min(float(np.finfo(held).max), LARGEST_INTEGER if self.integer else LARGEST_NUMBER)
        return -most, most

    @property
    def _longest(self) -> int:
        """Largest distance between bounds of integers."""
        return LARGEST_UNEVEN if self.log_scale or self.knots is not None else _LARGEST_RANGE

    def _alone(self) -> FloatArray:
        """Return the places of values that many rows may share: the bounds, zero, usual codes."""
        lower, upper = self._bounds()
        values = [lower, upper, *(code for code in _CODES if lower < code < upper)]
        return self.to_unit(np.array([int(value) for value in values] if self.integer else values))

    def ends(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the places where the single values at some places begin and end."""
        if self.integer or self.dtype not in _SHORT_DIGITS:
            return super().ends(places)
        # The nearest short float of a decimal may be smaller.
        reach = 10.0 ** -_SHORT_DIGITS[self.dtype] / 100
        reach *= max(map(abs, self._bounds())) / (self._length() or 1.0)
        return places - reach, places + reach

    @property
    def rounding(self) -> Rounding:
        """Multiples of 1, 5, 10, 50, ...; integers are counted from the lower bound."""
        lower, upper = self._bounds()
        if not self.integer:
            steps = [10**power * digit for power in range(_DIGITS) for digit in (1, 5)]
            return Rounding((0, *steps), (0,) * (len(steps) + 1), 0.0)
        largest = max(abs(lower), abs(upper), 1)
        steps = [
            step
            for power in range(19)
            for digit in (1, 5)
            if (step := 10**power * digit) <= largest
        ]
        return Rounding(tuple(steps), tuple(-lower % step for step in steps), float(lower))

    @property
    def _decimals(self) -> int:
        """Number of decimals in which round numbers are sought; negative for large numbers."""
        largest = max(map(abs, self._bounds()))
        digits = _SHORT_DIGITS.get(self.dtype or "", _DIGITS)
        return digits - 1 - math.floor(math.log10(largest or 1.0))

    def _scaled(self, numbers: FloatArray, decimals: int) -> FloatArray:
        """Multiply by a power of ten; a quotient is the double nearest to its decimal."""
        power = 10.0 ** min(abs(decimals), 290)
        return numbers * power if decimals >= 0 else numbers / power

    def steps_at(self, places: FloatArray) -> FloatArray:
        """Return the distances from the lower bound at places."""
        if not self.log_scale:
            return super().steps_at(places)
        return np.expm1(places * math.log1p(self._length()))

    def _places(self, steps: FloatArray) -> FloatArray:
        if not self.log_scale:
            return super()._places(steps)
        return np.log1p(np.maximum(steps, -0.75)) / (math.log1p(self._length()) or 1.0)

    def lattice(self, places: FloatArray) -> FloatArray:
        """Return integers as distances from the lower bound, others in units of a decimal."""
        lower, steps = self._bounds()[0], self.steps_at(places)
        return steps if self.integer else self._scaled(lower + steps, self._decimals)

    def _off_lattice(self, numbers: FloatArray) -> FloatArray:
        if self.integer:
            return self._places(numbers)
        return self._places(self._scaled(numbers, -self._decimals) - self._bounds()[0])

    def from_lattice(
        self, places: FloatArray, numbers: FloatArray, rounded: BoolArray
    ) -> pd.Series:
        """Return the values at places, or at lattice numbers if `rounded`; NaN is missing."""
        if self.integer:
            return super().from_lattice(places, numbers, rounded)
        missing, lower = np.isnan(places), self._bounds()[0]
        values = lower + self.steps_at(np.where(missing, 0.0, places))
        values = np.where(rounded, self._scaled(numbers, -self._decimals), values)
        return self.finish(
            np.clip(values, self.lower, self.upper), missing, self.dtype or self.default
        )

    def left_open(self) -> Self:
        """Return the column without bounds, on an even scale."""
        return self.replace(lower=None, upper=None, log_scale=False, knots=None)

    def _end(self, value: Any) -> Any:
        return value if is_real_number(value) and value == value else None

    def _inside(self, lowest: Any, highest: Any) -> tuple[float, float, float, float]:
        if self.integer:
            lowest, highest = math.ceil(lowest), math.floor(highest)
            if lowest > highest:
                raise self._nothing("no integer lies in it")
        start, stop = self.to_unit(pd.Series([lowest, highest])).tolist()
        return lowest, highest, start, stop

    def condition(self, text: Any) -> float:
        """Return a number that a user typed."""
        try:
            number = float(text)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name!r} must be a number, got {text!r}.") from None
        return int(number) if number.is_integer() else number

    def guessed(self, values: PlainColumn, keep: bool) -> tuple[TableColumn | None, str]:
        """Choose bounds that hold all values, rounded outwards, and a scale."""
        present = values.present
        finite = present[np.isfinite(present)]
        if not len(finite):
            return None, "left out: it holds no finite number."
        notes = []
        if len(finite) < len(present):
            notes.append("holds infinity, which is refused; replace it by a number or missing.")
        low, high = finite.min().item(), finite.max().item()
        whole = finite.dtype.kind in "iu" or (
            bool((finite == np.rint(finite)).all()) and max(-low, high) < _LARGEST_GUESS
        )
        lower, upper = _rounded_outwards(low, high, whole)
        with np.errstate(all="ignore"):
            heavy = high - lower > _HEAVY * (np.quantile(finite, 0.99).item() - lower)
        distinct = len(np.unique(finite)) == len(finite) >= _FEW_VALUES
        if whole and distinct and high - low >= len(finite) - 1:
            notes.append("every number occurs once. Exclude it if it identifies rows or people.")
        if low == high:
            notes.append(ONE_VALUE)
        if heavy:
            notes.append("hardly any number is near the bounds: they tell of a few people.")
        lower, upper = max(lower, self.holds[0]), min(upper, self.holds[1])
        column = self.replace(
            integer=whole,
            lower=int(lower) if whole else float(lower),
            upper=int(upper) if whole else float(upper),
            log_scale=bool(
                lower >= 0 and heavy and not (whole and high - low > _LARGEST_LOG_GUESS)
            ),
        )
        return column, " ".join(notes)

    def parse(self, texts: Sequence[str], missing: frozenset[str]) -> pd.Series:
        """Return the texts of a file as numbers, each text on its own."""
        column = self.read(super().parse(texts, missing))
        return self.finish(column.values, column.missing, "int64" if self.integer else "float64")

    def to_sdv(self) -> dict[str, str]:
        """Return the description of the column in metadata of SDV."""
        held = "Int64" if self.integer else "Float"
        return {"sdtype": "numerical", "computer_representation": held}

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as numbers, also if they are written as text."""
        return values if values.dtype.kind in "iuf" else pd.Series(self.numbers(values))


def _shown_bound(bound: float) -> str:
    return f"{bound:,d}" if isinstance(bound, int) else f"{bound:,.12g}"


def as_integer(value: Any) -> int:
    """Return the integer nearest to a number, between -2^62 and 2^62."""
    whole = type(value) is int or isinstance(value, Integral)
    number = int(value) if whole else round(as_float(value))
    return min(max(number, -LARGEST_INTEGER), LARGEST_INTEGER)


def _rounded_outwards(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Round a range outwards to multiples of 5 % to 50 % of it; short ranges of integers stay."""
    length = high - low
    if (whole and length <= _FEW_VALUES) or not 1e-290 < length < 1e290:
        return low, high
    exponent = math.floor(math.log10(length)) - 1
    if whole:
        step = max(5 * 10**exponent, 1)
        return math.floor(low) // step * step, -(-math.ceil(high) // step) * step
    # A quotient by a power of ten is the float nearest to its decimal: 0.15 is 0.15.
    steps = 5 * 10.0**exponent
    first, last = math.floor(low / steps) * 5, math.ceil(high / steps) * 5
    scale = 10.0 ** abs(exponent)
    lower, upper = (n * scale if exponent > 0 else n / scale for n in (first, last))
    return min(lower, low), max(upper, high)


def no_number(name: str, written: str | None = None) -> ValueError:
    """Return the error for a value that is not a number."""
    return ValueError(
        f"Column {name!r} must hold numbers{f' written like {written}' if written else ''}, and "
        f"holds something that is not a number {UNSHOWN}. Name missing values by --missing, state "
        "how numbers are written (written='1,234.50'), or declare a column of another kind."
    )
