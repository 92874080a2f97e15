"""Bounds: the public map, and the mechanism that finds private ones."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot._utils.validation import SecretStream, Streams
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.accounting import PrivacyTarget, compose
from skdpot.privacy.events import ComposedEvent, GaussianEvent, NonPrivateEvent, gdp_mu
from skdpot.release import private_bounds
from skdpot.release.bounds import DataBounds
from skdpot.release.histogram import plan_sketch
from skdpot.release.private_bounds import (
    FALSE_ALARM,
    MagnitudeGrid,
    SignedGrid,
    Smoothing,
    ball_radius,
    bounds_share,
    noisy_quantiles,
    plan_private_bounds,
    release_feature_scales,
    release_private_bounds,
)

MU = gdp_mu(1.0, 1e-5)


def streams(seed: int = 0) -> Streams:
    return Streams(
        SecretStream(seed), np.random.default_rng(seed + 1), np.random.default_rng(seed + 2)
    )


def released_tables(monkeypatch, X, plan, seed=0, spread=None):
    """Release bounds and return the noisy tables that everything else is computed from."""
    tables = []

    def recording(*args):
        tables.append(original(*args))
        return tables[-1]

    original = private_bounds.noisy_histogram
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        patch.setattr(private_bounds, "noisy_histogram", recording)
        if spread is not None:  # the first release, as the second one sees it
            real = private_bounds._spread
            patch.setattr(private_bounds, "_spread", lambda *args: (real(*args), spread)[1])
        release_private_bounds(X, plan, streams(seed))
    return tables


# ------------------------------------------------------------- DataBounds


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


def test_each_row_is_mapped_alone():
    X = np.random.default_rng(0).normal(size=(50, 3)) * 4
    bounds = DataBounds(np.ones(3), np.full(3, 2.0), 1.0)
    together = bounds.to_ball(X)
    alone = np.vstack([bounds.to_ball(row[None]) for row in X])
    assert np.array_equal(together, alone)
    assert np.array_equal(X, np.random.default_rng(0).normal(size=(50, 3)) * 4)


@pytest.mark.parametrize("box", [False, True])
def test_huge_values_do_not_overflow(box):
    bounds = DataBounds([0.0, 0.0], [1e-3, 1e-3], math.sqrt(2), box)
    U = bounds.to_ball(np.array([[1.7e308, -1.7e308], [1e200, 0.0], [-1e308, 1e-300]]))
    assert np.isfinite(U).all()
    assert (np.linalg.norm(U, axis=1) > 0.99).all()


def test_integers_and_round_trip():
    bounds = DataBounds.from_box([0, 10], [16, 30], 2)
    X = np.array([[0, 10], [16, 30], [8, 20], [4, 15]])
    U = bounds.to_ball(X)
    assert U.tolist() == [[-1, -1], [1, 1], [0, 0], [-0.5, -0.5]]
    assert bounds.from_ball(U).tolist() == X.tolist()
    assert bounds.from_ball(U.astype(np.float32)).dtype == np.float32
    assert bounds.radius == math.sqrt(2)


def test_box_broadcasts_and_clips_each_feature():
    bounds = DataBounds.from_box(-2, [2.0, 6.0], 2)
    assert bounds.to_ball(np.array([[-5.0, 4.0], [1.0, 99.0]])).tolist() == [[-1, 0.5], [0.5, 1]]


def test_norm_shortens():
    bounds = DataBounds.from_norm(5.0, 2)
    U = bounds.to_ball(np.array([[3.0, 3.0], [30.0, 40.0]]))
    np.testing.assert_allclose(U, [[3, 3], [3, 4]], rtol=1e-6)


def test_equality_and_hash():
    bounds = DataBounds.from_box(0.0, [1.0, 2.0], 2)
    loaded = DataBounds.from_box(0, np.array([1.0, 2.0]), 2)
    assert loaded == bounds
    assert hash(loaded) == hash(bounds)
    assert loaded != DataBounds.from_box(0.0, [1.0, 3.0], 2)
    assert DataBounds([0.0], [1.0], 1.0) != DataBounds([0.0], [1.0], 1.0, box=True)
    assert hash(DataBounds([-0.0], [1.0], 1.0)) == hash(DataBounds([0.0], [1.0], 1.0))
    assert bounds != "bounds"


def test_fields_are_frozen():
    center = np.zeros(2)
    bounds = DataBounds(center, np.ones(2), 1.0)
    center[0] = 9
    assert bounds.center.tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        bounds.scale[0] = 2


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 1.0, "low < high for every feature, got low=1 and high=1 for feature 0"),
        ([0.0, 5.0], [1.0, 4.0], "low=5 and high=4 for feature 1"),
        ([0.0, 1.0, 2.0], 9.0, r"`low` must be a number .* each of the 2 features"),
        (0.0, math.inf, "`high` must be finite"),
        (math.nan, 1.0, "`low` must be finite"),
    ],
)
def test_bad_boxes(low, high, message):
    with pytest.raises(ValueError, match=message):
        DataBounds.from_box(low, high, 2)


def test_huge_box_is_finite():
    bounds = DataBounds.from_box(-1.7e308, 1.7e308, 1)
    assert bounds.center.tolist() == [0.0]
    assert bounds.to_ball(np.array([[1.7e308]])).tolist() == [[1.0]]


@pytest.mark.parametrize("norm_bound", [0.0, -1.0, math.inf, math.nan])
def test_bad_norms(norm_bound):
    with pytest.raises(ValueError, match="`norm_bound` must be positive"):
        DataBounds.from_norm(norm_bound, 2)


@pytest.mark.parametrize(
    ("center", "scale", "radius", "message"),
    [
        ([0.0], [1.0, 1.0], 1.0, "same length"),
        ([], [], 1.0, "not empty"),
        ([0.0], [0.0], 1.0, "`scale` finite and positive"),
        ([math.nan], [1.0], 1.0, "`center` must be finite"),
        ([0.0], [1.0], 0.0, "`radius` must be positive"),
    ],
)
def test_bad_fields(center, scale, radius, message):
    with pytest.raises(ValueError, match=message):
        DataBounds(center, scale, radius)


def test_wrong_number_of_features():
    with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(3, 4\)"):
        DataBounds.from_norm(1.0, 2).to_ball(np.zeros((3, 4)))


# ------------------------------------------------------------------ grids


@pytest.mark.parametrize("per_octave", [1, 2, 4])
def test_magnitude_cells_agree_with_their_edges(per_octave):
    grid = MagnitudeGrid(per_octave)
    edges = np.exp2(grid.edges)
    assert grid.edges.size == grid.n_cells
    x = np.exp2(np.random.default_rng(0).uniform(-60, 60, 5000))
    cells = grid.cells(x)
    assert (edges[cells - 1] <= x * (1 + 1e-12)).all()
    assert (x <= edges[cells] * (1 + 1e-12)).all()
    ends = grid.cells(np.array([0.0, 5e-324, 1e308, np.inf, 1.0]))
    assert ends.tolist() == [0, 1, grid.n_cells - 1, grid.n_cells - 1, 64 * per_octave + 1]


def test_signed_cells_agree_with_their_edges():
    grid = SignedGrid(n_uniform=8, octaves=5)
    assert grid.edges.size == grid.n_cells + 1
    assert (np.diff(grid.edges) > 0).all()
    assert np.allclose(grid.edges, -grid.edges[::-1])
    x = np.random.default_rng(0).uniform(-250, 250, 5000)
    cells = grid.cells(x)
    assert (grid.edges[cells] <= x).all()
    assert (x <= grid.edges[cells + 1]).all()
    middles = (grid.edges[1:] + grid.edges[:-1]) / 2
    assert grid.cells(middles).tolist() == list(range(grid.n_cells))
    assert grid.cells(np.array([-np.inf, -1e300, 1e300, np.inf])).tolist() == [
        0,
        0,
        grid.n_cells - 1,
        grid.n_cells - 1,
    ]
    widths = np.diff(grid.edges)[grid.n_cells // 2 :]
    assert widths[:16].tolist() == [1.0] * 16
    assert widths[16] == 2.0


def test_quantiles_of_a_clean_table():
    table = np.array([0, 0, 10, 20, 10, 0, 0, 0.0])
    smoothing = Smoothing(window=1, margin=1, n_candidates=8)
    levels = [0.25, 0.5, 0.75]
    found = noisy_quantiles(table, np.arange(9.0), levels, 0.1, smoothing)
    np.testing.assert_allclose(found, [3.0, 3.5, 4.0])
    assert noisy_quantiles(table, np.arange(9.0), levels, 100.0, smoothing) is None


# ------------------------------------------------------------------- plan


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
    assert plan_private_bounds(30_000, 8, MU).mode == "features"
    assert plan_private_bounds(30_000, 32, MU).mode == "features"
    assert plan_private_bounds(10**7, 33, MU).mode == "norm"
    assert plan_private_bounds(100, 8, MU).mode == "norm"
    assert plan_private_bounds(100, 8, math.inf).mode == "features"
    modes = [plan_private_bounds(n, 4, 0.1).mode for n in range(100, 20_000, 100)]
    assert modes == sorted(modes, reverse=True)  # norm for few rows, then features for ever


def test_plan_without_noise():
    plan = plan_private_bounds(100, 3, math.inf)
    assert isinstance(plan.event, NonPrivateEvent)
    assert compose(plan.event).mu_without_sampling == math.inf
    rng = np.random.default_rng(0)
    X = rng.normal([5, -3, 0], [1, 20, 0], size=(100, 3))
    found = release_feature_scales(X, plan, streams())
    np.testing.assert_array_equal(found.center, np.median(X, axis=0))
    np.testing.assert_allclose(found.spread, [1, 20, 1], rtol=0.35)
    assert found.spread[2] == 1
    wide = plan_private_bounds(50, 40, math.inf)
    bounds = release_private_bounds(rng.normal(size=(50, 40)), wide, streams())
    assert wide.mode == "norm"
    assert 6.5 < bounds.radius < 8.5


@pytest.mark.parametrize(("n", "d"), [(0, 3), (3, 0)])
def test_plan_needs_data(n, d):
    with pytest.raises(ValueError, match="must be an integer >= 1"):
        plan_private_bounds(n, d, 1.0)


def test_plan_is_for_one_shape():
    plan = plan_private_bounds(10, 3, 1.0)
    with pytest.raises(ValueError, match=r"shape \(10, 3\), got \(10, 4\)"):
        release_private_bounds(np.zeros((10, 4)), plan, streams())


# ---------------------------------------------------------- sensitivity


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
def test_sensitivity_is_never_exceeded(monkeypatch, kind, mode):
    rng = np.random.default_rng(8)
    largest = np.zeros(2)
    for trial in range(40):
        n, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        X, Y = neighbours(rng, n, d, kind)
        plan = plan_private_bounds(n, d, rng.uniform(0.3, 3), mode=mode)
        spread = float(np.exp2(rng.integers(-6, 6)))
        first, second = (released_tables(monkeypatch, Z, plan, trial, spread) for Z in (X, Y))
        for phase, noise in enumerate(plan.noises):
            part = slice(phase * d, (phase + 1) * d) if mode == "features" else slice(None)
            change = np.concatenate(first[part]) - np.concatenate(second[part])
            moved = np.linalg.norm(change)
            assert moved <= noise.sensitivity * (1 + 1e-12)
            largest[phase] = max(largest[phase], moved / noise.sensitivity)
    if kind in ("far", "tie"):  # attained
        assert largest[: len(plan.noises)].min() > 1 - 1e-12


@pytest.mark.parametrize("mode", ["features", "norm"])
def test_several_rows_of_a_person_move_as_many_counts(monkeypatch, mode):
    """All from one cell to one other, which is the most that they can do, and is attained."""
    group_size, d = 3, 2
    plan = plan_private_bounds(14, d, 1.0, mode=mode, group_size=group_size)
    X = np.full((14, d), 0.1)
    Y = X.copy()
    Y[:group_size] = 1e6
    first, second = (released_tables(monkeypatch, Z, plan, 0, 1.0) for Z in (X, Y))
    last = slice(d, 2 * d) if mode == "features" else slice(None)
    moved = np.linalg.norm(np.concatenate(first[last]) - np.concatenate(second[last]))
    assert moved == pytest.approx(plan.noises[-1].sensitivity, rel=1e-12)
    single = plan_private_bounds(14, d, 1.0, mode=mode)
    for one, several in zip(single.noises, plan.noises, strict=True):
        assert several.sensitivity == pytest.approx(group_size * one.sensitivity)
        assert several.sigma == pytest.approx(group_size * one.sigma, rel=1e-3)
    assert compose(plan.event).mu_without_sampling <= 1.0
    with pytest.raises(ValueError, match="`group_size` must be an integer >= 1"):
        plan_private_bounds(14, d, 1.0, mode=mode, group_size=0)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_public_choices_do_not_depend_on_the_data(seed):
    X, Y = neighbours(np.random.default_rng(seed), 12, 2, "random")
    plan = plan_private_bounds(12, 2, 2.0, mode="features")
    states = []
    for Z in (X, Y):
        own = streams(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            release_feature_scales(Z, plan, own)
        states.append(own.public.bit_generator.state)
    assert states[0] == states[1]


# ------------------------------------------------------------------ noise


@pytest.mark.parametrize(
    ("mode", "centers", "repeats"),
    [("features", False, 1500), ("features", True, 30), ("norm", False, 1500)],
)
def test_noise_has_the_variance_of_the_event(monkeypatch, mode, centers, repeats):
    # Over half a million cells without a record: 1 % is five standard errors.
    plan = plan_private_bounds(4, 3, 0.2, mode=mode, centers=centers)
    event = plan.event.events[-1] if centers else plan.event
    X = np.zeros((4, 3))
    noise = []
    for seed in range(repeats):
        tables = released_tables(monkeypatch, X, plan, seed)
        noise += [table[1:] if not centers else table[:15_000] for table in tables[3 * centers :]]
    noise = np.concatenate(noise)
    assert noise.size > 500_000
    assert abs(noise.var() / event.sigma**2 - 1) < 0.01
    assert abs(noise.mean()) < 0.01 * event.sigma
    assert np.array_equal(noise, np.rint(noise / event.lattice) * event.lattice)


def test_every_record_is_counted_once(monkeypatch):
    plan = plan_private_bounds(101, 2, 25.0, mode="features")
    tables = released_tables(monkeypatch, np.random.default_rng(0).normal(size=(101, 2)), plan)
    sigmas = [plan.noises[0].sigma] * 2 + [plan.noises[1].sigma] * 2
    for table, sigma, total in zip(tables, sigmas, [50, 50, 101, 101], strict=True):
        assert abs(table.sum() - total) < 5 * sigma * math.sqrt(table.size)


def test_large_data_are_subsampled():
    plan = plan_private_bounds(10**6, 1, 3.0)
    assert plan.n_used == 2**17
    assert plan_private_bounds(10**6, 16, 0.005).n_used == 10**6


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


@pytest.mark.parametrize("mode", ["features", "norm"])
def test_outputs_and_warnings_depend_on_the_noisy_table_only(monkeypatch, mode):
    plan = plan_private_bounds(200, 2, MU, mode=mode)
    rng = np.random.default_rng(0)
    data = [np.zeros((200, 2)), rng.normal(size=(200, 2)) * 1e9, rng.standard_cauchy((200, 2))]
    for signal in (0, 500):
        results = []
        for X in data:
            noise = np.random.default_rng(5)

            def scripted(used, counting, own, *rest, noise=noise, signal=signal):
                n_cells = counting.grid.n_cells
                table = noise.normal(0, own.sigma, n_cells)
                table[n_cells // 2] += signal * own.sigma
                return table

            with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                patch.setattr(private_bounds, "noisy_histogram", scripted)
                bounds = release_private_bounds(X, plan, streams(1))
            results.append((bounds, [str(w.message) for w in caught]))
        assert results[0] == results[1] == results[2]
        found = "2 of 2 features" if mode == "features" else "the row norms"
        assert [found in text for text in results[0][1]] == ([] if signal else [True])


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


def test_extreme_values_raise_and_warn_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2)).astype(np.float64)
    X[:40] = [1.7e308, -1.7e308]
    X[40:80] = 5e-324
    for mode in ("features", "norm"):
        bounds = release_private_bounds(X, plan_private_bounds(4000, 2, 1.0, mode=mode), streams())
        assert np.isfinite(bounds.center).all()
        assert np.isfinite(bounds.to_ball(X)).all()


# --------------------------------------------------------------- accuracy

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


@pytest.mark.parametrize("name", ["normal", "offset", "lognormal", "constant", "binary"])
def test_accuracy_with_a_thousand_rows(name):
    draw, center, spread = FEATURES[name]
    X = draw(np.random.default_rng(0), 1000 * 2).reshape(1000, 2)
    plan = plan_private_bounds(1000, 2, gdp_mu(1.0, 1e-5), mode="features")
    found = release_feature_scales(X, plan, streams())
    assert np.abs(found.center - center).max() < 0.5 * spread
    assert np.abs(np.log(found.spread / spread)).max() < 0.35


def test_clusters_are_kept_apart_by_a_wider_unit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 2)) + 12.0 * (rng.random((30_000, 2)) < 0.3)
    bounds = release_private_bounds(X, plan_private_bounds(30_000, 2, 0.1), streams())
    U = bounds.to_ball(X)
    assert (np.linalg.norm(U, axis=1) > 0.99 * bounds.radius).mean() < 0.05


@pytest.mark.parametrize("d", [1, 2, 8, 32])
def test_few_normal_rows_are_clipped(d):
    X = np.random.default_rng(0).normal(5.0, 3.0, size=(30_000, d))
    bounds = release_private_bounds(
        X, plan_private_bounds(30_000, d, 0.1 * math.sqrt(8 / d)), streams()
    )
    U = bounds.to_ball(X)
    assert (np.linalg.norm(U, axis=1) > 0.999 * bounds.radius).mean() < 0.01
    assert 0.7 < U.std() < 1.3


@pytest.mark.parametrize("n", [900, 30_000])
def test_norm_holds_most_rows(n):
    X = np.random.default_rng(0).normal(2.0, 1.0, size=(n, 64))
    bounds = release_private_bounds(X, plan_private_bounds(n, 64, 0.085), streams())
    norms = np.linalg.norm(X, axis=1)
    assert (norms > bounds.radius).mean() < 0.1
    assert bounds.radius < 2 * np.median(norms)
