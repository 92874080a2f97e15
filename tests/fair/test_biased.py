"""Data with a known bias against the law that they claim."""

import math

import numpy as np
import pytest
from scipy import stats

from skdpot.datasets import make_biased_classification, make_biased_regression
from skdpot.metrics import disparate_impact
from tests.laws import FALSE_ALARM, Z, assert_mean, assert_normal, assert_repeatable

N = 30_000
BOTH = pytest.mark.parametrize("make", [make_biased_classification, make_biased_regression])
OTHERS = {"n_core": 6, "n_spurious": 3, "core_variance": 0.09, "spurious_variance": 0.25}


@pytest.mark.parametrize("given", [{}, {"alignment": 0.2, **OTHERS}], ids=["paper", "others"])
def test_the_law(given):
    """Responses, groups, and normal noise that is independent of all else."""
    X, y, group = make_biased_classification(**given, random_state=0)
    X_again, Y, group_again = make_biased_regression(**given, random_state=0)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(group, group_again)
    np.testing.assert_array_equal(y, Y[:, 1] > 1 - Y[:, 0])
    assert y.dtype == group.dtype == np.int64
    cells = np.histogram2d(*Y.T, bins=8, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(cells.ravel()).pvalue > FALSE_ALARM
    # The alignment is the same in either class.
    share, n_core = given.get("alignment", 0.7), given.get("n_core", 8)
    for label in (0, 1):
        assert_mean((group == y)[y == label], share, share * (1 - share))
    # (1 - p) / p, whose logarithm has variance 2 (p / (1 - p) + (1 - p) / p) / n.
    odds = (1 - share) / share
    impact = disparate_impact(y, sensitive_features=group, reference=1)
    assert abs(math.log(impact / odds)) < Z * math.sqrt(2 * (odds + 1 / odds) / N)
    core = (X[:, :n_core] - np.tile(Y, n_core // 2)) / given.get("core_variance", 0.2) ** 0.5
    spurious = (X[:, n_core:] - group[:, None]) / given.get("spurious_variance", 0.4) ** 0.5
    assert core.shape[1] == n_core
    assert spurious.shape == (N, given.get("n_spurious", 8))
    assert_normal(np.hstack([core, spurious]), 1.0, [Y, y, group, group == y])


@BOTH
def test_edges(make):
    X, *_ = make(40, n_core=2, n_spurious=0, core_variance=0, random_state=0)
    assert X.shape == (40, 2)
    assert ((X >= 0) & (X <= 1)).all()
    assert len(make(1)[0]) == 1
    X, _, group = make(40, alignment=1, spurious_variance=0, random_state=0)
    np.testing.assert_array_equal(X[:, 8:], np.tile(group[:, np.newaxis], 8))


@BOTH
def test_random_state(make):
    assert_repeatable(lambda seed: make(50, random_state=seed))


REFUSED = [
    ({"n_samples": 10.5}, "n_samples must be an instance of"),
    ({"n_core": 3}, "n_core=3 must be even"),
    ({"n_spurious": -1}, "n_spurious == -1, must be >= 0"),
    ({"alignment": 1.1}, "alignment=1.1 must be finite, at least 0 and at most 1"),
    ({"spurious_variance": math.inf}, "spurious_variance=inf must be finite"),
]


@BOTH
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_refused(make, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(**options)
