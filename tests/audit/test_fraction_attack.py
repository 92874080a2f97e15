"""A secret t is found from equal values."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from skdpot.audit.reconstruction import fraction_from_ties, rows_from_interpolation
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, interpolate, optimal_plan

LOADERS = [load_iris, load_wine, load_breast_cancer, load_digits]


def setting(X, k, t, scale=1.0, kind="barycentric"):
    gamma = gaussian_reference(k, X.shape[1], scale=scale, rng=np.random.default_rng(1))
    return interpolate(optimal_plan(DiscreteMeasure(X), gamma), t, kind=kind), gamma


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("t", [0.1, 0.37, 0.9])
@pytest.mark.parametrize("load", LOADERS)
def test_real_data_tell_t(load, t, scale):
    X = load().data
    X = X[np.random.default_rng(0).permutation(len(X))[:100]]
    eta, gamma = setting(X, 100, t, scale)
    guess = fraction_from_ties(eta, gamma)
    assert guess == pytest.approx(t, abs=1e-12)
    found = rows_from_interpolation(eta, gamma)  # t is not given
    assert found.t == guess
    assert found.n_exact(X) == 100


def test_exact_interpolation_tells_t_whatever_the_data():
    # Rows that were split occur several times, and so do all their values.
    X = np.random.default_rng(0).normal(size=(60, 3))
    eta, gamma = setting(X, 47, 0.3, kind="exact")
    found = rows_from_interpolation(eta, gamma, interpolation="exact")
    assert found.t == pytest.approx(0.3, abs=1e-12)
    assert found.n_exact(X) == 60


def test_different_real_numbers_keep_it():
    eta, gamma = setting(np.random.default_rng(0).normal(size=(100, 10)), 100, 0.3)
    with pytest.raises(ValueError, match="t cannot be found"):
        fraction_from_ties(eta, gamma)
