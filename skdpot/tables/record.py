"""Saved synthesizers. A file whose parts contradict each other is refused."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.records import LARGEST_COUNT, Record, refusing
from skdpot.privacy.noise import noise_lattice
from skdpot.privacy.statement import PrivacySpent, check_epsilon_delta, check_statement, scales_of
from skdpot.release.contributions import WEIGHTINGS, Unit
from skdpot.tables.bins import ColumnBins
from skdpot.tables.cells import MAX_CELLS, ROUNDS, rounds_of
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import (
    MARGINAL_LATTICE,
    MARGINAL_SENSITIVITY,
    release_of,
    tables_of,
)
from skdpot.tables.model import TableModel
from skdpot.tables.plan import events_of
from skdpot.tables.reliability import table_reliability
from skdpot.tables.row_map import RowMap, constants_of
from skdpot.tables.schema import TableSchema
from skdpot.tables.schema_release import DEFAULTS, SchemaEstimate
from skdpot.tables.tree import ColumnTree

_PARAMETERS = ("epsilon", "delta", "target", "unit", "max_rows", "weighting", "n_particles")
_MOST_COLUMNS = _MOST_BINS = 4096
_LARGEST_NOISE = 1e15
_NOISE_REACH = 20.0  # standard deviations; larger noise has a probability of 1e-88
_LARGEST_POTENTIAL = 600.0  # its exponential times a number of rows is finite
_ROUNDING = 1e-9  # machines differ in the last digits

_LESS_NOISE = "its counts have less noise than its statement says"
_NO_CELLS = "it has cells that its columns cannot have"


@dataclass(frozen=True, eq=False, kw_only=True)
class TableRecord(Record):
    """The released parts of a fitted synthesizer."""

    makes: str
    epsilon: float
    delta: float
    target: str | None
    unit: str | None
    max_rows: int | None
    weighting: str
    n_particles: int | None
    schema: Any
    given_schema: Any
    feature_names: tuple[str, ...] | None
    spent: PrivacySpent
    n_samples: int
    n_rows: int
    releases: tuple[tuple[NoisyMarginal, ...], ...]
    bins: tuple[ColumnBins, ...]
    tree: ColumnTree
    potentials: tuple[FloatArray, ...]
    edges: tuple[FloatArray, ...]
    rounded: tuple[FloatArray, ...]
    estimates: tuple[SchemaEstimate, ...]

    kind: ClassVar[str] = "skdpot.DPTableSynthesizer"
    noun: ClassVar[str] = "synthesizer"
    most_header: ClassVar[int] = 2**22  # bytes; it holds all categories

    @classmethod
    def of(cls, synthesizer: Any) -> "TableRecord":
        """Return the record of a fitted synthesizer."""
        stated, model = synthesizer.schema, synthesizer.model_
        if not (stated is None or isinstance(stated, TableSchema)):
            stated = synthesizer.schema_  # readers of the record lack the file of the schema
        names = getattr(synthesizer, "feature_names_in_", None)
        return cls(
            makes=synthesizer._kind,
            **{name: getattr(synthesizer, name) for name in _PARAMETERS},
            schema=json.loads(synthesizer.schema_.to_json()),
            given_schema=None if stated is None else json.loads(stated.to_json()),
            feature_names=None if names is None else tuple(map(str, names)),
            spent=synthesizer.privacy_spent_,
            n_samples=synthesizer.n_samples_,
            n_rows=model.n_rows,
            releases=tuple(map(tables_of, model.releases)),
            bins=model.bins,
            tree=model.tree,
            potentials=model.potentials,
            edges=tuple(_as_stored(grid.edges, 1) for grid in model.grids),
            rounded=tuple(_as_stored(grid.rounded, 2) for grid in model.grids),
            estimates=synthesizer._estimates,
        )

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters and fitted attributes of a synthesizer, or raise ValueError."""
        with refusing(self.noun):
            return self._rebuild()

    def _rebuild(self) -> tuple[dict[str, Any], dict[str, Any]]:
        schema = _read_schema(self.schema)
        _require(schema.is_resolved, "its schema leaves bounds or categories open")
        stated = None if self.given_schema is None else _read_schema(self.given_schema)
        rules = RowMap(schema, () if stated is None else constants_of(stated))
        self._check_parameters(rules)
        _require(len(self.edges) == len(self.rounded) == len(rules.model), _NO_CELLS)
        grids = tuple(map(_grid, rules.model, self.edges, self.rounded))
        weight = Unit.of_parameters(self.unit, self.max_rows, self.weighting).weight
        releases = tuple(
            release_of(tables, event, weight)
            for tables, event in zip(self.releases, self._events(grids), strict=True)
        )
        model = TableModel(self.n_rows, releases, self.bins, self.tree, self.potentials, grids)
        least, most = self.n_samples, self.n_samples * weight
        _require(2 <= least <= self.n_rows <= most <= LARGEST_COUNT, "n_rows cannot be")
        _check_model(model, [grid.size for grid in grids], most)
        self._check_statement(weight, grids)
        for item in self.estimates:
            known = item.column in schema.names and item.what in DEFAULTS
            _require(known and 0.0 <= item.hidden <= 1.0, "its errors do not fit its columns")
        names = self.feature_names
        fitted: dict[str, Any] = {
            "schema_": schema,
            "model_": model,
            "n_samples_": self.n_samples,
            "privacy_spent_": self.spent,
            "n_features_in_": len(schema) if names is None else len(names),
            "_kind": self.makes,
            "_grids": grids,
            "_rules": rules,
            "_estimates": self.estimates,
            "reliability_": table_reliability(
                model, rules.place(self.target) if len(grids) > 1 else None, self.estimates
            ),
        }
        if names is not None:
            fitted["feature_names_in_"] = np.array(names, dtype=object)
        return {name: getattr(self, name) for name in _PARAMETERS} | {"schema": stated}, fitted

    def _events(self, grids: Sequence[ColumnGrid]) -> list[Any]:
        """Return the event of each release; a tree without edges has no release."""
        due = [*rounds_of(grids)]
        due += {1: ["columns"], 2: ["columns", "pairs"]}.get(
            len(self.bins), ["columns", "tree", "pairs"]
        )
        if len(self.releases) == len(due) - 1 and "tree" in due:
            due.remove("tree")
        _require(len(self.releases) == len(due), "it has too many releases, or too few")
        events = events_of(self.spent.event)
        return [events[name] for name in due]

    def _check_parameters(self, rules: RowMap) -> None:
        schema = rules.schema
        check_epsilon_delta(self.epsilon, self.delta, self.noun)
        _require(self.makes in ("pandas", "polars", "array"), "its tables are of an unknown kind")
        _require(self.target in (None, *schema.names), "its target is no column")
        _require(self.n_particles is None or self.n_particles >= 100, "n_particles is too small")
        _require(self.weighting in WEIGHTINGS, "its weighting is unknown")
        _require(self.max_rows is None or self.max_rows >= 1, "max_rows is too small")
        _require(self.unit in (None, *schema.excluded), "its unit is not excluded")
        due = rules.place(self.target) if len(rules.model) > 1 else None
        _require(self.tree.target == due, "its tree does not hang on its target")
        names = self.feature_names or ()
        kept = tuple(name for name in names if name not in schema.excluded)
        alike = kept == schema.names and len(set(names)) == len(names)
        unnamed = self.feature_names is None and self.makes == "array"
        _require(alike or unnamed, "its columns are not those of its schema")

    def _check_statement(self, weight: float, grids: Sequence[ColumnGrid]) -> None:
        """Refuse a statement that promises more than its events and the noise of the counts."""
        spent = self.spent
        events, charged = check_statement(spent, self.noun)
        if not events:
            return
        paid = [
            sum(
                (weight * MARGINAL_SENSITIVITY / n.sigma) ** 2 if n.sigma else math.inf
                for n in tables
            )
            for tables in self.releases
        ]
        if charged is not None:
            _require(sum(paid) <= charged**2 * (1 + _ROUNDING), _LESS_NOISE)
            return
        scales: Any = zip((spent.sigma, spent.sensitivity), scales_of(spent.event), strict=True)
        for stated, due in scales:
            alike = isinstance(stated, tuple) and len(stated) == len(due)
            close = alike and np.allclose(stated, due, rtol=_ROUNDING, atol=0.0)
            _require(close, "the noise that it states is not that of its events")
        _require(len(events) >= len(self.releases), "its statement lacks releases")
        for squared_mu, event in zip(paid, self._events(grids), strict=True):
            limit = (event.sensitivity / event.sigma) ** 2
            _require(squared_mu <= limit * (1 + _ROUNDING), _LESS_NOISE)


def _require(holds: bool | np.bool_, why: str) -> None:
    """Refuse an inconsistent file."""
    if not holds:
        raise ValueError(f"This is no valid synthesizer: {why}.")


def _read_schema(content: Any) -> TableSchema:
    """Rebuild a schema, whose class checks the columns."""
    n_columns = len(content["columns"])
    _require(1 <= n_columns <= _MOST_COLUMNS, f"it has no columns, or more than {_MOST_COLUMNS}")
    return TableSchema.from_json(json.dumps(content))


def _as_stored(array: FloatArray | None, n_axes: int) -> FloatArray:
    return np.zeros((0,) * n_axes) if array is None else array


def _grid(column: Any, edges: FloatArray, rounded: FloatArray) -> ColumnGrid:
    """Return the cells of a column: the public cells, or a refinement of them."""
    grid: ColumnGrid = column.grid()
    public = _as_stored(grid.edges, 1)
    if grid.is_final:
        alike = np.array_equal(public, edges) and not rounded.size
        _require(alike, _NO_CELLS)
        return grid
    whole = edges.ndim == 1 and len(edges) <= MAX_CELLS + 1 and (np.diff(edges) > 0.0).all()
    _require(whole and np.isin(public, edges).all(), _NO_CELLS)
    _require(tuple(edges[[0, -1]]) == tuple(public[[0, -1]]), _NO_CELLS)
    _check_shares(rounded, column.rounding.unknown.shape)
    return replace(grid, edges=edges, n_cells=len(edges) - 1, rounded=rounded)


def _check_rounds(model: TableModel) -> None:
    """Refuse counts of single columns unless the cells of each round refine the previous ones."""
    rounds = rounds_of(model.grids)
    _require(model.n_rounds == 1 + len(rounds), "it lacks counts of columns")
    finer: dict[int, IntArray] = {}
    for place, (name, columns) in reversed([*enumerate(rounds.items())]):
        level = [*ROUNDS].index(name)
        tables = tables_of(model.releases[place])
        due = [Marginal((c,), (), (level,)) for c in columns]
        _require([noisy.marginal for noisy in tables] == due, _NO_CELLS)
        for c, noisy in zip(columns, tables, strict=True):
            (groups,) = noisy.marginal.groups
            grid = model.grids[c]
            if grid.is_final or level == 0:
                whole = grid.blocks if level else np.arange(grid.column.rounding.n_codes)
                _require(np.array_equal(groups, whole), _NO_CELLS)
                continue
            _check_shape(groups, (grid.size,), "cells")
            steps = np.diff(groups)
            _require(groups[0] == 0 and ((steps == 0) | (steps == 1)).all(), _NO_CELLS)
            # Cells that a later round joins are joined in all earlier rounds.
            _require((steps <= np.diff(finer.get(c, np.arange(grid.size)))).all(), _NO_CELLS)
            finer[c] = groups


def _check_model(model: TableModel, sizes: Sequence[int], most: float) -> None:
    """Refuse a model that does not fit columns with these numbers of cells."""
    tables = [noisy for release in model.releases for noisy in tables_of(release)]
    possible = all(0 <= noisy.sigma <= _LARGEST_NOISE for noisy in tables)
    _require(possible, "it has noise that no release has")
    fits = len(model.columns) == len(model.bins) == len(sizes)
    _require(fits, "its counts do not fit its columns")
    for place, (noisy, size) in enumerate(zip(model.columns, sizes, strict=True)):
        fits = noisy.marginal == Marginal((place,), ()) and len(noisy.marginal.groups) == 1
        whole = fits and np.array_equal(noisy.marginal.groups[0], np.arange(size))
        _require(whole, "its counts do not fit its columns")
    n_bins = [_n_bins(column, size) for column, size in zip(model.bins, sizes, strict=True)]
    _check_tree(model.tree, n_bins)
    _check_rounds(model)
    for release in model.releases[model.n_rounds :]:
        marginals = [noisy.marginal for noisy in tables_of(release)]
        _require(len(set(marginals)) == len(marginals), "a release has one marginal twice")
        for marginal in marginals:
            _check_marginal(marginal, n_bins)
    for noisy in tables:
        _check_counts(noisy, most)
    fits = len(model.potentials) == len(model.marginals)
    _require(fits, "its potentials do not fit its marginals")
    for noisy, potentials in zip(model.marginals, model.potentials, strict=True):
        _check_shape(potentials, (noisy.marginal.n_cells,), "potentials")
        reached = (np.abs(potentials) <= _LARGEST_POTENTIAL).all()
        _require(reached, "it has potentials that no fit reaches")


def _check_counts(noisy: NoisyMarginal, n_rows: float) -> None:
    """Refuse counts that rows and noise cannot reach, or that are off the lattice."""
    _check_shape(noisy.counts, (noisy.marginal.n_cells,), "counts")
    reach = _NOISE_REACH * noisy.sigma
    possible = ((noisy.counts >= -reach) & (noisy.counts <= n_rows + reach)).all()
    _require(possible, "it has counts that its rows and its noise cannot reach")
    # Counts off the lattice do not come from the sampler whose noise is charged.
    units = noisy.counts / (
        noise_lattice(noisy.sigma, MARGINAL_LATTICE) if noisy.sigma else MARGINAL_LATTICE
    )
    _require((np.rint(units) == units).all(), "it has counts off the lattice of their noise")


def _n_bins(column: ColumnBins, size: int) -> int:
    """Return the number of bins of a column with `size` cells."""
    _check_shape(column.bins, (size,), "bins")
    _check_shares(column.cell_shares, (size,))
    _require((column.cell_shares > 0.0).all(), "every cell must be possible")
    n_bins = _n_groups(column.bins, "bins")
    _check_shape(column.coarse, (n_bins,), "groups of bins")
    _n_groups(column.coarse, "groups of bins")
    return n_bins


def _check_tree(tree: ColumnTree, n_bins: Sequence[int]) -> None:
    """Refuse nodes that are no forest with parents first, or lack a distribution."""
    due = set(range(len(n_bins))) - {tree.target}
    seen: set[int | None] = {None}
    n_roots = 1 if tree.target is None else n_bins[tree.target]
    _check_shares(tree.target_shares, (n_roots,))
    whole = len(tree.nodes) == len(tree.conditionals) == len(due)
    _require(whole, "its columns do not form a tree")
    for node, conditional in zip(tree.nodes, tree.conditionals, strict=True):
        above = [node.parent] if node.second is None else [node.parent, node.second]
        fits = (
            node.column in due - seen and seen.issuperset(above) and len(set(above)) == len(above)
        )
        _require(fits, "its columns do not form a tree")
        seen.add(node.column)
        sizes = (1 if column is None else n_bins[column] for column in above)
        _check_shares(conditional, (n_roots, *sizes, n_bins[node.column]))


def _check_marginal(marginal: Marginal, n_bins: Sequence[int]) -> None:
    """Refuse a marginal of unknown columns or bins."""
    columns, levels, groups = marginal.columns, marginal.levels, marginal.groups
    known = (
        2 <= len(columns) == len(levels) == len(groups)
        and all(0 <= column < len(n_bins) for column in columns)
        and all(low < high for low, high in itertools.pairwise(columns))
        and all(0 <= level < _MOST_BINS for level in levels)
    )
    _require(known, "it has a marginal of columns that it does not have")
    for column, part in zip(columns, groups, strict=True):
        _check_shape(part, (n_bins[column],), "groups")
        _n_groups(part, "groups")


def _n_groups(groups: IntArray, what: str) -> int:
    """Return the number of groups; every group must occur."""
    inside = len(groups) > 0 and 0 <= groups.min() and groups.max() < min(len(groups), _MOST_BINS)
    whole = inside and np.bincount(groups).all()
    _require(whole, f"its {what} are not numbered one after the other")
    return int(groups.max()) + 1


def _check_shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    _require(array.shape == shape, f"its {what} do not fit its columns")


def _check_shares(shares: FloatArray, shape: tuple[int, ...]) -> None:
    _check_shape(shares, shape, "shares")
    sums = shares.sum(axis=-1)
    right = (shares >= 0.0).all() and (np.abs(sums - 1.0) <= _ROUNDING).all()
    _require(right, "it has shares that do not add up to 1")
