"""What a schema leaves to be estimated: planned from public facts, then released once.

An estimator that needs more than a schema composes ``plan.event`` with the events of its other
phases, reads the table (`TableSchema.read`), charges all at once, and then calls `release_schema`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import Streams
from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_frames import PlainColumn
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.bounds_plan import BoundsPlan, plan_private_bounds
from skdpot.privacy.category_selection import (
    CategorySelectionPlan,
    plan_category_selection,
    select_categories,
)
from skdpot.privacy.events import ComposedEvent, Event
from skdpot.privacy.private_ranges import release_ranges

__all__ = ["GUESSED", "SchemaPlan", "plan_schema", "release_schema", "warn_of_guess"]

# What a privacy statement assumes where nobody has confirmed a guessed schema.
GUESSED = "the schema, which was guessed from values"
_ROUNDING = 1 - 1e-13
_LEAST_SHOWN = 0.5  # of the rows, by noisy counts


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """The public part of resolving a schema, fixed before data are touched."""

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
    """Fix what resolving a schema does and costs; each open column gets an equal share of mu².

    `delta` is the probability that the selection of categories may leave open. No data are
    touched, and everything that the plan is made of is public.
    """
    for column in schema.columns:
        if column.dtype is None:
            raise ValueError(f"Column {column.name!r} has no data type; call schema.bind(table).")
    scaled, coded = (len(_left_open(schema, on_scale)) for on_scale in (True, False))
    per_column = mu * _ROUNDING / math.sqrt(max(scaled + coded, 1))
    ranges = categories = None
    if scaled:
        share = per_column * math.sqrt(scaled)
        ranges = plan_private_bounds(n_samples, scaled, share, mode="features")
    if coded:
        share = per_column * math.sqrt(coded)
        categories = plan_category_selection(n_samples, mu=share, delta=delta, n_columns=coded)
    return SchemaPlan(schema=schema, n_samples=n_samples, ranges=ranges, categories=categories)


def release_schema(
    readings: Mapping[str, PlainColumn], plan: SchemaPlan, streams: Streams
) -> TableSchema:
    """Estimate what the schema leaves open from the columns as `TableSchema.read` returns them.

    The caller has charged ``plan.event``. Releases bounds and categories; see
    `skdpot.privacy.private_ranges` and `skdpot.privacy.category_selection`. Missing values are no
    category, and in no histogram.
    """
    n_rows = {len(values) for values in readings.values()}
    if n_rows != {plan.n_samples}:
        raise ValueError(f"The plan is for {plan.n_samples} rows, got {max(n_rows)}.")
    columns: list[TableColumn] = []
    if plan.ranges is not None:
        unbounded = _left_open(plan.schema, True)
        numbers = [column.numbers(readings[column.name]) for column in unbounded]
        ranges = release_ranges(numbers, plan.ranges, streams)
        for column, found in zip(unbounded, ranges, strict=True):
            columns.append(column.bounded(found.lower, found.upper, found.found))
        _warn_of_fallback([c.name for c, r in zip(unbounded, ranges, strict=True) if not r.found])
    if plan.categories is not None:
        shown: dict[str, float] = {}
        for column in _left_open(plan.schema, False):
            values = column.labels(readings[column.name])
            selected, counts = select_categories(values, plan.categories, streams.secret)
            columns.append(column.listed(selected))
            shown[column.name] = float(counts.sum()) / plan.n_samples
        if plan.categories.noise is not None:
            _warn_of_others(shown)
    return plan.schema.replace(*columns)


def warn_of_guess(schema: TableSchema, caller: str) -> None:
    """Warn when a schema was guessed from values and nobody has confirmed that it is public."""
    if schema.guessed:
        warn_of_privacy(
            f"{caller}: the schema was guessed from the values of a table, which no privacy "
            "statement covers. Replace what is not public, and then pass schema.confirm()."
        )


def _left_open(schema: TableSchema, on_scale: bool) -> list[Any]:
    """Return the columns that lack bounds, or those that lack categories."""
    return [c for c in schema if c.on_scale == on_scale and not c.is_resolved]


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


def _warn_of_fallback(names: list[str]) -> None:
    if names:
        warn_of_privacy(
            f"Private bounds: {', '.join(map(repr, names))} did not stand out from the privacy "
            "noise, and got public bounds that may have nothing to do with the data (-4 and 4, or "
            "1900 and 2100). State bounds in the schema, or use more rows or a larger epsilon."
        )
