"""A tree of columns: which it is, that it fits the counts, and that rows follow its law."""

import itertools

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree

from skdpot.release.contingency import Marginal, NoisyMarginal
from skdpot.tables.model import ColumnTree, TreeNode, fit_tree, spanning_tree

SIZES = (3, 2, 4, 2)


def random_tree(seed, target=3):
    """A tree with a root, a child and a grandchild, all of which depend on the target."""
    rng = np.random.default_rng(seed)
    others = [column for column in range(4) if column != target]
    nodes = (
        TreeNode(others[0], None),
        TreeNode(others[1], others[0]),
        TreeNode(others[2], others[1]),
    )
    if target is None:
        nodes = (*nodes, TreeNode(others[3], others[0]))
    first = 1 if target is None else SIZES[target]
    conditionals = tuple(
        rng.dirichlet(
            np.full(SIZES[node.column], 0.8),
            size=(first, 1 if node.parent is None else SIZES[node.parent]),
        )
        for node in nodes
    )
    shares = np.ones(1) if target is None else rng.dirichlet(np.full(SIZES[target], 5.0))
    return ColumnTree(nodes, conditionals, target, shares)


def law(tree):
    """Probability of every row, by enumeration."""
    table = np.zeros(SIZES)
    for row in itertools.product(*map(range, SIZES)):
        root = 0 if tree.target is None else row[tree.target]
        chance = tree.target_shares[root]
        for node, conditional in zip(tree.nodes, tree.conditionals, strict=True):
            parent = 0 if node.parent is None else row[node.parent]
            chance *= conditional[root, parent, row[node.column]]
        table[row] = chance
    return table


def frequencies(codes, weights=None):
    table = np.zeros(SIZES)
    np.add.at(table, tuple(codes.T), 1.0 if weights is None else weights)
    return table


@pytest.mark.parametrize("target", [3, 0, None])
def test_rows_follow_the_law(target):
    tree, n = random_tree(1, target), 200_000
    codes, log_weights = tree.draw(n, np.random.default_rng(0))
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(log_weights, 0.0)
    expected = law(tree)
    assert expected.sum() == pytest.approx(1.0)
    found = frequencies(codes) / n
    # Stratified: closer than independent rows would be.
    assert np.abs(found - expected).max() < 5.5 * np.sqrt(0.25 / n)
    assert np.abs(found - expected).sum() < 2 * np.sqrt(expected * (1 - expected) / n).sum()


@pytest.mark.parametrize("target", [3, None])
def test_shares_are_met_to_a_row_or_so(target):
    tree, n = random_tree(2, target), 999
    codes, _ = tree.draw(n, np.random.default_rng(0))
    if target is not None:
        found = np.bincount(codes[:, target], minlength=SIZES[target])
        assert np.abs(found - n * tree.target_shares).max() <= 1
        return
    node, conditional = tree.nodes[1], tree.conditionals[1]
    for parent in range(SIZES[node.parent]):
        mine = codes[codes[:, node.parent] == parent, node.column]
        found = np.bincount(mine, minlength=SIZES[node.column])
        assert np.abs(found - len(mine) * conditional[0, parent]).max() <= 1


CONDITIONS = {
    "the target": {3: np.array([0.0, 1.0])},
    "the root": {0: np.array([1.0, 0.0, 0.3])},
    "a leaf": {2: np.array([0.0, 0.0, 1.0, 0.5])},
    "several": {0: np.array([0.0, 1.0, 1.0]), 2: np.array([0.2, 0.0, 0.0, 1.0])},
    "all": {
        0: np.array([0.0, 1.0, 0.0]), 1: np.array([0.0, 1.0]),
        2: np.array([0.0, 1.0, 0.0, 0.0]), 3: np.array([1.0, 0.0]),
    },
}  # fmt: skip


@pytest.mark.parametrize("target", [3, 0, None])
@pytest.mark.parametrize("case", CONDITIONS)
def test_weighted_rows_follow_the_conditional_law(case, target):
    """Their weights are unbiased: the mean weight in a row is its chance and all conditions."""
    tree, allowed, n = random_tree(3, target), CONDITIONS[case], 100_000
    codes, log_weights = tree.draw(n, np.random.default_rng(1), allowed)
    expected = law(tree)
    for column, shares in allowed.items():
        shape = [1] * 4
        shape[column] = -1
        expected = expected * shares.reshape(shape)
    weights = np.exp(log_weights)
    found = frequencies(codes, weights) / n
    spread = np.sqrt((frequencies(codes, weights**2) / n + 1e-9) / n)
    assert (np.abs(found - expected) <= 5.5 * spread + 1e-4).all()
    assert found.sum() == pytest.approx(expected.sum(), rel=0.02)
    assert (found[expected == 0] == 0).all()


# --- which tree -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_columns", [2, 5, 12])
def test_the_tree_gains_most_of_all(n_columns):
    """By scipy, which finds the least."""
    rng = np.random.default_rng(n_columns)
    gains = {pair: rng.uniform(1, 2) for pair in itertools.combinations(range(n_columns), 2)}
    matrix = np.zeros((n_columns, n_columns))
    for pair, gain in gains.items():
        matrix[pair] = 3.0 - gain
    least = minimum_spanning_tree(matrix).toarray()
    nodes = spanning_tree(gains, range(n_columns))
    edges = {tuple(sorted((n.parent, n.column))) for n in nodes if n.parent is not None}
    assert edges == {tuple(edge) for edge in np.argwhere(least > 0).tolist()}
    assert sorted(node.column for node in nodes) == list(range(n_columns))
    for place, node in enumerate(nodes):
        assert node.parent is None or node.parent in [n.column for n in nodes[:place]]


# --- fitting --------------------------------------------------------------------------------------


def pair_table(joint, columns, sigma=0.0, groups=None):
    others = tuple(column for column in range(4) if column not in columns)
    table = joint.sum(axis=others)
    groups = groups or tuple(np.arange(SIZES[column]) for column in columns)
    marginal = Marginal(columns, groups)
    counts = np.zeros(marginal.shape)
    np.add.at(counts, (groups[0][:, None], groups[1][None]), table)
    return NoisyMarginal(marginal, counts.ravel(), sigma)


def shares_of(joint):
    axes = range(4)
    return [joint.sum(axis=tuple(a for a in axes if a != column)) for column in axes]


def random_joint(seed):
    return np.random.default_rng(seed).dirichlet(np.full(48, 0.7)).reshape(SIZES)


N_ROWS = 10**8  # so that the noise of five rows that is assumed of counts is nothing


def test_a_tree_without_target_is_that_of_chow_and_liu():
    joint = random_joint(0)
    nodes = (TreeNode(2, None), TreeNode(0, 2), TreeNode(1, 0), TreeNode(3, 2))
    pairs = {p: pair_table(joint * N_ROWS, p) for p in [(0, 2), (0, 1), (2, 3)]}
    tree = fit_tree(nodes, shares_of(joint), pairs, N_ROWS, None)
    found = law(tree)
    for pair in pairs:
        np.testing.assert_allclose(
            pair_table(found, pair).counts, pair_table(joint, pair).counts, atol=1e-5
        )
    expected = shares_of(joint)[2][None, None, :, None]
    expected = expected * (joint.sum(axis=(1, 3)) / joint.sum(axis=(0, 1, 3)))[:, None, :, None]
    expected = (
        expected * (joint.sum(axis=(2, 3)) / joint.sum(axis=(1, 2, 3))[:, None])[:, :, None, None]
    )
    expected = expected * (joint.sum(axis=(0, 1)) / joint.sum(axis=(0, 1, 3))[:, None])[None, None]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_with_a_target_both_pairs_of_each_node_are_met():
    joint = random_joint(1)
    nodes = (TreeNode(0, None), TreeNode(1, 0), TreeNode(2, 1))
    pairs = {p: pair_table(joint * N_ROWS, p) for p in [(0, 3), (1, 3), (2, 3), (0, 1), (1, 2)]}
    found = law(fit_tree(nodes, shares_of(joint), pairs, N_ROWS, 3))
    for pair in pairs:
        np.testing.assert_allclose(
            pair_table(found, pair).counts, pair_table(joint, pair).counts, atol=2e-4
        )


def test_pairs_that_are_not_there_are_independent():
    joint = random_joint(2)
    shares = shares_of(joint)
    nodes = tuple(TreeNode(column, None) for column in range(3))
    for target in (3, None):
        chosen = nodes if target is not None else (*nodes, TreeNode(3, None))
        found = law(fit_tree(chosen, shares, {}, N_ROWS, target))
        expected = shares[0]
        for other in shares[1:]:
            expected = np.multiply.outer(expected, other)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_conditionals_are_distributions_whatever_the_counts():
    rng = np.random.default_rng(5)
    shares = [rng.dirichlet(np.ones(size)) for size in SIZES]
    pairs = {}
    for pair in itertools.combinations(range(4), 2):
        marginal = Marginal(pair, tuple(np.arange(SIZES[c]) for c in pair))
        pairs[pair] = NoisyMarginal(marginal, rng.normal(0, 1e5, marginal.n_cells), 3.0)
    nodes = (TreeNode(0, None), TreeNode(1, 0), TreeNode(2, 1))
    tree = fit_tree(nodes, shares, pairs, 50, 3)
    for conditional in tree.conditionals:
        assert (conditional > 0).all()
        np.testing.assert_allclose(conditional.sum(axis=2), 1.0)
    codes, _ = tree.draw(100, rng)
    assert (codes >= 0).all()
    assert (codes < np.array(SIZES)).all()
