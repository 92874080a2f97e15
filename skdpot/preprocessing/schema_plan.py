"""What a schema leaves to be estimated: planned from public facts, then released once.

An estimator that needs more than a schema composes ``plan.event`` with the events of its other
phases, calls `check_readable`, charges all at once, and then calls `release_schema`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import Streams
from skdpot.preprocessing.table_columns import (
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableColumn,
)
from skdpot.preprocessing.table_dtypes import category_dtype, dtype_family
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.preprocessing.table_values import PlainColumn, category_key
from skdpot.privacy.bounds_plan import BoundsPlan, plan_private_bounds
from skdpot.privacy.category_selection import (
    CategorySelectionPlan,
    plan_category_selection,
    select_categories,
)
from skdpot.privacy.events import ComposedEvent, Event
from skdpot.privacy.private_ranges import ColumnRange, release_ranges

__all__ = [
    "GUESSED",
    "SchemaPlan",
    "bound_schema",
    "check_readable",
    "plan_schema",
    "release_schema",
    "warn_of_guess",
]

# What a privacy statement assumes where nobody has confirmed a guessed schema.
GUESSED = "the schema, which was guessed from values"
_OTHER = "other"
_UNKNOWN_DATES = ("1900-01-01", "2100-01-01")
_ROUNDING = 1 - 1e-13
_LEAST_SHOWN = 0.5  # of the rows, by noisy counts


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """The public part of resolving a schema, fixed before data are touched.

    Attributes
    ----------
    schema : TableSchema
        Its columns have their data types, in the order of the table.
    n_samples : int
        Number of rows.
    ranges : BoundsPlan or None
        Release of the bounds; None if all are public.
    categories : CategorySelectionPlan or None
        Release of the categories; None if all are public.
    """

    schema: TableSchema
    n_samples: int
    ranges: BoundsPlan | None
    categories: CategorySelectionPlan | None

    @property
    def event(self) -> Event | None:
        """The charge for everything; None if nothing is left to be estimated."""
        plans = (self.ranges, self.categories)
        events = tuple(plan.event for plan in plans if plan is not None)
        if not events:
            return None
        return events[0] if len(events) == 1 else ComposedEvent(events=events)

    @property
    def sigma(self) -> tuple[float, ...]:
        """Standard deviations of the noise, in the order of the phases of `event`."""
        bounds = () if self.ranges is None else tuple(n.sigma for n in self.ranges.noises)
        if self.categories is None or self.categories.noise is None:
            return bounds
        return (*bounds, self.categories.noise.sigma)

    @property
    def sensitivity(self) -> tuple[float, ...]:
        """What one record changes, in the order of `sigma`."""
        bounds = () if self.ranges is None else tuple(n.sensitivity for n in self.ranges.noises)
        if self.categories is None or self.categories.noise is None:
            return bounds
        return (*bounds, math.sqrt(2 * self.categories.n_columns))


def plan_schema(schema: TableSchema, n_samples: int, *, mu: float, delta: float) -> SchemaPlan:
    """Fix what resolving a schema does and costs.

    Parameters
    ----------
    schema : TableSchema
        With data types, as `TableSchema.bind` returns it.
    n_samples : int
        Number of rows.
    mu : float
        Privacy parameter that everything may use together; infinity for an exact release.
    delta : float
        In (0, 1): the probability that the selection of categories may leave open, see
        ``PrivacyTarget.tail_delta``. Not used if all categories are public.

    Returns
    -------
    SchemaPlan
        Each column that something is estimated of gets the same share of the squared mu.

    Raises
    ------
    CalibrationError
        If no noise reaches `mu`.
    ValueError
        If a column has no data type, or a number is out of range.

    Privacy
    -------
    No data are touched. Everything that the plan is made of is public.
    """
    for column in schema.columns:
        if column.dtype is None:
            raise ValueError(f"Column {column.name!r} has no data type; call schema.bind(table).")
    scaled, coded = len(_unbounded(schema)), len(_unlisted(schema))
    per_column = mu * _ROUNDING / math.sqrt(max(scaled + coded, 1))
    ranges = categories = None
    if scaled:
        share = per_column * math.sqrt(scaled)
        ranges = plan_private_bounds(n_samples, scaled, share, mode="features")
    if coded:
        share = per_column * math.sqrt(coded)
        categories = plan_category_selection(n_samples, mu=share, delta=delta, n_columns=coded)
    return SchemaPlan(schema=schema, n_samples=n_samples, ranges=ranges, categories=categories)


def release_schema(X: Any, plan: SchemaPlan, streams: Streams) -> TableSchema:
    """Estimate what the schema leaves open. Charge ``plan.event`` first.

    Parameters
    ----------
    X : DataFrame of pandas or polars, or ndarray of shape (n_samples, n_columns)
        Private table.
    plan : SchemaPlan
        Made for it.
    streams : Streams
        Secret noise and public row order.

    Returns
    -------
    TableSchema
        Resolved.

    Raises
    ------
    ValueError
        If the number of rows is not that of the plan, or a column cannot be read.

    Warns
    -----
    PrivacyWarning
        Naming the columns of which the noisy tables show nothing or little: a bound that did not
        stand out, categories that hold less than half of the rows by their noisy counts.

    Privacy
    -------
    Releases bounds and categories; see `skdpot.privacy.private_ranges` and
    `skdpot.privacy.category_selection`. Missing values are no category, and in no histogram.
    """
    table = Table.of(X, plan.schema.names)
    if table.n_rows != plan.n_samples:
        raise ValueError(f"The plan is for {plan.n_samples} rows, got {table.n_rows}.")
    columns: list[TableColumn] = []
    if plan.ranges is not None:
        unbounded = _unbounded(plan.schema)
        numbers = [_numbers(column, table) for column in unbounded]
        ranges = release_ranges(numbers, plan.ranges, streams)
        columns.extend(map(_bounded, unbounded, ranges))
        _warn_of_fallback([c.name for c, r in zip(unbounded, ranges, strict=True) if not r.found])
    if plan.categories is not None:
        shown: dict[str, float] = {}
        for column in _unlisted(plan.schema):
            values = _labels(column.read(table.column(column.name)))
            selected, counts = select_categories(values, plan.categories, streams.secret)
            columns.append(_listed(column, selected))
            shown[column.name] = float(counts.sum()) / plan.n_samples
        if plan.categories.noise is not None:
            _warn_of_others(shown)
    return plan.schema.replace(*columns)


def check_readable(X: Any, schema: TableSchema) -> None:
    """Refuse a table of which some column cannot be read, before anything is charged.

    Parameters
    ----------
    X : DataFrame of pandas or polars, or ndarray of shape (n_samples, n_columns)
        The table.
    schema : TableSchema
        Its schema, resolved or not.

    Raises
    ------
    ValueError
        If a value misses where none may, a number is infinite, or something is of another kind
        than the schema says. The message names the column and quotes no value.
    """
    table = Table.of(X, schema.names)
    for column in schema.columns:
        values = table.column(column.name)
        if isinstance(column, NumericColumn):
            column.read_numbers(values)
        elif isinstance(column, DatetimeColumn):
            column.read_times(values)
        elif isinstance(column, CategoricalColumn) and column.categories is None:
            column.check_values(values)
        else:
            column.to_codes(values)  # type: ignore[attr-defined]


def bound_schema(given: TableSchema | None, X: Any, caller: str) -> TableSchema:
    """Return a schema with the data types of a table, by default of its public facts alone.

    Parameters
    ----------
    given : TableSchema or None
        What the caller of an estimator knows.
    X : DataFrame of pandas or polars, or ndarray of shape (n_samples, n_columns)
        The table; no value is read.
    caller : str
        Name of the estimator.

    Returns
    -------
    TableSchema

    Warns
    -----
    PrivacyWarning
        If columns are left out because of their names.
    """
    schema = TableSchema.from_dtypes(X) if given is None else given
    if given is None and schema.excluded:
        warn_of_privacy(
            f"{caller}: {_named(schema.excluded)} left out: by their names, such columns tell who "
            "somebody is. Drop them before; or declare what they hold in a schema, if it does not."
        )
    return schema.bind(X)


def warn_of_guess(schema: TableSchema, caller: str) -> None:
    """Warn when a schema was guessed from values and nobody has confirmed that it is public.

    Parameters
    ----------
    schema : TableSchema
        The schema.
    caller : str
        Name of the estimator.

    Warns
    -----
    PrivacyWarning
        Which depends on the schema alone.
    """
    if schema.guessed:
        warn_of_privacy(
            f"{caller}: the schema was guessed from the values of a table, which no privacy "
            "statement covers. Replace what is not public, and then pass schema.confirm()."
        )


def _unbounded(schema: TableSchema) -> list[NumericColumn | DatetimeColumn]:
    scaled = [c for c in schema.columns if isinstance(c, NumericColumn | DatetimeColumn)]
    return [column for column in scaled if not column.is_resolved]


def _unlisted(schema: TableSchema) -> list[CategoricalColumn]:
    coded = [c for c in schema.columns if isinstance(c, CategoricalColumn)]
    return [column for column in coded if not column.is_resolved]


def _numbers(column: NumericColumn | DatetimeColumn, table: Table) -> np.ndarray:
    """Return the numbers that bounds are estimated from, NaN where one is missing."""
    given = table.column(column.name)
    if isinstance(column, DatetimeColumn):
        times = column.read_times(given)
        values, missing = column.seconds(times), times.missing
    else:
        numbers = column.read_numbers(given)
        values, missing = numbers.values, numbers.missing
    return np.where(missing, np.nan, values.astype(np.float64))


def _bounded(column: NumericColumn | DatetimeColumn, found: ColumnRange) -> TableColumn:
    """Return the column with the bounds that it lacks."""
    if isinstance(column, DatetimeColumn):
        dates = column.iso_bounds(found.lower, found.upper)
        if not found.found:
            dates = {"lower": _UNKNOWN_DATES[0], "upper": _UNKNOWN_DATES[1]}
        return column.within(dates["lower"], dates["upper"])
    return column.within(found.lower, found.upper)


def _labels(values: PlainColumn) -> np.ndarray:
    """Return the values that are not missing, equal numbers as one and the same."""
    present = values.present
    if present.dtype.kind != "O":
        return present
    plain = np.empty(len(present), dtype=object)
    plain[:] = [_plain(value) for value in present]
    return plain


def _plain(value: Any) -> Any:
    key = category_key(value)
    if key is None:
        raise ValueError("A value is no category.")
    number = key[1]
    return int(number) if key[0] == "number" and number == int(number) else number


def _listed(column: CategoricalColumn, selected: tuple[Any, ...]) -> CategoricalColumn:
    """Return the column with its categories and one that takes all other values."""
    other = column.other
    if other is None:
        other = _free_name(selected, column.dtype or "object")
    return column.replace(categories=selected, other=other)


def _free_name(selected: tuple[Any, ...], dtype: str) -> Any:
    """Return a category that the data type can hold and that was not selected, if there is one."""
    taken = set(map(category_key, selected))
    candidates = _names(category_dtype(dtype) or dtype)
    # None is left when each value of the data type was selected; then there are no others.
    return next((name for name in candidates if category_key(name) not in taken), None)


def _names(dtype: str) -> Iterable[Any]:
    """Return the categories that a data type can hold, those first that are likely to be free."""
    family = dtype_family(dtype)
    if family == "integer":
        limits = np.iinfo(dtype.lower())
        if limits.min == 0:
            return range(limits.max, -1, -1)
        return chain(range(-1, limits.min - 1, -1), range(limits.max + 1))
    if family == "float":
        return count(-1, -1)
    return (_OTHER + "_" * length for length in count())


def _warn_of_others(shown: dict[str, float]) -> None:
    """Warn of columns most of whose rows have no category that was released, by noisy counts."""
    hidden = {name: share for name, share in shown.items() if share < _LEAST_SHOWN}
    if hidden:
        shares = ", ".join(f"{name!r} (about {share:.0%})" for name, share in hidden.items())
        warn_of_privacy(
            f"Private categories: only some rows keep their values in {shares}; the others are "
            "missing or become 'other', because too few rows share a value. Convert dates that are "
            "written as text (pandas.to_datetime with dayfirst=True or format=) and numbers such "
            "as 1,234.50 (pandas.read_csv with thousands=','), leave out names, identifiers and "
            "free text, and state other categories in the schema; or use more rows or a larger "
            "epsilon."
        )


def _named(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _warn_of_fallback(names: list[str]) -> None:
    if names:
        warn_of_privacy(
            f"Private bounds: {_named(names)} did not stand out from the privacy "
            "noise, and got public bounds that may have nothing to do with the data (-4 and 4, or "
            "1900 and 2100). State bounds in the schema, or use more rows or a larger epsilon."
        )
