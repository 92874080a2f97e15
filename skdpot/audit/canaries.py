"""Canaries: pairs of made-up records of which one is in the data, by the fall of a coin.

What makes them strong, and what does not:

*Sketches, projections, trajectories.* Opposite corners of the box. For "presample", and for
"resample" with batches of hundreds, guesses only detect that there is no noise at all; batches of
one row (``batch_size=1``) detect noise that is ten times too small. With ``n_particles=1`` two
opposite rows pull the same particle in opposite directions, and clipped gradients have to differ in
direction: in two dimensions there is room for a few canaries per time.

*Autoencoders, generators.* Orthogonal rows have nearly orthogonal gradients. Use at least as many
features as canaries, large batches, few steps, and learning rates so small that the network does
not fit the canaries. A generator reveals mostly the mean of the rows; its residuals reveal its
noise.

*Fair predictors.* The gradient of the loss of a record is its features times the error of its
output: use equal features, long enough to be clipped, and opposite targets, or opposite features
where classes are public. The network needs more parameters than there are canaries.

*Private bounds and scalers.* Outliers in cells of their own are detected best, beside three times
as many ordinary rows that keep the cells narrow.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import hadamard

from skdpot.ot.directions import orthogonal_directions
from skdpot.tables.categorical_column import CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.frames import Table
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.schema import TableSchema, bound_schema

_ROOM = 4  # corners are drawn at random if there are 2^4 of them, or more, for each record
_LENGTH = 4.0  # of the features of a canary, in units of the clip of the loss: clipped for sure
_OCTAVES = 16.0  # orders of magnitude of outliers, in powers of two


class NoKnownAttackError(ValueError):
    """No attack on such an estimator is known: pass canaries and a score of your own."""

    @classmethod
    def of(cls, estimator: Any) -> "NoKnownAttackError":
        """Return the error that names the class of an estimator."""
        name = type(estimator).__name__
        return cls(f"No attack on {name} is known. Pass canaries= and score=.")


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryPairs:
    """Pairs of records that replace each other in one slot of the data."""

    first: np.ndarray
    second: np.ndarray
    first_labels: np.ndarray | None = None
    second_labels: np.ndarray | None = None
    fit_params: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("first", "second", "first_labels", "second_labels"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else np.asarray(value))
        if self.first.ndim != 2 or self.first.shape != self.second.shape or not len(self.first):
            shapes = f"{self.first.shape} and {self.second.shape}"
            raise ValueError(f"first and second need one shape (n_pairs, n_features): {shapes}.")
        if (self.first_labels is None) != (self.second_labels is None):
            raise ValueError("first_labels and second_labels must be given both or neither.")
        columns = {"first_labels": self.first_labels, "second_labels": self.second_labels}
        for name, column in {**columns, **self.fit_params}.items():
            if column is not None and np.shape(column)[:1] != (len(self.first),):
                raise ValueError(f"{name} must have one entry for each of {len(self.first)} pairs.")

    def __len__(self) -> int:
        return len(self.first)

    def choose(self, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the records that are in the data, and their labels."""
        rows = np.where(heads[:, None], self.first, self.second)
        if self.first_labels is None or self.second_labels is None:
            return rows, None
        per_label = heads.reshape(-1, *[1] * (np.ndim(self.first_labels) - 1))
        return rows, np.where(per_label, self.first_labels, self.second_labels)


def antipodal_pairs(
    n_pairs: int,
    low: ArrayLike,
    high: ArrayLike,
    *,
    rng: np.random.Generator,
    corners: bool = False,
    labels: ArrayLike | None = None,
) -> CanaryPairs:
    """Make pairs of opposite records on the edge of public bounds: they move releases most."""
    low, high = np.broadcast_arrays(np.atleast_1d(low).astype(float), np.atleast_1d(high))
    directions = rng.normal(size=(n_pairs, len(low)))
    if corners and len(low) > _ROOM + np.log2(n_pairs):
        directions = np.where(directions < 0, -1.0, 1.0)
    elif corners:
        directions /= np.abs(directions).max(axis=1, keepdims=True)
    else:
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    first_labels = second_labels = None
    if labels is not None:
        choices = np.unique(np.asarray(labels))
        first_labels, second_labels = _two_different(choices, n_pairs, rng)
    middle, reach = (low + high) / 2, (high - low) / 2 * directions
    return CanaryPairs(
        first=middle + reach,
        second=middle - reach,
        first_labels=first_labels,
        second_labels=second_labels,
    )


def _two_different(
    choices: np.ndarray, n_pairs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two different choices for each pair."""
    if len(choices) < 2:
        raise ValueError("Labels must hold at least two classes, and targets two values.")
    first = rng.integers(len(choices), size=n_pairs)
    second = (first + rng.integers(1, len(choices), size=n_pairs)) % len(choices)
    return choices[first], choices[second]


def default_canaries(
    estimator: Any,
    n_pairs: int,
    X: np.ndarray,
    y: np.ndarray | None = None,
    *,
    fit_params: Mapping[str, np.ndarray] | None = None,
    rng: np.random.Generator,
) -> CanaryPairs:
    """Make the canaries that reveal most about an estimator."""
    # `ClientContribution` releases what its estimator does.
    inner = getattr(estimator, "_chosen_estimator", estimator)
    if not hasattr(inner, "_canaries"):
        raise NoKnownAttackError.of(estimator)
    return _RECIPES[inner._canaries](inner, _Slots(n_pairs, X, y, fit_params or {}, rng))


@dataclass(frozen=True, eq=False)
class _Slots:
    """The number of pairs to make, the public rows beside them, and the generator."""

    n_pairs: int
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    rng: np.random.Generator

    def filled(self, first: np.ndarray, second: np.ndarray, **facts: Any) -> CanaryPairs:
        """Return pairs of rows of one label each, drawn from the labels of the known rows."""
        labels = None if self.y is None else self.rng.choice(np.asarray(self.y), size=self.n_pairs)
        return CanaryPairs(
            first=first, second=second, first_labels=labels, second_labels=labels, **facts
        )

    def facts(self) -> dict[str, np.ndarray]:
        """Draw public facts of the slots, such as groups, from those of the known rows."""
        return {
            name: self.rng.choice(np.unique(np.asarray(values)), size=self.n_pairs)
            for name, values in self.fit_params.items()
        }


def _corners(estimator: Any, slots: _Slots) -> CanaryPairs:
    """Make opposite corners of the box, of different classes where classes are protected."""
    if not hasattr(estimator, "bounds"):
        raise NoKnownAttackError.of(estimator)
    if not getattr(estimator, "_is_private", True):
        raise NoKnownAttackError(
            f"No attack on PrivateWassersteinDistance(protocol={estimator.protocol!r}): it claims "
            "no privacy that could be refuted. skdpot.audit.reconstruct reads its messages; "
            'audit protocol="sliced".'
        )
    if getattr(estimator, "n_time_subsample", None) is not None or slots.fit_params:
        raise ValueError("Audit with n_time_subsample=None and no groups: such draws are secret.")
    owners = (estimator, getattr(estimator, "mechanism", None))
    public = any(getattr(owner, "public_labels", False) for owner in owners)
    protected = slots.y is not None and getattr(estimator, "conditional", False) and not public
    pairs = antipodal_pairs(
        slots.n_pairs,
        *_edges(estimator, slots.X),
        rng=slots.rng,
        corners=estimator.norm_bound is None,
        labels=slots.y if protected else None,
    )
    return pairs if protected else slots.filled(pairs.first, pairs.second)


def _edges(estimator: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the declared box of an estimator, or else the one around public rows."""
    bounds, radius = estimator.bounds, getattr(estimator, "norm_bound", None)
    if radius is not None:
        bounds = -float(radius), float(radius)
    elif isinstance(bounds, str):
        if not len(X):
            raise ValueError("Canaries lie on the edge of the rows of X: pass some, or bounds.")
        bounds = X.min(axis=0), X.max(axis=0)
    low, high = (np.broadcast_to(np.asarray(b, dtype=float), X.shape[1]) for b in bounds)
    return low, high


def _orthogonal(estimator: Any, slots: _Slots) -> CanaryPairs:
    """Make opposite rows on the edge of the declared box, of one group in each pair."""
    if not getattr(estimator, "private", True):
        raise ValueError("private=False claims no privacy; there is nothing to audit.")
    low, high = _edges(estimator, slots.X)
    draw = _hadamard if estimator.norm_bound is None else orthogonal_directions
    middle = (low + high) / 2.0
    reach = (high - low) / 2.0 * draw(slots.n_pairs, slots.X.shape[1], slots.rng)
    pairs = slots.filled(middle + reach, middle - reach)  # the fit ignores their labels
    return replace(pairs, fit_params=slots.facts())


def _hadamard(n_pairs: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw corners of the cube, orthogonal if there are enough of them."""
    size = 2 ** math.ceil(math.log2(max(n_pairs, n_features, 2)))
    signs = hadamard(size, dtype=float)
    rows, columns = (rng.permutation(size)[:count] for count in (n_pairs, n_features))
    return signs[np.ix_(rows, columns)] * rng.choice([-1.0, 1.0], size=n_features)


def _opposite(estimator: Any, slots: _Slots) -> CanaryPairs:
    """Make pairs of one group each: of different classes or extreme targets, or opposite rows."""
    n_pairs, y, rng = slots.n_pairs, slots.y, slots.rng
    if y is None or np.ndim(y) != 1:
        raise ValueError("y must have shape (n_samples,): classes, or a single target.")
    rows = (
        _LENGTH * estimator._clip_gradient * orthogonal_directions(n_pairs, slots.X.shape[1], rng)
    )
    facts = slots.facts()
    without_classes = estimator._canaries == "opposite rows"
    if without_classes or (facts and getattr(estimator, "_classes_are_public", bool)()):
        return replace(slots, y=np.unique(y)).filled(rows, -rows, fit_params=facts)
    bounds = getattr(estimator, "target_bounds", None)
    least, most = (y, y) if bounds is None or isinstance(bounds, str) else bounds
    choices = np.unique(y) if bounds is None else np.array([np.min(least), np.max(most)])
    first_labels, second_labels = _two_different(choices, n_pairs, rng)
    return CanaryPairs(
        first=rows,
        second=rows,
        first_labels=first_labels,
        second_labels=second_labels,
        fit_params=facts,
    )


def _far_out(_: Any, slots: _Slots) -> CanaryPairs:
    """Make records of opposite signs whose magnitudes range far above those of the rows."""
    X, rng = slots.X, slots.rng
    unit = np.maximum(np.abs(X).max(axis=0), 1e-12) if len(X) else np.ones(X.shape[1])
    sign = np.where(rng.random((slots.n_pairs, X.shape[1])) < 0.5, -1.0, 1.0)
    first, second = unit * np.exp2(rng.uniform(0.0, _OCTAVES, size=(2, *sign.shape)))
    return slots.filled(sign * first, -sign * second)


def _half_a_scale_apart(estimator: Any, slots: _Slots) -> CanaryPairs:
    """Make rows that differ in all columns, and by half of the length of each scale."""
    schema, X, rng = estimator.schema, slots.X, slots.rng
    if not isinstance(schema, TableSchema | None):
        schema = TableSchema.from_json(schema)
    schema = bound_schema(schema, X, type(estimator).__name__)
    table = Table.of(X, schema.names)
    sides: list[list[np.ndarray]] = [[], []]
    for column in schema:
        column = _with_values(column, table)
        grid = column.grid()
        if not grid.is_final:
            places = rng.random(slots.n_pairs)
            for side, unit in zip(sides, (places, (places + 0.5) % 1.0), strict=True):
                side.append(np.asarray(column.from_unit(unit), dtype=np.float64))
            continue
        first = rng.integers(grid.n_cells, size=slots.n_pairs)
        least, most = (grid.n_cells // 2,) * 2 if grid.on_scale else (1, grid.n_cells - 1)
        shift = rng.integers(least, max(least, most) + 1, size=slots.n_pairs)
        for side, cells in zip(sides, (first, (first + shift) % grid.n_cells), strict=True):
            side.append(np.asarray(grid.values(cells, rng), dtype=np.float64))
    return CanaryPairs(first=np.stack(sides[0], axis=1), second=np.stack(sides[1], axis=1))


def _with_values(column: Any, table: Table) -> Any:
    """Return a column whose values are declared, by itself or else by public rows."""
    if not column.is_numbered:
        raise ValueError(f"Rows of audits are numbers. Number the categories of {column.name!r}.")
    if column.is_resolved:
        return column
    values = table.series(column.name)
    if np.isnan(values).all():
        raise ValueError(
            f"The values of column {column.name!r} are unknown. Pass some rows, or declare its "
            "bounds or categories in the schema."
        )
    known = np.unique(values[~np.isnan(values)])
    if column.on_scale:
        return column.bounded(float(known[0]), float(known[-1]))
    return column.replace(categories=tuple(known.tolist()))


def numbered(fitted: Any, X: Any) -> tuple[TableSchema, np.ndarray]:
    """Return a schema with the cells of a synthesizer as values, and the cells of rows."""
    values = fitted._rules.to_model(fitted.schema_.read(Table.of(X, fitted.schema_.names)))
    columns: list[TableColumn] = []
    numbers = []
    for grid in fitted._grids:
        name, missing = grid.column.name, grid.column.missing
        cells = grid.codes(values[name]).astype(np.float64)
        numbers.append(np.where(cells == grid.n_cells, np.nan, cells))
        if grid.on_scale:
            most = grid.n_cells - 1
            columns.append(NumericColumn(name, lower=0, upper=most, integer=True, missing=missing))
        else:
            levels = tuple(range(grid.n_cells))
            columns.append(
                CategoricalColumn(name, categories=levels, ordered=grid.ordered, missing=missing)
            )
    return TableSchema(tuple(columns)), np.stack(numbers, axis=1)


# By the name in `PrivateEstimatorMixin._canaries`.
_RECIPES: dict[str, Callable[[Any, _Slots], CanaryPairs]] = {
    "corners": _corners,
    "orthogonal rows": _orthogonal,
    "opposite targets": _opposite,
    "opposite rows": _opposite,
    "half a scale apart": _half_a_scale_apart,
    "far out": _far_out,
}
