"""Canaries: pairs of made-up records of which one is in the data, by the fall of a coin.

What makes them strong, and what does not:

*Sketches, projections, trajectories.* Opposite corners of the box. Sorted among n noisy numbers, a
row is only as visible as in their sum: of "presample", and of "resample" with batches of hundreds,
guesses tell only that there is no noise at all; batches of one row (``batch_size=1``) show more.
With ``n_particles=1`` two opposite rows pull the same particle in opposite directions, and clipped
gradients have to differ in direction: in two dimensions there is room for a few canaries a time.

*Autoencoders, generators.* Orthogonal rows have nearly orthogonal gradients: at least as many
features as canaries, large batches, few steps, and learning rates so small that the network does
not fit the canaries. A generator shows mostly the mean of the rows; its residuals show its noise.

*Fair predictors.* A record's gradient of the loss is its features times what its output lacks of
the target: the same features, long enough to be clipped, and opposite targets; or where classes
are public, opposite features. The network needs more parameters than there are canaries.

*Private bounds and scalers.* A record that lies far out, in cells of its own, is seen best, beside
three times as many ordinary rows that keep the cells narrow. Without noise each exact median *is*
the value of one record, or the mean of two: several times as many features as canaries.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import hadamard

from skdpot.estimators.wasserstein_distance import PrivateWassersteinDistance
from skdpot.mechanisms.base import chosen_mechanism
from skdpot.mechanisms.fair import FAIR_MECHANISMS
from skdpot.preprocessing import CategoricalColumn, NumericColumn
from skdpot.preprocessing.column_base import TableColumn
from skdpot.preprocessing.table_frames import Table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.slicing.directions import orthogonal_directions

__all__ = [
    "CanaryPairs",
    "CanaryRequest",
    "NoKnownAttackError",
    "antipodal_pairs",
    "default_canaries",
    "is_known",
    "numbered",
]

_ROOM = 4  # corners are drawn at random where there are 2^4 of them, or more, for each record


class NoKnownAttackError(ValueError):
    """Nothing here attacks such an estimator; give canaries and a score of your own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryPairs:
    """Records two by two, that replace each other in one slot of the data.

    Parameters
    ----------
    first, second : array-like of shape (n_pairs, n_features)
        The two records of each slot.
    first_labels, second_labels : ndarray of shape (n_pairs,), optional
        What `fit` takes as `y` for them: classes, targets or time stamps. The two may differ only
        in what the audited estimator protects.
    fit_params : mapping of str to ndarray of shape (n_pairs,), default={}
        Public facts of the slots that `fit` takes by keyword, such as ``sensitive_features``.
    """

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
            raise ValueError(
                f"first and second must be arrays of one shape (n_pairs, n_features), at least "
                f"one pair; their shapes are {self.first.shape} and {self.second.shape}."
            )
        if (self.first_labels is None) != (self.second_labels is None):
            raise ValueError("first_labels and second_labels must be given both or neither.")
        columns = {"first_labels": self.first_labels, "second_labels": self.second_labels}
        for name, column in {**columns, **self.fit_params}.items():
            if column is not None and np.shape(column)[:1] != (len(self.first),):
                raise ValueError(f"{name} must have one entry for each of {len(self.first)} pairs.")

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.first)

    def choose(self, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the records that are in the data, and their labels.

        Parameters
        ----------
        heads : ndarray of bool of shape (n_pairs,)
            Where the first of the two is in.

        Returns
        -------
        rows : ndarray of shape (n_pairs, n_features)
        labels : ndarray of shape (n_pairs,) or None
        """
        rows = np.where(heads[:, None], self.first, self.second)
        if self.first_labels is None or self.second_labels is None:
            return rows, None
        own = heads.reshape(-1, *[1] * (np.ndim(self.first_labels) - 1))
        return rows, np.where(own, self.first_labels, self.second_labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryRequest:
    """What a maker of canaries is told."""

    estimator: Any
    n_pairs: int
    X: np.ndarray
    y: np.ndarray | None
    fit_params: Mapping[str, np.ndarray]
    rng: np.random.Generator


def antipodal_pairs(
    n_pairs: int,
    low: ArrayLike,
    high: ArrayLike,
    *,
    rng: np.random.Generator,
    corners: bool = False,
    labels: ArrayLike | None = None,
) -> CanaryPairs:
    """Make pairs of opposite records as far apart as the public bounds let them be.

    A record that is clipped, projected and counted moves a release most if it lies on the
    edge, and its counterpart opposite.

    Parameters
    ----------
    n_pairs : int
        Number of pairs.
    low, high : array-like of shape (n_features,)
        Bounds of each feature, in the units of the data.
    rng : numpy.random.Generator
        Draws the directions.
    corners : bool, default=False
        Whether records are corners of the box, or in few dimensions, where corners would coincide,
        points of its faces, in place of points of the ellipsoid in it: for bounds that clip
        coordinates one by one.
    labels : array-like, optional
        Two or more classes: the two records of a pair get different ones.

    Returns
    -------
    CanaryPairs
    """
    low, high = np.broadcast_arrays(np.atleast_1d(low).astype(float), np.atleast_1d(high))
    directions = rng.normal(size=(n_pairs, len(low)))
    if corners and len(low) > _ROOM + np.log2(n_pairs):
        directions = np.where(directions < 0, -1.0, 1.0)
    elif corners:
        directions /= np.abs(directions).max(axis=1, keepdims=True)
    else:
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle, reach = (low + high) / 2, (high - low) / 2
    pairs: dict[str, Any] = {}
    if labels is not None:
        classes = np.unique(np.asarray(labels))
        if len(classes) < 2:
            raise ValueError("labels must hold at least two classes.")
        own = rng.integers(len(classes), size=n_pairs)
        shift = rng.integers(1, len(classes), size=n_pairs)
        pairs["first_labels"] = classes[own]
        pairs["second_labels"] = classes[(own + shift) % len(classes)]
    return CanaryPairs(
        first=middle + reach * directions, second=middle - reach * directions, **pairs
    )


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
    """Make the canaries that show most of an estimator.

    Parameters
    ----------
    estimator : estimator
        As it is to be audited.
    n_pairs : int
        How many.
    X : ndarray of shape (n_samples, n_features)
        Public rows beside them. Where the estimator finds its bounds itself, canaries lie on
        the edge of these rows.
    y : ndarray of shape (n_samples,), optional
        Their labels.
    fit_params : mapping of str to ndarray, optional
        Further public facts of the rows.
    rng : numpy.random.Generator
        Draws the canaries.

    Returns
    -------
    CanaryPairs

    Raises
    ------
    NoKnownAttackError
        A ValueError: no attack on this estimator is known.
    """
    return _maker(estimator)(
        CanaryRequest(
            estimator=estimator, n_pairs=n_pairs, X=X, y=y, fit_params=fit_params or {}, rng=rng
        )
    )


def is_known(estimator: Any) -> bool:
    """Say whether the releases of an estimator are read by an attack."""
    return any(base.__name__ in _MAKERS for base in type(estimator).__mro__)


def _maker(estimator: Any) -> "Callable[[CanaryRequest], CanaryPairs]":
    for base in type(estimator).__mro__:
        if base.__name__ in _MAKERS:
            return _MAKERS[base.__name__]
    raise NoKnownAttackError(
        f"No attack on {type(estimator).__name__} is known: give canaries= (CanaryPairs) and "
        "score= yourself."
    )


def _corners(request: CanaryRequest) -> CanaryPairs:
    """Make opposite corners of the box, of different classes where classes are protected."""
    estimator, n_pairs, y, rng = request.estimator, request.n_pairs, request.y, request.rng
    low, high = _edges(estimator, request.X)
    conditional = getattr(estimator, "conditional", False)
    owners = (estimator, getattr(estimator, "mechanism", None))
    public = any(getattr(owner, "public_labels", False) for owner in owners)
    labels = y if conditional and not public else None
    pairs = antipodal_pairs(
        n_pairs, low, high, rng=rng, corners=estimator.norm_bound is None, labels=labels
    )
    if y is None or labels is not None:
        return pairs
    same = rng.choice(np.asarray(y), size=n_pairs)
    return CanaryPairs(
        first=pairs.first, second=pairs.second, first_labels=same, second_labels=same
    )


def _edges(estimator: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the box that an estimator is told of, or else the one around public rows."""
    n_features = X.shape[1]
    bounds, radius = estimator.bounds, getattr(estimator, "norm_bound", None)
    if radius is not None:
        return np.full(n_features, -float(radius)), np.full(n_features, float(radius))
    if isinstance(bounds, str):
        if not len(X):
            raise ValueError(
                'With bounds="private" the canaries lie on the edge of the rows of X: give some '
                "rows, or bounds=(low, high)."
            )
        return X.min(axis=0), X.max(axis=0)
    low, high = (np.broadcast_to(np.asarray(b, dtype=float), n_features) for b in bounds)
    return low, high


def _of_distance(request: CanaryRequest) -> CanaryPairs:
    """Refuse the protocols that claim no privacy."""
    estimator = request.estimator
    if hasattr(estimator, "estimator"):  # contributions publish the rows of reference
        inner = PrivateWassersteinDistance() if estimator.estimator is None else estimator.estimator
        return _of_distance(replace(request, estimator=inner))
    if estimator._is_private:
        return _corners(request)
    raise NoKnownAttackError(
        f"No attack on PrivateWassersteinDistance(protocol={estimator.protocol!r}): it "
        "claims no privacy that could be refuted. skdpot.audit.reconstruction recovers rows from "
        'its messages; audit protocol="sliced".'
    )


def _of_times(request: CanaryRequest) -> CanaryPairs:
    """Make opposite corners of the box, both at the time of a known row."""
    if request.estimator.n_time_subsample is not None or request.fit_params:
        raise ValueError(
            "Audit a sampler with n_time_subsample=None and without groups=: those leave out rows "
            "by a draw that the release does not show."
        )
    return _corners(request)


def _orthogonal(request: CanaryRequest) -> CanaryPairs:
    """Make opposite rows on the edge of what is declared, of one group in each pair."""
    estimator, n_pairs, X, rng = request.estimator, request.n_pairs, request.X, request.rng
    if not estimator.private:
        raise ValueError("private=False claims no privacy: there is nothing to audit.")
    low, high = _edges(estimator, X)
    middle, reach = (low + high) / 2.0, (high - low) / 2.0
    if estimator.norm_bound is None:
        reach = reach * _hadamard(n_pairs, X.shape[1], rng)
    else:
        reach = reach * orthogonal_directions(n_pairs, X.shape[1], rng)
    same = (
        None if request.y is None else rng.choice(np.asarray(request.y), size=n_pairs)
    )  # ignored by the fit
    return CanaryPairs(
        first=middle + reach,
        second=middle - reach,
        first_labels=same,
        second_labels=same,
        fit_params=_public_facts(n_pairs, request.fit_params, rng),
    )


def _hadamard(n_pairs: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw corners of the cube, orthogonal as far as there are so many."""
    size = 2 ** math.ceil(math.log2(max(n_pairs, n_features, 2)))
    signs = hadamard(size, dtype=float)
    rows, columns = (rng.permutation(size)[:count] for count in (n_pairs, n_features))
    corners: np.ndarray = signs[np.ix_(rows, columns)] * rng.choice([-1.0, 1.0], size=n_features)
    return corners


def _opposite(request: CanaryRequest) -> CanaryPairs:
    """Make pairs of one group each: of opposite targets, or of opposite features.

    Classes are those of `y`, targets its smallest and largest, or the declared bounds.
    """
    estimator, n_pairs = request.estimator, request.n_pairs
    X, y, rng = request.X, request.y, request.rng
    if y is None or np.ndim(y) != 1:
        raise ValueError("y must be an array of shape (n_samples,): classes, or a single target.")
    clip = chosen_mechanism(estimator.mechanism, FAIR_MECHANISMS).clip_loss
    rows = _LENGTH * clip * orthogonal_directions(n_pairs, X.shape[1], rng)
    facts = _public_facts(n_pairs, request.fit_params, rng)
    if getattr(estimator, "fairness", None) == "equalized_odds" and estimator.alpha > 0 and facts:
        same = rng.choice(np.unique(np.asarray(y)), size=n_pairs)
        return CanaryPairs(
            first=rows, second=-rows, first_labels=same, second_labels=same, fit_params=facts
        )
    first, second = _opposite_targets(estimator, np.asarray(y), n_pairs, rng)
    return CanaryPairs(
        first=rows, second=rows.copy(), first_labels=first, second_labels=second, fit_params=facts
    )


def _opposite_targets(
    estimator: Any, y: np.ndarray, n_pairs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two different classes, or the ends of the range of the target in random order."""
    bounds = getattr(estimator, "target_bounds", None)
    if bounds is None:
        choices = np.unique(y)
    elif isinstance(bounds, str):
        choices = np.array([y.min(), y.max()])
    else:
        choices = np.array([np.min(bounds[0]), np.max(bounds[1])])
    own = rng.integers(len(choices), size=n_pairs)
    other = (own + rng.integers(1, len(choices), size=n_pairs)) % len(choices)
    return choices[own], choices[other]


def _public_facts(
    n_pairs: int, fit_params: Mapping[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draw the public facts of slots, such as their groups, from those of the known rows."""
    return {
        name: rng.choice(np.unique(np.asarray(values)), size=n_pairs)
        for name, values in fit_params.items()
    }


def _far_out(request: CanaryRequest) -> CanaryPairs:
    """Make records of opposite signs and of all orders of magnitude above that of the rows."""
    n_pairs, X, rng = request.n_pairs, request.X, request.rng
    unit = np.maximum(np.abs(X).max(axis=0), 1e-12) if len(X) else np.ones(X.shape[1])
    sign = np.where(rng.random((n_pairs, X.shape[1])) < 0.5, -1.0, 1.0)
    first, second = unit * np.exp2(rng.uniform(0.0, _OCTAVES, size=(2, *sign.shape)))
    if request.y is None:
        return CanaryPairs(first=sign * first, second=-sign * second)
    same = rng.choice(request.y, size=n_pairs)
    return CanaryPairs(
        first=sign * first, second=-sign * second, first_labels=same, second_labels=same
    )


def _half_a_scale_apart(request: CanaryRequest) -> CanaryPairs:
    """Make rows that differ in all columns, and on a scale by half of its length."""
    schema = request.estimator.schema
    if schema is None:
        schema = TableSchema.from_dtypes(request.X)
    elif not isinstance(schema, TableSchema):
        schema = TableSchema.from_json(schema)
    schema = schema.bind(request.X)
    table = Table.of(request.X, schema.names)
    sides: list[list[np.ndarray]] = [[], []]
    for column in schema:
        grid = _with_values(column, table).grid()
        first = request.rng.integers(grid.n_cells, size=request.n_pairs)
        least, most = (grid.n_cells // 2,) * 2 if grid.on_scale else (1, grid.n_cells - 1)
        shift = request.rng.integers(least, max(least, most) + 1, size=request.n_pairs)
        for side, cells in zip(sides, (first, (first + shift) % grid.n_cells), strict=True):
            side.append(np.asarray(grid.values(cells, request.rng), dtype=np.float64))
    return CanaryPairs(first=np.stack(sides[0], axis=1), second=np.stack(sides[1], axis=1))


def _with_values(column: TableColumn, table: Table) -> TableColumn:
    """Return a column that says which values it has, by public rows where it leaves that open."""
    name = column.name
    if not column.is_numbered:
        raise ValueError(
            f"The rows of an audit are arrays of numbers, and column {name!r} is none of numbers. "
            "Number its categories, or give canaries= and score= yourself."
        )
    if column.is_resolved:
        return column
    present = table.series(name)[~np.isnan(table.series(name))]
    if not len(present):
        raise ValueError(
            f"Nothing says which values column {name!r} has: give some rows, or state its bounds "
            "or categories in the schema."
        )
    return column.completed(present)


def numbered(fitted: Any, X: Any) -> tuple[TableSchema, np.ndarray]:
    """Return a schema of the cells that a synthesizer counts in, and the cells of rows.

    A fit on these numbers counts in the same cells, whatever the columns held: text or dates.
    """
    table = Table.of(X, fitted.schema_.names)
    columns: list[TableColumn] = []
    numbers = []
    for grid in fitted._grids:
        name, missing = grid.column.name, grid.column.missing
        cells = grid.codes(table.column(name)).astype(np.float64)
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


_MAKERS: dict[str, Callable[[CanaryRequest], CanaryPairs]] = {
    "SlicedSketch": _corners,
    "DPSlicedFlowSampler": _corners,
    "DPSlicedGenerator": _corners,
    "PrivateWassersteinDistance": _of_distance,
    "ClientContribution": _of_distance,
    "PrivateTrajectorySampler": _of_times,
    "PrivateSWAutoencoder": _orthogonal,
    "FairPrivateClassifier": _opposite,
    "FairPrivateRegressor": _opposite,
    "DPTableSynthesizer": _half_a_scale_apart,
    "PrivateScaler": _far_out,
}
