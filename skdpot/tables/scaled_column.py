"""Columns of values between two bounds, each with a place in [0, 1]."""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray
from skdpot.tables.column_base import TableColumn
from skdpot.tables.column_values import PlainColumn
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.rounding import Rounding

# Public cells before any count: even ones, or these beside cells by order of magnitude.
_FIRST_CUTS, _FIRST_EVEN_CUTS = 256, 20
LARGEST_UNEVEN = 2**40  # integers on an uneven scale: doubles still tell all of them apart
_MAX_VALUES = 512  # a column with at most this many possible values has one cell per value


@dataclass(frozen=True, repr=False)
class ScaledColumn(TableColumn):
    """Base class of columns of values between two bounds, which have places in [0, 1].

    A kind represents its values in two ways: by `numbers` in a unit of its own (numbers as they
    are, times in seconds), and by distances from the lower bound in steps (`_distances`), which a
    place in [0, 1] is proportional to.
    """

    on_scale: ClassVar[bool] = True
    figure: ClassVar[str] = "number"
    log_scale = False  # places are logarithmic

    _: KW_ONLY
    lower: Any = None
    upper: Any = None
    knots: tuple[float, ...] | None = None

    @property
    @abstractmethod
    def n_values(self) -> int | None:
        """Number of possible values; None for a continuum, or while a bound is open."""

    @property
    @abstractmethod
    def step(self) -> float:
        """Difference of neighbouring values in `numbers`; 0 for a continuum."""

    @property
    @abstractmethod
    def span(self) -> tuple[float, float]:
        """Bounds in `numbers`; an open bound is infinite."""

    @property
    @abstractmethod
    def rounding(self) -> Rounding:
        """Round values among the numbers that `lattice` returns."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """Values of a condition, in words."""

    @property
    @abstractmethod
    def _bounds_are(self) -> str:
        """Valid bounds, in words."""

    @abstractmethod
    def numbers(self, values: Any) -> FloatArray:
        """Return the values as numbers, NaN if missing; shape (n_rows,)."""

    @abstractmethod
    def from_numbers(self, numbers: FloatArray) -> pd.Series:
        """Return the values of such numbers, within the data type; NaN is missing."""

    @abstractmethod
    def bounded(self, lower: float, upper: float, found: bool) -> Self:
        """Return the column with released estimates of open bounds, `found` above noise or not."""

    @abstractmethod
    def _bound(self, value: Any) -> Any:
        """Return a bound in its plain type, None if invalid."""

    @abstractmethod
    def _length(self) -> float:
        """Return the distance between the bounds."""

    @abstractmethod
    def _distances(self, column: PlainColumn) -> FloatArray:
        """Return distances from the lower bound, clipped to the bounds; any number if missing."""

    @abstractmethod
    def _at(self, distances: FloatArray, missing: BoolArray) -> pd.Series:
        """Return the values at distances from the lower bound."""

    @abstractmethod
    def _end(self, value: Any) -> Any:
        """Return the end of an interval in a condition, None if invalid."""

    @abstractmethod
    def _inside(self, lowest: Any, highest: Any) -> tuple[Any, Any, float, float]:
        """Return the first and last value of an interval within the bounds, and their places."""

    @property
    def is_resolved(self) -> bool:  # type: ignore[override]
        """Whether both bounds are known."""
        return self.lower is not None and self.upper is not None

    @property
    def _last_step(self) -> int | None:
        uneven = self.log_scale or self.knots is not None
        return None if uneven or self.n_values is None else self.n_values - 1

    @property
    def held_span(self) -> tuple[float, float]:
        """The bounds in `numbers`, rounded by the data type."""
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
        """Return places among the knots; a value at equal knots is in their middle."""
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

    def compared(self, values: pd.Series) -> pd.Series:
        """Return values as numbers for metrics and plots."""
        return pd.Series(self.numbers(values))

    def stretched(self, values: FloatArray) -> Self:
        """Return the column with knots at released numbers, unless it has a scale already."""
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
        """Return the part of an interval within the bounds (None is open), and its places."""
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
        """Return the end of an interval as a value of the column."""
        if (end := self._end(value)) is None:
            raise ValueError(
                f"The condition on {self.name!r} must be {self.wanted}, or a tuple of two, or of "
                "one and None."
            )
        return end

    def _nothing(self, why: str) -> ValueError:
        return ValueError(
            f"No value of {self.name!r} lies in the interval that conditions asks for: {why}."
        )

    def _check_bounds(self) -> None:
        """Give the bounds and knots their plain types; refuse invalid ones."""
        for side in ("lower", "upper"):
            value = getattr(self, side)
            bound = None if value is None else self._bound(value)
            if value is not None and bound is None:
                raise self.error(f": {side} must be None or {self._bounds_are}.")
            self._store(side, bound)
        if self.knots is not None:
            try:
                knots = np.asarray(self.knots, dtype=np.float64)
                ends = knots.ndim == 1 and [knots[0], knots[-1]] == [0.0, 1.0]
                if not ends or not (np.diff(knots) >= 0.0).all():
                    raise ValueError
            except (TypeError, ValueError, IndexError):
                raise self.error(
                    ": knots must be None or numbers that begin with 0, do not fall, and end "
                    "with 1."
                ) from None
            self._store("knots", tuple(knots.tolist()))

    def _bounds(self) -> tuple[Any, Any]:
        """Return both bounds; refuse a column that lacks one."""
        if not self.is_resolved:
            raise self.error(
                " has no bounds yet: state them, or have a TableEncoder estimate them privately."
            )
        return self.lower, self.upper

    def ends(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the places where the single values at some places begin and end."""
        if self.n_values is None:
            return places, np.nextafter(places, 2.0)
        steps = np.rint(self.steps_at(places))
        return self._places(steps - 0.5), self._places(steps + 0.5)

    def steps_at(self, places: FloatArray) -> FloatArray:
        """Return the distances from the lower bound at places."""
        return places * self._length()

    def _places(self, steps: FloatArray) -> FloatArray:
        """Return the places at distances from the lower bound."""
        return steps / (self._length() or 1.0)

    def lattice(self, places: FloatArray) -> FloatArray:
        """Return the numbers at places that `rounding` describes."""
        return self.steps_at(places)

    def from_lattice(
        self, places: FloatArray, numbers: FloatArray, rounded: BoolArray
    ) -> pd.Series:
        """Return the values at places, or at lattice numbers if `rounded`; NaN is missing."""
        whole = rounded & ~np.isnan(places)
        return self.from_unit(np.where(whole, self._off_lattice(numbers), places))

    def _off_lattice(self, numbers: FloatArray) -> FloatArray:
        """Return the places of lattice numbers."""
        return self._places(numbers)

    def cuts(self, first: float, last: float, most: int, finest: int = 0) -> FloatArray:
        """Return the places of at most `most` multiples of the finest possible step in a part."""
        low, high = self.lattice(np.array([first, last]))
        multiples = np.zeros(0)
        for step, phase in zip(self.rounding.steps[::-1], self.rounding.phases[::-1], strict=True):
            start, stop = (math.ceil((round(end, 2) - phase) / max(step, 1)) for end in (low, high))
            if step < max(finest, 1) or stop - start > most:
                break
            multiples = phase + step * np.arange(start, stop, dtype=np.float64)
        places = self._off_lattice(multiples)
        return places[(places > first) & (places < last)]

    def _first_cuts(self) -> FloatArray:
        """Return the places of public cuts: even, or equally many per order of magnitude."""
        if (origin := self.rounding.origin) is None:
            return self.cuts(0.0, 1.0, _FIRST_CUTS)
        digits = np.outer(10.0 ** np.arange(0, 19), np.arange(1, 10)).ravel()
        ends = self.lattice(np.array([0.0, 1.0]))
        # Orders of magnitude count from zero, or from the bounds if zero is outside.
        signed = [(-origin, 1), (-origin, -1), (ends[0], 1), (ends[1], -1)]
        near = signed[:2] if ends[0] <= -origin <= ends[1] else signed[2:]
        places = self._off_lattice(np.concatenate([start + sign * digits for start, sign in near]))
        even = self.cuts(0.0, 1.0, _FIRST_EVEN_CUTS)
        return np.concatenate((places[(places > 0.0) & (places < 1.0)], even))

    def grid(self) -> ColumnGrid:
        """Return one cell per value, or the first public cells if there are too many values."""
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
