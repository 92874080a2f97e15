"""Samples against the laws that they claim, with false-alarm rates of random bounds."""

import math

import numpy as np
from scipy import stats

# Of one comparison. A file makes fewer than 200, and all are seeded.
FALSE_ALARM = 1e-7
Z = stats.norm.isf(FALSE_ALARM / 2)


def assert_mean(sample, expected, variance):
    """The means of the columns are normal to a good approximation at this n."""
    error = np.abs(np.mean(sample, axis=0) - expected)
    assert np.all(error < Z * math.sqrt(variance / len(sample)))


def assert_normal(sample, variance, others=()):
    """Independent normal columns with mean zero and one variance, independent of others too."""
    for column in sample.T:
        assert stats.kstest(column / math.sqrt(variance), "norm").pvalue > FALSE_ALARM
    # Correlations of independent columns have standard deviation 1/√n.
    correlation = np.corrcoef(np.column_stack([sample, *others]), rowvar=False)[: sample.shape[1]]
    np.fill_diagonal(correlation, 0.0)
    bound = stats.norm.isf(FALSE_ALARM / 2 / correlation.size) / math.sqrt(len(sample))
    assert np.abs(correlation).max() < bound


def assert_moments(sample, mean, covariance):
    """Means and covariances of normal rows; a covariance's variance is s_ii·s_jj + s_ij²."""
    z = stats.norm.isf(FALSE_ALARM / (2 * covariance.size))
    variances = np.diag(covariance)
    assert np.all(np.abs(sample.mean(axis=0) - mean) < z * np.sqrt(variances / len(sample)))
    found = (sample - mean).T @ (sample - mean) / len(sample)
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / len(sample))
    assert np.all(np.abs(found - covariance) < z * spread)


def assert_repeatable(make):
    """A function of a seed repeats by its seed, differs by others, and differs without one."""
    state = np.random.RandomState(3)
    for first, second, of_state in zip(make(3), make(3), make(state), strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, of_state)
    for seed, other in ((3, 4), (3, state), (None, None)):
        assert not np.array_equal(make(seed)[0], make(other)[0])
