"""Measures, plans against POT and duality, and measures between measures."""

import math

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist

from skdpot.ot.measures import DiscreteMeasure, gaussian_reference, labelled_measure
from skdpot.ot.plans import interpolate, optimal_plan, plan_from_costs, squared_distances

quick = settings(max_examples=150, deadline=None)


@st.composite
def measures(draw, n_measures=2, max_points=8, weighted=True):
    """Measures in the same space; integer coordinates make ties and duplicates likely."""
    n_features = draw(st.integers(1, 3))
    number = st.floats(-10, 10).map(lambda x: round(x, 2)) | st.integers(0, 2).map(float)
    found = []
    for _ in range(n_measures):
        n = draw(st.integers(1, max_points))
        points = draw(arrays(float, (n, n_features), elements=number))
        masses = None
        if weighted and draw(st.booleans()):
            masses = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any))
        found.append(DiscreteMeasure(points, masses))
    return tuple(found)


def cost_of(source, target):
    return cdist(source.points, target.points, "sqeuclidean")


def check_plan(plan):
    """Feasible, tight and of the value that POT finds: together the definition of optimal."""
    source, target = plan.source, plan.target
    cost = cost_of(source, target)
    rounding = 1e-13 * max(cost.max(), 1e-300)
    unit = cost.max() or 1.0  # the tolerances of POT are absolute
    reference = unit * ot.emd2(source.weights, target.weights, cost / unit, numItermax=10**7)
    assert plan.squared_distance == pytest.approx(reference, rel=1e-9, abs=10 * rounding)
    assert plan.distance == math.sqrt(plan.squared_distance)
    matrix = plan.matrix.toarray()
    assert plan.masses.min() > 0
    np.testing.assert_allclose(matrix.sum(axis=1), source.weights, atol=1e-14)
    np.testing.assert_allclose(matrix.sum(axis=0), target.weights, atol=1e-14)
    assert len(plan.rows) <= source.n_points + target.n_points - 1
    f, g = plan.source_potential, plan.target_potential
    slack = cost - f[:, None] - g
    assert slack.min() >= -rounding
    assert np.abs(slack[plan.rows, plan.columns]).max() <= 10 * rounding
    worth = source.weights @ f + target.weights @ g
    assert abs(plan.squared_distance - worth) <= 10 * rounding
    assert source.weights @ f == pytest.approx(target.weights @ g, abs=10 * rounding)
    return matrix


@pytest.mark.slow
@given(pair=measures(), unit=st.sampled_from([1.0, 1e-6, 1e3, 1e-40, 1e40]))
@quick
def test_exact_plans_are_certified_optimal_in_any_unit(pair, unit):
    check_plan(optimal_plan(*(DiscreteMeasure(m.points * unit, m.masses) for m in pair)))
    plan = optimal_plan(*pair)
    matrix = check_plan(plan)
    cost = cost_of(*pair)
    coupling = plan_from_costs(cost, *(measure.masses for measure in pair))
    assert coupling.squared_distance == pytest.approx(plan.squared_distance, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(coupling.matrix.toarray().sum(axis=0), plan.target.weights)
    # Prices are not unique where there are ties: those of either plan certify it.
    slack = cost - coupling.source_potential[:, None] - coupling.target_potential
    assert slack.min() >= -1e-12 * max(cost.max(), 1.0)
    sums = matrix.sum(axis=1)
    with_mass = sums > 0
    expected = matrix[with_mass] @ plan.target.points / sums[with_mass, None]
    np.testing.assert_allclose(plan.barycenters()[with_mass], expected, atol=1e-13)
    assert plan.is_map == (with_mass.all() and np.all((matrix > 0).sum(axis=1) == 1))


@pytest.mark.parametrize(("n", "m"), [(60, 60), (60, 45), (1, 30), (30, 1), (1, 1)])
@pytest.mark.parametrize("n_features", [1, 20])
def test_clouds(n, m, n_features):
    rng = np.random.default_rng(n + m)
    first = DiscreteMeasure(rng.normal(size=(n, n_features)))
    second = DiscreteMeasure(rng.normal(size=(m, n_features)) + 1, rng.random(m))
    check_plan(optimal_plan(first, second))
    check_plan(optimal_plan(second, first))


def test_points_without_mass_get_the_price_of_their_first_crumb():
    rng = np.random.default_rng(3)
    points, target = rng.normal(size=(9, 2)), DiscreteMeasure(rng.normal(size=(7, 2)))
    masses = rng.random(9)
    masses[4] = 0.0
    plan = optimal_plan(DiscreteMeasure(points, masses), target)
    crumb = masses / masses.sum()
    crumb[4] = 1e-7
    other = optimal_plan(DiscreteMeasure(points, crumb), target)
    growth = (other.squared_distance - plan.squared_distance) / 1e-7
    f = plan.source_potential
    shift = plan.source.weights @ f  # the others gave the mass in proportion to theirs
    assert growth == pytest.approx(f[4] - shift, rel=1e-4)
    first = other.columns[other.rows == 4][0]
    np.testing.assert_array_equal(plan.barycenters()[4], target.points[first])


def test_a_point_without_mass_goes_where_it_would_be_shipped_not_to_the_nearest():
    source = DiscreteMeasure([[0.0], [1.0], [1.2]], [1, 1, 0])
    plan = optimal_plan(source, DiscreteMeasure([[5.0], [6.0]]))
    np.testing.assert_array_equal(plan.barycenters(), [[5.0], [6.0], [6.0]])


@pytest.mark.filterwarnings("ignore:numItermax reached")
def test_a_solver_that_gives_up_is_an_error(monkeypatch):
    monkeypatch.setattr("skdpot.ot.transport._MAX_PIVOTS", 1)
    rng = np.random.default_rng(7)
    with pytest.raises(RuntimeError, match="stopped early"):
        plan_from_costs(rng.random((30, 30)))


def in_extended_precision(X, Y):
    X, Y = X.astype(np.longdouble), Y.astype(np.longdouble)
    return ((X[:, None] - Y) ** 2).sum(axis=2)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("share_of_copies", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("n_features", [1, 30, 400])
def test_squared_distances_are_good_to_twelve_digits(offset, share_of_copies, n_features):
    """Distances of all sizes, from those of copies with noise of 1e-8 on."""
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(60, n_features)) + offset
    Y = rng.normal(size=(50, n_features)) + offset
    copies = int(50 * share_of_copies)
    Y[:copies] = X[:copies] + 10.0 ** rng.uniform(-8, 0, size=(copies, 1))
    exact = in_extended_precision(X, Y)
    np.testing.assert_allclose(squared_distances(X, Y), exact.astype(float), rtol=1e-12)
    assert np.all(np.diag(squared_distances(X, X)) == 0)


# Measures between measures.

FRACTIONS = [0.0, 0.1, 0.5, 0.9, 1.0]


def close(value, scale, pair):
    # Squared distances are good to rounding, so distances to its root when they are 0; and points
    # in between are rounded themselves.
    points = 4e-16 * max(np.abs(measure.points).max() for measure in pair)
    return pytest.approx(value, rel=1e-9, abs=3e-8 * scale + points)


@pytest.mark.slow
@given(pair=measures(), t=st.sampled_from(FRACTIONS) | st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_exact_interpolation_lies_on_a_geodesic(pair, t):
    plan = optimal_plan(*pair)
    middle = interpolate(plan, t, kind="exact")
    scale = max(plan.distance, 1e-9)
    assert optimal_plan(plan.source, middle).distance == close(t * plan.distance, scale, pair)
    assert optimal_plan(middle, plan.target).distance == close((1 - t) * plan.distance, scale, pair)
    assert middle.n_points <= plan.source.n_points + plan.target.n_points - 1


@pytest.mark.slow
@given(pair=measures(), t=st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_barycentric_interpolation_stays_nearer_to_the_source(pair, t):
    plan = optimal_plan(*pair)
    middle = interpolate(plan, t)
    assert middle.n_points == plan.source.n_points
    np.testing.assert_allclose(middle.weights, plan.source.weights)
    distance = optimal_plan(plan.source, middle).distance
    assert distance <= t * plan.distance * (1 + 1e-9) + 1e-7
    # The mean moves all the way, because means of means are means.
    means = [m.weights @ m.points for m in (plan.source, middle, plan.target)]
    np.testing.assert_allclose(means[1], (1 - t) * means[0] + t * means[2], atol=1e-12)


@pytest.mark.parametrize("t", FRACTIONS)
@pytest.mark.parametrize("n_features", [1, 3, 30])
def test_both_kinds_agree_between_equally_many_points(n_features, t):
    rng = np.random.default_rng(n_features)
    clouds = [DiscreteMeasure(rng.normal(size=(40, n_features))) for _ in range(2)]
    plan = optimal_plan(*clouds)
    assert plan.is_map
    exact, barycentric = (interpolate(plan, t, kind=kind) for kind in ("exact", "barycentric"))
    np.testing.assert_array_equal(exact.points, barycentric.points)
    assert exact.masses is None
    expected = (1 - t) * clouds[0].points + t * clouds[1].points[plan.columns]
    np.testing.assert_array_equal(exact.points, expected)


def test_kinds_differ_when_points_are_split():
    plan = optimal_plan(DiscreteMeasure([[0.0]]), DiscreteMeasure([[-1.0], [3.0]], [3, 1]))
    exact = interpolate(plan, 0.5, kind="exact")
    np.testing.assert_array_equal(exact.points, [[-0.5], [1.5]])
    np.testing.assert_allclose(exact.weights, [0.75, 0.25])
    np.testing.assert_allclose(interpolate(plan, 0.5).points, [[0.0]], atol=1e-16)


def test_arrays_are_copied_and_locked():
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


def test_full_covariance_is_the_symmetric_root():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 3)), np.repeat(list("bac"), [12, 7, 1])
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


POINTS = [DiscreteMeasure(np.zeros((2, n_features))) for n_features in (2, 3)]
SAME = optimal_plan(*POINTS[:1] * 2)
TABLE = np.zeros((3, 2))


def drawn(n_support, n_features, scale=1.0):
    return gaussian_reference(n_support, n_features, scale=scale, rng=np.random.default_rng(0))


REFUSED = [
    (lambda: plan_from_costs([1.0, 2.0]), r"shape \(2,\)"),
    (lambda: plan_from_costs(np.zeros((0, 2))), r"shape \(0, 2\)"),
    (lambda: plan_from_costs([[-1.0]]), "not negative"),
    (lambda: plan_from_costs([[np.nan, 1.0]]), "finite"),
    (lambda: plan_from_costs([[np.inf]]), "finite"),
    (lambda: plan_from_costs([[1.0]], source_masses=[1, 2]), "source_masses"),
    (lambda: plan_from_costs([[1.0]], target_masses=[-1]), "target_masses"),
    (lambda: optimal_plan(*POINTS), "2 features and the target 3"),
    (lambda: interpolate(SAME, -0.1), r"a fraction in \[0, 1\]"),
    (lambda: interpolate(SAME, np.nan), r"a fraction in \[0, 1\]"),
    (lambda: interpolate(SAME, 0.5, kind="linear"), "kind='linear'"),
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
