"""The biased data against the law they claim; random bounds state their false-alarm rates."""

import math

import numpy as np
import pytest
from scipy import stats

from skdpot.datasets import make_biased_classification, make_biased_regression
from skdpot.metrics import disparate_impact

N = 30_000
FALSE_ALARM = 1e-6  # of one comparison; there are fewer than 100 in this file
Z = stats.norm.isf(FALSE_ALARM / 2)
BOTH = pytest.mark.parametrize("make", [make_biased_classification, make_biased_regression])


def assert_mean(sample, expected, variance):
    """The means of the columns are normal to a good approximation at this n."""
    error = np.abs(np.mean(sample, axis=0) - expected)
    assert np.all(error < Z * math.sqrt(variance / len(sample)))


@pytest.mark.parametrize("alignment", [0.7, 0.2])
def test_the_law(alignment):
    """Responses, groups, and normal noise that is independent of all else."""
    options = {"alignment": alignment, "core_variance": 0.09, "spurious_variance": 0.25}
    options |= {"n_core": 6, "n_spurious": 3, "random_state": 0}
    X, y, group = make_biased_classification(N, **options)
    X_again, Y, group_again = make_biased_regression(N, **options)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(group, group_again)
    np.testing.assert_array_equal(y, Y[:, 1] > 1 - Y[:, 0])
    assert y.dtype == group.dtype == np.int64
    cells = np.histogram2d(*Y.T, bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(cells.ravel()).pvalue > FALSE_ALARM
    # The alignment is the same in either class.
    for label in (0, 1):
        assert_mean((group == y)[y == label], alignment, alignment * (1 - alignment))
    core = (X[:, :6] - np.tile(Y, 3)) / 0.3
    noise = np.hstack([core, (X[:, 6:] - group[:, np.newaxis]) / 0.5])
    for column in noise.T:
        assert stats.kstest(column, "norm").pvalue > FALSE_ALARM
    # Correlations of independent columns have standard deviation 1/√n.
    others = np.column_stack([Y, y, group, group == y])
    correlation = np.corrcoef(np.hstack([noise, others]), rowvar=False)[:9]
    np.fill_diagonal(correlation[:, :9], 0.0)
    largest = stats.norm.isf(FALSE_ALARM / 2 / correlation.size) / math.sqrt(N)
    assert np.abs(correlation).max() < largest


def test_default_is_the_paper():
    X, y, group = make_biased_classification(random_state=1)
    assert X.shape == (30_000, 16)
    response = make_biased_regression(random_state=1)[1]
    assert_mean((X[:, :8] - np.tile(response, 4)) ** 2, 0.2, 2 * 0.2**2)
    assert_mean((X[:, 8:] - group[:, np.newaxis]) ** 2, 0.4, 2 * 0.4**2)
    assert_mean(group == y, 0.7, 0.21)
    # (1 − p)/p, whose logarithm has variance 2·(p/(1−p) + (1−p)/p)/n with n/2 rows a group.
    deviation = math.sqrt(2 * (0.7 / 0.3 + 0.3 / 0.7) / N)
    impact = disparate_impact(y, sensitive_features=group, reference=1)
    assert abs(math.log(impact / (0.3 / 0.7))) < Z * deviation


@BOTH
def test_random_state(make):
    state = np.random.RandomState(3)
    draws = [make(50, random_state=seed)[0] for seed in (3, 3, state, state, 4, None, None)]
    same = [np.array_equal(draws[0], other) for other in draws]
    assert same == [True, True, True, False, False, False, False]
    assert not np.array_equal(*draws[-2:])


@BOTH
def test_edges(make):
    X, *_ = make(40, n_core=2, n_spurious=0, core_variance=0, random_state=0)
    assert X.shape == (40, 2)
    assert ((X >= 0) & (X <= 1)).all()
    assert len(make(1)[0]) == 1
    X, _, group = make(40, alignment=1, spurious_variance=0, random_state=0)
    np.testing.assert_array_equal(X[:, 8:], np.tile(group[:, np.newaxis], 8))


@BOTH
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_samples": 0}, ValueError, "n_samples == 0, must be >= 1"),
        ({"n_samples": 10.5}, TypeError, "n_samples must be an instance of"),
        ({"n_core": 0}, ValueError, "n_core == 0, must be >= 2"),
        ({"n_core": 3}, ValueError, "n_core=3 must be even"),
        ({"n_spurious": -1}, ValueError, "n_spurious == -1, must be >= 0"),
        ({"alignment": 1.1}, ValueError, "alignment=1.1 must be finite, at least 0 and at most 1"),
        ({"alignment": "high"}, TypeError, "alignment must be an instance of"),
        ({"core_variance": -0.1}, ValueError, "core_variance=-0.1 must be finite, at least 0"),
        ({"spurious_variance": math.inf}, ValueError, "spurious_variance=inf must be finite"),
    ],
)
def test_what_is_refused(make, options, error, message):
    with pytest.raises(error, match=message):
        make(**options)
