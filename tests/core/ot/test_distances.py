"""Distances against closed forms, linear programs, SciPy and POT; train on synthetic rows."""

import math
from functools import partial

import numpy as np
import ot
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import sqrtm
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import norm, special_ortho_group
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression
from sklearn.metrics import balanced_accuracy_score, make_scorer, mean_squared_error
from sklearn.neighbors import KNeighborsClassifier

from skdpot.metrics import (
    frechet_distance,
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
    sliced_wasserstein_distance,
    train_synthetic_test_real,
    wasserstein_distance,
)
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.distances import GaussianStatistics
from skdpot.trajectories.path_metrics import resample_paths

quick = settings(max_examples=40, deadline=None)
orders = st.sampled_from([1.0, 1.5, 2.0, 3.0])
BOTH = pytest.mark.parametrize("distance", [wasserstein_distance, sliced_wasserstein_distance])


@st.composite
def samples(draw, n_samples=2):
    """Samples in the same space; integer coordinates make ties and duplicates likely."""
    n_features = draw(st.integers(1, 3))
    number = st.floats(-10, 10).map(lambda x: round(x, 2)) | st.integers(0, 2).map(float)
    sizes = draw(st.lists(st.integers(1, 5), min_size=n_samples, max_size=n_samples))
    return tuple(draw(arrays(float, (size, n_features), elements=number)) for size in sizes)


def about(value, p):
    """Approximately `value`: an error of 1e-15 in a mass appears as its p-th root."""
    return pytest.approx(value, rel=1e-6, abs=300 * 1e-15 ** (1 / p))


@given(pair=samples(), p=orders, data=st.data())
@quick
def test_exact_equals_the_linear_program(pair, p, data):
    """The definition, word for word."""
    X, Y = pair
    masses = st.integers(0, 4)
    a, b = (
        np.array(data.draw(st.lists(masses, min_size=k, max_size=k).filter(any)), float)
        for k in (len(X), len(Y))
    )
    rows = np.kron(np.eye(len(X)), np.ones(len(Y)))
    columns = np.kron(np.ones(len(X)), np.eye(len(Y)))
    totals = np.concatenate([a / a.sum(), b / b.sum()])
    equations = {"A_eq": np.vstack([rows, columns])[:-1], "b_eq": totals[:-1]}
    solution = linprog(cdist(X, Y).ravel() ** p, **equations)
    found = wasserstein_distance(X, Y, p=p, X_weights=a, Y_weights=b)
    assert found == about(max(solution.fun, 0.0) ** (1 / p), p)


def test_sliced_is_the_mean_over_whole_blocks_of_directions():
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(50, 4)), rng.exponential(size=(70, 4))
    words = np.random.RandomState(5).randint(0, 2**31, size=4)
    directions = orthogonal_directions(64, 4, np.random.default_rng(words))
    due = ot.sliced_wasserstein_distance(X, Y, p=3, projections=directions.T)
    for n_projections in (62, 64):
        options = {"n_projections": n_projections, "random_state": 5}
        assert sliced_wasserstein_distance(X, Y, p=3, **options) == pytest.approx(due)
    seeds = (0, 1, None, None)
    assert len({sliced_wasserstein_distance(X, Y, random_state=seed) for seed in seeds}) == 4


@pytest.mark.slow
@BOTH
@given(triple=samples(n_samples=3), p=orders)
@quick
def test_it_is_a_distance(distance, triple, p):
    X, Y, Z = triple
    assert distance(X, Y, p=p) == about(distance(Y, X, p=p), p)
    assert distance(X, X[::-1], p=p) == about(0.0, p)
    assert distance(X, Z, p=p) <= distance(X, Y, p=p) + distance(Y, Z, p=p) + 1e-4


@BOTH
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("unit", [1e-50, 1.0, 1e50])
def test_translation_and_unit(distance, p, unit):
    """W_p to a translate is the length of the step; SW_2 divides it by √d, exactly."""
    rng = np.random.default_rng(4)
    X, step = rng.normal(size=(40, 5)), np.array([1.0, -2.0, 0.0, 3.0, 0.5])
    found = distance(unit * X, unit * (X + step), p=p)
    if p == 2 or distance is wasserstein_distance:
        scale = 1 if distance is wasserstein_distance else math.sqrt(5)
        assert found == pytest.approx(unit * np.linalg.norm(step) / scale, rel=1e-9)
    assert found == pytest.approx(unit * distance(X, X + step, p=p), rel=1e-9)


@BOTH
def test_weights_count_rows(distance):
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    counts = np.array([1, 3, 0, 2, 1, 5])
    repeated = distance(np.repeat(X, counts, axis=0), Y)
    assert distance(X, Y, X_weights=counts) == pytest.approx(repeated)
    assert distance(Y, X, Y_weights=counts) == pytest.approx(repeated)


@BOTH
@pytest.mark.parametrize(
    ("Y", "options", "text"),
    [
        (np.zeros((3, 2)), {"p": 0.5}, "must be finite and at least 1"),
        (np.zeros((3, 2)), {"p": np.nan}, "must be finite and at least 1"),
        (np.zeros((3, 3)), {}, "X has 2 features and Y has 3"),
        ([[0.0, np.nan]], {}, "Y must hold finite numbers, without NaN"),
        (np.zeros((3, 2)), {"X_weights": [1, 2]}, r"X_weights has shape \(2,\)"),
        (np.zeros((3, 2)), {"Y_weights": [1, 2, -1]}, "Y_weights must be finite, non-negative"),
    ],
)
def test_samples_that_are_refused(distance, Y, options, text):
    with pytest.raises(ValueError, match=text):
        distance(np.zeros((3, 2)), Y, **options)


# --- Fréchet -------------------------------------------------------------------------------------


@given(n_features=st.integers(1, 8), seed=st.integers(0, 10_000))
@quick
def test_frechet_by_the_formula_of_the_paper_and_for_common_axes(n_features, seed):
    """By SciPy's root of a product; with common axes ‖m − m'‖² + Σ(s_k − s'_k)², zeros included."""
    rng = np.random.default_rng(seed)
    means, factors = rng.normal(size=(2, n_features)), rng.normal(size=(2, n_features, n_features))
    gap = np.sum((means[0] - means[1]) ** 2)
    covariances = [factor @ factor.T for factor in factors]
    root = sqrtm(covariances[0] @ covariances[1]).real
    found = frechet_distance(*map(GaussianStatistics, means, covariances))
    # The reference loses digits where the covariances are nearly singular.
    assert found == pytest.approx(gap + np.trace(sum(covariances) - 2 * root), rel=1e-5)
    s = rng.exponential(size=(2, n_features)) * rng.integers(0, 2, size=(2, n_features))
    axes = special_ortho_group.rvs(n_features, random_state=seed) if n_features > 1 else np.eye(1)
    found = frechet_distance(*map(GaussianStatistics, means, (axes * k**2 @ axes.T for k in s)))
    assert found == pytest.approx(gap + np.sum((s[0] - s[1]) ** 2), rel=1e-6, abs=1e-6)


@given(n_rows=st.integers(2, 30), n_features=st.integers(1, 20), seed=st.integers(0, 10_000))
@quick
def test_frechet_invariances(n_rows, n_features, seed):
    """Also with fewer rows than features and with constant features; statistics stand for rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) * rng.integers(0, 2, size=n_features)
    Y = 3.0 * rng.normal(size=(n_rows + 3, n_features)) + 1.0
    base = frechet_distance(X, Y)
    statistics = GaussianStatistics(Y.mean(axis=0), np.atleast_2d(np.cov(Y, rowvar=False)))
    assert frechet_distance(statistics, X) == pytest.approx(base)
    norm = np.sum(Y.mean(axis=0) ** 2) + np.trace(statistics.covariance)
    assert GaussianStatistics.of(Y).mean_squared_norm == pytest.approx(norm)
    assert 0.0 <= frechet_distance(X, X) < 1e-10
    assert frechet_distance(1e-8 * X + 5, 1e-8 * Y + 5) == pytest.approx(1e-16 * base, rel=1e-5)
    shift = rng.normal(size=n_features)
    assert frechet_distance(X, X + shift) == pytest.approx(shift @ shift)
    axes, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    assert frechet_distance(X @ axes, Y @ axes) == pytest.approx(base)


# --- trajectories --------------------------------------------------------------------------------

PATHS = np.random.default_rng(0).normal(size=(40, 5, 3)).cumsum(axis=1)
TIMES = np.array([0.0, 0.1, 0.5, 2.0, 2.5])


def test_resampling_is_linear_interpolation_of_every_coordinate():
    at = np.array([2.5, 0.05, 0.0, 1.3, 0.5, 0.5])
    expected = np.apply_along_axis(lambda values: np.interp(at, TIMES, values), 1, PATHS)
    np.testing.assert_allclose(resample_paths(PATHS, TIMES, at), expected, atol=1e-12)
    single = resample_paths(PATHS[:, :1], [3.0], [3.0, 3.0])
    np.testing.assert_array_equal(single, PATHS[:, [0, 0]])


def test_paths_are_compared_as_vectors():
    """So they may differ where no marginal does: two crowds that swap sides, and two that stay."""
    sides = np.repeat([-1.0, 1.0], 50)[:, np.newaxis, np.newaxis]
    stay, swap = sides * np.ones((1, 2, 1)), sides * np.array([[[1.0], [-1.0]]])
    assert [wasserstein_distance(stay[:, k], swap[:, k]) for k in range(2)] == [0.0, 0.0]
    options = {"n_projections": 7, "random_state": 3}
    found = path_sliced_wasserstein_distance(stay, swap, **options)
    assert found == sliced_wasserstein_distance(stay[..., 0], swap[..., 0], **options) > 0.3
    moved = path_sliced_wasserstein_distance(PATHS, PATHS + np.array([1.0, 2, 2]), **options)
    assert moved == pytest.approx(3.0 / math.sqrt(3))


def test_marginal_distances_by_hand():
    t = np.array([3.0, 1.0, 3.0, 1.0, 3.0])
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, 1.0], [4.0, 0.0]])
    asked = []

    def sample_marginal(time, n):
        asked.append((time, n))
        return X[t == time][:n] + np.array([0.0, time])

    found = marginal_wasserstein_distances(X, t, sample_marginal)
    assert asked == [(1.0, 2), (3.0, 3)]
    columns = {"n_points": [2, 3], "wasserstein": [1.0, 3.0], "squared_wasserstein": [1.0, 9.0]}
    due = pd.DataFrame(columns, pd.Index([1.0, 3.0], name="time"))
    pd.testing.assert_frame_equal(found, due, check_dtype=False)
    few = [marginal_wasserstein_distances(X, t, sample_marginal, max_points=1) for _ in range(2)]
    assert few[0].equals(few[1])
    assert few[0]["n_points"].tolist() == [1, 1]


# --- utility -------------------------------------------------------------------------------------

ERROR = make_scorer(mean_squared_error, greater_is_better=False)
CLASSES, NUMBERS = load_iris(return_X_y=True), load_diabetes(return_X_y=True, as_frame=True)


@pytest.mark.parametrize(
    ("model", "data", "scoring", "score"),
    [
        (KNeighborsClassifier(3), CLASSES, None, lambda y, predicted: np.mean(y == predicted)),
        (KNeighborsClassifier(3), CLASSES, "balanced_accuracy", balanced_accuracy_score),
        *[
            (LinearRegression(), NUMBERS, scoring, lambda y, p: -mean_squared_error(y, p))
            for scoring in ("neg_mean_squared_error", ERROR)
        ],
    ],
)
def test_train_on_synthetic_and_test_on_real_rows_by_hand(model, data, scoring, score):
    (X, y), real = data, np.arange(len(data[0])) % 5 > 0
    model.fit(X[:60], y[:60])
    before = dict(vars(model))
    found = train_synthetic_test_real(model, X[~real], y[~real], X[real], y[real], scoring=scoring)
    assert vars(model) == before  # the estimator stays as it is
    assert isinstance(found, float)
    assert found == pytest.approx(score(y[real], model.fit(X[~real], y[~real]).predict(X[real])))


class Silent(BaseEstimator):
    def fit(self, X, y):
        return self


def one(time, n):
    return [[0.0]]


PATH, MARGINAL = path_sliced_wasserstein_distance, marginal_wasserstein_distances
TSTR = train_synthetic_test_real


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (frechet_distance, ([[1.0, 2.0]], np.eye(2)), "two or more rows; 1 given"),
        (frechet_distance, (np.eye(3), np.eye(2)), "X has 3 features and Y has 2"),
        (frechet_distance, ([[np.nan], [0.0]], np.eye(1)), "features must hold finite"),
        (GaussianStatistics, (np.zeros(2), np.eye(3)), r"mean has shape \(2,\)"),
        (GaussianStatistics, (np.zeros(2), [[1, 0.5], [0, 1]]), "must be finite, symmetric"),
        (GaussianStatistics, (np.zeros(2), np.diag([1.0, -0.1])), "negative eigenvalues"),
        (resample_paths, (PATHS, TIMES[:4], [0.0]), "paths have 5 times and times has 4"),
        (resample_paths, (PATHS, [0, 1, 1, 2, 3], [0.0]), "times must increase strictly"),
        (resample_paths, (PATHS, TIMES, [2.6]), r"at must lie in \[0, 2.5\]"),
        (resample_paths, (PATHS, TIMES, [math.nan]), "at must hold finite numbers"),
        (resample_paths, (PATHS[0], TIMES, [0.0]), "paths must have shape"),
        (PATH, (PATHS, PATHS[:, :4]), "first has 5 times and 3"),
        (PATH, (PATHS, PATHS[0]), "second must have shape"),
        (partial(PATH, n_projections=0), (PATHS, PATHS), "n_projections == 0, must be >= 1"),
        (MARGINAL, ([[1.0]], [0.0, 1.0], one), "inconsistent numbers of samples"),
        (MARGINAL, ([[1.0, 0.0]], [0.0], one), "X has 2 features and Y has 1"),
        (partial(MARGINAL, max_points=0), ([[1.0]], [0.0], one), "max_points == 0, must be >= 1"),
        (TSTR, (Silent(), *CLASSES, *CLASSES), "'score' method"),
        (partial(TSTR, scoring="nonsense"), (LinearRegression(), *CLASSES, *CLASSES), "scoring"),
    ],
)
def test_what_is_refused(call, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(*arguments)


def smoothed(X, Y, sigma, **options):
    return sliced_wasserstein_distance(X, Y, sigma=sigma, **options)


def convolved_quantiles(values, masses, sigma, levels):
    """Quantiles of a sample's convolution with N(0, σ²), on a fine grid."""
    x = np.arange(values.min() - 9 * sigma, values.max() + 9 * sigma, sigma / 200)
    density = norm.pdf((x[:, None] - values) / sigma) @ masses
    cdf = np.cumsum(density) - density / 2
    return np.interp(levels, cdf / density.sum(), x)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 6.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_distance_is_that_of_convolved_samples(sigma, weighted):
    """Along a line, by the definition: convolve, invert, integrate over a million levels."""
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(40, 1)), rng.exponential(size=(30, 1))
    a, b = (rng.random(k) if weighted else np.ones(k) for k in (40, 30))
    levels = (np.arange(10**6) + 0.5) / 10**6
    of_x = convolved_quantiles(X[:, 0], a, sigma, levels)
    of_y = convolved_quantiles(Y[:, 0], b, sigma, levels)
    found = smoothed(X, Y, sigma, X_weights=a, Y_weights=b)
    assert found == pytest.approx(math.sqrt(np.mean((of_x - of_y) ** 2)), abs=1e-3 * sigma)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1e-7, 0.01, 0.3, 20.0])
def test_smoothed_distance_has_the_closed_forms(sigma):
    """Translates stay as far as they are; so do parts far apart, whose mass does not mix."""
    X = np.random.default_rng(3).normal(size=(50, 2)) + 1e4
    close = max(1e-3 * sigma, 4e-4 * np.ptp(X))
    assert smoothed(X, X + np.array([0.3, 0.4]), sigma) == pytest.approx(
        0.5 / math.sqrt(2), abs=close
    )
    assert smoothed(X, X, sigma) == pytest.approx(0, abs=1e-9 * max(sigma, 1))
    far = 1e4 * sigma
    parts = np.array([[0.0], [far]]), np.array([[3 * sigma], [far - sigma]])
    assert smoothed(*parts, sigma) == pytest.approx(math.sqrt(5) * sigma, abs=3 * far / 2**13)


@pytest.mark.slow
def test_smoothing_only_shortens_distances():
    """Monotone in σ, between the plain distance and that of the means; one Gaussian to another."""
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(1000, 2)), 3 * rng.normal(size=(1000, 2)) + 0.5
    found = [smoothed(X, Y, sigma) for sigma in (0, 0.01, 0.5, 2, 40)]
    assert found[0] == sliced_wasserstein_distance(X, Y)
    assert found[0] == pytest.approx(found[1], abs=0.01)
    assert np.all(np.diff(found) < 1e-4)
    gap = np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0)) / math.sqrt(2)
    assert gap <= found[-1] == pytest.approx(gap, abs=0.15)
    expected = math.sqrt(0.5**2 + (math.hypot(3, 2) - math.hypot(1, 2)) ** 2)
    assert found[3] == pytest.approx(expected, abs=0.1)
    assert smoothed(Y, X, 2) == pytest.approx(found[3])


@pytest.mark.parametrize("sigma", [-1, np.inf, np.nan])
def test_smoothing_must_be_a_standard_deviation(sigma):
    with pytest.raises(ValueError, match="sigma="):
        smoothed([[0.0]], [[1.0]], sigma)
    with pytest.raises(ValueError, match="smooths only with p=2"):
        smoothed([[0.0]], [[1.0]], 1.0, p=1)
