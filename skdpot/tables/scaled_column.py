"""Columns of values between two bounds, each with a place in [0, 1]."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import FloatArray
from skdpot.tables.column_base import TableColumn
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.rounding import Rounding

_FIRST_CUTS, _FIRST_EVEN_CUTS = 256, 20  # of a scale, without and with orders of magnitude
LARGEST_UNEVEN = 2**40  # integers on a scale that is not even, so that roundings lose none
_MAX_VALUES = 512  # numbers and times with at most so many possible values have a cell for each


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
