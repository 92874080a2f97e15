r"""From private rows to a model of the table: which releases, their noise, and their choice.

Five releases, of which later ones depend on earlier ones: marginals of single columns; how far
independent columns are off, for each pair; the pairs of a tree; how far that tree is off; and
the pairs that it gets worst. Each is Gaussian with a fixed share of the squared mu, whatever is
chosen on the way, and shares add up under adaptive composition (Dong, Roth and Su, "Gaussian
differential privacy", 2022, Corollary 3.3 with Theorem 3.2).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.validation import Streams
from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent
from skdpot.privacy.noise import MAX_TABLE_S, required_bits
from skdpot.privacy.selection import CHOICE_MU, ChoiceEvent
from skdpot.release.gate import Release
from skdpot.sources import Rows
from skdpot.tables.cells import (
    MAX_BINS,
    ROUNDS,
    ColumnBins,
    FoundCells,
    bin_codes,
    bins_in_order,
    coarsen,
    find_cells,
)
from skdpot.tables.contingency import (
    MARGINAL_SENSITIVITY,
    AnyRows,
    CountedRows,
    Marginal,
    NoisyMarginal,
    choice_sensitivity,
    counts_of,
    exact_counts,
    misfit_sensitivity,
    release_choices,
    release_marginals,
    release_misfits,
    tables_of,
)
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.model import (
    MOST_MOVED,
    ColumnTree,
    Moves,
    ScaledParticles,
    TableModel,
    TreeNode,
    fit_tree,
    spanning_tree,
    with_second_parents,
)
from skdpot.tables.schema import SchemaPlan, TableSchema, plan_schema

# Shares of the squared mu (doc/tables.rst); 3 % more or less changes little.
_TWO = {"columns": 0.2, "pairs": 0.8}
_FEW = {
    "columns": 0.1,
    "independence": 0.05,
    "tree": 0.4,
    "candidates": 0.01,
    "misfit": 0.05,
    "pairs": 0.39,
}
_MANY = {
    "columns": 0.1,
    "edges": 0.1,
    "independence": 0.02,
    "tree": 0.42,
    "candidates": 0.05,
    "misfit": 0.02,
    "pairs": 0.29,
}
_WIDE_SHARE, _USUAL_WIDE = 0.6, 0.2  # more for columns if many have too many values for cells
_MOST_FEW = 30  # columns of which all pairs are candidates,
_FEWER = 20  # and all triples
_LABELS = {
    "roundness": "Counts of round numbers in columns on a scale",
    "magnitudes": "Counts of columns on a scale, by magnitude",
    "cells": "Counts of columns on a scale, in finer cells",
    "columns": "Counts of each column",
    "edges": "Choice of pairs that are far from independent",
    "independence": "How far pairs of columns are from independent",
    "tree": "Counts of pairs that form a tree",
    "candidates": "Choice of triples, and of many pairs, that are far from what the tree says",
    "misfit": "How far other pairs, and these triples, are from what the tree says",
    "pairs": "Counts of the pairs and triples that it gets worst",
}
_SCHEMA_SHARE = 0.2  # for bounds and categories, when all columns lack them
MOST_GROUPS = 8
_SEEN_CELL = 4.0  # standard deviations of noise
_LATTICE = 1 / 16  # of sigma, the coarsest that noise is drawn on
# Times the number of columns. A release of any marginal may have a few hundred times this noise,
# on a lattice of 1/16, and the sampler goes to 2^40 steps.
_LARGEST_SIGMA = 2.0**26


@dataclass(frozen=True)
class TablePlan:
    """The releases of one fit; the rows of one person weigh at most `weight` together."""

    n_samples: int
    sigma: float
    shares: dict[str, float]
    schema: SchemaPlan
    event: Event
    weight: float = 1.0

    def marginal_sigmas(self, release: str, weights: FloatArray) -> FloatArray:
        """Return the noise of several marginals that share one release by `weights`."""
        share = self.shares[release] * weights / weights.sum()
        return self.sigma * self.weight * MARGINAL_SENSITIVITY / np.sqrt(share)

    def n_groups(self, n_columns: int) -> int:
        """Return how many groups of a column pairs can tell apart in noise."""
        if self.sigma == 0.0 or n_columns < 2:
            return MOST_GROUPS
        release, most = ("tree", MOST_GROUPS) if n_columns > 2 else ("pairs", MAX_BINS)
        noise = self.marginal_sigmas(release, np.ones(n_columns - 1))[0]
        return int(np.clip(math.sqrt(self.n_samples / (_SEEN_CELL * noise)), 2, most))

    def choice_sigma(self, event: Event, marginals: Sequence[Marginal]) -> float:
        """Return the noise on the scores of marginals of which some are chosen."""
        if not isinstance(event, ChoiceEvent):  # a plan without noise
            return 0.0
        return event.sigma * self.weight * choice_sensitivity(marginals) / event.sensitivity

    def misfit_sigma(self, release: str, marginals: Sequence[Marginal]) -> float:
        """Return the noise of the misfits of several marginals."""
        sensitivity = self.weight * misfit_sensitivity(marginals)
        return self.sigma * sensitivity / math.sqrt(self.shares[release])

    def counted(self, columns: Sequence[NoisyMarginal]) -> "TablePlan":
        """Return the plan for as many rows as noisy counts tell, where persons may differ in it.

        Each column adds up to the number of rows; the mean over columns has the least variance.
        """
        if self.weight == 1.0:
            return self
        precision = [1.0 / (max(n.sigma, 1e-9) ** 2 * n.marginal.n_cells) for n in columns]
        total = np.average([noisy.counts.sum() for noisy in columns], weights=precision)
        limits = self.n_samples, self.n_samples * self.weight
        return replace(self, n_samples=round(float(np.clip(total, *limits))))


def plan_tables(
    target: PrivacyTarget, schema: TableSchema, n_samples: int, weight: float = 1.0
) -> TablePlan:
    """Share a target among the releases, of `n_samples` persons."""
    unknown = sum(not column.is_resolved for column in schema)
    mu = target.mu_cap * math.sqrt(_SCHEMA_SHARE * unknown / len(schema)) if unknown else math.inf
    first = plan_schema(schema, n_samples, mu=mu, delta=target.tail_delta)
    shares = shares_of(schema)
    before = () if first.event is None else (first.event,)

    def event(sigma: float) -> Event:
        releases = (_event_for(name, share, sigma, len(schema)) for name, share in shares.items())
        return ComposedEvent(events=(*before, *releases))

    found = calibrate(target, event)
    sigma = found.phases[-1].sigma if found.is_private else 0.0
    if sigma > 0.0:
        _check_drawable(sigma, weight, shares, len(schema))
    return TablePlan(n_samples, sigma, shares, first, found, weight)


def shares_of(schema: TableSchema) -> dict[str, float]:
    """Return the releases of a table in their order, each with its share of the squared mu."""
    usual = _FEW if len(schema) <= _MOST_FEW else _MANY
    shares = {1: {"columns": 1.0}, 2: _TWO}.get(len(schema), usual)
    wide = [c.on_scale and not (c.is_resolved and c.grid().is_final) for c in schema]
    part = sum(wide) / len(wide)
    left = 1 - _WIDE_SHARE * max(part - _USUAL_WIDE, 0.0)  # of what pairs and choices had
    shares = {name: share * left for name, share in shares.items()}
    shares["columns"] += 1 - left
    rounds = {name: share * shares["columns"] * part for name, share in ROUNDS.items() if part}
    return rounds | shares | {"columns": shares["columns"] - sum(rounds.values())}


def n_choices(name: str, n_columns: int) -> int:
    """Return how many pairs are chosen, or triples."""
    return {"edges": n_columns - 1, "pairs": n_columns, "triples": 1 + n_columns // 5}[name]


def _event_for(name: str, share: float, sigma: float, n_columns: int) -> Event:
    """Return the release of a table that has this share of ``1 / sigma**2``."""
    label, mu = _LABELS[name], math.sqrt(share)
    if name not in ("edges", "candidates"):
        return GaussianEvent(sigma=sigma, sensitivity=mu, lattice=sigma * _LATTICE, label=label)
    steps = n_choices("edges" if name == "edges" else "triples", n_columns)
    if name == "candidates" and n_columns > _MOST_FEW:
        steps += n_choices("pairs", n_columns)
    each = mu / math.sqrt(steps) / CHOICE_MU
    return ChoiceEvent(sigma=sigma, sensitivity=each, n_steps=steps, label=label)


def events_of(event: Event) -> dict[str, Event]:
    """Return what is charged for each release of a table in the event of a fit."""
    own = {phase.label: phase for phase in event.phases}
    # Of the best trial of a private search, or without noise, no part has an event of its own.
    return {name: own.get(label, event) for name, label in _LABELS.items()}


def _check_drawable(
    sigma: float, weight: float, shares: Mapping[str, float], n_columns: int
) -> None:
    """Refuse what the sampler of the noise would refuse, but before any charge."""
    required_bits(MAX_TABLE_S, math.sqrt(max(shares.values())) / sigma)
    if sigma * weight * n_columns > _LARGEST_SIGMA:
        raise CalibrationError(
            f"Noise of sigma = {sigma:.3g} for a table of {n_columns} columns is too wide to be "
            "drawn, and leaves nothing of the data. Raise epsilon or delta."
        )


TARGET_IMPORTANCE = 4.0  # of pairs with the target against other pairs
_NOISE_COST = 0.25  # rows put wrong by noise of standard deviation 1 in a cell, scaled
_NOISE = math.sqrt(2.0 / math.pi)  # mean absolute value of normal noise
_SHARING = 30  # marginals that the noise of one is guessed for


Columns: TypeAlias = tuple[int, ...]


def marginals_of(
    bins: Sequence[ColumnBins], columns: Iterable[Columns], level: int
) -> tuple[Marginal, ...]:
    """Return marginals by bins (level 0), by groups of them (1) or by few groups (2)."""
    groups = [found.groups(level) for found in bins]
    return tuple(
        Marginal(some, tuple(groups[column] for column in some), levels=(level,) * len(some))
        for some in columns
    )


def both_levels(bins: Sequence[ColumnBins], pairs: Iterable[Columns]) -> tuple[Marginal, ...]:
    """Return the marginals of pairs, in groups of bins too where those are fewer."""
    pairs = list(pairs)
    found = zip(marginals_of(bins, pairs, 0), marginals_of(bins, pairs, 1), strict=True)
    return tuple(
        m for fine, less in found for m in (fine, less)[: 1 + (less.n_cells < fine.n_cells)]
    )


def sampling_misfit(prediction: FloatArray, n_rows: int) -> float:
    """Return the misfit that rows drawn from the prediction itself would have, about."""
    shares = np.clip(prediction / n_rows, 0.0, 1.0)
    return float(np.sqrt(2.0 / math.pi * n_rows * shares * (1.0 - shares)).sum())


@dataclass(frozen=True, eq=False)
class Candidates:
    """Marginals of pairs and triples, and how far a model is off in each."""

    marginals: tuple[Marginal, ...]
    misfits: FloatArray
    importance: FloatArray

    @property
    def n_cells(self) -> FloatArray:
        """Number of cells of each."""
        return np.array([marginal.n_cells for marginal in self.marginals], dtype=np.float64)

    def gains(self, sigma: float) -> dict[Columns, tuple[float, int]]:
        """Return the largest gain of a release per pair or triple, and its marginal."""
        gains = self.importance * (self.misfits - _NOISE_COST * sigma * self.n_cells)
        best: dict[Columns, tuple[float, int]] = {}
        for place, marginal in enumerate(self.marginals):
            if marginal.columns not in best or gains[place] > best[marginal.columns][0]:
                best[marginal.columns] = (float(gains[place]), place)
        return best

    @property
    def weights(self) -> FloatArray:
        """Shares of the squared mu: ``sum(importance * cells * sigma)`` is least at 2/3."""
        return (self.importance * self.n_cells) ** (2 / 3)

    def take(self, places: Sequence[int]) -> "Candidates":
        """Choose some of them."""
        chosen = tuple(self.marginals[place] for place in places)
        return Candidates(chosen, self.misfits[list(places)], self.importance[list(places)])


def choose_tree(
    candidates: Candidates, n_columns: int, target: int | None, sigma: float
) -> tuple[tuple[TreeNode, ...], Candidates | None]:
    """Choose the tree whose pairs gain most, and the pairs with the target that gain at all."""
    columns = [column for column in range(n_columns) if column != target]
    gains = candidates.gains(sigma * math.sqrt(n_columns - 1 + (target is not None) * len(columns)))
    nodes = spanning_tree({pair: gain for pair, (gain, _) in gains.items()}, columns)
    edges = {
        (min(n.parent, n.column), max(n.parent, n.column)) for n in nodes if n.parent is not None
    }
    places = [
        place
        for pair, (gain, place) in gains.items()
        if pair in edges or (target in pair and gain > 0.0)
    ]
    return nodes, candidates.take(places) if places else None


def choose(candidates: Candidates, sigma: float) -> Candidates:
    """Choose the marginals whose release puts the fewest rows wrong.

    A marginal that is released costs what its noise puts wrong, one that is not costs its
    misfit. Of a pair's groupings the one with the largest gain stands; pairs are taken in
    the order of misfit per size until the sum is least (as Zhang et al., "PrivSyn", 2021,
    Section 4.1, choose marginals once, with misfits against a model in place of dependences).
    """
    best = candidates.gains(sigma * math.sqrt(_SHARING))
    places = np.array([place for _, place in best.values()])
    left_out = np.maximum((candidates.importance * candidates.misfits)[places], 0.0)
    # With the best shares the noise of k marginals costs the sum of their sizes to the power 3/2.
    sizes = candidates.weights[places]
    order = np.argsort(-left_out / sizes, kind="stable")
    left_out = left_out.sum() - np.cumsum(left_out[order])
    noise = np.cumsum(sizes[order]) ** 1.5
    n_chosen = int(np.argmin(_NOISE_COST * sigma * noise + left_out)) + 1
    return candidates.take(places[order[:n_chosen]].tolist())


_MOST_HELD = 2**25  # columns of particles


@dataclass(frozen=True, eq=False)
class TableFit:
    """The fit of one private table."""

    plan: TablePlan
    streams: Streams
    rows: Rows  # batches of the values of all columns, and weights
    grids: tuple[ColumnGrid, ...]
    target: int | None
    n_particles: int
    advance: Callable[[str], None] = lambda stage: None

    def model(self) -> TableModel:
        """Release what the plan says and fit a model to it; the event is charged already."""
        found = find_cells(self.rows, self.grids, self._released)
        plan = self.plan.counted(tables_of(found.releases[-1]))
        return replace(self, plan=plan)._model(found)

    def _model(self, found: FoundCells) -> TableModel:
        n_rows, n_columns = self.plan.n_samples, len(self.grids)
        n_groups = self.plan.n_groups(n_columns)
        bins = tuple(
            coarsen(noisy, grid, n_rows, n_groups)
            for noisy, grid in zip(found.counts, found.grids, strict=True)
        )
        self.advance("columns")
        rows = CountedRows(found.rows.map(partial(_binned, bins=bins)))
        nodes, pairs = self._release_tree(rows, bins)
        by_columns = {n.marginal.columns: n for release in pairs for n in tables_of(release)}
        target = self.target if n_columns > 1 else None
        shares, in_order = [one.shares for one in bins], bins_in_order(bins, found.grids)
        tree = fit_tree(nodes, shares, by_columns, n_rows, target, in_order)
        self.advance("tree")
        model = TableModel(n_rows, found.releases, bins, tree, (), found.grids)
        return model if n_columns == 1 else self._release_pairs(rows, model, pairs)

    def _release_tree(
        self, rows: AnyRows, bins: tuple[ColumnBins, ...]
    ) -> tuple[tuple[TreeNode, ...], tuple[Release, ...]]:
        """Choose a tree by how far pairs are from independent, and release its pairs, if any."""
        n_columns = len(bins)
        if n_columns < 3:
            alone = [c for c in range(n_columns) if c != self.target or n_columns == 1]
            return tuple(TreeNode(column, None) for column in alone), ()

        def independent(marginals: Sequence[Marginal]) -> list[FloatArray]:
            shares = ([bins[column].shares for column in m.columns] for m in marginals)
            products = (self.plan.n_samples * np.outer(*pair) for pair in shares)
            return [m.joined(found) for m, found in zip(marginals, products, strict=True)]

        pairs: list[Columns] = list(itertools.combinations(range(n_columns), 2))
        if n_columns > _MOST_FEW:
            with_target = [pair for pair in pairs if self.target in pair]
            some = marginals_of(bins, sorted(set(pairs) - set(with_target)), 2)
            edges = self._chosen(rows, some, independent(some), "edges", forest=True)
            pairs = sorted({marginal.columns for marginal in edges} | set(with_target))
        marginals = both_levels(bins, pairs)
        if n_columns <= _FEWER:  # what is sure to be needed later is counted in the same pass
            triples = itertools.combinations(range(n_columns), 3)
            exact_counts(rows, (*marginals, *marginals_of(bins, triples, 2)))
        candidates = self._candidates(rows, marginals, independent(marginals), "independence")
        sigma = float(self.plan.marginal_sigmas("tree", np.ones(1))[0])
        nodes, choice = choose_tree(candidates, n_columns, self.target, sigma)
        if choice is None:
            return nodes, ()
        return nodes, (self._released(rows, choice.marginals, choice.weights, "tree"),)

    def _release_pairs(
        self, rows: AnyRows, model: TableModel, before: tuple[Release, ...]
    ) -> TableModel:
        """Release the pairs and triples that the tree gets worst, and fit potentials to all."""
        n_columns, bins = len(model.bins), model.bins
        n_particles = min(self.n_particles, _MOST_HELD // n_columns)
        particles = model.particles(n_particles, self.streams.solver)

        def predicted(marginals: Sequence[Marginal]) -> list[FloatArray]:
            return list(counts_of(particles.codes, marginals, particles.weights))

        pairs: Iterable[Columns] = itertools.combinations(range(n_columns), 2)
        if n_columns == 2:
            chosen = both_levels(bins, pairs)[-1:]
            worst = self._released(rows, chosen, np.ones(1), "pairs")
        else:
            if n_columns > _MOST_FEW:
                some = marginals_of(bins, pairs, 2)
                some = self._chosen(rows, some, predicted(some), "pairs")
                pairs = sorted(marginal.columns for marginal in some)
            triples = itertools.combinations(range(n_columns), 3)
            some = marginals_of(bins, triples if n_columns <= _FEWER else _along(model.tree), 2)
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
        """Let columns hang on a second one where the tree is far off the counts of that pair."""
        pairs = [noisy for noisy in model.consistent if len(noisy.marginal.columns) == 2]
        found = counts_of(particles.codes, [n.marginal for n in pairs], particles.weights)
        best: dict[Columns, tuple[float, NoisyMarginal]] = {}
        for noisy, table in zip(pairs, found, strict=True):
            explained = sampling_misfit(table, model.n_rows) + _NOISE * noisy.sigma * len(table)
            gain = float(np.abs(noisy.counts - table).sum()) - explained
            if gain > best.get(noisy.marginal.columns, (-math.inf,))[0]:
                best[noisy.marginal.columns] = gain, noisy
        return with_second_parents(
            model.tree,
            [one.shares for one in model.bins],
            best,
            model.n_rows,
            bins_in_order(model.bins, model.grids),
            len(particles.codes),
            self.streams.solver,
        )

    def _chosen(
        self,
        rows: AnyRows,
        marginals: tuple[Marginal, ...],
        predictions: Sequence[FloatArray],
        what: str,
        *,
        forest: bool = False,
    ) -> tuple[Marginal, ...]:
        """Choose marginals with large misfits, of which nothing else is released."""
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
        rows: AnyRows,
        marginals: tuple[Marginal, ...],
        predictions: Sequence[FloatArray],
        release: str,
    ) -> Candidates:
        """Release misfits, and take off what chance and the noise explain."""
        sigma, secret = self.plan.misfit_sigma(release, marginals), self.streams.secret
        event, most = self._event_of(release), self.plan.weight
        noisy = release_misfits(rows, marginals, predictions, sigma, secret, event, most)
        chance = [sampling_misfit(table, self.plan.n_samples) for table in predictions]
        importance = [TARGET_IMPORTANCE if self.target in m.columns else 1.0 for m in marginals]
        return Candidates(marginals, noisy - np.array(chance) - sigma, np.array(importance))

    def _released(
        self, rows: AnyRows, marginals: Sequence[Marginal], weights: FloatArray, name: str
    ) -> Release:
        sigmas = self.plan.marginal_sigmas(name, weights)
        terms = self.streams.secret, self._event_of(name), self.plan.weight
        return release_marginals(rows, marginals, sigmas, *terms)

    def _event_of(self, name: str) -> Event:
        return events_of(self.plan.event)[name]


def _binned(batch: tuple[IntArray, Any], bins: Sequence[ColumnBins]) -> tuple[IntArray, Any]:
    codes, weights = batch
    return bin_codes(codes, bins), weights


def _along(tree: ColumnTree) -> list[Columns]:
    """Return triples of a column, its parent, and the target or the parent of that."""
    parents = {node.column: node.parent for node in tree.nodes}
    found = set()
    for column, parent in parents.items():
        for third in (tree.target, None if parent is None else parents[parent]):
            if parent is not None and third is not None:
                found.add(tuple(sorted((column, parent, third))))
    return sorted(found)
