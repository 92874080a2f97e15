"""Public rules between columns: what each states, and how synthetic rows obey it.

A rule may determine a column. The model then leaves that column out, or holds another column in its
place (`stand_in`): `encode` maps values of private rows to the stand-in, `decode` maps values of
synthetic rows back. Both map single rows, by public facts. One private row is still one row of
every count, whether it obeys the rule or not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite, prod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from skdpot._utils.arrays import BoolArray, FloatArray
from skdpot.tables.conditions import Condition, parse_conditions
from skdpot.tables.dtypes import datetime_zone
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.numeric_column import LARGEST_NUMBER, NumericColumn

ColumnsByName = Mapping[str, Any]  # by their names
Values = Mapping[str, Any]

_MOST_ENTRIES = 2**16  # rows of a table of implications
_ROUNDING = 1e-6  # relative rounding of sums of floats


@dataclass(frozen=True)
class Rule:
    """Base class of rules."""

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()  # columns of the schema in the rule
    made: ClassVar[str] = ""  # the column that it determines, if any

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that determine `made`."""
        return tuple(name for name in self.names if name != self.made)

    def check(self, columns: ColumnsByName) -> dict[str, Any]:
        """Refuse columns that contradict the rule; return columns with bounds that it implies."""
        return {}

    def stand_in(self, columns: ColumnsByName) -> Any:
        """Return the column that is modelled in place of `made`, None if none is."""
        return None

    def encode(self, columns: ColumnsByName, values: Values) -> Any:
        """Return the values of the stand-in."""
        return values[self.made]

    def decode(self, columns: ColumnsByName, values: Values) -> Any:
        """Return the values of `made`; ``values[made]`` holds those of the stand-in."""
        return values[self.made]

    def resolved(self, columns: ColumnsByName, stand_in: Any) -> tuple["Rule", Any]:
        """Return the rule and `made` with nothing left open, from the fitted stand-in."""
        return self, columns[self.made]

    def narrowed(self, columns: ColumnsByName, wanted: Condition) -> dict[str, Any]:
        """Return conditions on other columns that a condition on `made` implies."""
        return {}

    def broken(self, columns: ColumnsByName, values: Values) -> BoolArray:
        """Return which rows break the rule."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the fields for JSON."""
        return {"kind": self.kind} | {item.name: getattr(self, item.name) for item in fields(self)}

    def error(self, text: str) -> ValueError:
        """Return an error that starts with the rule."""
        return ValueError(f"The rule {self} {text}.")

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        raise NotImplementedError

    def __str__(self) -> str:
        text = repr(self)
        return text if len(text) <= 200 else f"{text[:160]}...)"


def numbers_of(column: Any, values: Any) -> FloatArray:
    """Return values as numbers within the bounds, on the steps of the column; NaN if missing."""
    numbers = _summable(column.numbers(values))
    if column.step > 0.0:
        numbers = np.floor(numbers / column.step) * column.step
    return np.clip(numbers, *column.span)


def _summable(numbers: FloatArray) -> FloatArray:
    """Clip numbers so that no sum is infinite."""
    return numbers.clip(-LARGEST_NUMBER, LARGEST_NUMBER)


def _values_differ(first: FloatArray, second: FloatArray, rounding: Any = 0.0) -> BoolArray:
    return ~((np.abs(first - second) <= rounding) | (np.isnan(first) & np.isnan(second)))


def _quoted(names: Iterable[str]) -> str:
    return " and ".join(f"“{name}”" for name in names)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_storable(value: Any) -> bool:
    """Return whether a value is a number that a column can hold."""
    return isinstance(value, int | float) and abs(value) <= LARGEST_NUMBER


def _plain_value(value: Any) -> Any:
    """Return a value in types of JSON, lists as tuples."""
    if _is_list(value):
        return tuple(map(_plain_value, value))
    value = value.item() if isinstance(value, np.generic) else value
    if not (value is None or isinstance(value, str) or _is_storable(value)):
        raise ValueError(
            f"A rule cannot hold a value of type {type(value).__name__}; write text, numbers, "
            "truth values or None, and dates in ISO format."
        )
    return value


def _column_names(value: Any, least: int, what: str) -> tuple[str, ...]:
    names = tuple(value) if _is_list(value) else (value,)
    distinct = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if not distinct or len(names) < least:
        raise ValueError(f"{what} must be {least} or more different names of columns.")
    return names


@dataclass(frozen=True)
class LessEqual(Rule):
    """One column is at most another: ``admission <= discharge``.

    Parameters
    ----------
    smaller, larger : str
        Names of two columns of numbers, dates or durations, of the same resolution and time zone,
        both or neither of integers. Two rules express a <= b <= c.
    largest : float, optional
        Public bound of the difference: a number, for dates and durations of ticks of their
        resolution. If None, it follows from the bounds of both columns, and where these are
        open it is estimated privately.

    Raises
    ------
    ValueError
        When the rule is put in a schema, if the columns contradict it.

    Privacy
    -------
    The difference is modelled instead of the larger column. In private rows that break the rule the
    difference counts as 0, and differences above `largest` as `largest`. A smaller column is
    clipped to the upper bound of the larger one.

    Notes
    -----
    Missing values break no rule. Where the smaller value is missing, the difference is taken from
    the lower bound of the larger column.

    Examples
    --------
    >>> from skdpot.preprocessing import DatetimeColumn, LessEqual, TableSchema
    >>> bounds = {"lower": "2024-01-01", "upper": "2024-12-31", "resolution": "D"}
    >>> columns = [DatetimeColumn("admission", **bounds), DatetimeColumn("discharge", **bounds)]
    >>> schema = TableSchema(columns, rules=[LessEqual("admission", "discharge", largest=90)])
    """

    kind: ClassVar[str] = "less_equal"

    smaller: str
    larger: str
    largest: float | None = None

    def __post_init__(self) -> None:
        _column_names(self.names, 2, "smaller and larger")
        limit = 0 if self.largest is None else _plain_value(self.largest)
        if isinstance(limit, bool) or not isinstance(limit, Real) or limit < 0:
            raise ValueError("largest must be a number, 0 or more, or None.")

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Both columns."""
        return self.smaller, self.larger

    @property
    def made(self) -> str:  # type: ignore[override]
        """The larger column."""
        return self.larger

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        within = "" if self.largest is None else f", which is at most {self.largest:g} more"
        return f"“{self.smaller}” is at most “{self.larger}”{within}"

    def check(self, columns: ColumnsByName) -> dict[str, Any]:
        """Lower the upper bound of the smaller column to that of the larger one."""
        a, b = (columns[name] for name in self.names)
        if not (a.on_scale and a.kind == b.kind and a.step == b.step):
            raise self.error(f"needs numbers or times of one resolution, not {a!r} and {b!r}")
        if datetime_zone(a.dtype) != datetime_zone(b.dtype):
            raise self.error("needs columns of one time zone")
        if a.missing and b.lower is None:
            raise self.error(f"needs the lower bound of {b.name!r}, as {a.name!r} may be missing")
        if a.span[0] > b.span[1]:
            raise self.error(f"contradicts bounds: {a.lower!r} is above {b.upper!r}")
        return {a.name: a.replace(upper=b.upper)} if a.span[1] > b.span[1] else {}

    def stand_in(self, columns: ColumnsByName) -> NumericColumn:
        """Return the difference, in steps of the column."""
        column, limit = columns[self.larger], self._limit(columns)
        return NumericColumn(
            f"{self.larger} - {self.smaller}",
            lower=0,
            upper=min(limit, LARGEST_NUMBER) if isfinite(limit) else None,
            integer=column.step > 0.0,
            missing=column.missing,
            dtype="int64" if column.step > 0.0 else "float64",
        )

    def encode(self, columns: ColumnsByName, values: Values) -> pd.Series:
        """Return the difference, at least 0."""
        column = columns[self.larger]
        excess = numbers_of(column, values[self.larger]) - self._start(columns, values)
        return self.stand_in(columns).from_numbers(np.maximum(excess / (column.step or 1.0), 0.0))

    def decode(self, columns: ColumnsByName, values: Values) -> pd.Series:
        """Add the difference to the smaller column, within the bounds."""
        column, start = columns[self.larger], self._start(columns, values)
        excess = self.stand_in(columns).numbers(values[self.larger]) * (column.step or 1.0)
        return column.from_numbers(np.maximum(np.clip(start + excess, *column.span), start))

    def resolved(self, columns: ColumnsByName, stand_in: Any) -> tuple[Rule, Any]:
        """Return the rule with the fitted limit, and the larger column with its bounds."""
        small, column, steps = columns[self.smaller], columns[self.larger], stand_in.upper
        rule = self if steps == self._limit(columns) else replace(self, largest=steps)
        upper = small.span[1] + steps * (column.step or 1.0)
        return rule, column.bounded(small.span[0], upper)

    def narrowed(self, columns: ColumnsByName, wanted: Condition) -> dict[str, Any]:
        """Return the smaller values from which a difference leads to wanted values."""
        small, column = columns[self.smaller], columns[self.larger]
        if wanted.limits is None or small.missing:
            return {}
        lower, upper = column.numbers(pd.Series(list(wanted.limits)))
        lower -= self._limit(columns) * (column.step or 1.0)
        if lower > small.span[1] or upper < small.span[0]:
            raise self.error(f"contradicts the condition on {self.larger!r}")
        return {small.name: tuple(small.from_numbers(np.clip([lower, upper], *small.span)))}

    def broken(self, columns: ColumnsByName, values: Values) -> BoolArray:
        """Return where the smaller column exceeds the larger one."""
        smaller, larger = (columns[name].numbers(values[name]) for name in self.names)
        return np.asarray(smaller > larger)

    def _start(self, columns: ColumnsByName, values: Values) -> FloatArray:
        """Return the smaller column; the lower bound of the larger one if it is missing."""
        start = numbers_of(columns[self.smaller], values[self.smaller])
        return np.where(np.isnan(start), columns[self.larger].span[0], start)

    def _limit(self, columns: ColumnsByName) -> float:
        """Return the largest difference in steps; infinite if open."""
        small, column = columns[self.smaller], columns[self.larger]
        start = min(small.span[0], column.span[0]) if small.missing else small.span[0]
        reach = (column.span[1] - start) / (column.step or 1.0)
        limit = reach if self.largest is None else self.largest
        return int(limit) if column.step and isfinite(limit) else limit


@dataclass(frozen=True)
class Implies(Rule):
    """A column that others determine: of each education there is one number.

    Parameters
    ----------
    columns : str or sequence of str
        The columns that determine the other.
    target : str
        The column that they determine.
    table : mapping or sequence of rows, optional
        What the target is: a mapping from the value of a single column, or rows that hold the
        values of `columns` and that of the target; None stands for missing. Where values are not
        listed the target is missing, if it may be; else all must be listed. If None, the table is
        learned from what the fit has released.
    learned : bool, default=False
        Whether the table was learned by a fit; `DPTableSynthesizer` sets it.

    Raises
    ------
    ValueError
        If an argument is invalid, or when the rule is put in a schema, if the columns contradict
        it.

    Privacy
    -------
    With a table the private values of the target play no part, and nothing is spent on them.
    Without one they are counted like others, and learning the table from the model costs nothing.

    Examples
    --------
    >>> from skdpot.preprocessing import Implies
    >>> Implies("country", "currency", {"Austria": "EUR", "Norway": "NOK"}).table
    (('Austria', 'EUR'), ('Norway', 'NOK'))
    """

    kind: ClassVar[str] = "implies"

    columns: tuple[str, ...]
    target: str
    table: Any = None
    learned: bool = False

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        return f"{_quoted(self.columns)} determine “{self.target}”"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _column_names(self.columns, 1, "columns"))
        _column_names(self.names, 2, "columns and target")
        if not isinstance(self.learned, bool):
            raise ValueError("learned must be True or False.")
        if self.table is None:
            return
        rows = self.table.items() if isinstance(self.table, Mapping) else self.table
        table = _plain_value(rows) if _is_list(rows) else ()
        rows_fit = all(isinstance(row, tuple) and len(row) == len(self.names) for row in table)
        if not (0 < len(table) <= _MOST_ENTRIES and rows_fit):
            raise ValueError(f"table must have up to {_MOST_ENTRIES} rows of {len(self.names)}.")
        object.__setattr__(self, "table", table)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns, and the target."""
        return (*self.columns, self.target)

    @property
    def made(self) -> str:  # type: ignore[override]
        """The target."""
        return self.target

    def check(self, columns: ColumnsByName) -> dict[str, Any]:
        """Refuse a table that lacks entries or holds impossible values."""
        if self.table is None:
            return {}
        target, resolved = columns[self.target], dict(columns)
        made = tuple(v for v in dict.fromkeys(self._entries[self.target]) if v is not None)
        if not target.is_resolved and target.on_scale:
            ends = target.numbers(made)
            resolved[target.name] = target.bounded(ends.min(), ends.max())
        elif not target.is_resolved:
            resolved[target.name] = target.replace(categories=made)
        for name, values in self._entries.items():
            if not resolved[name].is_resolved or not _can_be(resolved[name], values):
                raise self.error(f"holds a value that {resolved[name]!r} cannot have")
        if self._keys(columns, self._entries).has_duplicates:
            raise self.error("lists a combination of values twice")
        n_due = prod(_n_values(columns[name]) for name in self.columns)
        if not (target.missing or self.learned or len(self.table) == n_due):
            raise self.error("must list every combination, as the target is never missing")
        return {target.name: resolved[target.name]}

    def stand_in(self, columns: ColumnsByName) -> Any:
        """Return the target itself if its table is not public."""
        return columns[self.target] if self.table is None or self.learned else None

    def decode(self, columns: ColumnsByName, values: Values) -> Any:
        """Look the target up."""
        if self.table is None:
            return values[self.target]
        made = self._entries[self.target]
        places = self._keys(columns, self._entries).get_indexer(self._keys(columns, values))
        if self.learned:  # values that were never drawn get the most frequent target
            places = np.maximum(places, 0)
        target = columns[self.target]
        if target.on_scale:
            return target.from_numbers(np.append(target.numbers(made), np.nan)[places])
        return target.from_codes(np.append(target.to_codes(made), -1)[places])

    def learn(self, columns: ColumnsByName, values: Values) -> "Implies":
        """Return the rule with a table of the most frequent targets in synthetic rows."""
        if self.table is not None:
            return self
        places = {name: columns[name].to_unit(values[name]) for name in self.names}
        counts = pd.DataFrame(places).value_counts(dropna=False).reset_index()
        best = counts.drop_duplicates(list(self.columns)).head(_MOST_ENTRIES)
        parts = [columns[name].from_unit(best[name]).astype(object) for name in self.names]
        plain = [[None if pd.isna(v) else _plain_entry(v) for v in part] for part in parts]
        return replace(self, table=list(zip(*plain, strict=True)), learned=True)

    def narrowed(self, columns: ColumnsByName, wanted: Condition) -> dict[str, Any]:
        """Return the categories of a single column with wanted targets."""
        source = columns[self.columns[0]]
        if len(self.columns) > 1 or source.on_scale:
            return {}
        levels = [*source.levels, *[None] * source.missing]
        made = self.decode(columns, {source.name: levels})
        held = wanted.satisfied(columns[self.target].grid(), made)
        if not held.any():
            raise self.error(f"contradicts the condition on {self.target!r}")
        return {source.name: [level for level, kept in zip(levels, held, strict=True) if kept]}

    def broken(self, columns: ColumnsByName, values: Values) -> BoolArray:
        """Return where the target is another."""
        target, due = columns[self.target], self.decode(columns, values)
        return _values_differ(target.to_unit(due), target.to_unit(values[self.target]))

    @cached_property
    def _entries(self) -> dict[str, tuple[Any, ...]]:
        """The table by columns."""
        return dict(zip(self.names, zip(*self.table, strict=True), strict=True))

    def _keys(self, columns: ColumnsByName, values: Values) -> pd.MultiIndex:
        """Return combinations of values, by their places in the columns."""
        places = [np.nan_to_num(columns[n].to_unit(values[n]), nan=-1.0) for n in self.columns]
        return pd.MultiIndex.from_arrays(places)


def _can_be(column: Any, values: Sequence[Any]) -> bool:
    """Return whether a column can have all of the values."""
    present = [value for value in values if value is not None]
    if not column.missing and None in values:
        return False
    if not column.on_scale:
        return all(column.level(value) is not None for value in present)
    try:
        numbers = column.numbers(present)
    except ValueError:
        return False
    exact = (column.kind != "numeric") or np.array_equal(
        numbers, np.array(present, dtype=np.float64)
    )
    return bool(exact and np.array_equal(np.clip(numbers, *column.held_span), numbers))


def _n_values(column: Any) -> float:
    n_values = column.n_values if column.on_scale else len(column.levels)
    return np.inf if n_values is None else n_values + column.missing


def _plain_entry(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


@dataclass(frozen=True)
class Forbidden(Rule):
    """A combination of values that no row has.

    Parameters
    ----------
    values : mapping of str to object
        For each column a value, or for categories a list of values and for numbers and dates an
        interval ``(smallest, largest)`` in which None is no limit. Rows that satisfy all of them
        are forbidden. None alone, or in a list, stands for missing values.

    Raises
    ------
    ValueError
        If an argument is invalid, or when the rule is put in a schema, if a column cannot have
        such values or no value is left.

    Privacy
    -------
    Private rows that break the rule are counted like others. Synthetic rows that break it are
    drawn again.

    Examples
    --------
    >>> from skdpot.preprocessing import Forbidden
    >>> Forbidden({"age": (0, 15), "married": True})
    Forbidden(values={'age': (0, 15), 'married': True})
    """

    kind: ClassVar[str] = "forbidden"

    values: Mapping[str, Any]

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        parts = []
        for name, wanted in self.values.items():
            values = wanted if isinstance(wanted, tuple) else (wanted,)
            is_range = len(values) == 2 and any(isinstance(value, Real) for value in values)
            nothing = "any" if is_range else "missing"
            texts = (nothing if value is None else str(value) for value in values)
            parts.append(f"“{name}” {(' to ' if is_range else ' or ').join(texts)}")
        return f"No row has {' with '.join(parts)}"

    def __post_init__(self) -> None:
        if not isinstance(self.values, Mapping) or not self.values:
            raise ValueError("values must be a mapping from columns to values.")
        plain = {name: _plain_value(wanted) for name, wanted in self.values.items()}
        object.__setattr__(self, "values", plain)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns."""
        return tuple(self.values)

    def check(self, columns: ColumnsByName) -> dict[str, Any]:
        """Refuse values that a column cannot have, and a rule that leaves none."""
        for column in (columns[name] for name in self.names if columns[name].is_resolved):
            try:
                conditions = parse_conditions({column.name: self._wanted(column)}, (column.grid(),))
            except ValueError as error:
                raise self.error(f"is invalid. {error}") from None
            if len(self.names) == 1 and (conditions[0].kept >= 1.0).all():
                raise self.error(f"leaves no value of {column.name!r}")
        return {}

    def possible(self, columns: ColumnsByName) -> "Forbidden | None":
        """Return the rule without categories that a fit did not find; None if no row breaks it."""
        values = dict(self.values)
        for column in (columns[name] for name in self.names if not columns[name].on_scale):
            wanted = values[column.name]
            listed = wanted if isinstance(wanted, tuple) else (wanted,)
            values[column.name] = [v for v in listed if v is None or column.level(v) is not None]
        rule = replace(self, values=values)
        try:
            rule.check(columns)
        except ValueError:
            return None
        return rule

    def conditions(self, grids: Sequence[ColumnGrid]) -> dict[int, Condition]:
        """Return the conditions of forbidden rows, by the places of columns."""
        columns = (grid.column for grid in grids if grid.column.name in self.values)
        return parse_conditions({c.name: self._wanted(c) for c in columns}, tuple(grids))

    def broken(self, columns: ColumnsByName, values: Values) -> BoolArray:
        """Return which rows have the combination."""
        grids = tuple(columns[name].grid() for name in self.names)
        held = [
            condition.satisfied(grids[place], values[self.names[place]])
            for place, condition in self.conditions(grids).items()
        ]
        return np.logical_and.reduce(held)

    def _wanted(self, column: Any) -> Any:
        wanted = self.values[column.name]
        return list(wanted) if isinstance(wanted, tuple) and not column.on_scale else wanted


@dataclass(frozen=True)
class SumTo(Rule):
    """Columns of numbers that add up to a constant or to another column.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns that are added.
    total : str or float
        The column that holds the sum, or the sum itself. In the second case the last of `columns`
        is what the others leave.

    Raises
    ------
    ValueError
        If an argument is invalid, or when the rule is put in a schema, if the columns contradict
        it.

    Privacy
    -------
    The private values of the column that the others determine play no part. Synthetic rows in
    which it would exceed its bounds are drawn again.

    Notes
    -----
    Integers add up exactly, other numbers up to rounding. The sum of missing values is missing.
    Where bounds of the column that the others determine are stated, theirs must be stated as well,
    unless any that a fit could find agree with them.

    Examples
    --------
    >>> from skdpot.preprocessing import SumTo
    >>> SumTo(("rent", "food"), "spent")
    SumTo(columns=('rent', 'food'), total='spent')
    """

    kind: ClassVar[str] = "sum_to"

    columns: tuple[str, ...]
    total: str | float

    @property
    def in_words(self) -> str:
        """The rule in words, for reports."""
        total = f"“{self.total}”" if isinstance(self.total, str) else f"{self.total:g}"
        return f"{_quoted(self.columns)} add up to {total}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", _column_names(self.columns, 2, "columns"))
        object.__setattr__(self, "total", _plain_value(self.total))
        _column_names(self.names, 2, "columns and total")
        if not isinstance(self.total, str | Real) or isinstance(self.total, bool):
            raise ValueError("total must be a number or the name of a column.")

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns, and that of their sum."""
        return (*self.columns, self.total) if isinstance(self.total, str) else self.columns

    @property
    def made(self) -> str:  # type: ignore[override]
        """The sum, or the rest of the total."""
        return self.names[-1]

    def check(self, columns: ColumnsByName) -> dict[str, Any]:
        """Refuse columns that cannot add up."""
        *others, made = (columns[name] for name in self.names)
        if any(column.kind != "numeric" for column in (*others, made)):
            raise self.error("needs columns of numbers")
        of_integers = all(column.step for column in others) and self._left(0.0) % 1.0 == 0.0
        if made.step and not of_integers:
            raise self.error(f"gives no integers, as {made.name!r} must be")
        if any(column.missing for column in others) and not made.missing:
            raise self.error(f"needs missing=True of {made.name!r}, as others may be missing")
        (lower, upper), (least, most) = self._reach(columns), made.span
        if lower > most or upper < least:
            raise self.error(
                f"contradicts the bounds of {made.name!r}: it gives {lower} to {upper}"
            )
        self._check_open_bounds(columns)
        return {}

    def _check_open_bounds(self, columns: ColumnsByName) -> None:
        """Refuse open bounds if a fit could find, after the charge, bounds that contradict."""
        (lower, upper), (least, most) = self._reach(columns), columns[self.made].span
        if (lower == -np.inf and upper > most) or (upper == np.inf and lower < least):
            raise self.error(
                f"needs the bounds of {_quoted(self.needs)}, as those of {self.made!r} are stated"
            )

    def decode(self, columns: ColumnsByName, values: Values) -> pd.Series:
        """Return the sum of the others, or the rest of the total."""
        return columns[self.made].from_numbers(self._due(columns, values))

    def resolved(self, columns: ColumnsByName, stand_in: Any) -> tuple[Rule, Any]:
        """Return `made` with open bounds from those of the others."""
        made, reach = columns[self.made], self._reach(columns)
        bounded = made.bounded(reach[0], reach[1])
        if reach[0] > bounded.span[1] or reach[1] < bounded.span[0]:  # integers too far apart
            bounded = made.left_open().bounded(reach[0], reach[1])
        return self, bounded

    def narrowed(self, columns: ColumnsByName, wanted: Condition) -> dict[str, Any]:
        """Return the range of each column that the ranges of the others leave."""
        if wanted.limits is None:
            return {}
        lower, upper = sorted(map(self._left, wanted.limits))
        least, most = np.array([columns[name].span for name in self.needs]).T
        lows = np.maximum(lower - (most.sum() - most), least)
        highs = np.minimum(upper - (least.sum() - least), most)
        if (lows > highs).any():
            raise self.error(f"contradicts the condition on {self.made!r}")
        return dict(zip(self.needs, zip(lows, highs, strict=True), strict=True))

    def broken(self, columns: ColumnsByName, values: Values) -> BoolArray:
        """Return where the sum differs."""
        due, column = self._due(columns, values), columns[self.made]
        rounding = 0.0 if column.step else _ROUNDING * np.maximum(np.abs(due), 1.0)
        return _values_differ(due, column.numbers(values[self.made]), rounding)

    def _left(self, number: Any) -> Any:
        """Return `made` from the sum of the others, or the sum from `made`."""
        return number if isinstance(self.total, str) else self.total - number

    def _due(self, columns: ColumnsByName, values: Values) -> FloatArray:
        others = [numbers_of(columns[name], values[name]) for name in self.needs]
        return np.asarray(self._left(np.sum(others, axis=0)))

    def _reach(self, columns: ColumnsByName) -> list[float]:
        """Return the smallest and the largest value of `made` that the others allow."""
        ends = np.sum([columns[name].span for name in self.needs], axis=0)
        least, most = columns[self.made].holds
        reach = sorted(map(float, map(self._left, ends)))
        return [end if np.isinf(end) else min(max(end, least), most) for end in reach]
