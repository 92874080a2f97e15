"""Canaries: pairs of made-up records of which one is in the data, by the fall of a coin.

What makes them strong, and what does not:

*Sketches, projections, trajectories.* Opposite corners of the box. Of "presample", and of
"resample" with batches of hundreds, guesses show only that there is no noise at all; batches of one
row (``batch_size=1``) show noise that is ten times too small.
With ``n_particles=1`` two opposite rows pull the same particle in opposite directions, and clipped
gradients have to differ in direction: in two dimensions there is room for a few canaries a time.

*Autoencoders, generators.* Orthogonal rows have nearly orthogonal gradients. Use at least as many
features as canaries, large batches, few steps, and learning rates so small that the network does
not fit the canaries. A generator shows mostly the mean of the rows; its residuals show its noise.

*Fair predictors.* A record's gradient of the loss is its features times the error of its output:
equal features, long enough to be clipped, and opposite targets; or opposite features where classes
are public. The network needs more parameters than there are canaries.

*Private bounds and scalers.* Outliers, in cells of their own, are seen best, beside three times as
many ordinary rows that keep the cells narrow.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import hadamard
from sklearn.base import clone

from skdpot.ot.slices import orthogonal_directions
from skdpot.privacy.budget import PrivacyBudget
from skdpot.release.gate import Release, first_difference, record_releases, replay_releases
from skdpot.tables.categorical_column import CategoricalColumn
from skdpot.tables.column_base import TableColumn
from skdpot.tables.frames import Table
from skdpot.tables.numeric_column import NumericColumn
from skdpot.tables.schema import TableSchema, bound_schema

_ROOM = 4  # corners are drawn at random where there are 2^4 of them, or more, for each record


class NoKnownAttackError(ValueError):
    """No attack on such an estimator is known; pass canaries and a score of your own."""

    @classmethod
    def of(cls, estimator: Any) -> "NoKnownAttackError":
        """Return the error for an estimator."""
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
        own = heads.reshape(-1, *[1] * (np.ndim(self.first_labels) - 1))
        return rows, np.where(own, self.first_labels, self.second_labels)


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
    own = other = None
    if labels is not None:
        own, other = _two_of(np.unique(np.asarray(labels)), n_pairs, rng)
    middle, reach = (low + high) / 2, (high - low) / 2 * directions
    return CanaryPairs(
        first=middle + reach, second=middle - reach, first_labels=own, second_labels=other
    )


def _two_of(choices: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw two different choices for each of `n` pairs."""
    if len(choices) < 2:
        raise ValueError("Labels must hold at least two classes, and targets two values.")
    own = rng.integers(len(choices), size=n)
    other = (own + rng.integers(1, len(choices), size=n)) % len(choices)
    return choices[own], choices[other]


_LENGTH = 4.0  # of the features of a canary, in units of the clip of the loss: clipped for sure

_OCTAVES = 16.0


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
    chosen = getattr(estimator, "_given_estimator", estimator)  # contributions publish its release
    if not hasattr(chosen, "_canaries"):
        raise NoKnownAttackError.of(estimator)
    return _RECIPES[chosen._canaries](chosen, _Slots(n_pairs, X, y, fit_params or {}, rng))


@dataclass(frozen=True, eq=False)
class _Slots:
    """The number of pairs to make, the public rows beside them, and the generator."""

    n_pairs: int
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    rng: np.random.Generator

    def filled(self, first: np.ndarray, second: np.ndarray, **facts: Any) -> CanaryPairs:
        """Return pairs of rows, with one label in each pair, drawn from those of the known rows."""
        same = None if self.y is None else self.rng.choice(np.asarray(self.y), size=self.n_pairs)
        return CanaryPairs(
            first=first, second=second, first_labels=same, second_labels=same, **facts
        )

    def facts(self) -> dict[str, np.ndarray]:
        """Draw public facts of slots, such as their groups, from those of the known rows."""
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
    """Return the box that an estimator is told of, or else the one around public rows."""
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
    """Make opposite rows on the edge of what is declared, of one group in each pair."""
    if not getattr(estimator, "private", True):
        raise ValueError("private=False claims no privacy; there is nothing to audit.")
    low, high = _edges(estimator, slots.X)
    draw = _hadamard if estimator.norm_bound is None else orthogonal_directions
    middle = (low + high) / 2.0
    reach = (high - low) / 2.0 * draw(slots.n_pairs, slots.X.shape[1], slots.rng)
    pairs = slots.filled(middle + reach, middle - reach)  # labels, which the fit ignores
    return replace(pairs, fit_params=slots.facts())


def _hadamard(n_pairs: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw corners of the cube, orthogonal as far as there are so many."""
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
    alone = estimator._canaries == "opposite rows"  # not all of them have a class that is read
    if alone or (facts and getattr(estimator, "_classes_are_public", bool)()):
        return replace(slots, y=np.unique(y)).filled(rows, -rows, fit_params=facts)
    bounds = getattr(estimator, "target_bounds", None)
    least, most = (y, y) if bounds is None or isinstance(bounds, str) else bounds
    choices = np.unique(y) if bounds is None else np.array([np.min(least), np.max(most)])
    own, other = _two_of(choices, n_pairs, rng)
    return CanaryPairs(
        first=rows, second=rows, first_labels=own, second_labels=other, fit_params=facts
    )


def _far_out(_: Any, slots: _Slots) -> CanaryPairs:
    """Make records of opposite signs and of all orders of magnitude above that of the rows."""
    X, rng = slots.X, slots.rng
    unit = np.maximum(np.abs(X).max(axis=0), 1e-12) if len(X) else np.ones(X.shape[1])
    sign = np.where(rng.random((slots.n_pairs, X.shape[1])) < 0.5, -1.0, 1.0)
    first, second = unit * np.exp2(rng.uniform(0.0, _OCTAVES, size=(2, *sign.shape)))
    return slots.filled(sign * first, -sign * second)


def _half_a_scale_apart(estimator: Any, slots: _Slots) -> CanaryPairs:
    """Make rows that differ in all columns, and on a scale by half of its length."""
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
    """Return a column that says which values it has, by public rows where it leaves that open."""
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
    """Return a schema of a synthesizer's cells, and the cells of rows: a fit counts in the same."""
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


# By the name that estimators have for what shows most of them (`PrivateEstimatorMixin._canaries`).
_RECIPES: dict[str, Callable[[Any, _Slots], CanaryPairs]] = {
    "corners": _corners,
    "orthogonal rows": _orthogonal,
    "opposite targets": _opposite,
    "opposite rows": _opposite,
    "half a scale apart": _half_a_scale_apart,
    "far out": _far_out,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditedFit:
    """What an attacker knows: everything but the coins."""

    fitted: Any
    releases: tuple[Release, ...]
    pairs: CanaryPairs
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    verbose: int = 0

    @property
    def candidates(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Known rows, then the first of all pairs, then the second, and their labels."""
        pairs = self.pairs
        rows = np.concatenate([self.X, pairs.first, pairs.second])
        if self.y is None or pairs.first_labels is None or pairs.second_labels is None:
            return rows, None
        return rows, np.concatenate([self.y, pairs.first_labels, pairs.second_labels])

    @property
    def shares(self) -> np.ndarray:
        """The expected count of each candidate: 1 for known rows, 1/2 for the others."""
        return np.concatenate([np.ones(len(self.X)), np.full(2 * len(self.pairs), 0.5)])


Score = Callable[[AuditedFit], np.ndarray]


def named_parameters(fit: Any, name: str) -> dict[str, Any]:
    """Return the parameters of an estimator with a name, its own and those of its parts."""
    given = fit.get_params() if hasattr(fit, "get_params") else {}
    return {key: value for key, value in given.items() if key.rpartition("__")[2] == name}


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditTask:
    """A function to audit, the known rows, and the pairs that coins choose from."""

    fit: Any
    pairs: CanaryPairs
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    verbose: int = 0

    def __post_init__(self) -> None:
        given = self.fit.get_params() if hasattr(self.fit, "get_params") else {}
        for name, value in given.items():
            if isinstance(value, PrivacyBudget):
                raise ValueError(f"fit must have {name}=None: audits charge no budget.")

    def run(self, heads: np.ndarray) -> AuditedFit:
        """Fit once to the known rows and the chosen records, and record the releases."""
        function = clone(self.fit).fit if hasattr(self.fit, "fit") else self.fit
        with record_releases() as releases:
            fitted, facts = self._fitted(function, self.pairs.choose(heads))
        known: dict[str, Any] = {"X": self.X, "y": self.y, "fit_params": facts}
        held = {"fitted": fitted, "releases": tuple(releases)}
        return AuditedFit(pairs=self.pairs, verbose=self.verbose, **known, **held)

    def leak(self, heads: np.ndarray) -> str | None:
        """Name an output of a fit that depends on the rows beside its releases.

        An estimator is fitted twice with one seed, the second time to other records with the
        releases of the first fit: what depends on the rows through the releases alone is then the
        same to the last bit. A slot of the other rows has the label of its other record and the
        features of another slot, since the records of a pair may have equal ones.
        """
        seeds = named_parameters(self.fit, "random_state")
        if not seeds:
            return None
        seeded = clone(self.fit).set_params(**dict.fromkeys(seeds, 0))

        def difference(other: tuple[np.ndarray, np.ndarray | None]) -> str:
            try:
                with replay_releases(releases):
                    again, _ = self._fitted(clone(seeded).fit, other)
            except Exception as error:  # it did not fail on the first rows
                return str(error)
            return first_difference(vars(fitted), vars(again)) or ""

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a seed or noise warns of concerns nobody here
            own, (rows, labels) = self.pairs.choose(heads), self.pairs.choose(~heads)
            with record_releases(forgetting=False) as releases:
                fitted, _ = self._fitted(clone(seeded).fit, own)
            found = difference((rows[np.arange(len(rows)) // 2], labels))
            return None if found and difference(own) else found

    def _fitted(
        self, function: Callable[..., Any], slots: tuple[np.ndarray, np.ndarray | None]
    ) -> tuple[Any, dict[str, np.ndarray]]:
        chosen, labels = slots
        rows = np.concatenate([self.X, chosen])
        if (labels is None) != (self.y is None):
            raise ValueError("y must be given if and only if the canaries have labels.")
        if set(self.fit_params) != set(self.pairs.fit_params):
            raise ValueError("fit_params of rows and of canaries must have the same names.")
        targets = None if labels is None else np.concatenate([np.asarray(self.y), labels])
        facts = {
            name: np.concatenate([value, self.pairs.fit_params[name]])
            for name, value in self.fit_params.items()
        }
        return function(rows, targets, **facts), facts
