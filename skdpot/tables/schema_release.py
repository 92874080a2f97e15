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
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent
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
_LEAST_SHOWN = 0.5  # share of the rows below which hidden categories call for a warning


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


def release_schema(rows: Rows, plan: SchemaPlan, streams: Streams) -> TableSchema:
    """Estimate open bounds and categories from batches of rows that `TableSchema.read` returned.

    The caller has charged ``plan.event``. The releases are those of `skdpot.release.bounds` and
    `skdpot.tables.category_selection`. Missing values are not counted.
    """
    columns: list[TableColumn] = []
    unseen, hidden = [], []
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
            if not bounds.found and not column.is_resolved:
                unseen.append(repr(column.name))
    if plan.categories is not None:
        unlisted = _open_columns(plan.schema, False)
        occurring = rows.sum(partial(_occurring_categories, columns=unlisted))
        for column, values in zip(unlisted, occurring, strict=True):
            selected, counts = select_categories(values, plan.categories, streams.secret)
            columns.append(column.listed(selected))
            shown = float(counts.sum()) / plan.n_samples
            if shown < _LEAST_SHOWN and plan.categories.event.is_private:
                hidden.append(f"{column.name!r} (about {shown:.0%})")
    if unseen:
        warn_of_privacy(
            f"Private bounds: {', '.join(unseen)} did not stand out from the privacy noise. "
            "Default bounds were used, which may not fit the data (-4 and 4, or 1900 and 2100). "
            "State bounds in the schema, or use more rows or a larger epsilon."
        )
    if hidden:
        warn_of_privacy(
            f"Private categories: only some rows keep their values in {', '.join(hidden)}; rare "
            "values become missing or 'other'. State the categories if they are public, say how "
            "texts of dates and of numbers are written, exclude names and free text, or raise "
            "epsilon."
        )
    return plan.schema.replace(*columns)


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
