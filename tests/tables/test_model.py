"""Drawing from a model: resampling is unbiased, cells occur in their shares."""

import itertools

import numpy as np
import pytest

from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.contingency import Marginal, NoisyMarginal, release_of
from skdpot.tables.model import (
    ColumnBins,
    ColumnTree,
    ScaledParticles,
    TableModel,
    TreeNode,
    _systematic,
    draw_cells,
)

SIZES = (3, 2, 4)


def small_model(seed=0, sigma=5.0, n_rows=10_000):
    """Independent columns, and counts of two pairs that say otherwise."""
    rng = np.random.default_rng(seed)
    shares = [rng.dirichlet(np.full(size, 4.0)) for size in SIZES]
    bins = tuple(ColumnBins(np.arange(len(s)), s, np.arange(len(s))) for s in shares)
    nodes = tuple(TreeNode(column, None) for column in range(3))
    tree = ColumnTree(nodes, tuple(s[None, None] for s in shares), None, np.ones(1))
    truth = rng.dirichlet(np.full(24, 2.0)).reshape(SIZES)
    marginals = []
    for pair in [(0, 1), (1, 2)]:
        other = ({0, 1, 2} - set(pair)).pop()
        marginal = Marginal(pair, tuple(np.arange(SIZES[c]) for c in pair))
        counts = n_rows * truth.sum(axis=other).ravel()
        marginals.append(NoisyMarginal(marginal, counts, sigma))
    every = np.array(list(itertools.product(*map(range, SIZES))), dtype=np.int32)
    chances = np.prod([s[every[:, j]] for j, s in enumerate(shares)], axis=0)
    particles = ScaledParticles(every, chances * n_rows)
    for noisy in marginals:
        particles.add(noisy)
    particles.run(500, 1e-12)
    releases = (release_of((), NonPrivateEvent()), release_of(marginals, NonPrivateEvent()))
    model = TableModel(n_rows, releases, bins, tree, tuple(particles.potentials))
    return model, particles.weights.reshape(SIZES) / n_rows


def frequencies(codes):
    table = np.zeros(SIZES)
    np.add.at(table, tuple(codes.T), 1.0)
    return table / len(codes)


def test_rows_follow_the_weights():
    model, law = small_model()
    codes = model.draw(50_000, np.random.default_rng(1))
    assert codes.dtype == np.int32
    assert np.abs(frequencies(codes) - law).max() < 0.01


def test_conditions_give_the_conditional_law():
    model, law = small_model()
    allowed = {1: np.array([0.0, 1.0]), 2: np.array([1.0, 0.5, 0.0, 1.0])}
    codes = model.draw(50_000, np.random.default_rng(2), allowed)
    expected = law * allowed[1][None, :, None] * allowed[2][None, None]
    assert np.abs(frequencies(codes) - expected / expected.sum()).max() < 0.01
    assert (codes[:, 1] == 1).all()
    assert (codes[:, 2] != 2).all()


def test_resampling_is_unbiased():
    """Each particle is there as often as its weight says, to one; on average exactly."""
    rng = np.random.default_rng(3)
    weights = rng.exponential(size=40)
    codes = rng.integers(0, 5, size=(40, 3)).astype(np.int32)
    particles = ScaledParticles(codes, weights)
    n_rows, total = 100, np.zeros(40)
    expected = n_rows * weights / weights.sum()
    for _ in range(4000):
        counts = np.bincount(_systematic(particles, n_rows, rng), minlength=40)
        assert counts.sum() == n_rows
        assert np.abs(counts - expected).max() < 1
        total += counts
    spread = np.sqrt((expected % 1) * (1 - expected % 1) / 4000)
    assert (np.abs(total / 4000 - expected) < 5.5 * spread + 1e-9).all()


def test_cells_occur_in_their_shares():
    rng = np.random.default_rng(5)
    bins = np.array([0, 0, 1, 2, 2, 2])
    shares = rng.dirichlet(np.ones(6))
    found = ColumnBins(bins, shares, np.arange(3))
    codes = rng.integers(0, 3, 3000)
    cells = draw_cells(codes, found, rng)
    np.testing.assert_array_equal(bins[cells], codes)
    for code in range(3):
        members = np.flatnonzero(bins == code)
        mine = cells[codes == code]
        expected = len(mine) * shares[members] / shares[members].sum()
        counts = np.bincount(mine, minlength=6)[members]
        assert np.abs(counts - expected).max() <= 1  # stratified


def test_cells_that_a_condition_excludes_do_not_occur():
    rng = np.random.default_rng(6)
    bins = np.array([0, 0, 0, 1, 1])
    found = ColumnBins(bins, np.full(5, 0.2), np.arange(2))
    kept = np.array([0.0, 1.0, 0.25, 1.0, 0.0])
    cells = draw_cells(rng.integers(0, 2, 5000), found, rng, kept)
    assert set(cells) == {1, 2, 3}
    assert np.sum(cells == 2) / np.sum(cells == 1) == pytest.approx(0.25, abs=0.01)
