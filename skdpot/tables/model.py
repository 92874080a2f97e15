r"""A distribution over the cells of a table, fitted to noisy marginals.

Everything here is computed from released counts: bins of each column that a noisy histogram can
tell apart; a tree of columns, from which rows are drawn exactly with any values given; and weights
of these particles that agree with the noisy marginals, found by unbalanced Sinkhorn scaling.

Among all weights W of given particles the solver finds those that minimise

.. math:: \kappa \, KL(W | W_0) + \sum_T \frac{\|m_T(W) - y_T\|^2}{2 \sigma_T^2},

where :math:`m_T(W)` is what the particles weigh in the cells of marginal T and :math:`y_T` its
noisy counts, with noise :math:`\sigma_T` of at least 5 rows: a Schrödinger problem with as many
marginals as were released, held as tightly as their noise allows. The total weight stays that of
:math:`W_0`. The optimum has the form :math:`\log (W / W_0) = \sum_T \theta_T[cell]` up to a
constant, and Sinkhorn's iteration solves for one :math:`\theta_T` at a time. For marginals that
must be met exactly that is iterative proportional fitting; with noise it is the scaling algorithm
for unbalanced transport (Chizat, Peyré, Schmitzer and Vialard, "Scaling algorithms for unbalanced
optimal transport problems", 2018) with a quadratic penalty.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot.release.contingency import FloatArray, IntArray, Marginal, NoisyMarginal, tables_of
from skdpot.release.release import Release
from skdpot.tables.column_base import ColumnGrid
from skdpot.tables.copulas import tied_shares

MAX_BINS = 24  # of a column with a scale or an order
_MAX_CATEGORIES = 64
_SEEN_CATEGORY = 3.0  # standard deviations of noise at which a category has a bin of its own,
_SEEN_INTERVAL = 4.0  # and rows of an interval
_SEEN_TAIL = 1.5  # and rows of a part of a tail
FEW_GROUPS = 4  # of a column in which triples are counted
_POSSIBLE = 1e-9  # least share of a cell: what the noise hides may occur


@dataclass(frozen=True, eq=False)
class ColumnBins:
    """Bins of one column."""

    bins: IntArray
    cell_shares: FloatArray
    coarse: IntArray

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return len(self.coarse)

    @property
    def shares(self) -> FloatArray:
        """Estimated share of the rows in each bin."""
        shares = np.bincount(self.bins, weights=self.cell_shares, minlength=self.n_bins)
        return shares.astype(np.float64)

    @cached_property
    def _groups(self) -> tuple[IntArray, IntArray, IntArray]:
        fine, coarse = np.arange(self.n_bins), self.coarse
        if coarse.max() < FEW_GROUPS:
            return fine, coarse, coarse
        shares = np.bincount(coarse, weights=self.shares).astype(np.float64)
        return fine, coarse, _group_intervals(shares, FEW_GROUPS, 0.0)[coarse]

    def groups(self, level: int) -> IntArray:
        """Return the group of each bin: itself (0), a coarse one (1) or one of few (2)."""
        return self._groups[level]

    def satisfied(self, kept: FloatArray) -> FloatArray:
        """Return the share of each bin that satisfies a condition, by shares of cells that do."""
        return np.bincount(self.bins, weights=self.cell_shares * kept) / self.shares


def bins_in_order(bins: Sequence[ColumnBins], grids: Sequence[ColumnGrid]) -> list[int]:
    """Return how many of the first bins of each column are in an order."""
    return [
        (one.n_bins - grid.column.missing) * grid.ordered
        for one, grid in zip(bins, grids, strict=True)
    ]


def bin_codes(codes: IntArray, bins: Sequence[ColumnBins]) -> IntArray:
    """Return the bins that the cells of rows are in."""
    binned = np.empty(codes.shape, dtype=np.int32, order="F")
    for column, found in enumerate(bins):
        binned[:, column] = found.bins[codes[:, column]]
    return binned


def coarsen(noisy: NoisyMarginal, grid: ColumnGrid, n_rows: int, n_groups: int) -> ColumnBins:
    """Choose bins by a noisy histogram.

    Neighbouring cells of a scale are joined until a bin stands out of the noise and has about its
    share of the rows; rare categories are joined to one bin. Missing values keep their own.
    """
    counts, sigma = noisy.counts, noisy.sigma
    counts = counts + (n_rows - counts.sum()) / len(counts)  # the total is known
    ordered, missing = grid.ordered, grid.column.missing
    empty = grid.is_doubtful & (counts <= _SEEN_CATEGORY * sigma)
    if ordered:
        # Noise on many empty cells, once negative counts are cut off, would look like a long tail.
        # From either end halves are dropped that noise explains, as a whole and in each cell.
        last = len(counts) - missing
        empty[: _first_seen(counts[:last], sigma)] = True
        empty[last - _first_seen(counts[:last][::-1], sigma) : last] = True
    if empty.all():
        empty[:] = False
    nearest = project_to_total(np.where(empty, -math.inf, counts), n_rows)
    n_bins, seen = (MAX_BINS, _SEEN_INTERVAL) if ordered else (_MAX_CATEGORIES, _SEEN_CATEGORY)
    bins = _grouped(nearest, n_bins, seen * sigma, ordered=ordered, missing=missing)
    weights = np.where(empty, 0.0, grid.weights)
    cells = np.maximum(_shrunk(counts, nearest, bins, sigma, weights) / n_rows, _POSSIBLE)
    cells /= cells.sum()
    shares = np.bincount(bins, weights=cells).astype(np.float64)
    groups: IntArray = np.arange(len(shares))
    if len(shares) - missing > n_groups:  # cells of more would drown in noise
        groups = _grouped(shares, n_groups, 0.0, ordered=ordered, missing=missing)
    return ColumnBins(bins, cells, groups)


def _first_seen(counts: FloatArray, sigma: float) -> int:
    """Return where the first half, quarter and so on begins that stands out of the noise."""
    start, stop = 0, len(counts)
    while stop - start > 1:
        middle = (start + stop) // 2
        half = counts[start:middle]
        limit = _SEEN_TAIL * sigma * math.sqrt(len(half))
        if half.sum() > limit or half.max() > _SEEN_INTERVAL * sigma:
            stop = middle
        else:
            start = middle
    return start


def _grouped(
    counts: FloatArray, n_groups: int, least: float, *, ordered: bool, missing: bool
) -> IntArray:
    """Join cells to groups; missing values keep their own."""
    present = counts[:-1] if missing else counts
    groups = (_group_intervals if ordered else _group_categories)(present, n_groups, least)
    return np.append(groups, groups.max() + 1) if missing else groups


def project_to_total(counts: FloatArray, total: float) -> FloatArray:
    """Return the nearest counts (L2) that are not negative and have the right sum."""
    falling = np.sort(counts)[::-1]
    excess = np.cumsum(falling) - total
    last = np.flatnonzero(falling * np.arange(1, len(counts) + 1) > excess)[-1]
    return np.maximum(counts - excess[last] / (last + 1), 0.0)


def _group_intervals(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Join neighbouring cells; one that has more than its share alone stays alone."""
    is_large = counts > counts.sum() / n_groups
    rest = counts[~is_large].sum() / max(n_groups - int(is_large.sum()), 1)
    step = max(rest, least)
    groups = np.zeros(len(counts), dtype=np.int64)
    group, held, alone = 0, 0.0, False
    for cell, (count, large) in enumerate(zip(counts, is_large, strict=True)):
        if cell and (large or alone or held + count > 1.25 * step or held >= step > 0.0):
            group, held = group + 1, 0.0
        groups[cell], alone = group, bool(large)
        held += count
    # A small rest goes to its neighbour, unless that is one cell.
    if group and held < 0.3 * step and not is_large[groups == group - 1].any():
        groups[groups == group] = group - 1
    return groups


def _group_categories(counts: FloatArray, n_groups: int, least: float) -> IntArray:
    """Keep the frequent categories and join the others, the last group."""
    order = np.argsort(-counts, kind="stable")
    n_seen = min(int(np.sum(counts > least)), n_groups)
    if n_seen >= len(counts) - 1:
        return np.arange(len(counts))
    groups = np.full(len(counts), n_seen)
    groups[np.sort(order[:n_seen])] = np.arange(n_seen)
    return groups


def _shrunk(
    counts: FloatArray, nearest: FloatArray, bins: IntArray, sigma: float, weights: FloatArray
) -> FloatArray:
    """Draw the cells of a bin towards their weights by as much as noise explains the difference.

    Cells that stand far out of the noise stay as they are. The sum of a bin is that of its raw
    counts, which unlike those without negative ones have no bias.
    """
    n_bins = int(bins.max()) + 1

    def added(values: FloatArray) -> FloatArray:
        return np.bincount(bins, values, n_bins).astype(np.float64)

    raw = np.where(weights > 0.0, counts, 0.0)
    sums = project_to_total(added(raw), float(nearest.sum()))
    plain = weights > 0.0
    for _ in range(2):  # the second time without what stands out
        share = np.where(plain, weights, 0.0)
        share /= np.maximum(added(share), 1e-300)[bins]
        expected = share * added(np.where(plain, raw, 0.0))[bins]
        plain = plain & (raw - expected <= _SEEN_INTERVAL * sigma)
    deviations = np.where(plain, raw - expected, 0.0)
    sizes = added(plain.astype(np.float64))
    spread = added(deviations**2) / np.maximum(sizes - 1.0, 1.0)
    kept = np.maximum(spread - sigma**2, 0.0) / np.maximum(spread, 1e-300)
    shrunk = np.where(plain, expected + kept[bins] * deviations, raw)
    shrunk = np.maximum(shrunk, 0.0)
    found = added(shrunk)
    # Of a bin without rows cells are as likely as their weights.
    flat = weights / np.maximum(added(weights), 1e-300)[bins]
    within = np.where(found[bins] > 0.0, shrunk / np.maximum(found[bins], 1e-300), flat)
    return sums[bins] * within


SMOOTHING = 0.05  # kappa
_PRIOR_VARIANCE = 0.15  # of the potentials of a tree
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


class ScaledParticles:
    """Particles whose weights are scaled until their marginals fit."""

    def __init__(self, codes: IntArray, weights: FloatArray) -> None:
        self.codes = codes
        self.weights = weights.copy()
        self.potentials: list[FloatArray] = []
        self._total = float(weights.sum())
        self._marginals: list[NoisyMarginal] = []
        self._cells: list[IntArray] = []

    def add(self, noisy: NoisyMarginal, potentials: FloatArray | None = None) -> None:
        """Take a marginal into account, starting from known potentials if there are any."""
        cells = noisy.marginal.cells(self.codes)
        if noisy.marginal.n_cells <= 2**16:  # a cell a particle and marginal is what fills memory
            cells = cells.astype(np.uint16)
        self._marginals.append(noisy)
        self._cells.append(cells)
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


_TREE_SWEEPS = 40


@dataclass(frozen=True)
class TreeNode:
    """A column, and the column that it hangs on."""

    column: int
    parent: int | None


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """Every column depends on its parent in a tree and on the target."""

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
        roots: IntArray = np.zeros(n_rows, dtype=np.int64)
        if self.target is not None:
            shares, likelihood = _restricted(self.target_shares[None], allowed.get(self.target))
            roots = _stratified(np.zeros(n_rows, dtype=np.int64), shares, rng)
            log_weights += np.log(likelihood[0])
            codes[:, self.target] = roots
        for node, conditional in zip(self.nodes, self.conditionals, strict=True):
            parents = 0 if node.parent is None else codes[:, node.parent]
            cases = roots * conditional.shape[1] + parents
            flat = conditional.reshape(-1, conditional.shape[2])
            shares, likelihood = _restricted(flat, allowed.get(node.column))
            log_weights += np.log(likelihood)[cases]
            codes[:, node.column] = _stratified(cases, shares, rng)
        return codes, log_weights


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
    in_order = in_order or [0] * len(shares)
    joint: dict[int, FloatArray] = {}  # of target and column
    roots = np.ones(1) if target is None else shares[target]
    conditionals = []
    for node in nodes:
        above = roots[:, None] if node.parent is None else joint[node.parent]
        others = (target, node.parent)  # the first axes of the joint distribution
        tables = [
            (axis, pairs[pair])
            for axis, other in enumerate(others)
            if other is not None
            and (pair := (min(other, node.column), max(other, node.column))) in pairs
        ]
        guess = np.broadcast_to(shares[node.column], above.shape[1:] + shares[node.column].shape)
        for axis, noisy in tables:
            both = noisy.marginal.columns
            if axis == 1 and min(in_order[column] for column in both) > 2:
                guess = tied_shares(noisy, [shares[c] for c in both], [in_order[c] for c in both])
                guess = guess if both[1] == node.column else guess.T
        fitted = _fit_clique(above, guess, node.column, tables, n_rows)
        joint[node.column] = fitted.sum(axis=1)
        conditionals.append(fitted / fitted.sum(axis=2, keepdims=True))
    return ColumnTree(tuple(nodes), tuple(conditionals), target, roots)


def _fit_clique(
    above: FloatArray,
    guess: FloatArray,
    node: int,
    tables: Sequence[tuple[int, NoisyMarginal]],
    n_rows: int,
) -> FloatArray:
    """Fit (target, parent, node), whose first two axes are known, to tables of node and axis."""
    above = np.maximum(above, 1e-12)
    guess = np.maximum(guess, 1e-15)
    joint = above[:, :, None] * (guess / guess.sum(axis=1, keepdims=True))
    facts = []
    for axis, noisy in tables:
        counts = noisy.counts.reshape(noisy.marginal.shape)
        # 1 where a bin is in a group.
        first, last = (np.eye(groups.max() + 1)[groups] for groups in noisy.marginal.groups)
        if noisy.marginal.columns[1] != node:
            counts, first, last = counts.T, last, first
        facts.append((axis, counts, noisy.sigma, first, last))
    potentials = [np.zeros_like(counts) for _, counts, *_ in facts]
    for _ in range(_TREE_SWEEPS):
        for place, (axis, counts, sigma, first, last) in enumerate(facts):
            expected = n_rows * (first.T @ joint.sum(axis=1 - axis) @ last)
            smoothing = counts.size / (n_rows * _PRIOR_VARIANCE)
            step = scaling_step(counts, expected, potentials[place], sigma, smoothing)
            potentials[place] = potentials[place] + step
            joint = joint * np.expand_dims(first @ np.exp(step) @ last.T, 1 - axis)
        joint *= (above / joint.sum(axis=2))[:, :, None]
    return np.maximum(joint, 1e-15)


def _restricted(shares: FloatArray, allowed: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return rows of shares given that a condition holds, and how likely it is in each."""
    if allowed is None:
        return shares, np.ones(len(shares))
    kept = np.maximum(shares, 1e-15) * allowed
    likelihood = kept.sum(axis=1)
    return kept / likelihood[:, None], likelihood


def _stratified(cases: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a bin for each row from the shares of its case, evenly within a case."""
    # Short integers are sorted by their digits, many times faster.
    short = cases.astype(np.int16) if len(shares) <= 2**15 else cases
    order = np.argsort(short, kind="stable")
    sizes = np.bincount(cases, minlength=len(shares))
    drawn = np.empty(len(cases), dtype=np.int64)
    start = 0
    for case in np.flatnonzero(sizes):
        size = sizes[case]
        shuffled = rng.permutation(size)
        edges = np.cumsum(shares[case])
        even = (np.arange(size) + rng.random()) / size * edges[-1]
        bins = np.searchsorted(edges, even, side="right")
        last = np.searchsorted(edges, edges[-1])  # of those with a share
        drawn[order[start : start + size]] = np.minimum(bins, last).take(shuffled)
        start += size
    return drawn


_PER_ROW = 4  # particles for each row that is drawn,
_FEWEST, _MOST = 20_000, 200_000  # but so many at once
_ROWS_AT_ONCE = 100_000
_MOST_CELLS = 2**27  # of particles in marginals
_DRAW_SWEEPS = 3
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
            counted = bins.cell_shares > 2 * _POSSIBLE
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
            for (c,) in (marginal.columns for marginal in marginals):
                cells[:, c] = self.grids[c].roundness(self.grids[c].column.to_unit(values[c]))
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
    ) -> ScaledParticles:
        """Draw weighted particles; the weights add up to the number of rows.

        Each entry of `impossible` marks bins of columns that do not occur together.
        """
        codes, log_weights = self.tree.draw(n_particles, rng, allowed)
        weights = np.exp(log_weights - log_weights.max())
        for marks in impossible:
            weights[np.all([mark[codes[:, c]] for c, mark in marks.items()], axis=0)] = 0.0
        if not weights.any():
            raise ValueError("Every row that satisfies conditions is forbidden by a rule.")
        particles = ScaledParticles(codes, weights * (self.n_rows / weights.sum()))
        for noisy, potentials in zip(self.consistent, self.potentials, strict=True):
            particles.add(noisy, potentials)
        return particles

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
            particles = self.particles(n_particles, rng, allowed, impossible)
            if not allowed:  # the marginals are those of all rows
                particles.run(_DRAW_SWEEPS)
            places = _systematic(particles, part, rng)
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


def _systematic(particles: ScaledParticles, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Resample particles evenly along the order of their codes, and shuffle."""
    order = np.argsort(_keys(particles.codes), kind="stable")
    edges = np.cumsum(particles.weights[order])
    even = (np.arange(n_rows) + rng.random()) / n_rows * edges[-1]
    places = np.minimum(np.searchsorted(edges, even, side="right"), len(order) - 1)
    return rng.permutation(order[places])


def _balanced(particles: ScaledParticles, places: IntArray, rng: np.random.Generator) -> IntArray:
    """Exchange chosen particles for others, so that pairs of columns are as often as they weigh.

    Random sets of chosen particles and of others, drawn by their weights, are compared; those in
    cells that are chosen too often are exchanged for those in cells that are chosen too rarely.
    """
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


def _keys(codes: IntArray) -> IntArray:
    """Return numbers in the lexicographic order of as many columns as fit into 62 bits."""
    keys = np.zeros(len(codes), dtype=np.int64)
    n_keys = 1
    for column in codes.T:
        size = int(column.max()) + 1
        n_keys *= size
        if n_keys >= 2**62:
            break
        keys = keys * size + column
    return keys
