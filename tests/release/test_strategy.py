"""The square-root strategy: exact on its lattice, and as accurate as the design says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz

from skdpot.release.histogram import square_root_strategy

SIZES = [2, 3, 8, 16, 64, 255, 256, 257, 512]


def worst_bridged_noise(decoder):
    """Largest standard deviation of a CDF value once the total is known, for unit noise."""
    covariance = decoder @ decoder.T
    last = covariance[:, -1]
    left = np.diag(covariance) - last**2 / covariance[-1, -1]
    return math.sqrt(left.max())


@pytest.mark.parametrize("n_bins", SIZES)
def test_is_the_square_root_of_the_prefix_sums_up_to_the_lattice(n_bins):
    strategy = square_root_strategy(n_bins)
    matrix, lattice = strategy.matrix, strategy.lattice
    assert math.frexp(lattice)[0] == 0.5  # a power of two: products with it are exact
    np.testing.assert_array_equal(matrix / lattice, strategy.integer_matrix)
    exact = toeplitz([math.comb(2 * k, k) / 4**k for k in range(n_bins)])
    assert np.abs(matrix - np.tril(exact)).max() <= lattice / 2
    prefix_sums = np.tril(np.ones((n_bins, n_bins)))
    np.testing.assert_allclose(np.tril(exact) @ np.tril(exact), prefix_sums, atol=1e-9)
    np.testing.assert_allclose(strategy.decoder @ matrix, prefix_sums, atol=1e-9)


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


def test_arrays_cannot_be_changed():
    strategy = square_root_strategy(8)
    for array in (strategy.matrix, strategy.integer_matrix, strategy.decoder, strategy.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7
