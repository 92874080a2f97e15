"""Data values: derivatives of the distance, exact potentials on the line, noise that is found."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from skdpot import SlicedSketch
from skdpot.federated.valuation import (
    DataValues,
    calibrated_values,
    sliced_potential,
    sliced_values,
)
from skdpot.ot.measures import (
    DiscreteMeasure,
    gaussian_reference,
    interpolate,
    optimal_plan,
    plan_from_costs,
)
from skdpot.ot.slices import CDFTable


@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_by_its_definition(weighted):
    rng = np.random.default_rng(0)
    f, masses = rng.normal(size=9), rng.random(9) if weighted else None
    a = np.full(9, 1 / 9) if masses is None else masses / masses.sum()
    expected = [f[k] - sum(a[j] * f[j] for j in range(9) if j != k) / (1 - a[k]) for k in range(9)]
    np.testing.assert_allclose(calibrated_values(f, masses), expected, rtol=1e-12)
    np.testing.assert_allclose(calibrated_values(f + 5, masses), expected, rtol=1e-9)


def test_calibration_of_the_paper_for_equal_masses():
    f = np.array([1.0, 4.0, -2.0])
    np.testing.assert_allclose(calibrated_values(f), [0.0, 4.5, -4.5], atol=1e-14)


def test_a_row_with_all_the_mass_has_value_zero():
    np.testing.assert_array_equal(calibrated_values([3.0]), [0.0])
    np.testing.assert_allclose(calibrated_values([3.0, 5.0], [1, 0]), [0.0, 2.0])


@pytest.mark.parametrize(
    ("potential", "masses"), [([], None), ([[1.0]], None), ([1.0, 2.0], [1.0]), ([1.0], [-1.0])]
)
def test_potentials_that_do_not_fit(potential, masses):
    with pytest.raises(ValueError, match="potential|masses"):
        calibrated_values(potential, masses)


def moved_mass(masses, row, amount):
    """`amount` more for one row, taken from the others in proportion."""
    rest = 1 - masses[row]
    changed = masses * (1 - amount / rest)
    changed[row] = masses[row] + amount
    return changed


def test_values_are_the_derivatives_of_the_squared_distance():
    rng = np.random.default_rng(1)
    X, target = rng.normal(size=(7, 3)), DiscreteMeasure(rng.normal(size=(11, 3)), rng.random(11))
    masses = rng.dirichlet(np.full(7, 5.0))
    values = calibrated_values(
        optimal_plan(DiscreteMeasure(X, masses), target).source_potential, masses
    )
    for row in range(7):
        ends = [
            optimal_plan(DiscreteMeasure(X, moved_mass(masses, row, h)), target).squared_distance
            for h in (1e-6, -1e-6)
        ]
        assert values[row] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_values_of_equal_masses_are_between_the_slopes_of_the_kink():
    """Equally many points of equal mass: the potential is one of many, each a subgradient."""
    rng = np.random.default_rng(2)
    X, target = rng.normal(size=(12, 3)), DiscreteMeasure(rng.normal(size=(12, 3)))
    plan = optimal_plan(DiscreteMeasure(X), target)
    values = calibrated_values(plan.source_potential)
    for row in range(12):
        left, right = (
            (
                optimal_plan(
                    DiscreteMeasure(X, moved_mass(np.full(12, 1 / 12), row, h)), target
                ).squared_distance
                - plan.squared_distance
            )
            / h
            for h in (-1e-7, 1e-7)
        )
        assert left - 1e-5 <= values[row] <= right + 1e-5


# The sketch's side: one-dimensional potentials.


def random_table(rng, n_projections=4, n_features=3, n_bins=9, flats=False):
    directions = rng.normal(size=(n_projections, n_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    steps = rng.random((n_projections, n_bins)) + 0.05
    if flats:
        steps *= rng.random((n_projections, n_bins)) < 0.5
        steps[:, n_bins // 2] += 0.1
    cdf = np.concatenate([np.zeros((n_projections, 1)), np.cumsum(steps, axis=1)], axis=1)
    return CDFTable(directions, rng.uniform(1, 2, n_projections), cdf / cdf[:, -1:])


def weighted_squared_distance(rows, table, masses, n_levels=200_000):
    """SW₂² by quantiles at the middles of many levels; neither sorted prices nor duality."""
    levels = (np.arange(n_levels) + 0.5) / n_levels
    total = 0.0
    for k, direction in enumerate(table.directions):
        u = rows @ direction
        order = np.argsort(u)
        steps = np.cumsum(masses[order])
        mine = u[order][np.minimum(np.searchsorted(steps, levels), len(u) - 1)]
        total += np.mean((mine - table.quantiles_along(k, levels)) ** 2)
    return total / len(table.directions)


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 12),
    ties=st.booleans(),
    flats=st.booleans(),
    weighted=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_potentials_are_certified_by_duality(seed, n, ties, flats, weighted):
    """Prices f and their c-transform g are feasible by construction; equal worth is optimal."""
    rng = np.random.default_rng(seed)
    table = random_table(rng, n_projections=1, n_features=1, flats=flats)
    table = CDFTable(np.ones((1, 1)), table.half_widths, table.cdf)
    rows = rng.normal(size=(n, 1)).round(1 if ties else 15)
    masses = rng.random(n) * (rng.random(n) < 0.7) + np.eye(n)[0] if weighted else np.ones(n)
    masses /= masses.sum()
    f = sliced_potential(rows, table, masses=masses)
    levels = (np.arange(20_000) + 0.5) / 20_000
    borders = np.cumsum(masses[np.argsort(rows[:, 0], kind="stable")])[:-1]
    levels = np.append(levels, np.clip(borders, np.finfo(float).tiny, 1.0))
    y = table.quantiles_along(0, levels)  # where two neighbours touch is among them
    g = np.min((rows - y) ** 2 - f[:, None], axis=0)
    worth = masses @ f + g[:20_000].mean()
    assert worth == pytest.approx(weighted_squared_distance(rows, table, masses, 20_000), abs=2e-3)
    if not weighted:
        exact = table.squared_distances_to_sample(rows.T)[0]
        assert worth == pytest.approx(exact, rel=1e-4, abs=1e-4)
    # No price can be raised: each touches somewhere in the support, if only with a crumb.
    touching = np.min((rows - y) ** 2 - g - f[:, None], axis=1)
    np.testing.assert_allclose(touching, 0.0, atol=2e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_potentials_against_duals_of_pot_on_ever_finer_atoms(weighted):
    """The error falls like the distance between atoms, as that of the discretisation does."""
    rng = np.random.default_rng(3)
    table = random_table(rng, n_projections=1, n_features=1)
    table = CDFTable(np.ones((1, 1)), table.half_widths, table.cdf)
    rows = rng.normal(size=(8, 1))
    masses = rng.random(8) + 0.1 if weighted else np.ones(8)
    found = sliced_values(rows, table, masses=masses)
    errors = []
    for n_atoms in (101, 1001):
        atoms = table.quantiles_along(0, (np.arange(n_atoms) + 0.5) / n_atoms)
        plan = plan_from_costs((rows - atoms) ** 2, masses)
        errors.append(np.abs(calibrated_values(plan.source_potential, masses) - found).max())
    assert errors[0] < 0.1
    assert errors[1] < 0.2 * errors[0]


def test_values_are_the_derivatives_of_the_squared_sliced_distance():
    rng = np.random.default_rng(4)
    table, rows = random_table(rng), rng.normal(size=(6, 3))
    masses = rng.dirichlet(np.full(6, 5.0))
    values = sliced_values(rows, table, masses=masses)
    for row in range(6):
        ends = [
            weighted_squared_distance(rows, table, moved_mass(masses, row, h))
            for h in (1e-2, -1e-2)
        ]
        assert values[row] == pytest.approx((ends[0] - ends[1]) / 2e-2, abs=2e-2)


def test_sliced_values_of_one_row_and_of_equal_rows():
    table = random_table(np.random.default_rng(5))
    np.testing.assert_array_equal(sliced_values([[1.0, 2.0, 3.0]], table), [0.0])
    values = sliced_values([[1.0, 2.0, 3.0]] * 2 + [[0.0, 0.0, 0.0]], table)
    assert values[0] == values[1]


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(6)
    table, rows, masses = random_table(rng), rng.normal(size=(10, 3)), rng.random(10)
    order = rng.permutation(10)
    found = sliced_values(rows[order], table, masses=masses[order])
    np.testing.assert_allclose(found, sliced_values(rows, table, masses=masses)[order], atol=1e-12)


def test_a_potential_has_mean_zero():
    rng = np.random.default_rng(7)
    table, rows, masses = random_table(rng), rng.normal(size=(10, 3)), rng.random(10)
    assert masses @ sliced_potential(rows, table, masses=masses) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "masses", "text"),
    [
        (np.zeros(3), None, r"rows has shape \(3,\)"),
        (np.zeros((0, 3)), None, r"rows has shape \(0, 3\)"),
        (np.zeros((2, 4)), None, r"\(n_rows, 3\)"),
        (np.full((2, 3), np.nan), None, "finite"),
        (np.zeros((2, 3)), [1.0], "masses"),
    ],
)
def test_rows_that_do_not_fit_the_table(rows, masses, text):
    with pytest.raises(ValueError, match=text):
        sliced_values(rows, random_table(np.random.default_rng(8)), masses=masses)


# What the values are for.


def digits(noise):
    """Clean rows of one party, and rows of another of which 15 % are noisy."""
    X = load_digits().data / 16
    rng = np.random.default_rng(9)
    order = rng.permutation(len(X))
    noisy = np.arange(300) < 45
    rows = X[order[1200:1500]].copy()
    rows[noisy] += noise * rng.normal(size=(45, 64))
    return X[order[:1200]], rows, noisy


def triangle_auc(scale, t):
    private, rows, noisy = digits(noise=0.3)
    gamma = gaussian_reference(300, 64, scale=scale, rng=np.random.default_rng(10))
    measures = [DiscreteMeasure(rows), DiscreteMeasure(private[:300])]
    etas = [interpolate(optimal_plan(measure, gamma), t) for measure in measures]
    return roc_auc_score(noisy, calibrated_values(optimal_plan(*etas).source_potential))


def test_interpolating_measures_show_noisy_rows_where_they_hide_nothing():
    assert triangle_auc(0.1, 0.1) > 0.95
    assert triangle_auc(0.1, 0.5) > 0.95


def test_but_not_where_the_reference_decides_the_pairing():
    """The paper's figure 3 has a single setting; at others nothing is found."""
    assert triangle_auc(1.0, 0.9) < 0.7
    assert triangle_auc(5.0, 0.5) < 0.7


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_a_sketch_shows_noisy_rows(epsilon):
    """At epsilon = 1 the area was 1.000 in each of 200 sketches: 0.9 is not met by chance."""
    private, rows, noisy = digits(noise=0.6)
    sketch = SlicedSketch(epsilon, bounds=(0, 1)).fit(private)
    mapped = (rows - sketch.bounds_.center) / sketch.bounds_.scale
    values = sliced_values(mapped, sketch.table())
    assert roc_auc_score(noisy, values) > 0.9
    inspected, found = DataValues(values).detection_curve(noisy)
    assert found[np.searchsorted(inspected, 0.5)] > 0.9


# The container.


def test_rows_are_ranked_with_ties_in_order():
    values = DataValues([1.0, 3.0, -2.0, 3.0, 1.0])
    np.testing.assert_array_equal(values.noisiest(5), [1, 3, 0, 4, 2])
    np.testing.assert_array_equal(values.most_valuable(5), [2, 0, 4, 1, 3])
    assert len(values.noisiest(0)) == 0
    for method in (values.noisiest, values.most_valuable):
        for n in (-1, 6):
            with pytest.raises(ValueError, match=f"n={n}"):
                method(n)


def test_detection_curve():
    values = DataValues([4.0, 3.0, 2.0, 1.0])
    inspected, found = values.detection_curve([True, False, True, False])
    np.testing.assert_array_equal(inspected, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(found, [0, 0.5, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("is_noisy", "text"),
    [([True], "shape"), ([1, 0, 0], "dtype"), ([False] * 3, "nothing to find")],
)
def test_marks_that_do_not_fit(is_noisy, text):
    with pytest.raises(ValueError, match=text):
        DataValues([1.0, 2.0, 3.0]).detection_curve(is_noisy)


def test_to_frame():
    frame = DataValues([1.0, 3.0, -2.0]).to_frame()
    expected = pd.DataFrame({"value": [1.0, 3.0, -2.0], "noise_rank": [1, 0, 2]})
    pd.testing.assert_frame_equal(frame, expected)


def test_values_are_copied_locked_and_not_shown():
    given_values = np.array([0.123, 4.567])
    values = DataValues(given_values)
    given_values[:] = 0
    assert values.values[1] == 4.567
    assert repr(values) == "DataValues(2 rows)"
    with pytest.raises(ValueError, match="read-only"):
        values.values[0] = 1.0


@pytest.mark.parametrize("values", [[], [[1.0]], [np.nan], [np.inf]])
def test_values_that_are_refused(values):
    with pytest.raises(ValueError, match="finite number a row"):
        DataValues(values)
