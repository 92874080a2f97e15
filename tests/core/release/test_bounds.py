"""Bounds: the public map, and the mechanism that finds private ones."""

import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.gdp import gdp_mu
from skdpot.release.bounds import DataBounds
from skdpot.release.noisy_cells import FALSE_ALARM
from skdpot.release.private_bounds import (
    ball_radius,
    bounds_share,
    plan_private_bounds,
    planned_bounds,
    release_private_bounds,
    release_scales,
)
from skdpot.release.value_histogram import Intervals, Magnitudes, Norms
from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.rows import SourceRows
from skdpot.sources.source import Source
from tests.core.release.exact import streams

MU = gdp_mu(1.0, 1e-5)


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 40),
    log_size=st.floats(-3, 12),
    dtype=st.sampled_from([np.float32, np.float64]),
    box=st.booleans(),
)
def test_rows_land_inside(seed, d, log_size, dtype, box):
    rng = np.random.default_rng(seed)
    X = (rng.standard_cauchy((30, d)) * 10.0**log_size).astype(dtype)
    bounds = DataBounds(rng.normal(size=d), rng.uniform(0.1, 10, d), 1.7 * math.sqrt(d), box)
    U = bounds.to_ball(X)
    assert U.dtype == dtype
    norms = np.linalg.norm(U.astype(np.float64), axis=1)
    assert norms.max() <= bounds.radius * (1 + 1e-14)
    if box:
        assert np.abs(U).max() <= 1.7 * (1 + 1e-15)
    # Directions are kept by the ball, and rows that are inside are not touched.
    mapped = (X.astype(np.float64) - bounds.center) / bounds.scale
    inside = np.linalg.norm(mapped, axis=1) <= 0.999 * bounds.radius
    if box:
        inside = np.abs(mapped).max(axis=1) <= 1.69
    np.testing.assert_allclose(U[inside], mapped[inside], rtol=1e-6, atol=1e-6)


def test_limits_broadcast_and_the_map_is_undone():
    bounds = DataBounds.from_box([0, 10], [16, 30], 2)
    X = np.array([[0, 10], [16, 30], [8, 20], [4, 15]])
    U = bounds.to_ball(X)
    assert U.tolist() == [[-1, -1], [1, 1], [0, 0], [-0.5, -0.5]]
    assert bounds.from_ball(U).tolist() == X.tolist()
    assert bounds.from_ball(U.astype(np.float32)).dtype == np.float32
    huge = DataBounds.from_box(-1.7e308, 1.7e308, 1)
    assert huge.to_ball(np.array([[1.7e308]])).tolist() == [[1.0]]


def test_equality_and_hash():
    bounds = DataBounds.from_box(0.0, [1.0, 2.0], 2)
    same = DataBounds.from_box(-0.0, np.array([1.0, 2.0]), 2)
    assert (same, hash(same)) == (bounds, hash(bounds))
    assert bounds != DataBounds.from_box(0.0, [1.0, 3.0], 2)
    assert DataBounds([0.0], [1.0], 1.0) != DataBounds([0.0], [1.0], 1.0, box=True)
    assert bounds != "bounds"
    with pytest.raises(ValueError, match="read-only"):
        bounds.scale[0] = 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataBounds([0.0], [1.0, 1.0], 1.0), "same length"),
        (lambda: DataBounds([], [], 1.0), "not empty"),
        (lambda: DataBounds([0.0], [0.0], 1.0), "`scale` finite and positive"),
        (lambda: DataBounds([math.nan], [1.0], 1.0), "`center` must be finite"),
        (lambda: DataBounds([0.0], [1.0], 0.0), "`radius` must be positive"),
        (lambda: DataBounds.from_norm(math.nan, 2), "`norm_bound` must be positive"),
        (lambda: DataBounds.from_box([0.0, 5.0], [1.0, 4.0], 2), "low=5 and high=4 for feature 1"),
        (lambda: DataBounds.from_box([0.0, 1.0, 2.0], 9.0, 2), "one entry for each of the 2"),
        (lambda: DataBounds.from_box(0.0, math.inf, 2), "`high` must be finite"),
        (lambda: DataBounds.from_norm(1.0, 2).to_ball(np.zeros((3, 4))), r"got \(3, 4\)"),
        (lambda: plan_private_bounds(0, 3, 1.0), "must be an integer >= 1"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


VALUES = np.array([0.0, -0.0, 5e-324, -1e-300, 0.7, -1.0, 1.5, 1e300, -np.inf, np.nan])
GRIDS = {
    "magnitudes": Magnitudes(n_features=3),
    "norms": Norms(n_features=3, parts=4, center=np.array([0.0, 1.0, -1e9]), scale=np.ones(3)),
    "intervals": Intervals(
        n_features=3,
        lowest=np.array([-4.0, 0.0, 1e300]),
        width=np.array([0.5, 2.0, 1e290]),
        n_cells=16,
    ),
}


@pytest.mark.parametrize("name", GRIDS)
@settings(max_examples=50, deadline=None)
@given(data=st.data(), order=st.sampled_from("CF"), dtype=st.sampled_from([np.float32, np.float64]))
def test_counts_are_sums_over_any_partition(name, data, order, dtype):
    """Of integers, which each row moves by one in each histogram, and none that it misses."""
    cells, rng = GRIDS[name], np.random.default_rng(data.draw(st.integers(0, 99)))
    X = rng.choice(VALUES, (60, 3)) if data.draw(st.booleans()) else rng.normal(size=(60, 3))
    with np.errstate(over="ignore"):
        X = np.asarray(X.astype(dtype), order=order)
    (whole,), cuts = cells.count(X), np.sort(rng.integers(0, 61, 4))
    parts, sent = np.split(rng.permutation(X), cuts), pickle.loads(pickle.dumps(cells))
    assert whole.dtype == np.int64
    assert np.array_equal(sum(sent.count(part)[0] for part in parts), whole)
    n_missing = np.isnan(X).sum(axis=0) if cells.shape[0] == 3 else np.isnan(X).any(axis=1).sum()
    assert np.array_equal(whole.sum(axis=1), np.ravel(60 - n_missing))
    moved = np.abs(cells.count(X[1:])[0] + cells.count(X[:1][:, ::-1])[0] - whole)
    assert moved.sum() <= 2 * cells.shape[0]


def test_cells_agree_with_their_ends():
    sizes = np.exp2(np.random.default_rng(0).uniform(-1000, 1000, 5000))
    for parts in (1, 4):
        grid = Magnitudes(n_features=1, parts=parts)
        cells = grid.cells(-sizes[:, None])[:, 0]
        assert all(
            grid.end(c - 1) <= size < grid.end(c) for c, size in zip(cells, sizes, strict=True)
        )
        ends = grid.cells(np.array([[0.0], [5e-324], [np.inf]]))[:, 0]
        assert ends.tolist() == [0, 1, grid.shape[1] - 1]


def test_mode_is_chosen_from_public_facts():
    cases = [(30_000, 8), (30_000, 32), (10**7, 33), (100, 8)]
    modes = [plan_private_bounds(*shape, MU).by_features for shape in cases]
    assert modes == [True, True, False, False]
    modes = [plan_private_bounds(n, 4, 0.1).by_features for n in range(100, 20_000, 100)]
    assert modes == sorted(modes)  # norms for few rows, then features for ever
    assert isinstance(plan_private_bounds(100, 8, math.inf).event, NonPrivateEvent)


def test_the_share_of_bounds_falls_with_the_number_of_rows():
    """Noise of a third of sqrt(n), between .2 and 10 % of the whole."""
    shares = [bounds_share(n, 8, MU) for n in (100, 10**4, 10**5, 10**6, 10**9)]
    assert shares[:2] == [0.1, 0.1]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.002
    assert 0.002 < shares[3] < 0.005
    plan = plan_private_bounds(10**6, 8, MU * math.sqrt(shares[3]), mode="features")
    assert plan.features.sigma == pytest.approx(math.sqrt(5 * 10**6) / 3, rel=0.2)
    # A wide table gets one histogram, which needs as little as one column.
    assert bounds_share(10**5, 784, MU) == bounds_share(10**5, 1, MU)
    # The noise of one person's five rows is five times as large.
    assert bounds_share(10**6, 8, MU, 5) == pytest.approx(25 * shares[3])


def test_fallback_without_enough_rows():
    X = np.random.default_rng(0).normal(1e6, 1, size=(5, 3))
    plan = plan_private_bounds(5, 3, MU, mode="features")
    assert not any(scale.found for scale in release_scales(X, plan, streams()))
    hidden = r"the row norms did .* fallback \(radius 4.23 in the features' own unit\)"
    few = "too few rows.* one ball.* in the unit that the features have"
    with pytest.warns(PrivacyWarning, match=hidden), pytest.warns(PrivacyWarning, match=few):
        bounds = release_private_bounds(X, plan_private_bounds(5, 3, MU), streams())
    assert bounds == DataBounds.from_norm(ball_radius(3), 3)
    rng, mu = np.random.default_rng(0), gdp_mu(1.0, 1e-5)
    few = planned_bounds(1000, 2, mu)  # scales need fewer rows than a radius
    assert few.by_features
    bounds = few.settled(rng.normal(size=(1000, 2)) * [1, 20], streams())
    assert bounds.scale[1] > 10 * bounds.scale[0]


@pytest.mark.parametrize(("n", "d", "n_rounds"), [(400, 5, 1), (600, 5, 2), (5000, 5, 5)])
def test_small_features_of_few_rows_have_units_of_their_own(n, d, n_rounds):
    """Without these the noise covers them. Few rows get fewer rounds, of more of the budget."""
    rng, scales = np.random.default_rng(0), np.array([0.01, 1.0, 0.01, 100.0, 0.01])
    plan = planned_bounds(n, d, MU)
    assert plan.by_features
    assert plan.features.n_steps == n_rounds
    share = (compose(plan.event).mu_without_sampling / MU) ** 2
    assert share == pytest.approx(bounds_share(n, d, MU))
    assert 0.1 < share < 0.2501 if n_rounds < 5 else share < 0.1001
    found = []
    for seed in range(10):
        X = rng.normal(size=(n, d)) * scales
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            bounds = release_private_bounds(X, plan, streams(seed))
        found.append(np.abs(np.log(bounds.scale * bounds.radius / ball_radius(d) / scales)))
    assert (np.array(found) < math.log(6.0)).mean() > 0.9


@pytest.mark.filterwarnings("ignore:.*row norms did:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize(("n", "most"), [(400, 2.5), (600, 0.8)])
def test_features_that_the_noise_hides_are_named_and_leave_the_others_alone(n, most):
    """The values of one are spread over all magnitudes, so that no size is seen."""
    rng, plan = np.random.default_rng(0), planned_bounds(n, 5, MU)
    X = rng.normal(0.0, 2.0, size=(n, 5))
    X[:, 1] = np.exp2(rng.uniform(-900, 900, n))
    with pytest.warns(PrivacyWarning, match="Private bounds: feature 1 did not stand out"):
        bounds = release_private_bounds(X, plan, streams(1))
    others = [0, 2, 3, 4]
    assert np.abs(np.log(bounds.scale[others] / 2.0)).max() < most
    assert 0.1 < bounds.scale[1] < 50.0


@pytest.mark.filterwarnings("ignore:.*row norms did:skdpot.exceptions.PrivacyWarning")
def test_too_few_rows_are_one_ball():
    with pytest.warns(PrivacyWarning, match="too few rows"):
        planned_bounds(100, 2, MU).settled(
            np.random.default_rng(0).normal(size=(100, 2)), streams()
        )


def test_noise_alone_is_rarely_taken_for_data():
    """Five rounds of at most 1e-4 each are expected: 0.2 of 400; three or more once in 1000."""
    plan, alarms = plan_private_bounds(2, 4, 0.2, mode="features"), 0
    for seed in range(400):
        alarms += any(s.found for s in release_scales(np.zeros((2, 4)), plan, streams(seed)))
    assert alarms <= 2
    assert FALSE_ALARM == 1e-4


@pytest.mark.parametrize("row", [[1e300, -1e300], [np.inf, -np.inf], [np.nan, 5e-324]])
def test_a_few_rows_that_are_no_numbers_or_huge_change_little(row):
    X = np.random.default_rng(0).normal(50, 10, size=(20_000, 2))
    X[::100] = row
    plan = plan_private_bounds(20_000, 2, 0.3)
    bounds = release_private_bounds(X, plan, streams())
    assert np.abs(bounds.center - 50).max() < 5
    assert np.abs(np.log(bounds.scale / 10)).max() < 0.4
    assert bounds.radius < 8


FEATURES = {
    "normal": (lambda r, n: r.normal(size=n), 0.0, 1.0),
    "offset": (lambda r, n: r.normal(1000, 1, n), 1000.0, 1.0),
    "lognormal": (lambda r, n: r.lognormal(size=n), 1.0, 0.98),
    "tiny": (lambda r, n: r.normal(-3e-9, 1e-10, n), -3e-9, 1e-10),
    "huge": (lambda r, n: r.normal(1.7e9, 1e7, n), 1.7e9, 1e7),
    "constant": (lambda r, n: np.full(n, 7.0), 7.0, 1.0),
    "zeros": (lambda r, n: np.zeros(n), 0.0, 1.0),
    "largest": (lambda r, n: r.normal(0, 1e300, n), 0.0, 1e300),
    "grades": (lambda r, n: r.integers(1, 6, n), 3.0, 1.3),
    "binary": (lambda r, n: (r.random(n) < 0.4).astype(float), 0.0, 1.048),
    "sparse": (lambda r, n: (r.random(n) < 0.3) * r.normal(0, 80, n), 0.0, 59.8),
}


@pytest.mark.parametrize("name", FEATURES)
def test_accuracy_with_many_rows(name):
    draw, center, spread = FEATURES[name]
    X = draw(np.random.default_rng(0), 30_000 * 8).reshape(30_000, 8)
    plan = plan_private_bounds(30_000, 8, gdp_mu(0.2, 1e-5), mode="features")
    scales = release_scales(X, plan, streams())
    assert all(scale.found for scale in scales)
    centers, spreads = np.array([(scale.center, scale.spread) for scale in scales]).T
    assert np.abs(centers - center).max() < 0.2 * spread
    assert np.abs(np.log(spreads / spread)).max() < 0.4


def test_accuracy_with_few_rows():
    X = np.random.default_rng(0).normal(50, 10, size=(4, 1000, 8))
    plan = plan_private_bounds(1000, 8, gdp_mu(1.0, 1e-5), mode="features")
    fits = [release_scales(x, plan, streams(seed)) for seed, x in enumerate(X)]
    errors = [((s.center - 50) / 10, np.log(s.spread / 10)) for scales in fits for s in scales]
    assert (np.sqrt(np.square(errors).mean(axis=0)) < [0.11, 0.15]).all()


@pytest.mark.parametrize(
    ("n", "d", "mu"), [*((30_000, d, 0.1) for d in (1, 8, 32)), (900, 64, 0.085)]
)
def test_few_normal_rows_are_clipped(n, d, mu):
    """By features, and by norms where there are many."""
    X = np.random.default_rng(0).normal(2.0, 1.0, size=(n, d))
    found = plan_private_bounds(n, d, mu * math.sqrt(8 / d) if n > 900 else mu)
    bounds = release_private_bounds(X, found, streams())
    U = bounds.to_ball(X)
    assert (np.linalg.norm(U, axis=1) > 0.999 * bounds.radius).mean() < (0.01 if n > 900 else 0.1)
    spread = U.std() if n > 900 else np.linalg.norm(X, axis=1).mean() / bounds.radius
    assert 0.5 < spread < 1.3


class Batches(Source):
    """Rows of an array in batches of all sizes, in another order."""

    def __init__(self, X):
        self.parts = np.split(np.random.default_rng(1).permutation(X), [3, 3, 500, 4000])

    head = np.zeros((0, 3))

    def sum(self, count):
        return ExactCounts.total(count(pickle.loads(pickle.dumps(part))) for part in self.parts)


@pytest.mark.filterwarnings("ignore:Private bounds:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize(("n_rows", "n_rounds"), [(40, 0), (100, 1), (170, 2), (5000, 5)])
def test_private_bounds_do_not_depend_on_batches_or_order(n_rows, n_rounds):
    X = np.random.default_rng(0).normal(50, 10, size=(n_rows, 3))
    plan = plan_private_bounds(n_rows, 3, 0.3)
    assert (plan.features.n_steps if plan.features else 0) == n_rounds
    batches = SourceRows.checked(Batches(X), np.asarray, "test", 1)[0]
    first, second = (release_private_bounds(rows, plan, streams()) for rows in (X, batches))
    assert first == second
