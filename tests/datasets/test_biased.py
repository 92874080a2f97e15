"""The generator against the law it claims; random bounds state their false-alarm rates."""

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


@pytest.fixture(scope="module", params=[0.7, 0.2])
def data(request):
    """A data set with unusual variances, and its alignment."""
    options = {"alignment": request.param, "core_variance": 0.09, "spurious_variance": 0.25}
    X, y, group = make_biased_classification(N, n_core=6, n_spurious=3, random_state=0, **options)
    _, Y, _ = make_biased_regression(N, n_core=6, n_spurious=3, random_state=0, **options)
    return X, y, Y, group, request.param


def test_response_is_uniform_on_the_square(data):
    _, _, Y, _, _ = data
    for column in Y.T:
        assert stats.kstest(column, "uniform").pvalue > FALSE_ALARM
    cells = np.histogram2d(*Y.T, bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(cells.ravel()).pvalue > FALSE_ALARM


def test_classes_groups_and_their_alignment(data):
    _, y, _, group, alignment = data
    assert set(y.tolist()) == set(group.tolist()) == {0, 1}
    assert y.dtype == group.dtype == np.int64
    assert_mean(y, 0.5, 0.25)
    assert_mean(group, 0.5, 0.25)
    # B is independent of Y, so the alignment is the same in either class.
    for label in (0, 1):
        equal = (group == y)[y == label]
        assert_mean(equal, alignment, alignment * (1 - alignment))


def test_noise_is_normal_and_independent_of_all_else(data):
    X, y, Y, group, _ = data
    core = (X[:, :6] - np.tile(Y, 3)) / 0.3
    spurious = (X[:, 6:] - group[:, np.newaxis]) / 0.5
    noise = np.hstack([core, spurious])
    for column in noise.T:
        assert stats.kstest(column, "norm").pvalue > FALSE_ALARM
    # Correlations of independent columns have standard deviation 1/√n.
    others = np.column_stack([Y, y, group, group == y])
    correlation = np.corrcoef(np.hstack([noise, others]), rowvar=False)[:9]
    np.fill_diagonal(correlation[:, :9], 0.0)
    tests = correlation.size
    assert np.abs(correlation).max() < stats.norm.isf(FALSE_ALARM / 2 / tests) / math.sqrt(N)
    # Nor does its size depend on the group.
    for a in (0, 1):
        assert_mean(noise[group == a] ** 2, 1.0, 2.0)


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
    first, again = make(50, random_state=3), make(50, random_state=3)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], make(50, random_state=4)[0])
    assert not np.array_equal(make(50)[0], make(50)[0])
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(make(50, random_state=state)[0], first[0])
    assert not np.array_equal(make(50, random_state=state)[0], first[0])


@BOTH
def test_edges(make):
    X, _, group = make(40, n_core=2, n_spurious=0, core_variance=0, random_state=0)
    assert X.shape == (40, 2)
    assert ((X >= 0) & (X <= 1)).all()
    X, _, group = make(40, alignment=1, spurious_variance=0, random_state=0)
    np.testing.assert_array_equal(X[:, 8:], np.tile(group[:, np.newaxis], 8))
    for alignment in (0, 1):
        _, y, group = make_biased_classification(40, alignment=alignment, random_state=0)
        np.testing.assert_array_equal(y == group, alignment == 1)


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples == 0, must be >= 1"),
        ({"n_core": 0}, "n_core == 0, must be >= 2"),
        ({"n_core": 3}, "n_core=3 must be even"),
        ({"alignment": 1.1}, "alignment=1.1 must be finite, at least 0 and at most 1"),
        ({"spurious_variance": math.inf}, "spurious_variance=inf must be finite"),
    ],
)
def test_what_is_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
