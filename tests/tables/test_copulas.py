"""Ties inside groups, guessed from what noisy tables of groups say."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls
from scipy.stats import norm

from skdpot import DPTableSynthesizer
from skdpot.preprocessing import NumericColumn, TableSchema
from skdpot.tables import copulas, tree
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.copulas import tied_shares

N_ROWS, N_BINS, N_GROUPS = 30_000, 24, 8


def law(rho: float, zeros: float) -> np.ndarray:
    """Return joint shares of bins of two tied columns, of which some rows are zero on their own."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 400_000))
    ranks = norm.cdf([x[0], rho * x[0] + np.sqrt(1 - rho**2) * x[1]])
    n_zeros = 1 if zeros else 0
    bins = n_zeros + (ranks * (N_BINS - n_zeros)).astype(int)
    bins[rng.random(bins.shape) < zeros] = 0
    return np.histogram2d(*bins, bins=np.arange(N_BINS + 1) - 0.5)[0] / 400_000


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("rho", "zeros"), [(0.95, 0.0), (-0.8, 0.0), (0.9, 0.2), (0.0, 0.0)])
def test_fine_bins_are_found_from_coarse_noisy_counts(rho, zeros, missing):
    joint = law(rho, zeros)
    groups = np.r_[0, 1 + np.arange(N_BINS - 1) * (N_GROUPS - 1) // (N_BINS - 1)]
    if missing:  # 10 % of either column, independent of all else, in the last bin
        joint = np.pad(0.81 * joint, ((0, 1), (0, 1)))
        joint[-1, :-1], joint[:-1, -1] = (joint.sum(axis=a)[:-1] / 9 for a in (0, 1))
        joint[-1, -1] = 0.01
        groups = np.append(groups, N_GROUPS)
    marginal = Marginal((0, 1), (groups, groups))
    noise = 50.0 * np.random.default_rng(1).standard_normal(marginal.n_cells)
    noisy = NoisyMarginal(marginal, N_ROWS * marginal.joined(joint) + noise, 50.0)
    shares = joint.sum(axis=1), joint.sum(axis=0)
    found = tied_shares(noisy, shares, (N_BINS, N_BINS))
    np.testing.assert_allclose(found.sum(axis=1), shares[0], atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=0), shares[1], atol=1e-3)
    # Exact counts of groups, in which bins are independent, for comparison.
    exact = marginal.joined(joint).reshape(marginal.shape)
    spread = exact / marginal.joined(np.outer(*shares)).reshape(marginal.shape)
    spread = np.outer(*shares) * spread[np.ix_(groups, groups)]
    error = np.abs(found - joint).sum() / 2
    assert error < (0.06 if rho else 0.03)
    assert rho in (0.0, -0.8) or error < np.abs(spread - joint).sum() / 4


@pytest.mark.parametrize("converges", [True, False])
def test_counts_that_are_all_noise_tell_nothing(converges, monkeypatch):
    if not converges:
        monkeypatch.setattr(copulas, "nnls", partial(nnls, maxiter=1))
    groups = np.arange(N_BINS) // 3
    marginal = Marginal((0, 1), (groups, groups))
    shares = np.full(N_BINS, 1 / N_BINS)
    counts = np.full(marginal.n_cells, -1.0) if converges else np.arange(marginal.n_cells) ** 1.5
    nothing = NoisyMarginal(marginal, counts, 1.0)
    found = tied_shares(nothing, (shares, shares), (N_BINS, N_BINS))
    np.testing.assert_array_equal(found, np.outer(shares, shares))


@pytest.mark.filterwarnings("ignore:.*`random_state` makes the privacy noise reproducible")
def test_strongly_tied_columns_are_tied_inside_groups_of_bins():
    rng = np.random.default_rng(2)
    level = rng.standard_normal(20_000)
    table = pd.DataFrame({f"x{k}": level + 0.1 * rng.standard_normal(20_000) for k in range(3)})
    schema = TableSchema([NumericColumn(name, lower=-5.0, upper=5.0) for name in table])
    synthesizer = DPTableSynthesizer(schema, epsilon=1.0, random_state=0).fit(table)
    rows = synthesizer.sample(20_000, random_state=0)
    middle = rows[rows["x0"].between(-0.1, 0.1)]
    # .15 by the law; .28 if columns are independent inside groups.
    assert middle[["x1", "x2"]].std().mean() < 0.23


def test_ties_that_contradict_each_other_divide_nothing_by_zero(monkeypatch):
    """One parent says that low values go with low ones, the other that they go with high ones."""
    even = np.full(N_BINS, 1.0 / N_BINS)
    guesses = iter([np.diag(even), np.diag(even)[::-1]])
    monkeypatch.setattr(tree, "tied_shares", lambda *args: next(guesses))
    groups = np.arange(N_BINS) * N_GROUPS // N_BINS
    counts = np.full(N_GROUPS**2, N_ROWS / N_GROUPS**2)
    tables = {
        (parent, 2): NoisyMarginal(Marginal((parent, 2), (groups, groups)), counts, 1.0)
        for parent in range(2)
    }
    above = np.diag(even)[None]  # and both have the same value
    found = tree._fit_clique(above, (None, 0, 1), 2, [even] * 3, tables, N_ROWS, [N_BINS] * 3)
    assert np.isfinite(found).all()
