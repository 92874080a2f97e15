"""Contingency tables: which cell a row falls in, and how two releases of one are joined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdpot.release.contingency import Marginal, NoisyMarginal

RNG = np.random.default_rng(31)
SIZES = (4, 3, 5)
CODES = np.column_stack([RNG.integers(0, size, 200) for size in SIZES]).astype(np.int32)


def marginal_of(*columns, groups=None):
    chosen = groups or tuple(np.arange(SIZES[column]) for column in columns)
    return Marginal(columns, chosen)


@pytest.mark.parametrize("columns", [(0,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_counts_are_those_of_a_loop_over_rows(columns):
    marginal = marginal_of(*columns)
    expected = np.zeros(marginal.shape)
    for row in CODES:
        expected[tuple(row[list(columns)])] += 1
    assert marginal.shape == tuple(SIZES[column] for column in columns)
    assert marginal.n_cells == expected.size
    np.testing.assert_array_equal(marginal.counts(CODES), expected.ravel())


def test_groups_join_codes():
    groups = (np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1, 2]))
    marginal = marginal_of(0, 2, groups=groups)
    fine = marginal_of(0, 2).counts(CODES).reshape(4, 5)
    joined = np.zeros((2, 3))
    np.add.at(joined, (groups[0][:, None], groups[1][None]), fine)
    assert marginal.shape == (2, 3)
    np.testing.assert_array_equal(marginal.counts(CODES), joined.ravel())


def test_many_cells_do_not_overflow_the_type_of_the_codes():
    """300 ^ 4 cells are more than 32 bits hold."""
    groups = tuple(np.arange(300) for _ in range(4))
    last = np.full((1, 4), 299, dtype=np.int32)
    marginal = Marginal((0, 1, 2, 3), groups)
    assert marginal.cells(last).tolist() == [300**4 - 1]
    assert marginal.n_cells == 300**4


def test_marginals_of_equal_columns_and_levels_are_equal():
    """They are keys of dictionaries: groups follow from the level."""
    groups = (np.array([0, 0, 1, 1]), np.array([0, 1, 1]))
    fine, coarse = marginal_of(0, 1), Marginal((0, 1), groups, levels=(1, 1))
    assert fine == Marginal((0, 1), groups)
    assert fine != coarse
    assert len({fine, Marginal((0, 1), groups), coarse}) == 2


@given(st.data())
def test_merging_is_the_weighted_mean_with_the_least_variance(data):
    shape = (3,)
    numbers = st.floats(-1e6, 1e6)
    scales = st.floats(0.01, 1e4)
    counts = [data.draw(arrays(np.float64, shape, elements=numbers)) for _ in range(2)]
    sigmas = [data.draw(scales) for _ in range(2)]
    noisy = [NoisyMarginal(marginal_of(1), *known) for known in zip(counts, sigmas, strict=True)]
    merged = noisy[0].merge(noisy[1])
    weights = np.linspace(0, 1, 100_001)
    best = np.min(np.hypot(weights * sigmas[0], (1 - weights) * sigmas[1]))
    assert merged.sigma <= min(sigmas)
    assert merged.sigma == pytest.approx(best, rel=1e-3, abs=1e-4 * min(sigmas))
    share = sigmas[1] ** 2 / (sigmas[0] ** 2 + sigmas[1] ** 2)
    np.testing.assert_allclose(
        merged.counts, share * counts[0] + (1 - share) * counts[1], rtol=1e-9, atol=1e-6
    )
    np.testing.assert_allclose(merged.counts, noisy[1].merge(noisy[0]).counts, rtol=1e-12)


def test_an_exact_release_stands_alone():
    exact = NoisyMarginal(marginal_of(1), np.arange(3.0), 0.0)
    noisy = NoisyMarginal(marginal_of(1), np.full(3, 9.0), 2.0)
    assert exact.merge(noisy) is exact
    assert noisy.merge(exact) is exact
