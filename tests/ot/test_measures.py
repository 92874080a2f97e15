"""Measures: what they hold, what they refuse, and labels as coordinates."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, labelled_measure


def test_arrays_are_copied_and_locked():
    uniform = DiscreteMeasure([[1, 2, 3], [4, 5, 6]])
    assert uniform.masses is None
    assert (uniform.n_points, uniform.n_features) == (2, 3)
    np.testing.assert_array_equal(uniform.weights, [0.5, 0.5])
    weighted = DiscreteMeasure(np.zeros((3, 1)), [3, 0, 1])
    np.testing.assert_array_equal(weighted.weights, [0.75, 0.0, 0.25])
    assert repr(weighted) == "DiscreteMeasure(3 points, 1 features, weighted)"
    points, masses = np.ones((2, 2)), np.array([0.5, 0.5])
    measure = DiscreteMeasure(points, masses)
    points[:], masses[:] = 7.0, 7.0
    assert measure.points.max() == 1.0
    assert measure.weights.max() == 0.5
    for array in (measure.points, measure.masses):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0
    with pytest.raises(AttributeError, match="cannot assign"):
        measure.points = points


def test_reference_has_the_moments_asked_for():
    centre = np.array([-3.0, 5.0])
    rng = np.random.default_rng(0)
    reference = gaussian_reference(40_000, 2, mean=centre, scale=2.0, rng=rng)
    assert reference.masses is None
    np.testing.assert_allclose(reference.points.mean(axis=0), centre, atol=0.05)  # 5 deviations
    np.testing.assert_allclose(reference.points.std(axis=0), 2.0, atol=0.04)


@pytest.fixture
def labelled():
    rng = np.random.default_rng(1)
    y = np.repeat(["b", "a", "c"], [12, 7, 1])
    return rng.normal(size=(20, 3)) @ rng.normal(size=(3, 3)), y


def test_full_covariance_is_the_symmetric_root(labelled):
    X, y = labelled
    lifted = labelled_measure(X, y)
    assert lifted.n_features == 3 + 3 + 9
    np.testing.assert_array_equal(lifted.points[:, :3], X)
    for label in ("a", "b"):
        rows = lifted.points[y == label]
        assert len(np.unique(rows[:, 3:], axis=0)) == 1
        np.testing.assert_allclose(rows[0, 3:6], X[y == label].mean(axis=0))
        root = rows[0, 6:].reshape(3, 3)
        np.testing.assert_allclose(root, root.T, atol=1e-14)
        assert np.linalg.eigvalsh(root).min() > 0
        np.testing.assert_allclose(root, sqrtm(np.cov(X[y == label].T, bias=True)), atol=1e-12)
    np.testing.assert_array_equal(lifted.points[-1], np.concatenate([X[-1], X[-1], np.zeros(9)]))
    diagonal = labelled_measure(X, y, covariance="diagonal")
    assert diagonal.n_features == 9
    np.testing.assert_allclose(diagonal.points[0, 6:], X[y == "b"].std(axis=0))


def test_masses_weigh_the_moments():
    X, y = np.array([[0.0], [1.0], [5.0]]), [0, 0, 1]
    weighted = labelled_measure(X, y, masses=[3, 1, 2])
    repeated = labelled_measure(X[[0, 0, 0, 1, 2]], [0, 0, 0, 0, 1])
    np.testing.assert_allclose(weighted.points[0], repeated.points[0])
    np.testing.assert_allclose(weighted.weights, [0.5, 1 / 6, 1 / 3])


def test_class_without_mass_has_unweighted_moments():
    lifted = labelled_measure([[0.0], [2.0], [5.0]], [0, 0, 1], masses=[0, 0, 1])
    np.testing.assert_allclose(lifted.points[0], [0.0, 1.0, 1.0])


def drawn(n_support, n_features, scale=1.0):
    return gaussian_reference(n_support, n_features, scale=scale, rng=np.random.default_rng(0))


TABLE = np.zeros((3, 2))
REFUSED = [
    *(
        (lambda points=points: DiscreteMeasure(points), text)
        for points, text in (
            ([1.0, 2.0], r"shape \(2,\)"),
            (np.zeros((0, 3)), r"shape \(0, 3\)"),
            (np.zeros((3, 0)), r"shape \(3, 0\)"),
            ([[1e151]], r"at most 1e\+150"),
            *(
                (bad, "must hold finite numbers")
                for bad in ([[1, np.nan]], [[1, -np.inf]], [["4711"]], [[1], [1, 4711.0]], [[1j]])
            ),
        )
    ),
    *(
        (lambda masses=masses: DiscreteMeasure([[0.0], [1.0]], masses), "masses")
        for masses in ([1.0], [1.0, -0.5], [0.0, 0.0], [1.0, np.nan])
    ),
    (lambda: drawn(0, 2), "n_support == 0"),
    (lambda: drawn(2, 0), "n_features == 0"),
    (lambda: drawn(2, 2, -1.0), "scale=-1.0"),
    (lambda: drawn(2, 2, np.nan), "scale=nan"),
    (lambda: labelled_measure(TABLE, [0, 1]), "2 labels for 3 rows"),
    (lambda: labelled_measure(TABLE, [0, 1, 0], covariance="none"), "covariance="),
    (lambda: labelled_measure(TABLE, [0, 1, 0], masses=[1, 1]), "masses"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_what_does_not_fit_is_refused_without_a_value(call, text):
    with pytest.raises(ValueError, match=text) as error:
        call()
    assert "4711" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None
