"""What a fitted synthesizer consists of, for files, and whether it can be true.

A record whose parts contradict each other (counts that are more precise than the stated noise
allows, a smaller epsilon than the events cost) is refused.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.records import LARGEST_COUNT, Record, refusing
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.events import GaussianEvent, ThresholdedCountsEvent
from skdpot.privacy.noise import noise_lattice
from skdpot.privacy.spent import PrivacySpent
from skdpot.privacy.stated import check_epsilon_delta, check_statement
from skdpot.slicing.marginal_release import MARGINAL_LATTICE, MARGINAL_SENSITIVITY
from skdpot.slicing.marginals import FloatArray, IntArray, Marginal, NoisyMarginal
from skdpot.tables.coarsening import ColumnBins
from skdpot.tables.model import TableModel
from skdpot.tables.plan import shares_of
from skdpot.tables.tree import ColumnTree

__all__ = ["TableRecord"]

_KINDS = ("pandas", "polars", "array")
_MOST_COLUMNS = 4096
_MOST_BINS = 4096
_LARGEST_NOISE = 1e15
_NOISE_REACH = 20.0  # standard deviations; noise beyond has a probability of 1e-88
_LARGEST_POTENTIAL = 600.0  # its exponential, times a number of rows, is a number
_ROUNDING = 1e-9  # machines may differ in the last digits


@dataclass(frozen=True, eq=False, kw_only=True)
class TableRecord(Record):
    """The released parts of a fitted synthesizer."""

    makes: str
    epsilon: float
    delta: float
    target: str | None
    n_particles: int | None
    schema: Any
    given_schema: Any
    feature_names: tuple[str, ...] | None
    spent: PrivacySpent
    model: TableModel

    kind: ClassVar[str] = "skdpot.DPTableSynthesizer"
    noun: ClassVar[str] = "synthesizer"
    most_header: ClassVar[int] = 2**22  # categories are in it

    @classmethod
    def of(cls, synthesizer: Any) -> "TableRecord":
        """Return the record of a fitted synthesizer."""
        given = synthesizer.schema
        if not (given is None or isinstance(given, TableSchema)):
            given = synthesizer.schema_  # whoever reads the record lacks the file that it was in
        names = getattr(synthesizer, "feature_names_in_", None)
        return cls(
            makes=synthesizer._kind,
            epsilon=synthesizer.epsilon,
            delta=synthesizer.delta,
            target=synthesizer.target,
            n_particles=synthesizer.n_particles,
            schema=json.loads(synthesizer.schema_.to_json()),
            given_schema=None if given is None else json.loads(given.to_json()),
            feature_names=None if names is None else tuple(map(str, names)),
            spent=synthesizer.privacy_spent_,
            model=synthesizer.model_,
        )

    def restore(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters and fitted attributes of a synthesizer, or raise ValueError."""
        with refusing(self.noun):
            return self._rebuild()

    def _rebuild(self) -> tuple[dict[str, Any], dict[str, Any]]:
        schema = _read_schema(self.schema)
        if not schema.is_resolved:
            raise ValueError("The schema of the synthesizer leaves bounds or categories open.")
        given = None if self.given_schema is None else _read_schema(self.given_schema)
        if self.makes not in _KINDS:
            raise ValueError("The synthesizer makes tables of an unknown kind.")
        self._check_parameters(schema)
        self._check_names(schema)
        grids = tuple(column.grid() for column in schema)
        _check_model(self.model, [grid.size for grid in grids])
        self._check_statement()
        model, names = self.model, self.feature_names
        fitted: dict[str, Any] = {
            "schema_": schema,
            "marginals_": (*model.columns, *model.marginals),
            "model_": model,
            "n_samples_": model.n_rows,
            "privacy_spent_": self.spent,
            "n_features_in_": len(schema) if names is None else len(names),
            "_kind": self.makes,
            "_grids": grids,
        }
        if names is not None:
            fitted["feature_names_in_"] = np.array(names, dtype=object)
        kept = ("epsilon", "delta", "target", "n_particles")
        return {name: getattr(self, name) for name in kept} | {"schema": given}, fitted

    def _check_parameters(self, schema: TableSchema) -> None:
        check_epsilon_delta(self.epsilon, self.delta, self.noun)
        if not (self.target is None or self.target in schema.names):
            raise ValueError("The target of the synthesizer is no column.")
        if self.n_particles is not None and self.n_particles < 100:
            raise ValueError("n_particles of the synthesizer cannot be.")
        due = None
        if self.target is not None and len(schema) > 1:
            due = schema.names.index(self.target)
        if self.model.tree.target != due:
            raise ValueError("The tree of the synthesizer does not hang on its target.")

    def _check_names(self, schema: TableSchema) -> None:
        """Check the columns that it was fitted to, those that it left out among them."""
        names = self.feature_names
        if names is None and self.makes == "array":
            return
        if (
            names is None
            or len(set(names)) < len(names)
            or tuple(name for name in names if name not in schema.excluded) != schema.names
        ):
            raise ValueError("The columns of the synthesizer are not those of its schema.")

    def _check_statement(self) -> None:
        """Refuse a statement that promises more than its own events and the noise of counts."""
        spent, model = self.spent, self.model
        events, charged = check_statement(spent, self.noun, (GaussianEvent, ThresholdedCountsEvent))
        if not events:
            return
        if charged is not None:
            _check_precision((*model.columns, *model.marginals), charged**2)
            return
        scales = [_scales(event) for event in events]
        due = tuple(zip(*scales, strict=True))
        if not all(map(_are_close, (spent.sigma, spent.sensitivity), due)):
            raise ValueError("The noise that the synthesizer states is not that of its events.")
        releases = list(shares_of(len(model.columns)))
        paid = [(sensitivity / sigma) ** 2 for sigma, sensitivity in scales[-len(releases) :]]
        if len(paid) < len(releases):
            raise ValueError("The statement of the synthesizer lacks some of its releases.")
        limits = dict(zip(releases, paid, strict=True))
        _check_precision(model.columns, limits["columns"])
        # A pair may be released twice; it is kept once, with the precision of both.
        _check_precision(model.marginals, limits.get("tree", 0.0) + limits.get("pairs", 0.0))


def _read_schema(content: Any) -> TableSchema:
    """Rebuild a schema; its own class checks the columns."""
    if not 1 <= len(content["columns"]) <= _MOST_COLUMNS:
        raise ValueError(f"The synthesizer has no columns, or more than {_MOST_COLUMNS}.")
    return TableSchema.from_json(json.dumps(content))


def _are_close(stated: Any, due: Sequence[float]) -> bool:
    return (
        isinstance(stated, tuple)
        and len(stated) == len(due)
        and all(math.isclose(*pair, rel_tol=_ROUNDING) for pair in zip(stated, due, strict=True))
    )


def _check_precision(counts: Sequence[NoisyMarginal], limit: float) -> None:
    """Refuse counts of which the squared mu exceeds a limit."""
    sigmas = [noisy.sigma for noisy in counts]
    if 0.0 in sigmas or sum((MARGINAL_SENSITIVITY / sigma) ** 2 for sigma in sigmas) > (
        limit * (1 + _ROUNDING)
    ):
        raise ValueError("The counts of the synthesizer have less noise than its statement says.")


def _scales(event: Any) -> tuple[float, float]:
    """Return the noise of a release and its sensitivity, of all columns and steps together."""
    return event.sigma, event.sensitivity * math.sqrt(event.n_steps)


def _check_model(model: TableModel, sizes: Sequence[int]) -> None:
    """Refuse a model that rows of columns with so many cells cannot give."""
    if not 2 <= model.n_rows <= LARGEST_COUNT:
        raise ValueError(f"n_rows of the synthesizer is {model.n_rows!r:.40}, which cannot be.")
    if not all(0 <= noisy.sigma <= _LARGEST_NOISE for noisy in (*model.columns, *model.marginals)):
        raise ValueError("The synthesizer has noise that no release has.")
    if not len(model.columns) == len(model.bins) == len(sizes):
        raise ValueError("The counts of the synthesizer do not fit its columns.")
    for place, (noisy, size) in enumerate(zip(model.columns, sizes, strict=True)):
        _check_column(noisy, place, size)
        _check_counts(noisy, model.n_rows)
    n_bins = [_n_bins(found, size) for found, size in zip(model.bins, sizes, strict=True)]
    _check_tree(model.tree, n_bins)
    if len({noisy.marginal for noisy in model.marginals}) < len(model.marginals):
        raise ValueError("The synthesizer has one marginal twice.")
    if len(model.potentials) != len(model.marginals):
        raise ValueError("The potentials of the synthesizer do not fit its marginals.")
    for noisy, potentials in zip(model.marginals, model.potentials, strict=True):
        _check_marginal(noisy.marginal, n_bins)
        _check_counts(noisy, model.n_rows)
        _check_length(potentials, noisy.marginal.n_cells, "potentials")
        if not (np.abs(potentials) <= _LARGEST_POTENTIAL).all():
            raise ValueError("The synthesizer has potentials that no fit reaches.")


def _check_column(noisy: NoisyMarginal, place: int, size: int) -> None:
    """Refuse counts of a column that are not one for each cell, or off their lattice."""
    marginal = noisy.marginal
    _check_length(noisy.counts, size, "counts")
    if (marginal.columns, marginal.levels, len(marginal.groups)) != ((place,), (), 1) or not (
        np.array_equal(marginal.groups[0], np.arange(size))
    ):
        raise ValueError("The counts of the synthesizer do not fit its columns.")
    # What is off the lattice did not come out of the sampler whose noise is charged.
    units = noisy.counts / (noise_lattice(noisy.sigma, MARGINAL_LATTICE) if noisy.sigma else 1.0)
    if not (np.rint(units) == units).all():
        raise ValueError("The synthesizer has counts off the lattice of their noise.")


def _check_counts(noisy: NoisyMarginal, n_rows: int) -> None:
    _check_length(noisy.counts, noisy.marginal.n_cells, "counts")
    reach = _NOISE_REACH * noisy.sigma
    if not ((noisy.counts >= -reach) & (noisy.counts <= n_rows + reach)).all():
        raise ValueError("The synthesizer has counts that its rows and its noise cannot reach.")


def _n_bins(found: ColumnBins, size: int) -> int:
    """Return the number of bins of a column with so many cells."""
    _check_length(found.bins, size, "bins")
    _check_shares(found.cell_shares, (size,))
    if not (found.cell_shares > 0.0).all():
        raise ValueError("Every cell of the synthesizer must be possible.")
    n_bins = _n_groups(found.bins, "bins")
    _check_length(found.coarse, n_bins, "groups of bins")
    _n_groups(found.coarse, "groups of bins")
    return n_bins


def _check_tree(tree: ColumnTree, n_bins: Sequence[int]) -> None:
    """Refuse what is no forest, parents first, or has no distribution for a column."""
    if not (tree.target is None or 0 <= tree.target < len(n_bins)):
        raise ValueError("The tree of the synthesizer has a target that is no column.")
    due = set(range(len(n_bins))) - {tree.target}
    seen: set[int | None] = {None}
    n_roots = 1 if tree.target is None else n_bins[tree.target]
    _check_shares(tree.target_shares, (n_roots,))
    if len(tree.nodes) != len(due) or len(tree.conditionals) != len(due):
        raise ValueError("The columns of the synthesizer do not form a tree.")
    for node, conditional in zip(tree.nodes, tree.conditionals, strict=True):
        if node.column not in due - seen or node.parent not in seen:
            raise ValueError("The columns of the synthesizer do not form a tree.")
        seen.add(node.column)
        above = 1 if node.parent is None else n_bins[node.parent]
        _check_shares(conditional, (n_roots, above, n_bins[node.column]))


def _check_marginal(marginal: Marginal, n_bins: Sequence[int]) -> None:
    """Refuse a marginal of columns that there are not, or of bins that these do not have."""
    columns, levels, groups = marginal.columns, marginal.levels, marginal.groups
    if not (
        2 <= len(columns) == len(levels) == len(groups)
        and all(0 <= column < len(n_bins) for column in columns)
        and all(low < high for low, high in zip(columns[:-1], columns[1:], strict=True))
        and all(0 <= level < _MOST_BINS for level in levels)
    ):
        raise ValueError("The synthesizer has a marginal of columns that it does not have.")
    for column, part in zip(columns, groups, strict=True):
        _check_length(part, n_bins[column], "groups")
        _n_groups(part, "groups")


def _n_groups(groups: IntArray, what: str) -> int:
    """Return the number of groups, each of which must occur."""
    inside = len(groups) > 0 and 0 <= groups.min() and groups.max() < min(len(groups), _MOST_BINS)
    if not inside or not np.bincount(groups).all():
        raise ValueError(f"The {what} of the synthesizer are not numbered one after the other.")
    return int(groups.max()) + 1


def _check_length(array: np.ndarray, size: int, what: str) -> None:
    if array.shape != (size,):
        raise ValueError(f"The {what} of the synthesizer do not fit its columns.")


def _check_shares(shares: FloatArray, shape: tuple[int, ...]) -> None:
    if shares.shape != shape:
        raise ValueError("The shares of the synthesizer do not fit its columns.")
    sums = shares.sum(axis=-1)
    if not ((shares >= 0.0).all() and (np.abs(sums - 1.0) <= _ROUNDING).all()):
        raise ValueError("The synthesizer has shares that do not add up to 1.")
