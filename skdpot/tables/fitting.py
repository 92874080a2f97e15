"""The releases of one fit in their order, and the model that is fitted to them.

`skdpot.tables.plan` fixes the releases and their noise before any row is read.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.streams import Streams
from skdpot.privacy.events import Event
from skdpot.release.releases import Release
from skdpot.sources import Rows
from skdpot.tables.bins import ColumnBins, bin_codes, bins_in_order, coarsen
from skdpot.tables.candidates import (
    TARGET_IMPORTANCE,
    Candidates,
    Places,
    both_levels,
    choose,
    choose_tree,
    marginals_of,
    sampling_misfit,
)
from skdpot.tables.cells import CellCounts, count_cells
from skdpot.tables.choices import release_choices
from skdpot.tables.contingency import (
    CountableRows,
    CountedRows,
    Marginal,
    NoisyMarginal,
    counts_of,
    exact_counts,
)
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import release_marginals, release_misfits, tables_of
from skdpot.tables.model import MOST_MOVED, TableModel
from skdpot.tables.particles import Moves, ScaledParticles
from skdpot.tables.plan import MOST_FEW, TablePlan, events_of, n_choices
from skdpot.tables.tree import ColumnTree, TreeNode, fit_tree, with_second_parents

_FEWER = 20  # columns up to which all triples are candidates
_NOISE = math.sqrt(2.0 / math.pi)  # mean absolute value of standard normal noise


_MOST_HELD = 2**25  # particles times columns in memory


@dataclass(frozen=True, eq=False)
class TableFit:
    """The releases of one fit, and the model fitted to them; the event is charged already."""

    plan: TablePlan
    streams: Streams
    rows: Rows  # private: batches of the values of all columns, and weights
    grids: tuple[ColumnGrid, ...]
    target: int | None
    n_particles: int
    advance: Callable[[str], None] = lambda stage: None

    def model(self) -> TableModel:
        """Release single columns, a tree of pairs, then other pairs, and fit a model to them."""
        cells = count_cells(self.rows, self.grids, self._released)
        return replace(self, plan=self._counted_plan(cells))._model(cells)

    def _counted_plan(self, cells: CellCounts) -> TablePlan:
        """Return the plan for the number of rows that the released counts show."""
        return self.plan.counted(tables_of(cells.releases[-1]))

    def _model(self, cells: CellCounts) -> TableModel:
        n_rows, n_columns = self.plan.n_samples, len(self.grids)
        n_groups = self.plan.n_groups(n_columns)
        bins = tuple(
            coarsen(tables, grid, n_rows, n_groups)
            for tables, grid in zip(cells.tables, cells.grids, strict=True)
        )
        self.advance("columns")
        rows = CountedRows(cells.rows.map(partial(_to_bins, bins=bins)))
        nodes, pairs = self._release_tree(rows, bins)
        by_columns = {n.marginal.columns: n for release in pairs for n in tables_of(release)}
        target = self.target if n_columns > 1 else None
        shares, in_order = [column.shares for column in bins], bins_in_order(bins, cells.grids)
        tree = fit_tree(nodes, shares, by_columns, n_rows, target, in_order)
        self.advance("tree")
        model = TableModel(n_rows, cells.releases, bins, tree, (), cells.grids)
        return model if n_columns == 1 else self._release_pairs(rows, model, pairs)

    def _release_tree(
        self, rows: CountableRows, bins: tuple[ColumnBins, ...]
    ) -> tuple[tuple[TreeNode, ...], tuple[Release, ...]]:
        """Choose a tree by the distances of pairs from independence, and release its pairs."""
        n_columns = len(bins)
        if n_columns < 3:
            alone = [c for c in range(n_columns) if c != self.target or n_columns == 1]
            return tuple(TreeNode(column, None) for column in alone), ()

        def independent(marginals: Sequence[Marginal]) -> list[FloatArray]:
            shares = ([bins[column].shares for column in m.columns] for m in marginals)
            products = (self.plan.n_samples * np.outer(*pair) for pair in shares)
            return [m.joined(product) for m, product in zip(marginals, products, strict=True)]

        pairs: list[Places] = list(itertools.combinations(range(n_columns), 2))
        if n_columns > MOST_FEW:
            with_target = [pair for pair in pairs if self.target in pair]
            some = marginals_of(bins, sorted(set(pairs) - set(with_target)), 2)
            edges = self._chosen(rows, some, independent(some), "edges", forest=True)
            pairs = sorted({marginal.columns for marginal in edges} | set(with_target))
        marginals = both_levels(bins, pairs)
        if n_columns <= _FEWER:  # one pass over the rows also counts what is needed later
            triples = itertools.combinations(range(n_columns), 3)
            exact_counts(rows, (*marginals, *marginals_of(bins, triples, 2)))
        candidates = self._candidates(rows, marginals, independent(marginals), "independence")
        sigma = float(self.plan.marginal_sigmas("tree", np.ones(1))[0])
        nodes, choice = choose_tree(candidates, n_columns, self.target, sigma)
        if choice is None:
            return nodes, ()
        return nodes, (self._released(rows, choice.marginals, choice.weights, "tree"),)

    def _release_pairs(
        self, rows: CountableRows, model: TableModel, before: tuple[Release, ...]
    ) -> TableModel:
        """Release the pairs and triples with the largest misfits, and fit potentials to all."""
        n_columns, bins = len(model.bins), model.bins
        n_particles = min(self.n_particles, _MOST_HELD // n_columns)
        particles = model.particles(n_particles, self.streams.solver)

        def predicted(marginals: Sequence[Marginal]) -> list[FloatArray]:
            return list(counts_of(particles.codes, marginals, particles.weights))

        pairs: Iterable[Places] = itertools.combinations(range(n_columns), 2)
        if n_columns == 2:
            chosen = both_levels(bins, pairs)[-1:]
            worst = self._released(rows, chosen, np.ones(1), "pairs")
        else:
            if n_columns > MOST_FEW:
                some = marginals_of(bins, pairs, 2)
                some = self._chosen(rows, some, predicted(some), "pairs")
                pairs = sorted(marginal.columns for marginal in some)
            triples = itertools.combinations(range(n_columns), 3)
            some = marginals_of(
                bins, triples if n_columns <= _FEWER else _triples_along(model.tree), 2
            )
            some = self._chosen(rows, some, predicted(some), "triples") if some else ()
            marginals = (*both_levels(bins, pairs), *some)
            candidates = self._candidates(rows, marginals, predicted(marginals), "misfit")
            choice = choose(candidates, float(self.plan.marginal_sigmas("pairs", np.ones(1))[0]))
            worst = self._released(rows, choice.marginals, choice.weights, "pairs")
        self.advance("pairs")
        model = replace(model, releases=(*model.releases, *before, worst))
        tree, drawn = self._with_second_parents(model, particles)
        model = replace(model, tree=tree)
        moves = Moves(tree.factors({}), (), min(n_particles, MOST_MOVED), self.streams.solver)
        weights = np.full(n_particles, model.n_rows / n_particles)
        model = model.fitted(ScaledParticles(drawn, weights, moves))
        self.advance("particles")
        return model

    def _with_second_parents(
        self, model: TableModel, particles: ScaledParticles
    ) -> tuple[ColumnTree, IntArray]:
        """Add second parents where the tree misses the counts of a pair."""
        pairs = [noisy for noisy in model.consistent if len(noisy.marginal.columns) == 2]
        tables = counts_of(particles.codes, [n.marginal for n in pairs], particles.weights)
        best: dict[Places, tuple[float, NoisyMarginal]] = {}
        for noisy, table in zip(pairs, tables, strict=True):
            explained = sampling_misfit(table, model.n_rows) + _NOISE * noisy.sigma * len(table)
            gain = float(np.abs(noisy.counts - table).sum()) - explained
            if gain > best.get(noisy.marginal.columns, (-math.inf,))[0]:
                best[noisy.marginal.columns] = gain, noisy
        return with_second_parents(
            model.tree,
            [column.shares for column in model.bins],
            best,
            model.n_rows,
            bins_in_order(model.bins, model.grids),
            len(particles.codes),
            self.streams.solver,
        )

    def _chosen(
        self,
        rows: CountableRows,
        marginals: tuple[Marginal, ...],
        predictions: Sequence[FloatArray],
        what: str,
        *,
        forest: bool = False,
    ) -> tuple[Marginal, ...]:
        """Choose marginals with large misfits; nothing else about the misfits is released."""
        event = self._event_of("edges" if what == "edges" else "candidates")
        sigma = self.plan.choice_sigma(event, marginals)
        places = release_choices(
            rows,
            marginals,
            predictions,
            np.array([sampling_misfit(table, self.plan.n_samples) for table in predictions]),
            min(n_choices(what, len(self.grids)), len(marginals)),
            sigma,
            self.streams.secret,
            event,
            self.plan.weight,
            forest=forest,
        )
        return tuple(marginals[place] for place in sorted(places))

    def _candidates(
        self,
        rows: CountableRows,
        marginals: tuple[Marginal, ...],
        predictions: Sequence[FloatArray],
        release: str,
    ) -> Candidates:
        """Release misfits, and subtract what chance and noise explain."""
        sigma = self.plan.misfit_sigma(release, marginals)
        noisy = release_misfits(
            rows,
            marginals,
            predictions,
            sigma,
            self.streams.secret,
            self._event_of(release),
            self.plan.weight,
        )
        chance = [sampling_misfit(table, self.plan.n_samples) for table in predictions]
        importance = [TARGET_IMPORTANCE if self.target in m.columns else 1.0 for m in marginals]
        return Candidates(marginals, noisy - np.array(chance) - sigma, np.array(importance))

    def _released(
        self, rows: CountableRows, marginals: Sequence[Marginal], weights: FloatArray, name: str
    ) -> Release:
        """Release counts of marginals that share one release by weights."""
        sigmas = self.plan.marginal_sigmas(name, weights)
        secret, event = self.streams.secret, self._event_of(name)
        return release_marginals(rows, marginals, sigmas, secret, event, self.plan.weight)

    def _event_of(self, name: str) -> Event:
        return events_of(self.plan.event)[name]


def _to_bins(batch: tuple[IntArray, Any], bins: Sequence[ColumnBins]) -> tuple[IntArray, Any]:
    codes, weights = batch
    return bin_codes(codes, bins), weights


def _triples_along(tree: ColumnTree) -> list[Places]:
    """Return triples of a column, its parent, and the target or the grandparent."""
    parents = {node.column: node.parent for node in tree.nodes}
    triples = set()
    for column, parent in parents.items():
        for third in (tree.target, None if parent is None else parents[parent]):
            if parent is not None and third is not None:
                triples.add(tuple(sorted((column, parent, third))))
    return sorted(triples)
