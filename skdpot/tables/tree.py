"""A tree of columns: a distribution from which rows are drawn exactly, with any values given."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal
from skdpot.tables.scaling import scaling_step

__all__ = ["ColumnTree", "TreeNode", "fit_tree", "spanning_tree", "stable_order"]

_SWEEPS = 40


@dataclass(frozen=True)
class TreeNode:
    """A column, and the column that it hangs on."""

    column: int
    parent: int | None


@dataclass(frozen=True, eq=False)
class ColumnTree:
    """Every column depends on its parent in a tree and on the target.

    Parameters
    ----------
    nodes : tuple of TreeNode
        All columns but the target, parents first.
    conditionals : tuple of ndarray of shape (n_target_bins, n_parent_bins, n_bins)
        Distribution of each node; sums over the last axis are 1. Without a target, or a parent,
        the axis has length 1.
    target : int or None
        Column that every other depends on.
    target_shares : ndarray of shape (n_target_bins,)
        Distribution of the target.
    """

    nodes: tuple[TreeNode, ...]
    conditionals: tuple[FloatArray, ...]
    target: int | None
    target_shares: FloatArray

    def draw(
        self,
        n_rows: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Draw rows that satisfy conditions, parents first.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        rng : Generator
            Randomness. Uniforms are stratified, so that shares are met to a row or so.
        allowed : mapping of int to ndarray of shape (n_bins,), optional
            For columns with a condition the share of each bin that satisfies it.

        Returns
        -------
        codes : ndarray of int32, shape (n_rows, n_columns)
            Bins.
        log_weights : ndarray of shape (n_rows,)
            Logarithms of importance weights: rows whose conditions were unlikely given their
            parents count for less. 0 without conditions.
        """
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
    gains: Mapping[tuple[int, int], float], columns: Sequence[int]
) -> tuple[TreeNode, ...]:
    """Join columns by the pairs that gain most (Prim's algorithm; Chow and Liu, 1968).

    Parameters
    ----------
    gains : mapping of (int, int) to float
        What each pair, of a lower and a higher column, is worth.
    columns : sequence of int
        Columns to join.

    Returns
    -------
    tuple of TreeNode
        Parents first. Columns that gain nothing by a parent have none.
    """
    best: dict[int, tuple[float, int | None]] = {column: (-math.inf, None) for column in columns}
    nodes = []
    while best:
        column = max(best, key=lambda name: best[name][0])
        gain, parent = best.pop(column)
        nodes.append(TreeNode(column, parent if gain > 0.0 else None))
        for other, (known, _) in best.items():
            offered = gains[min(column, other), max(column, other)]
            if offered > known:
                best[other] = (offered, column)
    return tuple(nodes)


def fit_tree(
    nodes: Sequence[TreeNode],
    shares: Sequence[FloatArray],
    pairs: Mapping[tuple[int, int], NoisyMarginal],
    n_rows: int,
    target: int | None,
) -> ColumnTree:
    """Find the distributions of a tree by noisy counts of its pairs.

    For each node the joint distribution of target, parent and node is the one that is nearest to
    independence of the node and that fits the noisy counts as well as their noise allows.

    Parameters
    ----------
    nodes : sequence of TreeNode
        The tree.
    shares : sequence of ndarray
        Shares of the bins of each column.
    pairs : mapping of (int, int) to NoisyMarginal
        Noisy counts of (lower, higher) pairs of columns. Of nodes with their parents and with the
        target all that are there are used.
    n_rows : int
        What counts add up to.
    target : int or None
        See `ColumnTree`.

    Returns
    -------
    ColumnTree
    """
    joint: dict[int, FloatArray] = {}  # of target and column
    roots = np.ones(1) if target is None else shares[target]
    conditionals = []
    for node in nodes:
        above = roots[:, None] if node.parent is None else joint[node.parent]
        others = (target, node.parent)  # the first axes of the joint distribution
        tables = [
            _Facts.of(pairs[pair], axis, node.column)
            for axis, other in enumerate(others)
            if other is not None
            and (pair := (min(other, node.column), max(other, node.column))) in pairs
        ]
        fitted = _fit_clique(above, shares[node.column], tables, n_rows)
        joint[node.column] = fitted.sum(axis=1)
        conditionals.append(fitted / fitted.sum(axis=2, keepdims=True))
    return ColumnTree(tuple(nodes), tuple(conditionals), target, roots)


@dataclass(frozen=True, eq=False)
class _Facts:
    """What is known of one axis of a clique and its node, in groups of their bins."""

    axis: int
    counts: FloatArray
    sigma: float
    first: FloatArray  # of shape (n_bins, n_groups), 1 where a bin is in a group
    last: FloatArray

    @classmethod
    def of(cls, noisy: NoisyMarginal, axis: int, column: int) -> "_Facts":
        """Turn the table of a pair so that the node is last."""
        marginal, counts = noisy.marginal, noisy.counts.reshape(noisy.marginal.shape)
        first, last = (np.eye(groups.max() + 1)[groups] for groups in marginal.groups)
        if marginal.columns[1] == column:
            return cls(axis, counts, noisy.sigma, first, last)
        return cls(axis, counts.T, noisy.sigma, last, first)

    def expected(self, joint: FloatArray) -> FloatArray:
        """Return what a joint distribution says of the groups."""
        groups: FloatArray = self.first.T @ joint.sum(axis=1 - self.axis) @ self.last
        return groups

    def scale(self, joint: FloatArray, step: FloatArray) -> FloatArray:
        """Multiply a joint distribution by the exponential of potentials of groups."""
        factors = self.first @ np.exp(step) @ self.last.T
        scaled: FloatArray = joint * np.expand_dims(factors, 1 - self.axis)
        return scaled


def _fit_clique(
    above: FloatArray, shares: FloatArray, tables: Sequence[_Facts], n_rows: int
) -> FloatArray:
    """Fit (target, parent, node), whose first two axes are known."""
    above = np.maximum(above, 1e-12)
    joint = above[:, :, None] * shares
    potentials = [np.zeros_like(facts.counts) for facts in tables]
    for _ in range(_SWEEPS):
        for place, facts in enumerate(tables):
            expected = n_rows * facts.expected(joint)
            step = scaling_step(facts.counts, expected, potentials[place], facts.sigma)
            potentials[place] = potentials[place] + step
            joint = facts.scale(joint, step)
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
    order = stable_order(cases, len(shares))
    sizes = np.bincount(cases, minlength=len(shares))
    drawn = np.empty(len(cases), dtype=np.int64)
    start = 0
    for case in np.flatnonzero(sizes):
        size = sizes[case]
        even = (rng.permutation(size) + rng.random()) / size
        edges = np.cumsum(shares[case])
        bins = np.searchsorted(edges, even * edges[-1], side="right")
        drawn[order[start : start + size]] = np.minimum(bins, len(edges) - 1)
        start += size
    return drawn


def stable_order(codes: IntArray, n_codes: int) -> IntArray:
    """Return a stable argsort; short integers are sorted by their digits, many times faster."""
    short = codes.astype(np.int16) if n_codes <= 2**15 else codes
    order: IntArray = np.argsort(short, kind="stable")
    return order
