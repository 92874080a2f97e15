r"""A distribution over the cells of a table, fitted to noisy marginals.

Everything here is computed from released counts: a tree of columns, some of which hang on two
others, from which rows are drawn exactly with any values given; and weights of these particles that
agree with the noisy marginals.

*Weights.* Among all weights W of given particles the solver finds those that minimise

.. math:: \kappa \, KL(W | W_0) + \sum_T \frac{\|m_T(W) - y_T\|^2}{2 \sigma_T^2},

where :math:`m_T(W)` is what the particles weigh in the cells of marginal T and :math:`y_T` its
noisy counts, with noise :math:`\sigma_T` of at least 5 rows: a Schrödinger problem with as many
marginals as were released, held as tightly as their noise allows. The total weight stays that of
:math:`W_0`. The optimum has the form :math:`\log (W / W_0) = \sum_T \theta_T[cell]` up to a
constant, and Sinkhorn's iteration solves for one :math:`\theta_T` at a time. For marginals that
must be met exactly that is iterative proportional fitting; with noise it is the scaling algorithm
for unbalanced transport (Chizat, Peyré, Schmitzer and Vialard, "Scaling algorithms for unbalanced
optimal transport problems", 2018) with a quadratic penalty.

Many potentials put most of the weight on a few particles. Before that happens they are resampled
and moved: each column is drawn anew given all others (Gibbs), which leaves the fitted distribution
as it is, and weights are equal again. This is a sequential Monte Carlo sampler (Del Moral, Doucet
and Jasra, "Sequential Monte Carlo samplers", 2006) that takes in one potential after the other.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.gate import Release
from skdpot.tables.cells import FEWEST_TIED, POSSIBLE, ColumnBins, bin_codes, tied_shares
from skdpot.tables.contingency import Marginal, NoisyMarginal, tables_of
from skdpot.tables.grids import ColumnGrid

SMOOTHING = 0.05  # kappa
_LEAST_NOISE = 5.0  # rows; what is known better is not held more tightly
_NEWTON_STEPS = 12
_LARGEST_STEP = 6.0
_EMPTY = 1e-9  # rows


def scaling_step(
    counts: FloatArray,
    expected: FloatArray,
    potentials: FloatArray,
    sigma: float,
    smoothing: float,
) -> FloatArray:
    """Solve for the potentials of one marginal while all others stay."""
    stiffness = smoothing * max(sigma, _LEAST_NOISE) ** 2
    reached = expected > _EMPTY  # a cell without particles tells nothing of its potential
    step = np.zeros_like(expected)
    # The equation is monotone and convex in the step; steps of at most 1 keep exp in range.
    for _ in range(_NEWTON_STEPS):
        weights = expected * np.exp(step)
        residual = stiffness * (potentials + step) - counts + weights
        step -= (residual / (stiffness + weights)).clip(-1.0, 1.0)
    return np.where(reached, np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), 0.0)


Factor: TypeAlias = tuple[Marginal, FloatArray]
_MOST_MERGED = 2**12  # combinations of bins
_AT_ONCE = 2**13  # particles: what is looked up for them stays in cache


@dataclass(frozen=True, eq=False)
class Moves:
    """How particles are moved that follow a product of factors.

    Factors are given by their logarithms in the cells of marginals. Each entry of `impossible`
    marks bins of columns that do not occur together.
    """

    factors: tuple[Factor, ...]
    impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]]
    n_particles: int
    rng: np.random.Generator

    def apply(self, codes: IntArray) -> None:
        """Draw each column once, given all others, in place."""
        rng = self.rng
        conditionals = self._conditionals()
        columns = rng.permutation(list(conditionals)).tolist()
        for start in range(0, len(codes), _AT_ONCE):
            part = np.array(codes[start : start + _AT_ONCE], order="F")
            for column in columns:
                logs = np.zeros((1, len(part)), dtype=np.float32)
                for given, table in conditionals[column]:
                    logs = logs + table.take(np.atleast_1d(given.cells(part)), axis=1)
                edges = np.exp(logs - logs.max(axis=0))
                for below, edge in itertools.pairwise(edges):  # faster than a cumulative sum
                    edge += below
                level = rng.random(len(part), dtype=np.float32) * edges[-1]
                before = part[:, column].copy()
                part[:, column] = (edges[:-1] <= level).sum(axis=0)
                for marks in self.impossible:
                    if column in marks:  # such a move is refused
                        bad = np.all([mark[part[:, c]] for c, mark in marks.items()], axis=0)
                        part[bad, column] = before[bad]
            codes[start : start + _AT_ONCE] = part

    def _conditionals(self) -> dict[int, list[tuple[Marginal, npt.NDArray[np.float32]]]]:
        """Return for each column what it depends on, and its log weights in each case of that."""
        merged: dict[tuple[int, ...], Factor] = {}
        kept = []
        for marginal, logs in self.factors:
            whole = marginal.ungrouped
            if whole.n_cells > _MOST_MERGED:
                kept.append((marginal, logs))
                continue
            _, known = merged.get(whole.columns, (whole, 0.0))
            merged[whole.columns] = whole, known + logs.ravel()[marginal.table].ravel()
        found: dict[int, list[tuple[Marginal, npt.NDArray[np.float32]]]] = {}
        for marginal, logs in (*merged.values(), *kept):
            for axis, column in enumerate(marginal.columns):
                others = marginal.columns[:axis] + marginal.columns[axis + 1 :]
                groups = marginal.groups[:axis] + marginal.groups[axis + 1 :]
                cases = np.moveaxis(logs.reshape(marginal.shape), axis, 0)[marginal.groups[axis]]
                table = cases.reshape(len(cases), -1).astype(np.float32)
                found.setdefault(column, []).append((Marginal(others, groups), table))
        return found


_DEGENERATE = 0.2  # effective share of particles


class ScaledParticles:
    """Particles whose weights are scaled until their marginals fit."""

    def __init__(self, codes: IntArray, weights: FloatArray, moves: Moves | None = None) -> None:
        self.codes = codes
        self.weights = weights.copy()
        self.potentials: list[FloatArray] = []
        self._total = float(weights.sum())
        self._marginals: list[NoisyMarginal] = []
        self._cells: list[IntArray] = []
        self._moves = moves

    def add(self, noisy: NoisyMarginal, potentials: FloatArray | None = None) -> None:
        """Take a marginal into account, starting from known potentials if there are any."""
        self._marginals.append(noisy)
        self._cells.append(self._found(noisy.marginal))
        self.potentials.append(np.zeros(noisy.marginal.n_cells))
        if potentials is not None:
            self._move(len(self._cells) - 1, self._expected(len(self._cells) - 1), potentials)

    def sweep(self) -> float:
        """Go through all marginals once."""
        moved = 0.0
        for place, noisy in enumerate(self._marginals):
            expected, known = self._expected(place), self.potentials[place]
            step = scaling_step(noisy.counts, expected, known, noisy.sigma, SMOOTHING)
            self._move(place, expected, step)
            moved = max(moved, float(np.abs(expected * np.expm1(step)).sum()) / self._total)
        return moved

    def run(self, n_sweeps: int, tolerance: float = 1e-4) -> None:
        """Sweep until little moves."""
        for _ in range(n_sweeps):
            if self.sweep() < tolerance:
                return

    def _expected(self, place: int) -> FloatArray:
        """Return what the particles weigh in the cells of a marginal."""
        n_cells = self._marginals[place].marginal.n_cells
        return np.bincount(self._cells[place], self.weights, n_cells).astype(np.float64)

    def _move(self, place: int, expected: FloatArray, step: FloatArray) -> None:
        """Add to the potentials of a marginal; the total weight stays."""
        self.potentials[place] = self.potentials[place] + step
        # The potential of a cell without particles may be huge, and moves no weight.
        factors = np.where(expected > 0.0, np.exp(step), 0.0)
        factors *= self._total / (expected * factors).sum()
        self.weights *= factors.take(self._cells[place])
        effective = self.weights.sum() ** 2 / (len(self.weights) * (self.weights**2).sum())
        if self._moves is not None and effective < _DEGENERATE:
            self._renew(self._moves)

    def _found(self, marginal: Marginal) -> IntArray:
        """Return the cell of each particle."""
        cells = marginal.cells(self.codes)  # one a particle and marginal is what fills memory
        return cells.astype(np.uint16) if marginal.n_cells <= 2**16 else cells

    def _renew(self, moves: Moves) -> None:
        """Resample particles by their weights, and move them."""
        self.codes = self.codes[_resampled(self.weights, moves.n_particles, moves.rng)]
        known = zip((noisy.marginal for noisy in self._marginals), self.potentials, strict=True)
        replace(moves, factors=(*moves.factors, *known)).apply(self.codes)
        self.weights = np.full(moves.n_particles, self._total / moves.n_particles)
        self._cells = [self._found(noisy.marginal) for noisy in self._marginals]


def _resampled(weights: FloatArray, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw particles evenly along their weights."""
    edges = np.cumsum(weights)
    even = (np.arange(n_rows) + rng.random()) / n_rows * edges[-1]
    return np.minimum(np.searchsorted(edges, even, side="right"), len(edges) - 1)


_PRIOR_VARIANCE = 0.15  # of the potentials of a tree
_LEAST_SHARE = 1e-15  # of a bin in a tree
_TREE_SWEEPS, _CLIQUE_SWEEPS, _TIED_SWEEPS = 40, 15, 5
_MOST_CASES = 2**18  # times bins


@dataclass(frozen=True)
class TreeNode:
    """A column, and the columns that it hangs on besides the target."""

    column: int
    parent: int | None
    second: int | None = None


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """A tree in which each column depends on its parent, the target and perhaps a second parent."""

    nodes: tuple[TreeNode, ...]
    conditionals: tuple[FloatArray, ...]
    target: int | None
    target_shares: FloatArray

    def draw(
        self, n_rows: int, rng: np.random.Generator, allowed: Mapping[int, FloatArray] | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Draw rows that satisfy conditions, parents first."""
        allowed = allowed or {}
        n_columns = len(self.nodes) + (self.target is not None)
        codes = np.zeros((n_rows, n_columns), dtype=np.int32, order="F")
        log_weights = np.zeros(n_rows)
        if self.target is not None:
            shares, likelihood = _restricted(self.target_shares[None], allowed.get(self.target))
            codes[:, self.target] = _stratified(np.zeros(n_rows, dtype=np.int64), shares, rng)
            log_weights += np.log(likelihood[0])
        for node, conditional in zip(self.nodes, self.conditionals, strict=True):
            cases = _cases(codes, (self.target, node.parent, node.second), conditional.shape)
            flat = conditional.reshape(-1, conditional.shape[-1])
            shares, likelihood = _restricted(flat, allowed.get(node.column))
            log_weights += np.log(likelihood)[cases]
            codes[:, node.column] = _stratified(cases, shares, rng)
        return codes, log_weights

    def factors(self, allowed: Mapping[int, FloatArray]) -> tuple[Factor, ...]:
        """Return the logarithms of what rows that satisfy conditions are drawn by."""
        known: list[tuple[tuple[int, ...], FloatArray]] = []
        if self.target is not None:
            known.append(((self.target,), self.target_shares))
        for node, conditional in zip(self.nodes, self.conditionals, strict=True):
            between = (self.target, node.parent, node.second)[: conditional.ndim - 1]
            axes = zip((*between, node.column), conditional.shape, strict=True)
            columns, shape = zip(*((c, size) for c, size in axes if c is not None), strict=True)
            known.append((columns, conditional.reshape(shape)))
        known += [((column,), kept) for column, kept in allowed.items()]
        return tuple(
            (
                Marginal(columns, tuple(map(np.arange, table.shape))),
                np.log(np.maximum(table, _LEAST_SHARE)),
            )
            for columns, table in known
        )


def _cases(codes: IntArray, above: Sequence[int | None], shape: Sequence[int]) -> IntArray:
    """Return which combination of bins of the columns above each row has."""
    cases = np.zeros(len(codes), dtype=np.int64)
    for column, size in zip(above, shape[:-1], strict=False):
        if column is not None:
            cases = cases * size + codes[:, column]
    return cases


def spanning_tree(
    gains: Mapping[tuple[int, ...], float], columns: Sequence[int]
) -> tuple[TreeNode, ...]:
    """Join columns by the pairs that gain most (Prim's algorithm; Chow and Liu, 1968)."""
    best: dict[int, tuple[float, int | None]] = {column: (-math.inf, None) for column in columns}
    nodes = []
    while best:
        column = max(best, key=lambda name: best[name][0])
        gain, parent = best.pop(column)
        nodes.append(TreeNode(column, parent if gain > 0.0 else None))
        for other, (known, _) in best.items():
            offered = gains.get((min(column, other), max(column, other)), -math.inf)
            if offered > known:
                best[other] = (offered, column)
    return tuple(nodes)


def fit_tree(
    nodes: Sequence[TreeNode],
    shares: Sequence[FloatArray],
    pairs: Mapping[tuple[int, ...], NoisyMarginal],
    n_rows: int,
    target: int | None,
    in_order: Sequence[int] | None = None,
) -> ColumnTree:
    r"""Find the distributions of a tree by noisy counts of its pairs.

    For each node the joint distribution of target, parent and node is a first guess, changed by
    potentials that fit the noisy counts best under a normal prior. The guess is that the node is
    independent; of columns whose first bins are in an order, so many each, that it is tied to its
    parent by copulas. With noise :math:`\sigma` in each of C cells, n / C rows in a cell tell its
    potential up to :math:`C \sigma / n`, so that the prior holds it by :math:`\kappa = C / n` over
    its variance. (A fixed :math:`\kappa` would flatten strong relations in many rows with wide
    noise.)
    """
    joint: dict[int, FloatArray] = {}  # of target and column
    roots = np.ones(1) if target is None else shares[target]
    in_order = in_order or [0] * len(shares)
    conditionals = []
    for node in nodes:
        above = roots[:, None] if node.parent is None else joint[node.parent]
        fitted = _fit_clique(
            above, (target, node.parent), node.column, shares, pairs, n_rows, in_order
        )
        joint[node.column] = fitted.sum(axis=1)
        conditionals.append(fitted / fitted.sum(axis=-1, keepdims=True))
    return ColumnTree(tuple(nodes), tuple(conditionals), target, roots)


def with_second_parents(
    tree: ColumnTree,
    shares: Sequence[FloatArray],
    pairs: Mapping[tuple[int, ...], tuple[float, NoisyMarginal]],
    n_rows: int,
    in_order: Sequence[int],
    n_particles: int,
    rng: np.random.Generator,
) -> tuple[ColumnTree, IntArray]:
    """Let columns hang on one more of those before them, and draw rows."""
    codes = np.zeros((n_particles, len(shares)), dtype=np.int32, order="F")
    tables = {columns: noisy for columns, (_, noisy) in pairs.items()}
    drawn: set[int] = set()
    nodes, conditionals = [], []
    if tree.target is not None:
        none = np.zeros(n_particles, dtype=np.int64)
        codes[:, tree.target] = _stratified(none, tree.target_shares[None], rng)
    for node, conditional in zip(tree.nodes, tree.conditionals, strict=True):
        gains = {
            other: pairs[pair][0]
            for other in drawn - {node.parent}
            if (pair := (min(node.column, other), max(node.column, other))) in pairs
            and conditional.size * len(shares[other]) <= _MOST_CASES
        }
        second = max(gains, key=gains.__getitem__, default=None)
        if node.parent is not None and second is not None and gains[second] > 0.0:
            node = replace(node, second=second)
            others = (tree.target, node.parent, second)
            shape = (*conditional.shape[:2], len(shares[second]), conditional.shape[-1])
            cases = _cases(codes, others, shape)
            above = np.bincount(cases, minlength=math.prod(shape[:-1])).reshape(shape[:-1])
            conditional = _fit_clique(
                above / n_particles, others, node.column, shares, tables, n_rows, in_order
            )
            conditional /= conditional.sum(axis=-1, keepdims=True)
        cases = _cases(codes, (tree.target, node.parent, node.second), conditional.shape)
        flat = conditional.reshape(-1, conditional.shape[-1])
        codes[:, node.column] = _stratified(cases, flat, rng)
        drawn.add(node.column)
        nodes.append(node)
        conditionals.append(conditional)
    found = ColumnTree(tuple(nodes), tuple(conditionals), tree.target, tree.target_shares)
    return found, codes


def _fit_clique(
    above: FloatArray,
    others: Sequence[int | None],
    node: int,
    shares: Sequence[FloatArray],
    pairs: Mapping[tuple[int, ...], NoisyMarginal],
    n_rows: int,
    in_order: Sequence[int],
) -> FloatArray:
    """Fit the distribution of others, which is known, and a node to tables of it and each other."""
    above = np.maximum(above, 1e-12)
    joint = above[..., None] * shares[node]
    facts, tied = [], []
    for axis, other in enumerate(others):
        noisy = None if other is None else pairs.get((min(other, node), max(other, node)))
        if noisy is None:
            continue
        both = noisy.marginal.columns
        rest = tuple(place for place in range(len(others)) if place != axis)
        cells = noisy.marginal.table
        facts.append((rest, noisy, cells if both[1] == node else cells.T))
        if axis and min(in_order[column] for column in both) >= FEWEST_TIED:
            guess = tied_shares(noisy, [shares[c] for c in both], [in_order[c] for c in both])
            guess = np.maximum(guess, 1e-15)  # several guesses are divided by what others left
            tied.append((rest, guess if both[1] == node else guess.T))
    for _ in range(_TIED_SWEEPS if len(tied) > 1 else len(tied)):
        for rest, guess in tied:
            joint *= np.expand_dims(guess / joint.sum(axis=rest), rest)
        joint *= (above / joint.sum(axis=-1))[..., None]
    potentials = [np.zeros_like(noisy.counts) for _, noisy, _ in facts]
    for _ in range(_TREE_SWEEPS if len(others) < 3 else _CLIQUE_SWEEPS):
        for place, (rest, noisy, cells) in enumerate(facts):
            size, found = len(noisy.counts), joint.sum(axis=rest).ravel()
            expected = n_rows * np.bincount(cells.ravel(), found, size).astype(np.float64)
            smoothing = size / (n_rows * _PRIOR_VARIANCE)
            known = potentials[place]
            step = scaling_step(noisy.counts, expected, known, noisy.sigma, smoothing)
            potentials[place] = known + step
            joint *= np.expand_dims(np.exp(step)[cells], rest)
        joint *= (above / joint.sum(axis=-1))[..., None]
    return np.maximum(joint, _LEAST_SHARE)


def _restricted(shares: FloatArray, allowed: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return rows of shares given that a condition holds, and how likely it is in each."""
    if allowed is None:
        return shares, np.ones(len(shares))
    kept = np.maximum(shares, _LEAST_SHARE) * allowed
    likelihood = kept.sum(axis=1)
    return kept / likelihood[:, None], likelihood


def _stratified(cases: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a bin for each row from the shares of its case, evenly within a case."""
    n_rows, (n_cases, n_bins) = len(cases), shares.shape
    mixed = rng.permutation(n_rows)
    # Short integers are sorted by their digits, many times faster.
    short = cases.astype(np.int16) if n_cases <= 2**15 else cases
    order = mixed[np.argsort(short[mixed], kind="stable")]
    sizes = np.bincount(cases, minlength=n_cases)
    own = np.repeat(np.arange(n_cases), sizes)
    starts, first = np.cumsum(sizes) - sizes, np.asarray(rng.random(n_cases))
    places = np.arange(n_rows) - starts[own] + first[own]
    edges = np.cumsum(shares, axis=1)
    edges /= np.maximum(edges[:, -1:], 1e-300)  # of a case without rows shares may be zero
    last = (edges < 1.0).sum(axis=1)  # of those with a share
    edges += np.arange(n_cases)[:, None]
    bins = np.searchsorted(edges.ravel(), own + places / sizes[own], side="right") - own * n_bins
    drawn = np.empty(n_rows, dtype=np.int64)
    drawn[order] = np.minimum(bins, last[own])
    return drawn


MOST_MOVED = 50_000  # particles in a fit
_PER_ROW = 4  # particles for each row that is drawn,
_FEWEST, _MOST = 20_000, 200_000  # but so many at once
_ROWS_AT_ONCE = 100_000
_MOST_CELLS = 2**27  # of particles in marginals
_SWEEPS, _DRAW_SWEEPS = 15, 3
_MOST_BALANCED = 300  # pairs of columns
_LEAST_BALANCED = 5.0  # rows of a cell
_EXCHANGES, _BALANCED_AT_ONCE, _EXCHANGED = 200, 2000, 0.03


@dataclass(frozen=True, eq=False)
class TableModel:
    """A tree of columns, reweighted by potentials on the cells of marginals."""

    n_rows: int
    releases: tuple[Release, ...]
    bins: tuple[ColumnBins, ...]
    tree: ColumnTree
    potentials: tuple[FloatArray, ...]
    grids: tuple[ColumnGrid, ...] = ()

    @cached_property
    def n_rounds(self) -> int:
        """Number of releases of single columns."""
        tables = [release.facts["marginals"] for release in self.releases]
        return sum(all(len(marginal.columns) == 1 for marginal in part) for part in tables)

    @cached_property
    def columns(self) -> tuple[NoisyMarginal, ...]:
        """Released counts of the final cells of each column."""
        return tables_of(self.releases[self.n_rounds - 1])

    @cached_property
    def marginals(self) -> tuple[NoisyMarginal, ...]:
        """Released counts of pairs; one that was released twice has the precision of both."""
        known: dict[Marginal, NoisyMarginal] = {}
        for release in self.releases[self.n_rounds :]:
            for noisy in tables_of(release):
                before = known.get(noisy.marginal)
                known[noisy.marginal] = noisy if before is None else before.merge(noisy)
        return tuple(known.values())

    @cached_property
    def consistent(self) -> tuple[NoisyMarginal, ...]:
        """The counts of `marginals`, moved to where they agree on every column.

        What all of them and the counts of single columns say of a column is weighed by its
        noise, one after the other, as if bins had independent errors; the difference is shared
        evenly (as Zhang et al., "PrivSyn", 2021, Section 4.3, make marginals consistent).
        """
        if self.releases[0].kind != "marginals" or not self.columns:  # nothing is independent
            return self.marginals
        known = []
        for noisy, bins in zip(self.columns, self.bins, strict=True):
            counted = bins.cell_shares > 2 * POSSIBLE
            variances = noisy.sigma**2 * np.bincount(bins.bins, counted, bins.n_bins)
            known.append((self.n_rows * bins.shares, variances + noisy.sigma**2))
        for noisy in self.marginals:
            for axis, column in enumerate(noisy.marginal.columns):
                (counts, variances), groups = known[column], noisy.marginal.groups[axis]
                found, n_others = _margin(noisy.marginal, noisy.counts, axis)
                found = found + (self.n_rows - found.sum()) / len(found)
                own = np.bincount(groups, variances) + noisy.sigma**2 * n_others
                gains = variances / np.where(own > 0.0, own, 1.0)[groups]
                missed = (found - np.bincount(groups, counts))[groups]
                known[column] = (counts + gains * missed, variances * (1 - gains))
        moved = []
        for noisy in self.marginals:
            counts = noisy.counts + (self.n_rows - noisy.counts.sum()) / len(noisy.counts)
            for axis, column in enumerate(noisy.marginal.columns):
                due = np.bincount(noisy.marginal.groups[axis], known[column][0])
                due += (self.n_rows - due.sum()) / len(due)
                found, n_others = _margin(noisy.marginal, counts, axis)
                shape = [-1 if place == axis else 1 for place in range(len(noisy.marginal.shape))]
                table = counts.reshape(noisy.marginal.shape)
                counts = (table + ((due - found) / n_others).reshape(shape)).ravel()
            moved.append(replace(noisy, counts=counts))
        return tuple(moved)

    def seen_by(self, release: Release, values: Sequence[Any]) -> IntArray:
        """Return the codes of rows that a release counts, as it was recorded or is stored."""
        marginals = release.facts["marginals"]
        level = marginals[0].levels if len(marginals[0].columns) == 1 else None
        cells = np.stack([g.codes(v) for g, v in zip(self.grids, values, strict=True)], axis=1)
        if level is None:
            return bin_codes(cells, self.bins)
        if level == (0,):
            cells = np.hstack([cells, cells])  # they were counted beside the cells
            for (place,) in (marginal.columns for marginal in marginals):
                c = place % len(values)
                cells[:, place] = self.grids[c].roundness(self.grids[c].column.to_unit(values[c]))
            return cells
        rounds = (tables_of(other) for other in self.releases[: self.n_rounds])
        stored = {n.marginal: n.marginal.groups[0] for tables in rounds for n in tables}
        for marginal in marginals:
            groups = stored[marginal]
            if len(marginal.groups[0]) != len(groups):  # recorded before cells were split
                cells[:, marginal.columns[0]] = groups[cells[:, marginal.columns[0]]]
        return cells

    def particles(
        self,
        n_particles: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
        impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]] = (),
        n_moved: int = MOST_MOVED,
    ) -> ScaledParticles:
        """Draw weighted particles; the weights add up to the number of rows."""
        codes, log_weights = self.tree.draw(n_particles, rng, allowed)
        weights = np.exp(log_weights - log_weights.max())
        broken = np.zeros(len(codes), dtype=np.bool_)
        for marks in impossible:
            broken |= np.all([mark[codes[:, c]] for c, mark in marks.items()], axis=0)
        if allowed and broken.all():
            raise ValueError("Every row that satisfies conditions is forbidden by a rule.")
        if not broken.all():  # else moves lead to rows that obey, if there are some
            weights[broken] = 0.0
        weights *= self.n_rows / weights.sum()
        moves = Moves(self.tree.factors(allowed or {}), impossible, min(n_moved, n_particles), rng)
        particles = ScaledParticles(codes, weights, moves)
        for noisy, potentials in zip(self.consistent, self.potentials, strict=True):
            particles.add(noisy, potentials)
        return particles

    def fitted(self, particles: ScaledParticles) -> "TableModel":
        """Return the model with potentials by which particles of its tree fit all marginals."""
        for noisy in self.consistent:
            particles.add(noisy)
        particles.run(_SWEEPS)
        return replace(self, potentials=tuple(particles.potentials))

    def draw(
        self,
        n_rows: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
        impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]] = (),
    ) -> IntArray:
        """Draw rows of bins."""
        drawn: list[IntArray] = []
        while n_rows > 0:
            fits = _MOST_CELLS // max(len(self.marginals), 1)
            part = min(n_rows, _ROWS_AT_ONCE, max(fits // 2, 1))
            n_particles = int(np.clip(_PER_ROW * part, min(_FEWEST, fits), min(_MOST, fits)))
            particles = self.particles(n_particles, rng, allowed, impossible, part)
            if not allowed:  # the marginals are those of all rows
                particles.run(_DRAW_SWEEPS)
            places = rng.permutation(_resampled(particles.weights, part, rng))
            if not drawn and part == n_rows:  # of more rows chance makes little
                places = _balanced(particles, places, rng)
            drawn.append(particles.codes[places])
            n_rows -= part
        return np.concatenate(drawn)


def _margin(marginal: Marginal, counts: FloatArray, axis: int) -> tuple[FloatArray, int]:
    """Return the counts of one column of a marginal, and how many cells each is the sum of."""
    table = np.moveaxis(counts.reshape(marginal.shape), axis, 0).reshape(marginal.shape[axis], -1)
    return table.sum(axis=1), table.shape[1]


def draw_cells(
    codes: IntArray, bins: ColumnBins, rng: np.random.Generator, kept: FloatArray | None = None
) -> IntArray:
    """Draw a cell of each bin."""
    shares = bins.cell_shares if kept is None else bins.cell_shares * kept
    return _stratified(codes, shares * (bins.bins == np.arange(bins.n_bins)[:, None]), rng)


def _balanced(particles: ScaledParticles, places: IntArray, rng: np.random.Generator) -> IntArray:
    """Exchange chosen particles for others until pairs of columns are as frequent as they weigh."""
    codes, weights, n_rows = particles.codes, particles.weights, len(places)
    first, second = np.triu_indices(codes.shape[1], 1)
    sizes = codes.max(axis=0).astype(np.int64) + 1
    ends = np.cumsum(sizes[first] * sizes[second])
    if not 0 < len(first) <= _MOST_BALANCED:
        return places
    counted, due = np.zeros((2, ends[-1]))
    for one, other, end in zip(first, second, ends.tolist(), strict=True):
        cells, size = codes[:, one] * sizes[other] + codes[:, other], sizes[one] * sizes[other]
        due[end - size : end] = np.bincount(cells, weights, size) * (n_rows / weights.sum())
        counted[end - size : end] = np.bincount(cells[places], minlength=size)
    # Rows in rare cells come and go as others do: rounding would leave them out.
    matters = due >= _LEAST_BALANCED
    too_many = (counted - due) * matters
    starts, edges = ends - sizes[first] * sizes[second], np.cumsum(weights)
    n_seen = min(_BALANCED_AT_ONCE, n_rows)
    for exchanged in np.linspace(_EXCHANGED * n_seen, 1, _EXCHANGES).astype(int):
        inside = rng.choice(n_rows, n_seen, replace=False)
        outside = np.searchsorted(edges, rng.random(n_seen) * edges[-1], side="right")
        outside = np.minimum(outside, len(codes) - 1)
        seen = codes[np.stack([places[inside], outside])]
        cells = seen[..., first] * sizes[second] + seen[..., second] + starts
        excess = too_many[cells].sum(axis=-1)
        goes = np.argsort(-excess[0], kind="stable")[:exchanged]
        comes = np.argsort(excess[1], kind="stable")[:exchanged]
        np.subtract.at(too_many, cells[0, goes], matters[cells[0, goes]])
        np.add.at(too_many, cells[1, comes], matters[cells[1, comes]])
        places[inside[goes]] = outside[comes]
    return places
