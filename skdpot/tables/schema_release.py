"""Private estimates of the bounds and categories that a schema leaves open.

Estimators read the table (`TableSchema.read`) before the charge, and call `release_schema` after
it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from skdpot._utils.streams import Streams
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.reliability import OutputError
from skdpot.release.private_bounds import BoundsPlan, plan_private_bounds, release_ranges
from skdpot.sources import Rows, Tables
from skdpot.tables.category_selection import (
    CategorySelectionPlan,
    count_categories,
    plan_category_selection,
    select_categories,
)
from skdpot.tables.column_base import TableColumn
from skdpot.tables.column_values import PlainColumn
from skdpot.tables.schema import TableSchema

ScaleOption: TypeAlias = Literal["auto", "private", "even", "cells"]
_ROUNDING = 1 - 1e-13  # rounding of roots must not exceed the given mu
_MARGIN = 0.05  # share of the rows that bounds and categories may always miss
_CELLS_AT_A_BOUND = 9  # whose noise moves the rows beyond a bound
DEFAULTS = {
    "bounds": "the default bounds",
    "scale": "an even scale",
    "categories": "no list of categories",
}


@dataclass(frozen=True)
class SchemaPlan:
    """The releases that resolve a schema, fixed before rows are read."""

    schema: TableSchema
    n_samples: int
    scale: ScaleOption
    ranges: BoundsPlan | None
    categories: CategorySelectionPlan | None

    @property
    def event(self) -> Any:
        """Event of all releases; None if nothing is left to be estimated."""
        events = tuple(plan.event for plan in (self.ranges, self.categories) if plan is not None)
        return ComposedEvent(events=events) if len(events) > 1 else next(iter(events), None)


@dataclass(frozen=True)
class SchemaEstimate:
    """What noise hides of the bounds, the scale or the categories of one column.

    `hidden` is a share of the rows: for bounds and scales the standard deviation of those beyond
    them that is due to noise, or those that later counts place there; for categories the rows whose
    values are not in the list.
    """

    column: str
    what: str  # a key of `DEFAULTS`
    hidden: float
    found: bool = True

    @classmethod
    def stated(cls, column: str, on_scale: bool) -> "SchemaEstimate":
        """Return that of a column whose bounds or categories the schema states."""
        return cls(column, "bounds" if on_scale else "categories", 0.0)

    @property
    def output(self) -> OutputError:
        """The error beside that of the public default."""
        return OutputError(
            output=f"{self.what} of {self.column}",
            standard_error=self.hidden,
            trivial=DEFAULTS[self.what],
            trivial_error=1.0 - self.hidden,
            margin=_MARGIN,
            replaced=not self.found,
        )


def plan_schema(
    schema: TableSchema, n_samples: int, *, mu: float, delta: float, scale: ScaleOption = "even"
) -> SchemaPlan:
    """Plan the estimates of open bounds and categories, with an equal share of mu² per column.

    `delta` is the share of delta for the selection of categories. Private scales come from the
    histograms of columns without bounds, or of all columns ("private"). With "cells", bounds are
    generous, because cells get finer where the rows are. The plan is made of public facts alone.
    """
    scaled, coded = len(to_measure(schema, scale)), len(_open_columns(schema, False))
    per_column = mu * _ROUNDING / math.sqrt(max(scaled + coded, 1))
    ranges = categories = None
    if scaled:
        share = per_column * math.sqrt(scaled)
        ranges = plan_private_bounds(n_samples, scaled, share, mode="features")
    if coded:
        share = per_column * math.sqrt(coded)
        categories = plan_category_selection(n_samples, mu=share, delta=delta, n_columns=coded)
    return SchemaPlan(schema, n_samples, scale, ranges, categories)


def release_schema(
    rows: Rows, plan: SchemaPlan, streams: Streams
) -> tuple[TableSchema, tuple[SchemaEstimate, ...]]:
    """Estimate open bounds and categories from batches of rows that `TableSchema.read` returned.

    The caller has charged ``plan.event``. The releases are those of `skdpot.release.bounds` and
    `skdpot.tables.category_selection`. Missing values are not counted.
    """
    columns: list[TableColumn] = []
    estimates = []
    if plan.ranges is not None:
        measured = to_measure(plan.schema, plan.scale)
        numbers = rows.map(partial(_measured_numbers, columns=measured))
        scaled = plan.scale in ("auto", "private")
        spans = [column.span for column in measured] if scaled else None
        generous = plan.scale == "cells"
        ranges = release_ranges(numbers, plan.ranges, streams, spans, generous=generous)
        for column, bounds in zip(measured, ranges, strict=True):
            bounded = column.bounded(bounds.lower, bounds.upper, bounds.found)
            columns.append(bounded if bounds.knots is None else bounded.stretched(bounds.knots))
            what = "scale" if column.is_resolved else "bounds"
            hidden = _noise_at_bounds(plan.ranges) if bounds.found else 1.0
            estimates.append(SchemaEstimate(column.name, what, hidden, bounds.found))
    if plan.categories is not None:
        unlisted = _open_columns(plan.schema, False)
        occurring = rows.sum(partial(_occurring_categories, columns=unlisted))
        is_private = plan.categories.event.is_private
        for column, values in zip(unlisted, occurring, strict=True):
            selected, counts = select_categories(values, plan.categories, streams.secret)
            columns.append(column.listed(selected))
            hidden = 1.0 - float(counts.sum()) / plan.n_samples if is_private else 0.0
            hidden = min(max(hidden, 0.0), 1.0)
            estimates.append(SchemaEstimate(column.name, "categories", hidden, bool(selected)))
    return plan.schema.replace(*columns), tuple(estimates)


def _noise_at_bounds(plan: BoundsPlan) -> float:
    """Return the noise of the rows beyond a bound, as a share of the rows."""
    if plan.features is None:
        return 0.0
    return min(math.sqrt(_CELLS_AT_A_BOUND) * plan.features.sigma / plan.n_samples, 1.0)


def _measured_numbers(batch: Mapping[str, PlainColumn], columns: Sequence[Any]) -> Any:
    return np.column_stack([column.numbers(batch[column.name]) for column in columns])


def _occurring_categories(batch: Mapping[str, PlainColumn], columns: Sequence[Any]) -> Tables:
    return tuple(count_categories(column.labels(batch[column.name])) for column in columns)


def to_measure(schema: TableSchema, scale: str) -> list[Any]:
    """Return the columns with a private histogram."""
    if scale != "private":
        return _open_columns(schema, True)
    scaled: list[Any] = [column for column in schema if column.on_scale]
    even = [c for c in scaled if not c.log_scale and c.knots is None and c.lower != c.upper]
    return [c for c in scaled if c in even or not c.is_resolved]


def _open_columns(schema: TableSchema, on_scale: bool) -> list[Any]:
    """Return the columns that lack bounds, or categories."""
    return [c for c in schema if c.on_scale == on_scale and not c.is_resolved]
