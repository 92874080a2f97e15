"""The model of a table: its bins, its tree, its weights and its rows, by other routes."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq, minimize
from scipy.sparse.csgraph import minimum_spanning_tree

from skdpot.privacy.events import NonPrivateEvent
from skdpot.tables import bins, model
from skdpot.tables.bins import MAX_BINS, ColumnBins, project_to_total
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.marginal_release import release_of
from skdpot.tables.model import TableModel, draw_cells
from skdpot.tables.particles import SMOOTHING, ScaledParticles
from skdpot.tables.tree import ColumnTree, TreeNode, fit_tree, spanning_tree, with_second_parents

SIZES = (3, 2, 4, 2)
EVERY = np.array(list(itertools.product(*map(range, SIZES))), dtype=np.int32)  # row there can be
PAIRS = tuple(itertools.combinations(range(4), 2))


def marginal_of(*columns):
    return Marginal(columns, tuple(np.arange(SIZES[column]) for column in columns))


def counted(table, *columns, sigma=0.0):
    """Return counts of some columns of a table of all combinations."""
    counts = marginal_of(*columns).counts(EVERY, table.ravel())
    return NoisyMarginal(marginal_of(*columns), counts, sigma)


def shares_of(table):
    return [counted(table, column).counts for column in range(4)]


def random_table(seed, total=1.0):
    return np.random.default_rng(seed).dirichlet(np.full(48, 0.7)).reshape(SIZES) * total


def frequencies(codes, weights=None):
    table = np.zeros(SIZES)
    np.add.at(table, tuple(codes.T), 1.0 if weights is None else weights)
    return table / len(codes)


# --- bins -----------------------------------------------------------------------------------------

N_GROUPS = 8


def coarsen(counts, sigma=0.0, n_rows=1000, *, ordered=False, missing=False, doubtful=()):
    marginal = Marginal((0,), (np.arange(len(counts)),))
    noisy = NoisyMarginal(marginal, np.asarray(counts, dtype=float), sigma)
    is_doubtful = np.isin(np.arange(len(counts)), doubtful)
    column = SimpleNamespace(missing=missing)
    known = {"is_doubtful": is_doubtful, "weights": np.ones(len(counts))}
    grid = SimpleNamespace(ordered=ordered, column=column, sides=(0, len(counts)), **known)
    return bins.coarsen([noisy], grid, n_rows, N_GROUPS)


def test_tails_never_hold_all_rows():
    """A negative count of missing values lets the others add up to more than all rows."""
    counts = [100.0, *[5.0] * 39, -265.0]
    found = coarsen(counts, sigma=10.0, n_rows=30, ordered=True, missing=True, doubtful=[40])
    assert found.cell_shares.sum() == pytest.approx(1.0)
    assert (found.cell_shares > 0.0).all()


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_what_holds_of_bins_whatever_the_noise(data):
    missing, ordered = data.draw(st.booleans()), data.draw(st.booleans())
    n_cells = data.draw(st.integers(1, 300)) + missing
    sigma = data.draw(st.sampled_from([0.0, 0.5, 10.0, 1e3, 1e7]))
    n_rows = data.draw(st.sampled_from([2, 50, 10_000, 10**7]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shares = rng.dirichlet(np.full(n_cells, data.draw(st.sampled_from([0.01, 0.3, 10.0]))))
    counts = rng.multinomial(n_rows, shares) + sigma * rng.normal(size=n_cells)
    doubtful = [n_cells - 1] * missing + data.draw(st.sampled_from([[], [n_cells // 2]]))
    options = {"ordered": ordered, "missing": missing, "doubtful": doubtful}
    found = coarsen(counts, sigma, n_rows, **options)
    # A partition, with groups that are one too.
    for groups, size in ((found.bins, found.n_bins), (found.coarse, found.coarse.max() + 1)):
        np.testing.assert_array_equal(np.unique(groups), np.arange(size))
    assert found.coarse.shape == (found.n_bins,)
    # What the noise hides may occur: no cell is impossible.
    assert found.cell_shares.shape == (n_cells,)
    assert found.cell_shares.min() > 0
    assert found.cell_shares.sum() == pytest.approx(1.0, abs=1e-9)
    held = [found.cell_shares[found.bins == place].sum() for place in range(found.n_bins)]
    np.testing.assert_allclose(found.shares, held, rtol=1e-9)
    if missing:
        assert np.sum(found.bins == found.bins[-1]) == np.sum(found.coarse == found.coarse[-1]) == 1
        assert found.bins[-1] == found.n_bins - 1
    if ordered:  # intervals
        assert set(np.diff(found.bins)) <= {0, 1}
        assert set(np.diff(found.coarse)) <= {0, 1}
    # Few: cells that hold more than their share stand alone, and what is between them too.
    assert found.n_bins <= (2 * MAX_BINS + 1 if ordered else 65) + missing
    assert found.coarse.max() + 1 <= 2 * N_GROUPS + 1 + missing


@pytest.mark.parametrize("ordered", [True, False])
def test_without_noise_shares_of_bins_are_exact(ordered):
    rng = np.random.default_rng(5)
    counts = rng.multinomial(100_000, rng.dirichlet(np.ones(200)))
    found = coarsen(counts, n_rows=100_000, ordered=ordered)
    np.testing.assert_allclose(found.cell_shares, counts / 1e5, atol=1e-6)


def test_a_doubtful_cell_in_the_noise_counts_as_empty():
    for count, doubtful, share in ((30.0, (), 0.03), (30.0, (2,), 5e-7), (90.0, (2,), 0.07)):
        found = coarsen([500.0, 480.0, count], 15.0, missing=True, doubtful=doubtful)
        assert found.cell_shares[2] == pytest.approx(share, abs=max(0.3 * share, 5e-7))


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)), st.floats(1.0, 1e6))
def test_the_projection_is_the_nearest_point_of_the_simplex(counts, total):
    """By another route: the shift at which what is left of the counts adds up."""
    found = project_to_total(counts, total)

    def excess(shift):
        return np.maximum(counts - shift, 0).sum() - total

    shift = brentq(excess, counts.min() - total - 1, counts.max(), xtol=1e-12, rtol=1e-14)
    np.testing.assert_allclose(found, np.maximum(counts - shift, 0), atol=1e-6 * max(total, 1))
    assert found.sum() == pytest.approx(total, rel=1e-6)


# --- the tree -------------------------------------------------------------------------------------


def random_tree(seed, target=3):
    """A tree with a root, a child and a child of both, all of which depend on the target."""
    rng = np.random.default_rng(seed)
    first, second, third, *rest = (column for column in range(4) if column != target)
    nodes = [TreeNode(first, None), TreeNode(second, first), TreeNode(third, second, first)]
    nodes += [TreeNode(column, first) for column in rest]
    sizes = [[1 if c is None else SIZES[c] for c in above(target, node)] for node in nodes]
    conditionals = tuple(
        rng.dirichlet(np.full(SIZES[node.column], 0.8), size=size)
        for node, size in zip(nodes, sizes, strict=True)
    )
    n_roots = 1 if target is None else SIZES[target]
    return ColumnTree(tuple(nodes), conditionals, target, rng.dirichlet(np.full(n_roots, 5.0)))


def above(target, node):
    """Columns that a column hangs on, as axes of its distribution."""
    return [target, node.parent] + ([] if node.second is None else [node.second])


def law(tree):
    """Probability of every row, by enumeration."""
    table = np.zeros(SIZES)
    for row in itertools.product(*map(range, SIZES)):
        root = 0 if tree.target is None else row[tree.target]
        chance = tree.target_shares[root]
        for node, conditional in zip(tree.nodes, tree.conditionals, strict=True):
            case = tuple(0 if c is None else row[c] for c in above(tree.target, node))
            chance *= conditional[case][row[node.column]]
        table[row] = chance
    return table


CONDITIONS = {
    "none": {},
    "the target": {3: np.array([0.0, 1.0])},
    "several": {0: np.array([0.0, 1.0, 1.0]), 2: np.array([0.2, 0.0, 0.0, 1.0])},
    "all": {column: np.eye(size)[1] for column, size in enumerate(SIZES)},
}


@pytest.mark.parametrize("target", [3, 0, None])
@pytest.mark.parametrize("case", CONDITIONS)
def test_weighted_rows_follow_the_conditional_law(case, target):
    """Their weights are unbiased: the mean weight in a row is its chance and all conditions."""
    tree, allowed, n = random_tree(3, target), CONDITIONS[case], 100_000
    codes, log_weights = tree.draw(n, np.random.default_rng(1), allowed)
    assert codes.dtype == np.int32
    expected = law(tree)
    assert expected.sum() == pytest.approx(1.0)
    for column, shares in allowed.items():
        expected = expected * np.expand_dims(shares, [axis for axis in range(4) if axis != column])
    found = frequencies(codes, np.exp(log_weights))
    spread = np.sqrt((frequencies(codes, np.exp(2 * log_weights)) + 1e-9) / n)
    assert (np.abs(found - expected) <= 5.5 * spread + 1e-4).all()
    assert found.sum() == pytest.approx(expected.sum(), rel=0.02)
    assert (found[expected == 0] == 0).all()
    if not allowed and target is not None:  # stratified
        counts = np.bincount(codes[:, target], minlength=SIZES[target])
        assert np.abs(counts - n * tree.target_shares).max() <= 1


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


N_ROWS = 10**8  # so that the noise of five rows that is assumed of counts is nothing
CHAIN = (TreeNode(2, None), TreeNode(0, 2), TreeNode(1, 0), TreeNode(3, 2))
PATH = (TreeNode(0, None), TreeNode(1, 0), TreeNode(2, 1))


@pytest.mark.parametrize(
    ("nodes", "target", "pairs"),
    [
        (CHAIN, None, [(0, 2), (0, 1), (2, 3)]),
        (PATH, 3, [(0, 3), (1, 3), (2, 3), (0, 1), (1, 2)]),
        (tuple(TreeNode(column, None) for column in range(3)), 3, []),
    ],
    ids=["chain", "target", "independent"],
)
def test_the_pairs_of_a_fitted_tree_are_met(nodes, target, pairs):
    table = random_table(0)
    tables = {pair: counted(table * N_ROWS, *pair) for pair in pairs}
    found = law(fit_tree(nodes, shares_of(table), tables, N_ROWS, target))
    for pair in pairs:
        due = counted(table, *pair).counts
        np.testing.assert_allclose(counted(found, *pair).counts, due, atol=2e-4)
    for column, shares in enumerate(shares_of(table)):
        np.testing.assert_allclose(counted(found, column).counts, shares, atol=2e-4)


@pytest.mark.parametrize(("strength", "most"), [(0.7, 1.05), (0.0, 0.4)])
def test_a_tree_keeps_strong_relations_and_not_those_of_the_noise(strength, most):
    """By its error, that of the noisy counts being 1 (standard error: 0.03)."""
    kept, sigma, n_rows = np.zeros((3, 4)), 500.0 if strength else 4000.0, 100_000
    kept[range(3), range(3)] = 1 / 3
    own, other = np.full(3, 1 / 3), strength * kept.sum(axis=0) + (1 - strength) / 4
    truth = n_rows * (strength * kept + (1 - strength) / 12)
    shares, rng = [own, np.full(2, 0.5), other, np.full(2, 0.5)], np.random.default_rng(0)
    nodes = (TreeNode(0, None), TreeNode(2, 0), TreeNode(1, None), TreeNode(3, None))
    off = raw = 0.0
    for _ in range(50):
        counts = truth + sigma * rng.normal(size=truth.shape)
        noisy = NoisyMarginal(marginal_of(0, 2), counts.ravel(), sigma)
        found = law(fit_tree(nodes, shares, {(0, 2): noisy}, n_rows, None))
        off += np.abs(n_rows * found.sum(axis=(1, 3)) - truth).sum()
        raw += np.abs(counts - truth).sum()
    assert off < most * raw


@pytest.mark.parametrize("target", [3, None])
def test_the_pairs_of_second_parents_are_met(target):
    table = random_table(0)
    pairs = [(0, 1), (1, 2), (0, 2), (0, 3), (2, 3)]
    tables = {pair: counted(table * N_ROWS, *pair) for pair in pairs}
    nodes = (*PATH, TreeNode(3, 0)) if target is None else PATH
    tree = fit_tree(nodes, shares_of(table), tables, N_ROWS, target)
    gains = {pair: (1.0, noisy) for pair, noisy in tables.items() if pair != (1, 2)}
    gains[0, 1], gains[1, 2] = (-1.0, tables[0, 1]), (0.0, tables[1, 2])  # of the tree
    rng, n = np.random.default_rng(0), 200_000
    found, codes = with_second_parents(tree, shares_of(table), gains, N_ROWS, [0] * 4, n, rng)
    seconds = {node.column: node.second for node in found.nodes}
    assert seconds == {0: None, 1: None, 2: 0} | ({3: 2} if target is None else {})
    for pair in pairs:
        due = counted(table, *pair).counts
        np.testing.assert_allclose(counted(law(found), *pair).counts, due, atol=0.004)
        np.testing.assert_allclose(counted(frequencies(codes), *pair).counts, due, atol=0.005)


def test_conditionals_are_distributions_whatever_the_counts():
    rng = np.random.default_rng(5)
    shares = [rng.dirichlet(np.ones(size)) for size in SIZES]
    pairs = {
        pair: NoisyMarginal(marginal_of(*pair), rng.normal(0, 1e5, marginal_of(*pair).n_cells), 3.0)
        for pair in PAIRS
    }
    tree = fit_tree(PATH, shares, pairs, 50, 3)
    for conditional in tree.conditionals:
        assert (conditional > 0).all()
        np.testing.assert_allclose(conditional.sum(axis=2), 1.0)
    codes, _ = tree.draw(100, rng)
    assert ((codes >= 0) & (codes < SIZES)).all()


# --- weights of particles -------------------------------------------------------------------------


def noisy_pairs(rng, total, sigma):
    table = rng.dirichlet(np.ones(len(EVERY))) * total
    found = [counted(table, *pair, sigma=sigma) for pair in PAIRS]
    for noisy in found:
        noisy.counts[:] += sigma * rng.normal(size=len(noisy.counts))
    return found


def scaled(marginals, weights, n_sweeps=3000):
    particles = ScaledParticles(EVERY[: len(weights)], weights)
    for noisy in marginals:
        particles.add(noisy)
    particles.run(n_sweeps, tolerance=1e-13)
    return particles


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [5.0, 200.0])
def test_the_weights_are_the_optimum_of_what_is_stated(sigma):
    """By minimisation over the logarithms of the weights."""
    rng = np.random.default_rng(0)
    total = 1000.0
    marginals = noisy_pairs(rng, total, sigma)
    start = rng.dirichlet(np.full(len(EVERY), 3.0)) * total
    cells = [noisy.marginal.cells(EVERY) for noisy in marginals]

    def objective(logits):
        weights = np.exp(logits - logits.max())
        weights *= total / weights.sum()
        cost = SMOOTHING * np.sum(weights * np.log(weights / start))
        slopes = SMOOTHING * np.log(weights / start)
        for noisy, cell in zip(marginals, cells, strict=True):
            left = np.bincount(cell, weights, len(noisy.counts)) - noisy.counts
            cost += np.sum(left**2) / (2 * sigma**2)
            slopes = slopes + left[cell] / sigma**2
        return cost, weights * (slopes - np.sum(weights * slopes) / total)

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10}
    best = minimize(objective, np.log(start), jac=True, method="L-BFGS-B", options=options)
    kept = start.copy()
    particles = scaled(marginals, start)
    np.testing.assert_array_equal(start, kept)
    assert objective(np.log(particles.weights))[0] <= best.fun * (1 + 1e-9) + 1e-9
    expected = np.exp(best.x - best.x.max())
    expected *= total / expected.sum()
    np.testing.assert_allclose(particles.weights, expected, rtol=2e-3, atol=0.02)
    # Known potentials give the same weights again.
    again = ScaledParticles(EVERY, start)
    for noisy, potentials in zip(marginals, particles.potentials, strict=True):
        again.add(noisy, potentials)
    np.testing.assert_allclose(again.weights, particles.weights, rtol=1e-9)
    assert again.sweep() < 1e-7


def test_cells_without_particles_do_no_harm():
    """Counts that no particle can meet; and negative ones, which no weight can."""
    marginal = marginal_of(0, 2)
    counts = np.linspace(-300, 300, marginal.n_cells)
    particles = scaled([NoisyMarginal(marginal, counts, 7.0)], np.full(5, 10.0), 50)
    assert np.isfinite(particles.weights).all()
    assert particles.weights.sum() == pytest.approx(50.0)
    assert all(np.isfinite(potentials).all() for potentials in particles.potentials)


# --- rows -----------------------------------------------------------------------------------------


def small_model(n_rows=10_000):
    """Independent columns, and counts of two pairs that say otherwise; and the law of the rows."""
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.full(size, 4.0)) for size in SIZES]
    bins = tuple(ColumnBins(np.arange(len(s)), s, np.arange(len(s))) for s in shares)
    nodes = tuple(TreeNode(column, None) for column in range(4))
    tree = ColumnTree(nodes, tuple(s[None, None] for s in shares), None, np.ones(1))
    truth = rng.dirichlet(np.full(48, 2.0)) * n_rows
    marginals = [counted(truth, *pair, sigma=5.0) for pair in ((0, 1), (1, 2))]
    chances = np.prod([s[EVERY[:, j]] for j, s in enumerate(shares)], axis=0)
    particles = scaled(marginals, chances * n_rows, 500)
    releases = (release_of((), NonPrivateEvent()), release_of(marginals, NonPrivateEvent()))
    found = TableModel(n_rows, releases, bins, tree, tuple(particles.potentials))
    return found, particles.weights.reshape(SIZES) / n_rows


def test_marginals_agree_on_their_columns_and_are_nearer_to_the_truth():
    rng, (found, _), n_rows = np.random.default_rng(1), small_model(), 10_000
    truth = random_table(3, n_rows)

    def noisy(marginal):
        counts = marginal.counts + 60 * rng.normal(size=len(marginal.counts))
        return replace(marginal, counts=counts, sigma=60.0)

    alone = [noisy(counted(truth, column)) for column in range(4)]
    pairs = [noisy(counted(truth, *pair)) for pair in PAIRS]
    shares = [project_to_total(part.counts, n_rows) / n_rows for part in alone]
    bins = tuple(ColumnBins(np.arange(len(s)), s, np.arange(len(s))) for s in shares)
    releases = tuple(release_of(part, NonPrivateEvent()) for part in (alone, pairs))
    moved = replace(found, releases=releases, bins=bins).consistent
    tables = [part.counts.reshape(part.marginal.shape) for part in moved]
    for column in range(4):
        sums = [
            table.sum(axis=1 - pair.index(column))
            for table, pair in zip(tables, PAIRS, strict=True)
            if column in pair
        ]
        np.testing.assert_allclose(sums, sums[:1] * 3, atol=1e-6)
        errors = [np.square(part - counted(truth, column).counts).mean() for part in sums]
        assert max(errors) < 60**2  # that of the column alone; of a pair it is two to four times


SOME = {1: np.array([0.0, 1.0]), 2: np.array([1.0, 0.5, 0.0, 1.0])}


@pytest.mark.parametrize(("n_rows", "allowed"), [(1, {}), (120_001, {}), (50_000, SOME)])
def test_rows_follow_the_weights_and_the_conditions(n_rows, allowed):
    found, due = small_model()
    codes = found.draw(n_rows, np.random.default_rng(2), allowed)
    assert codes.shape == (n_rows, 4)
    for column, shares in allowed.items():
        assert shares[codes[:, column]].min() > 0.0
        due = due * np.expand_dims(shares, [axis for axis in range(4) if axis != column])
    for part in (codes, codes[: n_rows // 2]) if n_rows > 1 else ():  # at any place
        assert np.abs(frequencies(part) - due / due.sum()).max() < 0.012


@pytest.mark.parametrize("kept", [None, np.array([0.0, 1.0, 1.0, 1.0, 0.25, 0.0])])
def test_cells_occur_in_their_shares(kept):
    rng = np.random.default_rng(5)
    bins = np.array([0, 0, 1, 2, 2, 2])
    shares = rng.dirichlet(np.ones(6))
    codes = rng.integers(0, 3, 3000)
    cells = draw_cells(codes, ColumnBins(bins, shares, np.arange(3)), rng, kept)
    np.testing.assert_array_equal(bins[cells], codes)
    wanted = shares if kept is None else shares * kept
    for code in range(3):
        members = np.flatnonzero(bins == code)
        mine = cells[codes == code]
        expected = len(mine) * wanted[members] / wanted[members].sum()
        counts = np.bincount(mine, minlength=6)[members]
        assert np.abs(counts - expected).max() <= 1  # stratified


@pytest.mark.slow
def test_rows_have_the_pairs_of_the_weights_and_rare_cells_by_chance():
    """Chance alone makes pairs of rows twice as wrong; 7 standard errors for the rare."""
    rng = np.random.default_rng(3)
    codes = np.column_stack([rng.integers(0, size, 20_000) for size in (6, 5, 7, 4)]).astype(int)
    codes[rng.random(20_000) < 0.001, 0] = 6
    particles = ScaledParticles(codes, rng.gamma(1.0, size=20_000))

    def off(places):
        found = 0.0
        for pair in PAIRS:
            cells = codes[:, pair[0]] * 7 + codes[:, pair[1]]
            due = np.bincount(cells, particles.weights, 49) / particles.weights.sum()
            found += np.abs(np.bincount(cells[places], minlength=49) / len(places) - due).sum()
        return found

    places = model.resampled(particles.weights, 4000, rng)
    before = off(places)
    assert off(model._balance_pairs(particles, places, rng)) < 0.6 * before
    share = particles.weights[codes[:, 0] == 6].sum() / particles.weights.sum()
    few = [
        model._balance_pairs(particles, model.resampled(particles.weights, 400, rng), rng)
        for _ in range(20)
    ]
    rare = np.count_nonzero(codes[np.concatenate(few), 0] == 6)
    assert abs(rare - share * 8_000) < 7 * np.sqrt(share * 8_000)
