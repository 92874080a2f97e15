"""Data values: derivatives of the distance, exact potentials on the line, noise that is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.data_values import DataValues, calibrated_values, sliced_potential, sliced_values
from skdpot.ot.measures import DiscreteMeasure
from skdpot.ot.plans import optimal_plan
from skdpot.ot.slices import CDFTable


def test_calibration_by_its_definition():
    f, weights = np.random.default_rng(0).normal(size=(2, 9))
    for masses in (None, weights**2):
        a = np.full(9, 1 / 9) if masses is None else masses / masses.sum()
        others = [np.delete(np.arange(9), k) for k in range(9)]
        expected = [f[k] - a[rest] @ f[rest] / (1 - a[k]) for k, rest in enumerate(others)]
        for shift in (0, 5):
            np.testing.assert_allclose(calibrated_values(f + shift, masses), expected, rtol=1e-9)
    # A row with all the mass has value zero.
    np.testing.assert_array_equal(calibrated_values([3.0]), [0.0])
    np.testing.assert_allclose(calibrated_values([3.0, 5.0], [1, 0]), [0.0, 2.0])


def moved_mass(masses, row, amount):
    """`amount` more for one row, taken from the others in proportion."""
    rest = 1 - masses[row]
    changed = masses * (1 - amount / rest)
    changed[row] = masses[row] + amount
    return changed


def derivatives(cost, masses, step):
    """Return how fast a cost grows when a row gains mass."""
    ends = [[cost(moved_mass(masses, row, h)) for h in (step, -step)] for row in range(len(masses))]
    return np.subtract(*np.transpose(ends)) / (2 * step)


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
    assert masses @ f == pytest.approx(0.0, abs=1e-12)
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


def test_values_are_the_derivatives_of_the_squared_distances():
    rng = np.random.default_rng(4)
    rows, masses = rng.normal(size=(6, 3)), rng.dirichlet(np.full(6, 5.0))
    target = DiscreteMeasure(rng.normal(size=(11, 3)), rng.random(11))

    def plan(given):
        return optimal_plan(DiscreteMeasure(rows, given), target)

    values = calibrated_values(plan(masses).source_potential, masses)
    due = derivatives(lambda given: plan(given).squared_distance, masses, 1e-6)
    np.testing.assert_allclose(values, due, rtol=1e-6, atol=1e-8)
    table = random_table(rng)
    values = sliced_values(rows, table, masses=masses)
    due = derivatives(lambda given: weighted_squared_distance(rows, table, given), masses, 1e-2)
    np.testing.assert_allclose(values, due, atol=2e-2)


def test_rows_are_ranked_with_ties_in_order():
    given_values = np.array([1.0, 3.0, -2.0, 3.0, 1.0])
    values = DataValues(given_values)
    given_values[:] = 0
    np.testing.assert_array_equal(values.noisiest(5), [1, 3, 0, 4, 2])
    np.testing.assert_array_equal(values.most_valuable(5), [2, 0, 4, 1, 3])
    inspected, found = values.detection_curve([True, False, False, True, False])
    np.testing.assert_allclose(inspected, [0, 0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_array_equal(found, [0, 0, 0.5, 1, 1, 1])
    with pytest.raises(ValueError, match="read-only"):
        values.values[0] = 1.0


THREE, TABLE = DataValues([1.0, 2.0, 3.0]), random_table(np.random.default_rng(8))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: THREE.noisiest(-1), "n=-1"),
        (lambda: THREE.most_valuable(4), "n=4"),
        (lambda: THREE.detection_curve([True]), "shape"),
        (lambda: THREE.detection_curve([1, 0, 0]), "dtype"),
        (lambda: THREE.detection_curve([False] * 3), "nothing to find"),
        (lambda: DataValues([]), "finite number"),
        (lambda: DataValues([np.nan]), "finite number"),
        (lambda: calibrated_values([]), "potential"),
        (lambda: calibrated_values([1.0, 2.0], [1.0]), "masses"),
        (lambda: sliced_values(np.zeros(3), TABLE), r"rows has shape \(3,\)"),
        (lambda: sliced_values(np.zeros((2, 4)), TABLE), r"\(n_rows, 3\)"),
        (lambda: sliced_values(np.zeros((2, 3)), TABLE, masses=[1.0]), "masses"),
    ],
)
def test_what_does_not_fit_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
