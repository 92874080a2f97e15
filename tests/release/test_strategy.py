"""The square-root strategy: exact on its lattice, and as accurate as the design says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz

from skdpot.release.decoding import square_root_strategy

SIZES = [2, 3, 8, 16, 64, 255, 256, 257, 512]


def worst_bridged_noise(decoder):
    """Largest standard deviation of a CDF value once the total is known, for unit noise."""
    covariance = decoder @ decoder.T
    last = covariance[:, -1]
    left = np.diag(covariance) - last**2 / covariance[-1, -1]
    return math.sqrt(left.max())


@pytest.mark.parametrize("n_bins", SIZES)
def test_entries_lie_on_the_lattice(n_bins):
    strategy = square_root_strategy(n_bins)
    assert strategy.integer_matrix.dtype == np.int64
    assert math.frexp(strategy.lattice)[0] == 0.5  # a power of two: products with it are exact
    np.testing.assert_array_equal(strategy.matrix / strategy.lattice, strategy.integer_matrix)
    assert strategy.integer_matrix.min() >= 0


@pytest.mark.parametrize("n_bins", SIZES)
def test_is_the_square_root_of_the_prefix_sums_up_to_the_lattice(n_bins):
    strategy = square_root_strategy(n_bins)
    exact = np.array([math.comb(2 * k, k) / 4**k for k in range(max(n_bins, 8))])
    assert np.max(np.abs(strategy.matrix[:, 0] - exact[:n_bins])) <= strategy.lattice / 2
    root = np.tril(toeplitz(exact[:8]))
    np.testing.assert_allclose(root @ root, np.tril(np.ones((8, 8))), atol=1e-12)
    for k in range(1, min(n_bins, 20)):
        assert np.all(np.diag(strategy.matrix, -k) == strategy.matrix[k, 0])


@pytest.mark.parametrize("n_bins", SIZES)
def test_decoder_undoes_the_strategy(n_bins):
    strategy = square_root_strategy(n_bins)
    product = strategy.decoder @ strategy.matrix
    np.testing.assert_allclose(product, np.tril(np.ones((n_bins, n_bins))), atol=1e-9)
    np.testing.assert_allclose(strategy.covariance, strategy.decoder @ strategy.decoder.T)


@given(
    n_bins=st.integers(2, 40),
    n_projections=st.integers(1, 300),
)
@settings(max_examples=40, deadline=None)
def test_sensitivity_is_the_largest_move_of_one_record(n_bins, n_projections):
    """Every pair of bins, with a plain loop; the bound is attained and not exceeded."""
    strategy = square_root_strategy(n_bins)
    A = strategy.matrix
    replaced = max(
        float(np.sum((A[:, a] - A[:, b]) ** 2)) for a in range(n_bins) for b in range(n_bins)
    )
    reclassed = max(
        float(np.sum(A[:, a] ** 2) + np.sum(A[:, b] ** 2))
        for a in range(n_bins)
        for b in range(n_bins)
    )
    for conditional, worst in ((False, replaced), (True, max(replaced, reclassed))):
        stated = strategy.sensitivity(n_projections, conditional=conditional)
        exact = math.sqrt(n_projections * worst)
        assert exact <= stated <= exact * (1 + 1e-12)


@pytest.mark.parametrize(("n_bins", "design"), [(64, 2.8), (256, 3.4)])
def test_noise_of_the_design(n_bins, design):
    """Worst CDF noise in units of √L / μ, ends known; DESIGN section 4."""
    strategy = square_root_strategy(n_bins)
    constant = strategy.sensitivity(1, conditional=False) * worst_bridged_noise(strategy.decoder)
    assert constant == pytest.approx(design, abs=0.06)


@pytest.mark.parametrize(("n_bins", "design"), [(64, 5.7), (256, 11.3)])
def test_noise_of_plain_counts(n_bins, design):
    """What the strategy is better than: noise on counts, whose sensitivity is √2."""
    plain = math.sqrt(2) * worst_bridged_noise(np.tril(np.ones((n_bins, n_bins))))
    assert plain == pytest.approx(design, abs=0.05)


@pytest.mark.parametrize("n_bins", [64, 256, 512])
def test_rounding_the_matrix_costs_little(n_bins):
    strategy = square_root_strategy(n_bins)
    exact = np.tril(toeplitz([math.comb(2 * k, k) / 4**k for k in range(n_bins)]))
    gram = exact.T @ exact
    squared = (np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram).max()
    ideal = math.sqrt(squared) * worst_bridged_noise(
        np.tril(np.ones((n_bins, n_bins))) @ np.linalg.inv(exact)
    )
    rounded = strategy.sensitivity(1, conditional=False) * worst_bridged_noise(strategy.decoder)
    assert rounded < 1.06 * ideal


def test_sensitivity_grows_with_the_root_of_the_slices_and_with_classes():
    strategy = square_root_strategy(64)
    one = strategy.sensitivity(1, conditional=False)
    assert strategy.sensitivity(49, conditional=False) == pytest.approx(7 * one)
    assert strategy.sensitivity(1, conditional=True) > one
    largest = np.linalg.norm(strategy.matrix, axis=0).max()
    assert strategy.sensitivity(1, conditional=True) == pytest.approx(math.sqrt(2) * largest)


def test_arrays_cannot_be_changed():
    strategy = square_root_strategy(8)
    for array in (strategy.matrix, strategy.integer_matrix, strategy.decoder, strategy.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7
