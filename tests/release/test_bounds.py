"""Bounds: the public map, and the mechanism that finds private ones."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpot._utils.validation import SecretStream, Streams
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.accounting import PrivacyTarget, compose
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent, gdp_mu
from skdpot.release import bounds as private_bounds
from skdpot.release.bounds import (
    DataBounds,
    ball_radius,
    bounds_share,
    plan_private_bounds,
    release_feature_scales,
    release_private_bounds,
)
from skdpot.release.histogram import plan_sketch
from skdpot.release.release import record_releases
from skdpot.release.value_histogram import FALSE_ALARM, MagnitudeGrid, SignedGrid

MU = gdp_mu(1.0, 1e-5)


def streams(seed: int = 0) -> Streams:
    return Streams(
        SecretStream(seed), np.random.default_rng(seed + 1), np.random.default_rng(seed + 2)
    )


def released_tables(X, plan, seed=0, spread=None):
    """Release bounds and return the noisy tables that everything else is computed from."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", PrivacyWarning)
        if spread is not None:  # the first release, as the second one sees it
            real = private_bounds._spread
            patch.setattr(private_bounds, "_spread", lambda *args: (real(*args), spread)[1])
        with record_releases() as releases:
            release_private_bounds(X, plan, streams(seed))
    return [release.value for release in releases]


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


def test_box_broadcasts_and_clips_each_feature():
    bounds = DataBounds.from_box(-2, [2.0, 6.0], 2)
    assert bounds.to_ball(np.array([[-5.0, 4.0], [1.0, 99.0]])).tolist() == [[-1, 0.5], [0.5, 1]]


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


def test_cells_agree_with_their_edges():
    rng = np.random.default_rng(0)
    grid, values = SignedGrid(n_uniform=8, octaves=5), rng.uniform(-250, 250, 5000)
    cells = grid.cells(values)
    assert np.all((grid.edges[cells] <= values) & (values <= grid.edges[cells + 1]))
    middles = (grid.edges[1:] + grid.edges[:-1]) / 2
    assert grid.cells(middles).tolist() == list(range(grid.n_cells))
    assert grid.cells(np.array([-np.inf, 1e300])).tolist() == [0, grid.n_cells - 1]
    grid, values = MagnitudeGrid(4), np.exp2(rng.uniform(-60, 60, 5000))
    cells, edges = grid.cells(values), np.exp2(grid.edges)
    assert (edges[cells - 1] <= values * (1 + 1e-12)).all()
    assert (values <= edges[cells] * (1 + 1e-12)).all()
    assert grid.cells(np.array([0.0, 5e-324, np.inf])).tolist() == [0, 1, grid.n_cells - 1]


@given(
    n=st.integers(1, 10**7),
    d=st.integers(1, 200),
    mu=st.floats(1e-4, 30),
    mode=st.sampled_from(["auto", "features", "norm"]),
)
def test_plan_costs_what_was_asked(n, d, mu, mode):
    plan = plan_private_bounds(n, d, mu, mode=mode)
    assert mu * (1 - 1e-12) <= compose(plan.event).mu_without_sampling <= mu
    events = plan.event.events if isinstance(plan.event, ComposedEvent) else (plan.event,)
    assert math.fsum(e.mu**2 for e in events) <= mu**2 * (1 + 1e-15)
    assert len(events) == (2 if plan.mode == "features" else 1)
    for event in events:
        assert isinstance(event, GaussianEvent)
        assert event.sensitivity == math.sqrt(2 * (d if plan.mode == "features" else 1))
        assert event.sigma / event.lattice >= 16
    assert plan.n_used <= n


def test_mode_is_chosen_from_public_facts():
    cases = [(30_000, 8), (30_000, 32), (10**7, 33), (100, 8)]
    modes = [plan_private_bounds(*shape, MU).mode for shape in cases]
    assert modes == ["features", "features", "norm", "norm"]
    modes = [plan_private_bounds(n, 4, 0.1).mode for n in range(100, 20_000, 100)]
    assert modes == sorted(modes, reverse=True)  # norm for few rows, then features for ever
    assert plan_private_bounds(10**6, 1, 3.0).n_used == 2**17
    assert isinstance(plan_private_bounds(100, 8, math.inf).event, NonPrivateEvent)


def neighbours(rng, n, d, kind):
    """Return two data sets that differ in one row."""
    X = rng.normal(size=(n, d)) * np.exp2(rng.integers(-8, 8, d))
    Y = X.copy()
    row = rng.integers(n)
    if kind == "random":
        Y[row] = rng.normal(size=d) * np.exp2(rng.integers(-8, 8, d))
    elif kind == "far":
        X[row], Y[row] = 1e-30, 1e308
    elif kind == "tie":
        X[:] = X[0]
        Y[:] = X
        Y[row] = X[row] + 2.0 ** rng.integers(-70, 70, d)
    else:
        Y[row] = X[row] * (1 + 1e-12)
    return X, Y


@pytest.mark.parametrize("kind", ["random", "far", "tie", "close"])
@pytest.mark.parametrize("mode", ["features", "norm"])
def test_sensitivity_is_never_exceeded(kind, mode):
    rng = np.random.default_rng(8)
    largest = np.zeros(2)
    for trial in range(40):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        X, Y = neighbours(rng, n, d, kind)
        plan = plan_private_bounds(n, d, rng.uniform(0.3, 3), mode=mode)
        spread = float(np.exp2(rng.integers(-6, 6)))
        first, second = (released_tables(Z, plan, trial, spread) for Z in (X, Y))
        for phase, noise in enumerate(plan.noises):
            part = slice(phase * d, (phase + 1) * d) if mode == "features" else slice(None)
            change = np.concatenate(first[part]) - np.concatenate(second[part])
            moved = np.linalg.norm(change)
            assert moved <= noise.sensitivity * (1 + 1e-12)
            largest[phase] = max(largest[phase], moved / noise.sensitivity)
    if kind in ("far", "tie"):  # attained
        assert largest[: len(plan.noises)].min() > 1 - 1e-12


@pytest.mark.parametrize("mode", ["features", "norm"])
def test_several_rows_of_a_person_move_as_many_counts(mode):
    """All from one cell to one other, which is the most that they can do, and is attained."""
    group_size, d = 3, 2
    plan = plan_private_bounds(14, d, 1.0, mode=mode, group_size=group_size)
    X = np.full((14, d), 0.1)
    Y = X.copy()
    Y[:group_size] = 1e6
    first, second = (released_tables(Z, plan, 0, 1.0) for Z in (X, Y))
    last = slice(d, 2 * d) if mode == "features" else slice(None)
    moved = np.linalg.norm(np.concatenate(first[last]) - np.concatenate(second[last]))
    assert moved == pytest.approx(plan.noises[-1].sensitivity, rel=1e-12)
    assert compose(plan.event).mu_without_sampling <= 1.0


@pytest.mark.parametrize(
    ("mode", "centers", "repeats"),
    [("features", False, 1500), ("features", True, 30), ("norm", False, 1500)],
)
def test_noise_has_the_variance_of_the_event(mode, centers, repeats):
    # Over half a million cells without a record: 1 % is five standard errors.
    plan = plan_private_bounds(4, 3, 0.2, mode=mode, centers=centers)
    event = plan.event.events[-1] if centers else plan.event
    X = np.zeros((4, 3))
    noise = []
    for seed in range(repeats):
        tables = released_tables(X, plan, seed)
        noise += [table[1:] if not centers else table[:15_000] for table in tables[3 * centers :]]
    noise = np.concatenate(noise)
    assert noise.size > 500_000
    assert abs(noise.var() / event.sigma**2 - 1) < 0.01
    assert abs(noise.mean()) < 0.01 * event.sigma
    assert np.array_equal(noise, np.rint(noise / event.lattice) * event.lattice)


def test_the_share_of_bounds_falls_with_the_number_of_rows():
    """Noise of a third of sqrt(n), between .2 and 10 % of the whole."""
    shares = [bounds_share(n, 8, MU) for n in (100, 10**4, 10**5, 10**6, 10**9)]
    assert shares[:2] == [0.1, 0.1]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.002
    assert 0.002 < shares[3] < 0.005
    plan = plan_private_bounds(10**6, 8, MU * math.sqrt(shares[3]), mode="features")
    assert plan.noises[0].sigma == pytest.approx(math.sqrt(10**6) / 3, rel=0.01)
    # A wide table gets one histogram, which needs as little as one column.
    assert bounds_share(10**5, 784, MU) == bounds_share(10**5, 1, MU)
    # The noise of one person's five rows is five times as large.
    assert bounds_share(10**6, 8, MU, 5) == pytest.approx(25 * shares[3])


@pytest.mark.parametrize(("n", "factor"), [(1000, 1.06), (10**6, 1.003)])
def test_private_bounds_cost_a_large_sketch_next_to_nothing(n, factor):
    """10 % of the squared mu whatever n made it 1.054 times the noise."""
    target, shape = PrivacyTarget(1.0, 1e-7), {"n_projections": 64, "n_bins": 64}
    declared = plan_sketch(target, n, 8, bounds=DataBounds.from_box(-1, 1, 8), **shape)
    private = plan_sketch(target, n, 8, bounds=n, **shape)
    assert 1.0 < private.sigma / declared.sigma < factor
    assert compose(private.event).epsilon(1e-7) <= 1.0


def test_fallback_without_enough_rows():
    X = np.random.default_rng(0).normal(1e6, 1, size=(5, 3))
    with pytest.warns(PrivacyWarning, match="3 of 3 features did not stand out"):
        bounds = release_private_bounds(
            X, plan_private_bounds(5, 3, MU, mode="features"), streams()
        )
    assert bounds == DataBounds(np.zeros(3), np.ones(3), ball_radius(3))
    with pytest.warns(PrivacyWarning, match="the row norms did not stand out"):
        bounds = release_private_bounds(X, plan_private_bounds(5, 3, MU), streams())
    assert bounds == DataBounds.from_norm(ball_radius(3), 3)


def test_noise_alone_is_rarely_taken_for_data():
    # At most 400 * FALSE_ALARM = 0.04 are expected; three or more happen once in 10^5.
    plan = plan_private_bounds(2, 4, 0.2, mode="features", centers=False)
    alarms = 0
    for seed in range(400):
        with pytest.warns(PrivacyWarning) as caught:
            release_feature_scales(np.zeros((2, 4)), plan, streams(seed))
        alarms += "4 of 4 features" not in str(caught[0].message)
    assert alarms <= 2
    assert FALSE_ALARM == 1e-4


FEATURES = {
    "normal": (lambda r, n: r.normal(size=n), 0.0, 1.0),
    "offset": (lambda r, n: r.normal(1000, 1, n), 1000.0, 1.0),
    "lognormal": (lambda r, n: r.lognormal(size=n), 1.0, 0.98),
    "tiny": (lambda r, n: r.normal(-3e-9, 1e-10, n), -3e-9, 1e-10),
    "huge": (lambda r, n: r.normal(1.7e9, 1e7, n), 1.7e9, 1e7),
    "constant": (lambda r, n: np.full(n, 7.0), 7.0, 1.0),
    "binary": (lambda r, n: (r.random(n) < 0.4).astype(float), 0.0, 1.048),
    "sparse": (lambda r, n: (r.random(n) < 0.3) * r.normal(0, 80, n), 0.0, 59.8),
}


@pytest.mark.parametrize("name", FEATURES)
def test_accuracy_with_many_rows(name):
    draw, center, spread = FEATURES[name]
    X = draw(np.random.default_rng(0), 30_000 * 8).reshape(30_000, 8)
    found = release_feature_scales(
        X, plan_private_bounds(30_000, 8, gdp_mu(0.2, 1e-5), mode="features"), streams()
    )
    assert np.abs(found.center - center).max() < 0.4 * spread
    assert np.abs(np.log(found.spread / spread)).max() < 0.2


@pytest.mark.parametrize("d", [1, 2, 8, 32])
def test_few_normal_rows_are_clipped(d):
    X = np.random.default_rng(0).normal(5.0, 3.0, size=(30_000, d))
    bounds = release_private_bounds(
        X, plan_private_bounds(30_000, d, 0.1 * math.sqrt(8 / d)), streams()
    )
    U = bounds.to_ball(X)
    assert (np.linalg.norm(U, axis=1) > 0.999 * bounds.radius).mean() < 0.01
    assert 0.7 < U.std() < 1.3


def test_norm_holds_most_rows():
    X = np.random.default_rng(0).normal(2.0, 1.0, size=(900, 64))
    bounds = release_private_bounds(X, plan_private_bounds(900, 64, 0.085), streams())
    norms = np.linalg.norm(X, axis=1)
    assert (norms > bounds.radius).mean() < 0.1
    assert bounds.radius < 2 * np.median(norms)
