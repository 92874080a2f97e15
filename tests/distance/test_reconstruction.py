"""Rows from what participants of TriangleWad and FedWad see: exactly, in all settings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits, load_iris, load_wine

from skdpot.distance.reconstruction import (
    Reconstruction,
    paired_differences,
    positions_from_distances,
    rows_from_cost_matrices,
    rows_from_interpolation,
    rows_from_one_round,
)
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference
from skdpot.ot.plans import interpolate, optimal_plan

LOADERS = {"iris": load_iris, "wine": load_wine, "digits": load_digits}


def some_rows(name, n):
    X = LOADERS[name]().data
    return X[np.random.default_rng(0).permutation(len(X))[:n]]


def standardised(name, n):
    X = some_rows(name, n)
    return (X - X.mean(axis=0)) / X.std(axis=0)


DIGITS = some_rows("digits", 200) / 8 - 1


def gauss(n, d, scale=1.0):
    return gaussian_reference(n, d, scale=scale, rng=np.random.default_rng(1))


def sent(X, gamma, t, *, masses=None, kind="barycentric"):
    return interpolate(optimal_plan(DiscreteMeasure(X, masses), gamma), t, kind=kind)


def rmse(rows, X):
    return np.sqrt(np.mean((rows - X) ** 2))


@pytest.mark.parametrize(("scale", "t"), [(1, 0.1), (5, 0.37), (5, 0.9)])
@pytest.mark.parametrize("name", LOADERS)
def test_every_row_of_known_data_and_a_secret_t(name, scale, t):
    X = some_rows(name, 100)
    gamma = gauss(100, X.shape[1], scale)
    eta = sent(X, gamma, t)
    # Row by row, not up to order: a few units in the last place of what was computed with.
    size = max(np.abs(X).max(), scale * 5 * t / (1 - t))
    for max_plans in (1, 1000):
        found = rows_from_interpolation(eta, gamma, t, max_plans=max_plans)
        assert rmse(found.rows, X) < 4e-16 * size
        assert found.n_exact(X) == 100
        assert found.n_plans == min(max_plans, 2)
    found = rows_from_interpolation(eta, gamma)  # equal values tell t
    assert found.t == pytest.approx(t, abs=1e-12)
    assert found.n_exact(X) == 100


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
    gamma = gauss(101, 4, 5.0)
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


@pytest.mark.slow
@pytest.mark.parametrize("k", [50, 60])
def test_disturbing_the_message_hides_no_more_than_the_disturbance(k):
    X = standardised("wine", 50)
    gamma = gauss(k, 13)
    eta = sent(X, gamma, 0.5)
    for size in (1e-7, 1e-2, 1.0):
        noise = size * np.random.default_rng(2).normal(size=X.shape)
        found = rows_from_interpolation(DiscreteMeasure(eta.points + noise), gamma, 0.5)
        assert rmse(found.rows, X) <= rmse(noise, 0) / 0.5 * (1 + 1e-6) + found.error_bound
    # As when numbers are sent in single precision.
    single = DiscreteMeasure(eta.points.astype(np.float32))
    assert rmse(rows_from_interpolation(single, gamma, 0.5).rows, X) < 1e-6


def test_a_true_geodesic_gives_everything():
    mu, nu = DiscreteMeasure(DIGITS[:40]), DiscreteMeasure(DIGITS[40:100])
    plan = optimal_plan(mu, nu)
    xi = interpolate(plan, 0.3, kind="exact")
    place = optimal_plan(mu, xi).distance / plan.distance
    assert place == pytest.approx(0.3, abs=1e-12)
    assert rows_from_interpolation(xi, mu, 1 - place).n_exact(nu.points) == 60


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), t=st.floats(0.1, 0.9), n=st.integers(2, 12))
def test_differences_are_exact_where_the_reference_hides_something(seed, t, n):
    rng = np.random.default_rng(seed)
    clouds = rng.normal(size=(2, n, 3))
    clouds /= np.linalg.norm(clouds, axis=2).max()  # both in the ball of radius 1
    points = rng.normal(size=(n, 3))
    points *= 1.001 * 2 * (1 - t) / (t * pdist(points).min())
    etas = [sent(rows, DiscreteMeasure(points), t) for rows in clouds]
    known, unknown = paired_differences(*etas, t), paired_differences(*etas)
    assert known.n_exact(*clouds, tol=1e-9 * np.abs(points).max()) == known.n_pairs == n
    np.testing.assert_allclose(unknown.differences, known.differences * (1 - t))
    assert repr(known) == f"PairedDifferences({n} pairs, 3 features)"


def test_positions_and_rows_from_costs():
    rng = np.random.default_rng(0)
    rows, anchors = rng.normal(size=(30, 5)), rng.normal(size=(9, 5)) + 3
    plan, fractions = optimal_plan(DiscreteMeasure(rows), gauss(25, 5, 2.0)), [0.25, 0.5, 0.75]
    costs = [cdist(interpolate(plan, s).points, anchors, "sqeuclidean") for s in fractions]
    for first in (0, 1):
        found = rows_from_cost_matrices(fractions[first:], costs[first:], anchors)
        np.testing.assert_allclose(found.rows, rows, atol=1e-12)
        assert found.method == "trilateration in 5 of 5 dimensions"
    # Few anchors give the projection on their span.
    few = anchors[:4]
    located, n_dimensions = positions_from_distances(cdist(rows, few, "sqeuclidean"), few)
    assert n_dimensions == 3
    np.testing.assert_allclose((located - rows) @ (few[1:] - few[0]).T, 0, atol=1e-12)
    with pytest.raises(ValueError, match="two different values"):
        rows_from_cost_matrices([0.5, 0.5], costs[:2], anchors)
    with pytest.raises(ValueError, match="squared_distances has shape"):
        rows_from_cost_matrices(fractions, costs, anchors[:-1])


EYE = DiscreteMeasure(np.eye(3))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: rows_from_interpolation(EYE, EYE, 1.0), "t=1.0 must be"),
        (lambda: rows_from_interpolation(EYE, EYE, 0.5, interpolation="no"), "interpolation='no'"),
        (lambda: rows_from_interpolation(EYE, EYE, 0.5, max_plans=0), "max_plans=0"),
        (lambda: rows_from_one_round(EYE, EYE, EYE, 1), "t=1 must be"),
        (lambda: paired_differences(EYE, EYE, 1), "t=1 must be"),
    ],
)
def test_wrong_parameters(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_errors_of_a_reconstruction():
    found = Reconstruction(rows=np.array([[0.0, 0.0], [3.0, 4.0]]), t=0.25, error_bound=0.5)
    truth = [[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]
    np.testing.assert_allclose(found.row_errors(truth), [0, 0, np.sqrt(0.5)])
    assert found.rmse(truth) == pytest.approx(np.sqrt(0.5 / 3))
    assert (found.n_exact(truth), found.n_exact(truth, tol=1.0)) == (2, 3)
    assert repr(found) == "Reconstruction(2 rows, 2 features, t=0.25, error_bound=0.5)"
    with pytest.raises(ValueError, match="truth has shape"):
        found.rmse([[1.0]])


@pytest.mark.parametrize(("m", "k"), [(40, 40), (40, 50), (50, 40)])
def test_exact_interpolation(m, k):
    X = some_rows("iris", m)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)  # so that all are different
    masses = np.random.default_rng(1).uniform(0.5, 1.5, m)
    gamma = gauss(k, 4, 2.0)
    eta = sent(X, gamma, 0.6, masses=masses, kind="exact")
    assert eta.n_points > m  # rows were split
    for t in (0.6, None):  # copies of a row tell t
        found = rows_from_interpolation(eta, gamma, t, interpolation="exact")
        np.testing.assert_allclose(found.rows, X, atol=1e-12)
        np.testing.assert_allclose(found.masses, masses / masses.sum(), rtol=1e-9)
        assert found.n_plans == 2
