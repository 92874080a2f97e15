"""Strategy matrices: exact on their lattice, as accurate as stated, and their sensitivity."""

import math
import pickle
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz
from scipy.optimize import linprog

from skdpot.ot.directions import make_directions
from skdpot.release import DataBounds
from skdpot.release.projection_counts import count_projections
from skdpot.release.sketch_plan import projection_half_widths
from skdpot.release.strategy import ENERGIES, OPTIMISED_BINS, Energy, Strategy, best_strategy

SIZES = [2, 3, 8, 16, 64, 255, 256, 257, 512]
OPTIMISED = list(product(OPTIMISED_BINS, ENERGIES))


def energy_of(n_features, n_projections, *, box=False, projections="orthogonal"):
    """Energy of rows in a box or a ball."""
    bounds = DataBounds(np.zeros(n_features), np.ones(n_features), 3.0, box)
    rng = np.random.default_rng(n_features)
    directions = make_directions(projections, n_projections, n_features, rng)
    return Energy.of(bounds, directions, projection_half_widths(bounds, directions))


@pytest.mark.parametrize("n_bins", SIZES)
def test_is_the_square_root_of_the_prefix_sums_up_to_the_lattice(n_bins):
    strategy = Strategy(n_bins)
    exact = toeplitz([math.comb(2 * k, k) / 4**k for k in range(n_bins)])
    assert np.abs(strategy.matrix - np.tril(exact)).max() <= strategy.lattice / 2
    prefix_sums = np.tril(np.ones((n_bins, n_bins)))
    np.testing.assert_allclose(np.tril(exact) @ np.tril(exact), prefix_sums, atol=1e-9)


@pytest.mark.parametrize(
    ("n_bins", "energy"), [*((size, None) for size in SIZES), *OPTIMISED], ids=str
)
def test_a_matrix_lies_on_its_lattice_and_is_decoded(n_bins, energy):
    strategy = Strategy(n_bins, energy)
    assert math.frexp(strategy.lattice)[0] == 0.5  # a power of two: products with it are exact
    matrix, integers = strategy.matrix, strategy.integer_matrix
    np.testing.assert_array_equal(matrix / strategy.lattice, integers)
    assert np.abs(matrix).max() <= 1  # what files of sketches are checked by
    np.testing.assert_allclose(
        strategy.decoder @ matrix, np.tril(np.ones((n_bins, n_bins))), atol=1e-9
    )
    for array in (matrix, integers, strategy.decoder, strategy.covariance):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7
    copied = pickle.loads(pickle.dumps(strategy))
    assert copied == strategy
    assert len(pickle.dumps(strategy)) < 200


@pytest.mark.parametrize(("n_bins", "energy"), [(100, 1.0), (64, 0.3), (64, math.nan)])
def test_a_matrix_that_does_not_exist_is_refused(n_bins, energy):
    with pytest.raises(ValueError, match="There is no strategy"):
        Strategy(n_bins, energy)


@given(n_bins=st.integers(2, 40), n_projections=st.integers(1, 300))
@settings(max_examples=40, deadline=None)
def test_sensitivity_is_the_largest_move_of_one_record(n_bins, n_projections):
    """Every pair of bins, with a plain loop; the bound is attained and not exceeded."""
    strategy = best_strategy(n_bins, Energy.unlimited(n_projections))
    A = strategy.matrix
    pairs = [(A[:, a], A[:, b]) for a in range(n_bins) for b in range(n_bins)]
    replaced = max(float(np.sum((first - second) ** 2)) for first, second in pairs)
    reclassed = max(float(np.sum(first**2) + np.sum(second**2)) for first, second in pairs)
    for conditional, worst in ((False, replaced), (True, max(replaced, reclassed))):
        stated = strategy.sensitivity(Energy.unlimited(n_projections), conditional=conditional)
        exact = math.sqrt(n_projections * worst)
        assert exact * (1 - 1e-15) <= stated <= exact * (1 + 1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_bins_of_limited_energy_move_the_statistic_further(data):
    """Bins of all slices drawn at will and shortened to the limit, for two records."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n_bins = data.draw(st.sampled_from([2, 3, 16, 17, 32, 64]))
    name = data.draw(st.sampled_from([None, *ENERGIES] if n_bins in OPTIMISED_BINS else [None]))
    weights = rng.choice([0.0, *rng.random(3)], size=data.draw(st.integers(1, 12)))
    energy = Energy(weights, float(rng.random() * weights.sum()))
    strategy, largest = Strategy(n_bins, name), {False: 0.0, True: 0.0}
    gram = strategy.matrix.T @ strategy.matrix
    edges = np.abs(np.linspace(-1, 1, n_bins + 1))
    inside = np.minimum(edges[:-1], edges[1:])
    if n_bins % 2:
        inside[n_bins // 2] = 0
    for spread in np.geomspace(0.05, 5, 40):
        bins = rng.integers(0, n_bins, (2, len(weights)))
        if rng.random() < 0.7:  # opposite records
            middle = np.clip(rng.normal(0, spread, len(weights)), -1, 1)
            bins = np.clip(((1 + np.array([middle, -middle])) / 2 * n_bins), 0, n_bins - 1)
            bins = bins.astype(int)
        for record in bins:
            while weights @ inside[record] ** 2 > energy.limit:
                slice_ = rng.choice(np.flatnonzero(weights * inside[record]))
                record[slice_] += 1 if record[slice_] < n_bins / 2 else -1
        first, second = gram[bins[0], bins[0]], gram[bins[1], bins[1]]
        apart = first + second - 2 * gram[bins[0], bins[1]]
        largest[False] = max(largest[False], apart.sum())
        largest[True] = max(largest[True], apart.sum(), (first + second).sum())
    for conditional, squared in largest.items():
        assert squared <= strategy.sensitivity(energy, conditional=conditional) ** 2


@pytest.mark.parametrize("n_bins", OPTIMISED_BINS)
def test_the_bound_of_limited_energy_is_the_best_one(n_bins):
    """Shares of slices with pairs of bins, of mean energy at most twice the limit, attain it.

    This is the linear programme whose dual the bound is, solved by scipy.
    """
    strategy, energy = Strategy(n_bins, ENERGIES[1]), energy_of(10, 20)
    changes, energies = strategy._changes
    limit = 2 * energy.limit / energy.weights.sum()
    found = linprog(
        -changes, A_ub=energies[None], b_ub=[limit], A_eq=np.ones((1, len(changes))), b_eq=[1]
    )
    attained = strategy.lattice * math.sqrt(-found.fun * len(energy.weights))
    assert strategy.sensitivity(energy) == pytest.approx(attained, rel=1e-4)
    assert strategy.sensitivity(energy) >= attained * (1 - 1e-9)


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("projections", ["axes+orthogonal", "orthogonal", "uniform"])
@pytest.mark.parametrize(("n_features", "n_projections"), [(1, 1), (2, 7), (8, 64), (30, 20)])
def test_no_row_within_the_bounds_has_more_energy(n_features, n_projections, projections, box):
    energy = energy_of(n_features, n_projections, box=box, projections=projections)
    rng = np.random.default_rng(3)
    directions = make_directions(
        projections, n_projections, n_features, np.random.default_rng(n_features)
    )
    top = np.linalg.svd(directions)[2][:1]
    rows = np.concatenate([rng.normal(size=(200, n_features)), top])
    rows *= 3 / np.linalg.norm(rows, axis=1, keepdims=True)
    if box:
        rows = np.clip(10 * rows, -1, 1) * 3 / math.sqrt(n_features)
    bounds = DataBounds(np.zeros(n_features), np.ones(n_features), 3.0, box)
    half_widths = projection_half_widths(bounds, directions)
    squares = (rows @ directions.T / half_widths) ** 2 @ energy.weights
    assert (squares <= energy.limit * (1 + 1e-12)).all()
    if not box:
        assert squares.max() >= energy.limit * (1 - 1e-4)  # and no smaller limit would do
        if n_projections % n_features == 0 and projections != "uniform":
            assert energy.limit == pytest.approx(n_projections / n_features, rel=1e-4)


@pytest.mark.parametrize("device", [None, "torch"])
def test_a_row_of_more_energy_is_counted_in_the_middle(device):
    if device:
        device = pytest.importorskip("torch").device("cpu")
    bounds = SimpleNamespace(radius=1.0, to_ball=lambda rows: rows)  # rows stay where they are
    far = np.array([[0.9, 0.0, 0.3, 0.6], [0.9, 0.0, 0.3, 0.0]])
    given = (far, np.eye(4), np.full(4, 1.0), 16)
    counted = count_projections(*given, bounds=bounds, device=device)
    bins = [np.flatnonzero(row).tolist() for row in counted]
    assert bins == [[8, 15], [8], [8, 10], [8]]
    plain = count_projections(*given, device=device)
    assert np.flatnonzero(plain[3]).tolist() == [8, 12]


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize(("n_features", "n_projections"), [(3, 1200), (30, 64), (200, 200)])
def test_counted_rows_have_no_more_energy_than_the_sensitivity_takes(
    n_features, n_projections, box
):
    """Rows on the rim of the bounds, with all the rounding of rows and directions."""
    rng = np.random.default_rng(0)
    directions = make_directions("orthogonal", n_projections, n_features, rng)
    rows = rng.normal(size=(20, n_features))
    rows *= 9.0 / np.linalg.norm(rows, axis=1, keepdims=True)
    bounds = DataBounds(np.zeros(n_features), np.ones(n_features), 3.0, box)
    half_widths = projection_half_widths(bounds, directions)
    energy, n_bins = Energy.of(bounds, directions, half_widths), 512
    given = {"codes": np.arange(len(rows)), "n_classes": len(rows), "bounds": bounds}
    counted = count_projections(rows, directions, half_widths, n_bins, **given)
    bins = np.argmax(counted.reshape(len(rows), n_projections, n_bins), axis=2)
    nearest = np.maximum(np.abs(bins + 0.5 - n_bins / 2) - 0.5, 0.0) * 2 / n_bins
    squares = nearest**2 @ energy.weights
    assert (squares <= energy.limit).all()
    assert squares.max() > 0.5 * energy.limit  # none was moved to the middle


@given(st.integers(0, 2**32 - 1), st.integers(1, 64), st.booleans())
@settings(max_examples=20, deadline=None)
def test_counts_do_not_depend_on_how_rows_are_divided(seed, n_features, box):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(700, n_features)) * 10.0 ** rng.integers(-8, 3)
    directions = make_directions("axes+orthogonal", 2 * n_features + 3, n_features, rng)
    bounds = DataBounds(np.zeros(n_features), np.ones(n_features), 2.0, box)
    given = directions, projection_half_widths(bounds, directions), 64
    whole = count_projections(rows, *given, bounds=bounds)
    ends = np.sort(rng.integers(0, 701, 12))
    parts = np.split(rows[rng.permutation(700)], ends)
    some = [count_projections(np.asfortranarray(part), *given, bounds=bounds) for part in parts]
    np.testing.assert_array_equal(np.sum(some, axis=0), whole)


@pytest.mark.parametrize(("n_features", "box", "least"), [(2, False, 0.45), (4, False, 0.25),
    (8, False, 0.125), (16, False, ENERGIES[0]), (1, True, 1.0), (16, True, 0.125)])  # fmt: skip
def test_the_rule_takes_the_matrix_of_the_mean_energy(n_features, box, least):
    energy = energy_of(n_features, 32 * n_features, box=box, projections="axes+orthogonal")
    assert best_strategy(64, energy) == Strategy(64, least)
    assert best_strategy(100, energy) == Strategy(100)
