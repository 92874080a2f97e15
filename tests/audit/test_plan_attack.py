"""Rows from interpolating measures: exactly, for all sizes, masses and settings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from skdpot.audit.reconstruction import Reconstruction, rows_from_interpolation
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, interpolate, optimal_plan

LOADERS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}


def some_rows(name, n, seed=0):
    X = LOADERS[name]().data
    return X[np.random.default_rng(seed).permutation(len(X))[:n]]


def sent(X, gamma, t, *, masses=None, kind="barycentric"):
    return interpolate(optimal_plan(DiscreteMeasure(X, masses), gamma), t, kind=kind)


def reference(k, d, scale, seed=1, masses=None):
    points = gaussian_reference(k, d, scale=scale, rng=np.random.default_rng(seed)).points
    return DiscreteMeasure(points, masses)


def rmse(rows, X):
    return np.sqrt(np.mean((rows - X) ** 2))


@pytest.mark.parametrize("max_plans", [1, 1000])
@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("scale", [1, 5])
@pytest.mark.parametrize("name", LOADERS)
def test_every_row_of_known_data(name, scale, t, max_plans):
    X = some_rows(name, 100)
    gamma = reference(100, X.shape[1], scale)
    found = rows_from_interpolation(sent(X, gamma, t), gamma, t, max_plans=max_plans)
    # Row by row, not up to order: a few units in the last place of what was computed with.
    size = max(np.abs(X).max(), scale * 5 * t / (1 - t))
    assert rmse(found.rows, X) < 4e-16 * size
    assert found.n_exact(X) == 100
    assert found.n_plans == min(max_plans, 2)


def measures(data, with_ties):
    """Draw rows and masses; with or without equal values."""
    m, k, d = (data.draw(st.integers(1, top)) for top in (9, 9, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    X = rng.integers(-3, 4, size=(m, d)) + (0 if with_ties else rng.normal(size=(m, d)))
    masses = [rng.integers(1, 5, n) if data.draw(st.booleans()) else None for n in (m, k)]
    return X, masses[0], DiscreteMeasure(2 * rng.normal(size=(k, d)), masses[1])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), with_ties=st.booleans(), t=st.floats(0.05, 0.95))
def test_all_sizes_masses_and_ties(data, with_ties, t):
    X, masses, gamma = measures(data, with_ties)
    found = rows_from_interpolation(sent(X, gamma, t, masses=masses), gamma, t, max_plans=200)
    weights = DiscreteMeasure(X, masses).weights
    error = np.sqrt(weights @ np.mean((found.rows - X) ** 2, axis=1))
    assert error <= found.error_bound * 1.001
    # Between equal rows that were divided many plans are optimal, and the search is slow.
    assert with_ties or error < 1e-9


def test_the_bound_holds_wherever_the_search_stops():
    # Rows were divided: the plan between η and γ is not the secret one.
    X = some_rows("iris", 100)
    gamma = reference(101, 4, 5.0)
    eta = sent(X, gamma, 0.9)
    errors, bounds = [], []
    for max_plans in (2, 5, 20, 80):
        found = rows_from_interpolation(eta, gamma, 0.9, max_plans=max_plans)
        assert found.n_plans == max_plans
        errors.append(rmse(found.rows, X))
        bounds.append(found.error_bound)
    assert np.all(np.array(errors) <= bounds)
    assert errors[-1] < errors[0] / 3
    assert bounds[-1] < 100 * errors[-1]


@pytest.mark.parametrize(("m", "k"), [(40, 40), (40, 50), (50, 40)])
def test_exact_interpolation(m, k):
    X = some_rows("iris", m, seed=3)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)  # so that all are different
    masses = np.random.default_rng(1).uniform(0.5, 1.5, m)
    gamma = reference(k, 4, 2.0)
    eta = sent(X, gamma, 0.6, masses=masses, kind="exact")
    assert eta.n_points > m  # rows were split
    found = rows_from_interpolation(eta, gamma, 0.6, interpolation="exact")
    np.testing.assert_allclose(found.rows, X, atol=1e-12)
    np.testing.assert_allclose(found.masses, masses / masses.sum(), rtol=1e-9)
    assert found.n_plans == 2


@pytest.mark.parametrize(("m", "k"), [(50, 50), (50, 60)])
def test_disturbing_the_message_hides_no_more_than_the_disturbance(m, k):
    X = some_rows("wine", m)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    gamma = reference(k, 13, 1.0)
    eta = sent(X, gamma, 0.5)
    for size in (1e-7, 1e-2, 1.0):
        noise = size * np.random.default_rng(2).normal(size=X.shape)
        found = rows_from_interpolation(DiscreteMeasure(eta.points + noise), gamma, 0.5)
        assert rmse(found.rows, X) <= rmse(noise, 0) / 0.5 * (1 + 1e-6) + found.error_bound
    # As when numbers are sent in single precision.
    single = DiscreteMeasure(eta.points.astype(np.float32))
    assert rmse(rows_from_interpolation(single, gamma, 0.5).rows, X) < 1e-6


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"t": 1.0}, "t=1.0 must be"),
        ({"t": -0.1}, "t=-0.1 must be"),
        ({"interpolation": "none"}, "interpolation='none'"),
        ({"max_plans": 0}, "max_plans=0"),
    ],
)
def test_wrong_parameters(change, match):
    measure = DiscreteMeasure(np.eye(3))
    with pytest.raises(ValueError, match=match):
        rows_from_interpolation(measure, measure, **({"t": 0.5} | change))


def test_errors_of_a_reconstruction():
    found = Reconstruction(rows=np.array([[0.0, 0.0], [3.0, 4.0]]), t=0.25, error_bound=0.5)
    truth = [[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]
    np.testing.assert_allclose(found.row_errors(truth), [0, 0, np.sqrt(0.5)])
    assert found.rmse(truth) == pytest.approx(np.sqrt(0.5 / 3))
    assert (found.n_exact(truth), found.n_exact(truth, tol=1.0)) == (2, 3)
    assert repr(found) == "Reconstruction(2 rows, 2 features, t=0.25, error_bound=0.5)"
    with pytest.raises(ValueError, match="truth has shape"):
        found.rmse([[1.0]])
