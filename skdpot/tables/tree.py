"""A tree of columns, from which rows are drawn exactly, with any values given.

Each column depends on its parent, the target, and perhaps a second parent. The distributions are
fitted to released counts of pairs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.copulas import FEWEST_TIED, tied_shares
from skdpot.tables.particles import Factor, scaling_step

_PRIOR_VARIANCE = 0.15  # of the potentials of a tree
_LEAST_SHARE = 1e-15  # smallest share of a bin in a tree
# Sweeps over the counts of a node with one parent, with two, and over several copulas.
_TREE_SWEEPS, _CLIQUE_SWEEPS, _TIED_SWEEPS = 40, 15, 5
_MOST_CASES = 2**18  # largest size of the conditional distribution of a node


@dataclass(frozen=True)
class TreeNode:
    """A column and its parents; the target is a parent of every column."""

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
        """Draw bins of rows that satisfy conditions, parents first, and their log weights."""
        allowed = allowed or {}
        n_columns = len(self.nodes) + (self.target is not None)
        codes = np.zeros((n_rows, n_columns), dtype=np.int32, order="F")
        log_weights = np.zeros(n_rows)
        if self.target is not None:
            shares, likelihood = _condition_shares(
                self.target_shares[None], allowed.get(self.target)
            )
            codes[:, self.target] = draw_stratified(np.zeros(n_rows, dtype=np.int64), shares, rng)
            log_weights += np.log(likelihood[0])
        for node, conditional in zip(self.nodes, self.conditionals, strict=True):
            cases = _parent_cases(codes, (self.target, node.parent, node.second), conditional.shape)
            flat = conditional.reshape(-1, conditional.shape[-1])
            shares, likelihood = _condition_shares(flat, allowed.get(node.column))
            log_weights += np.log(likelihood)[cases]
            codes[:, node.column] = draw_stratified(cases, shares, rng)
        return codes, log_weights

    def factors(self, allowed: Mapping[int, FloatArray]) -> tuple[Factor, ...]:
        """Return the log factors of the distribution of rows that satisfy conditions."""
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


def _parent_cases(codes: IntArray, above: Sequence[int | None], shape: Sequence[int]) -> IntArray:
    """Return the combination of bins of the parents in each row."""
    cases = np.zeros(len(codes), dtype=np.int64)
    for column, size in zip(above, shape[:-1], strict=False):
        if column is not None:
            cases = cases * size + codes[:, column]
    return cases


def spanning_tree(
    gains: Mapping[tuple[int, ...], float], columns: Sequence[int]
) -> tuple[TreeNode, ...]:
    """Return the tree with the largest gains (Prim's algorithm; Chow and Liu, 1968)."""
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
    r"""Fit the distributions of a tree to noisy counts of its pairs.

    The joint distribution of target, parent and node is a first guess, times potentials that fit
    the noisy counts best under a normal prior. In the guess the node is independent, or, if the
    first `in_order` bins of both columns have an order, tied to its parent by copulas. With noise
    :math:`\sigma` in each of C cells, the n / C rows of a cell determine its potential up to
    :math:`C \sigma / n`, so the smoothing is :math:`\kappa = C / n` over the prior variance. (A
    fixed :math:`\kappa` would flatten strong relations in many rows with wide noise.)
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
    """Add second parents where they gain, and draw bins of rows from the new tree."""
    codes = np.zeros((n_particles, len(shares)), dtype=np.int32, order="F")
    tables = {columns: noisy for columns, (_, noisy) in pairs.items()}
    drawn: set[int] = set()
    nodes, conditionals = [], []
    if tree.target is not None:
        none = np.zeros(n_particles, dtype=np.int64)
        codes[:, tree.target] = draw_stratified(none, tree.target_shares[None], rng)
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
            cases = _parent_cases(codes, others, shape)
            above = np.bincount(cases, minlength=math.prod(shape[:-1])).reshape(shape[:-1])
            conditional = _fit_clique(
                above / n_particles, others, node.column, shares, tables, n_rows, in_order
            )
            conditional /= conditional.sum(axis=-1, keepdims=True)
        cases = _parent_cases(codes, (tree.target, node.parent, node.second), conditional.shape)
        flat = conditional.reshape(-1, conditional.shape[-1])
        codes[:, node.column] = draw_stratified(cases, flat, rng)
        drawn.add(node.column)
        nodes.append(node)
        conditionals.append(conditional)
    return replace(tree, nodes=tuple(nodes), conditionals=tuple(conditionals)), codes


def _fit_clique(
    above: FloatArray,
    others: Sequence[int | None],
    node: int,
    shares: Sequence[FloatArray],
    pairs: Mapping[tuple[int, ...], NoisyMarginal],
    n_rows: int,
    in_order: Sequence[int],
) -> FloatArray:
    """Fit the joint distribution of parents, with known shares, and a node to counts of pairs."""
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
            guess = np.maximum(guess, 1e-15)  # a later guess divides by it
            tied.append((rest, guess if both[1] == node else guess.T))
    for _ in range(_TIED_SWEEPS if len(tied) > 1 else len(tied)):
        for rest, guess in tied:
            joint *= np.expand_dims(guess / joint.sum(axis=rest), rest)
        joint *= (above / joint.sum(axis=-1))[..., None]
    potentials = [np.zeros_like(noisy.counts) for _, noisy, _ in facts]
    for _ in range(_TREE_SWEEPS if len(others) < 3 else _CLIQUE_SWEEPS):
        for place, (rest, noisy, cells) in enumerate(facts):
            size, shares_of_pair = len(noisy.counts), joint.sum(axis=rest).ravel()
            expected = n_rows * np.bincount(cells.ravel(), shares_of_pair, size).astype(np.float64)
            smoothing = size / (n_rows * _PRIOR_VARIANCE)
            known = potentials[place]
            step = scaling_step(noisy.counts, expected, known, noisy.sigma, smoothing)
            potentials[place] = known + step
            joint *= np.expand_dims(np.exp(step)[cells], rest)
        joint *= (above / joint.sum(axis=-1))[..., None]
    return np.maximum(joint, _LEAST_SHARE)


def _condition_shares(
    shares: FloatArray, allowed: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return shares under a condition, and the probability of the condition, per row."""
    if allowed is None:
        return shares, np.ones(len(shares))
    kept = np.maximum(shares, _LEAST_SHARE) * allowed
    likelihood = kept.sum(axis=1)
    return kept / likelihood[:, None], likelihood


def draw_stratified(cases: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a bin for each row from the shares of its case, stratified within a case."""
    n_rows, (n_cases, n_bins) = len(cases), shares.shape
    mixed = rng.permutation(n_rows)
    # Radix sort of short integers is many times faster.
    short = cases.astype(np.int16) if n_cases <= 2**15 else cases
    order = mixed[np.argsort(short[mixed], kind="stable")]
    sizes = np.bincount(cases, minlength=n_cases)
    case = np.repeat(np.arange(n_cases), sizes)
    starts, first = np.cumsum(sizes) - sizes, np.asarray(rng.random(n_cases))
    places = np.arange(n_rows) - starts[case] + first[case]
    edges = np.cumsum(shares, axis=1)
    edges /= np.maximum(edges[:, -1:], 1e-300)  # shares of a case without rows may be zero
    last = (edges < 1.0).sum(axis=1)  # last bin with a share
    edges += np.arange(n_cases)[:, None]
    bins = np.searchsorted(edges.ravel(), case + places / sizes[case], side="right") - case * n_bins
    drawn = np.empty(n_rows, dtype=np.int64)
    drawn[order] = np.minimum(bins, last[case])
    return drawn
