"""Which marginals are worth their noise: brute force on small sets, and what is public."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from skdpot.release.contingency import Marginal
from skdpot.tables import fitting as choices
from skdpot.tables.fitting import (
    TARGET_IMPORTANCE,
    Candidates,
    all_pairs,
    choose,
    choose_tree,
    sampling_misfit,
)
from skdpot.tables.model import ColumnBins


def pair_of(columns, shape, level=0):
    return Marginal(columns, tuple(np.arange(size) for size in shape), levels=(level,) * 2)


def column_bins(n_bins, n_groups):
    shares = np.full(n_bins, 1 / n_bins)
    return ColumnBins(np.arange(n_bins), shares, np.arange(n_bins) * n_groups // n_bins)


def random_candidates(seed, n_pairs=8):
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(5), 2))[:n_pairs]
    marginals = tuple(pair_of(pair, rng.integers(2, 20, 2)) for pair in pairs)
    importance = np.where(rng.random(n_pairs) < 0.3, TARGET_IMPORTANCE, 1.0)
    return Candidates(marginals, rng.exponential(300, n_pairs) - 50, importance)


# --- sharing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_shares_make_the_noise_least(seed):
    """Of sum(importance * cells * sigma), sigma the power -1/2 of a share; by scipy."""
    candidates = random_candidates(seed, 5)
    wrong = candidates.importance * candidates.n_cells

    def noise(logits):
        shares = np.exp(logits) / np.exp(logits).sum()
        return float(np.sum(wrong / np.sqrt(shares)))

    best = minimize(noise, np.zeros(5), method="Nelder-Mead", options={"maxiter": 20_000})
    shares = candidates.weights / candidates.weights.sum()
    assert noise(np.log(shares)) <= best.fun * (1 + 1e-6)
    assert noise(np.log(shares)) == pytest.approx(np.sum(wrong ** (2 / 3)) ** 1.5)


# --- candidates ---------------------------------------------------------------------------------


def test_pairs_come_in_bins_and_in_groups_where_those_are_fewer():
    bins = [column_bins(6, 3), column_bins(2, 2), column_bins(4, 4)]
    found = all_pairs(bins)
    assert [(m.columns, m.levels, m.shape) for m in found] == [
        ((0, 1), (0, 0), (6, 2)), ((0, 1), (1, 1), (3, 2)),
        ((0, 2), (0, 0), (6, 4)), ((0, 2), (1, 1), (3, 4)),
        ((1, 2), (0, 0), (2, 4)),
    ]  # fmt: skip
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("n_rows", [50, 5000])
def test_the_misfit_of_chance_is_what_chance_gives(n_rows):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(12))
    tables = rng.multinomial(n_rows, shares, size=4000)
    simulated = np.abs(tables - n_rows * shares).sum(axis=1).mean()
    assert sampling_misfit(n_rows * shares, n_rows) == pytest.approx(simulated, rel=0.1)
    assert sampling_misfit(np.array([n_rows, 0.0]), n_rows) == 0.0


def test_gains_are_what_a_release_mends_less_its_noise():
    marginals = (
        pair_of((0, 1), (4, 5)), pair_of((0, 1), (2, 2), level=1), pair_of((0, 2), (3, 3)),
    )  # fmt: skip
    candidates = Candidates(marginals, np.array([100.0, 80.0, 10.0]), np.array([1.0, 1.0, 4.0]))
    cost = choices._NOISE_COST
    fine, noisy = candidates.gains(0.1), candidates.gains(20.0)
    assert fine[0, 1] == (pytest.approx(100 - cost * 0.1 * 20), 0)
    assert noisy[0, 1] == (pytest.approx(80 - cost * 20 * 4), 1)
    assert noisy[0, 2] == (pytest.approx(4 * (10 - cost * 20 * 9)), 2)


# --- choices ------------------------------------------------------------------------------------


def cost_of(candidates, chosen, sigma):
    """Rows that noise puts wrong in what is released, and the model in what is not."""
    sizes = (candidates.importance * candidates.n_cells) ** (2 / 3)
    noise = choices._NOISE_COST * sigma * sizes[chosen].sum() ** 1.5
    left_out = np.maximum(candidates.importance * candidates.misfits, 0.0)
    return noise + left_out[~chosen].sum()


@pytest.mark.parametrize("sigma", [0.5, 2.0, 5.0, 20.0])
def test_the_choice_is_nearly_the_best_of_all(sigma):
    """Every subset is tried: the order of gain per size misses the best by little."""
    ratios = []
    for seed in range(25):
        candidates = random_candidates(seed)
        taken = choose(candidates, sigma).marginals
        chosen = np.array([marginal in taken for marginal in candidates.marginals])
        best = min(
            cost_of(candidates, np.array(subset), sigma)
            for subset in itertools.product([False, True], repeat=8)
            if any(subset)
        )
        ratios.append(cost_of(candidates, chosen, sigma) / best)
    assert max(ratios) < 1.25
    assert np.mean(ratios) < 1.01


def test_the_tree_takes_what_gains_and_the_pairs_with_the_target():
    columns = list(itertools.combinations(range(4), 2))
    marginals = tuple(pair_of(pair, (3, 3)) for pair in columns)
    misfits = dict.fromkeys(columns, -10.0) | {(0, 1): 500.0, (1, 2): 400.0, (0, 3): 300.0}
    values = np.array([misfits[pair] for pair in columns])
    candidates = Candidates(marginals, values, np.ones(6))
    nodes, choice = choose_tree(candidates, 4, None, 1.0)
    assert {m.columns for m in choice.marginals} == {(0, 1), (1, 2), (0, 3)}
    assert len(nodes) == 4
    nodes, choice = choose_tree(candidates, 4, 3, 1.0)
    assert {node.column for node in nodes} == {0, 1, 2}
    assert {m.columns for m in choice.marginals} == {(0, 1), (1, 2), (0, 3)}


def test_nothing_is_released_where_nothing_gains():
    marginals = tuple(pair_of(pair, (3, 3)) for pair in itertools.combinations(range(3), 2))
    candidates = Candidates(marginals, np.full(3, -5.0), np.ones(3))
    nodes, choice = choose_tree(candidates, 3, 2, 1.0)
    assert choice is None
    assert [node.parent for node in nodes] == [None, None]
